"""What drop-in clients of Triton and TEI use besides: compressed bodies both ways, several versions of a model at once, sparse embeddings as tensors
(BGE-M3's lexical head from its .pt file), and the requests that langchain's and llama-index's clients send."""
import atexit
import gzip
import json
import os
import re
import shutil
import tempfile
import zlib
from http.client import HTTPConnection

import numpy as np
import openai
import tritonclient.grpc as tg
import tritonclient.http as http
from tritonclient.utils import InferenceServerException

import encoders
from server_fixture import Server, check, equal, main, test, until

TEXTS = ["A cat sits on the mat.", "Stock prices fell sharply on Monday.", "The kitten is on the rug, and the cat is not."]
MINI = "all-MiniLM-L6-v2"
GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden")
the_server = None


def folder():
    d = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, d)
    return d


def server():
    """An embedder, one with a lexical head of random weights, a ranker and a classifier."""
    global the_server
    if the_server is None:
        d = folder()
        encoders.embedder(d + "/lexical", seed=5)
        shutil.copy(os.path.join(GOLDEN, "sparse_linear_f16.pt"), d + "/lexical/sparse_linear.pt")
        encoders.classifier(d + "/ranker", ["relevance"])
        encoders.classifier(d + "/classes", ["no", "perhaps", "yes"], seed=2)
        the_server = Server("--grpc-port", "0", "--max-body", "1M", model=[encoders.minilm(), d])
        the_server.grpc = grpc_port(the_server)
    return the_server


def grpc_port(s):
    return int(until(lambda: re.search(r"gRPC at [^\n]*:(\d+)\n", s.output()), "gRPC")[1])


def client(s=None):
    return http.InferenceServerClient(f"127.0.0.1:{(s or server()).port}", connection_timeout=300, network_timeout=300)


def grpc_client(s=None):
    return tg.InferenceServerClient(f"127.0.0.1:{(s or server()).grpc}")


def text_input(module, texts=TEXTS):
    t = module.InferInput("text", [len(texts), 1], "BYTES")
    t.set_data_from_numpy(np.array([[x.encode()] for x in texts], dtype=np.object_))
    return t


def ok(path, body, headers=None):
    status, got, answer = server().post(path, body, headers=headers)
    equal(status, 200, f"{path}: {answer}")
    return answer


# --- compressed bodies ------------------------------------------------------------------------------------------------------------------


@test
def compressed_requests_and_answers():
    c = client()
    want = c.infer(MINI, [text_input(http)]).as_numpy("embedding")
    for request in (None, "gzip", "deflate"):
        for response in (None, "gzip", "deflate"):
            r = c.infer(MINI, [text_input(http)], request_compression_algorithm=request, response_compression_algorithm=response)
            check(np.abs(r.as_numpy("embedding") - want).max() < 1e-6, (request, response))
            r = c.infer(MINI, [text_input(http)], outputs=[http.InferRequestedOutput("embedding", binary_data=False)], request_compression_algorithm=request,
                        response_compression_algorithm=response)
            check(np.abs(r.as_numpy("embedding") - want).max() < 1e-6, (request, response))
    # over gRPC the library codes and decodes
    r = grpc_client().infer(MINI, [text_input(tg)], compression_algorithm="gzip")
    check(np.abs(r.as_numpy("embedding") - want).max() < 1e-6)
    # an answer is coded only where the client says that it takes that
    body = json.dumps({"inputs": [{"name": "text", "shape": [1], "datatype": "BYTES", "data": ["a cat"]}]})
    for accept, coding in (("gzip", "gzip"), ("br, deflate;q=0.5", "deflate"), ("gzip;q=0", None), (None, None)):
        c = HTTPConnection("127.0.0.1", server().port, timeout=300)
        c.request("POST", f"/v2/models/{MINI}/infer", body, {"Accept-Encoding": accept} if accept else {})
        r = c.getresponse()
        data = r.read()
        c.close()
        equal((r.status, r.getheader("Content-Encoding")), (200, coding), accept)
        equal(json.loads(gzip.decompress(data) if coding == "gzip" else zlib.decompress(data) if coding else data)["model_name"], MINI)


@test
def compressed_bodies_on_every_route():
    body = json.dumps({"model": MINI, "input": TEXTS}).encode()
    want = ok("/v1/embeddings", body)["data"]
    raw = zlib.compressobj(wbits=-15)
    for coding, coded in (("gzip", gzip.compress(body)), ("x-gzip", gzip.compress(body[:7]) + gzip.compress(body[7:])), ("deflate", zlib.compress(body)),
                          ("deflate", raw.compress(body) + raw.flush()), ("identity", body)):
        got = ok("/v1/embeddings", coded, {"Content-Encoding": coding})["data"]
        for a, b in zip(got, want):
            check(np.abs(np.array(a["embedding"]) - np.array(b["embedding"])).max() < 1e-6, coding)


@test
def wrong_codings_are_refused():
    body = json.dumps({"model": MINI, "input": "a cat"}).encode()
    coded = gzip.compress(body)
    bomb = gzip.compress(b"[" * (64 << 20))
    check(len(bomb) < 1 << 20, "it fits by itself")
    for data, coding, want in ((body, "gzip", 400), (coded[:-3], "gzip", 400), (coded[:20] + b"\xff" + coded[21:], "gzip", 400), (coded + b"x", "gzip", 400), (coded, "deflate", 400),
                               (bomb, "gzip", 413), (coded, "br", 415), (coded, "gzip, gzip", 415)):
        status, headers, answer = server().post("/v1/embeddings", data, headers={"Content-Encoding": coding})
        equal(status, want, f"{coding}: {answer}")
        check(answer["error"]["message"], answer)
        if want == 415:
            equal(headers["accept-encoding"], "gzip, deflate")
    ok("/v1/embeddings", coded, {"Content-Encoding": "gzip"})


# --- sparse embeddings ------------------------------------------------------------------------------------------------------------------


@test
def sparse_embeddings_are_tensors():
    want = ok("/embed_sparse", {"inputs": TEXTS, "model": "lexical"})
    check(any(want) and len({len(w) for w in want}) > 1, "texts of different numbers of tokens")
    width = max(len(w) for w in want)
    for c, module in ((client(), http), (grpc_client(), tg)):
        names = ["sparse_indices", "sparse_values"]
        r = c.infer("lexical", [text_input(module)], outputs=[module.InferRequestedOutput(n) for n in names])
        ids, values = (r.as_numpy(n) for n in names)
        equal((ids.shape, values.shape, ids.dtype), ((3, width), (3, width), np.int32))
        for row, (i, v) in zip(want, zip(ids, values)):
            equal([int(x) for x in i], [w["index"] for w in row] + [-1] * (width - len(row)))
            check(np.abs(v[:len(row)] - [w["value"] for w in row]).max(initial=0) < 1e-5 and not v[len(row):].any(), (v, row))
        # both kinds in one request, in the order that was asked for
        r = c.infer("lexical", [text_input(module)], outputs=[module.InferRequestedOutput(n) for n in ("sparse_values", "embedding", "sparse_indices")])
        check(np.abs(r.as_numpy("sparse_values") - values).max() < 1e-5 and (r.as_numpy("sparse_indices") == ids).all())
        plain = c.infer("lexical", [text_input(module)])
        check(np.abs(r.as_numpy("embedding") - plain.as_numpy("embedding")).max() < 1e-5)
        check(plain.as_numpy("sparse_indices") is None, "only where they are asked for")
    meta = client().get_model_metadata("lexical")
    equal([(o["name"], o["datatype"]) for o in meta["outputs"]], [("embedding", "FP32"), ("sparse_indices", "INT32"), ("sparse_values", "FP32")])
    equal([o["name"] for o in client().get_model_metadata(MINI)["outputs"]], ["embedding"])
    for outputs, word in (([{"name": "sparse_values"}], MINI), ([{"name": "sparse_values", "parameters": {"classification": 2}}], "classified")):
        model = MINI if word == MINI else "lexical"
        status, _, answer = server().post(f"/v2/models/{model}/infer", {"inputs": [{"name": "text", "shape": [1], "datatype": "BYTES", "data": ["a"]}], "outputs": outputs})
        check(status == 400 and word in answer["error"], answer)


# --- versions ---------------------------------------------------------------------------------------------------------------------------


def ready(c):
    return sorted((x["name"], x["version"]) for x in c.get_model_repository_index() if x["state"] == "READY")


def embedding(c, version=""):
    r = c.infer("m", [text_input(http, ["a cat"])], model_version=version)
    return r.get_response()["model_version"], r.as_numpy("embedding")[0]


@test
def several_versions_at_once():
    d = folder()
    for version in (1, 2, 3, 10):
        encoders.embedder(f"{d}/m/{version}", seed=version)
    with open(f"{d}/m/config.pbtxt", "w") as f:
        f.write('name: "m" # as Triton has it\nversion_policy: { latest { num_versions: 2 } }\nmax_batch_size: 8\ninput [ { name: "text" data_type: TYPE_STRING dims: [ 1 ] } ]\n')
    encoders.embedder(f"{d}/wrong/1")
    with open(f"{d}/wrong/config.pbtxt", "w") as f:
        f.write("version_policy: { newest { } }\n")
    s = Server("--grpc-port", "0", model=[d])
    s.grpc = grpc_port(s)
    try:
        c, g = client(s), grpc_client(s)
        equal(ready(c), [("m", "10"), ("m", "3")])
        index = {(x["name"], x["version"]): x for x in c.get_model_repository_index()}
        check("newest" in index["wrong", "1"]["reason"], index)
        equal(sorted(c.get_model_metadata("m")["versions"]), ["10", "3"])
        equal(c.get_model_config("m")["version_policy"], {"latest": {"num_versions": 2}})
        equal(g.get_model_config("m", as_json=True)["config"]["version_policy"], {"latest": {"num_versions": 2}})
        (top, a), (same, b), (old, x) = embedding(c), embedding(c, "10"), embedding(c, "3")
        equal((top, same, old), ("10", "10", "3"))
        check(np.abs(a - b).max() < 1e-6 and np.abs(a - x).max() > 1e-3, "two models")
        equal([m["id"] for m in s.get("/v1/models")[2]["data"]], ["m"])
        labels = {name for name in s.metrics() if name.startswith("rose_requests_total{")}
        equal(labels, {'rose_requests_total{model="m"}', 'rose_requests_total{model="m/versions/3"}'})
        check(c.is_model_ready("m", "3") and not c.is_model_ready("m", "2"))
        # a load may bring another policy, and one without brings the directory's back
        c.load_model("m", config=json.dumps({"name": "m", "version_policy": {"specific": {"versions": [1, 2]}}}))
        until(lambda: ready(c) == [("m", "1"), ("m", "2")], "versions 1 and 2 alone are served")
        equal(c.get_model_config("m")["version_policy"], {"specific": {"versions": [1, 2]}})
        equal(embedding(c)[0], "2")
        g.load_model("m", config=json.dumps({"version_policy": {"all": {}}}))
        equal(ready(c), [("m", "1"), ("m", "10"), ("m", "2"), ("m", "3")])
        c.load_model("m")
        until(lambda: ready(c) == [("m", "10"), ("m", "3")], "the directory's policy")
        check(np.abs(embedding(c, "3")[1] - x).max() < 1e-6)
        for config, word in (("{}", "version_policy"), ("nonsense", "JSON"), ('{"max_batch_size": 4}', "max_batch_size"), ('{"version_policy": {"specific": {"versions": [77]}}}', "no version"),
                             ('{"version_policy": {"latest": {"num_versions": 0}}}', "num_versions")):
            for load in (c.load_model, g.load_model):
                try:
                    load("m", config=config)
                    check(False, f"{config} was taken")
                except InferenceServerException as e:
                    check(word in e.message(), f"{config}: {e}")
        for load in (c.load_model, g.load_model):
            try:
                load("m", config='{"version_policy": {"all": {}}}', files={"file:1/model.safetensors": b"x"})
                check(False, "a file was taken")
            except InferenceServerException as e:
                check("file:1/model.safetensors" in e.message(), e)
        c.load_model("m")
        until(lambda: ready(c) == [("m", "10"), ("m", "3")], "as before")
        c.unload_model("m")
        until(lambda: ready(c) == [], "all versions are unloaded")
    finally:
        equal(s.stop(), 0)


# --- other people's clients ---------------------------------------------------------------------------------------------------------------


@test
def langchain_and_llama_index():
    """What their classes send, read from their sources: OpenAIEmbeddings (both) by the openai package, token ids and base64; TEI's by POST /embed or /."""
    c = openai.OpenAI(base_url=f"http://127.0.0.1:{server().port}/v1", api_key="none", max_retries=0)
    want = np.array([d.embedding for d in c.embeddings.create(model=MINI, input=TEXTS, encoding_format="float").data])
    tokens = [ok("/tokenize", {"model": MINI, "prompt": t})["tokens"] for t in TEXTS]
    got = c.embeddings.create(model=MINI, input=tokens)  # langchain_openai: lists of ids, base64 by default
    check(np.abs(np.array([d.embedding for d in got.data]) - want).max() < 1e-6)
    got = c.embeddings.create(model=MINI, input=[t.replace("\n", " ") for t in TEXTS], user="llama")
    check(np.abs(np.array([d.embedding for d in got.data]) - want).max() < 1e-6)
    for path, body in (("/embed", {"inputs": TEXTS, "truncate": True}), ("/", {"inputs": TEXTS}), ("/", {"inputs": TEXTS, "truncate": True, "normalize": True})):
        check(np.abs(np.array(ok(path, body)) - want).max() < 1e-5, path)
    one = ok("/", {"inputs": TEXTS[0]})
    equal(np.array(one).shape, (1, 384))
    ranked = ok("/", {"query": TEXTS[0], "texts": TEXTS, "model": "ranker"})
    equal(ranked, ok("/rerank", {"query": TEXTS[0], "texts": TEXTS, "model": "ranker"}))
    equal(ok("/", {"inputs": TEXTS[0], "model": "classes"}), ok("/predict", {"inputs": TEXTS[0], "model": "classes"}))
    status, _, answer = server().post("/", {"texts": 1})
    check(status == 422 and set(answer) == {"error", "error_type"}, answer)
    equal(server().get("/")[0], 200)


main()
