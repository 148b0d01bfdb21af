#include "model/quant.h"

#include <string.h>

enum { MOST_BLOCK = 1 << 16, MOST_GROUPS = 1024 };

static enum rose_status refuse(struct rose_error *err, const char *key, const struct json *v, const char *what)
{
    struct strbuf b = {.limit = 200};
    if (v) json_add_value(&b, v);
    enum rose_status s = status_set(err, ROSE_UNSUPPORTED, "config.json: quantization_config \"%s\" is %.80s: %s", key, b.p ? b.p : "null", what);
    strbuf_free(&b);
    return s;
}

/* A missing key means what is wanted. */
static enum rose_status must_be(const struct json *q, const char *key, const char *a, const char *b, struct rose_error *err)
{
    const struct json *v = json_get(q, key);
    if (json_is_null(v)) return ROSE_OK;
    struct str s = json_str(v, "");
    return str_is(s, a) || str_is(s, b) ? ROSE_OK : refuse(err, key, v, "FP8 checkpoints of another kind are known");
}

static enum rose_status must_be_list(const struct json *q, const char *key, struct rose_error *err)
{
    const struct json *v = json_get(q, key);
    if (json_is_null(v)) return ROSE_OK;
    bool good = v->type == JSON_ARRAY;
    for (uint32_t i = 0; good && i < v->count; i++) good = json_at(v, i)->type == JSON_STRING;
    return good ? ROSE_OK : status_set(err, ROSE_FORMAT, "config.json: quantization_config \"%s\" must be a list of names", key);
}

static enum rose_status read_block(const struct json *v, const char *key, struct model_quant *out, struct rose_error *err)
{
    int64_t rows = 0, cols = 0;
    if (json_is(v, JSON_ARRAY) && v->count == 2) rows = json_int(json_at(v, 0), 0), cols = json_int(json_at(v, 1), 0);
    if (rows < 1 || rows > MOST_BLOCK || cols < 128 || cols > MOST_BLOCK || cols % 128)
        return refuse(err, key, v, "blocks are [rows, columns], each up to 65536, the columns a multiple of 128");
    *out = (struct model_quant){QUANT_FP8_BLOCK, (int32_t)rows, (int32_t)cols, out->scale};
    return ROSE_OK;
}

static enum rose_status read_fp8(const struct json *q, struct model_quant *out, struct rose_error *err)
{
    const struct json *block = json_get(q, "weight_block_size");
    ROSE_TRY(must_be(q, "fmt", "e4m3", "float8_e4m3fn", err));
    ROSE_TRY(must_be(q, "activation_scheme", "dynamic", "static", err));
    *out = (struct model_quant){.kind = QUANT_FP8_TENSOR, .scale = ".weight_scale"};
    if (json_is_null(block)) return ROSE_OK;
    out->scale = ".weight_scale_inv";
    return read_block(block, "weight_block_size", out, err);
}

/* One group's scheme of weights. */
static enum rose_status read_scheme(const struct json *weights, struct model_quant *out, struct rose_error *err)
{
    struct str strategy = json_str(json_get(weights, "strategy"), "");
    *out = (struct model_quant){.scale = ".weight_scale"};
    if (json_int(json_get(weights, "num_bits"), 0) != 8 || !str_is(json_str(json_get(weights, "type"), ""), "float"))
        return refuse(err, "config_groups", weights, "weights of 8 bits of type \"float\" are supported");
    if (!json_bool(json_get(weights, "symmetric"), true) || json_bool(json_get(weights, "dynamic"), false))
        return refuse(err, "config_groups", weights, "weights must be symmetric and have scales in the file");
    if (str_is(strategy, "tensor")) out->kind = QUANT_FP8_TENSOR;
    else if (str_is(strategy, "channel")) out->kind = QUANT_FP8_CHANNEL;
    else if (str_is(strategy, "block")) return read_block(json_get(weights, "block_structure"), "block_structure", out, err);
    else return refuse(err, "strategy", json_get(weights, "strategy"), "\"tensor\", \"channel\" and \"block\" are supported");
    return ROSE_OK;
}

static enum rose_status read_compressed(const struct json *q, struct model_quant *out, struct rose_error *err)
{
    const struct json *groups = json_get(q, "config_groups");
    ROSE_TRY(must_be(q, "format", "float-quantized", "naive-quantized", err));
    ROSE_TRY(must_be(q, "quantization_status", "compressed", "frozen", err));
    if (!json_is(groups, JSON_OBJECT) || groups->count < 1 || groups->count > MOST_GROUPS)
        return status_set(err, ROSE_FORMAT, "config.json: quantization_config \"config_groups\" must be an object with a group or more");
    for (uint32_t i = 0; i < groups->count; i++) {
        struct model_quant group;
        ROSE_TRY(read_scheme(json_get(&json_member(groups, i)->value, "weights"), &group, err));
        if (i && (group.kind != out->kind || group.block_rows != out->block_rows || group.block_cols != out->block_cols))
            return status_set(err, ROSE_UNSUPPORTED, "config.json: quantization_config has groups of different kinds; one kind for all is supported");
        *out = group;
    }
    return ROSE_OK;
}

enum rose_status quant_read(const struct json *config, struct model_quant *out, struct rose_error *err)
{
    static const char *const lists[] = {"modules_to_not_convert", "ignored_layers", "ignore", "exclude_modules"};
    const struct json *q = json_get(config, "quantization_config");
    *out = (struct model_quant){0};
    if (json_is_null(q)) q = json_get(config, "compression_config");
    if (json_is_null(q)) return ROSE_OK;
    if (q->type != JSON_OBJECT) return status_set(err, ROSE_FORMAT, "config.json: \"quantization_config\" must be an object");
    for (size_t i = 0; i < ROSE_COUNT(lists); i++) ROSE_TRY(must_be_list(q, lists[i], err));
    struct str method = json_str(json_get(q, "quant_method"), "");
    if (str_is(method, "fp8")) return read_fp8(q, out, err);
    if (str_is(method, "compressed-tensors")) return read_compressed(q, out, err);
    *out = (struct model_quant){.kind = QUANT_FP8_CHANNEL, .scale = ".weight_scale"};
    if (str_is(method, "fbgemm_fp8")) return ROSE_OK;
    out->kind = QUANT_FP8_TENSOR;
    if (str_is(method, "modelopt") && str_is(json_str(json_get(q, "quant_algo"), ""), "FP8")) return ROSE_OK;
    *out = (struct model_quant){0};
    return refuse(err, "quant_method", json_get(q, "quant_method"), "\"fp8\", \"fbgemm_fp8\", \"compressed-tensors\" and \"modelopt\" with FP8 are supported");
}
