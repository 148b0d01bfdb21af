"""What the gRPC tests share: channels to a server, stubs, messages, refusals."""
import re
import struct

import grpc
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc
from tritonclient.utils import InferenceServerException

from server_fixture import check, until

INVALID, NOT_FOUND, EXHAUSTED, UNIMPLEMENTED = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND, grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNIMPLEMENTED


def grpc_port(s):
    return int(until(lambda: re.search(r"gRPC at [^\n]*:(\d+)\n", s.output()), "gRPC")[1])


def channel_to(s, **more):
    """A connection of its own."""
    return grpc.insecure_channel(f"127.0.0.1:{grpc_port(s)}", options=[("grpc.max_send_message_length", -1), ("grpc.use_local_subchannel_pool", 1), *more.items()])


def stub_on(channel):
    return service_pb2_grpc.GRPCInferenceServiceStub(channel)


def bytes_of(*texts):
    """BYTES: each with its length before it."""
    return b"".join(struct.pack("<I", len(t)) + t for t in texts)


def request(model, tensors, id="", **parameters):
    """tensors: {name: (datatype, shape, raw bytes)}."""
    q = pb.ModelInferRequest(model_name=model, id=id, raw_input_contents=[raw for _, _, raw in tensors.values()],
                             inputs=[pb.ModelInferRequest.InferInputTensor(name=k, datatype=t, shape=shape) for k, (t, shape, _) in tensors.items()])
    kinds = {bool: "bool_param", int: "int64_param", float: "double_param", str: "string_param"}
    for key, value in parameters.items():
        setattr(q.parameters[key], kinds[type(value)], value)
    return q


def fails(call, code, word):
    try:
        call()
    except grpc.RpcError as e:
        check(e.code() == code and word in e.details(), f"{e.code()} {e.details()}")
        return
    except InferenceServerException as e:
        check(e.status() == f"StatusCode.{code.name}" and word in e.message(), f"{e.status()} {e.message()}")
        return
    raise AssertionError(f"it was taken, and {word!r} was expected")
