#!/usr/bin/env python3
"""Bad input to an LLM: the right type of error each time, nothing left behind, the engine as good as new.

PYTHONPATH names the built package, PHI_MODELS the bundled models. Prints TAP.
"""
import asyncio
import gc
import os
import re
import sys
import threading
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import tap

from phidelity import LLM, AsyncLLM, EngineClosedError, SamplingParams

CODE, CHAT = (Path(os.environ["PHI_MODELS"]) / name for name in ("phi-tiny-code", "phi3-tiny-chat"))
PROMPT = "def fibonacci(n):"
GREEDY = SamplingParams(temperature=0, max_tokens=4)
REPEATS = 1000
MOST_GROWTH = 4 << 20  # bytes, over all repeats; a leaked request is over a kilobyte


def damaged(**fields):
    """Parameters whose fields were set after the constructor checked them."""
    params = SamplingParams(max_tokens=4)
    for name, value in fields.items():
        setattr(params, name, value)
    return params


# Prompts, parameters, the error's type and a pattern for its text. N: the model's context.
def bad_calls(n):
    return [
        ("an empty list", [], GREEDY, ValueError, "at least one prompt"),
        ("an empty string", "", GREEDY, ValueError, "cannot be empty"),
        ("an empty string in a list", [PROMPT, ""], GREEDY, ValueError, "cannot be empty"),
        ("no ids", [[]], GREEDY, ValueError, "cannot be empty"),
        ("no ids in a dict", {"prompt_token_ids": []}, GREEDY, ValueError, "cannot be empty"),
        ("None", None, GREEDY, TypeError, "NoneType"),
        ("None in a list", [PROMPT, None], GREEDY, TypeError, "NoneType"),
        ("bytes", b"def", GREEDY, TypeError, "bytes"),
        ("a number", 5, GREEDY, TypeError, "int 5"),
        ("floats", [1.0, 2.0], GREEDY, TypeError, "integers"),
        ("a list of floats in a list", [[1.0, 2.0]], GREEDY, TypeError, "integers"),
        ("one float among ids", [[1, 2.0]], GREEDY, TypeError, "integers"),
        ("booleans", [[True]], GREEDY, TypeError, "integers"),
        ("a dict without a known key", {"text": "x"}, GREEDY, TypeError, "'prompt_token_ids'"),
        ("an empty dict", {}, GREEDY, TypeError, "'prompt_token_ids'"),
        ("a dict with a number", {"prompt": 5}, GREEDY, TypeError, "must be a str"),
        ("a set", {1, 2}, GREEDY, TypeError, "set"),
        ("an image", {"prompt": "x", "multi_modal_data": {"image": 1}}, GREEDY, ValueError, "text only"),
        ("an id beyond the vocabulary", [[10**6]], GREEDY, ValueError, "out of vocabulary"),
        ("a negative id", [[-1]], GREEDY, ValueError, "out of vocabulary"),
        ("an id beyond 32 bits", [[2**40]], GREEDY, ValueError, "out of vocabulary"),
        ("a bad one behind good ones", [PROMPT] * 8 + [[10**6]], GREEDY, ValueError, "out of vocabulary"),
        ("too long", [[1] * (n + 1)], GREEDY, ValueError, f"maximum context length is {n}"),
        ("no room for an answer", [[1] * n], GREEDY, ValueError, f"maximum context length is {n}"),
        ("half a character", "\ud800", GREEDY, ValueError, "surrogates"),
        ("too few parameters", [PROMPT] * 2, [GREEDY], ValueError, "must be the same"),
        ("too many parameters", PROMPT, [GREEDY] * 2, ValueError, "must be the same"),
        ("other parameters", PROMPT, {"temperature": 0}, TypeError, "SamplingParams"),
        ("a list of others", PROMPT, [None], TypeError, "SamplingParams"),
        ("too many logprobs", PROMPT, SamplingParams(logprobs=21), ValueError, "max allowed: 20"),
        ("all logprobs", PROMPT, SamplingParams(prompt_logprobs=-1), ValueError, "max allowed: 20"),
        ("a bias beyond the vocabulary", PROMPT, SamplingParams(logit_bias={10**6: 1}), ValueError, "logit_bias"),
        ("a bias beyond 32 bits", PROMPT, SamplingParams(logit_bias={2**40: 1}), ValueError, "logit_bias"),
        ("an allowed id beyond", PROMPT, SamplingParams(allowed_token_ids=[10**6]), ValueError, "allowed_token_ids"),
        ("a spoilt temperature", PROMPT, damaged(temperature=-1.0), ValueError, "temperature"),
        ("a spoilt stop", PROMPT, damaged(stop=[""]), ValueError, "stop"),
        ("a spoilt type", PROMPT, damaged(top_k="x"), TypeError, "top_k"),
    ]


def rss_bytes():
    return int(re.search(r"VmRSS:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024


def n_files():
    return len(os.listdir("/proc/self/fd"))


class Errors(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.llm = LLM(CODE, max_model_len=256)
        cls.calls = bad_calls(256)

    @classmethod
    def tearDownClass(cls):
        cls.llm.close()

    def generate(self, prompts, params=GREEDY, **more):
        return self.llm.generate(prompts, params, use_tqdm=False, **more)

    def present(self):
        values = {m.name: m.value for m in self.llm.get_metrics() if hasattr(m, "value")}
        return [values[name] for name in ("vllm:num_requests_running", "vllm:num_requests_waiting",
                                          "vllm:kv_cache_usage_perc")]

    def test_each(self):
        expected = self.generate(PROMPT)[0].outputs
        for what, prompts, params, error, pattern in self.calls:
            with self.subTest(what):
                self.assertRaisesRegex(error, pattern, self.generate, prompts, params)
                self.assertEqual(self.generate(PROMPT)[0].outputs, expected)
        self.assertEqual(self.present(), [0, 0, 0])

    def test_other_arguments(self):
        for error, more in ((ValueError, {"priority": [1, 2]}), (TypeError, {"priority": ["a"]}),
                            (TypeError, {"priority": 1}), (ValueError, {"priority": [2**63]}),
                            (ValueError, {"lora_request": object()}), (TypeError, {"no_such": 1}),
                            (TypeError, {"tokenization_kwargs": {"no_such": 1}}),
                            (ValueError, {"tokenization_kwargs": {"truncate_prompt_tokens": -2}})):
            with self.subTest(**more):
                self.assertRaises(error, self.generate, PROMPT, **more)

    def test_chat(self):
        template = "{{ raise_exception('no') }}"
        for error, messages in ((ValueError, []), (ValueError, [[]]), (TypeError, "x"), (TypeError, None),
                                (TypeError, ["x"]), (TypeError, [[{"role": "user", "content": "x"}], None]),
                                (ValueError, [{"role": "user", "content": "x"}])):
            with self.subTest(messages=messages):
                self.assertRaises(error, self.llm.chat, messages, GREEDY, use_tqdm=False, chat_template=template)
        good = [{"role": "user", "content": "x"}]
        self.assertRaises(ValueError, self.llm.chat, good, GREEDY, use_tqdm=False, chat_template="{% if %}")
        self.assertRaises(ValueError, self.llm.chat, good, GREEDY, use_tqdm=False,
                          chat_template="{{ messages }}", continue_final_message=True)
        self.assertRaises(TypeError, self.llm.chat, [{"role": "user", "content": {1}}], GREEDY, use_tqdm=False,
                          chat_template="{{ messages }}")

    def test_tokenizer(self):
        tokenizer = self.llm.get_tokenizer()
        self.assertRaises(TypeError, tokenizer.encode, b"x")
        self.assertRaises(TypeError, tokenizer.encode, None)
        self.assertRaises(ValueError, tokenizer.encode, "\udfff")
        self.assertRaises(ValueError, tokenizer.decode, [2**40])
        self.assertRaises(ValueError, tokenizer.decode, 2**40)
        self.assertRaises(ValueError, tokenizer.convert_ids_to_tokens, [2**40])
        self.assertRaises(ValueError, tokenizer.token_bytes, 2**40)
        self.assertRaises(TypeError, tokenizer.decode, ["x"])

    def test_nothing_is_left_of_many(self):
        """1,000 rounds of every bad call, with what ran beside it cancelled."""
        def one_round():
            for _, prompts, params, error, _ in self.calls:
                try:
                    self.generate(prompts, params)
                except error:
                    continue
                self.fail("no error")

        for _ in range(50):
            one_round()
        self.generate(PROMPT)
        gc.collect()
        rss, files = rss_bytes(), n_files()
        for _ in range(REPEATS):
            one_round()
        gc.collect()
        self.assertEqual(self.present(), [0, 0, 0])
        self.assertEqual(n_files(), files)
        self.assertLess(rss_bytes() - rss, MOST_GROWTH)

    def test_nothing_is_left_of_answers(self):
        params = SamplingParams(n=2, max_tokens=4, logprobs=2, prompt_logprobs=1, stop=["zzz"], logit_bias={5: 1.0})
        for _ in range(50):
            self.generate([PROMPT] * 2, params)
        gc.collect()
        rss, files = rss_bytes(), n_files()
        for _ in range(500):
            self.generate([PROMPT] * 2, params)
        gc.collect()
        self.assertEqual((self.present(), n_files()), ([0, 0, 0], files))
        self.assertLess(rss_bytes() - rss, MOST_GROWTH)


class OtherCallers(unittest.TestCase):
    """Nothing is left of 1,000 rounds through chat, LLMEngine and AsyncLLM either."""

    def grows_not(self, one_round, n=REPEATS):
        for _ in range(50):
            one_round()
        gc.collect()
        rss, files = rss_bytes(), n_files()
        for _ in range(n):
            one_round()
        gc.collect()
        self.assertEqual(n_files(), files)
        self.assertLess(rss_bytes() - rss, MOST_GROWTH)

    def test_chat_and_steps(self):
        with LLM(CHAT, max_model_len=256) as llm:
            good, engine = [{"role": "user", "content": "x"}], llm.llm_engine
            wrong = [({}, []), ({}, [[]]), ({"chat_template": "{% if %}"}, good),
                     ({"chat_template": "{{ raise_exception('no') }}"}, good),
                     ({}, [{"role": "user", "content": "word " * 400}]), ({"sampling_params": [GREEDY] * 2}, good)]

            def one_round():
                for more, messages in wrong:
                    more = {"sampling_params": GREEDY, "use_tqdm": False, **more}
                    self.assertRaises(ValueError, llm.chat, messages, **more)
                engine.add_request("good", "Tom has", GREEDY)
                for prompt in ("", [10**6], [1] * 300):
                    self.assertRaises(ValueError, engine.add_request, "bad", prompt, GREEDY)
                while engine.has_unfinished_requests():
                    engine.step()

            self.grows_not(one_round)

    def test_streams(self):
        llm = AsyncLLM(CODE, max_model_len=256)
        loop = asyncio.new_event_loop()

        async def ask(prompt, params):
            return [output async for output in llm.generate(prompt, params)]

        def one_round():
            for prompt, params, error in (("", GREEDY, ValueError), (None, GREEDY, TypeError), ("x", {}, TypeError),
                                          ([10**6], GREEDY, ValueError), ([1] * 300, GREEDY, ValueError)):
                with self.assertRaises(error):
                    loop.run_until_complete(ask(prompt, params))
            loop.run_until_complete(ask(PROMPT, GREEDY))

        self.grows_not(one_round)
        llm.shutdown()
        loop.close()


class Lives(unittest.TestCase):
    def test_closed(self):
        llm = LLM(CODE, max_model_len=256, kv_cache_memory_bytes=1 << 24)
        tokenizer = llm.get_tokenizer()
        with llm:
            llm.generate(PROMPT, GREEDY, use_tqdm=False)
        llm.close()
        for call in (lambda: llm.generate(PROMPT), lambda: llm.chat([{"role": "user", "content": "x"}]),
                     llm.get_metrics, llm.reset_prefix_cache):
            self.assertRaises(EngineClosedError, call)
        self.assertEqual(tokenizer.decode(tokenizer.encode(PROMPT)), PROMPT)

    def test_objects_free_everything(self):
        """Threads, descriptors and memory, whether closed, left to `with`, or just let go of."""
        def make():
            return LLM(CODE, max_model_len=256, kv_cache_memory_bytes=1 << 24)

        def closed():
            llm = make()
            llm.generate(PROMPT, GREEDY, use_tqdm=False)
            llm.close()

        def left():
            with make() as llm:
                llm.generate(PROMPT, GREEDY, use_tqdm=False)

        def let_go():
            make().generate(PROMPT, GREEDY, use_tqdm=False)

        for way in (closed, left, let_go):
            with self.subTest(way=way.__name__):
                for _ in range(3):
                    way()
                gc.collect()
                rss, files, tasks = rss_bytes(), n_files(), len(os.listdir("/proc/self/task"))
                for _ in range(10):
                    way()
                gc.collect()
                self.assertEqual((n_files(), len(os.listdir("/proc/self/task"))), (files, tasks))
                self.assertLess(rss_bytes() - rss, MOST_GROWTH)

    def test_closed_by_another_thread(self):
        llm = LLM(CODE)
        caught = []

        def work():
            try:
                llm.generate([PROMPT] * 200, SamplingParams(max_tokens=None, ignore_eos=True), use_tqdm=False)
            except EngineClosedError as e:
                caught.append(e)

        thread = threading.Thread(target=work)
        thread.start()
        while not [m for m in llm.get_metrics() if m.name == "vllm:num_requests_running" and m.value]:
            pass
        llm.close()
        thread.join(60)
        self.assertEqual(len(caught), 1)

    def test_no_memory(self):
        with self.assertRaises((MemoryError, ValueError)):
            LLM(CODE, kv_cache_memory_bytes=1 << 60)

    def test_not_a_checkpoint(self):
        self.assertRaises(OSError, LLM, "/nowhere")
        self.assertRaises(OSError, LLM, "microsoft/no-such-model")
        for refused in ({"max_model_len": 10**6}, {"block_size": 2**31}, {"block_size": 17}, {"max_num_seqs": 0},
                        {"gpu_memory_utilization": 1.5}):
            with self.subTest(**refused):
                self.assertRaises(ValueError, LLM, CODE, **refused)


if __name__ == "__main__":
    tap.main()
