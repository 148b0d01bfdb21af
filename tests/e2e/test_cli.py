"""The program as users see it: commands, JSON shapes, exit statuses, bad input. With the small real model that the demo brings."""
import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile

import e2e
from e2e import ROOT, ROSE, case, directory, environment, equal, fails, main, ok, rose

MODEL = e2e.model()
WEIGHTS = os.path.join(ROOT, "tests", "golden", "weights")
RUN = ("-n", "8", "--quiet")


@case
def help_of_everything():
    top = ok("--help").text()
    commands = [line.split()[0] for line in top.splitlines() if line.startswith("  ")]
    for command in ("run", "chat", "tokenize", "render", "inspect", "bench", "pull", "kernels"):
        assert command in commands, top
    for command in commands:
        text = ok(command, "--help").text()
        assert text.startswith(f"usage: rose {command} "), text
        equal(ok("help", command).text(), text)
        assert max(len(line) for line in text.splitlines()) <= 120, text
    for command in ("man", "completion"):
        assert ok(command, "--help").text().startswith(f"usage: rose {command}\n\n")
    equal(ok("--version").text().split()[0], "rose")


@case
def the_python_example_answers():
    library = os.path.join(os.environ["ROSE_BUILD"], "librose.so")
    example = [sys.executable, "-B", os.path.join(ROOT, "examples", "rose_ctypes.py")]
    question = "What is the capital of France?"
    done = subprocess.run([*example, MODEL, question, library], capture_output=True, text=True, timeout=120)
    equal((done.returncode, done.stdout.strip()), (0, ok("run", MODEL, question, "-n", "64", "--quiet").text().strip()))
    done = subprocess.run([*example, "nope", question, library], capture_output=True, text=True, timeout=120)
    equal(done.returncode, 1)
    assert "nope" in done.stderr, done.stderr


@case
def usage_errors_have_status_2():
    for words in ([], ["nonsense"], ["run"], ["run", MODEL, "a", "b"], ["run", MODEL, "x", "--nonsense"], ["run", MODEL, "x", "--threads", "many"],
                  ["run", MODEL, "x", "--threads", "-3"], ["run", MODEL, "x", "--kv", "f8"], ["run", MODEL, "x", "--logprobs", "3"], ["run", MODEL, "x", "--seed"],
                  ["tokenize"], ["render"], ["inspect"], ["bench"], ["pull"], ["chat"], ["kernels"], ["kernels", "layout"], ["bench", MODEL, "--batch", "0"],
                  ["run", MODEL, "x", "--device", "foo"], ["run", MODEL, "x", "--device", "cuda:x"], ["bench", MODEL, "--device", "cudaa"],
                  ["run", MODEL, "x", "--logit-bias", "abc"], ["run", MODEL, "x", "--stop", ""], ["chat", MODEL, "--logit-bias", "1=x"], ["run", MODEL, "x", "--logit-bias", "-1=2"]):
        result = rose(*words)
        equal((result.rc, result.out), (2, b""))
        assert result.err, words


@case
def run_json_has_the_documented_shape():
    answer = ok("run", MODEL, "What is gravity?", *RUN, "--json", "--logprobs", "2", "--prompt-logprobs", "1").json()
    equal(sorted(answer), ["finish_reason", "logprobs", "prompt_logprobs", "text", "timings", "token_ids", "usage"])
    usage = answer["usage"]
    equal((usage["completion_tokens"], len(answer["token_ids"]), answer["finish_reason"]), (8, 8, "length"))
    equal(usage["total_tokens"], usage["prompt_tokens"] + 8)
    equal(len(answer["prompt_logprobs"]), usage["prompt_tokens"])
    equal(answer["prompt_logprobs"][0]["logprob"], None)
    equal([entry["id"] for entry in answer["logprobs"]], answer["token_ids"])
    equal("".join(entry["token"] for entry in answer["logprobs"]), answer["text"])
    for entry in answer["logprobs"] + answer["prompt_logprobs"][1:]:
        assert -50 < entry["logprob"] <= 0 and sorted(entry) == ["id", "logprob", "token", "top"], entry
    for entry in answer["logprobs"]:
        equal(len(entry["top"]), 2)
        equal(entry["top"][0]["id"], entry["id"])  # greedy takes the likeliest
        assert entry["top"][0]["logprob"] >= entry["top"][1]["logprob"]
    for name in ("load_s", "prefill_s", "decode_s", "ttft_s", "prefill_tok_s", "decode_tok_s"):
        assert answer["timings"][name] > 0, name
    plain = ok("run", MODEL, "What is gravity?", *RUN).text()
    equal(plain, answer["text"] + "\n")
    assert set(ok("run", MODEL, "x", *RUN, "--json").json()) == set(answer) - {"logprobs", "prompt_logprobs"}


@case
def packed_weights_are_kept():
    with tempfile.TemporaryDirectory(dir="/var/tmp") as home:
        env = {"XDG_CACHE_HOME": home, "ROSE_PACKED_CACHE": None}
        folder = os.path.join(home, "rose", "packed")
        words = ("run", MODEL, "What is gravity?", *RUN, "--device", "cpu", "--log", "info")
        off = ok(*words, "--packed-cache", "off", env=env)
        assert not os.path.exists(folder)
        first = ok(*words, env=env)
        name, = os.listdir(folder)
        path = os.path.join(folder, name)
        assert b"earlier start" not in first.err, first
        second = ok(*words, env=env)
        assert b"earlier start" in second.err, second
        equal((first.out, second.out), (off.out, off.out))
        with open(path, "r+b") as f:  # what is no longer the model's weights is packed anew
            f.write(bytes(os.path.getsize(path) // 2))
        third = ok(*words, env=env)
        assert b"were damaged and are packed anew" in third.err and b"are packed anew" not in second.err, third
        equal(third.out, off.out)
        fourth = ok(*words, env=env)
        assert b"earlier start" in fourth.err, fourth
        equal(fourth.out, off.out)


@case
def a_file_that_shrinks_in_use_is_told():
    with tempfile.TemporaryDirectory(dir="/var/tmp") as home:
        env = {"XDG_CACHE_HOME": home, "ROSE_PACKED_CACHE": None}
        words = ("run", MODEL, "Count to a thousand, in words.", "--device", "cpu", "--quiet", "-n")
        ok(*words, "1", env=env)
        folder = os.path.join(home, "rose", "packed")
        with subprocess.Popen([ROSE, *words, "5000", "--ignore-eos"], env=environment(env), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
            child.stdout.read(1)  # it answers, from the file
            os.truncate(os.path.join(folder, *os.listdir(folder)), 4096)
            _, told = child.communicate(timeout=120)
            equal(child.returncode, 1)
            assert told.decode().count("became shorter while it was in use") >= 1, told


@case
def packed_weights_are_listed_and_cleared():
    with tempfile.TemporaryDirectory(dir="/var/tmp") as home:
        env = {"XDG_CACHE_HOME": home, "ROSE_PACKED_CACHE": None}
        nothing = ok("cache", "--json", env=env).json()
        equal((nothing["files"], nothing["bytes"], nothing["folder"]), ([], 0, os.path.join(home, "rose", "packed")))
        copies = [os.path.join(home, name) for name in ("one.gguf", "two.gguf", "three.gguf")]
        for path in copies:
            shutil.copy(MODEL, path)
            ok("run", path, "Hi", "-n", "1", "--device", "cpu", "--packed-cache", "250M", env=env)
        seen = ok("cache", "--json", "--packed-cache", "250M", env=env).json()  # 96 MB each
        equal(([f["model"] for f in seen["files"]], seen["limit_bytes"]), ([copies[2], copies[1]], 250 << 20))
        equal({f["state"] for f in seen["files"]}, {"current"})
        equal(sum(f["bytes"] for f in seen["files"]), seen["bytes"])
        os.utime(copies[1])
        text = ok("cache", env=env).text()
        assert "changed  " + copies[1] in text and "current  " + copies[2] in text, text
        small = ok("run", copies[1], "Hi", "-n", "1", "--device", "cpu", "--packed-cache", "1M", "--log", "info", env=env)  # nothing is written, nothing goes
        equal((len(ok("cache", "--json", env=env).json()["files"]), b"earlier start" in small.err), (2, False))
        cleared = ok("cache", "--clear", "--json", env=env).json()
        equal((cleared["removed"], cleared["removed_bytes"], cleared["files"], cleared["bytes"]), (2, seen["bytes"], [], 0))
        equal(os.listdir(os.path.join(home, "rose", "packed")), [])
        fails("run", MODEL, "Hi", "--packed-cache", "much", status=2, says=["--packed-cache", "much"], env=env)
        fails("cache", "--packed-cache", "0", status=2, says="--packed-cache", env=env)


@case
def prompts_from_standard_input():
    said = ok("run", MODEL, "What is gravity?", *RUN).text()
    equal(ok("run", MODEL, *RUN, input=b"What is gravity?").text(), said)
    equal(ok("run", MODEL, "-", *RUN, input=b"What is gravity?").text(), said)
    raw = ok("run", MODEL, "--raw", "The capital of France is", *RUN, "--json").json()
    assert "Paris" in raw["text"], raw
    fails("run", MODEL, *RUN, "--raw", input=b"", says="")


@case
def sampling_is_reproducible():
    how = ("run", MODEL, "Tell me a story", "-n", "24", "--temperature", "1", "--quiet")
    one = ok(*how, "--seed", "5").text()
    equal(ok(*how, "--seed", "5", "--threads", "1").text(), one)
    assert ok(*how, "--seed", "6").text() != one
    whole = ok("run", MODEL, "Count from one to five in words.", "-n", "40").text()
    word = whole.split()[3]
    stopped = ok("run", MODEL, "Count from one to five in words.", "-n", "40", "--stop", word, "--json").json()
    equal((stopped["finish_reason"], stopped["text"]), ("stop", whole[: whole.index(word)]))
    first = ok("run", MODEL, "Hi", "-n", "1", "--json").json()["token_ids"][0]
    assert ok("run", MODEL, "Hi", "-n", "1", "--json", "--logit-bias", f"{first}=-100").json()["token_ids"][0] != first
    fails("run", MODEL, "Hi", "--logit-bias", "x", status=2, says="--logit-bias")


@case
def text_commands_have_no_engine_options():
    for command in ("tokenize", "render"):
        text = ok(command, "--help").text()
        assert "--quiet" in text and "--threads" not in text and "--kv" not in text, text
        fails(command, MODEL, "--kv", "f16", status=2)
    assert "--parse-special" in ok("tokenize", "--help").text() and "--chat-template" in ok("render", "--help").text()


@case
def tokenize_both_ways():
    text = "Hello wörld\n 123 🙂"
    ids = ok("tokenize", MODEL, text, "--json").json()
    equal(list(ids), ["ids"])
    equal(ok("tokenize", MODEL, "--decode", " ".join(map(str, ids["ids"]))).text().rstrip("\n"), text)
    equal(ok("tokenize", MODEL, "--json", input=text.encode()).json(), ids)
    plain = ok("tokenize", MODEL, "<|im_start|>", "--json").json()["ids"]
    special = ok("tokenize", MODEL, "<|im_start|>", "--json", "--parse-special").json()["ids"]
    assert len(plain) > 1 and special == [1], (plain, special)
    fails("tokenize", MODEL, "--decode", "99999999", says="99999999")
    fails("tokenize", MODEL, "--decode", "1 x", says="byte 2")


@case
def render_by_model_and_by_file():
    chat = {"messages": [{"role": "user", "content": "hi"}]}
    without = ok("render", MODEL, input=json.dumps(chat).encode()).text()
    assert without.endswith("<|im_start|>user\nhi<|im_end|>\n"), without
    chat["add_generation_prompt"] = True
    text = ok("render", MODEL, input=json.dumps(chat).encode()).text()
    assert text.endswith("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"), text
    with directory() as d:
        template, data = os.path.join(d, "a template.jinja"), os.path.join(d, "in.json")
        open(template, "w").write("{% for m in messages %}{{ loop.index }}:{{ m.content | upper }}{{ extra }}\n{% endfor %}")
        json.dump({**chat, "extra": 7}, open(data, "w"))
        equal(ok("render", "--template", template, data).text(), "1:HI7\n")
        open(template, "w").write("line one\n{% for %}")
        fails("render", "--template", template, data, says=[template, "2"])
        fails("render", "--template", os.path.join(d, "none"), data, says="none")
        open(template, "w").write("{{ raise_exception('no such role') }}")
        fails("render", "--template", template, data, says="no such role")
    fails("render", MODEL, input=b"{", says="")
    fails("render", MODEL, input=b"[]", says="object")


@case
def more_threads_than_cores():
    r = ok("run", MODEL, "hi", "-n", "2", "--threads", "200")
    assert b"--threads 200 on" in r.err and b"take turns" in r.err, r
    equal(ok("run", MODEL, "hi", "-n", "2", "--threads", "200", "--quiet").err, b"")


@case
def inspect_says_what_is_there():
    d = ok("inspect", MODEL, "--json", "--ctx", "1000", "--batch", "3").json()
    equal(sorted(d), sorted(["path", "format", "architecture", "name", "files", "parameters", "bytes", "types", "tensors", "config", "metadata", "tokenizer",
                             "chat_template", "memory", "runs", "problems"]))
    equal((d["format"], d["architecture"], d["parameters"], d["runs"], d["problems"]), ("gguf", "llama", 134515008, True, []))
    equal(sum(t["parameters"] for t in d["types"]), d["parameters"])
    equal(sum(t["tensors"] for t in d["types"]), len(d["tensors"]))
    equal((d["config"]["layers"], d["config"]["hidden"], d["config"]["kv_heads"]), (30, 576, 3))
    memory = d["memory"]
    equal((memory["context"], memory["sequences"], memory["fits"]), (1000, 3, True))
    equal(memory["kv_bytes_per_token"], 30 * 2 * 3 * 64 * 2)
    equal(memory["needed_bytes"], memory["weights_bytes"] + memory["kv_bytes"] + memory["history_bytes"])
    text = ok("inspect", MODEL, "--tensors").text()
    assert "Q4_1" in text and "token_embd.weight" in text and "it fits" in text, text
    equal(ok("inspect", MODEL, "--template").text(), d["chat_template"])
    # What Rose cannot run is listed, with the reason.
    d = ok("inspect", os.path.join(WEIGHTS, "types.gguf"), "--json").json()
    equal((d["runs"], d["config"], d["memory"]), (False, None, None))
    assert d["tensors"] and d["problems"], d["problems"]
    d = ok("inspect", os.path.join(WEIGHTS, "types.safetensors"), "--json").json()
    assert d["tensors"] and not d["runs"]
    huge = ok("inspect", MODEL, "--json", "--ctx", "8000", "--batch", "4096", "--kv", "f32").json()["memory"]
    pages = -(-8000 // huge["page_tokens"])
    equal((huge["fits"], huge["kv_bytes"]), (False, 4096 * pages * huge["page_tokens"] * huge["kv_bytes_per_token"]))
    assert huge["fits_sequences"] * huge["kv_bytes"] // 4096 < huge["free_bytes"] < huge["needed_bytes"], huge
    assert "it does not fit" in ok("inspect", MODEL, "--ctx", "8000", "--batch", "4096", "--kv", "f32").text()
    # A tensor that the model wants and the file calls otherwise: both names, and that it does not run.
    with directory() as d:
        with open(MODEL, "rb") as f:
            data = f.read()
        path = os.path.join(d, "renamed.gguf")
        with open(path, "wb") as f:
            f.write(data.replace(b"blk.3.attn_q.weight", b"blk.3.attn_z.weight", 1))
        d = ok("inspect", path, "--json").json()
        assert not d["runs"] and len(d["problems"]) == 1 and "blk.3.attn_q.weight" in d["problems"][0] and "blk.3.attn_z.weight" in d["problems"][0], d["problems"]


@case
def bench_prints_its_keys():
    d = ok("bench", MODEL, "--prompt", "16", "--gen", "4", "--batch", "2", "--repeat", "1", "--threads", "2", "--json").json()
    for key in ("prefill_tok_s", "decode_tok_s", "ttft_s", "load_s", "peak_rss_mb"):
        assert d[key] > 0, d


@case
def layouts():
    text = ok("kernels", "layout", "(4,8):(8,1)", "--draw").text()
    assert "31" in text and "coalesced" in text and "\x1b" not in text, text
    assert "\x1b" in ok("kernels", "layout", "(4,8):(8,1)", "--draw", "--color").text()
    fails("kernels", "layout", "(4,8", says="")
    fails("kernels", "layout", "(4,8):(8,1)", "--json", says="--draw", status=2)
    fails("kernels", "layout", "(4,8):(8,1)", "--batch", "4", says="--draw", status=2)
    fails("kernels", MODEL, "--draw", says="a layout", status=2)
    for numbers in ("", "1,", "1,,2", "0"):
        fails("kernels", MODEL, "--batch", numbers, says="a list of numbers", status=2)
    fails("kernels", MODEL, "--export", "", says="name a directory", status=2)
    fails("bench", "norm", "--arch", "sm_90a", "--device", "cpu", says="--device", status=2)
    usage = ok("bench", "norm", "--help").text()
    assert "norm|qk|" in usage and "pages|logprob|" in usage and usage.count("--weights") == 1, usage


@case
def chats_keep_the_conversation():
    said = ok("chat", MODEL, "-n", "8", "--quiet", input=b"What is gravity?\n/clear\nWhat is gravity?\n").text().splitlines()
    equal(len(said), 2)
    equal(said[0], said[1])
    name = ok("chat", MODEL, "-n", "24", input=b"My name is Zanzibar. Remember it.\nWhat is my name?\n").text()
    assert "Zanzibar" in name, name
    pirate = ok("chat", MODEL, "-n", "8", "--system", "You are a pirate.", input=b"hi\n/system\nhi\n/system You are a pirate.\nhi\n").text().splitlines()
    equal((len(pirate), pirate[0]), (3, pirate[2]))
    assert pirate[0] != pirate[1], pirate
    help_text = ok("chat", MODEL, input=b"/help\n/nonsense\n/exit\nnever read\n").text()
    assert help_text.count("/clear") == 2 and "/nonsense" in help_text, help_text


@case
def interrupt_stops_the_answer():
    # A run that is stopped prints what there is, and a script sees that it was stopped.
    p = subprocess.Popen([ROSE, "run", MODEL, "Write a very long story.", "--ignore-eos", "-n", "4000"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    p.stdout.read(10)
    p.send_signal(signal.SIGINT)
    out, err = p.communicate(timeout=120)
    equal((p.returncode, err, out[-1:]), (-signal.SIGINT, b"", b"\n"))
    # A chat goes on with the next line.
    p = subprocess.Popen([ROSE, "chat", MODEL, "--ignore-eos", "--quiet"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    p.stdin.write(b"Write a very long story.\n")
    p.stdin.flush()
    p.stdout.read(10)
    p.send_signal(signal.SIGINT)
    out, err = p.communicate(b"/help\n/exit\n", timeout=120)
    equal((p.returncode, err), (0, b""))
    assert b"/clear" in out, out[-500:]
    # Without a terminal there is nobody who would type the next line.
    p = subprocess.Popen([ROSE, "chat", MODEL, "-n", "4", "--stop", "\n", "--quiet"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    p.stdin.write(b"Hello\n")
    p.stdin.flush()
    assert p.stdout.readline().endswith(b"\n")
    p.send_signal(signal.SIGINT)
    equal((p.wait(timeout=120), p.stderr.read()), (-signal.SIGINT, b""))
    p.stdin.close()


@case
def closed_and_full_outputs():
    # A pipe much smaller than the answer: it cannot be written before the other end is closed.
    p = subprocess.Popen([ROSE, "run", MODEL, "Write a very long story.", "--ignore-eos", "-n", "4000"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, pipesize=4096)
    p.stdout.read(10)
    p.stdout.close()
    equal(p.wait(timeout=120), 1)
    assert p.stderr.read().startswith(b"rose: cannot write"), "no sentence"
    with open("/dev/full", "wb") as full:
        bench = ["bench", "act", "--seconds", "0.001", "--shape", "rows=1", "--shape", "cols=64"]
        for option in ("--csv", "--svg"):
            done = subprocess.run([ROSE, *bench, option, "/dev/full"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=120)
            equal(done.returncode, 1)
            assert b"cannot write /dev/full" in done.stderr, done.stderr
        for words in (["--help"], ["run", MODEL, "hi", "-n", "2"], ["tokenize", MODEL, "hi"], ["kernels", "layout", "(4,8):(8,1)"], bench):
            done = subprocess.run([ROSE, *words], stdout=full, stderr=subprocess.PIPE, timeout=120)
            equal(done.returncode, 1)
            assert b"cannot write" in done.stderr, done.stderr


@case
def hostile_and_broken_files():
    content = open(MODEL, "rb").read(4 << 20)
    size = os.path.getsize(MODEL)
    with directory() as d:
        def refused(name, data, says=""):
            path = os.path.join(d, name)
            open(path, "wb").write(data)
            for command in (["run", path, "hi", "-n", "1"], ["inspect", path], ["tokenize", path, "hi"]):
                fails(*command, says=[name, *([says] if says else [])])

        refused("empty.gguf", b"")
        refused("garbage.gguf", random.Random(1).randbytes(100000))
        refused("zeros.safetensors", bytes(4096))
        refused("text.gguf", b"hello\n" * 100)
        for at in (1, 4, 12, 30, 1000, 500_000, 4 << 20):
            refused("truncated.gguf", content[:at], "truncated.gguf")
        # The whole header, half of the tensors.
        path = os.path.join(d, "half.gguf")
        shutil.copy(MODEL, path)
        os.truncate(path, size // 2)
        fails("run", path, "hi", says="half.gguf")
        # Bits flipped all over the header: a sentence, or an answer, never a crash.
        dice = random.Random(2)
        for _ in range(25):
            data = bytearray(content[:1_800_000])
            for _ in range(dice.choice((1, 4, 64))):
                data[dice.randrange(min(len(data), dice.choice((100, 2000, 1_780_000))))] ^= 1 << dice.randrange(8)
            path = os.path.join(d, "flipped.gguf")
            with open(path, "wb") as f:
                f.write(data)
                f.truncate(size)  # the tensors are a hole of zeros
            result = rose("run", path, "hi", "-n", "1")
            assert result.rc in (0, 1), result
            assert result.rc == 0 or result.err.startswith(b"rose: "), result


@case
def directories_and_paths():
    with directory() as d:
        fails("run", os.path.join(d, "nowhere"), "hi", says="nowhere")
        fails("run", os.path.join(d, "nowhere.gguf"), "hi", says="nowhere.gguf")
        fails("run", d, "hi", says=[d, "safetensors"])
        header = json.dumps({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
        open(os.path.join(d, "model.safetensors"), "wb").write(len(header).to_bytes(8, "little") + header + bytes(4))
        fails("run", d, "hi", says=d)
        open(os.path.join(d, "config.json"), "w").write("{")
        fails("run", d, "hi", says="config.json")
        open(os.path.join(d, "config.json"), "w").write('{"model_type": "llama"}')
        fails("run", d, "hi", says=d)
        os.remove(os.path.join(d, "model.safetensors"))
        fails("run", "/dev/null", "hi", says="/dev/null")
        fails("run", "", "hi", says="model")
        fails("run", "acme/none", "hi", env={"HF_HOME": d}, says="rose pull acme/none")
        fails("run", "x" * 5000, "hi", says="")
        if os.getuid() != 0:
            path = os.path.join(d, "secret.gguf")
            open(path, "w").close()
            os.chmod(path, 0)
            fails("run", path, "hi", says="secret.gguf")
        # A model by a path with a space.
        link = os.path.join(d, "my model.gguf")
        os.symlink(MODEL, link)
        ok("run", link, "hi", "-n", "1")


@case
def what_does_not_fit():
    fails("run", MODEL, "hi", "--ctx", str(1 << 29), says="use --ctx 8192, which the model was made for")
    long_prompt = "word " * 3000
    fails("run", MODEL, "--raw", "--ctx", "256", input=long_prompt.encode(), says=["256"])
    fails("run", MODEL, "hi", "--device", "tpu", status=2, says="tpu")
    fails("run", MODEL, "hi", "--chat-template", "/nonexistent", says="/nonexistent")
    with directory() as d:
        path = os.path.join(d, "loop.jinja")
        open(path, "w").write("{% for a in range(99999) %}{% for b in range(99999) %}{{ 'x' * 1000 }}{% endfor %}{% endfor %}")
        fails("run", MODEL, "hi", "--chat-template", path, says="")


def sparse_llama(d, layers):
    """A checkpoint as wide as Llama 3 70B, BF16, of holes behind its header; returns its bytes."""
    hidden, ffn, kv, vocabulary = 8192, 28672, 1024, 512
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": hidden, "intermediate_size": ffn, "num_hidden_layers": layers,
              "num_attention_heads": 64, "num_key_value_heads": 8, "vocab_size": vocabulary, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5,
              "rope_theta": 1e4, "hidden_act": "silu", "tie_word_embeddings": True, "torch_dtype": "bfloat16"}
    letters = [chr(c) for c in (*range(33, 127), *range(161, 173), *range(174, 256), *range(256, 324))]
    tokenizer = {"version": "1.0", "added_tokens": [], "normalizer": None, "post_processor": None, "decoder": {"type": "ByteLevel"},
                 "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
                 "model": {"type": "BPE", "vocab": {c: i for i, c in enumerate(letters)}, "merges": []}}
    shapes = [("model.embed_tokens", vocabulary, hidden), ("model.norm", hidden)]
    for i in range(layers):
        shapes += [(f"model.layers.{i}.{name}", *shape) for name, *shape in (
            ("input_layernorm", hidden), ("post_attention_layernorm", hidden), ("self_attn.q_proj", hidden, hidden), ("self_attn.k_proj", kv, hidden),
            ("self_attn.v_proj", kv, hidden), ("self_attn.o_proj", hidden, hidden), ("mlp.gate_proj", ffn, hidden), ("mlp.up_proj", ffn, hidden),
            ("mlp.down_proj", hidden, ffn))]
    table, at = {}, 0
    for name, *shape in shapes:
        size = 2 * math.prod(shape)
        table[name + ".weight"] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    head = json.dumps(table).encode()
    head += b" " * (-len(head) % 8)
    for name, content in (("config.json", config), ("tokenizer.json", tokenizer)):
        with open(os.path.join(d, name), "w") as f:
            json.dump(content, f)
    with open(os.path.join(d, "model.safetensors"), "wb") as f:
        f.write(len(head).to_bytes(8, "little") + head)
        f.truncate(8 + len(head) + at)
    return at


@case
def files_of_a_tokenizer_at_fault_are_named():
    with directory() as d:
        sparse_llama(d, 1)
        for name, text, says in (("tokenizer.json", "", "or an empty one"), ("tokenizer.json", "{}", "tokenizer.json: the member model is missing"),
                                 ("tokenizer_config.json", "nul", "(tokenizer_config.json)")):
            for file, content in (("tokenizer.json", "{}"), (name, text)):
                with open(os.path.join(d, file), "w") as f:
                    f.write(content)
            fails("tokenize", d, "Hi", says=[d, says])


@case
def weights_that_have_no_room():
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with directory() as d:
        # More than there is: told before anything is taken, with the file and what to do.
        size = sparse_llama(d, int(1.5 * memory / 1.7e9) + 2)
        assert size > memory, (size, memory)
        fails("run", d, "hi", "--raw", "-n", "1", says=[d, f"the weights need {size / 1e9:.1f} GB", "use a smaller quantisation"], timeout=60)
        assert "it does not fit" in ok("inspect", d).text()
    with directory() as d:
        # The process may address less: too little to map the file, or to have the weights beside it.
        size = sparse_llama(d, 2)
        for limit, says in ((size // 2, ["cannot map", "model.safetensors", "ulimit -v"]), (size + (1 << 30), [d, "the weights need", "ulimit -v"])):
            done = subprocess.run(["prlimit", f"--as={limit}", e2e.ROSE, "run", d, "hi", "--raw", "-n", "1", "--threads", "1"], capture_output=True, timeout=60)
            message = done.stderr.decode()
            equal(done.returncode, 1)
            assert all(word in message for word in says), message


@case
def the_man_page_and_completion():
    with directory() as d:
        page = os.path.join(d, "rose.1")
        open(page, "wb").write(ok("man").out)
        done = subprocess.run(["man", "--warnings", "-l", page], capture_output=True, env={**os.environ, "LC_ALL": "C.UTF-8", "MANWIDTH": "100"})
        equal((done.returncode, done.stderr), (0, b""))
        for word in (b"--temperature", b"rose inspect", b"EXIT STATUS", b"HF_TOKEN"):
            assert word in done.stdout.replace("‐".encode(), b"-"), word
        script = os.path.join(d, "completion")
        open(script, "wb").write(ok("completion").out)
        done = subprocess.run(["bash", "-c", 'source "$0"; COMP_WORDS=(rose run --temp); COMP_CWORD=2; _rose; echo "${COMPREPLY[@]}"', script], capture_output=True)
        equal(done.stdout, b"--temperature\n")


@case
def the_program_is_small():
    with directory() as d:
        stripped = os.path.join(d, "rose")
        subprocess.run(["strip", "-o", stripped, ROSE], check=True)
        assert os.path.getsize(stripped) < 5_000_000, os.path.getsize(stripped)


main()
