/* The listening socket: TCP or Unix. */
#ifndef ROSE_SERVER_LISTEN_H
#define ROSE_SERVER_LISTEN_H

#include "server/server.h"

/* Open it; `address` gets the URL to print ("http://127.0.0.1:8080", "unix:/run/rose.sock"). */
enum rose_status listen_open(const struct server_options *options, int *fd, char *address, size_t room, struct rose_error *err);

#endif
