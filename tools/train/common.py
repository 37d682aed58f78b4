"""What both training scripts share: the optimizer, the schedule, timing lines and the writing of a model folder."""

import json
import pathlib
import time

import torch
from safetensors.torch import save_file


DECAY_SHARE = 0.35  # of the steps; a run stopped before may go on with another number of steps


@torch.no_grad()
def spread_initial_weights(model):
    """Standard deviation 1 / sqrt(inputs), smaller where a branch joins the residual stream.

    transformers' 0.02 is made for wide models; at this width it keeps attention near uniform for long, and
    sums are learned several times more slowly.
    """
    for name, parameter in model.named_parameters():
        if parameter.ndim == 2 and ".layers." in name:
            joins = name.split(".")[-2] in ("o_proj", "down_proj", "dense", "fc2")
            parameter.normal_(0.0, (0.3 if joins else 1.0) * parameter.shape[1] ** -0.5)


class Muon:
    """Momentum whose update is made orthogonal (Jordan et al. 2024, coefficients theirs), scaled to AdamW's usual size.

    On models this small it needs about half of AdamW's steps for the same loss. Matrices of one shape are
    updated as one batch, so a step costs a tenth of a forward and backward pass.
    """

    def __init__(self, matrices, weight_decay, momentum=0.95):
        """`matrices`: (parameter, first row, end row) each; fused projections come as one entry per part, because
        an orthogonal update of the whole would starve the queries and keys, whose gradients are small."""
        self.groups = {}
        for matrix, first, end in matrices:
            self.groups.setdefault((end - first, matrix.shape[1]), []).append((matrix, first, end))
        self.averages = {shape: torch.zeros(len(group), *shape) for shape, group in self.groups.items()}
        self.weight_decay, self.momentum = weight_decay, momentum

    @staticmethod
    def orthogonal(update):
        tall = update.shape[-2] > update.shape[-1]
        x = (update.mT if tall else update).bfloat16().contiguous()
        x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
        for _ in range(5):
            square = x @ x.mT
            x = 3.4445 * x + (-4.7750 * square + 2.0315 * (square @ square)) @ x
        return (x.mT if tall else x).float()

    @torch.no_grad()
    def step(self, rate):
        for shape, group in self.groups.items():
            gradient = torch.stack([matrix.grad[first:end] for matrix, first, end in group])
            average = self.averages[shape].lerp_(gradient, 1 - self.momentum)
            update = self.orthogonal(gradient.lerp_(average, self.momentum))
            scale = rate * 0.2 * max(shape) ** 0.5
            for (matrix, first, end), part in zip(group, update):
                matrix[first:end].mul_(1 - rate * self.weight_decay).sub_(part, alpha=scale)


def parts(config, name, parameter):
    """The rows of each matrix fused into a parameter."""
    n_rows = parameter.shape[0]
    if name.endswith("qkv_proj.weight"):
        head = config.hidden_size // config.num_attention_heads
        kv_rows = config.num_key_value_heads * head
        return [n_rows - 2 * kv_rows, kv_rows, kv_rows]
    if name.endswith("gate_up_proj.weight"):
        return [n_rows // 2, n_rows // 2]
    return [n_rows]


class Optimizer:
    """Muon for the matrices inside the layers, AdamW for everything else, one warm-up, plateau and decay."""

    def __init__(self, model, n_steps, rate, matrix_rate, weight_decay=0.02, warmup=60):
        matrices, others = [], []
        for name, parameter in model.named_parameters():
            if parameter.ndim == 2 and ".layers." in name:
                first = 0
                for n_rows in parts(model.config, name, parameter):
                    matrices.append((parameter, first, first + n_rows))
                    first += n_rows
            else:
                others.append(parameter)
        self.muon = Muon(matrices, weight_decay)
        self.adam = torch.optim.AdamW(others, lr=rate, betas=(0.9, 0.98), weight_decay=0.0, fused=True)
        self.parameters = list(model.parameters())
        self.rate, self.matrix_rate, self.n_steps, self.warmup = rate, matrix_rate, n_steps, warmup

    def step(self, step, factor=1.0):
        share = factor * min((step + 1) / self.warmup, (self.n_steps - step) / (self.n_steps * DECAY_SHARE), 1.0)
        torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.muon.step(self.matrix_rate * share)
        self.adam.param_groups[0]["lr"] = self.rate * share
        self.adam.step()
        for parameter in self.parameters:
            parameter.grad = None

    def save(self, model, file, n_done):
        if file:
            torch.save({"n_done": n_done, "model": model.state_dict(),
                        "muon": self.muon.averages, "adam": self.adam.state_dict()}, file)

    def restore(self, model, file):
        """The number of steps already done, with the model and the optimizers as they were then."""
        if not file or not file.exists():
            return 0
        state = torch.load(file)
        model.load_state_dict(state["model"])
        self.muon.averages = state["muon"]
        self.adam.load_state_dict(state["adam"])
        return state["n_done"]


class Progress:
    """One line every `every` steps: loss since the last line, tokens per second, minutes so far."""

    def __init__(self, n_steps, every=50):
        self.n_steps, self.every = n_steps, every
        self.start, self.loss, self.n_tokens = time.time(), 0.0, 0

    def add(self, step, loss, n_tokens):
        self.loss += loss
        self.n_tokens += n_tokens
        if (step + 1) % self.every == 0:
            seconds = time.time() - self.start
            print(f"step {step + 1}/{self.n_steps} loss {self.loss / self.every:.4f} "
                  f"{self.n_tokens / seconds:.0f} tokens/s {seconds / 60:.1f} min", flush=True)
            self.loss = 0.0


def write_json(path, value):
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def save_weights(model, folder):
    """Every parameter once (a tied head is not written), in bfloat16, under transformers' names."""
    tied = {"lm_head.weight"} if model.config.tie_word_embeddings else set()
    tensors = {name: tensor.detach().to(torch.bfloat16).contiguous()
               for name, tensor in model.state_dict().items() if name not in tied}
    folder = pathlib.Path(folder)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return sum(tensor.numel() for tensor in tensors.values())
