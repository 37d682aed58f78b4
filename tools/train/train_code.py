"""Trains models/phi-tiny-code: PhiForCausalLM, 5.4 M parameters, on the Python standard library's sources.

    python tools/train/train_code.py models/phi-tiny-code

The corpus is the library of the Python that runs this, without its tests and its data tables, and about one
window in eight of textbook functions from snippets.py.
"""

import argparse
import json
import pathlib
import random
import re
import sysconfig

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PhiConfig, PhiForCausalLM

from common import Optimizer, Progress, save_weights, spread_initial_weights, write_json
from snippets import document

SEED = 20261201
VOCABULARY = 4096
N_STEPS = 800
WINDOW, BATCH_ROWS, SNIPPET_ROWS = 512, 8, 1
CONTEXT = 2048
LEFT_OUT = {"test", "tests", "site-packages", "dist-packages", "idle_test", "lib2to3", "encodings", "pydoc_data",
            "__pycache__"}
END = "<|endoftext|>"
# Runs of whitespace as phi-1 has them: 31 to 2 spaces, 9 to 2 tabs, matched before anything else.
RUNS = [" " * n for n in range(31, 1, -1)] + ["\t" * n for n in range(9, 1, -1)]


def sources():
    """The text of every library file, in the order of their names."""
    root = pathlib.Path(sysconfig.get_paths()["stdlib"])
    texts = []
    for path in sorted(root.rglob("*.py")):
        if not LEFT_OUT & set(path.relative_to(root).parts):
            texts.append(path.read_text(encoding="utf-8", errors="replace"))
    return texts


# ---- tokenizer


def train_tokenizer(texts):
    """Byte-level BPE with GPT-2's pattern over what is left between the runs of whitespace."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    pieces = (piece for text in texts for piece in re.split(r" {2,}|\t{2,}", text) if piece)
    tokenizer.train_from_iterator(pieces, trainers.BpeTrainer(
        vocab_size=VOCABULARY - 1 - len(RUNS), show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return tokenizer


def save_tokenizer(tokenizer, folder):
    """tokenizer.json with the added tokens after the BPE vocabulary, and its companions."""
    data = json.loads(tokenizer.to_str())
    first = len(data["model"]["vocab"])
    flags = [{"id": first + i, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
              "normalized": content != END, "special": content == END} for i, content in enumerate([END] + RUNS)]
    data["added_tokens"] = flags
    write_json(folder / "tokenizer.json", data)
    roles = ("bos_token", "eos_token", "unk_token")
    write_json(folder / "special_tokens_map.json", {role: END for role in roles})
    write_json(folder / "tokenizer_config.json", {
        "add_prefix_space": False,
        "added_tokens_decoder": {str(flag["id"]): {k: v for k, v in flag.items() if k != "id"} for flag in flags},
        **{role: END for role in roles},
        "clean_up_tokenization_spaces": False, "model_max_length": CONTEXT, "tokenizer_class": "CodeGenTokenizer"})
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


# ---- model


def make_config(tokenizer, folder):
    end = tokenizer.token_to_id(END)
    write_json(folder / "config.json", {
        "architectures": ["PhiForCausalLM"], "model_type": "phi", "attention_dropout": 0.0, "bos_token_id": end,
        "dtype": "bfloat16", "embd_pdrop": 0.0, "eos_token_id": end, "hidden_act": "gelu_new", "hidden_size": 256,
        "initializer_range": 0.02, "intermediate_size": 768, "layer_norm_eps": 1e-5,
        "max_position_embeddings": CONTEXT, "num_attention_heads": 4, "num_hidden_layers": 5,
        "num_key_value_heads": 4, "qk_layernorm": False, "resid_pdrop": 0.0,
        "rope_parameters": {"partial_rotary_factor": 0.5, "rope_theta": 10000.0, "rope_type": "default"},
        "tie_word_embeddings": False, "use_cache": True, "vocab_size": VOCABULARY})
    write_json(folder / "generation_config.json", {"_from_model_config": True, "bos_token_id": end, "eos_token_id": end})
    return PhiConfig.from_pretrained(folder)


# ---- data


def library_windows(tokenizer, texts, n):
    """n windows: the files in a new random order each time through, cut at a new offset."""
    rng = random.Random(SEED)
    end = tokenizer.token_to_id(END)
    encoded = [encoding.ids + [end] for encoding in tokenizer.encode_batch(texts, add_special_tokens=False)]
    print(f"library: {len(texts)} files, {sum(map(len, texts))} characters, {sum(map(len, encoded))} tokens", flush=True)
    pool = []
    for _ in range(n):
        if not pool:
            rng.shuffle(encoded)
            stream = [token for ids in encoded for token in ids][rng.randrange(WINDOW):]
            pool = [stream[i:i + WINDOW] for i in range(0, len(stream) - WINDOW + 1, WINDOW)]
            rng.shuffle(pool)
        yield pool.pop()


def snippet_windows(tokenizer, n):
    """n windows that begin with a definition."""
    rng = random.Random(SEED + 1)
    end = tokenizer.token_to_id(END)
    for _ in range(n):
        ids = []
        while len(ids) < WINDOW:
            ids += tokenizer.encode(document(rng), add_special_tokens=False).ids + [end]
        yield ids[:WINDOW]


# ---- training


def train(folder, n_steps, state_file):
    torch.manual_seed(SEED)
    folder.mkdir(parents=True, exist_ok=True)
    texts = sources()
    rng = random.Random(SEED + 2)
    tokenizer = save_tokenizer(train_tokenizer(texts + [document(rng) for _ in range(2000)]), folder)
    model = PhiForCausalLM(make_config(tokenizer, folder))
    spread_initial_weights(model)
    optimizer = Optimizer(model, n_steps, rate=3e-3, matrix_rate=5e-3)
    progress = Progress(n_steps)
    library = library_windows(tokenizer, texts, n_steps * (BATCH_ROWS - SNIPPET_ROWS))
    snippets = snippet_windows(tokenizer, n_steps * SNIPPET_ROWS)
    n_done = optimizer.restore(model, state_file)
    for step in range(n_steps):
        rows = [next(library) for _ in range(BATCH_ROWS - SNIPPET_ROWS)] + [next(snippets) for _ in range(SNIPPET_ROWS)]
        if step < n_done:
            continue
        inputs = torch.tensor(rows)
        with torch.autocast("cpu", torch.bfloat16):
            logits = model(input_ids=inputs, use_cache=False).logits[:, :-1]
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), inputs[:, 1:].flatten())
        loss.backward()
        optimizer.step(step)
        progress.add(step, loss.item(), inputs.numel())
        if (step + 1) % 100 == 0:
            save_weights(model, folder)
            optimizer.save(model, state_file, step + 1)
    print(save_weights(model, folder), "parameters")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=N_STEPS)
    parser.add_argument("--state", type=pathlib.Path, help="file to keep the run's state in and to go on from")
    arguments = parser.parse_args()
    train(arguments.folder, arguments.steps, arguments.state)
