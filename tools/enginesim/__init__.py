"""Engine simulator: an OpenAI-compatible server that takes vLLM's flags and whose timing is a model, not a GPU.

Development and tests only. Started as ``python -m tools.enginesim serve MODEL --flag ...``; imports nothing of the
product.
"""
