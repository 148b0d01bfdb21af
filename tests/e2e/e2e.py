"""What the end-to-end tests share: cases with one summary line (as tests/test.h has it), and the program under test.

ROSE names the program (default build/rose). Only Python's standard library is used here.
"""
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import traceback

import own_cache

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ROSE = os.path.abspath(os.environ.get("ROSE", os.path.join(ROOT, "build", "rose")))
CASES = []
own_cache.take(ROSE)


def case(function):
    CASES.append(function)
    return function


def main():
    passed = failed = 0
    for function in CASES:
        if len(sys.argv) > 1 and function.__name__ not in sys.argv[1:]:
            continue
        try:
            function()
            passed += 1
        except Exception:
            failed += 1
            traceback.print_exc()
            print("FAIL", function.__name__)
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed or not passed else 0)


class Result:
    def __init__(self, done):
        self.rc, self.out, self.err = done.returncode, done.stdout, done.stderr

    def text(self):
        return self.out.decode()

    def json(self):
        return json.loads(self.out)

    def __str__(self):
        return f"status {self.rc}\nout: {self.out[:2000]!r}\nerr: {self.err[:2000]!r}"


def environment(changes):
    """This process's variables with changes; None takes one away."""
    both = {**os.environ, **changes}
    return {name: value for name, value in both.items() if value is not None}


def rose(*words, input=b"", env=None, timeout=120, cwd=ROOT):
    """Run to the end; a signal (a crash) or a hang is an error of the test."""
    done = subprocess.run([ROSE, *words], input=input, capture_output=True, env=environment(env or {}), timeout=timeout, cwd=cwd)
    result = Result(done)
    assert result.rc >= 0, f"rose {words} died of signal {-result.rc}\n{result}"
    return result


def ok(*words, **how):
    result = rose(*words, **how)
    assert result.rc == 0, f"rose {words}: {result}"
    return result


def fails(*words, status=1, says=(), **how):
    """It ends with `status` and one sentence on standard error that has each of `says` in it."""
    result = rose(*words, **how)
    assert result.rc == status, f"rose {words}: expected status {status}: {result}"
    message = result.err.decode()
    assert message.startswith("rose: ") and message.endswith("\n"), f"rose {words}: {result}"
    for part in [says] if isinstance(says, str) else says:
        assert part in message, f"rose {words}: {part!r} is not in {message!r}"
    return result


def equal(got, want):
    assert got == want, f"got {got!r}, expected {want!r}"


@contextlib.contextmanager
def directory():
    # A path with a space and a letter beyond ASCII: nothing may care.
    with tempfile.TemporaryDirectory(prefix="rose e2é ") as path:
        yield path


def model():
    """The demo's real model, fetched when it is not there (scripts/demo)."""
    cache = own_cache.USER
    for place in (os.path.join(cache, "rose"), os.path.join(cache, "rose", "models")):
        path = os.path.join(place, "SmolLM2-135M-Instruct.Q4_1.gguf")
        if os.path.exists(path):
            return path
    demo = subprocess.run([os.path.join(ROOT, "scripts", "demo")], env=environment({"XDG_CACHE_HOME": cache}), capture_output=True, timeout=600)
    assert demo.returncode == 0, f"scripts/demo could not bring the model: {demo.stderr.decode()}"
    return os.path.join(cache, "rose", "SmolLM2-135M-Instruct.Q4_1.gguf")
