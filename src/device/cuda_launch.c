/* Modules, functions, launches, and programs as streams of launches or as graphs. */
#define _GNU_SOURCE
#include "device/cuda_device.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/str.h"

/* ---- modules ---- */

enum rose_status cuda_module_load(struct device *device, const char *name, const void *image,
                                  struct cuda_module **out, struct rose_error *err)
{
    struct cuda_device *d = (struct cuda_device *)device;
    ROSE_TRY(cuda_enter(d, err));
    for (struct cuda_module *old = d->modules; old; old = old->next)
        if (!strcmp(old->name, name)) {
            *out = old;
            return ROSE_OK;
        }
    struct cuda_module *m = calloc(1, sizeof *m);
    char *copy = strdup(name);
    enum rose_status s = m && copy ? ROSE_OK : status_set(err, ROSE_NO_MEMORY, "out of memory");
    if (s == ROSE_OK)
        s = cuda_check(d, d->api.module_load(&m->module, image), err, "cuModuleLoadData of %s for %s", name,
                       d->base.info.arch);
    if (s != ROSE_OK) {
        free(copy);
        free(m);
        return s;
    }
    m->device = d;
    m->name = copy;
    m->next = d->modules;
    d->modules = m;
    *out = m;
    return ROSE_OK;
}

void cuda_module_unload(struct cuda_module *module)
{
    if (!module) return;
    struct cuda_device *d = module->device;
    struct cuda_module **at = &d->modules;
    while (*at && *at != module) at = &(*at)->next;
    if (*at) *at = module->next;
    while (module->functions) {
        struct cuda_function *f = module->functions;
        module->functions = f->next;
        free(f->name);
        free(f);
    }
    if (cuda_enter(d, NULL) == ROSE_OK) d->api.module_unload(module->module);
    free(module->name);
    free(module);
}

static enum rose_status read_function(struct cuda_device *d, struct cuda_function *f, struct rose_error *err)
{
    int shared = 0, local = 0;
    const struct {
        int attribute, *value;
    } wanted[] = {{CU_FUNC_REGISTERS, &f->registers},
                  {CU_FUNC_MAX_THREADS, &f->max_threads},
                  {CU_FUNC_SHARED_BYTES, &shared},
                  {CU_FUNC_LOCAL_BYTES, &local}};
    for (size_t i = 0; i < ROSE_COUNT(wanted); i++)
        ROSE_TRY(cuda_check(d, d->api.function_attribute(wanted[i].value, wanted[i].attribute, f->function),
                            err, "cuFuncGetAttribute of %s", f->name));
    f->shared_bytes = (size_t)shared, f->local_bytes = (size_t)local;
    /* An SM divides L1 anew only when it is empty: all kernels ask for the same division, or a dependent launch
     * could not begin beside its predecessor. */
    return cuda_check(d, d->api.function_set(f->function, CU_FUNC_SHARED_CARVEOUT, 100), err,
                      "cuFuncSetAttribute of %s: all of L1 as shared memory", f->name);
}

enum rose_status cuda_module_function(struct cuda_module *module, const char *entry,
                                      struct cuda_function **out, struct rose_error *err)
{
    struct cuda_device *d = module->device;
    for (struct cuda_function *f = module->functions; f; f = f->next)
        if (!strcmp(f->entry, entry)) {
            *out = f;
            return ROSE_OK;
        }
    ROSE_TRY(cuda_enter(d, err));
    struct cuda_function *f = calloc(1, sizeof *f);
    struct strbuf name = {0};
    strbuf_printf(&name, "%s:%s", module->name, entry);
    enum rose_status s = f && !name.failed ? ROSE_OK : status_set(err, ROSE_NO_MEMORY, "out of memory");
    if (s == ROSE_OK) {
        f->name = name.p;
        f->entry = name.p + strlen(module->name) + 1;
        f->module = module;
        s = cuda_check(d, d->api.module_function(&f->function, module->module, entry), err,
                       "cuModuleGetFunction of %s", f->name);
    }
    if (s == ROSE_OK) s = read_function(d, f, err);
    if (s != ROSE_OK) {
        strbuf_free(&name);
        free(f);
        return s;
    }
    f->next = module->functions;
    module->functions = f;
    *out = f;
    return ROSE_OK;
}

struct cuda_function_info cuda_function_info(const struct cuda_function *f)
{
    return (struct cuda_function_info){f->name, f->registers, f->max_threads, f->shared_bytes,
                                       f->local_bytes};
}

/* Dynamic shared memory beyond 48 KiB has to be asked for once a function. */
static enum rose_status allow_shared(struct cuda_device *d, struct cuda_function *f, size_t bytes,
                                     struct rose_error *err)
{
    enum { GRANTED = 48 << 10 };
    if (f->shared_bytes + bytes > d->base.info.shared_per_block)
        return status_set(err, ROSE_INVALID,
                          "%s wants %zu bytes of shared memory a block (%zu of them static); %s has %zu",
                          f->name, f->shared_bytes + bytes, f->shared_bytes, d->base.info.name,
                          d->base.info.shared_per_block);
    if (bytes <= f->dynamic_shared || f->shared_bytes + bytes <= GRANTED) return ROSE_OK;
    ROSE_TRY(cuda_check(d, d->api.function_set(f->function, CU_FUNC_MAX_DYNAMIC_SHARED, (int)bytes), err,
                        "cuFuncSetAttribute of %s: %zu bytes of shared memory", f->name, bytes));
    f->dynamic_shared = bytes;
    return ROSE_OK;
}

enum rose_status cuda_function_occupancy(struct cuda_function *f, int threads, size_t shared, int *blocks,
                                         struct rose_error *err)
{
    struct cuda_device *d = f->module->device;
    ROSE_TRY(cuda_enter(d, err));
    ROSE_TRY(allow_shared(d, f, shared, err));
    return cuda_check(d, d->api.occupancy(blocks, f->function, threads, shared), err,
                      "cuOccupancyMaxActiveBlocksPerMultiprocessor of %s", f->name);
}

/* ---- launches ---- */

/* What errors call it. */
static const char *launch_name(const struct program_launch *l)
{
    return l->host ? l->name : ((const struct cuda_function *)l->kernel)->name;
}

/* Everything that can be known before the first launch. */
static enum rose_status check_launch(struct cuda_device *d, const struct program_launch *l,
                                     struct rose_error *err)
{
    if (l->host) return ROSE_OK;
    struct cuda_function *f = l->kernel;
    uint64_t threads = (uint64_t)l->block[0] * l->block[1] * l->block[2];
    if (!f) return status_set(err, ROSE_UNSUPPORTED, "%s has no CUDA kernel", l->name);
    if (f->module->device != d)
        return status_set(err, ROSE_INVALID, "%s: the kernel %s belongs to another device", l->name, f->name);
    if (threads == 0 || threads > (uint64_t)f->max_threads)
        return status_set(err, ROSE_INVALID, "%s: blocks of %u x %u x %u threads; %s takes 1 to %d", l->name,
                          l->block[0], l->block[1], l->block[2], f->name, f->max_threads);
    if (l->cooperative && !d->base.info.cooperative)
        return status_set(err, ROSE_UNSUPPORTED, "%s: %s has no cooperative launch", l->name,
                          d->base.info.name);
    if (l->cluster > 1 && !d->base.info.clusters)
        return status_set(err, ROSE_UNSUPPORTED, "%s: %s has no clusters", l->name, d->base.info.name);
    if (l->cluster > 8 && !f->wide_cluster) {
        ROSE_TRY(cuda_check(d, d->api.function_set(f->function, CU_FUNC_NON_PORTABLE_CLUSTER, 1), err,
                            "cuFuncSetAttribute of %s: clusters of %u", f->name, l->cluster));
        f->wide_cluster = true;
    }
    return allow_shared(d, f, l->shared_bytes, err);
}

void cuda_grid(const struct program_launch *l, const struct extents *extents, uint32_t grid[3])
{
    for (int i = 0; i < 3; i++) {
        int64_t per = l->grid[i].per > 0 ? l->grid[i].per : 1;
        int64_t blocks = ((int64_t)extents->n[l->grid[i].extent] + per - 1) / per * l->grid[i].times;
        grid[i] = blocks > 0 && blocks <= INT32_MAX ? (uint32_t)blocks : 0;
    }
}

/* Queue one launch whose check_launch passed. capturing: it becomes a graph node and does not run yet. */
static enum rose_status launch_on(struct cuda_device *d, cu_stream stream, bool dependent, const struct program_launch *l,
                                  const uint32_t grid[3], bool capturing, struct rose_error *err)
{
    struct cuda_function *f = l->kernel;
    struct cu_launch_attribute attributes[3] = {0};
    struct cu_launch_config config = {.block = {l->block[0], l->block[1], l->block[2]},
                                      .shared_bytes = l->shared_bytes,
                                      .stream = stream,
                                      .attributes = attributes};
    void *params[1] = {(void *)(uintptr_t)l->params};
    if (l->host) {
        ROSE_TRY(l->host(stream, l->params, err));
        return capturing ? ROSE_OK : cuda_flown(d, l->name, err);
    }
    if (grid[0] == 0 || grid[1] == 0 || grid[2] == 0) return ROSE_OK;
    memcpy(config.grid, grid, sizeof config.grid);
    if (l->cooperative)
        attributes[config.attribute_count++] =
            (struct cu_launch_attribute){.id = CU_LAUNCH_COOPERATIVE, .value = 1};
    if (l->cluster > 1) {
        if (grid[0] % l->cluster)
            return status_set(err, ROSE_INVALID,
                              "%s: a grid of %u blocks is no multiple of the cluster of %u", l->name, grid[0],
                              l->cluster);
        attributes[config.attribute_count++] =
            (struct cu_launch_attribute){.id = CU_LAUNCH_CLUSTER, .dim = {l->cluster, 1, 1}};
    }
    if (dependent && d->base.info.dependent_launch)
        attributes[config.attribute_count++] =
            (struct cu_launch_attribute){.id = CU_LAUNCH_DEPENDENT, .value = 1};
    /* A kernel without parameters takes none. */
    cu_result r = d->api.launch(&config, f->function, l->params ? params : NULL, NULL);
    if (r != CU_SUCCESS && !capturing)
        d->flight[d->launched++ % CUDA_FLIGHT] = f->name; /* a sticky error may be this kernel's */
    ROSE_TRY(cuda_check(
        d, r, err,
        "cuLaunchKernelEx of %s (%s), grid %u x %u x %u, block %u x %u x %u, %u bytes of shared memory",
        l->name, f->name, grid[0], grid[1], grid[2], l->block[0], l->block[1], l->block[2], l->shared_bytes));
    return capturing ? ROSE_OK : cuda_flown(d, f->name, err);
}

static enum rose_status launch_now(struct cuda_device *d, const struct program_launch *l, const uint32_t grid[3], bool capturing,
                                   struct rose_error *err)
{
    return launch_on(d, d->stream, l->dependent, l, grid, capturing, err);
}

enum rose_status cuda_launch(struct device *device, const struct program_launch *l, const uint32_t grid[3],
                             struct rose_error *err)
{
    struct cuda_device *d = (struct cuda_device *)device;
    ROSE_TRY(cuda_enter(d, err));
    ROSE_TRY(check_launch(d, l, err));
    return launch_now(d, l, grid, false, err);
}

/* ---- programs ----
 *
 * The first time a program runs with some extents its launches go to the stream one by one (3.7 us each); the
 * second time they are captured into a graph (0.55 us a node), which all later runs with these extents
 * replay. Pointers in the params are fixed when the program is finished, so the extents alone decide what a
 * graph does. Eager programs never become graphs by running; device_prepare makes one beforehand. */

struct graph_slot {
    struct extents extents;
    cu_graph_exec exec;
    uint64_t used;
};
struct program_graphs {
    struct graph_slot slots[CUDA_GRAPHS];
    struct extents seen[CUDA_SEEN]; /* a ring of extents that ran once */
    uint64_t runs;
    uint32_t seen_at, seen_count;
};

enum rose_status cuda_launch_program_ready(struct device *device, struct program *program,
                                           struct rose_error *err)
{
    struct cuda_device *d = (struct cuda_device *)device;
    ROSE_TRY(cuda_enter(d, err));
    for (int i = 0; i < program->count; i++)
        ROSE_TRY(status_wrap(err, check_launch(d, &program->entries[i].launch, err), "entry %d", i));
    if (!program->backend) program->backend = calloc(1, sizeof(struct program_graphs));
    return program->backend ? ROSE_OK : status_set(err, ROSE_NO_MEMORY, "out of memory");
}

void cuda_launch_program_gone(struct device *device, struct program *program)
{
    struct cuda_device *d = (struct cuda_device *)device;
    struct program_graphs *g = program->backend;
    if (!g) return;
    if (d->api.context_set(d->context) == CU_SUCCESS) { /* also when the device is lost */
        d->api.stream_wait(d->stream);
        for (int i = 0; i < CUDA_GRAPHS; i++)
            if (g->slots[i].exec) d->api.graph_exec_destroy(g->slots[i].exec);
    }
    free(g);
    program->backend = NULL;
}

/* Parameters are copied by the launch (and by the capture), so the program's own may change from step to step. */
static void set_rows(const struct program_launch *l, const struct extents *extents)
{
    uint32_t rows = (uint32_t)extents->n[l->rows_extent];
    if (l->rows_param) memcpy((char *)(uintptr_t)l->params + l->rows_param - 1, &rows, sizeof rows);
}

/* While a graph is captured: what `to` gets from now on waits for what `from` has. */
static enum rose_status order(struct cuda_device *d, cu_event event, cu_stream from, cu_stream to, struct rose_error *err)
{
    ROSE_TRY(cuda_check(d, d->api.event_record(event, from), err, "cuEventRecord between branches"));
    return cuda_check(d, d->api.stream_after(to, event, 0), err, "cuStreamWaitEvent between branches");
}

static enum rose_status open_side(struct cuda_device *d, struct rose_error *err)
{
    if (!d->side) ROSE_TRY(cuda_check(d, d->api.stream_create(&d->side, CU_STREAM_NON_BLOCKING), err, "cuStreamCreate"));
    if (!d->fork) ROSE_TRY(cuda_check(d, d->api.event_create(&d->fork, CU_EVENT_DISABLE_TIMING), err, "cuEventCreate"));
    if (!d->join) ROSE_TRY(cuda_check(d, d->api.event_create(&d->join, CU_EVENT_DISABLE_TIMING), err, "cuEventCreate"));
    return ROSE_OK;
}

/* A graph gets the second branch that a program asks for (program_side); a stream runs entry after entry. The first launch of the branch and the
 * one that joins are no dependent ones: they wait for whole kernels. */
static enum rose_status launch_all(struct cuda_device *d, const struct program *program,
                                   const struct extents *extents, bool capturing, struct rose_error *err)
{
    uint32_t grid[3];
    bool forked = false;
    for (int i = 0; i < program->count; i++) {
        const struct program_launch *l = &program->entries[i].launch;
        bool side = capturing && l->side, turn = (side && !forked) || (forked && l->join);
        cuda_grid(l, extents, grid);
        set_rows(l, extents);
        if (side && !forked) {
            ROSE_TRY(open_side(d, err));
            ROSE_TRY(order(d, d->fork, d->stream, d->side, err));
        } else if (turn) {
            ROSE_TRY(order(d, d->join, d->side, d->stream, err));
        }
        if (turn) forked = side;
        ROSE_TRY(launch_on(d, side ? d->side : d->stream, l->dependent && !turn, l, grid, capturing, err));
    }
    return forked ? order(d, d->join, d->side, d->stream, err) : ROSE_OK;
}

/* With a profile: one by one, an event behind each, and waited for. */
static enum rose_status launch_profiled(struct cuda_device *d, const struct program *program, const struct extents *extents,
                                        struct rose_error *err)
{
    uint32_t grid[3];
    if (d->timers_count < program->count + 1) {
        cu_event *more = realloc(d->timers, (size_t)(program->count + 1) * sizeof *more);
        if (!more) return status_set(err, ROSE_NO_MEMORY, "out of memory");
        d->timers = more;
        for (; d->timers_count < program->count + 1; d->timers_count++)
            ROSE_TRY(cuda_check(d, d->api.event_create(&d->timers[d->timers_count], 0), err, "cuEventCreate"));
    }
    ROSE_TRY(cuda_check(d, d->api.event_record(d->timers[0], d->stream), err, "cuEventRecord"));
    for (int i = 0; i < program->count; i++) {
        const struct program_launch *l = &program->entries[i].launch;
        cuda_grid(l, extents, grid);
        set_rows(l, extents);
        ROSE_TRY(launch_now(d, l, grid, false, err));
        ROSE_TRY(cuda_check(d, d->api.event_record(d->timers[i + 1], d->stream), err, "cuEventRecord"));
    }
    ROSE_TRY(cuda_check(d, d->api.stream_wait(d->stream), err, "cuStreamSynchronize"));
    for (int i = 0; i < program->count; i++) {
        float ms = 0;
        ROSE_TRY(cuda_check(d, d->api.event_elapsed(&ms, d->timers[i], d->timers[i + 1]), err, "cuEventElapsedTime"));
        device_profile_add(d->base.profile, &program->entries[i].launch, extents, ms * 1e-3);
    }
    return ROSE_OK;
}

/* What the callback queues becomes a graph. */
struct capture {
    const struct program *program; /* or */
    const struct program_launch *launches;
    const uint32_t (*grids)[3];
    int n;
    const struct extents *extents;
};

static enum rose_status capture_graph(struct cuda_device *d, const struct capture *c, cu_graph *graph,
                                      struct rose_error *err)
{
    ROSE_TRY(
        cuda_check(d, d->api.capture_begin(d->stream, CU_CAPTURE_THREAD_LOCAL), err, "cuStreamBeginCapture"));
    enum rose_status s = ROSE_OK;
    if (c->program) s = launch_all(d, c->program, c->extents, true, err);
    for (int i = 0; i < c->n && s == ROSE_OK; i++) s = launch_now(d, &c->launches[i], c->grids[i], true, err);
    *graph = NULL;
    cu_result r =
        d->api.capture_end(d->stream, graph); /* also after a failure, or the stream stays unusable */
    if (s == ROSE_OK) s = cuda_check(d, r, err, "cuStreamEndCapture");
    if (s != ROSE_OK && *graph) d->api.graph_destroy(*graph), *graph = NULL;
    return s;
}

/* An executable graph of the capture in *exec; one that is there already is updated when its shape allows it.
 */
static enum rose_status make_exec(struct cuda_device *d, const struct capture *c, cu_graph_exec *exec,
                                  struct rose_error *err)
{
    cu_graph graph;
    struct cu_graph_update_result result;
    ROSE_TRY(capture_graph(d, c, &graph, err));
    if (*exec && d->api.graph_update(*exec, graph, &result) != CU_SUCCESS) {
        d->api.stream_wait(d->stream); /* the old one may still run */
        d->api.graph_exec_destroy(*exec);
        *exec = NULL;
    }
    enum rose_status s = ROSE_OK;
    if (!*exec)
        s = cuda_check(d, d->api.graph_instantiate(exec, graph, 0), err, "cuGraphInstantiate of a program");
    if (s == ROSE_OK)
        s = cuda_check(d, d->api.graph_upload(*exec, d->stream), err, "cuGraphUpload of a program");
    d->api.graph_destroy(graph);
    return s;
}

static bool same(const struct extents *a, const struct extents *b)
{
    return !memcmp(a, b, sizeof *a);
}

/* The slot that has a graph for these extents, or the one to put it into (*have false). */
static struct graph_slot *find_slot(struct program_graphs *g, const struct extents *e, bool *have)
{
    struct graph_slot *oldest = &g->slots[0];
    for (int i = 0; i < CUDA_GRAPHS; i++) {
        struct graph_slot *s = &g->slots[i];
        if (s->exec && same(&s->extents, e)) {
            *have = true;
            return s;
        }
        if (s->used < oldest->used) oldest = s;
    }
    *have = false;
    return oldest;
}

static bool seen_before(struct program_graphs *g, const struct extents *e)
{
    for (uint32_t i = 0; i < g->seen_count; i++)
        if (same(&g->seen[i], e)) return true;
    g->seen[g->seen_at++ % CUDA_SEEN] = *e;
    if (g->seen_count < CUDA_SEEN) g->seen_count++;
    return false;
}

static enum rose_status launch_graph(struct cuda_device *d, cu_graph_exec exec, const struct program *program,
                                     const struct extents *extents, struct rose_error *err)
{
    uint32_t grid[3];
    ROSE_TRY(cuda_check(d, d->api.graph_launch(exec, d->stream), err,
                        "cuGraphLaunch of a program of %d entries", program->count));
    for (int i = 0; i < program->count; i++) {
        const struct program_launch *l = &program->entries[i].launch;
        cuda_grid(l, extents, grid);
        if (l->host || (grid[0] && grid[1] && grid[2]))
            d->flight[d->launched++ % CUDA_FLIGHT] = launch_name(l);
    }
    return ROSE_OK;
}

static enum rose_status fill_slot(struct cuda_device *d, const struct program *program, const struct extents *extents,
                                  struct graph_slot *slot, struct rose_error *err)
{
    slot->extents = (struct extents){.n = {-1}};
    ROSE_TRY(make_exec(d, &(struct capture){.program = program, .extents = extents}, &slot->exec, err));
    slot->extents = *extents;
    return ROSE_OK;
}

enum rose_status cuda_launch_submit(struct device *device, struct program *program,
                                    const struct extents *extents, struct rose_error *err)
{
    struct cuda_device *d = (struct cuda_device *)device;
    struct program_graphs *g = program->backend;
    bool have;
    ROSE_TRY(cuda_enter(d, err));
    if (!g) return status_set(err, ROSE_INTERNAL, "a program was submitted before it was finished");
    if (d->base.profile) return launch_profiled(d, program, extents, err);
    /* A graph cannot stop after each kernel. */
    if (d->debug_sync || program->count < 2) return launch_all(d, program, extents, false, err);
    struct graph_slot *slot = find_slot(g, extents, &have);
    if (!have && (program->eager || !seen_before(g, extents))) return launch_all(d, program, extents, false, err);
    if (!have) ROSE_TRY(fill_slot(d, program, extents, slot, err));
    slot->used = ++g->runs;
    return launch_graph(d, slot->exec, program, extents, err);
}

enum rose_status cuda_launch_prepare(struct device *device, struct program *program, const struct extents *extents,
                                     struct rose_error *err)
{
    struct cuda_device *d = (struct cuda_device *)device;
    struct program_graphs *g = program->backend;
    bool have;
    ROSE_TRY(cuda_enter(d, err));
    if (!g) return status_set(err, ROSE_INTERNAL, "a program was prepared before it was finished");
    if (d->debug_sync || program->count < 2) return ROSE_OK;
    struct graph_slot *slot = find_slot(g, extents, &have);
    if (!have) ROSE_TRY(fill_slot(d, program, extents, slot, err));
    slot->used = ++g->runs;
    return ROSE_OK;
}

/* ---- timing ---- */

static enum rose_status time_exec(struct cuda_device *d, cu_graph_exec exec, int warm, int replays,
                                  double *us, struct rose_error *err)
{
    cu_event from = NULL, to = NULL;
    float ms = 0;
    enum rose_status s = cuda_check(d, d->api.event_create(&from, 0), err, "cuEventCreate");
    if (s == ROSE_OK) s = cuda_check(d, d->api.event_create(&to, 0), err, "cuEventCreate");
    for (int i = 0; i < warm && s == ROSE_OK; i++)
        s = cuda_check(d, d->api.graph_launch(exec, d->stream), err, "cuGraphLaunch");
    if (s == ROSE_OK) s = cuda_check(d, d->api.event_record(from, d->stream), err, "cuEventRecord");
    for (int i = 0; i < replays && s == ROSE_OK; i++)
        s = cuda_check(d, d->api.graph_launch(exec, d->stream), err, "cuGraphLaunch");
    if (s == ROSE_OK) s = cuda_check(d, d->api.event_record(to, d->stream), err, "cuEventRecord");
    if (s == ROSE_OK) s = cuda_check(d, d->api.event_wait(to), err, "cuEventSynchronize");
    if (s == ROSE_OK) s = cuda_check(d, d->api.event_elapsed(&ms, from, to), err, "cuEventElapsedTime");
    if (from) d->api.event_destroy(from);
    if (to) d->api.event_destroy(to);
    *us = ms * 1e3 / replays;
    return s;
}

static enum rose_status bench(struct cuda_device *d, const struct capture *c, int warm, int replays,
                              double *us, struct rose_error *err)
{
    cu_graph_exec exec = NULL;
    if (replays < 1) return status_set(err, ROSE_INVALID, "a timing of %d replays", replays);
    enum rose_status s = make_exec(d, c, &exec, err);
    if (s == ROSE_OK) s = time_exec(d, exec, warm, replays, us, err);
    if (exec) d->api.graph_exec_destroy(exec);
    return s;
}

enum rose_status cuda_bench_graph_us(struct device *device, const struct program_launch *launches,
                                     const uint32_t (*grids)[3], int n, int warm, int replays, double *us,
                                     struct rose_error *err)
{
    struct cuda_device *d = (struct cuda_device *)device;
    ROSE_TRY(cuda_enter(d, err));
    if (n < 1) return status_set(err, ROSE_INVALID, "a timing of no launches");
    for (int i = 0; i < n; i++) ROSE_TRY(check_launch(d, &launches[i], err));
    for (int i = 0; i < n; i++)
        d->flight[d->launched++ % CUDA_FLIGHT] = launch_name(&launches[i]);
    ROSE_TRY(
        bench(d, &(struct capture){.launches = launches, .grids = grids, .n = n}, warm, replays, us, err));
    d->landed = d->launched;
    *us /= n;
    return ROSE_OK;
}

enum rose_status cuda_bench_program_us(struct device *device, struct program *program,
                                       const struct extents *extents, int warm, int replays, double *us,
                                       struct rose_error *err)
{
    struct cuda_device *d = (struct cuda_device *)device;
    ROSE_TRY(cuda_enter(d, err));
    for (int i = 0; i < program->count; i++)
        d->flight[d->launched++ % CUDA_FLIGHT] = launch_name(&program->entries[i].launch);
    ROSE_TRY(bench(d, &(struct capture){.program = program, .extents = extents}, warm, replays, us, err));
    d->landed = d->launched;
    return ROSE_OK;
}
