#!/bin/sh
# oracle_env.sh: makes .venv-oracle, the Python environment of `make check-oracle`, and makes it again when a list of
# requirements has changed. Does nothing when all is there, or when PHI_ORACLE_PYTHON names another Python.
requirements=tests/oracle/requirements.txt
aisbench=deploy/aisbench/requirements.txt # without its dependencies: what it needs is in both lists
venv=.venv-oracle

# Most modules are never imported: those that most tests do are compiled below, others when they are.
install() {
    "$venv/bin/pip" install --quiet --disable-pip-version-check --no-compile "$@"
}

if [ -n "${PHI_ORACLE_PYTHON:-}" ] ||
    cat "$requirements" "$aisbench" | cmp -s - "$venv/requirements.txt"; then
    exit 0
fi
echo "making $venv"
rm -rf "$venv"
scripts/deps.sh install oracle && python3 -m venv "$venv" || exit 1
# torch first and alone: the other packages then find it and do not ask for another one.
install "$(grep '^torch==' "$requirements")" || exit 1
install -r "$requirements" || exit 1
install --no-deps -r "$aisbench" || exit 1
env -u PYTHONDONTWRITEBYTECODE "$venv/bin/python" -c '
import compressed_tensors, lm_eval.models.huggingface, openai, pytest
import transformers.models.phi.modeling_phi, transformers.models.phi3.modeling_phi3' 2>/dev/null
cat "$requirements" "$aisbench" >"$venv/requirements.txt"
