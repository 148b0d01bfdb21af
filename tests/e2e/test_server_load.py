"""A thousand streams at once; a soak under random cancels with memory, pages and descriptors back at their start; rose bench --url; rose batch."""
import http.client
import json
import os
import random
import signal
import socket
import subprocess
import tempfile
import threading
import time
import xml.etree.ElementTree

from server_fixture import Server, certificate, check, crowd, equal, main, options, sanitized, test, until, within


def bench(server, *arguments):
    r = subprocess.run([options.rose, "bench", "--url", f"http://127.0.0.1:{server.port}", "--json", *arguments], capture_output=True, text=True, timeout=500)
    equal(r.returncode, 0, r.stderr)
    return json.loads(r.stdout)


@test
def a_thousand_streams_at_once():
    s = Server("--no-access-log")
    r = bench(s, "-c", "1000", "-n", "1000", "-g", "3", "-p", "8")
    equal((r["ok"], r["failed"], r["output_tokens"]), (1000, 0, 3000))
    m = s.wait_idle()
    equal(m["rose_kv_pages_free"] + m["rose_kv_pages_cached"], m["rose_kv_pages"])
    # Idle connections are cheap, and the server answers beside them.
    idle = [s.socket() for _ in range(1000)]
    within(1, lambda: equal(s.get("/health")[0], 200), "an answer beside idle connections")
    for c in idle:
        c.close()
    equal(s.stop(), 0)


@test
def the_null_model_streams_fast():
    s = Server("--null-model", "--no-access-log")
    r = bench(s, "-c", "64", "-n", "128", "-g", "1000")
    equal((r["ok"], r["output_tokens"]), (128, 128000))
    # In processor time, which other work on the machine does not touch: 60,000 tokens/s are 16.7 us of one core.
    used = s.ticks() / os.sysconf("SC_CLK_TCK") / 128000
    check(sanitized() or used < 16.7e-6, f"{used * 1e6:.1f} us a token")
    s.stop()


@test
def soak_under_random_cancels():
    s = Server("--no-access-log", "--max-sequences", "16", "--kv-bytes", "48M")  # so small that the first minutes touch all of it
    seconds = 600 if options.long else 60
    stop = threading.Event()
    errors = []

    def client(seed):
        rng = random.Random(seed)
        while not stop.is_set():
            try:
                kind = rng.randrange(6)
                body = {"messages": [{"role": "user", "content": "Tell me about " + rng.choice("abcdefgh") * rng.randrange(1, 300)}], "max_tokens": rng.randrange(1, 40), "n": rng.randrange(1, 3),
                        "stream": kind < 4, "logprobs": rng.random() < 0.3}
                if kind == 5:
                    body["nonsense"] = 1
                c = http.client.HTTPConnection("127.0.0.1", s.port, timeout=120)
                c.request("POST", "/v1/chat/completions", json.dumps(body))
                if kind == 0:
                    time.sleep(rng.random() * 0.2)
                    if rng.random() < 0.5:
                        c.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                    c.sock.close()
                    continue
                r = c.getresponse()
                if kind == 1:
                    r.read(rng.randrange(1, 2000))
                    c.sock.close() if c.sock else None
                    r.close()
                    continue
                data = r.read()
                if r.status != (400 if kind == 5 else 200):
                    errors.append((r.status, data[:200]))
                c.close()
            except (OSError, http.client.HTTPException) as e:
                errors.append(repr(e))

    def run(for_seconds):
        stop.clear()
        crowd(client, 24, for_seconds, stop)
        return s.wait_idle()

    run(max(4, seconds / 6))  # buffers reach their size, the prefix cache its own
    rss, descriptors = s.rss(), s.descriptors()
    m = run(seconds)
    equal(errors, [])
    equal(m["rose_kv_pages_free"] + m["rose_kv_pages_cached"], m["rose_kv_pages"], "pages")
    until(lambda: s.descriptors() <= descriptors + 1, f"no more than {descriptors} descriptors")
    check(sanitized() or s.rss() < rss + (24 << 20), f"memory: {rss >> 20} MiB became {s.rss() >> 20}")
    equal(m["rose_requests_failed_total"], 0)
    equal(s.stop(), 0)


@test
def bench_reports():
    s = Server.shared()
    with tempfile.TemporaryDirectory() as d:
        r = bench(s, "-n", "12", "-c", "4", "-g", "8", "-p", "20", "--svg", d + "/a.svg", "--endpoint", "chat")
        equal((r["ok"], r["output_tokens"], r["concurrency"]), (12, 96, 4))
        for key in ("ttft_s", "itl_s", "e2e_s"):
            check(0 <= r[key]["p50"] <= r[key]["p90"] <= r[key]["p99"] <= r[key]["max"], r[key])
        check(r["e2e_s"]["p50"] > r["ttft_s"]["p50"] > 0, r)
        equal(len(xml.etree.ElementTree.parse(d + "/a.svg").getroot().findall("{http://www.w3.org/2000/svg}polyline")), 3)
    r = bench(s, "-n", "10", "--rate", "20", "-g", "4", "-p", "10")
    equal((r["ok"], r["rate"]), (10, 20))
    text = subprocess.run([options.rose, "bench", "--url", f"http://127.0.0.1:{s.port}/v1", "-n", "4", "-g", "4"], capture_output=True, text=True, timeout=100)
    check("time to first token" in text.stdout and "goodput" in text.stdout, text)
    for bad in (["--url", "ftp://x"], ["--url", "https://127.0.0.1:1"], ["--url", "http://127.0.0.1:1"], ["--url", f"http://127.0.0.1:{s.port}", "--model", "nothing", "-n", "2"]):
        equal(subprocess.run([options.rose, "bench", *bad], capture_output=True, timeout=100).returncode, 1, str(bad))


@test
def bench_over_tls():
    with tempfile.TemporaryDirectory() as d:
        certificate(d)
        s = Server("--tls-cert", d + "/cert.pem", "--tls-key", d + "/key.pem")

        def ask(*arguments, host="localhost", **environment):
            command = [options.rose, "bench", "--url", f"https://{host}:{s.port}", "--json", "-n", "20", "-c", "4", "-g", "4", "-p", "10", *arguments]
            return subprocess.run(command, capture_output=True, text=True, timeout=300, env={**os.environ, "CURL_CA_BUNDLE": "", **environment})

        def refused(r, *words):
            check(r.returncode == 1 and not r.stdout and all(w in r.stderr for w in words), (r.returncode, r.stdout, r.stderr))

        def answered(r):
            equal(r.returncode, 0, r.stderr)
            j = json.loads(r.stdout)
            equal((j["ok"], j["failed"], j["output_tokens"]), (20, 0, 80))

        trusted = ("--cacert", d + "/cert.pem")
        for model in ((), ("--model", s.name)):  # by the list of models, and by the run itself
            refused(ask(*model), "ertificate", "--cacert", "--insecure")
        refused(ask(*trusted, host="127.0.0.1"), "127.0.0.1")  # the certificate is for another name
        answered(ask(*trusted))
        answered(ask(CURL_CA_BUNDLE=d + "/cert.pem"))
        answered(ask("--insecure", host="127.0.0.1"))
        answered(ask(*trusted, "--rate", "50"))
        s.stop()


@test
def batch_goes_on_after_a_kill():
    with tempfile.TemporaryDirectory() as d:
        n = 24
        with open(d + "/in.jsonl", "w") as f:
            for i in range(n):
                chat = {"model": "any", "messages": [{"role": "user", "content": f"Say {i}"}], "max_tokens": 30, "ignore_eos": True, "temperature": 0}
                if i == 5:
                    chat["tools"] = [{}]
                body = {"prompt": f"{i}", "max_tokens": 30, "ignore_eos": True, "temperature": 0} if i % 2 else chat
                f.write(json.dumps({"custom_id": f"r{i}", "method": "POST", "url": "/v1/completions" if i % 2 else "/v1/chat/completions", "body": {**body, **({"x": 1} if i == 5 else {})}}) + "\n")
        command = [options.rose, "batch", options.model, d + "/in.jsonl", d + "/out.jsonl", "--max-sequences", "2", "--json"]
        p = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until(lambda: os.path.exists(d + "/out.jsonl") and open(d + "/out.jsonl").read().count("\n") >= 5, "five answers")
        p.kill()
        p.wait()
        before = open(d + "/out.jsonl").read().splitlines()
        with open(d + "/out.jsonl", "a") as f:
            f.write('{"custom_id":"r23","resp')  # what a kill in the middle of a line leaves
        r = subprocess.run(command, capture_output=True, text=True, timeout=200)
        equal(r.returncode, 0, r.stderr)
        report = json.loads(r.stdout)
        lines = [json.loads(x) for x in open(d + "/out.jsonl")]
        equal(sorted(x["custom_id"] for x in lines), sorted(f"r{i}" for i in range(n)))
        equal([json.dumps(x) for x in lines[:3]], [json.dumps(json.loads(x)) for x in before[:3]], "answers that were there")
        equal([x["custom_id"] for x in lines if x["response"]["status_code"] != 200], ["r5"])
        check(report["total"] == n and report["skipped"] >= 4 and report["skipped"] + report["done"] == n, report)
        by_id = {x["custom_id"]: x["response"]["body"] for x in lines}
        equal(by_id["r2"]["choices"][0]["message"]["content"], Server.shared().chat(messages=[{"role": "user", "content": "Say 2"}], max_tokens=30, ignore_eos=True)[2]["choices"][0]["message"]["content"])
        # answers of another request by the same name, of other options, or of nobody knows what
        whole = open(d + "/out.jsonl").read()
        with open(d + "/in.jsonl") as f, open(d + "/other.jsonl", "w") as g:
            g.write(f.read().replace("Say 2\"", "Say two\""))
        for words, says in (([*command[:3], d + "/other.jsonl", d + "/out.jsonl"], ["line 3", "r2"]), ([*command, "--kv", "q8_0"], ["--kv", "q8_0"]), (None, [".resume"])):
            if not words:
                os.rename(d + "/out.jsonl.resume", d + "/away")
            r = subprocess.run(words or command, capture_output=True, text=True, timeout=120)
            check(r.returncode == 1 and all(w in r.stderr for w in [*says, "left as it is", "--restart"]), (r.returncode, r.stderr))
            equal(open(d + "/out.jsonl").read(), whole)
        os.rename(d + "/away", d + "/out.jsonl.resume")
        # what holds no answers stays as it is, what has no end is not read
        with open(d + "/diary", "w") as f:
            f.write("a diary without an end")
        for out, words in ((d + "/diary", "something else than answers"), ("/dev/full", "not a regular file")):
            r = subprocess.run([*command[:4], out], capture_output=True, text=True, timeout=120)
            check(r.returncode == 1 and words in r.stderr, (r.returncode, r.stderr))
        equal(open(d + "/diary").read(), "a diary without an end")
        # nothing to do; and inputs that cannot run
        equal(json.loads(subprocess.run(command, capture_output=True, text=True, timeout=120).stdout)["done"], 0)
        for bad in ("{", '{"custom_id":"a"}', '{"custom_id":"a","url":"/v1/embeddings","body":{}}', '{"custom_id":"a","url":"/v1/completions","body":{}}\n' * 2, '{"url":"/v1/completions","body":{}}'):
            with open(d + "/bad.jsonl", "w") as f:
                f.write(bad)
            r = subprocess.run([options.rose, "batch", options.model, d + "/bad.jsonl", d + "/o.jsonl"], capture_output=True, text=True, timeout=120)
            check(r.returncode == 1 and "line" in r.stderr, (bad, r))


main()
