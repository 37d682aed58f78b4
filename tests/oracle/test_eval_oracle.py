"""python -m phidelity.eval and lm-eval's model "phidelity", against lm-eval with its own transformers model.

lm-eval's task gsm8k itself (its file is included, only the data are local) says what extraction, comparison and
the choice of shots have to be.
"""
import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # everything is here
os.environ.setdefault("HF_DATASETS_OFFLINE", "1")

import lm_eval  # noqa: E402
from conftest import PROGRAM, ROOT  # noqa: E402
from lm_eval.tasks import TaskManager  # noqa: E402

sys.path.insert(0, str(PROGRAM.parent / "python"))

from phidelity.eval import Config, Task, gsm8k, run  # noqa: E402
from phidelity.eval.__main__ import main  # noqa: E402
from phidelity.eval.lm_eval_model import PhidelityLM  # noqa: E402 (registers it)

CHAT = ROOT / "models" / "phi3-tiny-chat"
QUESTIONS = CHAT / "questions.jsonl"
LOCAL_TASKS = ROOT / "tests" / "oracle" / "tasks"
N_SHOTS_FILE = 40  # the questions of shots.jsonl; the others are asked
LIMIT = 8          # the first ones, and the model is wrong about some of them
FLOAT32 = {"dtype": "float32"}

TASK = """
include: {include}
task: {task}
dataset_path: null
dataset_name: null
custom_dataset: !function {task}.load
fewshot_split: {split}
"""
LOADER = """
import json
from datasets import Dataset

def rows(path):
    return Dataset.from_list([json.loads(line) for line in open(path)])

def load(**_):
    return {{"train": rows({shots!r}), "test": rows({asked!r})}}
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A folder with asked.jsonl, shots.jsonl, and two tasks over them: gsm8k with shots from either."""
    folder = tmp_path_factory.mktemp("gsm8k")
    lines = QUESTIONS.read_text().splitlines(keepends=True)
    (folder / "shots.jsonl").write_text("".join(lines[:N_SHOTS_FILE]))
    (folder / "asked.jsonl").write_text("".join(lines[N_SHOTS_FILE:]))
    include = Path(lm_eval.__file__).parent / "tasks" / "gsm8k" / "gsm8k.yaml"
    for task, split in (("from_shots", "train"), ("from_own", "test")):
        (folder / f"{task}.yaml").write_text(TASK.format(include=include, task=task, split=split))
        (folder / f"{task}.py").write_text(LOADER.format(shots=str(folder / "shots.jsonl"),
                                                         asked=str(folder / "asked.jsonl")))
    return folder


def harness(kind, tasks, folder, arguments, **options):
    manager = TaskManager(include_path=str(folder), include_defaults=False)
    result = lm_eval.simple_evaluate(
        model=kind, model_args=arguments, tasks=tasks, task_manager=manager, log_samples=True,
        bootstrap_iters=100,
        **{"apply_chat_template": True, "fewshot_as_multiturn": True, "batch_size": 1, "limit": LIMIT, **options})
    samples = {name: sorted(found, key=lambda s: s["doc_id"]) for name, found in result["samples"].items()}
    return result["results"], samples


HF = {"pretrained": str(CHAT), "dtype": "float32", "device": "cpu"}
OURS = {"pretrained": str(CHAT), "dtype": "float32"}
METRICS = (gsm8k.STRICT, gsm8k.FLEXIBLE)


@pytest.fixture(scope="module")
def by_transformers(data):
    results, samples = harness("hf", ["from_shots", "from_own"], data, HF)
    for task in results.values():  # equal scores of 0 or 1 would show little
        assert 0 < task[gsm8k.FLEXIBLE] < 1
    return results, samples


def responses(samples):
    """One entry a question, whatever filters lm-eval lists it under."""
    return [s["resps"][0][0] for s in samples if s["filter"] == "strict-match"]


@pytest.mark.parametrize("task", ["from_shots", "from_own"])
@pytest.mark.parametrize("way", ["here", "server"])
def test_files_score_as_lm_evals_gsm8k(task, way, data, by_transformers, serve, figure):
    shots = str(data / "shots.jsonl") if task == "from_shots" else None
    config = Config(str(CHAT), [Task(task, {}, str(data / "asked.jsonl"), shots)], FLOAT32, limit=LIMIT)
    url = f"http://127.0.0.1:{serve(CHAT, '--dtype', 'float32').port}" if way == "server" else None
    report = run(config, url=url, progress=False)
    results, samples = by_transformers
    assert [s["response"] for s in report.samples[task]] == responses(samples[task])
    for row in report.rows:
        assert row.value == pytest.approx(results[task][row.metric], abs=1e-12)
        assert row.stderr == pytest.approx(results[task][row.metric.replace(",", "_stderr,")], abs=1e-12)
        figure(f"{task}, {way}, {row.metric}", f"{row.value:.3f}")


@pytest.mark.parametrize("options", [
    {"apply_chat_template": True, "fewshot_as_multiturn": False},
    {"apply_chat_template": False, "fewshot_as_multiturn": False},
    {"apply_chat_template": True, "fewshot_as_multiturn": True, "num_fewshot": 0, "system_instruction": "Be brief."},
])
def test_prompts_are_lm_evals(options, data):
    """The texts that the model "phidelity" is given, and those that a file makes."""
    _, samples = harness("phidelity", ["from_shots"], data, OURS, **options)
    settings = gsm8k.Settings(options.get("num_fewshot", 5), options["apply_chat_template"],
                              options["fewshot_as_multiturn"], LIMIT,
                              system_prompt=options.get("system_instruction"))
    prompts = gsm8k.make_prompts(gsm8k.read_questions(data / "asked.jsonl"), gsm8k.read_questions(data / "shots.jsonl"),
                                 settings)
    given = [s["arguments"][0][0] for s in samples["from_shots"] if s["filter"] == "strict-match"]
    if options["apply_chat_template"]:
        from transformers import AutoTokenizer
        tokenizer = AutoTokenizer.from_pretrained(CHAT)
        prompts = [tokenizer.apply_chat_template(p, tokenize=False, add_generation_prompt=True) for p in prompts]
    assert given == prompts


CASES = ["#### 42", "#### -1,234.5", "####7", "a #### 5 #### 6", "The answer is 12.", "$1,234.", "-3", "3-4", "5.",
         "x", "", "1 2 3", "#### $5", "#### 1.2.3", "10%", "1,2", ".", "..", "$", "$.,", "٣", "a1b22c", "#### ,", "7\n",
         "#### 1e5", "is -.5", "#### \n5", "##### 5", "－5"]


def test_extraction_is_lm_evals():
    from lm_eval.api.metrics import exact_match_hf_evaluate
    from lm_eval.filters.extraction import RegexFilter
    strict = RegexFilter(r"#### (\-?[0-9\.\,]+)")
    flexible = RegexFilter(r"(-?[$0-9.,]{2,})|(-?[0-9]+)", group_select=-1)
    for filter_, ours in ((strict, gsm8k.extract_strict), (flexible, gsm8k.extract_flexible)):
        theirs = [found[0] for found in filter_.apply([[case] for case in CASES], [])]
        assert [ours(case) for case in CASES] == theirs
        for got in theirs:
            for answer in CASES:
                score = exact_match_hf_evaluate([got], [answer], [",", "\\$", "(?s).*#### ", "\\.$"], True)
                assert gsm8k.is_right(got, gsm8k.Question("?", answer)) == bool(score["exact_match"]), (got, answer)


# ---------------------------------------------------------------- the model "phidelity"

@pytest.mark.parametrize("batch_size", ["auto", 7])
def test_model_generates_what_transformers_does(batch_size, data, by_transformers):
    results, samples = harness("phidelity", ["from_shots", "from_own"], data, OURS, batch_size=batch_size)
    want_results, want_samples = by_transformers
    for task in ("from_shots", "from_own"):
        assert responses(samples[task]) == responses(want_samples[task])
        for metric in METRICS:
            assert results[task][metric] == want_results[task][metric]


def test_model_weighs_answers_as_transformers_does(figure):
    options = {"num_fewshot": 0, "limit": 12}
    got, samples = harness("phidelity", ["phi_word_choices"], LOCAL_TASKS, OURS, **options)
    want, want_samples = harness("hf", ["phi_word_choices"], LOCAL_TASKS, HF, **options)
    assert got["phi_word_choices"]["acc,none"] == want["phi_word_choices"]["acc,none"]
    largest = 0.0
    for sample, wanted in zip(samples["phi_word_choices"], want_samples["phi_word_choices"]):
        for (value, greedy), (want_value, want_greedy) in zip(sample["filtered_resps"], wanted["filtered_resps"]):
            largest = max(largest, abs(value - want_value))
            assert greedy == want_greedy
    assert largest < 1e-3
    figure("largest difference of log probabilities", f"{largest:.1e}")


@pytest.fixture(scope="module")
def models():
    """(ours, transformers'), short enough for texts to take several windows."""
    from lm_eval.models.huggingface import HFLM
    ours = PhidelityLM(max_model_len=66, **OURS)
    yield ours, HFLM(**{**HF, "max_length": 64, "batch_size": 1})
    ours.llm.close()


def instances(kind, *arguments):
    from lm_eval.api.instance import Instance
    return [Instance(request_type=kind, doc={}, arguments=a, idx=i) for i, a in enumerate(arguments)]


TEXTS = ["Tom has 3 apples.", "x", " ".join(f"Anna has {n} books and {n + 1} pens." for n in range(1, 20)), "Ümläut €"]


def test_model_rolls_as_transformers_does(models):
    ours, theirs = models
    requests = instances("loglikelihood_rolling", *[(text,) for text in TEXTS])
    got = ours.loglikelihood_rolling(requests, disable_tqdm=True)
    want = theirs.loglikelihood_rolling(requests, disable_tqdm=True)
    assert got == pytest.approx(want, abs=2e-3)


def test_model_takes_contexts_as_transformers_does(models):
    """None, one with a space at its end, and one that is too long and loses its beginning."""
    ours, theirs = models
    long = TEXTS[2]
    assert len(ours.tok_encode(long)) > 80
    requests = instances("loglikelihood", ("", "Tom has"), ("Tom has ", "3 apples."), ("Tom has", " 3"),
                         (long, " End."))
    got = ours.loglikelihood(requests, disable_tqdm=True)
    want = theirs.loglikelihood(requests, disable_tqdm=True)
    for (value, greedy), (want_value, want_greedy) in zip(got[:3], want[:3]):
        assert value == pytest.approx(want_value, abs=1e-3) and greedy == want_greedy
    assert got[3][0] < 0  # ours keeps one token more


def test_model_stops_and_limits(models):
    ours, _ = models
    chat = ours.apply_chat_template([{"role": "user", "content": "Tom has 3 apples and gets 4. How many?"}])
    whole, = ours.generate_until(instances("generate_until", (chat, {"until": [], "max_gen_toks": 24})),
                                 disable_tqdm=True)
    assert " has " in whole
    cut, short = ours.generate_until(
        instances("generate_until", (chat, {"until": " has", "do_sample": False, "temperature": 0.7, "max_gen_toks": 24}),
                  (chat, {"max_gen_toks": 2, "temperature": 0.0})), disable_tqdm=True)
    assert cut == whole.partition(" has")[0]
    assert whole.startswith(short) and len(ours.tok_encode(short)) == 2
    with pytest.raises(ValueError, match="of 256 tokens leave no room for a prompt in the context of 66"):
        ours.generate_until(instances("generate_until", (chat, {})))
    with pytest.raises(ValueError, match="generation_kwargs may have until.*parameter=num_beams"):
        ours.generate_until(instances("generate_until", (chat, {"num_beams": 2})))


def test_model_refuses():
    for arguments, words in (({"max_length": 64, "max_model_len": 64}, "give one"),
                             ({"dtype": "int3"}, "dtype must be one of"), ({"no_such": 1}, "unexpected keyword")):
        with pytest.raises((ValueError, TypeError), match=words):
            PhidelityLM(pretrained=str(CHAT), **arguments)


def test_model_by_the_command_line(tmp_path):
    """python -m phidelity.lm_eval is lm-eval's command that knows it."""
    result = subprocess.run(
        [sys.executable, "-m", "phidelity.lm_eval", "run", "--model", "phidelity", "--model_args",
         f"pretrained={CHAT},dtype=float32,max_model_len=512", "--tasks", "phi_word_choices", "--include_path",
         str(LOCAL_TASKS), "--limit", "8", "--apply_chat_template", "--output_path", str(tmp_path / "out.json")],
        capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(PROGRAM.parent / "python")}, timeout=900)
    assert result.returncode == 0, result.stderr[-3000:]
    found = json.loads(next(tmp_path.glob("out*.json")).read_text())
    assert found["results"]["phi_word_choices"]["acc,none"] == 1.0
    assert found["chat_template"] == json.loads((CHAT / "tokenizer_config.json").read_text())["chat_template"]


# ---------------------------------------------------------------- gates over lm-eval's tasks

def gate(tmp_path, task, metric, value, more=""):
    path = tmp_path / "gate.yaml"
    path.write_text(f"model_name: {CHAT}\nserve: {{dtype: float32}}\ntasks:\n- name: {task}\n  metrics:\n"
                    f"  - name: '{metric}'\n    value: {value}\nlimit: 20\nnum_fewshot: 0\n{more}")
    return str(path)


def command(*arguments):
    """(exit code, what it printed, what it complained)."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([str(a) for a in arguments])
    return code, out.getvalue(), err.getvalue()


@pytest.mark.parametrize("task, metric, value, code", [("phi_word_choices", "acc,none", 1.0, 0),
                                                       ("phi_word_choices", "acc,none", 0.9, 1),
                                                       ("phi_word_problems", "exact_match,none", 0.9, 0)])
def test_gates_over_lm_evals_tasks(task, metric, value, code, tmp_path):
    """It starts the server, runs lm-eval, stops the server."""
    got, out, err = command(gate(tmp_path, task, metric, value), "--include-path", LOCAL_TASKS, "--json",
                            tmp_path / "out.json")
    assert got == code, (out, err[-2000:])
    row, = json.loads((tmp_path / "out.json").read_text())["rows"]
    assert row["n"] == 20 and row["passed"] == (code == 0)
    assert ("MISSED" in out) == (code == 1)


def test_gates_over_a_running_server(serve, tmp_path):
    url = f"http://127.0.0.1:{serve(CHAT, '--dtype', 'float32').port}"
    path = gate(tmp_path, "phi_word_problems", "exact_match,none", 0.9)
    assert command(path, "--include-path", LOCAL_TASKS, "--url", url)[0] == 0
    # Without the checkpoint: by the server's chat template.
    assert command(path, "--include-path", LOCAL_TASKS, "--url", url, "--model", "org/elsewhere")[0] == 0


def test_gates_name_what_is_wrong(tmp_path):
    for task, metric, words in (("phi_word_choice", "acc,none", "knows no task 'phi_word_choice'; near it: phi_word_choices"),
                                ("phi_word_choices", "acc", "has no metric 'acc'; it has 'acc,none'")):
        code, _, err = command(gate(tmp_path, task, metric, 1.0), "--include-path", LOCAL_TASKS)
        assert code == 2 and words in err, err[-2000:]


def test_data_sets_are_not_fetched(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path / "empty"))
    shutil.copy(Path(lm_eval.__file__).parent / "tasks" / "gsm8k" / "gsm8k.yaml", tmp_path / "gsm8k.yaml")
    code, _, err = command(gate(tmp_path, "gsm8k", "exact_match,strict-match", 0.8), "--include-path", tmp_path)
    assert code == 2 and "is not on this machine (--allow-downloads fetches it)" in err, err[-2000:]
