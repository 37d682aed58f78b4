#!/usr/bin/env python3
"""LLM.beam_search against a plain search that keeps everything and never stops early: over a made-up model, where
ends, ties and lengths of all sorts come about, and over a bundled one.

PYTHONPATH names the built package, PHI_MODELS the bundled models. Prints TAP.
"""
import io
import random
import sys
import unittest
from contextlib import redirect_stderr
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parents[1] / "server")]
import tap
from plain_beam_search import plain_search
from serving import CHAT, CODE

from phidelity import LLM, BeamSearchParams, Logprob, SamplingParams, TokensPrompt
from phidelity.beam_search import Beams, search
from phidelity.inputs import TokenizedPrompt
from phidelity.progress import NoBar

PROMPTS = ["def fibonacci(n):", "import os", "class Stack:\n    def push(self, item):"]
MODEL_LEN = 40  # of the made-up model


def found(output):
    return [(s.tokens, s.cum_logprob) for s in output.sequences]


class MadeUpModel:
    """Logprobs of a small vocabulary by the sequence so far; coarse, so that sums are often equal."""

    def __init__(self, seed, n_vocab=9, coarse=True):
        self.seed, self.n_vocab, self.coarse = seed, n_vocab, coarse
        self.n_asked = 0

    def row(self, ids, n):
        self.n_asked += 1
        rng = random.Random(f"{self.seed} {ids}")
        logprobs = [-rng.randint(1, 12) / 4 if self.coarse else -rng.expovariate(0.7) for _ in range(self.n_vocab)]
        best = sorted(range(self.n_vocab), key=lambda i: (-logprobs[i], i))[:n]
        return {token: Logprob(logprobs[token], rank) for rank, token in enumerate(best, 1)}


class AgainstThePlainSearch(unittest.TestCase):
    def test_made_up_models(self):
        n_early = n_stopped = 0
        for seed in range(400):
            rng = random.Random(seed)
            params = BeamSearchParams(rng.randint(1, 5), rng.randint(1, 12), ignore_eos=rng.random() < 0.2,
                                      length_penalty=rng.choice([1.0, 0.0, 0.5, 2.0, -1.0]))
            ends = set(rng.sample(range(9), rng.randint(0, 3)))
            prompts = [[rng.randrange(9) for _ in range(rng.choice([1, 2, 30, MODEL_LEN - 1]))] for _ in range(3)]
            model, plain_model = (MadeUpModel(seed, coarse=seed % 2 == 0) for _ in range(2))
            width = 2 * params.beam_width
            searches = [Beams(TokenizedPrompt(None, ids), params, ends, MODEL_LEN) for ids in prompts]
            outputs = search(searches, lambda asked: [model.row(p.ids, width) for p in asked], NoBar())
            for ids, output in zip(prompts, outputs):
                want = plain_search(ids, params, ends, MODEL_LEN, lambda asked: [plain_model.row(i, width) for i in asked])
                with self.subTest(seed, params=params, ids=ids):
                    self.assertEqual(found(output), want)
                    for s in output.sequences:
                        stopped = s.tokens[-1] in ends and not params.ignore_eos
                        n_stopped += stopped
                        self.assertEqual((s.finish_reason, s.stop_reason),
                                         ("stop", s.tokens[-1]) if stopped else ("length", None))
                        self.assertEqual(len(s.logprobs), len(s.tokens) - len(ids))
            n_early += model.n_asked < plain_model.n_asked
        self.assertGreater(n_early, 20)  # both ways are taken
        self.assertGreater(n_stopped, 100)

    def test_bundled_model(self):
        with LLM(CODE, dtype="float32") as llm:
            ids = [llm.get_tokenizer().encode(p) for p in PROMPTS]
            for params in (BeamSearchParams(4, 12), BeamSearchParams(3, 9, ignore_eos=True, length_penalty=0.6),
                           BeamSearchParams(10, 3)):
                sampling = SamplingParams(temperature=0, max_tokens=1, logprobs=2 * params.beam_width)

                def step(asked):
                    outputs = llm.generate(asked, sampling, use_tqdm=False)
                    return [o.outputs[0].logprobs[0] for o in outputs]

                got = llm.beam_search(PROMPTS, params)
                for output, prompt in zip(got, ids):
                    want = plain_search(prompt, params, {llm.get_tokenizer().eos_token_id}, llm.max_model_len, step)
                    self.assertEqual(found(output), want)


class OnTheBundledModels(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.llm = LLM(CODE, dtype="float32", max_model_len=64)

    @classmethod
    def tearDownClass(cls):
        cls.llm.close()

    def test_one_beam_is_greedy(self):
        greedy = self.llm.generate(PROMPTS, SamplingParams(temperature=0, max_tokens=16, logprobs=1), use_tqdm=False)
        for output, want in zip(self.llm.beam_search(PROMPTS, BeamSearchParams(1, 16)), greedy):
            sequence, = output.sequences
            self.assertEqual(sequence.tokens, want.prompt_token_ids + want.outputs[0].token_ids)
            self.assertAlmostEqual(sequence.cum_logprob, want.outputs[0].cumulative_logprob, places=5)
            self.assertEqual(sequence.text, self.llm.get_tokenizer().decode(sequence.tokens))

    def test_forms_of_prompts(self):
        params = BeamSearchParams(2, 4)
        tokenizer = self.llm.get_tokenizer()
        want = [found(o) for o in self.llm.beam_search(PROMPTS, params)]
        for prompts in ([{"prompt": p} for p in PROMPTS], [tokenizer.encode(p) for p in PROMPTS],
                        [TokensPrompt(prompt_token_ids=tokenizer.encode(p), cache_salt="s") for p in PROMPTS]):
            self.assertEqual([found(o) for o in self.llm.beam_search(prompts, params)], want)
        self.assertEqual([found(o) for o in self.llm.beam_search(PROMPTS[1], params)], want[1:2])
        self.assertEqual([found(o) for o in self.llm.beam_search(PROMPTS, params, concurrency_limit=2)], want)
        sequence = self.llm.beam_search(PROMPTS[1], params)[0].sequences[0]
        self.assertEqual(sequence.orig_prompt, {"prompt": PROMPTS[1], "prompt_token_ids": tokenizer.encode(PROMPTS[1])})

    def test_the_best_is_no_worse_than_greedy(self):
        greedy = self.llm.generate(PROMPTS, SamplingParams(temperature=0, max_tokens=8, logprobs=0, ignore_eos=True),
                                   use_tqdm=False)
        for output, want in zip(self.llm.beam_search(PROMPTS, BeamSearchParams(4, 8, ignore_eos=True)), greedy):
            sums = [s.cum_logprob for s in output.sequences]
            self.assertEqual(sums, sorted(sums, reverse=True))
            self.assertGreaterEqual(sums[0], want.outputs[0].cumulative_logprob - 1e-5)

    def test_the_end_of_the_context(self):
        ids = self.llm.get_tokenizer().encode(PROMPTS[0]) * 20
        sequences = self.llm.beam_search([ids[:60]], BeamSearchParams(3, 100, ignore_eos=True))[0].sequences
        self.assertEqual([len(s.tokens) for s in sequences], [64] * 3)
        with self.assertRaisesRegex(ValueError, "maximum context length|64"):
            self.llm.beam_search([ids[:64]], BeamSearchParams(3, 100))

    def test_all_of_the_checkpoints_ends(self):
        """A chat model's turn ends with another token than its text."""
        with LLM(CHAT, dtype="float32") as llm:
            chat = [{"role": "user", "content": "What is 2 plus 3?"}]
            prompt = llm.get_tokenizer().apply_chat_template(chat, add_generation_prompt=True)
            best = llm.beam_search([prompt], BeamSearchParams(3, 40))[0].sequences[0]
            greedy = llm.chat(chat, SamplingParams(temperature=0, max_tokens=40), use_tqdm=False)[0].outputs[0]
            self.assertEqual((best.finish_reason, best.tokens[-1]), ("stop", greedy.token_ids[-1]))

    def test_bar(self):
        err = io.StringIO()
        with redirect_stderr(err):
            self.llm.beam_search(PROMPTS, BeamSearchParams(2, 2), use_tqdm=True)
            self.llm.beam_search(PROMPTS, BeamSearchParams(2, 2))
        self.assertIn("3/3", err.getvalue())
        self.assertEqual(err.getvalue().count("\n"), 1)

    def test_refusals(self):
        params = BeamSearchParams(2, 2)
        for error, words, arguments in (
                (TypeError, "params must be BeamSearchParams, got SamplingParams", (PROMPTS, SamplingParams())),
                (ValueError, "beam_width of 11 needs LLM.*max_logprobs=22", (PROMPTS, BeamSearchParams(11, 2))),
                (ValueError, "at least one prompt", ([], params)), (TypeError, "a prompt must be", (None, params)),
                (ValueError, "concurrency_limit must be", (PROMPTS, params, None, False, 0)),
                (ValueError, "[Ll]o[Rr]", (PROMPTS, params, object()))):
            with self.subTest(words), self.assertRaisesRegex(error, words):
                self.llm.beam_search(*arguments)
        for error, arguments in ((TypeError, {"beam_width": 1.5}), (ValueError, {"beam_width": 0}),
                                 (ValueError, {"max_tokens": 0}), (ValueError, {"temperature": -1}),
                                 (ValueError, {"length_penalty": float("inf")}), (TypeError, {"length_penalty": "1"}),
                                 (ValueError, {"structured_outputs": {"choice": ["a"]}})):
            with self.subTest(arguments), self.assertRaises(error):
                BeamSearchParams(**{"beam_width": 2, "max_tokens": 2, **arguments})


if __name__ == "__main__":
    tap.main()
