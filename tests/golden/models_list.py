"""The tiny models of make_models.py: what their config.json says and which fields are flipped. "__absent__" takes a key away.
same: patches under which transformers computes the same; also: those that it no longer reads, from files of its earlier versions."""


def sizes(model_type, **more):
    base = {"model_type": model_type, "vocab_size": 160, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
            "num_key_value_heads": 2, "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "hidden_act": "silu", "bos_token_id": 1, "eos_token_id": 2}
    base.update(more)
    return {k: v for k, v in base.items() if v != "__absent__"}


COMMON = [{"rms_norm_eps": 0.1}, {"hidden_act": "gelu"}, {"num_attention_heads": 8, "head_dim": 8, "num_key_value_heads": 4}]
MODELS = {}

# Llama 2: an old file, no rope keys, no grouped heads, in three shards.
MODELS["llama"] = dict(
    shards=3,
    gguf={},
    config=sizes("llama", num_key_value_heads="__absent__", architectures=["LlamaForCausalLM"], torch_dtype="float16", pretraining_tp=1, use_cache=True),
    flips=[{"rms_norm_eps": 0.1}, {"hidden_act": "gelu_pytorch_tanh"}, {"hidden_act": "relu"}, {"rope_theta": 500.0},
           {"rope_scaling": {"type": "linear", "factor": 3.0}}, {"num_attention_heads": 8}, {"num_key_value_heads": 2},
           {"num_hidden_layers": 2}, {"attention_bias": True}, {"mlp_bias": True}, {"hidden_act": "no_such_thing"}, {"intermediate_size": 64}],
    same=[{"tie_word_embeddings": True}, {"sliding_window": 8}, {"head_dim": None}, {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}])

# Llama 3.x: scaled frequencies, tied, biases everywhere, heads wider than hidden / heads.
MODELS["llama3"] = dict(
    gguf={},
    config=sizes("llama", head_dim=32, tie_word_embeddings=True, attention_bias=True, mlp_bias=True, rope_theta=500.0, eos_token_id=[2, 3, 5],
                 rope_scaling={"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}),
    flips=[{"rope_theta": 10000.0}, {"rope_scaling": {"factor": 2.0}}, {"rope_scaling": {"low_freq_factor": 2.0}}, {"rope_scaling": {"high_freq_factor": 20.0}},
           {"rope_scaling": {"original_max_position_embeddings": 16}}, {"rope_scaling": None}, {"tie_word_embeddings": False}, {"attention_bias": False},
           {"mlp_bias": False}, {"head_dim": 16}, {"original_max_position_embeddings": 16}],
    same=[{"rope_scaling": None, "rope_theta": "__absent__",
           "rope_parameters": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64,
                               "rope_theta": 500.0}}])

MODELS["mistral"] = dict(
    gguf={"sliding_window": True},
    config=sizes("mistral", hidden_size=48, head_dim=32, sliding_window=16, rope_parameters={"rope_type": "default", "rope_theta": 1000.0}),
    flips=[{"sliding_window": None}, {"sliding_window": 17}, {"sliding_window": "__absent__"}, {"rope_parameters": {"rope_theta": 100.0}}, {"hidden_act": "gelu"},
           {"head_dim": None}, {"num_key_value_heads": 4}],
    same=[{"use_sliding_window": False}, {"attention_bias": True}])

MODELS["ministral"] = dict(
    config=sizes("ministral", head_dim=16, sliding_window=16, rope_theta=1000.0, layer_types=["sliding_attention", "full_attention", "sliding_attention"]),
    flips=[{"layer_types": None}, {"sliding_window": 24}, {"layer_types": ["full_attention"] * 3}, {"hidden_act": "gelu"}],
    same=[{"attention_bias": True}])

# Frequencies: each kind of scaling once, on a small Llama.
MODELS["llama_linear"] = dict(
    gguf={},
    config=sizes("llama", num_hidden_layers=2, rope_theta=1000.0, rope_scaling={"type": "linear", "factor": 4.0}),
    flips=[{"rope_scaling": {"factor": 2.0}}, {"rope_scaling": {"type": "no_such_thing"}}, {"rope_scaling": None}])
MODELS["llama_dynamic"] = dict(
    prompts=[20, 75],
    config=sizes("llama", num_hidden_layers=2, max_position_embeddings=32, rope_theta=1000.0, rope_scaling={"type": "dynamic", "factor": 2.0}),
    flips=[{"rope_scaling": {"factor": 6.0}}, {"max_position_embeddings": 64}, {"rope_scaling": None}])
MODELS["llama_yarn"] = dict(
    gguf={},
    config=sizes("llama", num_hidden_layers=2, max_position_embeddings=128,
                 rope_parameters={"rope_type": "yarn", "rope_theta": 1000.0, "factor": 4.0, "original_max_position_embeddings": 64}),
    flips=[{"rope_parameters": {"factor": 2.0}}, {"rope_parameters": {"beta_fast": 2.0}}, {"rope_parameters": {"beta_slow": 0.2}}, {"rope_parameters": {"mscale": 0.7, "mscale_all_dim": 2.5}},
           {"rope_parameters": {"truncate": False}}, {"rope_parameters": {"attention_factor": 1.5}}, {"rope_parameters": {"original_max_position_embeddings": 16}}],
    same=[{"rope_parameters": {"mscale": 0.7}}, {"rope_parameters": None, "rope_theta": 1000.0, "rope_scaling": {
        "type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}}])

MODELS["mixtral"] = dict(
    gguf={"sliding_window": True},
    config=sizes("mixtral", num_local_experts=6, num_experts_per_tok=2, sliding_window=24, intermediate_size=48, rope_theta=1000.0),
    flips=[{"num_experts_per_tok": 3}, {"sliding_window": None}, {"num_local_experts": 5}, {"num_local_experts": 8}, {"hidden_act": "gelu"}, {"rope_theta": "__absent__"},
           {"rms_norm_eps": 0.1}, {"num_experts_per_tok": 9}],
    same=[{"head_dim": 16}])

MODELS["qwen2"] = dict(
    gguf={"no_window": True},
    config=sizes("qwen2", num_hidden_layers=4, tie_word_embeddings=True, use_sliding_window=False, sliding_window=16, max_window_layers=2, rope_theta=5000.0,
                 eos_token_id=3),
    flips=[{"use_sliding_window": True}, {"use_sliding_window": True, "max_window_layers": 1}, {"use_sliding_window": True, "sliding_window": 24},
           {"use_sliding_window": True, "layer_types": ["sliding_attention", "full_attention", "full_attention", "sliding_attention"]},
           {"use_sliding_window": True, "layer_types": ["sliding_attention", "full_attention", "no_such_attention", "sliding_attention"]},
           {"use_sliding_window": True, "sliding_window": "__absent__", "max_window_layers": 0, "rope_theta": 300.0},
           {"rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}}, {"hidden_act": "gelu"}, {"rms_norm_eps": 0.1}],
    same=[{"attention_bias": False}, {"layer_types": ["full_attention"] * 4}, {"qkv_bias": False}])

MOE = dict(num_experts=6, num_experts_per_tok=2, moe_intermediate_size=32)
MODELS["qwen2_moe"] = dict(
    gguf={"no_window": True},
    config=sizes("qwen2_moe", num_hidden_layers=4, shared_expert_intermediate_size=48, norm_topk_prob=False, use_sliding_window=False, sliding_window=16, max_window_layers=3,
                 decoder_sparse_step=1, mlp_only_layers=[], **MOE),
    flips=[{"norm_topk_prob": True}, {"num_experts_per_tok": 4}, {"use_sliding_window": True}, {"use_sliding_window": True, "max_window_layers": 1},
           {"use_sliding_window": True, "layer_types": ["full_attention", "sliding_attention", "full_attention", "sliding_attention"]}, {"qkv_bias": False},
           {"decoder_sparse_step": 2}, {"mlp_only_layers": [1]}, {"shared_expert_intermediate_size": 32}, {"moe_intermediate_size": 16}, {"hidden_act": "gelu"}],
    same=[{"attention_bias": True}])
# Dense layers between, from a list and from a step.
MODELS["qwen2_moe_mixed"] = dict(
    config=sizes("qwen2_moe", num_hidden_layers=4, shared_expert_intermediate_size=48, norm_topk_prob=True, decoder_sparse_step=2, mlp_only_layers=[3], **MOE),
    flips=[{"mlp_only_layers": []}, {"norm_topk_prob": "__absent__"}])

MODELS["qwen3"] = dict(
    gguf={"no_window": True},
    config=sizes("qwen3", hidden_size=48, head_dim=32, attention_bias=True, use_sliding_window=False, sliding_window=16, max_window_layers=1, rope_theta=2000.0),
    flips=[{"use_sliding_window": True}, {"attention_bias": False}, {"head_dim": 16}, {"rms_norm_eps": 0.1}, {"head_dim": "__absent__"},
           {"use_sliding_window": True, "layer_types": ["full_attention", "sliding_attention", "full_attention"]}],
    same=[{"max_window_layers": 2}])
MODELS["qwen3_moe"] = dict(
    gguf={"no_window": True},
    config=sizes("qwen3_moe", head_dim=16, norm_topk_prob=True, use_sliding_window=False, sliding_window=16, decoder_sparse_step=1, mlp_only_layers=[], rope_theta=2000.0, **MOE),
    flips=[{"norm_topk_prob": False}, {"num_experts_per_tok": 5}, {"use_sliding_window": True}, {"attention_bias": True}, {"num_experts": 5},
           {"use_sliding_window": True, "max_window_layers": 3}],
    same=[{"shared_expert_intermediate_size": 48}, {"layer_types": ["sliding_attention"] * 3}])

GEMMA = dict(hidden_act="__absent__", hidden_activation="gelu_pytorch_tanh", head_dim=16, query_pre_attn_scalar=16, sliding_window=16)
MODELS["gemma2"] = dict(
    gguf={},
    config=sizes("gemma2", num_hidden_layers=4, attn_logit_softcapping=3.0, final_logit_softcapping=4.0, rope_theta=1000.0, attention_bias=False, cache_implementation="hybrid",
                 **GEMMA),
    flips=[{"attn_logit_softcapping": None}, {"attn_logit_softcapping": 6.0}, {"final_logit_softcapping": None}, {"final_logit_softcapping": 8.0},
           {"attn_logit_softcapping": "__absent__"}, {"final_logit_softcapping": "__absent__"}, {"query_pre_attn_scalar": 40}, {"sliding_window": 12},
           {"layer_types": ["full_attention", "sliding_attention", "full_attention", "full_attention"]}, {"hidden_activation": "relu"}, {"rms_norm_eps": 0.1},
           {"attention_bias": True}, {"head_dim": "__absent__"}, {"tie_word_embeddings": False}, {"query_pre_attn_scalar": "__absent__"}],
    same=[{"hidden_act": "relu", "hidden_activation": "__absent__"}, {"hidden_act": "silu"}, {"tie_word_embeddings": True}])
MODELS["gemma3"] = dict(
    gguf={},
    config=sizes("gemma3_text", hidden_size=48, num_hidden_layers=7, rope_theta=20000.0, rope_local_base_freq=10000.0, rope_scaling={"rope_type": "linear", "factor": 8.0},
                 sliding_window_pattern=6, **GEMMA),
    flips=[{"rope_theta": 500.0}, {"rope_local_base_freq": 300.0}, {"rope_scaling": {"factor": 2.0}}, {"rope_scaling": None}, {"sliding_window_pattern": 2},
           {"final_logit_softcapping": 4.0}, {"query_pre_attn_scalar": 40}, {"sliding_window": 24}, {"rope_theta": "__absent__"},
           {"layer_types": ["full_attention"] + ["sliding_attention"] * 6}, {"rms_norm_eps": 0.1}],
    same=[{"rope_theta": "__absent__", "rope_scaling": "__absent__", "rope_local_base_freq": "__absent__", "sliding_window_pattern": "__absent__",
           "layer_types": ["sliding_attention"] * 5 + ["full_attention", "sliding_attention"],
           "rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 20000.0}, "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}},
          {"rope_local_base_freq": "__absent__"}, {"attn_logit_softcapping": 3.0}])

MODELS["phi3"] = dict(
    gguf={},
    config=sizes("phi3", pad_token_id=0, num_key_value_heads=4, sliding_window=20, original_max_position_embeddings=256, rope_scaling=None, rope_theta=1000.0, attention_bias=False,
                 eos_token_id=[3, 7]),
    flips=[{"sliding_window": None}, {"sliding_window": "__absent__"}, {"rope_theta": 100.0}, {"num_key_value_heads": 2}, {"hidden_act": "gelu"}, {"rms_norm_eps": 0.1}],
    same=[{"attention_bias": True}, {"tie_word_embeddings": "__absent__"}])
# Phi-4-mini: three quarters of each head turn, by short or long factors.
SHORT = [1.0, 1.1, 1.25, 1.5, 1.75, 2.0]
LONG = [1.0, 1.5, 2.0, 4.0, 7.0, 12.0]
MODELS["phi3_longrope"] = dict(
    gguf={}, prompts=[12, 75],
    config=sizes("phi3", pad_token_id=0, tie_word_embeddings=True, max_position_embeddings=128, original_max_position_embeddings=32, partial_rotary_factor=0.75, rope_theta=1000.0,
                 rope_scaling={"type": "longrope", "short_factor": SHORT, "long_factor": LONG}),
    flips=[{"original_max_position_embeddings": 100}, {"max_position_embeddings": 1024}, {"rope_scaling": {"long_factor": SHORT}}, {"rope_scaling": {"long_factor": SHORT[:5]}},
           {"rope_scaling": {"attention_factor": 1.9}}, {"partial_rotary_factor": 1.0}, {"rope_scaling": {"factor": 32.0}}, {"original_max_position_embeddings": "__absent__"},
           {"rope_scaling": None}],
    also=[{"rope_scaling": {"type": "su"}}, {"rope_scaling": {"type": "yarn"}}],
    same=[{"rope_scaling": {"short_factor": LONG}}])

MODELS["olmo2"] = dict(
    gguf={},
    config=sizes("olmo2", num_key_value_heads=4, rope_theta=1000.0, attention_bias=False),
    flips=[{"rms_norm_eps": 0.1}, {"rope_theta": 100.0}, {"hidden_act": "gelu"}, {"attention_bias": True}, {"num_key_value_heads": 2},
           {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}}],
    same=[{"sliding_window": 8}, {"rms_norm_eps": "__absent__"}, {"mlp_bias": True}])

MODELS["granite"] = dict(
    gguf={},
    config=sizes("granite", tie_word_embeddings=True, embedding_multiplier=3.0, residual_multiplier=0.6, attention_multiplier=0.2, logits_scaling=2.5, rope_theta=1000.0,
                 mlp_bias=False, attention_bias=False),
    flips=[{"embedding_multiplier": 12.0}, {"residual_multiplier": 1.0}, {"attention_multiplier": 0.4}, {"logits_scaling": 5.0}, {"embedding_multiplier": "__absent__"},
           {"residual_multiplier": "__absent__"}, {"attention_multiplier": "__absent__"}, {"logits_scaling": "__absent__"}, {"mlp_bias": True}, {"attention_bias": True},
           {"tie_word_embeddings": False}])

MODELS["smollm3"] = dict(
    gguf={},
    config=sizes("smollm3", pad_token_id=0, num_hidden_layers=5, use_sliding_window=False, sliding_window=None, no_rope_layers=[1, 1, 1, 0, 1], no_rope_layer_interval=4, rope_theta=2000.0),
    flips=[{"no_rope_layers": [0, 1, 1, 1, 1]}, {"no_rope_layers": None, "no_rope_layer_interval": 2}, {"no_rope_layers": [1, 1]},
           {"use_sliding_window": True, "sliding_window": 16}, {"use_sliding_window": True, "sliding_window": 16, "layer_types": ["sliding_attention"] + ["full_attention"] * 4},
           {"rope_theta": "__absent__"}, {"tie_word_embeddings": False}, {"attention_bias": True}],
    same=[{"no_rope_layers": "__absent__", "no_rope_layer_interval": "__absent__"}, {"sliding_window": 16}, {"tie_word_embeddings": True}])

# Wide heads that are no powers of two: StableLM's and Phi-2's 80, Phi-3-mini's 96, and 192 with norms of queries and keys.
HEADS = dict(num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1)
MODELS["llama_heads80"] = dict(prompts=[75, 20], config=sizes("llama", head_dim=80, rope_theta=1000.0, **HEADS), flips=[{"rope_theta": 100.0}])
MODELS["phi3_heads96"] = dict(
    prompts=[75, 20], config=sizes("phi3", pad_token_id=0, hidden_size=192, num_hidden_layers=2, num_attention_heads=2, sliding_window=17, rope_theta=1000.0, rope_scaling=None),
    flips=[{"sliding_window": None}])
MODELS["qwen3_heads192"] = dict(
    prompts=[75, 20], config=sizes("qwen3", head_dim=192, use_sliding_window=False, rope_theta=2000.0, **HEADS), flips=[{"rope_theta": 100.0}])

# FP8 checkpoints: sizes that are no multiples of a block; the references compute with code times scale in float32.
FP8_SIZES = dict(hidden_size=192, intermediate_size=320, num_hidden_layers=2, head_dim=32, vocab_size=160)


def fp8_groups(strategy, **more):
    return {"group_0": {"targets": ["Linear"], "output_activations": None,
                        "input_activations": {"dynamic": True, "num_bits": 8, "strategy": "token", "symmetric": True, "type": "float"},
                        "weights": dict({"dynamic": False, "num_bits": 8, "strategy": strategy, "symmetric": True, "type": "float"}, **more)}}


BLOCK = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128],
         "modules_to_not_convert": ["lm_head", "model.layers.0.mlp.gate"]}
BAD_BLOCK = [{"quantization_config": p} for p in (
    None, {"quant_method": "awq"}, {"fmt": "e5m2"}, {"activation_scheme": "guess"}, {"weight_block_size": None}, {"weight_block_size": [64, 128]},
    {"weight_block_size": [128]}, {"weight_block_size": [128, 0]}, {"weight_block_size": [128, 100]}, {"weight_block_size": [0, 128]},
    {"weight_block_size": [1 << 40, 128]}, {"weight_block_size": "128x128"}, {"modules_to_not_convert": "lm_head"}, {"modules_to_not_convert": [3]})]
MODELS["qwen3_fp8"] = dict(
    prompts=[40], fp8={"kind": "block", "dtype": "BF16"}, dtypes=["BF16"],
    config=sizes("qwen3", quantization_config=BLOCK, **FP8_SIZES), refused=BAD_BLOCK)
MODELS["qwen3_moe_fp8"] = dict(
    prompts=[40], fp8={"kind": "block", "dtype": "F32"}, dtypes=["BF16", "F32"],
    config=sizes("qwen3_moe", num_experts=8, num_experts_per_tok=2, moe_intermediate_size=160, norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[],
                 quantization_config=BLOCK, **FP8_SIZES))
# Experts of whole blocks, three of four chosen: enough rows each for products that quantise activations.
MODELS["qwen3_moe_fp8_channel"] = dict(
    prompts=[40], fp8={"kind": "channel", "dtype": "BF16"}, dtypes=["BF16", "F32"],
    config=sizes("qwen3_moe", num_experts=4, num_experts_per_tok=3, moe_intermediate_size=128, norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[],
                 quantization_config={"quant_method": "compressed-tensors", "format": "float-quantized", "quantization_status": "compressed", "kv_cache_scheme": None,
                                      "ignore": ["lm_head", "re:.*gate$"], "config_groups": fp8_groups("channel")}, **{**FP8_SIZES, "hidden_size": 256}))
MODELS["qwen3_moe_fp8_block"] = dict(
    prompts=[40], fp8={"kind": "block", "dtype": "F32"}, dtypes=["BF16", "F32"],
    config=sizes("qwen3_moe", num_experts=4, num_experts_per_tok=3, moe_intermediate_size=256, norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[],
                 quantization_config=BLOCK, **{**FP8_SIZES, "hidden_size": 256}))
MODELS["llama_fp8"] = dict(
    prompts=[40], fp8={"kind": "tensor", "dtype": "F32", "unused": ["input_scale", "k_scale", "v_scale"]}, dtypes=["BF16", "F16"],
    config=sizes("llama", quantization_config={"quant_method": "fp8", "activation_scheme": "static", "ignored_layers": ["lm_head"]}, **FP8_SIZES),
    refused=[{"quantization_config": {"weight_block_size": [128, 128]}}],
    also=[{"quantization_config": {"activation_scheme": "dynamic"}}, {"quantization_config": {"quant_method": "modelopt", "quant_algo": "FP8"}},
          {"quantization_config": {"quant_method": "compressed-tensors", "config_groups": fp8_groups("tensor")}}])
MODELS["llama_fp8_block"] = dict(
    prompts=[40], fp8={"kind": "block", "dtype": "F32", "scale": "weight_scale"}, dtypes=["BF16", "F32"],
    config=sizes("llama", quantization_config={"quant_method": "compressed-tensors", "format": "float-quantized",
                                               "config_groups": fp8_groups("block", block_structure=[128, 128])},
                 **{**FP8_SIZES, "hidden_size": 256, "intermediate_size": 384}))
MODELS["llama_fp8_channel"] = dict(
    prompts=[40], fp8={"kind": "channel", "dtype": "BF16"}, dtypes=["BF16", "F32"],
    config=sizes("llama", tie_word_embeddings=True, attention_bias=True,
                 quantization_config={"quant_method": "compressed-tensors", "format": "float-quantized", "quantization_status": "compressed", "kv_cache_scheme": None,
                                      "ignore": ["lm_head", "re:.*gate$"], "config_groups": fp8_groups("channel")}, **FP8_SIZES),
    refused=[{"quantization_config": p} for p in (
        {"format": "pack-quantized"}, {"config_groups": None}, {"config_groups": {"group_0": {"weights": {"num_bits": 4}}}},
        {"config_groups": {"group_0": {"weights": {"type": "int"}}}}, {"config_groups": {"group_0": {"weights": {"symmetric": False}}}},
        {"config_groups": {"group_0": {"weights": {"strategy": "group"}}}}, {"config_groups": {"group_0": {"weights": {"strategy": "tensor"}}}},
        {"config_groups": {"group_0": {"weights": {"strategy": "block"}}}}, {"config_groups": {"group_1": fp8_groups("tensor")["group_0"]}}, {"ignore": {}})],
    also=[{"quantization_config": {"quant_method": "fbgemm_fp8", "modules_to_not_convert": []}}])
