"""A packed artifact opened by its own loader, with its library in an emulator."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from compiler.devices.cpu.emulation.emulator import Emulator, PortData
from compiler.pack.loader import Model


def emulated_model(emulator: Emulator) -> type[Model]:
    """`Model` for artifacts of the emulator's target. It runs; it has neither traces nor profiles."""

    class EmulatedModel(Model):
        """All but the library's machine code is the loader's."""

        def _open_library(self, code: bytes) -> Any:
            return _Library(emulator, code)

    return EmulatedModel


class _Library:
    """What the loader calls a library: `calls` has the functions of model.h that it uses to run."""

    def __init__(self, emulator: Emulator, code: bytes) -> None:
        self._guest = emulator.open(code)
        self._said = ""
        self.calls = self
        self.version, self._text = self._guest.describe()
        described = self.describe()
        self._ports = len(described["inputs"]), len(described["outputs"])

    def describe(self) -> dict[str, Any]:
        """What the library says of itself."""
        return dict(json.loads(self._text))

    def last_error(self) -> str:
        """Why it refused."""
        return self._said

    def close(self) -> None:
        """Ends the process."""
        self._guest.close()

    def tw_create(self, config: Any, instance: Any) -> int:
        """As in model.h."""
        given = config._obj
        try:
            self._running = self._guest.create(
                given.weights_path.decode(), given.weights_offset, given.lanes, given.plan
            )
        except RuntimeError as error:
            self._said = str(error)
            return -1
        instance._obj.value = 1
        return 0

    def tw_plan(self, instance: Any, handover: Any) -> int:
        """As in model.h."""
        plan, handover._obj.value = self._running
        return plan

    def tw_run(self, instance: Any, inputs: Any, outputs: Any) -> int:
        """As in model.h, for tensors in row-major order."""
        try:
            self._guest.run(*(_ports(count, each) for count, each in zip(self._ports, (inputs, outputs), strict=True)))
        except RuntimeError as error:
            self._said = str(error)
            return -1
        return 0

    def tw_destroy(self, instance: Any) -> None:
        """The instance ends with the process."""


def _ports(count: int, tensors: Any) -> Sequence[PortData]:
    return [_port(tensors[at]) for at in range(count)]


def _port(tensor: Any) -> PortData:
    if tensor.strides:
        raise RuntimeError("a tensor is not in row-major order")
    shape = [tensor.shape[axis] for axis in range(tensor.ndim)]
    size = prod(shape) * (-(-tensor.bits // 8))
    memory = (ctypes.c_uint8 * size).from_address(tensor.data) if size else b""
    return PortData(tensor.code, tensor.bits, shape, np.frombuffer(memory, np.uint8))
