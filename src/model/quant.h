/* What a config.json says about quantised weights ("quantization_config"): FP8 in the forms that published checkpoints have. */
#ifndef ROSE_MODEL_QUANT_H
#define ROSE_MODEL_QUANT_H

#include "base/json.h"

enum quant_kind {
    QUANT_NONE,
    QUANT_FP8_TENSOR,  /* F8_E4M3, one scale a matrix */
    QUANT_FP8_CHANNEL, /* one scale a row */
    QUANT_FP8_BLOCK,   /* one scale a block of block_rows x block_cols */
};

struct model_quant {
    enum quant_kind kind;
    int32_t block_rows, block_cols; /* QUANT_FP8_BLOCK */
    const char *scale;              /* static: what replaces ".weight" in the name of the scales */
};

/* Reads the config's "quantization_config" ("compression_config"); none is QUANT_NONE. Methods: "fp8" (weight_block_size: blocks, else a
 * tensor), "fbgemm_fp8", "compressed-tensors" with format "float-quantized", "modelopt" with quant_algo FP8. Lists of modules that are
 * not converted need to be lists of texts and decide nothing: a tensor's type in the file does. */
enum rose_status quant_read(const struct json *config, struct model_quant *out, struct rose_error *err);

#endif
