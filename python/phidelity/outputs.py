"""What generate and chat return, under vLLM's names."""
from __future__ import annotations

from ._record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .logprobs import PromptLogprobs, SampleLogprobs


class CompletionOutput(Record):
    """One of the n answers to a prompt.

    index: 0 .. n - 1. text: without the stop string unless it was to be included.
    token_ids: [n_tokens], with the token that ended the answer.
    logprobs: [n_tokens] dicts {token id: Logprob}, the sampled token first; None when not asked for,
    and then cumulative_logprob (the sum over the sampled tokens) is None too.
    finish_reason: "stop", "length", "abort", or None while the answer goes on.
    stop_reason: the stop string or the stop token's id that ended it, None for the end of text.
    lora_request and routed_experts are always None.
    """

    def __init__(self, index: int, text: str, token_ids: list[int], cumulative_logprob: float | None,
                 logprobs: SampleLogprobs | None, routed_experts: None = None, finish_reason: str | None = None,
                 stop_reason: int | str | None = None, lora_request: None = None) -> None:
        self.index = index
        self.text = text
        self.token_ids = token_ids
        self.cumulative_logprob = cumulative_logprob
        self.logprobs = logprobs
        self.routed_experts = routed_experts
        self.finish_reason = finish_reason
        self.stop_reason = stop_reason
        self.lora_request = lora_request

    def finished(self) -> bool:
        """Whether this answer is complete."""
        return self.finish_reason is not None

    def __repr__(self) -> str:
        """As vLLM writes it: without quotes around what can only be a word."""
        return (f"CompletionOutput(index={self.index}, text={self.text!r}, token_ids={self.token_ids}, "
                f"routed_experts={self.routed_experts}, cumulative_logprob={self.cumulative_logprob}, "
                f"logprobs={self.logprobs}, finish_reason={self.finish_reason}, stop_reason={self.stop_reason})")


class RequestStateStats(Record):
    """Times of one request, filled when the LLM was made with disable_log_stats=False.

    arrival_time is of the wall clock (time.time()); queued_ts, scheduled_ts, first_token_ts and last_token_ts
    are of one that never jumps (time.monotonic()); first_token_latency is in seconds since the arrival;
    num_preemptions counts how often an answer made room for others. is_corrupted is always False: an answer
    with NaN is an error.
    """

    def __init__(self, num_generation_tokens: int = 0, arrival_time: float = 0.0, queued_ts: float = 0.0,
                 scheduled_ts: float = 0.0, first_token_ts: float = 0.0, last_token_ts: float = 0.0,
                 first_token_latency: float = 0.0, is_corrupted: bool = False, num_preemptions: int = 0) -> None:
        self.num_generation_tokens = num_generation_tokens
        self.arrival_time = arrival_time
        self.queued_ts = queued_ts
        self.scheduled_ts = scheduled_ts
        self.first_token_ts = first_token_ts
        self.last_token_ts = last_token_ts
        self.first_token_latency = first_token_latency
        self.is_corrupted = is_corrupted
        self.num_preemptions = num_preemptions


class RequestOutput(Record):
    """The answers to one prompt.

    prompt: the text, None when ids were given. prompt_token_ids: [n_prompt].
    prompt_logprobs: [n_prompt] dicts as of CompletionOutput.logprobs, the first None; None when
    not asked for. outputs: the n answers in order. finished: whether all of them are complete.
    num_cached_tokens: tokens of the prompt that came from the prefix cache.
    metrics: RequestStateStats or None. lora_request, encoder_prompt, encoder_prompt_token_ids and
    kv_transfer_params are always None.
    """

    def __init__(self, request_id: str, prompt: str | None, prompt_token_ids: list[int] | None,
                 prompt_logprobs: PromptLogprobs | None, outputs: list[CompletionOutput], finished: bool,
                 metrics: RequestStateStats | None = None, lora_request: None = None,
                 encoder_prompt: None = None, encoder_prompt_token_ids: None = None,
                 num_cached_tokens: int | None = None, kv_transfer_params: None = None) -> None:
        self.request_id = request_id
        self.prompt = prompt
        self.prompt_token_ids = prompt_token_ids
        self.prompt_logprobs = prompt_logprobs
        self.outputs = outputs
        self.finished = finished
        self.metrics = metrics
        self.lora_request = lora_request
        self.encoder_prompt = encoder_prompt
        self.encoder_prompt_token_ids = encoder_prompt_token_ids
        self.num_cached_tokens = num_cached_tokens
        self.kv_transfer_params = kv_transfer_params

    def __repr__(self) -> str:
        """As vLLM writes it."""
        return (f"RequestOutput(request_id={self.request_id}, prompt={self.prompt!r}, "
                f"prompt_token_ids={self.prompt_token_ids}, encoder_prompt={self.encoder_prompt!r}, "
                f"encoder_prompt_token_ids={self.encoder_prompt_token_ids}, prompt_logprobs={self.prompt_logprobs}, "
                f"outputs={self.outputs}, finished={self.finished}, metrics={self.metrics}, "
                f"lora_request={self.lora_request}, num_cached_tokens={self.num_cached_tokens})")
