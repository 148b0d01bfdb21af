/* The loop: sockets, engines and signals, one epoll set. */
#define _GNU_SOURCE
#include "server/server.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "server/beside.h"
#include "server/internal.h"
#include "server/loader.h"
#include "server/rpc.h"

void server_options_init(struct server_options *o)
{
    *o = (struct server_options){.host = "127.0.0.1", .port = 8080, .grpc_port = -1, .body_limit = (size_t)32 << 20, .header_limit = (size_t)32 << 10, .output_limit = (size_t)1 << 20,
                                 .connections = 4096, .idle_s = 60, .read_s = 60, .write_s = 30, .ping_s = 15, .drain_s = 30, .stall_s = 30, .log_requests = true};
}

static void wanted_signals(sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGINT);
}

void server_block_signals(void)
{
    sigset_t set;
    wanted_signals(&set);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
}

struct loop {
    struct server *s;
    int epoll_fd, signal_fd;
    int signals;
    double drain_until_s, swept_s;
};

/* systemd's protocol: a datagram to the socket it names; a leading @ is an abstract name. */
static void notify(const struct server_options *o, const char *state)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t n = o->notify_socket ? strlen(o->notify_socket) : 0;
    if (n == 0 || n >= sizeof address.sun_path) return;
    memcpy(address.sun_path, o->notify_socket, n);
    if (address.sun_path[0] == '@') address.sun_path[0] = '\0';
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return;
    if (sendto(fd, state, strlen(state), 0, (const struct sockaddr *)&address, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n)) < 0)
        log_line(o, "warning", "NOTIFY_SOCKET: %s", strerror(errno));
    close(fd);
}

static void on_idle(void *user, struct httpd_request *r)
{
    (void)user;
    if (r->on_gone && r->on_idle) r->on_idle(r);
}

static void take_signal(struct loop *l)
{
    struct signalfd_siginfo info;
    struct server *s = l->s;
    while (read(l->signal_fd, &info, sizeof info) == sizeof info) {
        if (l->signals++) continue;
        s->draining = true;
        l->drain_until_s = httpd_now() + s->options->drain_s;
        models_drain(&s->models);
        httpd_drain(s->http);
        rpc_drain(s);
        notify(s->options, "STOPPING=1");
        log_line(s->options, "info", "signal %u: no new requests; %d under way have %g s to end, a second signal stops at once", info.ssi_signo, httpd_requests(s->http) + rpc_calls(s),
                 s->options->drain_s);
    }
}

/* Why the loop ends; NULL: it goes on. */
static const char *ending(const struct loop *l)
{
    if (!l->signals) return NULL;
    if (l->signals > 1) return "stopped";
    if (httpd_requests(l->s->http) + rpc_calls(l->s) == 0) return "all requests have ended";
    return httpd_now() >= l->drain_until_s ? "time is up, the rest is cancelled" : NULL;
}

static int wait_ms(const struct loop *l, bool more)
{
    if (more) return 0;
    int ms = httpd_timeout(l->s->http);
    /* Once a second there are deadlines to look at, but only while somebody is connected: an idle server sleeps. */
    if ((httpd_connections(l->s->http) || rpc_sweeps(l->s)) && (ms < 0 || ms > 1000)) ms = 1000;
    if (l->signals && (ms < 0 || ms > 100)) ms = 100;
    return ms;
}

static void run(struct loop *l)
{
    struct server *s = l->s;
    struct epoll_event events[256];
    bool more = false;
    const char *why;
    while (!(why = ending(l))) {
        int n = epoll_wait(l->epoll_fd, events, (int)ROSE_COUNT(events), wait_ms(l, more));
        for (int i = 0; i < n; i++) {
            void *p = events[i].data.ptr;
            bool is_model = (char *)p >= (char *)s->models.models && (char *)p < (char *)(s->models.models + MODELS_MAX);
            if (p == &l->signal_fd) take_signal(l);
            else if (p == s->models.loader) loader_run(&s->models);
            else if (p == s->models.beside) beside_run(s->models.beside);
            else if (p == &s->grpc) continue; /* below, each time */
            else if (p != s->http && !is_model) httpd_event(s->http, p, events[i].events);
        }
        more = false;
        for (int i = 0; i < s->models.count; i++) more |= models_pump(&s->models, &s->models.models[i]);
        rpc_run(s);
        httpd_flush(s->http);
        httpd_run(s->http);
        double now = httpd_now();
        if (now - l->swept_s >= 1) {
            l->swept_s = now;
            httpd_sweep(s->http, on_idle, NULL);
            httpd_flush(s->http);
            rpc_sweep(s);
        }
    }
    log_line(s->options, "info", "%s", why);
}

static enum rose_status watch(int epoll_fd, int fd, void *data, struct rose_error *err)
{
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = data};
    return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &e) ? status_set(err, ROSE_IO, "epoll: %s", strerror(errno)) : ROSE_OK;
}

/* As many descriptors as the system lets us have: each connection is one. */
static void raise_descriptor_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur == limit.rlim_max) return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

/* Every model of the repositories, of each name the versions that its policy wants. One that cannot be loaded keeps no other from being served. */
static enum rose_status load_repositories(struct server *s, struct rose_error *err)
{
    const struct server_options *o = s->options;
    struct models *m = &s->models;
    int ready = m->count;
    for (int i = 0; i < o->repositories_count; i++) ROSE_TRY(repository_scan(m, o->repositories[i], err));
    int left = 0;
    enum rose_status last = ROSE_OK; /* failure */
    for (int i = 0; i < m->count; i++) left += m->models[i].repository && !m->models[i].empty;
    for (int i = 0; i < m->count; i++) {
        struct model *model = &m->models[i];
        if (model->repository && !model->empty) left--;
        if (!model->repository || !versions_wanted(m, model)) continue;
        enum rose_status loaded = loader_load_now(m, model, 1.0 / (left + 1), err);
        if (loaded == ROSE_OK) ready++;
        else log_line(o, "error", "%s was not loaded: %s", model->name, err->message);
        if (loaded != ROSE_OK) last = loaded;
    }
    return last != ROSE_OK && !ready ? status_wrap(err, last, "no model could be loaded") : ROSE_OK;
}

static enum rose_status serve(struct loop *l, const struct server_model *models, int count, struct rose_error *err)
{
    struct server *s = l->s;
    const struct server_options *o = s->options;
    sigset_t set;
    ROSE_TRY(models_open(&s->models, o, models, count, err)); /* first: it takes over the engines */
    wanted_signals(&set);
    l->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    l->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (l->epoll_fd < 0 || l->signal_fd < 0) return status_set(err, ROSE_IO, "no descriptors: %s", strerror(errno));
    ROSE_TRY(watch(l->epoll_fd, l->signal_fd, &l->signal_fd, err));
    if (o->api_keys) ROSE_TRY(keys_read(&s->keys, o->api_keys, err));
    s->models.epoll_fd = l->epoll_fd;
    for (int i = 0; i < count; i++) ROSE_TRY(watch(l->epoll_fd, model_event_fd(&s->models.models[i]), &s->models.models[i], err));
    ROSE_TRY(loader_open(&s->models, err));
    ROSE_TRY(watch(l->epoll_fd, loader_fd(&s->models), s->models.loader, err));
    ROSE_TRY(beside_open(&s->models.beside, err));
    ROSE_TRY(watch(l->epoll_fd, beside_fd(s->models.beside), s->models.beside, err));
    ROSE_TRY(load_repositories(s, err));
    struct httpd_handler handler = {s, routes_headers, routes_request, routes_completed};
    ROSE_TRY(httpd_open(o, l->epoll_fd, &handler, &s->http, err));
    if (o->grpc_port >= 0) ROSE_TRY(rpc_open(s, err));
    if (s->grpc) ROSE_TRY(watch(l->epoll_fd, rpc_fd(s), &s->grpc, err));
    s->started_s = httpd_now();
    for (int i = 0; i < s->models.count; i++)
        if (s->models.models[i].state == MODEL_READY) log_line(o, "info", "%s at %s (%s)", s->models.models[i].name, httpd_address(s->http), s->device);
    if (s->grpc) log_line(o, "info", "gRPC at %s", rpc_address(s));
    notify(o, "READY=1");
    run(l);
    return ROSE_OK;
}

enum rose_status server_run(const struct server_options *options, const struct server_model *models, int count, const char *device, struct rose_error *err)
{
    struct server s = {.options = options, .device = device, .regions = {.off = options->no_shared_memory},
                       .settings = {.info = true, .warning = true, .error = true, .format = "default", .rate = "1000", .count = "-1", .frequency = "0"}};
    struct loop l = {.s = &s, .epoll_fd = -1, .signal_fd = -1};
    raise_descriptor_limit();
    enum rose_status status = serve(&l, models, count, err);
    rpc_close(&s);
    httpd_close(s.http);
    beside_close(s.models.beside);
    models_close(&s.models);
    keys_free(&s.keys);
    regions_remove(&s.regions, (struct str){0}, false);
    regions_remove(&s.regions, (struct str){0}, true);
    if (l.signal_fd >= 0) close(l.signal_fd);
    if (l.epoll_fd >= 0) close(l.epoll_fd);
    return status;
}
