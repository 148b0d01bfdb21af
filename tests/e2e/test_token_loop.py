"""What a token costs beside its arithmetic: no allocation, no mutex by the threads that compute, and few by the engine's own."""
import os
import re
import subprocess

import e2e
from e2e import ROOT, ROSE, case, directory, environment, main

MODEL = e2e.model()
SHORT, LONG = 16, 48
MOST_LOCKS = 64  # a token; a step is 30 layers with 8 launches each, so that one lock a launch would be 240


def counted(place, threads, tokens):
    # The loader splits the variable at spaces, so that it gets no whole path.
    done = subprocess.run([ROSE, "bench", MODEL, "--case", f"16:{tokens}:1", "--repeat", "1", "--threads", str(threads), "--json"], capture_output=True,
                          env=environment({"LD_PRELOAD": "./count.so"}), cwd=place, timeout=300)
    found = re.search(rb"counted: (\d+) allocations, (\d+) mutexes", done.stderr)
    assert done.returncode == 0 and found, done
    return int(found[1]), int(found[2])


@case
def a_token_allocates_nothing():
    with directory() as d:
        subprocess.run([*os.environ.get("CC", "cc").split(), "-O1", "-shared", "-fPIC", "-o", os.path.join(d, "count.so"), os.path.join(ROOT, "tests", "e2e", "count_calls.c")],
                       check=True)
        each = {}
        for threads in (1, 2):
            counted(d, threads, SHORT)  # packs the weights, if nobody has yet
            short, long = counted(d, threads, SHORT), counted(d, threads, LONG)
            assert short[0] > 0 and short[1] > 0, short
            assert long[0] == short[0], f"{threads} threads: {LONG - SHORT} tokens more took {long[0] - short[0]} allocations"
            each[threads] = (long[1] - short[1]) / (LONG - SHORT)
            print(f"{threads} threads: {each[threads]:.1f} mutexes a token")
            assert 0 <= each[threads] <= MOST_LOCKS, each
        # The second thread computes and takes none: as many with it as without, but for a reader that wakes more often. One a launch would be 240.
        assert each[2] <= each[1] + 8, each


main()
