"""CUDA shared memory on a real GPU, by the official tritonclient over HTTP and gRPC: this process owns the memory, the server reads inputs
there and puts outputs there.

    ROSE=… ROSE_ENCODER=folder of an embedding model python3 tests/e2e/gpu_shared_memory.py

Needs a GPU and cuda-bindings, which CI has not: there test_cuda.py does the same on the stand-in driver.
"""
import os

import numpy as np
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient
import tritonclient.utils.cuda_shared_memory as shm
from tritonclient.utils import InferenceServerException

from grpc_fixture import grpc_port
from server_fixture import Server, check, equal, main, test

TEXT = "the cat sat on the mat"
IDS = np.array([[101, 1996, 4937, 2938, 2006, 1996, 13523, 102]], np.int64)
SIZE, MASK, OUT = 1 << 16, 4096, 8192


def fails(call, *words):
    try:
        call()
    except InferenceServerException as e:
        check(all(w in str(e) for w in words), str(e))
        return
    raise AssertionError(f"it was taken, and {words} was expected")


def contents(hidden):
    """The whole region: token ids, mask, and NaN where the answer comes."""
    whole = np.zeros(SIZE, np.uint8)
    for at, values in ((0, IDS), (MASK, np.ones_like(IDS)), (OUT, np.full(hidden, np.nan, np.float32))):
        raw = np.frombuffer(values.tobytes(), np.uint8)
        whole[at:at + raw.size] = raw
    return whole


def infer(client, s, mod, region, hidden, out=OUT):
    inputs = [mod.InferInput(name, list(IDS.shape), "INT64") for name in ("input_ids", "attention_mask")]
    inputs[0].set_shared_memory(region, IDS.nbytes)
    inputs[1].set_shared_memory(region, IDS.nbytes, offset=MASK)
    output = mod.InferRequestedOutput("embedding")
    output.set_shared_memory(region, 4 * hidden, offset=out)
    return client.infer(s.name, inputs, outputs=[output])


@test
def shared_memory_over_http_and_grpc():
    s = Server("--device", "cuda", "--grpc-port", "0", model=[os.environ["ROSE_ENCODER"]])
    want = np.array(s.post("/v1/embeddings", {"model": s.name, "input": TEXT})[2]["data"][0]["embedding"], np.float32)
    hidden = want.size
    for mod, address in ((httpclient, f"127.0.0.1:{s.port}"), (grpcclient, f"127.0.0.1:{grpc_port(s)}")):
        client = mod.InferenceServerClient(address)
        for turn in range(3):  # memory of its own each time: a closed handle's address may come again
            region = shm.create_shared_memory_region("g", SIZE, 0)
            shm.set_shared_memory_region(region, [contents(hidden)])
            client.register_cuda_shared_memory("g", shm.get_raw_handle(region), 0, SIZE)
            fails(lambda: client.register_cuda_shared_memory("g", shm.get_raw_handle(region), 0, SIZE), "already")
            fails(lambda: client.register_cuda_shared_memory("h", shm.get_raw_handle(region), 7, SIZE), "GPU 7")
            fails(lambda: client.register_cuda_shared_memory("h", shm.get_raw_handle(region), 0, 1 << 40), "bytes")
            infer(client, s, mod, "g", hidden)
            got = shm.get_contents_as_numpy(region, np.uint8, [SIZE])[OUT:OUT + 4 * hidden].view(np.float32)
            near = float(got @ want / np.linalg.norm(got) / np.linalg.norm(want))
            check(near > 0.9999, f"cosine {near}")
            fails(lambda: infer(client, s, mod, "g", hidden, out=SIZE - 4), "offset")
            client.unregister_cuda_shared_memory("g")
            fails(lambda: infer(client, s, mod, "g", hidden), "unable to find")
            shm.destroy_shared_memory_region(region)
        region = shm.create_shared_memory_region("r", SIZE, 0)
        client.register_cuda_shared_memory("r", shm.get_raw_handle(region), 0, SIZE)
        status = client.get_cuda_shared_memory_status()
        regions = [r["name"] for r in status] if mod is httpclient else list(status.regions)
        equal(regions, ["r"])
        client.unregister_cuda_shared_memory()
        shm.destroy_shared_memory_region(region)
        client.close()
    equal(s.stop(), 0)


if __name__ == "__main__":
    main()
