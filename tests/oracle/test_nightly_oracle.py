"""The references of nightly runs: those in deploy/nightly are what transformers says, and others are made by it."""
import json
import os
import subprocess
import sys

import numpy as np
import pytest
from conftest import PROGRAM, ROOT
from safetensors.numpy import load_file

sys.path.insert(0, str(PROGRAM.parent / "python"))

from phidelity import reference  # noqa: E402

NIGHTLY = ROOT / "deploy" / "nightly"
MODELS = ("phi-tiny-code", "phi3-tiny-chat")


def python(*arguments):
    environment = {**os.environ, "PYTHONPATH": str(PROGRAM.parent / "python"), "HF_HUB_OFFLINE": "1"}
    return subprocess.run([sys.executable, "-m", *map(str, arguments)], env=environment, capture_output=True, text=True,
                          timeout=600)


@pytest.mark.parametrize("name", MODELS)
def test_committed_references(name, tmp_path):
    made = tmp_path / "made.safetensors"
    reference.write(reference.arguments([str(ROOT / "models" / name), str(made), "--prompts",
                                         str(NIGHTLY / f"{name}.jsonl")]))
    new, committed = load_file(made), load_file(NIGHTLY / f"{name}.safetensors")
    assert new.keys() == committed.keys()
    for key in new:
        if key.endswith(".logits"):
            np.testing.assert_allclose(committed[key], new[key], atol=2e-4, rtol=0, err_msg=key)
        elif key != "about":
            np.testing.assert_array_equal(committed[key], new[key], err_msg=key)


def test_a_reference_is_made_once(tmp_path):
    matrix, output = tmp_path / "matrix.yaml", tmp_path / "out"
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('"def add(a, b):"\n')
    matrix.write_text(f"models: [{{path: {ROOT}/models/phi-tiny-code, reference_prompts: prompts.jsonl}}]\n"
                      "dtypes: [float32]\nsteps: [check]\nlimits: {float32: {min_top1: 100, max_kl: 1.0e-7}}\n")
    for n_made in (1, 0):
        result = python("phidelity.nightly", matrix, "--output-dir", output, "--program", PROGRAM)
        assert result.returncode == 0, result.stderr
        found = json.loads((output / "results.json").read_text())
        assert [step["name"] for step in found["preparations"]] == ["reference"] * n_made
        assert found["cells"][0]["steps"][0]["outcome"] == "pass"
        assert found["versions"]["reference of phi-tiny-code"].startswith("transformers ")
    prompts.write_text('5\n')  # no prompt: the newer file makes the reference again, which fails, and the report says so
    result = python("phidelity.nightly", matrix, "--output-dir", output, "--program", PROGRAM)
    found = json.loads((output / "results.json").read_text())["preparations"][0]
    assert (found["outcome"], result.returncode) == ("fail", 1)
    assert "expected a JSON string or an array of token ids" in found["why"]
    assert "expected a JSON string or an array of token ids" in (output / "report.md").read_text()
