"""What clients of an exported model in Triton send and get: ids, masks and segments by transformers' tokenizer, and last_hidden_state and logits by
transformers (float32) of the tiny random models of tests/e2e/encoders.py. Writes kserve_config.json; tests/e2e/test_kserve_config.py reads it."""
import json
import os
import sys
import tempfile

import torch
import transformers

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, "..", "e2e"))
import encoders  # noqa: E402

TEXTS = ["A cat sits on the mat.", "Stock prices fell.", "Is it?"]
PAIRS = [["where is the cat", "A cat sits on the mat."], ["where is the cat", "Stock prices fell sharply."], ["prices", "They fell."]]
MODELS = {"embedder": (lambda d: encoders.embedder(d, seed=5), transformers.AutoModel, TEXTS),
          "classes": (lambda d: encoders.classifier(d, ["no", "perhaps", "yes"], seed=2), transformers.AutoModelForSequenceClassification, TEXTS),
          "tags": (lambda d: encoders.token_classifier(d, ["O", "NAME"], seed=3), transformers.AutoModelForTokenClassification, TEXTS),
          "ranker": (lambda d: encoders.classifier(d, ["relevance"]), transformers.AutoModelForSequenceClassification, PAIRS)}
out = {}
for name, (make, kind, texts) in MODELS.items():
    with tempfile.TemporaryDirectory() as d:
        make(d)
        tokenizer = transformers.AutoTokenizer.from_pretrained(d)
        model = kind.from_pretrained(d, dtype=torch.float32, attn_implementation="eager").eval()
        tokens = tokenizer(texts, padding=True, return_tensors="pt")
        with torch.no_grad():
            answer = model(**tokens)
        values = answer.last_hidden_state if name == "embedder" else answer.logits
        out[name] = {"texts": texts, **{k: tokens[k].tolist() for k in ("input_ids", "attention_mask", "token_type_ids")}, "shape": list(values.shape),
                     "values": [round(x, 6) for x in values.flatten().tolist()]}
with open(os.path.join(here, "kserve_config.json"), "w") as f:
    json.dump(out, f, separators=(",", ":"))
    f.write("\n")
