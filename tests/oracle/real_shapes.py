"""Random checkpoints of the published models' shapes under transformers: prompts, logits, and how far the library's
own bfloat16 run is from its float32 one. Long prompts go to narrow models with the same heads and constants.

    python tests/oracle/real_shapes.py [PRESET...]

writes the last of these to bfloat16_kl.json, for some presets or all. It is a bound that `phidelity logits` has to keep,
and takes transformers minutes; test_logits_oracle.py measures it again for one preset.
"""
import gc
import json
import os
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

import make_checkpoint  # noqa: E402

N_LAYERS = 2
LENGTHS = [1, 2, 17, 64, 255, 600]
LONG = {"Phi-3-mini-4k-narrow": 2100,  # beyond the window of 2047
        "Phi-3.5-mini-narrow": 4097}   # beyond the original length: the long factors
PRESETS = [*make_checkpoint.REAL, *LONG]
BFLOAT16_KL = Path(__file__).with_name("bfloat16_kl.json")


def prompts(preset):
    """Ids of each length, as arrays."""
    n_vocab = {**make_checkpoint.REAL, **make_checkpoint.NARROW}[preset]["vocab_size"]
    lengths = [LONG[preset]] if preset in LONG else LENGTHS
    return [np.random.Generator(np.random.PCG64([n_vocab, n])).integers(3, n_vocab, n)
            for n in lengths]


@torch.no_grad()
def logits_of(folder, dtype, all_ids):
    """Float32 arrays [len(ids), vocabulary], by the library's eager attention."""
    transformers.logging.disable_progress_bar()
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager").eval()
    found = [model(torch.tensor(ids)[None], use_cache=False).logits[0].float().numpy() for ids in all_ids]
    del model
    gc.collect()
    return found


def doubles(*arrays):
    """Row by row, which a core's cache can hold, in float64."""
    for rows in zip(*arrays, strict=True):
        yield tuple(torch.from_numpy(row).double() for row in rows)


def row_kl(a, b):
    """KL(softmax(a) || softmax(b))"""
    p, q = torch.log_softmax(a, -1), torch.log_softmax(b, -1)
    return float((p.exp() * (p - q)).sum())


def mean_kl(wants, gots):
    """Over all rows of all prompts."""
    kls = [row_kl(a, b) for want, got in zip(wants, gots, strict=True) for a, b in doubles(want, got)]
    return sum(kls) / len(kls)


def bfloat16_kl(folder, preset, logits):
    """Of transformers' bfloat16 run; logits: those of its float32 run."""
    return mean_kl(logits, logits_of(folder, torch.bfloat16, prompts(preset)))


def main():
    from conftest import cached_checkpoint
    known = json.loads(BFLOAT16_KL.read_text()) if BFLOAT16_KL.exists() else {}
    with tempfile.TemporaryDirectory() as temporary:
        parent = Path(os.environ.get("PHI_ORACLE_CACHE", temporary))
        for preset in sys.argv[1:] or PRESETS:
            folder = cached_checkpoint(parent, preset, N_LAYERS)
            logits = logits_of(folder, torch.float32, prompts(preset))
            known[preset] = float(f"{bfloat16_kl(folder, preset, logits):.3g}")
            BFLOAT16_KL.write_text(json.dumps(known, indent=1) + "\n")


if __name__ == "__main__":
    main()
