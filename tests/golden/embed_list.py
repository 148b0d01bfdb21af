"""The tiny models of make_embed.py: class that transformers loads, config, files beside it, patches that move the answer and patches that do not.
"__absent__" takes a key away."""


def bert(model_type, **more):
    base = {"model_type": model_type, "vocab_size": 120, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 4,
            "max_position_embeddings": 100, "hidden_act": "gelu", "layer_norm_eps": 1e-6, "pad_token_id": 0}
    base.update(more)
    return {k: v for k, v in base.items() if v != "__absent__"}


def decoder(model_type, **more):
    base = {"model_type": model_type, "vocab_size": 120, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 4,
            "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "hidden_act": "silu", "rope_theta": 1000.0}
    base.update(more)
    return {k: v for k, v in base.items() if v != "__absent__"}


def modules(pooling, dense=(), normalize=False, include_prompt=True, modern=False):
    """modules.json and its folders; dense: [(out, bias, activation class)]."""
    kinds = ["Transformer", "Pooling"] + ["Dense"] * len(dense) + ["Normalize"] * normalize
    names = [""] + [f"{i}_{k}" for i, k in enumerate(kinds) if i]
    files = {"modules.json": [{"idx": i, "name": str(i), "path": n, "type": "sentence_transformers.models." + k} for i, (n, k) in enumerate(zip(names, kinds))]}
    switches = {"cls": "cls_token", "mean": "mean_tokens", "max": "max_tokens", "mean_sqrt_len_tokens": "mean_sqrt_len_tokens", "weightedmean": "weightedmean_tokens",
                "lasttoken": "lasttoken"}
    pool = {"embedding_dimension": 48, "pooling_mode": pooling} if modern else {"word_embedding_dimension": 48}
    if not modern:
        pool.update({"pooling_mode_" + v: k == pooling for k, v in switches.items()})
    files["1_Pooling/config.json"] = dict(pool, include_prompt=include_prompt)
    return files


def dense(i, wide, out, bias, activation):
    return {"folder": f"{i}_Dense", "in": wide, "out": out, "bias": bias, "activation": activation}


ROBERTA = dict(max_position_embeddings=102, pad_token_id=1, bos_token_id=0, eos_token_id=2)
LABELS3 = {"id2label": {"0": "no", "1": "perhaps", "2": "yes"}, "label2id": {"no": 0, "perhaps": 1, "yes": 2}}
MODELS = {}

# Every pooling on one model; token types; a normalised dense layer behind it.
MODELS["embed_bert"] = dict(
    cls="AutoModel", config=bert("bert", architectures=["BertModel"], type_vocab_size=2), files=modules("mean", normalize=True), normalize=True, typed=True, gguf="own",
    poolings=["cls", "mean", "lasttoken", "weightedmean", "max"], tokens=True,
    flips=[{"hidden_act": "silu"}, {"layer_norm_eps": 0.1}, {"num_attention_heads": 6}, {"hidden_act": "relu"}],
    same=[{"pad_token_id": 3}, {"position_embedding_type": "absolute"}, {"is_decoder": False}])
MODELS["embed_bert_dense"] = dict(
    cls="AutoModel", config=bert("bert", architectures=["BertModel"]), files=modules("cls", dense=[1, 1, 1], modern=True),
    dense=[dense(2, 48, 64, True, "torch.nn.modules.activation.Tanh"), dense(3, 64, 32, False, "torch.nn.modules.linear.Identity"),
           dense(4, 32, 24, True, "torch.nn.modules.activation.GELU")], pooling="cls")
MODELS["embed_roberta"] = dict(
    cls="AutoModel", config=bert("roberta", architectures=["RobertaModel"], type_vocab_size=1, **ROBERTA), files=modules("mean"), gguf=True, texts=dict(tokenizer="roberta"),
    flips=[{"hidden_act": "silu"}], same=[{"bos_token_id": 5}])
MODELS["embed_xlm_roberta"] = dict(
    cls="AutoModel", config=bert("xlm-roberta", architectures=["XLMRobertaModel"], type_vocab_size=1, **ROBERTA), files=modules("cls", normalize=True), pooling="cls", normalize=True,
    sparse=True, gguf=True, texts=dict(tokenizer="unigram"), flips=[{"layer_norm_eps": 0.1}])
MODELS["embed_distilbert"] = dict(
    cls="AutoModel", config={"model_type": "distilbert", "architectures": ["DistilBertModel"], "vocab_size": 120, "dim": 48, "hidden_dim": 80, "n_layers": 3, "n_heads": 4,
                             "max_position_embeddings": 100, "activation": "gelu", "pad_token_id": 0, "sinusoidal_pos_embds": False},
    files=modules("mean"), gguf=True, texts=dict(tokenizer="wordpiece"), flips=[{"activation": "relu"}, {"n_heads": 6}], same=[{"sinusoidal_pos_embds": True}])
MODELS["embed_mpnet"] = dict(
    cls="AutoModel", config=bert("mpnet", architectures=["MPNetModel"], relative_attention_num_buckets=32, max_position_embeddings=302, pad_token_id=1),
    files=modules("mean_sqrt_len_tokens"), pooling="mean_sqrt_len_tokens", texts=dict(tokenizer="mpnet"),
    lengths=[1, 7, 40, 290], flips=[{"hidden_act": "silu"}])
MODERN = dict(layer_norm_eps="__absent__", norm_eps=1e-5, hidden_act="__absent__", hidden_activation="gelu", num_hidden_layers=5, local_attention=16,
              global_attn_every_n_layers=3, attention_bias=False, mlp_bias=False, norm_bias=False, classifier_pooling="cls", classifier_bias=False,
              classifier_activation="gelu", global_rope_theta=160000.0, local_rope_theta=10000.0)
MODELS["embed_modernbert"] = dict(
    cls="AutoModel", config=bert("modernbert", architectures=["ModernBertModel"], **MODERN), files=modules("mean"), tokens=True,
    gguf=True, texts=dict(tokenizer="modern", config={"layer_norm_eps": 1e-5}),
    flips=[{"local_attention": 8}, {"local_attention": 13}, {"global_attn_every_n_layers": 2}, {"hidden_activation": "silu"}, {"norm_eps": 0.1},
           {"global_rope_theta": 100.0}, {"local_rope_theta": 50.0}, {"layer_types": ["sliding_attention", "full_attention", "full_attention", "sliding_attention", "full_attention"]}],
    same=[{"global_rope_theta": "__absent__", "local_rope_theta": "__absent__", "rope_parameters": {
        "full_attention": {"rope_type": "default", "rope_theta": 160000.0}, "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}}])
MODELS["embed_modernbert_bias"] = dict(
    cls="AutoModel", config=bert("modernbert", architectures=["ModernBertModel"], **dict(MODERN, attention_bias=True, mlp_bias=True, norm_bias=True)), files=modules("cls"),
    pooling="cls")
MODELS["embed_nomic"] = dict(
    cls="AutoModel", config=bert("nomic_bert", architectures=["NomicBertModel"], hidden_act="silu", type_vocab_size=2, rope_parameters={"rope_type": "default", "rope_theta": 1000.0}),
    files=modules("mean", normalize=True), normalize=True, typed=True, gguf="own", texts=dict(tokenizer="wordpiece"), flips=[{"rope_parameters": {"rope_theta": 50.0}}, {"hidden_act": "gelu"}], same=[{"rope_parameters": "__absent__"}])
# As its authors name keys and tensors.
MODELS["embed_nomic_older"] = dict(
    cls="AutoModel", older=True,
    reference=bert("nomic_bert", architectures=["NomicBertModel"], hidden_act="silu", type_vocab_size=2, rope_parameters={"rope_type": "default", "rope_theta": 1000.0}),
    config={"model_type": "nomic_bert", "architectures": ["NomicBertModel"], "vocab_size": 120, "n_embd": 48, "n_inner": 80, "n_layer": 3, "n_head": 4, "n_positions": 100,
            "activation_function": "swiglu", "layer_norm_epsilon": 1e-6, "rotary_emb_base": 1000, "rotary_emb_fraction": 1.0, "type_vocab_size": 2, "prenorm": False,
            "causal": False, "qkv_proj_bias": False, "use_rms_norm": False, "pad_token_id": 0},
    files=modules("mean"))

# ALiBi; model_type is BERT's. Six heads: slopes of a number that is no power of two.
JINA = dict(architectures=["JinaBertForMaskedLM"], type_vocab_size=2, position_embedding_type="alibi", feed_forward_type="geglu", emb_pooler="mean", num_attention_heads=6,
            max_position_embeddings=160)
MODELS["embed_jina"] = dict(
    cls="AutoModel", jina="text", config=bert("bert", **JINA), files=modules("mean"), typed=True, tokens=True, lengths=[1, 6, 37, 140],
    gguf=True, texts=dict(tokenizer="wordpiece"),
    flips=[{"num_attention_heads": 4}, {"feed_forward_type": "reglu"}, {"layer_norm_eps": 0.1}], same=[{"hidden_act": "relu"}, {"max_position_embeddings": 200}, {"emb_pooler": "__absent__"}])
MODELS["embed_jina_code"] = dict(
    cls="AutoModel", jina="code", config=bert("bert", **JINA), files=modules("mean", normalize=True), normalize=True, typed=True, lengths=[1, 6, 37, 140],
    gguf=True, texts=dict(tokenizer="roberta", fuse_qkv=True),
    flips=[{"num_attention_heads": 8}, {"feed_forward_type": "reglu"}])

# Decoders.
MODELS["embed_qwen3"] = dict(
    cls="AutoModel", config=decoder("qwen3", architectures=["Qwen3ForCausalLM"], attention_bias=False, tie_word_embeddings=True), files=modules("lasttoken", normalize=True),
    pooling="lasttoken", normalize=True, tokens=True, gguf=True, texts=dict(tokenizer="qwen"), flips=[{"rope_theta": 50.0}])
MODELS["embed_llama"] = dict(cls="AutoModel", config=decoder("llama", architectures=["LlamaModel"]), files={}, pooling="mean", texts=dict(tokenizer="qwen"))
MODELS["embed_mistral_window"] = dict(cls="AutoModel", config=decoder("mistral", architectures=["MistralModel"], sliding_window=12), files=modules("weightedmean"),
                                      pooling="weightedmean", texts=dict(tokenizer="qwen"), flips=[{"sliding_window": 20}])
MODELS["embed_gemma"] = dict(
    cls="AutoModel", config=decoder("gemma3_text", architectures=["Gemma3TextModel"], hidden_act="__absent__", hidden_activation="gelu_pytorch_tanh", query_pre_attn_scalar=16,
                                    sliding_window=16, use_bidirectional_attention=True, num_hidden_layers=7, rope_theta=20000.0, rope_local_base_freq=10000.0,
                                    sliding_window_pattern=6),
    files=modules("mean", dense=[1, 1], normalize=True), pooling="mean", normalize=True, gguf=True,
    texts=dict(tokenizer="gemma", config={"pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 2}),
    dense=[dense(2, 48, 96, False, "torch.nn.modules.linear.Identity"), dense(3, 96, 48, False, "torch.nn.modules.linear.Identity")],
    flips=[{"sliding_window": 8}, {"query_pre_attn_scalar": 64}])

# Classifiers of sequences.
MODELS["class_bert"] = dict(cls="AutoModelForSequenceClassification", config=bert("bert", architectures=["BertForSequenceClassification"], type_vocab_size=2, **LABELS3), typed=True)
MODELS["class_bert_score"] = dict(
    cls="AutoModelForSequenceClassification",
    config=bert("bert", architectures=["BertForSequenceClassification"], type_vocab_size=2, id2label={"0": "LABEL_0"}, label2id={"LABEL_0": 0},
                sentence_transformers={"activation_fn": "torch.nn.modules.linear.Identity", "version": "4.0.1"}), typed=True)
MODELS["class_roberta"] = dict(cls="AutoModelForSequenceClassification",
                               config=bert("roberta", architectures=["RobertaForSequenceClassification"], type_vocab_size=1, **ROBERTA, problem_type="multi_label_classification", **LABELS3),
                               gguf=True, texts=dict(tokenizer="roberta"))
MODELS["class_xlm_roberta"] = dict(cls="AutoModelForSequenceClassification",
                                   config=bert("xlm-roberta", architectures=["XLMRobertaForSequenceClassification"], type_vocab_size=1, **ROBERTA, id2label={"0": "LABEL_0"},
                                               label2id={"LABEL_0": 0}), gguf=True, texts=dict(tokenizer="unigram"))
MODELS["class_distilbert"] = dict(cls="AutoModelForSequenceClassification", config=dict(MODELS["embed_distilbert"]["config"], architectures=["DistilBertForSequenceClassification"]))
MODELS["class_mpnet"] = dict(cls="AutoModelForSequenceClassification",
                             config=bert("mpnet", architectures=["MPNetForSequenceClassification"], relative_attention_num_buckets=40, max_position_embeddings=102, pad_token_id=1, **LABELS3))
MODELS["class_modernbert"] = dict(cls="AutoModelForSequenceClassification", config=bert("modernbert", architectures=["ModernBertForSequenceClassification"], **MODERN, **LABELS3),
                                  gguf=True, texts=dict(tokenizer="modern", config={"layer_norm_eps": 1e-5}), flips=[{"classifier_pooling": "mean"}, {"classifier_activation": "relu"}])
MODELS["class_nomic"] = dict(cls="AutoModelForSequenceClassification",
                             config=bert("nomic_bert", architectures=["NomicBertForSequenceClassification"], hidden_act="silu", type_vocab_size=2,
                                         rope_parameters={"rope_type": "default", "rope_theta": 1000.0}, problem_type="regression"))
MODELS["class_llama"] = dict(cls="AutoModelForSequenceClassification", config=decoder("llama", architectures=["LlamaForSequenceClassification"], **LABELS3))
MODELS["class_qwen3"] = dict(cls="AutoModelForSequenceClassification",
                             config=decoder("qwen3", architectures=["Qwen3ForSequenceClassification"], attention_bias=False, id2label={"0": "LABEL_0"}, label2id={"LABEL_0": 0}))
# Classifiers of tokens.
MODELS["token_bert"] = dict(cls="AutoModelForTokenClassification", config=bert("bert", architectures=["BertForTokenClassification"], type_vocab_size=2, **LABELS3))
MODELS["token_roberta"] = dict(cls="AutoModelForTokenClassification", config=bert("roberta", architectures=["RobertaForTokenClassification"], type_vocab_size=1, **ROBERTA, **LABELS3))
MODELS["token_modernbert"] = dict(cls="AutoModelForTokenClassification", config=bert("modernbert", architectures=["ModernBertForTokenClassification"], **MODERN, **LABELS3))
MODELS["token_qwen2"] = dict(cls="AutoModelForTokenClassification", config=decoder("qwen2", architectures=["Qwen2ForTokenClassification"], **LABELS3))
# Texts through the whole of sentence-transformers: prompts that do not count in the pooling, a weighted mean, a dense module, Matryoshka.
MODELS["text_bert"] = dict(
    cls="AutoModel", config=bert("bert", architectures=["BertModel"], type_vocab_size=2),
    files=dict(modules("weightedmean", dense=[1], normalize=True, include_prompt=False), **{
        "config_sentence_transformers.json": {"prompts": {"query": "the words of", "document": "", "long": "what does the quick brown fox say of "}, "default_prompt_name": "query",
                                              "similarity_fn_name": "cosine"},
        "sentence_bert_config.json": {"max_seq_length": 60, "do_lower_case": False}}),
    dense=[dense(2, 48, 32, True, "torch.nn.modules.activation.Tanh")], pooling="weightedmean", normalize=True,
    texts=dict(tokenizer="wordpiece", asks=[{"prompt_name": ""}, {"prompt_name": "query"}, {"prompt_name": "document"}, {"prompt_name": "long"}, {"dimensions": 20},
                                            {"prompt_name": "long", "dimensions": 7}]))
# A tokenizer that tells capitals from small letters, and a model that wants them small.
MODELS["text_lower"] = dict(
    cls="AutoModel", config=bert("roberta", architectures=["RobertaModel"], type_vocab_size=1, **ROBERTA),
    files=dict(modules("mean"), **{"sentence_bert_config.json": {"max_seq_length": 60, "do_lower_case": True}}), lengths=[6],
    texts=dict(tokenizer="roberta", texts=["The LAZY Fox", "the lazy fox", "A Document of WORDS"]))
# Qwen3-Reranker as its card asks it.
MODELS["text_reranker"] = dict(
    cls="AutoModelForCausalLM", config=decoder("qwen3", architectures=["Qwen3ForCausalLM"], attention_bias=False, tie_word_embeddings=True, vocab_size=420, max_position_embeddings=512,
                                               _name_or_path="Qwen/Qwen3-Reranker-tiny"), yes=None, no=None,
    files={}, lengths=[6], gguf=True, texts=dict(tokenizer="reranker", folder="Qwen3-Reranker-tiny"))
# A generator that answers yes (id 7) or no (id 11), by a module of sentence-transformers.
MODELS["score_qwen3"] = dict(
    cls="AutoModelForCausalLM", config=decoder("qwen3", architectures=["Qwen3ForCausalLM"], attention_bias=False, tie_word_embeddings=True), yes=7, no=11,
    files={"modules.json": [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.base.modules.transformer.Transformer"},
                            {"idx": 1, "name": "1", "path": "1_LogitScore", "type": "sentence_transformers.cross_encoder.modules.logit_score.LogitScore"}],
           "1_LogitScore/config.json": {"true_token_id": 7, "false_token_id": 11}})
MODELS["score_qwen2_untied"] = dict(MODELS["score_qwen3"], config=decoder("qwen2", architectures=["Qwen2ForCausalLM"], tie_word_embeddings=False))
