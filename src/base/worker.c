#define _GNU_SOURCE
#include "base/worker.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { LINE = 64, SPINS_BEFORE_SLEEP = 20000, SPINS_BEFORE_YIELD = 2000 };

/* [phase % 2] is in use, the other one is zero: 0, or one more than what has been taken of an open share. */
struct share {
    _Alignas(LINE) atomic_size_t next[2];
};

struct workers {
    struct worker *members;
    struct share *shares; /* [count] */
    pthread_t *threads; /* [count - 1] */
    int count, started;
    bool crowded; /* more threads than cores: who waits at the barrier sleeps, so that those it waits for can run */
    pthread_mutex_t running; /* callers from several threads take turns */
    size_t scratch_total;
    void *scratch;
    void (*fn)(void *, struct worker *);
    void *arg;
    _Alignas(LINE) atomic_uint run;      /* generation of the current run; a futex word */
    _Alignas(LINE) atomic_uint sleepers; /* workers asleep on run */
    _Alignas(LINE) atomic_uint arrived;  /* at the barrier */
    _Alignas(LINE) atomic_uint phase;    /* barrier generation; a futex word */
    /* Dynamic counters: [phase % 2] is in use, the other one is zero. */
    _Alignas(LINE) atomic_size_t next[2];
    atomic_bool stop;
};

static inline void spin_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void futex_wait(atomic_uint *word, unsigned seen)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

static void futex_wake_all(atomic_uint *word) { syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 0x7FFFFFFF, NULL, NULL, 0); }

void worker_barrier(struct worker *w)
{
    struct workers *t = w->team;
    /* For the next phase; nobody looks at it in this one, nor in the last, which all have left. */
    atomic_store_explicit(&t->shares[w->index].next[(atomic_load_explicit(&t->phase, memory_order_relaxed) + 1) & 1], 0, memory_order_relaxed);
    if (t->count == 1) {
        unsigned p = atomic_load_explicit(&t->phase, memory_order_relaxed);
        atomic_store_explicit(&t->next[p & 1], 0, memory_order_relaxed);
        atomic_store_explicit(&t->phase, p + 1, memory_order_relaxed);
        return;
    }
    unsigned phase = atomic_load_explicit(&t->phase, memory_order_relaxed);
    if (atomic_fetch_add_explicit(&t->arrived, 1, memory_order_acq_rel) + 1 == (unsigned)t->count) {
        atomic_store_explicit(&t->arrived, 0, memory_order_relaxed);
        atomic_store_explicit(&t->next[phase & 1], 0, memory_order_relaxed); /* for the phase after the next */
        atomic_store_explicit(&t->phase, phase + 1, memory_order_release);
        if (t->crowded) futex_wake_all(&t->phase);
        return;
    }
    while (t->crowded && atomic_load_explicit(&t->phase, memory_order_acquire) == phase) futex_wait(&t->phase, phase);
    for (int spins = 0; atomic_load_explicit(&t->phase, memory_order_acquire) == phase; spins++) {
        if (spins < SPINS_BEFORE_YIELD) spin_pause();
        else sched_yield(); /* more threads than free cores: let the late one run */
    }
}

void worker_range(const struct worker *w, size_t total, size_t grain, size_t *begin, size_t *end)
{
    size_t pieces = (total + grain - 1) / grain;
    size_t i = (size_t)w->index, n = (size_t)w->count;
    *begin = ROSE_MIN(pieces * i / n * grain, total);
    *end = ROSE_MIN(pieces * (i + 1) / n * grain, total);
}

bool worker_next(struct worker *w, size_t total, size_t grain, size_t *begin, size_t *end)
{
    struct workers *t = w->team;
    unsigned p = atomic_load_explicit(&t->phase, memory_order_relaxed);
    size_t b = atomic_fetch_add_explicit(&t->next[p & 1], grain, memory_order_relaxed);
    if (b >= total) return false;
    *begin = b;
    *end = ROSE_MIN(b + grain, total);
    return true;
}

void worker_open(struct worker *w)
{
    struct workers *t = w->team;
    atomic_store_explicit(&t->shares[w->index].next[atomic_load_explicit(&t->phase, memory_order_relaxed) & 1], 1, memory_order_release);
}

bool worker_take(struct worker *w, int of, size_t total, size_t grain, size_t *begin, size_t *end)
{
    struct workers *t = w->team;
    atomic_size_t *next = &t->shares[of].next[atomic_load_explicit(&t->phase, memory_order_relaxed) & 1];
    size_t least = of == w->index ? 1 : 2 * grain; /* what another comes for must be worth fetching what it needs */
    size_t taken = atomic_load_explicit(next, memory_order_acquire);
    do {
        if (!taken || taken - 1 + least > total) return false;
    } while (!atomic_compare_exchange_weak_explicit(next, &taken, taken + grain, memory_order_acquire, memory_order_acquire));
    *begin = taken - 1;
    *end = ROSE_MIN(taken - 1 + grain, total);
    return true;
}

static void *thread_main(void *arg)
{
    struct worker *w = arg;
    struct workers *t = w->team;
    for (unsigned seen = 0;;) {
        unsigned now;
        for (int spins = 0; (now = atomic_load_explicit(&t->run, memory_order_acquire)) == seen; spins++) {
            if (spins < SPINS_BEFORE_SLEEP && !t->crowded) {
                spin_pause();
                continue;
            }
            atomic_fetch_add(&t->sleepers, 1);
            futex_wait(&t->run, seen);
            atomic_fetch_sub(&t->sleepers, 1);
        }
        seen = now;
        if (atomic_load_explicit(&t->stop, memory_order_relaxed)) return NULL;
        t->fn(t->arg, w);
        worker_barrier(w);
    }
}

static void start_run(struct workers *t)
{
    atomic_fetch_add(&t->run, 1);
    if (atomic_load(&t->sleepers)) futex_wake_all(&t->run);
}

void workers_run(struct workers *t, void (*fn)(void *, struct worker *), void *arg)
{
    pthread_mutex_lock(&t->running);
    t->fn = fn;
    t->arg = arg;
    if (t->count > 1) start_run(t);
    fn(arg, &t->members[0]);
    worker_barrier(&t->members[0]);
    pthread_mutex_unlock(&t->running);
}

static int cgroup_quota(void)
{
    FILE *f = fopen("/sys/fs/cgroup/cpu.max", "re");
    if (!f) return 0;
    long long quota, period;
    int got = fscanf(f, "%lld %lld", &quota, &period);
    fclose(f);
    if (got != 2 || quota <= 0 || period <= 0) return 0;
    return (int)ROSE_MIN((quota + period - 1) / period, 1 << 16);
}

int workers_cores(void)
{
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : (int)sysconf(_SC_NPROCESSORS_ONLN);
    int quota = cgroup_quota();
    if (quota && quota < n) n = quota;
    return n > 0 ? n : 1;
}

/* Thread i goes to the i-th core of the mask the process started with; more threads than cores are left alone. */
static void pin_thread(pthread_t thread, int index, int count)
{
    cpu_set_t all, one;
    if (sched_getaffinity(0, sizeof all, &all) != 0 || CPU_COUNT(&all) < count) return;
    for (int cpu = 0, seen = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &all) || seen++ != index) continue;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        pthread_setaffinity_np(thread, sizeof one, &one);
        return;
    }
}

enum rose_status workers_open(int count, size_t scratch_bytes, bool pin, struct workers **out, struct rose_error *err)
{
    if (count < 0 || count > 1024) return status_set(err, ROSE_INVALID, "%d threads: give 1 to 1024, or 0 for one a core", count);
    if (count == 0) count = workers_cores();
    scratch_bytes = size_round_up(scratch_bytes ? scratch_bytes : 1, 4096);
    struct workers *t = aligned_alloc(LINE, size_round_up(sizeof *t, LINE));
    if (!t) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    memset(t, 0, sizeof *t);
    pthread_mutex_init(&t->running, NULL);
    t->members = calloc((size_t)count, sizeof *t->members);
    t->threads = calloc((size_t)count, sizeof *t->threads);
    t->shares = aligned_alloc(LINE, (size_t)count * sizeof *t->shares);
    t->scratch_total = scratch_bytes * (size_t)count;
    t->scratch = mmap(NULL, t->scratch_total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (!t->members || !t->threads || !t->shares || t->scratch == MAP_FAILED) {
        if (t->scratch == MAP_FAILED) t->scratch = NULL;
        workers_close(t);
        return status_set(err, ROSE_NO_MEMORY, "no memory for the scratch of %d threads (%zu bytes each)", count, scratch_bytes);
    }
    t->count = count;
    t->crowded = count > workers_cores();
    memset((void *)t->shares, 0, (size_t)count * sizeof *t->shares);
    for (int i = 0; i < count; i++)
        t->members[i] = (struct worker){i, count, t, (char *)t->scratch + scratch_bytes * (size_t)i, scratch_bytes};
    for (int i = 1; i < count; i++) {
        int e = pthread_create(&t->threads[i - 1], NULL, thread_main, &t->members[i]);
        if (e) {
            workers_close(t);
            return status_set(err, ROSE_IO, "cannot start thread %d of %d: %s; try fewer --threads", i + 1, count, strerror(e));
        }
        t->started = i;
        if (pin) pin_thread(t->threads[i - 1], i, count);
    }
    *out = t;
    return ROSE_OK;
}

void workers_close(struct workers *t)
{
    if (!t) return;
    atomic_store(&t->stop, true);
    if (t->started) start_run(t);
    for (int i = 0; i < t->started; i++) pthread_join(t->threads[i], NULL);
    if (t->scratch) munmap(t->scratch, t->scratch_total);
    pthread_mutex_destroy(&t->running);
    free(t->members);
    free(t->threads);
    free(t->shares);
    free(t);
}

int workers_count(const struct workers *t) { return t->count; }

size_t workers_scratch(const struct workers *t) { return t->scratch_total / (size_t)t->count; }
