#!/bin/sh
# setup.sh [base] [vllm] [openvino], or all: virtual environments in the project's folder with what the comparison needs.
# base, made when nothing is named, is .venv-peers; the others want other versions of the same libraries.
set -eu
here=$(dirname "$0")

# environment FOLDER REQUIREMENTS
environment() {
    python3 -m venv "$here/../../$1"
    pip="$here/../../$1/bin/pip"
    # torch first and alone: the others then find it and do not ask for another one.
    "$pip" install --quiet --disable-pip-version-check "$(grep '^torch==' "$here/$2")"
    "$pip" install --quiet --disable-pip-version-check -r "$here/$2"
    # Asked for by the way, needed by no model of text; one made for another torch would not load, and take all down with it.
    "$pip" uninstall --quiet --quiet --yes torchvision torchaudio torchcodec
}

programs=${*:-base}
[ "$programs" != all ] || programs="base vllm openvino"
for program in $programs; do
    case $program in
    base)
        # The tools of llama.cpp are not needed, and take most of the time.
        export CMAKE_ARGS="${CMAKE_ARGS:-} -DGGML_NATIVE=ON -DLLAMA_BUILD_TOOLS=OFF"
        environment .venv-peers requirements.txt
        ;;
    vllm) environment .venv-peers-vllm requirements-vllm.txt ;;
    openvino) environment .venv-peers-openvino requirements-openvino.txt ;;
    *)
        echo "setup.sh: $program is none of base, vllm, openvino, all" >&2
        exit 1
        ;;
    esac
done
