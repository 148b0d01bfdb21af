"""An HTTP/2 client that can be wrong on purpose (RFC 9113): frames written by hand, header blocks without compression (RFC 7541, literals without indexing)."""
import socket
import struct

DATA, HEADERS, PRIORITY, RESET, SETTINGS, PUSH, PING, GOAWAY, WINDOW, CONTINUATION = range(10)
END_STREAM, END_HEADERS = 1, 4


def frame(kind, flags=0, stream=0, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def _length(n):
    if n < 127:
        return bytes([n])
    out, n = b"\x7f", n - 127
    while n > 127:
        out, n = out + bytes([n & 127 | 128]), n >> 7
    return out + bytes([n])


def field(name, value):
    return b"\0" + _length(len(name)) + name + _length(len(value)) + value


def head(path, *more, method=b"POST", kind=b"application/grpc"):
    """A gRPC request's header block."""
    fields = [(b":method", method), (b":scheme", b"http"), (b":path", path), (b":authority", b"localhost"), (b"content-type", kind), (b"te", b"trailers"), *more]
    return b"".join(field(*f) for f in fields)


def message(data, flag=0, length=None):
    """A gRPC message: flag and length before it."""
    return bytes([flag]) + struct.pack(">I", len(data) if length is None else length) + data


class Http2:
    def __init__(self, port, timeout=120):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout)
        self.socket.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS))
        self.buffer = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, *frames):
        """What the peer no longer takes is lost: it has answered or closed."""
        try:
            self.socket.sendall(b"".join(frames))
        except OSError:
            pass

    def receive(self):
        """(kind, flags, stream, payload); None: closed."""
        while len(self.buffer) < 9 or len(self.buffer) < 9 + int.from_bytes(self.buffer[:3], "big"):
            try:
                more = self.socket.recv(65536)
            except ConnectionResetError:
                more = b""
            if not more:
                return None
            self.buffer += more
        n = int.from_bytes(self.buffer[:3], "big")
        kind, flags, stream, payload = self.buffer[3], self.buffer[4], int.from_bytes(self.buffer[5:9], "big"), self.buffer[9:9 + n]
        self.buffer = self.buffer[9 + n:]
        if kind in (SETTINGS, PING) and not flags & 1:
            self.send(frame(kind, 1, 0, payload if kind == PING else b""))
        return kind, flags, stream, payload

    def end(self, stream=1):
        """Everything of a stream until it or the connection ends: (bytes of data, what ended it: the trailers' bytes, or b"reset", b"away", b"closed")."""
        data = b""
        while (got := self.receive()) is not None:
            kind, flags, of, payload = got
            if kind == GOAWAY:
                return data, b"away"
            if of != stream:
                continue
            if kind == DATA:
                data += payload
            if kind == RESET:
                return data, b"reset"
            if kind in (DATA, HEADERS) and flags & END_STREAM:
                return data, payload
        return data, b"closed"
