#include "device/device.h"

enum rose_status device_open(const struct device_options *options, struct device **out, struct rose_error *err)
{
    return options->kind == DEVICE_CUDA ? device_cuda_open(options, out, err) : device_cpu_open(options, out, err);
}
