/* Time for measuring how long something takes. */
#ifndef ROSE_BASE_CLOCK_H
#define ROSE_BASE_CLOCK_H

/* Seconds since some moment in the past; never runs backwards. */
double clock_seconds(void);

#endif
