/* Inside the harness. One OS thread; a GPU thread is a fiber; everything here is global because one launch
 * runs at a time.
 *
 * Order of events. Each thread has a clock and a vector clock (`vc`): for every other agent, the last of its
 * clock values that is ordered before the thread's present. Barriers, release/acquire pairs and mbarriers
 * join vector clocks. Shadow memory keeps for each byte the epoch (agent, clock) of its last write and of two
 * reads; an access whose predecessor's epoch is not in the thread's vector clock is a race, whatever order
 * the scheduler happened to choose (FastTrack, Flanagan and Freund 2009; vectors are shared between the
 * threads that left a barrier together).
 *
 * Agents of a block: its threads [0, threads), then pseudo-agents for things that act on their own (below).
 */
#ifndef ROSE_SIMT_INTERNAL_H
#define ROSE_SIMT_INTERNAL_H

#include "simt.h"

#define SIMT_MAX_THREADS 1024
#define SIMT_AGENT_PDL(g) ((g)->threads)               /* "the predecessor grid is complete" */
#define SIMT_AGENT_MBAR(g, i) ((g)->threads + 1 + (i)) /* writes completed on mbarrier i of the block */
#define SIMT_MBARS 62
#define SIMT_AGENT_ASYNC(g, t) \
    ((g)->threads + 1 + SIMT_MBARS + (t)) /* asynchronous reads that thread t issued */
#define SIMT_AGENT_WGMMA(g, w) (2 * (g)->threads + 1 + SIMT_MBARS + (w)) /* wgmma reads of warpgroup w */
#define SIMT_AGENT_TCGEN05(g) (2 * (g)->threads + 1 + SIMT_MBARS + 8)
#define SIMT_AGENTS(g) (2 * (g)->threads + 1 + SIMT_MBARS + 9)
#define SIMT_SHARED_WINDOW (256u << 10)
#define SIMT_SHARED_STRIDE (512u << 10)
#define SIMT_SHARED_BASE 1024u /* dynamic shared memory starts here in the window */

/* ---- epochs: clock << 32 | flags << 30 | block << 12 | agent ---- */
typedef uint64_t epoch;
#define EPOCH_NEVER 0ull
#define EPOCH_HOST 0x3fffffffull
#define EPOCH_IN_FLIGHT 0x3ffffffeull /* an asynchronous write has been issued and not completed */
#define EPOCH_ATOMIC (1ull << 31)
#define EPOCH_CTA (1ull << 30) /* an atomic of block scope */
static inline epoch epoch_make(uint32_t clock, uint32_t block, uint32_t agent, uint64_t flags)
{
    return (uint64_t)clock << 32 | flags | (uint64_t)block << 12 | agent;
}
static inline uint32_t epoch_clock(epoch e)
{
    return (uint32_t)(e >> 32);
}
static inline uint32_t epoch_block(epoch e)
{
    return (uint32_t)(e >> 12) & 0x3ffff;
}
static inline uint32_t epoch_agent(epoch e)
{
    return (uint32_t)e & 0xfff;
}

struct cell {
    epoch write, read[2];
    uint32_t write_pc, read_pc[2]; /* offsets in the kernel's shared object */
    uint32_t wrote; /* the generation of the last launch that wrote here, 0: none since the host did */
};

struct leaf { /* clocks of one block's agents */
    uint32_t refs;
    uint32_t clock[];
};
struct vc_others { /* leaves of other blocks; absent until something crosses blocks */
    uint32_t refs;
    struct leaf *leaf[];
};
struct vc {
    uint32_t refs;
    uint32_t block; /* whose leaf `own` is */
    struct leaf *own;
    struct vc_others *others;
};

enum fiber_state { FIBER_READY, FIBER_BLOCKED, FIBER_DONE };

struct async_op; /* simt_async.c */

struct fiber {
    void *sp; /* saved stack pointer (or ucontext) */
    char *stack;
    struct block *block;
    enum fiber_state state;
    const char *waiting; /* what a blocked fiber waits for, for reports */
    const void *waiting_pc;
    uint32_t index, lane; /* in the block, in the warp */
    uint32_t id[SIMT_IDS];
    uint32_t clock;
    uint32_t proxy_fence[2]; /* own clock at the last fence.proxy.async: of shared memory, of global memory */
    struct vc *vc;
    struct vc *fence_vc; /* published by the relaxed writes after a fence */
    enum simt_scope fence_scope;
    struct vc *acquire_vc; /* seen by relaxed reads, taken by the next fence */
    /* warp operation in progress */
    int op;
    uint32_t op_mask;
    void *op_args;
    /* asynchronous operations this thread issued */
    struct cp_async *cp;                      /* not complete, oldest first */
    uint32_t cp_count, cp_capacity, cp_group; /* group: number of the group being filled */
    struct bulk_op *bulk;                     /* simt_tma.c: stores of this thread, oldest first */
    uint32_t bulk_count, bulk_capacity, bulk_group;
    bool wgmma_fenced; /* simt_wgmma.c */
    struct {
        uint32_t *r, address;
        int n;
    } tmem_loads[16]; /* not waited for (simt_tcgen05.c) */
    uint32_t tmem_load_count;
    bool polled;             /* yielded from a poll */
    const void *waits_on;    /* mbarrier or cluster it is blocked on */
    uint64_t cluster_ticket; /* generation that cluster_wait waits for, 0: no arrival pending */
};

struct warp {
    uint32_t arrived, lanes, done; /* masks */
    uint32_t ready;                /* fast mode: lanes that can run */
    bool queued;                   /* fast mode: in the grid's list of warps */
    struct fiber *first;           /* lane 0 */
};

struct barrier {
    uint32_t expected, arrived, count;
    uint32_t waiting[SIMT_MAX_THREADS / 32]; /* masks of the threads that wait */
    uint32_t joined[SIMT_MAX_THREADS / 32];  /* and of all that arrived */
    struct vc *vc;
};

struct mbarrier; /* simt_mbarrier.c */

struct block {
    uint32_t slot, linear, coord[3];
    uint32_t live; /* threads not done */
    struct fiber *fibers;
    struct warp warps[SIMT_MAX_THREADS / 32];
    struct barrier barriers[16];
    unsigned char *window;
    struct cell *cells; /* SIMT_SHARED_WINDOW of them */
    struct cluster *cluster;
    struct warpgroup *groups[SIMT_MAX_THREADS / 128]; /* simt_wgmma.c */
    struct mbarrier *mbars;                           /* [SIMT_MBARS] */
    uint32_t mbar_count;
    uint32_t copies;   /* asynchronous copies into this block's shared memory that are under way */
    struct tmem *tmem; /* simt_tcgen05.c */
    bool resident;
    uint16_t registers[SIMT_MAX_THREADS / 128]; /* of a warpgroup's threads, as setmaxnreg set them; 0: as launched */
};

struct cluster {
    uint32_t first, size, live; /* linear index of its first block */
    struct block **blocks;
    uint32_t arrived; /* threads that have come to the current cluster barrier */
    struct vc *vc, *done;
    uint64_t generation; /* completed cluster barriers */
};

struct buffer {
    const char *name;
    unsigned char *base;
    size_t bytes;
    struct cell *cells;
    bool constant, initialised; /* initialised: a cell that says never written holds the host's data */
    bool mapped;                /* simt_map gave it */
    unsigned char *pages;       /* mapped: all its pages, the inaccessible ones at both ends included */
    size_t page_bytes;
    size_t low, high;           /* the bytes that this launch touched */
};

struct shared_array {
    const void *key;
    const char *name;
    uint32_t offset;
    size_t bytes;
};

struct grid { /* the running launch */
    struct simt_launch l;
    const void *params;
    uint32_t threads, blocks, agents, slots, cluster_size;
    struct block *slot;       /* [slots] */
    struct cluster *clusters; /* [slots / cluster_size] */
    uint32_t *order;          /* [blocks / cluster size] clusters in launch order */
    uint32_t next;            /* of order */
    uint32_t live_blocks;
    struct fiber **ready;
    uint32_t ready_count;
    struct warp **ready_warps; /* fast mode, in place of ready */
    struct fiber *current;
    struct simt_report report;
    bool failed;
    bool triggered, late; /* a thread let dependents in; a write of global memory came after that */
    uint64_t rng, time, progress, last_progress, idle;
    struct shared_array arrays[64];
    uint32_t array_count, static_end;
    struct async_op *async; /* pending asynchronous operations */
    uint32_t async_count, async_capacity;
};
extern struct grid *simt_grid; /* NULL outside a launch */

/* Set by tests/simt/driver, which runs whole models.
 * Fast: kernels are compiled without the memory hooks and no shadow is kept, so that of the checks those of
 * barriers, warps, operands, bounds of the wrappers' accesses and resources remain. Warps run one after the other in
 * shuffled order, their lanes in turn.
 * Lenient: a dependent launch may read before it waits what no launch has written (weights, inputs) since the host waited, or since a
 * launch that let no dependent in before its last write,
 * and asynchronous copies may read rows that nobody wrote: a step's last tile reaches behind its rows. */
extern bool simt_fast, simt_lenient;

struct simt_kernel {
    const char *file, *entry_name;
    void (*entry)(const void *);
    const struct simt_kernel_info *info;
    uintptr_t base, end; /* of the shared object */
    uint32_t arch;
    struct simt_kernel *next;
};

/* ---- core ---- */
uint64_t simt_random(void);
void simt_block(const char *waiting, const void *pc); /* gives the CPU away until simt_wake */
void simt_wake(struct fiber *f);
void simt_yield(bool poll);
/* Records the launch's fault and leaves the running fiber for good. Outside a fiber it only records. */
void simt_fail(enum simt_fault fault, const void *pc, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void simt_describe_pc(const void *pc, char *out, size_t bytes);
void simt_describe_epoch(epoch e, uint32_t pc, char *out, size_t bytes);
#define SIMT_PC __builtin_return_address(0)

/* ---- vector clocks ---- */
struct vc *vc_new(uint32_t block);
struct vc *vc_keep(struct vc *v);
void vc_drop(struct vc *v);
bool vc_covers(const struct fiber *f, epoch e);
struct vc *vc_release(struct fiber *f);               /* what f knows and did until now; f's clock advances */
void vc_acquire(struct fiber *f, const struct vc *v); /* v may be NULL */
struct vc *vc_join(struct vc *a,
                   const struct vc *b); /* consumes a (may be NULL), returns a fresh or grown vc */
struct vc *vc_with(struct vc *v, uint32_t block, uint32_t agent, uint32_t clock); /* consumes v */

/* ---- memory ---- */
enum access {
    ACCESS_READ = 0,
    ACCESS_WRITE = 1,
    ACCESS_ATOMIC = 2,
    ACCESS_CTA = 4,
    ACCESS_NC = 8,
    ACCESS_ASYNC = 16
};
/* Bounds, unwritten, race checks of the running fiber's access, and records it. */
void simt_access(const void *p, size_t bytes, unsigned access, const void *pc);
extern bool simt_initialised; /* of the memory that simt_cells gave last: see struct buffer */
/* The cells of [p, p + bytes), which must lie in one buffer or in shared memory; otherwise a fault. */
struct cell *simt_cells(const void *p, size_t bytes, unsigned access, const void *pc);
void simt_name_address(const void *p, char *out, size_t bytes);
/* The block in whose shared window p lies, or NULL. */
struct block *simt_shared_owner(const void *p);
/* Of the running thread; a fault where p lies in another thread's. */
bool simt_is_stack(const void *p);
void simt_memory_start(void); /* of a launch: vector clocks, shared windows */
/* Memory as a driver gives it: poisoned, 256-byte aligned, its end (rounded up to 256) in front of a page that
 * nobody may touch. host: the CPU writes there without telling. NULL when the system has none. */
void *simt_map(const char *name, size_t bytes, bool host);
bool simt_unmap(void *p); /* false: simt_map did not give it */
/* The host (a copy, a fill) is about to write [p, p + bytes), or to read it: false, with a text, where that leaves
 * a buffer or (checked mode, read) meets bytes that nobody wrote. Memory outside all buffers is the host's own. */
bool simt_host_access(const void *p, size_t bytes, bool write, char *why, size_t size);
/* Everything launched so far has ended and the host has waited for it: what it wrote may be read early (simt_lenient). */
void simt_settled(void);
const struct simt_kernel *simt_kernel_open(const char *so, const char *entry, uint32_t arch);
void simt_memory_finish(void);
void simt_sync_reset(void);

/* ---- warps ---- */
typedef void simt_warp_fn(struct fiber *const lane[32], void *const args[32], uint32_t mask);
/* Runs fn once all lanes of mask have come with the same op and mask. args is each lane's own. */
void simt_warp_op(int op, const char *what, uint32_t mask, void *args, simt_warp_fn *fn, const void *pc);
void simt_thread_exit(struct fiber *f);
enum {
    SIMT_OP_SHUFFLE = 1,
    SIMT_OP_VOTE,
    SIMT_OP_MATCH,
    SIMT_OP_REDUX,
    SIMT_OP_SYNC,
    SIMT_OP_LDMATRIX,
    SIMT_OP_STMATRIX,
    SIMT_OP_MMA,
    SIMT_OP_TCGEN05,
    SIMT_OP_OTHER
};

/* ---- asynchronous proxy ---- */
/* An asynchronous read or write of [p, p + bytes), issued now by the running thread: bounds, order, unwritten
 * memory, and whether ordinary writes there were fenced for the proxy. Reads are recorded as `agent` of the
 * thread's block at `clock`; writes leave the bytes in flight. */
void simt_async_read(const void *p, size_t bytes, uint32_t agent, uint32_t clock, const void *pc);
void simt_async_write(void *p, size_t bytes, const void *pc);
/* The write has happened: agent `agent` of block b at `clock` did it. */
void simt_async_land(void *p, size_t bytes, struct block *b, uint32_t agent, uint32_t clock);
void simt_async_land_cells(struct cell *c, size_t bytes, epoch e);

/* ---- mbarriers ---- */
struct mbarrier *simt_mbarrier_at(uint64_t *bar, bool async,
                                  const void *pc); /* checked; a fault where there is none */
/* One asynchronous completion: bytes counted, and the writes of `done` (may be NULL) become part of the
 * phase. Advances and returns the barrier's agent clock for the writes that complete with it. */
uint32_t simt_mbarrier_tick(struct mbarrier *m);
void simt_mbarrier_complete(struct mbarrier *m, uint32_t bytes, const struct vc *issued);
void simt_mbarrier_arrive_async(struct mbarrier *m, const struct vc *v);
struct block *simt_mbarrier_block(struct mbarrier *m);
uint32_t simt_mbarrier_agent(struct mbarrier *m);
void simt_mbarriers_free(struct block *b);
void simt_bulk_thread_exit(struct fiber *f);
void simt_warpgroups_free(struct block *b);
void simt_tmem_finish(struct block *b, bool ended); /* ended: checks that all was freed */
void simt_multimem_reset(void);

/* ---- matrices ---- */
#define SIMT_K_MAX 128
int simt_type_bits(enum simt_type t);
double simt_decode(enum simt_type t, uint32_t code);
/* d[n] plus a row of A (k values) times B [k][n], as wgmma does it with FP8 operands; exponents: those of B's elements. */
int simt_fp8_exponent(enum simt_type t, double v);
void simt_fp8_row(enum simt_type t, const double *a, const double (*b)[256], const int (*exponents)[256], int k, int n, float *d);
uint32_t simt_element(const uint32_t *regs, enum simt_type t,
                      int index); /* element `index` of packed registers */
/* The row of sparse A spread out: compressed[k / 2] to full[k] by metadata nibbles (group g: nibbles[g]). */
void simt_spread(double *full, const double *compressed, const uint8_t *nibbles, int k, enum simt_type t,
                 const void *pc);
/* A shared operand of wgmma or tcgen05. `at`: window offset of byte `byte` along K of row mn (K-major), or of
 * element (mn, k) (MN-major, 16-bit). */
struct operand {
    uint32_t start, leading, stride, span;
    bool trans;
    int bits;
};
uint32_t simt_operand_at(const struct operand *o, int mn, int k);
double simt_operand_element(const struct block *b, const struct operand *o, enum simt_type type, int mn,
                            int k);
void simt_operand_claim(struct block *b, const struct operand *o, int mn, int k, uint32_t agent,
                        uint32_t clock, const void *pc);
/* Where the metadata nibble of (row of 16, group) is: lane and shift. */
void simt_meta_place(enum simt_type t, int row, int group, uint32_t selector, int *lane, int *shift);

/* ---- asynchronous operations ---- */
struct async_op {
    void (*complete)(void *state);
    void *state;
};
void simt_async_post(void (*complete)(void *), void *state);
bool simt_async_deliver(void); /* one pending operation, chosen at random; false: none */
void simt_async_finish(void);
void simt_fiber_free(struct fiber *f);

#endif
