#!/usr/bin/env python3
"""tests/golden/spans.json: where Hugging Face `tokenizers` says that tokens lie, for tokenizers of tests/golden/tokenizer: bytes of the text, without the
spaces around a token (tokenizers differ in whose they are).

    python tests/golden/make_spans.py
"""
import json
import os

from tokenizers import Tokenizer

HERE = os.path.dirname(os.path.abspath(__file__))
NAMES = ["bert", "bert_cased", "gpt2", "roberta", "smollm", "llama2", "llama3", "gemma", "qwen2"]
TEXTS = ["Hello, world! It's a small test; they're sure.", "  two  spaces\tand\na line ", "Äpfel über Öl, Straße, naïve café", "ÀÉÎ ﬁne ①②", "敏捷的棕色狐狸 and 日本", "빠른 갈색 여우",
         "👍🏽 ok 👨‍👩‍👧 ☃", "CamelCase2Go 3.14159 a_b-c", "unaffordable unknowable", "x", "",
         "a\0b 😀 c", "ab\ufffdc def", "ab\u200bc \u0007d zz", "\ufffd\ufffd a"]  # letters that BERT's normaliser drops


def trimmed(text, a, b):
    while a < b and text[a].isspace():
        a += 1
    while a < b and text[b - 1].isspace():
        b -= 1
    return a, b


rows = []
for name in NAMES:
    tokenizer = Tokenizer.from_file(os.path.join(HERE, "tokenizer", name + ".json"))
    for text in TEXTS:
        e = tokenizer.encode(text, add_special_tokens=False)
        spans = []
        for (a, b), token in zip(e.offsets, e.tokens):
            a, b = trimmed(text, a, b)
            # spaces alone, also one that was put before the text: anywhere between its neighbours
            spans += [len(text[:a].encode()), len(text[:b].encode())] if a < b and token.strip("▁") else [-1, -1]
        rows.append({"tokenizer": name, "text": text, "ids": e.ids, "spans": spans})
with open(os.path.join(HERE, "spans.json"), "w") as f:
    f.write("[\n" + ",\n".join(json.dumps(r, ensure_ascii=False, separators=(",", ":")) for r in rows) + "\n]\n")
