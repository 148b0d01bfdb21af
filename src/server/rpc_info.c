/* KServe's verbs over gRPC that tell or change something at once. */
#ifdef ROSE_HAVE_GRPC
#include <stdio.h>
#include <stdlib.h>

#include "inference.pb-c.h"
#include "server/cuda_shm.h"
#include "server/loader.h"
#include "server/rpc_api.h"

/* The request of a verb; the rest of the function ends where it is no such message. */
#define UNPACK(lower, Upper, var)                                                                                                                    \
    Inference__##Upper *var = rpc_wire_check(&inference__##lower##__descriptor, data) ? inference__##lower##__unpack(NULL, data.n, (const uint8_t *)data.p) : NULL; \
    if (!var) {                                                                                                                                      \
        rpc_finish(r, GRPC_STATUS_INVALID_ARGUMENT, "the message is no " #Upper);                                                                    \
        return;                                                                                                                                      \
    }
#define FREE(var) protobuf_c_message_free_unpacked(&(var)->base, NULL)

static void reply(struct rpc *r, const ProtobufCMessage *m)
{
    rpc_send(r, m);
    rpc_finish(r, GRPC_STATUS_OK, "");
}

static void no_memory(struct rpc *r) { rpc_finish(r, GRPC_STATUS_RESOURCE_EXHAUSTED, "out of memory"); }

void rpc_ServerLive(struct rpc *r, struct str data)
{
    Inference__ServerLiveResponse m = INFERENCE__SERVER_LIVE_RESPONSE__INIT;
    (void)data;
    m.live = 1;
    reply(r, &m.base);
}

void rpc_ServerReady(struct rpc *r, struct str data)
{
    Inference__ServerReadyResponse m = INFERENCE__SERVER_READY_RESPONSE__INIT;
    (void)data;
    m.ready = kserve_ready(r->server->s);
    reply(r, &m.base);
}

void rpc_ModelReady(struct rpc *r, struct str data)
{
    Inference__ModelReadyResponse m = INFERENCE__MODEL_READY_RESPONSE__INIT;
    struct api_error e;
    UNPACK(model_ready_request, ModelReadyRequest, q)
    m.ready = kserve_find(r->server->s, str_of(q->name), str_of(q->version), &e) != NULL && !r->server->draining;
    FREE(q);
    reply(r, &m.base);
}

void rpc_ServerMetadata(struct rpc *r, struct str data)
{
    Inference__ServerMetadataResponse m = INFERENCE__SERVER_METADATA_RESPONSE__INIT;
    (void)data;
    m.name = (char *)"rose";
    m.version = (char *)ROSE_VERSION;
    m.extensions = (char **)(uintptr_t)kserve_extensions;
    m.n_extensions = (size_t)kserve_extensions_count;
    reply(r, &m.base);
}

static struct model *find(struct rpc *r, const char *name, const char *version)
{
    struct api_error e = {0};
    struct model *m = kserve_find(r->server->s, str_of(name), str_of(version), &e);
    if (!m) rpc_fail(r, &e);
    return m;
}

static size_t dims_of(const struct kserve_io *io, bool batch, int64_t *to)
{
    size_t n = 0;
    if (batch) to[n++] = -1;
    for (int i = 0; i < io->rank; i++) to[n++] = io->dims[i];
    return n;
}

typedef Inference__ModelMetadataResponse__TensorMetadata tensor_metadata;
struct tensors {
    struct kserve_io io[KSERVE_TENSORS];
    tensor_metadata m[KSERVE_TENSORS], *list[KSERVE_TENSORS];
    int64_t dims[KSERVE_TENSORS][4];
    int count;
};

static void fill_tensors(struct tensors *t, bool batch)
{
    for (int i = 0; i < t->count; i++) {
        t->list[i] = &t->m[i];
        inference__model_metadata_response__tensor_metadata__init(&t->m[i]);
        t->m[i].name = (char *)(uintptr_t)t->io[i].name;
        t->m[i].datatype = (char *)(uintptr_t)kserve_type_name(t->io[i].type);
        t->m[i].n_shape = dims_of(&t->io[i], batch, t->dims[i]);
        t->m[i].shape = t->dims[i];
    }
}

void rpc_ModelMetadata(struct rpc *r, struct str data)
{
    Inference__ModelMetadataResponse m = INFERENCE__MODEL_METADATA_RESPONSE__INIT;
    char versions[MODELS_MAX][12], *list[MODELS_MAX];
    const struct models *all = &r->server->s->models;
    struct tensors in, out;
    UNPACK(model_metadata_request, ModelMetadataRequest, q)
    struct model *model = find(r, q->name, q->version);
    FREE(q);
    if (!model) return;
    m.name = model->name;
    for (int i = 0; i < all->count; i++) {
        if (all->models[i].state != MODEL_READY || strcmp(all->models[i].name, model->name)) continue;
        snprintf(versions[m.n_versions], sizeof versions[0], "%d", all->models[i].version);
        list[m.n_versions] = versions[m.n_versions];
        m.n_versions++;
    }
    m.versions = list;
    m.platform = (char *)(uintptr_t)kserve_platform(model);
    in.count = kserve_inputs(model, in.io, KSERVE_TENSORS);
    out.count = kserve_outputs(model, out.io, KSERVE_TENSORS);
    fill_tensors(&in, kserve_batch(model) > 0);
    fill_tensors(&out, kserve_batch(model) > 0);
    m.inputs = in.list;
    m.n_inputs = (size_t)in.count;
    m.outputs = out.list;
    m.n_outputs = (size_t)out.count;
    reply(r, &m.base);
}

static Inference__DataType data_type(enum kserve_type t)
{
    static const Inference__DataType types[KSERVE_TYPES] = {
        INFERENCE__DATA_TYPE__TYPE_BOOL, INFERENCE__DATA_TYPE__TYPE_UINT8, INFERENCE__DATA_TYPE__TYPE_UINT16, INFERENCE__DATA_TYPE__TYPE_UINT32, INFERENCE__DATA_TYPE__TYPE_UINT64,
        INFERENCE__DATA_TYPE__TYPE_INT8, INFERENCE__DATA_TYPE__TYPE_INT16, INFERENCE__DATA_TYPE__TYPE_INT32, INFERENCE__DATA_TYPE__TYPE_INT64, INFERENCE__DATA_TYPE__TYPE_FP16,
        INFERENCE__DATA_TYPE__TYPE_BF16, INFERENCE__DATA_TYPE__TYPE_FP32, INFERENCE__DATA_TYPE__TYPE_FP64, INFERENCE__DATA_TYPE__TYPE_STRING};
    return types[t];
}

struct policy_choice {
    Inference__ModelVersionPolicy m;
    Inference__ModelVersionPolicy__Latest latest;
    Inference__ModelVersionPolicy__All all;
    Inference__ModelVersionPolicy__Specific specific;
    int64_t versions[VERSIONS_MOST];
};

static Inference__ModelVersionPolicy *set_policy(const struct version_policy *p, struct policy_choice *to)
{
    inference__model_version_policy__init(&to->m);
    inference__model_version_policy__latest__init(&to->latest);
    inference__model_version_policy__all__init(&to->all);
    inference__model_version_policy__specific__init(&to->specific);
    if (p->kind == VERSIONS_ALL) {
        to->m.policy_choice_case = INFERENCE__MODEL_VERSION_POLICY__POLICY_CHOICE_ALL;
        to->m.all = &to->all;
    } else if (p->kind == VERSIONS_SPECIFIC) {
        for (int i = 0; i < p->count; i++) to->versions[i] = p->list[i];
        to->specific.versions = to->versions;
        to->specific.n_versions = (size_t)p->count;
        to->m.policy_choice_case = INFERENCE__MODEL_VERSION_POLICY__POLICY_CHOICE_SPECIFIC;
        to->m.specific = &to->specific;
    } else {
        to->latest.num_versions = (uint32_t)ROSE_MAX(p->count, 1);
        to->m.policy_choice_case = INFERENCE__MODEL_VERSION_POLICY__POLICY_CHOICE_LATEST;
        to->m.latest = &to->latest;
    }
    return &to->m;
}

void rpc_ModelConfig(struct rpc *r, struct str data)
{
    Inference__ModelConfigResponse m = INFERENCE__MODEL_CONFIG_RESPONSE__INIT;
    Inference__ModelConfig c = INFERENCE__MODEL_CONFIG__INIT;
    struct policy_choice choice;
    Inference__ModelTransactionPolicy transaction = INFERENCE__MODEL_TRANSACTION_POLICY__INIT;
    Inference__ModelInstanceGroup group = INFERENCE__MODEL_INSTANCE_GROUP__INIT, *groups[] = {&group};
    Inference__ModelInput in[KSERVE_TENSORS], *ins[KSERVE_TENSORS];
    Inference__ModelOutput out[KSERVE_TENSORS], *outs[KSERVE_TENSORS];
    struct kserve_io io[KSERVE_TENSORS], oo[KSERVE_TENSORS];
    UNPACK(model_config_request, ModelConfigRequest, q)
    struct model *model = find(r, q->name, q->version);
    FREE(q);
    if (!model) return;
    int n = kserve_inputs(model, io, KSERVE_TENSORS);
    for (int i = 0; i < n; i++) {
        ins[i] = &in[i];
        inference__model_input__init(&in[i]);
        in[i].name = (char *)(uintptr_t)io[i].name;
        in[i].data_type = data_type(io[i].type);
        in[i].dims = io[i].dims;
        in[i].n_dims = (size_t)io[i].rank;
        in[i].optional = io[i].optional;
    }
    c.input = ins;
    c.n_input = (size_t)n;
    n = kserve_outputs(model, oo, KSERVE_TENSORS);
    for (int i = 0; i < n; i++) {
        outs[i] = &out[i];
        inference__model_output__init(&out[i]);
        out[i].name = (char *)(uintptr_t)oo[i].name;
        out[i].data_type = data_type(oo[i].type);
        out[i].dims = oo[i].dims;
        out[i].n_dims = (size_t)oo[i].rank;
    }
    c.output = outs;
    c.n_output = (size_t)n;
    c.name = group.name = model->name;
    c.platform = (char *)(uintptr_t)kserve_platform(model);
    c.backend = (char *)"rose";
    c.version_policy = set_policy(&model->policy, &choice);
    c.max_batch_size = kserve_batch(model);
    group.count = 1;
    group.kind = INFERENCE__MODEL_INSTANCE_GROUP__KIND__KIND_MODEL;
    c.instance_group = groups;
    c.n_instance_group = 1;
    transaction.decoupled = kserve_kind(model) == KSERVE_TEXT;
    c.model_transaction_policy = &transaction;
    m.config = &c;
    reply(r, &m.base);
}

/* --- statistics ------------------------------------------------------------------------------------------------------------------------- */

struct statistics {
    Inference__ModelStatistics m;
    Inference__InferStatistics infer;
    Inference__StatisticDuration d[8];
    Inference__MemoryUsage memory, *memories[1];
    char version[12];
};

static void fill_statistics(const struct model *model, struct statistics *t)
{
    const struct model_counts *c = &model->counts;
    struct rose_stats st = {0};
    const uint64_t values[8][2] = {{c->success, c->success_ns}, {c->fail, c->fail_ns}, {c->success, c->queue_ns}, {c->success, 0}, {c->success, c->compute_ns}, {c->success, 0}};
    Inference__StatisticDuration **to[] = {&t->infer.success, &t->infer.fail, &t->infer.queue, &t->infer.compute_input, &t->infer.compute_infer, &t->infer.compute_output, &t->infer.cache_hit,
                                           &t->infer.cache_miss};
    if (model_is_up(model)) model_stats(model, &st);
    inference__model_statistics__init(&t->m);
    inference__infer_statistics__init(&t->infer);
    inference__memory_usage__init(&t->memory);
    for (int i = 0; i < 8; i++) {
        inference__statistic_duration__init(&t->d[i]);
        t->d[i].count = values[i][0];
        t->d[i].ns = values[i][1];
        *to[i] = &t->d[i];
    }
    snprintf(t->version, sizeof t->version, "%d", model->version);
    t->m.name = (char *)(uintptr_t)model->name;
    t->m.version = t->version;
    t->m.last_inference = (uint64_t)c->last_ms;
    t->m.inference_count = c->inferences;
    t->m.execution_count = st.steps;
    t->m.inference_stats = &t->infer;
    t->memory.type = (char *)"CPU";
    t->memory.byte_size = model->info.weights_bytes + model->info.kv_bytes + model->info.work_bytes;
    t->memories[0] = &t->memory;
    t->m.memory_usage = t->memories;
    t->m.n_memory_usage = 1;
}

void rpc_ModelStatistics(struct rpc *r, struct str data)
{
    Inference__ModelStatisticsResponse m = INFERENCE__MODEL_STATISTICS_RESPONSE__INIT;
    struct models *all = &r->server->s->models;
    UNPACK(model_statistics_request, ModelStatisticsRequest, q)
    struct model *only = *q->name ? find(r, q->name, q->version) : NULL;
    bool one = *q->name != '\0';
    FREE(q);
    if (one && !only) return;
    struct statistics *t = calloc((size_t)all->count + 1, sizeof *t);
    Inference__ModelStatistics **list = calloc((size_t)all->count + 1, sizeof *list);
    for (int i = 0; t && list && i < all->count; i++) {
        const struct model *model = &all->models[i];
        if (only ? model != only : model->state != MODEL_READY) continue;
        fill_statistics(model, &t[m.n_model_stats]);
        list[m.n_model_stats] = &t[m.n_model_stats].m;
        m.n_model_stats++;
    }
    m.model_stats = list;
    if (t && list) reply(r, &m.base);
    else no_memory(r);
    free(t);
    free(list);
}

/* --- repository --------------------------------------------------------------------------------------------------------------------------- */

void rpc_RepositoryIndex(struct rpc *r, struct str data)
{
    typedef Inference__RepositoryIndexResponse__ModelIndex row;
    Inference__RepositoryIndexResponse m = INFERENCE__REPOSITORY_INDEX_RESPONSE__INIT;
    struct server *s = r->server->s;
    UNPACK(repository_index_request, RepositoryIndexRequest, q)
    bool ready = q->ready;
    FREE(q);
    kserve_rescan(s);
    size_t n = (size_t)s->models.count;
    row *rows = calloc(n + 1, sizeof *rows), **list = calloc(n + 1, sizeof *list);
    char (*versions)[12] = calloc(n + 1, sizeof *versions);
    for (size_t i = 0; rows && list && versions && i < n; i++) {
        struct model *model = &s->models.models[i];
        if (ready && model->state != MODEL_READY) continue;
        row *to = list[m.n_models] = &rows[m.n_models];
        inference__repository_index_response__model_index__init(to);
        snprintf(versions[m.n_models], sizeof versions[0], "%d", model->version);
        to->name = model->name;
        to->version = versions[m.n_models++];
        to->state = (char *)(uintptr_t)model_state_name(model->state);
        to->reason = model->reason;
    }
    m.models = list;
    if (rows && list && versions) reply(r, &m.base);
    else no_memory(r);
    free(rows);
    free(list);
    free(versions);
}

struct load {
    struct model_wait wait; /* first */
    struct rpc *rpc;
};

static void loaded(struct model_wait *w, struct model *model, enum rose_status status, const struct rose_error *err)
{
    Inference__RepositoryModelLoadResponse m = INFERENCE__REPOSITORY_MODEL_LOAD_RESPONSE__INIT;
    struct rpc *r = ((struct load *)w)->rpc;
    char text[400];
    struct rose_error why = {0};
    if (err) why = *err;
    r->load_model = model;
    if (kserve_load_more(r->server->s, w, &r->load_model, &status, &why)) return;
    r->load_wait = NULL;
    free(w);
    if (status == ROSE_OK) {
        reply(r, &m.base);
        return;
    }
    snprintf(text, sizeof text, "failed to load '%.100s': %.280s", r->load_model->name, why.message);
    rpc_finish(r, GRPC_STATUS_INVALID_ARGUMENT, text);
}

void rpc_load_gone(struct rpc *r)
{
    if (!r->load_wait) return;
    loader_forget(r->load_model, r->load_wait);
    free(r->load_wait);
    r->load_wait = NULL;
}

/* Parameters as JSON, which both transports have in common; bytes and numbers come as null. */
static bool load_parameters(const Inference__RepositoryModelLoadRequest *q, struct arena *a, struct json *out)
{
    struct json_member *members = ARENA_ARRAY(a, struct json_member, q->n_parameters + 1);
    if (!members) return false;
    *out = (struct json){.type = JSON_OBJECT, .members = members};
    for (size_t i = 0; i < q->n_parameters && i < UINT32_MAX; i++) {
        const Inference__ModelRepositoryParameter *v = q->parameters[i]->value;
        struct json_member *m = &members[out->count++];
        *m = (struct json_member){.key = str_of(q->parameters[i]->key)};
        m->value.type = JSON_NULL;
        if (!v || v->parameter_choice_case != INFERENCE__MODEL_REPOSITORY_PARAMETER__PARAMETER_CHOICE_STRING_PARAM) continue;
        m->value.type = JSON_STRING;
        m->value.string = str_of(v->string_param);
    }
    return true;
}

void rpc_RepositoryModelLoad(struct rpc *r, struct str data)
{
    struct api_error e = {0};
    struct arena a;
    struct json parameters;
    UNPACK(repository_model_load_request, RepositoryModelLoadRequest, q)
    struct load *l = calloc(1, sizeof *l);
    arena_init(&a, (size_t)64 << 20);
    if (!l || !load_parameters(q, &a, &parameters)) {
        free(l);
        no_memory(r);
    } else {
        *l = (struct load){{loaded, NULL}, r};
        r->load_wait = &l->wait;
        if (!kserve_load(r->server->s, str_of(q->model_name), &parameters, &a, &l->wait, &r->load_model, &e)) {
            r->load_wait = NULL;
            free(l);
            rpc_fail(r, &e);
        }
    }
    arena_free(&a);
    FREE(q);
}

void rpc_RepositoryModelUnload(struct rpc *r, struct str data)
{
    Inference__RepositoryModelUnloadResponse m = INFERENCE__REPOSITORY_MODEL_UNLOAD_RESPONSE__INIT;
    struct api_error e = {0};
    UNPACK(repository_model_unload_request, RepositoryModelUnloadRequest, q)
    if (kserve_unload(r->server->s, str_of(q->model_name), &e)) reply(r, &m.base);
    else rpc_fail(r, &e);
    FREE(q);
}

/* --- shared memory ------------------------------------------------------------------------------------------------------------------------ */

void rpc_SystemSharedMemoryStatus(struct rpc *r, struct str data)
{
    typedef Inference__SystemSharedMemoryStatusResponse__RegionStatus row;
    typedef Inference__SystemSharedMemoryStatusResponse__RegionsEntry entry;
    Inference__SystemSharedMemoryStatusResponse m = INFERENCE__SYSTEM_SHARED_MEMORY_STATUS_RESPONSE__INIT;
    const struct regions *all = &r->server->s->regions;
    UNPACK(system_shared_memory_status_request, SystemSharedMemoryStatusRequest, q)
    const struct region *one = *q->name ? regions_find(all, str_of(q->name)) : NULL;
    if (*q->name && (!one || one->memory)) {
        rpc_finish(r, GRPC_STATUS_NOT_FOUND, "unable to find that system shared memory region");
        FREE(q);
        return;
    }
    size_t n = (size_t)all->count;
    row *rows = calloc(n + 1, sizeof *rows);
    entry *entries = calloc(n + 1, sizeof *entries), **list = calloc(n + 1, sizeof *list);
    for (size_t i = 0; rows && entries && list && i < n; i++) {
        struct region *g = all->all[i];
        if (g->memory || (*q->name && strcmp(q->name, g->name))) continue;
        row *to = &rows[i];
        inference__system_shared_memory_status_response__region_status__init(to);
        inference__system_shared_memory_status_response__regions_entry__init(&entries[i]);
        to->name = entries[i].key = g->name;
        to->key = g->key;
        to->offset = g->offset;
        to->byte_size = g->bytes;
        entries[i].value = to;
        list[m.n_regions++] = &entries[i];
    }
    m.regions = list;
    if (rows && entries && list) reply(r, &m.base);
    else no_memory(r);
    free(rows);
    free(entries);
    free(list);
    FREE(q);
}

void rpc_SystemSharedMemoryRegister(struct rpc *r, struct str data)
{
    Inference__SystemSharedMemoryRegisterResponse m = INFERENCE__SYSTEM_SHARED_MEMORY_REGISTER_RESPONSE__INIT;
    struct api_error e = {0};
    UNPACK(system_shared_memory_register_request, SystemSharedMemoryRegisterRequest, q)
    if (regions_add(&r->server->s->regions, str_of(q->name), str_of(q->key), q->offset, q->byte_size, &e)) reply(r, &m.base);
    else rpc_fail(r, &e);
    FREE(q);
}

void rpc_SystemSharedMemoryUnregister(struct rpc *r, struct str data)
{
    Inference__SystemSharedMemoryUnregisterResponse m = INFERENCE__SYSTEM_SHARED_MEMORY_UNREGISTER_RESPONSE__INIT;
    UNPACK(system_shared_memory_unregister_request, SystemSharedMemoryUnregisterRequest, q)
    regions_remove(&r->server->s->regions, str_of(q->name), false);
    FREE(q);
    reply(r, &m.base);
}

void rpc_CudaSharedMemoryStatus(struct rpc *r, struct str data)
{
    typedef Inference__CudaSharedMemoryStatusResponse__RegionStatus row;
    typedef Inference__CudaSharedMemoryStatusResponse__RegionsEntry entry;
    Inference__CudaSharedMemoryStatusResponse m = INFERENCE__CUDA_SHARED_MEMORY_STATUS_RESPONSE__INIT;
    const struct regions *all = &r->server->s->regions;
    UNPACK(cuda_shared_memory_status_request, CudaSharedMemoryStatusRequest, q)
    size_t n = (size_t)all->count;
    row *rows = calloc(n + 1, sizeof *rows);
    entry *entries = calloc(n + 1, sizeof *entries), **list = calloc(n + 1, sizeof *list);
    for (size_t i = 0; rows && entries && list && i < n; i++) {
        struct region *g = all->all[i];
        if (!g->memory || (*q->name && strcmp(q->name, g->name))) continue;
        inference__cuda_shared_memory_status_response__region_status__init(&rows[i]);
        inference__cuda_shared_memory_status_response__regions_entry__init(&entries[i]);
        rows[i].name = entries[i].key = g->name;
        rows[i].device_id = (uint64_t)g->gpu;
        rows[i].byte_size = g->bytes;
        entries[i].value = &rows[i];
        list[m.n_regions++] = &entries[i];
    }
    m.regions = list;
    if (!rows || !entries || !list) no_memory(r);
    else if (*q->name && !m.n_regions) rpc_finish(r, GRPC_STATUS_NOT_FOUND, "unable to find that CUDA shared memory region");
    else reply(r, &m.base);
    free(rows);
    free(entries);
    free(list);
    FREE(q);
}

void rpc_CudaSharedMemoryRegister(struct rpc *r, struct str data)
{
    Inference__CudaSharedMemoryRegisterResponse m = INFERENCE__CUDA_SHARED_MEMORY_REGISTER_RESPONSE__INIT;
    struct api_error e = {0};
    struct server *s = r->server->s;
    UNPACK(cuda_shared_memory_register_request, CudaSharedMemoryRegisterRequest, q)
    struct str handle = {(const char *)q->raw_handle.data, q->raw_handle.len};
    if (cuda_shm_add(&s->regions, s->options->rose_device, str_of(q->name), handle, q->device_id, q->byte_size, &e)) reply(r, &m.base);
    else rpc_fail(r, &e);
    FREE(q);
}

void rpc_CudaSharedMemoryUnregister(struct rpc *r, struct str data)
{
    Inference__CudaSharedMemoryUnregisterResponse m = INFERENCE__CUDA_SHARED_MEMORY_UNREGISTER_RESPONSE__INIT;
    UNPACK(cuda_shared_memory_unregister_request, CudaSharedMemoryUnregisterRequest, q)
    regions_remove(&r->server->s->regions, str_of(q->name), true);
    FREE(q);
    reply(r, &m.base);
}

/* --- settings ------------------------------------------------------------------------------------------------------------------------------- */

/* What kserve_add_settings writes, read again. */
static const struct json *current(struct server *s, bool log, struct arena *a)
{
    struct strbuf b = {0};
    const struct json *out = NULL;
    kserve_add_settings(s, log, &b);
    char *copy = b.failed ? NULL : arena_strndup(a, b.p, b.n);
    if (!copy || json_parse(a, NULL, (struct str){copy, b.n}, &out, NULL) != ROSE_OK) out = NULL;
    strbuf_free(&b);
    return out;
}

static void reply_trace(struct rpc *r, struct arena *a)
{
    typedef Inference__TraceSettingResponse__SettingsEntry entry;
    typedef Inference__TraceSettingResponse__SettingValue value;
    Inference__TraceSettingResponse m = INFERENCE__TRACE_SETTING_RESPONSE__INIT;
    const struct json *now = current(r->server->s, false, a);
    size_t n = now ? now->count : 0;
    entry *entries = ARENA_ARRAY(a, entry, n + 1), **list = ARENA_ARRAY(a, entry *, n + 1);
    value *values = ARENA_ARRAY(a, value, n + 1);
    char **texts = ARENA_ARRAY(a, char *, n + 1);
    if (!now || !entries || !list || !values || !texts) {
        no_memory(r);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        const struct json *v = &json_member(now, i)->value;
        struct str text = json_str(v->type == JSON_ARRAY && v->count ? json_at(v, 0) : v, "");
        inference__trace_setting_response__settings_entry__init(&entries[i]);
        inference__trace_setting_response__setting_value__init(&values[i]);
        texts[i] = arena_strndup(a, text.p, text.n);
        entries[i].key = arena_strndup(a, json_member(now, i)->key.p, json_member(now, i)->key.n);
        values[i].value = &texts[i];
        values[i].n_value = 1;
        entries[i].value = &values[i];
        list[i] = &entries[i];
    }
    m.settings = list;
    m.n_settings = n;
    reply(r, &m.base);
}

void rpc_TraceSetting(struct rpc *r, struct str data)
{
    struct arena a;
    struct api_error e = {0};
    struct json settings = {.type = JSON_OBJECT};
    UNPACK(trace_setting_request, TraceSettingRequest, q)
    if (*q->model_name && !find(r, q->model_name, "")) {
        FREE(q);
        return;
    }
    arena_init(&a, (size_t)1 << 24);
    settings.members = ARENA_ARRAY(&a, struct json_member, q->n_settings + 1);
    for (size_t i = 0; settings.members && i < q->n_settings; i++) {
        const Inference__TraceSettingRequest__SettingValue *v = q->settings[i]->value;
        struct json_member *to = &settings.members[settings.count++];
        *to = (struct json_member){.key = str_of(q->settings[i]->key)}; /* null: no value */
        if (v && v->n_value == 1) to->value = (struct json){.type = JSON_STRING, .string = str_of(v->value[0])};
        else if (v && v->n_value > 1) to->value = (struct json){.type = JSON_ARRAY};
    }
    if (!settings.members) no_memory(r);
    else if (kserve_settings_change(r->server->s, false, &settings, &e)) reply_trace(r, &a);
    else rpc_fail(r, &e);
    arena_free(&a);
    FREE(q);
}

static void reply_log(struct rpc *r, struct arena *a)
{
    typedef Inference__LogSettingsResponse__SettingsEntry entry;
    typedef Inference__LogSettingsResponse__SettingValue value;
    Inference__LogSettingsResponse m = INFERENCE__LOG_SETTINGS_RESPONSE__INIT;
    const struct json *now = current(r->server->s, true, a);
    size_t n = now ? now->count : 0;
    entry *entries = ARENA_ARRAY(a, entry, n + 1), **list = ARENA_ARRAY(a, entry *, n + 1);
    value *values = ARENA_ARRAY(a, value, n + 1);
    if (!now || !entries || !list || !values) {
        no_memory(r);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        const struct json *v = &json_member(now, i)->value;
        inference__log_settings_response__settings_entry__init(&entries[i]);
        inference__log_settings_response__setting_value__init(&values[i]);
        entries[i].key = arena_strndup(a, json_member(now, i)->key.p, json_member(now, i)->key.n);
        if (v->type == JSON_NUMBER) {
            values[i].parameter_choice_case = INFERENCE__LOG_SETTINGS_RESPONSE__SETTING_VALUE__PARAMETER_CHOICE_UINT32_PARAM;
            values[i].uint32_param = (uint32_t)v->integer;
        } else if (v->type == JSON_STRING) {
            values[i].parameter_choice_case = INFERENCE__LOG_SETTINGS_RESPONSE__SETTING_VALUE__PARAMETER_CHOICE_STRING_PARAM;
            values[i].string_param = arena_strndup(a, v->string.p, v->string.n);
        } else {
            values[i].parameter_choice_case = INFERENCE__LOG_SETTINGS_RESPONSE__SETTING_VALUE__PARAMETER_CHOICE_BOOL_PARAM;
            values[i].bool_param = v->type == JSON_TRUE;
        }
        entries[i].value = &values[i];
        list[i] = &entries[i];
    }
    m.settings = list;
    m.n_settings = n;
    reply(r, &m.base);
}

void rpc_LogSettings(struct rpc *r, struct str data)
{
    struct arena a;
    struct api_error e = {0};
    struct json settings = {.type = JSON_OBJECT};
    UNPACK(log_settings_request, LogSettingsRequest, q)
    arena_init(&a, (size_t)1 << 24);
    settings.members = ARENA_ARRAY(&a, struct json_member, q->n_settings + 1);
    for (size_t i = 0; settings.members && i < q->n_settings; i++) {
        const Inference__LogSettingsRequest__SettingValue *v = q->settings[i]->value;
        struct json_member *to = &settings.members[settings.count++];
        *to = (struct json_member){.key = str_of(q->settings[i]->key)};
        switch (v ? v->parameter_choice_case : INFERENCE__LOG_SETTINGS_REQUEST__SETTING_VALUE__PARAMETER_CHOICE__NOT_SET) {
        case INFERENCE__LOG_SETTINGS_REQUEST__SETTING_VALUE__PARAMETER_CHOICE_BOOL_PARAM: to->value.type = v->bool_param ? JSON_TRUE : JSON_FALSE; break;
        case INFERENCE__LOG_SETTINGS_REQUEST__SETTING_VALUE__PARAMETER_CHOICE_UINT32_PARAM:
            to->value = (struct json){.type = JSON_NUMBER, .is_integer = true};
            to->value.integer = v->uint32_param;
            to->value.number = v->uint32_param;
            break;
        case INFERENCE__LOG_SETTINGS_REQUEST__SETTING_VALUE__PARAMETER_CHOICE_STRING_PARAM: to->value = (struct json){.type = JSON_STRING, .string = str_of(v->string_param)}; break;
        default: break;
        }
    }
    if (!settings.members) no_memory(r);
    else if (kserve_settings_change(r->server->s, true, &settings, &e)) reply_log(r, &a);
    else rpc_fail(r, &e);
    arena_free(&a);
    FREE(q);
}
#else
typedef int rpc_info_is_not_built;
#endif
