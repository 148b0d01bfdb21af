#define _GNU_SOURCE
#include "jit/jit_worker.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

enum { MAX_RESULT = 512 << 20 };

struct answer {
    enum rose_status status;
    struct rose_error error;
    uint64_t cubin_n, log_n;
};

static bool send_all(int fd, const void *bytes, size_t n)
{
    for (const char *p = bytes; n;) {
        ssize_t put = send(fd, p, n, MSG_NOSIGNAL);
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0) return false;
        p += put, n -= (size_t)put;
    }
    return true;
}

static bool receive_all(int fd, void *bytes, size_t n)
{
    for (char *p = bytes; n;) {
        ssize_t got = recv(fd, p, n, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        p += got, n -= (size_t)got;
    }
    return true;
}

/* Everything but this socket: the parent's listening sockets, pipes and file locks are none of ours. 0-2
 * stay. */
static void close_others(int keep)
{
#ifdef SYS_close_range
    if (keep > 3) syscall(SYS_close_range, 3u, (unsigned)keep - 1, 0u);
    if (syscall(SYS_close_range, (unsigned)keep + 1, ~0u, 0u) == 0) return;
#endif
    long most = sysconf(_SC_OPEN_MAX);
    for (int fd = 3; fd < (most > 0 && most < 65536 ? most : 65536); fd++)
        if (fd != keep) close(fd);
}

/* A compiler asks for tens of megabytes a kernel and gives them back. What malloc keeps of them is not fetched from the system, page by
 * page and zeroed, for the next kernel again: a quarter of the page faults is left, 4 % of the time saved. */
static void keep_memory(void)
{
#ifdef __GLIBC__
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    mallopt(M_TOP_PAD, 16 << 20);
    mallopt(M_MMAP_THRESHOLD, 32 << 20); /* the most that it takes */
#endif
}

static void serve(int fd, void (*job)(void *arg, int number, struct jit_result *result), void *arg)
{
    int number;
    while (receive_all(fd, &number, sizeof number)) {
        struct jit_result r = {0};
        job(arg, number, &r);
        struct answer a = {r.status, r.error, r.cubin_n, r.log ? strlen(r.log) : 0};
        bool sent =
            send_all(fd, &a, sizeof a) && send_all(fd, r.cubin, r.cubin_n) && send_all(fd, r.log, a.log_n);
        free(r.cubin);
        free(r.log);
        if (!sent) break;
    }
}

void jit_worker_start(struct jit_worker *out, void (*job)(void *arg, int number, struct jit_result *result),
                      void *arg)
{
    int pair[2];
    *out = (struct jit_worker){.pid = -1, .fd = -1};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) return;
    pid_t parent = getpid(), pid = fork();
    if (pid == 0) {
        /* A signal that the parent handles would run its handlers here. */
        for (int s = 1; s < NSIG; s++) signal(s, SIG_DFL);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) _exit(0);
        close_others(pair[1]);
        keep_memory();
        serve(pair[1], job, arg);
        _exit(0);
    }
    close(pair[1]);
    if (pid < 0)
        close(pair[0]);
    else
        *out = (struct jit_worker){pid, pair[0]};
}

bool jit_worker_call(struct jit_worker *w, int number, struct jit_result *out)
{
    struct answer a;
    int state = 0;
    *out = (struct jit_result){0};
    bool ok = send_all(w->fd, &number, sizeof number) && receive_all(w->fd, &a, sizeof a) &&
              a.cubin_n <= MAX_RESULT && a.log_n <= MAX_RESULT;
    if (ok) {
        out->status = a.status, out->error = a.error;
        out->cubin = a.cubin_n ? malloc((size_t)a.cubin_n) : NULL;
        out->log = malloc((size_t)a.log_n + 1);
        out->cubin_n = (size_t)a.cubin_n;
        ok = out->log && (out->cubin || !a.cubin_n) && receive_all(w->fd, out->cubin, (size_t)a.cubin_n) &&
             receive_all(w->fd, out->log, (size_t)a.log_n);
        if (ok) {
            out->log[a.log_n] = '\0';
            return true;
        }
        free(out->cubin);
        free(out->log);
        *out = (struct jit_result){0};
    }
    kill(w->pid, SIGKILL);
    pid_t reaped = waitpid(w->pid, &state, 0);
    close(w->fd);
    *w = (struct jit_worker){.pid = -1, .fd = -1};
    out->status =
        status_set(&out->error, ROSE_INTERNAL, "the compile process died (%s)",
                   reaped > 0 && WIFSIGNALED(state) ? strsignal(WTERMSIG(state)) : "no reason is known");
    return false;
}

void jit_worker_stop(struct jit_worker *w)
{
    if (w->fd < 0) return;
    close(w->fd); /* the child reads the end and leaves */
    while (waitpid(w->pid, NULL, 0) < 0 && errno == EINTR) {
    }
    *w = (struct jit_worker){.pid = -1, .fd = -1};
}
