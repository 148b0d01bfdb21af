/* config.json of a Hugging Face directory to model_config: the habits all architectures share, then the row's own words. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/arch.h"
#include "model/config_util.h"

static const struct json *get2(const struct json *c, const char *a, const char *b)
{
    const struct json *v = json_get(c, a);
    return json_is_null(v) ? json_get(c, b) : v;
}

enum rose_status config_int_of(const char *file, const struct json *config, const char *key, int64_t low, int64_t high, int64_t fallback, int32_t *out,
                               struct rose_error *err)
{
    const struct json *v = json_get(config, key);
    if (json_is_null(v)) {
        if (fallback < low) return status_set(err, ROSE_FORMAT, "%s: \"%s\" is missing", file, key);
        *out = (int32_t)fallback;
        return ROSE_OK;
    }
    int64_t n = json_int(v, INT64_MIN);
    if (n < low || n > high)
        return status_set(err, ROSE_FORMAT, "%s: \"%s\" must be a whole number from %lld to %lld", file, key, (long long)low, (long long)high);
    *out = (int32_t)n;
    return ROSE_OK;
}

enum rose_status config_int(const struct json *config, const char *key, int64_t low, int64_t high, int64_t fallback, int32_t *out, struct rose_error *err)
{
    return config_int_of("config.json", config, key, low, high, fallback, out, err);
}

bool config_activation(struct str name, enum op_activation *out)
{
    static const struct { const char *name; enum op_activation act; } known[] = {
        {"silu", OP_ACT_SILU}, {"swish", OP_ACT_SILU}, {"gelu", OP_ACT_GELU_ERF}, {"gelu_new", OP_ACT_GELU_TANH},
        {"gelu_pytorch_tanh", OP_ACT_GELU_TANH}, {"gelu_fast", OP_ACT_GELU_TANH}, {"relu", OP_ACT_RELU}, {"relu2", OP_ACT_RELU2}};
    for (size_t i = 0; i < ROSE_COUNT(known); i++)
        if (str_is(name, known[i].name)) return *out = known[i].act, true;
    return false;
}

static enum rose_status factors(struct arena *arena, const struct json *list, int32_t count, const char *what, const float **out, struct rose_error *err)
{
    if (!json_is(list, JSON_ARRAY) || (int32_t)list->count != count)
        return status_set(err, ROSE_FORMAT, "config.json: longrope \"%s\" must be a list of %d numbers (half the rotary dimension), found %u", what, count,
                          json_is(list, JSON_ARRAY) ? list->count : 0);
    float *f = ARENA_ARRAY(arena, float, (size_t)count);
    if (!f) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    for (int32_t i = 0; i < count; i++) {
        f[i] = (float)json_num(json_at(list, i), 0);
        if (!(f[i] > 0) || isinf(f[i])) return status_set(err, ROSE_FORMAT, "config.json: longrope \"%s\"[%d] must be a positive number", what, i);
    }
    *out = f;
    return ROSE_OK;
}

enum rose_status config_types(const char *file, const struct json *object, const struct config_type *known, size_t count, struct rose_error *err)
{
    if (!json_is_null(object) && !json_is(object, JSON_OBJECT)) return status_set(err, ROSE_FORMAT, "%s: it must be an object, found: %s", file, json_type_name(object->type));
    for (size_t i = 0; i < count; i++) {
        const struct json *v = json_get(object, known[i].key);
        if (!json_is_null(v) && !(known[i].types & (1u << v->type)))
            return status_set(err, ROSE_FORMAT, "%s: \"%s\" must be %s, found: %s", file, known[i].key, known[i].what, json_type_name(v->type));
    }
    return ROSE_OK;
}

static enum rose_status check_types(const struct json *object, struct rose_error *err)
{
    static const struct config_type known[] = {
        {"rms_norm_eps", CONFIG_NUMBER, "a number"}, {"layer_norm_eps", CONFIG_NUMBER, "a number"}, {"rope_theta", CONFIG_NUMBER, "a number"},
        {"partial_rotary_factor", CONFIG_NUMBER, "a number"}, {"factor", CONFIG_NUMBER, "a number"}, {"low_freq_factor", CONFIG_NUMBER, "a number"},
        {"high_freq_factor", CONFIG_NUMBER, "a number"}, {"beta_fast", CONFIG_NUMBER, "a number"}, {"beta_slow", CONFIG_NUMBER, "a number"},
        {"mscale", CONFIG_NUMBER, "a number"}, {"mscale_all_dim", CONFIG_NUMBER, "a number"}, {"attention_factor", CONFIG_NUMBER, "a number"},
        {"original_max_position_embeddings", CONFIG_NUMBER, "a number"}, {"sliding_window", CONFIG_NUMBER, "a number"},
        {"query_pre_attn_scalar", CONFIG_NUMBER, "a number"}, {"attn_logit_softcapping", CONFIG_NUMBER, "a number"},
        {"final_logit_softcapping", CONFIG_NUMBER, "a number"}, {"bos_token_id", CONFIG_NUMBER | CONFIG_LIST, "a token id"}, {"pad_token_id", CONFIG_NUMBER | CONFIG_LIST, "a token id"},
        {"eos_token_id", CONFIG_NUMBER | CONFIG_LIST, "a token id or a list of them"}, {"tie_word_embeddings", CONFIG_SWITCH, "true or false"},
        {"attention_bias", CONFIG_SWITCH, "true or false"}, {"mlp_bias", CONFIG_SWITCH, "true or false"}, {"use_sliding_window", CONFIG_SWITCH, "true or false"},
        {"norm_topk_prob", CONFIG_SWITCH, "true or false"}, {"hidden_act", CONFIG_TEXT, "a name"}, {"hidden_activation", CONFIG_TEXT, "a name"},
        {"rope_type", CONFIG_TEXT, "a name"}, {"layer_types", CONFIG_LIST, "a list"}, {"rope_scaling", CONFIG_OBJECT, "an object"}, {"rope_parameters", CONFIG_OBJECT, "an object"}};
    return config_types("config.json", object, known, ROSE_COUNT(known), err);
}

enum rose_status config_rope(struct arena *arena, const struct json *config, const struct json *params, double theta, const struct model_config *c,
                             struct rope_config *r, struct rose_error *err)
{
    static const struct { const char *name; enum rope_scaling scaling; } known[] = {
        {"default", ROPE_DEFAULT}, {"linear", ROPE_LINEAR}, {"dynamic", ROPE_DYNAMIC}, {"llama3", ROPE_LLAMA3}, {"yarn", ROPE_YARN},
        {"longrope", ROPE_LONGROPE}, {"su", ROPE_LONGROPE}, {"mrope", ROPE_DEFAULT}};
    ROSE_TRY(check_types(params, err));
    struct str type = json_str(get2(params, "rope_type", "type"), "default");
    *r = (struct rope_config){.scaling = (enum rope_scaling)-1};
    for (size_t i = 0; i < ROSE_COUNT(known); i++)
        if (str_is(type, known[i].name)) r->scaling = known[i].scaling;
    if ((int)r->scaling < 0) return status_set(err, ROSE_UNSUPPORTED, "config.json: rope type \"" STR_FMT "\" is not known", STR_ARG(type));
    if ((r->scaling == ROPE_LINEAR || r->scaling == ROPE_DYNAMIC || r->scaling == ROPE_LLAMA3) && json_is_null(json_get(params, "factor")))
        return status_set(err, ROSE_FORMAT, "config.json: rope type \"" STR_FMT "\" needs a \"factor\"", STR_ARG(type));
    /* Early Phi-3 files call longrope by other names. */
    if (r->scaling == ROPE_YARN && str_is(str_of(c->arch->name), "phi3")) r->scaling = ROPE_LONGROPE;
    r->theta = json_num(json_get(params, "rope_theta"), json_num(json_get(config, "rope_theta"), theta));
    double partial = json_num(json_get(params, "partial_rotary_factor"), json_num(json_get(config, "partial_rotary_factor"), 1));
    if (!(partial > 0 && partial <= 1)) return status_set(err, ROSE_FORMAT, "config.json: \"partial_rotary_factor\" must lie in (0, 1]");
    r->rotary_dim = (int32_t)(c->heads.head_dim * partial);
    /* The key at the top goes before the one among the parameters. */
    const struct json *original = json_get(config, "original_max_position_embeddings");
    if (json_is_null(original) && !c->arch->original_context) original = json_get(params, "original_max_position_embeddings");
    r->original_context = (int32_t)ROSE_MIN(ROSE_MAX(json_int(original, c->arch->original_context), 0), INT32_MAX);
    /* Phi-3 files give the two contexts instead of the factor. */
    r->factor = json_num(json_get(params, "factor"), r->original_context ? (double)c->context / r->original_context : 1);
    r->low_freq_factor = json_num(json_get(params, "low_freq_factor"), 1);
    r->high_freq_factor = json_num(json_get(params, "high_freq_factor"), 4);
    r->beta_fast = json_num(json_get(params, "beta_fast"), 32);
    r->beta_slow = json_num(json_get(params, "beta_slow"), 1);
    r->mscale = json_num(json_get(params, "mscale"), 0);
    r->mscale_all_dim = json_num(json_get(params, "mscale_all_dim"), 0);
    r->attention_factor = json_num(json_get(params, "attention_factor"), 0);
    r->truncate = json_bool(json_get(params, "truncate"), true);
    if (r->scaling == ROPE_LONGROPE) {
        ROSE_TRY(factors(arena, json_get(params, "short_factor"), r->rotary_dim / 2, "short_factor", &r->short_factor, err));
        ROSE_TRY(factors(arena, json_get(params, "long_factor"), r->rotary_dim / 2, "long_factor", &r->long_factor, err));
    }
    return config_rope_check(r, "config.json", err);
}

const struct json *config_rope_params(const struct json *config)
{
    return get2(config, "rope_parameters", "rope_scaling");
}

/* A token id, -1: none, or none that the vocabulary has. */
static int32_t token_id(const struct json *v, const struct model_config *c)
{
    int64_t id = json_int(v, -1);
    return id >= 0 && id < c->vocabulary ? (int32_t)id : -1;
}

static enum rose_status read_eos(const struct json *v, struct model_config *c, struct rose_error *err)
{
    if (json_is(v, JSON_ARRAY)) {
        for (uint32_t i = 0; i < v->count; i++) ROSE_TRY(read_eos(json_at(v, i), c, err));
        return ROSE_OK;
    }
    int64_t id = json_int(v, -1);
    if (id < 0) return ROSE_OK;
    if (id >= c->vocabulary) return status_set(err, ROSE_FORMAT, "config.json: \"eos_token_id\" %lld lies outside the vocabulary of %d", (long long)id, c->vocabulary);
    for (int32_t i = 0; i < c->eos_count; i++)
        if (c->eos[i] == id) return ROSE_OK;
    if (c->eos_count < (int32_t)ROSE_COUNT(c->eos)) c->eos[c->eos_count++] = (int32_t)id;
    return ROSE_OK;
}

enum rose_status config_eos(const struct json *config, struct model_config *c, struct rose_error *err)
{
    return read_eos(json_get(config, "eos_token_id"), c, err);
}

static enum rose_status read_sizes(const struct json *j, struct model_config *c, struct rose_error *err)
{
    ROSE_TRY(config_int(j, "num_hidden_layers", 1, 4096, -1, &c->layers, err));
    ROSE_TRY(config_int(j, "hidden_size", 1, 1 << 20, -1, &c->hidden, err));
    ROSE_TRY(config_int(j, "vocab_size", 1, 1 << 24, -1, &c->vocabulary, err));
    ROSE_TRY(config_int(j, "intermediate_size", 1, 1 << 22, -1, &c->intermediate, err));
    ROSE_TRY(config_int(j, "max_position_embeddings", 1, INT32_MAX, 2048, &c->context, err));
    ROSE_TRY(config_int(j, "num_attention_heads", 1, 1 << 14, -1, &c->heads.heads, err));
    ROSE_TRY(config_int(j, "num_key_value_heads", 1, 1 << 14, json_get(j, "num_key_value_heads") || !c->arch->kv_heads ? c->heads.heads : c->arch->kv_heads,
                        &c->heads.kv_heads, err));
    if (json_is_null(json_get(j, "head_dim")) && !c->arch->head_dim && c->hidden % c->heads.heads)
        return status_set(err, ROSE_FORMAT, "config.json: \"hidden_size\" %d is no multiple of the %d heads, and \"head_dim\" does not say their size", c->hidden, c->heads.heads);
    int32_t share = ROSE_MAX(c->hidden / c->heads.heads, 1);
    ROSE_TRY(config_int(j, "head_dim", 1, 1 << 14, json_get(j, "head_dim") || !c->arch->head_dim ? share : c->arch->head_dim, &c->heads.head_dim, err));
    return ROSE_OK;
}

enum rose_status config_window(const struct json *j, const struct model_config *c, int32_t *out, struct rose_error *err)
{
    return config_int(j, "sliding_window", 0, INT32_MAX, json_get(j, "sliding_window") ? 0 : c->arch->window, out, err);
}

/* Windows of all layers, or of those that layer_types names; rows with a rule of their own go on from there. */
static enum rose_status read_windows(const struct json *j, struct model_config *c, struct rose_error *err)
{
    int32_t window;
    if (c->arch->windows == ARCH_WINDOWS_NONE) return ROSE_OK;
    ROSE_TRY(config_window(j, c, &window, err));
    const struct json *types = c->arch->windows == ARCH_WINDOWS_TYPES ? json_get(j, "layer_types") : NULL;
    if (!json_is_null(types) && (!json_is(types, JSON_ARRAY) || (int32_t)types->count < c->layers))
        return status_set(err, ROSE_FORMAT, "config.json: \"layer_types\" must name all %d layers", c->layers);
    for (int32_t i = 0; i < c->layers; i++) {
        struct str type = json_is_null(types) ? STR("sliding_attention") : json_str(json_at(types, i), "");
        if (str_is(type, "sliding_attention")) c->layer[i].window = window;
        else if (!str_is(type, "full_attention"))
            return status_set(err, ROSE_UNSUPPORTED, "config.json: layer %d has attention of type \"" STR_FMT "\", which is not supported", i, STR_ARG(type));
    }
    return ROSE_OK;
}

/* The config with its own words for keys that the shared reader knows by another name; a key that is there keeps its place. */
static enum rose_status with_aliases(struct arena *arena, const struct json *config, const char *const (*aliases)[2], const struct json **out, struct rose_error *err)
{
    size_t more = 0;
    while (aliases[more][0]) more++;
    struct json *j = ARENA_NEW(arena, struct json);
    struct json_member *members = ARENA_ARRAY(arena, struct json_member, config->count + more);
    if (!j || !members) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    if (config->count) memcpy(members, config->members, config->count * sizeof *members);
    *j = *config;
    j->members = members;
    for (size_t i = 0; i < more; i++) {
        const struct json *v = json_get(config, aliases[i][1]);
        if (!json_is_null(v) && json_is_null(json_get(config, aliases[i][0]))) members[j->count++] = (struct json_member){str_of(aliases[i][0]), *v};
    }
    *out = j;
    return ROSE_OK;
}

/* Model types that are known and not there. */
static const char *known_missing(struct str type)
{
    if (str_is(type, "deberta") || str_is(type, "deberta-v2")) return "DeBERTa's disentangled attention is not supported yet";
    if (str_is(type, "t5") || str_is(type, "mt5") || str_is(type, "bart")) return "encoder-decoder models are not supported";
    return NULL;
}

enum rose_status config_from_json(struct arena *arena, const char *file, const struct json *j, struct model_config *c, struct rose_error *err)
{
    *c = (struct model_config){.embedding_scale = 1, .residual_scale = 1, .logits_scale = 1, .experts_scale = 1, .bos = -1, .pad = -1};
    struct str type = json_str(json_get(j, "model_type"), "");
    c->arch = arch_find(type);
    /* JinaBERT's files call themselves BERT's. */
    if (str_is(type, "bert") && str_is(json_str(json_get(j, "position_embedding_type"), ""), "alibi")) c->arch = arch_find(STR("jina_bert"));
    if (!c->arch && known_missing(type)) return status_at(err, ROSE_UNSUPPORTED, file, -1, "%s: model_type \"" STR_FMT "\": %s", file, STR_ARG(type), known_missing(type));
    if (!c->arch && !type.n) return status_at(err, ROSE_FORMAT, file, -1, "%s: \"model_type\" is missing, the name of the architecture", file);
    if (!c->arch) {
        char list[512];
        arch_list(list, sizeof list);
        return status_at(err, ROSE_UNSUPPORTED, file, -1, "%s: model_type \"" STR_FMT "\" is not supported; these are: %s", file, STR_ARG(type), list);
    }
    ROSE_TRY(check_types(j, err));
    if (c->arch->aliases) ROSE_TRY(with_aliases(arena, j, c->arch->aliases, &j, err));
    ROSE_TRY(quant_read(j, &c->quant, err));
    ROSE_TRY(read_sizes(j, c, err));
    c->layer = ARENA_ARRAY(arena, struct layer_config, (size_t)c->layers);
    if (!c->layer) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    snprintf(c->name, sizeof c->name, STR_FMT, STR_ARG(json_str(json_get(j, "_name_or_path"), "")));
    c->norm_eps = (float)json_num(get2(j, "rms_norm_eps", "layer_norm_eps"), c->arch->eps ? c->arch->eps : 1e-6);
    c->norm_offset = c->arch->norm_offset;
    c->norms = c->arch->norms;
    c->qk_norm = c->arch->qk_norm;
    c->rope_pairs = OP_ROPE_HALF;
    c->tied = json_bool(json_get(j, "tie_word_embeddings"), c->arch->tied);
    c->o_bias = c->arch->reads_attention_bias && json_bool(json_get(j, "attention_bias"), false);
    c->qkv_bias = c->arch->qkv_bias || c->o_bias;
    c->mlp_bias = c->arch->reads_mlp_bias && json_bool(json_get(j, "mlp_bias"), false);
    struct str act = json_str(get2(j, "hidden_activation", "hidden_act"), "");
    c->activation = c->arch->activation ? c->arch->activation : OP_ACT_SILU;
    if (act.n && !config_activation(act, &c->activation))
        return status_at(err, ROSE_UNSUPPORTED, file, -1, "%s: activation \"" STR_FMT "\" is not supported", file, STR_ARG(act));
    c->bos = token_id(json_get(j, "bos_token_id"), c);
    c->pad = token_id(json_get(j, "pad_token_id"), c);
    ROSE_TRY(config_eos(j, c, err));
    ROSE_TRY(read_windows(j, c, err));
    c->ropes_count = 1;
    const struct json *params = config_rope_params(j);
    if (json_is_null(json_get(params, "full_attention"))) ROSE_TRY(config_rope(arena, j, params, c->arch->theta ? c->arch->theta : 10000, c, &c->ropes[0], err));
    if (c->arch->from_json) ROSE_TRY(c->arch->from_json(arena, j, c, err));
    return config_finish(c, file, err);
}
