/* Weights of heads that lie in files of their own, and what is derived once from weights. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/head_pt.h"
#include "model/loader.h"
#include "model/slots.h"

/* A vector of the bind at hand. */
static enum rose_status want_vector(struct loader *l, struct bind *b, const char *name, int64_t n, const float **out)
{
    struct tensor t;
    *out = NULL;
    return bind_want(b, name, 1, &n, BIND_PLAIN, &t) ? loader_vector(l, &t, out) : ROSE_OK;
}

/* GGUF keeps them beside the model's tensors, without biases. */
static enum rose_status load_dense_beside(struct loader *l, struct head_dense *d, const char *name)
{
    struct tensor t;
    return bind_want(l->bind, name, 2, (int64_t[]){d->out, d->in}, BIND_ANY, &t) ? loader_add(l, t, &d->weight, l->m->weights, NULL) : ROSE_OK; /* bind_finish reports it */
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

static enum rose_status sparse_from_pt(struct loader *l, const char *path)
{
    struct model *m = l->m;
    size_t hidden = (size_t)m->config.hidden;
    float *v = ARENA_ARRAY(&m->arena, float, hidden + 1);
    if (!v) return loader_no_memory(l);
    ROSE_TRY(head_pt_read(path, hidden, v, v + hidden, l->err));
    m->sparse_bias = v + hidden;
    return loader_add(l, (struct tensor){.dtype = DTYPE_F32, .ndim = 2, .shape = {1, (int64_t)hidden}, .data = v}, &m->sparse, m->weights, NULL);
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
    const char *own = c->head.answers;
    char name[256];
    struct tensor t;
    bool bare = !l->gguf && c->tied && l->prefix && !*l->prefix;
    snprintf(name, sizeof name, "%s", l->gguf ? row->gguf : bare ? row->hf + 6 : row->hf);
    if (!bind_want(l->bind, own ? own : name, 2, (int64_t[]){own ? 2 : c->vocabulary, c->hidden}, BIND_ANY, &t)) return ROSE_OK; /* bind_finish reports it */
    c->tied = true;
    const int32_t ids[2] = {own ? 0 : c->head.yes, own ? 1 : c->head.no};
    for (int i = 0; i < 2 && ids[i] >= 0; i++) ROSE_TRY(loader_add(l, loader_rows(&t, ids[i], 1), &m->answer[i], m->weights, NULL));
    return ROSE_OK;
}

/* A dummy's two rows are nobody's. */
static enum rose_status dummy_answers(struct loader *l)
{
    struct model *m = l->m;
    const struct tensor t = {.dtype = m->element == DTYPE_F16 ? DTYPE_F16 : DTYPE_BF16, .ndim = 2, .shape = {1, m->config.hidden}};
    m->config.tied = true;
    for (int i = 0; i < 2; i++) ROSE_TRY(loader_add(l, t, &m->answer[i], m->weights, NULL));
    return ROSE_OK;
}

enum rose_status head_load(struct loader *l)
{
    struct model_head *h = &l->m->config.head;
    if (l->dummy) return h->task == MODEL_YES_NO ? dummy_answers(l) : ROSE_OK;
    for (int32_t i = 0; h->task == MODEL_EMBED && i < h->dense_count; i++)
        ROSE_TRY(h->dense_path[i] ? load_dense(l, &h->dense[i], h->dense_path[i], h->dense_bias[i]) : load_dense_beside(l, &h->dense[i], h->dense_name[i]));
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
    const struct tensor *t = &l->relative;
    size_t row_bytes = dtype_row_bytes(t->dtype, (size_t)heads);
    for (int32_t d = -reach; t->data && d <= reach; d++) {
        dtype_decode(t->dtype, (const char *)t->data + (size_t)bucket_of(d, MPNET_BUCKETS) * row_bytes, row, (size_t)heads);
        for (int32_t h = 0; h < heads; h++) table[(size_t)h * stride + (size_t)(reach + d)] = row[h];
    }
    m->relative = table;
    return ROSE_OK;
}

/* --- ALiBi ----------------------------------------------------------------------------------------------------------------------- */

/* Press et al. 2022: the slopes of n = 2^k heads are 2^(-8 i / n), i from 1 to n; of other numbers those of the power below, then every
 * other one of twice that power. */
enum rose_status head_load_alibi(struct loader *l)
{
    const struct model_config *c = &l->m->config;
    if (!c->alibi) return ROSE_OK;
    int32_t heads = c->heads.heads, power = 1;
    float *slopes = ARENA_ARRAY(&l->m->arena, float, (size_t)heads);
    if (!slopes) return loader_no_memory(l);
    while (power * 2 <= heads) power *= 2;
    for (int32_t i = 0; i < heads; i++) {
        double exponent = i < power ? 8.0 * (i + 1) / power : 8.0 * (2 * (i - power) + 1) / (2 * power);
        slopes[i] = (float)exp2(-exponent);
    }
    l->m->alibi = slopes;
    return ROSE_OK;
}
