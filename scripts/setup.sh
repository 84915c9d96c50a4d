#!/usr/bin/env bash
# Makes what `make demo` and `make test` need: a virtual environment in .venv, and Java 17 or newer.
#
# Works from a fresh clone on a bare Debian or Ubuntu machine: what is missing (Python 3.11, its venv module, Java) is
# installed through apt when this runs as root or sudo needs no password; otherwise it says all that is to be installed,
# before anything slow. A second run is quick: the environment is made again only when pyproject.toml, PYTHON or the
# place of the clone changed.
#
#   scripts/setup.sh --no-java             only the environment; enough for lint, types and the tests without Spark
#   PYTHON=python3.12 scripts/setup.sh     which Python; default: python3, else python3.13, 3.12 or 3.11
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '%s\n' "setup: $*" >&2; }
fail() { say "$*"; exit 1; }

case "${1:-}" in
    "") wants_java=yes ;;
    --no-java) wants_java=no ;;
    *) fail "unknown argument '$1'; there is --no-java" ;;
esac

# -- apt --------------------------------------------------------------------------------------------------------------

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"
    elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then sudo -n "$@"
    else return 1
    fi
}

# Prints the first of some packages that apt could install.
known_package() {
    local package
    command -v apt-cache >/dev/null || return 1
    for package; do
        if [[ $(LC_ALL=C apt-cache policy "$package" 2>/dev/null) == *"Candidate: "[!\(]* ]]; then
            echo "$package"
            return
        fi
    done
    return 1
}

# Prints the first error of apt, else its first warning.
trouble_in() { { grep '^E: ' <<<"$1" || grep '^W: ' <<<"$1" || tail -n 1 <<<"$1"; } | head -n 1; }

apt_log=
apt_ready=
# Installs the first of some packages that apt has; says why it could not.
apt_install() {
    local package log
    command -v apt-get >/dev/null || return 1
    if ! as_root true; then
        [ "$apt_ready" = no ] || say "apt is not asked: this is not root, and there is no sudo without a password"
        apt_ready=no
        return 1
    fi
    if [ -z "$apt_ready" ]; then
        apt_log=$(as_root apt-get update -qq 2>&1) || true # the lists of another day may do
        apt_ready=yes
    fi
    if ! package=$(known_package "$@"); then
        say "apt has no package $1${apt_log:+; the last update of its lists said: $(trouble_in "$apt_log")}"
        return 1
    fi
    say "installing $package through apt"
    as_root mkdir -p /usr/share/man/man1 # small images lack it, and Java's packages link into it
    if ! log=$(as_root env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=120 \
        install -y -qq --no-install-recommends "$package" 2>&1); then
        say "that failed: $(trouble_in "$log")"
        return 1
    fi
    hash -r
}

missing=()
packages=()
# Notes what has to be installed by hand, and as what: the first of some packages that apt has, or when it knows none.
lacks() {
    local unknown=$2
    missing+=("$1")
    shift 2
    packages+=("$(known_package "$@" || echo "$unknown")")
}

# -- Python: which one, or none that fits -----------------------------------------------------------------------------

fits() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }
has_venv() { "$1" -c 'import ensurepip, venv' 2>/dev/null; }

# Prints a Python that fits, one with the venv module if there is one.
find_python() {
    local name first=
    for name in python3 python3.13 python3.12 python3.11; do
        if command -v "$name" >/dev/null && fits "$name"; then
            if has_venv "$name"; then
                command -v "$name"
                return
            fi
            [ -n "$first" ] || first=$(command -v "$name")
        fi
    done
    [ -n "$first" ] && echo "$first"
}

stamp_file=.venv/.merganser-setup
stamp=$(cat pyproject.toml <(pwd) <(echo "${PYTHON:-}") | cksum)
if [ "$(cat "$stamp_file" 2>/dev/null || true)" = "$stamp" ] && .venv/bin/python -c '' 2>/dev/null; then
    python=
elif [ -n "${PYTHON:-}" ]; then
    fits "$PYTHON" || fail "PYTHON is '$PYTHON', which is not Python 3.11 or newer."
    python=$PYTHON
else
    python=$(find_python || true)
    if [ -z "$python" ] && apt_install python3-venv; then python=$(find_python || true); fi
    [ -n "$python" ] || lacks "Python 3.11 or newer, with its venv module" python3-venv python3-venv
fi
if [ -n "$python" ]; then
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    if ! has_venv "$python" && ! { apt_install "python$version-venv" python3-venv && has_venv "$python"; }; then
        lacks "the modules venv and ensurepip of $python" "python$version-venv" "python$version-venv" python3-venv
    fi
fi

# -- Java -------------------------------------------------------------------------------------------------------------

JAVA_PACKAGES="openjdk-17-jre-headless openjdk-21-jre-headless default-jre-headless"

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

# Stops when there is a Java that fits and another one comes before it.
point_at_java() {
    local home
    for home in /usr/lib/jvm/*; do
        if [ -x "$home/bin/java" ] && java_fits "$home/bin/java"; then
            fail "Spark needs Java 17 or newer, and $(command -v java) is older. Run again with JAVA_HOME=$home"
        fi
    done
}

if [ $wants_java = yes ] && ! have_java; then
    if [ -n "${JAVA_HOME:-}" ]; then
        fail "JAVA_HOME is '$JAVA_HOME', which is not Java 17 or newer. Point it at one, or unset it."
    fi
    if command -v java >/dev/null; then point_at_java; fi
    # shellcheck disable=SC2086 # several words
    if ! { apt_install $JAVA_PACKAGES && have_java; }; then
        if command -v java >/dev/null; then point_at_java; fi
        # shellcheck disable=SC2086
        lacks "Java 17 or newer, which Spark needs (not needed for: make lint, make types, make unit)" default-jre-headless $JAVA_PACKAGES
    fi
fi

if [ ${#missing[@]} -gt 0 ]; then
    for what in "${missing[@]}"; do say "missing: $what"; done
    say "Install that and run this again. On Debian or Ubuntu, as root: apt-get install ${packages[*]}"
    fail "Elsewhere: https://www.python.org/downloads and https://adoptium.net, or the system's own packages."
fi

# -- the environment --------------------------------------------------------------------------------------------------

if [ -n "$python" ]; then
    say "making .venv with Python $version"
    rm -rf .venv
    "$python" -m venv .venv
    say "installing merganser and what its tests and its demo use (a few minutes)"
    for what in "--upgrade pip" "-e .[spark,test,demo,docs]"; do
        # shellcheck disable=SC2086 # several words
        .venv/bin/python -m pip install --quiet --disable-pip-version-check $what ||
            fail "pip could not install that, see above. Run this again when it can; pip's own settings apply."
    done
    echo "$stamp" >"$stamp_file"
fi
