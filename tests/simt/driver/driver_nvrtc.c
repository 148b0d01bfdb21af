/* NVRTC's functions: a kernel compiled for tests/simt by the host's compiler. */
#define _GNU_SOURCE
#include "driver_internal.h"
#include "simt_tensor_map.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef SIMT_CC
#define SIMT_CC "cc"
#endif
#ifndef SIMT_CACHE
#define SIMT_CACHE "build/simt"
#endif
#ifndef SIMT_ROOT
#define SIMT_ROOT "."
#endif

enum {
    NVRTC_OK,
    NVRTC_MEMORY,
    NVRTC_INPUT = 3,
    NVRTC_OPTION = 5,
    NVRTC_COMPILATION = 6,
    NVRTC_INTERNAL = 11
};

struct program {
    char *source, *name;
    int headers;
    char **text, **as; /* as: the name in #include */
    char *log;
    unsigned char *cubin;
    size_t cubin_n;
};

/* Kernels are linked with this library: their calls come here also where the other one is loaded too. */
static const char *self(void)
{
    Dl_info info;
    return dladdr((void *)(uintptr_t)self, &info) && info.dli_fname ? info.dli_fname : "";
}

#define NVRTC SIMT_EXPORT int
NVRTC nvrtcVersion(int *major, int *minor);
int nvrtcVersion(int *major, int *minor)
{
    *major = 13, *minor = 0;
    return NVRTC_OK;
}
SIMT_EXPORT const char *nvrtcGetErrorString(int result);
const char *nvrtcGetErrorString(int result)
{
    return result == NVRTC_OK            ? "NVRTC_SUCCESS"
           : result == NVRTC_MEMORY      ? "NVRTC_ERROR_OUT_OF_MEMORY"
           : result == NVRTC_INPUT       ? "NVRTC_ERROR_INVALID_INPUT"
           : result == NVRTC_OPTION      ? "NVRTC_ERROR_INVALID_OPTION"
           : result == NVRTC_COMPILATION ? "NVRTC_ERROR_COMPILATION"
                                         : "NVRTC_ERROR_INTERNAL_ERROR";
}

NVRTC nvrtcCreateProgram(void **out, const char *source, const char *name, int headers,
                         const char *const *text, const char *const *as);
int nvrtcCreateProgram(void **out, const char *source, const char *name, int headers, const char *const *text,
                       const char *const *as)
{
    struct program *p = calloc(1, sizeof *p);
    p->source = strdup(source);
    p->name = strdup(name);
    p->headers = headers;
    p->text = calloc((size_t)headers + 1, sizeof *p->text);
    p->as = calloc((size_t)headers + 1, sizeof *p->as);
    for (int i = 0; i < headers; i++) p->text[i] = strdup(text[i]), p->as[i] = strdup(as[i]);
    *out = p;
    return NVRTC_OK;
}
NVRTC nvrtcDestroyProgram(void **out);
int nvrtcDestroyProgram(void **out)
{
    struct program *p = *out;
    for (int i = 0; i < p->headers; i++) free(p->text[i]), free(p->as[i]);
    free(p->text);
    free(p->as);
    free(p->source);
    free(p->name);
    free(p->log);
    free(p->cubin);
    free(p);
    *out = NULL;
    return NVRTC_OK;
}

/* ---- compiling ---- */

/* As simt_build.c, whose tests see the warnings; without the hooks in the fast library. */
static const char flags[] =
#ifdef __clang__
    "-fno-caret-diagnostics "
#else
    "-fno-diagnostics-show-caret "
#endif
    "-x c -std=gnu17 -O1 -g1 -fPIC "
#ifdef SIMT_DRIVER_CHECKED
                            "-fsanitize=thread -fno-optimize-sibling-calls "
#ifdef __clang__
                            "-mllvm -tsan-instrument-read-before-write=1 "
#endif
#endif
                            "-fno-tree-vectorize -ffp-contract=off -w "
                            "-Wno-psabi -fvisibility=hidden -DROSE_SIMT -I" SIMT_ROOT "/tests/simt";

static void hash_add(uint64_t h[2], const char *text)
{
    for (const char *p = text;; p++) {
        h[0] = (h[0] ^ (unsigned char)*p) * 0x100000001b3ull;
        h[1] = (h[1] ^ (unsigned char)*p ^ h[0] >> 57) * 0x9e3779b97f4a7c15ull;
        if (!*p) break; /* the end counts too */
    }
}

static char *read_file(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    if (!f) return NULL;
    fseek(f, 0, SEEK_END);
    long size = ftell(f);
    rewind(f);
    char *p = size < 0 ? NULL : malloc((size_t)size + 1);
    if (p && fread(p, 1, (size_t)size, f) != (size_t)size) free(p), p = NULL;
    fclose(f);
    if (p) p[size] = '\0', *n = (size_t)size;
    return p;
}

/* -D options as they are; the architecture as -DROSE_ARCH; false: an option unknown here. One that compilers before 12.4 refuse is
 * refused here too: src/jit then does without. */
static bool read_options(int count, const char *const *option, uint32_t *arch, char *defines, size_t size)
{
    size_t n = 0;
    *arch = 0;
    for (int i = 0; i < count && n < size; i++) {
        int number = 0;
        if (!strncmp(option[i], "-D", 2))
            n += (size_t)snprintf(defines + n, size - n, " '%s'", option[i]);
        else if (sscanf(option[i], "--gpu-architecture=sm_%d", &number) == 1)
            *arch = (uint32_t)number * 10;
        else if (!strcmp(option[i], "--minimal") || (strncmp(option[i], "--", 2) && strcmp(option[i], "-no-source-include")))
            return false;
    }
    n += (size_t)snprintf(defines + n, n < size ? size - n : 0, " -DROSE_ARCH=%u", *arch);
    return *arch && n < size;
}

static bool put_file(const char *directory, const char *name, const char *text)
{
    char path[1400];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    if (strstr(name, "..") || name[0] == '/') return false;
    for (char *s = path + strlen(directory) + 1; *s; s++)
        if (*s == '/') *s = 0, mkdir(path, 0777), *s = '/';
    FILE *f = fopen(path, "w");
    if (!f) return false;
    bool ok = fputs(text, f) >= 0;
    return fclose(f) == 0 && ok;
}

/* gcc's "file:12:5: error: text" as NVRTC's "file(12): error: text". */
static char *as_nvrtc(char *log)
{
    char *out = calloc(1, strlen(log) + 16), *to = out;
    for (char *line = log; out && *line;) {
        char *end = strchrnul(line, '\n');
        int at = 0, number = 0, column = 0, used = 0;
        while (line + at < end && line[at] != ':') at++;
        if (line + at < end && sscanf(line + at, ":%d:%d:%n", &number, &column, &used) == 2 && used)
            to += sprintf(to, "%.*s(%d):%.*s\n", at, line, number, (int)(end - line) - at - used,
                          line + at + used);
        else
            to += sprintf(to, "%.*s\n", (int)(end - line), line);
        line = *end ? end + 1 : end;
    }
    free(log);
    return out;
}

static int compile(struct program *p, const char *defines, const char *so)
{
    char directory[600], command[9000], log[700], tmp[700];
    size_t n = 0;
    snprintf(directory, sizeof directory, "%s/driver/tmp.XXXXXX", SIMT_CACHE);
    if (!mkdtemp(directory)) return NVRTC_INTERNAL;
    bool ok = put_file(directory, "main.c", p->source);
    for (int i = 0; i < p->headers; i++) ok = put_file(directory, p->as[i], p->text[i]) && ok;
    snprintf(log, sizeof log, "%s/log", directory);
    snprintf(tmp, sizeof tmp, "%s/out.so", directory);
    int length = snprintf(
        command, sizeof command,
        "exec 2>%s; %s %s -I%s%s -c %s/main.c -o "
        "%s/main.o && %s -shared -o %s %s/main.o %s",
        log, SIMT_CC, flags, directory, defines, directory, directory, SIMT_CC, tmp, directory, self());
    int rc = ok && length < (int)sizeof command ? system(command) : -1;
    free(p->log);
    p->log = read_file(log, &n);
    p->log = p->log ? as_nvrtc(p->log) : NULL;
    if (rc == 0) ok = rename(tmp, so) == 0;
    snprintf(command, sizeof command, "rm -rf %s", directory);
    if (system(command)) ok = false;
    driver_counts.compiles++;
    if (rc == -1 || !ok) return NVRTC_INTERNAL;
    return rc ? NVRTC_COMPILATION : NVRTC_OK;
}

NVRTC nvrtcCompileProgram(void *program, int count, const char *const *option);
int nvrtcCompileProgram(void *program, int count, const char *const *option)
{
    struct program *p = program;
    char defines[4096], hash[40], so[700], why[200] = "";
    uint32_t arch;
    size_t n = 0;
    if (!read_options(count, option, &arch, defines, sizeof defines)) return NVRTC_OPTION;
    uint64_t h[2] = {0xcbf29ce484222325ull, 0x84222325cbf29ce4ull};
    char *harness = read_file(SIMT_ROOT "/tests/simt/simt_device.h", &n);
    hash_add(h, SIMT_CC);
    hash_add(h, flags);
    hash_add(h, defines);
    hash_add(h, self());
    hash_add(h, harness ? harness : "");
    hash_add(h, p->source);
    for (int i = 0; i < p->headers; i++) hash_add(h, p->as[i]), hash_add(h, p->text[i]);
    free(harness);
    snprintf(hash, sizeof hash, "%016llx%016llx", (unsigned long long)h[0], (unsigned long long)h[1]);
    driver_cache_path(hash, so, sizeof so);
    if (access(so, R_OK)) {
        int r = compile(p, defines, so);
        if (r) return r;
    } else
        driver_counts.compiled_from_cache++;
    unsigned char *bytes = (unsigned char *)read_file(so, &n);
    bool ok = bytes && driver_cubin_write(arch, hash, bytes, n, &p->cubin, &p->cubin_n, why, sizeof why);
    free(bytes);
    if (ok) return NVRTC_OK;
    free(p->log);
    if (asprintf(&p->log, "%s(1): error: %s", p->name, *why ? why : so) < 0) p->log = NULL;
    return NVRTC_COMPILATION;
}

/* ---- results ---- */

NVRTC nvrtcGetProgramLogSize(void *program, size_t *bytes);
int nvrtcGetProgramLogSize(void *program, size_t *bytes)
{
    struct program *p = program;
    *bytes = p->log ? strlen(p->log) + 1 : 1;
    return NVRTC_OK;
}
NVRTC nvrtcGetProgramLog(void *program, char *text);
int nvrtcGetProgramLog(void *program, char *text)
{
    struct program *p = program;
    strcpy(text, p->log ? p->log : "");
    return NVRTC_OK;
}
NVRTC nvrtcGetCUBINSize(void *program, size_t *bytes);
int nvrtcGetCUBINSize(void *program, size_t *bytes)
{
    *bytes = ((struct program *)program)->cubin_n;
    return NVRTC_OK;
}
NVRTC nvrtcGetCUBIN(void *program, char *data);
int nvrtcGetCUBIN(void *program, char *data)
{
    struct program *p = program;
    if (!p->cubin) return NVRTC_INPUT;
    memcpy(data, p->cubin, p->cubin_n);
    return NVRTC_OK;
}
/* There is no PTX here: its place says so. */
static const char no_ptx[] = "// compiled for the CPU by tests/simt/driver: there is no PTX\n";
NVRTC nvrtcGetPTXSize(void *program, size_t *bytes);
int nvrtcGetPTXSize(void *program, size_t *bytes)
{
    (void)program;
    *bytes = sizeof no_ptx;
    return NVRTC_OK;
}
NVRTC nvrtcGetPTX(void *program, char *text);
int nvrtcGetPTX(void *program, char *text)
{
    (void)program;
    strcpy(text, no_ptx);
    return NVRTC_OK;
}

/* ---- tensor maps: cuTensorMapEncodeTiled's rules that simt_tensor_map would end the program over ---- */
cu_result driver_tensor_map(void *map, int type, uint32_t rank, void *address, const uint64_t *dim,
                            const uint64_t *stride, const uint32_t *box, int interleave, int swizzle)
{
    /* CUtensorMapDataType: uint8 uint16 uint32 int32 uint64 int64 float16 float32 float64 bfloat16 */
    static const uint32_t sizes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2};
    static const uint32_t spans[] = {0, 32, 64, 128};
    if (type < 0 || type > 9 || rank < 1 || rank > 5 || interleave || swizzle < 0 || swizzle > 3 ||
        (uintptr_t)address % 16 || (uintptr_t)map % 64)
        return CU_ERROR_INVALID;
    struct simt_tensor t = {.base = address,
                            .rank = (int)rank,
                            .element_bytes = sizes[type],
                            .swizzle = spans[swizzle],
                            .reduce = type == 7   ? SIMT_REDUCE_ADD_F32
                                      : type == 9 ? SIMT_REDUCE_ADD_BF16
                                      : type == 6 ? SIMT_REDUCE_ADD_F16
                                      : type == 2 ? SIMT_REDUCE_ADD_U32
                                                  : SIMT_REDUCE_NONE};
    for (uint32_t i = 0; i < rank; i++) {
        if (!dim[i] || dim[i] > UINT32_MAX || !box[i] || box[i] > 256) return CU_ERROR_INVALID;
        if (i && (stride[i - 1] % 16 || !stride[i - 1])) return CU_ERROR_INVALID;
        t.dim[i] = (uint32_t)dim[i], t.box[i] = box[i];
        if (i) t.stride[i - 1] = stride[i - 1];
    }
    if (box[0] * sizes[type] % 16 || (t.swizzle && box[0] * sizes[type] > t.swizzle)) return CU_ERROR_INVALID;
    simt_tensor_map(map, &t);
    return CU_SUCCESS;
}
