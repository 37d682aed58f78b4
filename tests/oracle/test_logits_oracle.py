"""`phidelity logits` against transformers, on random checkpoints with the published models' shapes.

float32: the same best id at every position, cosine at least 0.999999, KL under 1e-7, largest
difference under 3e-5 of the largest logit. bfloat16: a mean KL to the float32 answer no larger than
that of transformers' own bfloat16 run (bfloat16_kl.json). real_shapes.py has the reference's side.
"""
import json

import numpy as np
import pytest
import real_shapes
import torch
from safetensors.numpy import load_file

BFLOAT16_KL = json.loads(real_shapes.BFLOAT16_KL.read_text())
MEASURED_AGAIN = "phi-1"


class Answers:
    """transformers' float32 logits for a checkpoint."""

    def __init__(self, preset, folder):
        self.preset = preset
        self.folder = folder
        self.prompts = real_shapes.prompts(preset)
        self.logits = real_shapes.logits_of(folder, torch.float32, self.prompts)


@pytest.fixture(scope="module", params=real_shapes.PRESETS)
def answers(request, checkpoint):
    return Answers(request.param, checkpoint(request.param, real_shapes.N_LAYERS))


def compare(want, got):
    """The worst figures over the rows, in float64."""
    worst = dict(top1=0, cosine=1.0, kl=0.0, share=0.0)
    largest = float(np.abs(want).max())
    for a, b in real_shapes.doubles(want, got):
        worst["top1"] += int(a.argmax() != b.argmax())
        worst["cosine"] = min(worst["cosine"], float((a @ b) / ((a @ a) * (b @ b)).sqrt()))
        worst["kl"] = max(worst["kl"], real_shapes.row_kl(a, b))
        worst["share"] = max(worst["share"], float((a - b).abs().max()) / largest)
    return worst


def program_logits(phidelity, folder, ids, dtype, out):
    phidelity("logits", folder, "--tokens", " ".join(map(str, ids)), "--dtype", dtype, "--out", out)
    tensors = load_file(out)
    out.unlink()
    assert tensors["input_ids"].reshape(-1).tolist() == ids.tolist()
    assert tensors["logits"].dtype == np.float32
    return tensors["logits"]


def test_float32(answers, phidelity, tmp_path, figure):
    wrong, overall = [], dict(top1=0, cosine=1.0, kl=0.0, share=0.0)
    for ids, want in zip(answers.prompts, answers.logits):
        got = program_logits(phidelity, answers.folder, ids, "float32", tmp_path / "logits")
        assert got.shape == want.shape
        worst = compare(want, got)
        if (worst["top1"] or worst["cosine"] < 0.999999 or not worst["kl"] < 1e-7
                or not worst["share"] < 3e-5):
            wrong.append((len(ids), worst))
        overall = {key: (min if key == "cosine" else max)(overall[key], worst[key])
                   for key in worst}
    figure("1 - cosine, KL, difference of largest logit",
           f"{1 - overall['cosine']:.1e} {overall['kl']:.1e} {overall['share']:.1e}")
    assert not wrong, wrong


def test_bfloat16(answers, phidelity, tmp_path, figure):
    got = (program_logits(phidelity, answers.folder, ids, "bfloat16", tmp_path / "logits") for ids in answers.prompts)
    ours, theirs = real_shapes.mean_kl(answers.logits, got), BFLOAT16_KL[answers.preset]
    figure("mean KL to float32: ours, transformers'", f"{ours:.2e} {theirs:.2e}")
    assert 0 < ours <= theirs
    if answers.preset == MEASURED_AGAIN:
        assert real_shapes.bfloat16_kl(answers.folder, answers.preset, answers.logits) == pytest.approx(theirs, rel=0.2)
