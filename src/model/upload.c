#include "model/upload.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ops/dummy.h"
#include "ops/matmul_cuda.h"
#include "ops/matmul_fp8.h"
#include "ops/weight_view.h"

/* --- from the file -------------------------------------------------------------------------------------------------------- */

/*  next job --> a free slot --> filled by a worker --> [filled queue] --> copied by the caller --> [flying queue] --> free again */
enum { SLOTS = 12, SLOT_BYTES = 2 << 20, MOST_WORKERS = 12 }; /* pinning costs more than 1 ms a megabyte */

struct job {
    size_t piece;
    int64_t row, rows;
};

struct ring {
    struct device *device;
    const struct upload_piece *pieces;
    struct job *jobs;
    size_t jobs_count, next; /* next: taken by workers */
    char *memory;            /* [SLOTS][SLOT_BYTES], pinned */
    int free_slots[SLOTS], free_count;
    struct filled {
        int slot;
        size_t job;
    } filled[SLOTS]; /* a queue: filled_first, filled_count */
    int filled_first, filled_count;
    bool stop;
    const struct upload_piece *bad; /* holds codes that are NaN; ends the loading */
    pthread_mutex_t lock;
    pthread_cond_t free_wake, filled_wake;
};

static void *fill(void *arg)
{
    struct ring *r = arg;
    pthread_mutex_lock(&r->lock);
    for (;;) {
        while (!r->stop && r->next < r->jobs_count && !r->free_count) pthread_cond_wait(&r->free_wake, &r->lock);
        if (r->stop || r->next == r->jobs_count) break;
        size_t j = r->next++;
        int slot = r->free_slots[--r->free_count];
        pthread_mutex_unlock(&r->lock);
        const struct job *job = &r->jobs[j];
        const struct upload_piece *piece = &r->pieces[job->piece];
        bool good = matmul_cuda_weight_rows(piece->weight, &piece->source, job->row, job->rows, r->memory + (size_t)slot * SLOT_BYTES);
        pthread_mutex_lock(&r->lock);
        if (!good) r->bad = piece;
        r->filled[(r->filled_first + r->filled_count++) % SLOTS] = (struct filled){slot, j};
        pthread_cond_signal(&r->filled_wake);
    }
    pthread_cond_broadcast(&r->free_wake);
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

static enum rose_status cut(struct ring *r, size_t count, struct rose_error *err)
{
    size_t n = 0, capacity = 0;
    for (size_t i = 0; i < count; i++) {
        const struct tensor *t = &r->pieces[i].source;
        int64_t rows = tensor_rows(t), most = (int64_t)(SLOT_BYTES / matmul_cuda_weight_rows_bytes(r->pieces[i].weight, MATMUL_CUDA_ROWS)) * MATMUL_CUDA_ROWS;
        if (most < 1) return status_set(err, ROSE_UNSUPPORTED, "a weight with rows of %lld elements is too wide to be loaded", (long long)tensor_cols(t));
        for (int64_t at = 0; at < rows; at += most) {
            if (n == capacity) {
                capacity = capacity ? capacity * 2 : 1024;
                struct job *more = realloc(r->jobs, capacity * sizeof *more);
                if (!more) return status_set(err, ROSE_NO_MEMORY, "out of memory while loading weights");
                r->jobs = more;
            }
            r->jobs[n++] = (struct job){i, at, ROSE_MIN(most, rows - at)};
        }
    }
    r->jobs_count = n;
    return ROSE_OK;
}

struct flight {
    struct device_event event[SLOTS];
    int slot[SLOTS], first, count;
};

static enum rose_status land(struct ring *r, struct flight *f, struct rose_error *err)
{
    int slot = f->slot[f->first];
    ROSE_TRY(device_wait(r->device, &f->event[slot], err));
    f->first = (f->first + 1) % SLOTS;
    f->count--;
    pthread_mutex_lock(&r->lock);
    r->free_slots[r->free_count++] = slot;
    pthread_cond_signal(&r->free_wake);
    pthread_mutex_unlock(&r->lock);
    return ROSE_OK;
}

static enum rose_status send(struct ring *r, struct flight *f, const struct filled *filled, size_t *bytes, struct rose_error *err)
{
    const struct job *job = &r->jobs[filled->job];
    const struct upload_piece *piece = &r->pieces[job->piece];
    *bytes = matmul_cuda_weight_rows_bytes(piece->weight, job->rows);
    char *to = (char *)piece->memory + matmul_cuda_weight_rows_bytes(piece->weight, job->row);
    ROSE_TRY(device_copy(r->device, to, r->memory + (size_t)filled->slot * SLOT_BYTES, *bytes, err));
    ROSE_TRY(device_record(r->device, &f->event[filled->slot], err));
    f->slot[(f->first + f->count++) % SLOTS] = filled->slot;
    return ROSE_OK;
}

static enum rose_status pump(struct ring *r, size_t total, model_progress_fn *progress, void *user, struct rose_error *err)
{
    struct flight f = {0};
    size_t done = 0;
    for (size_t sent = 0; sent < r->jobs_count || f.count;) {
        struct filled filled = {-1, 0};
        pthread_mutex_lock(&r->lock);
        while (!r->filled_count && !f.count) pthread_cond_wait(&r->filled_wake, &r->lock);
        if (r->filled_count) {
            filled = r->filled[r->filled_first];
            r->filled_first = (r->filled_first + 1) % SLOTS;
            r->filled_count--;
        }
        const struct upload_piece *bad = r->bad;
        pthread_mutex_unlock(&r->lock);
        if (bad) return op_weight_nan(&bad->source, err);
        if (filled.slot >= 0) {
            size_t bytes;
            ROSE_TRY(send(r, &f, &filled, &bytes, err));
            sent++;
            done += bytes;
            if (progress) progress(user, done, total);
        }
        if (f.count && (filled.slot < 0 || f.count > SLOTS / 3)) ROSE_TRY(land(r, &f, err));
    }
    return ROSE_OK;
}

enum rose_status upload_weights(struct device *device, const struct upload_piece *pieces, size_t count, model_progress_fn *progress, void *user,
                                struct rose_error *err)
{
    if (device->planning) return ROSE_OK;
    struct ring r = {.device = device, .pieces = pieces, .lock = PTHREAD_MUTEX_INITIALIZER, .free_wake = PTHREAD_COND_INITIALIZER,
                     .filled_wake = PTHREAD_COND_INITIALIZER};
    pthread_t threads[MOST_WORKERS];
    size_t total = 0;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int want = cores < 1 ? 1 : cores > MOST_WORKERS ? MOST_WORKERS : (int)cores, started = 0;
    for (size_t i = 0; i < count; i++) total += matmul_cuda_weight_rows_bytes(pieces[i].weight, tensor_rows(&pieces[i].source));
    enum rose_status s = cut(&r, count, err);
    if (s == ROSE_OK && !(r.memory = device_alloc(device, (size_t)SLOTS * SLOT_BYTES, DEVICE_MEMORY_HOST, err))) s = ROSE_NO_MEMORY;
    while (r.free_count < SLOTS) r.free_slots[r.free_count] = r.free_count, r.free_count++;
    while (s == ROSE_OK && started < want && pthread_create(&threads[started], NULL, fill, &r) == 0) started++;
    if (s == ROSE_OK && !started && r.jobs_count) s = status_set(err, ROSE_IO, "cannot start a thread to load weights");
    if (s == ROSE_OK) s = pump(&r, total, progress, user, err);
    pthread_mutex_lock(&r.lock);
    r.stop = true;
    pthread_cond_broadcast(&r.free_wake);
    pthread_mutex_unlock(&r.lock);
    for (int i = 0; i < started; i++) pthread_join(threads[i], NULL);
    if (s != ROSE_OK) device_wait(device, NULL, NULL); /* nothing reads the ring any more */
    device_free(device, r.memory, (size_t)SLOTS * SLOT_BYTES, DEVICE_MEMORY_HOST);
    free(r.jobs);
    for (size_t i = 0; i < count && s == ROSE_OK; i++)
        if (pieces[i].weight->layout == WEIGHT_LAYOUT_CUDA_FP8) s = matmul_fp8_copy_scales(device, &pieces[i].source, pieces[i].weight, err);
    return s;
}

/* --- dummy weights ---------------------------------------------------------------------------------------------------------- */

enum rose_status upload_dummy(struct device *device, const struct upload_piece *pieces, size_t count, struct rose_error *err)
{
    if (device->planning) return ROSE_OK;
    struct program *program = NULL;
    struct extents one = {.n = {[EXTENT_ONE] = 1}};
    ROSE_TRY(program_open(device, &program, err));
    program->eager = true;
    enum rose_status s = ROSE_OK;
    for (size_t i = 0; i < count && s == ROSE_OK; i++) s = op_dummy(program, pieces[i].memory, &pieces[i].source, pieces[i].seed, err);
    if (s == ROSE_OK) s = program_finish(program, NULL, 0, err);
    if (s == ROSE_OK) s = device_submit(device, program, &one, err);
    if (s == ROSE_OK) s = device_wait(device, NULL, err);
    program_close(program);
    return s;
}

/* --- vectors ------------------------------------------------------------------------------------------------------------------ */

struct vectors {
    struct model *model;
    char *host; /* NULL while sizes are counted */
    size_t at;
};

/* One pointer: its n floats are put at the next place, and the pointer is turned to it. */
static void move(struct vectors *v, const float **pointer, int64_t n)
{
    if (!*pointer || n <= 0) return;
    if (v->host) {
        memcpy(v->host + v->at, *pointer, (size_t)n * 4);
        *pointer = (const float *)(const void *)((const char *)v->model->vectors + v->at);
    }
    v->at += size_round_up((size_t)n * 4, 256);
}

/* Parts of fused vectors have slots of their own, which an architecture may not name. */
static int64_t size_of(const struct model_config *c, int s)
{
    const struct slot_row *row = arch_slot(c->arch, (enum slot)s);
    if (row) return arch_dim(c, row->out);
    if (s == SLOT_Q_BIAS) return arch_dim(c, DIM_Q);
    if (s == SLOT_K_BIAS || s == SLOT_V_BIAS) return arch_dim(c, DIM_KV);
    return s == SLOT_GATE_BIAS || s == SLOT_UP_BIAS ? c->intermediate : 0;
}

static void move_slots(struct vectors *v, struct model_layer *layer, int begin, int end)
{
    for (int s = begin; s < end; s++)
        if (layer->vector[s]) move(v, &layer->vector[s], size_of(&v->model->config, s));
}

/* What stands on the rows (head.h), and the relative bias of attention. */
static void move_heads(struct vectors *v)
{
    struct model *m = v->model;
    struct model_head *h = &m->config.head;
    for (int32_t i = 0; i < h->dense_count; i++) move(v, &h->dense[i].bias, h->dense[i].out);
    move(v, &m->sparse_bias, 1);
    move(v, &m->alibi, m->config.heads.heads);
    move(v, &m->relative, (int64_t)m->config.heads.heads * OP_RELATIVE_STRIDE((int64_t)m->config.context));
}

static void move_all(struct vectors *v, struct model_layer *top)
{
    struct model *m = v->model;
    v->at = 0;
    move_slots(v, top, SLOT_FINAL_NORM, SLOT_FINAL_NORM + 1);
    move_slots(v, top, SLOT_EMBED_NORM, SLOT_ATTN_NORM); /* the frequencies' factors between them stay the host's */
    move_heads(v);
    for (int i = 0; i < m->config.layers; i++) move_slots(v, &m->layers[i], SLOT_ATTN_NORM, SLOT_COUNT);
    for (int i = 0; i < m->config.ropes_count; i++) move(v, &m->inv_freq[i], m->config.ropes[i].rotary_dim / 2);
}

enum rose_status upload_vectors(struct model *m, struct model_layer *top, struct rose_error *err)
{
    struct vectors v = {.model = m};
    move_all(&v, top);
    size_t bytes = v.at;
    if (!bytes) return ROSE_OK;
    if (!(m->vectors = device_alloc(m->device, bytes, DEVICE_MEMORY_LOCAL, err))) return ROSE_NO_MEMORY;
    m->vectors_bytes = bytes;
    if (!(v.host = calloc(1, bytes))) return status_set(err, ROSE_NO_MEMORY, "out of memory while loading the model");
    move_all(&v, top);
    enum rose_status s = device_copy(m->device, m->vectors, v.host, bytes, err);
    if (s == ROSE_OK) s = device_wait(m->device, NULL, err);
    free(v.host);
    return s;
}
