#!/bin/sh
# Makes the virtual environment: everything pinned by requirements.lock, and the project itself in place.
# Downloads and built wheels are cached by uv under the user's cache folder, so a second checkout takes seconds.
set -eu
python=$1
venv=$2
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
  echo "EnMasse needs Python 3.11 or later; '$python' is $("$python" --version 2>&1). Say: make PYTHON=python3.12 install" >&2
  exit 1
}
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
[ -x "$venv/bin/uv" ] || "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "uv==0.13.8"
echo "installing what requirements.lock pins (the first time PySpark alone is 450 MB) ..."
VIRTUAL_ENV=$venv "$venv/bin/uv" pip install --quiet --compile-bytecode --require-hashes -r requirements.lock
VIRTUAL_ENV=$venv "$venv/bin/uv" pip install --quiet --no-deps -e .
