"""Embedding, ranking, scoring and classifying routes against rose serve: the official openai client, TEI's, Jina's and vLLM's forms, KServe
tensors by tritonclient, several models of several kinds in one process, and wrong requests."""
import atexit
import base64
import json
import math
import os
import shutil
import struct
import subprocess
import tempfile
import threading

import numpy as np
import openai
import tritonclient.http as http

import encoders
from server_fixture import Server, check, equal, main, options, test

TEXTS = ["A cat sits on the mat.", "Stock prices fell sharply on Monday.", "The kitten is on the rug.", "Grüße aus Köln, 東京 🙂"]
the_server = None


def server():
    """One process: an embedder, a cross-encoder, a classifier, one of tokens, and a text model."""
    global the_server
    if the_server is None:
        d = tempfile.mkdtemp()
        atexit.register(shutil.rmtree, d)
        encoders.classifier(d + "/ranker", ["relevance"])
        encoders.classifier(d + "/classes", ["no", "perhaps", "yes"], seed=2)
        encoders.token_classifier(d + "/names", ["O", "B-PER", "I-PER"], seed=3)
        the_server = Server("--kv-bytes", "64M", model=[encoders.minilm(), d, options.model])
        the_server.made = d
    return the_server


MINI = "all-MiniLM-L6-v2"


def post(path, body):
    return server().post(path, body)


def ok(path, body):
    status, _, answer = post(path, body)
    equal(status, 200, f"{path} {str(body)[:200]}: {answer}")
    return answer


def refused(path, body, words, code=400):
    status, _, answer = post(path, body)
    equal(status, code, f"{path} {str(body)[:200]}: {answer}")
    error = answer["error"]
    message = error if isinstance(error, str) else error["message"]
    for word in words if isinstance(words, (list, tuple)) else [words]:
        check(word in message, f"{word!r} is not in {message!r}")
    return answer


def close(a, b, tolerance=1e-5):
    a, b = np.array(a, dtype=np.float64), np.array(b, dtype=np.float64)
    check(a.shape == b.shape and np.abs(a - b).max() < tolerance, f"{a.shape} {b.shape} {np.abs(a - b).max() if a.shape == b.shape else ''}")


def embed(texts, **more):
    return [x["embedding"] for x in ok("/v1/embeddings", {"model": MINI, "input": texts, **more})["data"]]


@test
def the_official_client():
    c = openai.OpenAI(base_url=f"http://127.0.0.1:{server().port}/v1", api_key="x", max_retries=0)
    r = c.embeddings.create(model=MINI, input=TEXTS)  # asks for base64
    equal(([x.index for x in r.data], r.object, r.model, r.data[0].object), ([0, 1, 2, 3], "list", MINI, "embedding"))
    e = np.array([x.embedding for x in r.data])
    equal(e.shape, (4, 384))
    close(np.linalg.norm(e, axis=1), [1] * 4)
    check(e[0] @ e[2] > e[0] @ e[1] + 0.2, e @ e.T)
    floats = c.embeddings.create(model=MINI, input=TEXTS, encoding_format="float")
    close(e, [x.embedding for x in floats.data], 1e-7)
    check(r.usage.prompt_tokens == r.usage.total_tokens > 20, r.usage)
    one = c.embeddings.create(model=MINI, input=TEXTS[1])
    close(one.data[0].embedding, e[1])
    short = np.array(c.embeddings.create(model=MINI, input=TEXTS, dimensions=64).data[0].embedding)
    close(short, e[0, :64] / np.linalg.norm(e[0, :64]))
    ids = [server().post("/tokenize", {"model": MINI, "prompt": t})[2]["tokens"] for t in TEXTS]
    close([x.embedding for x in c.embeddings.create(model=MINI, input=ids).data], e)
    close(c.embeddings.create(model=MINI, input=ids[0]).data[0].embedding, e[0])


@test
def the_same_as_sentence_transformers():
    golden = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden")
    texts = json.load(open(f"{golden}/minilm_texts.json"))
    want = np.frombuffer(open(f"{golden}/minilm.f16", "rb").read(), "<f2").reshape(len(texts), 384).astype(np.float64)
    got = np.array(embed(texts, truncate_prompt_tokens=-1))
    cosine = (got * want).sum(axis=1) / np.linalg.norm(got, axis=1) / np.linalg.norm(want, axis=1)
    check(cosine.min() > 0.9999, cosine.min())


@test
def floats_and_base64_are_the_same_bits():
    floats = ok("/v1/embeddings", {"model": MINI, "input": TEXTS})["data"]
    coded = ok("/v1/embeddings", {"model": MINI, "input": TEXTS, "encoding_format": "base64"})["data"]
    for f, b in zip(floats, coded):
        raw = base64.b64decode(b["embedding"])
        equal(struct.pack("<384f", *f["embedding"]), raw)
    close(embed(TEXTS[0], normalize=False)[0] / np.linalg.norm(embed(TEXTS[0], normalize=False)[0]), embed(TEXTS[0])[0])


@test
def tei_routes():
    e = np.array(embed(TEXTS))
    close(ok("/embed", {"inputs": TEXTS, "model": MINI}), e)
    close(ok("/embed", {"inputs": TEXTS[0], "model": MINI}), e[:1])
    raw = np.array(ok("/embed", {"inputs": TEXTS[0], "model": MINI, "normalize": False}))
    close(raw[0] / np.linalg.norm(raw[0]), e[0])
    rows = ok("/embed_all", {"inputs": [TEXTS[0]], "model": MINI})
    count = server().post("/tokenize", {"model": MINI, "prompt": TEXTS[0]})[2]["count"]
    equal((len(rows), len(rows[0]), len(rows[0][0])), (1, count, 384))
    close(np.mean(rows[0], axis=0), raw[0], 1e-4)
    close(ok("/similarity", {"model": MINI, "inputs": {"source_sentence": TEXTS[0], "sentences": TEXTS[1:]}}), [e[0] @ x for x in e[1:]])
    ranked = ok("/rerank", {"model": "ranker", "query": "cats", "texts": TEXTS, "return_text": True})
    equal(sorted(x["index"] for x in ranked), [0, 1, 2, 3])
    check(all(a["score"] >= b["score"] for a, b in zip(ranked, ranked[1:])) and all(0 <= x["score"] <= 1 and x["text"] == TEXTS[x["index"]] for x in ranked), ranked)
    logits = ok("/rerank", {"model": "ranker", "query": "cats", "texts": TEXTS, "raw_scores": True})
    equal([x["index"] for x in logits], [x["index"] for x in ranked])
    close([1 / (1 + math.exp(-x["score"])) for x in logits], [x["score"] for x in ranked], 1e-4)
    check("text" not in logits[0], logits)
    one = ok("/predict", {"model": "classes", "inputs": TEXTS[0]})
    equal(sorted(x["label"] for x in one), ["no", "perhaps", "yes"])
    close(sum(x["score"] for x in one), 1)
    check(one[0]["score"] >= one[1]["score"] >= one[2]["score"], one)
    many = ok("/predict", {"model": "classes", "inputs": [[t] for t in TEXTS]})
    equal((len(many), many[0]), (4, one))
    pair = ok("/predict", {"model": "classes", "inputs": [TEXTS[0], TEXTS[1]]})
    check(len(pair) == 3 and pair != one, pair)
    equal(ok("/predict", {"model": "classes", "inputs": [[TEXTS[0], TEXTS[1]]]}), [pair])
    status, _, info = server().get("/info")
    equal((status, info["model_id"], info["model_type"], info["max_input_length"]), (200, MINI, {"embedding": {"pooling": "mean"}}, 256))
    refused("/embed_sparse", {"inputs": TEXTS, "model": MINI}, "sparse", 422)
    refused("/embed_sparse", {"inputs": TEXTS}, "no model here can give sparse embeddings", 422)
    refused("/embed", {"inputs": 3}, "a string or a list of strings", 422)
    refused("/embed", {"inputs": ["a", 3]}, "inputs[1] must be a string", 422)
    refused("/predict", {"inputs": 3}, "a list", 422)
    # as huggingface_hub's InferenceClient asks: of the root, with parameters and options
    equal(ok("/", {"model": MINI, "inputs": TEXTS[0], "options": {"wait_for_model": True}}), ok("/embed", {"model": MINI, "inputs": TEXTS[0]}))
    equal(ok("/", {"model": "classes", "inputs": TEXTS[0], "parameters": {}}), one)
    equal(ok("/", {"model": "classes", "inputs": TEXTS[0], "parameters": {"top_k": 2}}), one)  # that TEI does not know, and leaves out
    both = {"model": MINI, "inputs": {"source_sentence": TEXTS[0], "sentences": TEXTS[1:]}, "parameters": {}}
    equal(ok("/", both), ok("/similarity", both))
    check(ok("/", {"model": "ranker", "query": "cats", "texts": TEXTS}) == ok("/rerank", {"model": "ranker", "query": "cats", "texts": TEXTS}))


@test
def tei_says_what_a_request_took():
    """The headers that TEI answers with: counts, and milliseconds, which are parts of the whole."""
    names = ["x-compute-characters", "x-compute-tokens", "x-compute-time", "x-total-time", "x-tokenization-time", "x-queue-time", "x-inference-time"]
    count = sum(post("/tokenize", {"model": MINI, "prompt": t})[2]["count"] for t in ("Grüße", "Welt"))
    for path, body in (("/embed", {"inputs": ["Grüße", "Welt"]}), ("/embed_all", {"inputs": ["Grüße", "Welt"]}), ("/v1/embeddings", {"input": ["Grüße", "Welt"]})):
        status, headers, _ = post(path, {"model": MINI, **body})
        characters, tokens, compute, total, *parts = [int(headers[n]) for n in names]
        equal((status, characters, tokens, compute), (200, 9, count, total))
        check(all(p >= 0 for p in parts) and sum(parts) <= total, (total, parts))
        equal(headers["x-compute-type"], "cpu+optimized")
    status, headers, _ = post("/rerank", {"model": "ranker", "query": "one", "texts": ["two", "three"]})
    equal((status, headers["x-compute-characters"]), (200, str(3 + 3 + 3 + 5)))
    check(names[0] not in dict(post("/embed", {"model": MINI, "inputs": 3})[1]), "a refusal computed nothing")


@test
def tei_leaves_unknown_fields_out():
    """As serde does where TEI reads a request; other routes refuse what they do not know. --log debug tells them."""
    s = Server("--log", "debug", model=[encoders.minilm(), server().made])
    more = {"model": "classes", "truncation": 1, "x\ny": {"a": [1]}}
    for path, body in (("/embed", {"inputs": TEXTS, "model": MINI}), ("/embed_all", {"inputs": "a", "model": MINI}), ("/similarity", {"inputs": {"source_sentence": "a", "sentences": ["b"]}, "model": MINI}),
                       ("/rerank", {"query": "a", "texts": ["b"], "model": "ranker"}), ("/predict", {"inputs": "a", "model": "classes"}), ("/", {"inputs": "a", "model": MINI}),
                       ("/tokenize", {"inputs": "a", "model": MINI}), ("/decode", {"ids": [101], "model": MINI})):
        status, headers, answer = s.post(path, {**more, **body})
        equal((status, answer), (200, s.post(path, body)[2]), path)
        s.wait_said(f"{path}: fields that mean nothing there are left out: truncation, x?y (request {headers['x-request-id']})")
    for path, body in (("/v1/embeddings", {"input": "a"}), ("/v1/rerank", {"query": "a", "documents": ["b"], "model": "ranker"}), ("/rerank", {"query": "a", "documents": ["b"], "model": "ranker"}),
                       ("/classify", {"input": "a", "model": "classes"}), ("/v1/score", {"text_1": "a", "text_2": "b", "model": "ranker"})):
        status, _, answer = s.post(path, {**body, "truncation_": 1})
        check(status in (400, 422) and "truncation_" in str(answer), (path, status, answer))
    equal(s.stop(), 0)
    refused("/embed", {"inputs": "a", "model": MINI, "normalize": "yes"}, "normalize", 422)  # what it knows must be right


@test
def tei_s_metrics():
    """Its own names, behind the requests that it counts."""
    s = Server(model=[encoders.minilm(), server().made])
    check(not any(n.startswith("te_") for n in s.metrics()), "nobody has asked yet")
    equal(s.post("/embed", {"inputs": "one"})[0], 200)
    equal(s.post("/embed", {"inputs": ["one", "two", "three"]})[0], 200)
    equal(s.post("/v1/embeddings", {"input": "one"})[0], 200)
    equal(s.post("/rerank", {"query": "a", "texts": ["b", "c"], "model": "ranker"})[0], 200)
    equal(s.post("/predict", {"inputs": "a", "model": "classes"})[0], 200)
    equal(s.post("/embed", {"inputs": "word " * 400})[0], 413)
    equal(s.post("/embed", {"inputs": 5})[0], 422)
    equal(s.post("/embed_sparse", {"inputs": "a", "model": MINI})[0], 422)
    equal(s.post("/v1/rerank", {"query": "a", "documents": ["b"], "model": "ranker"})[0], 200)  # not TEI's
    m = s.metrics()
    want = {'te_request_count{method="single"}': 5, 'te_request_count{method="batch"}': 2, 'te_request_success{method="single"}': 3, 'te_request_success{method="batch"}': 2,
            'te_request_failure{err="tokenization"}': 1, 'te_request_failure{err="validation"}': 1, 'te_request_failure{err="model_type"}': 1, "te_embed_count": 6, "te_embed_success": 5,
            "te_predict_count": 3, "te_predict_success": 3, "te_request_duration_count": 5, "te_request_queue_duration_count": 5, "te_request_input_length_count": 8, "te_queue_size": 0}
    equal({n: m.get(n) for n in want}, want)
    equal(m['te_request_duration_bucket{le="+Inf"}'], 5)
    check(0 < m["te_request_duration_sum"] and m["te_request_inference_duration_sum"] <= m["te_request_duration_sum"] + 1e-9, m)
    equal(s.stop(), 0)


@test
def control_tokens_in_texts():
    """--parse-special: spelt out they are those tokens, with tokenizers' ids and sentence-transformers' vectors (tests/golden/control_tokens.json); else plain text."""
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden", "control_tokens.json")) as f:
        golden = json.load(f)
    texts = golden["texts"]
    s = Server("--parse-special", "--grpc-port", "0", model=[encoders.minilm(), server().made])
    equal([[t["id"] for t in one] for one in s.post("/tokenize", {"inputs": texts, "model": MINI})[2]], golden["ids"])
    equal([s.post("/tokenize", {"prompt": t, "model": MINI})[2]["tokens"] for t in texts], golden["ids"])
    close(s.post("/embed", {"inputs": texts, "model": MINI})[2], golden["embeddings"])
    close([x["embedding"] for x in s.post("/v1/embeddings", {"input": texts, "model": MINI})[2]["data"]], golden["embeddings"])
    c = http.InferenceServerClient(f"127.0.0.1:{s.port}")
    t = http.InferInput("text", [len(texts), 1], "BYTES")
    t.set_data_from_numpy(np.array([[x.encode()] for x in texts], dtype=np.object_))
    close(c.infer(MINI, [t]).as_numpy("embedding"), golden["embeddings"])
    # a pair whose first text holds a separator is another pair of texts there, and is not here
    pair = {"model": "ranker", "query": "a [SEP] b", "texts": ["c"]}
    check(abs(s.post("/rerank", pair)[2][0]["score"] - ok("/rerank", pair)[0]["score"]) > 1e-6)
    equal(s.stop(), 0)
    plain = ok("/embed", {"inputs": texts, "model": MINI})
    close(plain[4], golden["embeddings"][4])
    for i in range(3):
        check(np.abs(np.array(plain[i]) - golden["embeddings"][i]).max() > 1e-2, texts[i])
    ids = [[t["id"] for t in one] for one in ok("/tokenize", {"inputs": texts, "model": MINI})]
    check(ids[4] == golden["ids"][4] and all(102 not in one[1:-1] and 103 not in one and 0 not in one for one in ids), ids)


@test
def tei_tokens():
    # ids, places and texts are those of Hugging Face tokenizers
    def tokens(**body):
        return [[(t["id"], t["text"], t["special"], t["start"], t["stop"]) for t in one] for one in ok("/tokenize", {"model": MINI, **body})]

    equal(tokens(inputs="Hello, Wörld!"), [[(101, "[CLS]", True, None, None), (7592, "Hello", False, 0, 5), (1010, ",", False, 5, 6), (2088, "Wörld", False, 7, 12), (999, "!", False, 12, 13),
                                            (102, "[SEP]", True, None, None)]])
    equal(tokens(inputs=["naïve  日本 ☃ unaffordable", ""], add_special_tokens=False),
          [[(15743, "naïve", False, 0, 5), (1864, "日", False, 7, 8), (1876, "本", False, 8, 9), (100, "☃", False, 10, 11), (14477, "una", False, 12, 15), (4246, "ff", False, 15, 17),
            (8551, "ord", False, 17, 20), (3085, "able", False, 20, 24)], []])
    equal([t[1:] for t in tokens(inputs="a b", model=server_text())[0]], [("a", False, 0, 1), ("b", False, 2, 3)])
    equal(ok("/decode", {"model": MINI, "ids": [101, 7592, 1010, 2088, 999, 102]}), ["hello, world!"])
    equal(ok("/decode", {"model": MINI, "ids": [[101, 7592, 102], [2088]], "skip_special_tokens": False}), ["[CLS] hello [SEP]", "world"])
    equal(ok("/tokenize", {"model": MINI, "prompt": "a b"})["tokens"], [101, 1037, 1038, 102]) # vLLM's form of the same path
    for path, body, words, code in (("/tokenize", {"inputs": ["a", 5]}, "inputs[1]", 422), ("/tokenize", {"inputs": []}, "inputs", 422),
                                    ("/tokenize", {"inputs": "a", "prompt_name": "q"}, "q", 422), ("/tokenize", {"inputs": ["a" * 200000] * 2}, "400000", 413), ("/decode", {"ids": [-1]}, "ids[0]", 422),
                                    ("/decode", {"ids": [30522]}, "30521", 422), ("/decode", {"ids": "a"}, "ids", 422), ("/decode", {"ids": []}, "ids", 422), ("/decode", {}, "ids", 422)):
        refused(path, {"model": MINI, **body}, words, code)
    # unknown words by the thousand, and words longer than any token: no answer is longer than its text allows
    for text in ("☃ " * 20000, "ab☃" * 20000, "\u200b" * 20000):
        many = tokens(inputs=text)[0]
        check(sum(len(t[1]) for t in many) <= 2 * len(text) + 4 * len(many), len(many))
    # TEI's other names
    equal(ok("/embeddings", {"model": MINI, "input": "a", "dimensions": 3}), ok("/v1/embeddings", {"model": MINI, "input": "a", "dimensions": 3}))
    equal(ok("/invocations", {"model": MINI, "inputs": "a"}), ok("/embed", {"model": MINI, "inputs": "a"}))
    equal(server().get("/ping")[0], 200)


@test
def rerank_score_classify_pooling():
    r = ok("/v1/rerank", {"model": "ranker", "query": "cats", "documents": [TEXTS[0], {"text": TEXTS[1]}, TEXTS[2]], "top_n": 2})
    equal(len(r["results"]), 2)
    check(r["results"][0]["document"]["text"] == TEXTS[r["results"][0]["index"]] and r["usage"]["total_tokens"] > 10 and r["model"] == "ranker", r)
    either = ok("/rerank", {"model": "ranker", "query": "cats", "documents": TEXTS[:3], "top_n": 2, "return_documents": False})
    close([x["relevance_score"] for x in either["results"]], [x["relevance_score"] for x in r["results"]])
    check("document" not in either["results"][0], either)
    scores = ok("/v1/score", {"model": "ranker", "text_1": "cats", "text_2": TEXTS[:3]})["data"]
    equal([x["index"] for x in scores], [0, 1, 2])
    by_index = {x["index"]: x["relevance_score"] for x in r["results"]}
    close([scores[i]["score"] for i in sorted(by_index)], [by_index[i] for i in sorted(by_index)])
    pairs = ok("/score", {"model": "ranker", "text_1": ["cats", "dogs"], "text_2": TEXTS[:2]})["data"]
    close(pairs[0]["score"], scores[0]["score"])
    many = ok("/score", {"model": "ranker", "text_1": TEXTS[:3], "text_2": "cats"})["data"]
    equal(len(many), 3)
    # an embedder ranks by similarity
    e = np.array(embed(TEXTS))
    close([x["score"] for x in ok("/score", {"model": MINI, "text_1": TEXTS[0], "text_2": TEXTS[1:]})["data"]], [e[0] @ x for x in e[1:]])
    equal(ok("/v1/rerank", {"model": MINI, "query": "a small cat", "documents": TEXTS})["results"][-1]["index"] in (1, 3), True)
    c = ok("/classify", {"model": "classes", "input": TEXTS})["data"]
    predicted = ok("/predict", {"model": "classes", "inputs": [[t] for t in TEXTS]})
    for i, x in enumerate(c):
        equal((x["index"], x["num_classes"], x["label"]), (i, 3, predicted[i][0]["label"]))
        close(max(x["probs"]), predicted[i][0]["score"])
    close([x["data"] for x in ok("/pooling", {"model": MINI, "input": TEXTS})["data"]], e)
    tokens = ok("/pooling", {"model": MINI, "input": TEXTS[0], "task": "token_embed"})["data"][0]["data"]
    check(len(tokens) > 5 and len(tokens[0]) == 384)
    close(ok("/pooling", {"model": "classes", "input": TEXTS[0]})["data"][0]["data"], c[0]["probs"])


@test
def classes_of_tokens():
    """A row a token where a form for it exists; elsewhere a refusal that names those places, not the first token's label as the text's."""
    text = TEXTS[0]
    count = post("/tokenize", {"model": "names", "prompt": text})[2]["count"]
    answer = ok("/pooling", {"model": "names", "input": TEXTS, "task": "token_classify"})
    rows = np.array(answer["data"][0]["data"])
    equal(rows.shape, (count, 3))
    close(rows.sum(axis=1), [1] * count)
    check(np.abs(rows - rows[0]).max() > 1e-3, rows)
    equal([len(x["data"]) for x in answer["data"]], [post("/tokenize", {"model": "names", "prompt": t})[2]["count"] for t in TEXTS])
    command = subprocess.run([options.rose, "score", os.path.join(server().made, "names")], input=text + "\n", capture_output=True, text=True, check=True)
    said = json.loads(command.stdout)["tokens"]  # its numbers are compared with transformers' in tests/api
    equal([x["label"] for x in said], [["O", "B-PER", "I-PER"][i] for i in rows.argmax(axis=1)])
    close([x["score"] for x in said], rows.max(axis=1))
    c = http.InferenceServerClient(f"127.0.0.1:{server().port}")
    equal(c.get_model_metadata("names")["outputs"][0]["shape"], [-1, -1, 3])
    one = http.InferInput("text", [1, 1], "BYTES")
    one.set_data_from_numpy(np.array([[text.encode()]], dtype=np.object_))
    close(c.infer("names", [one]).as_numpy("probabilities"), [rows])
    close(ok("/pooling", {"model": "names", "input": text})["data"][0]["data"], rows)
    places = ["token_classify", "/pooling", "/v2/models/names/infer"]
    for path in ("/classify", "/v1/classify"):
        answer = refused(path, {"model": "names", "input": text}, places)
        equal((answer["error"]["param"], answer["error"]["code"]), ("model", "unsupported_model"))
    refused("/pooling", {"model": "names", "input": text, "task": "classify"}, places)
    for path in ("/predict", "/"):
        answer = refused(path, {"model": "names", "inputs": text}, places, 422)
        equal(answer["error_type"], "Validation")
    refused("/pooling", {"model": "classes", "input": text, "task": "token_classify"}, "does not classify tokens")
    # without a name: the model that does what is asked
    close(ok("/pooling", {"input": text, "task": "token_classify"})["data"][0]["data"], rows)
    equal(ok("/predict", {"inputs": text}), ok("/predict", {"model": "classes", "inputs": text}))
    equal(ok("/classify", {"input": text})["model"], "classes")


def command(name, model, *arguments, lines="one\ttwo\nthree\tfour\n"):
    """Its answers, or the sentence it refuses with."""
    path = model if os.path.isabs(model) else os.path.join(server().made, model)
    done = subprocess.run([options.rose, name, path, *arguments], input=lines, capture_output=True, text=True)
    return [json.loads(x) for x in done.stdout.splitlines()] if done.returncode == 0 else done.stderr


@test
def rerank_and_classify_are_commands():
    """The same answers as rose score and the server of the models they are for; the others are sent to the right command."""
    embedder = encoders.minilm()
    ranked = command("rerank", "ranker")
    equal(ranked, command("score", "ranker"))
    close([x["score"] for x in ranked], [ok("/v1/score", {"model": "ranker", "text_1": a, "text_2": b})["data"][0]["score"] for a, b in (("one", "two"), ("three", "four"))], 1e-4)
    best = command("rerank", "ranker", "--query", "one", "--top", "2", lines=json.dumps({"documents": TEXTS}) + "\n")[0]["results"]
    equal(len(best), 2)
    check(best[0]["score"] >= best[1]["score"], best)
    equal(command("rerank", embedder), command("score", embedder))
    labelled = command("classify", "classes", lines="one\n")
    equal(labelled, command("score", "classes", lines="one\n"))
    check(labelled[0]["label"] in ("no", "perhaps", "yes") and len(labelled[0]["probs"]) == 3, labelled)
    equal(command("classify", "names", lines="one\n"), command("score", "names", lines="one\n"))
    for name, model, says in (("rerank", "classes", "use rose classify"), ("rerank", "names", "use rose classify"), ("classify", "ranker", "use rose rerank"),
                              ("classify", embedder, "use rose embed"), ("score", "classes --top", "--top"), ("score", "classes --query", "--query")):
        model, *option = model.split() if model != embedder else [model]
        said = command(name, model, *[x for o in option for x in (o, "2")])
        check(says in said and said.count("\n") == 1, (name, model, said))


@test
def lines_that_ask_for_two_things():
    """Nothing of a line is left out silently, and a model of labels does not make a score of one of them."""
    for name, model, line, says in (("classify", "classes", {"query": "a", "documents": ["b", "c"]}, '"pair"'), ("score", "classes", {"text": "a", "documents": ["b"]}, "labels"),
                                    ("classify", "classes", {"text": "a", "pair": 5}, '"pair" is no text'), ("rerank", "ranker", {"query": "a", "documents": "b"}, '"documents" must be a list'),
                                    ("rerank", "ranker", {"query": "a", "document": "b", "documents": ["c"]}, '"documents" and one document'),
                                    ("rerank", "ranker", {"query": "a", "document": ["b"]}, '"document" is no text')):
        said = command(name, model, lines=json.dumps(line) + "\n")
        check("line 1" in said and says in said, (name, line, said))


@test
def kserve_tensors():
    c = http.InferenceServerClient(f"127.0.0.1:{server().port}")
    e = np.array(embed(TEXTS))

    def text(key, values, shape=None):
        t = http.InferInput(key, shape or [len(values), 1], "BYTES")
        t.set_data_from_numpy(np.array([v.encode() for v in values], dtype=np.object_).reshape(shape or [len(values), 1]))
        return t

    equal(c.get_model_metadata(MINI)["outputs"], [{"name": "embedding", "datatype": "FP32", "shape": [-1, 384]}])
    check(c.get_model_config(MINI)["max_batch_size"] > 0)
    r = c.infer(MINI, [text("text", TEXTS)])
    close(r.as_numpy("embedding"), e)
    close(c.infer(MINI, [text("text", TEXTS, [4])]).as_numpy("embedding"), e)
    close(c.infer(MINI, [text("text", TEXTS)], outputs=[http.InferRequestedOutput("embedding", binary_data=False)]).as_numpy("embedding"), e)
    # half floats: FP16 and BF16 out, token ids in
    half = c.infer(MINI, [text("text", TEXTS)], parameters={"output_datatype": "FP16"})
    equal(half.get_output("embedding")["datatype"], "FP16")
    close(half.as_numpy("embedding"), e.astype(np.float32).astype(np.float16), 1e-9)
    brain = c.infer(MINI, [text("text", TEXTS)], parameters={"output_datatype": "BF16"})
    close(brain.as_numpy("embedding").astype(np.float32), e, 2e-3)
    ids = [server().post("/tokenize", {"model": MINI, "prompt": t})[2]["tokens"] for t in TEXTS[:2]]
    width = max(map(len, ids))
    table, mask = np.zeros((2, width), np.int64), np.zeros((2, width), np.int64)
    for i, row in enumerate(ids):
        table[i, :len(row)], mask[i, :len(row)] = row, 1
    a, b = http.InferInput("input_ids", [2, width], "INT64"), http.InferInput("attention_mask", [2, width], "INT64")
    a.set_data_from_numpy(table)
    b.set_data_from_numpy(mask)
    close(c.infer(MINI, [a, b]).as_numpy("embedding"), e[:2])
    types = http.InferInput("token_type_ids", [2, width], "INT64")
    types.set_data_from_numpy(np.zeros_like(table))
    close(c.infer(MINI, [a, b, types]).as_numpy("embedding"), e[:2])
    tokens = {"name": "input_ids", "shape": [1, 2], "datatype": "INT64", "data": [101, 102]}
    for wrong, says in (({"shape": [1, 2], "data": [0, 1]}, "all 0"), ({"shape": [1, 1], "data": [0]}, "shape of input_ids")):
        refused(f"/v2/models/{MINI}/infer", {"inputs": [tokens, {"name": "token_type_ids", "datatype": "INT64", **wrong}]}, says)
    refused(f"/v2/models/{MINI}/infer", {"inputs": [{"name": "text", "shape": [1], "datatype": "BYTES", "data": ["a"]}, {"name": "token_type_ids", "datatype": "INT64", "shape": [1, 1], "data": [0]}]}, "goes with input_ids")
    close(np.linalg.norm(c.infer(MINI, [text("text", TEXTS)], parameters={"dimensions": 8}).as_numpy("embedding"), axis=1), [1] * 4)
    scores = c.infer("ranker", [text("query", ["cats"] * 3), text("text", TEXTS[:3])]).as_numpy("score")
    close(scores[:, 0], [x["score"] for x in ok("/score", {"model": "ranker", "text_1": "cats", "text_2": TEXTS[:3]})["data"]])
    r = c.infer("classes", [text("text", TEXTS)], outputs=[http.InferRequestedOutput("probabilities", class_count=2)])
    best = [x["label"] for x in ok("/classify", {"model": "classes", "input": TEXTS})["data"]]
    got = r.as_numpy("probabilities")
    equal(got.shape, (4, 2))
    equal([x.decode().split(":")[2] for x in got[:, 0]], best)
    p = f"/v2/models/{MINI}/infer"
    one = {"name": "text", "shape": [1], "datatype": "BYTES", "data": ["a"]}
    refused(p, {"inputs": [{**one, "shape": [0], "data": []}]}, "batch-size")
    refused(p, {"inputs": [{**one, "shape": [5000], "data": ["a"] * 5000}]}, ["batch-size", "4096"])
    refused(p, {"inputs": [{**one, "shape": [1, 2], "data": ["a", "b"]}]}, "shape")
    refused(p, {"inputs": [{**one, "data": ["word " * 300]}]}, ["text[0]", "256"])
    refused(p, {"inputs": [one], "parameters": {"dimensions": 9999}}, "dimensions")
    refused(p, {"inputs": [one], "outputs": [{"name": "embedding", "parameters": {"datatype": "BF16"}}]}, "BF16")
    refused(p, {"inputs": []}, "text")
    refused(f"/v2/models/{MINI}/generate", {"text_input": "x"}, "generates no text")


@test
def statistics_count_requests_and_texts():
    def counts():
        s = server().get(f"/v2/models/{MINI}/stats")[2]["model_stats"][0]
        return np.array([s["inference_stats"]["success"]["count"], s["inference_stats"]["fail"]["count"], s["inference_count"]])

    for path, body, change in ((f"/v2/models/{MINI}/infer", {"inputs": [{"name": "text", "shape": [3, 1], "datatype": "BYTES", "data": ["a", "b", "c"]}]}, [1, 0, 3]),
                               ("/v1/embeddings", {"model": MINI, "input": ["a", "b"]}, [1, 0, 2]), ("/embed", {"model": MINI, "inputs": "word " * 400}, [0, 1, 0])):
        before = counts()
        post(path, body)
        equal(list(counts() - before), change, path)


@test
def wrong_requests_name_the_field():
    path = "/v1/embeddings"
    base = {"model": MINI, "input": "a"}

    def bad(param, code=400, **changed):
        answer = refused(path, {**base, **changed}, "", code)
        equal(answer["error"]["param"], param, answer)

    bad("input", input=None)
    bad("input", input=[])
    bad("input[1]", input=["a", 5])
    bad("input[1]", input=["a", {"x": 1}])
    bad("input[0]", input=[[1, "x"]])
    bad("input[1]", input=[[101], []])
    bad("input[0]", input=[[101, 10**9]])
    bad("encoding_format", encoding_format="hex")
    bad("dimensions", dimensions=0)
    bad("dimensions", dimensions="x")
    bad("dimensions", dimensions=385, input=["a", "b"])
    bad("prompt_name", prompt_name="nothing")
    bad("prompt_name", prompt_name="nothing", input=[101, 102])
    bad("prompt_name", input_type="nothing", input=[[101, 102]])
    bad("messages", messages=[{"role": "user", "content": "x"}])
    bad("unheard", unheard=1)
    bad("model", 404, model="none")
    answer = refused(path, {**base, "input": ["short", "word " * 400]}, ["input[1]", "256"])
    equal((answer["error"]["param"], answer["error"]["code"]), ("input[1]", "context_length_exceeded"))
    equal(len(embed(["word " * 400], truncate_prompt_tokens=-1)[0]), 384)
    close(embed(["word " * 400], truncate_prompt_tokens=10), embed(["word " * 8]))
    refused(path, {"model": options.model.split("/")[-1][:-5], "input": "a"}, "does not embed")
    refused("/v1/completions", {"model": MINI, "prompt": "a", "max_tokens": 1}, "")
    refused("/v1/chat/completions", {"model": MINI, "messages": [{"role": "user", "content": "a"}], "max_tokens": 1}, "")
    # TEI: 422 for what is wrong, 413 for what is too long, its own form
    answer = refused("/embed", {"model": MINI, "inputs": 5}, "inputs", 422)
    equal(answer["error_type"], "Validation")
    refused("/embed", {"model": MINI, "inputs": ["a", "word " * 400]}, ["inputs[1]", "256"], 413)
    close(ok("/embed", {"model": MINI, "inputs": "word " * 400, "truncate": True}), ok("/embed", {"model": MINI, "inputs": "word " * 254}))
    refused("/embed", "{", "not valid", 400)
    refused("/embed", {"model": MINI, "inputs": "a", "prompt_name": "nothing"}, "nothing", 422)
    refused("/rerank", {"model": "ranker", "texts": ["a"]}, "query", 422)
    refused("/rerank", {"model": "ranker", "query": "a", "texts": []}, "texts", 422)
    refused("/predict", {"model": MINI, "inputs": "a"}, "classify", 422)
    refused("/v1/rerank", {"model": "ranker", "query": "a"}, "documents")
    refused("/v1/rerank", {"model": "ranker", "query": "a", "documents": ["b"], "top_n": 0}, "top_n")
    refused("/v1/rerank", {"model": "ranker", "query": "a", "documents": ["b"], "rank_fields": ["x"]}, "rank_fields")
    refused("/v1/rerank", {"model": "classes", "query": "a", "documents": ["b"]}, "")
    refused("/score", {"model": "ranker", "text_1": ["a", "b"], "text_2": ["a", "b", "c"]}, "equally many")
    refused("/score", {"model": "ranker", "text_1": "a", "text_2": ["b", "word " * 400]}, ["text_2[1]", "128"])
    refused("/classify", {"model": MINI, "input": "a"}, "classify")
    refused("/pooling", {"model": MINI, "input": "a", "task": "dream"}, "task")
    status, headers, _ = server().get("/embed")
    equal((status, headers["allow"]), (405, "POST, OPTIONS"))


@test
def a_model_that_is_not_named_is_one_that_can():
    text = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}
    listed = {m["id"]: m["tasks"] for m in server().get("/v1/models")[2]["data"]}
    equal(listed, {MINI: ["embed"], "ranker": ["classify", "score"], "classes": ["classify"], "names": ["token_classify"], server_text(): ["generate"]})
    equal(ok("/v1/chat/completions", text)["model"], server_text())
    equal(ok("/v1/completions", {"prompt": "a", "max_tokens": 1})["model"], server_text())
    equal(ok("/v1/messages", text)["model"], server_text())
    check(ok("/v1/messages/count_tokens", {"messages": text["messages"]})["input_tokens"] > 2)
    check(ok("/tokenize", {"messages": text["messages"]})["count"] > 2)
    equal(ok("/v1/embeddings", {"input": "a"})["model"], MINI)
    equal(ok("/v1/rerank", {"query": "a", "documents": ["b"]})["model"], "ranker")
    equal(ok("/v1/score", {"text_1": "a", "text_2": "b"})["model"], "ranker")
    check(ok("/predict", {"inputs": "a"}) == ok("/predict", {"inputs": "a", "model": "classes"}))
    # a name is a name: what it cannot do is said
    refused("/v1/chat/completions", {**text, "model": MINI}, "embeds")
    refused("/v1/embeddings", {"input": "a", "model": server_text()}, ["does not embed", "--task embed"])


def server_text():
    return os.path.basename(options.model).removesuffix(".gguf")


def bench(*arguments):
    return subprocess.run([options.rose, "bench", "--url", f"http://127.0.0.1:{server().port}", "-n", "4", "-c", "2", "--json", *arguments], capture_output=True, text=True, timeout=200)


@test
def bench_takes_a_model_that_can_and_says_why_not():
    for arguments, model, tokens in ((["-g", "3", "-p", "5"], server_text(), 12), (["--endpoint", "embeddings", "-p", "5"], MINI, 0), (["--endpoint", "infer", "-p", "5"], MINI, 0), (["--endpoint", "infer-json", "-p", "5"], MINI, 0)):
        r = bench(*arguments)
        equal(r.returncode, 0, r.stderr)
        answer = json.loads(r.stdout)
        equal((answer["model"], answer["ok"], answer["output_tokens"]), (model, 4, tokens))
        check((answer["input_tokens"] >= 4 * 5) == (not {"infer", "infer-json"} & set(arguments)), answer)
    for arguments, words in ((["--model", MINI, "-g", "3"], "cannot generate text: it embeds"), (["--model", "nothing", "--endpoint", "embeddings"], 'status 404: there is no model "nothing"'),
                             (["--model", "nothing", "--endpoint", "infer"], "status 404"), (["-p", "20000", "-g", "3"], "status 400: the prompt has")):
        r = bench(*arguments)
        equal(r.returncode, 1, str(arguments))
        check(words in r.stderr and "no request was answered" in r.stderr and "nan" not in r.stdout, r)
    r = subprocess.run([options.rose, "bench", "--url", f"http://127.0.0.1:{server().port}", "--model", "nothing", "-n", "2"], capture_output=True, text=True, timeout=200)
    equal((r.returncode, r.stdout), (1, ""))
    s = Server(model=[encoders.minilm()])
    for endpoint in ("embeddings", "infer"):
        r = subprocess.run([options.rose, "bench", "--url", f"http://127.0.0.1:{s.port}", "-n", "2", "--texts", "3", "--endpoint", endpoint], capture_output=True, text=True, timeout=200)
        check(r.returncode == 0 and "texts/s" in r.stdout and "whole answer" in r.stdout and "nan" not in r.stdout and "token within" not in r.stdout, r)
    r = subprocess.run([options.rose, "bench", "--url", f"http://127.0.0.1:{s.port}"], capture_output=True, text=True, timeout=200)
    check(r.returncode == 1 and 'none has the task "generate"' in r.stderr, r)
    s.stop()


@test
def a_text_model_embeds_when_it_is_served_for_that():
    s = Server("--task", "embed", "--task", "auto", "--weights", "q8_0", model=[options.model, encoders.minilm()])
    status, _, answer = s.post("/v1/embeddings", {"input": TEXTS[0], "model": server_text()})
    equal(status, 200, answer)
    close(answer["data"][0]["embedding"], embedded(options.model), 1e-4)
    equal(s.post("/v1/completions", {"prompt": "a", "model": server_text()})[0], 400)
    # other weights reach a server as they do a command
    close(s.post("/v1/embeddings", {"input": TEXTS[0], "model": MINI})[2]["data"][0]["embedding"], embedded(encoders.minilm(), "--weights", "q8_0"))
    check(max(abs(np.array(embedded(encoders.minilm(), "--weights", "q8_0")) - np.array(embedded(encoders.minilm())))) > 1e-4, "the same with other weights")
    s.stop()
    for wrong in (["--task", "sing"], ["--task", "auto", "--task", "auto"]):
        check(subprocess.run([options.rose, "serve", options.model, "--port", "0", *wrong], capture_output=True, timeout=60).returncode in (1, 2), wrong)


@test
def any_model_answers_where_the_server_says_so():
    """--any-model: TEI's clients write whatever they like into `model`; KServe's paths still name theirs."""
    s = Server("--any-model", model=[encoders.minilm()])
    client = openai.OpenAI(base_url=f"http://127.0.0.1:{s.port}/v1", api_key="-")
    answer = client.embeddings.create(model="text-embeddings-inference", input=TEXTS)
    close([x.embedding for x in answer.data], embed(TEXTS))
    equal(answer.model, MINI)
    equal(s.post("/embed", {"model": "tei", "inputs": "a"})[0], 200)
    status, _, body = s.post("/v1/chat/completions", {"model": "tei", "messages": [{"role": "user", "content": "a"}]})
    check(status == 400 and "generate text" in str(body), body)
    equal(s.post("/v2/models/tei/infer", {"inputs": []})[0], 404)
    # what is here, one by one as in the list, whatever requests may call it
    equal([m.id for m in client.models.list().data], [MINI])
    equal(client.models.retrieve(MINI).id, MINI)
    status, _, body = s.get("/v1/models/text-embeddings-inference")
    check(status == 404 and "text-embeddings-inference" in str(body), body)
    s.stop()


@test
def auto_truncate_cuts_where_the_request_does_not_say():
    """--auto-truncate, as TEI's: long texts are cut off; `truncate` false in a request still refuses them."""
    s = Server("--auto-truncate", model=[encoders.minilm()])
    long = "word " * 400
    cut = ok("/embed", {"model": MINI, "inputs": long, "truncate": True})
    close(s.post("/embed", {"inputs": long})[2], cut)
    status, _, answer = s.post("/v1/embeddings", {"input": long})
    equal(status, 200)
    close([answer["data"][0]["embedding"]], cut)
    equal(s.post("/rerank", {"query": "a", "texts": [long]})[0], 200)
    equal(s.post("/similarity", {"inputs": {"source_sentence": "a", "sentences": [long]}})[0], 200)
    equal(s.post("/embed", {"inputs": long, "truncate": False})[0], 413)
    equal(s.post("/similarity", {"inputs": {"source_sentence": "a", "sentences": [long]}, "parameters": {"truncate": False}})[0], 413)
    check(s.get("/info")[2]["auto_truncate"] is True and server().get("/info")[2]["auto_truncate"] is False)
    s.stop()


def embedded(model, *arguments):
    r = subprocess.run([options.rose, "embed", model, *arguments], input=json.dumps(TEXTS[0]) + "\n", capture_output=True, text=True, timeout=100)
    return json.loads(r.stdout)["embedding"]


@test
def many_texts_and_many_clients():
    texts = [f"{i} " + "word " * (i % 40) for i in range(1000)]
    whole = np.array([x["embedding"] for x in ok("/v1/embeddings", {"model": MINI, "input": texts})["data"]])
    equal(whole.shape, (1000, 384))
    some = np.array(embed([texts[i] for i in (0, 39, 500, 999)]))
    close(some, whole[[0, 39, 500, 999]], 1e-4)
    wrong = []
    chat = {"model": options.model.split("/")[-1][:-5], "messages": [{"role": "user", "content": "Count."}], "max_tokens": 4, "temperature": 0}

    def run(i):
        try:
            if i % 4 == 0:
                close(embed(texts[i:i + 20]), whole[i:i + 20], 1e-4)
            elif i % 4 == 1:
                equal(len(ok("/v1/rerank", {"model": "ranker", "query": "x", "documents": texts[:20]})["results"]), 20)
            elif i % 4 == 2:
                check(ok("/v1/chat/completions", chat)["choices"][0]["message"]["content"])
            else:
                refused("/embed", {"model": MINI, "inputs": ["a", "word " * 400, "b"]}, "inputs[1]", 413)
        except Exception as e:  # noqa: BLE001
            wrong.append((i, e))

    threads = [threading.Thread(target=run, args=(i,)) for i in range(200)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    check(not wrong, wrong[:3])
    # clients that leave
    for _ in range(10):
        s = server().socket()
        body = json.dumps({"model": MINI, "input": texts}).encode()
        s.sendall(b"POST /v1/embeddings HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        s.close()
    server().wait_idle()


@test
def long_texts_take_turns():
    """Of one call only a quarter of a mebibyte is in the engine at a time; long ones are tokenised beside the loop that serves everybody."""
    server().wait_idle()
    ended = threading.Event()
    answers, seen = [], []

    def call():
        answers.append(post("/v1/embeddings", {"model": MINI, "input": ["word " * 20000] * 60, "truncate_prompt_tokens": 100})[0])
        ended.set()

    thread = threading.Thread(target=call)
    thread.start()
    while not ended.is_set():
        m = server().metrics()
        seen.append(sum(m[f'rose_requests_{state}{{model="{MINI}"}}'] for state in ("running", "waiting")))
    thread.join()
    equal(answers, [200])
    check(0 < max(seen) <= 3, max(seen))  # 100,000 bytes each


@test
def long_documents_keep_nobody_waiting():
    """Four documents of one endless word, each a mebibyte: the same vectors as their beginnings, and others are answered meanwhile."""
    text = "a" * ((1 << 20) - 4096)
    most = 0
    for _ in range(10):
        count, answers = 0, []
        thread = threading.Thread(target=lambda: answers.append(ok("/v1/embeddings", {"model": MINI, "input": [text, "word " * 20000, "short", text], "truncate_prompt_tokens": 100})))
        thread.start()
        while thread.is_alive():
            equal(server().get("/version")[0], 200)
            count += thread.is_alive()
        most = max(most, count)
        if most >= 8:
            break
    check(most >= 8, f"only {most} others were answered meanwhile")
    got = [x["embedding"] for x in answers[0]["data"]]
    equal(got[0], got[3])
    close(got[1], embed(["word " * 98])[0])
    close(got[2], embed(["short"])[0])
    refused("/v1/embeddings", {"model": MINI, "input": ["short", "word " * 20000, text]}, ["input[1]", "256"])
    for _ in range(3):
        s = server().socket()
        body = json.dumps({"model": MINI, "input": [text] * 4, "truncate_prompt_tokens": 100}).encode()
        s.sendall(b"POST /v1/embeddings HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        s.close()
    server().wait_idle()


if __name__ == "__main__":
    main()
