"""Quantised checkpoints against the compressed-tensors library: folders of ours say the same to it, and
folders of its own open here."""
import json
import shutil

import numpy as np
import pytest
import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import QuantizationConfig, preset_name_to_scheme
from compressed_tensors.quantization.utils import calculate_qparams
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from conftest import ROOT

MODELS = {name: ROOT / "models" / name for name in ("phi-tiny-code", "phi3-tiny-chat")}
IDS = list(range(5, 45))


def logits(phidelity, folder, out, *more):
    phidelity("logits", folder, "--tokens", " ".join(map(str, IDS)), "--out", out, "--dtype", "float32",
              *more)
    return load_file(out)["logits"].clone()


def stems(tensors):
    return sorted(name.removesuffix(".weight_scale") for name in tensors if name.endswith(".weight_scale"))


def decompress(tensors, stem, scheme, layout):
    """The library's own reading of one layer, in float32."""
    local = {name.removeprefix(stem + "."): t for name, t in tensors.items() if name.startswith(stem + ".")}
    local["weight_scale"] = local["weight_scale"].float()
    compressor = BaseCompressor.get_value_from_registry(layout)
    return compressor.decompress(local, scheme)["weight"].float()


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("scheme, most", [("w8a8", 0.012), ("w4a16", 0.14)])
@pytest.mark.parametrize("head", [(), ("--quantize-lm-head",)], ids=["layers", "head"])
def test_our_folder_is_theirs(phidelity, tmp_path, model, scheme, most, head):
    """The library dequantises what we wrote to weights near the original, and transformers runs it
    to logits near ours: it keeps activations of 4-bit layers as floats and rounds 8-bit ones with
    another scale, so they differ a little."""
    phidelity("quantize", MODELS[model], tmp_path / "q", "--scheme", scheme, *head)
    config = json.loads((tmp_path / "q" / "config.json").read_text())["quantization_config"]
    groups = QuantizationConfig.model_validate(config).config_groups
    by_target = {target: group for group in groups.values() for target in group.targets}
    tensors = load_file(tmp_path / "q" / "model.safetensors")
    original = load_file(MODELS[model] / "model.safetensors")
    original.setdefault("lm_head.weight", original["model.embed_tokens.weight"])
    assert len(stems(tensors)) >= 4 * 5
    assert ("lm_head" in stems(tensors)) == bool(head)
    for stem in stems(tensors):
        group = by_target.get(stem, by_target["Linear"])
        weight, before = decompress(tensors, stem, group, group.format), original[stem + ".weight"].float()
        assert (weight - before).norm() < most * before.norm(), stem
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "q", dtype=torch.float32)
    with torch.no_grad():
        want = theirs(torch.tensor([IDS])).logits[0]
    ours = logits(phidelity, tmp_path / "q", tmp_path / "ours.safetensors")
    floats = logits(phidelity, MODELS[model], tmp_path / "floats.safetensors")
    assert (ours - want).norm() < 0.5 * (floats - want).norm() + 0.01 * want.norm()


def write_theirs(source, folder, preset, layout, group_size, scale_dtype):
    """A folder as the library would save it (largest value's scale), and the same numbers as floats."""
    scheme = preset_name_to_scheme(preset, ["Linear"])
    if group_size:
        scheme.weights.group_size = group_size
    compressor = BaseCompressor.get_value_from_registry(layout)
    quantised, floats = {}, {}
    for name, tensor in load_file(source / "model.safetensors").items():
        if not name.endswith("weight") or tensor.ndim != 2 or "embed" in name or "lm_head" in name:
            quantised[name] = floats[name] = tensor
            continue
        weight = tensor.float()
        parts = weight.reshape(weight.shape[0], -1, group_size or weight.shape[1])
        scale, _ = calculate_qparams(parts.amin(-1), parts.amax(-1), scheme.weights)
        scale = scale.to(scale_dtype).float()
        packed = compressor.compress({"weight": weight, "weight_scale": scale}, scheme)
        floats[name] = compressor.decompress(dict(packed), scheme)["weight"].float()
        packed["weight_scale"] = scale.to(scale_dtype)
        for part, value in packed.items():
            if value is not None:
                quantised[name.removesuffix("weight") + part] = value.contiguous()
    config = QuantizationConfig(config_groups={"group_0": scheme}, format=layout, ignore=["lm_head"],
                                quantization_status="compressed")
    for name, tensors in (("quantised", quantised), ("floats", floats)):
        shutil.copytree(source, folder / name)
        save_file({k: t.contiguous() for k, t in tensors.items()}, folder / name / "model.safetensors")
    path = folder / "quantised" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) |
                               {"quantization_config": json.loads(config.model_dump_json())}))


@pytest.mark.parametrize("model, preset, layout, group_size, scale_dtype", [
    ("phi-tiny-code", "W8A8", "int-quantized", None, torch.float32),
    ("phi3-tiny-chat", "W8A8", "int-quantized", None, torch.bfloat16),
    ("phi-tiny-code", "W4A16", "pack-quantized", 128, torch.bfloat16),
    ("phi3-tiny-chat", "W4A16", "pack-quantized", 64, torch.float16),
    ("phi-tiny-code", "W4A8", "pack-quantized", 32, torch.float32),
])
def test_their_folder_opens(phidelity, tmp_path, model, preset, layout, group_size, scale_dtype):
    """Against the same weights dequantised: what differs is the rounding of activations to int8."""
    write_theirs(MODELS[model], tmp_path, preset, layout, group_size, scale_dtype)
    ours = logits(phidelity, tmp_path / "quantised", tmp_path / "a.safetensors")
    want = logits(phidelity, tmp_path / "floats", tmp_path / "b.safetensors")
    assert np.isfinite(ours.numpy()).all()
    assert 0 < (ours - want).norm() < 0.06 * want.norm()
