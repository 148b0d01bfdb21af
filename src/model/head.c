#include "model/head.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "model/arch.h"
#include "model/config_util.h"
#include "model/head_gguf.h"
#include "weights/weights.h"

enum { CONFIG_LIMIT = 4 << 20, MODULE_LIMIT = 64 << 10, MAX_MODULES = 32 };

struct reader {
    struct arena *arena;
    struct weights *weights;
    struct model_config *config;
    struct model_head *head;
    const char *dir;                     /* NULL: no directory with files */
    const struct json *transformers;     /* config.json */
    const struct json *modules;          /* modules.json */
    const struct json *sentence;         /* config_sentence_transformers.json */
    struct rose_error *err;
};

static enum rose_status no_memory(struct reader *r) { return status_set(r->err, ROSE_NO_MEMORY, "out of memory"); }

static const char *text_of(struct reader *r, struct str s) { return arena_strndup(r->arena, s.p, s.n); }

const char *head_pooling_name(enum op_pooling pooling)
{
    static const char *const names[] = {"cls", "mean", "last", "weighted_mean", "max", "mean_sqrt_len"};
    return (unsigned)pooling < ROSE_COUNT(names) ? names[pooling] : "unknown";
}

/* dir/folder/name; *out NULL when there is no such file. folder may be "". */
static enum rose_status read_json(struct reader *r, const char *folder, const char *name, size_t limit, const struct json **out)
{
    *out = NULL;
    if (!r->dir) return ROSE_OK;
    const char *dir = *folder ? file_join(r->arena, r->dir, folder) : r->dir, *path = dir ? file_join(r->arena, dir, name) : NULL;
    struct str text;
    if (!path) return no_memory(r);
    if (!file_exists(path)) return ROSE_OK;
    ROSE_TRY(file_read(r->arena, path, limit, &text, r->err));
    enum rose_status s = json_parse(r->arena, path, text, out, r->err);
    return s == ROSE_OK ? ROSE_OK : status_wrap(r->err, s, "%s", path);
}

/* --- modules of sentence-transformers ----------------------------------------------------------------------------------------- */

static struct str after_dot(struct str s)
{
    for (size_t i = s.n; i > 0; i--)
        if (s.p[i - 1] == '.') return (struct str){s.p + i, s.n - i};
    return s;
}

static enum rose_status pooling_named(struct reader *r, struct str name, const char *folder)
{
    static const struct { const char *name; enum op_pooling pooling; } known[] = {
        {"cls", OP_POOL_CLS}, {"mean", OP_POOL_MEAN}, {"max", OP_POOL_MAX}, {"lasttoken", OP_POOL_LAST}, {"weightedmean", OP_POOL_WEIGHTED_MEAN},
        {"mean_sqrt_len_tokens", OP_POOL_MEAN_SQRT}};
    for (size_t i = 0; i < ROSE_COUNT(known); i++)
        if (str_is(name, known[i].name)) return r->head->pooling = known[i].pooling, ROSE_OK;
    return status_set(r->err, ROSE_UNSUPPORTED, "%s/config.json: pooling \"" STR_FMT "\" is not known", folder, STR_ARG(name));
}

static enum rose_status read_pooling(struct reader *r, const char *folder, const struct json *j)
{
    static const char *const switches[][2] = {{"pooling_mode_cls_token", "cls"}, {"pooling_mode_max_tokens", "max"}, {"pooling_mode_mean_tokens", "mean"},
                                              {"pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens"}, {"pooling_mode_weightedmean_tokens", "weightedmean"},
                                              {"pooling_mode_lasttoken", "lasttoken"}};
    struct config_type known[ROSE_COUNT(switches) + 1] = {{"include_prompt", CONFIG_SWITCH, "true or false"}};
    for (size_t i = 0; i < ROSE_COUNT(switches); i++) known[i + 1] = (struct config_type){switches[i][0], CONFIG_SWITCH, "true or false"};
    char file[256];
    snprintf(file, sizeof file, "%s/config.json", folder);
    ROSE_TRY(config_types(file, j, known, ROSE_COUNT(known), r->err));
    struct str mode = STR("mean");
    const struct json *named = json_get(j, "pooling_mode");
    int on = 0;
    if (json_is(named, JSON_ARRAY)) on = (int)named->count, named = named->count ? json_at(named, 0) : NULL;
    if (json_is(named, JSON_STRING)) mode = named->string;
    else if (named && !json_is(named, JSON_NULL)) return status_set(r->err, ROSE_FORMAT, "%s/config.json: \"pooling_mode\" must be a name", folder);
    else
        for (size_t i = 0; i < ROSE_COUNT(switches); i++)
            if (json_bool(json_get(j, switches[i][0]), false)) mode = str_of(switches[i][1]), on++;
    if (on > 1) return status_set(r->err, ROSE_UNSUPPORTED, "%s/config.json: several poolings side by side are not supported", folder);
    r->head->skip_prompt = !json_bool(json_get(j, "include_prompt"), true);
    return pooling_named(r, mode, folder);
}

static enum rose_status activation_named(struct reader *r, struct str name, const char *where, struct head_dense *d)
{
    static const struct { const char *name; enum op_activation act; bool tanh; } known[] = {
        {"Identity", OP_ACT_NONE, false}, {"Tanh", OP_ACT_NONE, true}, {"ReLU", OP_ACT_RELU, false}, {"GELU", OP_ACT_GELU_ERF, false}, {"SiLU", OP_ACT_SILU, false}};
    struct str last = after_dot(name);
    for (size_t i = 0; i < ROSE_COUNT(known); i++)
        if (str_is(last, known[i].name)) return d->activation = known[i].act, d->tanh = known[i].tanh, ROSE_OK;
    return status_set(r->err, ROSE_UNSUPPORTED, "%s/config.json: the activation \"" STR_FMT "\" is not supported", where, STR_ARG(name));
}

static enum rose_status read_dense(struct reader *r, const char *folder, const struct json *j)
{
    static const struct config_type known[] = {{"module_input_name", CONFIG_TEXT, "a name"}, {"use_residual", CONFIG_SWITCH, "true or false"},
                                               {"activation_function", CONFIG_TEXT, "a name"}, {"bias", CONFIG_SWITCH, "true or false"}};
    struct model_head *h = r->head;
    char file[256];
    snprintf(file, sizeof file, "%s/config.json", folder);
    ROSE_TRY(config_types(file, j, known, ROSE_COUNT(known), r->err));
    if (h->dense_count == HEAD_MAX_DENSE) return status_set(r->err, ROSE_UNSUPPORTED, "modules.json: more than %d dense modules", HEAD_MAX_DENSE);
    if (!str_is(json_str(json_get(j, "module_input_name"), "sentence_embedding"), "sentence_embedding"))
        return status_set(r->err, ROSE_UNSUPPORTED, "%s: a dense module over token embeddings makes a multi-vector (ColBERT) model, which is not supported yet", folder);
    if (json_bool(json_get(j, "use_residual"), false)) return status_set(r->err, ROSE_UNSUPPORTED, "%s/config.json: \"use_residual\" is not supported", folder);
    struct head_dense *d = &h->dense[h->dense_count];
    int32_t before = h->dense_count ? h->dense[h->dense_count - 1].out : r->config->hidden;
    ROSE_TRY(config_int_of(file, j, "in_features", 1, 1 << 20, -1, &d->in, r->err));
    ROSE_TRY(config_int_of(file, j, "out_features", 1, 1 << 20, -1, &d->out, r->err));
    if (d->in != before) return status_set(r->err, ROSE_FORMAT, "%s/config.json: in_features is %d and what comes before has %d columns", folder, d->in, before);
    ROSE_TRY(activation_named(r, json_str(json_get(j, "activation_function"), "torch.nn.modules.activation.Tanh"), folder, d));
    h->dense_bias[h->dense_count] = json_bool(json_get(j, "bias"), true);
    const char *dir = file_join(r->arena, r->dir, folder);
    if (!dir || !(h->dense_path[h->dense_count] = file_join(r->arena, dir, "model.safetensors"))) return no_memory(r);
    h->dense_count++;
    return ROSE_OK;
}

static enum rose_status read_transformer(struct reader *r, const char *folder)
{
    const struct json *j = NULL;
    const char *file = NULL;
    static const char *const names[] = {"sentence_bert_config.json", "sentence_roberta_config.json", "sentence_distilbert_config.json", "sentence_camembert_config.json",
                                        "sentence_xlm-roberta_config.json", "sentence_mpnet_config.json"};
    if (*folder) return status_set(r->err, ROSE_UNSUPPORTED, "modules.json: the transformer in the folder \"%s\" is not beside modules.json, which is not supported", folder);
    for (size_t i = 0; !j && i < ROSE_COUNT(names); i++) ROSE_TRY(read_json(r, "", file = names[i], MODULE_LIMIT, &j));
    if (!j) return ROSE_OK;
    ROSE_TRY(config_types(file, j, &(struct config_type){"do_lower_case", CONFIG_SWITCH, "true or false"}, 1, r->err));
    return config_int_of(file, j, "max_seq_length", 0, INT32_MAX, 0, &r->head->longest, r->err); /* do_lower_case is the tokenizer's */
}

static bool plain_folder(struct str s)
{
    if (s.n > 200 || (s.n && (s.p[0] == '/' || s.p[0] == '.'))) return false;
    for (size_t i = 0; i < s.n; i++)
        if (!s.p[i] || s.p[i] == '/' || (uint8_t)s.p[i] < 32) return false;
    return true;
}

/* One module. *pooled: a pooling was there; *scored: it makes scores of logits. */
static enum rose_status read_module(struct reader *r, const struct json *m, bool *pooled, bool *scored)
{
    struct str type = after_dot(json_str(json_get(m, "type"), "")), path = json_str(json_get(m, "path"), "");
    if (!plain_folder(path)) return status_set(r->err, ROSE_FORMAT, "modules.json: \"" STR_FMT "\" is not the name of a folder beside it", STR_ARG(path));
    const char *folder = text_of(r, path);
    const struct json *j = NULL;
    if (!folder) return no_memory(r);
    if (str_is(type, "Transformer")) return read_transformer(r, folder);
    if (str_is(type, "Normalize")) return r->head->normalize = true, ROSE_OK;
    if (str_is(type, "Dropout")) return ROSE_OK;
    ROSE_TRY(read_json(r, folder, "config.json", MODULE_LIMIT, &j));
    if (str_is(type, "Pooling")) return *pooled = true, read_pooling(r, folder, j);
    if (str_is(type, "Dense") && *pooled) return read_dense(r, folder, j);
    if (str_is(type, "LogitScore")) {
        *scored = true;
        ROSE_TRY(config_int(j, "true_token_id", 0, r->config->vocabulary - 1, -1, &r->head->yes, r->err));
        return config_int(j, "false_token_id", -1, r->config->vocabulary - 1, -1, &r->head->no, r->err);
    }
    bool many = str_is(type, "Dense") || str_is(type, "MultiVectorMask") || str_is(type, "TokenPooling");
    return status_set(r->err, ROSE_UNSUPPORTED, "modules.json: %s \"" STR_FMT "\" is not supported%s", "the module", STR_ARG(type),
                      many ? " yet: it makes a multi-vector (ColBERT) model" : "");
}

/* --- prompts -------------------------------------------------------------------------------------------------------------------- */

static enum rose_status read_prompts(struct reader *r)
{
    const struct json *list = json_get(r->sentence, "prompts");
    static const struct config_type known[] = {{"prompts", CONFIG_OBJECT, "an object of prompts by their names"}, {"default_prompt_name", CONFIG_TEXT, "a name"},
                                               {"similarity_fn_name", CONFIG_TEXT, "a name"}};
    ROSE_TRY(config_types("config_sentence_transformers.json", r->sentence, known, ROSE_COUNT(known), r->err));
    struct model_head *h = r->head;
    struct str wanted = json_str(json_get(r->sentence, "default_prompt_name"), ""), similarity = json_str(json_get(r->sentence, "similarity_fn_name"), "");
    if (similarity.n && !(h->similarity = text_of(r, similarity))) return no_memory(r);
    bool usual = str_is(wanted, "query") || str_is(wanted, "document"); /* which every model has there, empty */
    if (!list || !list->count)
        return wanted.n && !usual ? status_set(r->err, ROSE_FORMAT, "config_sentence_transformers.json: default_prompt_name \"" STR_FMT "\" and no prompts", STR_ARG(wanted)) : ROSE_OK;
    if (list->count > HEAD_MAX_PROMPTS)
        return status_set(r->err, ROSE_LIMIT, "config_sentence_transformers.json: %u prompts; at most %d are taken", list->count, HEAD_MAX_PROMPTS);
    const char **names = ARENA_ARRAY(r->arena, const char *, list->count), **texts = ARENA_ARRAY(r->arena, const char *, list->count);
    if (!names || !texts) return no_memory(r);
    for (uint32_t i = 0; i < list->count; i++) {
        const struct json_member *m = json_member(list, i);
        if (!json_is_null(&m->value) && (!json_is(&m->value, JSON_STRING) || (m->value.string.n && memchr(m->value.string.p, 0, m->value.string.n))))
            return status_set(r->err, ROSE_FORMAT, "config_sentence_transformers.json: the prompt \"" STR_FMT "\" must be a text without NUL characters", STR_ARG(m->key));
        if (!(names[i] = text_of(r, json_member(list, i)->key)) || !(texts[i] = text_of(r, json_str(&json_member(list, i)->value, "")))) return no_memory(r);
        if (str_eq(json_member(list, i)->key, wanted)) h->default_prompt = names[i];
    }
    h->prompts_count = (int32_t)list->count;
    h->prompt = names;
    h->prompt_text = texts;
    if (wanted.n && !h->default_prompt)
        return status_set(r->err, ROSE_FORMAT, "config_sentence_transformers.json: default_prompt_name \"" STR_FMT "\" is none of its prompts", STR_ARG(wanted));
    return ROSE_OK;
}

/* --- classifiers ----------------------------------------------------------------------------------------------------------------- */

/* Of a config alone, which has no output layer to count: as transformers counts, two where neither is written. */
static int32_t labels_of_config(const struct reader *r)
{
    const struct json *names = json_get(r->transformers, "id2label");
    int64_t n = json_is(names, JSON_OBJECT) && names->count ? names->count : json_int(json_get(r->transformers, "num_labels"), 2);
    return n > 0 && n <= HEAD_MAX_LABELS ? (int32_t)n : 0;
}

static enum rose_status read_labels(struct reader *r)
{
    static const char *const outputs[] = {"classifier.out_proj.weight", "classifier.weight", "score.weight", "cls.output.weight"};
    struct model_head *h = r->head;
    const struct json *names = json_get(r->transformers, "id2label");
    bool gguf = weights_kind(r->weights) == WEIGHTS_GGUF;
    for (size_t i = 0; !h->labels && i < ROSE_COUNT(outputs); i++) {
        const struct weights_tensor *t = weights_find(r->weights, outputs[i]);
        if (t && t->ndim >= 1 && t->shape[0] > 0 && t->shape[0] <= HEAD_MAX_LABELS) h->labels = (int32_t)t->shape[0];
    }
    if (!h->labels && !gguf && !weights_count(r->weights)) h->labels = labels_of_config(r);
    if (!h->labels) return status_set(r->err, ROSE_FORMAT, "%s: a classifier without an output layer (classifier.weight, score.weight)", weights_path(r->weights));
    const char **label = ARENA_ARRAY(r->arena, const char *, (size_t)h->labels);
    if (!label) return no_memory(r);
    for (int32_t i = 0; i < h->labels; i++) {
        char key[32];
        snprintf(key, sizeof key, "%d", i);
        struct str name = names ? json_str(json_get(names, key), "") : gguf ? head_gguf_label(r->weights, i) : STR("");
        snprintf(key, sizeof key, "LABEL_%d", i);
        if (!(label[i] = name.n ? text_of(r, name) : arena_strndup(r->arena, key, strlen(key)))) return no_memory(r);
    }
    h->label = label;
    return ROSE_OK;
}

static enum rose_status read_activations(struct reader *r)
{
    struct model_head *h = r->head;
    struct str problem = json_str(json_get(r->transformers, "problem_type"), "");
    if (problem.n && !(h->problem_type = text_of(r, problem))) return no_memory(r);
    if (str_is(problem, "single_label_classification")) h->activation = HEAD_SOFTMAX;
    else if (str_is(problem, "multi_label_classification")) h->activation = HEAD_SIGMOID;
    else if (str_is(problem, "regression")) h->activation = HEAD_IDENTITY;
    else if (problem.n) return status_set(r->err, ROSE_UNSUPPORTED, "config.json: problem_type \"" STR_FMT "\" is not known", STR_ARG(problem));
    else h->activation = h->labels > 1 ? HEAD_SOFTMAX : HEAD_SIGMOID;
    /* What the card of a cross-encoder does with its logits. */
    struct str fn = json_str(json_path(r->transformers, "sentence_transformers.activation_fn"), "");
    if (!fn.n) fn = json_str(json_get(r->transformers, "sbert_ce_default_activation_function"), "");
    if (!fn.n) fn = json_str(json_get(r->sentence, "activation_fn"), "");
    struct str last = after_dot(fn);
    h->score_activation = h->labels <= 1 ? HEAD_SIGMOID : HEAD_IDENTITY;
    if (str_is(last, "Identity")) h->score_activation = HEAD_IDENTITY;
    else if (str_is(last, "Sigmoid")) h->score_activation = HEAD_SIGMOID;
    else if (str_is(last, "Softmax")) h->score_activation = HEAD_SOFTMAX;
    else if (fn.n) return status_set(r->err, ROSE_UNSUPPORTED, "config.json: the scores' activation \"" STR_FMT "\" is not supported", STR_ARG(fn));
    return ROSE_OK;
}

static enum rose_status read_classifier(struct reader *r)
{
    const struct arch *a = r->config->arch;
    struct model_head *h = r->head;
    bool tokens = h->task == MODEL_CLASSIFY_TOKENS;
    enum arch_inner inner = tokens && !a->token_inner ? ARCH_INNER_NONE : a->inner;
    h->inner = (struct head_dense){.in = r->config->hidden, .out = inner ? r->config->hidden : 0, .tanh = inner == ARCH_INNER_TANH,
                                   .activation = inner == ARCH_INNER_RELU ? OP_ACT_RELU : inner == ARCH_INNER_GELU_NORM ? OP_ACT_GELU_ERF : OP_ACT_NONE};
    h->inner_norm = inner == ARCH_INNER_GELU_NORM;
    struct str act = json_str(json_get(r->transformers, "classifier_activation"), ""), pooling = json_str(json_get(r->transformers, "classifier_pooling"), "");
    if (h->inner_norm && act.n && !config_activation(act, &h->inner.activation))
        return status_set(r->err, ROSE_UNSUPPORTED, "config.json: classifier_activation \"" STR_FMT "\" is not supported", STR_ARG(act));
    h->pooling = a->encoder ? OP_POOL_CLS : OP_POOL_LAST;
    if (h->inner_norm && str_is(pooling, "mean")) h->pooling = OP_POOL_MEAN;
    if (weights_kind(r->weights) == WEIGHTS_GGUF) ROSE_TRY(head_gguf_classifier(r->weights, r->config, r->err));
    ROSE_TRY(read_labels(r));
    return read_activations(r);
}

/* --- which task -------------------------------------------------------------------------------------------------------------------- */

static bool has_architecture(struct reader *r, struct str end)
{
    const struct json *list = json_get(r->transformers, "architectures");
    return json_is(list, JSON_ARRAY) && list->count && str_ends(json_str(json_at(list, 0), ""), end);
}

static bool contains(const char *text, const char *part)
{
    return str_find(str_of(text), str_of(part), 0) >= 0;
}

static bool is_qwen3_reranker(struct reader *r)
{
    return contains(weights_path(r->weights), "Qwen3-Reranker") || contains(r->config->name, "Qwen3-Reranker") || contains(r->config->name, "Qwen3 Reranker");
}

static enum model_task task_of(struct reader *r, bool pooled, bool scored)
{
    if (has_architecture(r, STR("ForSequenceClassification"))) return MODEL_CLASSIFY;
    if (has_architecture(r, STR("ForTokenClassification"))) return MODEL_CLASSIFY_TOKENS;
    if (scored) return MODEL_YES_NO;
    if (r->config->arch->encoder || r->config->bidirectional || pooled) return MODEL_EMBED;
    if (has_architecture(r, STR("Model"))) return MODEL_EMBED;
    /* The Qwen3 rerankers are saved as generators that answer yes or no. */
    if (is_qwen3_reranker(r)) return MODEL_YES_NO;
    return MODEL_GENERATE;
}

static enum rose_status read_files(struct reader *r, bool *pooled, bool *scored)
{
    ROSE_TRY(read_json(r, "", "modules.json", CONFIG_LIMIT, &r->modules));
    ROSE_TRY(read_json(r, "", "config_sentence_transformers.json", CONFIG_LIMIT, &r->sentence));
    if (!r->modules) return read_transformer(r, "");
    if (!json_is(r->modules, JSON_ARRAY)) return status_set(r->err, ROSE_FORMAT, "modules.json must be a list of modules");
    if (r->modules->count > MAX_MODULES) return status_set(r->err, ROSE_LIMIT, "modules.json: %u modules; at most %d are taken", r->modules->count, MAX_MODULES);
    for (uint32_t i = 0; i < r->modules->count; i++) ROSE_TRY(read_module(r, json_at(r->modules, i), pooled, scored));
    return ROSE_OK;
}

/* BGE-M3 keeps its lexical head beside the model. */
static enum rose_status find_sparse(struct reader *r)
{
    static const char *const names[] = {"sparse_linear.safetensors", "sparse_linear.pt"};
    for (size_t i = 0; r->dir && i < ROSE_COUNT(names); i++) {
        char *path = file_join(r->arena, r->dir, names[i]);
        if (!path) return no_memory(r);
        if (!file_exists(path)) continue;
        r->head->sparse = true;
        r->head->sparse_path = path;
        return ROSE_OK;
    }
    return ROSE_OK;
}

static enum rose_status finish(struct reader *r, const struct head_wish *wish)
{
    struct model_head *h = r->head;
    struct model_config *c = r->config;
    if (h->task == MODEL_GENERATE) {
        if (c->arch->encoder) return status_set(r->err, ROSE_UNSUPPORTED, "%s is an encoder, which cannot generate text; it embeds, classifies or scores", c->arch->name);
        if (c->bidirectional) return status_set(r->err, ROSE_UNSUPPORTED, "config.json: \"use_bidirectional_attention\" makes this an encoder, which cannot generate text");
        h->embedding = 0;
        return ROSE_OK;
    }
    c->own_rows = true;
    c->causal = !c->arch->encoder && !c->bidirectional;
    if (h->task == MODEL_EMBED) {
        if (has_architecture(r, STR("ColBERT")))
            return status_set(r->err, ROSE_UNSUPPORTED, "config.json: \"architectures\" names a multi-vector (ColBERT) model, which is not supported yet");
        h->embedding = h->dense_count ? h->dense[h->dense_count - 1].out : c->hidden;
        c->tied = true; /* an output matrix is not looked at */
        return find_sparse(r);
    }
    if (h->task == MODEL_YES_NO) {
        if (h->yes < 0) h->yes = wish->yes, h->no = wish->no;
        if (h->yes < 0 || h->yes >= c->vocabulary || h->no >= c->vocabulary)
            return status_set(r->err, ROSE_UNSUPPORTED, "no token means \"yes\" in this model: it cannot score by an answer");
        h->pooling = OP_POOL_LAST;
        h->labels = 1;
        h->judge_template = true;
        return read_activations(r);
    }
    c->tied = true;
    ROSE_TRY(read_classifier(r));
    h->judge_template = is_qwen3_reranker(r) && h->labels == 1 && !c->arch->encoder;
    return ROSE_OK;
}

enum rose_status head_read(struct arena *arena, struct weights *weights, const struct head_wish *wish, struct model_config *config, struct rose_error *err)
{
    struct reader r = {.arena = arena, .weights = weights, .config = config, .head = &config->head, .err = err};
    bool pooled = false, scored = false, gguf = weights_kind(weights) == WEIGHTS_GGUF;
    enum model_task task = MODEL_AUTO;
    *r.head = (struct model_head){.yes = -1, .no = -1, .pooling = OP_POOL_MEAN};
    r.transformers = weights_config(weights);
    if (weights_kind(weights) == WEIGHTS_HF) r.dir = weights_path(weights);
    if (wish->task == MODEL_GENERATE) { /* nothing else is asked of the files */
        r.head->task = MODEL_GENERATE;
        return finish(&r, wish);
    }
    ROSE_TRY(gguf ? head_gguf_read(weights, config, &pooled, &task, err) : read_files(&r, &pooled, &scored));
    if (task == MODEL_AUTO) task = task_of(&r, pooled, scored);
    if (wish->task != MODEL_AUTO) task = wish->task;
    if (wish->score && task == MODEL_GENERATE) task = MODEL_YES_NO;
    if (!pooled && !config->arch->encoder && has_architecture(&r, STR("ForCausalLM"))) r.head->pooling = OP_POOL_LAST; /* as sentence-transformers has it */
    if (!pooled && gguf && !config->arch->encoder) r.head->pooling = OP_POOL_LAST;
    r.head->task = task;
    if (task != MODEL_GENERATE) ROSE_TRY(read_prompts(&r));
    return finish(&r, wish);
}
