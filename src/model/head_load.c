/* Weights of heads that lie in files of their own, and what is derived once from weights. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "model/loader.h"
#include "model/slots.h"

/* A vector of the bind at hand. */
static enum rose_status want_vector(struct loader *l, struct bind *b, const char *name, int64_t n, const float **out)
{
    struct tensor t;
    *out = NULL;
    return bind_want(b, name, 1, &n, BIND_PLAIN, &t) ? loader_vector(l, &t, out) : ROSE_OK;
}

static enum rose_status load_dense(struct loader *l, struct head_dense *d, const char *path, bool bias)
{
    struct bind *b;
    struct tensor t;
    enum rose_status s = weights_open(path, &d->weights, l->err);
    if (s != ROSE_OK) return status_wrap(l->err, s, "a dense module of modules.json");
    ROSE_TRY(bind_open(d->weights, &b, l->err));
    if (bind_want(b, "linear.weight", 2, (int64_t[]){d->out, d->in}, BIND_ANY, &t)) s = loader_add(l, t, &d->weight, d->weights, NULL);
    if (s == ROSE_OK && bias) s = want_vector(l, b, "linear.bias", d->out, &d->bias);
    enum rose_status bound = bind_finish(b, NULL, s == ROSE_OK ? l->err : NULL);
    return s != ROSE_OK ? s : bound;
}

/* --- the lexical head ------------------------------------------------------------------------------------------------------- */

/* A .pt file is a ZIP archive whose members are stored as they are: NAME/data.pkl says which tensors there are, NAME/data/0 holds the
 * weight [1, hidden], NAME/data/1 the bias. The pickle is a program and is not looked at: two tensors of 1 x hidden and 1 elements can
 * only be these, and their bytes tell the type. Offsets: APPNOTE.TXT 4.3.12 and 4.3.7. */
static const uint8_t *zip_member(const struct file_map *map, const char *end, size_t *bytes)
{
    const uint8_t *p = map->data;
    size_t n = map->size, at = n < 22 ? 0 : n - 22;
    while (at && memcmp(p + at, "PK\5\6", 4)) at--;
    if (n < 22 || memcmp(p + at, "PK\5\6", 4)) return NULL;
    uint32_t dir;
    uint16_t count, name_n, extra_n, comment_n, method;
    memcpy(&count, p + at + 10, 2);
    memcpy(&dir, p + at + 16, 4);
    for (size_t e = dir; count--; e += 46u + name_n + extra_n + comment_n) {
        if (e + 46 > n || memcmp(p + e, "PK\1\2", 4)) return NULL;
        uint32_t stored, size, local;
        memcpy(&method, p + e + 10, 2);
        memcpy(&stored, p + e + 20, 4);
        memcpy(&size, p + e + 24, 4);
        memcpy(&name_n, p + e + 28, 2);
        memcpy(&extra_n, p + e + 30, 2);
        memcpy(&comment_n, p + e + 32, 2);
        memcpy(&local, p + e + 42, 4);
        if (e + 46 + name_n > n) return NULL;
        if (!str_ends((struct str){(const char *)p + e + 46, name_n}, str_of(end))) continue;
        if (method || stored != size || (size_t)local + 30 > n || memcmp(p + local, "PK\3\4", 4)) return NULL;
        uint16_t local_name, local_extra;
        memcpy(&local_name, p + local + 26, 2);
        memcpy(&local_extra, p + local + 28, 2);
        size_t begin = (size_t)local + 30 + local_name + local_extra;
        if (begin > n || size > n - begin) return NULL;
        *bytes = size;
        return p + begin;
    }
    return NULL;
}

static enum rose_status sparse_from_pt(struct loader *l, const char *path)
{
    struct model *m = l->m;
    struct file_map map;
    size_t hidden = (size_t)m->config.hidden, weight_bytes = 0, bias_bytes = 0;
    ROSE_TRY(file_map_open(&map, path, l->err));
    const uint8_t *weight = zip_member(&map, "/data/0", &weight_bytes), *bias = zip_member(&map, "/data/1", &bias_bytes);
    size_t size = weight ? weight_bytes / hidden : 0;
    enum rose_status s = ROSE_OK;
    if (!weight || !bias || (size != 2 && size != 4) || weight_bytes != size * hidden || bias_bytes != size)
        s = status_at(l->err, ROSE_FORMAT, path, -1, "%s does not hold a weight of 1 x %zu and a bias of 1, stored plainly; save it as sparse_linear.safetensors", path, hidden);
    float *v = s == ROSE_OK ? ARENA_ARRAY(&m->arena, float, hidden + 1) : NULL;
    if (s == ROSE_OK && !v) s = loader_no_memory(l);
    if (s == ROSE_OK) {
        enum dtype dtype = size == 4 ? DTYPE_F32 : DTYPE_F16;
        dtype_decode(dtype, weight, v, hidden);
        dtype_decode(dtype, bias, v + hidden, 1);
        m->sparse_bias = v + hidden;
        s = loader_add(l, (struct tensor){.dtype = DTYPE_F32, .ndim = 2, .shape = {1, (int64_t)hidden}, .data = v}, &m->sparse, m->weights, NULL);
    }
    file_map_close(&map);
    return s;
}

static enum rose_status load_sparse(struct loader *l)
{
    struct model *m = l->m;
    const char *path = m->config.head.sparse_path;
    struct bind *b;
    struct tensor t;
    if (str_ends(str_of(path), STR(".pt"))) return sparse_from_pt(l, path);
    ROSE_TRY(weights_open(path, &m->sparse_weights, l->err));
    ROSE_TRY(bind_open(m->sparse_weights, &b, l->err));
    enum rose_status s = ROSE_OK;
    if (bind_want(b, "weight", 2, (int64_t[]){1, m->config.hidden}, BIND_ANY, &t)) s = loader_add(l, t, &m->sparse, m->sparse_weights, NULL);
    if (s == ROSE_OK) s = want_vector(l, b, "bias", 1, &m->sparse_bias);
    enum rose_status bound = bind_finish(b, NULL, s == ROSE_OK ? l->err : NULL);
    return s != ROSE_OK ? s : bound;
}

/* --- yes or no ----------------------------------------------------------------------------------------------------------------- */

/* Two rows of the output matrix instead of all. */
static enum rose_status load_answers(struct loader *l)
{
    struct model *m = l->m;
    struct model_config *c = &m->config;
    const struct slot_row *row = arch_slot(l->arch, c->tied ? SLOT_EMBED : SLOT_OUTPUT);
    char name[256];
    struct tensor t;
    bool bare = !l->gguf && c->tied && l->prefix && !*l->prefix;
    snprintf(name, sizeof name, "%s", l->gguf ? row->gguf : bare ? row->hf + 6 : row->hf);
    if (!bind_want(l->bind, name, 2, (int64_t[]){c->vocabulary, c->hidden}, BIND_ANY, &t)) return ROSE_OK; /* bind_finish reports it */
    c->tied = true;
    const int32_t ids[2] = {c->head.yes, c->head.no};
    for (int i = 0; i < 2 && ids[i] >= 0; i++) ROSE_TRY(loader_add(l, loader_rows(&t, ids[i], 1), &m->answer[i], m->weights, NULL));
    return ROSE_OK;
}

enum rose_status head_load(struct loader *l)
{
    struct model_head *h = &l->m->config.head;
    if (l->dummy) return ROSE_OK;
    for (int32_t i = 0; h->task == MODEL_EMBED && i < h->dense_count; i++) ROSE_TRY(load_dense(l, &h->dense[i], h->dense_path[i], h->dense_bias[i]));
    if (h->task == MODEL_EMBED && h->sparse) ROSE_TRY(load_sparse(l));
    return h->task == MODEL_YES_NO ? load_answers(l) : ROSE_OK;
}

void head_close(struct model *m)
{
    for (int32_t i = 0; i < HEAD_MAX_DENSE; i++) weights_close(m->config.head.dense[i].weights);
    weights_close(m->sparse_weights);
}

/* --- the relative bias ----------------------------------------------------------------------------------------------------------- */

/* T5's bucket of a distance (Raffel et al. 2020): half of them for keys behind the query, half for those before it; small distances
 * have a bucket each, larger ones share them logarithmically up to 128. Rounded as the reference rounds. */
enum { MPNET_BUCKETS = 32 };
static int32_t bucket_of(int32_t distance, int32_t buckets)
{
    enum { LONGEST = 128 };
    int32_t half = buckets / 2, n = distance < 0 ? -distance : distance, exact = half / 2, base = distance > 0 ? half : 0;
    if (n < exact) return base + n;
    float part = logf((float)n / (float)exact) / (float)log((double)LONGEST / exact) * (float)(half - exact);
    return base + ROSE_MIN(exact + (int32_t)part, half - 1);
}

enum rose_status head_load_relative(struct loader *l)
{
    struct model *m = l->m;
    const struct model_config *c = &m->config;
    if (!c->relative_buckets) return ROSE_OK;
    int32_t reach = c->context, heads = c->heads.heads;
    size_t stride = OP_RELATIVE_STRIDE((size_t)reach);
    float *table = ARENA_ARRAY(&m->arena, float, stride * (size_t)heads), *row = ARENA_ARRAY(&m->arena, float, (size_t)heads);
    if (!table || !row) return loader_no_memory(l);
    for (int32_t d = -reach; d <= reach; d++) {
        op_weight_row(&m->top->weight[SLOT_RELATIVE], bucket_of(d, MPNET_BUCKETS), row); /* whatever the table has */
        for (int32_t h = 0; h < heads; h++) table[(size_t)h * stride + (size_t)(reach + d)] = row[h];
    }
    m->relative = table;
    return ROSE_OK;
}
