"""AISBench, unchanged, against the server with the configurations of deploy/aisbench: texts and scores are transformers'.

Skipped where ais-bench-benchmark is not installed (scripts/oracle.sh installs deploy/aisbench/requirements.txt).
"""
import csv
import importlib.util
import json
import os
import re
import subprocess
import sys

import greedy
import pytest
import torch
from conftest import ROOT
from transformers import AutoModelForCausalLM, AutoTokenizer

if importlib.util.find_spec("ais_bench") is None:
    pytest.skip("ais-bench-benchmark is not installed (deploy/aisbench/requirements.txt)", allow_module_level=True)

CHAT = ROOT / "models" / "phi3-tiny-chat"
CONFIGS = ROOT / "deploy" / "aisbench"
N_QUESTIONS = 100
N_PERF = 20
MAX_TOKENS = 64


@pytest.fixture(scope="module")
def questions(tmp_path_factory):
    """(folder, lines of its test.jsonl)"""
    folder = tmp_path_factory.mktemp("aisbench") / "data"
    subprocess.run([sys.executable, CONFIGS / "make_data.py", folder, "--questions", str(N_QUESTIONS)], check=True)
    return folder, [json.loads(line) for line in (folder / "test.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def by_transformers(questions, phidelity):
    """{"chat" or "completions": [(text, number of tokens) of each question]}, greedy in float32."""
    tokenizer = AutoTokenizer.from_pretrained(CHAT)
    model = AutoModelForCausalLM.from_pretrained(CHAT, dtype=torch.float32).eval()
    ends = model.generation_config.eos_token_id

    def answers(texts):
        prompts = [tokenizer.encode(text, add_special_tokens=False) for text in texts]
        found = greedy.program_answers(phidelity, CHAT, prompts, MAX_TOKENS)
        for ids, answer in zip(prompts, found):
            assert greedy.confirmed(model, ids, answer) and not greedy.crosses(model.config, ids, len(answer))
            assert [i for i, token in enumerate(answer, 1) if token in ends or i == MAX_TOKENS] == [len(answer)]
        return [(tokenizer.decode(answer, skip_special_tokens=True), len(answer)) for answer in found]

    def chat(question):
        messages = [{"role": "user", "content": question}]
        return tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)

    asked = [line["question"] for line in questions[1]]
    return {"chat": answers([chat(question) for question in asked]), "completions": answers(asked)}


@pytest.fixture(scope="module")
def ais_bench(serve, questions, tmp_path_factory):
    """ais_bench(models, *flags): the folder that a run against the server leaves. In one process (--debug), which
    saves the imports of the others."""
    server = serve(CHAT, "--dtype", "float32")

    def run(models, *flags):
        work = tmp_path_factory.mktemp("aisbench-out")
        environment = dict(os.environ, PHI_URL=f"http://127.0.0.1:{server.port}", PHI_MODEL=str(CHAT),
                           PHI_DATA=str(questions[0]), PHI_MAX_TOKENS=str(MAX_TOKENS), HF_HUB_OFFLINE="1")
        command = [sys.executable, "-c", "from ais_bench.benchmark.cli.main import main; main()", "--models", *models,
                   "--datasets", "word_problems", "--config-dir", str(CONFIGS), "-w", str(work), "--debug", *flags]
        done = subprocess.run(command, cwd=work, env=environment, stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=900)
        assert done.returncode == 0, done.stdout + done.stderr
        return next(f for f in work.iterdir() if re.match(r"\d{8}_", f.name))
    return run


def last_number(text):
    """AISBench's extraction for gsm8k."""
    numbers = re.findall(r"-?\d+\.\d+|-?\d+", text.split("Question:")[0])
    return float(numbers[-1]) if numbers else None


def test_accuracy(ais_bench, questions, by_transformers, figure):
    """Through the template nearly all are right; without it none, in transformers too."""
    models = ["phidelity_chat", "phidelity_stream_completions"]
    folder = ais_bench(models)
    with open(next((folder / "summary").glob("*.csv"))) as file:
        row = next(csv.DictReader(file))
    gold = [float(line["answer"].split("#### ")[1]) for line in questions[1]]
    for model in models:
        want = [text for text, _ in by_transformers[model.rpartition("_")[2]]]
        lines = (folder / "predictions" / model / "word_problems.jsonl").read_text().splitlines()
        got = [line["prediction"] for line in sorted(map(json.loads, lines), key=lambda line: line["id"])]
        assert got == want, model
        score = 100 * sum(last_number(text) == number for text, number in zip(want, gold)) / N_QUESTIONS
        assert row[model] == f"{score:.2f}", model
        figure(f"{model}, {N_QUESTIONS} questions", f"accuracy {row[model]}")


def test_performance(ais_bench, by_transformers, figure):
    model = "phidelity_stream_chat"
    flags = "--mode", "perf", "--summarizer", "default_perf", "--num-prompts", str(N_PERF)
    folder = ais_bench([model], *flags) / "performances" / model
    report = {name: stages["total"] for name, stages in json.loads((folder / "word_problems.json").read_text()).items()}
    assert (report["Total Requests"], report["Success Requests"], report["Failed Requests"]) == (N_PERF, N_PERF, 0)
    want = by_transformers["chat"][:N_PERF]
    assert report["Total Generated Tokens"] == sum(n for _, n in want)
    lines = (folder / "word_problems_details.jsonl").read_text().splitlines()
    assert sorted(line["prediction"] for line in map(json.loads, lines)) == sorted(text for text, _ in want)
    with open(folder / "word_problems.csv") as file:
        rows = {row["Performance Parameters"]: row for row in csv.DictReader(file)}
    first, whole = (float(rows[name]["Average"].split()[0]) for name in ("TTFT", "E2EL"))
    assert 0 < first <= whole
    figure(f"AISBench perf, {N_PERF} requests", f"TTFT {first} ms, {report['Output Token Throughput']}")
