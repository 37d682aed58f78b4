#!/usr/bin/env python3
"""One OpenVINO GenAI process of peers.py: startup, or everything else (see measure.py), through the pipeline that its
server uses. The types of what it computes with, and of keys and values, are left to it."""
import itertools
import json
from pathlib import Path

import numpy as np
import openvino
import openvino_genai as genai

import measure


class Engine:
    def __init__(self, path, n_threads, n_sequences, n_tokens):
        scheduler = genai.SchedulerConfig()
        scheduler.max_num_seqs = n_sequences
        scheduler.max_num_batched_tokens = n_sequences * n_tokens  # by itself it would cut prompts to pieces of 256
        self.pipeline = genai.ContinuousBatchingPipeline(path, scheduler, "CPU", {"INFERENCE_NUM_THREADS": n_threads})
        self.n_vocabulary = json.loads((Path(path) / "config.json").read_text())["vocab_size"]
        self.numbers = itertools.count()

    def generate(self, prompts, n_output):
        limits = genai.GenerationConfig(max_new_tokens=n_output, ignore_eos=True, do_sample=False)
        handles = [self.pipeline.add_request(number, openvino.Tensor(np.array([prompt])), limits)
                   for prompt, number in zip(prompts, self.numbers)]
        answers = [[] for _ in prompts]
        while self.pipeline.has_non_finished_requests():
            self.pipeline.step()
            for answer, handle in zip(answers, handles):
                while handle.can_read():
                    answer += handle.read()[0].generated_ids
            yield answers


if __name__ == "__main__":
    measure.main(Engine)
