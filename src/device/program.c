#include "device/program.h"

#include <stdlib.h>
#include <string.h>

#include "base/str.h"

enum { PLACE_ALIGN = 256 };

enum rose_status program_open(struct device *device, struct program **out, struct rose_error *err)
{
    struct program *p = calloc(1, sizeof *p);
    if (!p) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    p->device = device;
    p->draft = device->planning;
    p->buffers_count = 1;
    *out = p;
    return ROSE_OK;
}

void program_close(struct program *p)
{
    if (!p) return;
    if (p->device->vtable->program_gone) p->device->vtable->program_gone(p->device, p);
    while (p->zeroed) {
        struct program_zeroed *z = p->zeroed;
        p->zeroed = z->next;
        device_free(p->device, z->base, z->bytes, DEVICE_MEMORY_LOCAL);
        free(z);
    }
    if (!p->shared_memory) device_free(p->device, p->memory, p->memory_bytes, DEVICE_MEMORY_LOCAL);
    free(p->entries);
    free(p->buffers);
    arena_free(&p->arena);
    free(p);
}

static bool grow(void **items, int count, int *capacity, size_t size)
{
    if (count < *capacity) return true;
    int cap = *capacity ? *capacity * 2 : 64;
    void *more = realloc(*items, (size_t)cap * size);
    if (!more) return false;
    *items = more;
    *capacity = cap;
    return true;
}

static program_buffer_id add_buffer(struct program *p, struct program_buffer_info info)
{
    if (p->buffers_count >= UINT16_MAX || !grow((void **)&p->buffers, p->buffers_count, &p->buffers_capacity, sizeof info)) {
        p->failed = true;
        return 0;
    }
    if (p->buffers_count == 1) p->buffers[0] = (struct program_buffer_info){.name = "none"};
    info.first = info.last = -1;
    p->buffers[p->buffers_count] = info;
    return (program_buffer_id)p->buffers_count++;
}

program_buffer_id program_buffer(struct program *p, const char *name, size_t bytes)
{
    return add_buffer(p, (struct program_buffer_info){.name = name, .bytes = bytes});
}

program_buffer_id program_external(struct program *p, const char *name, void *address, size_t bytes)
{
    return add_buffer(p, (struct program_buffer_info){.name = name, .bytes = bytes, .address = address, .external = true});
}

static struct program_zeroed *more_zeroed(struct program *p, size_t bytes)
{
    struct program_zeroed *z = calloc(1, sizeof *z);
    void *zeros = calloc(1, bytes);
    if (z) *z = (struct program_zeroed){.next = p->zeroed, .bytes = bytes, .base = device_alloc(p->device, bytes, DEVICE_MEMORY_LOCAL, NULL)};
    bool ok = z && zeros && z->base && device_copy(p->device, z->base, zeros, bytes, NULL) == ROSE_OK && device_wait(p->device, NULL, NULL) == ROSE_OK;
    free(zeros);
    if (!ok) {
        if (z && z->base) device_free(p->device, z->base, bytes, DEVICE_MEMORY_LOCAL);
        free(z);
        return NULL;
    }
    return p->zeroed = z;
}

program_buffer_id program_counters(struct program *p, const char *name, size_t bytes)
{
    enum { PIECE = 64 << 10 };
    if (p->draft) return program_external(p, name, NULL, bytes);
    size_t need = size_round_up(bytes, PLACE_ALIGN);
    struct program_zeroed *z = p->zeroed;
    if (!z || z->bytes - z->used < need) z = more_zeroed(p, need > PIECE ? need : PIECE);
    if (!z) {
        p->failed = true;
        return 0;
    }
    z->used += need;
    return program_external(p, name, z->base + z->used - need, bytes);
}

void program_keep(struct program *p, program_buffer_id buffer)
{
    if (buffer) p->buffers[buffer].output = true;
}

void program_use(struct program_launch *launch, program_buffer_id buffer, enum program_mode mode, size_t param_offset)
{
    if (!buffer || launch->uses_count == PROGRAM_MAX_USES) return; /* program_add notices the missing pointer as NULL */
    launch->uses[launch->uses_count++] = (struct program_use){buffer, (uint8_t)mode, (uint16_t)param_offset, 0};
}

void program_add(struct program *p, const struct program_launch *launch)
{
    if (p->failed || !grow((void **)&p->entries, p->count, &p->capacity, sizeof *p->entries)) {
        p->failed = true;
        return;
    }
    struct program_entry *e = &p->entries[p->count];
    e->launch = *launch;
    void *params = arena_alloc(&p->arena, launch->params_bytes ? launch->params_bytes : 1);
    if (!params) {
        p->failed = true;
        return;
    }
    memcpy(params, launch->params, launch->params_bytes);
    e->launch.params = params;
    e->launch.side = p->side;
    e->launch.join = !p->side && p->join;
    if (!p->side) p->join = false;
    for (int i = 0; i < launch->uses_count; i++) {
        struct program_buffer_info *b = &p->buffers[launch->uses[i].buffer];
        if (b->first < 0) b->first = p->count;
        b->last = p->count;
    }
    p->count++;
}

void program_side(struct program *p, bool side) { p->side = side; }
void program_join(struct program *p) { p->join = true; }

/* What two branches use lives as long as both do. */
static void widen_lives(struct program *p)
{
    for (int from = 0, to; from < p->count; from = to) {
        to = from + 1;
        if (!p->entries[from].launch.side) continue;
        while (to < p->count && !p->entries[to].launch.join) to++;
        for (int i = 1; i < p->buffers_count; i++) {
            struct program_buffer_info *b = &p->buffers[i];
            if (b->first >= from && b->first < to) b->first = from;
            if (b->last >= from && b->last < to) b->last = to - 1;
        }
    }
}

static bool lives_overlap(const struct program_buffer_info *a, const struct program_buffer_info *b, int end)
{
    int a_last = a->output ? end : a->last, b_last = b->output ? end : b->last;
    return a->first <= b_last && b->first <= a_last;
}

/* First fit: each buffer goes to the lowest address where no buffer alive at the same time lies. Programs have a few dozen
 * buffers, so the quadratic search costs nothing. Offsets are kept in `address` until the base is known. */
static size_t place(struct program *p)
{
    size_t total = 0;
    widen_lives(p);
    for (int i = 1; i < p->buffers_count; i++) {
        struct program_buffer_info *b = &p->buffers[i];
        if (b->external || b->first < 0) continue;
        size_t at = 0, bytes = size_round_up(b->bytes ? b->bytes : 1, PLACE_ALIGN);
        for (int j = 1; j < i; j++) {
            const struct program_buffer_info *o = &p->buffers[j];
            if (o->external || o->first < 0 || !lives_overlap(b, o, p->count)) continue;
            size_t o_at = (size_t)(uintptr_t)o->address, o_bytes = size_round_up(o->bytes ? o->bytes : 1, PLACE_ALIGN);
            if (at < o_at + o_bytes && o_at < at + bytes) at = o_at + o_bytes, j = 0;
        }
        b->address = (void *)(uintptr_t)at;
        if (at + bytes > total) total = at + bytes;
    }
    return total;
}

size_t program_memory_bytes(struct program *p) { return place(p); }

enum rose_status program_finish(struct program *p, void *memory, size_t bytes, struct rose_error *err)
{
    if (p->failed) return status_set(err, ROSE_NO_MEMORY, "no memory to record a program of %d entries", p->count);
    size_t need = place(p);
    if (memory && bytes < need)
        return status_set(err, ROSE_INTERNAL, "a program needs %zu bytes of work memory and was given %zu", need, bytes);
    p->shared_memory = memory != NULL;
    p->memory_bytes = need;
    p->memory = memory ? memory : need ? device_alloc(p->device, need, DEVICE_MEMORY_LOCAL, err) : NULL;
    if (need && !p->memory) return ROSE_NO_MEMORY;
    for (int i = 1; i < p->buffers_count; i++) {
        struct program_buffer_info *b = &p->buffers[i];
        if (!b->external && b->first >= 0) b->address = (void *)((uintptr_t)p->memory + (uintptr_t)b->address);
    }
    for (int i = 0; i < p->count; i++) {
        struct program_launch *l = &p->entries[i].launch;
        for (int u = 0; u < l->uses_count; u++) {
            /* Counted as a number: a planning device's addresses begin at zero. */
            uintptr_t address = (uintptr_t)p->buffers[l->uses[u].buffer].address + l->uses[u].byte_offset;
            memcpy((char *)(uintptr_t)l->params + l->uses[u].param, &address, sizeof address);
        }
        if (l->ready) ROSE_TRY(l->ready(p->device, (void *)(uintptr_t)l->params, err));
    }
    return p->device->vtable->program_ready ? p->device->vtable->program_ready(p->device, p, err) : ROSE_OK;
}

void *program_address(const struct program *p, program_buffer_id buffer) { return buffer ? p->buffers[buffer].address : NULL; }

static double cost_of(double fixed, const double per[EXTENT_COUNT], const struct extents *e)
{
    for (int i = 0; i < EXTENT_COUNT; i++) fixed += per[i] * e->n[i];
    return fixed;
}

void device_profile_add(struct device_profile *profile, const struct program_launch *l, const struct extents *extents, double seconds)
{
    int i = 0;
    while (i < profile->count && strcmp(profile->entries[i].name, l->name)) i++;
    if (i == DEVICE_PROFILE_NAMES) return;
    struct device_profile_entry *e = &profile->entries[i];
    if (i == profile->count) {
        *e = (struct device_profile_entry){.name = l->name};
        profile->count++;
    }
    e->calls++;
    e->seconds += seconds;
    e->bytes += cost_of(l->cost.bytes, l->cost.bytes_per, extents);
    e->ops += cost_of(l->cost.ops, l->cost.ops_per, extents);
}

void program_print(const struct program *p, const struct extents *extents, struct strbuf *out)
{
    for (int i = 0; i < p->count; i++) {
        const struct program_launch *l = &p->entries[i].launch;
        strbuf_printf(out, "%4d %-20s", i, l->name);
        if (l->layer >= 0) strbuf_printf(out, " layer %-3d", l->layer);
        else strbuf_adds(out, "          ");
        strbuf_printf(out, " %10.3g bytes %10.3g ops ", cost_of(l->cost.bytes, l->cost.bytes_per, extents),
                      cost_of(l->cost.ops, l->cost.ops_per, extents));
        for (int u = 0; u < l->uses_count; u++)
            strbuf_printf(out, " %s%s", l->uses[u].mode == PROGRAM_READ ? "" : l->uses[u].mode == PROGRAM_WRITE ? ">" : "+",
                          p->buffers[l->uses[u].buffer].name);
        strbuf_addc(out, '\n');
    }
}
