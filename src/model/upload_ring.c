/* Weights from a mapped file onto a GPU.
 *
 *     next job --> a free slot --> filled by a worker --> [filled queue] --> copied by the pump --> [flying queue] --> free again
 *
 * The pump is a thread too and copies on a stream of its own (device/cuda_copier.h), so that whoever began goes on. */
#define _GNU_SOURCE
#include "model/upload.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "device/cuda_copier.h"
#include "ops/matmul_cuda.h"
#include "ops/matmul_fp8.h"
#include "ops/weight_view.h"
#include "weights/weights.h"

/* Pinning costs 0.4 to 1 ms a megabyte; eight workers fill the slots faster than twelve (H200, 8.6 GB from the page cache, of 55.4 GB/s: 48 to 50 and 43 to
 * 47; six with 1 MB slots 44; by pread 36 to 48; stores around the caches 36 to 39). */
enum { SLOTS = 12, SLOT_BYTES = 2 << 20, MOST_WORKERS = 8 };

struct job {
    size_t piece;
    int64_t row, rows;
};

struct upload {
    struct device *device;
    struct cuda_copier *copier;
    struct upload_piece *pieces;
    size_t pieces_count, total; /* total: bytes */
    model_progress_fn *progress;
    void *user;
    pthread_t thread; /* pumps */
    enum rose_status status; /* how it ended, with the error */
    struct rose_error err;
    double seconds;
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
    struct upload *r = arg;
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

static enum rose_status cut(struct upload *r, size_t count, struct rose_error *err)
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
    int slot[SLOTS], first, count;
};

static enum rose_status land(struct upload *r, struct flight *f, struct rose_error *err)
{
    int slot = f->slot[f->first];
    ROSE_TRY(cuda_copier_wait(r->copier, slot, err));
    f->first = (f->first + 1) % SLOTS;
    f->count--;
    pthread_mutex_lock(&r->lock);
    r->free_slots[r->free_count++] = slot;
    pthread_cond_signal(&r->free_wake);
    pthread_mutex_unlock(&r->lock);
    return ROSE_OK;
}

static enum rose_status send(struct upload *r, struct flight *f, const struct filled *filled, size_t *bytes, struct rose_error *err)
{
    const struct job *job = &r->jobs[filled->job];
    const struct upload_piece *piece = &r->pieces[job->piece];
    *bytes = matmul_cuda_weight_rows_bytes(piece->weight, job->rows);
    char *to = (char *)piece->memory + matmul_cuda_weight_rows_bytes(piece->weight, job->row);
    ROSE_TRY(cuda_copier_copy(r->copier, to, r->memory + (size_t)filled->slot * SLOT_BYTES, *bytes, err));
    ROSE_TRY(cuda_copier_mark(r->copier, filled->slot, err));
    f->slot[(f->first + f->count++) % SLOTS] = filled->slot;
    return ROSE_OK;
}

static enum rose_status pump(struct upload *r, struct rose_error *err)
{
    struct flight f = {0};
    size_t done = 0;
    for (size_t sent = 0; sent < r->jobs_count || f.count;) {
        struct filled filled = {-1, 0};
        pthread_mutex_lock(&r->lock);
        while (!r->filled_count && !f.count && !r->stop) pthread_cond_wait(&r->filled_wake, &r->lock);
        bool stop = r->stop;
        if (r->filled_count) {
            filled = r->filled[r->filled_first];
            r->filled_first = (r->filled_first + 1) % SLOTS;
            r->filled_count--;
        }
        const struct upload_piece *bad = r->bad;
        pthread_mutex_unlock(&r->lock);
        if (bad) return op_weight_nan(&bad->source, err);
        if (stop) return ROSE_OK; /* nobody wants them any more */
        if (filled.slot >= 0) {
            size_t bytes;
            ROSE_TRY(send(r, &f, &filled, &bytes, err));
            sent++;
            done += bytes;
            if (r->progress) r->progress(r->user, done, r->total);
        }
        if (f.count && (filled.slot < 0 || f.count > SLOTS / 3)) ROSE_TRY(land(r, &f, err));
    }
    return ROSE_OK;
}

static void stop_workers(struct upload *r)
{
    pthread_mutex_lock(&r->lock);
    r->stop = true;
    pthread_cond_broadcast(&r->free_wake);
    pthread_cond_broadcast(&r->filled_wake);
    pthread_mutex_unlock(&r->lock);
}

static void *pump_main(void *arg)
{
    struct upload *r = arg;
    pthread_t threads[MOST_WORKERS];
    double began = clock_seconds();
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int want = cores < 1 ? 1 : cores > MOST_WORKERS ? MOST_WORKERS : (int)cores, started = 0;
    enum rose_status s = ROSE_OK;
    if (!(r->memory = device_alloc(r->device, (size_t)SLOTS * SLOT_BYTES, DEVICE_MEMORY_HOST, &r->err))) s = ROSE_NO_MEMORY;
    while (s == ROSE_OK && started < want && pthread_create(&threads[started], NULL, fill, r) == 0) started++;
    if (s == ROSE_OK && !started && r->jobs_count) s = status_set(&r->err, ROSE_IO, "cannot start a thread to load weights");
    if (s == ROSE_OK) s = pump(r, &r->err);
    stop_workers(r);
    for (int i = 0; i < started; i++) pthread_join(threads[i], NULL);
    cuda_copier_close(r->copier); /* nothing reads the ring any more */
    device_free(r->device, r->memory, (size_t)SLOTS * SLOT_BYTES, DEVICE_MEMORY_HOST);
    r->status = s;
    r->seconds = clock_seconds() - began;
    return NULL;
}

static void upload_free(struct upload *r)
{
    pthread_mutex_destroy(&r->lock);
    pthread_cond_destroy(&r->free_wake);
    pthread_cond_destroy(&r->filled_wake);
    free(r->pieces);
    free(r->jobs);
    free(r);
}

/* Scales of FP8 matrices are few: they go at once, by the device's queue. */
static enum rose_status send_scales(struct upload *r, struct rose_error *err)
{
    for (size_t i = 0; i < r->pieces_count; i++)
        if (r->pieces[i].weight->layout == WEIGHT_LAYOUT_CUDA_FP8) ROSE_TRY(matmul_fp8_copy_scales(r->device, &r->pieces[i].source, r->pieces[i].weight, err));
    return ROSE_OK;
}

enum rose_status upload_begin(struct device *device, const struct upload_piece *pieces, size_t count, model_progress_fn *progress, void *user, struct upload **out,
                              struct rose_error *err)
{
    *out = NULL;
    if (device->planning) return ROSE_OK;
    struct upload *r = calloc(1, sizeof *r);
    if (!r || !(r->pieces = malloc((count + 1) * sizeof *pieces))) {
        free(r);
        return status_set(err, ROSE_NO_MEMORY, "out of memory while loading weights");
    }
    memcpy(r->pieces, pieces, count * sizeof *pieces);
    r->device = device, r->pieces_count = count, r->progress = progress, r->user = user;
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->free_wake, NULL);
    pthread_cond_init(&r->filled_wake, NULL);
    while (r->free_count < SLOTS) r->free_slots[r->free_count] = r->free_count, r->free_count++;
    for (size_t i = 0; i < count; i++) r->total += matmul_cuda_weight_rows_bytes(pieces[i].weight, tensor_rows(&pieces[i].source));
    enum rose_status s = cut(r, count, err);
    if (s == ROSE_OK) s = send_scales(r, err);
    if (s == ROSE_OK) s = cuda_copier_open(device, SLOTS, &r->copier, err);
    if (s == ROSE_OK && pthread_create(&r->thread, NULL, pump_main, r) != 0) {
        cuda_copier_close(r->copier);
        s = status_set(err, ROSE_IO, "cannot start a thread to load weights");
    }
    if (s == ROSE_OK)
        *out = r;
    else
        upload_free(r);
    return s;
}

enum rose_status upload_end(struct upload *r, bool stop, double *seconds, struct rose_error *err)
{
    if (!r) return ROSE_OK;
    if (stop) stop_workers(r);
    pthread_join(r->thread, NULL);
    enum rose_status s = r->status;
    if (s != ROSE_OK && err) *err = r->err;
    if (seconds) *seconds = r->seconds;
    for (size_t i = 0; i < r->pieces_count && s == ROSE_OK; i++)
        if (r->pieces[i].release) weights_release(r->pieces[i].file, r->pieces[i].release);
    upload_free(r);
    return s;
}
