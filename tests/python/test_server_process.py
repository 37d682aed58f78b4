#!/usr/bin/env python3
"""phidelity.server_process: a server is ready when its object is, says why it is not, and never outlives
the program that started it. phidelity.http_json: what it says about wrong addresses and refusals.

PYTHONPATH names the built package, PHI_MODELS the bundled models. Prints TAP.
"""
import os
import signal
import subprocess
import sys
import threading
import unittest
import unittest.mock
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "server")]
import tap
from serving import CHAT, PATIENCE_S, eventually

from phidelity.http_json import HttpError, ask
from phidelity.server_process import ServerError, ServerProcess, flags_of, free_port

# Prints the server's pid, then ends in the way that its argument says.
SCRIPT = """
import os, sys, time
from phidelity.server_process import ServerProcess
server = ServerProcess(sys.argv[1])
print(server.pid, flush=True)
if sys.argv[2] == "exit":
    sys.exit(3)
if sys.argv[2] == "raise":
    with server:
        raise ValueError
time.sleep(600)
"""


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


class Life(unittest.TestCase):
    def test_ready_when_made_and_gone_after(self):
        with ServerProcess(str(CHAT), ["--dtype=float32"]) as server:
            body = ask(server.url, "/v1/completions", {"model": server.model, "prompt": "Tom", "max_tokens": 2})
            self.assertEqual(body["usage"]["completion_tokens"], 2)
            self.assertIn("http", server.log_tail())
            self.assertTrue(is_alive(server.pid))
            server.check()
        self.assertFalse(is_alive(server.pid))
        self.assertEqual(server.stop(), 0)
        with self.assertRaisesRegex(ServerError, "the server ended"):
            server.check()

    def test_the_environment_sets_nothing(self):
        with unittest.mock.patch.dict(os.environ, VLLM_API_KEY="secret", PHI_LOG_LEVEL="nonsense"):
            with ServerProcess(str(CHAT)) as server:
                self.assertEqual(ask(server.url, "/v1/models")["object"], "list")

    def test_a_wrong_flag_is_told(self):
        with self.assertRaisesRegex(ServerError, r"exit code 2\):\n(?s:.*)--no-such-flag"):
            ServerProcess(str(CHAT), ["--no-such-flag"])

    def test_a_missing_model_is_told(self):
        with self.assertRaisesRegex(ServerError, "(?s)exit code 1.*/nowhere"):
            ServerProcess("/nowhere")

    def test_patience_ends(self):
        with self.assertRaisesRegex(ServerError, "not ready within 0 s"):
            ServerProcess(str(CHAT), ready_timeout_s=0)

    def run_script(self, how):
        process = subprocess.Popen([sys.executable, "-c", SCRIPT, str(CHAT), how], stdout=subprocess.PIPE,
                                   stderr=subprocess.DEVNULL)
        self.addCleanup(process.stdout.close)
        return process, int(process.stdout.readline())

    def test_ends_with_the_program(self):
        for how, code in (("exit", 3), ("raise", 1)):
            process, pid = self.run_script(how)
            self.assertEqual(process.wait(PATIENCE_S), code)
            self.assertFalse(is_alive(pid), how)

    def test_ends_when_the_program_is_interrupted_or_killed(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            process, pid = self.run_script("wait")
            process.send_signal(number)
            process.wait(PATIENCE_S)
            eventually(lambda pid=pid: not is_alive(pid), f"the server is gone after {number}")


class Flags(unittest.TestCase):
    def test_spelling(self):
        self.assertEqual(flags_of({"max_model_len": 512, "dtype": "float32", "quantization": None,
                                   "enable_prefix_caching": False, "enforce_eager": True}),
                         ["--max-model-len=512", "--dtype=float32", "--no-enable-prefix-caching", "--enforce-eager"])


class Http(unittest.TestCase):
    def test_addresses(self):
        for url in ("127.0.0.1:80", "ftp://host", "http://", ""):
            with self.assertRaisesRegex(ValueError, "expected http://host:port"):
                ask(url, "/health")

    def test_nobody_there(self):
        url = f"http://127.0.0.1:{free_port()}"
        with self.assertRaisesRegex(OSError, f"{url}/health: Connection refused"):
            ask(url, "/health")

    def test_refusals(self):
        with ServerProcess(str(CHAT)) as server:
            with self.assertRaisesRegex(HttpError, r"/v1/completions: status 404: .*\bnobody\b") as caught:
                ask(server.url, "/v1/completions", {"model": "nobody", "prompt": "Tom"})
            self.assertEqual(caught.exception.status, 404)
            with self.assertRaisesRegex(HttpError, "status 200: not JSON"):
                ask(server.url, "/metrics")

    def test_what_is_no_http(self):
        import socket
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            s.listen()

            def answer():
                connection = s.accept()[0]
                connection.recv(1000)
                connection.sendall(b"hello\r\n\r\n")
                connection.close()
            thread = threading.Thread(target=answer)
            thread.start()
            with self.assertRaisesRegex(OSError, r"not an HTTP answer \(BadStatusLine\)"):
                ask(f"http://127.0.0.1:{s.getsockname()[1]}", "/health")
            thread.join()


if __name__ == "__main__":
    tap.main()
