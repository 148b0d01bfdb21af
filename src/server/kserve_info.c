/* What KServe v2 tells of server and models, in JSON and in Triton's names. */
#include <stdio.h>

#include "server/kserve.h"

const char *const kserve_extensions[] = {"classification", "model_repository", "model_configuration", "system_shared_memory", "binary_tensor_data", "parameters", "statistics", "logging", "generate"};
const int kserve_extensions_count = (int)ROSE_COUNT(kserve_extensions);

const char *kserve_platform(const struct model *m)
{
    static const char *const names[] = {"rose_text", "rose_embed", "rose_classify", "rose_score"};
    return names[kserve_kind(m)];
}

void kserve_add_metadata(const struct server *s, struct strbuf *b)
{
    (void)s;
    strbuf_adds(b, "{\"name\":\"rose\",\"version\":\"" ROSE_VERSION "\",\"extensions\":[");
    for (int i = 0; i < kserve_extensions_count; i++) strbuf_printf(b, "%s\"%s\"", i ? "," : "", kserve_extensions[i]);
    strbuf_adds(b, "]}");
}

static void add_tensor(const struct kserve_io *io, bool batch, struct strbuf *b)
{
    strbuf_adds(b, "{\"name\":");
    json_add_str(b, str_of(io->name));
    strbuf_printf(b, ",\"datatype\":\"%s\",\"shape\":[", kserve_type_name(io->type));
    if (batch) strbuf_adds(b, "-1,");
    for (int i = 0; i < io->rank; i++) strbuf_printf(b, "%s%lld", i ? "," : "", (long long)io->dims[i]);
    strbuf_adds(b, "]}");
}

void kserve_add_model(struct server *s, const struct model *m, struct strbuf *b)
{
    struct kserve_io io[KSERVE_TENSORS];
    bool first = true;
    strbuf_adds(b, "{\"name\":");
    json_add_str(b, str_of(m->name));
    strbuf_adds(b, ",\"versions\":[");
    for (int i = 0; i < s->models.count; i++) {
        const struct model *other = &s->models.models[i];
        if (other->state != MODEL_READY || strcmp(other->name, m->name)) continue;
        strbuf_printf(b, "%s\"%d\"", first ? "" : ",", other->version);
        first = false;
    }
    strbuf_printf(b, "],\"platform\":\"%s\",\"inputs\":[", kserve_platform(m));
    int n = kserve_inputs(m, io, KSERVE_TENSORS);
    for (int i = 0; i < n; i++) {
        if (i) strbuf_addc(b, ',');
        add_tensor(&io[i], kserve_batch(m) > 0, b);
    }
    strbuf_adds(b, "],\"outputs\":[");
    n = kserve_outputs(m, io, KSERVE_TENSORS);
    for (int i = 0; i < n; i++) {
        if (i) strbuf_addc(b, ',');
        add_tensor(&io[i], kserve_batch(m) > 0, b);
    }
    strbuf_adds(b, "]}");
}

static void add_config_tensor(const struct kserve_io *io, bool input, struct strbuf *b)
{
    strbuf_adds(b, "{\"name\":");
    json_add_str(b, str_of(io->name));
    strbuf_printf(b, ",\"data_type\":\"TYPE_%s\",", io->type == KSERVE_BYTES ? "STRING" : kserve_type_name(io->type));
    if (input) strbuf_adds(b, "\"format\":\"FORMAT_NONE\",");
    strbuf_adds(b, "\"dims\":[");
    for (int i = 0; i < io->rank; i++) strbuf_printf(b, "%s%lld", i ? "," : "", (long long)io->dims[i]);
    strbuf_printf(b, "],\"is_shape_tensor\":false%s", input ? ",\"allow_ragged_batch\":false" : ",\"label_filename\":\"\"");
    if (input) strbuf_printf(b, ",\"optional\":%s", io->optional ? "true" : "false");
    strbuf_addc(b, '}');
}

static void add_parameter(struct strbuf *b, const char *name, const char *value)
{
    if (!value) return;
    strbuf_printf(b, "%s\"%s\":{\"string_value\":", b->p && b->n && b->p[b->n - 1] != '{' ? "," : "", name);
    json_add_str(b, str_of(value));
    strbuf_addc(b, '}');
}

void kserve_add_config(const struct model *m, struct strbuf *b)
{
    struct kserve_io io[KSERVE_TENSORS];
    const struct rose_model_info *i = &m->info;
    char number[32];
    strbuf_adds(b, "{\"name\":");
    json_add_str(b, str_of(m->name));
    strbuf_printf(b, ",\"platform\":\"%s\",\"backend\":\"rose\",\"runtime\":\"\",\"version_policy\":", kserve_platform(m));
    versions_add(&m->policy, b);
    strbuf_printf(b, ",\"max_batch_size\":%d,\"input\":[", kserve_batch(m));
    int n = kserve_inputs(m, io, KSERVE_TENSORS);
    for (int k = 0; k < n; k++) {
        if (k) strbuf_addc(b, ',');
        add_config_tensor(&io[k], true, b);
    }
    strbuf_adds(b, "],\"output\":[");
    n = kserve_outputs(m, io, KSERVE_TENSORS);
    for (int k = 0; k < n; k++) {
        if (k) strbuf_addc(b, ',');
        add_config_tensor(&io[k], false, b);
    }
    strbuf_adds(b, "],\"batch_input\":[],\"batch_output\":[],\"optimization\":{\"priority\":\"PRIORITY_DEFAULT\",\"input_pinned_memory\":{\"enable\":false},"
                   "\"output_pinned_memory\":{\"enable\":false},\"gather_kernel_buffer_threshold\":0,\"eager_batching\":false},\"instance_group\":[{\"name\":");
    json_add_str(b, str_of(m->name));
    strbuf_adds(b, ",\"kind\":\"KIND_MODEL\",\"count\":1,\"gpus\":[],\"secondary_devices\":[],\"profile\":[],\"passive\":false,\"host_policy\":\"\"}],"
                   "\"default_model_filename\":\"\",\"cc_model_filenames\":{},\"metric_tags\":{},\"parameters\":{");
    add_parameter(b, "architecture", i->architecture);
    add_parameter(b, "weights", i->weights_type);
    add_parameter(b, "pooling", i->pooling);
    (void)snprintf(number, sizeof number, "%d", kserve_kind(m) == KSERVE_TEXT ? i->context : i->longest_input);
    add_parameter(b, "max_tokens", number);
    strbuf_printf(b, "},\"model_warmup\":[],\"model_transaction_policy\":{\"decoupled\":%s}}", kserve_kind(m) == KSERVE_TEXT ? "true" : "false");
}

static void add_duration(struct strbuf *b, const char *name, uint64_t count, uint64_t ns, bool last)
{
    strbuf_printf(b, "\"%s\":{\"count\":%llu,\"ns\":%llu}%s", name, (unsigned long long)count, (unsigned long long)ns, last ? "" : ",");
}

void kserve_add_statistics(const struct model *m, struct strbuf *b)
{
    const struct model_counts *c = &m->counts;
    struct rose_stats st = {0};
    if (model_is_up(m)) model_stats(m, &st);
    strbuf_adds(b, "{\"name\":");
    json_add_str(b, str_of(m->name));
    strbuf_printf(b, ",\"version\":\"%d\",\"last_inference\":%lld,\"inference_count\":%llu,\"execution_count\":%llu,\"inference_stats\":{", m->version, (long long)c->last_ms,
                  (unsigned long long)c->inferences, (unsigned long long)st.steps);
    add_duration(b, "success", c->success, c->success_ns, false);
    add_duration(b, "fail", c->fail, c->fail_ns, false);
    add_duration(b, "queue", c->success, c->queue_ns, false);
    add_duration(b, "compute_input", c->success, 0, false);
    add_duration(b, "compute_infer", c->success, c->compute_ns, false);
    add_duration(b, "compute_output", c->success, 0, false);
    add_duration(b, "cache_hit", 0, 0, false);
    add_duration(b, "cache_miss", 0, 0, true);
    strbuf_printf(b, "},\"batch_stats\":[],\"memory_usage\":[{\"type\":\"CPU\",\"id\":0,\"byte_size\":%zu}],\"response_stats\":{}}", m->info.weights_bytes + m->info.kv_bytes + m->info.work_bytes);
}
