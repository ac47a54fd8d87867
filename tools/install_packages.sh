#!/usr/bin/env bash
# Installs the Debian packages that Tensortap is built with: the one place that names them.
# Asks apt only when one is missing, so that running it again costs nothing. Works as root or with sudo.
#
#   tools/install_packages.sh          install what is missing
#   tools/install_packages.sh --list   print the names
set -euo pipefail

packages=(
  # building
  cmake ninja-build g++ ccache pkg-config
  python3-dev python3-venv
  # libraries (docs/architecture.md says what each is for)
  libhwy-dev libzstd-dev libpcre2-dev libfmt-dev nlohmann-json3-dev libcli11-dev
  libcurl4-openssl-dev
  # tests and benchmarks
  libgtest-dev libgmock-dev libbenchmark-dev
)

if [[ "${1:-}" == "--list" ]]; then
  printf '%s\n' "${packages[@]}"
  exit 0
fi

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  echo "This is not a Debian system: install the equivalents of these packages, then run make again" >&2
  echo "with PACKAGES=skip: ${packages[*]}" >&2
  exit 1
fi

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null || true)
  [[ "$status" == "installed" ]] || missing+=("$package")
done
if [[ ${#missing[@]} -eq 0 ]]; then
  exit 0
fi

as_root=()
if [[ $(id -u) -ne 0 ]]; then
  if ! command -v sudo >/dev/null; then
    echo "These Debian packages are missing, and this is neither root nor a user with sudo. As root, run:" >&2
    echo "  apt-get install ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi

echo "Installing Debian packages: ${missing[*]}"
# `env` and not an assignment in front: sudo does not pass the environment on.
apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0)
"${apt[@]}" update
"${apt[@]}" install -y --no-install-recommends "${missing[@]}" </dev/null >/dev/null
