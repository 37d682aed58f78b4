"""Shared by the oracle suite: the program under test, random checkpoints, figures at the end.

`make check-oracle` runs this folder with pytest in an environment that holds requirements.txt.
PHIDELITY names the program (default build/phidelity), PHI_ORACLE_CACHE a folder where the
real-shape checkpoints are kept between runs (several GB; default a temporary one).
"""
import os
import shutil
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
# Most of the suite is Python, in a process for each core; two threads of torch on a busy core spin for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")
ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "tests" / "server")]

import make_checkpoint  # noqa: E402  (tools/ is on the path only now)
import serving  # noqa: E402

PROGRAM = Path(serving.PROGRAM).absolute()


# A unit of xdist's work is a file, or its tests with one parameter where such a part is listed here: what units take, in
# seconds of a core. The longest begin first, so that the workers end together.
COSTS_S = {
    "test_logits_oracle[Phi-4]": 100, "test_logits_oracle[Phi-4-mini]": 75, "test_template_oracle": 70,
    "test_deployment_oracle": 65, "test_aisbench": 60, "test_server_schema": 50, "test_proof_oracle": 40,
    "test_proof_oracle[Phi-4-mini]": 40, "test_logits_oracle[phi-2]": 30, "test_logits_oracle[phi-1]": 30,
    "test_generate_oracle": 27, "test_eval_oracle": 25, "test_proof_oracle[phi-1]": 25, "test_tokenizer_oracle": 45,
    "test_tokenizer_oracle[Phi-4-mini-instruct]": 21, "test_tokenizer_oracle[phi-4]": 19, "test_tokenizer_oracle[phi-1]": 18,
    "test_tokenizer_oracle[Phi-3.5-mini-instruct]": 18, "test_logits_oracle[Phi-3-mini-4k]": 23,
    "test_logits_oracle[Phi-3.5-mini]": 23, "test_server_lm_eval": 18,
}
USUAL_S = 15


def unit_of(nodeid):
    path, _, test = nodeid.partition("::")
    file = Path(path).stem
    part = f"{file}[{test.partition('[')[2]}"
    return part if part in COSTS_S else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    from xdist.scheduler import LoadScopeScheduling

    class Units(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return unit_of(nodeid)
    return Units(config, log)


@pytest.hookimpl(trylast=True)  # after pytest's own order
def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: -COSTS_S.get(unit_of(item.nodeid), USUAL_S))


def run_program(*arguments):
    """Standard output of the program; a failure shows its command and its words."""
    result = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True,
                            stdin=subprocess.DEVNULL, timeout=1800)
    if result.returncode != 0:
        shown = " ".join(str(a) if len(str(a)) < 80 else str(a)[:60] + "..." for a in arguments)
        pytest.fail(f"phidelity {shown}\nexit {result.returncode}: {result.stderr.strip()}",
                    pytrace=False)
    return result.stdout


@pytest.fixture(scope="session")
def phidelity():
    if not os.access(PROGRAM, os.X_OK):
        pytest.exit(f"no program at {PROGRAM}: build it, or set PHIDELITY", returncode=1)
    return run_program


def cached_checkpoint(parent, preset, n_layers):
    """A folder with random weights, made once."""
    recipe = zlib.crc32(Path(make_checkpoint.__file__).read_bytes())
    folder = parent / f"{preset}-{n_layers}-{recipe:08x}"
    if not folder.exists():  # appears whole, whoever else is making it
        unfinished = folder.with_name(f"{folder.name}.{os.getpid()}")
        make_checkpoint.make(preset, unfinished, n_layers=n_layers)
        try:
            unfinished.rename(folder)
        except OSError:
            shutil.rmtree(unfinished)
    return folder


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory):
    """checkpoint(preset, n_layers): cached_checkpoint in PHI_ORACLE_CACHE, or for this run."""
    cached = os.environ.get("PHI_ORACLE_CACHE")
    parent = Path(cached) if cached else tmp_path_factory.mktemp("checkpoints")
    yield lambda preset, n_layers: cached_checkpoint(parent, preset, n_layers)
    if not cached:
        shutil.rmtree(parent, ignore_errors=True)


@pytest.fixture(scope="module")
def serve(phidelity):
    """serve(model, *flags): a `phidelity serve` that must end well when the module is through."""
    servers = []

    def start(model, *flags):
        servers.append(serving.Server(model, *flags))
        return servers[-1]

    yield start
    try:
        for server in servers:
            server.wait_idle()
            server.end()
    finally:
        for server in servers:
            server.close()


@pytest.fixture
def figure(request):
    """figure(what, value): a measured number to show in the summary."""
    return lambda what, value: request.node.user_properties.append((what, str(value)))


def pytest_terminal_summary(terminalreporter):
    """Also what worker processes measured: a report carries its test's properties to this one."""
    reports = [r for kind in ("passed", "failed") for r in terminalreporter.stats.get(kind, [])
               if r.user_properties]
    if reports:
        terminalreporter.section("measured")
    for report in reports:
        for what, value in report.user_properties:
            name = report.nodeid.rpartition("::")[2]
            terminalreporter.write_line(f"{name:<44} {what:<44} {value}")
