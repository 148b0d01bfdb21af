/* What brings a step's inputs to the device: the fetch of segments, and tokens out of histories. */
#include <stdlib.h>
#include <string.h>

#include "kernels/params/fetch.h"
#include "kernels/params/tokens.h"
#include "simt.h"
#include "test.h"

enum { WORDS = 6000, PIECES = 700 };

/* More segments than warps, lengths from 1 to the most, none in order: every word arrives, nothing else changes. */
TEST(segments_arrive)
{
    static struct fetch_segment list[PIECES + FETCH_WARPS];
    static uint32_t block[WORDS], want[WORDS + 64];
    for (uint32_t i = 0; i < WORDS; i++) block[i] = i * 2654435761u;
    uint32_t *to = simt_buffer("inputs", sizeof want, want);
    uint32_t at = 0;
    int n = 0;
    while (at < WORDS && n < PIECES) {
        uint32_t words = n == 3 ? FETCH_MOST_WORDS : n % 5 == 0 ? 33 : 1 + (uint32_t)n % 9;
        if (words > WORDS - at) words = WORDS - at;
        uint32_t place = at + 16;
        list[n++] = (struct fetch_segment){(uint64_t)(uintptr_t)(to + place), at, words};
        memcpy(want + place, block + at, words * 4);
        at += words + (n % 2 ? 40 : 0);
    }
    CHECK(n > FETCH_WARPS / 8);
    const struct simt_kernel *k = simt_kernel("src/kernels/cuda/fetch.cu", "fetch", "ROSE_ARCH=900 THREADS=256");
    struct fetch_params p = {.segments = simt_constant("segments", sizeof list, list), .block = simt_constant("block", sizeof block, block), .one = 1};
    struct simt_report r = simt_launch(&(struct simt_launch){.kernel = k, .grid = {FETCH_WARPS / 8}, .block = {256}, .dependent = true, .seed = 3}, &p);
    CHECK_SIMT_CLEAN(r);
    CHECK(!memcmp(to, want, sizeof want));
    simt_reset();
}

TEST(tokens_of_histories)
{
    enum { ROWS = 131 };
    int32_t history[200], positions[ROWS], want[ROWS];
    int64_t from[ROWS];
    for (int i = 0; i < 200; i++) history[i] = 1000 + i * 3;
    for (int i = 0; i < ROWS; i++) {
        from[i] = i % 10 == 9 ? -1 : i % 3 * 60;
        positions[i] = i % 10 == 9 ? 0 : i % 60;
        want[i] = from[i] < 0 ? 0 : history[from[i] + positions[i]];
    }
    struct tokens_params p = {.history = simt_buffer("history", sizeof history, history),
                              .row_history = simt_buffer("row_history", sizeof from, from),
                              .positions = simt_buffer("positions", sizeof positions, positions),
                              .tokens = simt_buffer("tokens", sizeof want, NULL),
                              .rows = ROWS};
    const struct simt_kernel *k = simt_kernel("src/kernels/cuda/tokens.cu", "tokens", "ROSE_ARCH=900 THREADS=128");
    struct simt_report r = simt_launch(&(struct simt_launch){.kernel = k, .grid = {2}, .block = {128}, .dependent = true, .seed = 1}, &p);
    CHECK_SIMT_CLEAN(r);
    CHECK(!memcmp(p.tokens, want, sizeof want));
    simt_reset();
}

TEST_MAIN(CASE(segments_arrive), CASE(tokens_of_histories))
