#define _GNU_SOURCE
#include "cli/stream.h"

#include <signal.h>
#include <stdio.h>

static volatile sig_atomic_t interrupts;
static void on_interrupt(int signal)
{
    (void)signal;
    interrupts++;
}

bool cli_put(const char *bytes, size_t n) { return fwrite(bytes, 1, n, stdout) == n && fflush(stdout) == 0; }

enum rose_status cli_stream(struct rose_engine *e, const struct rose_request *r, bool (*on_event)(void *user, const struct rose_event *event), void *user,
                            bool *interrupted, struct rose_error *err)
{
    uint64_t id;
    struct rose_event events[32];
    struct sigaction act = {.sa_handler = on_interrupt}, before;
    enum rose_status s = rose_submit(e, r, &id, err);
    if (s != ROSE_OK) return s;
    interrupts = 0;
    sigaction(SIGINT, &act, &before);
    for (bool cancelled = false, ended = false; !ended;) {
        size_t n = rose_events(e, events, ROSE_COUNT(events), 200);
        bool go_on = !interrupts;
        for (size_t i = 0; i < n; i++) {
            go_on &= on_event(user, &events[i]);
            if (events[i].kind != ROSE_EVENT_FINAL) continue;
            ended = true;
            if (events[i].finish == ROSE_FINISH_ERROR) s = status_set(err, events[i].status, "%s", events[i].message ? events[i].message : "the request failed");
        }
        if (!go_on && !cancelled) rose_cancel(e, id), cancelled = true;
    }
    sigaction(SIGINT, &before, NULL);
    if (interrupted) *interrupted = interrupts != 0;
    return s;
}
