"""The Python package against transformers: the page-long vLLM script, its tokens those of transformers and
of the server, exactly; the tokenizer that LLM.get_tokenizer() gives."""
import json
import os
import subprocess
import sys
from types import SimpleNamespace

import make_goldens
import pytest
import torch
import transformers
from conftest import ROOT

CODE, CHAT = ROOT / "models" / "phi-tiny-code", ROOT / "models" / "phi3-tiny-chat"
BUILT = os.path.join(os.environ.get("PHI_BUILD", ROOT / "build"), "python")
SCRIPT = ROOT / "tests" / "python" / "vllm_script.py"
sys.path.insert(0, str(SCRIPT.parent))

from plain_beam_search import plain_search  # noqa: E402


def run_python(*arguments):
    """What a Python with the built package writes: JSON."""
    result = subprocess.run([sys.executable, *map(str, arguments)], capture_output=True, timeout=600,
                            env={**os.environ, "PYTHONPATH": BUILT})
    assert result.returncode == 0, result.stderr.decode()
    return json.loads(result.stdout)


@pytest.fixture(scope="module")
def seen():
    return run_python(SCRIPT, CODE, CHAT, "float32")


class Reference:
    def __init__(self, folder):
        transformers.logging.disable_progress_bar()
        self.model = make_goldens.load(folder, torch.float32)
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        ends = transformers.GenerationConfig.from_pretrained(folder).eos_token_id
        self.ends = ends if isinstance(ends, list) else [ends]

    def greedy(self, ids, n):
        """(tokens until the end or n of them, logprobs [n, vocabulary])"""
        chosen, logits = make_goldens.greedy(self.model, torch.tensor([ids]), n)
        tokens = chosen.tolist()
        end = next((i + 1 for i, token in enumerate(tokens) if token in self.ends), n)
        return tokens[:end], torch.log_softmax(logits, -1)


@pytest.fixture(scope="module")
def code():
    return Reference(CODE)


@pytest.fixture(scope="module")
def chat():
    return Reference(CHAT)


def first(output):
    return output["answers"][0]


def test_greedy_tokens(seen, code, serve):
    """Of texts and of ids, and through the server."""
    server = serve(CODE, "--dtype", "float32", "--max-model-len", 1024)
    for by_text, by_ids in zip(seen["greedy"], seen["ids"], strict=True):
        ids = code.tokenizer(by_text["prompt"]).input_ids
        tokens, _ = code.greedy(ids, 48)
        assert by_text["prompt_token_ids"] == by_ids["prompt_token_ids"] == ids
        assert first(by_text)["token_ids"] == first(by_ids)["token_ids"] == tokens
        assert first(by_text)["text"] == code.tokenizer.decode(tokens, skip_special_tokens=True)
        served = server.complete(by_text["prompt"], temperature=0, max_tokens=48, return_token_ids=True)["choices"][0]
        assert served["token_ids"] == tokens and served["text"] == first(by_text)["text"]


def test_stops(seen, code):
    by_string, by_token, by_length = map(first, seen["stopped"])
    prompts = [o["prompt_token_ids"] for o in seen["stopped"]]
    tokens, _ = code.greedy(prompts[0], 64)
    whole = code.tokenizer.decode(tokens)
    assert by_string["text"] == whole[:whole.index("return")]
    tokens, _ = code.greedy(prompts[1], 64)
    assert by_token["token_ids"] == tokens[:tokens.index(by_token["stop_reason"]) + 1]
    assert by_length["token_ids"] == code.greedy(prompts[2], 3)[0]


def test_logprobs(seen, code, figure):
    ids, tokens = seen["scored"][0]["prompt_token_ids"], first(seen["scored"][0])["token_ids"]
    _, logprobs = code.greedy(ids, 8)
    worst = 0.0
    for at, token, row in zip(seen["logprobs"], tokens, logprobs, strict=True):
        best = row.topk(5)
        assert list(at) == [str(i) for i in best.indices.tolist()] and next(iter(at)) == str(token)
        worst = max(worst, *(abs(at[str(i)][0] - p) for i, p in zip(best.indices.tolist(), best.values.tolist())))
    with torch.no_grad():
        rows = torch.log_softmax(code.model(torch.tensor([ids])).logits[0], -1)
    for at, token, row in zip(seen["prompt_logprobs"][1:], ids[1:], rows, strict=False):
        assert at[str(token)][1] == 1 + int((row > row[token]).sum())
        worst = max(worst, abs(at[str(token)][0] - float(row[token])))
    figure("largest difference of a logprob", f"{worst:.1e}")
    assert worst < 1e-4


def test_chat_tokens(seen, chat, serve):
    server = serve(CHAT, "--dtype", "float32")
    questions = ["Tom has 12 marbles and loses 5. How many marbles does Tom have?",
                 *(f"What is {a} plus {a + 1}?" for a in range(1, 5))]
    for told, question in zip(seen["chats"], questions, strict=True):
        messages = [{"role": "user", "content": question}]
        prompt = chat.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        ids = chat.tokenizer(prompt, add_special_tokens=False).input_ids
        tokens, _ = chat.greedy(ids, 32)
        assert (told["prompt"], told["prompt_token_ids"]) == (prompt, ids)
        assert first(told)["token_ids"] == tokens
        assert first(told)["text"] == chat.tokenizer.decode(tokens, skip_special_tokens=True)
        served = server.chat(question, temperature=0, max_tokens=32, return_token_ids=True)["choices"][0]
        assert served["token_ids"] == tokens
    assert seen["chat"] == seen["chats"][:1]


BEAMS = """
import json, sys
from phidelity import LLM, BeamSearchParams
llm = LLM(sys.argv[1], dtype="float32")
found = [llm.beam_search(json.loads(sys.argv[2]), BeamSearchParams(**p)) for p in json.loads(sys.argv[3])]
print(json.dumps([[[(s.tokens, s.cum_logprob) for s in output.sequences] for output in each] for each in found]))
"""
BEAM_PARAMS = [{"beam_width": 4, "max_tokens": 12, "length_penalty": 0.8},
               {"beam_width": 3, "max_tokens": 16, "length_penalty": 0.0},
               {"beam_width": 4, "max_tokens": 12, "ignore_eos": True}]


def test_beam_search(code, figure):
    """A plain beam search over transformers' logits finds the same; its generate(num_beams) where no sequence ends,
    for it counts lengths without the prompt, and leaves out ends below the best num_beams of a step."""
    prompts = [code.tokenizer(text).input_ids for text in ("def add(a, b):", "import", "class Stack:\n    def push")]
    found = run_python("-c", BEAMS, CODE, json.dumps(prompts), json.dumps(BEAM_PARAMS))
    worst = 0.0
    for fields, outputs in zip(BEAM_PARAMS, found, strict=True):
        params = SimpleNamespace(**{"ignore_eos": False, "length_penalty": 1.0, **fields})

        @torch.no_grad()
        def step(asked, n=2 * params.beam_width):
            best = torch.log_softmax(code.model(torch.tensor(asked)).logits[:, -1], -1).topk(n)
            return [{t: SimpleNamespace(logprob=x) for t, x in zip(tokens, values)}
                    for tokens, values in zip(best.indices.tolist(), best.values.tolist())]

        for ids, output in zip(prompts, outputs, strict=True):
            want = plain_search(ids, params, code.ends, 2048, step)
            assert [tokens for tokens, _ in output] == [tokens for tokens, _ in want], fields
            worst = max(worst, *(abs(got - total) for (_, got), (_, total) in zip(output, want)))
            if params.ignore_eos:
                theirs = code.model.generate(torch.tensor([ids]), num_beams=4, num_return_sequences=4, do_sample=False,
                                             max_new_tokens=params.max_tokens)
                assert [tokens for tokens, _ in output] == theirs.tolist()
    figure("largest difference of a sum of logprobs", f"{worst:.1e}")
    assert worst < 1e-4


TOKENIZER = """
import json, sys
from phidelity import LLM
t = LLM(sys.argv[1], load_format="dummy").get_tokenizer()
texts = json.loads(sys.argv[2])
print(json.dumps({
    "ids": [t(x).input_ids for x in texts], "tokens": [t.tokenize(x) for x in texts[:2]],
    "texts": [[t.decode(t(x).input_ids, skip_special_tokens=skip) for x in texts] for skip in (False, True)],
    "cut": [t(x, truncation=True, max_length=3).input_ids for x in texts], "vocab": t.get_vocab(),
    "length": len(t), "special": [t.all_special_tokens, t.all_special_ids], "template": t.chat_template,
    "named": [[getattr(t, f"{n}_token"), getattr(t, f"{n}_token_id")] for n in ("bos", "eos", "pad", "unk")],
    "unknown": t.convert_tokens_to_ids("no such token"), "side": t.truncation_side,
}))
"""
TEXTS = ["def f(x):\n    return x + 1\n", "Tom has 3 apples.", "<|user|>\nGröße 数据 🦉<|end|>\n<|assistant|>\n", " "]


@pytest.mark.parametrize("folder", [CODE, CHAT], ids=lambda f: f.name)
def test_tokenizer(folder):
    told = run_python("-c", TOKENIZER, folder, json.dumps(TEXTS))
    t = transformers.AutoTokenizer.from_pretrained(folder)
    ids = [t(x).input_ids for x in TEXTS]
    assert told["ids"] == ids
    assert told["tokens"] == [t.tokenize(x) for x in TEXTS[:2]]
    assert told["texts"] == [[t.decode(x, skip_special_tokens=skip) for x in ids] for skip in (False, True)]
    assert told["cut"] == [t(x, truncation=True, max_length=3).input_ids for x in TEXTS]
    assert told["vocab"] == t.get_vocab() and told["length"] == len(t)
    assert told["template"] == t.chat_template and told["side"] == t.truncation_side
    assert told["named"] == [[getattr(t, f"{n}_token"), getattr(t, f"{n}_token_id")] for n in ("bos", "eos", "pad", "unk")]
    assert told["unknown"] == t.convert_tokens_to_ids("no such token")
    assert set(told["special"][0]) <= set(t.all_special_tokens) and set(told["special"][1]) <= set(t.all_special_ids)
