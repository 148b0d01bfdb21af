#!/usr/bin/env python3
"""Write tests/golden/tokenizer/spm_*.{json,expected}: SentencePiece models as the arrays that a GGUF file holds, and what
`sentencepiece` itself makes of the corpus. Run: python tests/golden/make_tokenizer_spm.py (needs corpus.bin's recipes only)."""
import base64
import json
import os
import struct
import tempfile

import sentencepiece as spm
from sentencepiece import sentencepiece_model_pb2 as pb

from make_tokenizer import HERE, corpus, fold, texts

RULES = {"ﬁ": "fi", "①": "1", "\u3000": " ", "\u00a0": " ", "\t": " ", "…": "...", "ﾊ": "ハ", "ﾊﾟ": "パ", "ß": "ss", "½": "1/2", "\ufeff": "", "q\u0307": "Q", "ab": "AB", "abc": "x"}


def train(kind, **options):
    with tempfile.TemporaryDirectory() as d:
        with open(d + "/t.txt", "w") as f:
            f.write("\n".join(s.replace("\n", " ") for s in texts()))
        with open(d + "/r.tsv", "w") as f:
            for a, b in RULES.items():
                f.write(" ".join(f"{ord(x):X}" for x in a) + "\t" + " ".join(f"{ord(x):X}" for x in b) + "\n")
        if options.pop("rules", False):
            options["normalization_rule_tsv"] = d + "/r.tsv"
        spm.SentencePieceTrainer.train(input=d + "/t.txt", model_prefix=d + "/m", model_type=kind, character_coverage=0.98, minloglevel=2, hard_vocab_limit=False, num_threads=1, **options)
        return open(d + "/m.model", "rb").read()


def write(name, model, blob):
    m = pb.ModelProto()
    m.ParseFromString(blob)
    n = m.normalizer_spec
    out = dict(model=model, tokens=[p.piece for p in m.pieces], scores=[p.score for p in m.pieces], types=[p.type for p in m.pieces],
               add_space_prefix=n.add_dummy_prefix, remove_extra_whitespaces=n.remove_extra_whitespaces, charsmap=base64.b64encode(n.precompiled_charsmap).decode(),
               bos=m.trainer_spec.bos_id, eos=m.trainer_spec.eos_id, unk=m.trainer_spec.unk_id)
    with open(os.path.join(HERE, name + ".json"), "w") as f:
        json.dump(out, f, ensure_ascii=False, separators=(",", ":"))
    sp = spm.SentencePieceProcessor(model_proto=blob)
    with open(os.path.join(HERE, name + ".expected"), "wb") as f:
        for _, text, _ in corpus().items:
            ids = sp.encode(text)
            decoded = sp.decode(ids) if len(text) < 20000 else ""
            f.write(struct.pack("<II", fold(ids), fold(decoded.encode()) if len(text) < 20000 else 0))
    print(name, len(m.pieces))


write("spm_llama", "llama", train("bpe", vocab_size=900, byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False, split_digits=True, allow_whitespace_only_pieces=True))
write("spm_gemma", "llama", train("bpe", vocab_size=800, byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False, add_dummy_prefix=False, user_defined_symbols=["▁▁", "▁▁▁", "<tool_call>", "\n", "\n\n"]))
write("spm_unk", "llama", train("bpe", vocab_size=500, normalization_rule_name="identity"))
write("spm_t5", "t5", train("unigram", vocab_size=700, rules=True))
