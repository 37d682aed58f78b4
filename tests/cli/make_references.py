#!/usr/bin/env python3
"""Makes tests/cli/references/: what transformers answers for two golden checkpoints, layers and all.

    python tests/cli/make_references.py     (in the environment of tests/oracle/requirements.txt)
"""
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROMPTS = ["[5, 9, 2, 33, 21, 7, 7, 40]", "[1, 50, 3]"]

for name in ("phi-head64", "phi3-gqa"):
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as prompts:
        prompts.write("\n".join(PROMPTS))
        prompts.flush()
        subprocess.run([sys.executable, ROOT / "python/phidelity/reference.py", ROOT / "tests/golden" / name,
                        ROOT / "tests/cli/references" / f"{name}.safetensors", "--prompts", prompts.name, "--layers"],
                       check=True)
