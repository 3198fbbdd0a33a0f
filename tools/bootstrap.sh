#!/usr/bin/env bash
# Makes the Python environment from the lock file. Called by the Makefile; idempotent.
set -euo pipefail
venv=${1:?usage: bootstrap.sh VENV}
python=${PYTHON:-python3}
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
  echo "weighlock: Python 3.11 or newer is needed; $("$python" --version 2>&1) was found. Set PYTHON=/path/to/python3.11" >&2
  exit 2
fi
echo "• Python environment ($venv) from requirements.lock"
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
"$venv/bin/python" -c 'import uv' 2>/dev/null || "$venv/bin/python" -m pip install --quiet --disable-pip-version-check uv
"$venv/bin/python" -m uv pip install --quiet --python "$venv/bin/python" --require-hashes -r requirements.lock
"$venv/bin/python" -m uv pip install --quiet --python "$venv/bin/python" --no-deps --no-build-isolation -e .
