#define _GNU_SOURCE
#include "server/listen.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/status.h"

enum { BACKLOG = 4096, SEND_BUFFER = 128 << 10 };

/* A socket file that nobody listens on is left over from a process that was killed. */
static bool is_stale(const struct sockaddr_un *address)
{
    struct stat st;
    if (lstat(address->sun_path, &st) || !S_ISSOCK(st.st_mode)) return false;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return false;
    bool refused = connect(fd, (const struct sockaddr *)address, sizeof *address) && errno == ECONNREFUSED;
    close(fd);
    return refused;
}

static enum rose_status open_unix(const char *path, int *out, struct rose_error *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path) return status_set(err, ROSE_INVALID, "--unix %s: the path has more than %zu bytes", path, sizeof address.sun_path - 1);
    memcpy(address.sun_path, path, strlen(path) + 1);
    if (is_stale(&address)) unlink(path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || bind(fd, (const struct sockaddr *)&address, sizeof address) || listen(fd, BACKLOG)) {
        status_set(err, ROSE_IO, "cannot listen on %s: %s", path, strerror(errno));
        if (fd >= 0) close(fd);
        return ROSE_IO;
    }
    *out = fd;
    return ROSE_OK;
}

static int open_one(const struct addrinfo *a)
{
    int one = 1, fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return -1;
    /* Connections inherit these. A bounded send buffer: what a client does not read must show here, not fill the kernel; a vanished peer
     * (no FIN came) is given up after half a minute. */
    int send_bytes = SEND_BUFFER, vanished_ms = 30000, probe_s = 15;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &send_bytes, sizeof send_bytes);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &probe_s, sizeof probe_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &(int){5}, sizeof(int));
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &vanished_ms, sizeof vanished_ms);
    if (!bind(fd, a->ai_addr, a->ai_addrlen) && !listen(fd, BACKLOG)) return fd;
    int saved = errno;
    close(fd);
    errno = saved;
    return -1;
}

static enum rose_status open_tcp(const struct server_options *o, int *out, int *port, struct rose_error *err)
{
    char service[16];
    snprintf(service, sizeof service, "%d", o->port);
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV}, *list = NULL;
    int failed = getaddrinfo(o->host, service, &hints, &list);
    if (failed) return status_set(err, ROSE_NOT_FOUND, "--host %s: %s", o->host, gai_strerror(failed));
    int fd = -1;
    for (const struct addrinfo *a = list; a && fd < 0; a = a->ai_next) fd = open_one(a);
    int saved = errno;
    freeaddrinfo(list);
    if (fd < 0) return status_set(err, ROSE_IO, "cannot listen on %s port %d: %s", o->host, o->port, strerror(saved));
    struct sockaddr_storage bound;
    socklen_t n = sizeof bound;
    char number[16] = "0";
    if (!getsockname(fd, (struct sockaddr *)&bound, &n)) getnameinfo((struct sockaddr *)&bound, n, NULL, 0, number, sizeof number, NI_NUMERICSERV);
    *port = 0;
    sscanf(number, "%d", port);
    *out = fd;
    return ROSE_OK;
}

enum rose_status listen_open(const struct server_options *o, int *fd, char *address, size_t room, struct rose_error *err)
{
    if (o->unix_path) {
        snprintf(address, room, "unix:%s", o->unix_path);
        return open_unix(o->unix_path, fd, err);
    }
    int port = 0;
    ROSE_TRY(open_tcp(o, fd, &port, err));
    snprintf(address, room, strchr(o->host, ':') ? "%s://[%s]:%d" : "%s://%s:%d", o->tls_cert ? "https" : "http", o->host, port);
    return ROSE_OK;
}
