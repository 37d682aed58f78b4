#!/usr/bin/env python3
"""One vLLM process of peers.py: startup, or everything else (see measure.py). The engine runs in this process, so that
its steps can be seen and its memory is this process's; compiled as vLLM does by itself, in bfloat16."""
import itertools
import os
import sys

# What is read at import: how many threads (all of them compute, none is kept for a server), and no look at the network.
os.environ.update(OMP_NUM_THREADS=sys.argv[2], VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_LOGGING_LEVEL="ERROR",
                  VLLM_HOST_IP="127.0.0.1", HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1", DO_NOT_TRACK="1")

from vllm import EngineArgs, LLMEngine, SamplingParams

import measure

BLOCK = 128  # tokens, vLLM's on CPUs


class Engine:
    def __init__(self, path, n_threads, n_sequences, n_tokens):
        # Without a limit of bytes it asks for nearly all of the memory; the count of blocks is what it then takes.
        self.engine = LLMEngine.from_engine_args(EngineArgs(
            model=path, skip_tokenizer_init=True, dtype="bfloat16", max_model_len=n_tokens + 1, max_num_seqs=n_sequences,
            block_size=BLOCK, num_gpu_blocks_override=n_sequences * -(-n_tokens // BLOCK) + 2,
            kv_cache_memory_bytes=1 << 32, enable_prefix_caching=False))
        self.n_vocabulary = self.engine.model_config.get_vocab_size()
        self.names = map(str, itertools.count())

    def generate(self, prompts, n_output):
        limits = SamplingParams(temperature=0, max_tokens=n_output, ignore_eos=True, detokenize=False)
        answers = {name: [] for _, name in zip(prompts, self.names)}
        for name, prompt in zip(answers, prompts):
            self.engine.add_request(name, {"prompt_token_ids": prompt}, limits)
        while self.engine.has_unfinished_requests():
            for output in self.engine.step():
                answers[output.request_id] = output.outputs[0].token_ids
            yield list(answers.values())


if __name__ == "__main__":
    measure.main(Engine)
