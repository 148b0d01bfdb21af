/* What a kernel sees of the CPU harness: every wrapper of src/kernels/cuda/common calls one of these under
 * ROSE_SIMT. The functions live in the test program; the kernel's shared object finds them there when it is
 * opened. */
#ifndef ROSE_SIMT_DEVICE_H
#define ROSE_SIMT_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>

#define SIMT_EXPORT __attribute__((visibility("default")))
#pragma GCC visibility push(default)

struct simt_kernel_info {
    uint32_t threads, min_blocks;
    size_t params_bytes;
};

enum simt_id {
    SIMT_ID_thread_x,
    SIMT_ID_thread_y,
    SIMT_ID_thread_z,
    SIMT_ID_block_x,
    SIMT_ID_block_y,
    SIMT_ID_block_z,
    SIMT_ID_block_dim_x,
    SIMT_ID_block_dim_y,
    SIMT_ID_block_dim_z,
    SIMT_ID_grid_dim_x,
    SIMT_ID_grid_dim_y,
    SIMT_ID_grid_dim_z,
    SIMT_ID_lane,
    SIMT_ID_slot,
    SIMT_ID_cluster_rank,
    SIMT_ID_cluster_size,
    SIMT_ID_cluster_id,
    SIMT_IDS
};
/* Constant for a running thread, so the compiler may keep it. */
uint32_t simt_id(enum simt_id which) __attribute__((const));

void *simt_shared(const void *key, const char *name, size_t bytes, size_t align);
void *simt_shared_dynamic(void);
uint32_t simt_shared_address(const void *p); /* offset in the block's window; a fault for other memory */

/* ---- memory ---- */
enum simt_load_kind { SIMT_LD_WEAK, SIMT_LD_NC, SIMT_LD_OLDER /* written by grids before the predecessor */ };
void simt_load(void *to, const void *p, size_t bytes, enum simt_load_kind kind);
void simt_store(void *p, const void *from, size_t bytes);

enum simt_order { SIMT_relaxed, SIMT_acquire, SIMT_release, SIMT_acq_rel, SIMT_sc };
enum simt_scope { SIMT_SCOPE_cta, SIMT_SCOPE_cluster, SIMT_SCOPE_gpu, SIMT_SCOPE_sys };
enum simt_op {
    SIMT_ADD_U32,
    SIMT_MIN_U32,
    SIMT_MAX_U32,
    SIMT_MIN_S32,
    SIMT_MAX_S32,
    SIMT_AND_B32,
    SIMT_OR_B32,
    SIMT_XOR_B32,
    SIMT_EXCH_B32,
    SIMT_CAS_B32,
    SIMT_ADD_F32,
    SIMT_ADD_BF16X2,
    SIMT_ADD_F16X2,
    SIMT_64_BITS,
    SIMT_ADD_U64 = SIMT_64_BITS,
    SIMT_MAX_U64,
    SIMT_EXCH_B64,
    SIMT_CAS_B64,
};
uint64_t simt_ld_strong(const void *p, size_t bytes, enum simt_order order, enum simt_scope scope);
void simt_st_strong(void *p, uint64_t v, size_t bytes, enum simt_order order, enum simt_scope scope);
uint64_t simt_atom(enum simt_op op, void *p, uint64_t v, uint64_t expected, enum simt_order order,
                   enum simt_scope scope);
void simt_fence(enum simt_order order, enum simt_scope scope);

/* ---- warps and blocks ---- */
enum simt_shfl { SIMT_SHFL_IDX, SIMT_SHFL_XOR, SIMT_SHFL_UP, SIMT_SHFL_DOWN };
uint32_t simt_shuffle(enum simt_shfl mode, uint32_t mask, uint32_t v, uint32_t b, uint32_t width);
uint32_t simt_vote(uint32_t mask, bool pred);
uint32_t simt_match(uint32_t mask, uint32_t v);
uint32_t simt_redux(enum simt_op op, uint32_t mask, uint32_t v);
void simt_warp_sync(uint32_t mask);
enum simt_bar { SIMT_BAR_SYNC, SIMT_BAR_ARRIVE };
void simt_barrier(uint32_t id, uint32_t threads, enum simt_bar how);
uint32_t simt_barrier_count(bool pred);

/* ---- time, grid ---- */
uint64_t simt_global_timer(void);
void simt_nano_sleep(uint32_t ns);
void simt_trap(void);
void simt_grid_wait(void);   /* griddepcontrol.wait */
void simt_grid_launch(void); /* griddepcontrol.launch_dependents */

/* ---- cp.async ---- */
void simt_cp_async(void *shared, const void *global, uint32_t bytes, uint32_t src_bytes);
void simt_cp_async_commit(void);
void simt_cp_async_wait(uint32_t pending); /* ~0u: wait_all */

void simt_cp_async_mbarrier_arrive(uint64_t *bar);

/* ---- mbarrier, proxies ---- */
void simt_mbarrier_init(uint64_t *bar, uint32_t count);
void simt_mbarrier_invalidate(uint64_t *bar);
void simt_mbarrier_arrive(uint64_t *bar, uint32_t expect_bytes, bool remote);
void simt_mbarrier_expect(uint64_t *bar, uint32_t bytes);
bool simt_mbarrier_test(uint64_t *bar, uint32_t parity);
void simt_mbarrier_wait(uint64_t *bar, uint32_t parity);
void simt_fence_mbarrier_init(void);
void simt_fence_proxy_async(bool global);

/* ---- clusters ---- */
void *simt_cluster_map(const void *p, uint32_t rank);
void simt_cluster_arrive(void);
void simt_cluster_wait(void);
void simt_st_async(void *p, const void *v, uint32_t bytes, uint64_t *bar);

/* ---- bulk copies, TMA ---- */
enum simt_reduce {
    SIMT_REDUCE_NONE,
    SIMT_REDUCE_ADD_F32,
    SIMT_REDUCE_ADD_BF16,
    SIMT_REDUCE_ADD_F16,
    SIMT_REDUCE_ADD_U32
};
struct tensor_map;
void simt_bulk_load(void *shared, const void *global, uint32_t bytes, uint64_t *bar, uint32_t blocks);
void simt_bulk_copy_cluster(void *to, const void *from, uint32_t bytes, uint64_t *bar);
void simt_bulk_store(void *global, const void *shared, uint32_t bytes, enum simt_reduce reduce);
void simt_bulk_commit(void);
void simt_bulk_wait(uint32_t pending, bool read_only);
void simt_tma_load(void *shared, const struct tensor_map *map, int rank, const int32_t c[5], uint64_t *bar,
                   uint32_t blocks);
void simt_tma_store(const struct tensor_map *map, int rank, const int32_t c[5], const void *shared, bool add);

/* ---- matrix instructions ---- */
enum simt_type { SIMT_BF16, SIMT_F16, SIMT_E4M3, SIMT_E5M2, SIMT_S8, SIMT_E2M1 };
enum simt_scale { SIMT_SCALE_NONE, SIMT_SCALE_UE4M3_4, SIMT_SCALE_UE8M0_2, SIMT_SCALE_UE8M0_1 };
void simt_ldmatrix(uint32_t *r, const void *row, int tiles, bool trans);
void simt_stmatrix(void *row, const uint32_t *r, int tiles, bool trans);
/* sparse: 0, or 1 + selector. d: float[4], int32_t[4] for S8. */
void simt_mma(void *d, const uint32_t *a, const uint32_t *b, enum simt_type ta, enum simt_type tb,
              uint32_t sparse, uint32_t meta, enum simt_scale scale, uint32_t sa, uint32_t sb);
void simt_wgmma_fence(void);
void simt_wgmma_commit(void);
void simt_wgmma_wait(uint32_t pending);
void simt_setmaxnreg(uint32_t n);
void simt_wgmma(void *d, int n, enum simt_type type, int accumulate, const uint32_t *a, uint64_t desc_a,
                uint64_t desc_b, int trans_a, int trans_b, uint32_t sparse, uint32_t meta);

/* ---- tcgen05, multimem ---- */
enum simt_tc { SIMT_TC_F16, SIMT_TC_F8, SIMT_TC_I8, SIMT_TC_MXF8, SIMT_TC_MXF4, SIMT_TC_NVF4 };
void simt_tmem_alloc(uint32_t *where, uint32_t columns);
void simt_tmem_free(uint32_t address, uint32_t columns);
void simt_tcgen05_commit(uint64_t *bar);
void simt_tcgen05_mma(enum simt_tc kind, uint32_t d, uint64_t desc_a, uint32_t a, bool a_in_tmem,
                      uint64_t desc_b, uint32_t idesc, uint32_t scale_a, uint32_t scale_b, bool accumulate);
void simt_tmem_copy_scales(uint32_t address, const void *shared);
void simt_tmem_ld(uint32_t *r, uint32_t address, int n);
void simt_tmem_st(uint32_t address, const uint32_t *r, int n);
void simt_tmem_wait_ld(void);
void simt_tmem_wait_st(void);
void simt_multimem_ld(void *to, const void *p, enum simt_reduce type);
void simt_multimem_st(void *p, const void *v, enum simt_reduce how);
void simt_multimem_red_release(uint32_t *p, uint32_t v);

#pragma GCC visibility pop
#endif
