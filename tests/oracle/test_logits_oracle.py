"""`phidelity logits` against transformers, on random checkpoints with the published models' shapes.

float32: the same best id at every position, cosine at least 0.999999, KL under 1e-7, largest
difference under 3e-5 of the largest logit. bfloat16: a mean KL to the float32 answer no larger than
that of transformers' own bfloat16 run. The reference attention is the library's eager one; prompts
too long for its memory use sdpa.
"""
import gc

import make_checkpoint
import numpy as np
import pytest
import torch
import transformers
from safetensors.numpy import load_file

N_LAYERS = 2
LENGTHS = [1, 2, 17, 64, 255, 600]
EXTRA_LENGTHS = {"Phi-3-mini-4k": [2100],  # beyond the window of 2047
                 "Phi-3.5-mini": [4097]}   # beyond the original length: the long factors
EAGER_LIMIT = 2500


def prompt(n_vocab, n):
    return np.random.Generator(np.random.PCG64([n_vocab, n])).integers(3, n_vocab, n)


def load(folder, dtype):
    transformers.logging.disable_progress_bar()
    return transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=dtype, attn_implementation="eager").eval()


@torch.no_grad()
def logits_of(model, ids):
    model.set_attn_implementation("eager" if len(ids) <= EAGER_LIMIT else "sdpa")
    return model(torch.tensor(ids)[None], use_cache=False).logits[0].float().numpy()


def compare(want, got):
    """(worst figures over the rows, sum of KL), in float64, a few of the wide rows at a time."""
    worst = dict(top1=0, cosine=1.0, kl=0.0, share=0.0)
    total_kl = 0.0
    largest = float(np.abs(want).max())
    for begin in range(0, len(want), 16):
        a, b = (x[begin:begin + 16].astype(np.float64) for x in (want, got))
        cosine = (a * b).sum(-1) / np.sqrt((a * a).sum(-1) * (b * b).sum(-1))
        kl = row_kl(a, b)
        total_kl += kl.sum()
        worst["top1"] += int((a.argmax(-1) != b.argmax(-1)).sum())
        worst["cosine"] = min(worst["cosine"], float(cosine.min()))
        worst["kl"] = max(worst["kl"], float(kl.max()))
        worst["share"] = max(worst["share"], float(np.abs(a - b).max()) / largest)
    return worst, total_kl


def row_kl(a, b):
    """KL(softmax(a) || softmax(b)) of each row."""
    a = a - a.max(-1, keepdims=True)
    b = b - b.max(-1, keepdims=True)
    log_p = a - np.log(np.exp(a).sum(-1, keepdims=True))
    log_q = b - np.log(np.exp(b).sum(-1, keepdims=True))
    return (np.exp(log_p) * (log_p - log_q)).sum(-1)


class Answers:
    """transformers' answers for a checkpoint: float32 logits, its bfloat16 run's KL to them."""

    def __init__(self, preset, folder):
        self.folder = folder
        vocab = make_checkpoint.REAL[preset]["vocab_size"]
        self.prompts = [prompt(vocab, n) for n in LENGTHS + EXTRA_LENGTHS.get(preset, [])]
        model = load(folder, torch.float32)
        self.logits = [logits_of(model, ids) for ids in self.prompts]
        del model
        gc.collect()
        model = load(folder, torch.bfloat16)
        self.kl_bf16 = [compare(want, logits_of(model, ids))[1]
                        for want, ids in zip(self.logits, self.prompts)]
        del model
        gc.collect()


@pytest.fixture(scope="module", params=list(make_checkpoint.REAL))
def answers(request, checkpoint):
    return Answers(request.param, checkpoint(request.param, N_LAYERS))


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
        worst, _ = compare(want, got)
        if (worst["top1"] or worst["cosine"] < 0.999999 or not worst["kl"] < 1e-7
                or not worst["share"] < 3e-5):
            wrong.append((len(ids), worst))
        overall = {key: (min if key == "cosine" else max)(overall[key], worst[key])
                   for key in worst}
    figure("1 - cosine, KL, difference of largest logit",
           f"{1 - overall['cosine']:.1e} {overall['kl']:.1e} {overall['share']:.1e}")
    assert not wrong, wrong


def test_bfloat16(answers, phidelity, tmp_path, figure):
    n_rows = sum(map(len, answers.prompts))
    ours = []
    for ids, want in zip(answers.prompts, answers.logits):
        got = program_logits(phidelity, answers.folder, ids, "bfloat16", tmp_path / "logits")
        assert got.shape == want.shape
        ours.append(compare(want, got)[1])
    figure("mean KL to float32: ours, transformers'",
           f"{sum(ours) / n_rows:.2e} {sum(answers.kl_bf16) / n_rows:.2e}")
    by_prompt = [(len(ids), a / len(ids), b / len(ids))
                 for ids, a, b in zip(answers.prompts, ours, answers.kl_bf16)]
    assert sum(ours) <= sum(answers.kl_bf16), by_prompt
