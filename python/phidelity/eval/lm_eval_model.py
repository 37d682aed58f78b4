"""lm-eval's model "phidelity": the engine in lm-eval's process, as its model "vllm" is vLLM.

    python -m phidelity.lm_eval run --model phidelity --model_args pretrained=FOLDER,dtype=bfloat16 --tasks ...

is lm-eval's own command with this model known to it (released versions, up to 0.4.13, find no models in other
packages). In a script, `import phidelity.eval.lm_eval_model` is enough. Only lm-eval imports this module.
"""
from __future__ import annotations

from typing import TYPE_CHECKING

import lm_eval.models  # noqa: F401 (registers lm-eval's own, which it does only while the registry is empty)
from lm_eval.api.model import TemplateLM
from lm_eval.api.registry import register_model
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

from ..exceptions import ValidationError
from ..llm import LLM
from ..sampling_params import SamplingParams

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from lm_eval.api.instance import Instance

_LENGTHS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")  # the first that is given
_SAMPLING = ("temperature", "top_p", "top_k", "min_p", "seed", "repetition_penalty", "presence_penalty",
             "frequency_penalty", "min_tokens", "ignore_eos", "skip_special_tokens")


def _count(value: Any) -> int | None:
    return None if value is None else int(value)


@register_model("phidelity")
class PhidelityLM(TemplateLM):
    """pretrained: a checkpoint folder, or "org/name" in Hugging Face's cache. max_model_len (or max_length),
    max_gen_toks (of answers whose task sets no length), add_bos_token (None: as the tokenizer does),
    prefix_token_id (in front of a text without context; None: the model's first or last token), truncation of
    prompts that are too long from the left: as of lm-eval's model "vllm". batch_size: how many requests are given
    to the engine at a time; "auto" gives it all, and it forms its batches itself, of max_batch_size answers at most.
    device: nothing; lm-eval's command always names one. Everything else is LLM's."""

    def __init__(self, pretrained: str, dtype: str = "auto", quantization: str | None = None,
                 max_model_len: int | None = None, max_length: int | None = None, tokenizer: str | None = None,
                 batch_size: int | str = "auto", max_batch_size: int | None = None, max_gen_toks: int = 256,
                 add_bos_token: bool | None = None, prefix_token_id: int | None = None,
                 chat_template_args: dict[str, Any] | None = None, device: str | None = None, **engine: Any) -> None:
        super().__init__()
        if max_model_len is not None and max_length is not None:
            raise ValidationError("max_model_len and max_length are the same: give one", parameter="max_length",
                                  value=max_length)
        length = max_model_len if max_length is None else max_length
        options = {"max_model_len": _count(length), "tokenizer": tokenizer, "quantization": quantization,
                   "max_num_seqs": _count(max_batch_size), **engine}
        self.llm = LLM(pretrained, dtype=dtype, **{k: v for k, v in options.items() if v is not None})
        self.tokenizer = self.llm.get_tokenizer()
        self.batch_size = "auto" if str(batch_size).startswith("auto") else int(batch_size)
        self._pretrained = pretrained
        self._template_args = chat_template_args or {}
        self._max_gen_toks = int(max_gen_toks)
        self._add_bos = add_bos_token
        self._prefix = _count(prefix_token_id)

    # ---------------------------------------------------------------- tokens

    @property
    def eot_token_id(self) -> int | None:
        return self.tokenizer.eos_token_id

    @property
    def prefix_token_id(self) -> int | None:
        if self._prefix is not None:
            return self._prefix
        bos = self.tokenizer.bos_token_id
        return self.tokenizer.eos_token_id if bos is None else bos

    @property
    def max_length(self) -> int:
        return self.llm.max_model_len

    @property
    def max_gen_toks(self) -> int:
        return self._max_gen_toks

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_: Any) -> list[int]:
        """Ids [n]. A text that already begins with the first token's text (a chat template's) gets no second one."""
        if add_special_tokens is None:
            add_special_tokens = True if self._add_bos is None else self._add_bos
            prefix = self.prefix_token_id
            if prefix is not None and string.startswith(self.tokenizer.decode(prefix)):
                add_special_tokens = False
        return self.tokenizer.encode(string, add_special_tokens=add_special_tokens)

    # ---------------------------------------------------------------- chats

    @property
    def tokenizer_name(self) -> str:
        return self._pretrained.replace("/", "__")

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        """The text. As lm-eval's own models do, without the system message where the template refuses it."""
        def render(messages: list[dict[str, str]]) -> str:
            return str(self.tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=add_generation_prompt,
                continue_final_message=not add_generation_prompt, **self._template_args))
        try:
            return render(chat_history)
        except ValidationError:
            others = [m for m in chat_history if m["role"] != "system"]
            if len(others) == len(chat_history):
                raise
            return render(others)

    # ---------------------------------------------------------------- answers

    def _batches(self, n: int) -> Iterable[slice]:
        size = self.batch_size if isinstance(self.batch_size, int) else max(n, 1)
        return (slice(i, i + size) for i in range(0, n, size))

    def _generate(self, prompts: Sequence[list[int]], params: Sequence[SamplingParams],
                  disable_tqdm: bool) -> list[Any]:
        outputs = []
        for part in self._batches(len(prompts)):
            outputs += self.llm.generate([{"prompt_token_ids": ids} for ids in prompts[part]], list(params[part]),
                                         use_tqdm=not disable_tqdm)
        return outputs

    def _loglikelihood_tokens(self, requests: Sequence[tuple[tuple[str, str] | None, list[int], list[int]]],
                              disable_tqdm: bool = False, **_: Any) -> list[tuple[float, bool]]:
        """(sum of log probabilities of the continuation, whether each of its tokens is the likeliest)."""
        longest = self.max_length - 1  # the engine adds a token
        prompts = [(context + continuation)[-longest:] for _, context, continuation in requests]
        params = SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=0, detokenize=False)
        outputs = self._generate(prompts, [params] * len(prompts), disable_tqdm)
        answers = []
        for (key, _context, continuation), ids, output in zip(requests, prompts, outputs):
            first = max(len(ids) - len(continuation), 1)
            found = [at[token] for token, at in zip(ids[first:], output.prompt_logprobs[first:])]
            answer = (sum(p.logprob for p in found), all(p.rank == 1 for p in found))
            if key is not None:
                self.cache_hook.add_partial("loglikelihood", key, answer)
            answers.append(answer)
        return answers

    def loglikelihood_rolling(self, requests: list[Instance], disable_tqdm: bool = False) -> list[float]:
        """The log probability of each whole text, every token once, with as much before it as fits."""
        windows, owners = [], []
        for number, request in enumerate(requests):
            rolled = get_rolling_token_windows(token_list=self.tok_encode(request.args[0]), context_len=1,
                                               prefix_token=self.prefix_token_id, max_seq_len=self.max_length - 2)
            for context, continuation in map(make_disjoint_window, rolled):
                windows.append((None, context, continuation))
                owners.append(number)
        sums = [0.0] * len(requests)
        for number, (logprob, _) in zip(owners, self._loglikelihood_tokens(windows, disable_tqdm)):
            sums[number] += logprob
        for request, total in zip(requests, sums):
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, total)
        return sums

    def _params(self, gen_kwargs: dict[str, Any]) -> SamplingParams:
        """Of one request. Raises ValidationError for a key that nothing here uses."""
        options = dict(gen_kwargs)
        until = options.pop("until", None) or []
        stop = [until] if isinstance(until, str) else list(until)
        end = self.eot_token_id
        if end is not None:  # also where it is spelt out
            stop.append(self.tokenizer.decode(end))
        lengths = [options.pop(name, None) for name in _LENGTHS]
        max_tokens = next((int(n) for n in lengths if n is not None), self.max_gen_toks)
        temperature = float(options.pop("temperature", None) or 0)
        if options.pop("do_sample", None) is False:
            temperature = 0.0
        unknown = [name for name in options if name not in _SAMPLING]
        if unknown:
            raise ValidationError(f"generation_kwargs may have until, do_sample, {', '.join(_LENGTHS + _SAMPLING)}",
                                  parameter=unknown[0], value=options[unknown[0]])
        return SamplingParams(temperature=temperature, max_tokens=max_tokens, stop=[s for s in stop if s], **options)

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        """The answer to each context, up to the first of its `until`."""
        params = [self._params(request.args[1]) for request in requests]
        prompts = []
        for request, p in zip(requests, params):
            assert p.max_tokens is not None  # _params sets it
            room = self.max_length - p.max_tokens
            if room < 1:
                raise ValidationError(f"answers of {p.max_tokens} tokens leave no room for a prompt in the context of "
                                      f"{self.max_length}", parameter="max_gen_toks", value=p.max_tokens)
            prompts.append(self.tok_encode(request.args[0])[-room:])
        texts = [output.outputs[0].text for output in self._generate(prompts, params, disable_tqdm)]
        for request, text in zip(requests, texts):
            self.cache_hook.add_partial("generate_until", request.args, text)
        return texts
