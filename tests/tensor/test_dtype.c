/* Codecs against the packages gguf and torch (tests/golden/make_dtype.py), float16 against its definition,
 * all of it. */
#include "tensor/dtype.h"

#include "base/file.h"
#include "test.h"

static float *read_records(struct arena *arena, const uint8_t **p, const uint8_t *end, char *kind,
                           char name[16], const uint8_t **raw, uint32_t *bytes, uint32_t *floats)
{
    if (end - *p < 24) return NULL;
    *kind = (char)**p;
    memcpy(name, *p + 1, 15);
    name[15] = '\0';
    memcpy(bytes, *p + 16, 4);
    memcpy(floats, *p + 20, 4);
    *raw = *p + 24;
    *p = *raw + *bytes + 4ull * *floats;
    if (*p > end) return NULL;
    float *copy = arena_alloc(arena, 4ull * *floats);
    memcpy(copy, *raw + *bytes, 4ull * *floats);
    return copy;
}

static enum dtype by_name(const char *name)
{
    for (int d = 0; d < DTYPE_COUNT; d++)
        if (!strcmp(dtype_info((enum dtype)d)->name, name)) return (enum dtype)d;
    return DTYPE_NONE;
}

static bool same_float(float a, float b)
{
    return (a != a && b != b) || !memcmp(&a, &b, 4);
}

/* Runs every record of one kind; returns how many there were. */
static int golden(char wanted)
{
    struct arena arena;
    struct rose_error err;
    struct str text = {0};
    int records = 0;
    arena_init(&arena, 0);
    CHECK_OK(file_read(&arena, "tests/golden/dtype/codec.bin", 1 << 20, &text, &err), err);
    const uint8_t *p = (const uint8_t *)text.p, *end = p + text.n, *raw;
    char kind, name[16];
    uint32_t bytes, floats;
    float *values;
    while ((values = read_records(&arena, &p, end, &kind, name, &raw, &bytes, &floats))) {
        if (kind != wanted) continue;
        records++;
        enum dtype dtype = by_name(name);
        CHECK(dtype != DTYPE_NONE);
        CHECK_INT(dtype_row_bytes(dtype, floats), bytes);
        int wrong = 0;
        if (kind == 'D') {
            float *got = arena_alloc(&arena, 4ull * floats);
            dtype_decode(dtype, raw, got, floats);
            for (uint32_t i = 0; i < floats; i++) {
                if (same_float(got[i], values[i]) || wrong++) continue;
                fprintf(stderr, "%s element %u: %.9g, expected %.9g\n", name, i, (double)got[i],
                        (double)values[i]);
            }
        } else {
            uint8_t *got = arena_alloc(&arena, bytes);
            CHECK_OK(dtype_encode(dtype, values, got, floats, &err), err);
            for (uint32_t i = 0; i < bytes; i++) {
                if (got[i] == raw[i] || wrong++) continue;
                fprintf(stderr, "%s byte %u: %02x, expected %02x\n", name, i, got[i], raw[i]);
            }
        }
        CHECK_INT(wrong, 0);
    }
    arena_free(&arena);
    return records;
}

TEST(decode_golden)
{
    CHECK_INT(golden('D'), 15);
}
TEST(encode_golden)
{
    CHECK_INT(golden('E'), 6);
}

/* The value a float16 pattern stands for, from the definition. */
static double half_value(uint32_t h)
{
    int e = (int)(h >> 10 & 31), m = (int)(h & 1023);
    double v = e ? ldexp(1024 + m, e - 25) : ldexp(m, -24);
    return h & 0x8000 ? -v : v;
}

TEST(f16_all)
{
    for (uint32_t h = 0; h < 65536; h++) {
        float f = f16_to_f32((uint16_t)h);
        if ((h & 0x7C00) == 0x7C00) {
            CHECK(h & 0x3FF ? isnan(f) : isinf(f));
            CHECK_INT(signbit(f) != 0, h >> 15);
            if (h & 0x200 || !(h & 0x3FF))
                CHECK_INT(f32_to_f16(f), h);
            else
                CHECK(isnan(f16_to_f32(f32_to_f16(f))));
            continue;
        }
        CHECK(f == half_value(h) && (signbit(f) != 0) == h >> 15);
        CHECK_INT(f32_to_f16(f), h);
    }
}

/* Between any two neighbours: the middle goes to the even one, the next float32 on each side to the nearer
 * one. */
TEST(f16_rounds_to_nearest_even)
{
    for (uint32_t h = 0; h < 0x7C00; h++) {
        float middle = (float)((half_value(h) + (h == 0x7BFF ? 65536 : half_value(h + 1))) / 2);
        for (uint32_t sign = 0; sign <= 0x8000; sign += 0x8000) {
            float s = sign ? -1 : 1;
            CHECK_INT(f32_to_f16(s * middle), sign | (h & 1 ? h + 1 : h));
            CHECK_INT(f32_to_f16(s * nextafterf(middle, 0)), sign | h);
            CHECK_INT(f32_to_f16(s * nextafterf(middle, INFINITY)), sign | (h + 1));
        }
    }
    CHECK_INT(f32_to_f16(1e38f), 0x7C00);
    CHECK_INT(f32_to_f16(-INFINITY), 0xFC00);
    CHECK_INT(f32_to_f16(1e-45f), 0);
}

TEST(bf16_rounds_to_nearest_even)
{
    for (uint32_t h = 0; h < 0x7F80; h++) {
        uint32_t u = h << 16;
        float f[4];
        uint32_t low[4] = {0, 0x7FFF, 0x8000, 0x8001}, want[4] = {h, h, h + (h & 1), h + 1};
        for (int i = 0; i < 4; i++) {
            uint32_t bits = u | low[i];
            memcpy(&f[i], &bits, 4);
            CHECK_INT(f32_to_bf16(f[i]), want[i]);
            CHECK_INT(f32_to_bf16(-f[i]), want[i] | 0x8000);
        }
        CHECK(bf16_to_f32((uint16_t)h) == f[0]);
    }
    CHECK(isnan(bf16_to_f32(f32_to_bf16(NAN))));
    CHECK_INT(f32_to_bf16(INFINITY), 0x7F80);
}

TEST(fp8_saturates)
{
    float in[6] = {1e9f, -1e9f, INFINITY, 464.5f, NAN, 61440.5f};
    uint8_t out[6];
    struct rose_error err;
    CHECK_OK(dtype_encode(DTYPE_F8_E4M3, in, out, 6, &err), err);
    CHECK_INT(out[0], 0x7E);
    CHECK_INT(out[1], 0xFE);
    CHECK_INT(out[2], 0x7E);
    CHECK_INT(out[3], 0x7E);
    CHECK_INT(out[4] & 0x7F, 0x7F);
    CHECK_OK(dtype_encode(DTYPE_F8_E5M2, in, out, 6, &err), err);
    CHECK_INT(out[0], 0x7B);
    CHECK_INT(out[1], 0xFB);
    CHECK_INT(out[2], 0x7B);
    CHECK(isnan(f16_to_f32((uint16_t)(out[4] << 8))));
    CHECK_INT(out[5], 0x7B);
}

/* Ties of E2M1 go to the even code; 6 is the largest. */
TEST(mxfp4_rounds_to_nearest_even)
{
    float in[32] = {4, 0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5, -5, 7, -0.2f, 0.26f}, out[32];
    float want[32] = {4, 0, 1, 1, 2, 2, 4, 4, -4, 6, 0, 0.5f};
    uint8_t block[17];
    struct rose_error err;
    CHECK_OK(dtype_encode(DTYPE_MXFP4, in, block, 32, &err), err);
    CHECK_INT(block[0], 127);
    dtype_decode(DTYPE_MXFP4, block, out, 32);
    for (int i = 0; i < 32; i++) CHECK_NEAR(out[i], want[i], 0);
    in[3] = NAN;
    CHECK_INT(dtype_encode(DTYPE_MXFP4, in, block, 32, &err), ROSE_INVALID);
}

TEST(integers_and_f64)
{
    float out[2];
    int8_t i8[2] = {-128, 127};
    uint16_t u16[2] = {65535, 1};
    int64_t i64[2] = {-(1ll << 40), 1 << 24};
    uint64_t u64[2] = {1ull << 63, 7};
    double f64[2] = {0.1, -1e300};
    dtype_decode(DTYPE_I8, i8, out, 2);
    CHECK_NEAR(out[0], -128, 0);
    dtype_decode(DTYPE_U16, u16, out, 2);
    CHECK_NEAR(out[0], 65535, 0);
    dtype_decode(DTYPE_I64, i64, out, 2);
    CHECK_NEAR(out[0], -1099511627776.0, 0);
    dtype_decode(DTYPE_U64, u64, out, 2);
    CHECK_NEAR(out[0], 9223372036854775808.0, 0);
    dtype_decode(DTYPE_F64, f64, out, 2);
    CHECK_NEAR(out[0], 0.1f, 0);
    CHECK(isinf(out[1]));
}

/* A format unit's arithmetic is checked against the sizes; NaN and huge inputs must not upset the block
 * encoders. */
TEST(rows_and_refusals)
{
    struct rose_error err;
    float odd[32];
    uint8_t block[34];
    CHECK_INT(dtype_row_bytes(DTYPE_Q4_K, 512), 288);
    CHECK_INT(dtype_row_bytes(DTYPE_Q4_K, 128), 0);
    CHECK_INT(dtype_row_bytes(DTYPE_F64, SIZE_MAX / 4), 0);
    CHECK_INT(dtype_row_bytes((enum dtype)999, 4), 0);
    CHECK_STR(dtype_info((enum dtype) - 1)->name, "NONE");
    CHECK_INT(dtype_encode(DTYPE_Q8_0, odd, block, 31, &err), ROSE_INVALID);
    CHECK_INT(dtype_encode(DTYPE_Q6_K, odd, block, 0, &err), ROSE_UNSUPPORTED);
    for (int i = 0; i < 32; i++) odd[i] = i == 3 ? NAN : i == 7 ? INFINITY : 1e-44f;
    for (int k = 0; k < 3; k++) {
        enum dtype d = (enum dtype[]){DTYPE_Q8_0, DTYPE_Q4_0, DTYPE_Q4_1}[k];
        CHECK_OK(dtype_encode(d, odd, block, 32, &err), err);
        odd[3] = 3e38f, odd[7] = -3e38f;
        CHECK_OK(dtype_encode(d, odd, block, 32, &err), err);
    }
}

TEST_MAIN(CASE(decode_golden), CASE(encode_golden), CASE(f16_all), CASE(f16_rounds_to_nearest_even),
          CASE(bf16_rounds_to_nearest_even), CASE(fp8_saturates), CASE(mxfp4_rounds_to_nearest_even),
          CASE(integers_and_f64), CASE(rows_and_refusals))
