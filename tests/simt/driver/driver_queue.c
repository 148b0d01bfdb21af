/* Streams: queues of operations that run when somebody waits. */
#define _GNU_SOURCE
#include "driver_internal.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <ucontext.h>

static struct cu_stream_st *streams;
char driver_message[1200];

double driver_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static uint64_t next_random(void)
{
    static uint64_t state;
    uint64_t z = (state += 0x9e3779b97f4a7c15ull) + driver_seed;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

cu_result driver_broken(int device, cu_result code, const char *why)
{
    struct driver_device *d = &driver_devices[device];
    if (!d->broken) snprintf(driver_message, sizeof driver_message, "%s", why);
    if (!d->broken) d->broken = code;
    driver_counts.faults++;
    return d->broken;
}

/* ---- running one kernel ---- */

/* A plain access of the fast mode into a guard page. */
static void on_signal(int number, siginfo_t *info, void *context)
{
    char name[200];
    uintptr_t pc = 0;
#if defined(__x86_64__)
    pc = (uintptr_t)((const ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] + 1;
#elif defined(__aarch64__)
    pc = (uintptr_t)((const ucontext_t *)context)->uc_mcontext.pc + 1;
#endif
    if (simt_grid && simt_grid->current) {
        simt_name_address(info->si_addr, name, sizeof name);
        simt_fail(SIMT_BOUNDS, (const void *)pc, "access at %s", name);
    }
    signal(number, SIG_DFL);
}

static struct simt_report guarded_launch(const struct simt_launch *l, const void *params)
{
    static unsigned char stack[64 << 10];
    stack_t on = {.ss_sp = stack, .ss_size = sizeof stack}, before;
    struct sigaction a = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER}, segv,
                     bus;
    sigaltstack(&on, &before);
    sigaction(SIGSEGV, &a, &segv);
    sigaction(SIGBUS, &a, &bus);
    struct simt_report r = simt_launch(l, params);
    sigaction(SIGSEGV, &segv, NULL);
    sigaction(SIGBUS, &bus, NULL);
    if (before.ss_flags & SS_DISABLE) before.ss_size = MINSIGSTKSZ;
    sigaltstack(&before, NULL);
    return r;
}

static cu_result run_launch(int device, struct driver_op *op)
{
    struct simt_launch l = op->launch;
    l.kernel = op->function->kernel;
    l.seed = next_random();
    double from = driver_now();
    struct simt_report r = guarded_launch(&l, op->params);
    double took = driver_now() - from;
    driver_counts.seconds += took;
    driver_counts.launches++;
    driver_counts.switches += r.switches;
    op->function->launches++;
    op->function->seconds += took;
    if (r.fault == SIMT_CLEAN) return CU_SUCCESS;
    char why[1200];
    snprintf(why, sizeof why, "%s: %s: %s", l.kernel->entry_name, simt_fault_name(r.fault), r.message);
    cu_result code = r.fault == SIMT_BOUNDS     ? CU_ERROR_ILLEGAL_ADDRESS
                     : r.fault == SIMT_DEADLOCK ? CU_ERROR_LAUNCH_TIMEOUT
                     : r.fault == SIMT_TRAP     ? CU_ERROR_ASSERT
                                                : CU_ERROR_LAUNCH_FAILED;
    return driver_broken(device, code, why);
}

/* ---- operations ---- */

static cu_result check_memory(int device, const void *p, size_t bytes, bool write)
{
    char why[400];
    if (simt_host_access(p, bytes, write, why, sizeof why)) return CU_SUCCESS;
    return driver_broken(device, CU_ERROR_ILLEGAL_ADDRESS, why);
}

static cu_result run_op(struct cu_stream_st *s, struct driver_op *op)
{
    struct driver_device *d = &driver_devices[s->device];
    if (d->broken && op->kind != DRIVER_RECORD) return d->broken;
    switch (op->kind) {
    case DRIVER_LAUNCH: return run_launch(s->device, op);
    case DRIVER_COPY: {
        cu_result r = check_memory(s->device, op->src, op->bytes, false);
        if (r == CU_SUCCESS) r = check_memory(s->device, op->dst, op->bytes, true);
        if (r == CU_SUCCESS) memmove(op->dst, op->src, op->bytes);
        driver_counts.copies++;
        return r;
    }
    case DRIVER_FILL: {
        cu_result r = check_memory(s->device, op->dst, op->bytes, true);
        for (size_t i = 0; r == CU_SUCCESS && i < op->bytes; i += (size_t)op->width)
            memcpy(op->dst + i, &op->byte, (size_t)op->width);
        return r;
    }
    case DRIVER_HOST: op->host(op->user); return CU_SUCCESS;
    case DRIVER_RECORD:
        if (op->event->done < op->ticket) op->event->done = op->ticket, op->event->time = driver_now();
        return CU_SUCCESS;
    case DRIVER_AFTER: {
        struct cu_event_st *e = op->event;
        while (e->done < op->ticket && e->stream && e->stream->first && e->stream != s) {
            cu_result r = driver_run_event(e);
            if (r) return r;
        }
        return CU_SUCCESS;
    }
    case DRIVER_GRAPH: {
        driver_counts.graph_launches++;
        for (struct driver_op *o = op->graph->first; o; o = o->next) {
            cu_result r = run_op(s, o);
            if (r) return r;
        }
        return CU_SUCCESS;
    }
    }
    return CU_SUCCESS;
}

static void op_free(struct driver_op *op)
{
    if (op->event) driver_event_drop(op->event);
    if (op->graph) driver_graph_drop(op->graph);
    free(op->params);
    free(op);
}

static void run_first(struct cu_stream_st *s)
{
    struct driver_op *op = s->first;
    s->first = op->next;
    if (!s->first) s->last = &s->first;
    run_op(s, op);
    op_free(op);
}

cu_result driver_run_stream(struct cu_stream_st *s)
{
    while (s->first) run_first(s);
    return driver_devices[s->device].broken;
}

cu_result driver_run_event(struct cu_event_st *e)
{
    uint64_t ticket = e->recorded;
    if (!e->stream) return CU_SUCCESS;
    while (e->stream && e->stream->first && e->done < ticket) run_first(e->stream);
    return e->stream ? driver_devices[e->stream->device].broken : CU_SUCCESS;
}

cu_result driver_run_all(int device)
{
    for (struct cu_stream_st *s = streams; s; s = s->next)
        if (s->device == device) driver_run_stream(s);
    return driver_devices[device].broken;
}

cu_result driver_add(struct cu_stream_st *s, const struct driver_op *op)
{
    struct driver_op *n = malloc(sizeof *n);
    if (!n) return CU_ERROR_OUT_OF_MEMORY;
    *n = *op;
    n->next = NULL;
    if (s->capture) {
        if (op->kind == DRIVER_AFTER || op->kind == DRIVER_GRAPH) {
            op_free(n);
            snprintf(driver_message, sizeof driver_message,
                     "the stand-in captures no waits for what is not captured, and no graphs in graphs");
            return CU_ERROR_NOT_SUPPORTED;
        }
        struct driver_op ***last = s->side ? &s->capture->side_last : &s->capture->last;
        **last = n;
        *last = &n->next;
        s->capture->count++;
        return CU_SUCCESS;
    }
    *s->last = n;
    s->last = &n->next;
    /* Now and then the device is faster than the host. */
    if (next_random() % 8 == 0) return driver_run_stream(s);
    return CU_SUCCESS;
}

/* The branches run one after the other, in an order that changes: what one of them destroys for the other is seen. */
static void join_branch(struct cu_graph_st *g)
{
    if (!g->side) return;
    if (next_random() % 2 == 0) { /* first */
        *g->side_last = *g->fork;
        *g->fork = g->side;
        if (g->last == g->fork) g->last = g->side_last;
    } else {
        *g->last = g->side;
        g->last = g->side_last;
    }
    g->side = NULL;
}

cu_result driver_capture_after(struct cu_stream_st *s, struct cu_event_st *e)
{
    struct cu_graph_st *g = e->capture;
    if (s->capture == g) {
        if (s->side || !e->captured_by->side) return CU_SUCCESS;
        join_branch(g);
        e->captured_by->capture = NULL, e->captured_by->side = false;
        return CU_SUCCESS;
    }
    if (s->capture || g->side) {
        snprintf(driver_message, sizeof driver_message, "the stand-in captures two branches, not more");
        return CU_ERROR_NOT_SUPPORTED;
    }
    s->capture = g, s->side = true;
    g->fork = g->last;
    g->side_last = &g->side;
    return CU_SUCCESS;
}

/* ---- lifetimes ---- */

void driver_event_drop(struct cu_event_st *e)
{
    if (--e->refs == 0) free(e);
}

struct cu_graph_st *driver_graph_new(void)
{
    struct cu_graph_st *g = calloc(1, sizeof *g);
    if (g) g->refs = 1, g->last = &g->first;
    return g;
}

void driver_graph_drop(struct cu_graph_st *g)
{
    if (--g->refs) return;
    if (g->side) join_branch(g); /* of a capture that failed */
    while (g->first) {
        struct driver_op *op = g->first;
        g->first = op->next;
        op_free(op);
    }
    free(g);
}

cu_result driver_stream_new(int device, struct cu_stream_st **out)
{
    struct cu_stream_st *s = calloc(1, sizeof *s);
    if (!s) return CU_ERROR_OUT_OF_MEMORY;
    s->device = device;
    s->last = &s->first;
    s->next = streams;
    streams = s;
    *out = s;
    return CU_SUCCESS;
}

/* The struct stays: events may still name it. */
void driver_stream_gone(struct cu_stream_st *s)
{
    driver_run_stream(s);
    if (s->capture && !s->side) driver_graph_drop(s->capture);
    s->capture = NULL, s->side = false;
}
