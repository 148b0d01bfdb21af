/* Buffers, shared windows, the shadow of both, and the compiler's memory hooks.
 *
 * The kernel's object is compiled with -fsanitize=thread and linked with this runtime instead of the
 * sanitizer's: every plain access of a kernel calls __tsan_read4 and its like below before it happens. */
#define _GNU_SOURCE
#include "simt_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define ARENA_BYTES (8ull << 30)
#define ARENA_GUARD 4096u
#define MAX_BUFFERS 4096
#define MAX_SLOTS 2048u

static unsigned char *arena;
static size_t arena_used;
static struct buffer buffers[MAX_BUFFERS]; /* by rising address */
static uint32_t buffer_count;

bool simt_fast, simt_lenient;
static uint32_t generation = 1; /* of launches that may still be under way: see cell.wrote */

static unsigned char *windows; /* MAX_SLOTS * SIMT_SHARED_STRIDE */
static struct cell *window_cells[MAX_SLOTS];

static void *reserve(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) {
        fprintf(stderr, "simt: no address space for %zu bytes\n", bytes);
        exit(1);
    }
    return p;
}

/* ---- global buffers
 * ---------------------------------------------------------------------------------------------- */
static struct buffer *buffer_insert(const struct buffer *b)
{
    uint32_t i = buffer_count++;
    for (; i > 0 && buffers[i - 1].base > b->base; i--) buffers[i] = buffers[i - 1];
    buffers[i] = *b;
    return &buffers[i];
}

static void *buffer_new(const char *name, size_t bytes, const void *data, bool constant)
{
    if (!arena) arena = reserve(ARENA_BYTES);
    size_t at = (arena_used + ARENA_GUARD + 255) & ~(size_t)255;
    if (buffer_count == MAX_BUFFERS || at + bytes + ARENA_GUARD > ARENA_BYTES) {
        fprintf(stderr, "simt: no room for the buffer %s\n", name);
        exit(1);
    }
    struct buffer *b = buffer_insert(&(struct buffer){.name = name, .base = arena + at, .bytes = bytes, .constant = constant});
    arena_used = at + bytes;
    b->cells = reserve((bytes + 1) * sizeof(struct cell));
    if (data) {
        memcpy(b->base, data, bytes);
        b->initialised = true;
    } else
        memset(b->base, 0xff, bytes);
    return b->base;
}

void *simt_buffer(const char *name, size_t bytes, const void *data)
{
    return buffer_new(name, bytes, data, false);
}

void *simt_constant(const char *name, size_t bytes, const void *data)
{
    return buffer_new(name, bytes, data, true);
}

static struct buffer *find_buffer(const void *p)
{
    static uint32_t last;
    const unsigned char *a = p;
    if (last < buffer_count && a >= buffers[last].base && a < buffers[last].base + buffers[last].bytes)
        return &buffers[last];
    uint32_t lo = 0, hi = buffer_count; /* the last buffer that starts at or before a */
    while (lo < hi) {
        uint32_t mid = (lo + hi) / 2;
        if (buffers[mid].base <= a)
            lo = mid + 1;
        else
            hi = mid;
    }
    if (!lo) return NULL;
    last = lo - 1;
    return a < buffers[last].base + buffers[last].bytes ? &buffers[last] : NULL;
}

bool simt_written(const void *buffer, size_t *offset)
{
    struct buffer *b = find_buffer(buffer);
    for (size_t i = 0; b && i < b->bytes; i++)
        if (b->cells[i].write == EPOCH_NEVER && !b->initialised) {
            if (offset) *offset = i;
            return false;
        }
    return b != NULL;
}

/* ---- memory of a driver: pages of its own, so that what the fast mode does not see ends in a signal
 * --------------------------------- */
void *simt_map(const char *name, size_t bytes, bool host)
{
    size_t page = 4096, round = (bytes + 255) & ~(size_t)255, inner = (round + page - 1) & ~(page - 1);
    size_t all = inner + 2 * page;
    if (buffer_count == MAX_BUFFERS) return NULL;
    unsigned char *pages =
        mmap(NULL, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pages == MAP_FAILED) return NULL;
    if (mprotect(pages + page, inner, PROT_READ | PROT_WRITE)) {
        munmap(pages, all);
        return NULL;
    }
    struct buffer b = {.name = name, .base = pages + page + (inner - round), .bytes = bytes, .initialised = host,
                       .mapped = true, .pages = pages, .page_bytes = all};
    if (!simt_fast) b.cells = reserve((bytes + 1) * sizeof(struct cell));
    /* Poison reads as NaN in every float format; of very large memory (page pools) only the beginning. */
    if (!host) memset(pages + page, 0xff, inner < 64u << 20 ? inner : 64u << 20);
    return buffer_insert(&b)->base;
}

bool simt_unmap(void *p)
{
    struct buffer *b = find_buffer(p);
    if (!b || !b->mapped || b->base != p) return false;
    if (b->cells) munmap(b->cells, (b->bytes + 1) * sizeof(struct cell));
    munmap(b->pages, b->page_bytes);
    size_t i = (size_t)(b - buffers);
    buffer_count--;
    memmove(&buffers[i], &buffers[i + 1], (buffer_count - i) * sizeof *b);
    return true;
}

void simt_settled(void)
{
    generation++;
}

bool simt_host_access(const void *p, size_t bytes, bool write, char *why, size_t size)
{
    struct buffer *b = find_buffer(p);
    if (!b) return true;
    size_t at = (size_t)((const unsigned char *)p - b->base);
    if (bytes > b->bytes - at) {
        snprintf(why, size, "%s of %zu bytes at %s+%zu, which has %zu", write ? "write" : "read", bytes, b->name, at,
                 b->bytes);
        return false;
    }
    for (size_t i = 0; b->cells && i < bytes; i++) {
        struct cell *c = &b->cells[at + i];
        if (write)
            *c = (struct cell){.write = EPOCH_HOST};
        else if (c->write == EPOCH_NEVER && !b->initialised) {
            snprintf(why, size, "read of %s+%zu, which nobody has written", b->name, at + i);
            return false;
        }
    }
    return true;
}

void simt_reset(void)
{
    for (uint32_t i = 0; i < buffer_count; i++)
        if (buffers[i].cells) munmap(buffers[i].cells, (buffers[i].bytes + 1) * sizeof(struct cell));
    if (arena) madvise(arena, arena_used + ARENA_GUARD, MADV_DONTNEED);
    buffer_count = 0;
    arena_used = 0;
    simt_multimem_reset();
}

/* ---- shared memory: a window of 256 KiB a slot
 * --------------------------------------------------------------------- [0, 1024) nothing: a null shared
 * address is a fault [1024, 1024 + dynamic)          dynamic shared memory from there, 1024-aligned SHARED
 * arrays, each followed by a guard of at least 16 bytes */
void simt_memory_start(void)
{
    struct grid *g = simt_grid;
    if (!windows) windows = reserve((size_t)MAX_SLOTS * SIMT_SHARED_STRIDE);
    if (g->slots > MAX_SLOTS) {
        fprintf(stderr, "simt: %u blocks at once, at most %u\n", g->slots, MAX_SLOTS);
        exit(1);
    }
    for (uint32_t s = 0; s < g->slots; s++) {
        if (!simt_fast && !window_cells[s]) window_cells[s] = reserve((size_t)SIMT_SHARED_WINDOW * sizeof(struct cell));
        g->slot[s].window = windows + (size_t)s * SIMT_SHARED_STRIDE;
        g->slot[s].cells = window_cells[s];
    }
    g->static_end = (uint32_t)((SIMT_SHARED_BASE + g->l.shared_bytes + 256 + 1023) & ~(size_t)1023);
}

void simt_memory_finish(void)
{
    struct grid *g = simt_grid;
    if (simt_fast) return;
    for (uint32_t s = 0; s < g->slots; s++)
        if (g->slot[s].resident) /* a failed launch leaves its shadow behind */
            madvise(g->slot[s].cells, (size_t)SIMT_SHARED_WINDOW * sizeof(struct cell), MADV_DONTNEED);
    simt_sync_reset();
    /* The next launch comes after this one in stream order. */
    for (uint32_t i = 0; i < buffer_count; i++) {
        struct buffer *b = &buffers[i];
        if (b->constant || !b->cells) continue;
        size_t high = b->high;
        b->high = 0;
        for (size_t k = b->low; k < high; k++) {
            struct cell *c = &b->cells[k];
            if (c->write && (c->write & EPOCH_HOST) != EPOCH_HOST) c->write = EPOCH_HOST, c->wrote = generation;
            if (c->read[0]) c->read[0] = c->read[1] = 0;
        }
    }
    if (simt_lenient && !g->late) simt_settled();
}

void *simt_shared(const void *key, const char *name, size_t bytes, size_t align)
{
    struct grid *g = simt_grid;
    struct block *b = g->current->block;
    for (uint32_t i = 0; i < g->array_count; i++)
        if (g->arrays[i].key == key) return b->window + g->arrays[i].offset;
    if (align < 16) align = 16;
    uint32_t at = (uint32_t)((g->static_end + align - 1) & ~(align - 1));
    if (at + bytes + 16 > SIMT_SHARED_WINDOW || g->array_count == 64 ||
        at - g->static_end + bytes > (48u << 10))
        simt_fail(SIMT_RESOURCE, SIMT_PC, "no room for the shared array %s of %zu bytes", name, bytes);
    g->arrays[g->array_count++] = (struct shared_array){key, name, at, bytes};
    g->static_end = at + (uint32_t)bytes + 16;
    return b->window + at;
}

void *simt_shared_dynamic(void)
{
    return simt_grid->current->block->window + SIMT_SHARED_BASE;
}

struct block *simt_shared_owner(const void *p)
{
    size_t at = (size_t)((uintptr_t)p - (uintptr_t)windows);
    if (!windows || at >= (size_t)MAX_SLOTS * SIMT_SHARED_STRIDE) return NULL;
    size_t slot = at / SIMT_SHARED_STRIDE;
    if (slot >= simt_grid->slots || at % SIMT_SHARED_STRIDE >= SIMT_SHARED_WINDOW) return NULL;
    return &simt_grid->slot[slot];
}

uint32_t simt_shared_address(const void *p)
{
    struct block *b = simt_shared_owner(p);
    if (!b) simt_fail(SIMT_BOUNDS, SIMT_PC, "%p is no shared memory", p);
    return (uint32_t)((const unsigned char *)p - b->window);
}

void simt_name_address(const void *p, char *out, size_t bytes)
{
    struct grid *g = simt_grid;
    const unsigned char *a = p;
    struct buffer *near = find_buffer(p);
    for (uint32_t i = 0; !near && i < buffer_count; i++)
        if (buffers[i].mapped && a >= buffers[i].pages && a < buffers[i].pages + buffers[i].page_bytes)
            near = &buffers[i];
    if (near && near->mapped) {
        snprintf(out, bytes, "%s%+td (of %zu bytes)", near->name, a - near->base, near->bytes);
        return;
    }
    if (arena && a >= arena && a < arena + ARENA_BYTES) {
        for (uint32_t i = buffer_count; i-- > 0;)
            if (a >= buffers[i].base) {
                snprintf(out, bytes, "%s+%zu (of %zu bytes)", buffers[i].name, (size_t)(a - buffers[i].base),
                         buffers[i].bytes);
                return;
            }
        snprintf(out, bytes, "%zu bytes before %s", buffer_count ? (size_t)(buffers[0].base - a) : 0,
                 buffer_count ? buffers[0].name : "everything");
        return;
    }
    struct block *b = simt_shared_owner(p);
    if (!b) {
        snprintf(out, bytes, "%p, in no buffer", p);
        return;
    }
    uint32_t at = (uint32_t)(a - b->window);
    if (at >= SIMT_SHARED_BASE && at < SIMT_SHARED_BASE + g->l.shared_bytes) {
        snprintf(out, bytes, "dynamic shared+%u", at - SIMT_SHARED_BASE);
        return;
    }
    for (uint32_t i = g->array_count; i-- > 0;)
        if (at >= g->arrays[i].offset) {
            snprintf(out, bytes, "shared %s+%u (of %zu bytes)", g->arrays[i].name, at - g->arrays[i].offset,
                     g->arrays[i].bytes);
            return;
        }
    snprintf(out, bytes, "dynamic shared%+d (of %zu bytes)", (int)at - (int)SIMT_SHARED_BASE,
             g->l.shared_bytes);
}

/* ---- checks
 * ------------------------------------------------------------------------------------------------------------
 */
static void out_of_bounds(const void *p, size_t bytes, unsigned access, const void *pc)
{
    char name[200];
    simt_name_address(p, name, sizeof name);
    simt_fail(SIMT_BOUNDS, pc, "%s of %zu bytes at %s", access & ACCESS_WRITE ? "write" : "read", bytes,
              name);
}

static struct cell *shared_cells(struct block *b, const unsigned char *a, size_t bytes, unsigned access,
                                 const void *pc)
{
    struct grid *g = simt_grid;
    struct fiber *f = g->current;
    uint32_t at = (uint32_t)(a - b->window);
    bool inside = at >= SIMT_SHARED_BASE && at + bytes <= SIMT_SHARED_BASE + g->l.shared_bytes;
    for (uint32_t i = 0; !inside && i < g->array_count; i++)
        inside = at >= g->arrays[i].offset && at + bytes <= g->arrays[i].offset + g->arrays[i].bytes;
    if (!inside) out_of_bounds(a, bytes, access, pc);
    if (f && b != f->block) {
        if (b->cluster != f->block->cluster)
            simt_fail(SIMT_BOUNDS, pc, "access to the shared memory of block %u, of another cluster",
                      b->linear);
        if (!b->live)
            simt_fail(SIMT_BOUNDS, pc,
                      "access to the shared memory of block %u, which has ended (a cluster_sync at the "
                      "kernel's end is missing)",
                      b->linear);
    }
    return b->cells + at;
}

/* Bounds alone. */
static void fast_check(const struct block *owner, const unsigned char *a, size_t bytes, unsigned access, const void *pc)
{
    struct grid *g = simt_grid;
    if (owner) {
        if (g->current && owner->cluster != g->current->block->cluster)
            simt_fail(SIMT_BOUNDS, pc, "access to the shared memory of block %u, of another cluster", owner->linear);
        if ((size_t)(a - owner->window) < SIMT_SHARED_BASE || (size_t)(a - owner->window) + bytes > g->static_end)
            out_of_bounds(a, bytes, access, pc);
        return;
    }
    struct buffer *b = find_buffer(a);
    if (b && (size_t)(a - b->base) + bytes <= b->bytes) return;
    uintptr_t u = (uintptr_t)a, params = (uintptr_t)g->params;
    bool kernel = u >= g->l.kernel->base && u + bytes <= g->l.kernel->end;
    if (!(access & ACCESS_WRITE) && (kernel || (u >= params && u + bytes <= params + g->l.kernel->info->params_bytes)))
        return;
    out_of_bounds(a, bytes, access, pc);
}

bool simt_initialised;
static bool reads_older; /* ld4_older: the kernel vouches for the order */

/* Did a launch write any of these bytes that may still be under way? */
static bool unsettled(const struct cell *c, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (c[i].wrote == generation) return true;
    return false;
}

struct cell *simt_cells(const void *p, size_t bytes, unsigned access, const void *pc)
{
    struct grid *g = simt_grid;
    const unsigned char *a = p;
    struct block *owner = simt_shared_owner(p);
    simt_initialised = false;
    if (simt_fast) {
        fast_check(owner, a, bytes, access, pc);
        return NULL;
    }
    if (owner) return shared_cells(owner, a, bytes, access, pc);
    struct buffer *b = find_buffer(p);
    if (b) {
        if (a + bytes > b->base + b->bytes) out_of_bounds(p, bytes, access, pc);
        struct fiber *f = g->current;
        if (g->l.dependent && !b->constant && !reads_older && f && (!simt_lenient || unsettled(b->cells + (a - b->base), bytes)) &&
            !vc_covers(f, epoch_make(1, f->block->linear, SIMT_AGENT_PDL(g), 0)))
            simt_fail(SIMT_EARLY, pc, "access to %s before grid_dependency_wait", b->name);
        if (b->constant && (access & ACCESS_WRITE))
            simt_fail(SIMT_BOUNDS, pc, "write to the constant buffer %s", b->name);
        simt_initialised = b->initialised;
        if ((access & ACCESS_WRITE) && g->triggered) g->late = true;
        size_t at = (size_t)(a - b->base);
        if (!b->high || at < b->low) b->low = at;
        if (at + bytes > b->high) b->high = at + bytes;
        return b->cells + at;
    }
    uintptr_t u = (uintptr_t)p;
    const struct simt_kernel *k = g->l.kernel;
    if (!(access & ACCESS_WRITE) && u >= k->base && u + bytes <= k->end)
        return NULL; /* constants of the kernel */
    if (!(access & ACCESS_WRITE) && u >= (uintptr_t)g->params &&
        u + bytes <= (uintptr_t)g->params + k->info->params_bytes)
        return NULL;
    out_of_bounds(p, bytes, access, pc);
    return NULL;
}

static void race(const void *p, size_t bytes, unsigned access, epoch before, uint32_t before_pc,
                 bool before_write, const void *pc)
{
    char name[200], other[400];
    simt_name_address(p, name, sizeof name);
    simt_describe_epoch(before, before_pc, other, sizeof other);
    simt_fail(SIMT_RACE, pc, "%s%s of %zu bytes at %s is not ordered after the %s%s by %s",
              access & ACCESS_ATOMIC ? "atomic " : "", access & ACCESS_WRITE ? "write" : "read", bytes, name,
              before & EPOCH_ATOMIC ? "atomic " : "", before_write ? "write" : "read", other);
}

/* Two strong accesses whose scopes include each other do not race. */
static bool both_atomic(const struct fiber *f, epoch before, unsigned access)
{
    if (!(before & EPOCH_ATOMIC) || !(access & ACCESS_ATOMIC)) return false;
    return epoch_block(before) == f->block->linear || !((before & EPOCH_CTA) || (access & ACCESS_CTA));
}

static void record_read(struct fiber *f, struct cell *c, epoch me, uint32_t pc)
{
    int slot = 0;
    if (((c->read[0] ^ me) & EPOCH_HOST) == 0)
        slot = 0;
    else if (((c->read[1] ^ me) & EPOCH_HOST) == 0)
        slot = 1;
    else if (vc_covers(f, c->read[0]))
        slot = 0;
    else if (vc_covers(f, c->read[1]))
        slot = 1;
    else
        slot = (int)(simt_random() & 1);
    c->read[slot] = me;
    c->read_pc[slot] = pc;
}

void simt_access(const void *p, size_t bytes, unsigned access, const void *pc)
{
    struct grid *g = simt_grid;
    if (!g || !g->current || simt_is_stack(p)) return;
    struct fiber *f = g->current;
    struct cell *cells = simt_cells(p, bytes, access, pc);
    if (simt_fast && (access & ACCESS_WRITE)) g->progress++;
    if (!cells) return;
    uint64_t flags = (access & ACCESS_ATOMIC ? EPOCH_ATOMIC : 0) | (access & ACCESS_CTA ? EPOCH_CTA : 0);
    epoch me = epoch_make(f->clock, f->block->linear, f->index, flags);
    uint32_t pc32 = (uint32_t)((uintptr_t)pc - g->l.kernel->base);
    bool initialised = simt_initialised;
    epoch known = EPOCH_HOST; /* the last epoch that was found in order */
    for (size_t i = 0; i < bytes; i++) {
        struct cell *c = &cells[i];
        const unsigned char *at = (const unsigned char *)p + i;
        if (c->write == EPOCH_IN_FLIGHT) {
            char name[200];
            simt_name_address(at, name, sizeof name);
            simt_fail(SIMT_IN_FLIGHT, pc, "%s of %s before the asynchronous write there was waited for",
                      access & ACCESS_WRITE ? "write" : "read", name);
        }
        if (c->write != known) {
            if (!vc_covers(f, c->write) && !both_atomic(f, c->write, access))
                race(at, bytes - i, access, c->write, c->write_pc, true, pc);
            known = c->write;
        }
        if (c->write == EPOCH_NEVER && !initialised && !(access & ACCESS_WRITE) && !g->l.allow_unwritten) {
            char name[200];
            simt_name_address(at, name, sizeof name);
            simt_fail(SIMT_UNWRITTEN, pc, "read of %s, which nobody has written", name);
        }
        if ((access & ACCESS_NC) && c->write != EPOCH_HOST && c->write != EPOCH_NEVER)
            race(at, bytes - i, access, c->write, c->write_pc, true, pc);
        if (access & ACCESS_WRITE) {
            for (int r = 0; r < 2; r++)
                if (c->read[r] && !vc_covers(f, c->read[r]) && !both_atomic(f, c->read[r], access))
                    race(at, bytes - i, access, c->read[r], c->read_pc[r], false, pc);
            c->write = me;
            c->write_pc = pc32;
            c->read[0] = c->read[1] = 0;
        } else
            record_read(f, c, me, pc32);
    }
    if (access & ACCESS_WRITE) g->progress++;
}

/* ---- loads and stores of the wrappers
 * ------------------------------------------------------------------------------- */
static void check_aligned(const void *p, size_t bytes, const void *pc)
{
    if ((uintptr_t)p % bytes == 0) return;
    char name[200];
    simt_name_address(p, name, sizeof name);
    simt_fail(SIMT_MISALIGNED, pc, "access of %zu bytes at %s, which is not aligned to that", bytes, name);
}

void simt_load(void *to, const void *p, size_t bytes, enum simt_load_kind kind)
{
    check_aligned(p, bytes, SIMT_PC);
    reads_older = kind == SIMT_LD_OLDER;
    simt_access(p, bytes, kind == SIMT_LD_NC ? ACCESS_NC : ACCESS_READ, SIMT_PC);
    reads_older = false;
    memcpy(to, p, bytes);
}

void simt_store(void *p, const void *from, size_t bytes)
{
    check_aligned(p, bytes, SIMT_PC);
    simt_access(p, bytes, ACCESS_WRITE, SIMT_PC);
    memcpy(p, from, bytes);
}

/* ---- the compiler's hooks
 * --------------------------------------------------------------------------------------------- */
#define HOOK(name, bytes, access, aligned)                          \
    SIMT_EXPORT void name(void *p);                                 \
    void name(void *p)                                              \
    {                                                               \
        if (simt_is_stack(p)) return;                               \
        if (aligned && simt_grid) check_aligned(p, bytes, SIMT_PC); \
        simt_access(p, bytes, access, SIMT_PC);                     \
    }
#define HOOKS(bytes)                                            \
    HOOK(__tsan_read##bytes, bytes, ACCESS_READ, true)          \
    HOOK(__tsan_write##bytes, bytes, ACCESS_WRITE, true)        \
    HOOK(__tsan_volatile_read##bytes, bytes, ACCESS_READ, true) \
    HOOK(__tsan_volatile_write##bytes, bytes, ACCESS_WRITE, true)
HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)
HOOK(__tsan_unaligned_read2, 2, ACCESS_READ, false)
HOOK(__tsan_unaligned_read4, 4, ACCESS_READ, false)
HOOK(__tsan_unaligned_read8, 8, ACCESS_READ, false)
HOOK(__tsan_unaligned_read16, 16, ACCESS_READ, false)
HOOK(__tsan_unaligned_write2, 2, ACCESS_WRITE, false)
HOOK(__tsan_unaligned_write4, 4, ACCESS_WRITE, false)
HOOK(__tsan_unaligned_write8, 8, ACCESS_WRITE, false)
HOOK(__tsan_unaligned_write16, 16, ACCESS_WRITE, false)

SIMT_EXPORT void __tsan_read_range(void *p, unsigned long bytes);
SIMT_EXPORT void __tsan_write_range(void *p, unsigned long bytes);
SIMT_EXPORT void __tsan_init(void);
SIMT_EXPORT void __tsan_func_entry(void *pc);
SIMT_EXPORT void __tsan_func_exit(void);
void __tsan_read_range(void *p, unsigned long bytes)
{
    simt_access(p, bytes, ACCESS_READ, SIMT_PC);
}
void __tsan_write_range(void *p, unsigned long bytes)
{
    simt_access(p, bytes, ACCESS_WRITE, SIMT_PC);
}
void __tsan_init(void) {}
void __tsan_func_entry(void *pc)
{
    (void)pc;
}
void __tsan_func_exit(void) {}
