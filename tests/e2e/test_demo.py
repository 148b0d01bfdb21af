"""scripts/demo from a copy of the checkout at a path with spaces: builds, brings the model, answers; does nothing twice; says what it lacks."""
import os
import shutil
import subprocess

import e2e
from e2e import ROOT, case, directory, environment, equal, main

MODEL = e2e.model()
NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"


def copy_of_the_checkout(to):
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode().split("\0")
    for name in filter(None, files):
        if name.startswith(("tests/", "bench/")) or not os.path.exists(os.path.join(ROOT, name)):
            continue
        target = os.path.join(to, name)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copy2(os.path.join(ROOT, name), target)


def demo(place, cache, *words, **variables):
    # The objects of the tests' own build serve again.
    ccache = {"CC": "ccache gcc", "CCACHE_NOHASHDIR": "1"} if shutil.which("ccache") else {}
    env = environment({"XDG_CACHE_HOME": cache, **ccache, **variables})
    return subprocess.run([os.path.join(place, "scripts", "demo"), *words], env=env, capture_output=True, timeout=600, cwd="/")


@case
def from_checkout_to_answer():
    with directory() as d:
        place, cache = os.path.join(d, "a rose"), os.path.join(d, "the cache")
        copy_of_the_checkout(place)
        # Without network: everything that needs none is done, and the rest is said.
        done = demo(place, cache, PIP_INDEX_URL="http://127.0.0.1:9/", PIP_RETRIES="0", PIP_CONFIG_FILE="/dev/null", PIP_EXTRA_INDEX_URL="")
        said = done.stderr.decode()
        equal(done.returncode, 1)
        assert "Building" in said and "could not be fetched" in said and "network" in said, said
        assert os.access(os.path.join(place, "build", "rose"), os.X_OK), said
        # What lies there under the model's name and is not the model is not believed.
        os.makedirs(os.path.join(cache, "rose"), exist_ok=True)
        with open(os.path.join(cache, "rose", NAME), "wb") as f:
            f.write(b"not the model")
        done = demo(place, cache, PIP_INDEX_URL="http://127.0.0.1:9/", PIP_RETRIES="0", PIP_CONFIG_FILE="/dev/null", PIP_EXTRA_INDEX_URL="")
        equal(done.returncode, 1)
        assert "not the file it should be" in done.stderr.decode() and "Building" not in done.stderr.decode(), done.stderr
        shutil.copy(MODEL, os.path.join(cache, "rose", NAME))
        done = demo(place, cache)
        equal(done.returncode, 0)
        assert len(done.stdout.decode().split()) >= 5, done.stdout
        # Again, with another question: no building, no fetching, no installing.
        done = demo(place, cache, "What is gravity?")
        equal((done.returncode, done.stderr.decode()), (0, "> What is gravity?\n"))
        assert done.stdout.strip(), done.stdout
        equal(sorted(os.listdir(os.path.join(cache, "rose"))), [NAME, NAME + ".verified", "packed"])


main()
