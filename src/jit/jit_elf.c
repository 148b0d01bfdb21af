/* ELF, 64-bit little-endian (System V ABI, "Object files"). Cubins keep what a kernel uses in sections of
 * NVIDIA's own:
 *
 *     .nv.info            records {format u8, attribute u8, size u16, payload}; payload {symbol u32, value
 * u32} for 0x2f registers, 0x11 frame bytes, 0x12 minimum stack bytes .nv.info.<entry>    there is one for
 * each __global__ function .nv.shared.<entry>  its static shared memory (no contents, a size)
 */
#include "jit/jit_elf.h"

#include <string.h>

enum { EM_CUDA = 190, SHT_NOBITS = 8, PT_NOTE = 4 };
enum { FORMAT_SIZED = 4, ATTR_FRAME = 0x11, ATTR_STACK = 0x12, ATTR_REGISTERS = 0x2f };

static uint64_t load(const uint8_t *p, int bytes)
{
    uint64_t v = 0;
    for (int i = 0; i < bytes; i++) v |= (uint64_t)p[i] << 8 * i;
    return v;
}

static bool inside(size_t n, uint64_t offset, uint64_t size)
{
    return offset <= n && size <= n - offset;
}

static bool is_elf64(const uint8_t *data, size_t n)
{
    return n >= 64 && !memcmp(data, "\177ELF\2\1", 6);
}

bool jit_elf_is_cubin(const uint8_t *data, size_t n)
{
    return is_elf64(data, n) && load(data + 18, 2) == EM_CUDA;
}

/* Notes: {name size u32, desc size u32, type u32, name padded to 4, desc padded to 4}. */
static bool find_note(const uint8_t *p, size_t n, char out[65])
{
    static const char hex[] = "0123456789abcdef";
    for (size_t at = 0; n - at >= 12;) {
        uint64_t name = load(p + at, 4), desc = load(p + at + 4, 4), type = load(p + at + 8, 4);
        uint64_t name_pad = (name + 3) / 4 * 4, desc_pad = (desc + 3) / 4 * 4;
        if (!inside(n - at - 12, 0, name_pad + desc_pad)) return false;
        if (type == 3 && name == 4 && !memcmp(p + at + 12, "GNU", 4) && desc > 0 && desc <= 32) {
            const uint8_t *id = p + at + 12 + name_pad;
            for (size_t i = 0; i < desc; i++) out[2 * i] = hex[id[i] >> 4], out[2 * i + 1] = hex[id[i] & 15];
            out[2 * desc] = '\0';
            return true;
        }
        at += (size_t)(12 + name_pad + desc_pad);
    }
    return false;
}

bool jit_elf_build_id(const uint8_t *data, size_t n, char out[65])
{
    if (!is_elf64(data, n)) return false;
    uint64_t offset = load(data + 32, 8), size = load(data + 54, 2), count = load(data + 56, 2);
    if (size < 56 || !inside(n, offset, size * count)) return false;
    for (uint64_t i = 0; i < count; i++) {
        const uint8_t *h = data + offset + i * size;
        uint64_t at = load(h + 8, 8), bytes = load(h + 32, 8);
        if (load(h, 4) == PT_NOTE && inside(n, at, bytes) && find_note(data + at, (size_t)bytes, out))
            return true;
    }
    return false;
}

/* ---- cubins ---- */

struct sections {
    const uint8_t *data;
    size_t n;
    uint64_t table, entry, count;
    uint64_t names, names_size; /* the section name strings */
};

static bool open_sections(const uint8_t *data, size_t n, struct sections *s)
{
    if (!jit_elf_is_cubin(data, n)) return false;
    *s = (struct sections){data, n, load(data + 40, 8), load(data + 58, 2), load(data + 60, 2), 0, 0};
    uint64_t names = load(data + 62, 2);
    if (s->entry < 64 || !inside(n, s->table, s->entry * s->count) || names >= s->count) return false;
    const uint8_t *h = data + s->table + names * s->entry;
    s->names = load(h + 24, 8), s->names_size = load(h + 32, 8);
    return inside(n, s->names, s->names_size) && s->names_size > 0 &&
           data[s->names + s->names_size - 1] == '\0';
}

static const char *section_name(const struct sections *s, uint64_t i)
{
    uint64_t at = load(s->data + s->table + i * s->entry, 4);
    return at < s->names_size ? (const char *)s->data + s->names + at : "";
}

/* Contents of section i; NULL for one without. */
static const uint8_t *section_data(const struct sections *s, uint64_t i, size_t *size)
{
    const uint8_t *h = s->data + s->table + i * s->entry;
    uint64_t at = load(h + 24, 8), bytes = load(h + 32, 8);
    *size = (size_t)bytes;
    if (load(h + 4, 4) == SHT_NOBITS) return NULL;
    return inside(s->n, at, bytes) ? s->data + at : NULL;
}

static struct jit_entry *find_entry(struct jit_entry *e, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (!strcmp(e[i].name, name)) return &e[i];
    return NULL;
}

/* Name of symbol i of .symtab. */
static const char *symbol_name(const struct sections *s, uint64_t symbol)
{
    for (uint64_t i = 0; i < s->count; i++) {
        size_t n, strings_n;
        if (strcmp(section_name(s, i), ".symtab")) continue;
        const uint8_t *symbols = section_data(s, i, &n);
        uint64_t link = load(s->data + s->table + i * s->entry + 40, 4);
        if (!symbols || link >= s->count || !inside(n, symbol * 24, 24)) return NULL;
        const uint8_t *strings = section_data(s, link, &strings_n);
        uint64_t at = load(symbols + symbol * 24, 4);
        if (!strings || at >= strings_n || strings[strings_n - 1] != '\0') return NULL;
        return (const char *)strings + at;
    }
    return NULL;
}

static void read_info(const struct sections *s, const uint8_t *p, size_t n, struct jit_entry *out,
                      int entries)
{
    for (size_t at = 0; n - at >= 4;) {
        int format = p[at], attribute = p[at + 1];
        size_t size = format == FORMAT_SIZED ? (size_t)load(p + at + 2, 2)
                                             : 0; /* other formats hold their value in place */
        if (!inside(n - at - 4, 0, size)) return;
        if (format == FORMAT_SIZED && size == 8) {
            const char *name = symbol_name(s, load(p + at + 4, 4));
            struct jit_entry *e = name ? find_entry(out, entries, name) : NULL;
            int64_t value = (int64_t)load(p + at + 8, 4);
            if (e && attribute == ATTR_REGISTERS) e->registers = (int)value;
            if (e && attribute == ATTR_FRAME) e->stack_bytes = value;
        }
        at += 4 + size;
    }
}

int jit_elf_entries(const uint8_t *data, size_t n, struct jit_entry *out)
{
    static const char info[] = ".nv.info.", shared[] = ".nv.shared.";
    struct sections s;
    int entries = 0;
    if (!open_sections(data, n, &s)) return 0;
    for (uint64_t i = 0; i < s.count && entries < JIT_MAX_ENTRIES; i++) {
        const char *name = section_name(&s, i);
        if (strncmp(name, info, sizeof info - 1) || strlen(name) - (sizeof info - 1) >= sizeof out->name)
            continue;
        struct jit_entry *e = &out[entries++];
        *e = (struct jit_entry){.spill_stores = -1, .spill_loads = -1};
        memcpy(e->name, name + sizeof info - 1, strlen(name) - (sizeof info - 1) + 1);
    }
    for (uint64_t i = 0; i < s.count; i++) {
        const char *name = section_name(&s, i);
        size_t size;
        const uint8_t *p = section_data(&s, i, &size);
        struct jit_entry *e = strncmp(name, shared, sizeof shared - 1)
                                  ? NULL
                                  : find_entry(out, entries, name + sizeof shared - 1);
        if (e) e->shared_bytes = (int64_t)size;
        if (p && !strcmp(name, ".nv.info")) read_info(&s, p, size, out, entries);
    }
    return entries;
}
