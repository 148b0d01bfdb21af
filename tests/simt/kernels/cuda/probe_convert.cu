// arch: sm_80 sm_89 sm_90a sm_100a sm_120a
/* Every conversion and packed operation on raw bits: x[n] floats as bits, out[n][16]. The same on the CPU and on the GPU. */
#include "kernels/cuda/common/rose.cuh"

struct probe_convert_params {
    const uint32_t *x; /* [n] */
    uint32_t *out;     /* [n][16] */
    uint32_t n;
};

KERNEL(probe_convert, struct probe_convert_params, p, 128, 1)
{
    uint32_t i = block_x() * 128 + thread_x();
    if (i >= p.n) return;
    uint32_t u = p.x[i], v = p.x[(i + 1) % p.n], w = p.x[(i + 2) % p.n];
    float x = f32_from_bits(u), y = f32_from_bits(v);
    uint32_t *o = p.out + (size_t)i * 16;
    o[0] = f32_to_bf16(x).bits | (uint32_t)f32_to_f16(x).bits << 16;
    o[1] = f32_to_bf16x2(x, y).bits;
    o[2] = f32_to_f16x2(x, y).bits;
    o[3] = f32_to_e4m3x4(x, y, y, x);
    o[4] = f32_to_e5m2x4(x, y, y, x);
    o[5] = f32_to_e2m1x2(x, y).bits | (uint32_t)f32_to_ue8m0_up(x).bits << 8 | (uint32_t)f32_to_ue8m0_down(x).bits << 16;
    o[6] = e4m3x2_to_f16x2((uint16_t)u).bits;
    o[7] = e5m2x2_to_f16x2((uint16_t)u).bits;
    o[8] = e4m3x2_to_bf16x2((uint16_t)u).bits;
    bf16x2 e[4];
    e2m1x8_to_bf16x2(u, e);
    o[9] = e[0].bits ^ e[1].bits * 3;
    o[10] = e[2].bits ^ e[3].bits * 3;
    o[11] = bf16x2_fma(as_bf16x2(u), as_bf16x2(v), as_bf16x2(w)).bits;
    f16x2 a, b, c;
    a.bits = u, b.bits = v, c.bits = w;
    o[12] = f16x2_fma(a, b, c).bits;
    ue8m0 s;
    s.bits = (uint8_t)u;
    o[13] = f32_bits(ue8m0_to_f32(s));
    o[14] = (uint32_t)f32_to_s8(x) & 0xff;
    o[15] = f32_bits(f16_to_f32(f32_to_f16(x))) ^ f32_bits(bf16_to_f32(f32_to_bf16(y)));
}
