"""docs/DEPLOYMENT.md where it needs Python packages: all its commands, lm-eval's and AISBench's too, and its table of memory.

tests/docs/test_deployment.py runs the others in `make check`.
"""
import importlib.util
import json
import math
import os
import re
import shlex
import sys
from pathlib import Path

import make_checkpoint
import pytest
from conftest import PROGRAM, ROOT

sys.path.insert(0, str(ROOT / "tests"))
from docs import guide  # noqa: E402

BUILD = Path(os.environ.get("PHI_BUILD", ROOT / "build"))
GUIDE = ROOT / "docs" / "DEPLOYMENT.md"


def test_commands(tmp_path, phidelity):
    commands, _, _ = guide.read(GUIDE)
    if importlib.util.find_spec("ais_bench") is None:
        print("ais-bench-benchmark is not installed: without its commands")
        commands = [c for c in commands if not c.text.startswith("ais_bench ")]
    python = shlex.quote(sys.executable)  # its packages' commands, whatever PATH has
    programs = {"phidelity": shlex.quote(str(PROGRAM)), "python3": python, "lm_eval": f"{python} -m lm_eval",
                "ais_bench": f"{python} -c 'from ais_bench.benchmark.cli.main import main; main()'"}
    environment = {"PYTHONPATH": str(BUILD / "python"), "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
    results = guide.replay(commands, tmp_path, programs, environment, timeout_s=1200)
    for command, (code, printed) in zip(commands, results):
        shown = f"{GUIDE.name}:{command.line}: {command.text}\n{printed}"
        assert code == 0, shown
        assert not command.output or guide.matches(command.output, printed), shown


def sparse_checkpoint(folder, preset, dtype):
    """A checkpoint of a real model's shape whose weights are a hole in a file: zeros that take no disk."""
    config = dict(make_checkpoint.REAL[preset], torch_dtype=dtype)
    code, size = make_checkpoint.DTYPES[dtype]
    header, offset = {}, 0
    for name, parts in make_checkpoint.tensors(config, True):
        shape = [sum(s[0] for _, s in parts), *parts[0][1][1:]]
        end = offset + math.prod(shape) * size
        header[name] = dict(dtype=code, shape=shape, data_offsets=[offset, end])
        offset = end
    text = json.dumps(header).encode()
    folder.mkdir()
    with open(folder / "model.safetensors", "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + offset)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def memory_table():
    """{model: {column: GiB}} of the guide."""
    text = GUIDE.read_text().split("<!-- memory: begin -->")[1].split("<!-- memory: end -->")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.strip().splitlines()]
    names = rows[0][1:]
    return {row[0]: {name: float(cell) for name, cell in zip(names, row[1:]) if cell} for row in rows[2:]}


@pytest.mark.parametrize("preset", memory_table())
def test_memory_table(preset, tmp_path, phidelity):
    shown = memory_table()[preset]
    for column, gib in shown.items():
        dtype = "float32" if column == "float32" else "bfloat16"
        folder = tmp_path / dtype
        if not folder.exists():
            sparse_checkpoint(folder, preset, dtype)
        quantization = column if column in ("w8a8", "w4a8") else "none"
        told = json.loads(phidelity("inspect", folder, "--json", "--max-num-seqs", 1, "--max-model-len", 1024,
                                    "--quantization", quantization))
        n_bytes = told["weight_bytes"] + told["converted_bytes"]
        if "for " in column:
            n_bytes = told["plan"]["kv_bytes_per_token"] * int(re.sub(r"\D", "", column))
        assert f"{n_bytes / 2**30:.2f}" == f"{gib:.2f}", (preset, column)
        assert told["plan"]["scratch_bytes"] < 0.15 * 2**30
