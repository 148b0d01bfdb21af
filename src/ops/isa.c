#include "ops/isa.h"

#include "kernels/cpu/isa.h"

enum rose_status op_isa_select(const char *name, struct rose_error *err) { return cpu_isa_select(name, err); }
const char *op_isa_name(void) { return cpu_isa_name(cpu_isa()); }
