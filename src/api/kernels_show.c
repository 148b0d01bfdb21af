/* The text of a kernel: its source, its PTX, or what nvdisasm makes of its cubin. */
#define _GNU_SOURCE
#include "api/kernels.h"

#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/option.h"

extern char **environ;

/* nvdisasm: of the toolkit that CUDA_HOME names, of the usual place, of a wheel in the virtual environment, or on the PATH. */
static void find_disassembler(char out[1024])
{
    const char *home = option_env("CUDA_HOME"), *venv = option_env("VIRTUAL_ENV");
    if (home && snprintf(out, 1024, "%s/bin/nvdisasm", home) < 1024 && file_exists(out)) return;
    if (snprintf(out, 1024, "/usr/local/cuda/bin/nvdisasm") && file_exists(out)) return;
    if (venv && snprintf(out, 1024, "%s/bin/nvdisasm", venv) < 1024 && file_exists(out)) return;
    snprintf(out, 1024, "nvdisasm");
}

static enum rose_status read_all(int fd, struct strbuf *out)
{
    char buffer[1 << 16];
    for (;;) {
        ssize_t n = read(fd, buffer, sizeof buffer);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return ROSE_OK;
        strbuf_add(out, buffer, (size_t)n);
    }
}

static enum rose_status disassemble(const char *path, const char *name, struct strbuf *out, struct rose_error *err)
{
    char program[1024];
    int pipe_fd[2], status = 0;
    pid_t pid;
    posix_spawn_file_actions_t actions;
    find_disassembler(program);
    if (pipe(pipe_fd) != 0) return status_set(err, ROSE_IO, "no pipe: %s", strerror(errno));
    char *argv[] = {program, (char[]){"-c"}, (char *)(uintptr_t)path, NULL};
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, pipe_fd[1], 1);
    posix_spawn_file_actions_addclose(&actions, pipe_fd[0]);
    posix_spawn_file_actions_addclose(&actions, pipe_fd[1]);
    int failed = posix_spawnp(&pid, program, &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(pipe_fd[1]);
    if (failed) {
        close(pipe_fd[0]);
        return status_set(err, ROSE_NOT_FOUND,
                          "SASS is shown by nvdisasm, and that is not on this machine (%s: %s). It comes with the CUDA toolkit and with `pip install nvidia-cuda-nvdisasm`; "
                          "--export DIR writes the cubins for another machine",
                          program, strerror(failed));
    }
    read_all(pipe_fd[0], out);
    close(pipe_fd[0]);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
    return status == 0 ? ROSE_OK : status_set(err, ROSE_IO, "%s could not read the cubin of %s", program, name);
}

static enum rose_status show_sass(const struct jit_info *info, struct strbuf *out, struct rose_error *err)
{
    char path[] = "/tmp/rose-kernel-XXXXXX";
    int fd = mkstemp(path);
    if (fd < 0) return status_set(err, ROSE_IO, "%s: %s", path, strerror(errno));
    bool ok = true;
    for (size_t at = 0; ok && at < info->cubin_bytes;) {
        ssize_t n = write(fd, (const char *)info->cubin + at, info->cubin_bytes - at);
        ok = n > 0 || (n < 0 && errno == EINTR);
        if (n > 0) at += (size_t)n;
    }
    ok = close(fd) == 0 && ok;
    enum rose_status s = ok ? disassemble(path, info->name, out, err) : status_set(err, ROSE_IO, "%s cannot be written", path);
    unlink(path);
    return s;
}

enum rose_status kernels_show(struct jit *jit, const struct jit_kernel *kernel, enum rose_kernels_show show, struct strbuf *out, struct rose_error *err)
{
    struct jit_info info = jit_info(kernel);
    strbuf_printf(out, "// %s for %s:", info.name, info.arch);
    for (int i = 0; i < info.constants_count; i++) strbuf_printf(out, " %s", info.constants[i]);
    strbuf_addc(out, '\n');
    if (show == ROSE_KERNELS_SOURCE) return jit_print_source(kernel, out, err);
    if (show == ROSE_KERNELS_PTX) return jit_print_ptx(jit, kernel, out, err);
    return show_sass(&info, out, err);
}
