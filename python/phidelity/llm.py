"""LLM: prompts in, answers out, under vLLM's names."""
from __future__ import annotations

import sys
import warnings

from ._core import Core, Facts
from .beam_search import Beams, search, step_params
from .exceptions import ValidationError, refuse_lora
from .inputs import Prompt, TokenizedPrompt, parse_prompts, refuse_media
from .llm_engine import LLMEngine
from .progress import make_bar
from .sampling_params import BeamSearchParams, SamplingParams

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from .beam_search import BeamSearchOutput
    from .engine_args import EngineArgs
    from .inputs import PromptType
    from .logprobs import LogprobsOnePosition
    from .outputs import RequestOutput
    from .tokenizer import Message

_MAX_PRIORITY = 2**63


class LLM(Facts):
    """A model and an engine in this process.

    model: a checkpoint folder, or "org/name" when Hugging Face's cache has it.
    tokenizer: another folder for tokenizer and chat template. chat_template: a file, or a text.
    dtype: "auto" (as the checkpoint says), "float32", "bfloat16", "float16", or such a torch.dtype.
    quantization: "w8a8" or "w4a8" makes the linear layers integers at load (quant_group_size and
    quantize_lm_head as of the program); None: as the checkpoint has them.
    seed: of requests that bring none. max_model_len: tokens of prompt and answer together.
    max_num_seqs: answers that decode together (128). max_num_batched_tokens: tokens of one step.
    gpu_memory_utilization: the share of the machine's memory that the process may take;
    kv_cache_memory_bytes: the KV cache's size. Without either: what max_num_seqs sequences need, at most
    a quarter of the memory. kv_cache_dtype, block_size, enable_prefix_caching (default True),
    scheduling_policy ("fcfs", "priority"), load_format ("auto", "dummy"), safetensors_load_strategy
    ("auto", "lazy", "prefetch", "eager": docs/DEPLOYMENT.md, Tuning), max_logprobs (20; -1 is no bound),
    generation_config ("auto", "vllm", a folder), override_generation_config, served_model_name
    (of metrics), disable_sliding_window, disable_log_stats (default True; False fills
    RequestOutput.metrics), revision: as vLLM's. threads: 0 is one for each physical core.

    vLLM's arguments that have no effect here are accepted with one warning. Raises TypeError for a name
    that vLLM does not know either, ValidationError (a ValueError) for what is not supported
    or wrong, OSError for files that cannot be read, MemoryError with the longest context that would fit.

    Methods may be called from several threads at a time. close(), leaving a `with` block, or letting
    go of the object frees everything. In a forked child every method raises EngineClosedError.
    """

    def __init__(self, model: str, **kwargs: Any) -> None:
        self._core = Core("LLM", model, **kwargs)
        self.llm_engine = LLMEngine.of(self._core)

    @classmethod
    def from_engine_args(cls, engine_args: EngineArgs) -> LLM:
        """LLM(**vars(engine_args))."""
        return cls(**vars(engine_args))

    # ---------------------------------------------------------------- answers

    def generate(
        self,
        prompts: PromptType | Sequence[PromptType],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool | Callable[..., Any] = True,
        lora_request: None = None,
        priority: Sequence[int] | None = None,
        tokenization_kwargs: dict[str, Any] | None = None,
        mm_processor_kwargs: None = None,
    ) -> list[RequestOutput]:
        """Continues prompts; the outputs are in their order.

        prompts: a str, a list of token ids, {"prompt": str}, {"prompt_token_ids": [int]}, or a list of
        these. sampling_params: one for all or one for each; None: get_default_sampling_params().
        use_tqdm: show a bar, or a callable with tqdm's arguments. priority: one for each prompt, lower goes
        first (scheduling_policy="priority"). tokenization_kwargs: add_special_tokens,
        truncate_prompt_tokens.

        Raises TypeError for what is no prompt (None, bytes, a list of floats), ValidationError (a
        ValueError) for an empty list, an empty prompt, ids out of the vocabulary, a prompt without room for
        an answer, lists of different lengths; EngineError when the model yields NaN. When one prompt is
        bad none is answered. Ctrl-C cancels all of them; the LLM stays usable.
        """
        self._core.engine.check()
        parsed = parse_prompts(prompts)
        refuse_lora(lora_request)
        refuse_media({"mm_processor_kwargs": mm_processor_kwargs})
        params = self._params_for(sampling_params, len(parsed))
        encoded = [self._core.encode(p, tokenization_kwargs) for p in parsed]
        return self._run(encoded, params, use_tqdm, _priorities(priority, len(parsed)))

    def chat(
        self,
        messages: Sequence[Message] | Sequence[Sequence[Message]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        use_tqdm: bool | Callable[..., Any] = True,
        lora_request: None = None,
        chat_template: str | None = None,
        chat_template_content_format: str = "auto",
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        tools: Sequence[dict[str, Any]] | None = None,
        chat_template_kwargs: dict[str, Any] | None = None,
        tokenization_kwargs: dict[str, Any] | None = None,
        mm_processor_kwargs: None = None,
    ) -> list[RequestOutput]:
        """Answers one conversation, or each of a list of them, through the chat template.

        messages: [{"role": str, "content": str or parts}, ...]. chat_template: a text in place of the
        checkpoint's. continue_final_message: the last message is begun and goes on (needs
        add_generation_prompt=False). tools: shown to the template. chat_template_kwargs: its variables.

        Raises as generate, ChatTemplateResolutionError when there is no template, and ValidationError when
        the template refuses the messages.
        """
        self._core.engine.check()
        refuse_lora(lora_request)
        refuse_media({"mm_processor_kwargs": mm_processor_kwargs})
        if chat_template_content_format not in ("auto", "string", "openai"):
            raise ValidationError("chat_template_content_format must be auto, string or openai",
                                  parameter="chat_template_content_format", value=chat_template_content_format)
        conversations = _conversations(messages)
        params = self._params_for(sampling_params, len(conversations))
        kwargs = {"add_special_tokens": False, **(tokenization_kwargs or {})}
        texts = [self._core.tokenizer.render(
            c, chat_template=chat_template, add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message, tools=None if tools is None else list(tools),
            chat_template_kwargs=chat_template_kwargs) for c in conversations]
        encoded = [self._core.encode(Prompt(text, None), kwargs) for text in texts]
        return self._run(encoded, params, use_tqdm, [0] * len(encoded))

    def beam_search(
        self,
        prompts: PromptType | Sequence[PromptType],
        params: BeamSearchParams,
        lora_request: None = None,
        use_tqdm: bool | Callable[..., Any] = False,
        concurrency_limit: int | None = None,
    ) -> list[BeamSearchOutput]:
        """The beam_width likeliest answers that a beam search finds after each prompt; outputs are in their order.

        prompts, use_tqdm (the bar counts prompts): as of generate. concurrency_limit: prompts that are searched
        at a time; None: all.

        Raises as generate, TypeError when params is no BeamSearchParams, and ValidationError when 2 * beam_width is
        more than the LLM's max_logprobs.
        """
        core = self._core
        core.engine.check()
        refuse_lora(lora_request)
        if not isinstance(params, BeamSearchParams):
            raise TypeError(f"params must be BeamSearchParams, got {type(params).__name__}")
        if concurrency_limit is not None and (not isinstance(concurrency_limit, int) or concurrency_limit < 1):
            raise ValidationError(f"concurrency_limit must be a count of prompts, got {concurrency_limit!r}",
                                  parameter="concurrency_limit", value=concurrency_limit)
        sampling = step_params(params, core.engine.max_logprobs)
        searches = [Beams(core.encode(prompt, None), params, core.end_ids, core.config.max_model_len)
                    for prompt in parse_prompts(prompts)]

        def step(sequences: Sequence[TokenizedPrompt]) -> list[LogprobsOnePosition]:
            outputs = self._run(list(sequences), [sampling] * len(sequences), False, [0] * len(sequences))
            return [output.outputs[0].logprobs[0] for output in outputs]

        limit, outputs = concurrency_limit or len(searches), []
        bar = make_bar(use_tqdm, len(searches))
        try:
            for begin in range(0, len(searches), limit):
                outputs += search(searches[begin:begin + limit], step, bar)
        finally:
            bar.close()
        for sequence in (sequence for output in outputs for sequence in output.sequences):
            sequence.text = core.tokenizer.decode(sequence.tokens)
        return outputs

    def _params_for(self, params: Any, n: int) -> list[SamplingParams]:
        if params is None:
            return [self._core.defaults] * n
        if isinstance(params, SamplingParams):
            return [params] * n
        if not isinstance(params, (list, tuple)) or not all(isinstance(p, SamplingParams) for p in params):
            raise TypeError(f"sampling_params must be SamplingParams or a list of them, got {type(params).__name__}")
        if len(params) != n:
            raise ValidationError(f"The lengths of prompts ({n}) and sampling_params ({len(params)}) must be the same.",
                                  parameter="sampling_params", value=len(params))
        return list(params)

    def _run(self, prompts: list[TokenizedPrompt], params: list[SamplingParams], use_tqdm: Any,
             priorities: list[int]) -> list[RequestOutput]:
        core = self._core
        requests = [core.request(prompt, p) for prompt, p in zip(prompts, params)]
        bar = make_bar(use_tqdm, sum(p.n for p in params))
        try:
            with core.waker() as waker:
                for number, request in enumerate(requests):
                    core.submit(waker, number, request, each_event=False, priority=priorities[number])
                for request in waker.ended():
                    if request.failure is not None:
                        raise request.failure
                    bar.advance(request.params.n, len(request.prompt.ids), request.n_output_tokens)
                core.engine.check()  # closed meanwhile by another thread?
                return [request.output(not core.disable_log_stats) for request in requests]
        finally:
            bar.close()

    # ---------------------------------------------------------------- around it

    def reset_prefix_cache(self, *unused: Any, **also_unused: Any) -> bool:
        """Prompts share nothing with those before this call. The memory is used again as it is needed.
        True: it always succeeds."""
        self._core.reset_prefix_cache()
        return True

    @property
    def max_model_len(self) -> int:
        """Tokens that prompt and answer may have together."""
        return self._core.config.max_model_len

    @property
    def supported_tasks(self) -> tuple[str, ...]:
        """("generate",)"""
        return ("generate",)

    def get_world_size(self, include_dp: bool = True) -> int:
        """1: one process computes."""
        return 1

    def __repr__(self) -> str:
        return f"LLM(model={self._core.config.model!r})"

    def close(self) -> None:
        """Cancels what runs and frees engine and KV cache; the model when no tokenizer is held either."""
        core = getattr(self, "_core", None)
        if core is not None:
            core.close()

    def __enter__(self) -> LLM:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __del__(self) -> None:
        if not sys.is_finalizing():
            self.close()

    # ---------------------------------------------------------------- what a text model on a CPU has not

    def encode(self, *unused: Any, **also_unused: Any) -> None:
        """Raises ValueError, as vLLM does on a model that generates."""
        raise _pooling("encode")

    def embed(self, *unused: Any, **also_unused: Any) -> None:
        """Raises ValueError, as vLLM does on a model that generates."""
        raise _pooling("embed")

    def classify(self, *unused: Any, **also_unused: Any) -> None:
        """Raises ValueError, as vLLM does on a model that generates."""
        raise _pooling("classify")

    def score(self, *unused: Any, **also_unused: Any) -> None:
        """Raises ValueError, as vLLM does on a model that generates."""
        raise _pooling("score")

    def reward(self, *unused: Any, **also_unused: Any) -> None:
        """Raises ValueError, as vLLM does on a model that generates."""
        raise _pooling("reward")

    def sleep(self, level: int = 1) -> None:
        """Warns and does nothing, as vLLM on a CPU."""
        warnings.warn("sleep has no effect: the memory is the machine's", stacklevel=2)

    def wake_up(self, tags: list[str] | None = None) -> None:
        """Warns and does nothing, as vLLM on a CPU."""
        warnings.warn("wake_up has no effect: the memory is the machine's", stacklevel=2)


def _priorities(priority: Any, n: int) -> list[int]:
    if priority is None:
        return [0] * n
    if not isinstance(priority, (list, tuple)) or not all(hasattr(p, "__index__") for p in priority):
        raise TypeError("priority must be a list of integers, one for each prompt")
    if len(priority) != n:
        raise ValidationError(f"The lengths of prompts ({n}) and priority ({len(priority)}) must be the same.",
                              parameter="priority", value=len(priority))
    if not all(-_MAX_PRIORITY <= p < _MAX_PRIORITY for p in priority):
        raise ValidationError("a priority must fit in 64 bits", parameter="priority", value=priority)
    return list(priority)


def _conversations(messages: Any) -> list[list[Any]]:
    if not isinstance(messages, (list, tuple)):
        raise TypeError(f"messages must be a list, got {type(messages).__name__}")
    if not messages:
        raise ValidationError("at least one message is needed, got an empty list")
    conversations = [messages] if all(isinstance(m, dict) for m in messages) else messages
    for c in conversations:
        if not isinstance(c, (list, tuple)) or not all(isinstance(m, dict) for m in c):
            raise TypeError("messages must be a list of dicts, or a list of such lists")
        if not c:
            raise ValidationError("at least one message is needed, got an empty conversation")
    return list(conversations)


def _pooling(name: str) -> ValueError:
    return ValidationError(f"LLM.{name}() is only supported for pooling models; this model generates text")
