"""The lm-eval harness, unchanged, against the server: the same answers and scores as its own transformers model."""
import os

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # everything is here
os.environ.setdefault("HF_DATASETS_OFFLINE", "1")

import lm_eval  # noqa: E402
from conftest import ROOT  # noqa: E402
from lm_eval.tasks import TaskManager  # noqa: E402

CHAT = ROOT / "models" / "phi3-tiny-chat"
N_QUESTIONS = 40


@pytest.fixture(scope="module")
def manager():
    return TaskManager(include_path=str(ROOT / "tests" / "oracle" / "tasks"), include_defaults=False)


@pytest.fixture(scope="module")
def evaluate(manager):
    def run(kind, task, **arguments):
        result = lm_eval.simple_evaluate(
            model=kind, model_args=",".join(f"{k}={v}" for k, v in arguments.items()), tasks=[task],
            task_manager=manager, limit=N_QUESTIONS, apply_chat_template=True, log_samples=True, bootstrap_iters=0)
        samples = sorted(result["samples"][task], key=lambda s: s["doc_id"])
        assert len(samples) == N_QUESTIONS
        return result["results"][task], samples
    return run


@pytest.fixture(scope="module")
def by_transformers(evaluate):
    return {task: evaluate("hf", task, pretrained=CHAT, dtype="float32", device="cpu", batch_size=1)
            for task in ("phi_word_problems", "phi_word_choices")}


@pytest.fixture(scope="module")
def server(serve):
    return serve(CHAT, "--dtype", "float32")


@pytest.mark.parametrize("kind, path", [("local-completions", "/v1/completions"),
                                        ("local-chat-completions", "/v1/chat/completions")])
def test_generated_answers(kind, path, server, evaluate, by_transformers, figure):
    scores, samples = evaluate(kind, "phi_word_problems", model=CHAT, num_concurrent=4,
                               base_url=f"http://127.0.0.1:{server.port}{path}")
    want_scores, want_samples = by_transformers["phi_word_problems"]
    assert [s["resps"] for s in samples] == [s["resps"] for s in want_samples]
    assert scores["exact_match,none"] == want_scores["exact_match,none"]
    figure(f"{kind}, {N_QUESTIONS} questions", f"exact match {scores['exact_match,none']:.3f}")


def test_likeliest_answers(server, evaluate, by_transformers, figure):
    scores, samples = evaluate("local-completions", "phi_word_choices", model=CHAT, num_concurrent=4, batch_size=2,
                               base_url=f"http://127.0.0.1:{server.port}/v1/completions")
    want_scores, want_samples = by_transformers["phi_word_choices"]
    for sample, want in zip(samples, want_samples):
        for (value, greedy), (want_value, want_greedy) in zip(sample["filtered_resps"], want["filtered_resps"]):
            assert abs(value - want_value) < 1e-3 and greedy == want_greedy, (sample, want)
    assert scores["acc,none"] == want_scores["acc,none"]
    figure(f"multiple choice, {N_QUESTIONS} questions", f"accuracy {scores['acc,none']:.3f}")
