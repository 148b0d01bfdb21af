/* AMX tiles (Intel Architecture Instruction Set Extensions, chapter "Intel AMX"): 8 registers of 16 rows x 64
 * bytes.
 *
 *     c[16][16] f32 += a[16][32] bf16 * b[16][16][2] bf16     b: [pair of a's columns][output][of the pair]
 *     c[16][16] i32 += a[16][64] s8 * b[16][16][4] u8         b: likewise quads
 *
 * The instructions are written as asm with the memory they touch stated: gcc 12's _tile_loadconfig declares 8
 * of its 64 bytes, its _tile_loadd none. With ROSE_AMX_EMULATE the same names are plain C, so that AMX
 * kernels run in tests anywhere. Tile numbers are literals. amx_begin configures all 8 tiles to full size,
 * amx_begin_dot tiles 4, 5 (a) and 6, 7 (b) to fewer columns; amx_end gives the state back (a thread that
 * keeps tile state pays for it at every context switch). Needs cpu_isa() == CPU_ISA_AMX, which has asked
 * Linux for permission. */
#ifndef ROSE_KERNELS_CPU_AMX_H
#define ROSE_KERNELS_CPU_AMX_H

#include <stdint.h>
#include <string.h>

#define AMX_INLINE static inline __attribute__((always_inline, unused))

struct amx_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};
_Static_assert(sizeof(struct amx_config) == 64, "what ldtilecfg reads");

#if !defined(ROSE_AMX_EMULATE)

/* k_bytes: of a row of a, a multiple of 4 up to 64; b has a fourth as many rows. */
AMX_INLINE void amx_begin_dot(int k_bytes)
{
    _Alignas(64) struct amx_config c = {.palette = 1};
    for (int i = 0; i < 8; i++) c.row_bytes[i] = 64, c.rows[i] = 16;
    c.row_bytes[4] = c.row_bytes[5] = (uint16_t)k_bytes;
    c.rows[6] = c.rows[7] = (uint8_t)(k_bytes / 4);
    __asm__ volatile("ldtilecfg %0" ::"m"(c));
}
AMX_INLINE void amx_end(void)
{
    __asm__ volatile("tilerelease" ::: "memory");
}

/* Statement expressions: usable wherever a call is. */
#define amx_asm_(...) __extension__({ __asm__ volatile(__VA_ARGS__); })
#define amx_zero(t) amx_asm_("tilezero %%tmm" #t ::: "memory")
/* 16 rows of 64 bytes, `stride` bytes apart. */
#define amx_load(t, base, stride) \
    amx_asm_("tileloadd (%0,%1,1), %%tmm" #t ::"r"((const void *)(base)), "r"((long)(stride)) : "memory")
#define amx_store(t, base, stride) \
    amx_asm_("tilestored %%tmm" #t ", (%0,%1,1)" ::"r"((void *)(base)), "r"((long)(stride)) : "memory")
#define amx_dot_bf16(c, a, b) amx_asm_("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::: "memory")
#define amx_dot_s8u8(c, a, b) amx_asm_("tdpbsud %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::: "memory")

#else

static _Thread_local struct {
    uint8_t row[16][64];
} amx_tiles_[8];
static _Thread_local int amx_configured_; /* bytes of a row of a; 0: no configuration */

AMX_INLINE void amx_begin_dot(int k_bytes)
{
    memset(amx_tiles_, 0, sizeof amx_tiles_);
    amx_configured_ = k_bytes;
}
AMX_INLINE void amx_end(void)
{
    amx_configured_ = 0;
}
/* The hardware raises #UD on tiles without configuration. */
AMX_INLINE void amx_check_(void)
{
    if (!amx_configured_) __builtin_trap();
}
AMX_INLINE void amx_zero(int t)
{
    amx_check_();
    memset(&amx_tiles_[t], 0, sizeof amx_tiles_[t]);
}
AMX_INLINE void amx_load(int t, const void *base, long stride)
{
    amx_check_();
    int rows = t >= 6 ? amx_configured_ / 4 : 16, bytes = t == 4 || t == 5 ? amx_configured_ : 64;
    memset(&amx_tiles_[t], 0, sizeof amx_tiles_[t]);
    for (int r = 0; r < rows; r++)
        memcpy(amx_tiles_[t].row[r], (const char *)base + r * stride, (size_t)bytes);
}
AMX_INLINE void amx_store(int t, void *base, long stride)
{
    amx_check_();
    for (int r = 0; r < 16; r++) memcpy((char *)base + r * stride, amx_tiles_[t].row[r], 64);
}
AMX_INLINE float amx_bf16_(const uint8_t *row, int i)
{
    uint16_t h;
    memcpy(&h, row + 2 * i, 2);
    uint32_t u = (uint32_t)h << 16;
    float f;
    memcpy(&f, &u, 4);
    return f;
}
AMX_INLINE void amx_dot_bf16(int c, int a, int b)
{
    amx_check_();
    for (int m = 0; m < 16; m++)
        for (int n = 0; n < 16; n++) {
            float acc;
            memcpy(&acc, amx_tiles_[c].row[m] + 4 * n, 4);
            for (int k = 0; k < 16; k++) {
                acc += amx_bf16_(amx_tiles_[a].row[m], 2 * k) * amx_bf16_(amx_tiles_[b].row[k], 2 * n);
                acc +=
                    amx_bf16_(amx_tiles_[a].row[m], 2 * k + 1) * amx_bf16_(amx_tiles_[b].row[k], 2 * n + 1);
            }
            memcpy(amx_tiles_[c].row[m] + 4 * n, &acc, 4);
        }
}
AMX_INLINE void amx_dot_s8u8(int c, int a, int b)
{
    amx_check_();
    for (int m = 0; m < 16; m++)
        for (int n = 0; n < 16; n++) {
            int32_t acc;
            memcpy(&acc, amx_tiles_[c].row[m] + 4 * n, 4);
            for (int k = 0; k < 16; k++)
                for (int i = 0; i < 4; i++)
                    acc += (int8_t)amx_tiles_[a].row[m][4 * k + i] * amx_tiles_[b].row[k][4 * n + i];
            memcpy(amx_tiles_[c].row[m] + 4 * n, &acc, 4);
        }
}

#endif

AMX_INLINE void amx_begin(void)
{
    amx_begin_dot(64);
}

#endif
