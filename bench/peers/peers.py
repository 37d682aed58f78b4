#!/usr/bin/env python3
"""peers.py [MODEL]: phidelity beside other programs on one checkpoint, and a table of ratios.

    bench/peers/setup.sh all                      # once: .venv-peers with llama.cpp and transformers, and two for the others
    .venv-peers/bin/python bench/peers/peers.py   # the phi-1 shape with random weights, made on first use

Every figure is taken in a process of its own, one at a time; all engines take their turn in each round, since the
memory bandwidth of shared machines changes by the minute; what is printed are medians over the rounds. MODEL is a
checkpoint folder in bfloat16; --preset names another shape of tools/make_checkpoint.py. The folder of --work keeps the
checkpoint and its conversions (phi-1: 9 GB). docs/BENCHMARKS.md says what each column is.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
# llama.cpp's numbers for its file types.
GGUF_TYPES = {"Q8_0": 7, "Q4_0": 2, "Q4_K_M": 15}
# Which engines stand for the same weights: phidelity's first, then its peers.
CLASSES = [("phidelity bf16", ["transformers bf16", "llama.cpp BF16", "vLLM bf16", "OpenVINO fp16"]),
           ("phidelity w8a8", ["llama.cpp Q8_0", "OpenVINO int8"]),
           ("phidelity w4a8", ["llama.cpp Q4_0", "llama.cpp Q4_K_M", "OpenVINO int4"])]
# What does not go into .venv-peers, since its packages want other versions of the same libraries.
VENVS = {"vLLM": ".venv-peers-vllm", "OpenVINO": ".venv-peers-openvino"}
APART = ["env", "-u", "PYTHONPATH", "HF_HUB_OFFLINE=1"]
LOWER_IS_BETTER = ("startup", "memory", "private")
UNITS = {"decode": "tok/s", "prefill": "tok/s", "startup": "s", "memory": "GiB", "private": "GiB"}


# ------------------------------------------------------------------------------------ processes

def memory_gib(pid):
    """(all, what is not pages of files) that are resident now."""
    try:
        lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        parts = [int(lines[name].split()[0]) / 2**20 for name in ("RssFile", "RssAnon", "RssShmem")]
    except (OSError, KeyError):  # it has ended
        return 0.0, 0.0
    return sum(parts), sum(parts[1:])


class Run:
    """A process to its end: its output, the seconds until it began, and its greatest memory."""

    def __init__(self, command):
        self.memory = self.private = 0.0
        start = time.perf_counter()
        process = subprocess.Popen(list(map(str, command)), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, cwd=HERE)
        done = threading.Event()
        watcher = threading.Thread(target=self.watch, args=[process.pid, done])
        errors = []
        reader = threading.Thread(target=lambda: errors.append(process.stderr.read()))
        watcher.start()
        reader.start()
        first = process.stdout.read(1)
        self.first_s = time.perf_counter() - start
        self.output = (first + process.stdout.read()).decode()
        process.wait()
        done.set()
        watcher.join()
        reader.join()
        if process.returncode != 0:
            raise SystemExit(f"{' '.join(map(str, command))}\n{errors[0].decode()}\nended with code {process.returncode}")

    def watch(self, pid, done):
        while not done.wait(0.02):
            memory, private = memory_gib(pid)
            self.memory, self.private = max(self.memory, memory), max(self.private, private)


# ------------------------------------------------------------------------------------ engines

class Phidelity:
    def __init__(self, program, model, n_threads):
        self.program, self.model, self.flags = program, model, ["--threads", n_threads]

    def latency(self, n, n_input, n_output):
        """Of n requests at once, the second time: the process and what it measured."""
        with tempfile.NamedTemporaryFile() as file:
            run = Run([self.program, "bench", "latency", self.model, "--batch-size", n, "--num-iters-warmup", 1,
                       "--num-iters", 1, "--input-len", n_input, "--output-len", n_output, "--output-json", file.name,
                       *self.flags])
            return run, json.loads(Path(file.name).read_text())

    def speed(self, shapes):
        _, prefill = self.latency(1, shapes["prefill"], 1)
        runs = {n: self.latency(n, shapes["input"], shapes["output"]) for n in sorted({1, *shapes["requests"]})}
        decode = runs[1][1]
        result = {"prefill": prefill["prefill_tok_s"], "prefill share": prefill["prefill_peak_ratio"],
                  "peak": prefill["arithmetic_peak_gflops"], "decode": decode["decode_tok_s"],
                  "decode share": decode["decode_bandwidth_ratio"], "read": decode["read_bandwidth_gbs"]}
        for n in shapes["requests"]:
            result[f"x{n}"] = n * shapes["output"] / runs[n][1]["avg_latency"]
        largest = runs[max(runs)][0]
        return {**result, "memory": largest.memory, "private": largest.private}

    def startup(self, shapes):
        ids = " ".join(str(100 + i) for i in range(shapes["startup"]))
        return Run([self.program, "generate", self.model, "--prompt-token-ids", ids, "--max-tokens", 1, "--temperature", 0,
                    "--print-token-ids", "--no-stats", *self.flags]).first_s


class Worker:
    """An engine behind measure.py."""

    def __init__(self, script, model, n_threads, python=(sys.executable,)):
        self.command = [*python, HERE / script, model, n_threads]

    def speed(self, shapes):
        run = Run([*self.command, "speed", json.dumps(shapes)])
        return {**json.loads(run.output), "memory": run.memory, "private": run.private}

    def startup(self, shapes):
        return Run([*self.command, "startup", json.dumps(shapes)]).first_s


# ------------------------------------------------------------------------------------ files

def make_checkpoint(preset, work):
    folder = work / preset
    if not (folder / "config.json").exists():
        print(f"making {folder}", file=sys.stderr)
        subprocess.run([sys.executable, ROOT / "tools/make_checkpoint.py", preset, folder, "--dtype", "bfloat16"], check=True)
    return folder


def make_gguf(model, work, kind):
    path = work / f"{model.name}-{kind}.gguf"
    if path.exists():
        return path
    print(f"making {path}", file=sys.stderr)
    part = path.with_suffix(".part")
    if kind == "BF16":
        subprocess.run([sys.executable, HERE / "to_gguf.py", model, part], check=True)
    else:
        import ctypes

        import llama_cpp
        params = llama_cpp.llama_model_quantize_default_params()
        params.ftype = GGUF_TYPES[kind]
        source = make_gguf(model, work, "BF16")
        if llama_cpp.llama_model_quantize(str(source).encode(), str(part).encode(), ctypes.byref(params)) != 0:
            raise SystemExit(f"{source} cannot be quantised to {kind}")
    part.rename(path)
    return path


def make_quantized(program, model, work, kind):
    """A folder that opens by mapping, as the peers' files do; with the head quantised, as theirs is."""
    folder = work / f"{model.name}-{kind}"
    if not (folder / "config.json").exists():
        print(f"making {folder}", file=sys.stderr)
        subprocess.run([program, "quantize", model, folder, "--scheme", kind, "--quantize-lm-head"], check=True)
    return folder


def make_openvino(python, model, work, kind):
    folder = work / f"{model.name}-openvino-{kind}"
    if not (folder / "config.json").exists():
        print(f"making {folder}", file=sys.stderr)
        part = folder.with_name(folder.name + ".part")
        subprocess.run([*APART, python.with_name("optimum-cli"), "export", "openvino", "--model", model, "--task",
                        "text-generation-with-past", "--weight-format", kind, part], check=True, stdout=sys.stderr)
        part.rename(folder)
    return folder


def make_engine(name, arguments, model):
    """None when its Python is not there."""
    program, kind = name.split()
    if program in VENVS:
        python = arguments.venvs.absolute() / VENVS[program] / "bin" / "python"
        if not python.exists():
            print(f"left out: {name}, for want of {python} (bench/peers/setup.sh {program.lower()})", file=sys.stderr)
            return None
        script, path = "vllm_worker.py", model
        if program == "OpenVINO":
            script, path = "openvino_worker.py", make_openvino(python, model, arguments.work, kind)
        return Worker(script, path, arguments.threads, [*APART, python])
    if program == "phidelity":
        ours = arguments.program.resolve()
        folder = model if kind == "bf16" else make_quantized(ours, model, arguments.work, kind)
        return Phidelity(ours, folder, arguments.threads)
    if program == "transformers":
        return Worker("transformers_worker.py", model, arguments.threads)
    return Worker("llama_worker.py", make_gguf(model, arguments.work, kind), arguments.threads)


# ------------------------------------------------------------------------------------ tables

def columns_of(shapes):
    return ["decode", "prefill", *(f"x{n}" for n in shapes["requests"]), "startup", "memory", "private"]


def print_table(head, rows):
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    for row in head, ["-" * w for w in widths], *rows:
        cells = [cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths))]
        print("| " + " | ".join(cells) + " |")


def ratios_of(medians, columns):
    """A row for each peer, and one for the best of several in each column."""
    for ours, peers in CLASSES:
        if ours not in medians:
            continue
        rows = {}
        for peer in peers:
            if peer in medians:
                pairs = [(medians[ours][c], medians[peer][c], c in LOWER_IS_BETTER) for c in columns]
                rows[peer] = [(b / a if lower else a / b) if a and b else 0 for a, b, lower in pairs]
        if len(rows) > 1:
            rows["the best"] = [min(column) for column in zip(*rows.values())]
        yield from ([f"{ours} : {peer}", *(f"{ratio:.2f}" for ratio in row)] for peer, row in rows.items())


def print_results(medians, shapes):
    columns = columns_of(shapes)
    print_table(["", *(f"{c} {UNITS.get(c, 'tok/s')}" for c in columns)],
                [[name, *(f"{values[c]:.4g}" for c in columns)] for name, values in medians.items()])
    ratios = list(ratios_of(medians, columns))
    if ratios:
        print("\nTimes as fast, or as little:\n")
        print_table(["", *columns], ratios)
    limits = [[name, f"{v['read']:.1f}", f"{100 * v['decode share']:.0f} %", f"{v['peak']:.0f}",
               f"{100 * v['prefill share']:.0f} %"] for name, v in medians.items() if "read" in v]
    if limits:
        print("\nLimits of the machine around phidelity's runs, and its share of them:\n")
        print_table(["", "read GB/s", "decode", "peak GFLOP/s", "prefill"], limits)


def median_of(rounds):
    return {key: statistics.median(values[key] for values in rounds) for key in rounds[0]}


def arguments_of():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", nargs="?", type=Path)
    parser.add_argument("--preset", default="phi-1")
    parser.add_argument("--program", type=Path, default=ROOT / "build" / "phidelity")
    parser.add_argument("--work", type=Path, default=Path("/var/tmp/phidelity-peers"))
    parser.add_argument("--engines", help="comma-separated, of: " + ", ".join(n for o, p in CLASSES for n in [o, *p]))
    parser.add_argument("--venvs", type=Path, default=ROOT, help="the folder with " + " and ".join(VENVS.values()))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--prefill", type=int, default=512, help="tokens of the prompt whose prefill is timed")
    parser.add_argument("--input", type=int, default=128, help="tokens of each other prompt")
    parser.add_argument("--output", type=int, default=64, help="tokens of each answer")
    parser.add_argument("--requests", default="1,8,16", help="how many at once")
    parser.add_argument("--json", type=Path, help="write all rounds there")
    arguments = parser.parse_args()
    if arguments.rounds < 1:
        parser.error("--rounds: at least 1")
    return arguments


def main():
    arguments = arguments_of()
    arguments.work.mkdir(parents=True, exist_ok=True)
    shapes = {"startup": 5, "prefill": arguments.prefill, "input": arguments.input, "output": arguments.output,
              "requests": [int(n) for n in arguments.requests.split(",")]}
    model = (arguments.model or make_checkpoint(arguments.preset, arguments.work)).resolve()
    names = arguments.engines.split(",") if arguments.engines else [n for o, p in CLASSES for n in [o, *p]]
    engines = {name: make_engine(name, arguments, model) for name in names}
    engines = {name: engine for name, engine in engines.items() if engine}
    rounds = {name: [] for name in engines}
    for i in range(arguments.rounds):
        for name, engine in engines.items():
            start = time.perf_counter()
            values = {**engine.speed(shapes), "startup": engine.startup(shapes)}
            rounds[name].append(values)
            print(f"round {i + 1}: {name}, {time.perf_counter() - start:.0f} s", file=sys.stderr)
    if arguments.json:
        arguments.json.write_text(json.dumps({"model": str(model), "shapes": shapes, "rounds": rounds}, indent=1) + "\n")
    print_results({name: median_of(values) for name, values in rounds.items()}, shapes)


if __name__ == "__main__":
    main()
