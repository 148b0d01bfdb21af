/* grpc.health.v1 and reflection: what load balancers and tools ask. */
#ifdef ROSE_HAVE_GRPC
#include <stdio.h>
#include <stdlib.h>

#include "health.pb-c.h"
#include "reflection_v1.pb-c.h"
#include "server/rpc_api.h"

/* --- health --------------------------------------------------------------------------------------------------------------------------------- */

static bool known_service(const char *name)
{
    static const char *const names[] = {"", "inference.GRPCInferenceService", "grpc.health.v1.Health"};
    for (size_t i = 0; i < ROSE_COUNT(names); i++)
        if (!strcmp(name, names[i])) return true;
    return false;
}

static bool serving(const struct server *s) { return kserve_ready(s) && !s->draining; }

static void send_health(struct rpc *r, bool known)
{
    Grpc__Health__V1__HealthCheckResponse m = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;
    m.status = !known ? GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVICE_UNKNOWN
             : serving(r->server->s) ? GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVING
                                     : GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__NOT_SERVING;
    rpc_send(r, &m.base);
}

static int asked(struct rpc *r, struct str data)
{
    Grpc__Health__V1__HealthCheckRequest *q = rpc_wire_check(&grpc__health__v1__health_check_request__descriptor, data) ? grpc__health__v1__health_check_request__unpack(NULL, data.n, (const uint8_t *)data.p) : NULL;
    if (!q) {
        rpc_finish(r, GRPC_STATUS_INVALID_ARGUMENT, "the message is no HealthCheckRequest");
        return -1;
    }
    bool known = known_service(q->service);
    protobuf_c_message_free_unpacked(&q->base, NULL);
    return known;
}

void rpc_health_check(struct rpc *r, struct str data)
{
    int known = asked(r, data);
    if (known < 0) return;
    if (!known) {
        rpc_finish(r, GRPC_STATUS_NOT_FOUND, "there is no such service");
        return;
    }
    send_health(r, true);
    rpc_finish(r, GRPC_STATUS_OK, "");
}

void rpc_health_watch(struct rpc *r, struct str data)
{
    int known = asked(r, data);
    if (known < 0) return;
    rpc_health_look(r->server); /* so that this one hears of what comes after it, and of nothing twice */
    r->watches_health = true;
    r->watches_known = known;
    send_health(r, known);
}

void rpc_health_look(struct rpc_server *g)
{
    bool now = serving(g->s);
    if (now == g->was_ready) return;
    g->was_ready = now;
    for (struct rpc *r = g->calls, *next; r; r = next) {
        next = r->next;
        if (r->watches_health && r->watches_known) send_health(r, true);
    }
}

/* --- reflection ------------------------------------------------------------------------------------------------------------------------------- */

extern const uint8_t rose_descriptors_begin[], rose_descriptors_end[];

/* The next field of a protobuf message; its bytes where it has a length. The descriptors are our own, but are read with care all the same. */
static bool next_field(struct str *m, uint32_t *number, struct str *bytes)
{
    uint64_t v[2] = {0, 0};
    for (int k = 0; k < 2; k++) {
        int shift = 0;
        for (;; shift += 7) {
            if (!m->n || shift > 63) return false;
            unsigned char c = (unsigned char)*m->p;
            *m = (struct str){m->p + 1, m->n - 1};
            v[k] |= (uint64_t)(c & 127) << shift;
            if (!(c & 128)) break;
        }
        if (k == 0 && (v[0] & 7) != 2 && (v[0] & 7) != 0) return false;
    }
    *number = (uint32_t)(v[0] >> 3);
    *bytes = (struct str){m->p, 0};
    if ((v[0] & 7) == 0) return true;
    if (v[1] > m->n) return false;
    *bytes = (struct str){m->p, (size_t)v[1]};
    *m = (struct str){m->p + v[1], m->n - (size_t)v[1]};
    return true;
}

static struct str field_of(struct str m, uint32_t wanted)
{
    uint32_t number;
    struct str bytes;
    while (next_field(&m, &number, &bytes))
        if (number == wanted) return bytes;
    return (struct str){0};
}

/* "package.Name", "package.Name.Nested" or "package.Service.Method": is the top-level name in this file? */
static bool declares(struct str file, struct str symbol)
{
    struct str package = field_of(file, 2), bytes, all = file;
    uint32_t number;
    if (symbol.n <= package.n + 1 || !str_starts(symbol, package) || symbol.p[package.n] != '.') return false;
    struct str name = {symbol.p + package.n + 1, symbol.n - package.n - 1};
    const char *dot = memchr(name.p, '.', name.n);
    if (dot) name.n = (size_t)(dot - name.p);
    while (next_field(&all, &number, &bytes))
        if ((number == 4 || number == 5 || number == 6) && str_eq(field_of(bytes, 1), name)) return true;
    return false;
}

static struct str find_file(struct str name, bool symbol)
{
    struct str all = {(const char *)rose_descriptors_begin, (size_t)(rose_descriptors_end - rose_descriptors_begin)}, file;
    uint32_t number;
    while (next_field(&all, &number, &file))
        if (number == 1 && (symbol ? declares(file, name) : str_eq(field_of(file, 1), name))) return file;
    return (struct str){0};
}

void rpc_reflect(struct rpc *r, struct str data)
{
    Grpc__Reflection__V1__ServerReflectionResponse m = GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__INIT;
    Grpc__Reflection__V1__FileDescriptorResponse files = GRPC__REFLECTION__V1__FILE_DESCRIPTOR_RESPONSE__INIT;
    Grpc__Reflection__V1__ListServiceResponse services = GRPC__REFLECTION__V1__LIST_SERVICE_RESPONSE__INIT;
    Grpc__Reflection__V1__ErrorResponse error = GRPC__REFLECTION__V1__ERROR_RESPONSE__INIT;
    static const char *const names[] = {"inference.GRPCInferenceService", "grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection"};
    Grpc__Reflection__V1__ServiceResponse rows[ROSE_COUNT(names)], *list[ROSE_COUNT(names)];
    ProtobufCBinaryData bytes;
    Grpc__Reflection__V1__ServerReflectionRequest *q = NULL;
    if (rpc_wire_check(&grpc__reflection__v1__server_reflection_request__descriptor, data)) q = grpc__reflection__v1__server_reflection_request__unpack(NULL, data.n, (const uint8_t *)data.p);
    if (!q) {
        rpc_finish(r, GRPC_STATUS_INVALID_ARGUMENT, "the message is no ServerReflectionRequest");
        return;
    }
    bool symbol = q->message_request_case == GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_FILE_CONTAINING_SYMBOL;
    m.valid_host = q->host;
    m.original_request = q;
    m.message_response_case = GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_ERROR_RESPONSE;
    m.error_response = &error;
    error.error_code = GRPC_STATUS_NOT_FOUND;
    error.error_message = (char *)"there is no such file, symbol or extension";
    if (q->message_request_case == GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_LIST_SERVICES) {
        for (size_t i = 0; i < ROSE_COUNT(names); i++) {
            grpc__reflection__v1__service_response__init(&rows[i]);
            rows[i].name = (char *)(uintptr_t)names[i];
            list[i] = &rows[i];
        }
        services.service = list;
        services.n_service = ROSE_COUNT(names);
        m.message_response_case = GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_LIST_SERVICES_RESPONSE;
        m.list_services_response = &services;
    } else if (symbol || q->message_request_case == GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_FILE_BY_FILENAME) {
        struct str file = find_file(str_of(symbol ? q->file_containing_symbol : q->file_by_filename), symbol);
        bytes = (ProtobufCBinaryData){file.n, (uint8_t *)(uintptr_t)file.p};
        files.file_descriptor_proto = &bytes;
        files.n_file_descriptor_proto = 1;
        if (file.n) {
            m.message_response_case = GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_FILE_DESCRIPTOR_RESPONSE;
            m.file_descriptor_response = &files;
        }
    }
    rpc_send(r, &m.base);
    protobuf_c_message_free_unpacked(&q->base, NULL);
}
#else
typedef int rpc_health_is_not_built;
#endif
