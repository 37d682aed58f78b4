#!/usr/bin/env python3
"""One llama.cpp process of peers.py: startup, or everything else (see measure.py), through llama-cpp-python's plain
bindings, which let many sequences share a batch as its server does."""
import ctypes

import llama_cpp as llama
import numpy as np

import measure

N_BATCH = 512  # token rows of one call, as phidelity's --max-num-batched-tokens


@llama.llama_log_callback
def no_log(level, text, context):
    pass


class Engine(measure.Stepwise):
    def __init__(self, path, n_threads, n_sequences, n_tokens):
        llama.llama_log_set(no_log, ctypes.c_void_p(0))
        llama.llama_backend_init()
        self.model = llama.llama_model_load_from_file(path.encode(), llama.llama_model_default_params())
        if not self.model:
            raise SystemExit(f"llama.cpp cannot load {path}")
        params = llama.llama_context_default_params()
        params.n_ctx = n_sequences * n_tokens
        params.n_batch = params.n_ubatch = N_BATCH
        params.n_seq_max = n_sequences
        params.n_threads = params.n_threads_batch = n_threads
        params.kv_unified = True
        self.context = llama.llama_init_from_model(self.model, params)
        if not self.context:
            raise SystemExit(f"llama.cpp has no memory for {path}")
        vocabulary = llama.llama_model_get_vocab(self.model)
        self.n_vocabulary = llama.llama_vocab_n_tokens(vocabulary)
        self.batch = llama.llama_batch_init(N_BATCH, 0, 1)

    def clear(self):
        llama.llama_memory_clear(llama.llama_get_memory(self.context), True)

    def decode(self, rows):
        """rows: (sequence, position, token, whether its logits are wanted). The likeliest next token of each of those."""
        answers = []
        for begin in range(0, len(rows), N_BATCH):
            part = rows[begin:begin + N_BATCH]
            self.batch.n_tokens = len(part)
            for i, (sequence, position, token, wants) in enumerate(part):
                self.batch.token[i], self.batch.pos[i] = token, position
                self.batch.n_seq_id[i], self.batch.seq_id[i][0] = 1, sequence
                self.batch.logits[i] = wants
            if llama.llama_decode(self.context, self.batch) != 0:
                raise SystemExit("llama_decode failed")
            for i, row in enumerate(part):
                if row[3]:
                    logits = llama.llama_get_logits_ith(self.context, i)
                    answers.append(int(np.ctypeslib.as_array(logits, (self.n_vocabulary,)).argmax()))
        return answers

    def prefill(self, prompts):
        self.clear()
        return self.decode([(s, i, token, i == len(prompt) - 1)
                            for s, prompt in enumerate(prompts) for i, token in enumerate(prompt)])

    def step(self, position, tokens):
        return self.decode([(s, position, token, True) for s, token in enumerate(tokens)])


if __name__ == "__main__":
    measure.main(Engine)
