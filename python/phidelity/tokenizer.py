"""The checkpoint's tokenizer and chat template, as `LLM.get_tokenizer()` gives them.

The names are those of Hugging Face's tokenizers; texts and ids are exactly theirs.
"""
from __future__ import annotations

from ._library import ids_of, lib, take_bytes, take_ids, text_of
from .exceptions import ChatTemplateResolutionError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from .engine import Model

    Message = dict[str, Any]


class Tokenizer:
    """Works as long as somebody holds it, also after the LLM was closed; from any thread."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._bytes: dict[int, bytes] = {}

    @property
    def vocab_size(self) -> int:
        """1 + the greatest id that has a token."""
        return self._model.info.n_token_ids

    def __len__(self) -> int:
        return self.vocab_size

    @property
    def bos_token_id(self) -> int | None:
        """The id that begins a text, if the model has one."""
        return None if self._model.info.bos_id < 0 else self._model.info.bos_id

    @property
    def eos_token_id(self) -> int | None:
        """The id that ends a text, if the model has one."""
        return None if self._model.info.eos_id < 0 else self._model.info.eos_id

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Ids [n]. Raises TypeError when `text` is no str."""
        if not isinstance(text, str):
            raise TypeError(f"text must be a str, got {type(text).__name__}")
        kept: list[Any] = []
        return take_ids(lib.phi_tokenize, self._model.pointer, text_of(text, kept), bool(add_special_tokens))

    def __call__(self, text: str | Sequence[str], add_special_tokens: bool = True) -> dict[str, Any]:
        """{"input_ids", "attention_mask"}, of lists when `text` is a list."""
        if isinstance(text, str):
            ids = self.encode(text, add_special_tokens)
            return {"input_ids": ids, "attention_mask": [1] * len(ids)}
        all_ids = [self.encode(t, add_special_tokens) for t in text]
        return {"input_ids": all_ids, "attention_mask": [[1] * len(ids) for ids in all_ids]}

    def decode(self, token_ids: int | Sequence[int], skip_special_tokens: bool = False) -> str:
        """The text of ids [n], or of one id. Raises ValidationError for an id without a token."""
        ids = [token_ids] if isinstance(token_ids, int) else list(token_ids)
        kept: list[Any] = []
        data = take_bytes(lib.phi_detokenize, self._model.pointer, ids_of(ids, kept), len(ids),
                          bool(skip_special_tokens))
        return data.decode("utf-8", "replace")

    def batch_decode(self, sequences: Sequence[Sequence[int]], skip_special_tokens: bool = False) -> list[str]:
        """decode of each."""
        return [self.decode(ids, skip_special_tokens) for ids in sequences]

    def convert_ids_to_tokens(self, ids: int | Sequence[int]) -> str | list[str]:
        """The vocabulary's own spelling ("Ġdef") of one id or of each; "" where there is none."""
        if isinstance(ids, int):
            return self._spelling(ids)
        return [self._spelling(i) for i in ids]

    def _spelling(self, token_id: int) -> str:
        return take_bytes(lib.phi_token_spelling, self._model.pointer, token_id).decode("utf-8", "replace")

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that a token stands for inside a text; of a character, perhaps only a part."""
        known = self._bytes.get(token_id)
        if known is None:
            known = take_bytes(lib.phi_token_bytes, self._model.pointer, token_id)
            self._bytes[token_id] = known
        return known

    def apply_chat_template(
        self,
        conversation: Sequence[Message],
        tools: Sequence[dict[str, Any]] | None = None,
        documents: Sequence[dict[str, Any]] | None = None,
        chat_template: str | None = None,
        add_generation_prompt: bool = False,
        continue_final_message: bool = False,
        tokenize: bool = True,
        **kwargs: Any,
    ) -> str | list[int]:
        """Renders messages [{"role", "content"}, ...] through the template: ids [n], or the text.

        `kwargs` are variables for the template. Raises ChatTemplateResolutionError when there is no
        template, ValidationError when it refuses the messages.
        """
        text = self.render(conversation, tools=tools, documents=documents, chat_template=chat_template,
                           add_generation_prompt=add_generation_prompt,
                           continue_final_message=continue_final_message, chat_template_kwargs=kwargs or None)
        return self.encode(text, add_special_tokens=False) if tokenize else text

    def render(self, conversation: Sequence[Message], chat_template: str | None = None, **options: Any) -> str:
        """apply_chat_template's text, with the options of phi_render_chat; None is absent."""
        import json

        if not chat_template and not self._model.info.has_chat_template:
            raise ChatTemplateResolutionError(
                "the checkpoint has no chat template; give one as the chat_template of LLM or of this call")
        options = {k: v for k, v in options.items() if v is not None}
        if chat_template:
            options["chat_template"] = chat_template
        kept: list[Any] = []
        messages = text_of(json.dumps(list(conversation), ensure_ascii=False), kept)
        data = take_bytes(lib.phi_render_chat, self._model.pointer, messages,
                          text_of(json.dumps(options, ensure_ascii=False), kept))
        return data.decode("utf-8")

    def __repr__(self) -> str:
        return f"Tokenizer({self._model.path!r}, vocab_size={self.vocab_size})"

