/* An infer request of KServe v2 over HTTP: JSON, and behind it the raw tensors. */
#include <stdio.h>

#include "server/kserve.h"

/* An unsigned number of a parameter: gRPC has them as texts or numbers. */
static bool read_size(const struct json *v, const char *name, size_t *out, struct api_error *e)
{
    if (v->type != JSON_NUMBER || !v->is_integer || v->integer < 0) return kserve_wrong(e, "parameter %s must be a size", name);
    *out = (size_t)v->integer;
    return true;
}

bool kserve_read_parameters(const struct json *parameters, struct kserve_request *r, struct api_error *e)
{
    static const char *const unused[] = {"sequence_start", "sequence_end"};
    r->parameters = parameters;
    r->type = -1;
    if (!parameters) return true;
    if (parameters->type != JSON_OBJECT) return kserve_wrong(e, "parameters must be an object");
    const struct json *v;
    if ((v = json_get(parameters, "binary_data_output"))) r->binary = json_bool(v, false);
    if ((v = json_get(parameters, "triton_enable_empty_final_response"))) r->empty_final = json_bool(v, false);
    if ((v = json_get(parameters, "priority"))) {
        if (v->type != JSON_NUMBER || json_int(v, -1) < 0 || json_int(v, -1) > INT32_MAX) return kserve_wrong(e, "parameter priority must be an integer, 0 or more");
        r->priority = (int)json_int(v, 0);
    }
    if ((v = json_get(parameters, "timeout"))) {
        if (v->type != JSON_NUMBER || json_int(v, -1) < 0) return kserve_wrong(e, "parameter timeout must be microseconds, 0 or more");
        r->timeout_us = json_int(v, 0);
    }
    if ((v = json_get(parameters, "sequence_id")) && json_int(v, 1) != 0 && !(v->type == JSON_STRING && !v->string.n))
        return api_error_set(e, 501, "invalid_request_error", "unsupported_parameter", "sequence_id", "parameter sequence_id is not supported: no model here keeps a state between requests");
    for (size_t i = 0; i < ROSE_COUNT(unused); i++)
        if (json_bool(json_get(parameters, unused[i]), false)) return api_error_set(e, 501, "invalid_request_error", "unsupported_parameter", unused[i], "parameter %s is not supported: no model here keeps a state between requests", unused[i]);
    if ((v = json_get(parameters, "output_datatype"))) {
        r->type = kserve_type_find(json_str(v, ""));
        if (r->type < KSERVE_FP16 || r->type > KSERVE_FP64) return kserve_wrong(e, "parameter output_datatype must be FP16, BF16, FP32 or FP64");
    }
    return true;
}

bool kserve_read_wanted_parameters(const struct json *p, bool input, struct kserve_wanted *w, struct api_error *e)
{
    if (!p || p->type == JSON_NULL) return true;
    if (p->type != JSON_OBJECT) return kserve_wrong(e, "a tensor's parameters must be an object");
    for (uint32_t i = 0; i < p->count; i++) {
        struct str key = json_member(p, i)->key;
        const struct json *v = &json_member(p, i)->value;
        size_t n = 0;
        if (str_is(key, "shared_memory_region")) {
            if (v->type != JSON_STRING || !v->string.n) return kserve_wrong(e, "parameter shared_memory_region must be a region's name");
            w->region = v->string;
        } else if (str_is(key, "shared_memory_offset")) {
            if (!read_size(v, "shared_memory_offset", &w->offset, e)) return false;
        } else if (str_is(key, "shared_memory_byte_size")) {
            if (!read_size(v, "shared_memory_byte_size", &w->bytes, e)) return false;
        } else if (str_is(key, "binary_data_size") && input) {
            continue; /* where the body is taken apart */
        } else if (str_is(key, "binary_data") && !input) {
            if (v->type != JSON_TRUE && v->type != JSON_FALSE) return kserve_wrong(e, "parameter binary_data must be true or false");
            w->binary = v->type == JSON_TRUE;
        } else if (str_is(key, "classification") && !input) {
            if (!read_size(v, "classification", &n, e)) return false;
            if (n > 65536) return kserve_wrong(e, "parameter classification must be at most 65536");
            w->classification = (int)n;
        } else if (str_is(key, "datatype") && !input) {
            w->type = kserve_type_find(json_str(v, ""));
            if (w->type < KSERVE_FP16 || w->type > KSERVE_FP64) return kserve_wrong(e, "parameter datatype must be FP16, BF16, FP32 or FP64");
        } else {
            return kserve_wrong(e, "unknown parameter %.*s of a tensor", (int)ROSE_MIN(key.n, 64), key.p);
        }
    }
    return true;
}

bool kserve_read_region(struct regions *regions, const struct kserve_wanted *from, struct kserve_tensor *t, struct arena *arena, struct api_error *e)
{
    char *to;
    if (!regions) return kserve_wrong(e, "there is no shared memory here");
    const struct region *r = regions_find(regions, from->region);
    if (!r) return kserve_wrong(e, "unable to find shared memory region '%.*s'", (int)ROSE_MIN(from->region.n, 100), from->region.p);
    if (from->offset > r->bytes || from->bytes > r->bytes - from->offset)
        return kserve_wrong(e, "tensor '%.*s' wants bytes %zu to %zu of shared memory region '%s', which has %zu", (int)ROSE_MIN(t->name.n, 64), t->name.p, from->offset,
                     from->offset + ROSE_MIN(from->bytes, SIZE_MAX - from->offset), r->name, r->bytes);
    if (!(to = arena_alloc(arena, from->bytes + 1))) return kserve_too_large(e);
    t->data = (struct str){to, from->bytes};
    return regions_read(regions, from->region, from->offset, to, from->bytes, e);
}

static bool read_shape(const struct json *v, struct kserve_tensor *t, struct api_error *e)
{
    int n = (int)ROSE_MIN(t->name.n, 64);
    if (!v || v->type != JSON_ARRAY) return kserve_wrong(e, "input '%.*s' has no shape", n, t->name.p);
    if (v->count > KSERVE_RANK) return kserve_wrong(e, "input '%.*s' has %u dimensions; at most %d are taken", n, t->name.p, v->count, KSERVE_RANK);
    t->rank = (int)v->count;
    for (uint32_t i = 0; i < v->count; i++) {
        if (json_at(v, i)->type != JSON_NUMBER || !json_at(v, i)->is_integer || json_at(v, i)->integer < 0) return kserve_wrong(e, "input '%.*s': a dimension of its shape is no whole number of 0 or more", n, t->name.p);
        t->shape[i] = json_at(v, i)->integer;
    }
    return kserve_elements(t->shape, t->rank, &t->elements) || kserve_wrong(e, "input '%.*s': its shape has more than %d elements", n, t->name.p, KSERVE_ELEMENTS);
}

static bool read_input(const struct json *in, struct str *raw, struct arena *arena, struct regions *regions, struct kserve_tensor *t, struct api_error *e)
{
    static const char *const known[] = {"name", "shape", "datatype", "data", "parameters"};
    if (in->type != JSON_OBJECT) return kserve_wrong(e, "inputs must be a list of objects");
    for (uint32_t i = 0; i < in->count; i++) {
        size_t k = 0;
        while (k < ROSE_COUNT(known) && !str_is(json_member(in, i)->key, known[k])) k++;
        if (k == ROSE_COUNT(known)) return kserve_wrong(e, "unknown field %.*s of an input", (int)ROSE_MIN(json_member(in, i)->key.n, 64), json_member(in, i)->key.p);
    }
    const struct json *data = json_get(in, "data"), *parameters = json_get(in, "parameters"), *size = json_get(parameters, "binary_data_size");
    struct kserve_wanted from = {.type = -1};
    t->name = json_str(json_get(in, "name"), "");
    if (!t->name.n) return kserve_wrong(e, "an input has no name");
    int n = (int)ROSE_MIN(t->name.n, 64), type = kserve_type_find(json_str(json_get(in, "datatype"), ""));
    if (type < 0) return kserve_wrong(e, "input '%.*s': datatype must be BOOL, UINT8 to UINT64, INT8 to INT64, FP16, FP32, FP64, BF16 or BYTES", n, t->name.p);
    t->type = (enum kserve_type)type;
    if (!read_shape(json_get(in, "shape"), t, e) || !kserve_read_wanted_parameters(parameters, true, &from, e)) return false;
    if ((data != NULL) + (size != NULL) + (from.region.n > 0) != 1)
        return kserve_wrong(e, "input '%.*s' must have its values in data, or behind the JSON (parameter binary_data_size), or in shared memory", n, t->name.p);
    if (data) return kserve_from_json(data, t, arena, e);
    if (from.region.n) return kserve_read_region(regions, &from, t, arena, e) && kserve_check(t, e);
    size_t bytes = 0;
    if (!read_size(size, "binary_data_size", &bytes, e)) return false;
    if (bytes > raw->n) return kserve_wrong(e, "input '%.*s' wants %zu bytes behind the JSON, and %zu are left there", n, t->name.p, bytes, raw->n);
    t->data = (struct str){raw->p, bytes};
    *raw = (struct str){raw->p + bytes, raw->n - bytes};
    return kserve_check(t, e);
}

static bool read_wanted(const struct json *out, bool binary, struct kserve_wanted *w, struct api_error *e)
{
    if (out->type != JSON_OBJECT) return kserve_wrong(e, "outputs must be a list of objects");
    for (uint32_t i = 0; i < out->count; i++)
        if (!str_is(json_member(out, i)->key, "name") && !str_is(json_member(out, i)->key, "parameters"))
            return kserve_wrong(e, "unknown field %.*s of an output", (int)ROSE_MIN(json_member(out, i)->key.n, 64), json_member(out, i)->key.p);
    *w = (struct kserve_wanted){.name = json_str(json_get(out, "name"), ""), .binary = binary, .type = -1};
    if (!w->name.n) return kserve_wrong(e, "an output has no name");
    return kserve_read_wanted_parameters(json_get(out, "parameters"), false, w, e);
}

static bool count_of(const struct json *v, const char *name, int *count, struct api_error *e)
{
    *count = 0;
    if (json_is_null(v)) return true;
    if (v->type != JSON_ARRAY) return kserve_wrong(e, "%s must be a list", name);
    if (v->count > KSERVE_TENSORS) return kserve_wrong(e, "%s has %u entries; at most %d are taken", name, v->count, KSERVE_TENSORS);
    *count = (int)v->count;
    return true;
}

static bool read_object(const struct json *body, struct str raw, struct arena *arena, struct regions *regions, struct kserve_request *r, struct api_error *e)
{
    static const char *const known[] = {"id", "parameters", "inputs", "outputs"};
    if (body->type != JSON_OBJECT) return kserve_wrong(e, "the request must be a JSON object");
    for (uint32_t i = 0; i < body->count; i++) {
        size_t k = 0;
        while (k < ROSE_COUNT(known) && !str_is(json_member(body, i)->key, known[k])) k++;
        if (k == ROSE_COUNT(known)) return kserve_wrong(e, "unknown field %.*s", (int)ROSE_MIN(json_member(body, i)->key.n, 64), json_member(body, i)->key.p);
    }
    const struct json *id = json_get(body, "id"), *inputs = json_get(body, "inputs"), *outputs = json_get(body, "outputs"), *parameters = json_get(body, "parameters");
    if (!json_is_null(id) && id->type != JSON_STRING) return kserve_wrong(e, "id must be a string");
    r->id = json_str(id, "");
    if (!kserve_read_parameters(json_is_null(parameters) ? NULL : parameters, r, e)) return false;
    if (!count_of(inputs, "inputs", &r->inputs_count, e) || !count_of(outputs, "outputs", &r->wanted_count, e)) return false;
    r->inputs = ARENA_ARRAY(arena, struct kserve_tensor, (size_t)r->inputs_count + 1);
    r->wanted = ARENA_ARRAY(arena, struct kserve_wanted, (size_t)r->wanted_count + 1);
    if (!r->inputs || !r->wanted) return kserve_too_large(e);
    for (int i = 0; i < r->inputs_count; i++)
        if (!read_input(json_at(inputs, i), &raw, arena, regions, &r->inputs[i], e)) return false;
    if (raw.n) return kserve_wrong(e, "%zu bytes are left behind the tensors", raw.n);
    for (int i = 0; i < r->wanted_count; i++)
        if (!read_wanted(json_at(outputs, i), r->binary, &r->wanted[i], e)) return false;
    return true;
}

bool kserve_read(struct str body, size_t header_bytes, struct arena *arena, struct regions *regions, struct kserve_request *r, struct api_error *e)
{
    const struct json *json;
    struct rose_error err = {0};
    struct str raw = {body.p + body.n, 0};
    *r = (struct kserve_request){.type = -1};
    if (header_bytes != SIZE_MAX) {
        if (header_bytes > body.n) return kserve_wrong(e, "Inference-Header-Content-Length is %zu, and the body has %zu bytes", header_bytes, body.n);
        raw = (struct str){body.p + header_bytes, body.n - header_bytes};
        body.n = header_bytes;
    }
    enum rose_status s = json_parse(arena, NULL, body, &json, &err);
    if (s == ROSE_NO_MEMORY) return api_error_set(e, 413, "invalid_request_error", "too_large", NULL, "the request's body has too many values");
    if (s != ROSE_OK) return kserve_wrong(e, "failed to parse the request JSON buffer: %.400s", err.message);
    return read_object(json, raw, arena, regions, r, e);
}
