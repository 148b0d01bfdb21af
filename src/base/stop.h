/* A long computation on a thread asks now and then whether it is still wanted: whoever gives it to the thread names a flag. */
#ifndef ROSE_BASE_STOP_H
#define ROSE_BASE_STOP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/* Of this thread, from here on; NULL: nobody stops it. */
void stop_watch(const atomic_bool *flag);
bool stop_asked(void);
/* The same for loops of short turns: looks at every 4,096th. */
static inline bool stop_asked_at(size_t turn) { return !(turn & 4095) && stop_asked(); }

#endif
