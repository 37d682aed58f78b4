"""Encoding and decoding against Hugging Face tokenizers: no difference is allowed.

The vocabularies are those below PHI_CHECKPOINTS and models/. The program's tokenizer is driven in bulk
through tests/formats/tokenizer_driver.c, found in the build folder PHI_BUILD (default build/).
"""
import itertools
import json
import os
import random
import struct
import subprocess
from pathlib import Path

import pytest
from tokenizers import Tokenizer

import tokenizer_corpus as corpus

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("PHI_BUILD", ROOT / "build")).absolute()
DRIVER = BUILD / "tests" / "formats" / "tokenizer_driver"
BATCH = 100_000  # each starts the driver, which reads the vocabulary


def folders():
    found = []
    for parent in (os.environ.get("PHI_CHECKPOINTS"), ROOT / "models"):
        if parent and Path(parent).is_dir():
            found += sorted(p.parent for p in Path(parent).glob("*/tokenizer.json"))
    return found


class Ours:
    """The driver's protocol, a batch of requests at a time."""

    def __init__(self, folder):
        self.folder = folder

    def _run(self, requests):
        assert os.access(DRIVER, os.X_OK), f"no {DRIVER}: build the tests, or set PHI_BUILD"
        result = subprocess.run([DRIVER, str(self.folder)], input=b"".join(requests),
                                capture_output=True, timeout=1200)
        assert result.returncode == 0, result.stderr.decode()
        return result.stdout

    def _answers(self, data, size):
        at = 0
        while at < len(data):
            status, n = struct.unpack_from("=II", data, at)
            assert status == 0, f"status -{status}"
            at += 8
            yield data[at : at + n * size]
            at += n * size

    def encode(self, texts, flags=0):
        raw = [text.encode() for text in texts]
        out = self._run([struct.pack("=III", ord("e"), flags, len(r)) + r for r in raw])
        return [list(struct.unpack(f"={len(a) // 4}i", a)) for a in self._answers(out, 4)]

    def decode(self, lists, ways):
        """Texts of all lists for each way (op, skip_special)."""
        heads = [struct.pack("=II", ord(op), skip_special) for op, skip_special in ways]
        bodies = [struct.pack(f"=I{len(ids)}i", len(ids), *ids) for ids in lists]
        out = self._run([head + body for head in heads for body in bodies])
        texts = [a.decode() for a in self._answers(out, 1)]
        return [texts[at:at + len(lists)] for at in range(0, len(texts), len(lists))]


@pytest.fixture(scope="module", params=folders(), ids=lambda p: p.name)
def pair(request):
    """(the library's tokenizer, ours, contents of the added tokens)"""
    path = request.param / "tokenizer.json"
    added = json.loads(path.read_text())["added_tokens"]
    return Tokenizer.from_file(str(path)), Ours(request.param), [t["content"] for t in added]


def batches(items):
    items = iter(items)
    while batch := list(itertools.islice(items, BATCH)):
        yield batch


def same_encoding(library, ours, texts, **options):
    """Compares, and returns the ids."""
    all_ids = []
    for batch in batches(texts):
        expected = [e.ids for e in library.encode_batch_fast(batch, add_special_tokens=True)]
        for text, want, got in zip(batch, expected, ours.encode(batch, flags=1), strict=True):
            assert got == want, f"{text!r:.300}"
        all_ids += expected
    return all_ids


def same_decoding(library, ours, lists):
    ways = list(itertools.product("ds", (False, True)))
    for batch in batches(lists):
        expected = {skip: library.decode_batch(batch, skip_special_tokens=skip) for skip in (False, True)}
        for (op, skip), decoded in zip(ways, ours.decode(batch, ways), strict=True):
            for ids, want, got in zip(batch, expected[skip], decoded, strict=True):
                assert got == want, f"{op} {skip} {ids!r:.300}"


def test_mixed_text(pair):
    library, ours, specials = pair
    texts = corpus.mixed_text(specials)
    assert sum(len(t.encode()) for t in texts) >= 5_000_000
    same_decoding(library, ours, same_encoding(library, ours, texts))


def test_random_strings(pair):
    library, ours, specials = pair
    texts = corpus.random_strings(specials)
    assert len(texts) == 100_000
    same_decoding(library, ours, same_encoding(library, ours, texts))


def test_every_character(pair):
    library, ours, _ = pair
    same_encoding(library, ours, corpus.every_character())


def test_long_runs(pair):
    library, ours, _ = pair
    same_decoding(library, ours, same_encoding(library, ours, corpus.long_runs()))


def test_random_ids(pair):
    """Ids that no text gives: cut characters, broken byte runs, ids without a token."""
    library, ours, _ = pair
    rng = random.Random(3)
    n_ids = library.get_vocab_size()
    pieces = ("<0xF0>", "<0x9F>", "<0x41>", "<0xE2>", "▁", "▁a", "Ġ", "ð")
    hot = [library.token_to_id(piece) for piece in pieces]
    hot = [i for i in hot if i is not None] + list(range(n_ids - 20, n_ids + 40)) + list(range(300))
    lists = [[rng.choice(hot) if rng.random() < 0.5 else rng.randrange(n_ids + 100)
              for _ in range(rng.randint(0, 30))] for _ in range(50_000)]
    same_decoding(library, ours, lists)


def test_plain_text(pair):
    """The option that keeps control tokens from being recognised. The library has it for special
    tokens only; ours takes in the others that match raw text, so here all of those are special."""
    _, ours, specials = pair
    pipeline = json.loads((ours.folder / "tokenizer.json").read_text())
    for token in pipeline["added_tokens"]:
        token["special"] |= not token["normalized"]
    library = Tokenizer.from_str(json.dumps(pipeline))
    library.encode_special_tokens = True
    texts = corpus.random_strings(specials, n=20_000, seed=4)
    expected = [e.ids for e in library.encode_batch_fast(texts, add_special_tokens=False)]
    for text, want, got in zip(texts, expected, ours.encode(texts, flags=2), strict=True):
        assert got == want, f"{text!r:.300}"


# Small pipelines that use what the shared vocabularies do not.

ALPHABET = "abcdefghij'<>|▁ \nAé日"


def small_model(**changes):
    words = ["ab", "bc", "abc", "cd", "▁a", "▁ab", "▁▁", "a▁", "é日", "aa", "aaaa", "<0x0A>"]
    vocab = {"<unk>": 0}
    for piece in [*ALPHABET, *words]:
        vocab.setdefault(piece, len(vocab))
    merges = ["a b", "b c", "ab c", "▁ a", "▁a b", "▁ ▁", "a ▁", "é 日", "a a", "aa aa", "c d"]
    model = dict(type="BPE", dropout=None, unk_token="<unk>", continuing_subword_prefix=None,
                 end_of_word_suffix=None, fuse_unk=False, byte_fallback=False, ignore_merges=False,
                 vocab=vocab, merges=merges)
    model.update(changes)
    return model


def small_added(model, **flags):
    base = dict(single_word=False, lstrip=False, rstrip=False, normalized=False, special=False)
    contents = ["ab", "abc", "<a>", " a", "  ", "é", "a b", "\n"]
    n = len(model["vocab"])
    new = [c for c in contents if c not in model["vocab"]]
    ids = {c: model["vocab"].get(c, n + new.index(c) if c in new else None) for c in contents}
    return [dict(base, id=ids[c], content=c, **flags) for c in contents]


MARK = dict(type="Replace", pattern=dict(String=" "), content="▁")
NORMALIZERS = [None, dict(type="Sequence", normalizers=[dict(type="Prepend", prepend="▁"), MARK]),
               dict(type="Replace", pattern=dict(String="aa"), content="a")]
DECODER = dict(type="Sequence", decoders=[
    dict(type="Replace", pattern=dict(String="▁"), content=" "), dict(type="ByteFallback"),
    dict(type="Fuse"), dict(type="Strip", content=" ", start=2, stop=0)])


def pipelines():
    rng = random.Random(5)
    for i in range(60):
        model = small_model(fuse_unk=rng.random() < 0.5, byte_fallback=rng.random() < 0.5,
                            ignore_merges=rng.random() < 0.3)
        if rng.random() < 0.3:
            model["unk_token"] = None
        if rng.random() < 0.5:
            model["merges"] = [m.split(" ") for m in model["merges"]]
        flags = {f: rng.random() < 0.4 for f in ("single_word", "lstrip", "rstrip", "special")}
        flags["normalized"] = rng.random() < 0.4
        yield dict(version="1.0", truncation=None, padding=None,
                   added_tokens=small_added(model, **flags), normalizer=rng.choice(NORMALIZERS),
                   pre_tokenizer=None, decoder=DECODER, model=model,
                   post_processor=rng.choice([None, dict(
                       type="TemplateProcessing", pair=[],
                       single=[dict(SpecialToken=dict(id="<unk>", type_id=0)),
                               dict(Sequence=dict(id="A", type_id=0)),
                               dict(SpecialToken=dict(id="ab", type_id=0))],
                       special_tokens={k: dict(id=k, ids=[model["vocab"][k]], tokens=[k])
                                       for k in ("<unk>", "ab")})]))


def test_small_pipelines(tmp_path):
    rng = random.Random(6)
    texts = ["".join(rng.choices(ALPHABET + "  aab\u00a0xyzß", k=rng.randint(0, 80)))
             for _ in range(2000)]
    n = 0
    for i, pipeline in enumerate(pipelines()):
        folder = tmp_path / str(i)
        folder.mkdir()
        (folder / "tokenizer.json").write_text(json.dumps(pipeline, ensure_ascii=i % 2 == 0))
        try:
            library = Tokenizer.from_str(json.dumps(pipeline))
        except Exception:  # two patterns became one: refused by both
            with pytest.raises(AssertionError):
                Ours(folder).encode(["a"])
            continue
        ids = same_encoding(library, Ours(folder), texts)
        same_decoding(library, Ours(folder), ids)
        n += 1
    assert n >= 40


def test_word_characters(tmp_path):
    """single_word asks whether a neighbour is \\w: every code point once on either side."""
    model = small_model(unk_token=None)
    added = small_added(model, single_word=True)[:1]
    pipeline = dict(version="1.0", truncation=None, padding=None, added_tokens=added,
                    normalizer=None, pre_tokenizer=None, post_processor=None, decoder=DECODER,
                    model=model)
    model["vocab"]["ab"], model["merges"] = added[0]["id"], []
    (tmp_path / "tokenizer.json").write_text(json.dumps(pipeline))
    library = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    texts = (f"{chr(c)}ab c ab{chr(c)}" for c in range(0x110000) if not 0xD800 <= c < 0xE000)
    same_encoding(library, Ours(tmp_path), texts)
