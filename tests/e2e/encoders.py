"""Encoders for the end-to-end tests: the real all-MiniLM-L6-v2, and tiny random classifiers made
here, with MiniLM's tokenizer.
"""
import functools
import json
import os
import shutil
import subprocess
import sys

import numpy as np

@functools.cache
def minilm():
    """Its directory; scripts/minilm fetches it once."""
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts", "minilm")
    return subprocess.run([script], check=True, capture_output=True, text=True).stdout.strip()


def write_safetensors(path, tensors):
    header, at = {}, 0
    for name, t in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(t.shape), "data_offsets": [at, at + t.nbytes]}
        at += t.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        for t in tensors.values():
            f.write(t.astype("<f4").tobytes())


def bert(path, architecture, head, seed=1, hidden=32, layers=2, **config):
    """A random BERT with MiniLM's tokenizer. head(matrix) -> the tensors behind it."""
    random = np.random.default_rng(seed)
    os.makedirs(path, exist_ok=True)
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "special_tokens_map.json"):
        shutil.copy(os.path.join(minilm(), name), path)
    config = {"model_type": "bert", "architectures": [architecture], "vocab_size": 30522, "hidden_size": hidden, "intermediate_size": 4 * hidden,
              "num_hidden_layers": layers, "num_attention_heads": 4, "max_position_embeddings": 128, "type_vocab_size": 2, "hidden_act": "gelu", "layer_norm_eps": 1e-12,
              "pad_token_id": 0, **config}
    with open(os.path.join(path, "config.json"), "w") as f:
        json.dump(config, f)

    def matrix(rows, columns):
        return random.normal(0, 0.5 / np.sqrt(columns), (rows, columns)).astype(np.float32)

    t = {"bert.embeddings.word_embeddings.weight": random.normal(0, 1, (30522, hidden)).astype(np.float32),
         "bert.embeddings.position_embeddings.weight": matrix(128, hidden), "bert.embeddings.token_type_embeddings.weight": matrix(2, hidden),
         "bert.embeddings.LayerNorm.weight": np.ones(hidden, np.float32), "bert.embeddings.LayerNorm.bias": np.zeros(hidden, np.float32)}
    for i in range(layers):
        p = f"bert.encoder.layer.{i}."
        for name, rows, columns in (("attention.self.query", hidden, hidden), ("attention.self.key", hidden, hidden), ("attention.self.value", hidden, hidden),
                                    ("attention.output.dense", hidden, hidden), ("intermediate.dense", 4 * hidden, hidden), ("output.dense", hidden, 4 * hidden)):
            t[p + name + ".weight"] = matrix(rows, columns) * 4
            t[p + name + ".bias"] = random.normal(0, 0.1, rows).astype(np.float32)
        for name in ("attention.output.LayerNorm", "output.LayerNorm"):
            t[p + name + ".weight"] = np.ones(hidden, np.float32)
            t[p + name + ".bias"] = np.zeros(hidden, np.float32)
    t.update(head(matrix))
    write_safetensors(os.path.join(path, "model.safetensors"), t)
    return path


def classifier(path, labels, seed=1, hidden=32):
    """A random BertForSequenceClassification; one label: a cross-encoder."""
    more = {"id2label": {str(i): x for i, x in enumerate(labels)}, "label2id": {x: i for i, x in enumerate(labels)}}
    if len(labels) > 1:
        more["problem_type"] = "single_label_classification"
    return bert(path, "BertForSequenceClassification", lambda matrix: {
        "bert.pooler.dense.weight": matrix(hidden, hidden) * 4, "bert.pooler.dense.bias": np.zeros(hidden, np.float32),
        "classifier.weight": matrix(len(labels), hidden) * 4, "classifier.bias": np.zeros(len(labels), np.float32)}, seed, hidden, **more)


def token_classifier(path, labels, seed=1, hidden=32):
    """A random BertForTokenClassification."""
    more = {"id2label": {str(i): x for i, x in enumerate(labels)}, "label2id": {x: i for i, x in enumerate(labels)}}
    return bert(path, "BertForTokenClassification", lambda matrix: {
        "classifier.weight": matrix(len(labels), hidden) * 4, "classifier.bias": np.zeros(len(labels), np.float32)}, seed, hidden, **more)


def embedder(path, seed=1):
    """A random BertModel that embeds, by the mean of its rows."""
    return bert(path, "BertModel", lambda matrix: {}, seed)


def golden(path, name):
    """A golden model of tests/golden/models with its tokenizer, as a directory, and the answers that its texts must have: [(case, values)]."""
    models = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden")
    sys.path.insert(0, models)
    from golden_values import values
    with open(os.path.join(models, "models", name + ".json")) as f:
        made = json.load(f)
    answers = np.fromfile(os.path.join(models, "models", name + ".logits"), "<f4")
    os.makedirs(path)
    for file, content in {"config.json": made["config"], **made["files"], **made["text_files"]}.items():
        os.makedirs(os.path.dirname(os.path.join(path, file)), exist_ok=True)
        with open(os.path.join(path, file), "w") as f:
            json.dump(content, f)
    for shard, folder in enumerate(["", *made["dense"]]):
        write_safetensors(os.path.join(path, folder, "model.safetensors"), {n: values(made["seed"], n, e, mean, int(np.prod(shape))).reshape(shape)
                                                                            for n, _, e, mean, shape, of in made["tensors"] if of == shard})
    return [(t, answers[t["at"]:t["at"] + t["rows"] * t["cols"]]) for t in made["texts"]]
