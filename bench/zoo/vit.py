"""Vision transformers: DeiT tiny and ViT base.

Touvron et al. 2020, arXiv 2012.12877; Dosovitskiy et al. 2020, arXiv 2010.11929.
"""

from __future__ import annotations

from bench.zoo.attention import attend
from bench.zoo.builder import GraphBuilder, Value


def vit_tiny(g: GraphBuilder, *, size: int = 224) -> None:
    """Width 192, 3 heads, 12 blocks, patches of 16."""
    _vit(g, size, width=192, heads=3, blocks=12)


def vit_base(g: GraphBuilder, *, size: int = 224) -> None:
    """Width 768, 12 heads, 12 blocks, patches of 16."""
    _vit(g, size, width=768, heads=12, blocks=12)


def _vit(g: GraphBuilder, size: int, width: int, heads: int, blocks: int, patch: int = 16, classes: int = 1000) -> None:
    patches = g.conv(g.input("image", (1, 3, size, size)), width, patch, patch, pad=0, bias=True, gain=1.0)
    tokens = patches.shape[2] * patches.shape[3]
    x = g.transpose(g.reshape(patches, (1, width, tokens)), (0, 2, 1))
    x = g.concat([g.normal((1, 1, width), 1.0, "class_token"), x], axis=1)
    x = g.add(x, g.normal((1, tokens + 1, width), 0.5, "position"))
    for _ in range(blocks):
        x = g.add(x, self_attention(g, g.layer_norm(x, 1e-6), heads))
        hidden = g.gelu(g.dense(g.layer_norm(x, 1e-6), 4 * width))
        x = g.add(x, g.dense(hidden, width, gain=2.0))
    first = g.slice(g.layer_norm(x, 1e-6), (1,), (0,), (1,))
    g.output("logits", g.gemm(g.squeeze(first, 1), classes))


def self_attention(g: GraphBuilder, x: Value, heads: int) -> Value:
    """One joint projection to Q, K, V, split through a 5-D transpose; Q scaled before the product."""
    batch, tokens, width = x.shape
    joint = g.reshape(g.dense(x, 3 * width), (batch, tokens, 3, heads, width // heads))
    parts = g.split(g.transpose(joint, (2, 0, 3, 1, 4)), 3, axis=0)
    queries, keys, values = (g.squeeze(part, 0) for part in parts)
    scores = g.matmul(g.scale(queries, (width // heads) ** -0.5), g.transpose(keys, (0, 1, 3, 2)))
    return g.dense(attend(g, scores, values), width, gain=4.0)
