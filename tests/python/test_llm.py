#!/usr/bin/env python3
"""LLM.generate and LLM.chat: a script for vLLM runs, and its answers are the program's and the
server's; forms of prompts, order, lists of parameters, threads, what else an LLM can do.

PYTHONPATH names the built package, PHIDELITY the program, PHI_MODELS the bundled models. Prints TAP.
"""
import io
import json
import pickle
import re
import struct
import subprocess
import sys
import textwrap
import threading
import time
import unittest
import warnings
from contextlib import redirect_stderr
from pathlib import Path
from unittest import mock

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "server")]
import serving
import tap
from serving import CHAT, CODE

import phidelity
from phidelity import LLM, EngineArgs, LLMEngine, RequestOutputKind, SamplingParams, TextPrompt, TokensPrompt

PROMPTS = ["def fibonacci(n):", "def is_prime(n):", "class Stack:\n    def push(self, item):"]
GREEDY = SamplingParams(temperature=0, max_tokens=24)


def quiet(llm, prompts, params=GREEDY, **more):
    return llm.generate(prompts, params, use_tqdm=False, **more)


def float32(x):
    """The server writes as many digits as a float32 needs."""
    return struct.unpack("f", struct.pack("f", x))[0]


def texts(outputs):
    return [o.outputs[0].text for o in outputs]


def threading_tasks():
    return len(list(Path("/proc/self/task").iterdir()))


class VllmScript(unittest.TestCase):
    """vllm_script.py against `phidelity generate` and `phidelity serve`."""

    @classmethod
    def setUpClass(cls):
        result = subprocess.run([sys.executable, HERE / "vllm_script.py", CODE, CHAT], capture_output=True,
                                timeout=300)
        cls.error = result.stderr.decode()
        if result.returncode:
            raise AssertionError(cls.error)
        cls.seen = json.loads(result.stdout)
        cls.code = serving.Server(CODE, "--max-model-len", 1024)
        cls.chat = serving.Server(CHAT)

    @classmethod
    def tearDownClass(cls):
        cls.code.close()
        cls.chat.close()

    def answers(self, name):
        return [o["answers"][0] for o in self.seen[name]]

    def test_greedy_is_the_programs(self):
        for told, prompt in zip(self.seen["greedy"], PROMPTS):
            expected = serving.generate(CODE, prompt, "--max-tokens", 48)
            self.assertEqual(told["prompt"], prompt)
            self.assertEqual(told["answers"][0]["token_ids"], expected["token_ids"])
            self.assertEqual(told["answers"][0]["text"], expected["text"])

    def test_greedy_is_the_servers(self):
        for told, prompt in zip(self.seen["greedy"], PROMPTS):
            body = self.code.complete(prompt, temperature=0, max_tokens=48, return_token_ids=True)
            choice = body["choices"][0]
            self.assertEqual(told["answers"][0]["token_ids"], choice["token_ids"])
            self.assertEqual(told["prompt_token_ids"], choice["prompt_token_ids"])
            self.assertEqual(told["answers"][0]["finish_reason"], choice["finish_reason"])

    def test_ids_answer_as_texts_do(self):
        self.assertEqual(self.answers("ids"), self.answers("greedy"))
        self.assertEqual([o["prompt"] for o in self.seen["ids"]], [None] * 3)

    def test_seeds(self):
        self.assertEqual(self.seen["seeded"], self.seen["again"])
        answers = self.seen["seeded"][0]["answers"]
        self.assertGreater(len({a["text"] for a in answers}), 1)
        body = self.code.complete(PROMPTS[0], n=3, temperature=0.8, top_p=0.95, top_k=40, seed=1234, max_tokens=24)
        self.assertEqual([a["text"] for a in answers], [c["text"] for c in body["choices"]])

    def test_stops(self):
        by_string, by_token, by_length = self.answers("stopped")
        self.assertEqual((by_string["finish_reason"], by_string["stop_reason"]), ("stop", "return"))
        self.assertNotIn("return", by_string["text"])
        self.assertTrue(self.answers("greedy")[0]["text"].startswith(by_string["text"]))
        self.assertEqual((by_token["finish_reason"], by_token["stop_reason"]), ("stop", by_token["token_ids"][-1]))
        self.assertEqual((by_length["finish_reason"], len(by_length["token_ids"])), ("length", 3))

    def test_logprobs_are_the_servers(self):
        body = self.code.complete(PROMPTS[0], temperature=0, max_tokens=8, logprobs=5, prompt_logprobs=2)
        choice = body["choices"][0]
        for at, token, logprob, top in zip(self.seen["logprobs"], self.answers("scored")[0]["token_ids"],
                                           choice["logprobs"]["token_logprobs"], choice["logprobs"]["top_logprobs"]):
            self.assertEqual(next(iter(at)), str(token))
            self.assertEqual(at[str(token)][0], float32(logprob))
            self.assertEqual({text: p for p, _, text in at.values()}, {t: float32(p) for t, p in top.items()})
            self.assertEqual([rank for _, rank, _ in at.values()], [1, 2, 3, 4, 5])
        self.assertEqual(self.seen["cumulative_logprob"],
                         sum(next(iter(at.values()))[0] for at in self.seen["logprobs"]))
        self.assertEqual(
            self.seen["prompt_logprobs"],
            [at and {token: [float32(p["logprob"]), p["rank"], p["decoded_token"]] for token, p in at.items()}
             for at in choice["prompt_logprobs"]])

    def test_chat_is_the_servers(self):
        questions = ["Tom has 12 marbles and loses 5. How many marbles does Tom have?",
                     *(f"What is {a} plus {a + 1}?" for a in range(1, 5))]
        for told, question in zip(self.seen["chats"], questions):
            body = self.chat.chat(question, temperature=0, max_tokens=32, return_token_ids=True)
            self.assertEqual(told["answers"][0]["text"], body["choices"][0]["message"]["content"])
            self.assertEqual(told["answers"][0]["token_ids"], body["choices"][0]["token_ids"])
            self.assertEqual(told["prompt_token_ids"], body["prompt_token_ids"])
        self.assertEqual(self.seen["chat"], self.seen["chats"][:1])
        self.assertIn("7", self.answers("chat")[0]["text"])

    def test_warns_once_of_arguments_without_effect(self):
        self.assertEqual(self.error.count("trust_remote_code, enforce_eager"), 1, self.error)

    def test_bar(self):
        self.assertRegex(self.error, r"Processed prompts: 100%\|[█#]+\| 3/3 \[.*est\. speed input: [\d.]+ toks/s, "
                                     r"output: [\d.]+ toks/s\]")


class Documents(unittest.TestCase):
    """The scripts in docs/PYTHON.md run as they stand."""

    def test_scripts(self):
        text = (serving.ROOT / "docs" / "PYTHON.md").read_text()
        blocks = re.findall(r"(?:^ {4}.*\n|^\n)+", text, flags=re.MULTILINE)
        scripts = [textwrap.dedent(block) for block in blocks if "import " in block]
        self.assertEqual(len(scripts), 2)
        for script, shown in zip(scripts, (r"5", r"\n +if n < 2:\n +return")):
            result = subprocess.run([sys.executable, "-c", script], cwd=serving.ROOT, capture_output=True, text=True)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertRegex(result.stdout, shown)


class Llm(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.llm = LLM(CODE, disable_log_stats=False)
        cls.expected = texts(quiet(cls.llm, PROMPTS))

    @classmethod
    def tearDownClass(cls):
        cls.llm.close()

    def test_every_form_of_prompt(self):
        ids = self.llm.get_tokenizer().encode(PROMPTS[0])
        for prompt in (PROMPTS[0], ids, tuple(ids), {"prompt": PROMPTS[0]}, {"prompt_token_ids": ids},
                       TextPrompt(prompt=PROMPTS[0]), TokensPrompt(prompt_token_ids=ids, prompt=PROMPTS[0]),
                       {"prompt": PROMPTS[0], "cache_salt": "mine"}):
            for form in (prompt, [prompt]):
                outputs = quiet(self.llm, form)
                self.assertEqual(texts(outputs), self.expected[:1])
                self.assertEqual(outputs[0].prompt_token_ids, list(ids))
        mixed = quiet(self.llm, [PROMPTS[0], ids, {"prompt": PROMPTS[1]}])
        self.assertEqual(texts(mixed), [self.expected[0], self.expected[0], self.expected[1]])

    def test_order_and_parameters_of_each(self):
        prompts = [PROMPTS[i % 3] for i in range(60)]
        params = [SamplingParams(temperature=0, max_tokens=1 + (7 * i) % 24) for i in range(60)]
        outputs = quiet(self.llm, prompts, params)
        for prompt, p, output in zip(prompts, params, outputs):
            self.assertEqual(output.prompt, prompt)
            self.assertEqual(len(output.outputs[0].token_ids), p.max_tokens)
            self.assertTrue(self.expected[PROMPTS.index(prompt)].startswith(output.outputs[0].text))
        numbers = [int(o.request_id) for o in outputs]
        self.assertEqual(numbers, list(range(numbers[0], numbers[0] + 60)))

    def test_priority(self):
        with LLM(CODE, max_num_seqs=1, scheduling_policy="priority", disable_log_stats=False) as llm:
            # The first goes first, whoever is there by then, and keeps the engine busy until all are.
            long = SamplingParams(temperature=0, max_tokens=1000, ignore_eos=True)
            outputs = quiet(llm, [PROMPTS[0]] * 4, [long] + [GREEDY] * 3, priority=[0, 3, 2, 1])
            self.assertEqual(texts(outputs[1:]), [self.expected[0]] * 3)
            starts = [o.metrics.scheduled_ts for o in outputs]
            self.assertLess(starts[3], starts[2])
            self.assertLess(starts[2], starts[1])

    def test_several_answers_have_their_indices(self):
        output = quiet(self.llm, PROMPTS[0], SamplingParams(n=8, seed=5, max_tokens=8))[0]
        self.assertEqual([o.index for o in output.outputs], list(range(8)))
        self.assertGreater(len({o.text for o in output.outputs}), 1)
        self.assertTrue(output.finished and all(o.finished() for o in output.outputs))

    def test_answers_do_not_depend_on_company(self):
        """Nor on threads: each gets what it gets alone."""
        found = [None] * 6

        def work(i):
            found[i] = texts(quiet(self.llm, PROMPTS))

        threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(found, [self.expected] * 6)

    def test_the_interpreter_goes_on(self):
        """While the engine works another thread of Python does."""
        done, n = threading.Event(), 0
        thread = threading.Thread(target=lambda: (quiet(self.llm, [PROMPTS[0]] * 64), done.set()))
        thread.start()
        while not done.wait(0.001):
            n += 1
        thread.join()
        self.assertGreater(n, 20)

    def test_text_and_context_end(self):
        n = self.llm.max_model_len
        ids = self.llm.get_tokenizer().encode(PROMPTS[0])
        long = (ids * n)[:n - 2]
        output = quiet(self.llm, [long], SamplingParams(temperature=0, max_tokens=50, ignore_eos=True))[0]
        self.assertEqual((len(output.outputs[0].token_ids), output.outputs[0].finish_reason), (2, "length"))
        output = quiet(self.llm, PROMPTS[0], SamplingParams(temperature=0, max_tokens=8, detokenize=False))[0]
        self.assertEqual((output.outputs[0].text, len(output.outputs[0].token_ids)), ("", 8))

    def test_logprobs_of_characters_in_pieces(self):
        prompt = "# é 日本語 🦉 naïve\n"
        output = quiet(self.llm, prompt, SamplingParams(max_tokens=1, prompt_logprobs=0))[0]
        tokenizer = self.llm.get_tokenizer()
        first = tokenizer.decode(output.prompt_token_ids[:1])
        shown = [at[token].decoded_token for at, token in zip(output.prompt_logprobs[1:], output.prompt_token_ids[1:])]
        self.assertEqual(first + "".join(shown), prompt)

    def test_logit_bias_and_allowed_ids(self):
        params = SamplingParams(temperature=0, max_tokens=4, allowed_token_ids=[5, 6])
        self.assertLessEqual(set(quiet(self.llm, PROMPTS[0], params)[0].outputs[0].token_ids), {5, 6})
        params = SamplingParams(temperature=0, max_tokens=4, logit_bias={7: 100})
        self.assertEqual(quiet(self.llm, PROMPTS[0], params)[0].outputs[0].token_ids, [7] * 4)
        with_word = self.expected[0]
        self.assertIn("return", texts(quiet(self.llm, PROMPTS[0], SamplingParams(temperature=0, max_tokens=64)))[0])
        without = texts(quiet(self.llm, PROMPTS[0], SamplingParams(temperature=0, max_tokens=64, bad_words=["return"])))
        self.assertNotIn(" return", without[0])
        self.assertTrue(with_word)

    def test_prefix_cache_and_its_reset(self):
        with LLM(CODE, block_size=16) as llm:
            prompt = [PROMPTS[2] * 8]
            cached = lambda **more: quiet(llm, prompt, SamplingParams(temperature=0, max_tokens=2, **more))[0]
            first, second = cached(), cached()
            self.assertEqual((first.num_cached_tokens, second.num_cached_tokens > 0), (0, True))
            self.assertEqual(cached(skip_reading_prefix_cache=True).num_cached_tokens, 0)
            self.assertTrue(llm.reset_prefix_cache())
            third, fourth = cached(), cached()
            self.assertEqual((third.num_cached_tokens, fourth.num_cached_tokens), (0, second.num_cached_tokens))
            self.assertEqual(quiet(llm, {"prompt": prompt[0], "cache_salt": "a"})[0].num_cached_tokens, 0)
            self.assertEqual(third.outputs[0], fourth.outputs[0])

    def test_metrics(self):
        with LLM(CODE, served_model_name="code") as llm:
            quiet(llm, PROMPTS)
            metrics = {m.name: m for m in llm.get_metrics()}
            self.assertEqual(metrics["vllm:generation_tokens"].value, 72)
            self.assertEqual(metrics["vllm:num_requests_running"].value, 0)
            self.assertEqual(metrics["vllm:num_requests_running"].labels, {"model_name": "code", "engine": "0"})
            steps = metrics["vllm:iteration_tokens_total"]
            self.assertEqual(steps.buckets["+Inf"], steps.count)
            self.assertEqual(steps.count, metrics["phidelity_engine_steps"].value)
        output = quiet(self.llm, PROMPTS[0])[0]
        self.assertEqual(output.metrics.num_generation_tokens, 24)
        self.assertLess(abs(time.monotonic() - output.metrics.last_token_ts), 60)
        self.assertLess(abs(time.time() - output.metrics.arrival_time), 60)
        self.assertLessEqual(output.metrics.queued_ts, output.metrics.scheduled_ts)
        self.assertLessEqual(output.metrics.scheduled_ts, output.metrics.first_token_ts)
        self.assertLessEqual(output.metrics.first_token_ts, output.metrics.last_token_ts)

    def test_values_can_be_kept(self):
        outputs = quiet(self.llm, PROMPTS, SamplingParams(temperature=0, max_tokens=4, logprobs=1))
        self.assertEqual(pickle.loads(pickle.dumps(outputs)), outputs)
        self.assertIn("CompletionOutput(index=0, text=", repr(outputs[0]))

    def test_facts(self):
        config = self.llm.model_config
        self.assertEqual((config.model, config.dtype, config.quantization), (str(CODE), "bfloat16", None))
        self.assertEqual(config.max_model_len, self.llm.max_model_len)
        self.assertEqual(config.get_vocab_size(), json.loads((CODE / "config.json").read_text())["vocab_size"])
        self.assertEqual(config.hf_config.architectures, ["PhiForCausalLM"])
        self.assertIs(self.llm.llm_engine.model_config, config)
        self.assertIs(self.llm.llm_engine.tokenizer, self.llm.get_tokenizer())
        self.assertEqual(repr(self.llm), f"LLM(model={str(CODE)!r})")
        with LLM.from_engine_args(EngineArgs(CODE, max_model_len=512)) as llm:
            self.assertEqual(llm.model_config.max_model_len, 512)

    def test_lists_without_adapters(self):
        self.assertEqual(texts(quiet(self.llm, PROMPTS, lora_request=[None] * 3)), self.expected)

    def test_bars(self):
        for hidden in (False, True):
            error = io.StringIO()
            with redirect_stderr(error), mock.patch.dict(sys.modules, {"tqdm": None} if hidden else {}):
                self.llm.generate(PROMPTS, GREEDY)
            self.assertRegex(error.getvalue(), r"Processed prompts: 100%\|[█#]{2,}\| 3/3 \[00:\d\d<00:00, [\d.]+it/s, "
                                               r"est\. speed input: [\d.]+ toks/s, output: [\d.]+ toks/s\]\s*$")
        bar = mock.MagicMock()
        self.llm.generate(PROMPTS, GREEDY, use_tqdm=bar)
        self.assertEqual(bar.call_args[1]["total"], 3)
        self.assertEqual(bar.return_value.update.call_count, 3)
        bar = mock.MagicMock()
        self.llm.generate(PROMPTS, SamplingParams(n=4, max_tokens=2), use_tqdm=bar)
        self.assertEqual((bar.call_args[1]["total"], bar.return_value.update.call_args[0]), (12, (4,)))

    def test_quantised(self):
        with LLM(CODE, quantization="w8a8") as llm:
            program = serving.generate(CODE, PROMPTS[0], "--max-tokens", 24, "--quantization", "w8a8")
            self.assertEqual(quiet(llm, PROMPTS[0])[0].outputs[0].token_ids, program["token_ids"])

    def test_default_parameters(self):
        chosen = json.loads((CODE / "generation_config.json").read_text())
        params = self.llm.get_default_sampling_params()
        self.assertEqual(params.temperature, chosen.get("temperature", 1.0))
        params.temperature = 0.5
        self.assertNotEqual(self.llm.get_default_sampling_params().temperature, 0.5)
        with LLM(CODE, override_generation_config={"temperature": 0.0, "max_new_tokens": 3}) as llm:
            self.assertEqual(len(llm.generate(PROMPTS[0], use_tqdm=False)[0].outputs[0].token_ids), 3)

    def test_truncated_prompts(self):
        ids = self.llm.get_tokenizer().encode(PROMPTS[2])
        output = quiet(self.llm, PROMPTS[2], tokenization_kwargs={"truncate_prompt_tokens": 3})[0]
        self.assertIn(output.prompt_token_ids, (ids[:3], ids[-3:]))

    def test_what_a_text_model_has_not(self):
        for refused in (self.llm.encode, self.llm.embed, self.llm.classify, self.llm.score, self.llm.reward):
            self.assertRaisesRegex(ValueError, "pooling", refused, PROMPTS)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            self.llm.sleep()
        self.assertEqual(len(caught), 1)


class Steps(unittest.TestCase):
    """LLMEngine, and the one that an LLM has."""

    @classmethod
    def setUpClass(cls):
        cls.llm = LLM(CODE)
        cls.engine = cls.llm.llm_engine
        cls.expected = texts(quiet(cls.llm, PROMPTS))

    @classmethod
    def tearDownClass(cls):
        cls.llm.close()

    def outputs(self):
        """{request_id: outputs} of all that is unfinished."""
        found = {}
        while self.engine.has_unfinished_requests():
            for output in self.engine.step():
                found.setdefault(output.request_id, []).append(output)
        self.assertEqual((self.engine.step(), self.engine.get_num_unfinished_requests()), ([], 0))
        return found

    def test_steps(self):
        for number, prompt in enumerate(PROMPTS):
            self.assertEqual(self.engine.add_request(str(number), prompt, GREEDY), str(number))
        for number, outputs in self.outputs().items():
            self.assertGreater(len(outputs), 1)
            self.assertEqual([o.finished for o in outputs], [False] * (len(outputs) - 1) + [True])
            answers = [o.outputs[0].text for o in outputs]
            self.assertEqual(answers[-1], self.expected[int(number)])
            self.assertTrue(all(b.startswith(a) for a, b in zip(answers, answers[1:])))

    def test_kinds(self):
        for kind in (RequestOutputKind.DELTA, RequestOutputKind.FINAL_ONLY):
            self.engine.add_request("x", PROMPTS[0], SamplingParams(temperature=0, max_tokens=24, output_kind=kind))
            outputs = self.outputs()["x"]
            self.assertEqual("".join(o.outputs[0].text for o in outputs), self.expected[0])
            self.assertEqual(len(outputs) == 1, kind == RequestOutputKind.FINAL_ONLY)

    def test_abort_beside_others(self):
        long = SamplingParams(max_tokens=None, ignore_eos=True, seed=1)
        self.engine.add_request("long", PROMPTS[0], long)
        self.engine.step()
        self.assertEqual(texts(quiet(self.llm, PROMPTS)), self.expected)
        self.engine.abort_request(["long", "nobody's"])
        self.assertEqual(self.outputs()["long"][-1].outputs[0].finish_reason, "abort")

    def test_bad_requests(self):
        self.engine.add_request("a", PROMPTS[0], GREEDY)
        for error, arguments in ((ValueError, ("a", PROMPTS[0], GREEDY)), (TypeError, (1, PROMPTS[0], GREEDY)),
                                 (TypeError, ("b", None, GREEDY)), (ValueError, ("b", [], GREEDY)),
                                 (ValueError, ("b", [10**6], GREEDY)), (TypeError, ("b", PROMPTS[0], {}))):
            with self.subTest(arguments=arguments):
                self.assertRaises(error, self.engine.add_request, *arguments)
        self.assertEqual(self.outputs()["a"][-1].outputs[0].text, self.expected[0])

    def test_of_its_own(self):
        n_threads = threading_tasks()
        engine = LLMEngine.from_engine_args(EngineArgs(CODE, kv_cache_memory_bytes=1 << 26))
        engine.add_request("a", PROMPTS[0], SamplingParams(max_tokens=None, ignore_eos=True))
        engine.step()
        del engine
        self.assertEqual(threading_tasks(), n_threads)
        engine = LLMEngine(CODE, kv_cache_memory_bytes=1 << 26)
        engine.add_request("a", PROMPTS[0], GREEDY)
        engine.close()
        self.assertRaises(phidelity.EngineClosedError, engine.step)
        self.assertRaises(phidelity.EngineClosedError, engine.add_request, "b", PROMPTS[0], GREEDY)


class Chat(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.llm = LLM(CHAT)
        cls.tokenizer = cls.llm.get_tokenizer()

    @classmethod
    def tearDownClass(cls):
        cls.llm.close()

    def ask(self, messages, **more):
        return self.llm.chat(messages, GREEDY, use_tqdm=False, **more)[0]

    def test_template(self):
        messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is 2 plus 3?"}]
        rendered = self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        output = self.ask(messages)
        self.assertEqual(output.prompt, rendered)
        self.assertEqual(output.prompt_token_ids, self.tokenizer.apply_chat_template(messages,
                                                                                     add_generation_prompt=True))
        program = serving.run("template", CHAT, "-f", "-", stdin=json.dumps(messages).encode())
        self.assertEqual(program, rendered)

    def test_options(self):
        question = [{"role": "user", "content": "What is 2 plus 3?"}]
        self.assertFalse(self.ask(question, add_generation_prompt=False).prompt.endswith("<|assistant|>"))
        begun = [*question, {"role": "assistant", "content": "The sum is"}]
        output = self.ask(begun, add_generation_prompt=False, continue_final_message=True)
        self.assertTrue(output.prompt.endswith("The sum is"))
        tools = [{"type": "function", "function": {"name": "weather", "parameters": {}}}]
        self.assertIn("weather", self.ask([{"role": "system", "content": "", "tools": json.dumps(tools)},
                                           *question]).prompt + self.ask(question, tools=tools).prompt)
        output = self.ask(question, chat_template="{% for m in messages %}{{ m.content }}{{ mark }}{% endfor %}",
                          chat_template_kwargs={"mark": "!"})
        self.assertEqual(output.prompt, "What is 2 plus 3?!")

    def test_tokenizer(self):
        t = self.tokenizer
        for text in ("", "Tom has 3 apples.", "é 日本語 🦉\0\n", "<|user|>hello<|end|>"):
            ids = t.encode(text, add_special_tokens=False)
            self.assertEqual(t.decode(ids), text)
            self.assertEqual(b"".join(map(t.token_bytes, ids)).decode(), text)
        ids = t.encode("Tom has")
        self.assertEqual(t("Tom has"), {"input_ids": ids, "attention_mask": [1] * len(ids)})
        self.assertEqual(t(["Tom has"])["input_ids"], [ids])
        self.assertEqual(t.convert_ids_to_tokens(ids)[-1], "Ġhas")
        self.assertEqual(t.decode(ids[0]), t.decode(ids[:1]))
        self.assertEqual(t.decode(t.encode("<|end|>x"), skip_special_tokens=True), "x")
        self.assertEqual(t.eos_token_id, json.loads((CHAT / "config.json").read_text())["eos_token_id"])
        self.assertEqual(t.batch_decode([ids, ids]), ["Tom has"] * 2)
        self.assertEqual(t("Tom has").input_ids, ids)
        self.assertEqual(t("Tom has", truncation=True, max_length=1).input_ids, ids[:1])
        self.assertEqual(t.tokenize("Tom has"), t.convert_ids_to_tokens(ids))
        self.assertEqual(t.convert_tokens_to_ids(t.tokenize("Tom has")), ids)
        self.assertEqual((t.eos_token, t.pad_token, t.pad_token_id), ("<|endoftext|>", "<|endoftext|>", t.eos_token_id))
        self.assertEqual((len(t), t.max_token_id, t.get_vocab()["<|end|>"]), (t.vocab_size, t.vocab_size - 1,
                                                                              t.encode("<|end|>")[0]))
        self.assertRaises(ValueError, t, "Tom has", return_tensors="pt")
        self.assertRaises(ValueError, t.apply_chat_template, [], return_tensors="pt")

    def test_a_template_of_the_tokenizers(self):
        question = [{"role": "user", "content": "What is 2 plus 3?"}]
        self.assertEqual(self.tokenizer.chat_template,
                         json.loads((CHAT / "tokenizer_config.json").read_text())["chat_template"])
        with LLM(CHAT) as llm:
            tokenizer = llm.get_tokenizer()
            tokenizer.chat_template = "{% for m in messages %}<{{ m.content }}>{% endfor %}"
            self.assertEqual(llm.chat(question, GREEDY, use_tqdm=False)[0].prompt, "<What is 2 plus 3?>")
            self.assertEqual(tokenizer.apply_chat_template(question, return_dict=True).input_ids,
                             tokenizer.encode("<What is 2 plus 3?>"))

    def test_no_template(self):
        with LLM(CODE) as llm:
            self.assertIsNone(llm.get_tokenizer().chat_template)
            self.assertRaises(phidelity.ChatTemplateResolutionError, llm.chat,
                              [{"role": "user", "content": "x"}], use_tqdm=False)
            template = "{% for m in messages %}{{ m.content }}{% endfor %}"
            output = llm.chat([{"role": "user", "content": PROMPTS[0]}], GREEDY, use_tqdm=False,
                              chat_template=template)[0]
            self.assertEqual(output.prompt, PROMPTS[0])
        with LLM(CODE, chat_template=template) as llm:
            self.assertEqual(llm.chat([{"role": "user", "content": "x"}], GREEDY, use_tqdm=False)[0].prompt, "x")


if __name__ == "__main__":
    tap.main()
