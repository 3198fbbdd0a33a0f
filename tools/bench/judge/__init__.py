"""judge-bench: our judge beside the rules of Argo Rollouts, Flagger and Kayenta, on the same requests.

`python -m tools.bench.judge` writes the table of docs/judge-bench.md, `... .boundary` the error rates at the exact
boundary, `... .promote` the time to promote. Everything is seeded; nothing here is used by the product.
"""
