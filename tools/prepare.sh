#!/bin/sh
# Installs what this machine lacks for `make install`, `make demo`, `make test` or `make test-kubernetes`, and says so before. On Debian and Ubuntu, as root or with
# sudo. On other systems it names what is missing and ends with status 1.
# usage: tools/prepare.sh install|demo|test|kubernetes|node [PYTHON]
set -eu
goal=${1:?install, demo, test, kubernetes or node}
python=${2:-python3}
missing=

# need PACKAGE COMMAND...: the package is missing if the command fails.
need() {
  package=$1
  shift
  "$@" >/dev/null 2>&1 || missing="$missing $package"
}
has() { command -v "$1"; }
has_server() { has "$1" || [ -x "/usr/sbin/$1" ]; } # which is not on everybody's PATH
java_17() { [ "$(java -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p')" -ge 17 ]; }
node_18() { [ "$(node -p 'process.versions.node.split(".")[0]')" -ge 18 ]; }
rust_1_85() { cargo --version | awk '{ split($2, v, "."); new = v[1] > 1 || v[2] >= 85 } END { exit !new }'; }
header() { echo "#include <$1>" | gcc -fsyntax-only -xc -; }
python_header() { header "$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h"; }

if ! has "$python" >/dev/null; then
  echo "EnMasse needs Python 3.11 or later, and '$python' is not on PATH. Say: make PYTHON=python3.12 install" >&2
  exit 1
fi
need make has make
need "gcc libc6-dev" header stdio.h
need libssl-dev header openssl/ssl.h
need python3-dev python_header
need python3-venv "$python" -c 'import ensurepip, venv'
case $goal in
demo)
  need openjdk-17-jre-headless java_17
  ;;
test)
  need openjdk-17-jdk-headless has javac
  need maven has mvn
  need golang-go has go
  need nodejs node_18
  need npm has npm
  rust=cargo
  if grep -qs '^VERSION_ID="12"' /etc/os-release; then rust=cargo-web; fi # the plain one of Debian 12 is too old
  need $rust rust_1_85
  need "chromium fonts-dejavu-core" has chromium
  need redis-server has redis-server
  need mosquitto has_server mosquitto
  need mosquitto-clients has mosquitto_pub
  need slapd has_server slapd
  need libcoap3-bin has coap-client-notls
  need nghttp2-client has h2load
  need prometheus has promtool # checks the rules of alerts
  need iproute2 has_server ip  # network namespaces
  need faketime has faketime   # clocks that jump
  ;;
kubernetes | node)
  need golang-go has go # of any release: it fetches the one that builds
  need util-linux has setpriv
  ;;
esac
case $goal in
node)
  need podman has podman
  need runc has_server runc
  need netavark [ -x /usr/lib/podman/netavark ]
  need aardvark-dns [ -x /usr/lib/podman/aardvark-dns ]
  need catatonit has catatonit
  need iptables has_server iptables
  need iproute2 has ip
  need haproxy has_server haproxy
  ;;
esac
[ -n "$missing" ] || exit 0

if has apt-get >/dev/null && [ "$(id -u)" -eq 0 ]; then
  root=
elif has apt-get >/dev/null && has sudo >/dev/null; then
  root=sudo
else
  echo "missing for 'make $goal' (the names of Debian's packages):$missing" >&2
  echo "Install them, and run it again." >&2
  exit 1
fi
echo "installing with apt-get what 'make $goal' needs:$missing"

# Tests start servers of their own. Packages of servers start theirs unless policy-rc.d forbids it (Debian Policy 9.3.3.1), and enable it for the
# next boot.
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
  trap '$root rm -f $policy' EXIT
  trap 'exit 1' INT TERM
  printf '#!/bin/sh\nexit 101\n' | $root tee $policy >/dev/null
  $root chmod 755 $policy
fi
$root apt-get update -qq
# shellcheck disable=SC2086 # a list of words
DEBIAN_FRONTEND=noninteractive $root apt-get install -y -qq --no-install-recommends $missing >/dev/null
for server in redis-server mosquitto prometheus slapd; do
  case " $missing " in
  *" $server "*) $root systemctl disable --quiet "$server" >/dev/null 2>&1 || true ;; # without systemd there is nothing to do
  esac
done
