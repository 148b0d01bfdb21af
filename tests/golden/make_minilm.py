#!/usr/bin/env python3
"""A hundred texts and what sentence-transformers makes of them with all-MiniLM-L6-v2 in float32: tests/golden/minilm_texts.json, minilm.f16.

    python tests/golden/make_minilm.py $(scripts/minilm)

Vectors are kept as float16 (100 x 384): their rounding changes a cosine by less than 1e-7.
"""
import json, os, random, sys

import numpy as np
from sentence_transformers import SentenceTransformer

HERE = os.path.dirname(os.path.abspath(__file__))
SENTENCES = """The committee will meet again on Thursday to vote on the budget.
How do I reset the password of my router?
Le chat dort sur le canapé depuis ce matin.
Die Donaudampfschifffahrtsgesellschaft wurde 1829 gegründet.
東京は日本の首都です。
Москва — столица России.
¿Dónde está la biblioteca más cercana?
SELECT name, price FROM products WHERE price > 100 ORDER BY name;
for (int i = 0; i < n; i++) sum += a[i] * b[i];
Photosynthesis converts light energy into chemical energy stored in glucose.
I'm not sure whether we should go; it's raining cats & dogs!
Call me at +1 (555) 010-9999 or write to someone@example.com.
The 3.14159-inch pipe costs $42.50, i.e. 17% less than last year's.
WARNING: disk /dev/sda1 is 97% full (used 465G of 477G).
Ünïcödé àccénts ärè stripped by this tokenizer, aren't they?
A man is playing a guitar on the stage while people dance.
Nobody knows what the fox says.
Supercalifragilisticexpialidocious antidisestablishmentarianism
👍🏽 emoji 🎉 and zero\u200bwidth characters
E = mc^2 is the most famous equation in physics.""".split("\n")


def texts():
    r = random.Random(7)
    words = [w for s in SENTENCES for w in s.split()]
    out = list(SENTENCES)
    while len(out) < 98:
        out.append(" ".join(r.choice(words) for _ in range(r.choice([1, 2, 3, 5, 8, 13, 21, 34, 55]))))
    return out + ["  spaces   and\ttabs\n", "x"]


def main():
    lines = texts()
    m = SentenceTransformer(sys.argv[1], device="cpu")
    m.encode(lines).astype("<f2").tofile(os.path.join(HERE, "minilm.f16"))
    with open(os.path.join(HERE, "minilm_texts.json"), "w") as f:
        json.dump(lines, f, ensure_ascii=False, indent=0)
        f.write("\n")


main()
