#include "server/cuda_shm.h"

#include <string.h>

#include "rose.h"

bool cuda_shm_add(struct regions *r, struct rose_device *device, struct str name, struct str handle, int64_t gpu, uint64_t bytes, struct api_error *e)
{
    struct rose_error err = {0};
    int n = (int)ROSE_MIN(name.n, 100);
    struct region *g = regions_new(r, name, e);
    if (!g) return false;
    enum rose_status s = device ? rose_memory_open(device, handle.p, handle.n, gpu, (size_t)bytes, &g->memory, &err) : ROSE_UNSUPPORTED;
    if (s != ROSE_OK) {
        regions_drop(g);
        if (s == ROSE_UNSUPPORTED)
            return api_error_set(e, 501, "invalid_request_error", NULL, NULL, "failed to register CUDA shared memory region: '%.*s', GPUs not supported", n, name.p);
        return api_error_field(e, NULL, "failed to register CUDA shared memory region '%.*s': %.300s", n, name.p, err.message);
    }
    g->gpu = (int)gpu;
    g->bytes = (size_t)bytes;
    return regions_keep(r, g, e);
}

/* RFC 4648 with padding into out; the number of bytes, or -1: not that, or more than `room`. */
static int from_base64(struct str s, uint8_t *out, int room)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    int n = 0, pad = 0;
    uint32_t bits = 0;
    if (s.n % 4 || s.n > 4096) return -1;
    for (size_t i = 0; i < s.n; i++) {
        const char *at = s.p[i] && s.p[i] != '=' ? strchr(letters, s.p[i]) : NULL;
        if (s.p[i] == '=' && i + 2 >= s.n) pad++;
        else if (!at || pad) return -1;
        bits = bits << 6 | (at ? (uint32_t)(at - letters) : 0);
        if (i % 4 != 3) continue;
        for (int k = 0; k < 3 - pad; k++) {
            if (n == room) return -1;
            out[n++] = (uint8_t)(bits >> (16 - 8 * k));
        }
        bits = 0;
    }
    return n;
}

bool cuda_shm_add_json(struct regions *r, struct rose_device *device, struct str name, const struct json *body, struct api_error *e)
{
    const struct json *raw = json_path(body, "raw_handle.b64"), *gpu = json_get(body, "device_id"), *bytes = json_get(body, "byte_size");
    uint8_t handle[256];
    if (!raw || raw->type != JSON_STRING) return api_error_field(e, "raw_handle", "raw_handle must be {\"b64\": the handle's bytes in base64}");
    int n = from_base64(raw->string, handle, sizeof handle);
    if (n < 0) return api_error_field(e, "raw_handle", "raw_handle.b64 is not a handle in base64");
    if (!gpu || gpu->type != JSON_NUMBER || !gpu->is_integer) return api_error_field(e, "device_id", "device_id must be an integer");
    if (!bytes || bytes->type != JSON_NUMBER || !bytes->is_integer || bytes->integer < 0) return api_error_field(e, "byte_size", "byte_size must be an integer, 0 or more");
    return cuda_shm_add(r, device, name, (struct str){(const char *)handle, (size_t)n}, gpu->integer, (uint64_t)bytes->integer, e);
}

bool cuda_shm_status(const struct regions *r, struct str name, struct strbuf *b)
{
    int shown = 0;
    strbuf_addc(b, '[');
    for (int i = 0; i < r->count; i++) {
        const struct region *g = r->all[i];
        if (!g->memory || (name.n && !str_is(name, g->name))) continue;
        strbuf_adds(b, shown++ ? ",{\"name\":" : "{\"name\":");
        json_add_str(b, str_of(g->name));
        strbuf_printf(b, ",\"device_id\":%d,\"byte_size\":%zu}", g->gpu, g->bytes);
    }
    strbuf_addc(b, ']');
    return shown || !name.n;
}
