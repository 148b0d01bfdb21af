"""rose pull against a small hub: layout, resume, checksums, tokens, hostile answers, and Python's own client on the same cache."""
import json
import os
import random
import subprocess
import sys

from e2e import case, directory, environment, equal, fails, main, ok
from hub import Hub

REPO = "acme/tiny-model"
random.seed(7)
WEIGHTS = random.randbytes(3_000_000)
FILES = {
    "config.json": b'{"model_type": "llama"}\n',
    "tokenizer.json": b'{"version": "1.0"}\n',
    "model.safetensors": WEIGHTS,
    "1_Pooling/config.json": b"{}\n",
    "pytorch_model.bin": b"not wanted",
    "README.md": b"nor this",
}
WANTED = ["1_Pooling/config.json", "config.json", "model.safetensors", "tokenizer.json"]


def env(hub, home, **more):
    clean = {k: None for k in ("HF_TOKEN", "HF_HUB_CACHE", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy")}
    return {**clean, "HF_HOME": home, "HF_ENDPOINT": hub.url, "no_proxy": "127.0.0.1,localhost", **more}


def repo_dir(home):
    return os.path.join(home, "hub", "models--acme--tiny-model")


def snapshot_files(home, commit="c" * 40):
    top = os.path.join(repo_dir(home), "snapshots", commit)
    return sorted(os.path.relpath(os.path.join(d, f), top) for d, _, fs in os.walk(top) for f in fs)


@case
def layout_of_the_cache():
    with Hub(REPO, FILES) as hub, directory() as home:
        out = ok("pull", REPO, env=env(hub, home)).text().strip()
        equal(out, os.path.join(repo_dir(home), "snapshots", hub.commit))
        equal(snapshot_files(home), WANTED)
        equal(open(os.path.join(repo_dir(home), "refs", "main")).read(), hub.commit)
        for path in WANTED:
            link = os.path.join(out, path)
            target = os.readlink(link)
            assert target.startswith("../") and not os.path.isabs(target), target
            equal(os.path.basename(target), hub.etag(path))
            equal(open(link, "rb").read(), FILES[path])
        # Nothing is fetched twice.
        before = len(hub.requests)
        ok("pull", REPO, env=env(hub, home))
        equal([r[1] for r in hub.requests[before:]], [f"/api/models/{REPO}/revision/main"])


@case
def python_reads_what_rose_fetched_and_back():
    python = subprocess.run([sys.executable, "-c", "import huggingface_hub"], capture_output=True)
    assert python.returncode == 0, f"huggingface_hub is not installed for {sys.executable} (tests/e2e/requirements.txt)"
    program = ("import sys, huggingface_hub as h; print(h.snapshot_download('acme/tiny-model', local_files_only=sys.argv[1] == 'local', "
               "allow_patterns=['*.json', '*.safetensors']))")
    with Hub(REPO, FILES) as hub, directory() as home:
        rose_says = ok("pull", REPO, env=env(hub, home)).text().strip()
        local = environment(env(hub, home, HF_HUB_DISABLE_TELEMETRY="1", HF_HUB_DISABLE_XET="1"))
        done = subprocess.run([sys.executable, "-c", program, "local"], env=local, capture_output=True, timeout=120)
        equal((done.returncode, done.stdout.decode().strip()), (0, rose_says))
    with Hub(REPO, FILES) as hub, directory() as home:
        local = environment(env(hub, home, HF_HUB_DISABLE_TELEMETRY="1", HF_HUB_DISABLE_XET="1"))
        done = subprocess.run([sys.executable, "-c", program, "fetch"], env=local, capture_output=True, timeout=120)
        assert done.returncode == 0, done.stderr.decode()
        before = len(hub.requests)
        equal(ok("pull", REPO, env=env(hub, home)).text().strip(), done.stdout.decode().strip())
        equal([r[1] for r in hub.requests[before:]], [f"/api/models/{REPO}/revision/main"])


@case
def resumes_within_and_across_runs():
    with Hub(REPO, FILES) as hub, directory() as home:
        hub.cut["model.safetensors"] = 1_000_000
        ok("pull", REPO, env=env(hub, home))
        ranges = [r[2] for r in hub.requests if r[1] == "/model.safetensors"]
        assert ranges[0] is None and ranges[1].startswith("bytes=") and 0 < int(ranges[1][6:-1]) <= 1_000_000, ranges
    with Hub(REPO, FILES) as hub, directory() as home:
        os.makedirs(os.path.join(repo_dir(home), "blobs"))
        part = os.path.join(repo_dir(home), "blobs", hub.etag("model.safetensors") + ".incomplete")
        open(part, "wb").write(WEIGHTS[:123_456])
        ok("pull", REPO, env=env(hub, home))
        equal([r[2] for r in hub.requests if r[1] == "/model.safetensors"], ["bytes=123456-"])
        equal(snapshot_files(home), WANTED)
        assert not os.path.exists(part)


@case
def a_server_without_ranges():
    with Hub(REPO, FILES) as hub, directory() as home:
        hub.ranges = False
        hub.cut["model.safetensors"] = 1_000_000
        out = ok("pull", REPO, env=env(hub, home)).text().strip()
        equal(open(os.path.join(out, "model.safetensors"), "rb").read(), WEIGHTS)


@case
def wrong_bytes_are_thrown_away():
    with Hub(REPO, FILES) as hub, directory() as home:
        hub.change["model.safetensors"] = WEIGHTS[:-1] + b"x"
        fails("pull", REPO, env=env(hub, home), says=["model.safetensors", "checksum"])
        equal([f for f in os.listdir(os.path.join(repo_dir(home), "blobs")) if f.startswith(hub.etag("model.safetensors"))], [])
        assert not os.path.exists(os.path.join(repo_dir(home), "refs", "main"))
        # A tampered partial file is found out too, and the next run succeeds.
        hub.change.clear()
        part = os.path.join(repo_dir(home), "blobs", hub.etag("model.safetensors") + ".incomplete")
        open(part, "wb").write(b"?" * 1000)
        fails("pull", REPO, env=env(hub, home), says="checksum")
        ok("pull", REPO, env=env(hub, home))
    with Hub(REPO, FILES) as hub, directory() as home:
        hub.change["config.json"] = b'{"model_type": "lIama"}\n'
        fails("pull", REPO, env=env(hub, home), says=["config.json", "checksum"])


@case
def wrong_sizes():
    with Hub(REPO, FILES) as hub, directory() as home:
        hub.change["model.safetensors"] = WEIGHTS + b"more" * 1000
        fails("pull", REPO, env=env(hub, home), says=["model.safetensors", "3000000"])
        equal(os.path.exists(os.path.join(repo_dir(home), "blobs", hub.etag("model.safetensors"))), False)
    with Hub(REPO, FILES) as hub, directory() as home:
        hub.change["model.safetensors"] = WEIGHTS[:1000]
        fails("pull", REPO, env=env(hub, home), says="model.safetensors")


@case
def tokens_stay_with_the_hub():
    with Hub(REPO, FILES, token="hf_secret") as hub, directory() as home:
        fails("pull", REPO, env=env(hub, home), says="HF_TOKEN")
        ok("pull", REPO, env=env(hub, home, HF_TOKEN="hf_secret"))
        others = [r for r in hub.requests if r[1] == "/model.safetensors"]
        assert others and all(r[3] is None for r in others), others


@case
def hostile_listings():
    good = "a" * 64
    for name in ("../evil", "a/../../evil", "/etc/evil", "a\\b", "a//b", "x\x1b[2J", "", "..", "a\nb"):
        with Hub(REPO, FILES) as hub, directory() as home:
            hub.listing = [{"rfilename": name, "size": 3, "lfs": {"sha256": good, "size": 3}}]
            fails("pull", REPO, env=env(hub, home), says="not a hub's")
    for entry in ({"rfilename": "x.json", "size": 1, "blobId": "../../x"}, {"rfilename": "x.json", "size": -5, "blobId": "a" * 40},
                  {"rfilename": "x.json", "size": 1, "blobId": "a" * 12}):
        with Hub(REPO, FILES) as hub, directory() as home:
            hub.listing = [entry]
            fails("pull", REPO, env=env(hub, home), says="not a hub's")
    huge = [{"rfilename": f"{i}.json", "size": 2**62, "blobId": "%040x" % i} for i in range(4)]
    for listing in (b"", b"[1, 2", b"null", b'{"sha": "../..", "siblings": []}', b'{"sha": 5}', b"[" * 100000,
                    json.dumps({"sha": "c" * 40, "siblings": huge}).encode(), json.dumps({"sha": "c" * 40, "siblings": huge[:1]}).encode()):
        with Hub(REPO, FILES) as hub, directory() as home:
            hub.raw_listing = listing
            fails("pull", REPO, env=env(hub, home))


@case
def hostile_redirects():
    with Hub(REPO, FILES) as hub, directory() as home:
        hub.hop = "file:///etc/passwd"
        fails("pull", REPO, env=env(hub, home))
        hub.hop = f"{hub.url}/{REPO}/resolve/main/model.safetensors"
        fails("pull", REPO, env=env(hub, home))


@case
def listings_without_hashes():
    with Hub(REPO, FILES) as hub, directory() as home:
        hub.blobs = False
        out = ok("pull", REPO, env=env(hub, home)).text().strip()
        equal(open(os.path.join(out, "model.safetensors"), "rb").read(), WEIGHTS)
        equal(snapshot_files(home), WANTED)


@case
def revisions_patterns_and_all():
    with Hub(REPO, FILES, refs=("main", "v1.0", "refs/pr/3")) as hub, directory() as home:
        ok("pull", REPO, "--revision", "v1.0", "--file", "config.json", env=env(hub, home))
        equal(snapshot_files(home), ["config.json"])
        equal(os.listdir(os.path.join(repo_dir(home), "refs")), ["v1.0"])
        ok("pull", f"{REPO}@refs/pr/3", "--all", env=env(hub, home))
        equal(snapshot_files(home), sorted(FILES))
        fails("pull", REPO, "--revision", "v9", env=env(hub, home), says="v9")
        fails("pull", REPO, "--file", "nothing*", env=env(hub, home), says="matches")
        fails("pull", "acme/other", env=env(hub, home), says="acme/other")
        fails("pull", "nonsense", env=env(hub, home), says="ORG/NAME")
        fails("pull", REPO, "--revision", "../x", env=env(hub, home), says="revision")
        fails("pull", status=2)


@case
def gguf_repositories():
    files = {"a-Q4_K_M.gguf": b"1" * 100, "a-Q8_0.gguf": b"2" * 200}
    with Hub(REPO, files) as hub, directory() as home:
        fails("pull", REPO, env=env(hub, home), says=["a-Q4_K_M.gguf", "a-Q8_0.gguf", "--file"])
        ok("pull", REPO, "--file", "*Q4_K_M*", env=env(hub, home))
        equal(snapshot_files(home), ["a-Q4_K_M.gguf"])


@case
def busy_and_absent_servers():
    with Hub(REPO, FILES) as hub, directory() as home:
        hub.cut["model.safetensors"] = 10
        hub.fail = 0
        ok("pull", REPO, env=env(hub, home))
        url = hub.url
    with directory() as home:
        fails("pull", REPO, "--endpoint", "http://127.0.0.1:9", env={"HF_HOME": home, "no_proxy": "127.0.0.1"}, says="127.0.0.1")
        fails("pull", REPO, "--endpoint", "ftp://127.0.0.1", env={"HF_HOME": home}, says="https://")


@case
def an_unwritable_cache():
    with Hub(REPO, FILES) as hub, directory() as home:
        open(os.path.join(home, "hub"), "w").close()  # a file where the directory should be
        fails("pull", REPO, env=env(hub, home), says="hub")


@case
def a_missing_model_names_the_command():
    with directory() as home:
        fails("run", REPO, "hello", env={"HF_HOME": home}, says=[REPO, "rose pull"])


main()
