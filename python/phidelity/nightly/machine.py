"""The machine and the versions that a report names."""
from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import struct
import subprocess
from importlib.metadata import PackageNotFoundError, version

PACKAGES = ("torch", "transformers", "lm_eval")
TIMEOUT_S = 60


def _from_file(path: str, pattern: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            match = re.search(pattern, file.read(), re.MULTILINE)
    except OSError:
        match = None
    return match[1].strip() if match else "unknown"


def machine(program: str, model: str) -> dict[str, str]:
    """Name to text. What the program itself makes of the machine comes from `phidelity inspect` of a model."""
    found = {
        "host": platform.node() or "unknown",
        "processor": _from_file("/proc/cpuinfo", r"^model name\s*:\s*(.*)$"),
        "processors": str(len(os.sched_getaffinity(0))) + " for this process",
        "memory": _from_file("/proc/meminfo", r"^MemTotal:\s*(.*)$"),
        "system": f"{_from_file('/etc/os-release', r'^PRETTY_NAME=.?([^$]*?).?$')}, Linux {platform.release()}",
    }
    inspected = _told(program, "inspect", model, "--json")
    try:
        values = json.loads(inspected)
        found["instruction set"], found["threads"] = str(values["isa"]), str(values["threads"])
    except (ValueError, KeyError, TypeError):
        pass  # a program that cannot say so fails its cells
    return found


def _told(*argv: str) -> str:
    try:
        return subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=TIMEOUT_S,
                              check=False).stdout.decode("utf-8", "replace").strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""


def sha256_of(path: str) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def versions(program: str, digest: str) -> dict[str, str]:
    """Name to text, of what took part; packages that are not installed are left out."""
    found = {"program": f"{_told(program, '--version') or 'unknown'}, SHA-256 {digest[:16]}",
             "Python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def origin(path: str) -> str:
    """Who made a reference: the text `about` of the safetensors file; "unknown" where it holds none."""
    try:
        with open(path, "rb") as file:
            n_header = struct.unpack("<Q", file.read(8))[0]
            begin, end = json.loads(file.read(n_header))["about"]["data_offsets"]
            file.seek(8 + n_header + begin)
            return file.read(end - begin).decode("utf-8", "replace")
    except (OSError, ValueError, KeyError, TypeError, struct.error, OverflowError):
        return "unknown"
