"""Families of kernels on the PTX that NVRTC makes of them, through the interface that the double's device has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from types import TracebackType
from typing import Any, Self, cast

import numpy as np

from compiler.devices.cuda import nvrtc
from tests.cuda_double.double import ITEM_BYTES, Buffer, Device, Node
from tests.cuda_double.double import TensorMap as GivenMap
from tests.ptx.copies import TensorMap
from tests.ptx.machine import Machine

MAP_BYTES = 128


def ptx_of(source: str, architecture: str) -> str:
    """What NVRTC makes of a source. Raises ToolchainMissing."""
    return nvrtc.compile_cuda(source, architecture).ptx.rstrip(b"\0").decode()


@dataclass
class PtxDevice:
    """A machine with a family's kernels, compiled for an architecture."""

    source: str
    architecture: str
    races: bool = True
    resident: int = 0
    machine: Machine = field(init=False)

    def __enter__(self) -> Self:
        self.machine = Machine(ptx_of(self.source, self.architecture), resident=self.resident, races=self.races)
        self.begin = self.machine.memory.top
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.machine.codes.clear()

    @property
    def as_device(self) -> Device:
        """The same, as trials of families are given one."""
        return cast(Device, self)

    def configure(self, text: str) -> None:
        """Nothing: modes and settings are the double's."""

    def forget(self) -> None:
        """Frees all that was allocated."""
        self.machine.memory.release_to(self.begin)

    def allocate(self, size: int) -> Buffer:
        return Buffer(self.machine.memory.allocate(max(size, 1)), size)

    def upload(self, values: np.ndarray) -> Buffer:
        values = np.ascontiguousarray(values)
        buffer = self.allocate(values.nbytes)
        self.machine.memory.put(buffer.address, np.frombuffer(values.tobytes(), np.uint8))
        return buffer

    def download(self, buffer: Buffer, shape: Sequence[int], dtype: Any) -> np.ndarray:
        size = prod(shape) * np.dtype(dtype).itemsize
        result: np.ndarray = self.machine.memory.get(buffer.address, size).view(dtype).reshape(tuple(shape))
        return result

    def parameter(self, value: Any) -> bytes:
        """One argument's bytes."""
        if isinstance(value, GivenMap):
            return self._map(value)
        if isinstance(value, Buffer):
            return value.address.to_bytes(8, "little")
        if isinstance(value, np.generic):
            return value.tobytes()
        if isinstance(value, float):
            return np.float32(value).tobytes()
        return int(value).to_bytes(4, "little", signed=True)

    def _map(self, given: GivenMap) -> bytes:
        item, rank = ITEM_BYTES[given.dtype], len(given.sizes)
        strides = given.strides or tuple(item * prod(given.sizes[: at + 1]) for at in range(rank - 1))
        name = (len(self.machine.maps) + 1).to_bytes(8, "little")
        self.machine.maps[name] = TensorMap(given.buffer.address, item, given.sizes, strides, given.box, given.swizzle)
        return name + bytes(MAP_BYTES - len(name))

    def launch(
        self,
        kernel: str,
        grid: Sequence[int],
        block: Sequence[int],
        arguments: Sequence[Any],
        shared: int = 0,
        cluster: Sequence[int] = (1,),
    ) -> None:
        self.machine.launch(kernel, grid, block, [self.parameter(one) for one in arguments], shared, prod(cluster))

    def graph(self, nodes: Sequence[Node]) -> None:
        """The kernels of a graph, one after another."""
        for node in nodes:
            self.launch(node.kernel, node.grid, node.block, node.arguments, node.shared, node.cluster)
