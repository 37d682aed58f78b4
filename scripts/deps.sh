#!/bin/sh
# deps.sh check:   is everything there that the build needs? If not, one line says what to do.
# deps.sh install: installs what is missing with apt, as root or by sudo; does nothing when all is there.
# deps.sh install demo: also what the demonstration asks the server with.
# deps.sh install oracle: also what the Python environment of `make check-oracle` needs.
set -u
packages=

need() { # need PACKAGES COMMAND...: the packages are missing when the command fails
    names=$1
    shift
    "$@" >/dev/null 2>&1 || packages="$packages $names"
}

any_compiler() {
    command -v "${CC:-cc}" || command -v gcc || command -v clang
}

c_headers() {
    echo '#include <stdlib.h>' | "$(any_compiler | head -n 1)" -E -
}

need "gcc" any_compiler
need "libc6-dev" c_headers
need "meson" command -v meson
need "ninja-build" command -v ninja
if command -v pkg-config >/dev/null 2>&1; then
    need "libjansson-dev" pkg-config --exists 'jansson >= 2.13'
    need "libyaml-dev" pkg-config --exists yaml-0.1
    need "libmicrohttpd-dev" pkg-config --exists 'libmicrohttpd >= 0.9.75'
    need "libgnutls28-dev" pkg-config --exists gnutls
    need "libcurl4-gnutls-dev" pkg-config --exists 'libcurl >= 7.68'
    need "libcmocka-dev" pkg-config --exists cmocka
else
    packages="$packages pkg-config libjansson-dev libyaml-dev libmicrohttpd-dev libgnutls28-dev libcurl4-gnutls-dev libcmocka-dev"
fi
if [ "${1:-check}" = install ]; then # for the Python package, in the Python that meson looks at
    need "python3-cffi" sh -c "/usr/bin/python3 -c 'import cffi' || python3 -c 'import cffi'"
fi
if [ "${2:-}" = demo ]; then
    need "curl" command -v curl
fi
if [ "${2:-}" = oracle ]; then
    need "python3-venv" python3 -c 'import venv, ensurepip'
fi

[ -z "$packages" ] && exit 0
if [ "${1:-check}" = check ]; then
    echo "missing:$packages; 'make deps' installs them, or: apt-get install$packages" >&2
    exit 1
fi
if ! command -v apt-get >/dev/null 2>&1; then
    echo "missing (by their Debian names):$packages; please install them" >&2
    exit 1
elif [ "$(id -u)" = 0 ]; then
    as_root=
elif sudo -n true 2>/dev/null; then
    as_root="sudo -n"
else
    echo "missing, and there is no root or sudo here; please run: sudo apt-get install$packages" >&2
    exit 1
fi
export DEBIAN_FRONTEND=noninteractive
echo "installing$packages"
# shellcheck disable=SC2086 # both are lists of words
$as_root apt-get update -qq && $as_root apt-get install -y -qq --no-install-recommends $packages >/dev/null || {
    echo "apt-get could not install$packages" >&2
    exit 1
}
