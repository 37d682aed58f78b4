"""Greedy generation, token for token as transformers' generate() in float32."""
import json
import sysconfig
from pathlib import Path

import greedy
import make_checkpoint
import make_goldens
import numpy as np
import pytest
import torch
import transformers
from conftest import ROOT


def assert_generated(model, prompts, n, answers):
    """The answers are what generate() says in one batch, to prompts of one length; a difference tells where, and how close
    it was there."""
    ids = torch.tensor(prompts)
    out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=n, do_sample=False)
    for prompt, got, want in zip(prompts, answers, out[:, ids.shape[1]:].tolist(), strict=True):
        if got != want:
            at = next((i for i, (a, b) in enumerate(zip(want, got)) if a != b), min(len(want), len(got)))
            _, logits = make_goldens.greedy(model, torch.tensor([prompt]), n)
            best = logits[at].topk(2).values if at < len(logits) else None
            pytest.fail(f"{len(prompt)} prompt ids, token {at}: {got[at:at + 3]} instead of "
                        f"{want[at:at + 3]}; transformers' two best there: {best}", pytrace=False)


def assert_same(phidelity, model, folder, prompts, n):
    assert_generated(model, prompts, n, greedy.program_answers(phidelity, folder, prompts, n, "--ignore-eos"))


@pytest.mark.parametrize("name", make_checkpoint.TINY)
def test_tiny(name, phidelity):
    folder = ROOT / "tests" / "golden" / name
    model = make_goldens.load(folder, torch.float32)
    rng = np.random.Generator(np.random.PCG64(11))
    room = model.config.max_position_embeddings  # a context ends there
    for n_prompt, n_new in (1, 40), (16, 40), (17, 40), (50, 30):
        if n_prompt < room:
            ids = rng.integers(3, model.config.vocab_size, n_prompt).tolist()
            assert_same(phidelity, make_goldens.fresh(model), folder, [ids], min(n_new, room - n_prompt))


def test_crossing(phidelity):
    """Across the original length of 32, from every side."""
    folder = ROOT / "tests" / "golden" / "phi3-longrope"
    model = make_goldens.load(folder, torch.float32)
    rng = np.random.Generator(np.random.PCG64(12))
    for n_prompt in (1, 10, 20, 30, 31, 32, 33, 34, 64, 100):
        prompts = rng.integers(3, model.config.vocab_size, (3, n_prompt)).tolist()
        assert_same(phidelity, model, folder, prompts, min(90, 128 - n_prompt))


def test_crossing_of_real_factors(tmp_path, phidelity):
    """Phi-3.5-mini's heads and factors, across 4096."""
    folder = make_checkpoint.make("Phi-3.5-mini-narrow", tmp_path / "narrow")
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="sdpa").eval()
    model.generation_config.eos_token_id = None
    ids = np.random.Generator(np.random.PCG64(13)).integers(3, 2000, 4093).tolist()
    assert_same(phidelity, model, folder, [ids], 8)


# ------------------------------------------------------------------------------------------
# The bundled models

N_BUNDLED_PROMPTS = 200
N_BUNDLED_NEW = 32
EACH_ALONE = 10  # of so many prompts one is asked alone, too, and compared with generate()


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


@pytest.mark.parametrize("name, make_prompts", [("phi-tiny-code", code_prompts),
                                                ("phi3-tiny-chat", chat_prompts)])
def test_bundled(name, make_prompts, phidelity):
    folder = ROOT / "models" / name
    assert (folder / "config.json").exists(), f"{folder} is missing"
    transformers.logging.disable_progress_bar()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = make_goldens.load(folder, torch.float32)
    prompts = [list(ids) for ids in make_prompts(tokenizer)]
    assert len(prompts) == N_BUNDLED_PROMPTS
    answers = greedy.program_answers(phidelity, folder, prompts, N_BUNDLED_NEW, "--ignore-eos")
    assert {len(answer) for answer in answers} == {N_BUNDLED_NEW}
    for i, (ids, answer) in enumerate(zip(prompts, answers)):
        if i % EACH_ALONE == 0:
            assert_same(phidelity, model, folder, [ids], N_BUNDLED_NEW)
        if greedy.crosses(model.config, ids, N_BUNDLED_NEW) or not greedy.confirmed(model, ids, answer):
            assert_generated(model, [ids], N_BUNDLED_NEW, [answer])
