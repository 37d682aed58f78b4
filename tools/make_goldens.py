#!/usr/bin/env python3
"""Writes tests/golden/<name>/golden.safetensors: what transformers answers for tiny checkpoints.

    python tools/make_checkpoint.py --tiny tests/golden
    python tools/make_goldens.py tests/golden

Needs torch and transformers (tests/oracle/requirements.txt). For each prompt K of a checkpoint:

    K.input_ids       int32 [n]
    K.logits          float32 [n, vocab]   float32 run, eager attention
    K.logits_bf16     bfloat16 [n, vocab]  the same prompt in a bfloat16 run
    K.hidden.0        float32 [n, hidden]  embeddings; K.hidden.i = after block i (float32 run)
    K.hidden.final    float32 [n, hidden]  after the final norm
    K.greedy          int32 [m]            the m ids that generate() appends, stop ids ignored

The hidden states are there for two prompts of each checkpoint, to keep the files small.
"""
import sys
from pathlib import Path

import torch
import transformers
from safetensors import safe_open
from safetensors.torch import save_file

# Prompt lengths by checkpoint; hidden states are kept for those in the second list.
PROMPTS = {"phi3-longrope": ([1, 9, 32, 33], [9, 33])}
DEFAULT_PROMPTS = ([1, 6, 33], [6, 33])
N_GREEDY = 30
MIN_GAP = 3e-4  # between the two best logits of any row, as a share of the largest logit


def read_tensors(folder):
    out = {}
    for path in sorted(Path(folder).glob("*.safetensors")):
        if path.name != "golden.safetensors":
            with safe_open(path, "pt") as file:
                out.update((name, file.get_tensor(name)) for name in file.keys())
    return out


def load(folder, dtype):
    """The checkpoint as a transformers model with eager attention.

    from_pretrained where that is enough. Two forms it cannot read are put together by hand:
    projections under unfused names, and attention_bias, which its Phi3 ignores (biases on qkv_proj
    and o_proj)."""
    folder = Path(folder)
    config = transformers.AutoConfig.from_pretrained(folder)
    unfused = folder.name == "phi3-unfused"
    biased = config.model_type == "phi3" and getattr(config, "attention_bias", False)
    if not unfused and not biased:
        model = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtype, attn_implementation="eager")
    else:
        state = read_tensors(folder)
        for name in [n for n in state if ".q_proj." in n or ".gate_proj." in n]:
            parts = (("q_proj", "k_proj", "v_proj"), "qkv_proj") if ".q_proj." in name else (
                ("gate_proj", "up_proj"), "gate_up_proj")
            names = [name.replace(parts[0][0], part) for part in parts[0]]
            state[name.replace(parts[0][0], parts[1])] = torch.cat([state.pop(n) for n in names])
        model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
        for name in state:
            if name.endswith("_proj.bias"):
                module = model.get_submodule(name.removesuffix(".bias"))
                module.bias = torch.nn.Parameter(torch.zeros(module.out_features))
        model.load_state_dict(state, strict=True)
        model = model.to(dtype)
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = 0
    return model.eval()


@torch.no_grad()
def forward(model, ids):
    """(logits [n, vocab], {hidden name: [n, hidden]})"""
    hidden, hooks = {}, []

    def keep(name):
        return lambda module, args, out: hidden.update(
            {name: (out[0] if isinstance(out, tuple) else out)[0].clone()})

    base = model.model
    final = base.norm if hasattr(base, "norm") else base.final_layernorm
    for name, module in [("hidden.0", base.embed_tokens), ("hidden.final", final),
                         *((f"hidden.{i + 1}", layer) for i, layer in enumerate(base.layers))]:
        hooks.append(module.register_forward_hook(keep(name)))
    logits = model(ids, use_cache=False).logits[0]
    for hook in hooks:
        hook.remove()
    return logits, hidden


@torch.no_grad()
def greedy(model, ids, n):
    """(the n ids generated after ids [1, n_ids], the logits [n, vocab] they were chosen by)

    The mask is spelled out: left alone, the library hides prompt ids that equal the padding id."""
    out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=n,
                         do_sample=False, return_dict_in_generate=True, output_logits=True)
    return out.sequences[0, ids.shape[1]:], torch.cat(out.logits)


def has_near_tie(logits):
    """Whether rounding might decide some row's best id."""
    best = logits.topk(2).values
    return bool(((best[:, 0] - best[:, 1]) < MIN_GAP * logits.abs().max()).any())


def fresh(model):
    """The model with new rotary state: dynamic NTK remembers the longest sequence it ever saw."""
    model.model.rotary_emb = type(model.model.rotary_emb)(model.config)
    return model


def answers(model, n):
    """The first random prompt of n ids on which the model has no near-tie, with its answers."""
    for seed in range(100):
        generator = torch.Generator().manual_seed(seed)
        ids = torch.randint(3, model.config.vocab_size, (1, n), generator=generator)
        logits, hidden = forward(fresh(model), ids)
        chosen, chosen_by = greedy(fresh(model), ids, N_GREEDY)
        if not has_near_tie(torch.cat([logits, chosen_by])):
            return ids, logits, hidden, chosen
    raise SystemExit("every prompt has a near-tie: are the weights degenerate?")


def make(folder):
    exact, rounded = load(folder, torch.float32), load(folder, torch.bfloat16)
    lengths, kept = PROMPTS.get(folder.name, DEFAULT_PROMPTS)
    tensors = {}
    for k, n in enumerate(lengths):
        ids, logits, hidden, chosen = answers(exact, n)
        tensors[f"{k}.input_ids"] = ids[0].int()
        tensors[f"{k}.logits"] = logits
        tensors[f"{k}.logits_bf16"] = forward(fresh(rounded), ids)[0]
        tensors[f"{k}.greedy"] = chosen.int()
        if n in kept:
            tensors.update((f"{k}.{name}", value) for name, value in hidden.items())
    save_file({name: value.contiguous() for name, value in tensors.items()},
              folder / "golden.safetensors",
              metadata=dict(torch=torch.__version__, transformers=transformers.__version__))
    return tensors


def main():
    torch.set_num_threads(1)
    transformers.logging.disable_progress_bar()
    for path in sorted(Path(sys.argv[1]).glob("*/config.json")):
        tensors = make(path.parent)
        size = (path.parent / "golden.safetensors").stat().st_size
        print(f"{path.parent.name}: {len(tensors)} tensors, {size} bytes")


if __name__ == "__main__":
    main()
