#!/bin/sh
# Builds the images, with podman, buildah or docker 23. Variables: VERSION, PREFIX (enmasse), BASE, BUILD_BASE, JAVA_BASE and JAVA_HOME as
# in images/Containerfile, ARTEMIS (the folder of an unpacked Artemis distribution; without it that image is left out),
# BUILD_FLAGS (more flags of `build`).
# usage: images/build.sh [TARGET...]
set -eu
cd "$(dirname "$0")/.."
services=$(for file in services/*/__main__.py; do basename "$(dirname "$file")"; done | tr _ -)
version=${VERSION:-$(sed -n 's/^__version__ = "\(.*\)"/\1/p' enmasse/__init__.py)}
prefix=${PREFIX:-enmasse}
targets=${*:-$services suite spark-pipeline${ARTEMIS:+ artemis}}

health_check="--format docker" # the other format of podman and buildah has none
if command -v podman >/dev/null; then
  build="podman build"
elif command -v buildah >/dev/null; then
  build="buildah build --layers"
elif command -v docker >/dev/null; then
  build="docker build"
  health_check=
else
  echo "make images needs podman, buildah or docker; on Debian and Ubuntu: apt-get install podman" >&2
  exit 1
fi

# argument NAME: the variable as a build argument, if it is set.
argument() {
  eval "value=\${$1:-}"
  [ -z "$value" ] || echo "--build-arg $1=$value"
}
arguments="$(argument BASE) $(argument BUILD_BASE) $(argument JAVA_BASE) $(argument JAVA_HOME)"
for target in $targets; do
  format=
  [ "$target" != suite ] || format=$health_check
  echo "building $prefix/$target:$version"
  # shellcheck disable=SC2086 # lists of words
  $build --quiet $format --file images/Containerfile --target "$target" --label "org.opencontainers.image.version=$version" $arguments \
    --build-context "artemis=${ARTEMIS:-images}" ${BUILD_FLAGS:-} --tag "$prefix/$target:$version" . >/dev/null
done
