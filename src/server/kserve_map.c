/* Tensors as a config.pbtxt calls them, onto the engine's own: once when a model is there, then request by request.
 *
 *     request: client's names, dims -- kserve_map_request --> engine's names, [n] and [n,w] ... results -- kserve_map_output --> client's names, types, dims
 */
#include <stdio.h>
#include <stdlib.h>

#include "server/kserve.h"
#include "server/model_config.h"

struct kserve_map {
    struct arena arena;
    struct kserve_io *inputs, *outputs; /* as clients see them; `to` is the engine's name, or one of the two below */
    int inputs_count, outputs_count, batch;
};

int kserve_batch(const struct model *m)
{
    const struct model_config *c = m->config;
    if (m->map) return m->map->batch;
    if (kserve_kind(m) == KSERVE_TEXT) return 0;
    return c && c->max_batch ? ROSE_MIN(c->max_batch, KSERVE_BATCH) : KSERVE_BATCH;
}

int kserve_inputs(const struct model *m, struct kserve_io *io, int room)
{
    return m->map ? kserve_io_copy(m->map->inputs, m->map->inputs_count, io, room) : kserve_io_inputs(m, false, io, room);
}

int kserve_outputs(const struct model *m, struct kserve_io *io, int room)
{
    return m->map ? kserve_io_copy(m->map->outputs, m->map->outputs_count, io, room) : kserve_io_outputs(m, false, io, room);
}

/* An input that is taken and not read, an output that is not given; an optional input that is refused when it comes. */
static const char nothing[] = "none", unknown[] = "?";

/* --- which is which ------------------------------------------------------------------------------------------------------------------- */

struct targets {
    struct kserve_io io[KSERVE_TENSORS];
    const struct model_config_tensor *taken[KSERVE_TENSORS];
    int count;
};

struct building {
    const struct model *model;
    const struct model_config *config;
    struct targets inputs, outputs;
    int input_of[KSERVE_TENSORS], output_of[KSERVE_TENSORS]; /* the target, or one of the below */
    int batch;
    struct rose_error *err;
};
enum { UNKNOWN = -1, IGNORED = -2, LEFT_OUT = -3 };

static int find(const struct targets *t, const char *name)
{
    for (int i = 0; i < t->count; i++)
        if (!strcmp(t->io[i].name, name)) return i;
    return UNKNOWN;
}

static void list_names(const struct targets *t, struct strbuf *b)
{
    for (int i = 0; i < t->count; i++) strbuf_printf(b, "%s%s", i ? ", " : "", t->io[i].name);
}

static enum rose_status wrong(const struct building *b, const struct pbtxt_field *at, const char *fmt, ...) ROSE_PRINTF(3, 4);
static enum rose_status wrong(const struct building *b, const struct pbtxt_field *at, const char *fmt, ...)
{
    char text[600];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return pbtxt_wrong(at, b->config->file, b->err, ROSE_INVALID, "%s", text);
}

static enum rose_status give(struct building *b, bool input, int i, int target)
{
    const struct model_config_tensor *t = input ? &b->config->inputs[i] : &b->config->outputs[i];
    struct targets *all = input ? &b->inputs : &b->outputs;
    if (all->taken[target]) return wrong(b, t->at_to ? t->at_to : t->at, "'%s' and '%s' would both be the engine's %s", all->taken[target]->name, t->name, all->io[target].name);
    all->taken[target] = t;
    (input ? b->input_of : b->output_of)[i] = target;
    return ROSE_OK;
}

/* What parameters say, names that are the engine's, and names that exports of transformers and TensorRT's BERT have. */
static enum rose_status by_name(struct building *b, bool input)
{
    static const char *const others[][2] = {{"input_mask", "attention_mask"}, {"segment_ids", "token_type_ids"}, {"last_hidden_state", "token_embeddings"}};
    const struct model_config_tensor *list = input ? b->config->inputs : b->config->outputs;
    int count = input ? b->config->inputs_count : b->config->outputs_count, *of = input ? b->input_of : b->output_of;
    const struct targets *all = input ? &b->inputs : &b->outputs;
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < count; i++) {
            const struct model_config_tensor *t = &list[i];
            int target = find(all, t->to ? t->to : t->name);
            if (!round) of[i] = UNKNOWN;
            if (round == (t->to != NULL)) continue; /* parameters first */
            if (t->to && !strcmp(t->to, nothing)) {
                of[i] = IGNORED;
                continue;
            }
            for (size_t k = 0; !t->to && target < 0 && k < ROSE_COUNT(others); k++)
                if (!strcmp(t->name, others[k][0])) target = find(all, others[k][1]);
            if (t->to && target < 0) {
                struct strbuf names = {.limit = 500};
                list_names(all, &names);
                enum rose_status s = wrong(b, t->at_to, "this model has no %s \"%s\"; it has: %s", input ? "input" : "output", t->to, names.p ? names.p : "");
                strbuf_free(&names);
                return s;
            }
            if (target >= 0) ROSE_TRY(give(b, input, i, target));
        }
    return ROSE_OK;
}

static bool is_integer(enum kserve_type t) { return t >= KSERVE_UINT8 && t <= KSERVE_INT64; }
static bool is_float(enum kserve_type t) { return t >= KSERVE_FP16 && t <= KSERVE_FP64; }

static enum rose_status not_clear(const struct building *b, bool input, const struct model_config_tensor *t)
{
    const struct targets *all = input ? &b->inputs : &b->outputs;
    struct strbuf names = {.limit = 500};
    list_names(all, &names);
    const char *what = input ? "input" : "output";
    enum rose_status s = wrong(b, t->at, "%s '%s': which of the model's %ss it is was expected (%s%s), by parameters { key: \"rose.%s.%s\" value { string_value: \"...\" } }", what, t->name, what, names.p ? names.p : "",
                               input ? ", or none: taken and not read" : ", or none: not given", what, t->name);
    strbuf_free(&names);
    return s;
}

/* Of those of that kind whose target is not known the one that it must be: the only one that is needed, else the only one; -1: there is none such. */
static int only_one(const struct building *b, bool bytes)
{
    for (int optional = 0; optional < 2; optional++) {
        int found = -1, count = 0;
        for (int i = 0; i < b->config->inputs_count; i++) {
            const struct model_config_tensor *t = &b->config->inputs[i];
            if (b->input_of[i] != UNKNOWN || t->optional != optional || !(bytes ? t->type == KSERVE_BYTES : is_integer(t->type))) continue;
            found = i;
            count++;
        }
        if (count) return count == 1 ? found : -1;
    }
    return -1;
}

/* The only one of its kind that is left is the only one that is missing. What need not come may stay unknown. */
static enum rose_status rest_of_inputs(struct building *b)
{
    static const char *const main_text[] = {"text_input", "text", "text", NULL};
    const struct model_config *c = b->config;
    const char *missing = main_text[kserve_kind(b->model)];
    if (!missing) {
        bool query = b->inputs.taken[find(&b->inputs, "query")] != NULL, text = b->inputs.taken[find(&b->inputs, "text")] != NULL;
        missing = query && !text ? "text" : text && !query ? "query" : NULL;
    }
    for (int kind = 0; kind < 2; kind++) {
        int i = only_one(b, kind == 0), target = kind ? find(&b->inputs, "input_ids") : missing ? find(&b->inputs, missing) : UNKNOWN;
        if (i >= 0 && target >= 0 && !b->inputs.taken[target]) ROSE_TRY(give(b, true, i, target));
    }
    for (int i = 0; i < c->inputs_count; i++) {
        if (b->input_of[i] != UNKNOWN) continue;
        if (!c->inputs[i].optional) return not_clear(b, true, &c->inputs[i]);
        b->input_of[i] = LEFT_OUT;
    }
    return ROSE_OK;
}

static enum rose_status rest_of_outputs(struct building *b)
{
    static const char *const main_output[] = {"text_output", "embedding", "probabilities", "score"};
    const struct model_config *c = b->config;
    enum kserve_kind kind = kserve_kind(b->model);
    for (int i = 0; i < c->outputs_count; i++) {
        const struct model_config_tensor *t = &c->outputs[i];
        bool rows = kind == KSERVE_EMBED && t->rank + (b->batch > 0) == 3;
        int same = 0, target = find(&b->outputs, rows ? "token_embeddings" : main_output[kind]);
        if (b->output_of[i] != UNKNOWN) continue;
        for (int k = 0; k < c->outputs_count; k++) same += b->output_of[k] == UNKNOWN && (kind != KSERVE_EMBED || (c->outputs[k].rank + (b->batch > 0) == 3) == rows);
        bool type = kind == KSERVE_TEXT ? t->type == KSERVE_BYTES : is_float(t->type);
        /* A BERT's pooler is a layer of its own and no sentence's embedding. */
        if (same != 1 || !type || target < 0 || b->outputs.taken[target] || !strcmp(t->name, "pooler_output")) return not_clear(b, false, t);
        ROSE_TRY(give(b, false, i, target));
    }
    return ROSE_OK;
}

/* --- do types and dims agree ---------------------------------------------------------------------------------------------------------- */

static void add_dims(struct strbuf *b, const int64_t *dims, int rank)
{
    for (int i = 0; i < rank; i++) strbuf_printf(b, "%s%lld", i ? ", " : "", (long long)dims[i]);
}

static bool is_list(const struct kserve_io *io) { return !strcmp(io->name, "stop_words"); }
static bool is_tokens(const struct kserve_io *io) { return io->dims[0] == -1 && is_integer(io->type); }

/* shape: whole, the batch first. A dimension of the engine's is there as it is, or any. */
static bool input_fits(const struct kserve_io *io, const int64_t *shape, int rank, bool batch)
{
    if (is_tokens(io)) return rank == 2 || (rank == 1 && !batch);
    if (is_list(io)) return rank == 1 || rank == 2;
    return rank == 1 || (rank == 2 && (shape[1] == 1 || shape[1] == -1));
}

static bool output_fits(const struct kserve_io *io, const int64_t *shape, int rank, bool batch, enum kserve_kind kind)
{
    int64_t last = io->dims[io->rank - 1];
    if (kind == KSERVE_TEXT) return rank == 1 || (rank == 2 && (shape[1] == 1 || shape[1] == -1));
    if (rank != io->rank + 1 && (batch || rank != io->rank)) return false;
    return last == -1 || shape[rank - 1] == -1 || shape[rank - 1] == last || (last == 1 && rank == 1);
}

static enum rose_status agree(const struct building *b, bool input, const struct model_config_tensor *t, int target)
{
    const char *what = input ? "input" : "output";
    enum kserve_kind kind = kserve_kind(b->model);
    if (target < 0) return ROSE_OK;
    const struct kserve_io *io = &(input ? &b->inputs : &b->outputs)->io[target];
    bool type = input || is_float(io->type) ? kserve_type_fits(t->type, io->type) : t->type == io->type;
    if (!type) return wrong(b, t->at_type, "%s '%s' is the engine's %s, for which TYPE_%s was expected", what, t->name, io->name, io->type == KSERVE_BYTES ? "STRING" : kserve_type_name(io->type));
    int64_t shape[KSERVE_RANK + 1] = {-1};
    int rank = t->rank + (b->batch > 0);
    memcpy(shape + (b->batch > 0), t->dims, (size_t)t->rank * sizeof *t->dims);
    if (rank <= 3 && (input ? input_fits(io, shape, rank, b->batch > 0) : output_fits(io, shape, rank, b->batch > 0, kind))) return ROSE_OK;
    struct strbuf want = {.limit = 200}, have = {.limit = 200};
    add_dims(&have, t->dims, t->rank);
    if (!b->batch && kind != KSERVE_TEXT) strbuf_adds(&want, "-1, ");
    add_dims(&want, io->dims, io->rank);
    enum rose_status s = wrong(b, t->at_dims, "%s '%s' is the engine's %s: with max_batch_size %d, dims: [ %s ] was expected, not [ %s ]", what, t->name, io->name, b->batch, want.p ? want.p : "", have.p ? have.p : "");
    strbuf_free(&want);
    strbuf_free(&have);
    return s;
}

static const struct model_config_tensor *taken(const struct building *b, const char *name)
{
    int i = find(&b->inputs, name);
    return i < 0 ? NULL : b->inputs.taken[i];
}

/* One whole form of the input, and of two that none must be there. */
static enum rose_status complete(const struct building *b)
{
    static const char *const needs[][2] = {{"attention_mask", "input_ids"}, {"token_type_ids", "input_ids"}, {"text_pair", "text"}};
    enum kserve_kind kind = kserve_kind(b->model);
    const struct model_config *c = b->config;
    if (!c->inputs_count) return ROSE_OK;
    if (kind == KSERVE_TEXT) return taken(b, "text_input") ? ROSE_OK : wrong(b, c->inputs[0].at, "an input that is the engine's text_input was expected");
    const struct model_config_tensor *ids = taken(b, "input_ids"), *text = taken(b, "text"), *query = taken(b, "query");
    for (size_t i = 0; i < ROSE_COUNT(needs); i++)
        if (taken(b, needs[i][0]) && !taken(b, needs[i][1])) return wrong(b, taken(b, needs[i][0])->at, "'%s' is the engine's %s, and an input that is its %s was expected beside it", taken(b, needs[i][0])->name, needs[i][0], needs[i][1]);
    if (kind == KSERVE_SCORE && !text != !query) return wrong(b, (text ? text : query)->at, "inputs that are the engine's query and its text were expected, and one of them is missing");
    if (!text && !ids) return wrong(b, c->inputs[0].at, "an input that is the engine's text, or its input_ids, was expected");
    if (text && ids && !(text->optional && ids->optional && (!query || query->optional))) return wrong(b, ids->at, "'%s' and '%s' are two forms of one input: optional: true was expected of both", text->name, ids->name);
    return ROSE_OK;
}

/* --- the map ------------------------------------------------------------------------------------------------------------------------------ */

/* The configuration's, or where it lists none the engine's own. */
static bool fill(const struct building *b, bool input, struct kserve_map *map)
{
    const struct model_config_tensor *list = input ? b->config->inputs : b->config->outputs;
    const struct targets *all = input ? &b->inputs : &b->outputs;
    int count = input ? b->config->inputs_count : b->config->outputs_count, own = 0;
    struct kserve_io *to = ARENA_ARRAY(&map->arena, struct kserve_io, KSERVE_TENSORS);
    if (!to) return false;
    if (!count) own = input ? kserve_io_inputs(b->model, false, to, KSERVE_TENSORS) : kserve_io_outputs(b->model, false, to, KSERVE_TENSORS);
    for (int i = 0; i < own; i++) {
        to[i].to = to[i].name;
        if (b->batch || kserve_kind(b->model) == KSERVE_TEXT) continue;
        memmove(to[i].dims + 1, to[i].dims, 2 * sizeof to[i].dims[0]);
        to[i].dims[0] = -1;
        to[i].rank++;
    }
    for (int i = 0; i < count; i++) {
        int target = (input ? b->input_of : b->output_of)[i];
        to[i] = (struct kserve_io){.name = arena_strndup(&map->arena, list[i].name, strlen(list[i].name)), .type = list[i].type, .rank = ROSE_MIN(list[i].rank, 3), .optional = list[i].optional, .labels = list[i].labels, .labels_count = list[i].labels_count,
                                   .to = target == IGNORED ? nothing : target == LEFT_OUT ? unknown : arena_strndup(&map->arena, all->io[target].name, strlen(all->io[target].name))};
        if (!to[i].name || !to[i].to) return false;
        memcpy(to[i].dims, list[i].dims, (size_t)to[i].rank * sizeof *to[i].dims);
    }
    *(input ? &map->inputs : &map->outputs) = to;
    *(input ? &map->inputs_count : &map->outputs_count) = count ? count : own;
    return true;
}

static enum rose_status match(struct building *b)
{
    ROSE_TRY(by_name(b, true));
    ROSE_TRY(by_name(b, false));
    ROSE_TRY(rest_of_inputs(b));
    ROSE_TRY(rest_of_outputs(b));
    for (int i = 0; i < b->config->inputs_count; i++) ROSE_TRY(agree(b, true, &b->config->inputs[i], b->input_of[i]));
    for (int i = 0; i < b->config->outputs_count; i++) ROSE_TRY(agree(b, false, &b->config->outputs[i], b->output_of[i]));
    return complete(b);
}

enum rose_status kserve_map_build(const struct model *m, const struct model_config *config, struct kserve_map **out, struct rose_error *err)
{
    struct building *b;
    *out = NULL;
    if (!config || (!config->inputs_count && !config->outputs_count)) return ROSE_OK;
    struct kserve_map *map = calloc(1, sizeof *map);
    if (!map || !(b = calloc(1, sizeof *b))) {
        free(map);
        return status_set(err, ROSE_NO_MEMORY, "out of memory");
    }
    arena_init(&map->arena, 0);
    *b = (struct building){.model = m, .config = config, .batch = kserve_kind(m) == KSERVE_TEXT ? config->max_batch : ROSE_MIN(config->max_batch, KSERVE_BATCH), .err = err};
    b->inputs.count = kserve_io_inputs(m, true, b->inputs.io, KSERVE_TENSORS);
    b->outputs.count = kserve_io_outputs(m, true, b->outputs.io, KSERVE_TENSORS);
    map->batch = b->batch;
    enum rose_status s = match(b);
    if (s == ROSE_OK && !(fill(b, true, map) && fill(b, false, map))) s = status_set(err, ROSE_NO_MEMORY, "out of memory");
    free(b);
    if (s == ROSE_OK) *out = map;
    else kserve_map_free(map);
    return model_config_place(s, err);
}

void kserve_map_free(struct kserve_map *map)
{
    if (!map) return;
    arena_free(&map->arena);
    free(map);
}

void kserve_map_describe(const struct kserve_map *map, struct strbuf *b)
{
    for (int side = 0; map && side < 2; side++) {
        const struct kserve_io *io = side ? map->outputs : map->inputs;
        for (int i = 0; i < (side ? map->outputs_count : map->inputs_count); i++)
            if (strcmp(io[i].name, io[i].to)) strbuf_printf(b, "%s%s -> %s", b->n ? ", " : "", io[i].name, io[i].to);
    }
}

/* --- request by request ------------------------------------------------------------------------------------------------------------------- */

int kserve_map_shape(const struct model *m, const struct kserve_io *io, int64_t to[4])
{
    int batch = kserve_batch(m) > 0;
    to[0] = -1;
    for (int i = 0; i < io->rank; i++) to[i + batch] = io->dims[i];
    return io->rank + batch;
}

static const struct kserve_io *of_client(const struct kserve_map *map, bool input, struct str name)
{
    const struct kserve_io *io = input ? map->inputs : map->outputs;
    for (int i = 0; i < (input ? map->inputs_count : map->outputs_count); i++)
        if (str_is(name, io[i].name)) return &io[i];
    return NULL;
}

static bool one_text(const struct model *m, const char *name, struct api_error *e)
{
    return api_error_field(e, name, "tensor '%s' of model '%s' has one text a request", name, m->name);
}

bool kserve_map_request(struct kserve_call *c, struct api_error *e)
{
    struct kserve_request *q = &c->request;
    const struct kserve_map *map = c->model->map;
    int kept = 0;
    if (!map) return true;
    for (int i = 0; i < q->inputs_count; i++) {
        struct kserve_tensor t = q->inputs[i];
        const struct kserve_io *io = of_client(map, true, t.name);
        if (!io || io->to == nothing) continue;
        if (io->to == unknown) return api_error_field(e, io->name, "input '%s' means nothing to model '%s' here: leave it out, or let parameter rose.input.%s of its config.pbtxt be \"none\"", io->name, c->model->name, io->name);
        bool tokens = !strcmp(io->to, "input_ids") || !strcmp(io->to, "attention_mask") || !strcmp(io->to, "token_type_ids"), list = !strcmp(io->to, "stop_words");
        t.name = str_of(io->to);
        if (tokens && t.rank == 1) t.rank = 2, t.shape[1] = t.shape[0], t.shape[0] = 1;
        if (!tokens && !list && t.rank == 2 && t.shape[1] != 1) return one_text(c->model, io->name, e);
        if (!tokens && !list && kserve_kind(c->model) == KSERVE_TEXT && t.elements != 1) return one_text(c->model, io->name, e);
        if (!tokens) t.rank = 1, t.shape[0] = (int64_t)t.elements;
        q->inputs[kept++] = t;
    }
    q->inputs_count = kept;
    if (!q->wanted_count) {
        if (!(q->wanted = ARENA_ARRAY(&c->http->arena, struct kserve_wanted, (size_t)map->outputs_count + 1))) return kserve_too_large(e);
        for (int i = 0; i < map->outputs_count; i++)
            if (map->outputs[i].to != nothing) q->wanted[q->wanted_count++] = (struct kserve_wanted){.name = str_of(map->outputs[i].to), .binary = q->binary, .type = -1};
        return true;
    }
    for (int i = 0; i < q->wanted_count; i++) {
        const struct kserve_io *io = of_client(map, false, q->wanted[i].name);
        if (io && io->to == nothing) return api_error_field(e, io->name, "output '%s' of model '%s' is not given here", io->name, c->model->name);
        if (io) q->wanted[i].name = str_of(io->to);
    }
    return true;
}

bool kserve_map_output(const struct model *m, struct kserve_tensor *t, int *type, struct api_error *e)
{
    const struct kserve_io *io = NULL;
    int64_t shape[4];
    for (int i = 0; m->map && i < m->map->outputs_count; i++)
        if (str_is(t->name, m->map->outputs[i].to)) io = &m->map->outputs[i];
    if (!io) return true;
    int rank = kserve_map_shape(m, io, shape);
    t->name = str_of(io->name);
    if (*type < 0 && is_float(io->type)) *type = (int)io->type;
    if (rank == t->rank - 1 && t->shape[t->rank - 1] == 1 && rank == 1) {
        t->rank = 1; /* [n,1]: a number each */
    } else if (rank == t->rank - 1) {
        if (t->shape[0] != 1) return one_text(m, io->name, e);
        memmove(t->shape, t->shape + 1, (size_t)rank * sizeof *t->shape);
        t->rank = rank;
    } else if (rank == t->rank + 1) { /* texts: [n] as [1,n] */
        t->shape[1] = t->shape[0];
        t->shape[0] = 1;
        t->rank = rank;
    }
    return true;
}

const char *const *kserve_map_labels(const struct model *m, struct str name, int *count)
{
    for (int i = 0; m->map && i < m->map->outputs_count; i++) {
        const struct kserve_io *io = &m->map->outputs[i];
        if (str_is(name, io->to) && io->labels) return *count = io->labels_count, io->labels;
    }
    *count = m->info.labels_count;
    return m->info.labels;
}

const char *kserve_map_name(const struct model *m, const char *name)
{
    for (int i = 0; m->map && i < m->map->outputs_count; i++)
        if (!strcmp(m->map->outputs[i].to, name)) return m->map->outputs[i].name;
    return name;
}

struct str kserve_map_input(const struct model *m, struct str name)
{
    const struct kserve_io *io = m->map ? of_client(m->map, true, name) : NULL;
    if (io && io->to == nothing) return (struct str){NULL, 0};
    return io && io->to != unknown ? str_of(io->to) : name;
}

int kserve_map_priority(const struct model *m, int priority)
{
    const struct model_config *c = m->config;
    if (!c || !c->priority_levels) return priority;
    return priority == 0 || priority > c->priority_levels ? (int)c->default_priority : priority;
}
