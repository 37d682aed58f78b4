#!/usr/bin/env python3
"""report_rows.py MODEL: the four rows that a team reported for phi-1 on an NPU, measured with phidelity.

    bench/report_rows.py MODEL [--formats float16,bfloat16,w8a8,w4a8] [--rounds 5]

One request at a time: 9 tokens in and 32, 64 or 128 out, 140 in and 128 out. Each figure is of a process of its own, all
formats in turn in each round; printed are medians of the time from submission to the last token, tokens a second at
that, and the most memory that a process held, pages of mapped files included. float16 of a float32 checkpoint,
as there, is converted at load. The NPU's figures are those of the report (vLLM, float16).
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ROWS = [(9, 32), (9, 64), (9, 128), (140, 128)]
NPU = {(9, 64): (25.9, 2.47, 2.71)}  # tokens/s, s, GiB


def options_of(name):
    return ["--dtype", name] if name.startswith(("float", "bfloat")) else ["--quantization", name]


def run(arguments, what, name, row, *more):
    """(what the benchmark wrote, GiB that the process held at most)"""
    n_in, n_out = row
    with tempfile.NamedTemporaryFile() as file:
        command = [arguments.program, "bench", what, arguments.model, "--input-len", str(n_in), "--output-len", str(n_out),
                   "--output-json", file.name, *options_of(name), *more]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            sys.exit(f"{' '.join(map(str, command))} ended with code {process.returncode}")
        return json.loads(Path(file.name).read_text()), usage.ru_maxrss / 2**20


def latency_s(arguments, name, row):
    return run(arguments, "latency", name, row, "--batch-size", "1", "--num-iters-warmup", "1", "--num-iters",
               "1")[0]["avg_latency"]


def memory_gib(arguments, name, row):
    """Of a run that does not measure the machine's limits, which takes memory too."""
    return run(arguments, "throughput", name, row, "--num-prompts", "1")[1]


def line_of(name, row, values):
    n_in, n_out = row
    speed, seconds, memory = values
    return f"| {name} | {n_in} | {n_out} | {speed:.1f} | {seconds:.2f} | {memory:.2f} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", type=Path, help="a checkpoint folder of phi-1 or of its shape")
    parser.add_argument("--program", type=Path, default=ROOT / "build" / "phidelity")
    parser.add_argument("--formats", default="float16,bfloat16,w8a8,w4a8")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    if arguments.rounds < 1:
        parser.error("--rounds: at least 1")
    names = arguments.formats.split(",")
    cells = [(name, row) for row in ROWS for name in names]
    memory = {cell: memory_gib(arguments, *cell) for cell in cells}
    seconds = {cell: [] for cell in cells}
    for _ in range(arguments.rounds):
        for cell in cells:
            seconds[cell].append(latency_s(arguments, *cell))
    print("| format | in | out | tokens/s | latency s | peak memory GiB |\n|---|---:|---:|---:|---:|---:|")
    for row in ROWS:
        if row in NPU:
            print(line_of("NPU, as reported", row, NPU[row]))
        for name in names:
            median = statistics.median(seconds[name, row])
            print(line_of(name, row, (row[1] / median, median, memory[name, row])))


if __name__ == "__main__":
    main()
