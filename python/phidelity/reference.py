#!/usr/bin/env python3
"""Writes what transformers answers for a model, for `phidelity check-accuracy` to compare with.

    python -m phidelity.reference MODEL FILE [--prompts FILE] [--dtype D] [--layers]

MODEL is a checkpoint folder, FILE the safetensors file to write; it needs torch, transformers and
safetensors, any machine, and one run. The file also works as a plain script: python reference.py ...

For each prompt K the file holds K.input_ids int64 [n], K.logits float32 [n, vocabulary] and K.text
uint8; with --layers also, float32 [n, hidden]: K.hidden.I (I = 0: the embeddings, then the stream
behind each layer), K.attention.I and K.mlp.I (what the two parts of layer I add to it).

A folder with integer weights (compressed-tensors, as `phidelity quantize` writes it) is read here, by
its own description, and runs with weights that are those integers times their scales; activations stay as
they are, or are rounded to 8 bits before each such product as the engine does, with --int8-activations.
"""
import argparse
import json
import sys
from pathlib import Path

PROMPTS = [
    "Once upon a time there was a little girl who lived in a house at the edge of the forest.",
    "def fibonacci(n):\n    \"\"\"Returns the n-th Fibonacci number.\"\"\"\n    if n < 2:\n        return n\n",
    "The capital of France is Paris. The capital of Italy is Rome. The capital of Japan is",
    "If 3x + 7 = 22, then x = 5, because 3 * 5 = 15 and 15 + 7 = 22. If 4x - 6 = 18, then x =",
    "Données, Größe, 数据, данные: the word for it differs, the size of 1,234.5 kB does not. \U0001f600",
]
DTYPES = ("float32", "bfloat16", "float16")


def arguments(argv):
    parser = argparse.ArgumentParser(
        prog="python -m phidelity.reference", formatter_class=argparse.RawDescriptionHelpFormatter,
        description=__doc__)
    parser.add_argument("model", metavar="MODEL", help="checkpoint folder")
    parser.add_argument("file", metavar="FILE", help="the safetensors file to write")
    parser.add_argument("--prompts", metavar="FILE",
                        help="instead of the five of this script: each line is a JSON string, or a JSON array of "
                             "token ids")
    parser.add_argument("--dtype", choices=DTYPES, default="float32",
                        help="of weights and arithmetic (default: float32, the most exact)")
    parser.add_argument("--layers", action="store_true",
                        help="also what each layer gives, for check-accuracy --locate")
    parser.add_argument("--max-tokens", type=int, default=0, metavar="N",
                        help="cut prompts to their first N tokens (default: not)")
    parser.add_argument("--attention", choices=("eager", "sdpa"), default="eager",
                        help="sdpa takes less memory for long prompts (default: eager)")
    parser.add_argument("--no-special-tokens", action="store_true",
                        help="without what the tokenizer puts around a text, such as a begin token")
    parser.add_argument("--int8-activations", action="store_true",
                        help="of a folder with integer weights: round what goes into their products, token by token")
    return parser.parse_args(argv)


def read_prompts(path):
    """Texts or lists of ids."""
    if path is None:
        return PROMPTS
    prompts = []
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except ValueError:
            value = None
        is_ids = isinstance(value, list) and value and all(type(x) is int for x in value)
        if not is_ids and not (isinstance(value, str) and value):
            raise SystemExit(f"{path}:{number}: expected a JSON string or an array of token ids")
        prompts.append(value)
    if not prompts:
        raise SystemExit(f"{path}: no prompts")
    return prompts


def tokenized(prompts, args):
    """(ids, text) of each prompt. The tokenizer is loaded only when there is text."""
    if all(isinstance(p, list) for p in prompts):
        pairs = [(p, "") for p in prompts]
    else:
        from transformers import AutoTokenizer
        tokenizer = AutoTokenizer.from_pretrained(args.model)
        pairs = [(p, tokenizer.decode(p)) if isinstance(p, list)
                 else (tokenizer.encode(p, add_special_tokens=not args.no_special_tokens), p) for p in prompts]
    if args.max_tokens:
        pairs = [(ids[:args.max_tokens], text) for ids, text in pairs]
    empty = [text for ids, text in pairs if not ids]
    if empty:
        raise SystemExit(f"a prompt without tokens: {empty[0]!r}")
    return pairs


# ---------------------------------------------------------------- integer weights

def unpacked(packed, shape):
    """int32 [rows, columns / 8] to float32 [rows, columns]: eight numbers -8 .. 7 each, the lowest bits first."""
    import torch
    nibbles = (packed.unsqueeze(-1) >> (4 * torch.arange(8))) & 15
    return (nibbles.flatten(1)[:, :shape[1]] - 8).float()


def dequantized(tensors):
    """({name: tensor} with floats in place of integers and scales, the names of the layers that had them)."""
    layers = sorted(name.removesuffix(".weight_scale") for name in tensors if name.endswith(".weight_scale"))
    floats = {name: t for name, t in tensors.items() if name.rpartition(".")[0] not in layers or name.endswith(".bias")}
    for layer in layers:
        scale = tensors[f"{layer}.weight_scale"].float()
        if f"{layer}.weight_zero_point" in tensors or f"{layer}.weight_g_idx" in tensors:
            raise SystemExit(f"{layer}: zero points and reordered columns are not supported")
        if f"{layer}.weight_packed" in tensors:
            weight = unpacked(tensors[f"{layer}.weight_packed"], tensors[f"{layer}.weight_shape"].tolist())
        else:
            weight = tensors[f"{layer}.weight"].float()
        groups = weight.unflatten(1, (scale.shape[1], -1)) if scale.dim() == 2 else weight.unsqueeze(1)
        floats[f"{layer}.weight"] = (groups * scale.unsqueeze(-1)).flatten(1)
    return floats, layers


def round_activations(module, inputs):
    """Each row becomes integers -127 .. 127 times its scale, as docs/NUMERICS.md says in section 10."""
    x = inputs[0].float()
    greatest = x.abs().amax(-1, keepdim=True)
    rounded = (x * (127 / greatest)).round() * (greatest / 127)
    return (rounded.where(greatest >= 2.0**-100, rounded.new_zeros(())).to(inputs[0].dtype), *inputs[1:])


def load_quantized(args, **options):
    """The model of a compressed-tensors folder with weights of floats."""
    import transformers
    from safetensors.torch import load_file
    tensors = {}
    for file in sorted(Path(args.model).glob("*.safetensors")):
        tensors.update(load_file(file))
    floats, layers = dequantized(tensors)
    config = transformers.AutoConfig.from_pretrained(args.model)
    del config.quantization_config
    if "lm_head.weight" in floats:  # a head of its own, though the floats' was the embedding
        config.tie_word_embeddings = False
    model = transformers.AutoModelForCausalLM.from_config(config, **options)
    missing, unknown = model.load_state_dict(floats, strict=False)
    if unknown or set(missing) - {"lm_head.weight"} or (missing and not config.tie_word_embeddings):
        raise SystemExit(f"{args.model}: transformers does not know {unknown}, and misses {missing}")
    model.tie_weights()
    if args.int8_activations:
        for name in layers:
            model.get_submodule(name).register_forward_pre_hook(round_activations)
    return model.eval()


def load(args):
    """The model, and how its activations are."""
    import torch
    import transformers
    path = Path(args.model, "config.json")
    if not path.is_file():
        raise SystemExit(f"{args.model}: not a checkpoint folder: there is no config.json in it")
    options = {"dtype": getattr(torch, args.dtype), "attn_implementation": args.attention}
    if json.loads(path.read_text(encoding="utf-8")).get("quantization_config"):
        how = "int8 activations" if args.int8_activations else "float activations"
        return load_quantized(args, **options), f", dequantised weights, {how}"
    if args.int8_activations:
        raise SystemExit(f"{args.model}: --int8-activations is for integer weights, and these are floats")
    return transformers.AutoModelForCausalLM.from_pretrained(args.model, **options).eval(), ""


# ---------------------------------------------------------------- answers

class Taps:
    """While open, notes what the embedding, each layer and each layer's parts give."""

    def __init__(self, model):
        body = model.model
        self.tensors, self.handles = {}, []
        self.watch(body.embed_tokens, "hidden.0")
        for i, layer in enumerate(body.layers):
            self.watch(layer.self_attn, f"attention.{i}")
            self.watch(layer.mlp, f"mlp.{i}")
            self.watch(layer, f"hidden.{i + 1}")

    def watch(self, module, name):
        def note(_module, _inputs, output):
            value = output[0] if isinstance(output, tuple) else output
            self.tensors[name] = value.detach()[0].float().numpy().copy()
        self.handles.append(module.register_forward_hook(note))

    def __enter__(self):
        return self.tensors

    def __exit__(self, *_):
        for handle in self.handles:
            handle.remove()


def answers(model, pairs, layers):
    """The tensors of the file."""
    import numpy as np
    import torch
    tensors = {}
    for number, (ids, text) in enumerate(pairs):
        print(f"prompt {number + 1} of {len(pairs)}: {len(ids)} tokens", file=sys.stderr)
        found = {"input_ids": np.array(ids, np.int64)}
        if text:
            found["text"] = np.frombuffer(text.encode(), np.uint8)
        with torch.no_grad():
            if layers:
                with Taps(model) as taps:
                    logits = model(torch.tensor([ids]), use_cache=False).logits
                found.update(taps)
            else:
                logits = model(torch.tensor([ids]), use_cache=False).logits
        found["logits"] = logits[0].float().numpy().copy()
        tensors.update({f"{number}.{name}": value for name, value in found.items()})
    return tensors


def write(args):
    import numpy as np
    import torch
    import transformers
    from safetensors.numpy import save_file
    transformers.logging.disable_progress_bar()
    model, how = load(args)
    tensors = answers(model, tokenized(read_prompts(args.prompts), args), args.layers)
    about = (f"transformers {transformers.__version__}, torch {torch.__version__.partition('+')[0]}, "
             f"{args.dtype}, {args.attention} attention{how}")
    tensors["about"] = np.frombuffer(about.encode(), np.uint8)
    save_file(tensors, args.file)
    sizes = [len(value) for name, value in tensors.items() if name.endswith("input_ids")]
    print(f"{args.file}: {len(sizes)} prompts, {sum(sizes)} positions; {about}", file=sys.stderr)


if __name__ == "__main__":
    write(arguments(sys.argv[1:]))
