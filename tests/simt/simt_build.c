/* Compiles a kernel's source with its constants into a shared object and opens it: the harness's JIT. */
#define _GNU_SOURCE
#include "simt_internal.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef SIMT_CC
#define SIMT_CC "cc"
#endif
#ifndef SIMT_CACHE
#define SIMT_CACHE "build/simt"
#endif

static struct simt_kernel *loaded;

static void die(const char *what, const char *detail)
{
    fprintf(stderr, "simt: %s: %s\n", what, detail);
    exit(1);
}

static void mkdirs(const char *path)
{
    char p[512];
    snprintf(p, sizeof p, "%s", path);
    for (char *s = p + 1; *s; s++)
        if (*s == '/') *s = 0, mkdir(p, 0777), *s = '/';
    mkdir(p, 0777);
}

/* FNV-1a over everything that can end up in the object: the preprocessed text. */
static uint64_t hash_stream(FILE *f, uint64_t h)
{
    int c;
    while ((c = getc(f)) != EOF) h = (h ^ (uint64_t)(unsigned char)c) * 0x100000001b3ull;
    return h;
}

static void run(const char *command)
{
    int rc = system(command);
    if (rc) die("compiling failed", command);
}

static int find_end(struct dl_phdr_info *info, size_t size, void *data)
{
    struct simt_kernel *k = data;
    (void)size;
    if (info->dlpi_addr != k->base) return 0;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_LOAD &&
            k->base + info->dlpi_phdr[i].p_vaddr + info->dlpi_phdr[i].p_memsz > k->end)
            k->end = k->base + info->dlpi_phdr[i].p_vaddr + info->dlpi_phdr[i].p_memsz;
    return 1;
}

/* An entry of a compiled kernel; NULL with a message on standard error. */
static struct simt_kernel *open_kernel(const char *so, const char *entry, uint32_t arch)
{
    char path[1100], info[256];
    snprintf(path, sizeof path, "%s%s", *so == '/' ? "" : "./", so);
    snprintf(info, sizeof info, "%s_info", entry);
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    struct simt_kernel *k = calloc(1, sizeof *k);
    if (handle) *(void **)&k->entry = dlsym(handle, entry);
    if (handle) k->info = dlsym(handle, info);
    if (!k->entry || !k->info) {
        const char *why = dlerror();
        fprintf(stderr, "simt: %s: no kernel %s (is it declared with KERNEL?) %s\n", so, entry, why ? why : "");
        if (handle) dlclose(handle);
        free(k);
        return NULL;
    }
    k->entry_name = strdup(entry);
    k->arch = arch;
    Dl_info where;
    dladdr(*(void **)&k->entry, &where);
    k->base = (uintptr_t)where.dli_fbase;
    dl_iterate_phdr(find_end, k);
    return k;
}

const struct simt_kernel *simt_kernel_open(const char *so, const char *entry, uint32_t arch)
{
    return open_kernel(so, entry, arch);
}

const struct simt_kernel *simt_kernel(const char *file, const char *entry, const char *constants)
{
    char key[2048];
    snprintf(key, sizeof key, "%s %s", file, constants);
    for (struct simt_kernel *k = loaded; k; k = k->next)
        if (!strcmp(k->file, key) && !strcmp(k->entry_name, entry)) return k;

    char defines[2048] = "";
    size_t n = 0;
    char *copy = strdup(constants), *save = NULL;
    for (char *c = strtok_r(copy, " ", &save); c; c = strtok_r(NULL, " ", &save))
        n += (size_t)snprintf(defines + n, sizeof defines - n, " -D'%s'", c);
    const char *arch = strstr(constants, "ROSE_ARCH=");
    if (!arch || n >= sizeof defines)
        die("constants need ROSE_ARCH=800|890|900|1000|1200 and fit 2 KB", constants);
    free(copy);

    /* -O1 keeps one hook an access and lines exact (of which -g1 has what a report needs, for three quarters of the time); func-entry hooks are of no use here. */
    static const char flags[] =
        "-x c -std=gnu17 -O1 -g1 -fPIC -fsanitize=thread -fno-tree-vectorize -ffp-contract=off "
        "-fno-optimize-sibling-calls -Wall -Werror -Wno-unused -Wno-unknown-pragmas -Wno-psabi "
        "-fvisibility=hidden -Isrc -Itests/simt -DROSE_SIMT"
#ifdef SIMT_CC_CLANG /* it leaves out reads that a write to the same place follows, and loops that it takes for memcpy */
        " -mllvm -tsan-instrument-read-before-write=1 -mllvm -disable-loop-idiom-all"
#endif
        ;
    char command[6000], cpp[2400];
    snprintf(cpp, sizeof cpp, "%s -E -P %s%s %s", SIMT_CC, flags, defines, file);
    FILE *pipe = popen(cpp, "r");
    uint64_t h = pipe ? hash_stream(pipe, 0xcbf29ce484222325ull) : 0;
    if (!pipe || pclose(pipe)) die("cannot preprocess (run from the repository's root)", cpp);
    for (const char *p = flags; *p; p++) h = (h ^ (uint64_t)(unsigned char)*p) * 0x100000001b3ull;

    const char *stem = strrchr(file, '/') ? strrchr(file, '/') + 1 : file;
    char so[600], tmp[700];
    snprintf(so, sizeof so, "%s/%s.%016llx.so", SIMT_CACHE, stem, (unsigned long long)h);
    if (access(so, R_OK)) {
        mkdirs(SIMT_CACHE);
        snprintf(tmp, sizeof tmp, "%s.%d", so, (int)getpid());
        snprintf(command, sizeof command, "%s %s%s -c %s -o %s.o && %s -shared -o %s %s.o && rm -f %s.o",
                 SIMT_CC, flags, defines, file, tmp, SIMT_CC, tmp, tmp, tmp);
        run(command);
        if (rename(tmp, so)) die(so, strerror(errno));
    }
    struct simt_kernel *k = open_kernel(so, entry, (uint32_t)atoi(arch + strlen("ROSE_ARCH=")));
    if (!k) die("cannot open a compiled kernel", so);
    k->file = strdup(key);
    k->next = loaded;
    loaded = k;
    return k;
}
