"""rose embed and rose score, with the real all-MiniLM-L6-v2 (scripts/minilm): beside sentence-transformers' own vectors of a hundred texts."""
import json
import math
import os
import struct
import subprocess
import tempfile

from e2e import ROOT, case, equal, fails, main, ok, rose

MODEL = subprocess.run([os.path.join(ROOT, "scripts", "minilm")], check=True, capture_output=True, text=True).stdout.strip()
GOLDEN = os.path.join(ROOT, "tests", "golden")
SIZE = 384


def texts():
    with open(os.path.join(GOLDEN, "minilm_texts.json")) as f:
        return json.load(f)


def reference():
    with open(os.path.join(GOLDEN, "minilm.f16"), "rb") as f:
        values = struct.unpack(f"<{100 * SIZE}e", f.read())
    return [values[i * SIZE:(i + 1) * SIZE] for i in range(100)]


def cosine(a, b):
    dot = sum(x * y for x, y in zip(a, b))
    return dot / math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))


def lines_of(items):
    return "".join(json.dumps(t) + "\n" for t in items).encode()


def embed(*options, items=None):
    out = ok("embed", MODEL, *options, input=lines_of(items if items is not None else texts())).text()
    return [json.loads(line) for line in out.splitlines()]


@case
def a_hundred_texts_as_sentence_transformers():
    got = embed()
    equal([a["index"] for a in got], list(range(100)))
    worst = min(cosine(a["embedding"], b) for a, b in zip(got, reference()))
    assert worst > 0.99999, worst
    assert all(abs(math.sqrt(sum(x * x for x in a["embedding"])) - 1) < 1e-5 for a in got)


@case
def control_tokens():
    """--parse-special: as sentence-transformers takes them; else they are plain text."""
    with open(os.path.join(GOLDEN, "control_tokens.json")) as f:
        golden = json.load(f)
    parsed, plain = ([a["embedding"] for a in embed(*more, items=golden["texts"])] for more in (["--parse-special"], []))
    for i, want in enumerate(golden["embeddings"]):
        assert cosine(parsed[i], want) > 0.99999, golden["texts"][i]
        assert (cosine(plain[i], want) > 0.99999) == (i == 4), golden["texts"][i]
    line = json.dumps({"query": "a [SEP] b", "document": "c"}).encode() + b"\n"
    one, other = (json.loads(ok("score", MODEL, *more, input=line).text())["score"] for more in (["--parse-special"], []))
    assert abs(one - other) > 1e-4, (one, other)
    with tempfile.TemporaryDirectory() as folder:  # answers made the one way are not gone on with the other
        name, out = os.path.join(folder, "in.txt"), os.path.join(folder, "out.jsonl")
        with open(name, "w") as f:
            f.write("a\n")
        ok("embed", MODEL, name, "-o", out)
        fails("embed", MODEL, name, "-o", out, "--parse-special", says="parse-special")


@case
def other_weights():
    for weights, least, mean in ((["f16"], 0.99999, 0.999996), (["bf16"], 0.99995, 0.99998), (["q8_0"], 0.999, 0.9996), (["q8_0", "--deterministic"], 0.9995, 0.9998)):
        c = [cosine(a["embedding"], b) for a, b in zip(embed("--weights", *weights), reference())]
        assert min(c) > least and sum(c) / len(c) > mean, (weights, min(c), sum(c) / len(c))


@case
def the_same_whatever_the_threads():
    one, two = (ok("embed", MODEL, "--threads", n, input=lines_of(texts())).out for n in ("1", "2"))
    equal(one, two)


@case
def formats_and_going_on():
    items = texts()
    plain = embed()
    with tempfile.TemporaryDirectory() as folder:
        name = os.path.join(folder, "in.jsonl")
        with open(name, "wb") as f:
            f.write(lines_of(items))
        for form, head in (("jsonl", 0), ("f32", 0), ("npy", 128)):
            out = os.path.join(folder, "out." + form)
            ok("embed", MODEL, name, "-o", out, "-f", form)
            with open(out, "rb") as f:
                whole = f.read()
            if form != "jsonl":
                equal(len(whole), head + 100 * SIZE * 4)
                first = struct.unpack_from(f"<{SIZE}f", whole, head)
                assert all(abs(a - b) < 1e-7 for a, b in zip(first, plain[0]["embedding"]))
            with open(out, "r+b") as f:  # killed in the middle of an answer
                f.truncate(len(whole) * 2 // 5 + 13)
            r = ok("embed", MODEL, name, "-o", out, "-f", form)
            assert b"answers kept, going on at line" in r.err, r
            with open(out, "rb") as f:
                again = f.read()
            equal(len(again), len(whole))
            if form == "npy":
                assert b"(100, 384)" in again[:128] and again[:6] == b"\x93NUMPY", again[:128]
        fails("embed", MODEL, "-o", out, "-f", "npy", input=b"one line\n", says="belongs to another input")
    fails("embed", MODEL, "-f", "npy", input=b"x\n", says="--output")


def made_by_other_means(folder, run, name, out, changes):
    """Each change of options is refused and leaves the output as it is; --restart writes it anew; the first command finds nothing to do."""
    run(name, "-o", out)
    with open(out, "rb") as f:
        before = f.read()
    for options, says in changes:
        run(name, "-o", out, *options, says=["left as it is", "--restart", *says])
        with open(out, "rb") as f:
            equal(f.read(), before)
    r = run(name, "-o", out)
    assert b"no line is without one" in r.err, r
    equal(run(name, "-o", out, "--quiet").err, b"")
    os.rename(out + ".resume", out + ".away")
    run(name, "-o", out, says=["left as it is", ".resume"])  # as an older version left it
    assert b"kept" not in run(name, "-o", out, "--restart").err
    with open(out, "rb") as f:
        equal(f.read(), before)
    with open(out + ".resume", "ab") as f:
        f.write(b"half a li")
    run(name, "-o", out, says=["is cut short", "was not written by this version"])
    with open(out, "w"):
        pass
    run(name, "-o", out)  # an empty output asks for nothing
    with open(out, "rb") as f:
        equal(f.read(), before)


@case
def answers_of_something_else_are_not_gone_on_with():
    def embedding(*words, says=None):
        return fails("embed", MODEL, *words, says=says) if says else ok("embed", MODEL, *words)

    def scoring(*words, says=None):
        return fails("score", MODEL, *words, says=says) if says else ok("score", MODEL, *words)
    with tempfile.TemporaryDirectory() as folder:
        name, other, out = (os.path.join(folder, n) for n in ("in", "other", "out"))
        with open(name, "w") as f:
            f.write("one\ttwo\nthree\tfour\nfive\tsix\n")
        with open(other, "w") as f:
            f.write("one\ttwo\nthree\tfive\nfive\tsix\n")
        copy = os.path.join(folder, "copy")
        subprocess.run(["cp", "-rL", MODEL, copy], check=True)
        for form in ("jsonl", "npy", "f32"):
            embedding(name, "-f", form, "-o", out + form)
            embedding(other, "-f", form, "-o", out + form, says=["line 2", "another input"])
            equal(ok("embed", copy, name, "-f", form, "-o", out + form).out, b"")  # a copy is the same model
            with open(name) as f:
                r = ok("embed", MODEL, "-f", form, "-o", out + form, input=f.read().encode() + b"seven\n")
            assert b"3 answers kept, going on at line 4" in r.err, r
        with open(os.path.join(copy, "config.json"), "a") as f:
            f.write("\n")
        fails("embed", copy, name, "-o", out + "jsonl", says="another model")
        fails("score", MODEL, name, "-o", out + "jsonl", says=["answers of rose embed"])
        fails("embed", MODEL, name, "-o", name, "--restart", says="is the input")
        made_by_other_means(folder, embedding, name, out, [(o, [o[0]]) for o in (["--dimensions", "64"], ["--pooling", "cls"], ["--normalize", "off"], ["--prompt-name", ""], ["--weights", "bf16"],
                                                                               ["--truncate", "left"], ["--tokens"], ["--deterministic"], ["--ctx", "100"], ["--format", "f32"])])
        made_by_other_means(folder, scoring, name, os.path.join(folder, "scores"), [(o, [o[0]]) for o in (["--query", "x"], ["--top", "3"], ["--truncate", "left"])])


@case
def outputs_that_are_no_answers():
    """What is there and is not this command's stays as it is; what keeps nothing is written, never read."""
    two = b"one\ntwo\n"
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out")
        head = b"\x93NUMPY\x01\x00v\x00" + b"{'descr': '<f4', 'fortran_order': False, 'shape': (1, 7), }".ljust(117) + b"\n"
        for form, content in (("jsonl", b"a diary without an end"), ("jsonl", b"a diary\n"), ("jsonl", b'{"index":0,"embedding":[1]}\n{"index":2,'), ("npy", b"short"),
                              ("npy", b"a diary\n" * 1000), ("npy", head + bytes(28))):
            with open(out, "wb") as f:
                f.write(content)
            fails("embed", MODEL, "-f", form, "-o", out, input=two, says=["left as it is", out])
            with open(out, "rb") as f:
                equal(f.read(), content)
        pairs = os.path.join(folder, "pairs")
        with open(pairs, "wb") as f:
            f.write(b"one\ttwo\n")
        fails("score", MODEL, pairs, "-o", pairs, says=["is the input", "left as it is"])
        with open(pairs, "rb") as f:
            equal(f.read(), b"one\ttwo\n")
        fails("embed", MODEL, "-o", folder, input=two, says="directory")
        pipe = os.path.join(folder, "pipe")
        os.mkfifo(pipe)
        reader = subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE)
        ok("embed", MODEL, "-o", pipe, input=two)
        equal(len(reader.communicate()[0].splitlines()), 2)
    ok("embed", MODEL, "-o", "/dev/null", input=two)
    fails("embed", MODEL, "-o", "/dev/full", input=two, says="No space left")
    fails("embed", MODEL, "-f", "npy", "-o", "/dev/null", input=two, says="regular file")


@case
def options_of_embeddings():
    short = embed("--dimensions", "64", items=["A text."])[0]["embedding"]
    long = embed(items=["A text."])[0]["embedding"]
    norm = math.sqrt(sum(x * x for x in long[:64]))
    assert len(short) == 64 and all(abs(a - b / norm) < 1e-6 for a, b in zip(short, long))
    raw = embed("--normalize", "off", items=["A text."])[0]["embedding"]
    assert abs(cosine(raw, long) - 1) < 1e-6 and abs(sum(x * x for x in raw) - 1) > 1e-3
    cls = embed("--pooling", "cls", items=["A text."])[0]["embedding"]
    rows = embed("--tokens", items=["A text."])[0]["embeddings"]
    equal(len(rows), 5)
    assert abs(cosine(cls, rows[0]) - 1) < 1e-6
    mean = [sum(r[i] for r in rows) / len(rows) for i in range(SIZE)]
    assert abs(cosine(mean, long) - 1) < 1e-6


@case
def long_texts():
    long = "word " * 1000
    fails("embed", MODEL, input=long.encode(), says=["line 1", "256"])
    left, right = (embed("--truncate", side, items=["start " + long + "end"])[0]["embedding"] for side in ("left", "right"))
    equal(right, embed(items=["start " + "word " * 253])[0]["embedding"])
    equal(left, embed(items=["word " * 253 + "end"])[0]["embedding"])


@case
def lines():
    got = ok("embed", MODEL, input=b'plain\n"plain"\n{"text": "plain"}\n{"input": "plain"}\r\n"quoted" at the start\n\n').text().splitlines()
    equal(len(got), 6)
    vectors = [json.loads(g)["embedding"] for g in got]
    assert vectors[0] == vectors[1] == vectors[2] == vectors[3] != vectors[4]
    fails("embed", MODEL, input=b'ok\n{"text": 3}\n', says=["line 2", '"text"'])
    fails("embed", MODEL, input=b'{"text": \n', says=["line 1", "JSON", "is written as a JSON string"])
    equal(ok("embed", MODEL, input=b"").out, b"")


@case
def pairs_by_their_embeddings():
    items = texts()[:12]
    vectors = [a["embedding"] for a in embed(items=items)]
    plain = "".join(f"{items[0]}\t{t}\n" for t in items if "\t" not in t).encode()
    want = [cosine(vectors[0], v) for t, v in zip(items, vectors) if "\t" not in t]
    got = [json.loads(line) for line in ok("score", MODEL, input=plain).text().splitlines()]
    equal([a["index"] for a in got], list(range(len(want))))
    assert all(abs(a["score"] - b) < 1e-5 for a, b in zip(got, want)), (got, want)
    ranked = json.loads(ok("score", MODEL, "--top", "3", input=json.dumps({"query": items[0], "documents": items}).encode()).out)["results"]
    best = sorted(range(12), key=lambda i: -cosine(vectors[0], vectors[i]))[:3]
    equal([r["index"] for r in ranked], best)
    fails("score", MODEL, input=b"alone\n", says=["line 1", "pairs"])
    fails("score", MODEL, "--raw", input=b"a\tb\n", says="embeds")
    fails("score", MODEL, input=b'{"query": "a", "documents": []}\n', says=["line 1", "empty"])
    fails("score", MODEL, "--query", "q", input=b"short\n" + b"word " * 1000, says=["line 2", "256"])


@case
def scoring_goes_on():
    items = texts()[:30]
    lines = [json.dumps({"query": items[i], "documents": items[i + 1:i + 5]}) if i % 3 == 2 else json.dumps({"query": items[i], "document": items[i + 1]}) for i in range(25)]
    with tempfile.TemporaryDirectory() as folder:
        name, out = os.path.join(folder, "in.jsonl"), os.path.join(folder, "out.jsonl")
        with open(name, "w") as f:
            f.write("\n".join(lines) + "\n")
        ok("score", MODEL, name, "-o", out)
        with open(out, "rb") as f:
            whole = f.read()
        equal([json.loads(line)["index"] for line in whole.splitlines()], list(range(25)))
        for cut in (0, 13, len(whole) * 2 // 5 + 3, len(whole) - 1, len(whole)):  # killed in the middle of an answer, between two, at the end
            with open(out, "r+b") as f:
                f.truncate(cut)
            ok("score", MODEL, name, "-o", out)
            with open(out, "rb") as f:
                again = f.read()
            assert len(again.splitlines()) == 25, cut
            for a, b in zip(again.splitlines(), whole.splitlines()):
                a, b = json.loads(a), json.loads(b)
                equal(a["index"], b["index"])
                scores = [(x["index"], x["score"]) for x in a.get("results", [{"index": 0, "score": a.get("score")}])]
                want = [(x["index"], x["score"]) for x in b.get("results", [{"index": 0, "score": b.get("score")}])]
                assert all(x[0] == y[0] and abs(x[1] - y[1]) < 1e-5 for x, y in zip(scores, want)), (a, b)
        fails("score", MODEL, "-o", out, input=b"one\tline\n", says="belongs to another input")


@case
def what_it_cannot_do():
    fails("run", MODEL, "x", says="cannot generate text")
    fails("embed", MODEL, "--prompt-name", "query", input=b"x\n", says="no prompt")
    fails("embed", MODEL, "--sparse", input=b"x\n", says="lexical head")
    fails("embed", MODEL, "--dimensions", "385", input=b"x\n", says="384")
    assert b"512" in ok("embed", MODEL, "--ctx", "1000", input=b"x\n").err
    fails("embed", MODEL, "--nonsense", status=2)
    fails("embed", MODEL, "--sparse", "-f", "npy", status=2)


@case
def what_the_model_does_not_have_is_no_fault_of_a_line():
    for options, says in ((["-d", "385"], ["--dimensions 385", "384 values"]), (["-d", "385", "--tokens"], ["384 values", "a token"]), (["-p", "nothing"], ["--prompt-name nothing", "it has: none"]),
                          (["--sparse"], ["--sparse", "no lexical head"])):
        r = fails("embed", MODEL, *options, input=b"a\nb\n", says=says)
        assert b"line 1" not in r.err, r
    embed("-d", "384", "-p", "", items=["a"])


@case
def a_batch_stops_at_a_model_that_writes_no_text():
    with tempfile.TemporaryDirectory() as d:
        with open(d + "/in", "w") as f:
            f.write(json.dumps({"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"prompt": "a"}}) + "\n")
        fails("batch", MODEL, d + "/in", d + "/out", says=["writes no text", "rose embed"])
        assert not os.path.exists(d + "/out")


@case
def inspect_plans_no_cache_for_an_encoder():
    memory = ok("inspect", MODEL, "--json").json()["memory"]
    equal(sorted(memory), ["fits", "free_bytes", "needed_bytes", "total_bytes", "weights_bytes"])
    equal(memory["needed_bytes"], memory["weights_bytes"])
    text = ok("inspect", MODEL).text()
    assert "memory: weights" in text and "cache" not in text, text


@case
def bench_of_an_encoder():
    b = ok("bench", MODEL, "-p", "16", "-b", "8", "-r", "1", "--json").json()
    equal(sorted(b), ["device", "load_s", "model", "one_text_s", "peak_rss_mb", "texts", "texts_s", "tok_s", "tokens"])
    equal((b["texts"], b["tokens"]), (8, 128))
    # It writes nothing: tokens to write (128 where nothing is said, beside 512) take none of its 512 positions.
    b = ok("bench", MODEL, "-p", "16", "-g", "600", "-r", "1", "--json", "--profile")
    equal((b.json()["texts"], b.json()["tokens"]), (1, 16))
    assert b.json()["one_text_s"] > 0 and b"attention" in b.err and b"--ctx" not in b.err, b
    fails("bench", MODEL, "-p", "513", says="--prompt 513: nreimers/MiniLM-L6-H384-uncased takes 512 tokens at most")


@case
def a_context_beyond_its_positions():
    """--ctx is for all models of a server: an encoder takes the positions it has."""
    text = "word " * 600
    long = ok("embed", MODEL, "--ctx", "2048", "--truncate", "right", "-q", input=text.encode())
    equal(long.out, ok("embed", MODEL, "--ctx", "512", "--truncate", "right", "-q", input=text.encode()).out)
    fails("embed", MODEL, "--ctx", "2048", "-q", input=text.encode(), says="the model takes 512 at most")
    assert b"--ctx 2048 is more than the 512 tokens" in ok("embed", MODEL, "--ctx", "2048", input=b"a").err


main()
