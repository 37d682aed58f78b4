"""ModelConfig: what scripts ask of `llm.model_config`, under vLLM's names."""
from __future__ import annotations

import os

from ._record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import SimpleNamespace


class ModelConfig(Record):
    """Facts of a model that runs.

    model, tokenizer: their folders. dtype: "float32", "bfloat16" or "float16", of this run. quantization: None,
    "w8a8" or "w4a8", of this run. max_model_len: tokens that prompt and answer may have together. max_logprobs:
    the bound of SamplingParams.logprobs. runner_type: "generate".
    """

    def __init__(self, model: str, tokenizer: str, served_model_name: str, dtype: str, quantization: str | None,
                 seed: int, max_model_len: int, max_logprobs: int, vocab_size: int) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.served_model_name = served_model_name
        self.dtype = dtype
        self.quantization = quantization
        self.seed = seed
        self.max_model_len = max_model_len
        self.max_logprobs = max_logprobs
        self.vocab_size = vocab_size

    runner_type = "generate"

    def get_vocab_size(self) -> int:
        """Rows of the output head: logits of one position."""
        return self.vocab_size

    @property
    def hf_config(self) -> SimpleNamespace:
        """config.json; its fields are attributes."""
        import json
        from types import SimpleNamespace

        with open(os.path.join(self.model, "config.json"), encoding="utf-8") as file:
            return SimpleNamespace(**json.load(file))
