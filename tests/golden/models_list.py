"""The tiny models of make_models.py: what their config.json says and which fields are flipped. "__absent__" takes a key away."""


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
