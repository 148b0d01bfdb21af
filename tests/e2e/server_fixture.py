"""Starts `rose serve` for the end-to-end tests and talks to it; a tiny test runner whose last line is "N passed, N failed".

Settings: --rose PATH (or $ROSE; build/rose), --model FILE (or $ROSE_MODEL), --long (or ROSE_LONG=1: soaks at full length), and names of tests to
run alone.
"""
import argparse
import http.client
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import traceback

import own_cache

parser = argparse.ArgumentParser()
parser.add_argument("--rose", default=os.environ.get("ROSE", "build/rose"))
parser.add_argument("--model", default=os.environ.get("ROSE_MODEL") or os.path.expanduser("~/.cache/rose/models/SmolLM2-135M-Instruct.Q4_1.gguf"))
parser.add_argument("--long", action="store_true", default=os.environ.get("ROSE_LONG") == "1")
parser.add_argument("--shots", help="keep screenshots there")
parser.add_argument("names", nargs="*")
options = parser.parse_args()
own_cache.take(options.rose)

tests = []


def test(function):
    tests.append(function)
    return function


def check(condition, what=""):
    if not condition:
        raise AssertionError(what or "check failed")


def equal(got, wanted, what=""):
    if got != wanted:
        raise AssertionError(f"{what}: got {got!r}, wanted {wanted!r}")


def until(condition, what, seconds=120):
    """condition()'s first true value. A test waits for what must come, never for a time: a machine may be fast, slow or busy."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        check(time.monotonic() < deadline, "never: " + what)
        time.sleep(0.02)
    return value


def within(seconds, attempt, what, times=5):
    """attempt() takes less than that long, from the moment it returns or from its beginning. What else the machine does only adds
    to a time, so the fastest of some counts; of a program with a sanitizer only that it comes to an end."""
    took = []
    while not took or (took[-1] >= seconds and not sanitized()):
        check(len(took) < times, f"{what}: {took} s")
        began = time.monotonic()
        left = attempt()
        took.append(time.monotonic() - (left or began))


def sanitized():
    """A program built with a sanitizer, whose own work is in every time and every size."""
    with open(options.rose, "rb") as f:
        program = f.read()
    return any(name in program for name in (b"__tsan_init", b"__asan_init"))


def crowd(client, count, seconds, stop):
    """client(0), client(1), ... at once, each until `stop` is set: after so many seconds, and all have ended."""
    threads = [threading.Thread(target=client, args=(i,)) for i in range(count)]
    for t in threads:
        t.start()
    time.sleep(seconds)
    stop.set()
    for t in threads:
        t.join()


def certificate(d):
    """A key and a certificate in the folder, and what trusts it."""
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", d + "/key.pem", "-out", d + "/cert.pem", "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"],
                   check=True, stderr=subprocess.DEVNULL)
    context = ssl.create_default_context(cafile=d + "/cert.pem")
    context.check_hostname = False
    return context


def main():
    passed = failed = 0
    for function in tests:
        if options.names and function.__name__ not in options.names:
            continue
        try:
            function()
            passed += 1
        except Exception:
            failed += 1
            print(f"FAIL {function.__name__}", file=sys.stderr)
            traceback.print_exc()
    failed += Server.stop_all()
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed or not passed else 0)


class Server:
    """One process; Server.shared() is started once and used by most tests."""

    all = []
    the_shared = None

    def __init__(self, *arguments, model=None, unix=None, program=None):
        self.log = open(f"/tmp/rose_e2e_{os.getpid()}_{len(Server.all)}.log", "w+")
        command = [program or options.rose, "serve", *(model or [options.model]), "--port", "0", "--cache-ready", "8M", *arguments]  # what is ready for load costs each start of a test a second
        self.process = subprocess.Popen(command, stderr=self.log, stdout=self.log)
        Server.all.append(self)
        self.unix = unix
        deadline = time.monotonic() + 120
        while True:
            text = self.output()
            found = re.search(r"at (https?)://[^:]*:(\d+)", text) or (unix and "unix:" in text)
            if found:
                break
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("rose serve did not start:\n" + text)
            time.sleep(0.02)
        if not unix:
            self.scheme, self.port = found[1], int(found[2])
        self.name = re.search(r"rose: (\S+) at", text)[1] if "rose: " in text else None

    def output(self):
        with open(self.log.name) as f:
            return f.read()

    def wait_said(self, text):
        """The log has it: lines about an answer are written behind the answer."""
        until(lambda: text in self.output(), f"{text!r} in the log")

    def ticks(self):
        """Processor time used, in ticks of 10 ms."""
        with open(f"/proc/{self.process.pid}/stat") as f:
            return sum(map(int, f.read().rsplit(")", 1)[1].split()[11:13]))

    def rests(self, ticks, seconds):
        """So long it uses no more than so many ticks; there may be something to end before."""
        def window():
            before = self.ticks()
            time.sleep(seconds)
            used.append(self.ticks() - before)
            return used[-1] <= ticks

        used = []
        while not window():
            check(len(used) < 10, f"ticks of the processor in {seconds} s: {used}")

    def stop(self, kind=signal.SIGTERM, wait=60):
        if self.process.poll() is None:
            self.process.send_signal(kind)
        code = self.process.wait(wait)
        return code

    @classmethod
    def shared(cls):
        if cls.the_shared is None:
            cls.the_shared = Server()
        return cls.the_shared

    @classmethod
    def stop_all(cls):
        bad = 0
        for s in cls.all:
            if s.process.poll() is None:
                s.process.send_signal(signal.SIGTERM)
        for s in cls.all:
            try:
                s.process.wait(20)
            except subprocess.TimeoutExpired:
                s.process.kill()
            s.log.close()
            for line in s.output().splitlines():
                if "Sanitizer" in line or "runtime error" in line:
                    print("SANITIZER " + line, file=sys.stderr)
                    bad = 1
            os.unlink(s.log.name)
        return bad

    def socket(self, timeout=120):
        if self.unix:
            s = socket.socket(socket.AF_UNIX)
            s.settimeout(timeout)
            s.connect(self.unix)
            return s
        return socket.create_connection(("127.0.0.1", self.port), timeout=timeout)

    def request(self, method, path, body=None, headers=None, timeout=120):
        """(status, headers, body); JSON bodies are parsed."""
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        if body is not None and not isinstance(body, (bytes, str)):
            body = json.dumps(body)
        c.request(method, path, body, headers or {})
        r = c.getresponse()
        data = r.read()
        c.close()
        if data and (r.getheader("Content-Type") or "").startswith("application/json"):
            data = json.loads(data)
        return r.status, dict((k.lower(), v) for k, v in r.getheaders()), data

    def post(self, path, body, **more):
        return self.request("POST", path, body, **more)

    def get(self, path, **more):
        return self.request("GET", path, **more)

    def chat(self, **fields):
        fields.setdefault("messages", [{"role": "user", "content": "Count from one to ten in words."}])
        fields.setdefault("temperature", 0)
        fields.setdefault("max_tokens", 16)
        return self.post("/v1/chat/completions", fields)

    def stream(self, path, fields, timeout=120):
        """The parsed data of a stream's events; [DONE] stays a string."""
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        c.request("POST", path, json.dumps(dict(fields, stream=True)))
        r = c.getresponse()
        text = r.read().decode()
        c.close()
        equal(r.status, 200, text)
        out = []
        for event in text.split("\n\n"):
            for line in event.split("\n"):
                if line.startswith("data: "):
                    out.append(line[6:] if line == "data: [DONE]" else json.loads(line[6:]))
        return out

    def metrics(self):
        _, _, text = self.get("/metrics")
        out = {}
        for line in text.decode().splitlines():
            if not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                out[name] = float(value)
                out[name.split("{")[0]] = float(value)
        return out

    def wait_metric(self, name, least):
        """A metric has come to that: best a total, which never goes back however late we look."""
        return until(lambda: self.metrics()[name] >= least, f"{name} {least}")

    def wait_idle(self, seconds=120):
        """Nothing runs or waits, all pages are free or cached, no connection but ours."""
        def idle():
            m = self.metrics()
            busy = ("rose_requests_running", "rose_requests_waiting", "rose_http_answers_open")
            return m if not any(value for name, value in m.items() if name.startswith(busy)) else None  # of every model

        return until(idle, "idle", seconds)

    def raw(self, data, timeout=120, shut=False):
        """Send bytes, read until the server closes; the bytes. One that stays silent instead is <open> in the end."""
        s = self.socket(timeout)
        try:
            try:
                s.sendall(data)
                if shut:
                    s.shutdown(socket.SHUT_WR)
            except OSError:
                pass  # closed already: what came before can still be read
            out = b""
            while True:
                try:
                    piece = s.recv(65536)
                except (TimeoutError, socket.timeout):
                    return out + b"<open>"
                except ConnectionResetError:
                    return out
                if not piece:
                    return out
                out += piece
        finally:
            s.close()

    def rss(self):
        with open(f"/proc/{self.process.pid}/status") as f:
            return int(re.search(r"VmRSS:\s+(\d+)", f.read())[1]) * 1024

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))
