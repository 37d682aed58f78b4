"""The checkpoint's tokenizer and chat template, as `LLM.get_tokenizer()` gives them.

The names are those of Hugging Face's tokenizers; texts and ids are exactly theirs.
"""
from __future__ import annotations

from ._library import ids_of, lib, take_bytes, take_ids, text_of
from .exceptions import ChatTemplateResolutionError, ValidationError
from .tokenizer_files import read_config, read_template, special_token

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from .model import Model

    Message = dict[str, Any]


class Encoding(dict):
    """{"input_ids", "attention_mask"}, also as attributes."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


class Tokenizer:
    """Works as long as somebody holds it, also after the LLM was closed; from any thread.

    chat_template may be set to a text, as of Hugging Face's: LLM.chat then uses that one.
    """

    is_fast = True

    def __init__(self, model: Model) -> None:
        self._model = model
        self._bytes: dict[int, bytes] = {}
        self._vocab: dict[str, int] = {}
        self._config: dict[str, Any] | None = None
        self._own_template: str | None = None

    # ---------------------------------------------------------------- facts

    @property
    def name_or_path(self) -> str:
        """The folder it was read from."""
        return self._model.tokenizer_path

    @property
    def vocab_size(self) -> int:
        """1 + the greatest id that has a token, added tokens included."""
        return self._model.info.n_token_ids

    def __len__(self) -> int:
        return self.vocab_size

    @property
    def max_token_id(self) -> int:
        """The greatest id that has a token."""
        return self.vocab_size - 1

    @property
    def truncation_side(self) -> str:
        """"left" or "right": where a prompt that is too long is cut."""
        return "left" if self._model.info.truncates_left else "right"

    def get_vocab(self) -> dict[str, int]:
        """{spelling: id} of every token."""
        if not self._vocab:
            spelled = ((self._spelling(i), i) for i in range(self.vocab_size))
            self._vocab = {spelling: i for spelling, i in spelled if spelling}
        return dict(self._vocab)

    @property
    def bos_token_id(self) -> int | None:
        """The id that begins a text, if the model has one."""
        return None if self._model.info.bos_id < 0 else self._model.info.bos_id

    @property
    def eos_token_id(self) -> int | None:
        """The id that ends a text, if the model has one."""
        return None if self._model.info.eos_id < 0 else self._model.info.eos_id

    @property
    def pad_token_id(self) -> int | None:
        """The id that fills up, if the tokenizer names one."""
        return self._id_of(self.pad_token)

    @property
    def unk_token_id(self) -> int | None:
        """The id for what has none, if the tokenizer names one."""
        return self._id_of(self.unk_token)

    @property
    def bos_token(self) -> str | None:
        """The text of bos_token_id."""
        return None if self.bos_token_id is None else self._spelling(self.bos_token_id)

    @property
    def eos_token(self) -> str | None:
        """The text of eos_token_id."""
        return None if self.eos_token_id is None else self._spelling(self.eos_token_id)

    @property
    def pad_token(self) -> str | None:
        """The text of pad_token_id."""
        return special_token(self._settings, "pad_token")

    @property
    def unk_token(self) -> str | None:
        """The text of unk_token_id."""
        return special_token(self._settings, "unk_token")

    @property
    def all_special_tokens(self) -> list[str]:
        """Those of the four that there are, each once."""
        tokens = (self.bos_token, self.eos_token, self.unk_token, self.pad_token)
        return list(dict.fromkeys(token for token in tokens if token is not None))

    @property
    def all_special_ids(self) -> list[int]:
        """The ids of all_special_tokens."""
        return [self.convert_tokens_to_ids(token) for token in self.all_special_tokens]

    @property
    def chat_template(self) -> str | None:
        """The template's text: what it was set to, else LLM's chat_template, else the checkpoint's."""
        if self._own_template is None and self._model.info.has_chat_template:
            return read_template(self._model.tokenizer_path, self._settings, self._model.chat_template)
        return self._own_template

    @chat_template.setter
    def chat_template(self, text: str | None) -> None:
        self._own_template = text

    @property
    def _settings(self) -> dict[str, Any]:
        if self._config is None:
            self._config = read_config(self._model.tokenizer_path)
        return self._config

    def _id_of(self, token: str | None) -> int | None:
        return None if token is None else self.convert_tokens_to_ids(token)

    # ---------------------------------------------------------------- text to ids

    def encode(self, text: str, add_special_tokens: bool = True, truncation: bool = False,
               max_length: int | None = None) -> list[int]:
        """Ids [n], with truncation at most max_length. Raises TypeError when `text` is no str."""
        if not isinstance(text, str):
            raise TypeError(f"text must be a str, got {type(text).__name__}")
        kept: list[Any] = []
        ids = take_ids(lib.phi_tokenize, self._model.pointer, text_of(text, kept), bool(add_special_tokens))
        return self.truncate(ids, max_length) if truncation and max_length is not None else ids

    def truncate(self, ids: list[int], n: int) -> list[int]:
        """At most n of the ids, cut at truncation_side."""
        if len(ids) <= n:
            return ids
        return ids[len(ids) - n:] if self._model.info.truncates_left else ids[:n]

    def __call__(self, text: str | Sequence[str], add_special_tokens: bool = True, truncation: bool = False,
                 max_length: int | None = None, return_tensors: None = None) -> Encoding:
        """{"input_ids", "attention_mask"}, of lists when `text` is a list."""
        _refuse_tensors(return_tensors)
        if isinstance(text, str):
            ids = self.encode(text, add_special_tokens, truncation, max_length)
            return Encoding(input_ids=ids, attention_mask=[1] * len(ids))
        all_ids = [self.encode(t, add_special_tokens, truncation, max_length) for t in text]
        return Encoding(input_ids=all_ids, attention_mask=[[1] * len(ids) for ids in all_ids])

    def tokenize(self, text: str) -> list[str]:
        """The spellings of a text's tokens, nothing added."""
        return [self._spelling(i) for i in self.encode(text, add_special_tokens=False)]

    def convert_tokens_to_ids(self, tokens: str | Sequence[str]) -> Any:
        """The id of one spelling, or of each; for an unknown one that of unk_token, or None."""
        if not isinstance(tokens, str):
            return [self.convert_tokens_to_ids(token) for token in tokens]
        if not self._vocab:
            self.get_vocab()
        return self._vocab.get(tokens, self._vocab.get(self.unk_token or ""))

    # ---------------------------------------------------------------- ids to text

    def decode(self, token_ids: int | Sequence[int], skip_special_tokens: bool = False) -> str:
        """The text of ids [n], or of one id. Raises ValidationError for an id without a token."""
        ids = list(token_ids) if hasattr(token_ids, "__iter__") else [token_ids]
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

    # ---------------------------------------------------------------- conversations

    def apply_chat_template(
        self,
        conversation: Sequence[Message],
        tools: Sequence[dict[str, Any]] | None = None,
        documents: Sequence[dict[str, Any]] | None = None,
        chat_template: str | None = None,
        add_generation_prompt: bool = False,
        continue_final_message: bool = False,
        tokenize: bool = True,
        truncation: bool = False,
        max_length: int | None = None,
        return_tensors: None = None,
        return_dict: bool = False,
        **kwargs: Any,
    ) -> str | list[int] | Encoding:
        """Renders messages [{"role", "content"}, ...] through the template: ids [n] (with return_dict as of
        calling the tokenizer), or with tokenize=False the text.

        `kwargs` are variables for the template. Raises ChatTemplateResolutionError when there is no
        template, ValidationError when it refuses the messages.
        """
        _refuse_tensors(return_tensors)
        text = self.render(conversation, tools=tools, documents=documents, chat_template=chat_template,
                           add_generation_prompt=add_generation_prompt,
                           continue_final_message=continue_final_message, chat_template_kwargs=kwargs or None)
        if not tokenize:
            return text
        ids = self.encode(text, False, truncation, max_length)
        return Encoding(input_ids=ids, attention_mask=[1] * len(ids)) if return_dict else ids

    def render(self, conversation: Sequence[Message], chat_template: str | None = None, **options: Any) -> str:
        """apply_chat_template's text, with the options of phi_render_chat; None is absent."""
        import json

        chat_template = chat_template or self._own_template
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


def _refuse_tensors(return_tensors: object) -> None:
    if return_tensors is not None:
        raise ValidationError("ids are lists here: leave return_tensors at None, and give them to torch.tensor",
                              parameter="return_tensors", value=return_tensors)
