"""The weighlock.dev/v1alpha1 API. Pydantic models are the source; `crds/generate.py` writes the YAML."""
