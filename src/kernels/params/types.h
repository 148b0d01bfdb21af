/* The integer types of kernel parameter structs, for both sides: the host takes them from <stdint.h>, NVRTC (which
 * has no headers) from here. A params header includes this file and nothing else.
 *
 * A params struct holds device addresses as plain pointers (`const void *x; // [rows, n]`: 8 bytes on both sides; the
 * element type is a constant of the kernel), integers of stated width and floats. Order members by falling size so
 * that both compilers lay it out alike without padding. */
#ifndef ROSE_KERNELS_PARAMS_TYPES_H
#define ROSE_KERNELS_PARAMS_TYPES_H

#ifdef __CUDACC_RTC__
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
typedef unsigned long long uintptr_t;
#else
#include <stdint.h>
#endif

#if defined(__CUDACC_RTC__) || !defined(__cplusplus)
/* A TMA descriptor (CUtensorMap, 128 opaque bytes); a kernel takes its address in its own parameters. */
struct
#ifdef __CUDACC_RTC__
    __align__(64)
#endif
        tensor_map {
    uint64_t opaque[16];
}
#ifndef __CUDACC_RTC__
__attribute__((aligned(64)))
#endif
;
#endif

#endif
