"""Shapes of decoders: those of published models, and small ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

FAR_EVERY = 6
"""Of layers with a window one in so many has none, the last of them."""
NEAR_BASE = 10000.0
"""Of the rotary positions of layers with a window."""


@dataclass(frozen=True)
class Shape:
    """Of a decoder with RMS norms, rotary positions, shared heads of keys and values, and a gated feed-forward.

    shared        heads of keys and values, of which each serves heads / shared heads of queries
    head_width    of each head
    hidden        width of the feed-forward
    words         size of the vocabulary
    base          of the rotary positions' wavelengths
    normed_heads  whether each head of queries and keys is normalised before it is rotated
    normed_sums   whether what attention and the feed-forward give is normalised before it is added
    scale         of the embeddings
    gelu          whether the gate is GELU by tanh, and not SiLU
    window        tokens that a token sees in all layers but every sixth, itself among them; 0: all in every layer
    """

    layers: int
    width: int
    heads: int
    shared: int
    head_width: int
    hidden: int
    words: int
    base: float = 10000.0
    epsilon: float = 1e-6
    normed_heads: bool = False
    normed_sums: bool = False
    scale: float = 1.0
    gelu: bool = False
    window: int = 0

    def is_near(self, layer: int) -> bool:
        """Whether a layer sees a window alone; its rotary positions have the base NEAR_BASE."""
        return self.window > 0 and (layer + 1) % FAR_EVERY > 0

    @property
    def matrices(self) -> Mapping[str, tuple[int, int]]:
        """Outputs and inputs of each matrix, by the names that GGUF gives them."""
        queries, keys = self.heads * self.head_width, self.shared * self.head_width
        layer = {
            "attn_q": (queries, self.width),
            "attn_k": (keys, self.width),
            "attn_v": (keys, self.width),
            "attn_output": (self.width, queries),
            "ffn_gate": (self.hidden, self.width),
            "ffn_up": (self.hidden, self.width),
            "ffn_down": (self.width, self.hidden),
        }
        named = {f"blk.{at}.{name}": size for at in range(self.layers) for name, size in layer.items()}
        return {**named, "output": (self.words, self.width)}

    @property
    def vectors(self) -> Mapping[str, int]:
        """Length of each norm's weights, by the names that GGUF gives them."""
        layer = {"attn_norm": self.width, "ffn_norm": self.width}
        if self.normed_heads:
            layer |= {"attn_q_norm": self.head_width, "attn_k_norm": self.head_width}
        if self.normed_sums:
            layer |= {"post_attention_norm": self.width, "post_ffw_norm": self.width}
        named = {f"blk.{at}.{name}": size for at in range(self.layers) for name, size in layer.items()}
        return {**named, "output_norm": self.width}


SHAPES: Mapping[str, Shape] = {
    "tiny": Shape(2, 64, 4, 2, 16, 96, 320),
    "four-layers": Shape(4, 1024, 16, 8, 128, 3072, 8192),
    "smollm2-135m": Shape(30, 576, 9, 3, 64, 1536, 49152, 1e5, 1e-5),
    "qwen3-0.6b": Shape(28, 1024, 16, 8, 128, 3072, 151936, 1e6, 1e-6, normed_heads=True),
    "gemma-3-270m": Shape(
        18,
        640,
        4,
        1,
        256,
        2048,
        262144,
        1e6,
        normed_heads=True,
        normed_sums=True,
        scale=640**0.5,
        gelu=True,
        window=512,
    ),
    "eight-layers-of-8b": Shape(8, 4096, 32, 8, 128, 14336, 32000, 5e5, 1e-5),
    "llama-3.2-1b": Shape(16, 2048, 32, 8, 64, 8192, 128256, 5e5, 1e-5),
}
"""By name. `eight-layers-of-8b` has more than 2 GiB with weights of 8 bits.

Long positions of Llama 3.2 are scaled in the original; here they are not, which costs the same."""
