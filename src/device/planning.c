/* A CUDA device that is not there: planners read its properties, programs are recorded on it, and nothing runs. */
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "device/device.h"

struct planning {
    struct device base; /* first */
    uintptr_t next;     /* where the next allocation "lies" */
};

/* Data sheets of the cards; L2 and shared memory as their drivers say. */
static const struct device_info cards[] = {
    {.name = "A100 80GB (planned)", .arch = "sm_80", .memory_total = (size_t)80 << 30, .units = 108, .l2_bytes = 40 << 20, .shared_per_block = 163 << 10, .shared_per_unit = 164 << 10, .bandwidth = 2.04e12, .max_threads_per_unit = 2048},
    {.name = "L40S (planned)", .arch = "sm_89", .memory_total = (size_t)48 << 30, .units = 142, .l2_bytes = 96 << 20, .shared_per_block = 99 << 10, .shared_per_unit = 100 << 10, .bandwidth = 0.864e12, .max_threads_per_unit = 1536},
    {.name = "H200 (planned)", .arch = "sm_90a", .memory_total = (size_t)141 << 30, .units = 132, .l2_bytes = 60 << 20, .shared_per_block = 227 << 10, .shared_per_unit = 228 << 10, .bandwidth = 4.8e12, .max_threads_per_unit = 2048},
    {.name = "B200 (planned)", .arch = "sm_100a", .memory_total = (size_t)180 << 30, .units = 148, .l2_bytes = 126 << 20, .shared_per_block = 227 << 10, .shared_per_unit = 228 << 10, .bandwidth = 8.0e12, .max_threads_per_unit = 2048},
    {.name = "RTX PRO 6000 (planned)", .arch = "sm_120a", .memory_total = (size_t)96 << 30, .units = 188, .l2_bytes = 128 << 20, .shared_per_block = 99 << 10, .shared_per_unit = 100 << 10, .bandwidth = 1.79e12, .max_threads_per_unit = 1536},
};

static void planning_close(struct device *device) { free(device); }

static void *planning_alloc(struct device *device, size_t bytes, enum device_memory kind, struct rose_error *err)
{
    struct planning *d = (struct planning *)device;
    if (kind == DEVICE_MEMORY_HOST) {
        void *p = calloc(1, bytes ? bytes : 1);
        if (!p) status_set(err, ROSE_NO_MEMORY, "out of memory");
        return p;
    }
    uintptr_t at = d->next;
    d->next += size_round_up(bytes ? bytes : 1, 256);
    return (void *)at;
}

static void planning_free(struct device *device, void *memory, size_t bytes, enum device_memory kind)
{
    (void)device, (void)bytes;
    if (kind == DEVICE_MEMORY_HOST) free(memory);
}

static enum rose_status planning_copy(struct device *device, void *dst, const void *src, size_t bytes, struct rose_error *err)
{
    (void)device, (void)dst, (void)src, (void)bytes, (void)err;
    return ROSE_OK;
}

static enum rose_status planning_submit(struct device *device, struct program *program, const struct extents *extents, struct rose_error *err)
{
    (void)program, (void)extents;
    return status_set(err, ROSE_UNSUPPORTED, "%s is a plan: nothing can run on it", device->info.name);
}

static enum rose_status planning_event(struct device *device, struct device_event *event, struct rose_error *err)
{
    (void)device, (void)event, (void)err;
    return ROSE_OK;
}

enum rose_status device_planning_open(const char *arch, struct device **out, struct rose_error *err)
{
    static const struct device_vtable vtable = {.close = planning_close, .alloc = planning_alloc, .free = planning_free, .copy = planning_copy,
                                                .submit = planning_submit, .record = planning_event, .wait = planning_event};
    const struct device_info *card = NULL;
    struct strbuf known = {0};
    for (size_t i = 0; i < ROSE_COUNT(cards); i++) {
        if (!strcmp(arch, cards[i].arch)) card = &cards[i];
        strbuf_printf(&known, "%s%s", i ? ", " : "", cards[i].arch);
    }
    if (!card) status_set(err, ROSE_INVALID, "there is no architecture \"%.20s\"; there are %s", arch, known.p ? known.p : "?");
    strbuf_free(&known);
    if (!card) return ROSE_INVALID;
    struct planning *d = calloc(1, sizeof *d);
    if (!d) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    d->base.vtable = &vtable;
    d->base.info = *card;
    d->base.info.kind = DEVICE_CUDA;
    d->base.info.memory_free = d->base.info.memory_total;
    d->base.info.warp = 32, d->base.info.max_threads_per_block = 1024;
    d->base.info.cooperative = true;
    d->base.info.clusters = d->base.info.dependent_launch = atoi(card->arch + 3) >= 90;
    d->base.planning = d->base.keeps_plans = true;
    d->next = (uintptr_t)1 << 40;
    *out = &d->base;
    return ROSE_OK;
}
