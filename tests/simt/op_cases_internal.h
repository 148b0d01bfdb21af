/* What the files of cases share. */
#ifndef ROSE_TESTS_OP_CASES_INTERNAL_H
#define ROSE_TESTS_OP_CASES_INTERNAL_H

#include "op_cases.h"
#include "ops/matmul.h"
#include "tensor/dtype.h"

uint32_t op_random(uint32_t *state);
float op_normal(uint32_t *state);
/* What 16-bit elements are in the case that runs: f16, or bf16 (as every case begins). */
extern bool op_f16;
float op_value(uint16_t bits);
uint16_t op_bits(float value); /* f16 saturates */
double op_half_unit(void);     /* half a unit in the last place of 1 */
void op_fill(uint16_t *out, size_t n, float scale, uint32_t seed);
void *op_weights(size_t n, int bytes, float mean, uint32_t seed, double *value);
/* The sum of n products, *size the sum of their magnitudes. */
double op_dot(const double *x, const float *w, size_t n, double *size);
double op_activate(enum op_activation activation, double x);
int op_check(const char *name, size_t at, uint16_t got, double want, double slack);

/* Row `row` of a quantised result behind other arithmetic: codes within half a step of v, scales within
 * rounding. */
int op_check_quantised(const char *name, int out, bool tiled, int cols, size_t row, const double *v,
                       float global, const void *y, const void *scales);

const char *op_cases_qk_name(int i);
int op_cases_qk_run(int i, const struct op_io *io);
bool op_cases_qk_plan(int i, const struct device_info *device, int rows, struct plan *out);

const char *op_cases_attention_name(int i);
int op_cases_attention_run(int i, const struct op_io *io);
bool op_cases_attention_plan(int i, const struct device_info *device, int rows, struct plan *out);

const char *op_cases_act_name(int i);
int op_cases_act_run(int i, const struct op_io *io);
bool op_cases_act_plan(int i, const struct device_info *device, int rows, struct plan *out);

const char *op_cases_value_name(int i);
int op_cases_value_run(int i, const struct op_io *io);
bool op_cases_value_plan(int i, const struct device_info *device, int rows, struct plan *out);

const char *op_cases_pool_name(int i);
int op_cases_pool_run(int i, const struct op_io *io);
bool op_cases_pool_plan(int i, const struct device_info *device, int rows, struct plan *out);

const char *op_cases_quant_name(int i);
int op_cases_quant_run(int i, const struct op_io *io);
bool op_cases_quant_plan(int i, const struct device_info *device, int rows, struct plan *out);

const char *op_cases_kv_name(int i);
int op_cases_kv_run(int i, const struct op_io *io);
bool op_cases_kv_plan(int i, const struct device_info *device, int rows, struct plan *out);

const char *op_cases_logprob_name(int i);
int op_cases_logprob_run(int i, const struct op_io *io);
bool op_cases_logprob_plan(int i, const struct device_info *device, int rows, struct plan *out);

const char *op_cases_fp8_name(int i);
int op_cases_fp8_run(int i, const struct op_io *io);
bool op_cases_fp8_plan(int i, const struct device_info *device, int rows, struct plan *out);

const char *op_cases_matmul_name(int i);
int op_cases_matmul_run(int i, const struct op_io *io);
bool op_cases_matmul_plan(int i, const struct device_info *device, int rows, struct plan *out);
bool op_cases_matmul_there(int i, const struct device_info *device);

/* Block formats in the order of BLOCKS_*; rows of random bits with scales of a model's size. */
extern const enum dtype op_block_types[];
void *op_random_blocks(enum dtype dtype, size_t rows, int32_t k, uint32_t seed);
const char *op_cases_blocks_name(int i);
int op_cases_blocks_run(int i, const struct op_io *io);
bool op_cases_blocks_plan(int i, const struct device_info *device, int rows, struct plan *out);

#endif
