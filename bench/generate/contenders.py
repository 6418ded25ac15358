"""The runtimes that race: what each opens, how it is started, and why others take no part."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from bench.cache import Cache
from bench.engines.process import ROOT
from bench.generate.codes import Coding
from bench.generate.decoder import PAST, SEQUENCE, TOTAL, Attention, decoder
from bench.generate.process import Contender
from bench.generate.sessions import genai_folder
from bench.generate.weights import Parts
from bench.subject import Subject
from compiler.contract import CompileOptions
from compiler.contract.options import CACHE_OF_MODEL

OURS = "tilewright"
LLAMA = "llama.cpp"
PEERS = ("onnxruntime-0", "onnxruntime-4", "onnxruntime-genai", "openvino", LLAMA)
NARROW = {"tilewright-bf16": "bf16", "tilewright-int8": "int8"}
"""Ours with caches of fewer bits (option `cache`), which race with ours where they are named."""
NO_PEERS = {
    "openvino-genai": "its pipelines read OpenVINO's own format; `openvino` is the plugin that they run, "
    "with the caches as states",
}
"""What somebody may look for here, and why it is not among the peers."""
POSITIONS = 8192
"""The longest text that rotary positions are made for."""
PIECES = (16, 64)
"""Tokens of a prompt that our artifact reads in a step, where its caches have room for more."""
INSTALLED = {
    "onnxruntime-0": ("onnxruntime", "pip install onnxruntime"),
    "onnxruntime-4": ("onnxruntime", "pip install onnxruntime"),
    "onnxruntime-genai": ("onnxruntime_genai", "pip install onnxruntime-genai"),
    "openvino": ("openvino", "pip install openvino"),
}
"""What Python imports of a peer, and what installs it."""


@dataclass(frozen=True)
class Material:
    """What contenders are made of.

    name   of the weights
    parts  the weights in codes
    gguf   the file that llama.cpp opens; None of seeded weights
    llama  a folder in which node finds node-llama-cpp; None: it takes no part
    """

    name: str
    parts: Parts
    cache: Cache
    budget: float
    gguf: Path | None = None
    llama: Path | None = None
    _written: dict[tuple[Attention, int], Path] = field(default_factory=dict)

    def model(self, attention: Attention, level: int) -> Path:
        """The decoder's file in the cache, written once in a run."""
        if (attention, level) not in self._written:
            place = self.cache.place("decoders") / f"{self.name}-{self.parts.coding}-{attention}-{level}.onnx"
            draft = place.with_suffix(".part")
            model = decoder(self.parts, attention, POSITIONS, level)
            draft.write_bytes(model.SerializeToString(deterministic=True))
            draft.replace(place)
            self._written[attention, level] = place
        return self._written[attention, level]

    def compiled(self, length: int, threads: int, held: str = CACHE_OF_MODEL) -> Path:
        """Our artifact with caches of `length` tokens, `held` so. Raises what `compile_model` raises."""
        dims: Any = {SEQUENCE: [1, *PIECES] if length > PIECES[-1] else 1, PAST: length, TOTAL: length}
        options = CompileOptions(dims=dims, threads=threads, tuning_budget_s=self.budget, carry="auto", cache=held)
        file = self.model(Attention.GROUPED, 0)
        return self.cache.compiled(Subject(file.stem, "generate", file), options).artifact


def absent(name: str, material: Material) -> str:
    """Why a peer cannot take part, with what would mend it; empty where it can."""
    if name in INSTALLED:
        module, fix = INSTALLED[name]
        if importlib.util.find_spec(module) is None:
            return f"not installed ({fix})"
        if name == "onnxruntime-0" and material.parts.coding is Coding.FP32:
            return "accuracy levels are of weights in blocks"
        return ""
    if name in NARROW:
        return ""
    if material.gguf is None:
        return "it opens GGUF files (--weights)"
    if material.llama is None:
        return "not named (--llama FOLDER, in which `npm install node-llama-cpp @node-llama-cpp/linux-x64` was run)"
    return "" if shutil.which("node") else "node is not installed"


def contender(name: str, material: Material, length: int, threads: int) -> Contender:
    """A contender with caches of `length` tokens. Raises what `compile_model` raises."""
    if name == LLAMA:
        assert material.gguf
        assert material.llama
        program = Path(__file__).with_name("llama.mjs")
        words = ["node", str(program), str(material.gguf.resolve()), str(threads), str(length)]
        return Contender(name, words, material.llama, material.gguf.stat().st_size, writes=False)
    file = FILES[name](material, length, threads)
    opener = OURS if name in NARROW else name
    held = sum(one.stat().st_size for one in file.iterdir()) if file.is_dir() else file.stat().st_size
    words = [sys.executable, "-m", "bench.generate.child", opener, str(file.resolve()), str(threads), str(length)]
    return Contender(name, words, ROOT, held)


def _genai(material: Material, length: int, threads: int) -> Path:
    model = material.model(Attention.GROUPED, 4)
    folder = material.cache.place("genai") / f"{model.stem}-{length}-{threads}"
    return genai_folder(folder, model, material.parts.shape, threads, length)


FILES: Mapping[str, Callable[[Material, int, int], Path]] = {
    OURS: Material.compiled,
    **{name: partial(Material.compiled, held=held) for name, held in NARROW.items()},
    "onnxruntime-0": lambda material, length, threads: material.model(Attention.GROUPED, 0),
    "onnxruntime-4": lambda material, length, threads: material.model(Attention.GROUPED, 4),
    "onnxruntime-genai": _genai,
    "openvino": lambda material, length, threads: material.model(Attention.GROWING, 0),
}
"""What each opens, with caches of so many tokens, on so many threads."""
