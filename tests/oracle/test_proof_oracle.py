"""check-accuracy against transformers: right models pass exactly, and one scaled matrix is found."""
import json
import shutil
import subprocess
import sys

import pytest
from conftest import PROGRAM, ROOT
from safetensors.torch import load_file, save_file

CODE, CHAT = ROOT / "models" / "phi-tiny-code", ROOT / "models" / "phi3-tiny-chat"
RANDOM = {"phi-1": 51200, "Phi-4-mini": 200064}  # preset, vocabulary
N_LAYERS = 4


def write_reference(model, file, *arguments):
    """By the script as a user calls it, in this environment."""
    subprocess.run([sys.executable, ROOT / "python" / "phidelity" / "reference.py", model, file, "--layers", *arguments],
                   check=True, capture_output=True, timeout=900)


def check(model, reference, *arguments):
    result = subprocess.run([PROGRAM, "check-accuracy", model, "-r", reference, "--json", "--locate", *arguments],
                            capture_output=True, stdin=subprocess.DEVNULL, timeout=900)
    assert result.returncode in (0, 1) and result.stdout, result.stderr.decode()
    return result.returncode, json.loads(result.stdout)


def scaled_copy(model, copy, tensor, factor=1.05):
    shutil.copytree(model, copy)
    file = copy / "model.safetensors"
    tensors = load_file(file)
    tensors[tensor] = (tensors[tensor].double() * factor).to(tensors[tensor].dtype)
    file.unlink()
    save_file(tensors, file, metadata={"format": "pt"})
    return copy


@pytest.fixture(scope="module")
def bundled(tmp_path_factory):
    """{model: reference} of both bundled models."""
    folder = tmp_path_factory.mktemp("references")
    files = {}
    for model in (CODE, CHAT):
        files[model] = folder / f"{model.name}.safetensors"
        write_reference(model, files[model])
    return files


@pytest.mark.parametrize("model", [CODE, CHAT], ids=lambda m: m.name)
def test_bundled_models(bundled, model, figure):
    code, report = check(model, bundled[model], "--dtype", "float32", "--min-top1", "100", "--max-kl", "1e-7")
    total = report["total"]
    figure("positions, max KL, max difference",
           f"{total['n_positions']} {total['max_kl']:.1e} {total['max_difference']:.1e}")
    assert code == 0 and total["top1_percent"] == 100 and total["max_kl"] < 1e-7
    assert report["locate"]["first"] is None
    assert len(report["prompts"]) == 5


@pytest.mark.parametrize("model", [CODE, CHAT], ids=lambda m: m.name)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_shorter_dtypes_keep_the_default_limits(bundled, model, dtype, figure):
    code, report = check(model, bundled[model], "--dtype", dtype)
    total = report["total"]
    figure(f"{dtype}: top-1 %, max KL", f"{total['top1_percent']:.2f} {total['max_kl']:.1e}")
    assert code == 0


@pytest.mark.parametrize("model, tensor, expected", [
    (CODE, "model.layers.2.mlp.fc1.weight", "layer 2, MLP"),
    (CODE, "model.layers.1.self_attn.k_proj.weight", "layer 1, attention"),
    (CODE, "lm_head.weight", "the logits (last norm and head)"),
    (CHAT, "model.layers.3.mlp.down_proj.weight", "layer 3, MLP"),
    (CHAT, "model.layers.0.self_attn.qkv_proj.weight", "layer 0, attention"),
    (CHAT, "model.embed_tokens.weight", "the embeddings"),
], ids=str)
def test_a_scaled_matrix_is_found(bundled, tmp_path, model, tensor, expected):
    copy = scaled_copy(model, tmp_path / "copy", tensor)
    code, report = check(copy, bundled[model], "--dtype", "float32")
    assert (code, report["locate"]["first"]) == (1, expected)


@pytest.mark.parametrize("preset", list(RANDOM))
def test_random_checkpoints(checkpoint, tmp_path, preset, figure):
    model = checkpoint(preset, N_LAYERS)
    prompts = tmp_path / "prompts.jsonl"
    ids = [[(7919 * i * i + 13 * i + k) % (RANDOM[preset] - 3) + 3 for i in range(n)] for k, n in enumerate((1, 17, 40))]
    prompts.write_text("".join(json.dumps(x) + "\n" for x in ids))
    reference = tmp_path / "reference.safetensors"
    write_reference(model, reference, "--prompts", prompts)
    code, report = check(model, reference, "--dtype", "float32", "--min-top1", "100", "--max-kl", "1e-7")
    total = report["total"]
    figure("max KL, max difference, worst layer", f"{total['max_kl']:.1e} {total['max_difference']:.1e} "
           f"{max(s['difference'] for s in report['locate']['stages']):.1e}")
    assert code == 0 and total["top1_percent"] == 100
    names = list(load_file(model / "model.safetensors")) if (model / "model.safetensors").exists() else []
    if not names:
        return  # sharded: the bundled models show the other half
    matrix = next(n for n in sorted(names) if n.startswith("model.layers.2.mlp") and n.endswith("weight"))
    copy = scaled_copy(model, tmp_path / "copy", matrix)
    code, report = check(copy, reference, "--dtype", "float32")
    shutil.rmtree(copy)
    assert (code, report["locate"]["first"]) == (1, "layer 2, MLP")
