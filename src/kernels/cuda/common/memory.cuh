/* Loads, stores, atomics and fences.
 *
 * PTX ISA sections: 8 "Memory Consistency Model", 9.7.9.8 "ld", 9.7.9.9 "ld.global.nc", 9.7.9.12 "st",
 * 9.7.9.15 "prefetch", 9.7.9.18 "createpolicy", 9.7.13.4 "membar/fence", 9.7.13.5 "atom", 9.7.13.6 "red".
 *
 * Plain C accesses (`p[i]`, `*p`) are weak: the compiler may merge, repeat or move them, and two of them from different
 * threads race unless a barrier or a release/acquire pair orders them. Use the vector forms below for speed, and the
 * strong forms (ld/st/atom/red with an order and a scope) for everything that other threads poll or update.
 *
 *   ld16(p) st16(p, v)      weak, any space the pointer names; 4, 8, 16 and 32 bytes, aligned to their size
 *   ld16_nc(p)              data that no thread of the grid writes (and, under PDL, only after grid_dependency_wait):
 *                           the read-only path, not kept in L1, 256-byte L2 prefetch. For weights and long streams
 *   ld16_early(p)           as _nc, but kept in order with grid_dependency_wait: ptxas moves _nc loads below it. For
 *                           weights that shall be on their way before the predecessor ends; 4, 8 and 16 bytes
 *   ld16_keep(p)            the same path, kept in L1 and last to leave L2: small tables that every block reads
 *   st16_stream(p, v)       first to leave the caches: outputs that the next kernel will not find anyhow
 *   ld16_policy(p, policy), st16_policy(p, v, policy)   with an L2 policy: l2_evict_first(), l2_evict_last(), l2_evict_normal()
 *   32 bytes                one instruction from sm_100, two of 16 before
 *
 *   ld_u32(order, scope, p)       order: relaxed, acquire; scope: cta, cluster (sm_90), gpu, sys
 *   st_u32(order, scope, p, v)    order: relaxed, release
 *   atom_add_u32(order, scope, p, v)   order: relaxed, acquire, release, acq_rel; returns the old value
 *   red_add_u32(order, scope, p, v)    order: relaxed, release; returns nothing
 *   fence(order, scope)           order: acq_rel, sc
 *
 * order and scope are those bare words, as PTX spells them. A release makes the caller's earlier accesses, and those
 * that a barrier ordered before them, visible to whoever acquires the value: `block_sync(); if (thread_x() == 0)
 * red_add_u32(release, gpu, flag, 1);` publishes the whole block's stores. */
#ifndef ROSE_CUDA_MEMORY_CUH
#define ROSE_CUDA_MEMORY_CUH

#include "kernels/cuda/common/types.cuh"

/* ---- weak vector loads and stores ---------------------------------------------------------------------------------- */
#ifdef ROSE_SIMT
#define ROSE_LDST_(size, type)                                                                                \
    DEVICE type ld##size(const void *p)                                                                      \
    {                                                                                                        \
        type r;                                                                                              \
        simt_load(&r, p, size, SIMT_LD_WEAK);                                                                \
        return r;                                                                                            \
    }                                                                                                        \
    DEVICE type ld##size##_nc(const void *p)                                                                 \
    {                                                                                                        \
        type r;                                                                                              \
        simt_load(&r, p, size, SIMT_LD_NC);                                                                  \
        return r;                                                                                            \
    }                                                                                                        \
    DEVICE type ld##size##_keep(const void *p)                                                               \
    {                                                                                                        \
        type r;                                                                                              \
        simt_load(&r, p, size, SIMT_LD_NC);                                                                  \
        return r;                                                                                            \
    }                                                                                                        \
    DEVICE type ld##size##_early(const void *p)                                                              \
    {                                                                                                        \
        type r;                                                                                              \
        simt_load(&r, p, size, SIMT_LD_NC);                                                                  \
        return r;                                                                                            \
    }                                                                                                        \
    DEVICE void st##size(void *p, type v)                                                                    \
    {                                                                                                        \
        simt_store(p, &v, size);                                                                             \
    }                                                                                                        \
    DEVICE void st##size##_stream(void *p, type v)                                                           \
    {                                                                                                        \
        simt_store(p, &v, size);                                                                             \
    }
ROSE_LDST_(4, uint32_t)
ROSE_LDST_(8, u32x2)
ROSE_LDST_(16, u32x4)
ROSE_LDST_(32, u32x8)
#else
DEVICE uint32_t ld4(const void *p)
{
    return *(const uint32_t *)p;
}
DEVICE u32x2 ld8(const void *p)
{
    return *(const u32x2 *)p;
}
DEVICE u32x4 ld16(const void *p)
{
    return *(const u32x4 *)p;
}
DEVICE void st4(void *p, uint32_t v)
{
    *(uint32_t *)p = v;
}
DEVICE void st8(void *p, u32x2 v)
{
    *(u32x2 *)p = v;
}
DEVICE void st16(void *p, u32x4 v)
{
    *(u32x4 *)p = v;
}
/* The asm forms are volatile, without a memory clobber: they stay in order with barriers and griddepcontrol, and
 * ordinary accesses may pass them. */
#define ROSE_LD_ASM_(suffix, ptx)                                                                             \
    DEVICE uint32_t ld4##suffix(const void *p)                                                               \
    {                                                                                                        \
        uint32_t r;                                                                                          \
        asm volatile(ptx ".b32 %0, [%1];" : "=r"(r) : "l"(p));                                               \
        return r;                                                                                            \
    }                                                                                                        \
    DEVICE u32x2 ld8##suffix(const void *p)                                                                  \
    {                                                                                                        \
        u32x2 r;                                                                                             \
        asm volatile(ptx ".v2.b32 {%0, %1}, [%2];" : "=r"(r.v[0]), "=r"(r.v[1]) : "l"(p));                   \
        return r;                                                                                            \
    }                                                                                                        \
    DEVICE u32x4 ld16##suffix(const void *p)                                                                 \
    {                                                                                                        \
        u32x4 r;                                                                                             \
        asm volatile(ptx ".v4.b32 {%0, %1, %2, %3}, [%4];"                                                   \
                     : "=r"(r.v[0]), "=r"(r.v[1]), "=r"(r.v[2]), "=r"(r.v[3])                                \
                     : "l"(p));                                                                              \
        return r;                                                                                            \
    }
ROSE_LD_ASM_(_nc, "ld.global.nc.L1::no_allocate.L2::256B")
ROSE_LD_ASM_(_keep, "ld.global.nc.L1::evict_last.L2::256B")
ROSE_LD_ASM_(_early, "ld.global.L1::no_allocate.L2::256B")
#define ROSE_ST_ASM_(suffix, ptx)                                                                             \
    DEVICE void st4##suffix(void *p, uint32_t v)                                                             \
    {                                                                                                        \
        asm volatile(ptx ".b32 [%0], %1;" ::"l"(p), "r"(v) : "memory");                                      \
    }                                                                                                        \
    DEVICE void st8##suffix(void *p, u32x2 v)                                                                \
    {                                                                                                        \
        asm volatile(ptx ".v2.b32 [%0], {%1, %2};" ::"l"(p), "r"(v.v[0]), "r"(v.v[1]) : "memory");           \
    }                                                                                                        \
    DEVICE void st16##suffix(void *p, u32x4 v)                                                               \
    {                                                                                                        \
        asm volatile(ptx ".v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(v.v[0]), "r"(v.v[1]), "r"(v.v[2]),  \
                     "r"(v.v[3])                                                                             \
                     : "memory");                                                                            \
    }
ROSE_ST_ASM_(_stream, "st.global.L1::no_allocate")
#if HAS_LD32
#define ROSE_LD32_ASM_(name, ptx, clobber)                                                                    \
    DEVICE u32x8 name(const void *p)                                                                         \
    {                                                                                                        \
        u32x8 r;                                                                                             \
        asm volatile(ptx ".v8.b32 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8];"                                   \
                     : "=r"(r.v[0]), "=r"(r.v[1]), "=r"(r.v[2]), "=r"(r.v[3]), "=r"(r.v[4]), "=r"(r.v[5]),   \
                       "=r"(r.v[6]), "=r"(r.v[7])                                                            \
                     : "l"(p)clobber);                                                                       \
        return r;                                                                                            \
    }
#define ROSE_MEMORY_ : "memory"
#define ROSE_NOTHING_
#define ROSE_ST32_ASM_(name, ptx)                                                                             \
    DEVICE void name(void *p, u32x8 v)                                                                       \
    {                                                                                                        \
        asm volatile(ptx ".v8.b32 [%0], {%1, %2, %3, %4, %5, %6, %7, %8};" ::"l"(p), "r"(v.v[0]),            \
                     "r"(v.v[1]), "r"(v.v[2]), "r"(v.v[3]), "r"(v.v[4]), "r"(v.v[5]), "r"(v.v[6]),           \
                     "r"(v.v[7])                                                                             \
                     : "memory");                                                                            \
    }
ROSE_LD32_ASM_(ld32, "ld.global", ROSE_MEMORY_)
ROSE_LD32_ASM_(ld32_nc, "ld.global.nc.L1::no_allocate.L2::evict_first", ROSE_NOTHING_)
ROSE_LD32_ASM_(ld32_keep, "ld.global.nc.L1::evict_last.L2::evict_last", ROSE_NOTHING_)
ROSE_ST32_ASM_(st32, "st.global")
ROSE_ST32_ASM_(st32_stream, "st.global.L1::no_allocate.L2::evict_first")
#else
#define ROSE_LD32_PAIR_(suffix)                                                                               \
    DEVICE u32x8 ld32##suffix(const void *p)                                                                 \
    {                                                                                                        \
        u32x4 a = ld16##suffix(p), b = ld16##suffix((const char *)p + 16);                                   \
        u32x8 r = {{a.v[0], a.v[1], a.v[2], a.v[3], b.v[0], b.v[1], b.v[2], b.v[3]}};                        \
        return r;                                                                                            \
    }
#define ROSE_ST32_PAIR_(suffix)                                                                               \
    DEVICE void st32##suffix(void *p, u32x8 v)                                                               \
    {                                                                                                        \
        u32x4 a = {{v.v[0], v.v[1], v.v[2], v.v[3]}}, b = {{v.v[4], v.v[5], v.v[6], v.v[7]}};                \
        st16##suffix(p, a);                                                                                  \
        st16##suffix((char *)p + 16, b);                                                                     \
    }
ROSE_LD32_PAIR_()
ROSE_LD32_PAIR_(_nc)
ROSE_LD32_PAIR_(_keep)
ROSE_ST32_PAIR_()
ROSE_ST32_PAIR_(_stream)
#endif
#endif

/* ---- how long lines stay in L2: createpolicy, sm_80 ------------------------------------------------------------------ */
#ifdef ROSE_SIMT
DEVICE uint64_t l2_evict_first(void) { return 1; }
DEVICE uint64_t l2_evict_last(void) { return 2; }
DEVICE uint64_t l2_evict_normal(void) { return 3; }
#else
#define ROSE_POLICY_(name, ptx)                                                                               \
    DEVICE uint64_t name(void)                                                                               \
    {                                                                                                        \
        uint64_t r;                                                                                          \
        asm("createpolicy.fractional." ptx ".b64 %0;" : "=l"(r));                                            \
        return r;                                                                                            \
    }
ROSE_POLICY_(l2_evict_first, "L2::evict_first")
ROSE_POLICY_(l2_evict_last, "L2::evict_last")
ROSE_POLICY_(l2_evict_normal, "L2::evict_unchanged")
#endif

/* 16 bytes with such a policy, not kept in L1; ordered with barriers and griddepcontrol, as ld16_early is. */
DEVICE u32x4 ld16_policy(const void *p, uint64_t policy)
{
#ifdef ROSE_SIMT
    (void)policy;
    return ld16(p);
#else
    u32x4 r;
    asm volatile("ld.global.L1::no_allocate.L2::cache_hint.v4.b32 {%0, %1, %2, %3}, [%4], %5;"
                 : "=r"(r.v[0]), "=r"(r.v[1]), "=r"(r.v[2]), "=r"(r.v[3])
                 : "l"(p), "l"(policy));
    return r;
#endif
}
DEVICE void st16_policy(void *p, u32x4 v, uint64_t policy)
{
#ifdef ROSE_SIMT
    (void)policy;
    st16(p, v);
#else
    asm volatile("st.global.L1::no_allocate.L2::cache_hint.v4.b32 [%0], {%1, %2, %3, %4}, %5;" ::"l"(p), "r"(v.v[0]), "r"(v.v[1]), "r"(v.v[2]), "r"(v.v[3]),
                 "l"(policy)
                 : "memory");
#endif
}
DEVICE void st8_policy(void *p, u32x2 v, uint64_t policy)
{
#ifdef ROSE_SIMT
    (void)policy;
    st8(p, v);
#else
    asm volatile("st.global.L1::no_allocate.L2::cache_hint.v2.b32 [%0], {%1, %2}, %3;" ::"l"(p), "r"(v.v[0]), "r"(v.v[1]), "l"(policy) : "memory");
#endif
}
DEVICE void st4_policy(void *p, uint32_t v, uint64_t policy)
{
#ifdef ROSE_SIMT
    (void)policy;
    st4(p, v);
#else
    asm volatile("st.global.L1::no_allocate.L2::cache_hint.b32 [%0], %1, %2;" ::"l"(p), "r"(v), "l"(policy) : "memory");
#endif
}

/* What a grid before the predecessor wrote: may be read before grid_dependency_wait, where the predecessor lets its successor
 * start only after its own wait (then that grid is complete). Past L1, whose line may be older still. */
DEVICE uint32_t ld4_older(const void *p)
{
#ifdef ROSE_SIMT
    uint32_t r;
    simt_load(&r, p, 4, SIMT_LD_OLDER);
    return r;
#else
    uint32_t r;
    asm volatile("ld.relaxed.gpu.b32 %0, [%1];" : "=r"(r) : "l"(p) : "memory");
    return r;
#endif
}

/* Brings the line of a global address into L2 (a hint; no ordering). */
DEVICE void prefetch_l2(const void *p)
{
#ifdef ROSE_SIMT
    (void)p;
#else
    asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
#endif
}

/* ---- strong accesses ------------------------------------------------------------------------------------------------
 * The GPU forms are lambdas because order and scope are part of the instruction's name; they inline to it. */
#ifdef ROSE_SIMT
#define ld_u32(order, scope, p) ((uint32_t)simt_ld_strong(p, 4, SIMT_##order, SIMT_SCOPE_##scope))
#define ld_u64(order, scope, p) ((uint64_t)simt_ld_strong(p, 8, SIMT_##order, SIMT_SCOPE_##scope))
#define st_u32(order, scope, p, v) simt_st_strong(p, (uint32_t)(v), 4, SIMT_##order, SIMT_SCOPE_##scope)
#define st_u64(order, scope, p, v) simt_st_strong(p, (uint64_t)(v), 8, SIMT_##order, SIMT_SCOPE_##scope)
#define ROSE_ATOM_(op, order, scope, p, v, c) simt_atom(op, p, v, c, SIMT_##order, SIMT_SCOPE_##scope)
#define atom_add_u32(order, scope, p, v) ((uint32_t)ROSE_ATOM_(SIMT_ADD_U32, order, scope, p, (uint32_t)(v), 0))
#define atom_min_u32(order, scope, p, v) ((uint32_t)ROSE_ATOM_(SIMT_MIN_U32, order, scope, p, (uint32_t)(v), 0))
#define atom_max_u32(order, scope, p, v) ((uint32_t)ROSE_ATOM_(SIMT_MAX_U32, order, scope, p, (uint32_t)(v), 0))
#define atom_max_s32(order, scope, p, v) ((int32_t)ROSE_ATOM_(SIMT_MAX_S32, order, scope, p, (uint32_t)(v), 0))
#define atom_and_b32(order, scope, p, v) ((uint32_t)ROSE_ATOM_(SIMT_AND_B32, order, scope, p, (uint32_t)(v), 0))
#define atom_or_b32(order, scope, p, v) ((uint32_t)ROSE_ATOM_(SIMT_OR_B32, order, scope, p, (uint32_t)(v), 0))
#define atom_exch_b32(order, scope, p, v) ((uint32_t)ROSE_ATOM_(SIMT_EXCH_B32, order, scope, p, (uint32_t)(v), 0))
#define atom_cas_b32(order, scope, p, expected, v)                                                            \
    ((uint32_t)ROSE_ATOM_(SIMT_CAS_B32, order, scope, p, (uint32_t)(v), (uint32_t)(expected)))
#define atom_add_u64(order, scope, p, v) ROSE_ATOM_(SIMT_ADD_U64, order, scope, p, (uint64_t)(v), 0)
#define atom_max_u64(order, scope, p, v) ROSE_ATOM_(SIMT_MAX_U64, order, scope, p, (uint64_t)(v), 0)
#define atom_exch_b64(order, scope, p, v) ROSE_ATOM_(SIMT_EXCH_B64, order, scope, p, (uint64_t)(v), 0)
#define atom_cas_b64(order, scope, p, expected, v)                                                            \
    ROSE_ATOM_(SIMT_CAS_B64, order, scope, p, (uint64_t)(v), (uint64_t)(expected))
#define atom_add_f32(order, scope, p, v) f32_from_bits((uint32_t)ROSE_ATOM_(SIMT_ADD_F32, order, scope, p, f32_bits(v), 0))
#define red_add_u32(order, scope, p, v) ((void)atom_add_u32(order, scope, p, v))
#define red_max_u32(order, scope, p, v) ((void)atom_max_u32(order, scope, p, v))
#define red_max_s32(order, scope, p, v) ((void)atom_max_s32(order, scope, p, v))
#define red_or_b32(order, scope, p, v) ((void)atom_or_b32(order, scope, p, v))
#define red_add_u64(order, scope, p, v) ((void)atom_add_u64(order, scope, p, v))
#define red_add_f32(order, scope, p, v) ((void)atom_add_f32(order, scope, p, v))
#define red_add_bf16x2(order, scope, p, v)                                                                    \
    ((void)ROSE_ATOM_(SIMT_ADD_BF16X2, order, scope, p, (v).bits, 0))
#define fence(order, scope) simt_fence(SIMT_##order, SIMT_SCOPE_##scope)
#else
#define ROSE_LD_(ptx, type, con, p)                                                                           \
    [&]() {                                                                                                  \
        type r_;                                                                                             \
        asm volatile(ptx " %0, [%1];" : con(r_) : "l"(p) : "memory");                                        \
        return r_;                                                                                           \
    }()
#define ROSE_ATOM_(ptx, type, out, in, p, v)                                                                  \
    [&]() {                                                                                                  \
        type r_, v_ = (v);                                                                                   \
        asm volatile(ptx " %0, [%1], %2;" : out(r_) : "l"(p), in(v_) : "memory");                            \
        return r_;                                                                                           \
    }()
#define ROSE_CAS_(ptx, type, out, in, p, e, v)                                                                \
    [&]() {                                                                                                  \
        type r_, v_ = (v), e_ = (e);                                                                         \
        asm volatile(ptx " %0, [%1], %2, %3;" : out(r_) : "l"(p), in(e_), in(v_) : "memory");                \
        return r_;                                                                                           \
    }()
#define ROSE_RED_(ptx, type, in, p, v)                                                                        \
    do {                                                                                                     \
        type v_ = (v);                                                                                       \
        asm volatile(ptx " [%0], %1;" ::"l"(p), in(v_) : "memory");                                          \
    } while (0)
#define ld_u32(order, scope, p) ROSE_LD_("ld." #order "." #scope ".u32", uint32_t, "=r", p)
#define ld_u64(order, scope, p) ROSE_LD_("ld." #order "." #scope ".u64", uint64_t, "=l", p)
#define st_u32(order, scope, p, v) ROSE_RED_("st." #order "." #scope ".u32", uint32_t, "r", p, v)
#define st_u64(order, scope, p, v) ROSE_RED_("st." #order "." #scope ".u64", uint64_t, "l", p, v)
#define atom_add_u32(order, scope, p, v) ROSE_ATOM_("atom." #order "." #scope ".add.u32", uint32_t, "=r", "r", p, v)
#define atom_min_u32(order, scope, p, v) ROSE_ATOM_("atom." #order "." #scope ".min.u32", uint32_t, "=r", "r", p, v)
#define atom_max_u32(order, scope, p, v) ROSE_ATOM_("atom." #order "." #scope ".max.u32", uint32_t, "=r", "r", p, v)
#define atom_max_s32(order, scope, p, v) ROSE_ATOM_("atom." #order "." #scope ".max.s32", int32_t, "=r", "r", p, v)
#define atom_and_b32(order, scope, p, v) ROSE_ATOM_("atom." #order "." #scope ".and.b32", uint32_t, "=r", "r", p, v)
#define atom_or_b32(order, scope, p, v) ROSE_ATOM_("atom." #order "." #scope ".or.b32", uint32_t, "=r", "r", p, v)
#define atom_exch_b32(order, scope, p, v) ROSE_ATOM_("atom." #order "." #scope ".exch.b32", uint32_t, "=r", "r", p, v)
#define atom_cas_b32(order, scope, p, expected, v)                                                            \
    ROSE_CAS_("atom." #order "." #scope ".cas.b32", uint32_t, "=r", "r", p, expected, v)
#define atom_add_u64(order, scope, p, v) ROSE_ATOM_("atom." #order "." #scope ".add.u64", uint64_t, "=l", "l", p, v)
#define atom_max_u64(order, scope, p, v) ROSE_ATOM_("atom." #order "." #scope ".max.u64", uint64_t, "=l", "l", p, v)
#define atom_exch_b64(order, scope, p, v) ROSE_ATOM_("atom." #order "." #scope ".exch.b64", uint64_t, "=l", "l", p, v)
#define atom_cas_b64(order, scope, p, expected, v)                                                            \
    ROSE_CAS_("atom." #order "." #scope ".cas.b64", uint64_t, "=l", "l", p, expected, v)
#define atom_add_f32(order, scope, p, v) ROSE_ATOM_("atom." #order "." #scope ".add.f32", float, "=f", "f", p, v)
#define red_add_u32(order, scope, p, v) ROSE_RED_("red." #order "." #scope ".add.u32", uint32_t, "r", p, v)
#define red_max_u32(order, scope, p, v) ROSE_RED_("red." #order "." #scope ".max.u32", uint32_t, "r", p, v)
#define red_max_s32(order, scope, p, v) ROSE_RED_("red." #order "." #scope ".max.s32", int32_t, "r", p, v)
#define red_or_b32(order, scope, p, v) ROSE_RED_("red." #order "." #scope ".or.b32", uint32_t, "r", p, v)
#define red_add_u64(order, scope, p, v) ROSE_RED_("red." #order "." #scope ".add.u64", uint64_t, "l", p, v)
#define red_add_f32(order, scope, p, v) ROSE_RED_("red." #order "." #scope ".add.f32", float, "f", p, v)
/* Two bf16 added at once, each atomically; global memory only (sm_90; earlier it becomes a compare-and-swap loop). */
#define red_add_bf16x2(order, scope, p, v)                                                                    \
    ROSE_RED_("red." #order "." #scope ".global.add.noftz.bf16x2", uint32_t, "r", p, (v).bits)
#define fence(order, scope) asm volatile("fence." #order "." #scope ";" ::: "memory")
#endif

#endif
