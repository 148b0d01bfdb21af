"""JinaBERT v2 in float32, written from its description: Günther et al. 2023, "Jina Embeddings 2" (a BERT whose attention scores fall by ALiBi's slope
times the distance, to both sides; Press et al. 2022), and from what the authors' modeling files jina-bert-implementation and
jina-bert-v2-qk-post-norm do: which half of the gated matrix is activated, and where the second kind norms. transformers has no class of its own."""
import torch
import torch.nn.functional as F


def slopes(heads):
    power = 1
    while power * 2 <= heads:
        power *= 2
    first = [2.0 ** (-8.0 * (i + 1) / power) for i in range(power)]
    doubled = [2.0 ** (-8.0 * (i + 1) / (2 * power)) for i in range(2 * power)]
    return torch.tensor(first + doubled[0::2][: heads - power])


class Jina:
    """weights: {name: array} as the files name them; code: the kind for code."""

    def __init__(self, config, weights, code):
        self.c, self.w, self.code = config, {k.removeprefix("bert."): torch.tensor(v, dtype=torch.float32) for k, v in weights.items()}, code
        self.act = {"geglu": F.gelu, "reglu": F.relu}[config["feed_forward_type"]]

    def to(self, dtype):
        out = Jina(self.c, {}, self.code)
        out.w = {k: v.to(dtype) for k, v in self.w.items()}
        return out

    def norm(self, name, x):
        return F.layer_norm(x, (x.shape[-1],), self.w[name + ".weight"], self.w[name + ".bias"], self.c["layer_norm_eps"])

    def linear(self, name, x):
        return F.linear(x, self.w[name + ".weight"], self.w.get(name + ".bias"))

    def attention(self, p, h):
        n, heads = h.shape[0], self.c["num_attention_heads"]
        q, k, v = (self.linear(p + "self." + x, h) for x in ("query", "key", "value"))
        if self.code:
            q, k = self.norm(p + "self.layer_norm_q", q), self.norm(p + "self.layer_norm_k", k)
        q, k, v = (x.view(n, heads, -1).transpose(0, 1) for x in (q, k, v))
        at = torch.arange(n)
        bias = -slopes(heads)[:, None, None] * (at[:, None] - at[None, :]).abs()
        scores = q @ k.transpose(1, 2) / q.shape[-1] ** 0.5 + bias.to(q.dtype)
        out = (torch.softmax(scores, -1) @ v).transpose(0, 1).reshape(n, -1)
        return self.norm(p + "output.LayerNorm", self.linear(p + "output.dense", out) + h)

    def __call__(self, tokens, types=None):
        e = "embeddings."
        types = types or [0] * len(tokens)
        h = self.norm(e + "LayerNorm", self.w[e + "word_embeddings.weight"][tokens] + self.w[e + "token_type_embeddings.weight"][types])
        wide = self.c["intermediate_size"]
        for i in range(self.c["num_hidden_layers"]):
            p = f"encoder.layer.{i}."
            a = self.attention(p + "attention.", h)
            if self.code:
                h = self.norm(p + "layer_norm_1", h + a)
                x = self.linear(p + "mlp.up_gated_layer", h)
                h = self.norm(p + "layer_norm_2", h + self.linear(p + "mlp.down_layer", x[:, :wide] * self.act(x[:, wide:])))
            else:
                x = self.linear(p + "mlp.gated_layers", a)
                h = self.norm(p + "mlp.layernorm", a + self.linear(p + "mlp.wo", self.act(x[:, :wide]) * x[:, wide:]))
        return h


def shapes(config, code):
    """[(name, shape)] in the files' order; those of the kind for code as a model with a head has them."""
    h, wide = config["hidden_size"], config["intermediate_size"]

    def norm(name):
        return [(name + ".weight", [h]), (name + ".bias", [h])]

    def linear(name, rows, cols):
        return [(name + ".weight", [rows, cols]), (name + ".bias", [rows])]

    out = [("embeddings.word_embeddings.weight", [config["vocab_size"], h]), ("embeddings.token_type_embeddings.weight", [config["type_vocab_size"], h])] + norm("embeddings.LayerNorm")
    for i in range(config["num_hidden_layers"]):
        p = f"encoder.layer.{i}."
        for x in ("query", "key", "value"):
            out += linear(p + "attention.self." + x, h, h)
        if code:
            out += norm(p + "attention.self.layer_norm_q") + norm(p + "attention.self.layer_norm_k")
        out += linear(p + "attention.output.dense", h, h) + norm(p + "attention.output.LayerNorm")
        if code:
            out += norm(p + "layer_norm_1") + norm(p + "layer_norm_2")
        gate, down = ("up_gated_layer", "down_layer") if code else ("gated_layers", "wo")
        out += [(p + f"mlp.{gate}.weight", [2 * wide, h])] + linear(p + "mlp." + down, h, wide)
        if not code:
            out += norm(p + "mlp.layernorm")
    return [("bert." + n if code else n, s) for n, s in out]
