#!/usr/bin/env python3
"""Writes Phi checkpoint folders with random weights, as Hugging Face lays them out.

    python tools/make_checkpoint.py --list
    python tools/make_checkpoint.py phi-2 /tmp/phi-2 --layers 2 --dtype bfloat16
    python tools/make_checkpoint.py --tiny tests/golden      # the committed ones, every switch once

One idea: a tensor's bytes depend on (seed, tensor name, shape, scale) alone, through the raw output
of numpy's PCG64 and exact integer sums. So they are the same on every machine and numpy version,
whatever the layer count, the sharding, the order or the fusing of the file. Needs numpy only.
"""
import argparse
import json
import math
import shutil
import zlib
from pathlib import Path

import numpy as np

# ------------------------------------------------------------------------------------------
# Presets. A config is written in the old spelling of the hub's files; --keys new respells it.

PHI = dict(architectures=["PhiForCausalLM"], model_type="phi", attention_dropout=0.0,
           embd_pdrop=0.0, resid_pdrop=0.0, hidden_act="gelu_new", initializer_range=0.02,
           layer_norm_eps=1e-5, qk_layernorm=False, rope_theta=10000.0, rope_scaling=None,
           tie_word_embeddings=False, use_cache=True, bos_token_id=None, eos_token_id=None)
PHI3 = dict(architectures=["Phi3ForCausalLM"], model_type="phi3", attention_bias=False,
            attention_dropout=0.0, embd_pdrop=0.0, resid_pdrop=0.0, hidden_act="silu",
            initializer_range=0.02, rms_norm_eps=1e-5, rope_theta=10000.0, rope_scaling=None,
            sliding_window=None, tie_word_embeddings=False, use_cache=True,
            bos_token_id=1, eos_token_id=2, pad_token_id=None)

PHI_35_SHORT = (
    [1.0, 1.0199999809265137] + [1.0299999713897705] * 2 + [1.0499999523162842] * 5
    + [1.0699999332427979, 1.0999999046325684, 1.1099998950958252] + [1.1599998474121094] * 2
    + [1.1699998378753662, 1.2899998426437378, 1.339999794960022, 1.679999828338623,
       1.7899998426437378, 1.8199998140335083, 1.8499997854232788, 1.8799997568130493,
       1.9099997282028198, 1.9399996995925903, 1.9899996519088745] + [2.0199997425079346] * 6
    + [2.0299997329711914] * 9
    + [2.0799996852874756, 2.0899996757507324, 2.189999580383301, 2.2199995517730713,
       2.5899994373321533, 2.729999542236328, 2.749999523162842, 2.8399994373321533])
PHI_35_LONG = [
    1.0800000429153442, 1.1100000143051147, 1.1399999856948853, 1.340000033378601,
    1.5899999141693115, 1.600000023841858, 1.6200000047683716, 2.620000123977661,
    3.2300000190734863, 3.2300000190734863, 4.789999961853027, 7.400000095367432,
    7.700000286102295, 9.09000015258789, 12.199999809265137, 17.670000076293945,
    24.46000099182129, 28.57000160217285, 30.420001983642578, 30.840002059936523,
    32.590003967285156, 32.93000411987305, 42.320003509521484, 44.96000289916992,
    50.340003967285156, 50.45000457763672, 57.55000305175781, 57.93000411987305,
    58.21000289916992, 60.1400032043457, 62.61000442504883, 62.62000274658203, 62.71000289916992,
    63.1400032043457, 63.1400032043457, 63.77000427246094, 63.93000411987305, 63.96000289916992,
    63.970001220703125, 64.02999877929688, 64.06999969482422, 64.08000183105469,
    64.12000274658203, 64.41000366210938, 64.4800033569336, 64.51000213623047, 64.52999877929688,
    64.83999633789062]
PHI_4_MINI_LONG = [
    1, 1.118320672, 1.250641126, 1.398617824, 1.564103225, 1.74916897, 1.956131817, 2.187582649,
    2.446418898, 2.735880826, 3.059592084, 3.421605075, 3.826451687, 4.279200023, 4.785517845,
    5.351743533, 5.984965424, 6.693110555, 7.485043894, 8.370679318, 9.36110372, 10.4687158,
    11.70738129, 13.09260651, 14.64173252, 16.37415215, 18.31155283, 20.47818807, 22.90118105,
    25.61086418, 28.64115884, 32.03, 32.1, 32.13, 32.23, 32.6, 32.61, 32.64, 32.66, 32.7, 32.71,
    32.93, 32.97, 33.28, 33.49, 33.5, 44.16, 47.77]

# The published models' shapes. Their weights are N(0, 0.02) here, their norms near 1.
REAL = {
    "phi-1": dict(PHI, hidden_size=2048, intermediate_size=8192, num_hidden_layers=24,
                  num_attention_heads=32, partial_rotary_factor=0.5, vocab_size=51200,
                  max_position_embeddings=2048, torch_dtype="float32"),
    "phi-2": dict(PHI, hidden_size=2560, intermediate_size=10240, num_hidden_layers=32,
                  num_attention_heads=32, partial_rotary_factor=0.4, vocab_size=51200,
                  max_position_embeddings=2048, torch_dtype="float16",
                  bos_token_id=50256, eos_token_id=50256),
    "Phi-3-mini-4k": dict(PHI3, hidden_size=3072, intermediate_size=8192, num_hidden_layers=32,
                          num_attention_heads=32, num_key_value_heads=32, vocab_size=32064,
                          max_position_embeddings=4096, original_max_position_embeddings=4096,
                          sliding_window=2047, torch_dtype="bfloat16",
                          eos_token_id=32000, pad_token_id=32000),
    "Phi-3.5-mini": dict(PHI3, hidden_size=3072, intermediate_size=8192, num_hidden_layers=32,
                         num_attention_heads=32, num_key_value_heads=32, vocab_size=32064,
                         max_position_embeddings=131072, original_max_position_embeddings=4096,
                         sliding_window=262144, torch_dtype="bfloat16",
                         eos_token_id=32000, pad_token_id=32000,
                         rope_scaling=dict(type="longrope", short_factor=PHI_35_SHORT,
                                           long_factor=PHI_35_LONG)),
    "Phi-4": dict(PHI3, hidden_size=5120, intermediate_size=17920, num_hidden_layers=40,
                  num_attention_heads=40, num_key_value_heads=10, vocab_size=100352,
                  max_position_embeddings=16384, original_max_position_embeddings=16384,
                  rope_theta=250000, torch_dtype="bfloat16",
                  bos_token_id=100257, eos_token_id=100265, pad_token_id=100349),
    "Phi-4-mini": dict(PHI3, hidden_size=3072, intermediate_size=8192, num_hidden_layers=32,
                       num_attention_heads=24, num_key_value_heads=8, partial_rotary_factor=0.75,
                       vocab_size=200064, max_position_embeddings=131072,
                       original_max_position_embeddings=4096, sliding_window=262144,
                       tie_word_embeddings=True, torch_dtype="bfloat16",
                       bos_token_id=199999, eos_token_id=199999, pad_token_id=199999,
                       rope_scaling=dict(type="longrope", short_factor=[1.0] * 48,
                                         long_factor=PHI_4_MINI_LONG)),
}

# Real heads and constants in narrow models, for what only long sequences show: a window, LongRoPE's long factors.
NARROW = {f"{name}-narrow": dict(REAL[name], num_hidden_layers=2, hidden_size=4 * 96, intermediate_size=1000,
                                 num_attention_heads=4, num_key_value_heads=4, vocab_size=2000,
                                 eos_token_id=2, pad_token_id=None)
          for name in ("Phi-3-mini-4k", "Phi-3.5-mini")}

# Two layers each, and together every switch of both architectures. Sizes and constants are odd on
# purpose, so that a default taken for the file's value shows.
TINY = {
    "phi-head64": dict(PHI, hidden_size=48, intermediate_size=112, num_attention_heads=2,
                       head_dim=64, partial_rotary_factor=0.5, vocab_size=256,
                       max_position_embeddings=128, torch_dtype="float16"),
    "phi-qkln": dict(PHI, hidden_size=80, intermediate_size=136, num_attention_heads=2,
                     num_key_value_heads=1, partial_rotary_factor=0.4, qk_layernorm=True,
                     layer_norm_eps=1e-3, vocab_size=200, max_position_embeddings=128,
                     torch_dtype="bfloat16"),
    "phi3-gqa": dict(PHI3, hidden_size=64, intermediate_size=72, num_attention_heads=4,
                     num_key_value_heads=2, partial_rotary_factor=0.75, tie_word_embeddings=True,
                     rope_theta=500.0, vocab_size=256, max_position_embeddings=128,
                     original_max_position_embeddings=128, torch_dtype="float32"),
    "phi3-swa": dict(PHI3, hidden_size=72, intermediate_size=56, num_attention_heads=2,
                     num_key_value_heads=1, head_dim=96, sliding_window=17, vocab_size=160,
                     max_position_embeddings=128, original_max_position_embeddings=128,
                     torch_dtype="bfloat16"),
    "phi3-longrope": dict(PHI3, hidden_size=72, intermediate_size=72, num_attention_heads=3,
                          num_key_value_heads=3, vocab_size=200, max_position_embeddings=128,
                          original_max_position_embeddings=32, sliding_window=262144,
                          torch_dtype="bfloat16",
                          rope_scaling=dict(type="longrope",
                                            short_factor=[1 + 0.05 * i for i in range(12)],
                                            long_factor=[1.1 + 0.02 * i * i for i in range(12)])),
    "phi3-bias": dict(PHI3, hidden_size=88, intermediate_size=64, num_attention_heads=2,
                      num_key_value_heads=1, head_dim=32, attention_bias=True, rms_norm_eps=1e-3,
                      vocab_size=200, max_position_embeddings=128,
                      original_max_position_embeddings=128, torch_dtype="float16"),
    "phi3-unfused": dict(PHI3, hidden_size=40, intermediate_size=56, num_attention_heads=5,
                         num_key_value_heads=5, vocab_size=100, max_position_embeddings=128,
                         original_max_position_embeddings=128, torch_dtype="float32"),
}
for name, rope in {
        "phi-linear": dict(type="linear", factor=2.5),
        "phi-dynamic": dict(type="dynamic", factor=4.0),
        "phi-yarn": dict(type="yarn", factor=4.0, original_max_position_embeddings=24)}.items():
    TINY[name] = dict(PHI, hidden_size=48, intermediate_size=48, num_attention_heads=2,
                      partial_rotary_factor=0.5, vocab_size=64, torch_dtype="float16",
                      max_position_embeddings=24 if name == "phi-dynamic" else 96,
                      rope_scaling=rope)
for preset in TINY.values():
    preset["num_hidden_layers"] = 2
TINY_FORMS = {"phi3-gqa": dict(keys="new"), "phi-head64": dict(keys="new"),
              "phi-yarn": dict(keys="new"),
              "phi3-unfused": dict(fused=False, n_shards=2)}


# ------------------------------------------------------------------------------------------
# What a checkpoint holds: file tensors, each a stack of rows of one or more named parts.

def head_dim(config):
    return config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]


def tensors(config, fused=True):
    """Yields (name in the file, [(part name, shape), ...]); fused parts are stacked by rows."""
    hidden, inter = config["hidden_size"], config["intermediate_size"]
    q = config["num_attention_heads"] * head_dim(config)
    kv = config.get("num_key_value_heads", config["num_attention_heads"]) * head_dim(config)
    vocab = config["vocab_size"]
    is_phi = config["model_type"] == "phi"

    def one(name, *shape):
        return name, [(name, shape)]

    def linear(prefix, n_out, n_in, bias):
        yield one(prefix + ".weight", n_out, n_in)
        if bias:
            yield one(prefix + ".bias", n_out)

    def stacked(prefix, fused_name, parts, n_in, bias):
        """Several projections of one input: one tensor when fused, else one each."""
        if not fused:
            for part, n_out in parts:
                yield from linear(prefix + part, n_out, n_in, bias)
            return
        yield (f"{prefix}{fused_name}.weight",
               [(f"{prefix}{part}.weight", (n_out, n_in)) for part, n_out in parts])
        if bias:
            yield (f"{prefix}{fused_name}.bias",
                   [(f"{prefix}{part}.bias", (n_out,)) for part, n_out in parts])

    def norm(prefix, n, bias=is_phi):
        yield one(prefix + ".weight", n)
        if bias:
            yield one(prefix + ".bias", n)

    yield one("model.embed_tokens.weight", vocab, hidden)
    for i in range(config["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        attn, mlp = layer + "self_attn.", layer + "mlp."
        yield from norm(layer + "input_layernorm", hidden)
        if is_phi:
            for part, n_out in ("q_proj", q), ("k_proj", kv), ("v_proj", kv):
                yield from linear(attn + part, n_out, hidden, True)
            yield from linear(attn + "dense", hidden, q, True)
            if config["qk_layernorm"]:
                yield from norm(attn + "q_layernorm", head_dim(config))
                yield from norm(attn + "k_layernorm", head_dim(config))
            yield from linear(mlp + "fc1", inter, hidden, True)
            yield from linear(mlp + "fc2", hidden, inter, True)
        else:
            bias = config["attention_bias"]
            yield from stacked(attn, "qkv_proj", [("q_proj", q), ("k_proj", kv), ("v_proj", kv)],
                               hidden, bias)
            yield from linear(attn + "o_proj", hidden, q, bias)
            yield from norm(layer + "post_attention_layernorm", hidden)
            yield from stacked(mlp, "gate_up_proj", [("gate_proj", inter), ("up_proj", inter)],
                               hidden, False)
            yield from linear(mlp + "down_proj", hidden, inter, False)
    yield from norm("model.final_layernorm" if is_phi else "model.norm", hidden)
    if not config["tie_word_embeddings"]:
        yield from linear("lm_head", vocab, hidden, is_phi)


# ------------------------------------------------------------------------------------------
# Random numbers and dtypes

def scale_of(name, shape, tiny):
    """(mean, standard deviation). Tiny models get livelier weights, so that a small error shows and
    greedy decoding wanders; attention outputs above all, so that answers hang on the context."""
    if "norm" in name and name.endswith(".weight"):
        return 1.0, 0.3 if tiny else 0.05
    if name.endswith(".bias"):
        return 0.0, 0.2 if tiny else 0.02
    if not tiny:
        return 0.0, 0.02
    if name == "model.embed_tokens.weight":
        return 0.0, 0.3
    gain = 2.0 if "lm_head" in name else 3.0 if "o_proj" in name or "dense" in name else 1.5
    return 0.0, gain / math.sqrt(shape[-1])


def bell(bits, n):
    """n values of mean 0 and deviation 1: the sum of the four 16-bit quarters of each raw draw."""
    low = np.uint64(0x0000FFFF0000FFFF)
    raw = bits.random_raw(n)
    pairs = (raw & low) + ((raw >> np.uint64(16)) & low)
    total = (pairs & np.uint64(0xFFFFFFFF)) + (pairs >> np.uint64(32))
    centred = total.astype(np.int32) - 2 * 65535
    return centred.astype(np.float32) * np.float32(1.0 / math.sqrt(4 * (65536.0**2 - 1) / 12))


def encode(values, dtype):
    """float32 values as the little-endian bytes of the dtype, rounded to nearest even."""
    if dtype == "float32":
        return values.astype("<f4").tobytes()
    if dtype == "float16":
        return values.astype("<f2").tobytes()
    u = values.view(np.uint32)
    return ((u + np.uint32(0x7FFF) + ((u >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
            ).astype("<u2").tobytes()


def write_part(file, name, shape, dtype, seed, tiny):
    mean, deviation = scale_of(name, shape, tiny)
    bits = np.random.PCG64([seed, zlib.crc32(name.encode())])
    left = math.prod(shape)
    while left:
        n = min(left, 1 << 16)
        file.write(encode(bell(bits, n) * np.float32(deviation) + np.float32(mean), dtype))
        left -= n


# ------------------------------------------------------------------------------------------
# Files

DTYPES = {"float32": ("F32", 4), "float16": ("F16", 2), "bfloat16": ("BF16", 2)}


def write_safetensors(path, entries, dtype, seed, tiny):
    """entries: [(name, parts)]. Returns the number of data bytes."""
    code, size = DTYPES[dtype]
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, parts in entries:
        shape = [sum(s[0] for _, s in parts), *parts[0][1][1:]]
        end = offset + math.prod(shape) * size
        header[name] = dict(dtype=code, shape=shape, data_offsets=[offset, end])
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _, parts in entries:
            for name, shape in parts:
                write_part(file, name, shape, dtype, seed, tiny)
    return offset


def split(entries, n_shards):
    """Cuts the list into n_shards runs of about equal size."""
    sizes = [sum(math.prod(s) for _, s in parts) for _, parts in entries]
    shards, done = [[] for _ in range(n_shards)], 0
    for entry, size in zip(entries, sizes):
        shards[min(n_shards - 1, done * n_shards // sum(sizes))].append(entry)
        done += size
    return [shard for shard in shards if shard]


def respelled(config):
    """The same config with the keys that transformers 5 writes."""
    new = dict(config)
    rope = dict(new.pop("rope_scaling") or {})
    rope["rope_type"] = rope.pop("type", "default")
    rope["rope_theta"] = new.pop("rope_theta")
    if "partial_rotary_factor" in new:
        rope["partial_rotary_factor"] = new.pop("partial_rotary_factor")
    new["rope_parameters"], new["dtype"] = rope, new.pop("torch_dtype")
    return new


def byte_tokenizer():
    """A tokenizer.json of the 256 bytes, ids 0..255 in GPT-2's alphabet, without merges."""
    plain = [b for b in range(256) if 0x21 <= b <= 0x7E or 0xA1 <= b <= 0xAC or b >= 0xAE]
    others = [b for b in range(256) if b not in plain]
    vocab = {chr(b if b in plain else 256 + others.index(b)): b for b in range(256)}
    level = dict(type="ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=True)
    return dict(version="1.0", truncation=None, padding=None, added_tokens=[], normalizer=None,
                pre_tokenizer=level, post_processor=None, decoder=level,
                model=dict(type="BPE", dropout=None, unk_token=None, continuing_subword_prefix=None,
                           end_of_word_suffix=None, fuse_unk=False, byte_fallback=False,
                           ignore_merges=False, vocab=vocab, merges=[]))


def add_tokenizer(folder, source):
    """source: "bytes", or a folder whose tokenizer files are copied."""
    if source == "bytes":
        text = json.dumps(byte_tokenizer(), ensure_ascii=False)
        (folder / "tokenizer.json").write_text(text + "\n")
        text = json.dumps(dict(tokenizer_class="PreTrainedTokenizerFast", model_max_length=128))
        (folder / "tokenizer_config.json").write_text(text + "\n")
        return
    for pattern in "tokenizer*", "special_tokens_map.json", "added_tokens.json", "*.jinja":
        for path in sorted(Path(source).glob(pattern)):
            shutil.copyfile(path, folder / path.name)


def make(preset, folder, *, seed=1, n_layers=None, dtype=None, n_shards=1, keys="old", fused=True,
         vocab_size=None, tokenizer=None):
    """Writes one checkpoint folder and returns its path."""
    tiny = preset not in REAL
    config = dict({**REAL, **NARROW, **TINY}[preset])
    config["num_hidden_layers"] = n_layers or config["num_hidden_layers"]
    config["torch_dtype"] = dtype = dtype or config["torch_dtype"]
    config["vocab_size"] = vocab_size or config["vocab_size"]
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)

    entries = list(tensors(config, fused))
    if n_shards == 1:
        write_safetensors(folder / "model.safetensors", entries, dtype, seed, tiny)
    else:
        shards, weight_map, total = split(entries, n_shards), {}, 0
        for i, shard in enumerate(shards):
            name = f"model-{i + 1:05}-of-{len(shards):05}.safetensors"
            total += write_safetensors(folder / name, shard, dtype, seed, tiny)
            weight_map.update((tensor, name) for tensor, _ in shard)
        index = dict(metadata=dict(total_size=total), weight_map=weight_map)
        (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")
    if tokenizer:
        add_tokenizer(folder, tokenizer)
    written = respelled(config) if keys == "new" else config
    text = json.dumps(written, indent=2)
    (folder / "config.json").write_text(text + "\n")  # last: its presence says the folder is whole
    return folder


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("preset", nargs="?", choices=[*TINY, *NARROW, *REAL], metavar="PRESET")
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--list", action="store_true", help="list the presets")
    parser.add_argument("--tiny", type=Path, metavar="PARENT",
                        help="write all tiny ones below PARENT")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--layers", type=int, dest="n_layers")
    parser.add_argument("--dtype", choices=DTYPES)
    parser.add_argument("--shards", type=int, default=1, dest="n_shards")
    parser.add_argument("--keys", choices=("old", "new"), default="old",
                        help="spelling of config.json")
    parser.add_argument("--unfused", action="store_false", dest="fused")
    parser.add_argument("--vocab-size", type=int)
    parser.add_argument("--tokenizer", metavar="bytes|FOLDER")
    args = vars(parser.parse_args())
    preset, folder = args.pop("preset"), args.pop("folder")
    tiny, wants_list = args.pop("tiny"), args.pop("list")
    if wants_list:
        print("\n".join([*TINY, *NARROW, *REAL]))
    elif tiny:
        for name in TINY:
            make(name, tiny / name, seed=args["seed"], **TINY_FORMS.get(name, {}))
    elif preset and folder:
        make(preset, folder, **args)
    else:
        parser.error("give PRESET and FOLDER, or --tiny PARENT, or --list")


if __name__ == "__main__":
    main()
