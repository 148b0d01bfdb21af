"""gRPC under attack: frames and messages that are wrong, clients that stop reading or leave at any moment, floods, and models and memory that go while they
are used. What counts each time: the answer is the right one where there is one, others are served, and in the end nothing is left over."""
import asyncio
import gzip
import os
import queue
import random
import resource
import socket
import struct
import tempfile
import threading
import zlib

import grpc
import grpc.aio
import numpy as np
import tritonclient.utils.shared_memory as shm
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc

import http2
from encoders import minilm
from grpc_fixture import EXHAUSTED, INVALID, NOT_FOUND, bytes_of, channel_to, fails, grpc_port, request, stub_on
from http2 import DATA, HEADERS, Http2, frame, head, message
from server_fixture import Server, check, equal, main, options, test, until

SERVICE = b"/inference.GRPCInferenceService/"
INFER, STREAM, LIVE = SERVICE + b"ModelInfer", SERVICE + b"ModelStreamInfer", SERVICE + b"ServerLive"
the_server = None
directories = [] # gone when we end


def start(*arguments):
    directories.append(tempfile.TemporaryDirectory(prefix="rose_grpc_"))
    directory = directories[-1].name
    os.symlink(minilm(), f"{directory}/minilm")
    os.symlink(os.path.abspath(options.model), f"{directory}/smol.gguf")
    s = Server("--grpc-port", "0", "--kv-bytes", "128M", "--max-body", "1M", *arguments, model=[directory])
    s.grpc = grpc_port(s)
    return s


def server():
    global the_server
    if the_server is None:
        the_server = start()
    return the_server


def embed(*texts, id="", **parameters):
    texts = texts or (b"hello",)
    return request("minilm", {"text": ("BYTES", [len(texts), 1], bytes_of(*texts))}, id, **parameters)


def generate(tokens=2, id="", **parameters):
    return request("smol", {"text_input": ("BYTES", [1], bytes_of(b"The capital of France is"))}, id, max_tokens=tokens, temperature=0.0, **parameters)


def serves(s):
    equal(stub_on(channel_to(s)).ModelInfer(embed(), timeout=120, wait_for_ready=True).outputs[0].shape, [1, 384])


def ends_clean(s):
    """Nothing is left under way."""
    s.wait_idle()
    equal(s.stop(), 0)
    check("all requests have ended" in s.output() and "time is up" not in s.output(), s.output()[-2000:])


def asks(path, *data, flags=http2.END_STREAM, fields=(), **more):
    with Http2(server().grpc) as c:
        c.send(frame(HEADERS, http2.END_HEADERS, 1, head(path, *fields, **more)), *[frame(DATA, flags if i == len(data) - 1 else 0, 1, d) for i, d in enumerate(data)])
        return c.end()


@test
def messages_that_are_wrong():
    def says(word, *data, path=INFER, **more):
        got, why = asks(path, *data, **more)
        check(word in why or word in got, (word, got, why))

    equal(asks(LIVE, message(b""))[0], message(b"\x08\1"))
    says(b"no such method", message(b""), path=b"ModelInfer")
    says(b"no such method", message(b""), path=b"/" + b"a" * 16000)
    says(b"no such method", message(b""), path=b"/\xff\0\n")
    says(b"unknown model", message(b""))
    says(b"no message came", message(b"abc", length=100))
    says(b"no message came", message(b"abc", length=0xffffffff))
    says(b"no ModelInferRequest", message(b"abc", flag=1))
    says(b"no ModelInferRequest", message(b"abc", flag=1), fields=[(b"grpc-encoding", b"snappy")])
    for coding, data in ((b"gzip", os.urandom(100)), (b"gzip", gzip.compress(b"\0" * (100 << 20))), (b"deflate", zlib.compress(os.urandom(1000))[:500])):
        equal(asks(INFER, message(data, flag=1), fields=[(b"grpc-encoding", coding)])[1], b"reset")
    check(server().rss() < 2 << 30)
    says(b"Deadline", message(b""), fields=[(b"grpc-timeout", b"0n")])
    for value in (b"-5S", b"99999999999999999H", b""):
        asks(INFER, message(b""), fields=[(b"grpc-timeout", value)])
    asks(INFER, message(b""), fields=[(b"x", b"a" * 15000)] * 4)
    asks(INFER, message(b""), fields=[(b"x-request-id", b'a"' * 4000), (b"authorization", b""), (b"authorization", b"Bearer x")])
    # in a stream: an error of a message, then bytes that are none, and the rest of the stream is not waited for
    got, why = asks(STREAM, message(b"\x0a\x04none"), message(b"\xff\xff"), message(b"\x0a\x04none"))
    check(b"no ModelInferRequest" in why, (got, why))
    got, why = asks(STREAM, message(b"\x0a\x04none") + message(b"ab", length=50))
    check(b"'none' is not found" in got and b"grpc-status\x010" in why, (got, why))
    serves(server())


@test
def frames_that_are_wrong():
    h, s = head(INFER), server()
    floods = [b"".join([frame(HEADERS, 0, 1, h)] + [frame(http2.CONTINUATION, 0, 1, http2.field(b"x%d" % i, b"y" * 30)) for i in range(10000)]),
              b"".join(frame(HEADERS, 4, 2 * i + 1, head(STREAM)) + frame(DATA, 0, 2 * i + 1, message(b"\x0a\x04none")) + frame(http2.RESET, 0, 2 * i + 1, b"\0\0\0\x08") for i in range(5000)),
              frame(http2.PING, 0, 0, b"12345678") * 20000]
    shapes = [frame(DATA, 1, 1, message(b"")), frame(HEADERS, 5, 2, h), frame(HEADERS, 4, 1, h) * 2, frame(http2.CONTINUATION, 4, 1, h), frame(HEADERS, 4, 1, b"\xff" * 11),
              frame(HEADERS, 4, 1, b"\0\x7f\xff\xff\xff\x0fabc"), frame(http2.SETTINGS, 0, 0, b"12345"), frame(http2.SETTINGS, 0, 0, struct.pack(">HI", 4, 0xffffffff)),
              frame(http2.WINDOW, 0, 0, b"\x7f\xff\xff\xff") * 2, frame(http2.PUSH, 4, 1, b"\0\0\0\2" + h), frame(HEADERS, 12, 1, b"\xff" + h[:20]), b"\x7f\xff\xff\0\0\0\0\0\1" + b"a" * 1000,
              frame(http2.GOAWAY, 0, 0, b"\0" * 8)]
    for data in shapes + floods:
        with Http2(s.grpc) as c:
            c.send(data)
    equal(asks(LIVE, message(b""))[0], message(b"\x08\1"))
    chance = random.Random(1)
    for _ in range(300):
        with Http2(s.grpc) as c:
            for _ in range(chance.randint(1, 12)):
                payload = chance.choice([chance.randbytes(chance.randint(0, 60)), head(chance.choice([INFER, STREAM, LIVE, b"/grpc.health.v1.Health/Watch"])), message(chance.randbytes(20)),
                                         message(embed().SerializeToString()), b""])
                c.send(frame(chance.choice([0, 0, 0, 1, 1, 2, 3, 4, 6, 7, 8, 9, chance.randint(0, 255)]), chance.choice([0, 1, 4, 5, 8, chance.randint(0, 255)]),
                             chance.choice([0, 1, 1, 1, 3, 5, chance.randint(0, 1 << 31)]), payload))
    serves(s)


@test
def texts_and_numbers_of_messages():
    infer, stream = stub_on(channel_to(server())).ModelInfer, channel_to(server()).stream_stream("/inference.GRPCInferenceService/ModelStreamInfer")
    # not UTF-8, or cut by C's end of a text: no such message
    raw = channel_to(server()).unary_unary("/inference.GRPCInferenceService/ModelInfer")
    for text in (b"\xff\xfe", b"minilm\0x", b"\xc3"):
        fails(lambda: raw(b"\x0a" + bytes([len(text)]) + text), INVALID, "no ModelInferRequest")
        name = channel_to(server()).unary_unary("/inference.GRPCInferenceService/SystemSharedMemoryRegister")
        fails(lambda: name(b"\x0a" + bytes([len(text)]) + text), INVALID, "no SystemSharedMemoryRegisterRequest")
    # a name that an error cuts in the middle of a letter: the message must still be one
    long = embed(id="a")
    for n in range(4):
        long.model_name = "a" * n + "€" * 300
        answer = pb.ModelStreamInferResponse.FromString(next(stream(iter([long.SerializeToString()]))))
        check("unknown model" in answer.error_message and answer.infer_response.id == "a", answer)
        fails(lambda: infer(long), NOT_FOUND, "unknown model")
    # whole numbers of any kind of parameter
    equal(infer(embed(dimensions=8.0)).outputs[0].shape, [1, 8])
    fails(lambda: infer(embed(dimensions=8.5)), INVALID, "dimensions")
    fails(lambda: infer(embed(dimensions=float("nan"))), INVALID, "dimensions")
    fails(lambda: infer(embed(priority=2**62)), INVALID, "priority")
    fails(lambda: infer(request("minilm", {"text": ("BYTES", [2**32, 2**32], b"")})), INVALID, "elements")
    fails(lambda: infer(request("minilm", {"input_ids": ("UINT64", [1, 1], b"\xff" * 8)})), INVALID, "no token id")
    fails(lambda: infer(request("minilm", {"input_ids": ("INT64", [1, 1], bytes(8)), "attention_mask": ("INT64", [1, 1], bytes(8))})), INVALID, "empty")
    for raw_value in (b"\x80\x7f", b"\xc0\x7f", b"\xff\xff"): # infinity, NaN
        fails(lambda: infer(request("smol", {"text_input": ("BYTES", [1], bytes_of(b"a")), "temperature": ("BF16", [1], raw_value)})), INVALID, "temperature")
    for raw_value in (b"\0\x7c", b"\1\x7e", b"\0\xbc"): # infinity, NaN, -1
        fails(lambda: infer(request("smol", {"text_input": ("BYTES", [1], bytes_of(b"a")), "temperature": ("FP16", [1], raw_value)})), INVALID, "temperature")


@test
def reflection_of_absurd_names():
    stub = reflection_pb2_grpc.ServerReflectionStub(channel_to(server()))
    ask = reflection_pb2.ServerReflectionRequest
    names = ["", ".", "..", "inference", "inference.", ".inference.GRPCInferenceService", "x" * 500000, "a." * 200000, "inference." * 1000]
    asked = [ask(file_containing_symbol=x) for x in names] + [ask(file_by_filename=x) for x in ("", "/", "../../etc/passwd", "x" * 100000)] + [ask(), ask(host="h" * 100000)]
    answers = list(stub.ServerReflectionInfo(iter(asked + [ask(file_containing_symbol="grpc.health.v1.Health.Check")])))
    check(all(a.error_response.error_code == NOT_FOUND.value[0] for a in answers[:-1]), answers[:-1])
    check(answers[-1].file_descriptor_response.file_descriptor_proto)


@test
def a_broken_message_ends_its_stream_and_what_it_asked_for():
    s = start()
    stream = channel_to(s).stream_stream("/inference.GRPCInferenceService/ModelStreamInfer")
    total = s.metrics()["rose_requests_total"]
    messages = queue.Queue()
    answers = stream(iter(messages.get, None))
    messages.put(generate(1000, stream=True, ignore_eos=True).SerializeToString())
    check(next(answers))
    for _ in range(3):
        messages.put(generate(1000, ignore_eos=True).SerializeToString())
    s.wait_metric("rose_requests_total", total + 4)
    messages.put(b"\xff\xff")
    fails(lambda: [a for a in answers], INVALID, "no ModelInferRequest")
    messages.put(None)
    s.wait_idle()
    ends_clean(s)


@test
def clients_that_do_not_read_or_do_not_send():
    s = start("--write-timeout", "1", "--read-timeout", "1")
    with Http2(s.grpc) as deaf, Http2(s.grpc) as mute, Http2(s.grpc) as half, Http2(s.grpc) as idle:
        # a window of 64 KiB that is never opened further, and an answer of 450 KiB
        deaf.send(frame(HEADERS, 4, 1, head(INFER)), frame(DATA, 1, 1, message(embed(*[b"x"] * 300).SerializeToString())))
        mute.send(frame(HEADERS, 4, 1, head(INFER)))
        half.send(frame(HEADERS, 4, 1, head(INFER)), frame(DATA, 0, 1, b"\0\0\0\1\0half"))
        idle.send(frame(HEADERS, 4, 1, head(STREAM)))
        for c in (mute, half):
            check(b"read-timeout" in c.end()[1])
        data, why = deaf.end()
        check(len(data) <= 65535 and (b"CANCELLED" in why or why == b"reset"), (len(data), why))
        # a stream may be silent
        idle.send(frame(DATA, 1, 1, message(embed().SerializeToString())))
        data, why = idle.end()
        check(len(data) > 1536 and b"grpc-status\x010" in why, (len(data), why))
    ends_clean(s)


@test
def watchers_by_the_thousand():
    s = server()
    channels = [channel_to(s) for _ in range(4)]
    services = ["", "none", "inference.GRPCInferenceService"]
    watches = [health_pb2_grpc.HealthStub(channels[i % 4]).Watch(health_pb2.HealthCheckRequest(service=services[i % 3])) for i in range(3000)]
    status = health_pb2.HealthCheckResponse
    equal({(i % 3, next(w).status) for i, w in enumerate(watches)}, {(0, status.SERVING), (1, status.SERVICE_UNKNOWN), (2, status.SERVING)})
    serves(s)
    for c in channels:
        c.close()
    # several requests to a watch, which takes one
    equal(next(channel_to(s).stream_stream("/grpc.health.v1.Health/Watch")(iter([b"", b"", b"\x0a\1x"] * 300))), b"\x08\1")


@test
def calls_have_a_limit():
    s = start("--max-connections", "20")
    channels, health, seen = [channel_to(s) for _ in range(3)], health_pb2.HealthCheckRequest(), []
    watches = [health_pb2_grpc.HealthStub(channels[i % 2]).Watch(health) for i in range(20)]
    for w in watches:
        next(w)
    fails(lambda: stub_on(channels[2]).ServerLive(pb.ServerLiveRequest()), EXHAUSTED, "--max-connections")
    fails(lambda: next(health_pb2_grpc.HealthStub(channels[2]).Watch(health)), EXHAUSTED, "--max-connections")
    equal(health_pb2_grpc.HealthStub(channels[2]).Check(health).status, health_pb2.HealthCheckResponse.SERVING)
    watches[0].cancel()

    def served():
        try:
            return stub_on(channels[2]).ServerLive(pb.ServerLiveRequest()).live
        except grpc.RpcError as e:
            seen.append(e.code())
            return False

    until(served, "a place is free again")
    equal(set(seen) - {EXHAUSTED}, set())
    for w in watches:
        w.cancel()
    # connections have it too: those beyond wait to be accepted
    for c in channels:
        c.close()
    before = s.descriptors()
    many = [socket.create_connection(("127.0.0.1", s.grpc)) for _ in range(60)]
    until(lambda: s.descriptors() >= before + 17, "connections are accepted")
    check(s.descriptors() <= before + 21, (before, s.descriptors()))
    for c in many:
        c.close()
    serves(s)
    ends_clean(s)


@test
def descriptors_run_out():
    s = start()
    old = channel_to(s)
    check(stub_on(old).ServerLive(pb.ServerLiveRequest()).live)
    limit = s.descriptors() + 10
    resource.prlimit(s.process.pid, resource.RLIMIT_NOFILE, (limit, limit))
    many = [socket.create_connection(("127.0.0.1", s.grpc)) for _ in range(60)]
    until(lambda: s.descriptors() >= limit - 1, "all descriptors are taken")
    check(stub_on(old).ServerLive(pb.ServerLiveRequest()).live)
    for c in many:
        c.close()
    serves(s) # it listens on
    ends_clean(s)


@test
def a_thousand_mixed_requests():
    s, counts, chance = server(), {}, random.Random(7)

    async def one(stub, kind):
        try:
            if kind == 0:
                await stub.ModelInfer(generate())
            elif kind == 1:
                equal((await stub.ModelInfer(embed(b"a text", b"b", b"c"))).outputs[0].shape, [3, 384])
            elif kind == 2:
                await stub.ModelInfer(embed(priority=-1))
            elif kind == 3:
                call = stub.ModelInfer(generate(2000, ignore_eos=True))
                await asyncio.sleep(chance.random())
                call.cancel()
                await call
            elif kind == 4:
                answers = [a async for a in stub.ModelStreamInfer(iter([generate(3, id="t", stream=True, ignore_eos=True), embed(id="e")]))]
                equal(sum(a.infer_response.id == "e" for a in answers), 1)
                check(not any(a.error_message for a in answers), answers)
            elif kind == 5:
                await stub.ModelStatistics(pb.ModelStatisticsRequest())
            elif kind == 6:
                await stub.ModelInfer(generate(2000, ignore_eos=True), timeout=chance.random())
            else:
                await stub.RepositoryIndex(pb.RepositoryIndexRequest())
            return "ok"
        except asyncio.CancelledError:
            return "cancelled"
        except grpc.aio.AioRpcError as e:
            return e.code().name

    async def all_of_them():
        channels = [grpc.aio.insecure_channel(f"127.0.0.1:{s.grpc}", options=[("grpc.use_local_subchannel_pool", 1)]) for _ in range(10)]
        stubs = [service_pb2_grpc.GRPCInferenceServiceStub(c) for c in channels]
        for kind, got in zip([i % 8 for i in range(1000)], await asyncio.gather(*[one(stubs[i % 10], i % 8) for i in range(1000)])):
            counts[kind, got] = counts.get((kind, got), 0) + 1
        for c in channels:
            await c.close()

    asyncio.run(all_of_them())
    wanted = {(k, {2: "INVALID_ARGUMENT", 3: "cancelled", 6: "DEADLINE_EXCEEDED"}.get(k, "ok")): 125 for k in range(8)}
    equal(counts, wanted)
    s.wait_idle()
    serves(s)


@test
def cancelled_at_any_moment():
    s, stub, chance = server(), stub_on(channel_to(server())), random.Random(3)
    for i in range(200):
        call = stub.ModelInfer.future(generate(200)) if i % 3 == 0 else stub.ModelInfer.future(embed(*[b"x " * 200] * 20)) if i % 3 == 1 else stub.ModelStreamInfer(iter([generate(200, stream=True)]))
        threading.Event().wait(chance.random() ** 4 * 0.1)
        call.cancel()
    s.wait_idle()
    serves(s)


def meanwhile(users, work):
    """work() once, users again and again until it has ended; what they met."""
    over, seen = threading.Event(), {}

    def run(user):
        while not over.is_set():
            try:
                said = user() or "ok"
            except grpc.RpcError as e:
                said = (e.code(), e.details())
            seen[said] = seen.get(said, 0) + 1

    threads = [threading.Thread(target=run, args=(u,)) for u in users]
    for t in threads:
        t.start()
    try:
        work()
    finally:
        over.set()
        for t in threads:
            t.join()
    return seen


@test
def models_come_and_go_while_they_are_asked():
    s = start()
    loads = stub_on(channel_to(s))

    def streams():
        for a in stub_on(channel_to(s)).ModelStreamInfer(iter([embed(id=str(i)) for i in range(10)])):
            check(not a.error_message or "not ready" in a.error_message, a)

    def asks_about():
        for call, q in ((loads.ModelConfig, pb.ModelConfigRequest(name="minilm")), (loads.ModelMetadata, pb.ModelMetadataRequest(name="minilm")), (loads.ModelStatistics, pb.ModelStatisticsRequest())):
            call(q)

    def changes():
        for i in range(12):
            loads.RepositoryModelUnload(pb.RepositoryModelUnloadRequest(model_name="minilm"))
            until(lambda: {m.name: m.state for m in loads.RepositoryIndex(pb.RepositoryIndexRequest()).models}["minilm"] == "UNAVAILABLE", "it is unloaded")
            if i % 3 == 2: # whoever asked leaves; it is loaded all the same
                loads.RepositoryModelLoad.future(pb.RepositoryModelLoadRequest(model_name="minilm")).cancel()
            loads.RepositoryModelLoad(pb.RepositoryModelLoadRequest(model_name="minilm"))

    seen = meanwhile([lambda: stub_on(channel_to(s)).ModelInfer(embed(*[b"t"] * 30)) and None, streams, asks_about], changes)
    wrong = [k for k in seen if k != "ok" and (k[0] not in (NOT_FOUND, grpc.StatusCode.UNAVAILABLE) or "not ready" not in k[1])]
    check("ok" in seen and not wrong, seen)
    serves(s)
    ends_clean(s)


@test
def shared_memory_goes_while_it_is_used():
    s = server()
    key, path = f"/rose_hostile_{os.getpid()}", f"/dev/shm/rose_hostile_{os.getpid()}"
    handle = shm.create_shared_memory_region("r", key, 8192)
    stub = stub_on(channel_to(s))

    def uses():
        q = pb.ModelInferRequest(model_name="minilm", inputs=[pb.ModelInferRequest.InferInputTensor(name="text", datatype="BYTES", shape=[1, 1])])
        for p, size, offset in ((q.inputs[0].parameters, 9, 0), (q.outputs.add(name="embedding").parameters, 1536, 4096)):
            p["shared_memory_region"].string_param = "r"
            p["shared_memory_byte_size"].int64_param = size
            p["shared_memory_offset"].int64_param = offset
        stub.ModelInfer(q)

    def changes():
        register, unregister = pb.SystemSharedMemoryRegisterRequest(name="r", key=key, byte_size=8192), pb.SystemSharedMemoryUnregisterRequest(name="r")
        for i in range(100):
            stub.SystemSharedMemoryRegister(register)
            if i % 2:
                os.truncate(path, 100)
            stub.SystemSharedMemoryStatus(pb.SystemSharedMemoryStatusRequest(name="r"))
            os.truncate(path, 8192)
            shm.set_shared_memory_region(handle, [np.frombuffer(bytes_of(b"hello"), dtype=np.uint8)])
            if i % 10 == 0: # at least once it is there as long as a request takes
                uses()
            stub.SystemSharedMemoryUnregister(unregister)

    try:
        seen = meanwhile([uses] * 3, changes)
        words = ("unable to find", "smaller than", "ends within", "says that", "left behind") # while it is empty or full of zeros
        wrong = [k for k in seen if k != "ok" and not (k[0] == INVALID and any(w in k[1] for w in words))]
        check(not wrong, wrong)
        equal(len(stub.SystemSharedMemoryStatus(pb.SystemSharedMemoryStatusRequest()).regions), 0)
    finally:
        shm.destroy_shared_memory_region(handle)
    serves(s)


@test
def nothing_is_left():
    ends_clean(server())


if __name__ == "__main__":
    main()
