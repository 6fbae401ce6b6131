#!/bin/sh
# A folder with a wheel of EnMasse and of all that it needs, for this Python on this kind of machine: where it is copied to,
# nothing is compiled and nothing fetched. Versions are those of images/requirements.lock.
# usage: tools/wheelhouse.sh PYTHON FOLDER
set -eu
python=$1
folder=$2
cd "$(dirname "$0")/.."
mkdir -p "$folder"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' INT TERM
# Proton links to Cyrus SASL if pkg-config knows it; where the wheels go need not have that library.
printf 'Name: none\nDescription: none\nVersion: 0\nRequires: no-cyrus-sasl\n' >"$scratch/libsasl2.pc"
export PIP_DISABLE_PIP_VERSION_CHECK=1
echo "building wheels in $folder ..."
PKG_CONFIG_PATH=$scratch "$python" -m pip wheel --quiet --no-deps --require-hashes --requirement images/requirements.lock \
  --wheel-dir "$folder"
"$python" -m pip wheel --quiet --no-deps --wheel-dir "$folder" .
echo "install it with: pip install --no-index --find-links $folder enmasse"
