#!/usr/bin/env bash
# Makes what `make demo` and `make test` need: a virtual environment in .venv, and Java 17 or newer.
#
# Works from a fresh clone on a bare Debian machine with Python 3.11 or newer: missing Debian packages are installed
# through apt when this runs as root or sudo needs no password, otherwise it says what to install. A second run is
# quick: the environment is made again only when pyproject.toml, PYTHON or the place of the clone changed.
#
#   PYTHON=python3.12 scripts/setup.sh     which Python; default: python3, else python3.13, 3.12 or 3.11
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '%s\n' "setup: $*" >&2; }
fail() { say "$*"; exit 1; }

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"
    elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then sudo -n "$@"
    else return 1
    fi
}

apt_updated=no
apt_install() {
    local log
    command -v apt-get >/dev/null || return 1
    if [ $apt_updated = no ]; then
        as_root apt-get update -qq >/dev/null 2>&1 || return 1
        apt_updated=yes
        as_root mkdir -p /usr/share/man/man1 # small images lack it, and Java's packages link into it
    fi
    say "installing $1 through apt"
    if ! log=$(as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$1" 2>&1); then
        say "that failed: $(tail -n 1 <<<"$log")"
        return 1
    fi
}

# -- Python -----------------------------------------------------------------------------------------------------------

fits() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

find_python() {
    if [ -n "${PYTHON:-}" ]; then
        fits "$PYTHON" || fail "PYTHON is '$PYTHON', which is not Python 3.11 or newer."
        echo "$PYTHON"
        return
    fi
    for name in python3 python3.13 python3.12 python3.11; do
        if command -v "$name" >/dev/null && fits "$name"; then
            command -v "$name"
            return
        fi
    done
    fail "merganser needs Python 3.11 or newer, and there is none on the PATH. On Debian 12: apt-get install python3 python3-venv"
}

stamp_file=.venv/.merganser-setup
stamp=$(cat pyproject.toml <(pwd) <(echo "${PYTHON:-}") | sha256sum | cut -d' ' -f1)

if [ "$(cat "$stamp_file" 2>/dev/null || true)" != "$stamp" ] || ! .venv/bin/python -c '' 2>/dev/null; then
    python=$(find_python)
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        apt_install "python$version-venv" || apt_install python3-venv ||
            fail "Python has no venv module. On Debian: apt-get install python$version-venv"
    fi
    say "making .venv with Python $version"
    rm -rf .venv
    "$python" -m venv .venv
    say "installing merganser and what its tests and its demo use (a few minutes)"
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --upgrade pip
    .venv/bin/python -m pip install --quiet --disable-pip-version-check -e '.[spark,test,demo]'
    echo "$stamp" >"$stamp_file"
fi

# -- Java -------------------------------------------------------------------------------------------------------------

java_fits() {
    local found
    found=$("$1" -version 2>&1 | sed -n 's/.*version "\(1\.\)\{0,1\}\([0-9]*\).*/\2/p' | head -n 1)
    [ -n "$found" ] && [ "$found" -ge 17 ]
}

have_java() {
    if [ -n "${JAVA_HOME:-}" ]; then
        [ -x "$JAVA_HOME/bin/java" ] && java_fits "$JAVA_HOME/bin/java"
    else
        command -v java >/dev/null && java_fits java
    fi
}

if ! have_java; then
    if [ -n "${JAVA_HOME:-}" ]; then
        fail "JAVA_HOME is '$JAVA_HOME', which is not Java 17 or newer. Point it at one, or unset it."
    fi
    for package in openjdk-17-jre-headless openjdk-21-jre-headless default-jre-headless; do
        if apt_install "$package" && have_java; then break; fi
    done
    have_java || fail "Spark needs Java 17 or newer, and there is none on the PATH. On Debian: apt-get install openjdk-17-jre-headless (or openjdk-21-jre-headless). Elsewhere: https://adoptium.net"
fi
