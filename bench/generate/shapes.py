"""Shapes of decoders: those of published models, and small ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Shape:
    """Of a decoder with RMS norms, rotary positions, shared heads of keys and values, and a gated feed-forward.

    shared        heads of keys and values, of which each serves heads / shared heads of queries
    head_width    of each head
    hidden        width of the feed-forward
    words         size of the vocabulary
    base          of the rotary positions' wavelengths
    normed_heads  whether each head of queries and keys is normalised before it is rotated
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
        named = {f"blk.{at}.{name}": size for at in range(self.layers) for name, size in layer.items()}
        return {**named, "output_norm": self.width}


SHAPES: Mapping[str, Shape] = {
    "tiny": Shape(2, 64, 4, 2, 16, 96, 320),
    "four-layers": Shape(4, 1024, 16, 8, 128, 3072, 8192),
    "smollm2-135m": Shape(30, 576, 9, 3, 64, 1536, 49152, 1e5, 1e-5),
    "qwen3-0.6b": Shape(28, 1024, 16, 8, 128, 3072, 151936, 1e6, 1e-6, normed_heads=True),
    "llama-3.2-1b": Shape(16, 2048, 32, 8, 64, 8192, 128256, 5e5, 1e-5),
}
"""By name. Long positions of Llama 3.2 are scaled in the original; here they are not, which costs the same."""
