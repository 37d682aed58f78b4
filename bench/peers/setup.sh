#!/bin/sh
# setup.sh: makes .venv-peers in the project's folder, with what the comparison needs.
set -eu
here=$(dirname "$0")
venv=$here/../../.venv-peers
python3 -m venv "$venv"
# torch first and alone: transformers then finds it and does not ask for another one.
"$venv/bin/pip" install --quiet --disable-pip-version-check "$(grep '^torch==' "$here/requirements.txt")"
# The tools of llama.cpp are not needed, and take most of the time.
CMAKE_ARGS="${CMAKE_ARGS:-} -DGGML_NATIVE=ON -DLLAMA_BUILD_TOOLS=OFF" \
    "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$here/requirements.txt"
