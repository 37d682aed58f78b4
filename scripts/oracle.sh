#!/bin/sh
# oracle.sh BUILD: compares with transformers and tokenizers. They live in .venv-oracle, which is made
# once and again when a list of requirements changes. PHI_ORACLE_PYTHON, a Python that has
# the requirements already, is used instead if set.
build=$1
requirements=tests/oracle/requirements.txt
aisbench=deploy/aisbench/requirements.txt # without its dependencies: what it needs is in both lists
venv=.venv-oracle

give_up() {
    echo "$1" >&2
    echo "0 passed, 1 failed"
    exit 1
}

make_venv() {
    rm -rf "$venv"
    scripts/deps.sh install oracle && python3 -m venv "$venv" || return 1
    # torch first and alone: the other packages then find it and do not ask for another one.
    "$venv/bin/pip" install --quiet --disable-pip-version-check \
        "$(grep '^torch==' "$requirements")" || return 1
    "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$requirements" || return 1
    "$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps -r "$aisbench" || return 1
    cat "$requirements" "$aisbench" >"$venv/requirements.txt"
}

python=${PHI_ORACLE_PYTHON:-$venv/bin/python}
if [ -z "${PHI_ORACLE_PYTHON:-}" ] &&
    ! cat "$requirements" "$aisbench" | cmp -s - "$venv/requirements.txt"; then
    echo "making $venv"
    make_venv || give_up "cannot make $venv"
fi
# A process for each core, four at most (they hold models).
workers=$(nproc)
[ "$workers" -le 4 ] || workers=4
mkdir -p "$build"
report=$build/oracle.xml
rm -f "$report"
PHIDELITY=$PWD/$build/phidelity PHI_BUILD=$PWD/$build \
    "$python" -m pytest tests/oracle -n "$workers" --dist loadfile --junitxml="$report" -q </dev/null
status=$?
python3 scripts/summary.py "$report" || status=1
exit $status
