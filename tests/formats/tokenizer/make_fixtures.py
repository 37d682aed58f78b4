#!/usr/bin/env python3
"""Writes the small vocabularies beside this file, which the tests and the fuzzer use.

gpt2, cl100k and o200k are byte-level with the patterns of those names and the strip flags of the Phi
models that use them; spm has byte fallback and a prepended mark; odd has what no Phi vocabulary has:
unknown tokens that are not fused, a merge across the mark, single words, added tokens that are
normalized. With --expect and the package `tokenizers` installed it also prints the library's ids as the
rows of test_tokenizer.c.
"""
import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent

CL100K = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
          r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
SUFFIX = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
O200K = (rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{SUFFIX}|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{SUFFIX}"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")

TEXTS = ["Hello world", " Hello  world", "<|user|> \n hello<|end|>x", "     x", "hello\u00a0é日🦙",
         "don't DON'T", "12345", "hello hellohello", "", "<|end|", "a\r\n\r\nb \t", "hello  <|end|>",
         "hello" * 20, "l" * 49, "oellhehlohllleoheloworldlehhhelooorhellehohelloloherldlolehelehoor" * 2]
ODD_TEXTS = ["a a a", "xyz", "x a", "ab abc ab", "cab ab", "ab", "\n\n", "b \n b", "f o", "a f oa",
             "aa  a", "ab\n"]


def alphabet():
    own = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in own]
    return {**{b: chr(b) for b in own}, **{b: chr(256 + i) for i, b in enumerate(others)}}


def model(pieces, merges, **flags):
    vocab = {}
    for piece in pieces:
        vocab.setdefault(piece, len(vocab))
    for merge in merges:
        vocab.setdefault("".join(merge), len(vocab))
    base = dict(type="BPE", dropout=None, unk_token=None, continuing_subword_prefix=None,
                end_of_word_suffix=None, fuse_unk=False, byte_fallback=False, ignore_merges=False)
    return {**base, **flags, "vocab": vocab, "merges": [" ".join(m) for m in merges]}


def token(id, content, **flags):
    base = dict(single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
    return {"id": id, "content": content, **base, **flags}


def pipeline(model, added, **parts):
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
            "normalizer": None, "post_processor": None, **parts, "model": model}


def byte_level(pattern, lstrip, rstrip):
    space = alphabet()[32]
    merges = [("h", "e"), ("l", "l"), ("he", "ll"), ("hell", "o"), (space, "hello"), (space, "w"),
              ("o", "r"), (space + "w", "or"), ("l", "d"), (space + "wor", "ld"), ("H", "e"),
              ("He", "ll"), ("Hell", "o"), (space, "Hello"), ("Ã", "©"), ("1", "2"), ("12", "3")]
    m = model(alphabet().values(), merges)
    n = len(m["vocab"])
    added = [token(n, "<|end|>", lstrip=lstrip, rstrip=rstrip),
             token(n + 1, "<|user|>", lstrip=lstrip, rstrip=rstrip),
             token(n + 2, "   ", normalized=True, special=False),
             token(n + 3, "  ", normalized=True, special=False)]
    level = dict(type="ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=not pattern)
    split = dict(type="Split", pattern=dict(Regex=pattern), behavior="Removed", invert=True)
    parts = dict(type="Sequence", pretokenizers=[split, level]) if pattern else level
    return pipeline(m, added, pre_tokenizer=parts, decoder=dict(level, use_regex=True))


def spm():
    mark = "\u2581"
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), mark, *"helowrdHxa1é"]
    merges = [(mark, mark), ("h", "e"), ("l", "l"), ("he", "ll"), ("hell", "o"), (mark, "hello"),
              ("o", "r"), (mark, "w"), (mark + "w", "or"), ("l", "d"), (mark + "wor", "ld"),
              ("H", "e"), ("He", "ll"), ("Hell", "o"), (mark, "Hello"), (mark + mark, mark + mark)]
    m = model(pieces, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    n = len(m["vocab"])
    added = [token(0, "<unk>"), token(1, "<s>"), token(2, "</s>", rstrip=True, special=False),
             token(n, "<|end|>", rstrip=True), token(n + 1, "<|user|>", rstrip=True)]
    replace = dict(type="Replace", pattern=dict(String=" "), content=mark)
    back = dict(type="Replace", pattern=dict(String=mark), content=" ")
    bos = dict(id="<s>", ids=[1], tokens=["<s>"])
    return pipeline(
        m, added, pre_tokenizer=None,
        normalizer=dict(type="Sequence", normalizers=[dict(type="Prepend", prepend=mark), replace]),
        post_processor=dict(type="TemplateProcessing", special_tokens={"<s>": bos}, pair=[],
                            single=[dict(SpecialToken=dict(id="<s>", type_id=0)),
                                    dict(Sequence=dict(id="A", type_id=0))]),
        decoder=dict(type="Sequence", decoders=[
            back, dict(type="ByteFallback"), dict(type="Fuse"),
            dict(type="Strip", content=" ", start=1, stop=0)]))


def odd():
    mark = "\u2581"
    m = model(["<unk>", mark, *"abcfo", "\n"], [("a", mark), (mark, "a"), ("b", "c"), ("a", "b")],
              unk_token="<unk>")
    n = len(m["vocab"])
    strip = dict(lstrip=True, rstrip=True, special=False)
    added = [token(m["vocab"]["ab"], "ab", single_word=True, special=False),
             token(m["vocab"]["\n"], "\n", **strip), token(n, "f o", normalized=True)]
    return {**spm(), "added_tokens": added, "post_processor": None, "model": m}


def row(name, library, text):
    """As in test_tokenizer.c, in lines of at most 100 columns."""
    literal = json.dumps(text, ensure_ascii=False).replace("\u00a0", "\\u00a0")
    ids = " ".join(map(str, library.encode(text).ids))
    line = f'    {{"{name}", {literal}, "{ids}"}},'
    return line if len(line) <= 100 else f'    {{"{name}", {literal},\n     "{ids}"}},'


def main():
    fixtures = {"gpt2": byte_level(None, False, False), "cl100k": byte_level(CL100K, True, True),
                "o200k": byte_level(O200K, False, True), "spm": spm(), "odd": odd()}
    for name, fixture in fixtures.items():
        text = json.dumps(fixture, ensure_ascii=False, separators=(",", ":"))
        (HERE / f"{name}.json").write_text(text + "\n")
    if "--expect" in sys.argv[1:]:
        from tokenizers import Tokenizer
        for name in fixtures:
            library = Tokenizer.from_file(str(HERE / f"{name}.json"))
            for text in ODD_TEXTS if name == "odd" else TEXTS:
                print(row(name, library, text))


if __name__ == "__main__":
    main()
