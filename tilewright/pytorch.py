"""Modules of PyTorch, exported by PyTorch's own exporter and compiled on this machine; PyTorch is no dependency.

`from_torch` compiles a module whole, and `torch.compile(module, backend="tilewright")` the graphs that PyTorch makes of
it: `backend` is found by the entry point `torch_dynamo_backends`.
"""

from __future__ import annotations

import logging
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from tilewright import local
from tilewright.errors import ClientError, UsageError
from tilewright.extras import require
from tilewright.loading import Model

MOST_SHAPES = 8
"""Of a graph that are compiled, each for itself; what comes in others is run by PyTorch."""
EXPORTERS = ("torch", "onnxscript")

log = logging.getLogger("tilewright")


def from_torch(
    module: Any,
    example_inputs: Sequence[Any],
    options: Mapping[str, Any] | None = None,
    lanes: int | None = None,
    *,
    dynamic_shapes: Any = None,
) -> Model:
    """A module compiled on this machine, as `tilewright.compile` does, from the cache where it was compiled before.

    module          a `torch.nn.Module`; it is exported as in `eval()`, and then is in the mode in which it was
    example_inputs  its positional arguments: tensors whose shapes and types the model is for
    options, lanes  as of `tilewright.compile`
    dynamic_shapes  as `torch.onnx.export` takes it. Each `torch.export.Dim` with both ends is a range of sizes, unless
                    the option `dims` says otherwise

    Raises `UsageError` where PyTorch or the compiler is not installed, or PyTorch cannot export the module, and
    `JobFailed` where the compiler refuses the model.
    """
    given = dict(options or {})
    if ranges := {**_ranges(dynamic_shapes), **given.get("dims", {})}:
        given["dims"] = ranges
    training = module.training
    module.eval()
    try:
        with _exported(module, tuple(example_inputs), dynamic_shapes) as (file, _):
            return local.compile(file, given, lanes)
    finally:
        module.train(training)


def backend(graph: Any, example_inputs: Sequence[Any], **given: Any) -> Callable[..., Any]:
    """What `torch.compile(..., backend="tilewright", options={...})` calls for each graph; `options` are ours.

    The graph is compiled when it is first called, once for each shape of its inputs; parameters and buffers become
    constants. PyTorch runs it where gradients are asked for, a parameter has changed since, a tensor is not on the CPU,
    the graph writes its inputs or gives what is no tensor, and where exporter or compiler refuse it: that is logged.
    Raises `UsageError` where PyTorch's exporter or the compiler is not installed.
    """
    _exporter()
    require("server", "compiling on this machine")
    return _Graph(graph, dict(given.get("options") or {}), _constants(example_inputs))


@dataclass
class _Graph:
    """A graph of PyTorch's, and by the shapes of its inputs what runs it; None for PyTorch."""

    graph: Any
    options: Mapping[str, Any]
    constants: Mapping[int, tuple[Any, int, int]]
    """Inputs that never change by their position: the tensor, its version, and where it lies."""
    compiled: dict[tuple[Any, ...], tuple[Model, tuple[Any, ...]] | None] = field(default_factory=dict)
    """Beside each model the types of its outputs, which the exporter may have widened."""

    def __call__(self, *inputs: Any) -> Any:
        torch = import_module("torch")
        wanted = torch.is_grad_enabled() and any(getattr(one, "requires_grad", False) for one in inputs)
        if wanted or any(_changed(inputs[at], was) for at, was in self.constants.items()):
            _once("gradients or changed parameters: PyTorch runs the graph (use torch.no_grad(), compile again)")
            return self.graph(*inputs)
        key = tuple(_shape(one) for at, one in enumerate(inputs) if at not in self.constants)
        if key not in self.compiled:
            self.compiled[key] = self._compile(torch, inputs) if len(self.compiled) < MOST_SHAPES else None
        found = self.compiled[key]
        if found is None:
            return self.graph(*inputs)
        model, types = found
        tensors = [one for at, one in enumerate(inputs) if at not in self.constants and isinstance(one, torch.Tensor)]
        arrays = [_array(torch, one) for one in tensors]
        outputs = zip(model.run_flat(arrays), model.outputs, types, strict=True)
        return tuple(_tensor(torch, array, spec.dtype).to(kind) for array, spec, kind in outputs)

    def _compile(self, torch: Any, inputs: Sequence[Any]) -> tuple[Model, tuple[Any, ...]] | None:
        """The graph for such inputs; None where PyTorch is to run it, which is logged with the reason."""
        try:
            tensors = [one for one in inputs if isinstance(one, torch.Tensor)]
            if any(one.device.type != "cpu" for one in tensors):
                raise UsageError("a tensor is not on the CPU")
            free = [at for at, one in enumerate(inputs) if at not in self.constants and isinstance(one, torch.Tensor)]
            if not free:
                raise UsageError("the graph has no tensors as inputs")
            with _exported(_frozen(torch, self.graph, inputs, free), tuple(inputs[at] for at in free)) as (file, types):
                return local.compile(file, self.options), types
        except ClientError as error:
            log.warning("PyTorch runs a graph: %s", error)
            return None


def _frozen(torch: Any, graph: Any, inputs: Sequence[Any], free: Sequence[int]) -> Any:
    """A module of the graph whose only inputs are those at the positions `free`; the others are constants of it."""
    kept = {at: one for at, one in enumerate(inputs) if at not in free}

    class Frozen(torch.nn.Module):  # type: ignore[misc]
        """The graph, with constants."""

        def __init__(self) -> None:
            super().__init__()
            self.graph = graph
            for at, one in kept.items():
                if isinstance(one, torch.Tensor):
                    self.register_buffer(f"constant_{at}", one.detach())

        def forward(self, *given: Any) -> Any:
            """Of the inputs that are not constant, in their order."""
            rest = iter(given)
            every = [
                next(rest) if at in free else getattr(self, f"constant_{at}", kept[at]) for at in range(len(inputs))
            ]
            return self.graph(*every)

    return Frozen().eval()


@contextmanager
def _exported(module: Any, inputs: tuple[Any, ...], dynamic_shapes: Any = None) -> Iterator[tuple[Path, Any]]:
    """An ONNX file of a module, which is gone afterwards, and the types of its outputs. Raises `UsageError`."""
    torch = _exporter()
    with tempfile.TemporaryDirectory(prefix="tilewright-torch-") as folder:
        file = Path(folder) / "model.onnx"
        try:
            with warnings.catch_warnings(), torch.no_grad():
                warnings.simplefilter("ignore")
                program = torch.onnx.export(module, inputs, dynamo=True, verbose=False, dynamic_shapes=dynamic_shapes)
            types = _types(torch, program.exported_program)
            program.save(str(file))
        except UsageError:
            raise
        except Exception as error:  # PyTorch's exporter raises of every kind
            said = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
            raise UsageError(
                f"PyTorch cannot export the module: {said:.300}", fix="export it with torch.onnx.export to see why"
            ) from error
        yield file, types


def _exporter() -> Any:
    """PyTorch, which can export here. Raises `UsageError`."""
    try:
        torch, _ = map(import_module, EXPORTERS)
    except ImportError as error:
        raise UsageError(f"PyTorch cannot export: {error}", fix=f"pip install {' '.join(EXPORTERS)}") from error
    return torch


def _types(torch: Any, exported: Any) -> tuple[Any, ...]:
    """The types of a module's outputs.

    Raises `UsageError` where it writes its inputs or buffers, or gives what is no tensor.
    """
    of = exported.graph_signature
    if of.buffers_to_mutate or of.user_inputs_to_mutate:
        raise UsageError("it writes its inputs or buffers", fix="return what is new, and give it to the next call")
    (outputs,) = next(one for one in reversed(exported.graph.nodes) if one.op == "output").args
    values: list[Any] = [getattr(one, "meta", {}).get("val") for one in outputs]
    if not all(isinstance(one, torch.Tensor) for one in values):
        raise UsageError("it gives what is no tensor", fix="return tensors alone")
    return tuple(one.dtype for one in values)


def _ranges(shapes: Any) -> dict[str, dict[str, int]]:
    """The ranges of every `torch.export.Dim` with both ends in a `dynamic_shapes`, by name."""
    parts = shapes.values() if isinstance(shapes, Mapping) else shapes if isinstance(shapes, list | tuple) else ()
    found = {name: ends for part in parts for name, ends in _ranges(part).items()}
    name, low, high = (getattr(shapes, what, None) for what in ("__name__", "min", "max"))
    if isinstance(name, str) and isinstance(low, int) and isinstance(high, int):
        found[name] = {"min": low, "max": high}
    return found


def _constants(inputs: Sequence[Any]) -> dict[int, tuple[Any, int, int]]:
    """Those inputs of a graph that are parameters or buffers of a module."""
    parameter = import_module("torch").nn.Parameter
    return {
        at: (one, one._version, one.data_ptr())
        for at, one in enumerate(inputs)
        if isinstance(one, parameter) or getattr(one, "_dynamo_static_input_type", None)
    }


def _changed(now: Any, was: tuple[Any, int, int]) -> bool:
    one, version, place = was
    return now is not one or now._version != version or now.data_ptr() != place


def _shape(one: Any) -> Any:
    """What a graph is compiled for of an input: shape and type of a tensor, or the value of a number."""
    return (tuple(one.shape), one.dtype) if hasattr(one, "shape") else one


def _array(torch: Any, tensor: Any) -> Any:
    """A tensor as the loader takes it: its memory, of bfloat16 the bits."""
    plain = tensor.detach().contiguous()
    return (plain.view(torch.uint16) if plain.dtype is torch.bfloat16 else plain).numpy()


def _tensor(torch: Any, array: Any, dtype: str) -> Any:
    """What the loader gives, as a tensor of the same memory."""
    found = torch.from_numpy(array)
    return found.view(torch.bfloat16) if dtype == "bfloat16" else found


_said: set[str] = set()


def _once(message: str) -> None:
    if message not in _said:
        _said.add(message)
        log.warning(message)
