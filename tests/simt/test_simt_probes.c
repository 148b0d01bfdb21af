/* Every probe is clean, gives the same in every order of threads, and what it gives is right where another
 * test does not check that already: warps, TMA images, synchronisation. */
#include "probes.h"
#include "simt.h"
#include "test.h"

static struct {
    void *p;
    size_t bytes;
    const char *name;
} buffers[16];
static int buffer_count;

static void *make_buffer(void *context, const char *name, size_t bytes, const void *data)
{
    (void)context;
    void *p = simt_buffer(name, bytes, data);
    buffers[buffer_count].p = p;
    buffers[buffer_count].bytes = bytes;
    buffers[buffer_count++].name = name;
    return p;
}
static struct simt_tensor tensors[2];
static int tensor_count;
static void make_map(void *context, struct tensor_map *out, const struct simt_tensor *t)
{
    (void)context;
    tensors[tensor_count++ & 1] = *t;
    simt_tensor_map(out, t);
}
static const struct probe_io io = {make_buffer, make_map, NULL};

static void *buffer_named(const char *name)
{
    for (int i = 0; i < buffer_count; i++)
        if (!strcmp(buffers[i].name, name)) return buffers[i].p;
    return NULL;
}

/* Runs probe i with `more` constants; the buffers stay until simt_reset. */
static struct simt_report launch(int i, uint64_t seed, uint32_t arch, const char *more, struct probe *out)
{
    static _Alignas(64) unsigned char params[PROBE_PARAMS_MAX];
    buffer_count = tensor_count = 0;
    struct probe p = probes_get(i, &io, params);
    char constants[220], file[120];
    snprintf(constants, sizeof constants, "ROSE_ARCH=%u %s%s", p.arch ? p.arch : arch, p.constants, more);
    *out = p;
    snprintf(file, sizeof file, "tests/simt/kernels/cuda/%s.cu", p.kernel);
    return simt_launch(&(struct simt_launch){.kernel = simt_kernel(file, p.kernel, constants),
                                             .grid = {p.grid},
                                             .block = {p.block},
                                             .cluster = p.cluster,
                                             .cooperative = p.cooperative,
                                             .shared_bytes = p.shared_bytes,
                                             .seed = seed},
                       params);
}
static struct probe run(int i, uint64_t seed, uint32_t arch)
{
    struct probe p;
    struct simt_report r = launch(i, seed, arch, "", &p);
    if (r.fault) fprintf(stderr, "%s:\n", p.name);
    CHECK_SIMT_CLEAN(r);
    return p;
}

TEST(clean_and_the_same_in_every_order)
{
    for (int i = 0; i < probes_count(); i++) {
        unsigned char *first[16];
        bool heavy = false;
        for (uint64_t seed = 0; seed < (heavy ? 1 : 3); seed++) {
            struct probe p = run(i, seed, 900);
            heavy = !strcmp(p.kernel, "probe_convert");
            for (int b = 0; b < buffer_count; b++) {
                if (!seed) {
                    first[b] = malloc(buffers[b].bytes);
                    memcpy(first[b], buffers[b].p, buffers[b].bytes);
                } else if (memcmp(first[b], buffers[b].p, buffers[b].bytes)) {
                    fprintf(stderr, "%s: %s depends on the order of threads\n", p.name, buffers[b].name);
                    CHECK(false);
                }
            }
            simt_reset();
        }
        for (int b = 0; b < buffer_count; b++) free(first[b]);
    }
}

static int find(const char *kernel, int skip)
{
    for (int i = 0; i < probes_count(); i++)
        if (!strcmp(probes_get(i, NULL, NULL).kernel, kernel) && skip-- == 0) return i;
    return -1;
}

TEST(warps)
{
    run(find("probe_threads", 0), 5, 800);
    const uint32_t *x = buffer_named("x"), *out = buffer_named("out");
    for (uint32_t i = 0; i < 3 * 64; i++) {
        const uint32_t *w = x + i / 32 * 32, *o = out + 24 * i, l = i % 32, *blk = x + i / 64 * 64;
        uint32_t ballot = 0, same = 0, any = 0, all = 1, add = 0, min = ~0u, max = 0, and = ~0u, or = 0,
                 xor = 0, scan = 0, count = 0, sum16 = 0, special = 0;
        int32_t smin = INT32_MAX, smax = INT32_MIN;
        float sum = 0, fmax8 = 0;
        for (uint32_t k = 0; k < 32; k++) {
            uint32_t v = w[k];
            ballot |= (v & 1) << k;
            same |= (uint32_t)((v & 3) == (w[l] & 3)) << k;
            any |= (v & 0xff) == 0, all &= v != 1;
            add += v, min = v < min ? v : min, max = v > max ? v : max;
            smin = (int32_t)v < smin ? (int32_t)v : smin, smax = (int32_t)v > smax ? (int32_t)v : smax;
            and &= v | 0xfff, or |= v & 0xffff, xor ^= v;
            sum += (float)(v & 0xff);
            if (k / 8 == l / 8) fmax8 = fmaxf(fmax8, (float)(v & 0xffff));
            if (k / 16 == l / 16) sum16 += v;
            if (k <= l) scan += v & 0xff;
        }
        for (uint32_t k = 0; k < 64; k++) count += (blk[k] & 2) != 0, special |= blk[k] == 12345;
        uint32_t bits_sum, bits_max;
        memcpy(&bits_sum, &sum, 4), memcpy(&bits_max, &fmax8, 4);
        CHECK_INT(o[0], w[(l * 7 + 3) % 32]);
        CHECK_INT(o[1], w[l / 8 * 8 + (l + 5) % 8]);
        CHECK_INT(o[2], w[l ^ 9]);
        CHECK_INT(o[3], l % 16 >= 3 ? w[l - 3] : w[l]);
        CHECK_INT(o[4], l % 16 < 13 ? w[l + 3] : w[l]);
        CHECK_INT(o[5], (uint32_t)(((uint64_t)w[l ^ 4] << 20) >> 10));
        CHECK_INT(o[6], ballot);
        CHECK_INT(o[7], any | all << 1);
        CHECK_INT(o[8], same);
        CHECK_INT(o[9], add);
        CHECK_INT(o[10], min ^ max);
        CHECK_INT(o[11], (uint32_t)smin ^ (uint32_t)smax);
        CHECK_INT(o[12], and^ or ^xor);
        CHECK_INT(o[13], bits_sum);
        CHECK_INT(o[14], bits_max);
        CHECK_INT(o[15], sum16);
        CHECK_INT(o[16], scan);
        CHECK_INT(o[17], (uint32_t)__builtin_popcount(w[l]) |
                             (w[l] ? (uint32_t)__builtin_clz(w[l]) : 32) << 8 |
                             (uint32_t)__builtin_ffs((int)w[l]) << 16);
        CHECK_INT(o[19], count + special * 1000);
        CHECK_INT(o[20], l == 0);
        CHECK_INT(o[21], i % 64 | i / 64 << 8 | 64 << 16 | 3u << 24);
        CHECK_INT(o[22], l < 16 ? w[l ^ 5] : 0);
        CHECK_INT(o[23], 300 + i / 64);
        if (test_failures_) break;
    }
    simt_reset();
}

/* The box in shared memory: element (i0, i1, ..) densely, 16-byte chunks exchanged within 128-byte lines by
 * the line's number. */
TEST(tma_images)
{
    for (int c = 0, i; (i = find("probe_tma", c)) >= 0; c++) {
        struct probe p = run(i, (uint64_t)c, 900);
        struct simt_tensor in = tensors[0], out = tensors[1];
        static _Alignas(64) unsigned char params[PROBE_PARAMS_MAX];
        const uint8_t *image = buffer_named("image");
        int32_t from[5], to[5];
        int before = buffer_count;
        probes_get(i, &io, params); /* its coordinates */
        memcpy(from, params + 264, sizeof from), memcpy(to, params + 264 + 20, sizeof to);
        buffer_count = before;
        uint32_t e = in.element_bytes, total = e, wrong = 0;
        for (int d = 0; d < in.rank; d++) total *= in.box[d];
        for (uint32_t n = 0; n < total / e; n++) {
            uint32_t rest = n, mask = in.swizzle ? in.swizzle / 16 - 1 : 0;
            int64_t source = 0, target = 0, step = e;
            bool in_source = true, in_target = true;
            for (int d = 0; d < in.rank; d++) {
                int64_t x = from[d] + (int64_t)(rest % in.box[d]), y = to[d] + (int64_t)(rest % in.box[d]);
                rest /= in.box[d];
                in_source &= x >= 0 && x < in.dim[d], in_target &= y >= 0 && y < in.dim[d];
                source += x * step, target += y * step;
                step *= in.dim[d];
            }
            uint32_t at = n * e, line = at / 128, place = at ^ (line & mask) * 16;
            static const uint8_t zero[8];
            const uint8_t *want = in_source ? (const uint8_t *)in.base + source : zero;
            wrong += memcmp(image + place, want, e) != 0;
            if (in_target) wrong += memcmp((const uint8_t *)out.base + target, want, e) != 0;
        }
        if (wrong) fprintf(stderr, "%s: %u elements are wrong\n", p.name, wrong);
        CHECK_INT(wrong, 0);
        simt_reset();
    }
}

TEST(synchronisation)
{
    run(find("probe_sync", 0), 9, 900);
    const uint32_t *x = buffer_named("x"), *counters = buffer_named("counters"), *out = buffer_named("out");
    const float *floats = buffer_named("floats");
    uint32_t sum = 0, a[256];
    for (int i = 0; i < 256; i++) a[i] = i < 128 || (i - 128) % 3 ? x[i] : 0;
    for (int t = 0; t < 128; t++) sum += a[t] + 3 * a[255 - t] + 5 * x[t] + 7 * x[255 - t];
    for (uint32_t b = 0; b < 4; b++) {
        const uint32_t *o = out + 64 * b;
        CHECK_INT(o[0], sum);
        for (uint32_t t = 0; t < 8; t++) CHECK_INT(o[1 + t], (24 + t) * (24 + t) + 1);
        const uint32_t inbox[6] = {1 + (b ^ 1), 2, 3, 4, 77, 5 + (b ^ 1)};
        for (int t = 0; t < 6; t++) CHECK_INT(o[10 + t], inbox[t]);
        CHECK_INT(o[40], 512);
        CHECK_INT(o[41], 127);
        CHECK_INT(o[42], out[64 * ((b + 1) % 4) + 32]);
    }
    CHECK_INT(counters[1], 4 * 127 * 64);
    CHECK_INT(counters[2], 127 * 3 + 3);
    CHECK_INT(counters[3], 0); /* a signed maximum of negatives and 0 */
    CHECK_INT(counters[4], ~0u);
    CHECK_INT(counters[5], 15);
    CHECK_INT(counters[6], 9);
    CHECK_INT(counters[8], 1000 - 127);
    CHECK_INT(counters[9], ~0xffu);
    for (int i = 0; i < 8; i++) CHECK_NEAR(floats[i], 32, 0);
    for (int i = 32; i < 64; i++) CHECK_NEAR(floats[i], 1, 0);
    simt_reset();
}

/* A consumer that does not wait at its named barrier; a grid barrier that one block has left. */
TEST(mistakes_of_synchronisation)
{
    struct probe p;
    for (uint64_t seed = 0; seed < 4; seed++) {
        struct simt_report r = launch(find("probe_sync", 0), seed, 900, " MISTAKE=1", &p);
        if (r.fault != SIMT_UNWRITTEN && r.fault != SIMT_DIVERGENT) CHECK_SIMT(r, SIMT_RACE);
        simt_reset();
        r = launch(find("probe_sync", 0), seed, 900, " MISTAKE=2", &p);
        CHECK_SIMT(r, SIMT_DEADLOCK);
        simt_reset();
    }
}

TEST(accesses)
{
    run(find("probe_access", 0), 3, 800);
    const uint32_t *all = buffer_named("x"), *counters = buffer_named("counters"), *out = buffer_named("out");
    const uint64_t *wide = buffer_named("wide");
    for (uint32_t i = 0; i < 128 && !test_failures_; i++) {
        const uint32_t *x = all + 8 * i, *o = out + 64 * i, l = i % 32, *warp = all + i / 32 * 256;
        /* where each piece of x begins in o, and its words */
        static const struct { int to, from, words; } pieces[] = {{0, 0, 8}, {8, 0, 8}, {16, 0, 8}, {24, 0, 4}, {28, 4, 4}, {32, 0, 2}, {34, 2, 2}, {36, 4, 2}, {38, 0, 1}, {39, 1, 1},
                                                                 {40, 0, 4}, {44, 3, 1}, {45, 5, 1}, {46, 6, 2}};
        for (size_t k = 0; k < sizeof pieces / sizeof *pieces; k++)
            for (int w = 0; w < pieces[k].words; w++) CHECK_INT(o[pieces[k].to + w], x[pieces[k].from + w]);
        const uint32_t from[4] = {(l * 5 + 1) % 32, l % 16 >= 2 ? l - 2 : l, l % 16 < 14 ? l + 2 : l, l ^ 6};
        for (int k = 0; k < 4; k++) {
            float f;
            memcpy(&f, &o[48 + k], 4);
            CHECK_NEAR(f, warp[8 * from[k]] & 0xffff, 0);
        }
        CHECK_INT(o[52], 0x1111);
        CHECK_INT(o[53], 7);
    }
    CHECK_INT(counters[0], 127 * 3);
    CHECK_INT((int32_t)counters[1], 63);
    CHECK_INT(counters[2], ~0u);
    CHECK_NEAR(*(const float *)buffer_named("floats"), 64, 0);
    CHECK(wide[0] == (128ull << 40 | 127 * 64) && wide[1] == 128ull << 33 && wide[2] == 0x123456789abcdefull && wide[3] == 77ull << 32);
    simt_reset();
}

/* Both blocks of each cluster got the box, and each of the four blocks added it. */
TEST(clusters_and_tensor_maps)
{
    for (int rank = 1; rank <= 5; rank++) {
        run(find("probe_cluster", rank - 1), (uint64_t)rank, 900);
        static _Alignas(64) unsigned char params[PROBE_PARAMS_MAX];
        const struct simt_tensor in = tensors[0];
        const uint32_t *words = buffer_named("words"), *x = in.base, *sums = buffer_named("out");
        int before = buffer_count;
        probes_get(find("probe_cluster", rank - 1), &io, params); /* its coordinates */
        buffer_count = before;
        int32_t at[5];
        memcpy(at, params + 256 + 24, sizeof at);
        uint32_t box = 1, whole = 1, wrong = 0, *want = NULL;
        for (int d = 0; d < rank; d++) box *= in.box[d], whole *= in.dim[d];
        want = calloc(whole, 4);
        for (uint32_t n = 0; n < box; n++) {
            uint32_t rest = n;
            int64_t source = 0, step = 1;
            bool inside = true;
            for (int d = 0; d < rank; d++) {
                int64_t c = at[d] + (int64_t)(rest % in.box[d]);
                rest /= in.box[d];
                inside &= c >= 0 && c < in.dim[d];
                source += c * step, step *= in.dim[d];
            }
            for (uint32_t b = 0; b < 4; b++) wrong += words[b * (box + 4) + n] != (inside ? x[source] : 0);
            if (inside) want[source] = 4 * x[source];
        }
        wrong += memcmp(want, sums, whole * 4) != 0;
        CHECK_INT(wrong, 0);
        for (uint32_t b = 0; b < 4; b++) {
            const uint32_t *w = words + b * (box + 4) + box, last[4] = {b / 2, b % 2, 2, 100 * (b ^ 1) + 7};
            CHECK(!memcmp(w, last, sizeof last));
        }
        for (int i = 0; i < 8; i++) CHECK_INT(((const uint32_t *)buffer_named("halves"))[i], i < 4 ? 0x40804080 : 0); /* four ones */
        free(want);
        simt_reset();
    }
}

/* The approximate functions keep their distance from libm's in the emulation too (they are exact there). */
TEST(functions)
{
    run(find("probe_math", 0), 2, 900);
    const float *x = buffer_named("x"), *out = buffer_named("out");
    for (int i = 0; i < 4000 && !test_failures_; i++) {
        const float *o = out + 20 * i, y = x[(i + 1) % 4000];
        double v = x[i];
        CHECK_NEAR(o[0] / exp2(v), 1, 1e-6);
        CHECK_NEAR(o[2] * v, 1, 1e-6);
        CHECK_NEAR(o[3] * sqrt(fabs(v)), 1, 1e-6);
        CHECK_NEAR(o[5] / exp(v), 1, 1e-5);
        CHECK_NEAR(o[9], erf(v), 1e-6);
        CHECK_NEAR(o[14], (float)(v / (double)y), fabs(v / (double)y) * 1e-7);
        CHECK_NEAR(o[15], (double)(float)(v * (double)y + fabs(v)), fabs(v) * 1e-5);
        CHECK_NEAR(o[18], nearbyint(4 * v), 0);
    }
    simt_reset();
}

TEST_MAIN(CASE(clean_and_the_same_in_every_order), CASE(warps), CASE(tma_images), CASE(synchronisation), CASE(mistakes_of_synchronisation), CASE(accesses), CASE(clusters_and_tensor_maps),
          CASE(functions))
