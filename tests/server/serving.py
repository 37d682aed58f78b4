"""`phidelity serve` for tests: starting it, asking it, looking at what it tells, ending it.

Standard library only. PHIDELITY names the program, PHI_TESTS the tests' folder, PHI_MODELS the bundled
models. The oracle suite uses this module too.
"""
import http.client
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("PHIDELITY", str(ROOT / "build" / "phidelity"))
MODELS = Path(os.environ.get("PHI_MODELS", ROOT / "models"))
GOLDEN = Path(os.environ.get("PHI_TESTS", ROOT / "tests")) / "golden"
CODE, CHAT = MODELS / "phi-tiny-code", MODELS / "phi3-tiny-chat"

# A build with a sanitizer is several times slower, and its memory says nothing.
SANITIZED = os.path.exists(PROGRAM) and any(
    name in Path(PROGRAM).read_bytes() for name in (b"__asan_init", b"__tsan_init"))
PATIENCE_S = 120 if SANITIZED else 30


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def eventually(condition, what, timeout_s=PATIENCE_S):
    """Waits until condition() is true and returns what it returned."""
    end = time.monotonic() + timeout_s
    while not (value := condition()):
        if time.monotonic() > end:
            raise AssertionError(f"not within {timeout_s} s: {what}")
        time.sleep(0.005)
    return value


def run(*arguments, stdin=b""):
    """Standard output of one run of the program, as text."""
    result = subprocess.run([PROGRAM, *map(str, arguments)], input=stdin, capture_output=True,
                            timeout=10 * PATIENCE_S)
    if result.returncode:
        raise AssertionError(f"exit {result.returncode}: {result.stderr.decode(errors='replace')}")
    return result.stdout.decode()


def generate(model, prompt, *flags):
    """The first answer of `phidelity generate`, as its --json object."""
    text = run("generate", model, "-", "--json", "--temperature", 0, *flags, stdin=prompt.encode())
    return json.loads(text)["outputs"][0]


class Answer:
    def __init__(self, response):
        self.status = response.status
        self.headers = response.headers
        self.body = response.read()

    def json(self):
        return json.loads(self.body)

    def __repr__(self):
        return f"{self.status} {self.body[:500]!r}"


class UnixConnection(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.host)


class Server:
    """One `phidelity serve`. With wait=False it need not have begun to listen yet."""

    def __init__(self, model, *flags, port=None, uds=None, tls=None, wait=True, env=None):
        self.port, self.uds, self.tls = port or free_port(), uds and str(uds), tls
        self.folder = Path(tempfile.mkdtemp(prefix="phidelity-serve-"))
        where = ["--uds", uds] if uds else ["--host", "127.0.0.1", "--port", self.port]
        self.out = open(self.folder / "out", "wb")
        self.process = subprocess.Popen(
            [PROGRAM, "serve", str(model), *map(str, where), *map(str, flags)],
            stdin=subprocess.DEVNULL, stdout=self.out, stderr=self.out, env=dict(os.environ, **env or {}))
        if wait:
            self.wait()

    # ------------------------------------------------------------ its life

    def wait(self):
        """Until it can serve."""
        def healthy():
            if self.process.poll() is not None:
                raise AssertionError(f"serve ended with {self.process.returncode}:\n{self.log()}")
            try:
                return self.get("/health").status == 200
            except OSError:
                return False
        eventually(healthy, "/health answers 200", 4 * PATIENCE_S)

    def log(self):
        return (self.folder / "out").read_text(errors="replace")

    def error_lines(self):
        return [line for line in self.log().splitlines()
                if re.search(r"^ERROR|error:|Sanitizer|Assertion", line)]

    def terminate(self):
        self.process.send_signal(signal.SIGTERM)

    def end(self):
        """SIGTERM: everything must be given back, nothing be said about errors, the exit code be 0."""
        self.terminate()
        code = self.process.wait(PATIENCE_S)
        assert code == 0, f"exit code {code}:\n{self.log()}"
        assert not self.error_lines(), self.log()

    def close(self):
        """Whatever happened: leaves no process and no file."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.out.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    # ------------------------------------------------------------ asking it

    def connection(self, timeout_s=10 * PATIENCE_S):
        if self.uds:
            return UnixConnection(self.uds, timeout=timeout_s)
        if self.tls:
            return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=timeout_s, context=self.tls)
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_s)

    def socket(self, timeout_s=10 * PATIENCE_S):
        return socket.create_connection(("127.0.0.1", self.port), timeout=timeout_s)

    def ask(self, method, path, body=None, headers=(), keep=None):
        """One request; body as it is, or as JSON. keep: a connection to use again."""
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        all_headers = {"Content-Type": "application/json", **dict(headers)} if body is not None else dict(headers)
        connection = keep or self.connection()
        try:
            connection.request(method, path, body, all_headers)
            return Answer(connection.getresponse())
        finally:
            if not keep:
                connection.close()

    def get(self, path, **headers):
        return self.ask("GET", path, headers=headers)

    def post(self, path, **fields):
        return self.ask("POST", path, fields)

    def complete(self, prompt, **fields):
        """The body of a completion that must succeed."""
        answer = self.post("/v1/completions", prompt=prompt, **fields)
        assert answer.status == 200, answer
        return answer.json()

    def chat(self, messages, **fields):
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        answer = self.post("/v1/chat/completions", messages=messages, **fields)
        assert answer.status == 200, answer
        return answer.json()

    def stream(self, path, **fields):
        """The events of a stream that must end well, [DONE] left out."""
        answer = self.post(path, stream=True, **fields)
        assert answer.status == 200, answer
        assert answer.headers["Content-Type"].split(";")[0] == "text/event-stream", answer.headers
        return events(answer.body)

    # ------------------------------------------------------------ what it tells

    def metrics(self):
        """{"name{labels}": value}; the labels without model_name and engine."""
        answer = self.get("/metrics")
        assert answer.status == 200, answer
        found = {}
        for line in answer.body.decode().splitlines():
            if line.startswith("#"):
                continue
            name, labels, value = re.fullmatch(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)", line).groups()
            labels = re.sub(r'(engine|model_name)="[^"]*",?', "", labels or "").rstrip(",")
            found[f"{name}{{{labels}}}" if labels else name] = float(value)
        return found

    def is_idle(self):
        m = self.metrics()
        return (m["vllm:num_requests_running"] == 0 and m["vllm:num_requests_waiting"] == 0 and
                m["vllm:kv_cache_usage_perc"] == 0)

    def wait_idle(self):
        eventually(self.is_idle, "no request and no KV block is left")

    def n_files(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def rss_bytes(self):
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) * 1024


def events(body):
    """The data of server-sent events, parsed; checks their framing and the [DONE] at the end."""
    assert body.endswith(b"data: [DONE]\n\n"), body[-200:]
    found = []
    for event in body.decode().split("\n\n")[:-2]:
        assert event.startswith("data: {") and "\n" not in event, event
        found.append(json.loads(event[6:]))
    return found


class Served:
    """Mixed into a TestCase: one server with `flags` for all its cases, the last of which ends it."""
    model, flags, env = CODE, (), {}

    @classmethod
    def setUpClass(cls):
        cls.server = Server(cls.model, *cls.flags, env=cls.env)

    @classmethod
    def tearDownClass(cls):
        cls.server.close()

    def test_zz_ends_cleanly(self):
        self.server.wait_idle()
        self.server.end()
