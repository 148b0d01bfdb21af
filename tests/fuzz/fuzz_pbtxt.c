/* Texts of config.pbtxt: read as a tree, as a configuration, and laid onto the tensors of a model of every kind. What is refused has a place and a
 * sentence; what is taken answers requests in names that lead back to themselves. */
#include <stdint.h>
#include <stdlib.h>

#include "server/kserve.h"
#include "server/model_config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void is_told(const struct rose_error *err)
{
    if (!err->message[0] || err->line < 1 || err->column < 1) abort();
}

static void look_at(const struct pbtxt_field *fields, int depth)
{
    int64_t n;
    bool b;
    if (depth > PBTXT_DEPTH) abort();
    for (const struct pbtxt_field *f = fields; f; f = f->next) {
        if (!f->name.n || f->line < 1 || f->column < 1 || f->at_line < f->line) abort();
        if (pbtxt_integer(f, &n) && f->kind != PBTXT_NUMBER) abort();
        (void)pbtxt_bool(f, &b);
        look_at(f->fields, depth + 1);
    }
}

static void lay(const struct model_config *c, struct rose_model_info info)
{
    struct model m = {.name = "m", .info = info, .config = (struct model_config *)(uintptr_t)c};
    struct kserve_io io[KSERVE_TENSORS], own[KSERVE_TENSORS];
    struct rose_error err = {0};
    struct strbuf b = {0};
    int64_t shape[4];
    if (kserve_map_build(&m, c, &m.map, &err) != ROSE_OK) {
        is_told(&err);
        return;
    }
    int n = kserve_outputs(&m, io, KSERVE_TENSORS), count;
    if (n < 1 || kserve_inputs(&m, own, KSERVE_TENSORS) < 1) abort();
    count = kserve_io_outputs(&m, true, own, KSERVE_TENSORS);
    for (int i = 0; i < n && m.map; i++) {
        int k = 0;
        while (k < count && strcmp(io[i].to, own[k].name)) k++;
        if (!strcmp(io[i].to, "none")) continue;
        if (k == count || strcmp(kserve_map_name(&m, io[i].to), io[i].name) || kserve_map_shape(&m, &io[i], shape) > 4) abort();
    }
    kserve_add_config(&m, &b);
    (void)kserve_map_priority(&m, 0);
    model_config_describe(c, m.map, &b);
    strbuf_free(&b);
    kserve_map_free(m.map);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct rose_model_info kinds[] = {{.tasks = ROSE_CAN_EMBED | ROSE_CAN_SPARSE, .embedding_size = 24, .hidden = 32}, {.tasks = ROSE_CAN_CLASSIFY, .labels_count = 3},
                                                   {.tasks = ROSE_CAN_CLASSIFY_TOKENS, .labels_count = 3}, {.tasks = ROSE_CAN_SCORE, .labels_count = 1}, {.tasks = ROSE_CAN_GENERATE}};
    struct str text = {(const char *)data, size};
    struct rose_error err = {0};
    struct pbtxt_field *fields;
    struct model_config *c;
    struct arena a;
    arena_init(&a, 0);
    if (pbtxt_read(text, "f", &a, &fields, &err) == ROSE_OK) look_at(fields, 1);
    else is_told(&err);
    arena_free(&a);
    err = (struct rose_error){0};
    if (model_config_read(text, "f", "m", &c, &err) != ROSE_OK) {
        is_told(&err);
        return 0;
    }
    const struct version_policy *p = &c->policy;
    if (p->count < 0 || (p->kind == VERSIONS_SPECIFIC && p->count > VERSIONS_MOST)) abort();
    for (int i = 0; p->kind == VERSIONS_SPECIFIC && i < p->count; i++)
        if (p->list[i] < 1) abort();
    for (size_t i = 0; i < ROSE_COUNT(kinds); i++) lay(c, kinds[i]);
    model_config_free(c);
    return 0;
}
