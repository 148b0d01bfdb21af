#define _GNU_SOURCE
#include "server/model_config.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/utf8.h"

/* --- which fields a message has ----------------------------------------------------------------------------------------------------- */

/* What a field holds. Enums that are not looked at are names or numbers. */
enum holds { A_MESSAGE, A_TEXT, AN_INTEGER, A_BOOL, AN_ENUM };
enum use { READ, UNUSED, REFUSED };
struct row {
    const char *name;
    enum holds holds;
    bool repeated;
    enum use use;
};

/* ModelConfig as of model_config.proto; what is UNUSED says where and how Triton runs a model. */
static const struct row config_rows[] = {
    {"name", A_TEXT, false, READ}, {"platform", A_TEXT, false, UNUSED}, {"backend", A_TEXT, false, UNUSED}, {"runtime", A_TEXT, false, UNUSED}, {"version_policy", A_MESSAGE, false, READ},
    {"max_batch_size", AN_INTEGER, false, READ}, {"input", A_MESSAGE, true, READ}, {"output", A_MESSAGE, true, READ}, {"batch_input", A_MESSAGE, true, UNUSED}, {"batch_output", A_MESSAGE, true, UNUSED},
    {"optimization", A_MESSAGE, false, UNUSED}, {"dynamic_batching", A_MESSAGE, false, READ}, {"sequence_batching", A_MESSAGE, false, REFUSED}, {"ensemble_scheduling", A_MESSAGE, false, UNUSED},
    {"instance_group", A_MESSAGE, true, UNUSED}, {"default_model_filename", A_TEXT, false, UNUSED}, {"cc_model_filenames", A_MESSAGE, true, UNUSED}, {"metric_tags", A_MESSAGE, true, UNUSED},
    {"parameters", A_MESSAGE, true, READ}, {"model_warmup", A_MESSAGE, true, UNUSED}, {"model_operations", A_MESSAGE, false, UNUSED}, {"model_transaction_policy", A_MESSAGE, false, UNUSED},
    {"model_repository_agents", A_MESSAGE, false, UNUSED}, {"response_cache", A_MESSAGE, false, UNUSED}, {"model_metrics", A_MESSAGE, false, UNUSED}};
static const struct row input_rows[] = {{"name", A_TEXT, false, READ}, {"data_type", AN_ENUM, false, READ}, {"format", AN_ENUM, false, READ}, {"dims", AN_INTEGER, true, READ}, {"reshape", A_MESSAGE, false, READ},
                                        {"is_shape_tensor", A_BOOL, false, READ}, {"allow_ragged_batch", A_BOOL, false, READ}, {"optional", A_BOOL, false, READ}, {"is_non_linear_format_io", A_BOOL, false, READ}};
static const struct row output_rows[] = {{"name", A_TEXT, false, READ}, {"data_type", AN_ENUM, false, READ}, {"dims", AN_INTEGER, true, READ}, {"reshape", A_MESSAGE, false, READ},
                                         {"label_filename", A_TEXT, false, READ}, {"is_shape_tensor", A_BOOL, false, READ}, {"is_non_linear_format_io", A_BOOL, false, READ}};
static const struct row policy_rows[] = {{"latest", A_MESSAGE, false, READ}, {"all", A_MESSAGE, false, READ}, {"specific", A_MESSAGE, false, READ}};
static const struct row latest_rows[] = {{"num_versions", AN_INTEGER, false, READ}};
static const struct row specific_rows[] = {{"versions", AN_INTEGER, true, READ}};
static const struct row batching_rows[] = {{"preferred_batch_size", AN_INTEGER, true, UNUSED}, {"max_queue_delay_microseconds", AN_INTEGER, false, UNUSED}, {"preserve_ordering", A_BOOL, false, UNUSED},
                                           {"priority_levels", AN_INTEGER, false, READ}, {"default_priority_level", AN_INTEGER, false, READ}, {"default_queue_policy", A_MESSAGE, false, UNUSED},
                                           {"priority_queue_policy", A_MESSAGE, true, UNUSED}};
static const struct row entry_rows[] = {{"key", A_TEXT, false, READ}, {"value", A_MESSAGE, false, READ}};
static const struct row parameter_rows[] = {{"string_value", A_TEXT, false, READ}};

static void add_unused(struct model_config *c, const char *before, const char *name)
{
    char whole[80];
    snprintf(whole, sizeof whole, "%s%s", before, name);
    if (c->unused.n && str_find(strbuf_str(&c->unused), str_of(whole), 0) >= 0) return; /* of several one is told */
    strbuf_printf(&c->unused, "%s%s", c->unused.n ? ", " : "", whole);
}

static bool holds(const struct pbtxt_field *f, enum holds what)
{
    int64_t n;
    bool b;
    switch (what) {
    case A_MESSAGE: return f->kind == PBTXT_MESSAGE;
    case A_TEXT: return f->kind == PBTXT_STRING;
    case AN_INTEGER: return pbtxt_integer(f, &n);
    case A_BOOL: return pbtxt_bool(f, &b);
    default: return f->kind == PBTXT_NAME || pbtxt_integer(f, &n);
    }
}

static enum rose_status name_error(const struct pbtxt_field *f, const char *file, const char *message, const char *what, struct rose_error *err)
{
    return status_at_line(err, ROSE_FORMAT, file, f->line, f->column, "%s: %s \"%.*s\"", message, what, (int)ROSE_MIN(f->name.n, 60), f->name.p);
}

/* Every field is one of the message's, of its kind, and there once where it may be there once. before: "input." in what is told of unused ones. */
static enum rose_status check(struct model_config *c, const struct pbtxt_field *fields, const struct row *rows, size_t count, const char *message, const char *before, struct rose_error *err)
{
    static const char *const whats[] = {"a message { ... }", "a text in quotes", "a whole number", "true or false", "a name"};
    bool there[32] = {false};
    for (const struct pbtxt_field *f = fields; f; f = f->next) {
        size_t i = 0;
        while (i < count && !str_is(f->name, rows[i].name)) i++;
        if (i == count) return name_error(f, c->file, message, "there is no field", err);
        if (!holds(f, rows[i].holds)) return pbtxt_wrong(f, c->file, err, ROSE_FORMAT, "%s: %s was expected for %s", message, whats[rows[i].holds], rows[i].name);
        if (!rows[i].repeated && there[i]) return name_error(f, c->file, message, "it may have only one", err);
        if (!rows[i].repeated && f->listed) return pbtxt_wrong(f, c->file, err, ROSE_FORMAT, "%s: %s is no list", message, rows[i].name);
        there[i] = true;
        if (rows[i].use == REFUSED)
            return status_at_line(err, ROSE_UNSUPPORTED, c->file, f->line, f->column, "%s: %s is not supported: no model here keeps a state between requests", message, rows[i].name);
        if (rows[i].use == UNUSED) add_unused(c, before, rows[i].name);
    }
    return ROSE_OK;
}
#define CHECK(c, f, rows, message, before, err) check(c, f, rows, ROSE_COUNT(rows), message, before, err)

/* --- its parts ------------------------------------------------------------------------------------------------------------------------ */

static enum rose_status read_policy(struct model_config *c, const struct pbtxt_field *f, struct rose_error *err)
{
    struct version_policy *p = &c->policy;
    static const char message[] = "version_policy";
    ROSE_TRY(CHECK(c, f->fields, policy_rows, message, "", err));
    const struct pbtxt_field *one = f->fields;
    if (!one || one->next) return pbtxt_wrong(one ? one->next : f, c->file, err, ROSE_FORMAT, "version_policy: one of latest, all, specific was expected");
    int64_t n = 1;
    c->has_policy = true;
    if (str_is(one->name, "all")) {
        p->kind = VERSIONS_ALL;
        return check(c, one->fields, NULL, 0, "version_policy.all", "", err);
    }
    if (str_is(one->name, "latest")) {
        ROSE_TRY(CHECK(c, one->fields, latest_rows, "version_policy.latest", "", err));
        const struct pbtxt_field *count = pbtxt_get(one->fields, "num_versions");
        p->kind = VERSIONS_LATEST;
        if (count && (!pbtxt_integer(count, &n) || n < 1 || n > INT32_MAX)) return pbtxt_wrong(count, c->file, err, ROSE_FORMAT, "version_policy: num_versions must be a number from 1 on");
        p->count = count ? (int)n : 0;
        return ROSE_OK;
    }
    ROSE_TRY(CHECK(c, one->fields, specific_rows, "version_policy.specific", "", err));
    p->kind = VERSIONS_SPECIFIC;
    for (const struct pbtxt_field *v = one->fields; v; v = v->next) {
        if (!pbtxt_integer(v, &n) || n < 1 || n > INT32_MAX) return pbtxt_wrong(v, c->file, err, ROSE_FORMAT, "version_policy: a version must be a number from 1 on");
        if (p->count == VERSIONS_MOST) return pbtxt_wrong(v, c->file, err, ROSE_LIMIT, "version_policy: at most %d versions are taken", VERSIONS_MOST);
        p->list[p->count++] = (int32_t)n;
    }
    return ROSE_OK;
}

static enum rose_status read_batching(struct model_config *c, const struct pbtxt_field *f, struct rose_error *err)
{
    ROSE_TRY(CHECK(c, f->fields, batching_rows, "dynamic_batching", "dynamic_batching.", err));
    const struct pbtxt_field *levels = pbtxt_get(f->fields, "priority_levels"), *standard = pbtxt_get(f->fields, "default_priority_level");
    int64_t n;
    for (const struct pbtxt_field *p = f->fields; p; p = p->next) {
        if (!str_is(p->name, "preferred_batch_size") || !pbtxt_integer(p, &n)) continue;
        if (n < 1 || (c->has_batch && n > c->max_batch)) return pbtxt_wrong(p, c->file, err, ROSE_FORMAT, "dynamic_batching: preferred_batch_size must lie between 1 and max_batch_size");
    }
    if (levels && (!pbtxt_integer(levels, &c->priority_levels) || c->priority_levels < 0 || c->priority_levels > INT32_MAX))
        return pbtxt_wrong(levels, c->file, err, ROSE_FORMAT, "dynamic_batching: priority_levels must be a number from 0 on");
    if (standard) pbtxt_integer(standard, &c->default_priority);
    if (c->priority_levels && (c->default_priority < 1 || c->default_priority > c->priority_levels))
        return pbtxt_wrong(standard ? standard : levels, c->file, err, ROSE_FORMAT, "dynamic_batching: default_priority_level must lie between 1 and priority_levels, %lld", (long long)c->priority_levels);
    return ROSE_OK;
}

/* TYPE_FP32, or its number in DataType. */
static int type_of(const struct pbtxt_field *f)
{
    static const enum kserve_type numbers[] = {KSERVE_BOOL, KSERVE_UINT8, KSERVE_UINT16, KSERVE_UINT32, KSERVE_UINT64, KSERVE_INT8, KSERVE_INT16, KSERVE_INT32, KSERVE_INT64, KSERVE_FP16, KSERVE_FP32,
                                               KSERVE_FP64, KSERVE_BYTES, KSERVE_BF16};
    int64_t n;
    if (pbtxt_integer(f, &n)) return n >= 1 && n <= (int64_t)ROSE_COUNT(numbers) ? (int)numbers[n - 1] : -1;
    struct str v = f->value;
    if (!str_starts(v, STR("TYPE_")) || str_is(v, "TYPE_BYTES")) return -1;
    if (str_is(v, "TYPE_STRING")) return KSERVE_BYTES;
    return kserve_type_find((struct str){v.p + 5, v.n - 5});
}

static bool is_label(struct str s)
{
    for (size_t i = 0; i < s.n; i++)
        if ((unsigned char)s.p[i] < 0x20 || s.p[i] == 0x7F) return false;
    return s.n && s.n <= MODEL_NAME_MAX && utf8_valid(s);
}

static bool flag(const struct pbtxt_field *fields, const char *name)
{
    const struct pbtxt_field *f = pbtxt_get(fields, name);
    bool on = false;
    return f && pbtxt_bool(f, &on) && on;
}

enum { LABELS_MOST = 65536 };

/* A label a line, in a file of the model's directory. */
static enum rose_status read_labels(struct model_config *c, const struct pbtxt_field *f, struct model_config_tensor *t, struct rose_error *err)
{
    const char *slash = strrchr(c->file, '/');
    struct rose_error why = {0};
    struct str text, name = f->value;
    if (!name.n) return ROSE_OK;
    if (!is_label(name) || memchr(name.p, '/', name.n)) return pbtxt_wrong(f, c->file, err, ROSE_FORMAT, "output '%s': label_filename was expected to be a file beside config.pbtxt", t->name);
    const char *path = arena_printf(&c->arena, "%.*s%.*s", slash ? (int)(slash - c->file + 1) : 0, c->file, STR_ARG(name));
    if (!path) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    if (file_read(&c->arena, path, PBTXT_BYTES, &text, &why) != ROSE_OK) return pbtxt_wrong(f, c->file, err, ROSE_NOT_FOUND, "output '%s': its labels cannot be read: %.400s", t->name, why.message);
    size_t lines = 1;
    for (size_t i = 0; i < text.n; i++) lines += text.p[i] == '\n';
    const char **list = ARENA_ARRAY(&c->arena, const char *, lines);
    if (!list) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    for (const char *p = text.p, *end = text.p + text.n; p < end;) {
        const char *stop = memchr(p, '\n', (size_t)(end - p));
        size_t n = (size_t)((stop ? stop : end) - p);
        if (t->labels_count == LABELS_MOST) return pbtxt_wrong(f, c->file, err, ROSE_LIMIT, "output '%s': at most %d labels are taken", t->name, LABELS_MOST);
        struct str label = {p, n && p[n - 1] == '\r' ? n - 1 : n};
        if (label.n && !is_label(label)) return pbtxt_wrong(f, c->file, err, ROSE_FORMAT, "output '%s': line %d of its labels is longer than %d bytes or no UTF-8 text", t->name, t->labels_count + 1, MODEL_NAME_MAX);
        if (!(list[t->labels_count++] = arena_strndup(&c->arena, label.p, label.n))) return status_set(err, ROSE_NO_MEMORY, "out of memory");
        p += n + 1;
    }
    t->labels = list;
    return ROSE_OK;
}

static enum rose_status read_tensor(struct model_config *c, const struct pbtxt_field *f, bool input, struct model_config_tensor *t, struct rose_error *err)
{
    const char *what = input ? "input" : "output";
    ROSE_TRY(input ? CHECK(c, f->fields, input_rows, what, "input.", err) : CHECK(c, f->fields, output_rows, what, "output.", err));
    const struct pbtxt_field *name = pbtxt_get(f->fields, "name"), *type = pbtxt_get(f->fields, "data_type"), *shape = pbtxt_get(f->fields, "is_shape_tensor");
    if (!name || !is_label(name->value)) return pbtxt_wrong(name ? name : f, c->file, err, ROSE_FORMAT, "%s: a name of 1 to %d bytes was expected", what, MODEL_NAME_MAX);
    if (!(t->name = arena_strndup(&c->arena, name->value.p, name->value.n))) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    int found = type ? type_of(type) : -1;
    if (found < 0)
        return pbtxt_wrong(type ? type : f, c->file, err, ROSE_FORMAT, "%s '%s': data_type was expected to be TYPE_BOOL, TYPE_UINT8 to 64, TYPE_INT8 to 64, TYPE_FP16, TYPE_FP32, TYPE_FP64, TYPE_BF16 or TYPE_STRING%s%.*s",
                           what, t->name, type ? ", not " : "", type ? (int)ROSE_MIN(type->value.n, 40) : 0, type ? type->value.p : "");
    t->type = (enum kserve_type)found;
    t->at = name;
    t->at_type = type;
    t->optional = flag(f->fields, "optional");
    if (flag(f->fields, "is_shape_tensor")) return pbtxt_wrong(shape, c->file, err, ROSE_UNSUPPORTED, "%s '%s': shape tensors are TensorRT's alone", what, t->name);
    for (const struct pbtxt_field *d = f->fields; d; d = d->next) {
        int64_t n = 0;
        if (!str_is(d->name, "dims")) continue;
        if (!t->at_dims) t->at_dims = d;
        if (!pbtxt_integer(d, &n) || (n < 1 && n != -1)) return pbtxt_wrong(d, c->file, err, ROSE_FORMAT, "%s '%s': a dimension was expected to be a number from 1 on, or -1 for any", what, t->name);
        if (t->rank == KSERVE_RANK) return pbtxt_wrong(d, c->file, err, ROSE_LIMIT, "%s '%s': at most %d dimensions are taken", what, t->name, KSERVE_RANK);
        t->dims[t->rank++] = n;
    }
    const struct pbtxt_field *labels = pbtxt_get(f->fields, "label_filename");
    if (labels) ROSE_TRY(read_labels(c, labels, t, err));
    return t->rank ? ROSE_OK : pbtxt_wrong(f, c->file, err, ROSE_FORMAT, "%s '%s': dims were expected", what, t->name);
}

static enum rose_status read_tensors(struct model_config *c, const struct pbtxt_field *fields, bool input, struct rose_error *err)
{
    const char *what = input ? "input" : "output";
    int n = 0;
    for (const struct pbtxt_field *f = fields; f; f = f->next) n += str_is(f->name, what);
    struct model_config_tensor *list = ARENA_ARRAY(&c->arena, struct model_config_tensor, (size_t)n + 1);
    if (!list) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    *(input ? &c->inputs : &c->outputs) = list;
    int *count = input ? &c->inputs_count : &c->outputs_count;
    for (const struct pbtxt_field *f = fields; f; f = f->next) {
        if (!str_is(f->name, what)) continue;
        if (*count == KSERVE_TENSORS) return pbtxt_wrong(f, c->file, err, ROSE_LIMIT, "at most %d %ss are taken", KSERVE_TENSORS, what);
        struct model_config_tensor *t = &list[*count];
        ROSE_TRY(read_tensor(c, f, input, t, err));
        for (int i = 0; i < *count; i++)
            if (!strcmp(list[i].name, t->name)) return pbtxt_wrong(t->at, c->file, err, ROSE_FORMAT, "%s '%s' is there twice", what, t->name);
        ++*count;
    }
    return ROSE_OK;
}

/* rose.input.NAME and rose.output.NAME; other parameters are a backend's. */
static enum rose_status read_parameter(struct model_config *c, const struct pbtxt_field *f, struct rose_error *err)
{
    ROSE_TRY(CHECK(c, f->fields, entry_rows, "parameters", "", err));
    const struct pbtxt_field *key = pbtxt_get(f->fields, "key"), *value = pbtxt_get(f->fields, "value");
    if (value) ROSE_TRY(CHECK(c, value->fields, parameter_rows, "parameters.value", "", err));
    const struct pbtxt_field *text = value ? pbtxt_get(value->fields, "string_value") : NULL;
    struct str k = key ? key->value : (struct str){"", 0};
    if (!str_starts(k, STR("rose."))) {
        add_unused(c, "", "parameters");
        return ROSE_OK;
    }
    bool input = str_starts(k, STR("rose.input.")), output = str_starts(k, STR("rose.output."));
    if (!input && !output) return pbtxt_wrong(key, c->file, err, ROSE_FORMAT, "parameters: rose.input.NAME or rose.output.NAME was expected, not %.*s", (int)ROSE_MIN(k.n, 60), k.p);
    struct str name = {k.p + (input ? 11 : 12), k.n - (input ? 11 : 12)};
    struct model_config_tensor *list = input ? c->inputs : c->outputs;
    int count = input ? c->inputs_count : c->outputs_count, i = 0;
    while (i < count && !str_is(name, list[i].name)) i++;
    if (i == count) return pbtxt_wrong(key, c->file, err, ROSE_FORMAT, "parameters: there is no %s '%.*s' that this could be about", input ? "input" : "output", (int)ROSE_MIN(name.n, 60), name.p);
    if (list[i].to) return pbtxt_wrong(key, c->file, err, ROSE_FORMAT, "parameters: %.*s is there twice", (int)ROSE_MIN(k.n, 80), k.p);
    if (!text || !is_label(text->value)) return pbtxt_wrong(text ? text : f, c->file, err, ROSE_FORMAT, "parameters: value { string_value: \"...\" } with the name of a tensor was expected");
    list[i].to = arena_strndup(&c->arena, text->value.p, text->value.n);
    list[i].at_to = text;
    return list[i].to ? ROSE_OK : status_set(err, ROSE_NO_MEMORY, "out of memory");
}

static enum rose_status read_all(struct model_config *c, const struct pbtxt_field *fields, const char *name, struct rose_error *err)
{
    ROSE_TRY(CHECK(c, fields, config_rows, "config.pbtxt", "", err));
    const struct pbtxt_field *own = pbtxt_get(fields, "name"), *batch = pbtxt_get(fields, "max_batch_size"), *policy = pbtxt_get(fields, "version_policy"),
                             *batching = pbtxt_get(fields, "dynamic_batching");
    int64_t n = 0;
    if (own && own->value.n && !str_is(own->value, name))
        return pbtxt_wrong(own, c->file, err, ROSE_FORMAT, "name: \"%.100s\", the directory's name, was expected, not \"%.*s\"", name, (int)ROSE_MIN(own->value.n, 100), own->value.p);
    if (batch && (!pbtxt_integer(batch, &n) || n < 0 || n > INT32_MAX)) return pbtxt_wrong(batch, c->file, err, ROSE_FORMAT, "max_batch_size must be a number from 0 on");
    c->has_batch = batch != NULL;
    c->max_batch = (int)n;
    if (policy) ROSE_TRY(read_policy(c, policy, err));
    if (batching) ROSE_TRY(read_batching(c, batching, err));
    ROSE_TRY(read_tensors(c, fields, true, err));
    ROSE_TRY(read_tensors(c, fields, false, err));
    for (const struct pbtxt_field *f = fields; f; f = f->next)
        if (str_is(f->name, "parameters")) ROSE_TRY(read_parameter(c, f, err));
    return ROSE_OK;
}

/* --- files ------------------------------------------------------------------------------------------------------------------------------ */

void model_config_free(struct model_config *c)
{
    if (!c) return;
    strbuf_free(&c->unused);
    arena_free(&c->arena);
    free(c);
}

enum rose_status model_config_place(enum rose_status s, struct rose_error *err)
{
    return s != ROSE_OK && err && err->line > 0 ? status_wrap(err, s, "%s:%d:%d", err->file, err->line, err->column) : s;
}

void model_config_describe(const struct model_config *c, const struct kserve_map *map, struct strbuf *b)
{
    if (!c) return;
    kserve_map_describe(map, b);
    if (c->unused.n) strbuf_printf(b, "%sof no meaning here: %s", b->n ? "; " : "", c->unused.p);
}

enum rose_status model_config_read(struct str text, const char *file, const char *name, struct model_config **out, struct rose_error *err)
{
    struct pbtxt_field *fields;
    struct model_config *c = calloc(1, sizeof *c);
    *out = NULL;
    if (!c) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    arena_init(&c->arena, (size_t)32 << 20);
    c->unused.limit = 2000;
    c->file = arena_strndup(&c->arena, file, strlen(file));
    char *copy = text.n <= PBTXT_BYTES ? arena_strndup(&c->arena, text.n ? text.p : "", text.n) : NULL; /* fields lie in it */
    enum rose_status s = ROSE_OK;
    if (!c->file || (!copy && text.n <= PBTXT_BYTES)) s = status_set(err, ROSE_NO_MEMORY, "out of memory");
    if (s == ROSE_OK) s = pbtxt_read(copy ? (struct str){copy, text.n} : text, c->file, &c->arena, &fields, err);
    if (s == ROSE_OK) s = read_all(c, fields, name, err);
    if (s == ROSE_OK) *out = c;
    else model_config_free(c);
    return model_config_place(s, err);
}

enum rose_status model_config_open(const char *dir, const char *name, struct model_config **out, struct rose_error *err)
{
    struct arena a;
    struct str text;
    arena_init(&a, (size_t)4 << 20);
    *out = NULL;
    const char *folder = file_join(&a, dir, name), *file = folder ? file_join(&a, folder, "config.pbtxt") : NULL;
    enum rose_status s = file ? ROSE_OK : status_set(err, ROSE_NO_MEMORY, "out of memory");
    struct stat entry;
    if (s == ROSE_OK && !file_exists(file) && !lstat(file, &entry)) s = status_at(err, ROSE_INVALID, file, -1, "%s is a link that leads to no file: mend it, or take it away", file);
    else if (s == ROSE_OK && file_exists(file)) {
        s = file_read(&a, file, PBTXT_BYTES, &text, err);
        if (s == ROSE_OK) s = model_config_read(text, file, name, out, err);
    }
    arena_free(&a);
    return s;
}
