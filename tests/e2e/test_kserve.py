"""KServe v2 over HTTP against rose serve: the official tritonclient (sync, async, aio, shared memory), raw JSON, and hostile requests."""
import asyncio
import json
import os
import shutil
import struct
import tempfile
import threading

import numpy as np
import tritonclient.http as http
import tritonclient.http.aio as http_aio
import tritonclient.utils.shared_memory as shm
from tritonclient.utils import InferenceServerException, serialize_byte_tensor

from server_fixture import Server, check, equal, main, options, test, until

PROMPT = "The capital of France is"


def url():
    return f"127.0.0.1:{Server.shared().port}"


def client(**more):
    return http.InferenceServerClient(url(), connection_timeout=300, network_timeout=300, **more)


def name():
    return Server.shared().name


def post(path, body, headers=None):
    return Server.shared().post(path, body, headers=headers)


def refused(path, body, words, code=400, headers=None):
    status, _, answer = post(path, body, headers)
    equal(status, code, f"{str(body)[:200]}: {answer}")
    check(isinstance(answer, dict) and list(answer) == ["error"], answer)
    for word in words if isinstance(words, (list, tuple)) else [words]:
        check(word in answer["error"], f"{word!r} is not in {answer['error']!r}")


def text_inputs(text=PROMPT, **more):
    """tritonclient's inputs of a text model."""
    out = [http.InferInput("text_input", [1], "BYTES")]
    out[0].set_data_from_numpy(np.array([text.encode()], dtype=np.object_))
    kinds = {"max_tokens": ("INT32", np.int32), "temperature": ("FP32", np.float32), "exclude_input_in_output": ("BOOL", np.bool_), "stream": ("BOOL", np.bool_),
             "return_finish_reason": ("BOOL", np.bool_), "top_k": ("INT32", np.int32)}
    for key, value in more.items():
        kind, dtype = kinds[key]
        tensor = http.InferInput(key, [1], kind)
        tensor.set_data_from_numpy(np.array([value], dtype=dtype))
        out.append(tensor)
    return out


def greedy(text=PROMPT, tokens=4):
    return text_inputs(text, max_tokens=tokens, temperature=0, exclude_input_in_output=True)


def expected(tokens=4, text=PROMPT):
    return post("/v1/completions", {"prompt": text, "max_tokens": tokens, "temperature": 0})[2]["choices"][0]["text"]


# --- what the server tells ---------------------------------------------------------------------------------------------------------------


@test
def server_and_model_tell_what_they_are():
    c = client()
    check(c.is_server_live() and c.is_server_ready() and c.is_model_ready(name()) and c.is_model_ready(name(), "1"))
    check(not c.is_model_ready("none") and not c.is_model_ready(name(), "2"))
    equal(Server.shared().get("/v2/models/none/ready")[0], 400)
    meta = c.get_server_metadata()
    equal(meta["name"], "rose")
    check({"classification", "binary_tensor_data", "statistics", "system_shared_memory", "model_repository"} <= set(meta["extensions"]), meta)
    meta = c.get_model_metadata(name())
    equal((meta["name"], meta["versions"]), (name(), ["1"]))
    by_name = {x["name"]: x for x in meta["inputs"]}
    equal((by_name["text_input"]["datatype"], by_name["text_input"]["shape"], by_name["temperature"]["datatype"]), ("BYTES", [1], "FP32"))
    equal(meta["outputs"][0]["name"], "text_output")
    config = c.get_model_config(name(), "1")
    equal((config["name"], config["max_batch_size"], config["model_transaction_policy"], config["input"][0]["data_type"]), (name(), 0, {"decoupled": True}, "TYPE_STRING"))
    check([x["optional"] for x in config["input"]] == [False] + [True] * (len(config["input"]) - 1), config["input"])
    for path in ("/v2/models/none", "/v2/models/none/config", "/v2/models/none/stats", f"/v2/models/{name()}/versions/7"):
        status, _, body = Server.shared().get(path)
        equal(status, 404, path)
        check("not found" in body["error"], body)
    equal(Server.shared().get(f"/v2/models/{name()}/versions/one")[0], 400)
    equal(Server.shared().get("/v2/nothing")[0], 404)
    status, headers, body = Server.shared().get(f"/v2/models/{name()}/infer")
    equal((status, headers["allow"]), (405, "POST, OPTIONS"))
    check("POST" in body["error"], body)


@test
def statistics_count():
    c = client()
    before = c.get_inference_statistics(name())["model_stats"][0]
    for _ in range(3):
        c.infer(name(), greedy())
    after = c.get_inference_statistics()["model_stats"][0]
    equal(after["inference_stats"]["success"]["count"] - before["inference_stats"]["success"]["count"], 3)
    check(after["inference_stats"]["success"]["ns"] > before["inference_stats"]["success"]["ns"] and after["inference_stats"]["compute_infer"]["ns"] > 0, after)
    check(after["execution_count"] > before["execution_count"] and after["last_inference"] >= before["last_inference"], after)


@test
def settings_are_kept_or_refused():
    c = client()
    equal(c.get_log_settings()["log_verbose_level"], 0)
    equal(c.update_log_settings({"log_verbose_level": 2, "log_format": "ISO8601"})["log_verbose_level"], 2)
    equal(c.get_log_settings()["log_format"], "ISO8601")
    c.update_log_settings({"log_verbose_level": 0, "log_format": "default"})
    equal(c.get_trace_settings()["trace_level"], ["OFF"])
    equal(c.update_trace_settings(settings={"trace_rate": "7", "trace_level": ["OFF"]})["trace_rate"], "7")
    equal(c.update_trace_settings(settings={"trace_rate": None})["trace_rate"], "1000")
    equal(c.get_trace_settings(model_name=name())["trace_rate"], "1000")
    refused("/v2/trace/setting", {"trace_level": ["TIMESTAMPS"]}, "trace_level")
    refused("/v2/logging", {"log_file": "/tmp/x"}, "log_file")
    refused("/v2/logging", {"log_info": 3}, "log_info")
    refused("/v2/logging", {"nothing": 3}, "nothing")
    refused("/v2/logging", [1], "object")


# --- infer ---------------------------------------------------------------------------------------------------------------------------------


@test
def infer_sync_async_and_aio_agree_with_completions():
    c = client(concurrency=4)
    want = expected()
    r = c.infer(name(), greedy(), request_id="abc")
    equal(r.as_numpy("text_output")[0].decode(), want)
    response = r.get_response()
    equal((response["id"], response["model_name"], response["model_version"]), ("abc", name(), "1"))
    # the prompt stands before the answer unless it is excluded
    r = c.infer(name(), text_inputs(max_tokens=4, temperature=0, return_finish_reason=True), outputs=[http.InferRequestedOutput("text_output", binary_data=False),
                http.InferRequestedOutput("finish_reason"), http.InferRequestedOutput("num_output_tokens"), http.InferRequestedOutput("num_input_tokens")])
    equal(r.as_numpy("text_output")[0], PROMPT + want)
    equal((r.as_numpy("finish_reason")[0], r.as_numpy("num_output_tokens")[0], r.as_numpy("num_input_tokens")[0]), (b"length", 4, 5))
    calls = [c.async_infer(name(), greedy()) for _ in range(4)]
    equal({x.get_result().as_numpy("text_output")[0].decode() for x in calls}, {want})

    async def several():
        async with http_aio.InferenceServerClient(url()) as a:
            check(await a.is_server_ready())
            got = await asyncio.gather(*[a.infer(name(), greedy()) for _ in range(4)])
            return {x.as_numpy("text_output")[0].decode() for x in got}

    equal(asyncio.run(several()), {want})


@test
def infer_takes_json_and_parameters():
    path = f"/v2/models/{name()}/versions/1/infer"
    want = expected()
    tensor = {"name": "text_input", "shape": [1, 1], "datatype": "BYTES", "data": [[PROMPT]]}
    status, headers, body = post(path, {"id": "1", "inputs": [tensor], "parameters": {"max_tokens": 4, "temperature": 0, "exclude_input_in_output": True}})
    equal(status, 200, body)
    equal(body, {"id": "1", "model_name": name(), "model_version": "1", "outputs": [{"name": "text_output", "datatype": "BYTES", "shape": [1], "data": [want]}]})
    sampling = {"name": "sampling_parameters", "shape": [1], "datatype": "BYTES", "data": [json.dumps({"max_tokens": 4, "temperature": 0})]}
    stop = {"name": "stop_words", "shape": [2], "datatype": "BYTES", "data": ["never", want[2:4]]}
    status, _, body = post(path, {"inputs": [tensor, sampling, stop], "parameters": {"exclude_input_in_output": True}})
    equal(body["outputs"][0]["data"], [want[:want.index(want[2:4])]], body)
    # half floats in binary form: FP16 and BF16 zeros for the temperature
    for kind in ("FP16", "BF16"):
        text = json.dumps({"inputs": [tensor, {"name": "max_tokens", "shape": [1], "datatype": "INT64", "data": [4]},
                                      {"name": "temperature", "shape": [1], "datatype": kind, "parameters": {"binary_data_size": 2}}],
                           "parameters": {"exclude_input_in_output": True}}).encode()
        status, _, body = post(path, text + b"\0\0", {"Inference-Header-Content-Length": str(len(text))})
        equal((status, body["outputs"][0]["data"]), (200, [want]), body)
    several = post(path, {"inputs": [tensor], "parameters": {"n": 2, "max_tokens": 2, "seed": 3}})[2]
    equal(several["outputs"][0]["shape"], [2], several)


@test
def generate_whole_and_streamed():
    s = Server.shared()
    want = expected(12)
    base = {"text_input": PROMPT, "max_tokens": 12, "temperature": 0}
    status, _, body = post(f"/v2/models/{name()}/generate", {**base, "id": "7", "exclude_input_in_output": True})
    equal((status, body), (200, {"id": "7", "model_name": name(), "model_version": "1", "text_output": want}))
    body = post(f"/v2/models/{name()}/versions/1/generate", {"text_input": [PROMPT], "parameters": {"max_tokens": 12, "temperature": 0, "stream": False, "return_num_output_tokens": True}})[2]
    equal((body["text_output"], body["num_output_tokens"]), (PROMPT + want, 12), body)
    pieces = s.stream(f"/v2/models/{name()}/generate_stream", {"text_input": PROMPT, "parameters": {"max_tokens": 12, "temperature": 0, "return_finish_reason": True}})
    equal("".join(x["text_output"] for x in pieces), want)
    check(len(pieces) > 5 and pieces[-1]["finish_reason"] == "length", pieces)
    pieces = s.request("POST", f"/v2/models/{name()}/generate_stream", {**base, "stream": False})[2].decode()
    equal(json.loads(pieces[6:])["text_output"], PROMPT + want)
    refused(f"/v2/models/{name()}/generate", {**base, "stream": True}, "generate_stream")
    refused(f"/v2/models/{name()}/generate", {"max_tokens": 3}, "text_input")
    refused(f"/v2/models/{name()}/generate", {"text_input": ["a", "b"]}, "text_input")
    refused(f"/v2/models/{name()}/generate", {**base, "beam_width": 4}, "beam_width")
    refused(f"/v2/models/{name()}/generate", {**base, "temperature": "warm"}, "temperature")
    refused(f"/v2/models/{name()}/generate", {**base, "prompt": "x"}, "prompt")
    refused(f"/v2/models/{name()}/generate", {**base, "stop_words": [""]}, "stop")
    equal(s.post(f"/v2/models/{name()}/generate", {**base, "bad_words": "", "stop_words": ""})[2]["text_output"], PROMPT + want)  # as TensorRT-LLM's examples have it
    refused("/v2/models/none/generate", base, "none", 404)
    refused(f"/v2/models/{name()}/generate", "{", "JSON")
    refused(f"/v2/models/{name()}/generate", {"text_input": "word " * 20000, "max_tokens": 1}, "context")


@test
def infer_refuses_what_is_wrong():
    path = f"/v2/models/{name()}/infer"
    good = {"name": "text_input", "shape": [1], "datatype": "BYTES", "data": ["a"]}

    def bad(words, code=400, parameters=None, outputs=None, inputs=None, **changed):
        tensor = {k: v for k, v in {**good, **changed}.items() if v is not ...}
        body = {"inputs": [tensor] + (inputs or []), "parameters": {"max_tokens": 1, **(parameters or {})}}
        if outputs is not None:
            body["outputs"] = outputs
        refused(path, body, words, code)

    bad("shape", shape=[2], data=["a", "b"])
    bad("shape", shape=[])
    bad("shape", shape=[1, 1, 1])
    bad("shape", shape=...)
    bad("text_input", shape=[-1])
    bad("text_input", shape=[1.5])
    bad("elements", shape=[2**32, 2**32])
    bad("elements", shape=[2**40])
    bad("elements", shape=[2**62, 4])
    bad("dimensions", shape=[1] * 9)
    bad("datatype", datatype="TEXT")
    bad(["text_input", "INT32"], datatype="INT32", data=[1])
    bad("string", data=[7])
    bad("2 values", data=["a", "b"])
    bad("0 values", data=[])
    bad("list", data="a")
    bad("nothing", name="nothing")
    bad("name", name=...)
    bad("text_input", data=...)
    bad("extra", extra=1)
    bad("twice", inputs=[good])
    bad("nothing", outputs=[{"name": "nothing"}])
    bad("twice", outputs=[{"name": "text_output"}, {"name": "text_output"}])
    bad("classified", outputs=[{"name": "text_output", "parameters": {"classification": 3}}])
    bad("what", outputs=[{"name": "text_output", "parameters": {"what": 3}}])
    bad("unknown_parameter", parameters={"unknown_parameter": 1})
    bad("sequence_id", 501, parameters={"sequence_id": 5, "sequence_start": True})
    bad("priority", parameters={"priority": -1})
    bad("generate_stream", parameters={"stream": True})
    bad("outside of datatype", inputs=[{"name": "max_tokens", "shape": [1], "datatype": "INT8", "data": [300]}])
    bad("integer", inputs=[{"name": "max_tokens", "shape": [1], "datatype": "INT32", "data": [1.5]}])
    bad("max_tokens", inputs=[{"name": "max_tokens", "shape": [1], "datatype": "FP32", "data": [1.5]}])
    bad("BF16", inputs=[{"name": "temperature", "shape": [1], "datatype": "BF16", "data": [1.5]}])
    bad("number", inputs=[{"name": "temperature", "shape": [1], "datatype": "FP32", "data": ["x"]}])
    bad("true or false", inputs=[{"name": "stream", "shape": [1], "datatype": "BOOL", "data": [1]}])
    refused(path, {"parameters": {}}, "text_input")
    refused(path, {"inputs": [good] * 65}, "at most")
    refused(path, {"inputs": good}, "list")
    refused(path, [], "object")
    refused(path, "", "parse")
    refused(path, '{"inputs":' + "[" * 10000, "parse")
    refused("/v2/models/none/infer", {"inputs": [good]}, ["none", "not found"], 404)
    refused(f"/v2/models/{name()}/versions/0/infer", {"inputs": [good]}, "version")


@test
def binary_tensors_are_checked():
    path = f"/v2/models/{name()}/infer"

    def send(raw, size=None, shape=(1,), header=None, extra=b"", kind="BYTES"):
        tensor = {"name": "text_input", "shape": list(shape), "datatype": kind, "parameters": {"binary_data_size": len(raw) if size is None else size}}
        text = json.dumps({"inputs": [tensor], "parameters": {"max_tokens": 1, "temperature": 0}}).encode()
        return path, text + raw + extra, {"Inference-Header-Content-Length": str(len(text)) if header is None else header}

    status, _, body = post(send(struct.pack("<I", 2) + b"ab")[0], *[send(struct.pack("<I", 2) + b"ab")[i] for i in (1, 2)])
    equal(status, 200, body)

    def bad(words, *arguments, **named):
        p, body, headers = send(*arguments, **named)
        refused(p, body, words, headers=headers)

    bad("left", struct.pack("<I", 3) + b"ab")               # says more than there is
    bad("left", struct.pack("<I", 0xFFFFFFFF) + b"ab")
    bad("left behind", struct.pack("<I", 1) + b"ab")        # bytes behind the last element
    bad("length of element", b"\1\0\0")                      # a length cut off
    bad("length of element", b"")
    bad("left there", struct.pack("<I", 2) + b"ab", size=2**40)   # sizes past the body
    bad("left there", struct.pack("<I", 2) + b"ab", size=7)
    bad("size", struct.pack("<I", 2) + b"ab", size=-1)
    bad("left behind the tensors", struct.pack("<I", 2) + b"ab", extra=b"x")
    bad("Inference-Header-Content-Length", struct.pack("<I", 2) + b"ab", header="1000000")
    bad("Inference-Header-Content-Length", struct.pack("<I", 2) + b"ab", header="-5")
    bad("Inference-Header-Content-Length", struct.pack("<I", 2) + b"ab", header="x")
    bad("parse", struct.pack("<I", 2) + b"ab", header="3")
    bad("elements", struct.pack("<I", 2) + b"ab", shape=(2**40, 2**40))


# --- shared memory ---------------------------------------------------------------------------------------------------------------------------


@test
def shared_memory_both_ways():
    c = client()
    key, size = f"/rose_e2e_{os.getpid()}", 4096
    handle = shm.create_shared_memory_region("in", key, size)
    try:
        shm.set_shared_memory_region(handle, [serialize_byte_tensor(np.array([PROMPT.encode()], dtype=np.object_))])
        c.register_system_shared_memory("in", key, 2048)
        c.register_system_shared_memory("out", key, 2048, offset=2048)
        equal({(x["name"], x["key"], x["offset"], x["byte_size"]) for x in c.get_system_shared_memory_status()}, {("in", key, 0, 2048), ("out", key, 2048, 2048)})
        equal(len(c.get_system_shared_memory_status("out")), 1)
        inputs = greedy()
        inputs[0] = http.InferInput("text_input", [1], "BYTES")
        inputs[0].set_shared_memory("in", 4 + len(PROMPT))
        output = http.InferRequestedOutput("text_output")
        output.set_shared_memory("out", 1024, offset=64)
        want = expected()
        for _ in range(3):
            r = c.infer(name(), inputs, outputs=[output])
            o = r.get_output("text_output")
            equal(o["parameters"]["shared_memory_region"], "out")
            got = shm.get_contents_as_numpy(handle, np.object_, [1], offset=2048 + 64)
            equal(got[0].decode(), want)
        # too small for the answer; outside of the region; unknown
        for region, bytes, offset, word in (("out", 3, 0, "at least"), ("out", 4096, 0, "invalid offset"), ("out", 16, 2040, "invalid offset"), ("nowhere", 1024, 0, "nowhere")):
            output.set_shared_memory(region, bytes, offset=offset)
            try:
                c.infer(name(), inputs, outputs=[output])
                check(False, f"{region} {bytes} {offset} was taken")
            except InferenceServerException as e:
                check(word in e.message() and e.status() == "400", e)
        for region, bytes, offset, word in (("in", 2**62, 0, "wants bytes"), ("in", 100, 2000, "wants bytes"), ("in", 100, 2**63 - 10, "wants bytes"), ("gone", 5, 0, "gone")):
            inputs[0].set_shared_memory(region, bytes, offset=offset)
            try:
                c.infer(name(), inputs)
                check(False, f"{region} {bytes} {offset} was taken")
            except InferenceServerException as e:
                check(word in e.message() and e.status() == "400", e)
        # an owner who shrinks the memory harms himself alone
        inputs[0] = http.InferInput("text_input", [1], "BYTES") # a fresh one: tritonclient keeps an offset
        inputs[0].set_shared_memory("in", 4 + len(PROMPT))
        os.truncate("/dev/shm" + key, 8)
        try:
            c.infer(name(), inputs)
            check(False, "a shrunken region was read")
        except InferenceServerException as e:
            check("smaller" in e.message(), e)
        os.truncate("/dev/shm" + key, size)
        c.unregister_system_shared_memory("in")
        c.unregister_system_shared_memory("in")
        equal([x["name"] for x in c.get_system_shared_memory_status()], ["out"])
        c.unregister_system_shared_memory()
        equal(c.get_system_shared_memory_status(), [])
    finally:
        shm.destroy_shared_memory_region(handle)


@test
def shared_memory_may_go_while_it_is_used():
    c = client(concurrency=8)
    key = f"/rose_e2e_use_{os.getpid()}"
    handle = shm.create_shared_memory_region("use", key, 65536)
    try:
        c.register_system_shared_memory("use", key, 65536)
        output = http.InferRequestedOutput("text_output")
        output.set_shared_memory("use", 65536)
        s = Server.shared()
        before = s.metrics()["rose_requests_total"]
        calls = [c.async_infer(name(), text_inputs(max_tokens=60, temperature=1), outputs=[output]) for _ in range(8)]
        s.wait_metric("rose_requests_total", before + 4)
        c.unregister_system_shared_memory("use")
        for call in calls:
            try:
                call.get_result()
            except InferenceServerException as e:
                check("use" in e.message(), e)
        check(c.is_server_live())
    finally:
        shm.destroy_shared_memory_region(handle)


@test
def shared_memory_names_are_checked():
    path = "/v2/systemsharedmemory/region/r/register"
    for key in ("/../etc/passwd", "/a/b", "../x", "/", "", ".", "..", "/" + "x" * 300, "a\0b"):
        refused(path, {"key": key, "offset": 0, "byte_size": 10}, "r")
    refused(path, {"key": "/rose_no_such_object", "offset": 0, "byte_size": 10}, "unable to open")
    refused(path, {"key": "/x", "offset": -1, "byte_size": 10}, "offset")
    refused(path, {"key": "/x", "offset": 2**63 - 1, "byte_size": 10}, "range")
    refused(path, {"key": "/x", "offset": 0, "byte_size": 0}, "range")
    refused(path, {"key": "/x", "offset": 0}, "byte_size")
    refused(f"/v2/systemsharedmemory/region/{'n' * 300}/register", {"key": "/x", "byte_size": 5}, "name")
    key = f"/rose_e2e_small_{os.getpid()}"
    handle = shm.create_shared_memory_region("small", key, 100)
    try:
        refused(path, {"key": key, "offset": 50, "byte_size": 51}, "101")
        equal(post(path, {"key": key, "offset": 50, "byte_size": 50})[0], 200)
        refused(path, {"key": key, "offset": 50, "byte_size": 50}, "already")
        # a name with slashes is only a name
        equal(post("/v2/systemsharedmemory/region/a/b/../c/register", {"key": key, "byte_size": 50})[0], 200)
        check("a/b/../c" in [x["name"] for x in Server.shared().get("/v2/systemsharedmemory/status")[2]])
        equal(Server.shared().get("/v2/systemsharedmemory/region/none/status")[0], 404)
        equal(post("/v2/systemsharedmemory/unregister", "")[0], 200)
    finally:
        shm.destroy_shared_memory_region(handle)
    equal(Server.shared().get("/v2/cudasharedmemory/status")[2], [])
    # what Triton says where there is no GPU (test_cuda.py has one)
    status, _, answer = post("/v2/cudasharedmemory/region/g/register", {"raw_handle": {"b64": "AAAA"}, "device_id": 0, "byte_size": 4})
    equal((status, answer), (501, {"error": "failed to register CUDA shared memory region: 'g', GPUs not supported"}))
    refused("/v2/cudasharedmemory/region/g/register", {"raw_handle": {"b64": "A"}, "device_id": 0, "byte_size": 4}, "base64")
    refused("/v2/cudasharedmemory/region/g/register", {"raw_handle": "AAAA", "device_id": 0, "byte_size": 4}, "raw_handle")
    equal(post("/v2/cudasharedmemory/unregister", "")[0], 200)
    s = Server("--no-shared-memory")
    equal(s.post(path, {"key": "/x", "byte_size": 5})[0], 400)
    s.stop()


# --- repositories ------------------------------------------------------------------------------------------------------------------------------


@test
def repository_of_models():
    with tempfile.TemporaryDirectory() as top:
        os.makedirs(f"{top}/versions/2")
        os.makedirs(f"{top}/broken")
        os.makedirs(f"{top}/notes")
        os.symlink(options.model, f"{top}/plain.gguf")
        os.symlink(options.model, f"{top}/versions/2/model.gguf")
        open(f"{top}/broken/config.json", "w").write('{"model_type": "nothing"}')
        os.makedirs(f"{top}/{'a' * 220}")  # longer than a model's name: left out, and what comes after it is served
        os.symlink(options.model, f"{top}/{'a' * 220}/model.gguf")
        os.makedirs(os.fsencode(top) + b"/b\xff")  # no UTF-8: neither gRPC nor Prometheus could carry it
        os.symlink(options.model, os.fsencode(top) + b"/b\xff/model.gguf")
        s = Server("--kv-bytes", "64M", model=[top])
        try:
            c = http.InferenceServerClient(f"127.0.0.1:{s.port}", connection_timeout=300, network_timeout=300)
            index = {(x["name"], x["version"]): x for x in c.get_model_repository_index()}
            equal({k: v["state"] for k, v in index.items()}, {("plain", "1"): "READY", ("versions", "2"): "READY", ("broken", "1"): "UNAVAILABLE"})
            check(index[("broken", "1")]["reason"], index)
            equal({x["name"] for x in s.post("/v2/repository/index", {"ready": True})[2]}, {"plain", "versions"})
            equal(c.get_model_metadata("versions")["versions"], ["2"])
            want = c.infer("plain", greedy()).as_numpy("text_output")[0]
            equal(c.infer("versions", greedy(), model_version="2").as_numpy("text_output")[0], want)
            # a model is unloaded while it answers: what is under way ends, what comes later is refused
            got = {}

            def long():
                got["answer"] = s.post("/v2/models/versions/generate", {"text_input": PROMPT, "max_tokens": 120, "ignore_eos": True, "temperature": 0}, timeout=300)

            thread = threading.Thread(target=long)
            metric = 'rose_requests_total{model="versions"}'
            before = s.metrics()[metric]
            thread.start()
            s.wait_metric(metric, before + 1)
            c.unload_model("versions")
            check(not c.is_model_ready("versions"))
            equal(s.post("/v2/models/versions/generate", {"text_input": PROMPT, "max_tokens": 1})[0] in (404, 503), True)
            thread.join()
            equal(got["answer"][0], 200, got)
            until(lambda: {x["name"]: x["state"] for x in c.get_model_repository_index()}["versions"] == "UNAVAILABLE", "it is unloaded")
            equal([m["id"] for m in s.get("/v1/models")[2]["data"]], ["plain"])
            check(c.is_server_ready())
            c.load_model("versions")
            equal(c.infer("versions", greedy()).as_numpy("text_output")[0], want)
            # loaded right behind an unloading, with a request under way and without: it waits for that
            for busy in (True, False, False, False, False):
                before = s.metrics()[metric]
                thread = threading.Thread(target=long)
                if busy:
                    thread.start()
                    s.wait_metric(metric, before + 1)
                c.unload_model("versions")
                c.load_model("versions")
                check(c.is_model_ready("versions"))
                if busy:
                    thread.join()
                    equal(got["answer"][0], 200, got)
            equal(c.infer("versions", greedy()).as_numpy("text_output")[0], want)
            c.load_model("versions")
            # a newer version appears: it takes over
            os.makedirs(f"{top}/versions/10")
            os.symlink(options.model, f"{top}/versions/10/model.gguf")
            c.load_model("versions")
            equal(c.infer("versions", greedy()).get_response()["model_version"], "10")
            # new models are found
            os.symlink(options.model, f"{top}/late.gguf")
            equal({x["name"]: x["state"] for x in c.get_model_repository_index()}["late"], "UNAVAILABLE")
            c.load_model("late")
            check(c.is_model_ready("late"))
            for bad, word in (("broken", "broken"), ("nowhere", "nowhere")):
                try:
                    c.load_model(bad)
                    check(False, f"{bad} was loaded")
                except InferenceServerException as e:
                    check(word in e.message(), e)
            try:
                c.load_model("late", config="{}")
                check(False, "a configuration was taken")
            except InferenceServerException as e:
                check("config" in e.message() and e.status() == "501", e)
            try:
                c.unload_model("nowhere")
                check(False, "nowhere was unloaded")
            except InferenceServerException as e:
                check("nowhere" in e.message(), e)
            for parameters in ([1], "x", 7, True):
                equal(s.post("/v2/repository/models/late/load", {"parameters": parameters})[0], 400, parameters)
            equal(s.post("/v2/repository/models/late/load", {"parameters": None})[0], 200)
            # several loads and unloads at once
            threads = [threading.Thread(target=lambda i=i: s.post(f"/v2/repository/models/{('late', 'plain')[i % 2]}/{('load', 'unload')[i // 2 % 2]}", "")) for i in range(16)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            check(c.is_server_live())
        finally:
            equal(s.stop(), 0)
    empty = tempfile.mkdtemp()
    try:
        Server(model=[empty])
        check(False, "an empty directory was served")
    except RuntimeError as e:
        check("holds none" in str(e), e)
    shutil.rmtree(empty)


@test
def names_that_come_and_go_are_503_everywhere():
    """While a named model is unloaded, and while a load waits for that: 503, Retry-After and a sentence on every route that names it; then it answers, or is a 404."""
    with tempfile.TemporaryDirectory() as top:
        for n in ("m", "other"):
            os.symlink(options.model, f"{top}/{n}.gguf")
        s = Server("--kv-bytes", "96M", "--any-model", model=[top])
        try:
            routes = [("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1}), ("/v1/completions", {"prompt": "a", "max_tokens": 1}),
                      ("/v1/messages", {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1}), ("/v1/embeddings", {"input": "a"}), ("/v1/rerank", {"query": "a", "documents": ["b"]}),
                      ("/embed", {"inputs": "a"}), ("/rerank", {"query": "a", "texts": ["b"]}), ("/predict", {"inputs": "a"}), ("/tokenize", {"inputs": "a"}), ("/tokenize", {"prompt": "a"}),
                      ("/decode", {"ids": [1]}), ("/detokenize", {"tokens": [1]}), ("/v2/models/m/infer", None), ("/v2/models/m/generate", {"text_input": "a", "max_tokens": 1}), ("/v1/models/m", "GET")]

            def everywhere(words, kserve):
                for path, body in routes:
                    if path.startswith("/v2"):
                        body = body or {"inputs": [{"name": "text_input", "shape": [1], "datatype": "BYTES", "data": ["a"]}]}
                    status, headers, answer = s.get(path) if body == "GET" else s.post(path, body if path.startswith("/v2") else {"model": "m", **body})
                    check(status == 503 and int(headers["retry-after"]) >= 1 and (kserve if path.startswith("/v2") else words) in json.dumps(answer), (path, status, headers, answer))

            # an answer that goes on until its reader leaves keeps the model from being gone
            busy = s.socket()
            body = json.dumps({"text_input": "a", "max_tokens": 4000, "ignore_eos": True, "temperature": 0})
            busy.sendall(f"POST /v2/models/m/generate_stream HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
            check(busy.recv(100).startswith(b"HTTP/1.1 200"))
            equal(s.post("/v2/repository/models/m/unload", "")[0], 200)
            everywhere("being unloaded", "UNLOADING")
            loading = threading.Thread(target=lambda: s.post("/v2/repository/models/m/load", "", timeout=300))
            loading.start()
            until(lambda: "being loaded" in json.dumps(s.get("/v1/models/m")[2]), "the load has come")
            everywhere("being loaded", "UNLOADING")
            busy.close()
            loading.join()
            equal(s.post("/v1/completions", {"model": "m", "prompt": "a", "max_tokens": 1})[0], 200)
            equal(s.get("/v1/models/m")[2]["id"], "m")
            equal(s.post("/v2/repository/models/m/unload", "")[0], 200)
            until(lambda: s.get("/v1/models/m")[0] == 404, "it is gone")
            equal(s.post("/v1/completions", {"model": "m", "prompt": "a", "max_tokens": 1})[2]["model"], "other")  # --any-model, as of any name that is not here
        finally:
            equal(s.stop(), 0)


# --- many ---------------------------------------------------------------------------------------------------------------------------------------


@test
def a_thousand_mixed_requests_at_once():
    s = Server.shared()
    want = expected(2)
    wrong = []

    def run(i):
        try:
            kind = i % 5
            if kind == 0:
                status, _, body = s.post(f"/v2/models/{name()}/generate", {"text_input": PROMPT, "max_tokens": 2, "temperature": 0, "exclude_input_in_output": True}, timeout=300)
                ok = status == 200 and body["text_output"] == want
            elif kind == 1:
                body = s.stream(f"/v2/models/{name()}/generate_stream", {"text_input": PROMPT, "max_tokens": 2, "temperature": 0}, timeout=300)
                ok = "".join(x["text_output"] for x in body) == want
            elif kind == 2:
                status, _, body = s.post(f"/v2/models/{name()}/infer", {"inputs": [{"name": "text_input", "shape": [1], "datatype": "BYTES", "data": [PROMPT]}],
                                                                       "parameters": {"max_tokens": 2, "temperature": 0, "exclude_input_in_output": True}}, timeout=300)
                ok = status == 200 and body["outputs"][0]["data"] == [want]
            elif kind == 3:
                ok = s.get("/v2/models/stats", timeout=300)[0] == 200
            else:
                ok = s.post(f"/v2/models/{name()}/infer", {"inputs": []}, timeout=300)[0] == 400
            if not ok:
                wrong.append((i, kind, body if kind < 3 else None))
        except Exception as e:  # noqa: BLE001
            wrong.append((i, e))

    threads = [threading.Thread(target=run, args=(i,)) for i in range(1000)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    check(not wrong, wrong[:3])
    s.wait_idle()


if __name__ == "__main__":
    main()
