"""schemathesis over /openapi.json: whatever is sent, an answer that the description allows, and never a 500.

PHI_SCHEMA_SECONDS (45) is how long it goes on.
"""
import os
import re
import subprocess
import sys
from pathlib import Path

from conftest import ROOT

CHAT = ROOT / "models" / "phi3-tiny-chat"
SECONDS = int(os.environ.get("PHI_SCHEMA_SECONDS", 45))
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
HANG_S = 30


def test_schema(serve, tmp_path, figure):
    server = serve(CHAT, "--served-model-name", "phi", "--max-model-len", 256, "--disable-uvicorn-access-log")
    result = subprocess.run(
        [Path(sys.executable).with_name("schemathesis"), "--no-color", "run",
         f"http://127.0.0.1:{server.port}/openapi.json", "--checks", CHECKS, "--phases", "coverage,fuzzing",
         "--max-time", str(SECONDS), "--request-timeout", str(HANG_S), "--seed", "1",
         "--continue-on-failure", "--no-shrink"],
        cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS + 20 * HANG_S,
        env=dict(os.environ, SCHEMATHESIS_HOOKS="schema_hooks", PYTHONPATH=str(Path(__file__).parent)))
    assert result.returncode == 0, result.stdout[-12000:] + result.stderr[-3000:]
    cases = int(re.search(r"([\d,]+) generated", result.stdout)[1].replace(",", ""))
    answered = sum(v for k, v in server.metrics().items() if k.startswith("vllm:request_success_total"))
    figure(f"requests made up in {SECONDS} s", f"{cases}, {answered:.0f} of them reached the model")
    assert cases > 10 * SECONDS and answered > 0
