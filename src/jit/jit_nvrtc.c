#define _GNU_SOURCE
#include "jit/jit_nvrtc.h"

#include <dlfcn.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/hash.h"
#include "jit/jit_elf.h"

const char *const jit_nvrtc_flags[] = {
    "--std=c++17", "--generate-line-info", "--ptxas-options=-v", /* registers and spills into the log */
    "-no-source-include",                                        /* no file of this machine may be included */
    "--fmad=false", /* a * b + c rounds twice, as in tests/simt; kernels write fma_f32 where they mean one */
};
const size_t jit_nvrtc_flags_count = ROSE_COUNT(jit_nvrtc_flags);
/* What NVRTC would read for every kernel and none uses: textures and the runtime's functions (12.4 and later know the first option),
 * std::move, forward and initializer_list. The machine code is the same. A compiler that refuses one of them gets none. */
static const char *const less[] = {"--minimal", "--builtin-move-forward=false", "--builtin-initializer-list=false"};

/* ---- finding ---- */

/* "libnvrtc.so.13" -> 13; 0 for anything else (libnvrtc.alt.so.13, libnvrtc-builtins.so.13.0). */
static int library_major(const char *path)
{
    const char *name = strrchr(path, '/');
    char rest;
    int major;
    name = name ? name + 1 : path;
    if (sscanf(name, "libnvrtc.so.%d%c", &major, &rest) >= 1 && major > 0 && major < 1000) return major;
    return 0;
}

static void note_looked(struct jit_nvrtc *n, const char *place)
{
    size_t used = strlen(n->looked);
    snprintf(n->looked + used, sizeof n->looked - used, "%s%s", used ? ", " : "", place);
}

/* The newest libnvrtc.so.N of the directories that a pattern matches. */
static bool find_in(struct jit_nvrtc *n, const char *directory)
{
    char pattern[1100];
    glob_t g;
    int best = 0;
    if (snprintf(pattern, sizeof pattern, "%s/libnvrtc.so.*", directory) >= (int)sizeof pattern) return false;
    note_looked(n, directory);
    if (glob(pattern, 0, NULL, &g) != 0) return false;
    for (size_t i = 0; i < g.gl_pathc; i++) {
        int major = library_major(g.gl_pathv[i]);
        /* A dangling link is not a library. */
        if (major > best && strlen(g.gl_pathv[i]) < sizeof n->path && file_exists(g.gl_pathv[i]))
            best = major, strcpy(n->path, g.gl_pathv[i]);
    }
    globfree(&g);
    return best > 0;
}

static bool find_below(struct jit_nvrtc *n, const char *root, const char *const *below, size_t count)
{
    char directory[1024];
    for (size_t i = 0; root && *root && i < count; i++)
        if (snprintf(directory, sizeof directory, "%s/%s", root, below[i]) < (int)sizeof directory &&
            find_in(n, directory))
            return true;
    return false;
}

static bool find_path(const struct jit_places *p, struct jit_nvrtc *n)
{
    static const char *const toolkit[] = {"lib64", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"};
    static const char *const wheel[] = {"lib/python3*/site-packages/nvidia/cu1[0-9]/lib",
                                        "lib/python3*/site-packages/nvidia/cuda_nvrtc/lib",
                                        "lib/python3*/dist-packages/nvidia/cu1[0-9]/lib",
                                        "lib/python3*/dist-packages/nvidia/cuda_nvrtc/lib", "lib"};
    static const char *const user[] = {".local/lib/python3*/site-packages/nvidia/cu1[0-9]/lib",
                                       ".local/lib/python3*/site-packages/nvidia/cuda_nvrtc/lib"};
    static const char *const system[] = {"/usr/local/cuda", "/usr/local/cuda-1[0-9]*", "/opt/cuda",
                                         "/usr/lib/cuda"};
    if (p->path && *p->path) {
        if (file_is_dir(p->path)) return find_in(n, p->path);
        note_looked(n, p->path);
        if (!file_exists(p->path) || strlen(p->path) >= sizeof n->path) return false;
        strcpy(n->path, p->path);
        return true;
    }
    if (find_below(n, p->cuda_home, toolkit, ROSE_COUNT(toolkit)) ||
        find_below(n, p->venv, wheel, ROSE_COUNT(wheel)))
        return true;
    for (size_t i = 0; i < ROSE_COUNT(system); i++)
        if (find_below(n, system[i], toolkit, ROSE_COUNT(toolkit))) return true;
    if (find_below(n, p->home, user, ROSE_COUNT(user))) return true;
    return find_below(n, "/usr/local", wheel, 4) || find_below(n, "/usr", wheel, 4);
}

/* Last, what the dynamic loader finds (LD_LIBRARY_PATH, ld.so.conf). That loads it. */
static void find_by_loader(struct jit_nvrtc *n)
{
    static const char *const names[] = {"libnvrtc.so.13", "libnvrtc.so.12"};
    note_looked(n, "the loader's libnvrtc.so.13 and .12");
    for (size_t i = 0; i < ROSE_COUNT(names) && !*n->path; i++) {
        void *library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL),
             *symbol = library ? dlsym(library, "nvrtcVersion") : NULL;
        Dl_info info;
        if (symbol && dladdr(symbol, &info) && info.dli_fname && strlen(info.dli_fname) < sizeof n->path)
            strcpy(n->path, info.dli_fname);
        if (library) dlclose(library);
    }
}

static enum rose_status read_identity(struct jit_nvrtc *n, struct rose_error *err)
{
    struct file_map map;
    char build[65];
    int major = library_major(n->path);
    ROSE_TRY(file_map_open(&map, n->path, err));
    if (!jit_elf_build_id(map.data, map.size, build)) {
        /* Without a build id the contents have to speak for themselves. */
        uint8_t digest[32];
        struct sha256 h;
        sha256_init(&h);
        sha256_add(&h, map.data, map.size);
        sha256_end(&h, digest);
        sha256_hex(digest, build);
    }
    file_map_close(&map);
    build[12] = '\0';
    if (major)
        snprintf(n->id, sizeof n->id, "nvrtc%d-%.12s", major, build);
    else
        snprintf(n->id, sizeof n->id, "nvrtc-%.12s", build);
    return ROSE_OK;
}

enum rose_status jit_nvrtc_find(const struct jit_places *places, struct jit_nvrtc *out,
                                struct rose_error *err)
{
    *out = (struct jit_nvrtc){0};
    if (!find_path(places, out) && !(places->path && *places->path)) find_by_loader(out);
    return *out->path ? read_identity(out, err) : ROSE_OK;
}

/* ---- loading ---- */

enum rose_status jit_nvrtc_load(struct jit_nvrtc *n, struct rose_error *err)
{
    if (n->library) return ROSE_OK;
    if (!*n->path)
        return status_set(err, ROSE_NOT_FOUND,
                          "kernels have to be compiled and NVRTC is not on this machine. Looked in: %s. "
                          "Install the CUDA toolkit or `pip install nvidia-cuda-nvrtc`, "
                          "name its library by ROSE_NVRTC=FILE, or kernels that `rose kernels MODEL --export DIR` wrote elsewhere by ROSE_KERNELS=DIR",
                          n->looked);
    void *library = dlopen(n->path, RTLD_NOW | RTLD_LOCAL);
    if (!library) return status_set(err, ROSE_IO, "NVRTC does not load: %s", dlerror());
    const struct {
        const char *name;
        void **at;
    } symbols[] = {
        {"nvrtcVersion", (void **)&n->version},
        {"nvrtcCreateProgram", (void **)&n->create},
        {"nvrtcDestroyProgram", (void **)&n->destroy},
        {"nvrtcCompileProgram", (void **)&n->compile},
        {"nvrtcGetProgramLogSize", (void **)&n->log_size},
        {"nvrtcGetProgramLog", (void **)&n->log},
        {"nvrtcGetCUBINSize", (void **)&n->cubin_size},
        {"nvrtcGetCUBIN", (void **)&n->cubin},
        {"nvrtcGetPTXSize", (void **)&n->ptx_size},
        {"nvrtcGetPTX", (void **)&n->ptx},
        {"nvrtcGetErrorString", (void **)&n->error_string},
    };
    for (size_t i = 0; i < ROSE_COUNT(symbols); i++) {
        *symbols[i].at = dlsym(library, symbols[i].name);
        if (*symbols[i].at) continue;
        dlclose(library);
        return status_set(err, ROSE_UNSUPPORTED, "%s has no %s; NVRTC 12 or newer is needed", n->path,
                          symbols[i].name);
    }
    n->library = library;
    return ROSE_OK;
}

void jit_nvrtc_unload(struct jit_nvrtc *n)
{
    /* NVRTC keeps threads and thread-local state; it stays mapped. */
    n->library = NULL;
}

/* ---- compiling ---- */

/* "/rose/src/kernels/cuda/x.cu(12): error: …" or "ptxas … error : …". */
enum rose_status jit_nvrtc_log_error(const char *log, const struct jit_closure *c, struct rose_error *err)
{
    const char *kernel = c->main->path;
    for (const char *line = log; line && *line;) {
        const char *end = strchrnul(line, '\n'), *paren = memchr(line, '(', (size_t)(end - line));
        const char *what = memmem(line, (size_t)(end - line), "error", 5);
        int number = 0;
        if (what && paren && paren < what && sscanf(paren, "(%d)", &number) == 1) {
            size_t skip = !strncmp(line, JIT_VIRTUAL_ROOT, sizeof JIT_VIRTUAL_ROOT - 1)
                              ? sizeof JIT_VIRTUAL_ROOT - 1
                              : 0;
            char file[200];
            const struct str path = {line + skip, (size_t)(paren - line) - skip};
            snprintf(file, sizeof file, "%s%.*s", skip ? "src/" : "", (int)ROSE_MIN(path.n, (size_t)180), path.p);
            /* One of the reader's own is where he opens it, not where the binary's was. */
            for (int i = 0; i < c->files; i++)
                if (skip && c->file[i]->overridden && str_is(path, c->file[i]->path)) snprintf(file, sizeof file, "%s", c->file[i]->overridden);
            return status_at_line(err, ROSE_INVALID, file, number, 0,
                                  "kernel %s does not compile: %s:%d: %.*s", kernel, file, number,
                                  (int)ROSE_MIN(end - what, 600), what);
        }
        if (what)
            return status_set(err, ROSE_INVALID, "kernel %s does not compile: %.*s", kernel,
                              (int)ROSE_MIN(end - line, 800), line);
        line = *end ? end + 1 : end;
    }
    return status_set(err, ROSE_INVALID, "kernel %s does not compile: %.800s", kernel,
                      log && *log ? log : "the compiler gave no reason");
}

static char *get_text(void *program, int (*size)(void *, size_t *), int (*get)(void *, char *), size_t *n)
{
    size_t bytes = 0;
    if (size(program, &bytes) != 0 || bytes == 0) return NULL;
    char *text = malloc(bytes + 1);
    if (!text) return NULL;
    if (get(program, text) != 0) {
        free(text);
        return NULL;
    }
    text[bytes] = '\0';
    if (n) *n = bytes;
    return text;
}

/* A program, compiled: NVRTC's result; *program is NULL when it could not be created. */
static int build(struct jit_nvrtc *n, const struct jit_closure *c, const char *const *options, int count, void **program)
{
    const char *text[JIT_MAX_FILES];
    char name[600];
    for (int i = 0; i < c->names; i++) text[i] = c->meant[i]->marked;
    snprintf(name, sizeof name, JIT_VIRTUAL_ROOT "%s", c->main->path);
    *program = NULL;
    int r = n->create(program, c->main->marked, name, c->names, text, c->name);
    if (r == 0) return n->compile(*program, count, options);
    *program = NULL;
    return r;
}

enum { INVALID_OPTION = 5, COMPILATION = 6, MOST_OPTIONS = 128 };

enum rose_status jit_nvrtc_compile(struct jit_nvrtc *n, const struct jit_closure *c,
                                   const char *const *options, int count, bool ptx, char **out, size_t *out_n,
                                   char **log, struct rose_error *err)
{
    const char *all[MOST_OPTIONS];
    void *program = NULL;
    int r = INVALID_OPTION;
    *out = *log = NULL;
    if (count >= 0 && count + (int)ROSE_COUNT(less) <= MOST_OPTIONS) {
        memcpy(all, options, (size_t)count * sizeof *all);
        memcpy(all + count, less, sizeof less);
        r = build(n, c, all, count + (int)ROSE_COUNT(less), &program);
    }
    if (r == INVALID_OPTION) {
        if (program) n->destroy(&program);
        r = build(n, c, options, count, &program);
    }
    if (!program)
        return status_set(err, ROSE_INTERNAL, "nvrtcCreateProgram of %s: %s", c->main->path,
                          n->error_string(r));
    *log = get_text(program, n->log_size, n->log, NULL);
    enum rose_status s = ROSE_OK;
    if (r == 0)
        *out = ptx ? get_text(program, n->ptx_size, n->ptx, out_n)
                   : get_text(program, n->cubin_size, n->cubin, out_n);
    /* Most often an architecture newer than the compiler. */
    if (r == INVALID_OPTION)
        s = status_set(err, ROSE_UNSUPPORTED, "%s refuses an option for kernel %s: %.600s", n->path,
                       c->main->path, *log ? *log : n->error_string(r));
    else if (r == COMPILATION)
        s = jit_nvrtc_log_error(*log, c, err);
    else if (r != 0)
        s = status_set(err, ROSE_INTERNAL, "nvrtcCompileProgram of %s: %s. %.500s", c->main->path,
                       n->error_string(r), *log ? *log : "");
    else if (!*out)
        s = status_set(err, ROSE_INTERNAL, "NVRTC gave no result for %s", c->main->path);
    n->destroy(&program);
    return s;
}
