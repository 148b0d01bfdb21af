/* op_weight_pack and op_matmul for CUDA, recorded into programs and run by the stand-in driver (tests/simt/driver): the cases of
 * tests/gpu/gpu_matmul.c, small. */
#define GPU_MATMUL_SMALL
enum { MOST_ROWS = 70, K = 160, N0 = 96, N1 = 40, N2 = 24 };
#define GPU_MATMUL_EXPECT {2, 200}
int gpu_matmul_main(int argc, char **argv);
#define main gpu_matmul_main
#include "../gpu/gpu_matmul.c"
#undef main

int main(int argc, char **argv)
{
    driver_ = compiler_ = SIMT_DRIVER_DIR "/libsimt_fast.so";
    return gpu_matmul_main(argc, argv);
}
