#!/usr/bin/env python3
"""`phidelity serve` as its users meet it: routes, streams, errors, keys, TLS, signals, the log. Prints TAP."""
import http.client
import json
import math
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import threading
import time
import unittest
from pathlib import Path

import serving
from serving import CHAT, CODE, Served, Server, eventually, events, generate, run

import tap  # serving put its folder on the path

PROMPT = "def fibonacci(n):"
QUESTION = "What is 2 plus 3?"
LIMIT = ("--max-model-len", 512, "--kv-cache-memory-bytes", "64M")  # no test needs more
ROUTES = ("/health", "/ping", "/version", "/load", "/metrics", "/openapi.json", "/v1/models", "/")


def greedy(**fields):
    return {"temperature": 0, "max_tokens": 16, "ignore_eos": True, **fields}


def choice(body):
    assert len(body["choices"]) == 1, body
    return body["choices"][0]


def joined(chunks, index=0):
    """The text of one answer of a stream, completions or chat."""
    return "".join(c.get("text") or c.get("delta", {}).get("content") or ""
                   for chunk in chunks for c in chunk["choices"] if c["index"] == index)


class ReportsSmokeTest(Served, unittest.TestCase):
    """The command of the reports that vLLM users send around, as it stands there."""
    flags = ("--seed", 42, "--served-model-name", "phi-1", "--max-num-seqs", 64, "--max-model-len", 512,
             "--trust-remote-code", "--gpu-memory-utilization", 0.5, "--dtype", "float16",
             "--no-enable-prefix-caching")

    def test_models(self):
        answer = self.server.get("/v1/models")
        self.assertEqual(answer.status, 200)
        body = answer.json()
        self.assertEqual(body["object"], "list")
        [card] = body["data"]
        self.assertEqual({k: card[k] for k in ("id", "object", "owned_by", "root", "parent", "max_model_len")},
                         {"id": "phi-1", "object": "model", "owned_by": "vllm", "root": str(CODE),
                          "parent": None, "max_model_len": 512})
        [permission] = card["permission"]
        self.assertTrue(permission["id"].startswith("modelperm-"))
        self.assertEqual(permission["organization"], "*")

    def test_completion(self):
        body = self.server.complete(PROMPT, model="phi-1", max_tokens=64, temperature=0)
        want = generate(CODE, PROMPT, "--dtype", "float16", "--max-tokens", 64, "--max-model-len", 512)
        got = choice(body)
        self.assertEqual((got["text"], got["finish_reason"]), (want["text"], want["finish_reason"]))
        self.assertEqual(body["model"], "phi-1")
        self.assertEqual(body["object"], "text_completion")
        self.assertTrue(body["id"].startswith("cmpl-"))
        self.assertLess(abs(body["created"] - time.time()), 3600)
        self.assertEqual(body["usage"]["completion_tokens"], len(want["token_ids"]))
        self.assertEqual(body["usage"]["total_tokens"],
                         body["usage"]["prompt_tokens"] + body["usage"]["completion_tokens"])

    def test_unknown_model(self):
        answer = self.server.post("/v1/completions", model="phi-tiny-code", prompt="x")
        self.assertEqual(answer.status, 404)
        error = answer.json()["error"]
        self.assertEqual((error["type"], error["param"], error["code"]), ("NotFoundError", "model", 404))

    def test_flag_without_effect_is_told(self):
        self.assertRegex(self.server.log(), r"(?m)^\S+ .*trust-remote-code.*$")


class Code(Served, unittest.TestCase):
    """Everything that needs no flags, on the model without a chat template."""
    model, flags = CODE, LIMIT + ("--enable-server-load-tracking",)

    def test_routes(self):
        for path in ROUTES:
            with self.subTest(path):
                self.assertEqual(self.server.get(path).status, 200)
        self.assertEqual(self.server.get("/health").body, b"")
        self.assertEqual(self.server.ask("POST", "/ping").status, 200)
        self.assertRegex(self.server.get("/version").json()["version"], r"^\d+\.\d+")
        self.assertEqual(self.server.get("/load").json(), {"server_load": 0})
        self.assertIn("/v1/chat/completions", self.server.get("/openapi.json").json()["paths"])
        self.assertIn("text/html", self.server.get("/").headers["Content-Type"])
        self.assertIn("text/plain", self.server.get("/metrics").headers["Content-Type"])

    def test_unknown_routes_and_methods(self):
        for method, path, status, text in (("GET", "/v1/nothing", 404, "Not Found"),
                                           ("POST", "/v1/embeddings", 404, "Not Found"),
                                           ("GET", "/v1/completions", 405, "Method Not Allowed"),
                                           ("DELETE", "/v1/models", 405, "Method Not Allowed")):
            with self.subTest(path):
                answer = self.server.ask(method, path)
                self.assertEqual((answer.status, answer.json()), (status, {"detail": text}))

    def test_tokenize_and_back(self):
        text = "def f(x):\n    return 'héllo 🦙'\n"
        body = self.server.post("/tokenize", prompt=text, return_token_strs=True).json()
        ids = [int(word) for word in run("tokenize", CODE, "-", stdin=text.encode()).split()]
        self.assertEqual((body["tokens"], body["count"], body["max_model_len"]), (ids, len(ids), 512))
        self.assertEqual(len(body["token_strs"]), len(ids))
        self.assertEqual(self.server.post("/detokenize", tokens=ids).json(), {"prompt": text})

    def test_same_as_generate(self):
        for prompt in (PROMPT, "import os\n\nclass ", "x = [", "é🦙 "):
            for fields, flags in (({}, ()), ({"min_tokens": 3, "repetition_penalty": 1.3},
                                             ("--min-tokens", 3, "--repetition-penalty", 1.3))):
                want = generate(CODE, prompt, "--max-tokens", 24, "--max-model-len", 512, *flags)
                got = choice(self.server.complete(prompt, temperature=0, max_tokens=24, **fields))
                self.assertEqual((got["text"], got["finish_reason"]), (want["text"], want["finish_reason"]))

    def test_token_ids_in_and_out(self):
        ids = self.server.post("/tokenize", prompt=PROMPT).json()["tokens"]
        by_ids = choice(self.server.complete(ids, return_token_ids=True, **greedy()))
        by_text = choice(self.server.complete(PROMPT, return_token_ids=True, **greedy()))
        self.assertEqual(by_ids, by_text)
        self.assertEqual(by_ids["prompt_token_ids"], ids)
        self.assertEqual(self.server.post("/detokenize", tokens=by_ids["token_ids"]).json()["prompt"], by_ids["text"])

    def test_several_prompts_and_answers(self):
        prompts, fields = ["import os", PROMPT, "class A"], {"n": 3, "seed": 7, "temperature": 0.9, "max_tokens": 8}
        body = self.server.complete(prompts, **fields)
        self.assertEqual([c["index"] for c in body["choices"]], list(range(9)))
        for i, prompt in enumerate(prompts):
            alone = self.server.complete(prompt, **fields)
            self.assertEqual([c["text"] for c in alone["choices"]],
                             [c["text"] for c in body["choices"][3 * i:3 * i + 3]])
        self.assertGreater(len({c["text"] for c in body["choices"]}), 3)
        n_prompt = sum(self.server.post("/tokenize", prompt=p).json()["count"] for p in prompts)
        self.assertEqual(body["usage"]["prompt_tokens"], n_prompt)

        chunks = self.server.stream("/v1/completions", prompt=prompts, **fields)
        for c in body["choices"]:
            self.assertEqual(joined(chunks, c["index"]), c["text"])

    def test_streaming(self):
        fields = greedy(logprobs=2, max_tokens=400)  # long enough not to be over before it is looked at
        whole = self.server.complete(PROMPT, **fields)
        chunks = self.server.stream("/v1/completions", prompt=PROMPT, **fields)
        self.assertEqual(joined(chunks), choice(whole)["text"])
        self.assertEqual({c["object"] for c in chunks}, {"text_completion"})
        self.assertEqual(len({c["id"] for c in chunks}), 1)
        self.assertGreater(len(chunks), 2)  # tokens that came meanwhile share a chunk
        self.assertEqual([c["choices"][0].get("finish_reason") for c in chunks][-1], "length")
        self.assertEqual({c["choices"][0].get("finish_reason") for c in chunks[:-1]}, {None})
        pieces = [c["choices"][0]["logprobs"] for c in chunks if c["choices"][0].get("logprobs")]
        for key in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
            self.assertEqual(sum((p[key] for p in pieces), []), choice(whole)["logprobs"][key], key)

    def test_usage_in_streams(self):
        usage = self.server.complete(PROMPT, **greedy())["usage"]
        chunks = self.server.stream("/v1/completions", prompt=PROMPT, stream_options={"include_usage": True},
                                    **greedy())
        self.assertEqual(chunks[-1]["choices"], [])
        self.assertEqual({k: chunks[-1]["usage"][k] for k in ("prompt_tokens", "completion_tokens", "total_tokens")},
                         {k: usage[k] for k in ("prompt_tokens", "completion_tokens", "total_tokens")})
        chunks = self.server.stream("/v1/completions", prompt=PROMPT, **greedy(), stream_options={
            "include_usage": True, "continuous_usage_stats": True})
        counts = [c["usage"]["completion_tokens"] for c in chunks]
        self.assertEqual(counts, sorted(counts))
        self.assertEqual(counts[-1], 16)
        without = self.server.stream("/v1/completions", prompt=PROMPT, **greedy())
        self.assertFalse(any(c.get("usage") for c in without))

    def test_echo(self):
        text = choice(self.server.complete(PROMPT, **greedy()))["text"]
        self.assertEqual(choice(self.server.complete(PROMPT, echo=True, **greedy()))["text"], PROMPT + text)
        chunks = self.server.stream("/v1/completions", prompt=PROMPT, echo=True, **greedy(logprobs=1))
        self.assertEqual(joined(chunks), PROMPT + text)
        scored = choice(self.server.complete(PROMPT, echo=True, **greedy(max_tokens=0, logprobs=1)))
        self.assertEqual(scored["text"], PROMPT)
        self.assertEqual("".join(scored["logprobs"]["tokens"]), PROMPT)
        self.assertIsNone(scored["logprobs"]["token_logprobs"][0])
        self.assertTrue(all(x <= 0 for x in scored["logprobs"]["token_logprobs"][1:]))

    def test_logprobs(self):
        logprobs = choice(self.server.complete(PROMPT, **greedy(logprobs=3)))["logprobs"]
        text = choice(self.server.complete(PROMPT, **greedy()))["text"]
        self.assertEqual("".join(logprobs["tokens"]), text)
        offset = 0
        for token, at, value, top in zip(*(logprobs[k] for k in ("tokens", "text_offset", "token_logprobs",
                                                                 "top_logprobs"))):
            self.assertEqual(at, offset)
            offset += len(token)
            self.assertEqual(max(top.values()), value)  # greedy: the likeliest was taken
            self.assertEqual(top[token], value)
            self.assertLessEqual(sum(map(math.exp, top.values())), 1.0001)
        want = generate(CODE, PROMPT, "--max-tokens", 16, "--ignore-eos", "--logprobs", 3, "--max-model-len", 512)
        self.assertEqual(len(want["logprobs"]), 16)

    def test_prompt_logprobs(self):
        got = choice(self.server.complete(PROMPT, prompt_logprobs=1, return_token_ids=True, **greedy()))
        self.assertIsNone(got["prompt_logprobs"][0])
        for token, entry in zip(got["prompt_token_ids"][1:], got["prompt_logprobs"][1:]):
            self.assertIn(str(token), entry)
            for one in entry.values():
                self.assertEqual(set(one), {"logprob", "rank", "decoded_token"})

    def test_stop(self):
        text = choice(self.server.complete(PROMPT, **greedy(max_tokens=40)))["text"]
        stop = text[len(text) // 2:len(text) // 2 + 3]
        cut = text[:text.index(stop)]
        got = choice(self.server.complete(PROMPT, stop=[stop], **greedy(max_tokens=40)))
        self.assertEqual((got["text"], got["finish_reason"], got["stop_reason"]), (cut, "stop", stop))
        self.assertEqual(joined(self.server.stream("/v1/completions", prompt=PROMPT, stop=stop,
                                                   **greedy(max_tokens=40))), cut)
        ids = choice(self.server.complete(PROMPT, return_token_ids=True, **greedy()))["token_ids"]
        got = choice(self.server.complete(PROMPT, stop_token_ids=[ids[5]], **greedy(max_tokens=40)))
        self.assertEqual((got["finish_reason"], got["stop_reason"]), ("stop", ids[5]))

    def test_seed(self):
        fields = {"temperature": 1, "max_tokens": 12}
        texts = [choice(self.server.complete(PROMPT, seed=seed, **fields))["text"] for seed in (1, 1, 2)]
        self.assertEqual(texts[0], texts[1])
        self.assertNotEqual(texts[0], texts[2])

    def test_errors(self):
        """One of each kind; every field's own line is in test_fields.c."""
        for body, kind, param in (
                (b"{", "Bad Request", None),
                (b'{"prompt": "x", "max_tokens": "many"}', "Bad Request", None),
                ({}, "Bad Request", None),
                ({"prompt": "x", "temperature": -1}, "BadRequestError", "temperature"),
                ({"prompt": "x", "max_tokens": 1000}, "BadRequestError", "max_tokens"),
                ({"prompt": "x " * 600}, "BadRequestError", "input_tokens"),
                ({"prompt": "x", "n": 2, "temperature": 0}, "BadRequestError", None),
                ({"prompt": "x", "suffix": "y"}, "BadRequestError", None),
                ({"prompt": [99999999]}, "BadRequestError", None)):
            with self.subTest(body):
                answer = self.server.ask("POST", "/v1/completions", body)
                error = answer.json()["error"]
                self.assertEqual((answer.status, error["code"], error["type"]), (400, 400, kind))
                if not (isinstance(body, bytes) or body == {}):
                    self.assertEqual(error["param"], param)
                self.assertTrue(error["message"])
        answer = self.server.post("/v1/chat/completions", messages=[{"role": "user", "content": "Hi"}])
        self.assertEqual((answer.status, answer.json()["error"]["type"]), (400, "BadRequestError"))
        self.assertIn("chat template", answer.json()["error"]["message"])

    def test_keep_alive(self):
        connection = self.server.connection()
        for _ in range(3):
            self.assertEqual(self.server.ask("GET", "/health", keep=connection).status, 200)
            self.assertEqual(self.server.ask("POST", "/v1/completions", b"{", keep=connection).status, 400)
            answer = self.server.ask("POST", "/v1/completions",
                                     {"prompt": "x", "stream": True, **greedy(max_tokens=2)}, keep=connection)
            self.assertEqual(joined(events(answer.body)),
                             choice(self.server.complete("x", **greedy(max_tokens=2)))["text"])
        connection.close()

    def test_request_id(self):
        body = self.server.ask("POST", "/v1/completions", {"prompt": "x", **greedy(max_tokens=1)},
                               {"X-Request-Id": "mine-17"}).json()
        self.assertEqual(body["id"], "cmpl-mine-17")

    def test_metrics_count(self):
        before = self.server.metrics()
        body = self.server.complete([PROMPT, "x"], **greedy(max_tokens=5))
        after = self.server.metrics()
        for name, difference in (("vllm:prompt_tokens_total", body["usage"]["prompt_tokens"]),
                                 ("vllm:generation_tokens_total", 10),
                                 ('vllm:request_success_total{finished_reason="length"}', 2),
                                 ("vllm:e2e_request_latency_seconds_count", 2),
                                 ("vllm:time_to_first_token_seconds_count", 2)):
            self.assertEqual(after[name] - before[name], difference, name)

    def test_client_leaves(self):
        """At whatever moment: its work ends and its blocks are free again."""
        request = json.dumps({"prompt": PROMPT, "n": 8, "max_tokens": 500, "ignore_eos": True})
        for stream, moment in ((False, "working"), (True, "working"), (True, "reading"), (False, "at once")):
            with self.subTest((stream, moment)):
                aborted = 'vllm:request_success_total{finished_reason="abort"}'
                before = self.server.metrics()[aborted]
                connection = self.server.connection()
                connection.request("POST", "/v1/completions", request.replace("{", '{"stream": %s, ' % (
                    "true" if stream else "false"), 1), {"Content-Type": "application/json"})
                if moment != "at once":
                    eventually(lambda: self.server.metrics()["vllm:num_requests_running"] > 0, "it runs")
                if moment == "reading":
                    connection.getresponse().read(100)
                connection.close()
                self.server.wait_idle()  # the engine is; the HTTP side counts a moment later
                eventually(lambda: self.server.metrics()[aborted] == before + 1, "it is counted as aborted")


class Chat(Served, unittest.TestCase):
    model, flags = CHAT, LIMIT

    def test_same_as_chat(self):
        for question in (QUESTION, "Ann has 4 pens. She buys 3 more. How many pens does she have?"):
            want = run("chat", CHAT, "-p", question, "--temperature", 0, "--max-tokens", 40)
            body = self.server.chat(question, temperature=0, max_tokens=40)
            self.assertEqual(choice(body)["message"]["content"] + "\n", want)

    def test_answer(self):
        body = self.server.chat(QUESTION, temperature=0)
        self.assertEqual(body["object"], "chat.completion")
        self.assertTrue(body["id"].startswith("chatcmpl-"))
        self.assertEqual(choice(body)["message"]["role"], "assistant")
        self.assertEqual(choice(body)["message"].get("tool_calls") or [], [])

    def test_streaming(self):
        whole = self.server.chat(QUESTION, temperature=0, logprobs=True, top_logprobs=2)
        chunks = self.server.stream("/v1/chat/completions", temperature=0, logprobs=True, top_logprobs=2,
                                    messages=[{"role": "user", "content": QUESTION}],
                                    stream_options={"include_usage": True})
        self.assertEqual(chunks[0]["choices"][0]["delta"], {"role": "assistant", "content": ""})
        self.assertTrue(all("role" not in c["delta"] for chunk in chunks[1:] for c in chunk["choices"]))
        self.assertEqual({c["object"] for c in chunks}, {"chat.completion.chunk"})
        self.assertEqual(joined(chunks), choice(whole)["message"]["content"])
        self.assertEqual(chunks[-1]["choices"], [])
        self.assertEqual(chunks[-1]["usage"]["completion_tokens"], whole["usage"]["completion_tokens"])
        last = chunks[-2]["choices"][0]
        self.assertEqual((last["finish_reason"], last.get("stop_reason")),
                         (choice(whole)["finish_reason"], choice(whole)["stop_reason"]))
        pieces = [c["choices"][0]["logprobs"]["content"] for c in chunks[1:-1] if c["choices"][0].get("logprobs")]
        self.assertEqual(sum(pieces, []), choice(whole)["logprobs"]["content"])

    def test_the_first_event_comes_with_the_first_token(self):
        """Not before: a client that measures time to first token must not be told too good a time."""
        chunks = self.server.stream("/v1/chat/completions", temperature=1, seed=3, n=2, max_tokens=6, ignore_eos=True,
                                    messages=[{"role": "user", "content": QUESTION}])
        roles = [c["index"] for chunk in chunks for c in chunk["choices"] if "role" in c["delta"]]
        self.assertEqual(sorted(roles), [0, 1])

    def test_ends_at_the_models_own_end(self):
        got = choice(self.server.chat(QUESTION, temperature=0, max_tokens=200))
        if got["finish_reason"] == "stop":
            end = json.loads((CHAT / "generation_config.json").read_text())["eos_token_id"][0]
            self.assertEqual(got["stop_reason"], end)  # <|end|>, as vLLM reports it
            self.assertNotIn("<|end|>", got["message"]["content"])
        text = choice(self.server.chat(QUESTION, temperature=0, max_tokens=20, ignore_eos=True,
                                       skip_special_tokens=False))["message"]["content"]
        self.assertGreater(len(text), 0)

    def test_tokenize_messages(self):
        messages = [{"role": "user", "content": QUESTION}]
        body = self.server.post("/tokenize", messages=messages).json()
        ids = run("template", CHAT, "-f", "-", "--print-token-ids", stdin=json.dumps(messages).encode()).split()
        self.assertEqual(body["tokens"], list(map(int, ids)))

    def test_across_the_original_length(self):
        """LongRoPE: beside requests on either side of 256 tokens, the same answer as alone."""
        ids = self.server.post("/tokenize", prompt=QUESTION * 40).json()["tokens"][:250]
        fields = greedy(max_tokens=30, return_token_ids=True)
        alone = choice(self.server.complete(ids, **fields))["token_ids"]
        together = self.server.complete([ids[:20], ids, ids + ids[:150], ids], **greedy(max_tokens=30,
                                                                                          return_token_ids=True))
        self.assertEqual([together["choices"][i]["token_ids"] for i in (1, 3)], [alone, alone])
        text = run("generate", CHAT, "--prompt-token-ids", " ".join(map(str, ids)), "--temperature", 0,
                   "--max-tokens", 30, "--ignore-eos", "--print-token-ids")
        self.assertEqual(alone, list(map(int, text.split())))


class Keys(Served, unittest.TestCase):
    flags, env = LIMIT + ("--api-key", "first", "second"), {}

    def status(self, path, key=None, method="GET"):
        return self.server.ask(method, path, headers={"Authorization": key} if key else {}).status

    def test_keys(self):
        for key in ("Bearer first", "Bearer second", "bearer first"):
            self.assertEqual(self.status("/v1/models", key), 200)
        for key in (None, "first", "Bearer third", "Bearer", "Bearer firs", "Basic first", "Bearer first second"):
            answer = self.server.ask("GET", "/v1/models", headers={"Authorization": key} if key else {})
            self.assertEqual((answer.status, answer.json()), (401, {"error": "Unauthorized"}), key)
        self.assertEqual(self.status("/v1/completions", method="POST"), 401)
        self.assertEqual(self.status("/v1/nothing"), 401)
        for path in ("/health", "/metrics", "/version"):
            self.assertEqual(self.status(path), 200)

    def test_keys_are_not_logged(self):
        self.assertNotRegex(self.server.log(), "first|second")


class Cors(Served, unittest.TestCase):
    flags = LIMIT + ("--allowed-origins", '["http://a.example"]', "--root-path", "/phi/",
                     "--enable-request-id-headers")

    def test_origins(self):
        for origin, allowed in (("http://a.example", "http://a.example"), ("http://b.example", None)):
            answer = self.server.get("/v1/models", Origin=origin)
            self.assertEqual((answer.status, answer.headers["Access-Control-Allow-Origin"]), (200, allowed))

    def test_preflight(self):
        asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type"}
        answer = self.server.ask("OPTIONS", "/v1/completions", headers={"Origin": "http://a.example", **asked})
        self.assertEqual(answer.status, 200)
        self.assertIn("POST", answer.headers["Access-Control-Allow-Methods"])
        answer = self.server.ask("OPTIONS", "/v1/completions", headers={"Origin": "http://b.example", **asked})
        self.assertEqual(answer.status, 400)

    def test_root_path(self):
        for path in ("/phi/v1/models", "/v1/models", "/phi/health"):
            self.assertEqual(self.server.get(path).status, 200, path)
        self.assertEqual(self.server.get("/phix/v1/models").status, 404)

    def test_request_id_header(self):
        self.assertTrue(self.server.get("/health").headers["X-Request-Id"])
        self.assertEqual(self.server.ask("GET", "/health", headers={"X-Request-Id": "a-1"}).headers["X-Request-Id"],
                         "a-1")


class Limits(Served, unittest.TestCase):
    flags = LIMIT + ("--max-body-bytes", 4096, "--max-header-bytes", 2048, "--max-num-seqs", 1, "--max-waiting", 1,
                     "--request-timeout", 1, "--idle-timeout", 2)

    def test_body(self):
        self.assertEqual(self.server.post("/v1/completions", prompt="x" * 5000, max_tokens=1).status, 413)
        answer = self.server.ask("POST", "/tokenize", b'{"prompt": "x"}'.ljust(4096))
        self.assertEqual(answer.status, 200)

    def test_header(self):
        self.assertEqual(self.server.get("/health", Long="x" * 1000).status, 200)
        with self.server.socket() as s:
            s.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nLong: " + b"x" * 60000 + b"\r\n\r\n")
            try:
                self.assertRegex(s.recv(100), rb"^(HTTP/1.1 431|$)")
            except ConnectionResetError:
                pass

    def test_full_queue(self):
        long = {"prompt": PROMPT, "max_tokens": 500, "ignore_eos": True, "stream": True}
        leave = []
        for name in ("vllm:num_requests_running", "vllm:num_requests_waiting"):
            connection = self.server.connection()
            connection.request("POST", "/v1/completions", json.dumps(long), {"Content-Type": "application/json"})
            leave.append(connection)
            eventually(lambda: self.server.metrics()[name] == 1, name)
        answer = self.server.post("/v1/completions", prompt="x", max_tokens=1)
        self.assertEqual(answer.status, 503, answer)
        self.assertGreater(int(answer.headers["Retry-After"]), 0)
        self.assertEqual(answer.json()["error"]["code"], 503)
        for connection in leave:
            connection.close()
        self.server.wait_idle()
        self.server.complete("x", max_tokens=1)

    def test_time_to_send(self):
        for text in (b"GET /hea", b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"):
            with self.server.socket() as s:
                s.sendall(text)
                self.assertRegex(s.recv(1000), rb"^(HTTP/1.1 408|$)")


class Log(Served, unittest.TestCase):
    flags = LIMIT + ("--enable-log-requests", "--disable-access-log-for-endpoints", "/metrics,/health")
    env = {"VLLM_LOG_STATS_INTERVAL": "0.2"}

    def has(self, pattern):
        eventually(lambda: re.search("(?m)" + pattern, self.server.log()), pattern)

    def test_start(self):
        for pattern in (r"^INFO \d\d-\d\d \d\d:\d\d:\d\d \[serve\] ", r"max_model_len|max-model-len",
                        r"KV cache size: [\d,]+ tokens", r"Maximum concurrency for 512 tokens per request: \d+\.\d\dx",
                        rf"http://127\.0\.0\.1:{self.server.port}", r"PhiForCausalLM"):
            self.has(pattern)

    def test_access(self):
        self.server.complete("x", max_tokens=1)
        self.server.get("/nothing")
        self.server.get("/health")
        self.has(r'127\.0\.0\.1:\d+ - "POST /v1/completions HTTP/1\.1" 200 OK$')
        self.has(r'127\.0\.0\.1:\d+ - "GET /nothing HTTP/1\.1" 404 Not Found$')
        self.assertNotIn("/health HTTP", self.server.log())

    def test_no_line_can_be_forged(self):
        with self.server.socket() as s:
            s.sendall(b"GET /a%0aINFO%20forged HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                      b"X-Request-Id: a\x1b[31m\r\n\r\n")
            while s.recv(1000):
                pass
        self.has(r"GET /a")
        self.assertNotRegex(self.server.log(), r"(?m)^INFO.forged|\x1b")

    def test_statistics(self):
        self.server.complete(PROMPT, **greedy(max_tokens=100))
        self.has(r"Engine 000: Avg prompt throughput: \d+\.\d tokens/s, Avg generation throughput: \d+\.\d tokens/s, "
                 r"Running: \d+ reqs, Waiting: \d+ reqs, (Preemptions: \d+, )?GPU KV cache usage: \d+\.\d%, "
                 r"Prefix cache hit rate: \d+\.\d%$")

    def test_requests(self):
        body = self.server.complete("x", max_tokens=3, temperature=0.5)
        self.has(rf"{body['id']}.*max_tokens")


class Alone(unittest.TestCase):
    """Each case has a server of its own, or cannot start one."""

    def start(self, model, *flags, **options):
        server = Server(model, *flags, **options)
        self.addCleanup(server.close)
        return server

    def folder(self):
        folder = Path(tempfile.mkdtemp(prefix="phidelity-test-"))
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        return folder

    def slow_model(self):
        """A folder whose loading can be watched: a second or so of random weights."""
        folder = self.folder()
        config = json.loads((CODE / "config.json").read_text())
        config.update(hidden_size=1024, intermediate_size=4096, num_hidden_layers=16)
        (folder / "config.json").write_text(json.dumps(config))
        for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
            shutil.copy(CODE / name, folder)
        return folder

    def refused(self, code, pattern, *arguments):
        """The command ends soon, with the code and one line that says why."""
        result = subprocess.run([serving.PROGRAM, "serve", *map(str, arguments)], stdin=subprocess.DEVNULL,
                                capture_output=True, timeout=serving.PATIENCE_S)
        text = result.stderr.decode()
        lines = [line for line in text.splitlines() if re.match(r"ERROR|phidelity: error:", line)]
        self.assertEqual((result.returncode, len(lines), result.stdout), (code, 1, b""), text)
        self.assertRegex(lines[0], pattern)

    def test_loading(self):
        server = self.start(self.slow_model(), *LIMIT, "--load-format", "dummy", wait=False)
        statuses = set()

        def ask(path):
            try:
                status = server.get(path).status
                statuses.add((path, status))
                return status
            except OSError:
                return None
        eventually(lambda: ask("/v1/models") == 200 or ask("/health") == 200, "served")
        self.assertIn(("/health", 503), statuses)
        server.wait()
        server.complete("x", max_tokens=1)
        server.end()

    def test_leaving_while_it_loads(self):
        server = self.start(self.slow_model(), *LIMIT, "--load-format", "dummy", wait=False)
        eventually(lambda: "Listening" in server.log(), "it listens")
        server.terminate()
        self.assertEqual(server.process.wait(serving.PATIENCE_S), 0)

    def test_port_taken(self):
        folder = self.folder()
        shutil.copytree(CODE, folder, dirs_exist_ok=True)
        (folder / "model.safetensors").write_bytes(b"broken")  # would be the complaint if it were looked at first
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            s.listen()
            self.refused(1, rf"(?i)127\.0\.0\.1.*{s.getsockname()[1]}.*in use", folder, "--host", "127.0.0.1",
                         "--port", s.getsockname()[1])

    def test_wrong_starts(self):
        port = ("--host", "127.0.0.1", "--port", serving.free_port())
        for code, pattern, arguments in (
                (2, "MODEL", []),
                (2, "--port", [CODE, "--port", 70000]),
                (2, "max-num-seqs", [CODE, "--max-num-seqs", 0]),
                (2, "did you mean", [CODE, "--max-model-length", 12]),
                (2, "(?i)json", [CODE, "--allowed-origins", "x"]),
                (2, "tensor-parallel-size", [CODE, "--tensor-parallel-size", 2]),
                (1, "/nonexistent", ["/nonexistent"]),
                (1, "max.model.len|2048", [CODE, *port, "--max-model-len", 100000]),
                (1, "/nonexistent/key", [CODE, *port, "--ssl-keyfile", "/nonexistent/key",
                                         "--ssl-certfile", "/nonexistent/certificate"])):
            with self.subTest(arguments):
                self.refused(code, pattern, *arguments)

    def test_too_little_memory(self):
        """Tells what is needed, what there is, and the longest context that fits."""
        self.refused(1, r"(?i)(?=.*\d+ tokens|.*\d+\.\d+ .iB|.* MB).*\d", CODE, "--host", "127.0.0.1", "--port",
                     serving.free_port(), "--kv-cache-memory-bytes", "1M", "--max-model-len", 2048)

    @staticmethod
    def turns_away(server):
        try:
            return server.get("/health").status == 503
        except OSError:
            return True

    def test_drain(self):
        """SIGTERM: what runs ends whole, what is new is turned away, and then it exits with 0."""
        server = self.start(CODE, *LIMIT, "--shutdown-timeout", 200)
        long = greedy(max_tokens=50 if serving.SANITIZED else 400)
        want = server.complete(PROMPT, **long)
        answers = []

        def stream():
            answers.append(server.stream("/v1/completions", prompt=PROMPT, **long))

        def whole():
            answers.append(server.complete(PROMPT, **long))
        threads = [threading.Thread(target=f) for f in (stream, whole)]
        idle = server.connection()
        self.assertEqual(server.ask("GET", "/health", keep=idle).status, 200)
        for thread in threads:
            thread.start()
        eventually(lambda: server.metrics()["vllm:num_requests_running"] == 2, "both run")
        server.terminate()
        eventually(lambda: self.turns_away(server), "it has noticed")
        try:
            answer = server.ask("POST", "/v1/completions", {"prompt": "x", "max_tokens": 1}, keep=idle)
            self.assertEqual(answer.status, 503)
        except (OSError, http.client.HTTPException):
            pass
        try:
            self.assertEqual(server.post("/v1/completions", prompt="x", max_tokens=1).status, 503)
        except OSError:
            pass
        for thread in threads:
            thread.join()
        self.assertEqual(server.process.wait(serving.PATIENCE_S), 0)
        self.assertEqual(len(answers), 2)
        for answer in answers:
            text = joined(answer) if isinstance(answer, list) else choice(answer)["text"]
            self.assertEqual(text, choice(want)["text"])
        self.assertEqual(server.error_lines(), [])

    def test_shutdown_timeout(self):
        server = self.start(CODE, *LIMIT, "--shutdown-timeout", 0)
        connection = server.connection()
        connection.request("POST", "/v1/completions", json.dumps(
            {"prompt": PROMPT, "n": 16, "max_tokens": 500, "ignore_eos": True}), {"Content-Type": "application/json"})
        eventually(lambda: server.metrics()["vllm:num_requests_running"] > 0, "it runs")
        server.terminate()
        self.assertEqual(server.process.wait(serving.PATIENCE_S), 0)
        connection.close()

    def test_second_signal(self):
        server = self.start(CODE, *LIMIT)
        connection = server.connection()
        connection.request("POST", "/v1/completions", json.dumps(
            {"prompt": PROMPT, "n": 32, "max_tokens": 500, "ignore_eos": True}), {"Content-Type": "application/json"})
        eventually(lambda: server.metrics()["vllm:num_requests_running"] > 0, "it runs")
        server.terminate()
        eventually(lambda: "hutdown" in server.log(), "it has noticed")
        self.assertIsNone(server.process.poll())
        server.terminate()
        self.assertEqual(server.process.wait(10), 1)
        connection.close()

    def test_interrupt(self):
        server = self.start(CODE, *LIMIT)
        server.process.send_signal(signal.SIGINT)
        self.assertEqual(server.process.wait(serving.PATIENCE_S), 0)

    def test_unix_socket(self):
        path = self.folder() / "phi.sock"
        server = self.start(CODE, *LIMIT, uds=path)
        self.assertEqual(server.get("/v1/models").status, 200)
        self.assertEqual(len(joined(server.stream("/v1/completions", prompt=PROMPT, **greedy()))) > 0, True)
        server.end()
        again = self.start(CODE, *LIMIT, uds=path)  # also when the file is still there
        again.process.kill()
        again.process.wait()
        self.start(CODE, *LIMIT, uds=path).end()

    def test_tls(self):
        if not shutil.which("openssl"):
            self.skipTest("no openssl to make a certificate with")
        folder = self.folder()
        key, certificate = folder / "key.pem", folder / "certificate.pem"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj",
                        "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out",
                        certificate], check=True, capture_output=True)
        server = self.start(CODE, *LIMIT, "--ssl-keyfile", key, "--ssl-certfile", certificate,
                            tls=ssl.create_default_context(cafile=certificate))
        self.assertEqual(server.get("/v1/models").status, 200)
        want = generate(CODE, PROMPT, "--max-tokens", 64, "--ignore-eos")["text"]
        self.assertEqual(joined(server.stream("/v1/completions", prompt=PROMPT, **greedy(max_tokens=64))), want)
        with server.socket() as s:  # plain HTTP at the TLS port
            s.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            self.assertNotIn(b"200", s.recv(1000))
        self.assertIn("https://", server.log())
        server.end()

    def test_names_and_defaults(self):
        server = self.start(CHAT, *LIMIT, "--served-model-name", "a", "b", "--override-generation-config",
                            '{"temperature": 0, "max_new_tokens": 5}', "--response-role", "robot",
                            "--enable-prompt-tokens-details")
        self.assertEqual([card["id"] for card in server.get("/v1/models").json()["data"]], ["a", "b"])
        body = server.chat(QUESTION, model="b", ignore_eos=True)
        self.assertEqual((body["model"], body["usage"]["completion_tokens"], choice(body)["message"]["role"]),
                         ("a", 5, "robot"))
        self.assertEqual(choice(body)["message"]["content"],
                         choice(server.chat(QUESTION, temperature=0, max_tokens=5, ignore_eos=True))["message"]["content"])
        text = "How many? " * 30
        server.complete(text, max_tokens=1)
        cached = server.complete(text, max_tokens=1)["usage"]["prompt_tokens_details"]["cached_tokens"]
        self.assertGreater(cached, 0)
        server.end()

    def test_config_file(self):
        folder = self.folder()
        (folder / "serve.yaml").write_text(f"model: {CODE}\nserved-model-name: [one, two]\nmax_model_len: 64\n"
                                           "kv-cache-memory-bytes: 64M\n")
        server = self.start(CODE, "--config", folder / "serve.yaml", "--max-model-len", 128)
        cards = server.get("/v1/models").json()["data"]
        self.assertEqual([(c["id"], c["max_model_len"]) for c in cards], [("one", 128), ("two", 128)])
        server.end()


if __name__ == "__main__":
    tap.main()
