"""config.pbtxt of a Triton repository: clients send and get the tensors that they know, over HTTP and gRPC, with transformers' own numbers
(tests/golden/kserve_config.json); what contradicts the model is refused at its place."""
import json
import os
import re

import numpy as np
import tritonclient.grpc as tg
import tritonclient.http as http
from tritonclient.utils import InferenceServerException

import encoders
import tempfile
from grpc_fixture import grpc_port
from server_fixture import Server, check, equal, main, options, test, until

with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden", "kserve_config.json")) as f:
    GOLDEN = json.load(f)

IDS = """input [ { name: "input_ids" data_type: TYPE_INT64 dims: [ -1 ] }, { name: "attention_mask" data_type: TYPE_INT64 dims: [ -1 ] },
  { name: "token_type_ids" data_type: TYPE_INT64 dims: [ -1 ] optional: true } ]
"""
HEAD = """platform: "onnxruntime_onnx"
max_batch_size: 8
dynamic_batching { max_queue_delay_microseconds: 100 }
instance_group [ { count: 1 kind: KIND_GPU } ]
"""
CONFIGS = {
    "embedder": HEAD + IDS + 'output { name: "last_hidden_state" data_type: TYPE_FP32 dims: [ -1, 32 ] }\noutput { name: "sentence_embedding" data_type: TYPE_FP32 dims: [ 32 ] }\n',
    "classes": HEAD + IDS + 'output { name: "logits" data_type: TYPE_FP32 dims: [ 3 ] label_filename: "labels.txt" }\n',
    "tags": HEAD + IDS + 'output { name: "logits" data_type: TYPE_FP32 dims: [ -1, 2 ] }\n',
    "ranker": HEAD + IDS + 'output { name: "logits" data_type: TYPE_FP32 dims: [ 1 ] }\n',
    "texts": 'name: "texts"\nmax_batch_size: 4\ninput { name: "SENTENCE" data_type: TYPE_STRING dims: [ 1 ] }\noutput { name: "VECTOR" data_type: TYPE_FP16 dims: [ 32 ] }\n',
    "whole": 'input { name: "ids" data_type: TYPE_INT32 dims: [ -1 ] }\noutput { name: "vector" data_type: TYPE_FP32 dims: [ 32 ] }\n',
    "writer": 'platform: "ensemble"\nmax_batch_size: 4\ninput [ { name: "PROMPT" data_type: TYPE_STRING dims: [ 1 ] }, { name: "max_tokens" data_type: TYPE_INT32 dims: [ 1 ] optional: true },\n'
              '{ name: "temperature" data_type: TYPE_FP32 dims: [ 1 ] optional: true }, { name: "bad_words" data_type: TYPE_STRING dims: [ -1 ] optional: true },\n{ name: "beam_width" data_type: TYPE_INT32 dims: [ 1 ] optional: true } ]\nparameters { key: "rose.input.beam_width" value { string_value: "none" } }\n'
              'output [ { name: "ANSWER" data_type: TYPE_STRING dims: [ -1 ] }, { name: "cum_log_probs" data_type: TYPE_FP32 dims: [ -1 ] } ]\n'
              'ensemble_scheduling { step [ { model_name: "tensorrt_llm" model_version: -1 input_map { key: "a" value: "b" } } ] }\n'
              'parameters { key: "rose.output.cum_log_probs" value { string_value: "none" } }\n',
}
WRONG = {
    "w_type": ('max_batch_size: 8\ninput { name: "x" data_type: TYPE_FLOAT dims: [ 1 ] }\n', r"w_type/config.pbtxt:2:30: .*TYPE_STRING"),
    "w_dims": ('max_batch_size: 8\noutput { name: "y" data_type: TYPE_FP32 dims: [ 768 ] }\n', r"w_dims/config.pbtxt:2:49: .*dims: \[ 32 \] was expected, not \[ 768 \]"),
    "w_input": ('max_batch_size: 8\ninput { name: "pixels" data_type: TYPE_FP32 dims: [ 3 ] }\n', r"w_input/config.pbtxt:2:15: .*rose.input.pixels"),
    "w_syntax": ('max_batch_size: 8\ninput {\n', r"w_syntax/config.pbtxt:3:1: .*'\}' was expected"),
    "w_name": ('name: "another"\n', r'w_name/config.pbtxt:1:7: .*"w_name"'),
    "w_cut": (")" * 15 + "\u00e9\n", r"w_cut/config.pbtxt:1:1: .*'\)+\?' is there"),  # quoted within a character: gRPC carries only UTF-8
    "w_field": ('dynamic_batchin { }\n', r"w_field/config.pbtxt:1:1: .*dynamic_batchin"),
}
EMPTY = {"onnx": "1/model.onnx", "steps": "3/"}  # copied as they are: nothing that Rose reads
LINKS = {"l_gone": "nowhere", "l_loop": "config.pbtxt"}
MAKE = {"classes": lambda d: encoders.classifier(d, ["no", "perhaps", "yes"], seed=2), "tags": lambda d: encoders.token_classifier(d, ["O", "NAME"], seed=3),
        "ranker": lambda d: encoders.classifier(d, ["relevance"])}
the_server = None


def write(d, name, text):
    with open(f"{d}/{name}/config.pbtxt", "w") as f:
        f.write(text)


def server():
    global the_server
    if the_server is None:
        d = tempfile.mkdtemp()
        for name, path in EMPTY.items():
            os.makedirs(f"{d}/{name}/{os.path.dirname(path)}")
            write(d, name, 'platform: "onnxruntime_onnx"')
            if not path.endswith("/"):
                open(f"{d}/{name}/{path}", "w").close()
        for name, to in LINKS.items():
            encoders.embedder(f"{d}/{name}/1", seed=5)
            os.symlink(to, f"{d}/{name}/config.pbtxt")
        for name in [*CONFIGS, *WRONG]:
            where = f"{d}/{name}/1"
            if name == "writer":
                os.makedirs(where)
                os.symlink(os.path.abspath(options.model), where + "/model.gguf")
            else:
                MAKE.get(name, lambda x: encoders.embedder(x, seed=5))(where)
            if name == "classes":
                with open(f"{d}/{name}/labels.txt", "w") as f:
                    f.write("first\nsecond\nthird\n")
            write(d, name, CONFIGS[name] if name in CONFIGS else WRONG[name][0])
        the_server = Server("--grpc-port", "0", "--kv-bytes", "64M", model=[d])
        the_server.folder = d
        the_server.grpc = grpc_port(the_server)
    return the_server


def clients():
    yield http, http.InferenceServerClient(f"127.0.0.1:{server().port}", connection_timeout=300, network_timeout=300)
    yield tg, tg.InferenceServerClient(f"127.0.0.1:{server().grpc}")


def tensor(module, name, value, datatype):
    t = module.InferInput(name, list(value.shape), datatype)
    t.set_data_from_numpy(value)
    return t


def ids_of(module, g, names=("input_ids", "attention_mask", "token_type_ids")):
    return [tensor(module, n, np.array(g[n], np.int64), "INT64") for n in names]


def near(got, want, what, most=1e-4):
    check(got.shape == want.shape and np.abs(got - want).max() < most, f"{what}: {got.shape} {want.shape} {np.abs(got - want).max() if got.shape == want.shape else ''}")


def golden(name):
    g = GOLDEN[name]
    return g, np.array(g["values"], np.float32).reshape(g["shape"])


def refused(call, word):
    try:
        call()
    except InferenceServerException as e:
        check(word in e.message(), e)
        return
    check(False, f"it was taken, and {word!r} was expected")


@test
def an_exported_model_s_tensors():
    """input_ids, attention_mask, token_type_ids -> last_hidden_state or logits: as transformers gives them where tokens are no padding."""
    for name in ("embedder", "classes", "tags", "ranker"):
        g, want = golden(name)
        for module, c in clients():
            output = "last_hidden_state" if name == "embedder" else "logits"
            got = c.infer(name, ids_of(module, g), outputs=[module.InferRequestedOutput(output)]).as_numpy(output)
            mask = np.array(g["attention_mask"])
            if want.ndim == 3:
                want = want * mask[:, :, None]  # rows of padding are 0 here
            near(got, want, f"{name} {module.__name__}")
            if name != "ranker":  # segments that are all 0 may be left out
                near(c.infer(name, ids_of(module, g, ("input_ids", "attention_mask")), outputs=[module.InferRequestedOutput(output)]).as_numpy(output), want, name)
            else:
                other = c.infer(name, ids_of(module, g, ("input_ids", "attention_mask")), outputs=[module.InferRequestedOutput(output)]).as_numpy(output)
                check(np.abs(other - want).max() > 1e-3, "segments count")


@test
def all_outputs_where_none_is_named():
    g, want = golden("embedder")
    mask = np.array(g["attention_mask"])[:, :, None]
    mean = (want * mask).sum(1) / mask.sum(1)
    for module, c in clients():
        r = c.infer("embedder", ids_of(module, g))
        near(r.as_numpy("last_hidden_state"), want * mask, "rows")
        got = r.as_numpy("sentence_embedding")
        near(got / np.linalg.norm(got, axis=1, keepdims=True), mean / np.linalg.norm(mean, axis=1, keepdims=True), "their mean")
        near(c.infer("embedder", ids_of(module, g), outputs=[module.InferRequestedOutput("sentence_embedding")]).as_numpy("sentence_embedding"), got, "alone")
        top = c.infer("classes", ids_of(module, GOLDEN["classes"]), outputs=[module.InferRequestedOutput("logits", class_count=2)]).as_numpy("logits")
        best = golden("classes")[1].argmax(1)
        equal([x[0].decode().split(":")[1:] for x in top], [[str(i), ("first", "second", "third")[i]] for i in best])  # the file's labels


@test
def texts_by_another_name():
    g, want = golden("embedder")
    mask = np.array(g["attention_mask"])[:, :, None]
    mean = (want * mask).sum(1) / mask.sum(1)
    for module, c in clients():
        r = c.infer("texts", [tensor(module, "SENTENCE", np.array([[t.encode()] for t in g["texts"]], np.object_), "BYTES")])
        got = r.as_numpy("VECTOR")
        equal(got.dtype, np.float16)
        got = got.astype(np.float32)
        near(got / np.linalg.norm(got, axis=1, keepdims=True), mean / np.linalg.norm(mean, axis=1, keepdims=True), "texts", 2e-3)
        ids = np.array(g["input_ids"][0], np.int32)
        one = c.infer("whole", [tensor(module, "ids", ids, "INT32")]).as_numpy("vector")
        near(one / np.linalg.norm(one), mean[0] / np.linalg.norm(mean[0]), "one text without a batch")
        # shapes, types and names are as strict as Triton's
        text = np.array([[b"a"]] * 5, np.object_)
        refused(lambda: c.infer("texts", [tensor(module, "SENTENCE", text, "BYTES")]), "from 1 to 4")
        refused(lambda: c.infer("texts", [tensor(module, "SENTENCE", text[:2, 0], "BYTES")]), "expected [-1,1], got [2]")
        refused(lambda: c.infer("texts", [tensor(module, "text", text[:1], "BYTES")]), "unexpected inference input 'text'")
        refused(lambda: c.infer("texts", [tensor(module, "SENTENCE", text[:1], "BYTES")], outputs=[module.InferRequestedOutput("embedding")]), "unexpected inference output 'embedding'")
        refused(lambda: c.infer("classes", ids_of(module, GOLDEN["classes"], ("input_ids",))), "expected input 'attention_mask'")
        for at, word in ((1, "1s must stand together"), (0, "begins with 0s")):  # of BERT's, whose positions count what is masked
            mask = np.array(GOLDEN["ranker"]["attention_mask"], np.int64)
            mask[0][at] = 0
            refused(lambda: c.infer("ranker", ids_of(module, GOLDEN["ranker"], ("input_ids",)) + [tensor(module, "attention_mask", mask, "INT64")]), word)
        wild = ids_of(module, GOLDEN["ranker"], ("input_ids", "attention_mask")) + [tensor(module, "token_type_ids", np.full(np.array(GOLDEN["ranker"]["input_ids"]).shape, 2), "INT64")]
        refused(lambda: c.infer("ranker", wild), "token type 2")


@test
def text_by_another_name():
    want = None
    for module, c in clients():
        inputs = [tensor(module, "PROMPT", np.array([[b"The capital of France is"]], np.object_), "BYTES"), tensor(module, "max_tokens", np.array([[4]], np.int32), "INT32"),
                  tensor(module, "temperature", np.array([[0]], np.float32), "FP32")]
        got = c.infer("writer", inputs).as_numpy("ANSWER")
        equal(got.shape, (1, 1))
        want = want or got[0, 0]
        equal(got[0, 0], want)
        two = [tensor(module, "PROMPT", np.array([[b"a"], [b"b"]], np.object_), "BYTES")]
        refused(lambda: c.infer("writer", two), "one text a request")
        refused(lambda: c.infer("writer", inputs + [tensor(module, "bad_words", np.array([[b"x"]], np.object_), "BYTES")]), "input 'bad_words' means nothing to model 'writer' here")
        refused(lambda: c.infer("writer", inputs, outputs=[module.InferRequestedOutput("cum_log_probs")]), "output 'cum_log_probs' of model 'writer' is not given here")
    status, _, answer = server().post("/v2/models/writer/generate", {"PROMPT": "The capital of France is", "max_tokens": 4, "temperature": 0})
    equal((status, answer.get("ANSWER")), (200, want.decode()), answer)
    status, _, answer = server().post("/v2/models/writer/generate", {"PROMPT": "The capital of France is", "max_tokens": 4, "temperature": 0, "beam_width": 1, "bad_words": ""})  # not read; none
    equal((status, answer.get("ANSWER")), (200, want.decode()), answer)
    events = server().stream("/v2/models/writer/generate_stream", {"PROMPT": "The capital of France is", "max_tokens": 4, "temperature": 0})
    check(want.decode().endswith("".join(e["ANSWER"] for e in events)), events)


@test
def metadata_and_configuration():
    for module, c in clients():
        more = {} if module is http else {"as_json": True}
        m = c.get_model_metadata("embedder", **more)
        equal([(x["name"], x["datatype"], [int(d) for d in x["shape"]]) for x in m["inputs"]], [(n, "INT64", [-1, -1]) for n in ("input_ids", "attention_mask", "token_type_ids")])
        equal([(x["name"], x["datatype"], [int(d) for d in x["shape"]]) for x in m["outputs"]], [("last_hidden_state", "FP32", [-1, -1, 32]), ("sentence_embedding", "FP32", [-1, 32])])
        m = c.get_model_metadata("whole", **more)
        equal([(x["name"], x["datatype"], [int(d) for d in x["shape"]]) for x in m["inputs"] + m["outputs"]], [("ids", "INT32", [-1]), ("vector", "FP32", [32])])
        config = c.get_model_config("embedder", **more)
        config = config.get("config", config)
        equal(int(config["max_batch_size"]), 8)
        equal([(x["name"], x["data_type"], [int(d) for d in x["dims"]], bool(x.get("optional"))) for x in config["input"]],
              [("input_ids", "TYPE_INT64", [-1], False), ("attention_mask", "TYPE_INT64", [-1], False), ("token_type_ids", "TYPE_INT64", [-1], True)])
        equal([(x["name"], x["data_type"], [int(d) for d in x["dims"]]) for x in config["output"]], [("last_hidden_state", "TYPE_FP32", [-1, 32]), ("sentence_embedding", "TYPE_FP32", [32])])
        config = c.get_model_config("texts", **more)
        config = config.get("config", config)
        equal((int(config["max_batch_size"]), config["input"][0]["name"], config["output"][0]["data_type"]), (4, "SENTENCE", "TYPE_FP16"))


@test
def what_is_wrong_has_its_place():
    s = server()
    for module, c in clients():
        more = {} if module is http else {"as_json": True}
        index = c.get_model_repository_index(**more)
        states = {x["name"]: x for x in (index if module is http else index["models"])}
        for name in CONFIGS:
            equal(states[name]["state"], "READY")
        for name, (_, words) in WRONG.items():
            check(states[name]["state"] == "UNAVAILABLE" and re.search(words, states[name]["reason"]), states[name])
            refused(lambda: c.load_model(name), f"{name}/config.pbtxt:")
        for name, path in EMPTY.items():
            why = f"no config.json and no .gguf file in {s.folder}/{name}/{path[0]}"
            equal((states[name]["version"], states[name]["state"], states[name]["reason"]), (path[0], "UNAVAILABLE", why))
            refused(lambda: c.load_model(name), f"failed to load '{name}': {why}")
        for name in LINKS:
            check(states[name]["state"] == "UNAVAILABLE" and "config.pbtxt is a link that leads to no file" in states[name]["reason"], states[name])
            refused(lambda: c.load_model(name), f"{name}/config.pbtxt is a link that leads to no file")
    log = s.output()
    for name in EMPTY:
        equal(len(re.findall(f"{name} was not loaded: no config.json and no .gguf file", log)), 1, log)  # once, not at every look
    check(re.search(r"embedder/config.pbtxt: .*sentence_embedding -> embedding; of no meaning here: platform, .*instance_group", log), log)
    encoders.embedder(f"{s.folder}/onnx/1", seed=5)  # with a model beside the other's it is there
    c = next(iter(clients()))[1]
    c.load_model("onnx")
    check(c.is_model_ready("onnx"), "it has come")
    # mended, it is served; a wrong one of a model that is up refuses the load, and the model goes on
    write(s.folder, "w_dims", 'max_batch_size: 8\noutput { name: "y" data_type: TYPE_FP32 dims: [ 32 ] }\n')
    (_, c), _ = clients()
    c.load_model("w_dims")
    text = tensor(http, "text", np.array([[b"a cat"]], np.object_), "BYTES")
    equal(c.infer("w_dims", [text]).as_numpy("y").shape, (1, 32))
    write(s.folder, "w_dims", "max_batch_size: x\n")
    refused(lambda: c.load_model("w_dims"), "config.pbtxt:1:17: ")
    equal(c.infer("w_dims", [text]).as_numpy("y").shape, (1, 32))
    # unloaded and loaded, it has the new one
    write(s.folder, "w_dims", 'max_batch_size: 8\noutput { name: "z" data_type: TYPE_FP32 dims: [ 32 ] }\n')
    c.unload_model("w_dims")
    until(lambda: not c.is_model_ready("w_dims"), "it is unloaded")
    c.load_model("w_dims")
    equal(c.infer("w_dims", [text]).as_numpy("z").shape, (1, 32))
    equal(s.stop(), 0)


main()
