/* op_sample against a float64 reference that sorts everything: kept sets, frequencies, log-probabilities,
 * penalties, masks. */
#include "ops/sample.h"

#include <stdbool.h>

#include "kernels/cpu/sample.h"
#include "ops_fixture.h"

enum { SLOTS = 2, STRIDE = 600 };

struct inputs {
    int rows, vocabulary;
    float *logits; /* [rows, vocabulary] */
    struct sample_row *row;
    struct sample_edit *edits;
    int edits_count, masks, feed_count;
    uint32_t *mask;
    int32_t history[SLOTS * STRIDE], history_length[SLOTS], prompt_length[SLOTS];
    int32_t *feed;
};

static void run(const struct inputs *in, int threads, struct sample_output *out)
{
    size_t n = (size_t)in->rows * (size_t)in->vocabulary;
    float *x = malloc(n * sizeof *x);
    memcpy(x, in->logits, n * sizeof *x);
    struct device *d = fixture_device(threads);
    struct program *p = fixture_program(d);
    struct rose_error err = {0};
    struct op_sample op = {.edits_max = in->edits_count,
                           .masks = in->masks,
                           .slots = SLOTS,
                           .history_stride = STRIDE,
                           .max_samples = in->rows};
    op.logits = fixture_value(p, "logits", x, in->rows, in->vocabulary, in->vocabulary, 0);
    op.logits.rows = EXTENT_SAMPLES;
    op.rows = program_external(p, "rows", in->row, 1);
    op.output = program_external(p, "output", out, 1);
    if (in->edits) op.edits = program_external(p, "edits", in->edits, 1);
    if (in->mask) op.mask = program_external(p, "mask", in->mask, 1);
    if (in->feed) op.feed = program_external(p, "feed", in->feed, 1);
    op.history = program_external(p, "history", (void *)in->history, 1);
    op.history_length = program_external(p, "history_length", (void *)in->history_length, 1);
    op.prompt_length = program_external(p, "prompt_length", (void *)in->prompt_length, 1);
    memset(out, 0, (size_t)in->rows * sizeof *out);
    CHECK_OK(op_sample(p, &op, &err), err);
    fixture_run(p, in->rows, in->rows, in->rows);
    device_close(d);
    free(x);
}

static struct inputs inputs_make(int rows, int vocabulary, struct sample_row row)
{
    struct inputs in = {.rows = rows, .vocabulary = vocabulary};
    in.logits = fixture_reals((size_t)rows * (size_t)vocabulary, 4);
    in.row = malloc((size_t)rows * sizeof row);
    for (int i = 0; i < rows; i++) in.row[i] = row, in.row[i].step = (uint64_t)i;
    return in;
}

static void inputs_free(struct inputs *in)
{
    free(in->logits), free(in->row), free(in->edits), free(in->mask), free(in->feed);
}

/* --- reference
 * ------------------------------------------------------------------------------------------------------ */

struct entry {
    double x;
    int token;
};

static int falling(const void *a, const void *b)
{
    const struct entry *p = a, *q = b;
    return p->x > q->x ? -1 : p->x < q->x ? 1 : p->token - q->token;
}

static struct entry *sorted(const struct inputs *in, int r)
{
    struct entry *e = malloc((size_t)in->vocabulary * sizeof *e);
    for (int i = 0; i < in->vocabulary; i++)
        e[i] = (struct entry){in->logits[(size_t)r * (size_t)in->vocabulary + (size_t)i], i};
    qsort(e, (size_t)in->vocabulary, sizeof *e, falling);
    return e;
}

/* Logits after edits, penalties and mask, in place of the input's. */
static void reference_edit(struct inputs *in, int r)
{
    const struct sample_row *row = &in->row[r];
    float *x = in->logits + (size_t)r * (size_t)in->vocabulary;
    for (int i = 0; i < row->edits_count; i++)
        x[in->edits[row->edits_begin + i].token] += in->edits[row->edits_begin + i].bias;
    for (int t = 0; row->slot >= 0 && t < in->vocabulary; t++) {
        int all = 0, answer = 0;
        for (int i = 0; i < in->history_length[row->slot]; i++)
            if (in->history[row->slot * STRIDE + i] == t) all++, answer += i >= in->prompt_length[row->slot];
        if (!all) continue;
        x[t] = x[t] > 0 ? x[t] / row->repetition : x[t] * row->repetition;
        if (answer) x[t] -= row->presence + row->frequency * (float)answer;
    }
    for (int t = 0; row->mask_row >= 0 && t < in->vocabulary; t++)
        if (!(in->mask[row->mask_row * ((in->vocabulary + 31) / 32) + t / 32] >> (t % 32) & 1))
            x[t] = -INFINITY;
}

/* Probability of each token after temperature, top-k, top-p, min-p. margin: the share nearest to a cut that
 * may go either way. */
static void reference_probabilities(const struct inputs *in, int r, double *p)
{
    const struct sample_row *row = &in->row[r];
    struct entry *e = sorted(in, r);
    int n = in->vocabulary, kept = 0;
    if (row->top_k > 0 && row->top_k < n) n = row->top_k;
    double total = 0, sum = 0, top = e[0].x;
    for (int i = 0; i < n; i++) total += exp((e[i].x - top) / row->temperature);
    for (int i = 0; i < in->vocabulary; i++) p[i] = 0;
    for (; kept < n; kept++) {
        if (kept && row->top_p < 1 && sum >= row->top_p * total) break;
        double w = exp((e[kept].x - top) / row->temperature);
        sum += w;
        if (kept && w < row->min_p) continue;
        p[e[kept].token] = w;
    }
    sum = 0;
    for (int i = 0; i < in->vocabulary; i++) sum += p[i];
    for (int i = 0; i < in->vocabulary; i++) p[i] /= sum;
    free(e);
}

/* All rows have equal logits and parameters and differ in step: their tokens must follow the reference's
 * distribution. */
static void check_distribution(struct inputs *in, const char *what)
{
    int v = in->vocabulary;
    for (int r = 1; r < in->rows; r++)
        memcpy(in->logits + (size_t)r * (size_t)v, in->logits, (size_t)v * sizeof(float));
    struct sample_output *out = malloc((size_t)in->rows * sizeof *out),
                         *other = malloc((size_t)in->rows * sizeof *out);
    double *p = malloc((size_t)v * sizeof *p);
    int *count = calloc((size_t)v, sizeof *count);
    struct inputs edited = *in;
    edited.logits = malloc((size_t)v * sizeof(float));
    memcpy(edited.logits, in->logits, (size_t)v * sizeof(float));
    reference_edit(&edited, 0);
    reference_probabilities(&edited, 0, p);
    for (int isa = 0; isa < 4; isa++) {
        if (!fixture_isa(isa)) continue;
        run(in, 1, out);
        run(in, 3, other);
        CHECK(!memcmp(out, other, (size_t)in->rows * sizeof *out));
        memset(count, 0, (size_t)v * sizeof *count);
        double chi = 0;
        int cells = 0;
        for (int r = 0; r < in->rows; r++) {
            CHECK(out[r].token >= 0 && out[r].token < v);
            if (out[r].token < 0) continue;
            count[out[r].token]++;
            if (!(p[out[r].token] > 0))
                test_failures_++, fprintf(stderr, "%s on %s: token %d is not in the kept set\n", what,
                                          fixture_isas[isa], out[r].token);
        }
        for (int t = 0; t < v; t++) {
            double want = p[t] * in->rows;
            if (want < 5) continue;
            chi += (count[t] - want) * (count[t] - want) / want;
            cells++;
        }
        /* mean = cells, deviation = sqrt(2 cells); seeds are fixed, so this passes always or never */
        if (!(chi < cells + 5 * sqrt(2.0 * cells + 2)))
            test_failures_++,
                fprintf(stderr, "%s on %s: chi square %g of %d cells\n", what, fixture_isas[isa], chi, cells);
    }
    cpu_isa_select("auto", NULL);
    free(out), free(other), free(p), free(count), free(edited.logits);
}

static const struct sample_row drawn = {.seed = 42,
                                        .temperature = 1,
                                        .top_p = 1,
                                        .repetition = 1,
                                        .given = -1,
                                        .top_n = -1,
                                        .slot = -1,
                                        .mask_row = -1,
                                        .feed = -1};

TEST(temperature_only)
{
    static const int sizes[] = {3, 64, 1000};
    for (int i = 0; i < 3; i++) {
        struct sample_row row = drawn;
        row.temperature = 0.5f + (float)i * 0.4f;
        struct inputs in = inputs_make(3000, sizes[i], row);
        check_distribution(&in, "temperature");
        inputs_free(&in);
    }
}

TEST(filters)
{
    for (int i = 0; i < 12; i++) {
        struct sample_row row = drawn;
        row.temperature = i % 2 ? 1.3f : 0.7f;
        row.top_k = i & 1 ? 1 + 20 * i : 0;
        row.top_p = i & 2 ? 0.2f + 0.07f * (float)i : 1;
        row.min_p = i & 4 ? 0.05f : 0;
        struct inputs in = inputs_make(1500, i < 6 ? 700 : 3001, row);
        check_distribution(&in, "filters");
        inputs_free(&in);
    }
}

TEST(extremes)
{
    struct sample_row row = drawn;
    row.top_p = 0; /* still one token */
    struct inputs in = inputs_make(50, 500, row);
    check_distribution(&in, "top-p 0");
    for (int r = 0; r < 50; r++) in.row[r].top_p = 1, in.row[r].min_p = 1;
    check_distribution(&in, "min-p 1");
    for (int r = 0; r < 50; r++) in.row[r].min_p = 0, in.row[r].top_k = 1;
    check_distribution(&in, "top-k 1");
    for (int i = 0; i < 500; i++) in.logits[i] = 1; /* all equal: the lowest ids stay */
    for (int r = 0; r < 50; r++) in.row[r].top_k = 7;
    check_distribution(&in, "ties");
    inputs_free(&in);
}

TEST(greedy_takes_the_lowest_of_equals)
{
    for (int isa = 0; isa < 4; isa++) {
        if (!fixture_isa(isa)) continue;
        struct sample_row row = SAMPLE_ROW_GREEDY;
        struct inputs in = inputs_make(6, 10007, row);
        float *x = in.logits;
        x[9000] = x[77] = x[78] = 50;
        x[10007 + 10006] = 50;                                        /* the last one */
        for (int i = 0; i < 10007; i++) x[2 * 10007 + i] = -INFINITY; /* nothing is possible */
        for (int i = 0; i < 10007; i++) x[3 * 10007 + i] = i == 5 ? -3 : NAN;
        for (int i = 0; i < 10007; i++) x[4 * 10007 + i] = NAN;
        x[5 * 10007 + 123] = INFINITY;
        in.row[5].temperature = 1;
        struct sample_output out[6];
        run(&in, 2, out);
        CHECK_INT(out[0].token, 77);
        CHECK_INT(out[1].token, 10006);
        CHECK_INT(out[2].token, -1);
        CHECK_INT(out[3].token, 5);
        CHECK_INT(out[4].token, -1);
        CHECK_INT(out[5].token, 123);
        inputs_free(&in);
    }
    cpu_isa_select("auto", NULL);
}

TEST(penalties_edits_mask)
{
    for (int variant = 0; variant < 4; variant++) {
        struct sample_row row = drawn;
        row.slot = variant == 3 ? -1 : 1;
        row.repetition = variant == 1 ? 1.0f : 1.7f;
        row.presence = 0.6f, row.frequency = variant == 2 ? 0.0f : 0.3f;
        row.edits_begin = 1, row.edits_count = 3;
        row.mask_row = variant & 1 ? 1 : -1;
        struct inputs in = inputs_make(2000, 130, row);
        in.edits_count = 5;
        in.edits = malloc(5 * sizeof *in.edits);
        for (int i = 0; i < 5; i++)
            in.edits[i] = (struct sample_edit){3 * i + 1, i == 2 ? -INFINITY : 1.5f * (float)i};
        in.masks = 2;
        in.mask = malloc(2 * 5 * sizeof *in.mask);
        for (int i = 0; i < 10; i++)
            in.mask[i] = i % 3 == 0 ? 0xFFFFFFFFu : i % 3 == 1 ? 0 : (uint32_t)fixture_bits();
        in.history_length[1] = 90, in.prompt_length[1] = 40;
        for (int i = 0; i < 90; i++) in.history[STRIDE + i] = fixture_int(0, 60);
        check_distribution(&in, "penalties, edits, mask");
        inputs_free(&in);
    }
}

TEST(log_probabilities)
{
    for (int isa = 0; isa < 4; isa++) {
        if (!fixture_isa(isa)) continue;
        struct sample_row row = drawn;
        row.top_n = 20;
        row.slot = 0, row.repetition = 1.5f;
        row.temperature = 0.8f;
        struct inputs in = inputs_make(9, 9001, row);
        in.history_length[0] = 500;
        for (int i = 0; i < 500; i++) in.history[i] = fixture_int(0, 9000);
        for (int r = 0; r < 9; r++) in.row[r].top_n = r < 8 ? r * 3 - (r == 7) : 20;
        in.row[3].given = 4321, in.row[4].given = 9001;
        struct sample_output out[9], other[9];
        run(&in, 1, out);
        run(&in, 5, other);
        CHECK(!memcmp(out, other, sizeof out));
        for (int r = 0; r < 9; r++) {
            struct entry *e = sorted(&in, r);
            double sum = 0;
            for (int i = 0; i < 9001; i++) sum += exp(e[i].x - e[0].x);
            double lse = e[0].x + log(sum);
            CHECK_INT(out[r].top_count, in.row[r].top_n);
            for (int i = 0; i < out[r].top_count; i++) {
                CHECK_INT(out[r].top_ids[i], e[i].token);
                CHECK_NEAR(out[r].top_logprobs[i], e[i].x - lse, 2e-6);
            }
            if (r == 3) CHECK_INT(out[r].token, 4321);
            if (r == 4)
                CHECK_INT(out[r].token, -1);
            else
                CHECK_NEAR(out[r].logprob, in.logits[r * 9001 + out[r].token] - lse, 2e-6);
            free(e);
        }
        inputs_free(&in);
    }
    cpu_isa_select("auto", NULL);
}

TEST(history_and_feed_grow)
{
    struct sample_row row = SAMPLE_ROW_GREEDY;
    struct inputs in = inputs_make(2, 100, row);
    in.feed = calloc(4, sizeof *in.feed);
    in.logits[31] = 90, in.logits[100 + 32] = 90;
    in.row[0].slot = 1, in.row[0].append = 1, in.row[0].feed = 2;
    in.row[1].slot = 0, in.row[1].append = 1;
    in.history_length[1] = 3,
    in.history_length[0] = STRIDE; /* slot 0 is full: nothing is written past its end */
    in.history[STRIDE] = -5;
    struct sample_output out[2];
    run(&in, 2, out);
    CHECK_INT(in.history_length[1], 4);
    CHECK_INT(in.history[STRIDE + 3], 31);
    CHECK_INT(in.history_length[0], STRIDE);
    CHECK_INT(in.history[STRIDE], -5);
    CHECK_INT(in.feed[2], 31);
    inputs_free(&in);
}

/* A seed gives the same tokens whatever else is in the batch, and another seed others. */
TEST(seeds)
{
    struct sample_row row = drawn;
    struct inputs in = inputs_make(40, 777, row);
    for (int r = 1; r < 40; r++) memcpy(in.logits + r * 777, in.logits, 777 * sizeof(float));
    for (int r = 20; r < 40; r++) in.row[r].seed = 43, in.row[r].step = (uint64_t)(r - 20);
    struct sample_output out[40], alone[1];
    run(&in, 2, out);
    int differ = 0;
    for (int r = 0; r < 20; r++) differ += out[r].token != out[r + 20].token;
    CHECK(differ > 10);
    for (int r = 0; r < 40; r += 13) {
        struct inputs one = in;
        one.rows = 1, one.row = &in.row[r];
        run(&one, 3, alone);
        CHECK_INT(alone[0].token, out[r].token);
    }
    inputs_free(&in);
}

/* Known answer of Random123's test vectors (philox4x32-10, counter and key zero). */
TEST(philox)
{
    uint32_t w[4];
    sample_philox(0, 0, w);
    CHECK_INT(w[0], 0x6627e8d5);
    CHECK_INT(w[1], 0xe169c58d);
    CHECK_INT(w[2], 0xbc57ac4c);
    CHECK_INT(w[3], 0x9b00dbd8);
}

TEST_MAIN(CASE(temperature_only), CASE(filters), CASE(extremes), CASE(greedy_takes_the_lowest_of_equals),
          CASE(penalties_edits_mask), CASE(log_probabilities), CASE(history_and_feed_grow), CASE(seeds),
          CASE(philox))
