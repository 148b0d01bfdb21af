#include "model/head_gguf.h"

#include <stdio.h>

#include "model/arch.h"
#include "model/config_util.h"
#include "weights/gguf.h"
#include "weights/weights.h"

static const struct str *labels_of(struct weights *w, size_t *n)
{
    const struct str *list = NULL;
    struct str arch = {0};
    char key[160];
    *n = 0;
    if (!config_gguf_find(w, "classifier.output_labels") || gguf_str(w, "general.architecture", &arch, NULL) != ROSE_OK) return NULL;
    snprintf(key, sizeof key, STR_FMT ".classifier.output_labels", STR_ARG(arch));
    return gguf_strings(w, key, &list, n, NULL) == ROSE_OK ? list : NULL;
}

struct str head_gguf_label(struct weights *w, int32_t i)
{
    size_t n;
    const struct str *list = labels_of(w, &n);
    return list && (size_t)i < n ? list[i] : (struct str){"", 0};
}

/* EmbeddingGemma's modules 2_Dense and 3_Dense, converted with the model. */
static enum rose_status read_dense(struct weights *w, struct model_config *c, struct rose_error *err)
{
    static const char *const names[] = {"dense_2.weight", "dense_3.weight"};
    struct model_head *h = &c->head;
    int64_t before = c->hidden;
    for (size_t i = 0; i < ROSE_COUNT(names); i++) {
        const struct weights_tensor *t = weights_find(w, names[i]);
        if (!t) continue;
        if (t->ndim != 2 || t->shape[1] != before || t->shape[0] < 1 || t->shape[0] > 1 << 20)
            return status_at(err, ROSE_FORMAT, weights_path(w), -1, "%s: %s must be a matrix over the %lld columns that come before it", weights_path(w), names[i], (long long)before);
        h->dense[h->dense_count] = (struct head_dense){.in = (int32_t)before, .out = (int32_t)t->shape[0]};
        h->dense_name[h->dense_count++] = names[i];
        before = t->shape[0];
    }
    return ROSE_OK;
}

/* Qwen3's rerankers keep the output matrix's rows of yes and no, in this order, as a classifier of two. */
static bool answers_yes_no(struct weights *w, const struct model_config *c)
{
    const struct weights_tensor *t = weights_find(w, "cls.output.weight");
    if (c->arch->encoder || !t || t->ndim != 2 || t->shape[0] != 2) return false;
    struct str yes = head_gguf_label(w, 0), no = head_gguf_label(w, 1);
    return str_is(yes, "yes") && str_is(no, "no");
}

/* *.pooling_type: 0 none, 1 mean, 2 cls, 3 last, 4 rank. Converters leave it out of most classifiers, whose output says what they are. */
enum rose_status head_gguf_read(struct weights *w, struct model_config *c, bool *pooled, enum model_task *task, struct rose_error *err)
{
    enum { ABSENT = 255, RANK = 4 };
    static const enum op_pooling of[] = {OP_POOL_MEAN, OP_POOL_MEAN, OP_POOL_CLS, OP_POOL_LAST};
    struct model_head *h = &c->head;
    int32_t type;
    ROSE_TRY(config_gguf_size(w, "pooling_type", ABSENT, ABSENT, &type, err));
    ROSE_TRY(read_dense(w, c, err));
    h->normalize = true; /* the file does not say; embeddings of such files are compared by cosine */
    if (type == RANK || (type == ABSENT && weights_find(w, "cls.output.weight"))) {
        *task = answers_yes_no(w, c) ? MODEL_YES_NO : MODEL_CLASSIFY;
        if (*task == MODEL_YES_NO) h->yes = 0, h->no = 1, h->answers = "cls.output.weight";
        return ROSE_OK;
    }
    if (type == ABSENT) return ROSE_OK;
    if (type > RANK) return status_at(err, ROSE_UNSUPPORTED, weights_path(w), -1, "%s: pooling type %d is not known", weights_path(w), type);
    h->pooling = of[type];
    h->per_token = type == 0;
    *pooled = type != 0;
    return ROSE_OK;
}

/* ModernBERT's default is the mean, as llama.cpp has it; all others take the first row. */
enum rose_status head_gguf_classifier(struct weights *w, struct model_config *c, struct rose_error *err)
{
    struct model_head *h = &c->head;
    int32_t type;
    ROSE_TRY(config_gguf_size(w, "classifier.pooling_type", 255, h->inner_norm ? 1 : 0, &type, err));
    if (type > 2) return status_at(err, ROSE_UNSUPPORTED, weights_path(w), -1, "%s: a classifier over pooling type %d is not known", weights_path(w), type);
    if (type) h->pooling = type == 1 ? OP_POOL_MEAN : OP_POOL_CLS;
    if (!weights_find(w, "cls.weight")) h->inner = (struct head_dense){.in = c->hidden}, h->inner_norm = false;
    if (!weights_find(w, "cls.norm.weight")) h->inner_norm = false;
    return ROSE_OK;
}
