#!/usr/bin/env python3
"""AsyncLLM: streams of each kind, many at once, cancelled, aborted, in several loops one after another.

PYTHONPATH names the built package, PHI_MODELS the bundled models. Prints TAP.
"""
import asyncio
import os
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import tap

from phidelity import (LLM, AsyncEngineArgs, AsyncLLM, AsyncLLMEngine, EngineClosedError, RequestOutputKind,
                       SamplingParams)

CODE = Path(os.environ["PHI_MODELS"]) / "phi-tiny-code"
PROMPT = "def fibonacci(n):"
LONG = SamplingParams(max_tokens=None, ignore_eos=True, seed=1)


def greedy(kind=RequestOutputKind.CUMULATIVE, **more):
    return SamplingParams(temperature=0, max_tokens=24, output_kind=kind, **more)


async def collect(stream):
    return [output async for output in stream]


class Streams(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.llm = AsyncLLM.from_engine_args(AsyncEngineArgs(CODE, kv_cache_memory_bytes=1 << 28))
        with LLM(CODE) as llm:
            cls.expected = llm.generate(PROMPT, greedy(logprobs=1), use_tqdm=False)[0].outputs[0]
            cls.several = llm.generate(PROMPT, SamplingParams(n=3, seed=3, max_tokens=8), use_tqdm=False)[0].outputs

    @classmethod
    def tearDownClass(cls):
        cls.llm.shutdown()

    def stream(self, *arguments, **more):
        return collect(self.llm.generate(*arguments, **more))

    def idle(self):
        return all(m.value == 0 for m in self.llm.get_metrics()[:3])

    def test_cumulative(self):
        outputs = asyncio.run(self.stream(PROMPT, greedy(logprobs=1)))
        self.assertGreater(len(outputs), 1)
        for output in outputs:
            answer = output.outputs[0]
            self.assertTrue(self.expected.text.startswith(answer.text))
            self.assertEqual(answer.token_ids, self.expected.token_ids[:len(answer.token_ids)])
            self.assertEqual(len(answer.logprobs), len(answer.token_ids))
            self.assertEqual(output.finished, output is outputs[-1])
        self.assertEqual(outputs[-1].outputs[0], self.expected)

    def test_delta(self):
        outputs = asyncio.run(self.stream(PROMPT, greedy(RequestOutputKind.DELTA, logprobs=1)))
        pieces = [output.outputs[0] for output in outputs]
        self.assertEqual("".join(p.text for p in pieces), self.expected.text)
        self.assertEqual(sum((p.token_ids for p in pieces), []), self.expected.token_ids)
        self.assertEqual(sum((p.logprobs for p in pieces), []), self.expected.logprobs)

    def test_final_only(self):
        outputs = asyncio.run(self.stream(PROMPT, greedy(RequestOutputKind.FINAL_ONLY, logprobs=1)))
        self.assertEqual([o.outputs[0] for o in outputs], [self.expected])

    def test_several_answers(self):
        outputs = asyncio.run(self.stream(PROMPT, SamplingParams(n=3, seed=3, max_tokens=8)))
        self.assertEqual(outputs[-1].outputs, self.several)

    def test_many_at_once(self):
        async def work():
            return await asyncio.gather(*(self.stream(PROMPT, greedy(i % 3), f"r{i}") for i in range(200)))

        for i, outputs in enumerate(asyncio.run(work())):
            self.assertEqual(outputs[-1].request_id, f"r{i}")
            if i % 3 != RequestOutputKind.DELTA:
                self.assertEqual(outputs[-1].outputs[0].text, self.expected.text)
        self.assertTrue(self.idle())

    def test_the_loop_goes_on(self):
        async def work():
            ticks, task = 0, asyncio.ensure_future(asyncio.gather(*(self.stream(PROMPT, greedy()) for _ in range(64))))
            while not task.done():
                await asyncio.sleep(0.001)
                ticks += 1
            return ticks

        self.assertGreater(asyncio.run(work()), 10)

    def test_left_early(self):
        async def work():
            async for output in self.llm.generate(PROMPT, LONG):
                break
            stream = self.llm.generate(PROMPT, LONG)
            await stream.__anext__()
            await stream.aclose()
            task = asyncio.ensure_future(self.stream(PROMPT, LONG))
            await asyncio.sleep(0.05)
            task.cancel()
            try:
                await task
            except asyncio.CancelledError:
                pass
            while not self.idle():
                await asyncio.sleep(0.01)

        asyncio.run(asyncio.wait_for(work(), 60))

    def test_abort(self):
        async def work():
            task = asyncio.ensure_future(self.stream(PROMPT, LONG, "mine"))
            await asyncio.sleep(0.05)
            await self.llm.abort("nobody's")
            await self.llm.abort(["mine"])
            return await task

        self.assertEqual(asyncio.run(work())[-1].outputs[0].finish_reason, "abort")

    def test_around_it(self):
        self.assertIs(AsyncLLMEngine, AsyncLLM)
        self.assertIs(self.llm.tokenizer, self.llm.get_tokenizer())
        self.assertEqual(self.llm.model_config.model, str(CODE))
        with self.assertRaisesRegex(ValueError, "pooling"):
            asyncio.run(self.llm.encode(PROMPT))

    def test_errors(self):
        async def first(*arguments):
            return await self.llm.generate(*arguments).__anext__()

        for error, prompt, params in ((ValueError, "", greedy()), (TypeError, None, greedy()),
                                      (ValueError, [10**6], greedy()), (TypeError, PROMPT, {}),
                                      (ValueError, PROMPT, SamplingParams(logprobs=21))):
            with self.subTest(prompt=prompt):
                with self.assertRaises(error):
                    asyncio.run(first(prompt, params))
        self.assertEqual(asyncio.run(self.stream(PROMPT, greedy(logprobs=1)))[-1].outputs[0], self.expected)

    def test_shutdown(self):
        async def work():
            llm = AsyncLLM(CODE, kv_cache_memory_bytes=1 << 26)
            task = asyncio.ensure_future(collect(llm.generate(PROMPT, LONG)))
            await asyncio.sleep(0.05)
            await llm.check_health()
            self.assertEqual((llm.is_running, llm.errored), (True, False))
            llm.shutdown(timeout=5)
            self.assertEqual((llm.is_running, llm.errored), (False, True))
            with self.assertRaises(EngineClosedError):
                await task
            with self.assertRaises(EngineClosedError):
                await llm.check_health()

        asyncio.run(asyncio.wait_for(work(), 60))

    def test_let_go(self):
        async def work():
            async for output in AsyncLLM(CODE, kv_cache_memory_bytes=1 << 26).generate(PROMPT, greedy()):
                pass
            return output.outputs[0].text

        n_threads = len(os.listdir("/proc/self/task"))
        self.assertEqual(asyncio.run(work()), self.expected.text)
        self.assertEqual(len(os.listdir("/proc/self/task")), n_threads)


if __name__ == "__main__":
    tap.main()
