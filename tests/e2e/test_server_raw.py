"""What goes over the wire below any client library: framing, smuggling shapes, slow and half-closed peers, limits, pipelining, TLS, signals."""
import ctypes
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import tempfile
import threading
import time

from server_fixture import Server, certificate, check, equal, main, options, test, until, within

BODY = json.dumps({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2, "temperature": 0}).encode()


def post(headers, body=BODY, path="/v1/chat/completions", length=True, host=True):
    head = f"POST {path} HTTP/1.1\r\n" + ("Host: x\r\n" if host else "") + headers + (f"Content-Length: {len(body)}\r\n" if length else "")
    return head.encode() + b"\r\n" + body


def long_stream(tokens=4000, **more):
    body = json.dumps(dict({"messages": [{"role": "user", "content": "Tell me a long story"}], "max_tokens": tokens, "stream": True, "ignore_eos": True}, **more)).encode()
    return post("", body)


def endless(s):
    """A connection with a request that outlasts any test where --max-sequences is 1: sixteen whole contexts, one after the other."""
    c, before = s.socket(), s.metrics()["rose_requests_total"]
    c.sendall(long_stream(8000, stream=False, n=16))
    s.wait_metric("rose_requests_total", before + 1)
    return c


def begin(s, data, events=1):
    """A connection whose stream has sent so many events: its request is at work."""
    c, got = s.socket(), b""
    c.sendall(data)
    while got.count(b"data: ") < events:
        piece = c.recv(4096)
        check(piece, f"the stream ended: {got}")
        got += piece
    return c


def status(answer):
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.1 ") else None


@test
def smuggling_shapes_are_refused_and_the_connection_is_closed():
    s = Server.shared()
    inner = b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n"
    shapes = {
        "two lengths": post("Content-Length: 5\r\n"),
        "equal lengths": post(f"Content-Length: {len(BODY)}\r\n"),
        "length and coding": post("Transfer-Encoding: chunked\r\n", b"0\r\n\r\n" + inner),
        "coding and length": post("Content-Length: 3\r\nTransfer-Encoding: chunked\r\n", b"0\r\n\r\n" + inner, length=False),
        "unknown coding": post("Transfer-Encoding: xchunked\r\n", b"0\r\n\r\n", length=False),
        "two codings": post("Transfer-Encoding: gzip, chunked\r\n", b"0\r\n\r\n", length=False),
        "coding twice": post("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", b"0\r\n\r\n", length=False),
        "coding identity": post("Transfer-Encoding: identity\r\n", length=False),
        "signed length": post("Content-Length: +5\r\n", b"hello", length=False),
        "negative length": post("Content-Length: -5\r\n", b"hello", length=False),
        "hex length": post("Content-Length: 0x5\r\n", b"hello", length=False),
        "length list": post("Content-Length: 5, 5\r\n", b"hello", length=False),
        "huge length": post("Content-Length: 99999999999999999999\r\n", b"hello", length=False),
        "space before colon": post("Content-Length : 5\r\n", b"hello", length=False),
        "bad name": post("Bad(Name: 5\r\n"),
        "control character in value": post("X-A: a\x01b\r\n"),
        "two hosts": post("Host: y\r\n"),
        "no host": post("", host=False),
        "coding with HTTP/1.0": post("Transfer-Encoding: chunked\r\n", b"0\r\n\r\n", length=False).replace(b"HTTP/1.1", b"HTTP/1.0"),
    }
    for name, data in shapes.items():
        answer = s.raw(data)
        check(not answer or 400 <= (status(answer) or 400) < 506, f"{name}: {answer[:200]}")
        check(b"HTTP/1.1 200" not in answer, f"{name}: a hidden request was answered: {answer[:400]}")
        check(not answer.endswith(b"<open>"), f"{name}: the connection stays open: {answer[:300]}")
    equal(s.get("/health")[0], 200)


@test
def malformed_requests_end_cleanly():
    s = Server.shared()
    for data in (b"\0\0\0\0\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\nHost: x\r\n\r\n", b"GET / \r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"\r\n" * 50000,
                 b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
                 b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\nx"):
        answer = s.raw(data, shut=True)
        check(b"200 OK" not in answer, f"{data[:40]}: {answer[:100]}")
    equal(s.get("/health")[0], 200)


# What libmicrohttpd does not take, and the status it gives.
NOT_TAKEN = ((b"GET /health HTTP/1.1\r\n\r\n", 400), (b"GET /health HTTP/1.1\r\nbad header\r\nHost: x\r\n\r\n", 400), (b"GET /" + b"a" * 40000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 414),
             (b"GET /health HTTP/1.1\r\nHost: x\r\n" + b"X-A: a\r\n" * 20000 + b"\r\n", 431), (b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: abc\r\n\r\n", 400),
             (b"GET / HTTP/9.9\r\nHost: x\r\n\r\n", 505))


def refused_in_json(s, answer, code):
    """One answer with that status, its error in JSON, its id in the log."""
    equal(status(answer), code, answer[:200])
    equal(answer.count(b"HTTP/1.1 %d " % code), 1, answer)
    head, _, body = answer.partition(b"\r\n\r\n")
    check(b"X-Request-Id: " in head and b"Connection: close" in head and b"application/json" in head, head)
    check(len(json.loads(body)["error"]["message"]) > 10, body)
    s.wait_said(head.split(b"X-Request-Id: ")[1].split(b"\r\n")[0].decode())


@test
def what_the_library_refuses_is_json_with_an_id():
    s = Server("--max-headers", "16k", "--null-model")
    for data, code in NOT_TAKEN:
        refused_in_json(s, s.raw(data), code)
    equal(s.stop(), 0)


@test
def what_the_library_refuses_over_tls_too():
    with tempfile.TemporaryDirectory() as d:
        context = certificate(d)
        s = Server("--max-headers", "16k", "--null-model", "--tls-cert", d + "/cert.pem", "--tls-key", d + "/key.pem")
        for data, code in NOT_TAKEN:
            with context.wrap_socket(s.socket(), server_hostname="localhost") as c:
                answer = b""
                try:
                    c.sendall(data)
                except OSError:
                    pass  # refused before all was sent
                try:
                    while piece := c.recv(65536):
                        answer += piece
                except (ssl.SSLError, ConnectionError):
                    pass  # closed without goodbye
            refused_in_json(s, answer, code)
        equal(s.stop(), 0)


@test
def chunked_bodies_and_expect():
    s = Server.shared()
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(BODY[i:i + 7]), BODY[i:i + 7]) for i in range(0, len(BODY), 7)) + b"0\r\nX-Trailer: 1\r\n\r\n"
    answer = s.raw(post("Transfer-Encoding: chunked\r\nConnection: close\r\n", chunks, length=False))
    equal(status(answer), 200, answer)
    c = s.socket()
    c.sendall(post("Expect: 100-continue\r\n", b"", length=False).replace(b"\r\n\r\n", b"\r\nContent-Length: %d\r\n\r\n" % len(BODY)))
    check(c.recv(1000).startswith(b"HTTP/1.1 100"), "100 Continue is missing")
    c.sendall(BODY)
    check(c.recv(100).startswith(b"HTTP/1.1 200"), "no answer behind Expect")
    c.close()
    # An Expect whose request is refused is refused before the body.
    answer = s.raw(post("Expect: 100-continue\r\nContent-Length: 999999999\r\n", b"", length=False))
    equal(status(answer), 413, answer)


@test
def limits_of_body_headers_and_path():
    s = Server("--max-body", "4k", "--max-headers", "16k")
    equal(s.post("/v1/chat/completions", b"x" * 5000)[0], 413)
    chunk = b"1000\r\n" + b"x" * 4096 + b"\r\n"
    answer = s.raw(post("Transfer-Encoding: chunked\r\nConnection: close\r\n", chunk * 3 + b"0\r\n\r\n", length=False))
    equal(status(answer), 413, answer)
    check(not s.raw(post("Transfer-Encoding: chunked\r\n", chunk * 20, length=False)).endswith(b"<open>"), "an endless body is read for ever")
    for data in (b"GET /" + b"a" * 100000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", b"GET /health HTTP/1.1\r\nHost: x\r\nX-A: " + b"a" * 100000 + b"\r\n\r\n",
                 b"GET /health HTTP/1.1\r\nHost: x\r\n" + b"X-A: a\r\n" * 20000 + b"\r\n"):
        answer = s.raw(data)
        check(status(answer) in (None, 400, 413, 414, 431), answer[:100])
    equal(s.get("/health")[0], 200)
    s.stop()


@test
def pipelined_requests_are_answered_in_order():
    s = Server.shared()
    data = b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n" + post("") + b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    answer = s.raw(data)
    equal(answer.count(b"HTTP/1.1 200"), 3, answer)
    check(answer.index(b'"version"') < answer.index(b'"chat.completion"') < answer.index(b'"seconds_since_step"'), "out of order")


@test
def a_client_that_leaves_is_noticed_within_a_second():
    s = Server.shared()
    s.wait_idle()

    def leave(how, when):
        before = s.metrics()
        if when == "streaming":
            c = begin(s, long_stream(), 5)
        else:
            c = s.socket()
            c.sendall(long_stream(stream=when != "whole"))
            s.wait_metric("rose_requests_total", before["rose_requests_total"] + 1)
        if how == "reset":
            c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        if how == "half":
            c.shutdown(socket.SHUT_WR)
        else:
            c.close()
        began = s.metrics()["rose_steps_total"]
        after = s.wait_idle()
        equal(after["rose_requests_cancelled_total"], before["rose_requests_cancelled_total"] + 1, "it ended by itself")
        c.close()
        return after["rose_steps_total"] - began

    # A second is 300 steps of one sequence on a quiet machine; steps are as slow as everything else.
    for how in ("close", "reset", "half"):
        for when in ("waiting", "streaming", "whole"):
            steps = []
            while not steps or steps[-1] > 300:
                check(len(steps) < 5, f"{how} while {when}: it was noticed after {steps} steps")
                steps.append(leave(how, when))


@test
def killed_clients_leave_nothing_behind():
    s = Server.shared()
    before = s.wait_idle()
    body = json.dumps({"messages": [{"role": "user", "content": "Go on and on"}], "max_tokens": 3000, "stream": True, "ignore_eos": True})
    clients = [subprocess.Popen(["curl", "-sN", f"http://127.0.0.1:{s.port}/v1/chat/completions", "-d", body], stdout=subprocess.DEVNULL) for _ in range(8)]
    s.wait_metric("rose_requests_total", before["rose_requests_total"] + 8)
    for c in clients:
        c.kill()
        c.wait()
    m = s.wait_idle()
    equal(m["rose_requests_cancelled_total"], before["rose_requests_cancelled_total"] + 8, "they ended by themselves")
    equal(m["rose_kv_pages_free"] + m["rose_kv_pages_cached"], m["rose_kv_pages"], "pages")


@test
def slow_senders_are_closed():
    s = Server("--idle-timeout", "1", "--read-timeout", "2")
    for data in (b"GET /health HTTP/1.1\r\nHost: x\r\nX-Slow: " + b"a" * 100, post("", b"x" * 100)):
        c, sent = s.socket(), 0
        try:
            head = data.index(b"X-Slow") if b"X-Slow" in data else data.index(b"\r\n\r\n") + 4
            c.sendall(data[:head])
            for i in range(head, len(data)):
                c.sendall(data[i:i + 1])
                sent += 1
                time.sleep(0.2)
        except OSError:
            pass
        check(sent < 40, f"a slow sender kept its connection for {sent} bytes, 0.2 s each")
        c.close()

    def idle():
        c = s.socket()
        equal(c.recv(10), b"", "idle connection")
        c.close()

    within(5, idle, "an idle connection is closed")
    s.stop()


@test
def a_client_that_does_not_read_loses_its_request():
    s = Server("--max-output", "16k", "--write-timeout", "2")
    c = s.socket()
    c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    c.sendall(post("", json.dumps({"prompt": "a b c", "max_tokens": 7000, "stream": True, "ignore_eos": True, "logprobs": 20, "n": 4}).encode(), "/v1/completions"))
    s.wait_metric("rose_http_clients_gone_total", 1)
    equal(s.wait_idle()["rose_http_clients_gone_total"], 1)
    c.close()
    s.stop()


@test
def limits_of_connections_and_descriptors():
    with tempfile.TemporaryDirectory() as d:
        with open(d + "/rose", "w") as f:
            f.write(f"#!/bin/sh\nulimit -n 40\nexec {os.path.abspath(options.rose)} \"$@\"\n")
        os.chmod(d + "/rose", 0o755)
        for s in (Server("--max-connections", "3"), Server(program=d + "/rose")):
            clients = [s.socket() for _ in range(60)]
            s.rests(2, 1)
            for c in clients:
                c.close()
            equal(s.get("/health")[0], 200)
            equal(s.chat(max_tokens=1)[0], 200)
            s.stop()


@test
def a_waiting_stream_gets_comments():
    s = Server("--max-sequences", "1", "--ping", "1")
    busy = endless(s)
    for path, comment in (("/v1/chat/completions", b": ping\n\n"), ("/v1/messages", b"event: ping\n")):
        c = s.socket()
        c.sendall(post("", BODY[:-1] + b', "stream": true}' if "chat" in path else BODY[:-1].replace(b'"temperature": 0', b'"temperature": 1') + b', "stream": true}', path))
        got = b""
        while got.count(comment) < 2:
            piece = c.recv(4096)
            check(piece, f"the stream ended: {got}")
            got += piece
        check(got.startswith(b"HTTP/1.1 200"), got)
        c.close()
    busy.close()
    s.stop()


@test
def http_1_0_streams_end_with_the_connection():
    s = Server.shared()
    answer = s.raw(post("", BODY[:-1] + b', "stream": true}').replace(b"HTTP/1.1", b"HTTP/1.0"))
    check(b"chunked" not in answer.split(b"\r\n\r\n")[0] and answer.endswith(b"data: [DONE]\n\n"), answer)
    check(b"\r\n\r\ndata: {" in answer, answer)


@test
def request_ids_heads_options_and_cors():
    s = Server("--cors-origin", "http://example.org")
    code, headers, _ = s.get("/version", headers={"X-Request-Id": "abc-1.2_3"})
    equal(headers["x-request-id"], "abc-1.2_3")
    check(len(s.get("/version", headers={"X-Request-Id": "x" * 65})[1]["x-request-id"]) < 65, "an id that is too long came back")
    check("\n" not in s.get("/version", headers={"X-Request-Id": "a b"})[1]["x-request-id"], "id")
    code, headers, body = s.request("HEAD", "/v1/models")
    equal((code, body), (200, b""))
    code, headers, _ = s.request("OPTIONS", "/v1/chat/completions", headers={"Origin": "http://example.org", "Access-Control-Request-Headers": "x-foo"})
    equal((code, headers["access-control-allow-origin"], headers["access-control-allow-headers"]), (204, "http://example.org", "x-foo"))
    sdk = "authorization,content-type,x-stainless-lang,x-stainless-retry-count,anthropic-version,anthropic-dangerous-direct-browser-access,inference-header-content-length"
    for asked, said in ((sdk, sdk), (None, "Inference-Header-Content-Length"), ("a<b>", "Anthropic-Version")):
        for path in ("/v1/messages", "/v2/models/m/infer", "/v1/embeddings"):
            code, headers, _ = s.request("OPTIONS", path, headers={"Origin": "http://example.org", "Access-Control-Request-Method": "POST", **({"Access-Control-Request-Headers": asked} if asked else {})})
            check(code == 204 and said in headers["access-control-allow-headers"] and "<" not in headers["access-control-allow-headers"], headers)
    check("Inference-Header-Content-Length" in s.get("/v1/models")[1]["access-control-expose-headers"], "what a page may read")
    equal(s.request("PUT", "/v1/models")[0], 405)
    equal(s.get("/v1/chat/completions")[0], 405)
    equal(s.get("/no/such")[0], 404)
    check(s.get("/%00health")[0] in (200, 400, 404))  # the page, at most
    equal(s.post("/v1/chat/completions", BODY, headers={"Content-Encoding": "br"})[0], 415)
    s.stop()


@test
def keys_are_asked_for():
    with tempfile.NamedTemporaryFile("w", suffix=".keys") as f:
        f.write("# keys\nfirst-key\n\nsecond-key  \n")
        f.flush()
        s = Server("--api-keys", f.name)
        for headers, wanted in (({}, 401), ({"Authorization": "Bearer wrong"}, 401), ({"Authorization": "Bearer first-key"}, 200), ({"X-Api-Key": "second-key"}, 200),
                                ({"Authorization": "Bearer "}, 401), ({"Authorization": "Basic first-key"}, 401), ({"X-Api-Key": "# keys"}, 401)):
            equal(s.get("/v1/models", headers=headers)[0], wanted, str(headers))
        equal(s.post("/v1/chat/completions", BODY)[0], 401)
        equal(s.post("/v1/messages", BODY)[2]["error"]["type"], "authentication_error")
        equal(s.get("/health")[0], 200)
        check("first-key" not in s.output(), "a key is in the log")
        s.stop()


@test
def tls_and_unix_sockets():
    with tempfile.TemporaryDirectory() as d:
        context = certificate(d)
        s = Server("--tls-cert", d + "/cert.pem", "--tls-key", d + "/key.pem")
        equal(s.scheme, "https")
        with context.wrap_socket(s.socket(), server_hostname="localhost") as c:
            c.sendall(post("Connection: close\r\n"))
            check(c.recv(100).startswith(b"HTTP/1.1 200"), "TLS")
        # A peer that leaves is noticed behind TLS too.
        def metrics():
            with context.wrap_socket(s.socket(), server_hostname="localhost") as c:
                c.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                text = b""
                while piece := c.recv(65536):
                    text += piece
                return text

        c = context.wrap_socket(s.socket(), server_hostname="localhost")
        c.sendall(long_stream())
        c.recv(1000)
        c.close()
        until(lambda: b"\nrose_http_answers_open 0\n" in metrics(), "the answer of a client that left ends")
        until(lambda: re.search(rb"\nrose_requests_cancelled_total\{[^}]*\} 1\n", metrics()), "its request is cancelled and does not end by itself")
        check(not s.raw(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").startswith(b"HTTP/1.1 200"), "plain text was answered on a TLS port")
        s.stop()
        path = d + "/rose.sock"
        for _ in range(2):
            s = Server("--unix", path, unix=path)
            equal(status(s.raw(post("Connection: close\r\n"))), 200)
            s.stop(signal.SIGKILL if _ == 0 else signal.SIGTERM)  # the first leaves its file behind; the second takes it over
        check(not os.path.exists(path), "the socket's file is still there")


@test
def sigterm_drains_and_a_second_signal_stops():
    s = Server("--drain", "3600", "--read-timeout", "3600")
    # The server cannot end before this test lets it: one request's body is held back.
    late = s.socket()
    late.sendall(post("Expect: 100-continue\r\n", b"", length=False).replace(b"\r\n\r\n", b"\r\nContent-Length: %d\r\n\r\n" % len(BODY)))
    check(late.recv(1000).startswith(b"HTTP/1.1 100"), "100 Continue is missing")
    held = s.socket()  # a connection from before
    health = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
    held.sendall(health)
    check(held.recv(1000).startswith(b"HTTP/1.1 200"), "health before")
    c = begin(s, long_stream(100).replace(b"Host: x", b"Host: x\r\nConnection: close"))
    s.process.send_signal(signal.SIGTERM)
    s.wait_said("signal 15: no new requests")
    held.sendall(health)
    check(held.recv(200).startswith(b"HTTP/1.1 503"), "health while draining")
    equal(s.chat()[0], 503, "a new request while draining")
    got = b""
    while piece := c.recv(65536):
        got += piece
    check(b'"finish_reason":"length"' in got and b"data: [DONE]\n\n" in got, f"the request under way: {got[-400:]}")
    equal(s.process.poll(), None, "exit status with a request under way")
    late.sendall(BODY)
    check(late.recv(200).startswith(b"HTTP/1.1 503"), "a request whose body comes while draining")
    equal(s.process.wait(60), 0, "exit status")
    check("rose: all requests have ended\n" in s.output(), s.output())
    # The deadline cuts what is left.
    s = Server("--drain", "1", "--max-sequences", "1")
    c = endless(s)
    began = time.monotonic()
    equal(s.stop(), 0, "exit status")
    check(time.monotonic() - began > 0.8, "the deadline")
    check("1 under way have 1 s to end" in s.output() and "rose: time is up, the rest is cancelled\n" in s.output(), s.output())
    # A second signal does not wait for it.
    s = Server("--drain", "3600", "--max-sequences", "1")
    c = endless(s)
    s.process.send_signal(signal.SIGINT)
    s.wait_said("signal 2: no new requests")
    equal(s.get("/health")[0], 503)
    equal(s.stop(), 0, "exit status")
    check("rose: stopped\n" in s.output(), s.output())
    c.close()


@test
def systemd_is_told():
    with tempfile.TemporaryDirectory() as d:
        n = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        n.bind(d + "/notify")
        n.settimeout(60)
        os.environ["NOTIFY_SOCKET"] = d + "/notify"
        try:
            s = Server()
        finally:
            del os.environ["NOTIFY_SOCKET"]
        equal(n.recv(100), b"READY=1")
        s.process.send_signal(signal.SIGTERM)
        equal(n.recv(100), b"STOPPING=1")
        equal(s.process.wait(60), 0)


@test
def logs_carry_the_id_and_stay_one_line():
    s = Server("--log-format", "json")
    s.get("/v1/models", headers={"X-Request-Id": "find-me"})
    s.get("/a%0a%22b")
    s.chat(max_tokens=2)
    s.stop()
    lines = [json.loads(line) for line in s.output().splitlines()]
    check(any(x.get("id") == "find-me" and x["status"] == 200 for x in lines), "no line with the id")
    check(any(x.get("path") == '/a\n"b' for x in lines), "an odd path")
    check(any(x.get("completion_tokens") == 2 and x["finish"] == "length" for x in lines), "no token counts")


LONG = "a" * ((1 << 20) - 4096)  # one endless word, the slowest of texts: a quarter of a second


def answered_meanwhile(s, path, body):
    """How many other requests are answered, one after the other, while this one is at work; and its own answer."""
    count, answer = 0, []
    thread = threading.Thread(target=lambda: answer.append(s.post(path, body)))
    thread.start()
    while thread.is_alive():
        equal(s.get("/version")[0], 200)
        count += thread.is_alive()
    return count, answer[0]


@test
def long_texts_keep_nobody_waiting():
    s = Server.shared()
    chat = [{"role": "user", "content": LONG}]
    for path, body, code in (("/tokenize", {"prompt": LONG}, 200), ("/tokenize", {"messages": chat}, 200), ("/v1/messages/count_tokens", {"messages": chat}, 200),
                             ("/v1/completions", {"prompt": ["short", LONG, "short"], "max_tokens": 1}, 400), ("/v1/chat/completions", {"messages": chat, "stream": True}, 400)):
        most = 0
        for _ in range(10):  # what else the machine does can only make it fewer
            count, (status, _, answer) = answered_meanwhile(s, path, body)
            equal(status, code, f"{path}: {str(answer)[:200]}")
            most = max(most, count)
            if most >= 8:
                break
        check(most >= 8, f"{path}: only {most} others were answered while a long text was tokenised")
    # refused by a status, however long that takes and whatever else there is to say meanwhile
    impatient = Server("--ping", "1")
    for path, body in (("/v1/chat/completions", {"messages": chat, "stream": True}), ("/v1/completions", {"prompt": LONG, "stream": True}), ("/v1/completions", {"prompt": ["a", LONG[:900000]], "stream": True})):
        held = Held(impatient.process.pid)
        c = impatient.socket()
        c.sendall(post("", json.dumps(body).encode(), path))
        time.sleep(2.5)  # a ping would come by now
        held.release()
        got = c.recv(4096)
        check(got.startswith(b"HTTP/1.1 400"), f"{path}: {got}")
        c.close()
    impatient.stop()
    # a long prompt that fits is answered as it is elsewhere
    words = "one two three four five " * 900
    fields = {"prompt": [words, "one two"], "max_tokens": 3, "temperature": 0}
    equal([c["index"] for c in s.post("/v1/completions", fields)[2]["choices"]], [0, 1])
    status, _, body = s.post("/tokenize", {"prompt": words})
    equal((status, len(body["tokens"])), (200, body["count"]))
    equal(s.post("/detokenize", {"tokens": body["tokens"]})[2]["prompt"], words)
    usage = s.post("/v1/completions", {**fields, "prompt": words})[2]["usage"]
    equal(usage["prompt_tokens"], body["count"])


@test
def clients_that_leave_a_long_text():
    s = Server("--drain", "1")
    m = s.metrics()
    equal((m["rose_kv_pages_free"], m["rose_kv_pages_used"]), (m["rose_kv_pages"], 0), "the pages of a server that has not answered yet")
    for path, body in (("/tokenize", {"prompt": LONG}), ("/v1/messages/count_tokens", {"messages": [{"role": "user", "content": LONG}]}), ("/v1/completions", {"prompt": LONG, "max_tokens": 4}),
                       ("/v1/completions", {"prompt": "one two " * 3000, "max_tokens": 4000}), ("/v1/chat/completions", {"messages": [{"role": "user", "content": "one two " * 3000}], "stream": True})):
        for wait in (0, 0.01, 0.1, 0.3):
            c = s.socket()
            c.sendall(post("", json.dumps(body).encode(), path))
            time.sleep(wait)  # not waited for: whatever has come of it by then
            c.close()
    m = s.wait_idle()
    equal(m["rose_kv_pages_free"] + m["rose_kv_pages_cached"], m["rose_kv_pages"], "pages")
    equal(s.chat(max_tokens=2)[0], 200)
    # the end of the server in the middle of a queue of them
    clients = [s.socket() for _ in range(20)]
    for c in clients:
        c.sendall(post("", json.dumps({"prompt": LONG}).encode(), "/tokenize"))
    s.wait_metric("rose_http_requests_open", 20)
    equal(s.stop(), 0, "exit status")


class Held:
    """All threads of a process but the first, which has the sockets, stopped one by one: an engine that does not go on."""

    def __init__(self, pid):
        self.tids = [int(t) for t in os.listdir(f"/proc/{pid}/task") if int(t) != pid]
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
        seize, interrupt = 0x4206, 0x4207
        for tid in self.tids:
            check(self.libc.ptrace(seize, tid, None, None) == 0 and self.libc.ptrace(interrupt, tid, None, None) == 0, f"ptrace: {os.strerror(ctypes.get_errno())}")
            os.waitpid(tid, 0x40000000)  # __WALL: it has stopped

    def release(self):
        for tid in self.tids:
            self.libc.ptrace(17, tid, None, None)  # PTRACE_DETACH


@test
def health_follows_the_engine():
    s = Server("--stall", "0.5")
    equal(s.chat(max_tokens=2)[0], 200)
    held = Held(s.process.pid)
    c = s.socket()
    c.sendall(long_stream(20))
    status, _, body = until(lambda: (answer := s.get("/health"))[0] == 503 and answer, "503 while the engine is stuck")
    equal((status, body["status"]), (503, "stuck"))
    check(body["seconds_since_step"] > 0.5, body)
    equal(s.get("/version")[0], 200)
    held.release()
    got = b""
    while b"data: [DONE]" not in got:
        piece = c.recv(65536)
        check(piece, f"the stream ended: {got[-200:]}")
        got += piece
    until(lambda: s.get("/health")[0] == 200, "200 when it goes on")
    equal(s.stop(), 0)


@test
def a_model_file_cannot_fake_a_log_line():
    with tempfile.TemporaryDirectory() as d:
        os.symlink(os.path.abspath(options.model), d + "/a\nrose: b.gguf")
        s = Server("--log", "info", model=[d + "/a\nrose: b.gguf"])
        equal(s.get("/v1/models")[2]["data"][0]["id"], "a\nrose: b")
        equal(s.stop(), 0)
        check(not [line for line in s.output().split("\n") if line.startswith("rose: b")], s.output())


@test
def an_idle_server_uses_no_cpu():
    s = Server.shared()
    s.wait_idle()
    c = s.socket()  # one idle connection
    s.rests(1, 2)
    c.close()


main()
