/* Compile processes: answers of every size, errors, children that die. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "jit/jit_worker.h"
#include "test.h"

static int secret_ = 5; /* known to the child by being forked */
static int pipe_[2];

static void job(void *arg, int number, struct jit_result *r)
{
    CHECK(arg == &secret_);
    if (number == 1) {
        r->status = status_at_line(&r->error, ROSE_INVALID, "src/x.cu", 7, 0, "no");
    } else if (number == 2) {
        r->cubin_n = 3000000;
        r->cubin = malloc(r->cubin_n);
        for (size_t i = 0; i < r->cubin_n; i++) r->cubin[i] = (char)(i * 7 + (size_t)secret_);
        r->log = strdup("a log");
    } else if (number == 3) {
        kill(getpid(), SIGSEGV);
        pause();
    } else if (number == 4) {
        /* No other file of the parent is open here. */
        r->status = fcntl(pipe_[0], F_GETFD) < 0 && fcntl(pipe_[1], F_GETFD) < 0 ? ROSE_OK : ROSE_INTERNAL;
    }
}

TEST(answers)
{
    struct jit_worker w;
    struct jit_result r;
    CHECK(pipe(pipe_) == 0);
    secret_ = 9;
    jit_worker_start(&w, job, &secret_);
    CHECK(w.fd >= 0);
    for (int round = 0; round < 3; round++) {
        CHECK(jit_worker_call(&w, 0, &r));
        CHECK(r.status == ROSE_OK && !r.cubin && r.log && !*r.log);
        free(r.log);
        CHECK(jit_worker_call(&w, 1, &r));
        CHECK_INT(r.status, ROSE_INVALID);
        CHECK_STR(r.error.message, "no");
        CHECK_INT(r.error.line, 7);
        free(r.log);
        CHECK(jit_worker_call(&w, 2, &r));
        CHECK_INT(r.cubin_n, 3000000);
        CHECK_STR(r.log, "a log");
        int wrong = 0;
        for (size_t i = 0; i < r.cubin_n; i++) wrong += r.cubin[i] != (char)(i * 7 + 9);
        CHECK_INT(wrong, 0);
        free(r.cubin);
        free(r.log);
        CHECK(jit_worker_call(&w, 4, &r));
        CHECK_INT(r.status, ROSE_OK);
        free(r.log);
    }
    pid_t pid = w.pid;
    jit_worker_stop(&w);
    CHECK(kill(pid, 0) != 0); /* gone, and reaped */
    jit_worker_stop(&w);      /* twice does no harm */
    close(pipe_[0]);
    close(pipe_[1]);
}

TEST(deaths)
{
    struct jit_worker w;
    struct jit_result r;
    jit_worker_start(&w, job, &secret_);
    CHECK(!jit_worker_call(&w, 3, &r));
    CHECK_INT(r.status, ROSE_INTERNAL);
    CHECK(strstr(r.error.message, "Segmentation fault") != NULL);
    CHECK_INT(w.fd, -1);
    jit_worker_start(&w, job, &secret_);
    kill(w.pid, SIGKILL);
    CHECK(!jit_worker_call(&w, 0, &r));
    CHECK(strstr(r.error.message, "Killed") != NULL);
    CHECK_INT(w.fd, -1);
}

TEST_MAIN(CASE(answers), CASE(deaths))
