"""Program: what code generation made of a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from compiler.contract.systems import LINUX
from compiler.encodings.aside import Octets
from compiler.ir.buffers import KernelGraph
from compiler.ir.tensor import TensorType


@dataclass(frozen=True)
class Port:
    """An input or output of the model: its name there (data) and its type."""

    name: str
    type: TensorType

    @staticmethod
    def of(kernels: KernelGraph, values: Sequence[int]) -> tuple[Port, ...]:
        """Those of a kernel graph's inputs or outputs."""
        return tuple(Port(kernels.buffers[value].name, kernels.buffers[value].type) for value in values)


@dataclass(frozen=True)
class Program:
    """Generated sources by file name, the library built from them, and the weights file it maps."""

    sources: Mapping[str, str]
    library: bytes
    weights: Octets
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    toolchain: str
    """Identity of the compiler that built the library: name, version and flags."""
    launches: tuple[tuple[int, ...], ...] = ()
    """On a GPU: the calls that each launch carries out side by side, in order of launches."""
    graphs: tuple[int, ...] = ()
    """How many of these launches each CUDA graph has; empty: all are one graph, and the host decides nothing."""
    machine: str = ""
    """The architecture of a library for a CPU, as `platform.machine()` says it."""
    features: tuple[str, ...] = ()
    """What such a CPU must have, by the names of /proc/cpuinfo."""
    system: str = LINUX.name
    """The operating system that runs it."""


@dataclass(frozen=True)
class StreamProgram:
    """What runs the programs of several parts as one: its sources by file name, and the library built from them."""

    sources: Mapping[str, str]
    library: bytes
