/* What protobuf-c does not look at: texts on the wire that are not UTF-8, or that have NUL in them, which its C strings would cut. */
#ifdef ROSE_HAVE_GRPC
#include "base/utf8.h"
#include "server/rpc_api.h"

static bool varint(struct str *m, uint64_t *out)
{
    uint64_t v = 0;
    for (int shift = 0; m->n && shift < 64; shift += 7) {
        unsigned char c = (unsigned char)*m->p;
        *m = (struct str){m->p + 1, m->n - 1};
        v |= (uint64_t)(c & 127) << shift;
        if (!(c & 128)) return *out = v, true;
    }
    return false;
}

/* A field's number, its wire type and, where it has a length, its bytes. */
static bool next_field(struct str *m, uint64_t *number, struct str *bytes)
{
    uint64_t key, n = 0;
    *bytes = (struct str){NULL, 0};
    if (!varint(m, &key)) return false;
    *number = key >> 3;
    switch (key & 7) {
    case 0: return varint(m, &n);
    case 1: n = 8; break;
    case 5: n = 4; break;
    case 2:
        if (!varint(m, &n)) return false;
        bytes->p = m->p;
        bytes->n = (size_t)ROSE_MIN(n, (uint64_t)m->n);
        break;
    default: return false; /* groups: proto3 has none */
    }
    if (n > m->n) return false;
    *m = (struct str){m->p + n, m->n - (size_t)n};
    return true;
}

/* Messages nest as deep as the descriptor does: none of ours holds its own kind. */
bool rpc_wire_check(const ProtobufCMessageDescriptor *d, struct str m)
{
    uint64_t number;
    struct str bytes;
    while (m.n) {
        if (!next_field(&m, &number, &bytes)) return false;
        const ProtobufCFieldDescriptor *f = bytes.p && number <= INT32_MAX ? protobuf_c_message_descriptor_get_field(d, (unsigned)number) : NULL;
        if (!f) continue;
        if (f->type == PROTOBUF_C_TYPE_STRING && (memchr(bytes.p, 0, bytes.n) || !utf8_valid(bytes))) return false;
        if (f->type == PROTOBUF_C_TYPE_MESSAGE && !rpc_wire_check(f->descriptor, bytes)) return false;
    }
    return true;
}

void rpc_wire_clean(char *text)
{
    struct str rest = str_of(text);
    uint32_t cp;
    while (rest.n) {
        size_t n = utf8_decode(rest, &cp);
        if (cp == UTF8_INVALID) memset(text + (rest.p - text), '?', n);
        rest = (struct str){rest.p + n, rest.n - n};
    }
}
#else
typedef int rpc_wire_is_not_built;
#endif
