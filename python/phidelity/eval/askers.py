"""Who answers prompts: the engine in this process, or a server. Greedy, in order, with a bar."""
from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from ..http_json import ask
from ..progress import make_bar

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Protocol, Union

    from ..llm import LLM

    Message = dict[str, Any]
    Prompt = Union[str, list[Message]]  # a text to continue, or a conversation

    class Asker(Protocol):
        def ask_all(self, prompts: Sequence[Prompt], max_tokens: int, stop: Sequence[str]) -> list[str]:
            """The answer to each of the texts, or of the conversations; prompts are of one kind."""


class EngineAsker:
    """Through an LLM."""

    def __init__(self, llm: LLM, progress: bool = True) -> None:
        self._llm = llm
        self._progress = progress

    def ask_all(self, prompts: Sequence[Prompt], max_tokens: int, stop: Sequence[str]) -> list[str]:
        from ..sampling_params import SamplingParams
        params = SamplingParams(temperature=0, max_tokens=max_tokens, stop=list(stop))
        texts = [prompt for prompt in prompts if isinstance(prompt, str)]
        if texts:
            outputs = self._llm.generate(texts, params, use_tqdm=self._progress)
        else:
            conversations = [prompt for prompt in prompts if not isinstance(prompt, str)]
            outputs = self._llm.chat(conversations, params, use_tqdm=self._progress)
        return [output.outputs[0].text for output in outputs]


class ServerAsker:
    """Through an OpenAI-compatible server, `concurrency` requests at a time.

    model: the name that requests carry; None asks /v1/models.
    """

    def __init__(self, url: str, model: str | None = None, *, api_key: str | None = None, concurrency: int = 16,
                 progress: bool = True) -> None:
        self._url = url.rstrip("/").removesuffix("/v1")
        self._api_key = api_key
        self._model = model or str(self._ask("/v1/models")["data"][0]["id"])
        self._concurrency = concurrency
        self._progress = progress

    def _ask(self, path: str, body: Any = None) -> Any:
        return ask(self._url, path, body, api_key=self._api_key)

    def _answer(self, prompt: Prompt, max_tokens: int, stop: Sequence[str]) -> tuple[str, Any]:
        """The text, and the usage."""
        body = {"model": self._model, "max_tokens": max_tokens, "temperature": 0, "stop": list(stop)}
        if isinstance(prompt, str):
            found = self._ask("/v1/completions", {**body, "prompt": prompt})
            return found["choices"][0]["text"], found.get("usage") or {}
        found = self._ask("/v1/chat/completions", {**body, "messages": prompt})
        return found["choices"][0]["message"]["content"] or "", found.get("usage") or {}

    def ask_all(self, prompts: Sequence[Prompt], max_tokens: int, stop: Sequence[str]) -> list[str]:
        bar = make_bar(self._progress, len(prompts))
        executor = ThreadPoolExecutor(self._concurrency)
        try:
            texts = []
            for text, usage in executor.map(lambda prompt: self._answer(prompt, max_tokens, stop), prompts):
                texts.append(text)
                bar.advance(1, usage.get("prompt_tokens", 0), usage.get("completion_tokens", 0))
            return texts
        finally:
            executor.shutdown(wait=True, cancel_futures=True)  # after an error or Ctrl-C: no more requests
            bar.close()
