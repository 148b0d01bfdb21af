/* The JIT with the machine's NVRTC and real processes: keys, both caches, corruption, races, kills, errors.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "jit/jit.h"
#include "jit/jit_source.h"
#include "test.h"

static const char *const arches[5] = {"sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120a"};
static char root_[] = "/tmp/rose-test-jit.XXXXXX"; /* made by main's first use */
static char src_[200], cache_[200];

/* CLOCK_MONOTONIC, or CLOCK_PROCESS_CPUTIME_ID: what else runs on the machine does not touch that one. */
static double now_ms(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static void put(const char *path, const char *text)
{
    char full[600], dir[600];
    snprintf(full, sizeof full, "%s/%s", root_, path);
    snprintf(dir, sizeof dir, "%s", full);
    *strrchr(dir, '/') = '\0';
    CHECK(file_make_dirs(dir, NULL) == ROSE_OK);
    CHECK(file_write_atomic(full, str_of(text), NULL) == ROSE_OK);
}

static void remove_tree(const char *path)
{
    DIR *d = opendir(path);
    char full[900];
    for (struct dirent *e; d && (e = readdir(d));) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        snprintf(full, sizeof full, "%s/%s", path, e->d_name);
        struct stat st;
        if (lstat(full, &st) == 0 && S_ISDIR(st.st_mode))
            remove_tree(full);
        else
            unlink(full);
    }
    if (d) closedir(d);
    rmdir(path);
}

static const char header[] = "DEVICE float twice(float x)\n{\n    return x * FACTOR;\n}\n";
static const char kernel[] = "// arch: sm_80 sm_89 sm_90a sm_100a sm_120a\n"
                             "#define DEVICE static __device__ __forceinline__\n"
                             "#include \"kernels/cuda/common/twice.cuh\"\n"
                             "struct add_params { const float *a; float *b; int n; };\n"
                             "extern \"C\" __global__ void add(const __grid_constant__ add_params p)\n"
                             "{\n"
                             "    __shared__ float s[64];\n"
                             "    int i = blockIdx.x * 64 + threadIdx.x;\n"
                             "    s[threadIdx.x] = i < p.n ? twice(p.a[i]) : 0.0f;\n"
                             "    __syncthreads();\n"
                             "    if (i < p.n) p.b[i] = s[threadIdx.x ^ 1] + OFFSET;\n"
                             "}\n";

static void begin(void)
{
    if (!*src_) {
        CHECK(mkdtemp(root_) != NULL);
        snprintf(src_, sizeof src_, "%s/src", root_);
        snprintf(cache_, sizeof cache_, "%s/cache", root_);
    }
    remove_tree(root_);
    CHECK(mkdir(root_, 0755) == 0);
    put("src/kernels/cuda/add.cu", kernel);
    put("src/kernels/cuda/common/twice.cuh", header);
}

static int messages_, progress_;
static char message_[1500];
static void on_message(void *user, const char *line)
{
    (void)user;
    messages_++;
    snprintf(message_, sizeof message_, "%s", line);
}
static void on_progress(void *user, const struct jit_progress *p)
{
    (void)user;
    struct strbuf line = {0};
    CHECK(p->done >= 1 && p->done <= p->total && p->kernel);
    jit_print_progress(p, &line);
    CHECK(!strncmp(line.p, "kernels ", 8) && strstr(line.p, " compiled, ") != NULL);
    strbuf_free(&line);
    progress_++;
}

static struct jit *open_jit(const char *cache)
{
    struct jit *jit = NULL;
    struct rose_error err = {0};
    struct jit_options o = {
        .cache_dir = cache, .override_dir = src_, .message = on_message, .progress = on_progress};
    messages_ = progress_ = 0;
    CHECK_OK(jit_open(&o, &jit, &err), err);
    return jit;
}

static const struct jit_kernel *request(struct jit *jit, const char *name, const char *arch, int factor)
{
    const struct jit_kernel *k = NULL;
    struct rose_error err = {0};
    CHECK_OK(jit_request(jit, name, arch,
                         (struct jit_constant[]){JIT_INT("FACTOR", factor), JIT_TEXT("OFFSET", "0x1.8p+1f")},
                         2, &k, &err),
             err);
    return k;
}

static void compile(struct jit *jit)
{
    struct rose_error err = {0};
    CHECK_OK(jit_compile_all(jit, &err), err);
}

TEST(all_architectures)
{
    begin();
    struct jit *jit = open_jit(NULL);
    const struct jit_kernel *k[5];
    struct strbuf text = {0};
    struct rose_error err = {0};
    jit_print_compiler(jit, &text);
    printf("compiler: %s\n", text.p);
    strbuf_free(&text);
    for (int i = 0; i < 5; i++) k[i] = request(jit, "add", arches[i], 2);
    CHECK(request(jit, "add", "sm_80", 2) == k[0]);
    compile(jit);
    CHECK_INT(progress_, 5);
    for (int i = 0; i < 5; i++) {
        struct jit_info info = jit_info(k[i]);
        struct jit_entry elf[JIT_MAX_ENTRIES];
        CHECK_INT(info.origin, JIT_COMPILED);
        CHECK_STR(info.arch, arches[i]);
        CHECK_INT(info.constants_count, 2);
        CHECK_STR(info.constants[1], "OFFSET=0x1.8p+1f");
        CHECK_INT(info.entries_count, 1);
        CHECK_STR(info.entries[0].name, "add");
        CHECK(info.entries[0].registers >= 8 && info.entries[0].registers < 64);
        CHECK_INT(info.entries[0].shared_bytes, 256);
        CHECK_INT(info.entries[0].stack_bytes, 0);
        CHECK_INT(info.entries[0].spill_stores, 0);
        CHECK_INT(info.entries[0].spill_loads, 0);
        /* The ELF says the same as the log; from Hopper on it counts 1 KiB that the system reserves in a
         * block. */
        CHECK_INT(jit_elf_entries(info.cubin, info.cubin_bytes, elf), 1);
        CHECK_INT(elf[0].registers, info.entries[0].registers);
        CHECK_INT(elf[0].shared_bytes, i >= 2 ? 256 + 1024 : 256);
        printf("add for %-7s %6.1f ms, %zu bytes, %d registers\n", info.arch, info.compile_ms,
               info.cubin_bytes, info.entries[0].registers);
    }
    jit_print_kernels(jit, &text);
    printf("%s", text.p);
    CHECK(strstr(text.p, "compiled  FACTOR=2 OFFSET=0x1.8p+1f\n") != NULL);
    strbuf_free(&text);
    CHECK_OK(jit_print_ptx(jit, k[2], &text, &err), err);
    CHECK(text.p && strstr(text.p, ".target sm_90a") && strstr(text.p, ".visible .entry add("));
    strbuf_free(&text);
    CHECK_OK(jit_print_source(k[2], &text, &err), err);
    CHECK(strstr(text.p, "#line 1 \"src/kernels/cuda/common/twice.cuh\"\n") != NULL);
    strbuf_free(&text);
    jit_close(jit);
}

TEST(keys)
{
    begin();
    struct jit *jit = open_jit(NULL);
    const struct jit_kernel *a = NULL, *b = NULL;
    struct rose_error err = {0};
    struct jit_constant forward[] = {JIT_INT("FACTOR", 2), JIT_INT("OFFSET", -1), JIT_INT("OFFSET2", 3)};
    struct jit_constant backward[] = {JIT_INT("OFFSET2", 3), JIT_INT("OFFSET", -1), JIT_INT("FACTOR", 2)};
    CHECK_OK(jit_request(jit, "add", "sm_90a", forward, 3, &a, &err), err);
    CHECK_OK(jit_request(jit, "add", "sm_90a", backward, 3, &b, &err), err);
    CHECK(a == b);
    backward[2].value = 4;
    CHECK_OK(jit_request(jit, "add", "sm_90a", backward, 3, &b, &err), err);
    CHECK(a != b && strcmp(jit_info(a).name, jit_info(b).name));
    CHECK_OK(jit_request(jit, "add", "sm_89", forward, 3, &b, &err), err);
    CHECK(strcmp(jit_info(a).name, jit_info(b).name));
    char first[200], again[200];
    snprintf(first, sizeof first, "%s", jit_info(a).name);
    jit_close(jit);
    /* The same again is the same; an included file's change is another key. */
    jit = open_jit(NULL);
    CHECK_OK(jit_request(jit, "add", "sm_90a", forward, 3, &a, &err), err);
    snprintf(again, sizeof again, "%s", jit_info(a).name);
    CHECK_STR(again, first);
    jit_close(jit);
    put("src/kernels/cuda/common/twice.cuh",
        "DEVICE float twice(float x)\n{\n    return x * FACTOR + 1.0f;\n}\n");
    jit = open_jit(NULL);
    CHECK_OK(jit_request(jit, "add", "sm_90a", forward, 3, &a, &err), err);
    CHECK(strcmp(jit_info(a).name, first));
    jit_close(jit);
}

/* Nothing of the machine gets into the code: not the directory, not a file that lies there. */
TEST(nothing_else)
{
    begin();
    char here[1000], *cubin[2] = {0};
    size_t bytes[2] = {0};
    CHECK(getcwd(here, sizeof here) != NULL);
    for (int i = 0; i < 2; i++) {
        CHECK(chdir(i ? "/" : root_) == 0);
        struct jit *jit = open_jit(NULL);
        const struct jit_kernel *k = request(jit, "add", "sm_90a", 2);
        compile(jit);
        bytes[i] = jit_info(k).cubin_bytes;
        cubin[i] = malloc(bytes[i] + 1);
        if (jit_info(k).cubin) memcpy(cubin[i], jit_info(k).cubin, bytes[i]);
        jit_close(jit);
    }
    CHECK_INT(bytes[0], bytes[1]);
    CHECK(bytes[0] && !memcmp(cubin[0], cubin[1], bytes[0]));
    free(cubin[0]);
    free(cubin[1]);
    char absolute[500];
    snprintf(absolute, sizeof absolute,
             "// arch: sm_90a\n#include \"%s/outside.h\"\nextern \"C\" __global__ void f() {}\n", root_);
    put("outside.h", "\n");
    put("src/kernels/cuda/absolute.cu", absolute);
    put("src/kernels/cuda/computed.cu", "// arch: sm_90a\n#include NAME\n");
    put("src/kernels/cuda/above.cu", "// arch: sm_90a\n#include \"../../outside.h\"\n");
    put("src/kernels/cuda/beside.cu",
        "// arch: sm_90a\n#include \"outside.h\"\nextern \"C\" __global__ void f() {}\n");
    CHECK(chdir(root_) == 0);
    const char *names[] = {"beside", "absolute", "computed", "above"};
    for (int i = 0; i < 4; i++) {
        struct jit *jit = open_jit(NULL);
        struct rose_error err = {0};
        const struct jit_kernel *k;
        int s = jit_request(jit, names[i], "sm_90a", NULL, 0, &k, &err);
        CHECK_INT(s, i == 0 ? ROSE_OK : ROSE_INVALID);
        if (i == 0) CHECK_INT(jit_compile_all(jit, &err), ROSE_INVALID);
        CHECK_INT(err.line, 2);
        jit_close(jit);
    }
    CHECK(chdir(here) == 0);
}

static void entry_path(const struct jit_kernel *k, const char *file, char out[700])
{
    struct jit_info info = jit_info(k);
    snprintf(out, 700, "%s/%s/%s/%s%s%s", cache_, info.compiler, info.arch, info.name, file ? "/" : "",
             file ? file : "");
}

TEST(disk_cache)
{
    begin();
    struct jit *jit = open_jit(cache_);
    request(jit, "add", "sm_90a", 2);
    const struct jit_kernel *k = request(jit, "add", "sm_80", 3);
    compile(jit);
    CHECK_INT(jit_info(k).origin, JIT_COMPILED);
    char path[700], command[900];
    entry_path(k, NULL, path);
    snprintf(command, sizeof command,
             "cd %s && sha256sum --quiet -c checksum && ls | tr '\\n' ' ' | grep -q 'checksum kernel.cubin "
             "key.txt log.txt source.cu'",
             path);
    CHECK_INT(system(command), 0);
    entry_path(k, "..", path);
    snprintf(command, sizeof command, "test -z \"$(ls -A %s | grep '^\\.')\"",
             path); /* no lock and no temporary directory stays */
    CHECK_INT(system(command), 0);
    int registers = jit_info(k).entries[0].registers;
    double compile_ms = jit_info(k).compile_ms;
    jit_close(jit);

    double from = now_ms(CLOCK_PROCESS_CPUTIME_ID);
    jit = open_jit(cache_);
    k = request(jit, "add", "sm_80", 3);
    compile(jit);
    double took = now_ms(CLOCK_PROCESS_CPUTIME_ID) - from;
    printf("warm start of one kernel: %.2f ms\n", took);
    CHECK(took < 100);
    CHECK_INT(jit_info(k).origin, JIT_FROM_CACHE);
    CHECK_INT(jit_info(k).entries[0].registers, registers);
    CHECK_NEAR(jit_info(k).compile_ms, compile_ms, 0.1);
    CHECK_INT(messages_, 0);
    jit_close(jit);
}

/* A warm start does not load the compiler: in a process of its own, nothing of it is mapped. */
TEST(warm_without_compiler)
{
    begin();
    struct jit *jit = open_jit(cache_);
    for (int i = 0; i < 20; i++) request(jit, "add", "sm_90a", i);
    double from = now_ms(CLOCK_MONOTONIC);
    compile(jit);
    printf("20 variants of a small kernel: %.1f ms\n", now_ms(CLOCK_MONOTONIC) - from);
    jit_close(jit);
    fflush(stdout);
    char self[500];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    CHECK(n > 0);
    self[n > 0 ? n : 0] = '\0';
    pid_t child = fork();
    if (child == 0) {
        execl(self, self, "--warm", src_, cache_, (char *)NULL);
        _exit(9);
    }
    int status = 0;
    waitpid(child, &status, 0);
    CHECK_INT(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 0);
}

static int warm_main(char **argv)
{
    struct jit *jit;
    struct rose_error err;
    const struct jit_kernel *k[20];
    double from = now_ms(CLOCK_MONOTONIC);
    if (jit_open(&(struct jit_options){.cache_dir = argv[3], .override_dir = argv[2]}, &jit, &err)) return 1;
    for (int i = 0; i < 20; i++) k[i] = request(jit, "add", "sm_90a", i);
    if (jit_compile_all(jit, &err)) return 2;
    printf("warm start of 20 kernels: %.2f ms\n", now_ms(CLOCK_MONOTONIC) - from);
    fflush(stdout);
    for (int i = 0; i < 20; i++)
        if (jit_info(k[i]).origin != JIT_FROM_CACHE) return 3;
    jit_close(jit);
    /* The compiler is not mapped. */
    char line[4096];
    int mapped = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps)) mapped |= strstr(line, "libnvrtc") != NULL;
    if (maps) fclose(maps);
    return !maps ? 5 : mapped ? 4 : 0;
}

/* Every way an entry can be bad is a miss, and is repaired. */
TEST(bad_entries)
{
    begin();
    for (int kind = 0; kind < 9; kind++) {
        char path[700], dir[700];
        struct jit *jit = open_jit(cache_);
        const struct jit_kernel *k = request(jit, "add", "sm_90a", 2);
        compile(jit);
        const char *file = kind == 0 || kind == 7 ? "kernel.cubin"
                           : kind == 1            ? "key.txt"
                           : kind == 2            ? "log.txt"
                                                  : "checksum";
        entry_path(k, file, path);
        entry_path(k, NULL, dir);
        jit_close(jit);
        struct stat st;
        CHECK(stat(path, &st) == 0);
        if (kind <= 3) { /* one byte */
            int fd = open(path, O_RDWR);
            char c;
            CHECK(pread(fd, &c, 1, st.st_size / 2) == 1);
            c ^= 1;
            CHECK(pwrite(fd, &c, 1, st.st_size / 2) == 1);
            close(fd);
        } else if (kind == 4) {
            CHECK(truncate(path, 0) == 0);
        } else if (kind == 5) {
            CHECK(unlink(path) == 0);
        } else if (kind == 6) { /* a file in its place */
            remove_tree(dir);
            CHECK(file_write_atomic(dir, STR("x"), NULL) == ROSE_OK);
        } else if (kind == 7) { /* a truncated cubin */
            CHECK(truncate(path, 100) == 0);
        } else { /* an empty directory */
            remove_tree(dir);
            CHECK(mkdir(dir, 0755) == 0);
        }
        jit = open_jit(cache_);
        k = request(jit, "add", "sm_90a", 2);
        compile(jit);
        CHECK_INT(jit_info(k).origin, JIT_COMPILED);
        CHECK_INT(messages_, 0);
        jit_close(jit);
        jit = open_jit(cache_);
        k = request(jit, "add", "sm_90a", 2);
        compile(jit);
        CHECK_INT(jit_info(k).origin, JIT_FROM_CACHE);
        jit_close(jit);
    }
}

/* Several processes want the same kernels at once: each is compiled by exactly one. */
TEST(concurrent_processes)
{
    enum { PROCESSES = 4, KERNELS = 3 };
    begin();
    fflush(stdout);
    pid_t child[PROCESSES];
    for (int p = 0; p < PROCESSES; p++)
        if ((child[p] = fork()) == 0) {
            struct jit *jit = open_jit(cache_);
            const struct jit_kernel *k[KERNELS];
            int compiled = 0;
            for (int i = 0; i < KERNELS; i++) k[i] = request(jit, "add", "sm_90a", 1 + (i + p) % KERNELS);
            compile(jit);
            for (int i = 0; i < KERNELS; i++) compiled += jit_info(k[i]).origin == JIT_COMPILED;
            _exit(test_failures_ ? 100 : compiled);
        }
    int total = 0;
    for (int p = 0; p < PROCESSES; p++) {
        int status;
        waitpid(child[p], &status, 0);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) <= KERNELS);
        total += WEXITSTATUS(status);
    }
    CHECK_INT(total, KERNELS);
}

/* About a second of compile time. */
static void put_slow(void)
{
    struct strbuf b = {0};
    strbuf_adds(&b, "// arch: sm_90a\nextern \"C\" __global__ void slow(float *x)\n{\n    float a = "
                    "x[threadIdx.x + FACTOR];\n");
    for (int i = 0; i < 3000; i++)
        strbuf_printf(&b, "    a = a * %d.5f + x[threadIdx.x * %d + OFFSET > 1.0f];\n", i, i % 7);
    strbuf_adds(&b, "    x[threadIdx.x] = a;\n}\n");
    put("src/kernels/cuda/slow.cu", b.p);
    strbuf_free(&b);
}

enum lock { NO_LOCK_FILE, LOCK_FREE, LOCK_HELD };
static enum lock slow_lock(const char *compiler)
{
    char path[900];
    snprintf(path, sizeof path, "%s/%s/sm_90a", cache_, compiler);
    DIR *d = opendir(path);
    enum lock state = NO_LOCK_FILE;
    for (struct dirent *e; d && (e = readdir(d));) {
        if (strncmp(e->d_name, ".lock.slow", 10)) continue;
        int fd = openat(dirfd(d), e->d_name, O_RDWR | O_CLOEXEC);
        if (fd < 0) continue; /* gone meanwhile */
        state = flock(fd, LOCK_SH | LOCK_NB) == 0 ? LOCK_FREE : LOCK_HELD;
        close(fd);
    }
    if (d) closedir(d);
    return state;
}

/* A process that compiles the slow kernel and was stopped (SIGSTOP) while it holds the lock. It may get past that while we look
 * away: then another one begins anew. */
static pid_t stopped_half_way(const char *compiler)
{
    for (int round = 0; round < 100; round++) {
        remove_tree(cache_);
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            struct jit *own = open_jit(cache_);
            request(own, "slow", "sm_90a", 1);
            compile(own);
            _exit(0);
        }
        int status = 0;
        while (waitpid(child, &status, WNOHANG) == 0 && slow_lock(compiler) != LOCK_HELD) usleep(1000);
        if (kill(child, SIGSTOP) || waitpid(child, &status, WUNTRACED) != child || !WIFSTOPPED(status)) continue;
        if (slow_lock(compiler) == LOCK_HELD) return child;
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
    }
    CHECK(!"a process holds the lock");
    return -1;
}

TEST(killed_half_way)
{
    begin();
    put_slow();
    struct jit *jit = open_jit(cache_);
    const struct jit_kernel *k = request(jit, "slow", "sm_90a", 1);
    const char *compiler = jit_info(k).compiler;
    pid_t child = stopped_half_way(compiler);
    if (child < 0) return;
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    CHECK_INT(slow_lock(compiler), LOCK_FREE); /* the file is still there, the lock is not: nobody waits for it */
    double from = now_ms(CLOCK_MONOTONIC);
    compile(jit);
    CHECK_INT(jit_info(k).origin, JIT_COMPILED);
    printf("slow kernel after a kill: %.0f ms\n", now_ms(CLOCK_MONOTONIC) - from);
    CHECK_INT(slow_lock(compiler), NO_LOCK_FILE);
    jit_close(jit);
    /* Kill at many moments, also while an entry is written: what is there afterwards verifies. */
    for (int round = 0; round < 12; round++) {
        remove_tree(cache_);
        child = fork();
        if (child == 0) {
            struct jit *own = open_jit(cache_);
            for (int i = 0; i < 8; i++) request(own, "add", "sm_90a", i);
            compile(own);
            _exit(0);
        }
        usleep((useconds_t)(20000 + round * 25000));
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        jit = open_jit(cache_);
        for (int i = 0; i < 2; i++) request(jit, "add", "sm_90a", i);
        compile(jit);
        CHECK_INT(messages_, 0);
        jit_close(jit);
    }
}

/* The waiting process takes over when the other finishes, and ends up with the other's entry. */
TEST(waits_for_the_other)
{
    begin();
    put_slow();
    struct jit *jit = open_jit(cache_);
    const struct jit_kernel *k = request(jit, "slow", "sm_90a", 1);
    pid_t child = stopped_half_way(jit_info(k).compiler);
    if (child < 0) return;
    kill(child, SIGCONT);
    compile(jit);
    waitpid(child, NULL, 0);
    CHECK_INT(jit_info(k).origin, JIT_FROM_CACHE);
    jit_close(jit);
}

TEST(unwritable_cache)
{
    begin();
    put("file", "not a directory");
    char where[300];
    snprintf(where, sizeof where, "%s/file/cache", root_);
    struct jit *jit = open_jit(where);
    const struct jit_kernel *a = request(jit, "add", "sm_90a", 1), *b = request(jit, "add", "sm_90a", 2);
    compile(jit);
    CHECK_INT(jit_info(a).origin, JIT_COMPILED);
    CHECK(jit_info(b).cubin != NULL);
    CHECK_INT(messages_, 1);
    CHECK(strstr(message_, where) && strstr(message_, "cannot be written"));
    jit_close(jit);
}

TEST(errors)
{
    begin();
    struct rose_error err = {0};
    const struct jit_kernel *k;
    put("src/kernels/cuda/common/bad.cuh", "\n\n__device__ int f() { return nothing; }\n");
    put("src/kernels/cuda/bad.cu", "// arch: sm_90a\n#include \"kernels/cuda/common/bad.cuh\"\nextern \"C\" "
                                   "__global__ void bad(int *x) { *x = f(); }\n");
    put("src/kernels/cuda/bare.cu", "extern \"C\" __global__ void bare() {}\n");
    put("src/kernels/cuda/lost.cu", "/* arch: sm_80 */\n\n#include \"kernels/cuda/common/none.cuh\"\n");
    put("src/kernels/cuda/asm.cu", "// arch: sm_80\nextern \"C\" __global__ void f() {\n asm "
                                   "volatile(\"wgmma.fence.sync.aligned;\");\n}\n");
    struct jit *jit = open_jit(NULL);
    const struct jit_kernel *good = request(jit, "add", "sm_90a", 1), *bad = NULL;
    CHECK_OK(jit_request(jit, "bad", "sm_90a", NULL, 0, &bad, &err), err);
    CHECK_INT(jit_compile_all(jit, &err), ROSE_INVALID);
    CHECK(strstr(err.file, src_) == err.file && strstr(err.file, "/kernels/cuda/common/bad.cuh")); /* where it was read, not where the binary's was */
    CHECK_INT(err.line, 3);
    CHECK(strstr(err.message, "nothing") != NULL);
    CHECK_INT(jit_info(bad).origin, JIT_FAILED);
    CHECK_INT(jit_info(good).origin, JIT_COMPILED); /* the others are ready all the same */
    CHECK_INT(jit_request(jit, "bare", "sm_90a", NULL, 0, &k, &err), ROSE_INVALID);
    CHECK(strstr(err.message, "// arch:") != NULL);
    CHECK_INT(jit_request(jit, "add", "sm_75", NULL, 0, &k, &err), ROSE_UNSUPPORTED);
    CHECK(strstr(err.message, "sm_80 sm_89 sm_90a") != NULL);
    CHECK_INT(jit_request(jit, "add", "sm_9", NULL, 0, &k, &err), ROSE_UNSUPPORTED);
    CHECK_INT(jit_request(jit, "none", "sm_90a", NULL, 0, &k, &err), ROSE_NOT_FOUND);
    CHECK_INT(jit_request(jit, "../add", "sm_90a", NULL, 0, &k, &err), ROSE_INVALID);
    CHECK_INT(jit_request(jit, "", "sm_90a", NULL, 0, &k, &err), ROSE_INVALID);
    CHECK_INT(
        jit_request(jit, "add", "sm_90a", (struct jit_constant[]){JIT_TEXT("A", "1 -DB=2")}, 1, &k, &err),
        ROSE_INVALID);
    CHECK_INT(jit_request(jit, "add", "sm_90a", (struct jit_constant[]){JIT_INT("A B", 1)}, 1, &k, &err),
              ROSE_INVALID);
    CHECK_INT(jit_request(jit, "add", "sm_90a",
                          (struct jit_constant[]){JIT_INT("A", 1), JIT_INT("A1", 1), JIT_INT("A", 2)}, 3, &k,
                          &err),
              ROSE_INVALID);
    jit_close(jit);
    const char *names[] = {"lost", "asm"};
    const int lines[] = {3, 0};
    for (int i = 0; i < 2; i++) {
        jit = open_jit(NULL);
        err = (struct rose_error){0};
        CHECK_OK(jit_request(jit, names[i], "sm_80", NULL, 0, &k, &err), err);
        CHECK_INT(jit_compile_all(jit, &err), ROSE_INVALID);
        CHECK(strstr(err.message, i ? "wgmma" : "none.cuh") != NULL);
        CHECK_INT(err.line, lines[i]);
        jit_close(jit);
    }
    /* Two meanings of one include text. */
    put("src/kernels/cuda/a/x.cuh", "\n");
    put("src/kernels/cuda/b/x.cuh", "\n");
    put("src/kernels/cuda/a/y.cuh", "#include \"x.cuh\"\n");
    put("src/kernels/cuda/b/y.cuh", "#include \"x.cuh\"\n");
    put("src/kernels/cuda/two.cu",
        "// arch: sm_80\n#include \"kernels/cuda/a/y.cuh\"\n#include \"kernels/cuda/b/y.cuh\"\n");
    jit = open_jit(NULL);
    CHECK_INT(jit_request(jit, "two", "sm_80", NULL, 0, &k, &err), ROSE_INVALID);
    CHECK(strstr(err.message, "x.cuh") != NULL);
    jit_close(jit);
}

TEST(without_compiler)
{
    begin();
    struct rose_error err = {0};
    char bundle[300];
    int count = 0;
    snprintf(bundle, sizeof bundle, "%s/export", root_);
    struct jit *jit = open_jit(NULL);
    for (int i = 0; i < 3; i++) request(jit, "add", "sm_90a", i);
    compile(jit);
    CHECK_OK(jit_export(jit, bundle, &count, &err), err);
    CHECK_INT(count, 3);
    jit_close(jit);

    const char *bundles[] = {"/nonexistent", bundle};
    struct jit_options o = {.override_dir = src_,
                            .nvrtc_path = "/nonexistent/libnvrtc.so.99",
                            .bundles = bundles,
                            .bundles_count = 2};
    CHECK_OK(jit_open(&o, &jit, &err), err);
    const struct jit_kernel *k = request(jit, "add", "sm_90a", 1);
    compile(jit);
    CHECK_INT(jit_info(k).origin, JIT_FROM_BUNDLE);
    CHECK_INT(jit_info(k).entries_count, 1);
    CHECK(!strncmp(jit_info(k).compiler, "nvrtc", 5) && strcmp(jit_info(k).compiler, "nvrtc-none"));
    request(jit, "add", "sm_90a", 77);
    CHECK_INT(jit_compile_all(jit, &err), ROSE_NOT_FOUND);
    CHECK(strstr(err.message, "/nonexistent/libnvrtc.so.99") != NULL);
    jit_close(jit);
    /* The bundle serves a process with a compiler too. */
    o.nvrtc_path = NULL;
    CHECK_OK(jit_open(&o, &jit, &err), err);
    k = request(jit, "add", "sm_90a", 1);
    compile(jit);
    CHECK_INT(jit_info(k).origin, JIT_FROM_BUNDLE);
    jit_close(jit);
    /* A library that is not NVRTC. */
    put("libnvrtc.so.13", "no library");
    snprintf(bundle, sizeof bundle, "%s", root_);
    o = (struct jit_options){.override_dir = src_, .nvrtc_path = bundle};
    CHECK_OK(jit_open(&o, &jit, &err), err);
    request(jit, "add", "sm_90a", 1);
    CHECK_INT(jit_compile_all(jit, &err), ROSE_IO);
    jit_close(jit);
}

/* What is in the binary is what lies in the tree. */
TEST(embedded_files)
{
    CHECK(jit_source_embedded_count > 0);
    for (size_t i = 0; i < jit_source_embedded_count; i++) {
        const struct jit_embedded *e = &jit_source_embedded[i];
        char path[300];
        struct arena arena;
        struct str text = {0};
        arena_init(&arena, 0);
        snprintf(path, sizeof path, "src/%s", e->path);
        CHECK(file_read(&arena, path, 4 << 20, &text, NULL) == ROSE_OK);
        CHECK(str_eq(text, (struct str){e->begin, (size_t)(e->end - e->begin)}) && *e->end == '\0');
        arena_free(&arena);
    }
    struct str name, list;
    for (int i = 0; jit_list(i, &name, &list); i++) CHECK(name.n > 0 && list.n > 0);
}

TEST(hostile_elf)
{
    begin();
    struct jit *jit = open_jit(NULL);
    const struct jit_kernel *k = request(jit, "add", "sm_90a", 1);
    compile(jit);
    struct jit_info info = jit_info(k);
    struct jit_entry entries[JIT_MAX_ENTRIES];
    char id[65];
    uint64_t seed = 7;
    uint8_t *bytes = malloc(info.cubin_bytes);
    for (int round = 0; round < 20000; round++) {
        memcpy(bytes, info.cubin, info.cubin_bytes);
        for (int i = 0; i < 4; i++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            /* Headers and tables more often than code. */
            size_t at = seed >> 33 & 1 ? (seed >> 34) % 64 : (seed >> 34) % info.cubin_bytes;
            bytes[at] = (uint8_t)(seed >> 20);
        }
        size_t n = round % 3 ? info.cubin_bytes : (size_t)(seed >> 30) % info.cubin_bytes;
        int found = jit_elf_entries(bytes, n, entries);
        CHECK(found >= 0 && found <= JIT_MAX_ENTRIES);
        jit_elf_build_id(bytes, n, id);
    }
    free(bytes);
    jit_close(jit);
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0); /* forked children must not print it again */
    if (argc == 4 && !strcmp(argv[1], "--warm")) return warm_main(argv);
    static const struct test_case cases[] = {CASE(all_architectures),
                                             CASE(keys),
                                             CASE(nothing_else),
                                             CASE(disk_cache),
                                             CASE(warm_without_compiler),
                                             CASE(bad_entries),
                                             CASE(concurrent_processes),
                                             CASE(killed_half_way),
                                             CASE(waits_for_the_other),
                                             CASE(unwritable_cache),
                                             CASE(errors),
                                             CASE(without_compiler),
                                             CASE(embedded_files),
                                             CASE(hostile_elf)};
    int failed = test_run_all(cases, sizeof cases / sizeof *cases, argc, argv);
    if (*src_) remove_tree(root_);
    return failed;
}
