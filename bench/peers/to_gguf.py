#!/usr/bin/env python3
"""to_gguf.py MODEL OUT.gguf: a Phi checkpoint folder (phi or phi3) as llama.cpp reads it, with 16-bit weights.

For speed alone: it has no vocabulary, since the comparison sends token ids.
"""
import json
import sys
from pathlib import Path

import gguf
import numpy as np
from safetensors import safe_open

NAMES = {
    "phi": {"embed": "model.embed_tokens", "norm": "model.final_layernorm", "head": "lm_head", "layers": {
        "attn_norm": ["input_layernorm"], "attn_qkv": ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
        "attn_output": ["self_attn.dense"], "ffn_up": ["mlp.fc1"], "ffn_down": ["mlp.fc2"]}},
    "phi3": {"embed": "model.embed_tokens", "norm": "model.norm", "head": "lm_head", "layers": {
        "attn_norm": ["input_layernorm"], "attn_qkv": ["self_attn.qkv_proj"], "attn_output": ["self_attn.o_proj"],
        "ffn_norm": ["post_attention_layernorm"], "ffn_up": ["mlp.gate_up_proj"], "ffn_down": ["mlp.down_proj"]}},
}


class Checkpoint:
    """Tensors by name, as bfloat16 bits (matrices) or float32 (vectors)."""

    def __init__(self, folder):
        self.config = json.loads((folder / "config.json").read_text())
        self.files = {}
        for path in sorted(folder.glob("*.safetensors")):
            file = safe_open(path, "pt")
            self.files.update(dict.fromkeys(file.keys(), file))

    def tensor(self, names):
        import torch
        parts = [self.files[name].get_tensor(name) for name in names if name in self.files]
        if not parts:
            return None
        whole = torch.cat(parts)
        if whole.ndim == 1:
            return whole.float().numpy()
        return whole.to(torch.bfloat16).view(torch.uint16).numpy()


def add(writer, name, data):
    if data is None:
        return
    kind = gguf.GGMLQuantizationType.BF16 if data.dtype == np.uint16 else gguf.GGMLQuantizationType.F32
    writer.add_tensor(name, data.view(np.uint8) if data.dtype == np.uint16 else data, raw_dtype=kind)


def add_tensors(writer, checkpoint, names, n_layers):
    for to, source in ("token_embd", names["embed"]), ("output_norm", names["norm"]), ("output", names["head"]):
        for end in "weight", "bias":
            add(writer, f"{to}.{end}", checkpoint.tensor([f"{source}.{end}"]))
    for i in range(n_layers):
        for to, sources in names["layers"].items():
            for end in "weight", "bias":
                data = checkpoint.tensor([f"model.layers.{i}.{source}.{end}" for source in sources])
                add(writer, f"blk.{i}.{to}.{end}", data)


def add_rope(writer, config):
    rope = config.get("rope_parameters") or {}
    scaling = config.get("rope_scaling") or rope
    heads = config["num_attention_heads"]
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    share = config.get("partial_rotary_factor", rope.get("partial_rotary_factor", 1.0))
    writer.add_rope_dimension_count(int(head_dim * share))
    writer.add_rope_freq_base(config.get("rope_theta", rope.get("rope_theta", 10000.0)))
    if scaling.get("long_factor"):
        original = config["original_max_position_embeddings"]
        scale = config["max_position_embeddings"] / original
        writer.add_rope_scaling_orig_ctx_len(original)
        writer.add_rope_scaling_attn_factors(np.sqrt(1 + np.log(scale) / np.log(original)) if scale > 1 else 1.0)
        for kind in "long", "short":
            writer.add_tensor(f"rope_factors_{kind}.weight", np.array(scaling[f"{kind}_factor"], np.float32))


def convert(folder, out):
    checkpoint = Checkpoint(folder)
    config = checkpoint.config
    names = NAMES[config["model_type"]]
    writer = gguf.GGUFWriter(out, {"phi": "phi2", "phi3": "phi3"}[config["model_type"]])
    heads = config["num_attention_heads"]
    writer.add_vocab_size(config["vocab_size"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(config.get("num_key_value_heads") or heads)
    if config["model_type"] == "phi":
        writer.add_layer_norm_eps(config["layer_norm_eps"])
    else:
        writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    add_rope(writer, config)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)
    writer.add_tokenizer_model("none")
    add_tensors(writer, checkpoint, names, config["num_hidden_layers"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    convert(Path(sys.argv[1]), sys.argv[2])
