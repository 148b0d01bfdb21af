/* TLS for the load generator: libcurl's handshake and records below our own HTTP, loaded when it is needed (cli/http.h). Connections are made
 * side by side without waiting, so that one that begins does not hold up those under way.
 */
#ifndef ROSE_CLI_TLS_H
#define ROSE_CLI_TLS_H

#include <sys/types.h>

#include "base/status.h"

struct tls;
struct tls_link;

struct tls_options {
    const char *host, *port; /* the certificate has to be for that host */
    const char *cacert;      /* PEM file of whom to trust; NULL: the system's */
    bool insecure;           /* the certificate is not looked at */
};
/* `options` must outlive it. ROSE_UNSUPPORTED when there is no libcurl. While it is open SIGPIPE is ignored. */
enum rose_status tls_open(struct tls **out, const struct tls_options *options, struct rose_error *err);
/* After tls_end of every link. */
void tls_close(struct tls *t);

/* Begins a connection; NULL: out of memory. */
struct tls_link *tls_begin(struct tls *t, void *user);
/* To be called when tls_fd is readable (it may stand in an epoll set), or tls_wait_ms have passed. */
void tls_advance(struct tls *t);
int tls_fd(const struct tls *t);
int tls_wait_ms(const struct tls *t, int most);
/* A connection that is made since, or has failed: then *why says so (the link's own text). NULL: none. */
struct tls_link *tls_next(struct tls *t, const char **why);
void tls_end(struct tls_link *link);
/* Waits for one connection, at most 30 s. */
enum rose_status tls_connect(struct tls *t, struct tls_link **out, struct rose_error *err);

void *tls_user(const struct tls_link *link);
/* Does not block; -1 before it is made. */
int tls_socket(const struct tls_link *link);
/* As send and recv are. Bytes may be held behind a socket that is not readable: receive until EAGAIN. */
ssize_t tls_send(struct tls_link *link, const void *bytes, size_t n);
ssize_t tls_recv(struct tls_link *link, void *bytes, size_t room);

#endif
