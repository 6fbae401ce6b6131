#!/bin/sh
# Makes the virtual environment: everything pinned by requirements.lock, and the project itself in place.
# Downloads are cached by uv, and PySpark as it was built, under the user's cache folder, so a second checkout takes seconds.
set -eu
python=$1
venv=$2
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
  echo "EnMasse needs Python 3.11 or later; '$python' is $("$python" --version 2>&1). Say: make PYTHON=python3.12 install" >&2
  exit 1
}
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
[ -x "$venv/bin/uv" ] || "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "uv==0.13.8"
# PySpark is published as source only, and uv would build it for every checkout (20 s, 900 MB of cache each). So pip builds it once.
version=$(sed -n 's/^pyspark==\([^ ]*\).*/\1/p' requirements.lock)
wheels=${XDG_CACHE_HOME:-$HOME/.cache}/enmasse/wheels
wheel=$wheels/pyspark-$version-py2.py3-none-any.whl
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' INT TERM
awk -v inside="$scratch/pyspark" -v other="$scratch/others" '/^[^ ]/ { out = /^pyspark==/ ? inside : other } { print > out }' requirements.lock
echo "installing what requirements.lock pins ..."
if [ ! -f "$wheel" ]; then
  echo "building PySpark $version (450 MB to fetch) ..."
  # PEP 517: else the pip of Debian 12 asks for the package wheel, which its environments lack
  "$venv/bin/python" -m pip wheel --quiet --disable-pip-version-check --use-pep517 --no-deps --require-hashes --requirement "$scratch/pyspark" --wheel-dir "$scratch"
  mkdir -p "$wheels"
  mv "$scratch/${wheel##*/}" "$wheel.$$"
  mv "$wheel.$$" "$wheel"
fi
export VIRTUAL_ENV="$venv"
"$venv/bin/uv" pip install --quiet --compile-bytecode --require-hashes -r "$scratch/others"
"$venv/bin/uv" pip install --quiet --compile-bytecode --no-deps "$wheel"
"$venv/bin/uv" pip install --quiet --no-deps -e .
