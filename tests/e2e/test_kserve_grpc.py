"""KServe v2 over gRPC against rose serve --grpc-port: the official tritonclient (sync, async, aio, streams, shared memory), health, reflection,
and what hostile clients send."""
import asyncio
import os
import queue
import threading

import grpc
import numpy as np
import tritonclient.grpc as tg
import tritonclient.grpc.aio as tg_aio
import tritonclient.utils.shared_memory as shm
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from google.protobuf.descriptor_pool import DescriptorPool
from tritonclient.grpc import service_pb2 as pb
from tritonclient.utils import serialize_byte_tensor

from grpc_fixture import EXHAUSTED, INVALID, NOT_FOUND, UNIMPLEMENTED, channel_to, fails, grpc_port, stub_on
from server_fixture import Server, check, equal, main, test, until

PROMPT = "The capital of France is"
the_server = None


def server():
    global the_server
    if the_server is None:
        the_server = Server("--grpc-port", "0", "--max-body", "1M")
        the_server.grpc = grpc_port(the_server)
    return the_server


def client():
    return tg.InferenceServerClient(f"127.0.0.1:{server().grpc}")


def channel():
    return channel_to(server())


def stub():
    return stub_on(channel())


def name():
    return server().name


def tensor(key, values, kind, dtype):
    t = tg.InferInput(key, [len(values)], kind)
    t.set_data_from_numpy(np.array(values, dtype=dtype))
    return t


def inputs(tokens=4, stream=None, text=PROMPT, temperature=0.0):
    out = [tensor("text_input", [text.encode()], "BYTES", np.object_), tensor("max_tokens", [tokens], "INT32", np.int32), tensor("temperature", [temperature], "FP32", np.float32),
           tensor("exclude_input_in_output", [True], "BOOL", np.bool_)]
    return out + ([] if stream is None else [tensor("stream", [stream], "BOOL", np.bool_)])


def expected(tokens=4, text=PROMPT):
    return server().post("/v1/completions", {"prompt": text, "max_tokens": tokens, "temperature": 0})[2]["choices"][0]["text"].encode()


@test
def verbs_tell_and_change():
    c = client()
    check(c.is_server_live() and c.is_server_ready() and c.is_model_ready(name(), "1") and not c.is_model_ready("none"))
    equal(c.get_server_metadata().name, "rose")
    meta = c.get_model_metadata(name(), as_json=True)
    equal((meta["name"], meta["versions"], meta["inputs"][0]), (name(), ["1"], {"name": "text_input", "datatype": "BYTES", "shape": ["1"]}))
    config = c.get_model_config(name(), as_json=True)["config"]
    equal((config["name"], config["model_transaction_policy"], config["input"][0]["data_type"], config["input"][1]["optional"]), (name(), {"decoupled": True}, "TYPE_STRING", True))
    equal([(x.name, x.version, x.state) for x in c.get_model_repository_index().models], [(name(), "1", "READY")])
    fails(lambda: c.get_model_metadata("none"), NOT_FOUND, "none")
    fails(lambda: c.get_model_config(name(), "9"), NOT_FOUND, "9")
    before = c.get_inference_statistics(name()).model_stats[0].inference_stats.success.count
    c.infer(name(), inputs())
    equal(c.get_inference_statistics().model_stats[0].inference_stats.success.count, before + 1)
    equal(c.update_log_settings({"log_verbose_level": 3}).settings["log_verbose_level"].uint32_param, 3)
    equal(c.get_log_settings().settings["log_format"].string_param, "default")
    fails(lambda: c.update_log_settings({"log_file": "/tmp/x"}), INVALID, "log_file")
    equal(list(c.update_trace_settings(settings={"trace_rate": "9"}).settings["trace_rate"].value), ["9"])
    fails(lambda: c.update_trace_settings(settings={"trace_level": ["TIMESTAMPS"]}), INVALID, "trace_level")
    fails(lambda: c.load_model("none"), NOT_FOUND, "none")
    fails(lambda: c.unload_model("none"), NOT_FOUND, "none")
    c.load_model(name())
    fails(lambda: channel().unary_unary("/inference.GRPCInferenceService/Nothing")(b""), grpc.StatusCode.UNIMPLEMENTED, "no such method")


@test
def a_model_is_unloaded_and_loaded():
    s = Server("--grpc-port", "0", "--kv-bytes", "64M", "--alias", "m")
    c = tg.InferenceServerClient(f"127.0.0.1:{grpc_port(s)}")
    want = c.infer("m", inputs()).as_numpy("text_output")[0]
    c.unload_model("m")
    check(not c.is_model_ready("m") and not c.is_server_ready())
    until(lambda: c.get_model_repository_index().models[0].state == "UNAVAILABLE", "it is unloaded")
    fails(lambda: c.infer("m", inputs()), NOT_FOUND, "m")
    c.load_model("m")
    equal(c.infer("m", inputs()).as_numpy("text_output")[0], want)
    # a stream that waits for nothing ends when the server does, and health says so
    watch = health_pb2_grpc.HealthStub(channel_to(s)).Watch(health_pb2.HealthCheckRequest(), timeout=120)
    equal(next(watch).status, health_pb2.HealthCheckResponse.SERVING)
    nobody = health_pb2_grpc.HealthStub(channel_to(s)).Watch(health_pb2.HealthCheckRequest(service="none"), timeout=120)
    equal(next(nobody).status, health_pb2.HealthCheckResponse.SERVICE_UNKNOWN)
    c.unload_model("m")
    equal(next(watch).status, health_pb2.HealthCheckResponse.NOT_SERVING)
    until(lambda: c.get_model_repository_index().models[0].state == "UNAVAILABLE", "it is unloaded")
    c.load_model("m")
    equal(next(watch).status, health_pb2.HealthCheckResponse.SERVING)
    messages = queue.Queue()
    messages.put(message(model_name="m"))
    idle = stub_on(channel_to(s)).ModelStreamInfer(iter(messages.get, None), timeout=120)
    check(next(idle).infer_response.outputs, "no answer on a stream")
    equal(s.stop(), 0)
    check("rose: all requests have ended\n" in s.output(), s.output())
    check(next(watch).status == health_pb2.HealthCheckResponse.NOT_SERVING)
    fails(lambda: next(nobody), grpc.StatusCode.UNAVAILABLE, "") # it never heard that a service that is not there serves
    fails(lambda: next(idle), grpc.StatusCode.UNAVAILABLE, "")
    messages.put(None)


@test
def infer_sync_async_and_aio():
    c = client()
    want = expected()
    r = c.infer(name(), inputs(), request_id="abc", outputs=[tg.InferRequestedOutput("text_output"), tg.InferRequestedOutput("num_output_tokens")])
    equal((r.as_numpy("text_output")[0], r.as_numpy("num_output_tokens")[0], r.get_response().id, r.get_response().model_version), (want, 4, "abc", "1"))
    got = queue.Queue()
    for _ in range(4):
        c.async_infer(name(), inputs(), callback=lambda result, error: got.put(error or result.as_numpy("text_output")[0]))
    equal([got.get(timeout=120) for _ in range(4)], [want] * 4)

    async def several():
        async with tg_aio.InferenceServerClient(f"127.0.0.1:{server().grpc}") as a:
            check(await a.is_server_ready())
            return {x.as_numpy("text_output")[0] for x in await asyncio.gather(*[a.infer(name(), inputs()) for _ in range(4)])}

    equal(asyncio.run(several()), {want})
    # typed contents instead of raw ones, and parameters
    q = pb.ModelInferRequest(model_name=name(), inputs=[pb.ModelInferRequest.InferInputTensor(name="text_input", datatype="BYTES", shape=[1], contents=pb.InferTensorContents(bytes_contents=[PROMPT.encode()])),
                             pb.ModelInferRequest.InferInputTensor(name="max_tokens", datatype="INT16", shape=[1], contents=pb.InferTensorContents(int_contents=[4]))])
    q.parameters["temperature"].double_param = 0
    q.parameters["exclude_input_in_output"].bool_param = True
    equal(stub().ModelInfer(q).raw_output_contents[0][4:], want)


@test
def streams():
    c = client()
    want = expected(12)
    for empty in (True, False):
        got = queue.Queue()
        c.start_stream(callback=lambda result, error: got.put((result, error)))
        for i in range(3):
            c.async_stream_infer(name(), inputs(12, stream=i != 2), request_id=str(i), enable_empty_final_response=empty)
        pieces, finals = {"0": [], "1": [], "2": []}, {}
        while len(finals) < (3 if empty else 1) or (not empty and sum(map(len, pieces.values())) < 25):
            result, error = got.get(timeout=120)
            check(error is None, error)
            m = result.get_response()
            if m.outputs:
                pieces[m.id].append(result.as_numpy("text_output")[0])
            if m.parameters["triton_final_response"].bool_param:
                finals[m.id] = finals.get(m.id, 0) + 1
        c.stop_stream()
        equal({k: b"".join(v) for k, v in pieces.items()}, {"0": want, "1": want, "2": want})
        check(len(pieces["0"]) > 5 and len(pieces["2"]) == 1, pieces)
        equal(finals, {"0": 1, "1": 1, "2": 1} if empty else {"2": 1})
    # errors come in the stream, which goes on
    answers = stub().ModelStreamInfer(iter([pb.ModelInferRequest(model_name="none", id="x"), pb.ModelInferRequest(model_name=name(), id="y"), message()]))
    answers = list(answers)
    check("none" in answers[0].error_message and answers[0].infer_response.id == "x", answers[0])
    check("text_input" in answers[1].error_message, answers[1])
    equal(answers[2].infer_response.raw_output_contents[0][4:], expected(2))

    async def aio():
        async with tg_aio.InferenceServerClient(f"127.0.0.1:{server().grpc}") as a:
            async def ask():
                for i in range(3):
                    yield {"model_name": name(), "inputs": inputs(4, stream=True), "request_id": str(i), "enable_empty_final_response": True}
            out, ended = {}, 0
            async for result, error in a.stream_infer(ask()):
                check(error is None, error)
                m = result.get_response()
                if m.outputs:
                    out[m.id] = out.get(m.id, b"") + result.as_numpy("text_output")[0]
                ended += m.parameters["triton_final_response"].bool_param
                if ended == 3:
                    break
            return out

    equal(asyncio.run(aio()), {str(i): expected() for i in range(3)})
    # infer has no place for an answer in pieces
    fails(lambda: c.infer(name(), inputs(4, stream=True)), INVALID, "ModelStreamInfer")


def message(tokens=2, text=PROMPT, **more):
    q = pb.ModelInferRequest(model_name=name(), inputs=[pb.ModelInferRequest.InferInputTensor(name="text_input", datatype="BYTES", shape=[1])],
                             raw_input_contents=[serialize_byte_tensor(np.array([text.encode()], dtype=np.object_)).item()])
    q.parameters["max_tokens"].int64_param = tokens
    q.parameters["temperature"].double_param = 0
    q.parameters["exclude_input_in_output"].bool_param = True
    for key, value in more.items():
        setattr(q, key, value)
    return q


@test
def shared_memory():
    c = client()
    key = f"/rose_grpc_{os.getpid()}"
    handle = shm.create_shared_memory_region("r", key, 4096)
    try:
        shm.set_shared_memory_region(handle, [serialize_byte_tensor(np.array([PROMPT.encode()], dtype=np.object_))])
        c.register_system_shared_memory("r", key, 4096)
        equal([(x.key, x.byte_size) for x in c.get_system_shared_memory_status().regions.values()], [(key, 4096)])
        i = inputs()
        i[0] = tg.InferInput("text_input", [1], "BYTES")
        i[0].set_shared_memory("r", 4 + len(PROMPT))
        o = tg.InferRequestedOutput("text_output")
        o.set_shared_memory("r", 1024, offset=1024)
        r = c.infer(name(), i, outputs=[o])
        equal(r.get_output("text_output").parameters["shared_memory_byte_size"].int64_param, 4 + len(expected()))
        equal(shm.get_contents_as_numpy(handle, np.object_, [1], offset=1024)[0], expected())
        o.set_shared_memory("r", 1024, offset=4000)
        fails(lambda: c.infer(name(), i, outputs=[o]), INVALID, "invalid offset")
        fails(lambda: c.register_system_shared_memory("r", key, 4096), INVALID, "already")
        fails(lambda: c.register_system_shared_memory("s", "/a/../b", 4096), INVALID, "slash")
        fails(lambda: c.register_system_shared_memory("s", key, 2**63, offset=2**63), INVALID, "range")
        fails(lambda: c.get_system_shared_memory_status("none"), NOT_FOUND, "unable")
        c.unregister_system_shared_memory("r")
        fails(lambda: c.infer(name(), i), INVALID, "'r'")
        fails(lambda: c.register_cuda_shared_memory("g", b"AAAA", 0, 16), UNIMPLEMENTED, "GPUs not supported")
        equal(len(c.get_cuda_shared_memory_status().regions), 0)
    finally:
        shm.destroy_shared_memory_region(handle)


@test
def health_and_reflection():
    h = health_pb2_grpc.HealthStub(channel())
    for service in ("", "inference.GRPCInferenceService"):
        equal(h.Check(health_pb2.HealthCheckRequest(service=service)).status, health_pb2.HealthCheckResponse.SERVING)
    fails(lambda: h.Check(health_pb2.HealthCheckRequest(service="none")), NOT_FOUND, "service")
    database = ProtoReflectionDescriptorDatabase(channel())
    check({"inference.GRPCInferenceService", "grpc.health.v1.Health"} <= set(database.get_services()), database.get_services())
    pool = DescriptorPool(database)
    service = pool.FindServiceByName("inference.GRPCInferenceService")
    # what the server says of its messages is what Triton's own client believes, field by field
    check(len(service.methods) == 20 and service.FindMethodByName("ModelStreamInfer").client_streaming)
    for method in service.methods:
        theirs = pb.DESCRIPTOR.services_by_name["GRPCInferenceService"].methods_by_name[method.name]
        for ours, other in ((method.input_type, theirs.input_type), (method.output_type, theirs.output_type)):
            equal({f.name: (f.number, f.type) for f in ours.fields}, {f.name: (f.number, f.type) for f in other.fields}, ours.full_name)


@test
def wrong_messages_are_refused():
    infer = stub().ModelInfer
    raw = channel().unary_unary("/inference.GRPCInferenceService/ModelInfer")
    equal(infer(message()).raw_output_contents[0][4:], expected(2))

    def bad(word, code=INVALID, **changed):
        fails(lambda: infer(message(**changed)), code, word)

    def bad_input(word, contents=None, raw=None, **changed):
        q = message()
        del q.inputs[:]
        i = q.inputs.add(name="text_input", datatype="BYTES", shape=[1])
        for key, value in changed.items():
            if key == "shape":
                del i.shape[:]
                i.shape.extend(value)
            else:
                setattr(i, key, value)
        if contents:
            i.contents.CopyFrom(contents)
        if raw is not None:
            del q.raw_input_contents[:]
            q.raw_input_contents.extend(raw)
        fails(lambda: infer(q), INVALID, word)

    bad("none", NOT_FOUND, model_name="none")
    bad("version", model_version="x")
    bad_input("elements", shape=[2**40, 2**40])
    bad_input("negative", shape=[-1])
    bad_input("shape", shape=[2], raw=[b"\1\0\0\0a\1\0\0\0b"])
    bad_input("dimensions", shape=[1] * 9)
    bad_input("datatype", datatype="TEXT")
    bad_input("INT32", datatype="INT32", raw=[b"\0\0\0\0"])
    bad_input("unexpected inference input", name="nothing")
    bad_input("left", raw=[b"\5\0\0\0ab"])
    bad_input("left", raw=[b"\xff\xff\xff\xffab"])
    bad_input("left behind", raw=[b"\1\0\0\0ab"])
    bad_input("length of element", raw=[b"ab"])
    bad_input("the inputs want 1", raw=[b"\1\0\0\0a", b"\1\0\0\0a"])
    bad_input("0 values", raw=[])
    bad_input("contents field", contents=pb.InferTensorContents(bytes_contents=[b"a"]))
    bad_input("2 values", raw=[], contents=pb.InferTensorContents(bytes_contents=[b"a", b"b"]))
    q = message()
    q.outputs.add(name="nothing")
    fails(lambda: infer(q), INVALID, "unexpected inference output")
    q = message()
    q.parameters["unheard"].string_param = "x"
    fails(lambda: infer(q), INVALID, "unheard")
    q = message()
    q.inputs.extend([q.inputs[0]] * 70)
    fails(lambda: infer(q), INVALID, "at most")
    for data in (b"\xff", b"\x0a\xff\xff\xff\xff\x0f", os.urandom(200), b"\x2a\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01"):
        fails(lambda: raw(data), INVALID, "")
    # over the limit (--max-body 1M)
    fails(lambda: infer(message(text="a" * 1200000)), EXHAUSTED, "1048576")
    bad("context", text="word " * 50000)
    check(client().is_server_live())


@test
def clients_that_leave():
    s = server()
    s.wait_idle()

    def seen(n):
        s.wait_metric("rose_requests_total", before["rose_requests_total"] + n)

    def cancelled(n):
        equal(s.wait_idle()["rose_requests_cancelled_total"], before["rose_requests_cancelled_total"] + n, "they ended by themselves")

    # cancelled while it computes; the pages are free soon
    before = s.metrics()
    calls = [stub().ModelInfer.future(message(tokens=2000, text="Once")) for _ in range(4)]
    streams = []
    for _ in range(4):
        q = message(tokens=2000, text="Twice")
        q.parameters["stream"].bool_param = True
        streams.append(stub().ModelStreamInfer(iter([q])))
        next(streams[-1])
    seen(8)
    for c in calls + streams:
        c.cancel()
    cancelled(8)
    # a channel that is closed in the middle
    c = channel()
    call = stub_on(c).ModelInfer.future(message(tokens=2000, text="Thrice"))
    seen(9)
    c.close()
    cancelled(9)
    try:
        call.result()
        check(False, "it had an answer")
    except (grpc.RpcError, grpc.FutureCancelledError):
        pass
    # half-closed: no message at all; a stream that sends nothing; one that has sent all it will
    fails(lambda: channel().stream_unary("/inference.GRPCInferenceService/ModelInfer")(iter([])), INVALID, "no message")
    equal(list(stub().ModelStreamInfer(iter([]))), [])
    equal(len(list(stub().ModelStreamInfer(iter([message(), message()])))), 2)
    # a deadline
    fails(lambda: stub().ModelInfer(message(tokens=2000, text="Late"), timeout=0.2), grpc.StatusCode.DEADLINE_EXCEEDED, "")
    s.wait_idle()
    # bytes that are no HTTP/2
    import socket
    for data in (b"GET / HTTP/1.1\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 100, os.urandom(1000)):
        x = socket.create_connection(("127.0.0.1", s.grpc))
        x.sendall(data)
        x.close()
    check(client().is_server_live())


@test
def many_at_once():
    wants, wrong = expected(2), []

    def run(i):
        try:
            with channel() as c:
                for _ in range(10):
                    got = stub_on(c).ModelInfer(message()).raw_output_contents[0][4:]
                    if got != wants:
                        wrong.append(got)
        except Exception as e:  # noqa: BLE001
            wrong.append(e)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(20)]
    for t in threads:
        t.start()
    q = message(tokens=1)
    equal(len(list(stub().ModelStreamInfer(iter([q] * 500)))), 500)
    for t in threads:
        t.join()
    check(not wrong, wrong[:3])
    server().wait_idle()


@test
def keys_and_tls():
    import subprocess
    import tempfile
    with tempfile.TemporaryDirectory() as d:
        open(f"{d}/keys", "w").write("secret\n")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
                        "-keyout", f"{d}/key.pem", "-out", f"{d}/cert.pem"], check=True, capture_output=True)
        s = Server("--grpc-port", "0", "--api-keys", f"{d}/keys", "--tls-cert", f"{d}/cert.pem", "--tls-key", f"{d}/key.pem", "--null-model")
        try:
            c = grpc.secure_channel(f"localhost:{grpc_port(s)}", grpc.ssl_channel_credentials(open(f"{d}/cert.pem", "rb").read()))
            call = stub_on(c).ServerReady
            fails(lambda: call(pb.ServerReadyRequest()), grpc.StatusCode.UNAUTHENTICATED, "key")
            fails(lambda: call(pb.ServerReadyRequest(), metadata=[("authorization", "Bearer wrong")]), grpc.StatusCode.UNAUTHENTICATED, "key")
            check(call(pb.ServerReadyRequest(), metadata=[("authorization", "Bearer secret")]).ready)
            check(call(pb.ServerReadyRequest(), metadata=[("x-api-key", "secret")]).ready)
            equal(health_pb2_grpc.HealthStub(c).Check(health_pb2.HealthCheckRequest()).status, health_pb2.HealthCheckResponse.SERVING)
        finally:
            s.stop()
    try:
        Server("--grpc-port", str(server().grpc))
        check(False, "a port in use was taken")
    except RuntimeError as e:
        check("gRPC" in str(e) and "in use" in str(e), e)


if __name__ == "__main__":
    main()
