"""Inputs and outputs that are bound to a session before its runs, in the host's memory."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.errors import UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray


class OrtValue:
    """An array in the host's memory, under the calls of ONNX Runtime's class."""

    def __init__(self, array: NDArray[Any]) -> None:
        self._array = array

    @classmethod
    def ortvalue_from_numpy(cls, array: NDArray[Any], device_type: str = "cpu", device_id: int = 0) -> OrtValue:
        """A copy of an array. Raises `UsageError` for a device other than the CPU."""
        demand_host(device_type)
        return cls(array.copy())

    @classmethod
    def ortvalue_from_shape_and_type(
        cls, shape: Sequence[int], element_type: Any, device_type: str = "cpu", device_id: int = 0
    ) -> OrtValue:
        """An array that holds nothing yet. Raises `UsageError` for a device other than the CPU."""
        import numpy as np

        demand_host(device_type)
        return cls(np.empty(tuple(shape), element_type))

    def numpy(self) -> NDArray[Any]:
        """The array itself."""
        return self._array

    def shape(self) -> list[int]:
        """The sizes of its axes."""
        return list(self._array.shape)

    def device_name(self) -> str:
        """Always `cpu`."""
        return "cpu"

    def data_ptr(self) -> int:
        """The address of its first element."""
        return int(self._array.ctypes.data)

    def update_inplace(self, array: NDArray[Any]) -> None:
        """Copies elements into it. Raises ValueError for other shapes."""
        if array.shape != self._array.shape:
            raise ValueError(f"the array has shape {array.shape}, not {self._array.shape}")
        self._array[...] = array


def demand_host(device_type: str) -> None:
    """Raises `UsageError` for a device other than the CPU."""
    if device_type != "cpu":
        raise UsageError(f"nothing can be bound on device {device_type!r:.80}", fix="bind arrays of the CPU")


class IOBinding:
    """What a session reads and writes in `run_with_iobinding`.

    `outputs`: the names that are bound and the arrays for them; None: the session makes one. They keep their order.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = tuple(names)
        self.inputs: dict[str, NDArray[Any]] = {}
        self.outputs: dict[str, NDArray[Any] | None] = {}
        self._found: dict[str, NDArray[Any]] = {}

    def bind_cpu_input(self, name: str, array: NDArray[Any]) -> None:
        """An array to be read in each run, as it is by then."""
        self.inputs[name] = array

    def bind_ortvalue_input(self, name: str, value: Any) -> None:
        """The same of an OrtValue, also ONNX Runtime's."""
        demand_host(value.device_name().lower())
        self.inputs[name] = value.numpy()

    def bind_input(
        self, name: str, device_type: str, device_id: int, element_type: Any, shape: Sequence[int], buffer_ptr: int
    ) -> None:
        """The same of memory that the caller keeps. Raises `UsageError` for a device other than the CPU."""
        demand_host(device_type)
        self.inputs[name] = _at(buffer_ptr, element_type, shape)

    def bind_output(
        self,
        name: str,
        device_type: str = "cpu",
        device_id: int = 0,
        element_type: Any = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """An output that is wanted; where memory is given, written into it.

        Raises ValueError for a name that the model does not have, `UsageError` for a device other than the CPU.
        """
        demand_host(device_type)
        self._demand(name)
        self.outputs[name] = None if buffer_ptr is None else _at(buffer_ptr, element_type, shape or ())

    def bind_ortvalue_output(self, name: str, value: Any) -> None:
        """The same of an OrtValue: one of `tilewright.session.binding` is written into."""
        demand_host(value.device_name().lower())
        self._demand(name)
        self.outputs[name] = value.numpy()

    def _demand(self, name: str) -> None:
        if name not in self._names:
            raise ValueError(f"there is no output {name!r:.100}: the model's are {', '.join(self._names)}")

    def take(self, found: Mapping[str, NDArray[Any]]) -> None:
        """What a run gave; a bound array that the session did not write itself is written here."""
        for name, array in found.items():
            bound = self.outputs.get(name)
            if bound is not None and bound is not array:
                bound[...] = array
        self._found = {name: array if (own := self.outputs[name]) is None else own for name, array in found.items()}

    def get_outputs(self) -> list[OrtValue]:
        """Of the last run, in the order in which they were bound."""
        return [OrtValue(self._found[name]) for name in self.outputs]

    def copy_outputs_to_cpu(self) -> list[NDArray[Any]]:
        """Copies of them."""
        return [self._found[name].copy() for name in self.outputs]

    def synchronize_inputs(self) -> None:
        """Nothing to wait for."""

    synchronize_outputs = synchronize_inputs

    def clear_binding_inputs(self) -> None:
        """No input is bound any more."""
        self.inputs.clear()

    def clear_binding_outputs(self) -> None:
        """No output is bound any more."""
        self.outputs.clear()
        self._found = {}


def _at(address: int, element_type: Any, shape: Sequence[int]) -> NDArray[Any]:
    """The memory at an address as an array."""
    import numpy as np

    dtype = np.dtype(element_type)
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    return np.frombuffer((ctypes.c_char * size).from_address(address), dtype).reshape(tuple(shape))
