"""Texts with control tokens spelt out: their ids by tokenizers and their embeddings by sentence-transformers, of all-MiniLM-L6-v2 (scripts/minilm). Writes
control_tokens.json; tests/e2e/test_embeddings.py and test_embed.py read it."""
import json
import os
import subprocess

import sentence_transformers

here = os.path.dirname(os.path.abspath(__file__))
minilm = subprocess.run([os.path.join(here, "..", "..", "scripts", "minilm")], check=True, capture_output=True, text=True).stdout.strip()
TEXTS = ["[SEP]", "one [SEP] two", "a[MASK]b [PAD] [CLS]", "[sep] [ SEP ] [UNK]", "plain words"]
model = sentence_transformers.SentenceTransformer(minilm, device="cpu")
out = {"texts": TEXTS, "ids": [model.tokenizer(t)["input_ids"] for t in TEXTS], "embeddings": [[round(float(x), 6) for x in v] for v in model.encode(TEXTS, batch_size=1)]}
with open(os.path.join(here, "control_tokens.json"), "w") as f:
    json.dump(out, f, separators=(",", ":"))
    f.write("\n")
