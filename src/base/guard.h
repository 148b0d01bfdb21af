/* The guard of the token loop: in debug and test builds (ROSE_GUARD) an allocation between guard_enter and guard_leave on the same
 * thread aborts with its size, so that none can creep in. Elsewhere these are nothing. Linked with --wrap=malloc,calloc,realloc. */
#ifndef ROSE_BASE_GUARD_H
#define ROSE_BASE_GUARD_H

#ifdef ROSE_GUARD
void guard_enter(void);
void guard_leave(void);
#else
static inline void guard_enter(void) {}
static inline void guard_leave(void) {}
#endif

#endif
