"""Run manifests: read what is really running, say what really changes.

Pure: no client, no clock, no randomness. Used by the operator, the CLI and the dashboard alike. May import ``crds``
only. Entry points: :mod:`manifests.importing` (read), :mod:`manifests.diff` (compare), :mod:`manifests.lint`,
:mod:`manifests.ledger`, :mod:`manifests.diagnose`, :mod:`manifests.engines.metrics` (exposition text),
:mod:`manifests.digest` (canonical form, digests).
"""
