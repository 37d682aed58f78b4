"""config.json against transformers' configuration classes, safetensors against the reference library:
random files, valid and broken. The readers are driven through tests/formats/files_driver.c."""
import json
import os
import random
import struct
import subprocess
from pathlib import Path

import pytest
from safetensors import SafetensorError, deserialize
from transformers import Phi3Config, PhiConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("PHI_BUILD", ROOT / "build")).absolute()
DRIVER = BUILD / "tests" / "formats" / "files_driver"


def read_all(paths):
    assert os.access(DRIVER, os.X_OK), f"no {DRIVER}: build the tests, or set PHI_BUILD"
    result = subprocess.run([DRIVER], input="".join(f"{p}\n" for p in paths), text=True,
                            capture_output=True, timeout=600)
    assert result.returncode == 0, result.stderr
    answers = [json.loads(line) for line in result.stdout.splitlines()]
    assert len(answers) == len(paths)
    return answers


def random_rope(rng, config, head_dim):
    rope = {}
    kind = rng.choice(["default", "linear", "yarn", "longrope", "su", "dynamic", None])
    if kind:
        rope[rng.choice(["type", "rope_type"])] = kind
    for key, chance, values in [
        ("factor", 0.6, [1.0, 2.0, 4.0, 8]), ("attention_factor", 0.3, [1.25]),
        ("rope_theta", 0.3, [700.0, 2e4]), ("partial_rotary_factor", 0.3, [0.5, 0.75]),
        ("original_max_position_embeddings", 0.4, [32, 512]),
    ]:
        if rng.random() < chance:
            rope[key] = rng.choice(values)
    if kind == "yarn" and rng.random() < 0.3:
        rope |= {"mscale": 0.7, "mscale_all_dim": 0.5}
    if kind in ("longrope", "su", "yarn"):
        default = 1.0 if config["model_type"] == "phi3" else 0.5
        partial = rope.get("partial_rotary_factor", config.get("partial_rotary_factor", default))
        n = int(head_dim * partial) // 2
        rope |= {"short_factor": [1.0] * n, "long_factor": [2.0] * n}
    return rope


def random_config(rng):
    heads, head_dim = rng.choice([1, 2, 4]), rng.choice([8, 16, 24, 32, 96])
    config = {"model_type": rng.choice(["phi", "phi3"]), "hidden_size": heads * head_dim,
              "num_attention_heads": heads, "intermediate_size": 64, "num_hidden_layers": 2,
              "vocab_size": 100}
    for key, chance, values in [
        ("max_position_embeddings", 0.5, [128, 1024, 4096, 131072]),
        ("original_max_position_embeddings", 0.4, [64, 256, 4096]),
        ("rope_theta", 0.4, [500, 10000.0, 1e6]),
        ("partial_rotary_factor", 0.4, [0.25, 0.5, 0.75, 1.0, 0.4]),
        ("num_key_value_heads", 0.3, [None, 1, heads]), ("sliding_window", 0.3, [None, 47]),
        ("eos_token_id", 0.2, [None, 5, [6, 7]]),
    ]:
        if rng.random() < chance:
            config[key] = rng.choice(values)
    key = rng.choice(["rope_scaling", "rope_parameters", None])
    if key:
        config[key] = random_rope(rng, config, head_dim)
    return config


def reference_config(config):
    """What transformers makes of it, in the driver's words; None where it refuses."""
    phi3 = config["model_type"] == "phi3"
    try:
        c = (Phi3Config if phi3 else PhiConfig).from_dict(json.loads(json.dumps(config)))
        rope = c.rope_parameters
        kind = rope["rope_type"]
        factor = 1.0 if kind == "default" else ROPE_INIT_FUNCTIONS[kind](c, "cpu")[1]
    except Exception:  # whatever it raises for a config it does not take
        return None
    head_dim = c.hidden_size // c.num_attention_heads
    eos = [c.eos_token_id] if isinstance(c.eos_token_id, int) else c.eos_token_id or []
    found = {"rope_type": kind, "rotary_dim": int(head_dim * rope["partial_rotary_factor"]),
             "head_dim": head_dim, "n_kv_heads": c.num_key_value_heads,
             "max_position_embeddings": c.max_position_embeddings,
             "sliding_window": (c.sliding_window if phi3 else None) or 0,
             "rope_theta": float(rope["rope_theta"]), "attention_factor": pytest.approx(factor),
             "stop_ids": [i for i in eos if i < c.vocab_size]}
    if kind in ("yarn", "longrope"):
        found["original_max_position_embeddings"] = rope["original_max_position_embeddings"]
    return found


def test_configs(tmp_path, figure):
    rng = random.Random(7)
    configs = [random_config(rng) for _ in range(1500)]
    folders = [tmp_path / str(i) for i in range(len(configs))]
    for folder, config in zip(folders, configs):
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(config))
    n_equal = n_refused = 0
    for config, ours in zip(configs, read_all(folders)):
        reference = reference_config(config)
        if "error" in ours:
            # Refused here alone: longrope for phi, and an odd number of rotary dimensions.
            known = '"longrope" is not supported' in ours["error"] or "rotary dim" in ours["error"]
            assert reference is None or known, (config, ours)
            n_refused += 1
        elif reference is not None:  # some old spellings it no longer takes are still read here
            assert {key: ours[key] for key in reference} == reference, config
            n_equal += 1
    assert n_equal > 900
    figure("configs read alike, refused", f"{n_equal}, {n_refused}")


SIZES = {"F32": 4, "BF16": 2, "U8": 1, "I64": 8, "F8_E5M2": 1, "BOOL": 1}


def break_entry(rng, header):
    name = rng.choice(list(header))
    entry = header[name]
    if not isinstance(entry, dict) or "shape" not in entry:
        return
    key = rng.choice(list(entry))
    change = rng.randrange(7)
    if change == 0:
        entry["data_offsets"][rng.randrange(2)] += rng.choice([-1, 1])
    elif change == 1:
        entry["shape"].append(rng.choice([1, 2, -1, 1.0, 2**40, 2**64]))
    elif change == 2:
        entry["dtype"] = rng.choice(["F4", "f32", "F8_E4M3", "C64", None, 3])
    elif change == 3:
        entry["unknown key"] = 1
    elif change == 4:
        del entry[key]
    elif change == 5:
        entry[key] = rng.choice([None, [], [0], [0, 0, 0], {}, "x"])
    else:
        header[name] = rng.choice([None, [], 1])


def random_safetensors(rng):
    header, end = {}, 0
    for _ in range(rng.randint(0, 4)):
        dtype, shape = rng.choice(list(SIZES)), [rng.randint(0, 3) for _ in range(rng.randint(0, 3))]
        begin, size = end, SIZES[dtype]
        for n in shape:
            size *= n
        end += size
        header[f"t{rng.randint(0, 6)}"] = {"dtype": dtype, "shape": shape,
                                           "data_offsets": [begin, end]}
    if rng.random() < 0.3:
        header["__metadata__"] = rng.choice([{"a": "b"}, {}, {"a": 1}, None, []])
    if header and rng.random() < 0.6:
        break_entry(rng, header)
    text = json.dumps(header).encode() + b" " * rng.choice([0, 0, 3])
    length = len(text) + rng.choice([0] * 10 + [1, -1])
    return struct.pack("<Q", length) + text + bytes(max(0, end + rng.choice([0] * 8 + [1, -1])))


def test_safetensors(tmp_path, figure):
    rng = random.Random(3)
    paths = [tmp_path / f"{i}.safetensors" for i in range(4000)]
    for path in paths:
        path.write_bytes(random_safetensors(rng))
    n_accepted = n_refused = 0
    for path, ours in zip(paths, read_all(paths)):
        try:
            reference = sorted(name for name, _ in deserialize(path.read_bytes()))
        except SafetensorError:
            reference = None
        if reference is None:
            assert "error" in ours, path.read_bytes()  # never more lenient
            n_refused += 1
        elif "error" in ours:  # stricter in dtypes that nothing here uses
            assert ours["status"] == "unsupported", ours
        else:
            assert ours["tensors"] == reference
            n_accepted += 1
    assert n_accepted > 500 and n_refused > 500
    figure("files accepted, refused alike", f"{n_accepted}, {n_refused}")
