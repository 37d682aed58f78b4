"""The goldens are what the committed tools make, and the numpy reference agrees with them."""
import shutil

import make_checkpoint
import make_goldens
import pytest
import reference
import torch
from conftest import ROOT
from safetensors.torch import load_file

GOLDEN = ROOT / "tests" / "golden"


def test_checkpoints_are_made_byte_by_byte(tmp_path):
    for name in make_checkpoint.TINY:
        make_checkpoint.make(name, tmp_path / name, **make_checkpoint.TINY_FORMS.get(name, {}))
        made = {p.name for p in (tmp_path / name).iterdir()}
        assert made | {"golden.safetensors"} == {p.name for p in (GOLDEN / name).iterdir()}
        for path in (tmp_path / name).iterdir():
            assert path.read_bytes() == (GOLDEN / name / path.name).read_bytes(), path.name


@pytest.mark.parametrize("name", make_checkpoint.TINY)
def test_transformers_still_answers_so(name, tmp_path):
    folder = tmp_path / name
    shutil.copytree(GOLDEN / name, folder)
    make_goldens.make(folder)
    made, committed = load_file(folder / "golden.safetensors"), load_file(
        GOLDEN / name / "golden.safetensors")
    assert made.keys() == committed.keys()
    for key, value in committed.items():
        if value.dtype == torch.int32:
            assert torch.equal(made[key], value), key
        else:
            limit = 0.03 if value.dtype == torch.bfloat16 else 1e-5  # sums are the CPU's
            assert (made[key] - value).abs().max() <= limit * value.abs().max(), key


def test_reference_agrees_with_the_goldens():
    assert reference.check(GOLDEN) == 0



@pytest.mark.parametrize("name, change", [
    ("phi3-swa", dict(window=16)), ("phi3-swa", dict(window=18)),
    ("phi3-longrope", dict(original_length=31)), ("phi3-longrope", dict(original_length=33)),
    ("phi-qkln", dict(qk_layernorm=False)),
    ("phi-qkln", dict(eps=1e-5)), ("phi3-bias", dict(eps=1e-5)), ("phi3-gqa", dict(rotary_dim=16)),
    ("phi3-gqa", dict(theta=10000.0)), ("phi-linear", dict(rope_type="default")),
    ("phi-dynamic", dict(rope_type="default")), ("phi-yarn", dict(rope_type="default"))])
def test_goldens_notice_a_wrong_switch(name, change):
    """A golden that a wrong model also passes would prove nothing."""
    model = reference.Model(GOLDEN / name)
    vars(model.config).update(change)
    golden = reference.read_safetensors(GOLDEN / name / "golden.safetensors")
    shares = []
    for key in golden:
        if key.endswith(".logits"):
            got = reference.forward(model, golden[key.replace("logits", "input_ids")])
            shares.append(abs(got - golden[key]).max() / abs(golden[key]).max())
    assert max(shares) > 30 * reference.LIMIT
