/* ModelInferRequest: protobuf to kserve_request. */
#include "server/rpc_read.h"

#ifdef ROSE_HAVE_GRPC
#include <stdio.h>

#include "inference.pb-c.h"
#include "server/rpc_api.h"

typedef Inference__ModelInferRequest infer_request;
typedef Inference__InferParameter infer_parameter;

void *rpc_read_unpack(struct str data, struct str *model, struct str *version)
{
    infer_request *m = NULL;
    if (rpc_wire_check(&inference__model_infer_request__descriptor, data)) m = inference__model_infer_request__unpack(NULL, data.n, (const uint8_t *)data.p);
    if (!m) return NULL;
    *model = str_of(m->model_name);
    *version = str_of(m->model_version);
    return m;
}

void rpc_read_free(void *message)
{
    infer_request *m = message;
    if (m) protobuf_c_message_free_unpacked(&m->base, NULL);
}

static struct json parameter_value(const infer_parameter *p)
{
    struct json v = {.type = JSON_NULL};
    switch (p ? p->parameter_choice_case : INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE__NOT_SET) {
    case INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_BOOL_PARAM: v.type = p->bool_param ? JSON_TRUE : JSON_FALSE; break;
    case INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_INT64_PARAM:
        v = (struct json){.type = JSON_NUMBER, .is_integer = true};
        v.integer = p->int64_param;
        v.number = (double)v.integer;
        break;
    case INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_UINT64_PARAM:
        v = (struct json){.type = JSON_NUMBER, .is_integer = p->uint64_param <= INT64_MAX, .is_wide = p->uint64_param > INT64_MAX};
        v.integer = (int64_t)p->uint64_param;
        v.number = (double)p->uint64_param;
        break;
    case INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_DOUBLE_PARAM:
        v.type = JSON_NUMBER;
        v.number = p->double_param;
        break;
    case INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_STRING_PARAM: v = (struct json){.type = JSON_STRING, .string = str_of(p->string_param)}; break;
    default: break;
    }
    return v;
}

/* A map's entries as a JSON object; the entry types are the same but for their names. */
struct entry { ProtobufCMessage base; char *key; infer_parameter *value; };
_Static_assert(sizeof(struct entry) == sizeof(Inference__ModelInferRequest__ParametersEntry), "a map's entry is a key and a value");
_Static_assert(sizeof(struct entry) == sizeof(Inference__ModelInferRequest__InferInputTensor__ParametersEntry), "a map's entry is a key and a value");
_Static_assert(sizeof(struct entry) == sizeof(Inference__ModelInferRequest__InferRequestedOutputTensor__ParametersEntry), "a map's entry is a key and a value");

static const struct json *object_of(void *entries, size_t n, struct arena *a)
{
    struct entry **e = entries;
    struct json *o = ARENA_NEW(a, struct json);
    if (!o || !(o->members = ARENA_ARRAY(a, struct json_member, n + 1))) return NULL;
    o->type = JSON_OBJECT;
    o->count = (uint32_t)n;
    for (size_t i = 0; i < n; i++) o->members[i] = (struct json_member){str_of(e[i]->key), parameter_value(e[i]->value)};
    return o;
}

/* Typed contents as raw ones. 8- and 16-bit integers travel as 32-bit ones. */
static bool read_contents(const Inference__InferTensorContents *c, struct kserve_tensor *t, struct arena *a, struct api_error *e)
{
    size_t n = 0, bytes = 0, width = kserve_type_bytes(t->type);
    switch (t->type) {
    case KSERVE_BOOL: n = c->n_bool_contents; break;
    case KSERVE_INT8: case KSERVE_INT16: case KSERVE_INT32: n = c->n_int_contents; break;
    case KSERVE_INT64: n = c->n_int64_contents; break;
    case KSERVE_UINT8: case KSERVE_UINT16: case KSERVE_UINT32: n = c->n_uint_contents; break;
    case KSERVE_UINT64: n = c->n_uint64_contents; break;
    case KSERVE_FP32: n = c->n_fp32_contents; break;
    case KSERVE_FP64: n = c->n_fp64_contents; break;
    case KSERVE_BYTES: n = c->n_bytes_contents; break;
    default: return kserve_wrong(e, "input '%s': datatype %s needs raw_input_contents", t->name.p, kserve_type_name(t->type));
    }
    if (n != t->elements) return kserve_wrong(e, "input '%s': %zu values came, and its shape wants %zu", t->name.p, n, t->elements);
    for (size_t i = 0; i < n; i++) bytes += t->type == KSERVE_BYTES ? 4 + c->bytes_contents[i].len : width;
    char *to = arena_alloc(a, bytes + 8);
    if (!to) return kserve_too_large(e);
    t->data = (struct str){to, bytes};
    for (size_t i = 0; i < n; i++) {
        uint64_t v = 0;
        if (t->type == KSERVE_BYTES) {
            uint32_t length = (uint32_t)c->bytes_contents[i].len;
            memcpy(to, &length, 4);
            if (length) memcpy(to + 4, c->bytes_contents[i].data, length);
            to += 4 + (size_t)length;
            continue;
        }
        int32_t small = 0;
        bool narrow = width < 4;
        switch (t->type) {
        case KSERVE_BOOL: v = c->bool_contents[i] != 0; break;
        case KSERVE_INT8: case KSERVE_INT16: case KSERVE_INT32:
            small = c->int_contents[i];
            if (narrow && (small < -(1 << (8 * width - 1)) || small >= 1 << (8 * width - 1))) return kserve_wrong(e, "input '%s': %d is outside of datatype %s", t->name.p, small, kserve_type_name(t->type));
            v = (uint64_t)(int64_t)small;
            break;
        case KSERVE_UINT8: case KSERVE_UINT16: case KSERVE_UINT32:
            v = c->uint_contents[i];
            if (narrow && v >> 8 * width) return kserve_wrong(e, "input '%s': %u is outside of datatype %s", t->name.p, c->uint_contents[i], kserve_type_name(t->type));
            break;
        case KSERVE_INT64: v = (uint64_t)c->int64_contents[i]; break;
        case KSERVE_UINT64: v = c->uint64_contents[i]; break;
        case KSERVE_FP32: memcpy(&v, &c->fp32_contents[i], 4); break;
        default: memcpy(&v, &c->fp64_contents[i], 8); break;
        }
        memcpy(to, &v, width);
        to += width;
    }
    return true;
}

static bool has_contents(const Inference__InferTensorContents *c)
{
    return c && (c->n_bool_contents || c->n_int_contents || c->n_int64_contents || c->n_uint_contents || c->n_uint64_contents || c->n_fp32_contents || c->n_fp64_contents || c->n_bytes_contents);
}

static bool read_input(const infer_request *m, size_t index, size_t *raw, struct arena *a, struct regions *regions, struct kserve_tensor *t, struct api_error *e)
{
    const Inference__ModelInferRequest__InferInputTensor *in = m->inputs[index];
    struct kserve_wanted from = {.type = -1};
    static const Inference__InferTensorContents none = INFERENCE__INFER_TENSOR_CONTENTS__INIT;
    t->name = str_of(in->name);
    int type = kserve_type_find(str_of(in->datatype));
    if (!t->name.n) return kserve_wrong(e, "an input has no name");
    if (type < 0) return kserve_wrong(e, "input '%.64s': datatype must be BOOL, UINT8 to UINT64, INT8 to INT64, FP16, FP32, FP64, BF16 or BYTES", in->name);
    t->type = (enum kserve_type)type;
    if (in->n_shape > KSERVE_RANK) return kserve_wrong(e, "input '%.64s' has %zu dimensions; at most %d are taken", in->name, in->n_shape, KSERVE_RANK);
    t->rank = (int)in->n_shape;
    for (int i = 0; i < t->rank; i++) t->shape[i] = in->shape[i];
    if (!kserve_elements(t->shape, t->rank, &t->elements)) return kserve_wrong(e, "input '%.64s': its shape has a negative dimension or more than %d elements", in->name, KSERVE_ELEMENTS);
    const struct json *parameters = object_of(in->parameters, in->n_parameters, a);
    if (!parameters) return kserve_too_large(e);
    if (!kserve_read_wanted_parameters(parameters, true, &from, e)) return false;
    if (from.region.n) {
        if (has_contents(in->contents)) return kserve_wrong(e, "input '%.64s' has its values in shared memory and in contents", in->name);
        return kserve_read_region(regions, &from, t, a, e) && kserve_check(t, e);
    }
    if (m->n_raw_input_contents) {
        if (has_contents(in->contents)) return kserve_wrong(e, "contents field must not be specified when using raw_input_contents for '%.64s'", in->name);
        if (*raw >= m->n_raw_input_contents) return kserve_wrong(e, "expected raw_input_contents for input '%.64s': there are only %zu", in->name, m->n_raw_input_contents);
        const ProtobufCBinaryData *d = &m->raw_input_contents[(*raw)++];
        t->data = (struct str){d->data ? (const char *)d->data : "", d->len};
        return kserve_check(t, e);
    }
    return read_contents(in->contents ? in->contents : &none, t, a, e);
}

bool rpc_read(const void *message, struct arena *a, struct regions *regions, struct kserve_request *q, struct api_error *e)
{
    const infer_request *m = message;
    size_t raw = 0;
    const struct json *parameters = object_of(m->parameters, m->n_parameters, a);
    *q = (struct kserve_request){.type = -1};
    q->id = str_of(m->id);
    if (!parameters) return kserve_too_large(e);
    if (!kserve_read_parameters(parameters, q, e)) return false;
    if (m->n_inputs > KSERVE_TENSORS || m->n_outputs > KSERVE_TENSORS) return kserve_wrong(e, "at most %d inputs and outputs are taken", KSERVE_TENSORS);
    q->inputs_count = (int)m->n_inputs;
    q->wanted_count = (int)m->n_outputs;
    q->inputs = ARENA_ARRAY(a, struct kserve_tensor, m->n_inputs + 1);
    q->wanted = ARENA_ARRAY(a, struct kserve_wanted, m->n_outputs + 1);
    if (!q->inputs || !q->wanted) return kserve_too_large(e);
    for (size_t i = 0; i < m->n_inputs; i++)
        if (!read_input(m, i, &raw, a, regions, &q->inputs[i], e)) return false;
    if (raw != m->n_raw_input_contents) return kserve_wrong(e, "%zu raw_input_contents came, and the inputs want %zu", m->n_raw_input_contents, raw);
    for (size_t i = 0; i < m->n_outputs; i++) {
        q->wanted[i] = (struct kserve_wanted){.name = str_of(m->outputs[i]->name), .binary = true, .type = -1};
        const struct json *p = object_of(m->outputs[i]->parameters, m->outputs[i]->n_parameters, a);
        if (!p) return kserve_too_large(e);
        if (!kserve_read_wanted_parameters(p, false, &q->wanted[i], e)) return false;
    }
    return true;
}
#else
/* Without protobuf there are no messages. */
void *rpc_read_unpack(struct str data, struct str *model, struct str *version) { return (void)data, (void)model, (void)version, NULL; }
void rpc_read_free(void *message) { (void)message; }
bool rpc_read(const void *message, struct arena *a, struct regions *regions, struct kserve_request *q, struct api_error *e)
{
    (void)message, (void)a, (void)regions, (void)q;
    return api_error_set(e, 501, "invalid_request_error", NULL, NULL, "this build has no gRPC");
}
#endif
