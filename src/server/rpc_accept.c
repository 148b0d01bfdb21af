/* gRPC's library (1.51) stops listening for good when accept fails because descriptors have run out, and takes any number of connections. It accepts by
 * libc's accept4, which a program may define in its place (as httpd.c does with MHD_queue_response): what would end its listening looks like "try again"
 * here, and so does a connection beyond the limit, which waits in the queue. The library asks again when the next client connects, so when there is room
 * again we connect ourselves and hang up.
 */
#define _GNU_SOURCE
#include "server/rpc_accept.h"

#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

int accept4(int fd, struct sockaddr *address, socklen_t *bytes, int flags);

struct open_socket {
    int fd;
    ino_t inode; /* another one: it was closed, and its number is somebody else's */
};

/* Only what has the port is gRPC's. */
static struct {
    pthread_mutex_t lock;
    _Atomic int port;
    int limit, count, wake_fd;
    _Atomic bool waiting;     /* somebody is in the queue who could not be taken */
    struct open_socket *open; /* [limit] */
    struct sockaddr_storage address;
    socklen_t address_bytes;
} state = {.lock = PTHREAD_MUTEX_INITIALIZER};

bool rpc_accept_watch(int port, int limit, int wake_fd)
{
    struct open_socket *open = calloc((size_t)limit, sizeof *open);
    if (!open) return false;
    pthread_mutex_lock(&state.lock);
    free(state.open);
    state.open = open;
    state.port = port;
    state.limit = limit;
    state.wake_fd = wake_fd;
    state.count = 0;
    state.waiting = false;
    pthread_mutex_unlock(&state.lock);
    return true;
}

void rpc_accept_end(void)
{
    pthread_mutex_lock(&state.lock);
    free(state.open);
    state.open = NULL;
    state.port = state.limit = state.count = 0;
    state.waiting = false;
    pthread_mutex_unlock(&state.lock);
}

static int port_of(int fd, struct sockaddr_storage *a, socklen_t *n)
{
    *n = sizeof *a;
    if (getsockname(fd, (struct sockaddr *)a, n)) return 0;
    if (a->ss_family == AF_INET) return ntohs(((struct sockaddr_in *)(void *)a)->sin_port);
    return a->ss_family == AF_INET6 ? ntohs(((struct sockaddr_in6 *)(void *)a)->sin6_port) : 0;
}

static bool inode_of(int fd, ino_t *inode)
{
    struct stat st;
    if (fstat(fd, &st)) return false;
    *inode = st.st_ino;
    return true;
}

/* Forget those that are closed. */
static void sweep(void)
{
    int kept = 0;
    ino_t now;
    for (int i = 0; i < state.count; i++)
        if (inode_of(state.open[i].fd, &now) && now == state.open[i].inode) state.open[kept++] = state.open[i];
    state.count = kept;
}

static int accept_libc(int fd, struct sockaddr *address, socklen_t *bytes, int flags)
{
    static int (*_Atomic real)(int, struct sockaddr *, socklen_t *, int);
    int (*call)(int, struct sockaddr *, socklen_t *, int) = real;
    if (!call) {
        *(void **)&call = dlsym(RTLD_NEXT, "accept4");
        real = call;
    }
    if (call) return call(fd, address, bytes, flags);
    errno = ENOSYS;
    return -1;
}

bool rpc_accept_waiting(void) { return state.waiting; }

void rpc_accept_again(void)
{
    int fd = -1;
    if (!state.waiting) return;
    pthread_mutex_lock(&state.lock);
    if (state.count == state.limit) sweep();
    if (state.count < state.limit) fd = socket(state.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0) state.waiting = false; /* it says so again if it must */
    struct sockaddr_storage to = state.address;
    socklen_t n = state.address_bytes;
    pthread_mutex_unlock(&state.lock);
    if (fd < 0) return;
    if (connect(fd, (const struct sockaddr *)&to, n) && errno != EINPROGRESS) state.waiting = true; /* later, then */
    close(fd);
}

static int accept_watched(int fd, struct sockaddr *address, socklen_t *bytes, int flags)
{
    struct open_socket new = {-1, 0};
    bool refused = false;
    if (state.count == state.limit) sweep();
    if (state.count < state.limit) new.fd = accept_libc(fd, address, bytes, flags);
    else refused = true;
    if (new.fd >= 0 && inode_of(new.fd, &new.inode)) state.open[state.count++] = new;
    refused |= new.fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM);
    if (!refused) return new.fd;
    uint64_t one = 1;
    /* First the flag: the loop looks at it when it wakes. */
    if (!atomic_exchange(&state.waiting, true) && write(state.wake_fd, &one, sizeof one) < 0) errno = 0; /* full: it is readable already */
    errno = EAGAIN;
    return -1;
}

__attribute__((visibility("default"))) int accept4(int fd, struct sockaddr *address, socklen_t *bytes, int flags)
{
    struct sockaddr_storage own;
    socklen_t n;
    if (!state.port || port_of(fd, &own, &n) != state.port) return accept_libc(fd, address, bytes, flags);
    pthread_mutex_lock(&state.lock);
    state.address = own;
    state.address_bytes = n;
    int got = state.open ? accept_watched(fd, address, bytes, flags) : accept_libc(fd, address, bytes, flags);
    int why = errno;
    pthread_mutex_unlock(&state.lock);
    errno = why;
    return got;
}
