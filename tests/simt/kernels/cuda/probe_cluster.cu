// arch: sm_90a sm_100a
/* What clusters and tensor maps have beside probe_sync and probe_tma: a box of RANK dimensions that one block loads for both of its
 * cluster, the same box added to `out` by each of them, copies between their shared memories, reductions of bf16. Two clusters of two
 * blocks of 32 threads. The box has BYTES. (Multicast is possible on sm_120a too, but its assembler advises against it.) */
#include "kernels/cuda/common/rose.cuh"
#include "kernels/cuda/common/cluster.cuh"
#include "kernels/cuda/common/tma.cuh"

struct probe_cluster_params {
    struct tensor_map in, out; /* u32 */
    uint32_t *words;           /* [4][BYTES / 4 + 4]: what arrived in each block; cluster, rank, size, a word of the neighbour's */
    uint32_t *halves;          /* [8] of bf16 pairs, zero */
    uint32_t *own;             /* [4][32], unwritten: written here by ordinary stores, then copied back in by bulk */
    int32_t at[5];
};

#define WORDS (BYTES / 4)
#define PASTE_(a, b, c) a##b##c
#define PASTE(a, b, c) PASTE_(a, b, c)
/* the coordinates */
#define AT_1(c) c[0]
#define AT_2(c) AT_1(c), c[1]
#define AT_3(c) AT_2(c), c[2]
#define AT_4(c) AT_3(c), c[3]
#define AT_5(c) AT_4(c), c[4]
#define AT(c) PASTE(AT_, RANK, )(c)

KERNEL(probe_cluster, struct probe_cluster_params, p, 32, 1)
{
    unsigned char *s = dynamic_shared(); /* the box; 128 bytes each: from the neighbour, halves, own; the barriers */
    uint32_t *box = (uint32_t *)s, *theirs = box + WORDS, *halves = theirs + 32, *own = halves + 32;
    mbarrier *bar = (mbarrier *)(own + 32);
    const uint32_t t = thread_x(), rank = cluster_rank();
    uint32_t *words = p.words + block_x() * (WORDS + 4), *mine = p.own + 32 * block_x();
    if (t == 0) {
        for (int i = 0; i < 3; i++) mbarrier_init(&bar[i], 1);
        fence_mbarrier_init();
    }
    cluster_sync();
    if (t == 0) {
        /* expected apart from the arrival */
        mbarrier_expect(&bar[0], BYTES);
        mbarrier_arrive(&bar[0]);
    }
    cluster_sync();
    if (t == 0 && rank == 0) {
        PASTE(tma_prefetch_, RANK, d)(&p.in, AT(p.at));
        PASTE(tma_load_multicast_, RANK, d)(box, &p.in, AT(p.at), &bar[0], 3);
    }
    mbarrier_wait(&bar[0], 0);
    for (uint32_t i = t; i < WORDS; i += 32) words[i] = box[i];
    halves[t] = t < 4 ? 0x3f803f80u : 0; /* pairs of ones */
    mine[t] = 100 * block_x() + t;       /* ordinary stores that a bulk copy reads */
    fence_proxy_async(), fence_proxy_async_global();
    cluster_sync();
    if (t == 0) {
        PASTE(tma_reduce_add_, RANK, d)(&p.out, AT(p.at), box);
        bulk_reduce_add_bf16(p.halves, halves, 32);
        bulk_commit();
        mbarrier_arrive_expect(&bar[1], 128);
        mbarrier_arrive_expect(&bar[2], 128);
        bulk_prefetch_l2(mine, 128);
        bulk_load(own, mine, 128, &bar[2], l2_evict_first());
    }
    mbarrier_wait(&bar[2], 0);
    cluster_sync(); /* the neighbour's barrier expects its bytes */
    if (t == 0) bulk_copy_cluster(theirs, rank ^ 1, own, 128, &bar[1]);
    mbarrier_wait_cluster(&bar[1], 0);
    if (t == 0) words[WORDS] = cluster_id(), words[WORDS + 1] = rank, words[WORDS + 2] = cluster_size(), words[WORDS + 3] = theirs[7];
    if (t == 0) bulk_wait(0);
    cluster_sync(); /* nobody ends while its memory is read */
}
