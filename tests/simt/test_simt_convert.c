/* The conversions' bit forms against float64, for every code and for floats around every rounding boundary.
 */
#define ROSE_SIMT
#define ROSE_ARCH 800
#include "kernels/cuda/common/convert.cuh"
#include "simt.h"
#include "test.h"

struct format {
    int exponent_bits, mantissa_bits, bias;
    int max_code; /* largest finite */
    double value[65536];
    int infinity; /* code, -1: saturates */
    int nan_code; /* without sign; -1: keeps none */
};

/* Value of every non-negative finite code, from the definition. */
static void fill(struct format *f)
{
    for (int c = 0; c <= f->max_code; c++) {
        int e = c >> f->mantissa_bits, m = c & ((1 << f->mantissa_bits) - 1);
        f->value[c] = e ? ldexp(1.0 + ldexp(m, -f->mantissa_bits), e - f->bias)
                        : ldexp(m, 1 - f->bias - f->mantissa_bits);
    }
}

/* Nearest code, ties to even, of |x|; past the largest: saturates, or infinity from half a step beyond. */
static int nearest(const struct format *f, double x)
{
    int lo = 0, hi = f->max_code;
    if (x >= f->value[hi]) {
        double half = (f->value[hi] - f->value[hi - 1]) / 2;
        if (f->infinity >= 0 && x >= f->value[hi] + half) return f->infinity;
        return hi;
    }
    while (hi - lo > 1) {
        int mid = (lo + hi) / 2;
        if (f->value[mid] <= x)
            lo = mid;
        else
            hi = mid;
    }
    double down = x - f->value[lo], up = f->value[hi] - x;
    return down < up ? lo : up < down ? hi : lo & 1 ? hi : lo;
}

static int64_t checked;
static void check_float(const struct format *f, const char *name, int (*convert)(float), float x,
                        int sign_bit)
{
    int got = convert(x), want;
    checked++;
    if (x != x)
        want = f->nan_code;
    else
        want = nearest(f, fabs((double)x)) | (signbit(x) ? 1 << sign_bit : 0);
    if (got != want) {
        fprintf(stderr, "%s(%a) is %#x, expected %#x\n", name, (double)x, got, want);
        CHECK_INT(got, want);
    }
}

static void check_format(struct format *f, const char *name, int (*convert)(float))
{
    int sign_bit = f->exponent_bits + f->mantissa_bits;
    fill(f);
    for (uint32_t high = 0; high < 65536; high++) { /* every bf16, and its neighbours in float */
        static const uint32_t low[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff};
        for (size_t i = 0; i < sizeof low / sizeof *low && !test_failures_; i++)
            check_float(f, name, convert, f32_from_bits(high << 16 | low[i]), sign_bit);
    }
    for (int c = 0; c < f->max_code && !test_failures_;
         c++) { /* every midpoint, one ulp off, and every code itself */
        float mid = (float)((f->value[c] + f->value[c + 1]) / 2), self = (float)f->value[c];
        const float xs[] = {mid,  nextafterf(mid, 0),  nextafterf(mid, INFINITY),
                            self, nextafterf(self, 0), nextafterf(self, INFINITY)};
        for (int s = 0; s < 2; s++)
            for (size_t i = 0; i < sizeof xs / sizeof *xs; i++)
                check_float(f, name, convert, s ? -xs[i] : xs[i], sign_bit);
    }
}

static struct format e4m3_format = {4, 3, 7, 0x7e, {0}, -1, 0x7f},
                     e5m2_format = {5, 2, 15, 0x7b, {0}, -1, 0x7f}, e2m1_format = {2, 1, 1, 7, {0}, -1, 7},
                     bf16_format = {8, 7, 127, 0x7f7f, {0}, 0x7f80, 0x7fff},
                     f16_format = {5, 10, 15, 0x7bff, {0}, 0x7c00, 0x7fff}, f16_finite_format = {5, 10, 15, 0x7bff, {0}, -1, 0x7fff};

static int to_e4m3(float x)
{
    return f32_to_e4m3(x).bits;
}
static int to_e4m3_high(float x)
{
    return f32_to_e4m3x2(3.0f, x) >> 8;
}
static int to_e5m2(float x)
{
    return f32_to_e5m2(x).bits;
}
static int to_e5m2_high(float x)
{
    return f32_to_e5m2x2(3.0f, x) >> 8;
}
static int to_e2m1(float x)
{
    return f32_to_e2m1x2(x, 3.0f).bits & 15;
}
static int to_e2m1_high(float x)
{
    return f32_to_e2m1x2(3.0f, x).bits >> 4;
}
static int to_bf16(float x)
{
    return f32_to_bf16(x).bits;
}
static int to_bf16_high(float x)
{
    return (int)(f32_to_bf16x2(3.0f, x).bits >> 16);
}
static int to_f16(float x)
{
    return f32_to_f16(x).bits;
}
static int to_f16_high(float x)
{
    return (int)(f32_to_f16x2(3.0f, x).bits >> 16);
}

static int to_f16_finite(float x)
{
    return f32_to_f16_finite(x).bits;
}
static int to_f16_finite_high(float x)
{
    return (int)(f32_to_f16x2_finite(3.0f, x).bits >> 16);
}

TEST(encode)
{
    check_format(&e4m3_format, "f32_to_e4m3", to_e4m3);
    check_format(&e4m3_format, "f32_to_e4m3x2 high", to_e4m3_high);
    check_format(&e5m2_format, "f32_to_e5m2", to_e5m2);
    check_format(&e5m2_format, "f32_to_e5m2x2 high", to_e5m2_high);
    check_format(&e2m1_format, "f32_to_e2m1x2", to_e2m1);
    check_format(&e2m1_format, "f32_to_e2m1x2 high", to_e2m1_high);
    check_format(&bf16_format, "f32_to_bf16", to_bf16);
    check_format(&bf16_format, "f32_to_bf16x2 high", to_bf16_high);
    check_format(&f16_format, "f32_to_f16", to_f16);
    check_format(&f16_format, "f32_to_f16x2 high", to_f16_high);
    check_format(&f16_finite_format, "f32_to_f16_finite", to_f16_finite);
    check_format(&f16_finite_format, "f32_to_f16x2_finite high", to_f16_finite_high);
    CHECK(checked > 4000000);
}

/* value[code] with its sign; NaN for the codes beyond the largest finite one, infinity for `infinity`. */
static double decoded(const struct format *f, int code, int infinity)
{
    int sign_bit = f->exponent_bits + f->mantissa_bits, a = code & ((1 << sign_bit) - 1);
    double v = a <= f->max_code ? f->value[a] : a == infinity ? INFINITY : NAN;
    return code >> sign_bit & 1 ? -v : v;
}
static bool same(double a, double b)
{
    return (a != a && b != b) || (a == b && signbit(a) == signbit(b));
}

TEST(decode)
{
    fill(&e4m3_format), fill(&e5m2_format), fill(&e2m1_format), fill(&bf16_format), fill(&f16_format);
    for (int c = 0; c < 65536; c++) {
        CHECK(same(bf16_to_f32((bf16){(uint16_t)c}), decoded(&bf16_format, c, 0x7f80)));
        CHECK(same(f16_to_f32((f16){(uint16_t)c}), decoded(&f16_format, c, 0x7c00)));
        f32x2 a = e4m3x2_to_f32x2((uint16_t)c), b = e5m2x2_to_f32x2((uint16_t)c);
        CHECK(same(a.v[0], decoded(&e4m3_format, c & 255, -1)) &&
              same(a.v[1], decoded(&e4m3_format, c >> 8, -1)));
        CHECK(same(b.v[0], decoded(&e5m2_format, c & 255, 0x7c)) &&
              same(b.v[1], decoded(&e5m2_format, c >> 8, 0x7c)));
        f16x2 h = e4m3x2_to_f16x2((uint16_t)c);
        CHECK(same(f16x2_lo_f32(h), a.v[0]) && same(f16x2_hi_f32(h), a.v[1]));
        h = e5m2x2_to_f16x2((uint16_t)c);
        CHECK(same(f16x2_lo_f32(h), b.v[0]) && same(f16x2_hi_f32(h), b.v[1]));
        bf16x2 g = e4m3x2_to_bf16x2((uint16_t)c);
        CHECK(same(bf16x2_lo_f32(g), a.v[0]) && same(bf16x2_hi_f32(g), a.v[1]));
        if (test_failures_) return;
    }
    for (int c = 0; c < 256; c++) {
        f32x2 v = e2m1x2_to_f32x2((e2m1x2){(uint8_t)c});
        CHECK(same(v.v[0], decoded(&e2m1_format, c & 15, -1)) &&
              same(v.v[1], decoded(&e2m1_format, c >> 4, -1)));
        double e = c == 255 ? NAN : ldexp(1, c - 127);
        CHECK(same(ue8m0_to_f32((ue8m0){(uint8_t)c}), e));
    }
    for (uint32_t i = 0; i < 65536; i++) { /* eight codes at once */
        uint32_t codes = i * 0x9e3779b1u ^ i << 7;
        bf16x2 o[4];
        e2m1x8_to_bf16x2(codes, o);
        for (int k = 0; k < 8; k++) {
            float got = k & 1 ? bf16x2_hi_f32(o[k / 2]) : bf16x2_lo_f32(o[k / 2]);
            CHECK(same(got, decoded(&e2m1_format, (int)(codes >> (4 * k) & 15), -1)));
        }
    }
}

TEST(ue8m0_rounding)
{
    for (uint32_t high = 0; high < 32768; high++)
        for (uint32_t i = 0; i < 3; i++) {
            float x = f32_from_bits(high << 16 | (i == 1 ? 1 : i == 2 ? 0xffff : 0));
            int up = 0, down = 254;
            if (x != x)
                up = down = 255;
            else {
                while (up < 254 && ldexp(1, up - 127) < (double)x) up++;
                while (down > 0 && ldexp(1, down - 127) > (double)x) down--;
            }
            CHECK_INT(f32_to_ue8m0_up(x).bits, up);
            CHECK_INT(f32_to_ue8m0_down(x).bits, down);
            if (test_failures_) return;
        }
}

/* The packed fma rounds once: against long double, which holds these products and sums exactly where it
 * matters. */
TEST(packed_fma)
{
    uint64_t r = 1;
    for (int i = 0; i < 400000 && !test_failures_; i++) {
        r = r * 6364136223846793005ull + 1442695040888963407ull;
        uint16_t a = (uint16_t)(r >> 48), b = (uint16_t)(r >> 32), c = (uint16_t)(r >> 16);
        if (i & 1)
            a = (uint16_t)(0x3f00 | (a & 0xff)), b = (uint16_t)(0x3f00 | (b & 0xff)),
            c = (uint16_t)(0x3f00 | (c & 0x80ff));
        double p = (double)bf16_to_f32((bf16){a}) * (double)bf16_to_f32((bf16){b});
        long double s = (long double)p + (long double)bf16_to_f32((bf16){c});
        int got = (int)bf16x2_fma(as_bf16x2(a), as_bf16x2(b), as_bf16x2(c)).bits & 0xffff;
        int want = s != s ? 0x7fff : nearest(&bf16_format, (double)fabsl(s)) | (signbit(s) ? 0x8000 : 0);
        long double cc = (long double)bf16_to_f32((bf16){c});
        bool exact =
            s == s && s - (long double)p == cc && s - cc == (long double)p && (long double)(double)s == s;
        if (s == s && !exact) continue; /* the reference itself would round twice */
        CHECK_INT(got, want);
    }
}

TEST_MAIN(CASE(encode), CASE(decode), CASE(ue8m0_rounding), CASE(packed_fma))
