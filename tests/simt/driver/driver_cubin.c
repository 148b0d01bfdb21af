/* The image a compiled kernel travels in: an ELF file for EM_CUDA, as jit/jit_elf.c reads cubins, with the
 * shared object in a section of its own.
 *
 *     .nv.info.<entry>   one for each kernel, empty
 *     .nv.info           {4, 0x2f registers, 8, symbol, 0}, {4, 0x11 frame, 8, symbol, 0} for each: what only
 * the GPU's compiler knows is 0; its spills are said nowhere, which jit/ shows as unknown .symtab .strtab the
 * kernels' names .rose.simt         struct payload, then the shared object
 */
#define _GNU_SOURCE
#include "driver_internal.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef SIMT_CACHE
#define SIMT_CACHE "build/simt"
#endif
enum { MAX_ENTRIES = 16, SECTIONS = MAX_ENTRIES + 6 };
#ifndef EM_CUDA
#define EM_CUDA 190
#endif

struct payload {
    char magic[8];
    uint32_t arch;
    char hash[40];
    uint64_t bytes;
};
static const char magic[8] = {'s', 'i', 'm', 't', 's', 'o', '1', SIMT_DRIVER_MODE};

/* ---- the kernels of a shared object: NAME where there is a NAME_info ---- */
static int find_entries(const unsigned char *so, size_t n, char names[MAX_ENTRIES][64])
{
    const Elf64_Ehdr *h = (const Elf64_Ehdr *)so;
    int count = 0;
    if (n < sizeof *h || h->e_shoff + (uint64_t)h->e_shnum * sizeof(Elf64_Shdr) > n) return 0;
    const Elf64_Shdr *s = (const Elf64_Shdr *)(so + h->e_shoff);
    for (int i = 0; i < h->e_shnum; i++) {
        if (s[i].sh_type != SHT_DYNSYM) continue;
        const Elf64_Sym *symbol = (const Elf64_Sym *)(so + s[i].sh_offset);
        const char *text = (const char *)so + s[s[i].sh_link].sh_offset;
        for (size_t k = 0; k < s[i].sh_size / sizeof *symbol; k++) {
            const char *name = text + symbol[k].st_name;
            size_t length = strlen(name);
            if (ELF64_ST_TYPE(symbol[k].st_info) != STT_OBJECT || symbol[k].st_shndx == SHN_UNDEF ||
                length < 6 || length - 5 >= 64 || strcmp(name + length - 5, "_info") || count == MAX_ENTRIES)
                continue;
            snprintf(names[count++], 64, "%.*s", (int)(length - 5), name);
        }
    }
    return count;
}

/* ---- writing ---- */
struct image {
    unsigned char *p;
    size_t n;
    Elf64_Shdr s[SECTIONS];
    char names[2048];
    size_t names_n;
    int count;
};

static Elf64_Shdr *section(struct image *m, const char *name, uint32_t type, const void *data, size_t n)
{
    Elf64_Shdr *s = &m->s[m->count++];
    *s = (Elf64_Shdr){.sh_name = (uint32_t)m->names_n,
                      .sh_type = type,
                      .sh_offset = m->n,
                      .sh_size = n,
                      .sh_addralign = 16};
    m->names_n += (size_t)snprintf(m->names + m->names_n, sizeof m->names - m->names_n, "%s", name) + 1;
    if (n) memcpy(m->p + m->n, data, n);
    m->n = (m->n + n + 15) & ~(size_t)15;
    return s;
}

bool driver_cubin_write(uint32_t arch, const char *hash, const unsigned char *so, size_t n,
                        unsigned char **out, size_t *out_n, char *why, size_t why_size)
{
    char entries[MAX_ENTRIES][64], name[100], strings[MAX_ENTRIES * 64 + 1] = "";
    Elf64_Sym symbols[MAX_ENTRIES + 1] = {0};
    unsigned char info[MAX_ENTRIES * 24];
    size_t strings_n = 1;
    int count = find_entries(so, n, entries);
    if (!count) {
        snprintf(why, why_size, "the source has no KERNEL");
        return false;
    }
    for (int i = 0; i < count; i++) {
        symbols[i + 1] = (Elf64_Sym){.st_name = (uint32_t)strings_n, .st_info = STT_FUNC, .st_shndx = 1};
        strings_n += (size_t)snprintf(strings + strings_n, 64, "%s", entries[i]) + 1;
        for (int k = 0; k < 2; k++) {
            const uint32_t record[3] = {0x00080004u | (k ? 0x1100u : 0x2f00u), (uint32_t)i + 1, 0};
            memcpy(info + 24 * i + 12 * k, record, 12);
        }
    }
    struct payload load = {.arch = arch, .bytes = n};
    memcpy(load.magic, magic, 8);
    snprintf(load.hash, sizeof load.hash, "%s", hash);
    struct image m = {.p = calloc(1, n + 32768), .n = sizeof(Elf64_Ehdr)};
    unsigned char *body = malloc(sizeof load + n);
    if (!m.p || !body) {
        free(m.p);
        free(body);
        snprintf(why, why_size, "out of memory");
        return false;
    }
    memcpy(body, &load, sizeof load);
    memcpy(body + sizeof load, so, n);
    section(&m, "", SHT_NULL, NULL, 0);
    section(&m, ".rose.simt", SHT_PROGBITS, body, sizeof load + n);
    section(&m, ".strtab", SHT_STRTAB, strings, strings_n);
    Elf64_Shdr *table = section(&m, ".symtab", SHT_SYMTAB, symbols, sizeof *symbols * ((size_t)count + 1));
    table->sh_link = 2, table->sh_entsize = sizeof *symbols, table->sh_info = 1;
    section(&m, ".nv.info", SHT_PROGBITS, info, 24 * (size_t)count);
    for (int i = 0; i < count; i++) {
        snprintf(name, sizeof name, ".nv.info.%.63s", entries[i]);
        section(&m, name, SHT_PROGBITS, NULL, 0);
    }
    int names = m.count;
    section(&m, ".shstrtab", SHT_STRTAB, NULL, 0);
    m.s[names].sh_size = m.names_n;
    memcpy(m.p + m.n, m.names, m.names_n);
    m.n = (m.n + m.names_n + 15) & ~(size_t)15;
    Elf64_Ehdr h = {.e_type = ET_EXEC,
                    .e_machine = EM_CUDA,
                    .e_version = 1,
                    .e_shoff = m.n,
                    .e_ehsize = sizeof h,
                    .e_shentsize = sizeof *m.s,
                    .e_shnum = (uint16_t)m.count,
                    .e_shstrndx = (uint16_t)names};
    memcpy(h.e_ident, "\177ELF\2\1\1", 7);
    memcpy(m.p, &h, sizeof h);
    memcpy(m.p + m.n, m.s, sizeof *m.s * (size_t)m.count);
    *out = m.p;
    *out_n = m.n + sizeof *m.s * (size_t)m.count;
    free(body);
    return true;
}

/* jit/ verified the bytes against their checksum; the image comes without its size, so that the headers are
 * believed. */
bool driver_cubin_read(const void *image, uint32_t *arch, char hash[40], const unsigned char **so, size_t *n)
{
    Elf64_Ehdr h;
    Elf64_Shdr s;
    struct payload load;
    memcpy(&h, image, sizeof h);
    if (memcmp(h.e_ident, "\177ELF\2\1", 6) || h.e_machine != EM_CUDA || h.e_shnum < 2) return false;
    memcpy(&s, (const char *)image + h.e_shoff + sizeof s, sizeof s);
    if (s.sh_size < sizeof load) return false;
    memcpy(&load, (const char *)image + s.sh_offset, sizeof load);
    if (memcmp(load.magic, magic, 8) || load.bytes != s.sh_size - sizeof load) return false;
    *arch = load.arch;
    memcpy(hash, load.hash, 40);
    *so = (const unsigned char *)image + s.sh_offset + sizeof load;
    *n = load.bytes;
    return true;
}

/* ---- the cache of shared objects ---- */
static void mkdirs(const char *path)
{
    char p[600];
    snprintf(p, sizeof p, "%s", path);
    for (char *s = p + 1; *s; s++)
        if (*s == '/') *s = 0, mkdir(p, 0777), *s = '/';
    mkdir(p, 0777);
}

void driver_cache_path(const char *hash, char *out, size_t size)
{
    mkdirs(SIMT_CACHE "/driver");
    snprintf(out, size, "%s/driver/%s.so", SIMT_CACHE, hash);
}

bool driver_cache_write(const char *path, const unsigned char *bytes, size_t n)
{
    char tmp[760];
    if (!access(path, R_OK)) return true;
    snprintf(tmp, sizeof tmp, "%s.%d", path, (int)getpid());
    FILE *f = fopen(tmp, "wb");
    if (!f) {
        fprintf(stderr, "simt driver: %s: %s\n", tmp, strerror(errno));
        return false;
    }
    bool ok = fwrite(bytes, 1, n, f) == n;
    ok = fclose(f) == 0 && ok;
    return ok && rename(tmp, path) == 0;
}
