/* What nearly every kernel needs. Tensor-core and bulk-copy kernels add mma.cuh, mbarrier.cuh, tma.cuh and so on. */
#ifndef ROSE_CUDA_ROSE_CUH
#define ROSE_CUDA_ROSE_CUH
#include "kernels/cuda/common/types.cuh"
#include "kernels/cuda/common/thread.cuh"
#include "kernels/cuda/common/memory.cuh"
#include "kernels/cuda/common/element.cuh"
#include "kernels/cuda/common/math.cuh"
#include "kernels/cuda/common/grid.cuh"
#endif
