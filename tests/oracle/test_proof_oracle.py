"""check-accuracy against transformers: right models pass exactly, and one scaled matrix is found."""
import contextlib
import importlib.util
import json
import re
import shutil
import struct
import subprocess
import sys

import pytest
import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import QuantizationConfig
from conftest import PROGRAM, ROOT
from safetensors.torch import load_file, save_file

REFERENCE = ROOT / "python" / "phidelity" / "reference.py"  # works as a plain script, too
spec = importlib.util.spec_from_file_location("phidelity_reference", REFERENCE)
reference_script = importlib.util.module_from_spec(spec)
spec.loader.exec_module(reference_script)

CODE, CHAT = ROOT / "models" / "phi-tiny-code", ROOT / "models" / "phi3-tiny-chat"
RANDOM = {"phi-1": 51200, "Phi-4-mini": 200064}  # preset, vocabulary
N_LAYERS = 4


def write_reference(model, file, *arguments):
    """By the script, in this process: importing torch and transformers takes longer than most references."""
    reference_script.write(reference_script.arguments(list(map(str, (model, file, "--layers", *arguments)))))


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
    """{model: reference} of both bundled models, one of them made as a user calls the script."""
    folder = tmp_path_factory.mktemp("references")
    files = {model: folder / f"{model.name}.safetensors" for model in (CODE, CHAT)}
    subprocess.run([sys.executable, REFERENCE, CODE, files[CODE], "--layers"],
                   check=True, capture_output=True, timeout=900)
    write_reference(CHAT, files[CHAT])
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


PARTS = {"self_attn": "attention", "mlp": "MLP"}


def each_kind_of_matrix(file):
    """A name of each, in layer 0, 1, 2, 3, 0, ...; and how --locate calls its place."""
    kinds = {}
    for name in sorted(tensor_places(file)):
        match = re.fullmatch(r"model\.layers\.0\.((self_attn|mlp)\.\w+\.weight)", name)
        if match:
            layer = len(kinds) % N_LAYERS
            kinds[f"model.layers.{layer}.{match[1]}"] = f"layer {layer}, {PARTS[match[2]]}"
        elif name == "model.embed_tokens.weight":
            kinds[name] = "the embeddings"
        elif name == "lm_head.weight":
            kinds[name] = "the logits (last norm and head)"
    return kinds


def tensor_places(file):
    """{name: (first byte, end)} in a safetensors file of bfloat16 or float16."""
    with open(file, "rb") as f:
        n = struct.unpack("<Q", f.read(8))[0]
        header = json.loads(f.read(n))
    header.pop("__metadata__", None)
    return {name: (8 + n + t["data_offsets"][0], 8 + n + t["data_offsets"][1], t["dtype"])
            for name, t in header.items()}


@contextlib.contextmanager
def scaled_in_place(file, name, factor=1.05):
    """The gigabytes around the matrix are not copied."""
    begin, end, dtype = tensor_places(file)[name]
    dtype = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32}[dtype]
    with open(file, "r+b") as f:
        f.seek(begin)
        before = bytearray(f.read(end - begin))
        after = (torch.frombuffer(before, dtype=dtype).float() * factor).to(dtype)
        f.seek(begin)
        f.write(after.view(torch.uint8).numpy())
        f.flush()
        yield
        f.seek(begin)
        f.write(before)


@pytest.mark.parametrize("preset", list(RANDOM))
def test_random_checkpoints(checkpoint, tmp_path, preset, figure):
    """The real shapes, cut to four layers: exact, and each kind of matrix is found when it is scaled.

    Prompts are short, since each position costs a product with the whole vocabulary in each check: one of a single
    token, and one that goes over the end of a block of 16 keys.
    """
    model = checkpoint(preset, N_LAYERS)
    prompts = tmp_path / "prompts.jsonl"
    ids = [[(7919 * i * i + 13 * i + k) % (RANDOM[preset] - 3) + 3 for i in range(n)] for k, n in enumerate((1, 17))]
    prompts.write_text("".join(json.dumps(x) + "\n" for x in ids))
    reference = tmp_path / "reference.safetensors"
    write_reference(model, reference, "--prompts", prompts)
    code, report = check(model, reference, "--dtype", "float32", "--min-top1", "100", "--max-kl", "1e-7")
    total = report["total"]
    figure("max KL, max difference, worst layer", f"{total['max_kl']:.1e} {total['max_difference']:.1e} "
           f"{max(s['difference'] for s in report['locate']['stages']):.1e}")
    assert code == 0 and total["top1_percent"] == 100
    copy = tmp_path / "copy"
    shutil.copytree(model, copy)
    kinds = each_kind_of_matrix(copy / "model.safetensors")
    assert len(kinds) == (8 if preset == "phi-1" else 5)
    found = {}
    for name in kinds:
        with scaled_in_place(copy / "model.safetensors", name):
            code, report = check(copy, reference, "--dtype", "float32")
        found[name] = report["locate"]["first"] if code == 1 else f"passes with code {code}"
    shutil.rmtree(copy)
    assert found == kinds


# ------------------------------------------------------------------------------------------
# Integer weights

@pytest.fixture(scope="module", params=["w8a8", "w4a16"])
def quantized(request, phidelity, tmp_path_factory):
    folder = tmp_path_factory.mktemp("quantized") / request.param
    phidelity("quantize", CODE, folder, "--scheme", request.param)
    return folder


def test_integers_become_the_librarys_floats(quantized):
    tensors = load_file(quantized / "model.safetensors")
    floats, layers = reference_script.dequantized(tensors)
    config = QuantizationConfig.model_validate(json.loads((quantized / "config.json").read_text())["quantization_config"])
    compressor = BaseCompressor.get_value_from_registry(config.format)
    assert len(layers) >= 4 * 6
    for layer in layers:
        parts = {n.removeprefix(layer + "."): t for n, t in tensors.items() if n.startswith(layer + ".")}
        parts["weight_scale"] = parts["weight_scale"].float()
        assert torch.equal(floats[layer + ".weight"],
                           compressor.decompress(parts, config.config_groups["group_0"])["weight"].float()), layer
    assert not any("scale" in name or "packed" in name for name in floats)


def test_integer_weights_by_a_reference_of_floats(quantized, tmp_path, figure):
    """What the activations' rounding to 8 bits does, and that the reference which rounds them, too, is near."""
    differences = []
    for more in ((), ("--int8-activations",)):
        reference = tmp_path / "reference.safetensors"
        write_reference(quantized, reference, *more)
        code, report = check(quantized, reference, "--dtype", "float32", "--min-top1", "98")
        assert code == 0
        differences.append(report["total"]["mean_difference"])
    figure("mean difference, activations as floats and rounded", "{:.1e} {:.1e}".format(*differences))
    assert differences[1] < differences[0] / 4


@pytest.mark.parametrize("arguments, words", [(["/nowhere"], "not a checkpoint folder"),
                                              ([CODE, "--int8-activations"], "these are floats")])
def test_references_that_cannot_be_written(arguments, words, tmp_path):
    with pytest.raises(SystemExit, match=words) as stopped:
        write_reference(arguments[0], tmp_path / "x", *arguments[1:])
    assert isinstance(stopped.value.code, str) and len(stopped.value.code.splitlines()) == 1
