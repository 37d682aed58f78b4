"""Trains models/phi3-tiny-chat: Phi3ForCausalLM, 2.7 M parameters, word arithmetic in Phi-4-mini's chat format.

    python tools/train/train_chat.py models/phi3-tiny-chat

Everything follows from the seeds below; the folder is complete and loadable after every checkpoint.
"""

import argparse
import json
import pathlib
import re

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import Phi3Config, Phi3ForCausalLM

from common import Optimizer, Progress, save_weights, spread_initial_weights, write_json
from word_problems import SMALL_TALK, Generator

SEED = 20261130
BPE_VOCABULARY = 1270
N_STEPS = 6000
ORIGINAL_LENGTH, LENGTH = 256, 1024
BUCKETS = (24, 32, 48, 64, 80, 96, 128, 160, 192, 224, 256, 320, 384, 512, 640, 768, 1024)
BATCH_TOKENS = 2048
N_HELD_OUT = 1200
# (last step, share of bare arithmetic, share of single questions among the rest, learning rate, weight of the loss on
# words that are not the assistant's): sums come before stories, and stories before dialogues. The loss on questions
# teaches copying, for names and things come twice in them.
STAGES = [(350, 1.0, 0.0, 1.0, 0.1), (750, 0.25, 1.0, 1.0, 0.1), (1100, 0.25, 1.0, 0.4, 0.1),
          (1250, 0.08, 0.35, 0.4, 0.1), (10 ** 9, 0.08, 0.35, 0.4, 0.5)]

# (content, rstrip, special): the flags of Phi-4-mini's vocabulary.
ADDED_TOKENS = [("<|endoftext|>", False, True), ("<|assistant|>", True, True), ("<|end|>", True, True),
                ("<|user|>", True, True), ("<|system|>", True, True), ("<|tool|>", True, False),
                ("<|/tool|>", True, False), ("<|tool_call|>", True, False), ("<|/tool_call|>", True, False),
                ("<|tool_response|>", True, False)]

# The o200k pattern, as Phi-4-mini's tokenizer.json has it.
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
CONTRACTION = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
PATTERN = "|".join([
    rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{CONTRACTION}", rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{CONTRACTION}",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])

TEMPLATE = ("{% for message in messages %}"
            "{{ '<|' + message['role'] + '|>' + message['content'] }}"
            "{% if message['role'] == 'system' and 'tools' in message and message['tools'] is not none %}"
            "{{ '<|tool|>' + message['tools'] + '<|/tool|>' }}"
            "{% endif %}"
            "{{ '<|end|>' }}"
            "{% endfor %}"
            "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% else %}{{ eos_token }}{% endif %}")


# ---- tokenizer


def sample_dialogue(generator, drill_share=0.05, single_share=0.4):
    """The mixture trained on at last: mostly short, some that outgrow the original length."""
    rng = generator.rng
    if rng.random() < drill_share:
        return generator.drill(rng.choice((1, 1, 1, 2, 4)))
    if rng.random() < single_share:
        return generator.dialogue(1)[0]
    r = rng.random()
    if r < 0.05:
        return generator.tool_dialogue()
    return generator.dialogue(rng.randint(2, 4) if r < 0.75 else rng.randint(5, 7) if r < 0.88 else rng.randint(8, 18))[0]


def train_tokenizer():
    """Byte-level BPE over generated dialogues. Every number below 100 becomes one token."""
    generator = Generator(SEED + 1)
    texts = []
    for _ in range(30000):
        for message in sample_dialogue(generator):
            texts.append(message["content"])
            texts += [message["tools"]] if "tools" in message else []
    texts += 200 * [text for said, reply in SMALL_TALK for text in said + [reply]]
    texts += 1000 * [str(n) for n in range(100)]
    texts = [re.sub(r"<\|[^|]*\|>", "\n", text) for text in texts]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(PATTERN), "removed", invert=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=BPE_VOCABULARY, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return tokenizer


def save_tokenizer(tokenizer, folder):
    """tokenizer.json with the added tokens after the BPE vocabulary, and its companions."""
    data = json.loads(tokenizer.to_str())
    first = len(data["model"]["vocab"])
    flags = [{"id": first + i, "content": content, "single_word": False, "lstrip": False, "rstrip": rstrip,
              "normalized": False, "special": special} for i, (content, rstrip, special) in enumerate(ADDED_TOKENS)]
    data["added_tokens"] = flags
    write_json(folder / "tokenizer.json", data)
    end_of_text = {"content": "<|endoftext|>", "lstrip": False, "normalized": False, "rstrip": False, "single_word": False}
    roles = ("bos_token", "eos_token", "pad_token", "unk_token")
    write_json(folder / "special_tokens_map.json", {role: end_of_text for role in roles})
    write_json(folder / "tokenizer_config.json", {
        "add_bos_token": False, "add_eos_token": False, "add_prefix_space": False,
        "added_tokens_decoder": {str(flag["id"]): {k: v for k, v in flag.items() if k != "id"} for flag in flags},
        **{role: "<|endoftext|>" for role in roles},
        "chat_template": TEMPLATE, "clean_up_tokenization_spaces": False, "model_max_length": LENGTH,
        "tokenizer_class": "GPT2Tokenizer"})
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


# ---- model


def make_config(tokenizer, folder):
    head_size, rotary_share = 48, 0.75
    n_factors = int(head_size * rotary_share) // 2
    end_of_text, end = tokenizer.token_to_id("<|endoftext|>"), tokenizer.token_to_id("<|end|>")
    long_factors = [round(1.0 + 3.0 * (i / (n_factors - 1)) ** 0.7, 4) for i in range(n_factors)]
    config = {
        "architectures": ["Phi3ForCausalLM"], "model_type": "phi3", "attention_bias": False, "attention_dropout": 0.0,
        "bos_token_id": end_of_text, "embd_pdrop": 0.0, "eos_token_id": end_of_text, "hidden_act": "silu",
        "hidden_size": 192, "initializer_range": 0.02, "intermediate_size": 512,
        "max_position_embeddings": LENGTH, "num_attention_heads": 4, "num_hidden_layers": 6, "num_key_value_heads": 2,
        "original_max_position_embeddings": ORIGINAL_LENGTH, "pad_token_id": end_of_text,
        "partial_rotary_factor": rotary_share, "resid_pdrop": 0.0, "rms_norm_eps": 1e-5,
        "rope_scaling": {"long_factor": long_factors, "short_factor": [1.0] * n_factors, "type": "longrope"},
        "rope_theta": 10000.0, "sliding_window": None, "tie_word_embeddings": True, "torch_dtype": "bfloat16",
        "use_cache": True, "vocab_size": (tokenizer.get_vocab_size() + 63) // 64 * 64,
    }
    write_json(folder / "config.json", config)
    write_json(folder / "generation_config.json", {
        "_from_model_config": True, "bos_token_id": end_of_text, "eos_token_id": [end, end_of_text],
        "pad_token_id": end_of_text})
    return Phi3Config.from_pretrained(folder)


# ---- data


class Encoder:
    """Turns messages into ids and tells which of them are the assistant's."""

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer
        self.end = tokenizer.token_to_id("<|end|>")
        self.ids = {}

    def content(self, text):
        if text not in self.ids:
            if len(self.ids) > 200000:
                self.ids.clear()
            self.ids[text] = self.tokenizer.encode(text, add_special_tokens=False).ids
        return self.ids[text]

    def encode(self, messages):
        """(ids, said): said[i] is true where ids[i] is part of an assistant message or its <|end|>."""
        ids, said = [], []
        for message in messages:
            text = message["content"]
            if "tools" in message:
                text += f"<|tool|>{message['tools']}<|/tool|>"
            tokens = self.content(text) + [self.end]
            ids += [self.tokenizer.token_to_id(f"<|{message['role']}|>")] + tokens
            said += [False] + [message["role"] == "assistant"] * len(tokens)
        return ids, said


def stage(step):
    return next(stage for stage in STAGES if step < stage[0])


def batches(tokenizer, n_batches, seed):
    """Yields (input ids, weights of their losses), both [rows, length]; padding has weight 0.

    Rows of one batch have similar lengths, and never lie on both sides of the original length, because the
    LongRoPE factors are chosen for the whole batch.
    """
    generator, encoder = Generator(seed), Encoder(tokenizer)
    buckets = {length: [] for length in BUCKETS}
    n_done = 0
    while n_done < n_batches:
        _, drill_share, single_share, _, question_weight = stage(n_done)
        ids, said = encoder.encode(sample_dialogue(generator, drill_share, single_share))
        length = next((b for b in BUCKETS if b >= len(ids)), None)
        if length is None:
            continue
        rows = buckets[length]
        rows.append((ids, said))
        if len(rows) >= max(BATCH_TOKENS // length, 2):
            inputs, weights = torch.zeros(len(rows), length, dtype=torch.long), torch.zeros(len(rows), length)
            for row, (ids, said) in enumerate(rows):
                inputs[row, :len(ids)] = torch.tensor(ids)
                weights[row, :len(ids)] = torch.where(torch.tensor(said), 1.0, question_weight)
            rows.clear()
            n_done += 1
            yield inputs, weights


def write_held_out(tokenizer, path):
    """N_HELD_OUT questions with their context and right answers; about one in six outgrows the original length."""
    generator, encoder = Generator(SEED + 2, held_out=True), Encoder(tokenizer)
    lines = []
    while len(lines) < N_HELD_OUT:
        wants_long = len(lines) % 6 == 5
        messages, kinds = generator.dialogue(generator.rng.randint(9, 16) if wants_long else generator.rng.randint(1, 3))
        n_tokens = len(encoder.encode(messages[:-1])[0]) + 1
        if kinds[-1] == "small_talk" or n_tokens > LENGTH - 64 or (n_tokens > ORIGINAL_LENGTH) != wants_long:
            continue
        lines.append(json.dumps({"kind": kinds[-1], "n_tokens": n_tokens, "messages": messages[:-1],
                                 "answer": messages[-1]["content"]}))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


# ---- training


def train(folder, n_steps, state_file):
    torch.manual_seed(SEED)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = save_tokenizer(train_tokenizer(), folder)
    write_held_out(tokenizer, folder / "heldout.jsonl")
    model = Phi3ForCausalLM(make_config(tokenizer, folder))
    spread_initial_weights(model)
    optimizer = Optimizer(model, n_steps, rate=3e-3, matrix_rate=6e-3)
    progress = Progress(n_steps)
    n_done = optimizer.restore(model, state_file)
    for step, (inputs, weights) in enumerate(batches(tokenizer, n_steps, SEED + 3)):
        if step < n_done:
            continue
        with torch.autocast("cpu", torch.bfloat16):
            logits = model(input_ids=inputs, use_cache=False).logits[:, :-1]
        losses = torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), inputs[:, 1:].flatten(), reduction="none")
        said = weights[:, 1:].flatten() == 1.0
        ((losses * weights[:, 1:].flatten()).sum() / said.sum()).backward()
        optimizer.step(step, stage(step)[3])
        progress.add(step, losses[said].mean().item(), inputs.numel())
        if (step + 1) % 250 == 0:
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
