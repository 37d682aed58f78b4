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

    __slots__ = ("index", "text", "token_ids", "cumulative_logprob", "logprobs", "finish_reason", "stop_reason",
                 "lora_request", "routed_experts")

    def __init__(self, index: int, text: str, token_ids: list[int], cumulative_logprob: float | None,
                 logprobs: SampleLogprobs | None, finish_reason: str | None = None,
                 stop_reason: int | str | None = None, lora_request: None = None,
                 routed_experts: None = None) -> None:
        self.index = index
        self.text = text
        self.token_ids = token_ids
        self.cumulative_logprob = cumulative_logprob
        self.logprobs = logprobs
        self.finish_reason = finish_reason
        self.stop_reason = stop_reason
        self.lora_request = lora_request
        self.routed_experts = routed_experts

    def finished(self) -> bool:
        """Whether this answer is complete."""
        return self.finish_reason is not None


class RequestStateStats(Record):
    """Times of one request, filled when the LLM was made with disable_log_stats=False.

    arrival_time is the clock's (time.time()); queued_ts, scheduled_ts, first_token_ts and
    last_token_ts are seconds since then; num_preemptions counts how often an answer made room for
    others.
    """

    __slots__ = ("arrival_time", "queued_ts", "scheduled_ts", "first_token_ts", "last_token_ts",
                 "first_token_latency", "num_generation_tokens", "num_preemptions")

    def __init__(self, arrival_time: float, scheduled_ts: float, first_token_ts: float, last_token_ts: float,
                 num_generation_tokens: int, num_preemptions: int) -> None:
        self.arrival_time = arrival_time
        self.queued_ts = 0.0
        self.scheduled_ts = scheduled_ts
        self.first_token_ts = first_token_ts
        self.last_token_ts = last_token_ts
        self.first_token_latency = first_token_ts
        self.num_generation_tokens = num_generation_tokens
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

    __slots__ = ("request_id", "prompt", "prompt_token_ids", "prompt_logprobs", "outputs", "finished", "metrics",
                 "lora_request", "encoder_prompt", "encoder_prompt_token_ids", "num_cached_tokens",
                 "kv_transfer_params")

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
