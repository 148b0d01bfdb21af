/* Matrix instructions of a warp, by the fragment layouts of mma.cuh. */
#define ROSE_SIMT
#define ROSE_ARCH 1200
#include "kernels/cuda/common/convert.cuh"
#include "simt_internal.h"

#include <math.h>
#include <string.h>

int simt_type_bits(enum simt_type t)
{
    return t == SIMT_BF16 || t == SIMT_F16 ? 16 : t == SIMT_E2M1 ? 4 : 8;
}

double simt_decode(enum simt_type t, uint32_t c)
{
    switch (t) {
    case SIMT_BF16: return f32_from_bits(c << 16);
    case SIMT_F16: return rose_f16_decode_(c);
    case SIMT_E4M3: return rose_e4m3_decode_(c);
    case SIMT_E5M2: return rose_e5m2_decode_(c);
    case SIMT_S8: return (int8_t)c;
    case SIMT_E2M1: return rose_e2m1_decode_(c);
    }
    return 0;
}

/* What Hopper's wgmma makes of FP8 (bit for bit what an H200 gave; the model is that of arXiv:2511.10909): products are exact, but brought to
 * the largest exponent among them and the sum so far, cut there behind 13 fraction bits, added, and the result is cut to 13 bits too. */
enum { FP8_FRACTION = 13, FP8_ZERO = -(1 << 20) };

int simt_fp8_exponent(enum simt_type t, double v)
{
    int e = v == 0 ? FP8_ZERO : ilogb(v), least = t == SIMT_E4M3 ? -6 : -14;
    return v != 0 && e < least ? least : e;
}

/* The sums of products take the widest vectors that the machine has: element by element, so that each has the same bits. Sanitizers have
 * no clones: their functions cannot be chosen before they are up. */
#if defined __x86_64__ && defined __GNUC__ && !defined __clang__ && !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__
#define WIDE __attribute__((target_clones("avx512f", "avx2", "default"), optimize("O3")))
#else
#define WIDE
#endif

WIDE void simt_fp8_row(enum simt_type t, const double *a, const double (*b)[256], const int (*exponents)[256], int k, int n, float *d)
{
    int largest[256], sum[256];
    double unit[256];
    for (int c = 0; c < n; c++) largest[c] = d[c] == 0 ? FP8_ZERO : ilogb((double)d[c]);
    for (int i = 0; i < k; i++) {
        int e = simt_fp8_exponent(t, a[i]);
        for (int c = 0; c < n; c++) largest[c] = e + exponents[i][c] > largest[c] ? e + exponents[i][c] : largest[c];
    }
    for (int c = 0; c < n; c++) {
        unit[c] = largest[c] > FP8_ZERO / 2 ? ldexp(1, FP8_FRACTION - largest[c]) : 0; /* all zero: nothing counts */
        sum[c] = (int)((double)d[c] * unit[c]);
    }
    for (int i = 0; i < k; i++)
        for (int c = 0; c < n; c++) sum[c] += (int)(a[i] * b[i][c] * unit[c]); /* towards zero */
    for (int c = 0; c < n; c++) {
        int v = sum[c], drop = v ? ilogb((double)v) - FP8_FRACTION : 0;
        if (drop > 0) v = v / (1 << drop) * (1 << drop);
        d[c] = v ? (float)(v / unit[c]) : 0;
    }
}

uint32_t simt_element(const uint32_t *regs, enum simt_type t, int index)
{
    int bits = simt_type_bits(t), per = 32 / bits;
    return regs[index / per] >> (index % per * bits) & ((1u << bits) - 1);
}

/* ---- ldmatrix, stmatrix
 * ------------------------------------------------------------------------------------------------ */
struct matrix_args {
    uint32_t *r;
    unsigned char *row;
    int tiles;
    bool trans, store;
};

static void matrix_all(struct fiber *const lane[32], void *const args[32], uint32_t mask)
{
    (void)mask, (void)lane;
    for (int t = 0; t < ((struct matrix_args *)args[0])->tiles; t++)
        for (int l = 0; l < 32; l++) {
            struct matrix_args *a = args[l];
            for (int e = 0; e < 2; e++) {
                int i = l / 4, j = 2 * (l % 4) + e;
                struct matrix_args *owner = args[8 * t + (a->trans ? j : i)];
                unsigned char *p = owner->row + 2 * (a->trans ? i : j);
                uint16_t h = (uint16_t)(a->r[t] >> (16 * e));
                if (a->store)
                    memcpy(p, &h, 2);
                else {
                    memcpy(&h, p, 2);
                    a->r[t] = (a->r[t] & ~(0xffffu << (16 * e))) | (uint32_t)h << (16 * e);
                }
            }
        }
}

static void matrix(uint32_t *r, void *row, int tiles, bool trans, bool store, const void *pc)
{
    struct fiber *f = simt_grid->current;
    struct matrix_args a = {r, row, tiles, trans, store};
    if ((int)f->lane < 8 * tiles) {
        if ((uintptr_t)row % 16) simt_fail(SIMT_MISALIGNED, pc, "a matrix row's address is a multiple of 16");
        if (!simt_shared_owner(row))
            simt_fail(SIMT_BOUNDS, pc, "ldmatrix and stmatrix work on shared memory");
        simt_access(row, 16, store ? ACCESS_WRITE : ACCESS_READ, pc);
    }
    simt_warp_op(store ? SIMT_OP_STMATRIX : SIMT_OP_LDMATRIX, "waits for its warp at ldmatrix or stmatrix",
                 ~0u, &a, matrix_all, pc);
}

void simt_ldmatrix(uint32_t *r, const void *row, int tiles, bool trans)
{
    matrix(r, (void *)(uintptr_t)row, tiles, trans, false, SIMT_PC);
}

void simt_stmatrix(void *row, const uint32_t *r, int tiles, bool trans)
{
    uint32_t copy[4];
    memcpy(copy, r, sizeof(uint32_t) * (size_t)tiles);
    matrix(copy, row, tiles, trans, true, SIMT_PC);
}

/* ---- sparsity
 * ----------------------------------------------------------------------------------------------------------------
 */
void simt_meta_place(enum simt_type t, int row, int group, uint32_t selector, int *lane, int *shift)
{
    if (simt_type_bits(t) == 16) {
        *lane = 4 * (row % 8) + 2 * (int)selector + group / 4;
        *shift = 16 * (row / 8) + 4 * (group % 4);
    } else {
        *lane = 4 * (row % 8) + row / 8 + 2 * (group / 8);
        *shift = 4 * (group % 8);
    }
}

void simt_spread(double *full, const double *compressed, const uint8_t *nibbles, int k, enum simt_type t,
                 const void *pc)
{
    int unit = t == SIMT_E2M1 ? 2 : 1; /* elements that stay together */
    memset(full, 0, sizeof(double) * (size_t)k);
    for (int g = 0; g < k / (4 * unit); g++) {
        int p[2] = {nibbles[g] & 3, nibbles[g] >> 2 & 3};
        if (p[0] >= p[1])
            simt_fail(SIMT_MISUSE, pc,
                      "sparse metadata %#x of group %d: two different positions, the lower first", nibbles[g],
                      g);
        for (int i = 0; i < 2; i++)
            for (int e = 0; e < unit; e++)
                full[(4 * g + p[i]) * unit + e] = compressed[(2 * g + i) * unit + e];
    }
}

/* ---- mma
 * -----------------------------------------------------------------------------------------------------------------------
 */
struct mma_args {
    void *d;
    const uint32_t *a, *b;
    enum simt_type ta, tb;
    uint32_t sparse, meta, sa, sb;
    enum simt_scale scale;
    const void *pc;
};

static double scale_value(enum simt_scale s, uint32_t reg, int block)
{
    uint32_t c = reg >> (8 * block) & 0xff;
    if (s == SIMT_SCALE_UE4M3_4) return rose_e4m3_decode_(c & 0x7f);
    ue8m0 e = {(uint8_t)c};
    return ue8m0_to_f32(e);
}

/* Over k in order, eight columns at a time. */
WIDE static void tile_add(double sums[16][8], const double (*a)[SIMT_K_MAX], const double (*b)[8], int k)
{
    for (int r = 0; r < 16; r++)
        for (int i = 0; i < k; i++)
            for (int c = 0; c < 8; c++) sums[r][c] += a[r][i] * b[i][c];
}

static void mma_all(struct fiber *const lane[32], void *const args[32], uint32_t mask)
{
    (void)lane, (void)mask;
    const struct mma_args *const *x = (const struct mma_args *const *)args;
    const struct mma_args *any = x[0];
    int per = 32 / simt_type_bits(any->ta); /* elements a register */
    int held = 8 * per, k = any->sparse ? 2 * held : held;
    static double a[16][SIMT_K_MAX], b[SIMT_K_MAX][8];
    for (int r = 0; r < 16; r++) {
        double row[SIMT_K_MAX];
        for (int i = 0; i < held; i++) {
            const struct mma_args *o = x[4 * (r % 8) + i / per % 4];
            int reg = r / 8 + 2 * (i / (4 * per));
            row[i] = simt_decode(any->ta, simt_element(&o->a[reg], any->ta, i % per));
        }
        if (any->sparse) {
            uint8_t nibbles[SIMT_K_MAX / 4];
            int groups = k / (any->ta == SIMT_E2M1 ? 8 : 4);
            for (int g = 0; g < groups; g++) {
                int l, shift;
                simt_meta_place(any->ta, r, g, any->sparse - 1, &l, &shift);
                nibbles[g] = x[l]->meta >> shift & 15;
            }
            simt_spread(a[r], row, nibbles, k, any->ta, any->pc);
        } else
            memcpy(a[r], row, sizeof(double) * (size_t)k);
        int blocks = any->scale == SIMT_SCALE_UE4M3_4 ? 4 : 2;
        for (int i = 0; any->scale && i < k; i++)
            a[r][i] *= scale_value(any->scale, x[4 * (r % 8) + r / 8]->sa, i / (k / blocks));
    }
    for (int c = 0; c < 8; c++)
        for (int i = 0; i < k; i++) {
            const struct mma_args *o = x[4 * c + i / per % 4];
            b[i][c] = simt_decode(any->tb, simt_element(&o->b[i / (4 * per)], any->tb, i % per));
            int blocks = any->scale == SIMT_SCALE_UE4M3_4 ? 4 : 2;
            if (any->scale) b[i][c] *= scale_value(any->scale, x[4 * c]->sb, i / (k / blocks));
        }
    double sums[16][8] = {0};
    tile_add(sums, a, b, k);
    for (int l = 0; l < 32; l++)
        for (int e = 0; e < 4; e++) {
            int r = l / 4 + 8 * (e / 2), c = 2 * (l % 4) + e % 2;
            double sum = sums[r][c];
            if (any->ta == SIMT_S8) {
                int32_t *d = (int32_t *)x[l]->d + e;
                *d = (int32_t)((uint32_t)*d + (uint32_t)(int32_t)sum);
            } else {
                float *d = (float *)x[l]->d + e;
                *d = (float)((double)*d + sum);
            }
        }
}

void simt_mma(void *d, const uint32_t *a, const uint32_t *b, enum simt_type ta, enum simt_type tb,
              uint32_t sparse, uint32_t meta, enum simt_scale scale, uint32_t sa, uint32_t sb)
{
    uint32_t arch = simt_grid->l.kernel->arch;
    struct mma_args x = {d, a, b, ta, tb, sparse, meta, sa, sb, scale, SIMT_PC};
    bool fp8 = ta == SIMT_E4M3 || ta == SIMT_E5M2;
    if ((fp8 && arch < 890) || (ta == SIMT_E2M1 && arch != 1200))
        simt_fail(SIMT_RESOURCE, SIMT_PC, "sm_%u has no such mma", arch / 10);
    simt_warp_op(SIMT_OP_MMA, "waits for its warp at mma", ~0u, &x, mma_all, SIMT_PC);
}
