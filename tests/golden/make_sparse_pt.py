"""BGE-M3's lexical head as torch.save writes it, in three types: weight[0][i] = (i - 11) / 16 for 32 columns, bias -3/8 (exact in all of them).

    python tests/golden/make_sparse_pt.py      writes tests/golden/sparse_linear_{f32,f16,bf16}.pt
"""
import os

import torch

here = os.path.dirname(os.path.abspath(__file__))
for name, dtype in (("f32", torch.float32), ("f16", torch.float16), ("bf16", torch.bfloat16)):
    linear = torch.nn.Linear(32, 1)
    with torch.no_grad():
        linear.weight.copy_(((torch.arange(32) - 11) / 16)[None])
        linear.bias.fill_(-0.375)
    torch.save(linear.to(dtype).state_dict(), os.path.join(here, f"sparse_linear_{name}.pt"))
