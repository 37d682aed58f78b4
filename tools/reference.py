#!/usr/bin/env python3
"""The Phi models' forward pass in plain numpy: a readable specification of what phidelity does.

    python tools/reference.py MODEL --tokens "1 2 3"               the five likeliest next ids
    python tools/reference.py MODEL --tokens "1 2 3" --generate 20 greedy continuation
    python tools/reference.py --check tests/golden                 compare with transformers

MODEL is a Hugging Face checkpoint folder. One sequence, no batching and no haste. Everything is
float32; with --dtype bfloat16 the inputs of matrix products and the cached keys and values are
rounded to bfloat16, once each, and nothing else is. (docs/NUMERICS.md fixes the order of additions
too; numpy's is its own.)
Shapes: n tokens of this call, m tokens seen in all, d head size, r rotated dimensions of each head.
The facts' source is the transformers library (models/phi, models/phi3, modeling_rope_utils).
"""
import argparse
import json
import math
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np

f32 = np.float32


# ------------------------------------------------------------------------------------------
# Checkpoint: config.json and safetensors files

def read_config(folder):
    """The fields the maths needs, from old (rope_scaling) or new (rope_parameters) spelling."""
    raw = json.loads((folder / "config.json").read_text())
    c = SimpleNamespace(is_phi=raw["model_type"] == "phi")
    if not c.is_phi and raw["model_type"] != "phi3":
        raise ValueError(f"model_type {raw['model_type']!r} is not supported")
    get = lambda key, default=None: default if raw.get(key) is None else raw[key]

    c.n_layers, c.n_heads = raw["num_hidden_layers"], raw["num_attention_heads"]
    c.n_kv_heads = get("num_key_value_heads", c.n_heads)
    c.head_dim = get("head_dim", raw["hidden_size"] // c.n_heads)
    c.eps = get("layer_norm_eps" if c.is_phi else "rms_norm_eps", 1e-5)
    c.window = None if c.is_phi else get("sliding_window")
    c.qk_layernorm = get("qk_layernorm", False)
    c.tied = get("tie_word_embeddings", False)
    c.max_length = get("max_position_embeddings", 2048 if c.is_phi else 4096)

    rope = get("rope_scaling") or get("rope_parameters") or {}
    c.rope, c.rope_type = rope, rope.get("rope_type") or rope.get("type") or "default"
    if not c.is_phi and c.rope_type in ("su", "yarn"):  # old names
        c.rope_type = "longrope"
    c.theta = rope.get("rope_theta", get("rope_theta", 10000.0))
    partial = rope.get("partial_rotary_factor",
                       get("partial_rotary_factor", 0.5 if c.is_phi else 1.0))
    c.rotary_dim = int(c.head_dim * partial)
    inner = rope.get("original_max_position_embeddings", c.max_length if c.is_phi else 4096)
    c.original_length = get("original_max_position_embeddings", inner)
    return c


def read_safetensors(path):
    """{name: array}: 8 bytes of header length, JSON header, data. Floats become float32."""
    data = np.memmap(path, np.uint8, "r")
    n = int.from_bytes(data[:8].tobytes(), "little")
    header = json.loads(data[8:8 + n].tobytes())
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        raw = data[8 + n + begin:8 + n + end].tobytes()
        if entry["dtype"] == "BF16":  # the upper half of a float32
            array = (np.frombuffer(raw, "<u2").astype(np.uint32) << 16).view(f32)
        elif entry["dtype"] in ("F32", "F16"):
            array = np.frombuffer(raw, {"F32": "<f4", "F16": "<f2"}[entry["dtype"]]).astype(f32)
        else:
            array = np.frombuffer(raw, {"I32": "<i4", "I64": "<i8"}[entry["dtype"]])
        tensors[name] = array.reshape(entry["shape"])
    return tensors


def to_bfloat16(x):
    """float32 rounded to the nearest bfloat16, ties to even, held as float32."""
    u = np.ascontiguousarray(x, f32).view(np.uint32)
    return (u + 0x7FFF + ((u >> 16) & 1) & np.uint32(0xFFFF0000)).view(f32)


class Model:
    """A config and its weights, fused projections cut into their parts."""

    def __init__(self, folder, dtype="float32"):
        folder = Path(folder)
        self.config = c = read_config(folder)
        self.rounded = to_bfloat16 if dtype == "bfloat16" else lambda x: x
        index = folder / "model.safetensors.index.json"
        files = {"model.safetensors"}
        if index.exists():
            files = set(json.loads(index.read_text())["weight_map"].values())
        self.weights = w = {}
        for name in sorted(files):
            w.update(read_safetensors(folder / name))
        q, kv = c.n_heads * c.head_dim, c.n_kv_heads * c.head_dim
        for name in list(w):
            for fused, parts, cuts in (("qkv_proj", ("q_proj", "k_proj", "v_proj"), [q, q + kv]),
                                       ("gate_up_proj", ("gate_proj", "up_proj"), 2)):
                if fused in name:
                    for part, rows in zip(parts, np.split(w.pop(name), cuts)):
                        w[name.replace(fused, part)] = rows

    def linear(self, name, x):
        """x [n, n_in] times weight [n_out, n_in] transposed, plus a bias where the file has one."""
        y = self.rounded(x) @ self.rounded(self.weights[name + ".weight"]).T
        return y + self.weights[name + ".bias"] if name + ".bias" in self.weights else y

    def norm(self, name, x):
        weight, eps = self.weights[name + ".weight"], f32(self.config.eps)
        if self.config.is_phi:
            return layer_norm(x, weight, self.weights[name + ".bias"], eps)
        return rms_norm(x, weight, eps)


# ------------------------------------------------------------------------------------------
# Pieces

def layer_norm(x, weight, bias, eps):
    centred = x - x.mean(-1, keepdims=True)
    variance = (centred * centred).mean(-1, keepdims=True)
    return centred / np.sqrt(variance + eps) * weight + bias


def rms_norm(x, weight, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def gelu_new(x):
    inner = f32(math.sqrt(2 / math.pi)) * (x + f32(0.044715) * x * x * x)
    return f32(0.5) * x * (1 + np.tanh(inner))


def silu(x):
    with np.errstate(over="ignore"):  # exp may reach infinity; the quotient is 0 then, rightly
        return x / (1 + np.exp(-x))


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


# ------------------------------------------------------------------------------------------
# Rotary positions. Frequencies are float32 step by step, as torch makes them: each step's rounding
# shows in the logits of long prompts.

def is_long(c, n_total):
    """The LongRoPE regime is a property of a sequence's whole length, not of a position."""
    return c.rope_type == "longrope" and n_total > c.original_length


def rope_table(c, n_total):
    """(frequencies [r/2], factor on cos and sin) for a sequence that holds n_total tokens."""
    r, rope = c.rotary_dim, c.rope
    exponent = np.arange(0, r, 2).astype(f32) / f32(r)

    def powers(base):  # base ** exponent, correctly rounded
        return (np.float64(base) ** exponent.astype(np.float64)).astype(f32)

    if c.rope_type == "default":
        return 1 / powers(c.theta), f32(1)
    if c.rope_type == "linear":
        return 1 / powers(c.theta) / f32(rope["factor"]), f32(1)
    if c.rope_type == "dynamic":  # NTK: the base grows with the length beyond the trained one
        stretch = rope["factor"] * max(n_total, c.max_length) / c.max_length - (rope["factor"] - 1)
        return 1 / powers(c.theta * stretch ** (r / (r - 2))), f32(1)
    if c.rope_type == "longrope":
        factors = np.array(rope["long_factor" if is_long(c, n_total) else "short_factor"], f32)
        scale = rope.get("factor") or c.max_length / c.original_length
        attention = rope.get("attention_factor")
        if attention is None:
            stretch = math.log(scale) / math.log(c.original_length)
            attention = math.sqrt(1 + stretch) if scale > 1 else 1
        return 1 / (factors * powers(c.theta)), f32(attention)
    if c.rope_type == "yarn":
        return yarn_table(c, powers(c.theta))
    raise ValueError(f"rope type {c.rope_type!r} is not supported")


def yarn_table(c, powers):
    """Fast dimensions keep their frequency, slow ones are stretched by `factor`, a ramp between."""
    r, rope, scale = c.rotary_dim, c.rope, c.rope["factor"]

    def dimension(n_turns):  # the one that turns n_turns times over the original length
        return r * math.log(c.original_length / (n_turns * 2 * math.pi)) / (2 * math.log(c.theta))

    def gain(m):
        return 1.0 if scale <= 1 else 0.1 * m * math.log(scale) + 1.0

    low, high = dimension(rope.get("beta_fast") or 32), dimension(rope.get("beta_slow") or 1)
    if rope.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, r - 1)
    if low == high:
        high += 0.001
    stretched = np.clip((np.arange(r // 2, dtype=f32) - f32(low)) / f32(high - low), 0, 1)
    attention = rope.get("attention_factor")
    if attention is None:
        mscale, all_dim = rope.get("mscale"), rope.get("mscale_all_dim")
        attention = gain(mscale) / gain(all_dim) if mscale and all_dim else gain(1)
    keep = 1 - stretched
    return 1 / (f32(scale) * powers) * (1 - keep) + 1 / powers * keep, f32(attention)


def rotate(x, positions, table):
    """x [n, heads, d]: turns the pairs (i, i + r/2) of the first r dimensions, leaves the rest."""
    frequencies, factor = table
    half = len(frequencies)
    angle = positions.astype(f32)[:, None] * frequencies
    cos = np.cos(angle.astype(np.float64)).astype(f32)[:, None] * factor
    sin = np.sin(angle.astype(np.float64)).astype(f32)[:, None] * factor
    a, b = x[..., :half], x[..., half:2 * half]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin, x[..., 2 * half:]], axis=-1)


# ------------------------------------------------------------------------------------------
# Attention and the two blocks

class Cache:
    """Rotated keys and values of the tokens seen so far, per layer [m, kv heads, d]."""

    def __init__(self, c):
        self.n_tokens = 0
        empty = np.empty((0, c.n_kv_heads, c.head_dim), f32)
        self.keys, self.values = [empty] * c.n_layers, [empty] * c.n_layers


def attention(model, i, x, cache, table):
    """Layer i's attention for x [n, hidden], before the output projection: [n, heads * d]."""
    c, name, n = model.config, f"model.layers.{i}.self_attn.", len(x)
    q = model.linear(name + "q_proj", x).reshape(n, c.n_heads, c.head_dim)
    k = model.linear(name + "k_proj", x).reshape(n, c.n_kv_heads, c.head_dim)
    v = model.linear(name + "v_proj", x).reshape(n, c.n_kv_heads, c.head_dim)
    if c.is_phi and c.qk_layernorm:
        q, k = model.norm(name + "q_layernorm", q), model.norm(name + "k_layernorm", k)

    positions = cache.n_tokens + np.arange(n)
    q, k = rotate(q, positions, table), rotate(k, positions, table)
    cache.keys[i] = k = np.concatenate([cache.keys[i], model.rounded(k)])
    cache.values[i] = v = np.concatenate([cache.values[i], model.rounded(v)])

    key, query = np.arange(len(k)), positions[:, None]
    visible = key <= query
    if c.window:
        visible &= key > query - c.window  # a token sees `window` keys, itself included
    out, group = np.empty_like(q), c.n_heads // c.n_kv_heads
    for h in range(c.n_heads):
        scores = q[:, h] @ k[:, h // group].T * f32(c.head_dim**-0.5)
        out[:, h] = softmax(np.where(visible, scores, f32(-np.inf))) @ v[:, h // group]
    return out.reshape(n, -1)


def phi_block(model, i, x, cache, table):
    """Phi-1, 1.5, 2: attention and MLP side by side, both fed by one norm."""
    name = f"model.layers.{i}."
    h = model.norm(name + "input_layernorm", x)
    attended = model.linear(name + "self_attn.dense", attention(model, i, h, cache, table))
    mlp = model.linear(name + "mlp.fc2", gelu_new(model.linear(name + "mlp.fc1", h)))
    return attended + mlp + x


def phi3_block(model, i, x, cache, table):
    """Phi-3, 3.5, 4: attention, then a gated MLP, each with its norm and residual."""
    name = f"model.layers.{i}."
    h = model.norm(name + "input_layernorm", x)
    x = x + model.linear(name + "self_attn.o_proj", attention(model, i, h, cache, table))
    h = model.norm(name + "post_attention_layernorm", x)
    gate, up = model.linear(name + "mlp.gate_proj", h), model.linear(name + "mlp.up_proj", h)
    return x + model.linear(name + "mlp.down_proj", up * silu(gate))


def forward(model, ids, cache=None, trace=None):
    """Logits [n, vocab] of ids that follow what the cache holds. trace collects hidden states."""
    c, cache = model.config, cache or Cache(model.config)
    trace = {} if trace is None else trace
    table = rope_table(c, cache.n_tokens + len(ids))
    x = trace["hidden.0"] = model.weights["model.embed_tokens.weight"][ids]
    for i in range(c.n_layers):
        x = (phi_block if c.is_phi else phi3_block)(model, i, x, cache, table)
        trace[f"hidden.{i + 1}"] = x
    cache.n_tokens += len(ids)
    x = trace["hidden.final"] = model.norm("model.final_layernorm" if c.is_phi else "model.norm", x)
    return model.linear("model.embed_tokens" if c.tied else "lm_head", x)


def generate(model, ids, n_new):
    """Greedy ids after `ids`. A sequence that outgrows the original length starts over with the
    long factors: its cached keys were turned by the short ones."""
    ids, n_prompt = list(ids), len(ids)
    cache = Cache(model.config)
    while len(ids) < n_prompt + n_new:
        if is_long(model.config, len(ids)) and not is_long(model.config, cache.n_tokens):
            cache = Cache(model.config)
        logits = forward(model, ids[cache.n_tokens:], cache)
        ids.append(int(logits[-1].argmax()))
    return ids[n_prompt:]


# ------------------------------------------------------------------------------------------
# The check against the goldens, and the command line

LIMIT = 3e-5  # largest difference, as a share of the largest value


def mean_kl(p, q):
    """The mean over rows of KL(softmax(p) || softmax(q)), in float64."""
    p, q = softmax(p.astype(np.float64)), softmax(q.astype(np.float64))
    return (p * np.log(p / q)).sum(-1).mean()


def check_float32(folder, golden):
    """Yields (tensor, measured, good) for each tensor of transformers' float32 run."""
    model = Model(folder)
    for k in prompt_numbers(golden):
        ids, trace = golden[f"{k}.input_ids"], {}
        trace["logits"] = forward(model, ids, trace=trace)
        for name, got in trace.items():
            want = golden.get(f"{k}.{name}")
            if want is not None:
                share = np.abs(got - want).max() / np.abs(want).max()
                same_best = name != "logits" or (got.argmax(-1) == want.argmax(-1)).all()
                yield f"{k}.{name}", f"{share:.1e} of the largest", share < LIMIT and same_best
        want = golden[f"{k}.greedy"].tolist()
        yield f"{k}.greedy", f"{len(want)} ids", generate(model, ids.tolist(), len(want)) == want


def check_bfloat16(folder, golden):
    """Rounding to bfloat16 must cost no more than it costs transformers, over all prompts."""
    model = Model(folder, "bfloat16")
    numbers = prompt_numbers(golden)
    join = lambda name: np.concatenate([golden[f"{k}.{name}"] for k in numbers])
    ours = np.concatenate([forward(model, golden[f"{k}.input_ids"]) for k in numbers])
    cost, theirs = mean_kl(join("logits"), ours), mean_kl(join("logits"), join("logits_bf16"))
    yield "logits_bf16", f"KL {cost:.1e}, theirs {theirs:.1e}", cost <= theirs


def prompt_numbers(golden):
    return sorted(name.split(".")[0] for name in golden if name.endswith(".input_ids"))


def check(parent):
    """Prints a verdict for each golden tensor; returns the number of failures."""
    folders = sorted(path.parent for path in Path(parent).glob("*/golden.safetensors"))
    if not folders:
        raise SystemExit(f"no golden.safetensors below {parent}")
    failures = 0
    for folder in folders:
        golden = read_safetensors(folder / "golden.safetensors")
        for one_check in check_float32, check_bfloat16:
            for tensor, measured, good in one_check(folder, golden):
                failures += not good
                print(f"{folder.name:<14} {tensor:<15} {measured:<27} {'ok' if good else 'FAILED'}")
    print(f"{failures} FAILED" if failures else f"{len(folders)} checkpoints: all equal")
    return failures


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", nargs="?", type=Path)
    parser.add_argument("--tokens", help="ids, separated by spaces")
    parser.add_argument("--generate", type=int, metavar="N", help="print N greedy ids")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--check", type=Path, metavar="FOLDER", help="folder of golden checkpoints")
    args = parser.parse_args()
    if args.check:
        return 1 if check(args.check) else 0
    if not args.model or not args.tokens:
        parser.error("give MODEL and --tokens, or --check FOLDER")
    model, ids = Model(args.model, args.dtype), [int(t) for t in args.tokens.split()]
    if args.generate:
        print(*generate(model, ids, args.generate))
        return 0
    last = forward(model, ids)[-1]
    for token in np.argsort(-last, kind="stable")[:5]:
        print(f"{token:>7} {last[token]:10.5f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
