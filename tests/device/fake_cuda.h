/* A libcuda that runs nothing: memory is the host's, calls are written down, faults happen when told to.
 * test_cuda.c loads it as the driver and talks to the same copy through these functions. */
#ifndef ROSE_TESTS_FAKE_CUDA_H
#define ROSE_TESTS_FAKE_CUDA_H

/* Forget everything. */
void fake_reset(void);
/* What was called since, one word a call with what matters: "launch:add[4,1,1]x[64,1,1]+8:coop". */
const char *fake_log(void);
void fake_log_clear(void);
/* The nth call of a function from now on (1: the next) returns code. */
void fake_fail(const char *function, int nth, int code);
/* A kernel of this name breaks the context with this sticky code: the next wait, and every call after it,
 * returns it. */
void fake_break(const char *kernel, int code);
/* A device attribute's value. */
void fake_attribute(int attribute, int value);
/* What lies between two events, whatever ran; 8 at first. */
void fake_elapsed(float ms);
/* Objects that were made and not destroyed: memory, host memory, events, streams, modules, graphs,
 * executables, contexts. */
int fake_alive(void);

#endif
