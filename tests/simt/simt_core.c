/* Fibers, the scheduler, launches and faults. */
#define _GNU_SOURCE
#include "simt_internal.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct grid *simt_grid;

/* ---- context switch
 * --------------------------------------------------------------------------------------------- */
#if defined(__x86_64__)
/* Saves the callee-saved registers on the stack, its pointer in *from, and continues at `to`. */
void simt_switch(void **from, void *to);
__asm__(".text\n"
        ".globl simt_switch\n"
        ".hidden simt_switch\n"
        ".type simt_switch, @function\n"
        "simt_switch:\n"
        "    pushq %rbp\n    pushq %rbx\n    pushq %r12\n    pushq %r13\n    pushq %r14\n    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n    popq %r14\n    popq %r13\n    popq %r12\n    popq %rbx\n    popq %rbp\n"
        "    ret\n"
        ".size simt_switch, .-simt_switch\n");
static void *scheduler_sp;
static void fiber_main(void);
static void fiber_prepare(struct fiber *f, size_t bytes)
{
    void **top = (void **)(((uintptr_t)f->stack + bytes) & ~(uintptr_t)15);
    *--top = NULL; /* the frame fiber_main would return to; keeps the stack aligned at its entry */
    *--top = (void *)fiber_main;
    for (int i = 0; i < 6; i++) *--top = NULL;
    f->sp = top;
}
static void fiber_enter(struct fiber *f)
{
    simt_switch(&scheduler_sp, f->sp);
}
static void fiber_leave(struct fiber *f)
{
    simt_switch(&f->sp, scheduler_sp);
}
#else
#include <ucontext.h>
static ucontext_t scheduler_context;
static void fiber_main(void);
static void fiber_prepare(struct fiber *f, size_t bytes)
{
    ucontext_t *c = f->sp ? f->sp : malloc(sizeof *c);
    getcontext(c);
    c->uc_stack.ss_sp = f->stack;
    c->uc_stack.ss_size = bytes;
    c->uc_link = NULL;
    makecontext(c, fiber_main, 0);
    f->sp = c;
}
static void fiber_enter(struct fiber *f)
{
    swapcontext(&scheduler_context, f->sp);
}
static void fiber_leave(struct fiber *f)
{
    swapcontext(f->sp, &scheduler_context);
}
#endif

/* ---- stacks: one slab, kept between launches
 * ------------------------------------------------------------------------ */
static char *stack_slab;
static size_t stack_slab_bytes;
#define STACK_MARGIN \
    (16u << 20) /* below the first stack: large frames of its thread land here and are seen */
#define STACK_CANARIES 16
#define STACK_CANARY 0x5ca1ab1e0ddba11ull

bool simt_is_stack(const void *p)
{
    if ((uintptr_t)p - (uintptr_t)stack_slab >= stack_slab_bytes) return false;
    struct fiber *f = simt_grid->current;
    if ((uintptr_t)p - (uintptr_t)f->stack >= simt_grid->l.stack_bytes)
        simt_fail(SIMT_RESOURCE, f->waiting_pc,
                  "thread %u leaves its stack of %zu bytes (large local arrays?): set .stack_bytes", f->index,
                  simt_grid->l.stack_bytes);
    return true;
}

/* Under the address sanitizer: a fault abandons frames, whose poison must not outlive them; what a failed
 * launch leaves allocated is not looked for. */
void __asan_unpoison_memory_region(void const volatile *p, size_t bytes) __attribute__((weak));
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "detect_leaks=0";
}

static void stack_slab_need(size_t bytes)
{
    if (stack_slab && __asan_unpoison_memory_region)
        __asan_unpoison_memory_region(stack_slab, stack_slab_bytes);
    bytes += STACK_MARGIN;
    if (bytes <= stack_slab_bytes) return;
    if (stack_slab) munmap(stack_slab, stack_slab_bytes);
    stack_slab =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stack_slab == MAP_FAILED) {
        fprintf(stderr, "simt: no memory for %zu bytes of thread stacks; use a smaller grid or .resident\n",
                bytes);
        exit(1);
    }
    stack_slab_bytes = bytes;
}

/* ---- random
 * -----------------------------------------------------------------------------------------------------------
 */
uint64_t simt_random(void)
{
    uint64_t z = simt_grid->rng += 0x9e3779b97f4a7c15ull; /* splitmix64 */
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

/* ---- faults
 * -----------------------------------------------------------------------------------------------------------
 */
const char *simt_fault_name(enum simt_fault fault)
{
    static const char *const names[SIMT_FAULTS] = {"clean",
                                                   "out of bounds",
                                                   "misaligned",
                                                   "unwritten read",
                                                   "race",
                                                   "in flight",
                                                   "missing proxy fence",
                                                   "divergent",
                                                   "warp mask mismatch",
                                                   "deadlock",
                                                   "early access",
                                                   "trap",
                                                   "resource",
                                                   "misuse"};
    return fault < SIMT_FAULTS ? names[fault] : "?";
}

/* file:line of a kernel's code, the innermost inlined frame that is not a wrapper of common/. */
void simt_describe_pc(const void *pc, char *out, size_t bytes)
{
    Dl_info info;
    snprintf(out, bytes, "unknown place");
    if (!pc || !dladdr(pc, &info) || !info.dli_fname) return;
    uintptr_t offset = (uintptr_t)pc - 1 - (uintptr_t)info.dli_fbase;
    char command[600], line[512];
    snprintf(command, sizeof command, "addr2line -i -e '%s' 0x%zx 2>/dev/null", info.dli_fname,
             (size_t)offset);
    FILE *pipe = popen(command, "r");
    if (!pipe) return;
    bool taken = false;
    while (fgets(line, sizeof line, pipe)) {
        if (taken) continue;
        line[strcspn(line, "\n ")] = 0;
        if (line[0] == '?') continue;
        const char *src = strstr(line, "src/kernels/");
        const char *at = src ? src : strrchr(line, '/') ? strrchr(line, '/') + 1 : line;
        snprintf(out, bytes, "%s", at);
        taken = !strstr(line, "/common/");
    }
    pclose(pipe);
}

void simt_describe_epoch(epoch e, uint32_t pc, char *out, size_t bytes)
{
    struct grid *g = simt_grid;
    char place[256] = "";
    if (pc && g->l.kernel) simt_describe_pc((const void *)(g->l.kernel->base + pc), place, sizeof place);
    uint32_t agent = epoch_agent(e), b = epoch_block(e);
    uint32_t coord[3] = {b % g->l.grid[0], b / g->l.grid[0] % g->l.grid[1], b / g->l.grid[0] / g->l.grid[1]};
    if (agent < g->threads)
        snprintf(out, bytes, "block (%u,%u,%u) thread %u%s%s", coord[0], coord[1], coord[2], agent,
                 *place ? " at " : "", place);
    else
        snprintf(out, bytes, "an asynchronous operation of block (%u,%u,%u)%s%s", coord[0], coord[1],
                 coord[2], *place ? " issued at " : "", place);
}

void simt_fail(enum simt_fault fault, const void *pc, const char *format, ...)
{
    struct grid *g = simt_grid;
    struct fiber *f = g->current;
    if (!g->failed) {
        g->failed = true;
        g->report.fault = fault;
        va_list args;
        va_start(args, format);
        size_t max = sizeof g->report.message;
        int n = vsnprintf(g->report.message, max, format, args);
        va_end(args);
        if (f && n >= 0 && (size_t)n < max) {
            char place[256];
            simt_describe_pc(pc, place, sizeof place);
            snprintf(g->report.message + n, max - (size_t)n, "; %s, block (%u,%u,%u) thread (%u,%u,%u)",
                     place, f->id[SIMT_ID_block_x], f->id[SIMT_ID_block_y], f->id[SIMT_ID_block_z],
                     f->id[SIMT_ID_thread_x], f->id[SIMT_ID_thread_y], f->id[SIMT_ID_thread_z]);
        }
    }
    if (f) {
        f->state = FIBER_DONE;
        fiber_leave(f); /* never resumed */
        abort();
    }
}

/* ---- scheduling
 * ---------------------------------------------------------------------------------------------------------
 */
static void make_ready(struct fiber *f)
{
    f->state = FIBER_READY;
    if (simt_fast) {
        struct warp *w = &f->block->warps[f->index / 32];
        w->ready |= 1u << f->lane;
        if (!w->queued) w->queued = true, simt_grid->ready_warps[simt_grid->ready_count++] = w;
        return;
    }
    simt_grid->ready[simt_grid->ready_count++] = f;
}

void simt_wake(struct fiber *f)
{
    if (f->state != FIBER_BLOCKED) return;
    f->waiting = NULL;
    simt_grid->progress++;
    make_ready(f);
}

void simt_block(const char *waiting, const void *pc)
{
    struct fiber *f = simt_grid->current;
    f->state = FIBER_BLOCKED;
    f->waiting = waiting;
    f->waiting_pc = pc;
    fiber_leave(f);
}

void simt_yield(bool poll)
{
    struct fiber *f = simt_grid->current;
    f->polled = poll;
    make_ready(f);
    fiber_leave(f);
}

static void fiber_main(void)
{
    struct grid *g = simt_grid;
    struct fiber *f = g->current;
    g->l.kernel->entry(g->params);
    simt_bulk_thread_exit(f);
    simt_thread_exit(f);
    f->state = FIBER_DONE;
    g->progress++;
    fiber_leave(f);
    abort();
}

static void block_start(struct block *b, uint32_t linear)
{
    struct grid *g = simt_grid;
    const uint32_t *grid = g->l.grid, *dim = g->l.block;
    b->linear = linear;
    b->coord[0] = linear % grid[0];
    b->coord[1] = linear / grid[0] % grid[1];
    b->coord[2] = linear / grid[0] / grid[1];
    b->live = g->threads;
    b->resident = true;
    simt_mbarriers_free(b);
    b->copies = 0;
    memset(b->barriers, 0, sizeof b->barriers);
    memset(b->registers, 0, sizeof b->registers);
    simt_warpgroups_free(b);
    /* The place of the static arrays is known after the first block's first thread came to them. */
    size_t used = simt_fast && g->array_count ? g->static_end : SIMT_SHARED_WINDOW;
    memset(b->window, 0xff, used);
    size_t stack = g->l.stack_bytes;
    struct vc *start = vc_new(linear);
    for (uint32_t w = 0; w * 32 < g->threads; w++) {
        uint32_t n = g->threads - w * 32 < 32 ? g->threads - w * 32 : 32;
        b->warps[w] = (struct warp){.lanes = n == 32 ? ~0u : (1u << n) - 1, .first = &b->fibers[w * 32]};
    }
    for (uint32_t t = 0; t < g->threads; t++) {
        struct fiber *f = &b->fibers[t];
        void *keep_sp = f->sp;
        memset(f, 0, sizeof *f);
        f->sp = keep_sp;
        f->stack = stack_slab + STACK_MARGIN + ((size_t)b->slot * g->threads + t) * stack;
        for (int i = 0; i < STACK_CANARIES; i++) ((uint64_t *)f->stack)[i] = STACK_CANARY;
        f->block = b;
        f->index = t;
        f->lane = t % 32;
        f->clock = 1;
        f->vc = vc_keep(start);
        uint32_t rank = linear % g->cluster_size;
        uint32_t id[SIMT_IDS] = {t % dim[0],
                                 t / dim[0] % dim[1],
                                 t / dim[0] / dim[1],
                                 b->coord[0],
                                 b->coord[1],
                                 b->coord[2],
                                 dim[0],
                                 dim[1],
                                 dim[2],
                                 grid[0],
                                 grid[1],
                                 grid[2],
                                 t % 32,
                                 b->slot,
                                 rank,
                                 g->cluster_size,
                                 linear / g->cluster_size};
        memcpy(f->id, id, sizeof id);
        fiber_prepare(f, stack);
        make_ready(f);
    }
    vc_drop(start);
}

/* Puts the next cluster (one block, where there are none) into free slots. */
static void admit(struct cluster *c, uint32_t first_slot)
{
    struct grid *g = simt_grid;
    if (g->next * g->cluster_size >= g->blocks) return;
    uint32_t index = g->order[g->next++];
    c->first = index * g->cluster_size;
    c->size = c->live = g->cluster_size;
    c->arrived = 0;
    c->generation = 0;
    vc_drop(c->vc);
    vc_drop(c->done);
    c->vc = c->done = NULL;
    for (uint32_t i = 0; i < c->size; i++) {
        c->blocks[i] = &g->slot[first_slot + i];
        c->blocks[i]->cluster = c;
        block_start(c->blocks[i], c->first + i);
        g->live_blocks++;
    }
}

static void block_finish(struct block *b)
{
    struct grid *g = simt_grid;
    struct cluster *c = b->cluster;
    if (b->copies) {
        simt_fail(SIMT_IN_FLIGHT, NULL,
                  "block %u ended while %u asynchronous copies into its shared memory were under way",
                  b->linear, b->copies);
        return;
    }
    simt_tmem_finish(b, true);
    if (g->failed) return;
    g->live_blocks--;
    if (--c->live) return;
    for (uint32_t i = 0; i < c->size; i++) {
        struct block *done = c->blocks[i];
        done->resident = false;
        size_t used = SIMT_SHARED_BASE + g->l.shared_bytes;
        if (used < g->static_end) used = g->static_end;
        if (!simt_fast) memset(done->cells, 0, used * sizeof *done->cells);
        for (uint32_t t = 0; t < g->threads; t++) simt_fiber_free(&done->fibers[t]);
    }
    admit(c, c->blocks[0]->slot);
}

/* The message of a deadlock: what the threads of each kind wait for. */
static void report_deadlock(bool spinning)
{
    struct grid *g = simt_grid;
    char text[900];
    size_t n = 0;
    const void *seen[6];
    size_t kinds = 0;
    for (uint32_t s = 0; s < g->slots; s++) {
        if (!g->slot[s].resident) continue;
        for (uint32_t t = 0; t < g->threads; t++) {
            struct fiber *f = &g->slot[s].fibers[t];
            if (f->state == FIBER_DONE) continue;
            const void *pc = f->waiting_pc;
            size_t i = 0;
            while (i < kinds && seen[i] != pc) i++;
            if (i < kinds || kinds == 6 || n > 700) continue;
            seen[kinds++] = pc;
            char place[256];
            simt_describe_pc(pc, place, sizeof place);
            int k = snprintf(text + n, sizeof text - n, "%sblock (%u,%u,%u) thread %u %s (%s)", n ? "; " : "",
                             f->id[SIMT_ID_block_x], f->id[SIMT_ID_block_y], f->id[SIMT_ID_block_z], t,
                             f->waiting ? f->waiting : "spins", place);
            if (k > 0) n += (size_t)k < sizeof text - n ? (size_t)k : sizeof text - n - 1;
        }
    }
    text[n < sizeof text ? n : sizeof text - 1] = 0;
    g->current = NULL;
    simt_fail(SIMT_DEADLOCK, NULL, "%s: %s",
              spinning ? "threads spin on values that nobody will change" : "every thread waits", text);
}

/* After a fiber gave the CPU away. False: the launch ends. */
static bool resumed(struct fiber *f, uint64_t progress)
{
    struct grid *g = simt_grid;
    g->current = NULL;
    if (g->failed) return false;
    bool overrun = false;
    for (int i = 0; i < STACK_CANARIES; i++) overrun |= ((uint64_t *)f->stack)[i] != STACK_CANARY;
    if (overrun) {
        simt_fail(SIMT_RESOURCE, NULL,
                  "block %u thread %u overran its stack of %zu bytes (large local arrays?): set .stack_bytes",
                  f->block->linear, f->index, g->l.stack_bytes);
        return false;
    }
    if (f->state == FIBER_DONE && --f->block->live == 0) block_finish(f->block);
    /* Only polls since the last change, many times round: nobody will change it. */
    if (f->polled && g->progress == progress)
        g->idle++;
    else
        g->idle = 0;
    if (g->idle > 4000 && simt_async_deliver()) g->idle = 0;
    uint64_t ready = simt_fast ? 32ull * g->ready_count : g->ready_count;
    if (g->idle > 20000 + 100 * ready) report_deadlock(true);
    return true;
}

static void resume(struct fiber *f)
{
    struct grid *g = simt_grid;
    g->current = f;
    f->polled = false;
    g->report.switches++;
    fiber_enter(f);
}

/* A warp in random order; of it every lane that can run, in turn. */
static void run_fast(void)
{
    struct grid *g = simt_grid;
    while (!g->failed && g->live_blocks) {
        uint64_t r = simt_random();
        if (g->async_count && (!g->ready_count || r % 16 == 0)) simt_async_deliver();
        if (g->failed) break;
        if (!g->ready_count) {
            if (g->async_count) continue;
            report_deadlock(false);
            break;
        }
        uint32_t i = (uint32_t)((r >> 32) % g->ready_count);
        struct warp *w = g->ready_warps[i];
        g->ready_warps[i] = g->ready_warps[--g->ready_count];
        uint32_t lanes = w->ready;
        w->ready = 0;
        w->queued = false;
        for (; lanes; lanes &= lanes - 1) {
            struct fiber *f = &w->first[__builtin_ctz(lanes)];
            uint64_t progress = g->progress;
            resume(f);
            if (!resumed(f, progress)) return;
        }
    }
}

static void run(void)
{
    struct grid *g = simt_grid;
    if (simt_fast) {
        run_fast();
        return;
    }
    while (!g->failed && g->live_blocks) {
        if (!g->ready_count) {
            if (simt_async_deliver()) continue;
            report_deadlock(false);
            break;
        }
        uint64_t r = simt_random();
        if (g->async_count && r % 64 == 0) simt_async_deliver();
        if (g->failed) break;
        uint32_t i = (uint32_t)((r >> 32) % g->ready_count);
        struct fiber *f = g->ready[i];
        g->ready[i] = g->ready[--g->ready_count];
        uint64_t progress = g->progress;
        resume(f);
        if (!resumed(f, progress)) break;
    }
}

/* ---- launch
 * ---------------------------------------------------------------------------------------------------------------
 */
static uint32_t shared_limit(uint32_t arch)
{
    return arch == 800 ? 163 << 10 : arch == 900 || arch == 1000 ? 227 << 10 : 99 << 10;
}

static bool check_launch(struct grid *g)
{
    struct simt_launch *l = &g->l;
    if (g->threads > SIMT_MAX_THREADS)
        simt_fail(SIMT_RESOURCE, NULL, "%u threads a block, at most %u", g->threads, SIMT_MAX_THREADS);
    else if (g->threads > l->kernel->info->threads)
        simt_fail(SIMT_RESOURCE, NULL, "%u threads a block, but the kernel's launch bounds say %u",
                  g->threads, l->kernel->info->threads);
    else if (l->shared_bytes > shared_limit(l->kernel->arch))
        simt_fail(SIMT_RESOURCE, NULL, "%zu bytes of dynamic shared memory, at most %u on sm_%u",
                  l->shared_bytes, shared_limit(l->kernel->arch), l->kernel->arch / 10);
    else if (g->cluster_size > 1 && l->kernel->arch < 900)
        simt_fail(SIMT_RESOURCE, NULL, "clusters need sm_90");
    else if (l->grid[0] % g->cluster_size)
        simt_fail(SIMT_RESOURCE, NULL, "a grid of %u blocks is no multiple of the cluster of %u", l->grid[0],
                  g->cluster_size);
    else if (g->blocks >= 1u << 18)
        simt_fail(SIMT_RESOURCE, NULL, "the harness runs at most 2^18 blocks");
    return !g->failed;
}

struct simt_report simt_launch(const struct simt_launch *launch, const void *params)
{
    static struct grid grid;
    struct grid *g = &grid;
    memset(g, 0, sizeof *g);
    g->l = *launch;
    for (int i = 0; i < 3; i++) {
        if (!g->l.grid[i]) g->l.grid[i] = 1;
        if (!g->l.block[i]) g->l.block[i] = 1;
    }
    if (!g->l.stack_bytes) g->l.stack_bytes = 64 << 10;
    g->params = params;
    g->rng = launch->seed * 0x2545f4914f6cdd1dull + 1;
    g->threads = g->l.block[0] * g->l.block[1] * g->l.block[2];
    g->blocks = g->l.grid[0] * g->l.grid[1] * g->l.grid[2];
    g->cluster_size = launch->cluster > 1 ? launch->cluster : 1;
    g->agents = SIMT_AGENTS(g);
    simt_grid = g;
    if (!check_launch(g)) {
        simt_grid = NULL;
        return g->report;
    }
    uint32_t want = launch->cooperative ? g->blocks : launch->resident ? launch->resident : 4;
    g->slots = (want + g->cluster_size - 1) / g->cluster_size * g->cluster_size;
    if (g->slots > g->blocks) g->slots = g->blocks;
    stack_slab_need((size_t)g->slots * g->threads * g->l.stack_bytes);
    g->slot = calloc(g->slots, sizeof *g->slot);
    g->clusters = calloc(g->slots / g->cluster_size, sizeof *g->clusters);
    g->ready = calloc((size_t)g->slots * g->threads, sizeof(struct fiber *));
    g->ready_warps = calloc((size_t)g->slots * ((g->threads + 31) / 32), sizeof(struct warp *));
    uint32_t n = g->blocks / g->cluster_size;
    g->order = calloc(n, sizeof *g->order);
    simt_memory_start();
    for (uint32_t i = 0; i < n; i++) {
        uint32_t j = (uint32_t)(simt_random() % (i + 1));
        g->order[i] = g->order[j];
        g->order[j] = i;
    }
    for (uint32_t s = 0; s < g->slots; s++) {
        g->slot[s].slot = s;
        g->slot[s].fibers = calloc(g->threads, sizeof(struct fiber));
    }
    for (uint32_t c = 0; c < g->slots / g->cluster_size; c++) {
        g->clusters[c].blocks = calloc(g->cluster_size, sizeof(struct block *));
        admit(&g->clusters[c], c * g->cluster_size);
    }
    run();
    if (!g->failed) simt_async_finish();
    for (uint32_t s = 0; s < g->slots; s++) {
        if (g->slot[s].resident)
            for (uint32_t t = 0; t < g->threads; t++) simt_fiber_free(&g->slot[s].fibers[t]);
#if !defined(__x86_64__)
        for (uint32_t t = 0; t < g->threads; t++) free(g->slot[s].fibers[t].sp);
#endif
        free(g->slot[s].fibers);
        simt_mbarriers_free(&g->slot[s]);
        free(g->slot[s].mbars);
        simt_warpgroups_free(&g->slot[s]);
        simt_tmem_finish(&g->slot[s], false);
    }
    for (uint32_t c = 0; c < g->slots / g->cluster_size; c++) {
        vc_drop(g->clusters[c].vc);
        vc_drop(g->clusters[c].done);
        free(g->clusters[c].blocks);
    }
    simt_memory_finish();
    free(g->slot);
    free(g->clusters);
    free(g->ready);
    free(g->ready_warps);
    free(g->order);
    free(g->async);
    simt_grid = NULL;
    return g->report;
}

/* ---- identity and time
 * ------------------------------------------------------------------------------------------------------ */
uint32_t simt_id(enum simt_id which)
{
    return simt_grid->current->id[which];
}

uint64_t simt_global_timer(void)
{
    struct grid *g = simt_grid;
    /* A thread that asks while nobody gets on is measuring a time-out. */
    g->time += g->idle > 1000 ? 10000000 : 1000;
    return g->time;
}

void simt_nano_sleep(uint32_t ns)
{
    simt_grid->time += ns;
    simt_grid->current->waiting_pc = SIMT_PC;
    simt_yield(true);
}

void simt_trap(void)
{
    simt_fail(SIMT_TRAP, SIMT_PC, "the kernel trapped");
}
