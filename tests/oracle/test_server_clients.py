"""The `openai` client, unchanged, against the server: sync, async, streaming; answers as transformers gives them."""
import asyncio
import json

import httpx
import make_goldens
import openai
import pytest
import torch
import transformers
from conftest import ROOT

CODE, CHAT = ROOT / "models" / "phi-tiny-code", ROOT / "models" / "phi3-tiny-chat"
PROMPT = "def fibonacci(n):"
N_NEW = 24
MESSAGES = [{"role": "system", "content": "Reply with just the number."},
            {"role": "user", "content": "Kate has 9 balloons. Then she gets 6 more. How many does she have?"}]
SHORT = {"model": "chat", "messages": MESSAGES, "temperature": 0, "max_tokens": N_NEW}


@pytest.fixture(scope="module")
def code_server(serve):
    return serve(CODE, "--dtype", "float32", "--max-model-len", 512, "--served-model-name", "code", "--api-key", "key")


@pytest.fixture(scope="module")
def chat_server(serve):
    return serve(CHAT, "--dtype", "float32", "--served-model-name", "chat", "--api-key", "key")


def base_url(server):
    return f"http://127.0.0.1:{server.port}/v1"


@pytest.fixture(scope="module")
def code(code_server):
    return openai.OpenAI(base_url=base_url(code_server), api_key="key", max_retries=0)


@pytest.fixture(scope="module")
def chat(chat_server):
    return openai.OpenAI(base_url=base_url(chat_server), api_key="key", max_retries=0)


class Reference:
    """A bundled model under transformers, in float32."""

    def __init__(self, folder):
        transformers.logging.disable_progress_bar()
        self.model = make_goldens.load(folder, torch.float32)
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder)

    def greedy(self, ids, n):
        chosen, logits = make_goldens.greedy(self.model, torch.tensor([ids]), n)
        return chosen.tolist(), torch.log_softmax(logits, -1)


@pytest.fixture(scope="module")
def code_reference():
    return Reference(CODE)


@pytest.fixture(scope="module")
def chat_reference():
    return Reference(CHAT)


# ------------------------------------------------------------------------------------------
# Completions

def test_models(code):
    assert [m.id for m in code.models.list()] == ["code"]


def test_completion(code, code_reference):
    ids = code_reference.tokenizer(PROMPT)["input_ids"]
    chosen, scores = code_reference.greedy(ids, N_NEW)
    answer = code.completions.create(model="code", prompt=PROMPT, temperature=0, max_tokens=N_NEW, logprobs=3,
                                     extra_body={"ignore_eos": True, "return_token_ids": True})
    choice = answer.choices[0]
    assert choice.token_ids == chosen
    assert choice.text == code_reference.tokenizer.decode(chosen)
    assert (choice.finish_reason, answer.usage.prompt_tokens, answer.usage.completion_tokens) == (
        "length", len(ids), N_NEW)
    for i, token in enumerate(chosen):
        assert abs(choice.logprobs.token_logprobs[i] - scores[i, token]) < 1e-3
        best = scores[i].topk(3).values.tolist()
        got = sorted(choice.logprobs.top_logprobs[i].values(), reverse=True)
        assert all(abs(a - b) < 1e-3 for a, b in zip(got, best))
    by_ids = code.completions.create(model="code", prompt=ids, temperature=0, max_tokens=N_NEW,
                                     extra_body={"ignore_eos": True})
    assert by_ids.choices[0].text == choice.text


def test_completion_stream(code):
    fields = {"model": "code", "prompt": [PROMPT, "import os"], "temperature": 0, "max_tokens": N_NEW}
    whole = code.completions.create(**fields)
    texts, usage = {0: "", 1: ""}, None
    for chunk in code.completions.create(stream=True, stream_options={"include_usage": True}, **fields):
        for choice in chunk.choices:
            texts[choice.index] += choice.text
        usage = chunk.usage or usage
    assert [texts[0], texts[1]] == [c.text for c in whole.choices]
    assert usage == whole.usage or usage.total_tokens == whole.usage.total_tokens


def test_n_and_seed(code):
    fields = {"model": "code", "prompt": PROMPT, "temperature": 1, "max_tokens": 12, "n": 4, "seed": 11}
    first, second = (code.completions.create(**fields) for _ in range(2))
    assert [c.text for c in first.choices] == [c.text for c in second.choices]
    assert len({c.text for c in first.choices}) > 1
    assert first.usage.prompt_tokens == second.usage.prompt_tokens < first.usage.completion_tokens


def test_stop(code):
    fields = {"model": "code", "prompt": PROMPT, "temperature": 0, "max_tokens": N_NEW}
    text = code.completions.create(**fields).choices[0].text
    stop = text[len(text) // 2:len(text) // 2 + 2]
    choice = code.completions.create(stop=[stop, "never there"], **fields).choices[0]
    assert (choice.text, choice.finish_reason, choice.stop_reason) == (text[:text.index(stop)], "stop", stop)
    echoed = code.completions.create(echo=True, **fields).choices[0]
    assert echoed.text == PROMPT + text


# ------------------------------------------------------------------------------------------
# Chat

def test_chat(chat, chat_reference):
    tokenizer = chat_reference.tokenizer
    ids = tokenizer.apply_chat_template(MESSAGES, add_generation_prompt=True, tokenize=True, return_dict=False)
    chosen, scores = chat_reference.greedy(list(ids), N_NEW)
    answer = chat.chat.completions.create(logprobs=True, top_logprobs=2, extra_body={"ignore_eos": True}, **SHORT)
    choice = answer.choices[0]
    assert choice.message.role == "assistant"
    assert choice.message.content == tokenizer.decode(chosen, skip_special_tokens=True)
    assert answer.usage.prompt_tokens == len(ids)
    assert len(choice.logprobs.content) == N_NEW
    for i, entry in enumerate(choice.logprobs.content):
        assert abs(entry.logprob - scores[i, chosen[i]]) < 1e-3
        assert all(abs(top.logprob - value) < 1e-3
                   for top, value in zip(entry.top_logprobs, scores[i].topk(2).values))
        assert bytes(entry.bytes).decode(errors="replace") == entry.token
    stops = json.loads((CHAT / "generation_config.json").read_text())["eos_token_id"]
    ended = chat.chat.completions.create(**SHORT).choices[0]
    at = next((i for i, token in enumerate(chosen) if token in stops), None)
    assert ended.finish_reason == ("length" if at is None else "stop")
    assert ended.message.content == tokenizer.decode(chosen[:at], skip_special_tokens=True)


def test_chat_stream(chat):
    whole = chat.chat.completions.create(**SHORT)
    content, ends, usage = "", [], None
    for chunk in chat.chat.completions.create(stream=True, stream_options={"include_usage": True}, **SHORT):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            content += choice.delta.content or ""
            ends += [choice.finish_reason] if choice.finish_reason else []
    assert content == whole.choices[0].message.content
    assert ends == [whole.choices[0].finish_reason]
    assert usage.completion_tokens == whole.usage.completion_tokens


def test_chat_stream_helper(chat):
    """The client's own accumulator, which is strict about the order and form of events."""
    whole = chat.chat.completions.create(**SHORT)
    with chat.chat.completions.stream(**SHORT) as stream:
        for _ in stream:
            pass
        final = stream.get_final_completion()
    assert final.choices[0].message.content == whole.choices[0].message.content


def test_async(chat_server, chat):
    """Forty at a time, streaming and not, each as if alone."""
    questions = [[{"role": "user", "content": f"What is {i} plus {i + 1}?"}] for i in range(20)]
    alone = [chat.chat.completions.create(model="chat", messages=q, temperature=0, max_tokens=8).choices[0].message.content
             for q in questions]

    async def ask():
        async with openai.AsyncOpenAI(base_url=base_url(chat_server), api_key="key", max_retries=0) as client:
            async def whole(q):
                answer = await client.chat.completions.create(model="chat", messages=q, temperature=0, max_tokens=8)
                return answer.choices[0].message.content

            async def stream(q):
                chunks = await client.chat.completions.create(model="chat", messages=q, temperature=0, max_tokens=8,
                                                              stream=True)
                return "".join([c.choices[0].delta.content or "" async for c in chunks if c.choices])
            return await asyncio.gather(*[f(q) for f in (whole, stream) for q in questions])
    assert asyncio.run(ask()) == alone * 2


def test_raw_and_timeout(chat_server, chat):
    """A client that gives up leaves nothing running."""
    raw = chat.chat.completions.with_raw_response.create(**SHORT)
    assert raw.status_code == 200 and raw.parse().choices
    with pytest.raises(openai.APITimeoutError):
        chat.with_options(timeout=httpx.Timeout(0.05)).chat.completions.create(
            model="chat", messages=MESSAGES, n=16, max_tokens=900, extra_body={"ignore_eos": True})
    chat_server.wait_idle()


# ------------------------------------------------------------------------------------------
# Errors

@pytest.mark.parametrize("fields, error, param", [
    ({"model": "other"}, openai.NotFoundError, "model"),
    ({"temperature": -1}, openai.BadRequestError, "temperature"),
    ({"max_tokens": 100000}, openai.BadRequestError, "max_tokens"),
    ({"messages": []}, openai.BadRequestError, None),
    ({"top_logprobs": 3}, openai.BadRequestError, "top_logprobs"),
    ({"response_format": {"type": "json_object"}}, openai.BadRequestError, None),
    ({"messages": [{"role": "user", "content": "x " * 3000}]}, openai.BadRequestError, "input_tokens")])
def test_errors(fields, error, param, chat):
    with pytest.raises(error) as caught:
        chat.chat.completions.create(**{**SHORT, **fields})
    assert caught.value.body["code"] == caught.value.status_code
    if param:
        assert caught.value.param == param
    with pytest.raises(error):
        chat.chat.completions.create(stream=True, **{**SHORT, **fields})


def test_wrong_key(chat_server):
    with pytest.raises(openai.AuthenticationError):
        openai.OpenAI(base_url=base_url(chat_server), api_key="other").models.list()


def test_no_template(code):
    with pytest.raises(openai.BadRequestError, match="chat template"):
        code.chat.completions.create(**{**SHORT, "model": "code"})
