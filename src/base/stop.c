#include "base/stop.h"

static _Thread_local const atomic_bool *watched;

void stop_watch(const atomic_bool *flag) { watched = flag; }

bool stop_asked(void) { return watched && atomic_load_explicit(watched, memory_order_relaxed); }
