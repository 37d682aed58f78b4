"""Greedy generation, token for token as transformers' generate() in float32."""
import json
import sysconfig
from pathlib import Path

import make_checkpoint
import make_goldens
import numpy as np
import pytest
import torch
import transformers
from conftest import ROOT


def program_ids(phidelity, folder, ids, n):
    """One thread: a second one changes no bit, and tiny models only wait for it."""
    out = phidelity("generate", folder, "--prompt-token-ids", " ".join(map(str, ids)),
                    "--print-token-ids", "--temperature", 0, "--max-tokens", n, "--ignore-eos",
                    "--dtype", "float32", "--threads", 1)
    return [int(word) for word in out.split()]


def assert_same(phidelity, model, folder, ids, n):
    """The n greedy ids after `ids`; a difference tells where, and how close it was there."""
    chosen, logits = make_goldens.greedy(model, torch.tensor([ids]), n)
    want, got = chosen.tolist(), program_ids(phidelity, folder, ids, n)
    if got != want:
        shorter = min(len(want), len(got))
        at = next((i for i in range(shorter) if want[i] != got[i]), shorter)
        best = logits[at].topk(2).values if at < len(logits) else None
        pytest.fail(f"{len(ids)} prompt ids, token {at}: {got[at:at + 3]} instead of "
                    f"{want[at:at + 3]}; transformers' two best there: {best}", pytrace=False)


@pytest.mark.parametrize("name", make_checkpoint.TINY)
def test_tiny(name, phidelity):
    folder = ROOT / "tests" / "golden" / name
    model = make_goldens.load(folder, torch.float32)
    rng = np.random.Generator(np.random.PCG64(11))
    room = model.config.max_position_embeddings  # a context ends there
    for n_prompt, n_new in (1, 40), (16, 40), (17, 40), (50, 30):
        if n_prompt < room:
            ids = rng.integers(3, model.config.vocab_size, n_prompt).tolist()
            assert_same(phidelity, make_goldens.fresh(model), folder, ids,
                        min(n_new, room - n_prompt))


def test_crossing(phidelity):
    """Across the original length of 32, from every side."""
    folder = ROOT / "tests" / "golden" / "phi3-longrope"
    model = make_goldens.load(folder, torch.float32)
    rng = np.random.Generator(np.random.PCG64(12))
    for n_prompt in (1, 10, 20, 30, 31, 32, 33, 34, 64, 100):
        for _ in range(3):
            ids = rng.integers(3, model.config.vocab_size, n_prompt).tolist()
            assert_same(phidelity, model, folder, ids, min(90, 128 - n_prompt))


def test_crossing_at_real_shape(checkpoint, phidelity):
    """Phi-3.5-mini's shape and factors, one layer, across 4096."""
    folder = checkpoint("Phi-3.5-mini", 1)
    transformers.logging.disable_progress_bar()
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="sdpa").eval()
    model.generation_config.eos_token_id = None
    ids = np.random.Generator(np.random.PCG64(13)).integers(3, 32000, 4093).tolist()
    assert_same(phidelity, model, folder, ids, 8)


# ------------------------------------------------------------------------------------------
# The bundled models

N_BUNDLED_PROMPTS = 200
N_BUNDLED_NEW = 32
N_GENERATED = 20  # by generate() itself, the others in one forward pass each


def code_prompts(tokenizer):
    """Beginnings of functions and classes in the Python standard library."""
    library = Path(sysconfig.get_paths()["stdlib"])
    starts = [line for path in sorted(library.glob("*.py"))
              for line in path.read_text(errors="replace").splitlines()
              if line.lstrip().startswith(("def ", "class ", "for ", "import ", "if "))]
    rng = np.random.Generator(np.random.PCG64(14))
    picked = rng.choice(len(starts), N_BUNDLED_PROMPTS, replace=False)
    return [tokenizer(starts[i] + "\n", add_special_tokens=False)["input_ids"] for i in picked]


def chat_prompts(tokenizer):
    """Conversations of the held-out set, a third of them near or beyond the original length."""
    lines = (ROOT / "models" / "phi3-tiny-chat" / "heldout.jsonl").read_text().splitlines()
    chats = sorted(map(json.loads, lines), key=lambda chat: chat["n_tokens"])
    longest, others = chats[-N_BUNDLED_PROMPTS // 3:], chats[:-N_BUNDLED_PROMPTS // 3]
    rng = np.random.Generator(np.random.PCG64(15))
    picked = rng.choice(len(others), N_BUNDLED_PROMPTS - len(longest), replace=False)
    return [tokenizer.apply_chat_template(chat["messages"], add_generation_prompt=True,
                                          tokenize=True, return_dict=False)
            for chat in longest + [others[i] for i in picked]]


@torch.no_grad()
def assert_greedy(phidelity, model, folder, ids, n):
    """As assert_same, by one forward pass: each of our n ids is the best one after those before it. An answer that crosses
    LongRoPE's original length, where generate() keeps the keys that it has, and one that differs are left to generate()."""
    original = getattr(model.config, "original_max_position_embeddings", None)
    if original is None or not len(ids) <= original < len(ids) + n:
        got = program_ids(phidelity, folder, ids, n)
        if model(torch.tensor([ids + got[:-1]])).logits[0, len(ids) - 1:].argmax(-1).tolist() == got:
            return
    assert_same(phidelity, model, folder, ids, n)


@pytest.mark.parametrize("name, make_prompts", [("phi-tiny-code", code_prompts),
                                                ("phi3-tiny-chat", chat_prompts)])
def test_bundled(name, make_prompts, phidelity):
    folder = ROOT / "models" / name
    assert (folder / "config.json").exists(), f"{folder} is missing"
    transformers.logging.disable_progress_bar()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = make_goldens.load(folder, torch.float32)
    prompts = make_prompts(tokenizer)
    assert len(prompts) == N_BUNDLED_PROMPTS
    for i, ids in enumerate(prompts):
        check = assert_same if i % (N_BUNDLED_PROMPTS // N_GENERATED) == 0 else assert_greedy
        check(phidelity, model, folder, list(ids), N_BUNDLED_NEW)
