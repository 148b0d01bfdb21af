#!/usr/bin/env python3
"""The program on a CUDA device without a GPU: the driver that runs kernels on the CPU (docs/simt.md). `rose embed` and `rose serve` of an
encoder, and KServe's CUDA shared memory, for which this process is the other one that has GPU memory."""
import base64
import ctypes
import json
import os
import shutil
import subprocess
import tempfile

import numpy as np

import encoders
from server_fixture import Server, check, equal, main, options, test

BUILD = os.path.abspath(os.environ.get("ROSE_BUILD", os.path.dirname(os.path.abspath(options.rose))))
DRIVER = os.path.join(BUILD, "tests", "simt", "libsimt_fast.so")
if not os.path.exists(DRIVER):
    subprocess.run(["make", "-s", "BUILD=" + BUILD, *(["CC=" + os.environ["CC"]] if "CC" in os.environ else []), "simt-driver"], check=True,
                   cwd=os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
FOLDER = tempfile.TemporaryDirectory(prefix="rose_cuda_")
os.environ.update(ROSE_CUDA_DRIVER=DRIVER, ROSE_NVRTC=DRIVER, XDG_CACHE_HOME=os.path.join(FOLDER.name, "cache"))
TEXTS = ["the cat sat on the mat", "a", "rain falls on the roof of an old house by the sea and nobody hears it", "cats and dogs"]
IDS = [101, 1996, 4937, 2938, 2006, 1996, 13523, 102]  # of the first text
HIDDEN, SIZE = 32, 4096


def model():
    path = os.path.join(FOLDER.name, "bert")
    if not os.path.exists(path):
        encoders.embedder(path, seed=5)
    return path


def embed(device):
    out = subprocess.run([options.rose, "embed", model(), "-", "--device", device, *LIMITS], input="\n".join(TEXTS).encode() + b"\n", capture_output=True, timeout=300)
    check(out.returncode == 0, out.stderr.decode())
    return np.array([json.loads(line)["embedding"] for line in out.stdout.splitlines()])


def cosine(a, b):
    return float((a * b).sum() / np.linalg.norm(a) / np.linalg.norm(b))


LIMITS = ["--step-tokens", "64"]  # fewer buckets, fewer kernels to compile


@test
def embed_on_cuda_says_what_the_cpu_says():
    cpu, cuda = embed("cpu"), embed("cuda")
    equal(cuda.shape, cpu.shape)
    for a, b in zip(cpu, cuda):
        check(cosine(a, b) > 0.999, f"cosine {cosine(a, b)}")
    check(not np.array_equal(cpu, cuda), "bfloat16 and float32 cannot agree in every bit")


class Driver:
    """What a client does with CUDA: memory, copies, a handle."""

    def __init__(self):
        self.cuda, self.context, self.stream = ctypes.CDLL(DRIVER), ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuInit", 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), 0)
        self.call("cuCtxSetCurrent", self.context)
        self.call("cuStreamCreate", ctypes.byref(self.stream), 1)

    def call(self, name, *arguments):
        code = getattr(self.cuda, name)(*arguments)
        check(code == 0, f"{name}: {code}")

    def memory(self, size):
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        return address

    def copy(self, to, source, size):
        self.call("cuMemcpyAsync", ctypes.c_uint64(to), ctypes.c_uint64(source), ctypes.c_size_t(size), self.stream)
        self.call("cuStreamSynchronize", self.stream)

    def write(self, address, offset, data):
        keep = ctypes.create_string_buffer(data, len(data))
        self.copy(address.value + offset, ctypes.addressof(keep), len(data))

    def read(self, address, offset, size):
        keep = ctypes.create_string_buffer(size)
        self.copy(ctypes.addressof(keep), address.value + offset, size)
        return keep.raw

    def handle(self, address):
        out = (ctypes.c_char * 64)()
        self.call("cuIpcGetMemHandle", out, address)
        return base64.b64encode(out.raw).decode()

    def free(self, address):
        self.call("cuMemFree_v2", address)


def shared(region, offset, size):
    return {"shared_memory_region": region, "shared_memory_offset": offset, "shared_memory_byte_size": size}


@test
def serve_on_cuda_with_shared_memory():
    s, d = Server("--device", "cuda", *LIMITS, model=[model()]), Driver()
    base = "/v2/cudasharedmemory"

    def register(name, **changes):
        body = {"raw_handle": {"b64": handle}, "device_id": 0, "byte_size": SIZE, **changes}
        return s.post(f"{base}/region/{name}/register", body)

    def refused(answer, *says, status=400):
        equal(answer[0], status, answer[2])
        for text in says:
            check(text in answer[2]["error"], answer[2])

    want = np.array(s.post("/v1/embeddings", {"model": s.name, "input": TEXTS[0]})[2]["data"][0]["embedding"])
    equal(want.shape, (HIDDEN,))
    memory = d.memory(SIZE)
    handle = d.handle(memory)
    d.write(memory, 256, np.array([IDS], np.int64).tobytes())
    d.write(memory, 512, np.ones((1, len(IDS)), np.int64).tobytes())
    equal(register("g")[0], 200)
    equal(s.get(base + "/status")[2], [{"name": "g", "device_id": 0, "byte_size": SIZE}])
    equal(s.get(base + "/region/g/status")[2], [{"name": "g", "device_id": 0, "byte_size": SIZE}])
    equal(s.get("/v2/systemsharedmemory/status")[2], [])
    refused(s.get(base + "/region/h/status"), "unable to find", status=404)
    refused(register("g"), "already in manager")
    refused(register("h", raw_handle={"b64": base64.b64encode(bytes(64)).decode()}), "cuIpcOpenMemHandle")
    refused(register("h", raw_handle={"b64": "AAAA"}), "3 bytes")
    refused(register("h", device_id=1), "GPU 1")
    refused(register("h", device_id=-1), "GPU -1")
    refused(register("h", byte_size=SIZE + 1), f"{SIZE + 1} bytes")
    refused(register("h", byte_size=0), "0 bytes")
    refused(register("h", byte_size=2**63 - 1), "bytes")
    refused(register("h", byte_size="x"), "byte_size")

    def infer(mask=512, out=1024, size=4 * HIDDEN):
        bytes_in = 8 * len(IDS)
        return s.post(f"/v2/models/{s.name}/infer", {
            "inputs": [{"name": "input_ids", "datatype": "INT64", "shape": [1, len(IDS)], "parameters": shared("g", 256, bytes_in)},
                       {"name": "attention_mask", "datatype": "INT64", "shape": [1, len(IDS)], "parameters": shared("g", mask, bytes_in)}],
            "outputs": [{"name": "embedding", "parameters": shared("g", out, size)}]})

    answer = infer()
    equal(answer[0], 200, answer[2])
    got = np.frombuffer(d.read(memory, 1024, 4 * HIDDEN), np.float32)
    check(cosine(got, want) > 0.9999, f"cosine {cosine(got, want)}")
    refused(infer(out=SIZE - 4), "invalid offset")
    refused(infer(size=4 * HIDDEN - 1), "at least")
    refused(infer(mask=SIZE - 8), "which has")
    # the other kind's unregister leaves it alone; its own takes it away, and then it can come again
    equal(s.post("/v2/systemsharedmemory/unregister", "")[0], 200)
    equal(infer()[0], 200)
    equal(s.post(base + "/region/g/unregister", "")[0], 200)
    refused(infer(), "unable to find")
    equal(register("g")[0], 200)
    equal(infer()[0], 200)
    # its owner frees it while it is registered: it stays with the server until it is unregistered
    d.free(memory)
    equal(infer()[0], 200)
    equal(s.post(base + "/unregister", "")[0], 200)
    equal(s.get(base + "/status")[2], [])
    refused(register("g"), "cuIpcOpenMemHandle")
    equal(s.stop(), 0)
    check("not freed" not in s.output(), s.output())


if __name__ == "__main__":
    main()
    shutil.rmtree(FOLDER.name, ignore_errors=True)
