#!/usr/bin/env python3
"""Golden checkpoints of tests/weights: written by the packages gguf and safetensors, with what is in them beside.

    make_weights.py [OUT]      default tests/golden/weights/

    types.gguf            every tensor type Rose reads, and two it only names; metadata of every type
    split-0000N-of-*.gguf the package's own split
    hf/                   a Hugging Face directory with two shards
    types.safetensors     every dtype that torch has
    expected.txt          one line a tensor: file, name, type, shape, offset, bytes, first 8 bytes in hexadecimal
"""
import json
import sys
from pathlib import Path

import numpy as np
import torch
from gguf import GGMLQuantizationType as T, GGUFReader, GGUFValueType as V, GGUFWriter, GGML_QUANT_SIZES
from safetensors.torch import save_file

out = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent / "weights")
(out / "hf").mkdir(parents=True, exist_ok=True)
rng = np.random.default_rng(5)
expected = []


def note_gguf(path):
    reader = GGUFReader(path)
    for t in reader.tensors:
        shape = ",".join(str(n) for n in reversed(t.shape.tolist()))
        expected.append(f"{path.relative_to(out)} {t.name} {t.tensor_type.name} {shape} {t.data_offset} {t.n_bytes} "
                        f"{t.data.tobytes()[:8].hex()}")


def note_safetensors(path):
    raw = path.read_bytes()
    n = int.from_bytes(raw[:8], "little")
    for name, t in json.loads(raw[8:8 + n]).items():
        if name == "__metadata__":
            continue
        begin, end = (8 + n + o for o in t["data_offsets"])
        shape = ",".join(map(str, t["shape"])) or "-"
        expected.append(f"{path.relative_to(out)} {name} {t['dtype']} {shape} {begin} {end - begin} {raw[begin:end][:8].hex() or '-'}")


def block_tensor(w, name, kind, rows, cols):
    block, size = GGML_QUANT_SIZES[T[kind]]
    raw = rng.integers(0, 256, (rows, cols // block * size), dtype=np.uint8)
    w.add_tensor(name, raw, raw_dtype=T[kind])


path = out / "types.gguf"
w = GGUFWriter(path, "llama")
w.add_uint8("t.u8", 200)
w.add_int8("t.i8", -100)
w.add_uint16("t.u16", 60000)
w.add_int16("t.i16", -30000)
w.add_uint32("t.u32", 4000000000)
w.add_int32("t.i32", -2000000000)
w.add_uint64("t.u64", 2**63 + 5)
w.add_int64("t.i64", -2**62)
w.add_float32("t.f32", 0.15625)
w.add_float64("t.f64", 1e300)
w.add_bool("t.true", True)
w.add_bool("t.false", False)
w.add_string("t.string", "Grüße, 世界")
w.add_key_value("t.empty", "", V.STRING)  # add_string leaves empty ones out
w.add_array("tokenizer.ggml.tokens", ["<unk>", "", "Ġthe", "世", "\x00nul\x00"])
w.add_array("tokenizer.ggml.scores", [0.0, -1.5, -2.25, -1e9, 3.0])
w.add_array("tokenizer.ggml.token_type", [2, 1, 1, -7, 6])
w.add_key_value("t.bools", [True, False, True], V.ARRAY, V.BOOL)
w.add_key_value("t.u8s", [1, 2, 255], V.ARRAY, V.UINT8)
w.add_key_value("t.u64s", [1, 2**64 - 1], V.ARRAY, V.UINT64)
w.add_tensor("f32", rng.normal(size=(2, 3)).astype(np.float32))
w.add_tensor("f16", rng.normal(size=(2, 3, 4)).astype(np.float16))
w.add_tensor("bf16", rng.integers(0, 256, (3, 8), dtype=np.uint8), raw_dtype=T.BF16)
w.add_tensor("f64", rng.normal(size=(2,)))
w.add_tensor("i8", np.arange(5, dtype=np.int8))
w.add_tensor("i32", np.arange(4, dtype=np.int32).reshape(1, 2, 2, 1))
for kind in ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "IQ4_NL", "MXFP4"]:
    block_tensor(w, f"blk.0.{kind.lower()}.weight", kind, 3, 64)
for kind in ["Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_XS", "IQ2_XXS", "TQ1_0"]:
    block_tensor(w, f"blk.0.{kind.lower()}.weight", kind, 2, 256)
w.write_header_to_file()
w.write_kv_data_to_file()
w.write_tensors_to_file()
w.close()
note_gguf(path)

w = GGUFWriter(out / "split.gguf", "llama", split_max_tensors=2)
w.add_string("general.name", "split")
for i in range(5):
    w.add_tensor(f"blk.{i}.weight", rng.normal(size=(2, 4)).astype(np.float32))
w.write_header_to_file()
w.write_kv_data_to_file()
w.write_tensors_to_file()
w.close()
for path in sorted(out.glob("split-*.gguf")):
    note_gguf(path)

g = torch.Generator().manual_seed(3)
tensors = {"f32": torch.randn(2, 3, generator=g), "scalar": torch.tensor(1.5), "empty": torch.zeros(0, 4),
           "deep": torch.randn(2, 1, 2, 1, 2, generator=g), "f64": torch.randn(3, generator=g, dtype=torch.float64)}
for name in ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"]:
    tensors[name] = torch.randn(2, 8, generator=g).to(getattr(torch, name))
for name in ["bool", "uint8", "int8", "int16", "int32", "int64"]:
    tensors[name] = torch.arange(6).reshape(3, 2).to(getattr(torch, name))
tensors["größe.世界"] = torch.zeros(1)
path = out / "types.safetensors"
save_file(tensors, path, metadata={"format": "pt", "note": "{\"nested\": [1]}"})
note_safetensors(path)

shards = [{"model.embed.weight": torch.randn(4, 2, generator=g), "model.norm.weight": torch.randn(2, generator=g)},
          {"lm_head.weight": torch.randn(4, 2, generator=g).to(torch.bfloat16)}]
weight_map = {}
for i, shard in enumerate(shards, 1):
    name = f"model-{i:05d}-of-00002.safetensors"
    save_file(shard, out / "hf" / name)
    note_safetensors(out / "hf" / name)
    weight_map.update({k: name for k in shard})
(out / "hf" / "model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": 56}, "weight_map": weight_map}, indent=1))
(out / "hf" / "config.json").write_text(json.dumps({"model_type": "llama", "hidden_size": 2}))
(out / "hf" / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 3]}))
(out / "expected.txt").write_text("\n".join(expected) + "\n")
