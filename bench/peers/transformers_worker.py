#!/usr/bin/env python3
"""One transformers process of peers.py: startup, or everything else (see measure.py). Requests at once are one
static batch of equal lengths, which is its best case."""
import torch
from transformers import AutoModelForCausalLM
from transformers.utils import logging

import measure


class Engine(measure.Stepwise):
    def __init__(self, path, n_threads, n_sequences, n_tokens):
        logging.set_verbosity_error()
        logging.disable_progress_bar()
        torch.set_num_threads(n_threads)
        torch.set_grad_enabled(False)
        self.model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.bfloat16).eval()
        self.n_vocabulary = self.model.config.vocab_size

    def forward(self, ids, cache):
        out = self.model(input_ids=torch.tensor(ids), past_key_values=cache, use_cache=True, logits_to_keep=1)
        self.cache = out.past_key_values
        return out.logits[:, -1].argmax(-1).tolist()

    def prefill(self, prompts):
        return self.forward(prompts, None)

    def step(self, position, tokens):
        return self.forward([[token] for token in tokens], self.cache)


if __name__ == "__main__":
    measure.main(Engine)
