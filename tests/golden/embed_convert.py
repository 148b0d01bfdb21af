"""Tiny models with a tokenizer: texts as sentence-transformers answers them, and the GGUF form as llama.cpp's own converter writes it: an independent
writer of names, keys and tokenizers. The converter is that of
the sources which make_embed.py is told with --llama.cpp DIR (DIR/convert_hf_to_gguf.py); recipes of the data as in models_gguf.py, checked
against what the converter wrote, and

    skip n      without the first n values (RoBERTa's positions begin behind the padding's)
    pick [..]   these rows of the one part (yes and no of a reranker's output)

"texts" of a model's JSON: what the whole of sentence-transformers (or, where it has no such model, the reference forward over the tokenizer's ids)
answers, in the fields of rose_request; "text_files" is the tokenizer."""
import json, os, sys, tempfile
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from tokenizers import decoders

CORPUS = ["the quick brown fox jumps over the lazy dog", "judge whether the document meets the requirements", "a model of text is a table of numbers",
          "can only be yes or no", "yes", "no", "what does the fox say", "how many dogs are lazy", "vectors of words and of documents"] * 3
TEXTS = ["the lazy fox", "a document of words", "yes or no", "how many  numbers", "what"]
ROBERTA = ["<s>", "<pad>", "</s>", "<unk>"]
BERT = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def special(names):
    return [AddedToken(n, special=True, normalized=False) for n in names]


def around(t, first, last, typed):
    b = "B:1" if typed else "B:0"
    more = f"{last}:1" if typed else last
    pair = f"{first} $A {last} ${b} {more}" if typed else f"{first} $A {last} {last} ${b} {last}"
    t.post_processor = processors.TemplateProcessing(single=f"{first} $A {last}", pair=pair, special_tokens=[(first, t.token_to_id(first)), (last, t.token_to_id(last))])


def wordpiece(size):
    t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    t.normalizer, t.pre_tokenizer, t.decoder = normalizers.BertNormalizer(lowercase=True), pre_tokenizers.BertPreTokenizer(), decoders.WordPiece()
    t.train_from_iterator(CORPUS, trainers.WordPieceTrainer(vocab_size=size, special_tokens=special(BERT), show_progress=False))
    around(t, "[CLS]", "[SEP]", True)
    return t, {"tokenizer_class": "BertTokenizer", "cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]", "unk_token": "[UNK]", "mask_token": "[MASK]"}, "jina-v2-en"


def bytes_bpe(size, names):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer, t.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    t.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=size, special_tokens=special(names), initial_alphabet=["Ġ", "Ċ"], show_progress=False))
    return t


def roberta(size):
    t = bytes_bpe(size, ROBERTA + ["<mask>"])
    around(t, "<s>", "</s>", False)
    return t, {"tokenizer_class": "RobertaTokenizer", "bos_token": "<s>", "eos_token": "</s>", "cls_token": "<s>", "sep_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>", "mask_token": "<mask>"}, "roberta-bpe"


def modern(size):
    t = bytes_bpe(size, BERT)
    around(t, "[CLS]", "[SEP]", False)
    t.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    return t, {"tokenizer_class": "PreTrainedTokenizerFast", "cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]", "unk_token": "[UNK]", "mask_token": "[MASK]",
               "bos_token": "[CLS]", "eos_token": "[SEP]"}, "modern-bert"


def mpnet(size):
    names = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    t = Tokenizer(models.WordPiece(unk_token="<unk>"))
    t.normalizer, t.pre_tokenizer, t.decoder = normalizers.BertNormalizer(lowercase=True), pre_tokenizers.BertPreTokenizer(), decoders.WordPiece()
    t.train_from_iterator(CORPUS, trainers.WordPieceTrainer(vocab_size=size, special_tokens=special(names), show_progress=False))
    around(t, "<s>", "</s>", False)
    return t, {"tokenizer_class": "MPNetTokenizer", "bos_token": "<s>", "eos_token": "</s>", "cls_token": "<s>", "sep_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>",
               "mask_token": "<mask>"}, None


def qwen(size):
    t = bytes_bpe(size - 4, ["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    t.normalizer = normalizers.NFC()
    t.post_processor = processors.TemplateProcessing(single="$A <|endoftext|>", pair="$A $B <|endoftext|>", special_tokens=[("<|endoftext|>", 0)])
    return t, {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|endoftext|>", "pad_token": "<|endoftext|>", "add_bos_token": False}, "qwen2"


def sentencepiece(folder, size, kind, ids):
    import sentencepiece
    out = os.path.join(folder, "sp")
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(CORPUS), model_prefix=out, vocab_size=size, model_type=kind, normalization_rule_name="identity",
                                             hard_vocab_limit=False, minloglevel=2, **ids)
    return out + ".model", sentencepiece.SentencePieceProcessor(model_file=out + ".model")


def unigram(size, folder):
    """As XLM-RoBERTa: the file's ids move up by one behind the fairseq specials, and a mask closes the list."""
    path, sp = sentencepiece(folder, 90, "unigram", {})
    os.rename(path, os.path.join(folder, "sentencepiece.bpe.model"))
    pieces = [(n, 0.0) for n in ROBERTA] + [(sp.id_to_piece(i), sp.get_score(i)) for i in range(3, sp.get_piece_size())]
    pieces += [("<mask>", 0.0)]
    t = Tokenizer(models.Unigram(pieces, unk_id=3))
    t.normalizer = normalizers.Replace(__import__("tokenizers").Regex(" {2,}"), " ")
    t.pre_tokenizer, t.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    t.add_special_tokens(special(ROBERTA + ["<mask>"]))
    around(t, "<s>", "</s>", False)
    return t, {"tokenizer_class": "XLMRobertaTokenizer", "bos_token": "<s>", "eos_token": "</s>", "cls_token": "<s>", "sep_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>",
               "mask_token": "<mask>"}, "default"


def gemma(size, folder):
    path, sp = sentencepiece(folder, 100, "bpe", dict(pad_id=0, eos_id=1, bos_id=2, unk_id=3, add_dummy_prefix=False, remove_extra_whitespaces=False))
    os.rename(path, os.path.join(folder, "tokenizer.model"))
    return sp, {"tokenizer_class": "GemmaTokenizer", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>", "add_bos_token": True, "add_eos_token": True}, "default"


def reranker(size):
    """Qwen3-Reranker's: every byte, whole yes and no, tags of thoughts that are no special tokens; nothing is put around a text."""
    t = Tokenizer(models.BPE())
    t.normalizer, t.pre_tokenizer, t.decoder = normalizers.NFC(), pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    t.train_from_iterator(CORPUS + ["yes", "no"] * 9, trainers.BpeTrainer(vocab_size=size - 5, special_tokens=[], initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False))
    t.add_special_tokens(special(["<|endoftext|>", "<|im_start|>", "<|im_end|>"]))
    t.add_tokens([AddedToken(n, special=False, normalized=False) for n in ("<think>", "</think>")])
    return t, {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "add_bos_token": False}, "qwen2"


KINDS = {"wordpiece": wordpiece, "roberta": roberta, "modern": modern, "qwen": qwen, "reranker": reranker, "mpnet": mpnet, "unigram": unigram, "gemma": gemma}


def convert(source, folder, out, pre, dense, fuse_qkv):
    sys.path.insert(1, os.path.join(source, "gguf-py"))
    for name in [n for n in sys.modules if n == "gguf" or n.startswith("gguf.")]:
        del sys.modules[name]
    sys.path.insert(1, source)
    import conversion
    import gguf
    conversion.load_all_models()
    conversion.ModelBase.get_vocab_base_pre = lambda self, tokenizer: pre
    for sub in conversion.ModelBase.__subclasses__():
        sub.get_vocab_base_pre = lambda self, tokenizer: pre
    hparams = conversion.ModelBase.load_hparams(Path(folder), False)
    kind = conversion.get_model_class(conversion.get_model_architecture(hparams, conversion.ModelType.TEXT))
    with torch.inference_mode():
        kind(Path(folder), gguf.LlamaFileType.ALL_F32, Path(out), eager=True, model_name="tiny", sentence_transformers_dense_modules=dense, fuse_qkv=fuse_qkv).write()
    return gguf


def find_recipe(name, data, sources):
    """Which of the checkpoint's tensors this one is, by its values."""
    flat = data.reshape(-1)
    values = dict(sources)
    if "attn_qkv" in name:
        for source in values:
            parts = [source.replace("self.query", "self." + p) for p in ("query", "key", "value")]
            if "self.query" in source and np.array_equal(np.concatenate([values[p].reshape(-1) for p in parts]), flat):
                return {"parts": parts}
    for source, value in sources:
        v = value.reshape(-1)
        if v.size == flat.size and np.array_equal(v, flat):
            return {"parts": [source]}
        if v.size == flat.size and np.array_equal(v + np.float32(1), flat):
            return {"parts": [source], "add": 1.0}
        if value.ndim == 2 and data.ndim == 2 and data.shape[1] == value.shape[1] and data.shape[0] < value.shape[0]:
            skip = value.shape[0] - data.shape[0]
            if np.array_equal(value[skip:], data):
                return {"parts": [source], "skip": skip * value.shape[1]}
            rows = [np.flatnonzero((value == row).all(1)) for row in data]
            if all(len(r) == 1 for r in rows):
                return {"parts": [source], "pick": [int(r[0]) for r in rows]}
    raise AssertionError(f"{name} {data.shape} is none of the checkpoint's tensors")


def write_folder(folder, spec, by_name):
    """The directory as sentence-transformers and the converter read it; the tokenizer, and what rose's tests need of its files."""
    config, made = spec["config"], spec["texts"]
    os.makedirs(folder)
    build = KINDS[made["tokenizer"]]
    t, tokenizer_config, pre = build(config["vocab_size"], folder) if made["tokenizer"] in ("unigram", "gemma") else build(config["vocab_size"])
    files = {"config.json": dict(config, **made.get("config", {})), "tokenizer_config.json": tokenizer_config}
    files.update(spec.get("files", {}))
    for d in spec.get("dense", []):
        files[d["folder"] + "/config.json"] = {"in_features": d["in"], "out_features": d["out"], "bias": d["bias"], "activation_function": d["activation"]}
    for path, content in files.items():
        os.makedirs(os.path.dirname(os.path.join(folder, path)), exist_ok=True)
        with open(os.path.join(folder, path), "w") as f:
            json.dump(content, f)
    save_file({n: v for (n, k), v in by_name.items() if k == 0}, os.path.join(folder, "model.safetensors"), {"format": "pt"})
    for i, d in enumerate(spec.get("dense", [])):
        save_file({n: v for (n, k), v in by_name.items() if k == i + 1}, os.path.join(folder, d["folder"], "model.safetensors"), {"format": "pt"})
    kept = {}
    if isinstance(t, Tokenizer):
        t.save(os.path.join(folder, "tokenizer.json"))
        assert t.get_vocab_size() <= config["vocab_size"], t.get_vocab_size()
        kept = {"tokenizer.json": json.loads(t.to_str()), "tokenizer_config.json": tokenizer_config}
    return t, kept, pre


def ids_of(t, text):
    return t.encode(text).ids if isinstance(t, Tokenizer) else [t.bos_id()] + t.encode(text) + [t.eos_id()]


def embeddings(spec, folder, t, reference, store):
    out = []
    if spec.get("jina") or not isinstance(t, Tokenizer):
        for text in TEXTS:
            ids = ids_of(t, text)
            out.append(dict(text=text, tokens=ids, task="embed", **store.add(reference(ids))))
        return out
    from sentence_transformers import SentenceTransformer
    st = SentenceTransformer(folder, device="cpu", model_kwargs={"attn_implementation": "eager"})
    for ask in spec["texts"].get("asks", [{}]):
        for text in spec["texts"].get("texts", TEXTS):
            more = {} if "dimensions" not in ask else {"truncate_dim": ask["dimensions"], "normalize_embeddings": bool(spec.get("normalize"))}
            if ask.get("prompt_name"):
                more["prompt_name"] = ask["prompt_name"]
            elif "prompt_name" in ask:
                more["prompt"] = ""
            entry = dict(ask, text=text, task="embed", **store.add(st.encode(text, **more)))
            out.append(entry if ask or spec["texts"].get("texts") else dict(entry, tokens=ids_of(t, text)))
    return out


def logits_of_pairs(folder, store):
    from sentence_transformers import CrossEncoder
    ce = CrossEncoder(folder, device="cpu", model_kwargs={"attn_implementation": "eager"}, activation_fn=torch.nn.Identity())
    pairs = [(a, b) for a in TEXTS[:2] for b in TEXTS[2:]]
    return [dict(text=a, pair=b, task="classify", raw=True, **store.add(ce.predict([(a, b)])[0])) for a, b in pairs]


def judged(folder, t, spec, store):
    """The card of Qwen3-Reranker: system prompt, <Instruct>, <Query>, <Document>, an assistant that has thought nothing; softmax over yes and no."""
    import transformers
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    before = ("<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct provided. Note that the answer can only be "
              "\"yes\" or \"no\".<|im_end|>\n<|im_start|>user\n")
    after = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
    usual = "Given a web search query, retrieve relevant passages that answer the query"
    yes, no = tokenizer.convert_tokens_to_ids("yes"), tokenizer.convert_tokens_to_ids("no")
    assert yes == t.token_to_id("yes") and no == t.token_to_id("no") and len({yes, no, None}) == 3
    head, tail = (tokenizer.encode(x, add_special_tokens=False) for x in (before, after))
    assert tokenizer.convert_ids_to_tokens(head)[0] == "<|im_start|>" and "</think>" in tokenizer.convert_ids_to_tokens(tail)
    out = []
    for instruction in (None, "Find words of the same kind"):
        for query in TEXTS[:2]:
            for document in TEXTS[2:]:
                ids = head + tokenizer.encode(f"<Instruct>: {instruction or usual}\n<Query>: {query}\n<Document>: {document}", add_special_tokens=False) + tail
                logits = model(input_ids=torch.tensor([ids])).logits[0, -1]
                score = torch.softmax(logits[[no, yes]], 0)[1]
                out.append(dict(text=query, pair=document, task="score", **({"instruction": instruction} if instruction else {}), **store.add([score])))
    return out


def asked(name, spec, seed, tensors, values, reference, store, source):
    """(texts, tokenizer files, GGUF form or None, its header)"""
    from make_models import fnv1a64
    by_name = {(t[0], t[5]): values(seed, t[0], t[2], t[3], int(np.prod(t[4]))).reshape(t[4]) for t in tensors}
    with tempfile.TemporaryDirectory() as base:
        folder = os.path.join(base, spec["texts"].get("folder", "tiny"))
        t, kept, pre = write_folder(folder, spec, by_name)
        if spec["cls"] == "AutoModel":
            texts = embeddings(spec, folder, t, reference, store)
        else:
            texts = judged(folder, t, spec, store) if spec["cls"] == "AutoModelForCausalLM" else logits_of_pairs(folder, store)
        if spec.get("gguf") in (None, "own"):
            return texts, kept, None, None
        out = os.path.join(base, name + ".gguf")
        gguf = convert(source, folder, out, pre, bool(spec.get("dense")), spec["texts"].get("fuse_qkv", False))
        with open(out, "rb") as f:
            whole = f.read()
        reader = gguf.GGUFReader(out)
        recipes, sources = [], [(n, v) for (n, k), v in by_name.items() if k <= len(spec.get("dense", []))]
        for x in reader.tensors:
            assert x.tensor_type == gguf.GGMLQuantizationType.F32, (x.name, x.tensor_type)
            data = np.array(x.data, np.float32).reshape([int(n) for n in reversed(x.shape)])
            recipes.append(dict(find_recipe(x.name, data, sources), dtype="F32", count=int(data.size), rows=int(data.shape[0])))
        keep = os.environ.get("KEEP_GGUF")
        if keep:
            with open(os.path.join(keep, name + ".gguf"), "wb") as f:
                f.write(whole)
    return texts, kept, {"tensors": recipes, "hash": f"{fnv1a64(whole):016x}", "normalize": bool(spec.get("normalize"))}, whole[: reader.data_offset]


def fuzz_seed(path, out):
    """Of a file that make_embed.py kept (KEEP_GGUF=folder): its metadata without the tokenizer, a token table of four rows and the heads, for tests/fuzz/fuzz_config.c."""
    import gguf
    reader = gguf.GGUFReader(path)
    w = gguf.GGUFWriter(out, reader.fields["general.architecture"].contents())
    for key, field in reader.fields.items():
        if key.startswith(("GGUF.", "tokenizer.")) or key == "general.architecture":
            continue
        kind = field.types[0]
        w.add_key_value(key, field.contents(), kind, sub_type=field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None)
    for t in reader.tensors:
        if t.name in ("token_embd.weight", "position_embd.weight", "cls.output.weight", "cls.weight", "cls.norm.weight", "dense_2.weight", "dense_3.weight", "token_types.weight",
                      "blk.0.attn_norm.weight", "blk.0.attn_norm_2.weight"):
            data = np.array(t.data, np.float16).reshape([int(n) for n in reversed(t.shape)])
            w.add_tensor(t.name, data[:4] if t.name in ("token_embd.weight", "position_embd.weight") else data)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


if __name__ == "__main__":
    for path in sys.argv[1:]:
        fuzz_seed(path, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../fuzz/corpus/config", os.path.basename(path)))
