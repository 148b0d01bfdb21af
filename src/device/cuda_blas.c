#define _GNU_SOURCE
#include "device/cuda_blas_internal.h"

#include <dlfcn.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/hash.h"
#include "device/cuda_device.h"

enum { COMPUTE_F32 = 68, TYPE_F32 = 0, TYPE_BF16 = 14, OPERATION_T = 1 };
enum { MATMUL_TRANS_A = 3 };
enum { REDUCTION_IN_F32 = 2 }; /* sums of split products meet in float32, never in y's type */
enum { NOT_SUPPORTED = 15 };
enum { PREFERENCE_WORKSPACE = 1, PREFERENCE_REDUCTIONS = 3, PREFERENCE_ALIGN_A = 5, PREFERENCE_ALIGN_B, PREFERENCE_ALIGN_C, PREFERENCE_ALIGN_D };

/* ---- finding ---- */

static void note_looked(struct cuda_blas *b, const char *place)
{
    size_t used = strlen(b->looked);
    snprintf(b->looked + used, sizeof b->looked - used, "%s%s", used ? ", " : "", place);
}

static bool try_library(struct cuda_blas *b, const char *path)
{
    Dl_info info;
    b->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void *symbol = b->library ? dlsym(b->library, "cublasLtCreate") : NULL;
    if (!symbol) {
        if (b->library) dlclose(b->library);
        b->library = NULL;
        return false;
    }
    snprintf(b->path, sizeof b->path, "%s", dladdr(symbol, &info) && info.dli_fname ? info.dli_fname : path);
    return true;
}

/* The newest of "libcublasLt.so.13" and ".12" in the directories that a pattern matches. */
static bool find_in(struct cuda_blas *b, const char *root, const char *below)
{
    static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12"};
    char pattern[1100];
    if (!root || !*root) return false;
    for (size_t n = 0; n < ROSE_COUNT(names); n++) {
        glob_t g;
        bool found = false;
        if (snprintf(pattern, sizeof pattern, "%s/%s/%s", root, below, names[n]) >= (int)sizeof pattern) continue;
        if (n == 0) note_looked(b, pattern);
        if (glob(pattern, 0, NULL, &g) != 0) continue;
        for (size_t i = 0; i < g.gl_pathc && !found; i++) found = try_library(b, g.gl_pathv[i]);
        globfree(&g);
        if (found) return true;
    }
    return false;
}

static bool find(struct cuda_blas *b, const struct cuda_blas_places *p)
{
    static const char *const toolkit[] = {"lib64", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"};
    static const char *const wheel[] = {"nvidia/cu1[0-9]/lib", "nvidia/cublas/lib"};
    static const char *const python[] = {"lib/python3*/site-packages", "lib/python3*/dist-packages"};
    static const char *const system[] = {"/usr/local/cuda", "/usr/local/cuda-1[0-9]*", "/opt/cuda", "/usr/lib/cuda"};
    char below[200];
    if (p->path && *p->path) {
        if (file_is_dir(p->path)) return find_in(b, p->path, ".");
        note_looked(b, p->path);
        return try_library(b, p->path);
    }
    note_looked(b, "the loader's libcublasLt.so.13 and .12");
    if (try_library(b, "libcublasLt.so.13") || try_library(b, "libcublasLt.so.12")) return true;
    for (size_t i = 0; i < ROSE_COUNT(toolkit); i++)
        if (find_in(b, p->cuda_home, toolkit[i])) return true;
    for (size_t s = 0; s < ROSE_COUNT(system); s++)
        for (size_t i = 0; i < ROSE_COUNT(toolkit); i++)
            if (find_in(b, system[s], toolkit[i])) return true;
    const char *const roots[] = {p->venv, "/usr/local", "/usr"};
    for (size_t r = 0; r < ROSE_COUNT(roots); r++)
        for (size_t i = 0; i < 4; i++) {
            snprintf(below, sizeof below, "%s/%s", python[i / 2], wheel[i % 2]);
            if (find_in(b, roots[r], below)) return true;
        }
    for (size_t i = 0; i < 2; i++) {
        snprintf(below, sizeof below, ".local/%s/%s", python[0], wheel[i]);
        if (find_in(b, p->home, below)) return true;
    }
    return false;
}

static enum rose_status load(struct cuda_blas *b, struct rose_error *err)
{
    const struct {
        const char *name;
        void **at;
    } symbols[] = {
        {"cublasLtCreate", (void **)&b->api.create},
        {"cublasLtDestroy", (void **)&b->api.destroy},
        {"cublasLtGetStatusString", (void **)&b->api.status_string},
        {"cublasLtGetVersion", (void **)&b->api.version},
        {"cublasLtMatmulDescCreate", (void **)&b->api.operation_create},
        {"cublasLtMatmulDescDestroy", (void **)&b->api.operation_destroy},
        {"cublasLtMatmulDescSetAttribute", (void **)&b->api.operation_set},
        {"cublasLtMatrixLayoutCreate", (void **)&b->api.layout_create},
        {"cublasLtMatrixLayoutDestroy", (void **)&b->api.layout_destroy},
        {"cublasLtMatmulPreferenceCreate", (void **)&b->api.preference_create},
        {"cublasLtMatmulPreferenceDestroy", (void **)&b->api.preference_destroy},
        {"cublasLtMatmulPreferenceSetAttribute", (void **)&b->api.preference_set},
        {"cublasLtMatmulAlgoGetHeuristic", (void **)&b->api.choose},
        {"cublasLtMatmulAlgoCheck", (void **)&b->api.check},
        {"cublasLtMatmul", (void **)&b->api.matmul},
    };
    for (size_t i = 0; i < ROSE_COUNT(symbols); i++) {
        *symbols[i].at = dlsym(b->library, symbols[i].name);
        if (!*symbols[i].at) return status_set(err, ROSE_UNSUPPORTED, "%s has no %s; cuBLAS 12 or newer is needed", b->path, symbols[i].name);
    }
    return ROSE_OK;
}

static enum rose_status checked(const struct cuda_blas *b, blas_status code, const char *what, struct rose_error *err)
{
    if (code == 0) return ROSE_OK;
    const char *text = b->api.status_string(code);
    return status_set(err, ROSE_DEVICE, "%s of %s: %s", what, b->path, text ? text : "unknown");
}

/* Measured choices hold for this GPU, driver and library. */
static void open_table(struct cuda_blas *b, const struct cuda_device *d, const char *cache_dir)
{
    char identity[256];
    int driver = 0;
    if (d->api.driver_version(&driver) != 0) driver = 0;
    snprintf(identity, sizeof identity, "cuBLASLt %zu, driver %d, %.90s, %s, %d SMs, %d bytes of workspace", b->api.version(), driver, d->base.info.name, d->base.info.arch,
             d->base.info.units, CUDA_BLAS_WORKSPACE);
    cuda_blas_table_open(&b->table, cache_dir, identity);
}

enum rose_status cuda_blas_open(struct device *device, const struct cuda_blas_places *places, struct cuda_blas **out,
                                struct rose_error *err)
{
    const int32_t transposed = OPERATION_T;
    if (device->info.kind != DEVICE_CUDA) return status_set(err, ROSE_INVALID, "cuBLASLt is for CUDA devices");
    struct cuda_blas *b = calloc(1, sizeof *b);
    if (!b) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    enum rose_status s = ROSE_OK;
    if (!find(b, places))
        s = status_set(err, ROSE_NOT_FOUND, "no cuBLASLt: own kernels multiply. Looked in: %s", b->looked);
    if (s == ROSE_OK) s = load(b, err);
    if (s == ROSE_OK) s = device_wait(device, NULL, err); /* makes the context current, as the library wants it */
    if (s == ROSE_OK) s = checked(b, b->api.create(&b->handle), "cublasLtCreate", err);
    if (s == ROSE_OK) s = checked(b, b->api.operation_create(&b->operation, COMPUTE_F32, TYPE_F32), "cublasLtMatmulDescCreate", err);
    if (s == ROSE_OK)
        s = checked(b, b->api.operation_set(b->operation, MATMUL_TRANS_A, &transposed, sizeof transposed), "cublasLtMatmulDescSetAttribute", err);
    if (s == ROSE_OK) open_table(b, (const struct cuda_device *)device, places->cache_dir);
    if (s == ROSE_OK)
        *out = b;
    else
        cuda_blas_close(b);
    return s;
}

static void entry_free(struct cuda_blas *b, struct blas_entry *e)
{
    blas_object all[] = {e->w, e->x, e->y};
    for (size_t i = 0; i < ROSE_COUNT(all); i++)
        if (all[i]) b->api.layout_destroy(all[i]);
    *e = (struct blas_entry){0};
}

void cuda_blas_close(struct cuda_blas *b)
{
    if (!b) return;
    for (int i = 0; i < ENTRIES; i++) entry_free(b, &b->entries[i]);
    cuda_blas_table_close(&b->table);
    if (b->operation) b->api.operation_destroy(b->operation);
    if (b->handle) b->api.destroy(b->handle);
    /* The library stays mapped: it keeps threads and state of its own. */
    free(b);
}

void cuda_blas_print(const struct cuda_blas *b, struct strbuf *out)
{
    size_t v = b->api.version(); /* 130002: 13.0.2; before 12.9 also 120801 */
    strbuf_printf(out, "cuBLASLt %zu.%zu.%zu (%s)", v / 10000, v / 100 % 100, v % 100, b->path);
}

/* ---- products ---- */

/* What a pointer and a stride of `bytes` allow; the library distinguishes up to 256. */
static uint32_t alignment(const void *p, int64_t bytes)
{
    uint64_t bits = (uint64_t)(uintptr_t)p | (uint64_t)bytes | 256;
    return (uint32_t)(bits & (~bits + 1));
}

struct blas_key cuda_blas_key(const struct cuda_blas_params *p, uint32_t rows)
{
    int element = p->out_f32 ? 4 : 2;
    struct blas_key key;
    memset(&key, 0, sizeof key);
    key.x_stride = p->x_stride, key.y_stride = p->y_stride;
    key.n = p->n, key.k = p->k, key.rows = rows;
    key.align_x = alignment(p->x, p->x_stride * 2), key.align_w = alignment(p->w, (int64_t)p->k * 2);
    key.align_y = alignment(p->y, p->y_stride * element);
    key.out_f32 = p->out_f32, key.update = p->beta != 0;
    return key;
}

/* Column-major, as the library thinks: y^T [n, rows] = w^T^T [n, k] x^T [k, rows]. */
static blas_status make_layouts(struct cuda_blas *b, const struct blas_key *k, struct blas_entry *e)
{
    e->key = *k, e->used = true;
    blas_status s = b->api.layout_create(&e->w, TYPE_BF16, (uint64_t)k->k, (uint64_t)k->n, k->k);
    if (!s) s = b->api.layout_create(&e->x, TYPE_BF16, (uint64_t)k->k, k->rows, k->x_stride);
    if (!s) s = b->api.layout_create(&e->y, k->out_f32 ? TYPE_F32 : TYPE_BF16, (uint64_t)k->n, k->rows, k->y_stride);
    return s;
}

static blas_status choose(struct cuda_blas *b, const struct blas_entry *e, struct blas_choice *choices, int wanted, int *count)
{
    blas_object preference = NULL;
    uint64_t workspace = CUDA_BLAS_WORKSPACE;
    const uint32_t reductions = REDUCTION_IN_F32;
    const uint32_t align[] = {e->key.align_w, e->key.align_x, e->key.align_y, e->key.align_y};
    *count = 0;
    blas_status s = b->api.preference_create(&preference);
    if (!s) s = b->api.preference_set(preference, PREFERENCE_WORKSPACE, &workspace, sizeof workspace);
    if (!s) s = b->api.preference_set(preference, PREFERENCE_REDUCTIONS, &reductions, sizeof reductions);
    for (int i = 0; i < 4 && !s; i++) s = b->api.preference_set(preference, PREFERENCE_ALIGN_A + i, &align[i], sizeof align[i]);
    if (!s) s = b->api.choose(b->handle, b->operation, e->w, e->x, e->y, e->y, preference, wanted, choices, count);
    if (!s && *count < 1) s = NOT_SUPPORTED;
    if (preference) b->api.preference_destroy(preference);
    return s;
}

enum rose_status cuda_blas_choices(struct cuda_blas *b, const struct blas_key *k, struct blas_choice *choices, int wanted, int *count, struct rose_error *err)
{
    struct blas_entry e = {0};
    blas_status s = make_layouts(b, k, &e);
    if (!s) s = choose(b, &e, choices, wanted, count);
    entry_free(b, &e);
    return checked(b, s, "algorithms for a product", err);
}

/* An algorithm measured for this shape or one of a few rows more, if the library still knows it. */
static bool measured(struct cuda_blas *b, struct blas_entry *e)
{
    const struct blas_measured *m = cuda_blas_table_near(&b->table, &e->key);
    struct blas_choice result = {0};
    if (!m || b->api.check(b->handle, b->operation, e->w, e->x, e->y, e->y, &m->algorithm, &result) || result.state || result.workspace > CUDA_BLAS_WORKSPACE) return false;
    e->algorithm = m->algorithm;
    return true;
}

static enum rose_status make_entry(struct cuda_blas *b, const struct blas_key *k, struct blas_entry *e, struct rose_error *err)
{
    struct blas_choice choice = {0};
    int count;
    blas_status s = make_layouts(b, k, e);
    if (!s && measured(b, e)) return ROSE_OK;
    if (!s) s = choose(b, e, &choice, 1, &count);
    e->algorithm = choice.algorithm;
    if (!s) return ROSE_OK;
    entry_free(b, e);
    return checked(b, s, "an algorithm for a product", err);
}

static uint64_t hash_of(const struct blas_key *k) { return hash_bytes(k, sizeof *k, 0); }

static enum rose_status find_entry(struct cuda_blas *b, const struct blas_key *k, struct blas_entry **out, struct rose_error *err)
{
    uint64_t hash = hash_of(k);
    struct blas_entry *e = NULL;
    for (uint32_t i = 0; i < PROBES; i++) {
        struct blas_entry *at = &b->entries[(hash + i) % ENTRIES];
        if (at->used && !memcmp(&at->key, k, sizeof *k)) {
            *out = at;
            return ROSE_OK;
        }
        if (!at->used && !e) e = at;
    }
    if (!e) e = &b->entries[(hash + b->evicted++ % PROBES) % ENTRIES];
    if (e->used) entry_free(b, e);
    *out = e;
    return make_entry(b, k, e, err);
}

void cuda_blas_forget(struct cuda_blas *b, const struct blas_key *k)
{
    for (uint32_t i = 0; i < PROBES; i++) {
        struct blas_entry *at = &b->entries[(hash_of(k) + i) % ENTRIES];
        if (at->used && !memcmp(&at->key, k, sizeof *k)) entry_free(b, at);
    }
}

enum rose_status cuda_blas_run(void *stream, const void *params, struct rose_error *err)
{
    const struct cuda_blas_params *p = params;
    struct cuda_blas *b = p->blas;
    struct blas_entry *e = NULL;
    if (!p->rows) return ROSE_OK;
    struct blas_key key = cuda_blas_key(p, p->rows);
    ROSE_TRY(find_entry(b, &key, &e, err));
    return checked(b,
                   b->api.matmul(b->handle, b->operation, &p->alpha, p->w, e->w, p->x, e->x, &p->beta, p->y, e->y, p->y, e->y,
                                 b->trial ? b->trial : &e->algorithm, p->workspace, CUDA_BLAS_WORKSPACE, stream),
                   "cublasLtMatmul", err);
}
