#!/bin/sh
# oracle.sh BUILD: compares with transformers and tokenizers, in the environment that oracle_env.sh makes.
# PHI_ORACLE_PYTHON, a Python that has the requirements already, is used instead if set.
build=$1

if ! scripts/oracle_env.sh; then
    echo "cannot make the Python environment" >&2
    echo "0 passed, 1 failed"
    exit 1
fi
# A process for each core, four at most (they hold models).
workers=$(nproc)
[ "$workers" -le 4 ] || workers=4
mkdir -p "$build"
report=$build/oracle.xml
rm -f "$report"
# The environment's packages are installed uncompiled: what the first process compiles, the others find.
unset PYTHONDONTWRITEBYTECODE
# Units of work and their order: tests/oracle/conftest.py.
PHIDELITY=$PWD/$build/phidelity PHI_BUILD=$PWD/$build \
    "${PHI_ORACLE_PYTHON:-.venv-oracle/bin/python}" -m pytest tests/oracle -n "$workers" \
    --dist loadscope --no-loadscope-reorder --junitxml="$report" -q </dev/null
status=$?
python3 scripts/summary.py "$report" || status=1
exit $status
