#!/usr/bin/env bash
# Makes the virtual environment VENV from requirements.txt, pinned and hashed, and downloads the jars meanwhile. A second run costs
# nothing: the stamp holds the hash of everything that went in.
# Usage: setup.sh VENV [PYTHON]; without PYTHON, the one that VENV has, or else the newest supported one on the PATH that can make
# an environment.
set -euo pipefail
venv=$1
supported=(3.13 3.12 3.11)
candidates=("$venv/bin/python" "${supported[@]/#/python}")
[ -z "${2:-}" ] || candidates=("$2")
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

fail() {
    echo "setup: $*" >&2
    exit 1
}

version_of() { # 3.11, say; nothing if it does not run: pyenv leaves such a `python3.13` on the PATH
    "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null || true
}

has_environment() { # made by a Python of this version
    [ "$(version_of "$venv/bin/python")" = "$1" ]
}

incomplete=() # without ensurepip, which Debian has in a package of its own
for python in "${candidates[@]}" ""; do
    version=$(version_of "$python")
    if [[ -z $version || " ${supported[*]} " != *" $version "* ]]; then continue; fi
    if has_environment "$version" || "$python" -c 'import ensurepip' 2>/dev/null; then break; fi
    incomplete+=("$python")
done
[ -n "$python" ] || [ ${#incomplete[@]} = 0 ] ||
    fail "${incomplete[0]} cannot make a virtual environment, because it has no ensurepip. Install it (Debian: apt-get install python$(version_of "${incomplete[0]}")-venv), or name another Python: make PYTHON=/path/to/python3 ..."
[ -n "$python" ] ||
    fail "Python 3.11, 3.12 or 3.13 is needed, and this is none: ${candidates[*]}. Install one (Debian: apt-get install python3-venv), or name it: make PYTHON=/path/to/python3 ..."
java=${JAVA_HOME:+$JAVA_HOME/bin/}java
java_major=$("$java" -version 2>&1 | sed -nE 's/.* version "([0-9]+).*/\1/p' | head -n 1) || true
found_java=${java_major:+is version $java_major}
[ "${java_major:-0}" -ge 17 ] ||
    fail "Java 17 or newer is needed and '$java' ${found_java:-was not found}. Install it (Debian: apt-get install openjdk-17-jre-headless), or set JAVA_HOME."

mkdir -p "$venv"
exec 9>"$venv/.fencepost-lock" # not `.lock`: that is uv's own
flock 9 # two setups at once would install over each other

stamp=$venv/.fencepost-stamp
wanted=$({
    pwd
    "$python" --version
    cat requirements.txt pyproject.toml include/pyproject.toml "${BASH_SOURCE[0]}"
} | sha256sum)
if [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ] && "$venv/bin/python" -c 'import fencepost_stack' 2>/dev/null; then
    exec "$venv/bin/python" -m fencepost_stack.jars 9>&-
fi

rm -f "$stamp"
echo "setup: virtual environment in $venv, and jars (a minute or two the first time)"
# Neither needs the other.
PYTHONPATH=include "$python" -m fencepost_stack.jars 9>&- &
jars=$!
trap 'kill "$jars" 2>/dev/null || true' EXIT
if ! has_environment "$version"; then
    find "$venv" -mindepth 1 ! -name .fencepost-lock -delete
    "$python" -m venv "$venv" ||
        fail "'$python -m venv' failed (Debian: apt-get install python$version-venv)"
fi
# Whatever is fetched has its hash in requirements.txt, uv and what builds packages from source included.
uv_version=$(sed -nE 's/^uv==([^ ]+).*/\1/p' requirements.txt)
[ "$("$venv/bin/uv" --version 2>/dev/null | cut -d' ' -f2)" = "$uv_version" ] ||
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes \
        --requirement <(sed -n '/^uv==/,/[^\\]$/p' requirements.txt) ||
    fail "could not install uv $uv_version: see above. If a download failed, is the package index reachable? Then run again"
export VIRTUAL_ENV=$PWD/$venv
"$venv/bin/uv" pip install --quiet --exact --require-hashes --requirement requirements.txt \
    --preview-features build-dependency-hashes --require-build-hashes --build-constraints requirements.txt 9>&- ||
    fail "could not install requirements.txt: see above. If a download failed, run again"
# Editable packages have no hash. They need nothing that is not there.
"$venv/bin/uv" pip install --quiet --no-deps --no-build-isolation --editable . --editable include 9>&- ||
    fail "could not install this checkout into $venv: see above"
# Byte code once, now: dozens of processes start later, and PYTHONDONTWRITEBYTECODE may forbid them to write
# it. It is a matter of speed alone, and a few packages ship templates that do not compile; packages' tests and the tools of
# developers are left out.
"$venv/bin/python" -m compileall -q -j 0 -x '/(tests?|mypyc?|pip|setuptools|libcst|playwright|hypothesis)/' "$venv/lib" \
    >/dev/null 2>&1 9>&- || true
resolved=0
wait "$jars" || resolved=$?
echo "$wanted" >"$stamp"
exit "$resolved"
