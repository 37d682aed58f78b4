#!/usr/bin/env python3
"""Clients that mean harm, or are broken: each gets a right answer or a closed connection, and a client that
behaves goes on being served. Its latency meanwhile is printed beside that of quiet times. Prints TAP.
"""
import json
import multiprocessing
import re
import resource
import socket
import statistics
import time
import unittest

import serving
from serving import CODE, Served, eventually, generate

import tap

REQUEST_S, IDLE_S = 2, 20
N_QUIET = 20  # requests that tell the quiet latency
N_IDLE = 10000
PROMPT = "def fibonacci(n):"


def post(path, body, *headers):
    lines = [f"POST {path} HTTP/1.1", "Host: test", "Content-Type: application/json", *headers]
    if not any(h.lower().startswith(("content-length", "transfer-encoding")) for h in headers):
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def until_closed(s, timeout_s=serving.PATIENCE_S):
    """What still comes, up to the end of the connection."""
    s.settimeout(timeout_s)
    data = b""
    try:
        while piece := s.recv(65536):
            data += piece
    except ConnectionError:
        pass
    return data


def statuses(data):
    return [int(x) for x in re.findall(rb"HTTP/1\.1 (\d\d\d) ", data)]


class WellBehaved(multiprocessing.Process):
    """Asks for the same short completion again and again: times and wrong answers. A process of its own, since
    the hostile clients keep this one's interpreter busy."""

    def __init__(self, server, want):
        super().__init__(daemon=True)
        self.server, self.want = server, want
        self.n_answers, self.ends = multiprocessing.Value("L"), multiprocessing.Event()
        self.ours, self.its = multiprocessing.Pipe()

    def once(self, connection):
        """How long it took; a wrong answer raises."""
        start = time.monotonic()
        answer = self.server.ask("POST", "/v1/completions", {
            "prompt": PROMPT, "temperature": 0, "max_tokens": 8, "ignore_eos": True}, keep=connection)
        took_s = time.monotonic() - start
        assert answer.status == 200 and answer.json()["choices"][0]["text"] == self.want, answer
        self.n_answers.value += 1
        return took_s

    def run(self):
        times_s, wrong = [], None
        connection = self.server.connection()
        try:
            while not self.ends.is_set():
                times_s.append(self.once(connection))
        except Exception as error:
            wrong = f"{type(error).__name__}: {error}"
        self.its.send((times_s, wrong))

    def result(self):
        """Ends it: its times and what was wrong."""
        self.ends.set()
        result = self.ours.recv()
        self.join()
        return result


class Hostile(Served, unittest.TestCase):
    model = CODE
    flags = ("--max-model-len", 512, "--kv-cache-memory-bytes", "64M", "--max-body-bytes", "1M", "--request-timeout",
             REQUEST_S, "--idle-timeout", IDLE_S, "--disable-uvicorn-access-log")

    @classmethod
    def setUpClass(cls):
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        cls.n_idle = N_IDLE if hard == resource.RLIM_INFINITY else min(N_IDLE, hard - 200)
        super().setUpClass()
        cls.want = generate(CODE, PROMPT, "--max-tokens", 8, "--ignore-eos")["text"]

    def meanwhile(self):
        """From now to the end of the case, a well-behaved client asks and must be answered rightly."""
        quiet = WellBehaved(self.server, self.want)
        quiet.start()
        eventually(lambda: quiet.n_answers.value >= N_QUIET or not quiet.is_alive(), "quiet times are measured")
        times_s, wrong = quiet.result()
        self.assertIsNone(wrong)
        neighbour = WellBehaved(self.server, self.want)
        neighbour.start()
        self.addCleanup(self.judge, neighbour, statistics.median(times_s))
        return neighbour

    def judge(self, neighbour, quiet_s):
        n = neighbour.n_answers.value
        eventually(lambda: neighbour.n_answers.value > n or not neighbour.is_alive(),
                   "the well-behaved client is answered")
        times_s, wrong = neighbour.result()
        self.assertIsNone(wrong)
        during_s = statistics.median(times_s)
        print(f"# {self._testMethodName[5:]}: latency of the others {1000 * during_s:.1f} ms, "
              f"{during_s / quiet_s:.2f} times the quiet {1000 * quiet_s:.1f}", flush=True)

    def exchange(self, data, finish=True):
        """Everything that comes back for the bytes, the connection being half closed after them."""
        with self.server.socket() as s:
            try:
                s.sendall(data)
                if finish:
                    s.shutdown(socket.SHUT_WR)
            except OSError:
                pass
            return until_closed(s)

    # ------------------------------------------------------------ slow ones

    def test_slow_loris(self):
        """A byte now and then, in the header or the body: cut when the request's time is over."""
        self.meanwhile()
        sockets = [self.server.socket() for _ in range(200)]
        texts = [post("/v1/completions", b'{"prompt": "x"}', "X-Long: " + "y" * 2000),
                 b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 10000\r\n\r\n" + b" " * 9000]
        end, at, closed = time.monotonic() + REQUEST_S + 4, 0, 0
        for i, s in enumerate(sockets):
            s.sendall(texts[i % 2][:60])
        while time.monotonic() < end and closed < len(sockets):
            time.sleep(0.1)
            at, closed = at + 1, 0
            for i, s in enumerate(sockets):
                try:
                    s.sendall(texts[i % 2][60 + at:61 + at])
                except ConnectionError:
                    closed += 1
        self.assertEqual(closed, len(sockets))
        for s in sockets:
            s.close()

    def test_half_open(self):
        """Connected, and nothing; or a request's beginning, and nothing."""
        self.meanwhile()
        sockets = [self.server.socket() for _ in range(100)]
        for s in sockets:
            s.sendall(b"POST /v1/completions HTTP/1.1\r\n")
        start = time.monotonic()
        for s in sockets:
            self.assertIn(statuses(until_closed(s)), ([], [408]))
            s.close()
        self.assertLess(time.monotonic() - start, REQUEST_S + serving.PATIENCE_S)

    def test_never_reads(self):
        """Answers for a client that takes none of them are not heaped up."""
        self.meanwhile()
        sockets = []
        for _ in range(50):
            s = self.server.socket()
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
            s.sendall(post("/v1/completions", json.dumps({"prompt": PROMPT, "stream": True, "max_tokens": 20}).encode()))
            sockets.append(s)
        time.sleep(0.5)
        for s in sockets:
            s.close()
        eventually(lambda: self.server.metrics()["vllm:num_requests_running"] <= 1, "their work ends")

    def test_idle_connections(self):
        neighbour = self.meanwhile()
        if self.n_idle < N_IDLE:
            print(f"# the limit of open files allows {self.n_idle} connections", flush=True)
        sockets = [self.server.socket() for _ in range(self.n_idle)]
        eventually(lambda: self.server.n_files() > self.n_idle, "all are taken")
        n = neighbour.n_answers.value
        eventually(lambda: neighbour.n_answers.value > n + 20, "the others are served")
        for s in (sockets[0], sockets[-1]):  # they are as good as any
            s.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            self.assertTrue(s.recv(100).startswith(b"HTTP/1.1 200"))
        for s in sockets:
            s.close()
        eventually(lambda: self.server.n_files() < 100, "all are given back")

    # ------------------------------------------------------------ odd forms

    def test_oversized(self):
        self.meanwhile()
        for data in (post("/v1/completions", b" " * (2 << 20)),
                     post("/v1/completions", b"", "Content-Length: 99999999999999")):
            self.assertIn(statuses(self.exchange(data)), ([413], []))
        # The library's own refusal, which repeats its header.
        self.assertEqual(set(statuses(self.exchange(post("/v1/completions", b"", "Content-Length: 1" + "0" * 25)))), {413})
        chunk = b"10000\r\n" + b" " * 65536 + b"\r\n"
        self.assertIn(statuses(self.exchange(post("/v1/completions", chunk * 40 + b"0\r\n\r\n",
                                                  "Transfer-Encoding: chunked"))), ([413], []))
        self.assertIn(statuses(self.exchange(b"GET /health HTTP/1.1\r\nHost: x\r\nA: " + b"x" * 200000 + b"\r\n\r\n")),
                      ([431], [400], []))
        self.assertIn(statuses(self.exchange(b"GET /health" + b"x" * 200000 + b" HTTP/1.1\r\nHost: x\r\n\r\n")),
                      ([414], [431], [400], []))
        self.assertIn(statuses(self.exchange(b"GET /health HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 50000 + b"\r\n")),
                      ([431], [400], []))

    def test_pipelined(self):
        """Several requests at once are answered one after the other, each rightly."""
        self.meanwhile()
        body = json.dumps({"prompt": PROMPT, "temperature": 0, "max_tokens": 8, "ignore_eos": True}).encode()
        data = (post("/v1/completions", body) + b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n") * 5
        data += b"GET /version HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        got = self.exchange(data, finish=False)
        self.assertEqual(statuses(got), [200] * 11)
        self.assertEqual(got.count(json.dumps(self.want)[1:-1].encode()), 5)

    def send_in_chunks(self, extension):
        """The whole answer to a body in one-byte chunks, sent a byte at a time."""
        body = json.dumps({"prompt": PROMPT, "temperature": 0, "max_tokens": 8, "ignore_eos": True}).encode()
        chunks = b"".join(b"1%s\r\n%c\r\n" % (extension, byte) for byte in body) + b"0\r\nTrailer: x\r\n\r\n"
        data = post("/v1/completions", chunks, "Transfer-Encoding: chunked", "Connection: close")
        with self.server.socket() as s:
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                for i in range(0, len(data)):
                    s.sendall(data[i:i + 1])
            except OSError:  # refused before all was sent
                pass
            return until_closed(s)

    def test_tiny_chunks(self):
        """A body that comes as one-byte chunks, one-byte packets too, is the same body."""
        self.meanwhile()
        got = self.send_in_chunks(b"")
        self.assertEqual(statuses(got), [200])
        self.assertIn(json.dumps(self.want)[1:-1].encode(), got)

    def test_chunk_extensions(self):
        """libmicrohttpd 0.9 skips them, 1.0 refuses them: the right answer, or 400."""
        self.meanwhile()
        got = self.send_in_chunks(b";ext=1")
        if statuses(got) == [200]:
            self.assertIn(json.dumps(self.want)[1:-1].encode(), got)
        elif got:  # a refusal can be lost with the rest of the request
            self.assertEqual(statuses(got), [400])

    def test_not_http(self):
        self.meanwhile()
        for data in (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200), b"\0" * 1000, b"\r\n" * 1000,
                     b"GET / HTTP/9.9\r\nHost: x\r\n\r\n", b"GET\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
                     b"GET /health HTTP/1.1\r\n\r\n",  # no Host
                     post("/v1/completions", b"{}", "Content-Length: 2", "Content-Length: 3"),
                     post("/v1/completions", b"2\r\n{}\r\n0\r\n\r\n", "Transfer-Encoding: chunked", "Content-Length: 5"),
                     post("/v1/completions", b"zz\r\n{}\r\n", "Transfer-Encoding: chunked"),
                     post("/v1/completions", b"{}", "Content-Length: -1"),
                     b"GET /health HTTP/1.1\r\nHost: x\r\nBad header\r\n\r\n"):
            with self.subTest(data[:60]):
                self.assertTrue(all(400 <= x < 600 for x in statuses(self.exchange(data))))

    def test_odd_json(self):
        """Not UTF-8, deep, doubled, enormous: 400, or for what JSON allows an answer."""
        self.meanwhile()
        for body in (b'{"prompt": "\xff\xfe"}', b'{"prompt": "\xed\xa0\x80"}', b'{"prompt": "\\ud800"}',
                     b"[" * 100000, b'{"a":' * 50000, b'{"prompt": ' + b"[" * 5000 + b"]" * 5000 + b"}",
                     b'{"prompt": "x", "max_tokens": 1e400}', b'{"prompt": "x", "max_tokens": 1%s}' % (b"0" * 5000),
                     b'{"prompt": "x", "seed": 18446744073709551616}', b'{"prompt": "x", "temperature": NaN}',
                     b'{"prompt": "x", "temperature": Infinity}', b'{"prompt": "x", "top_k": 1.5}',
                     b'{"prompt": [%s]}' % b",".join([b"1"] * 100000), b'{"prompt": "%s"}' % (b"x" * 900000),
                     b'{"prompt": "x", "logit_bias": {"1": 1e999}}', b"", b"null", b"\0", b"{}{}", b'"x"',
                     b'\xef\xbb\xbf{"prompt": 1}'):
            with self.subTest(body[:60]):
                answer = self.server.ask("POST", "/v1/completions", body)
                self.assertEqual(answer.status, 400, answer)
                self.assertEqual(answer.json()["error"]["code"], 400)
        for body in (b'{"prompt": "x", "prompt": "%s", "temperature": 0, "max_tokens": 8, "ignore_eos": true}' %
                     PROMPT.encode(),
                     b'{"prompt": "%s", "temperature": 0e99, "max_tokens": 8, "ignore_eos": true, "more": %s}' %
                     (PROMPT.encode(), b"[" * 30 + b"]" * 30)):
            answer = self.server.ask("POST", "/v1/completions", body)
            if b'"more"' in body or answer.status == 200:
                self.assertEqual(answer.json()["choices"][0]["text"], self.want)
            else:
                self.assertEqual(answer.status, 400)  # a doubled key may be refused, not guessed at


if __name__ == "__main__":
    multiprocessing.set_start_method("fork")
    tap.main()
