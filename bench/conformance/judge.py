"""One case judged: compiled to an artifact like any user's model, run by the artifact's own loader, compared."""

from __future__ import annotations

import re
import tempfile
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx

import tilewright
from bench.conformance.suite import Case, Tensors
from compiler.contract import CompileOptions
from compiler.errors import CallerError, Disagreement, TilewrightError
from compiler.pack.manifest import STRING
from compiler.pipeline import compile_model
from compiler.request import Host, Request

PASSED, BOUND, REFUSED, WRONG, CRASHED = STATUSES = ("passed", "bound", "refused", "wrong", "crashed")
REASON_CHARS = 300
ASKED_FOR = re.compile(r'"([^"]+)": \{"value": \.\.\.\}')
"""How a refusal names an input that must be known when compiling, in the options that it offers."""


@dataclass(frozen=True)
class Verdict:
    """What became of a case, the reason where it did not pass, and the wall seconds that it took.

    passed   every output of every data set is as the suite expects, within its tolerances
    bound    as `passed`, once the inputs that a refusal asks for were fixed by options to the values of the suite
    refused  the model is not compiled, and the refusal says why
    wrong    an output is not as expected, or the artifact did not agree with the compiler's own reference
    crashed  anything else: an internal error, the death of the process, the time limit
    """

    case: str
    group: str
    status: str
    reason: str = ""
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Its fields by name, ready for `json.dumps`."""
        return asdict(self)


def judge(case: Case, target: str = "cpu") -> Verdict:
    """Compiles and runs one case. Nothing is tuned, one lane runs the plan, and every input stays an input.

    Where a refusal asks for the values of inputs, what it says is done, and the case is `bound` at best.
    """
    begin = time.perf_counter()
    fixed: frozenset[str] = frozenset()
    status, reason, asked = _attempt(case, target, fixed)
    first = reason
    while status == REFUSED and asked - fixed:
        fixed |= asked
        status, reason, asked = _attempt(case, target, fixed)
    if fixed and status == PASSED:
        status, reason = BOUND, first
    return Verdict(case.name, case.group, status, reason, round(time.perf_counter() - begin, 3))


def _attempt(case: Case, target: str, fixed: frozenset[str]) -> tuple[str, str, frozenset[str]]:
    """Status and reason, and the inputs whose values a refusal asks for."""
    try:
        with warnings.catch_warnings(), tempfile.TemporaryDirectory(prefix="conformance-") as folder:
            warnings.simplefilter("ignore")
            _run(case, target, Path(folder), fixed)
        return PASSED, "", frozenset()
    except CallerError as error:
        asked = (name for refusal in error.refusals for name in ASKED_FOR.findall(refusal.fix))
        return REFUSED, _reasons(error), frozenset(asked)
    except (AssertionError, Disagreement) as error:
        return WRONG, _line(error), frozenset()
    except Exception as error:
        return CRASHED, f"{type(error).__name__}: {_line(error)}", frozenset()


def _run(case: Case, target: str, folder: Path, fixed: frozenset[str]) -> None:
    """Raises AssertionError where an output is not as expected, and what the compiler raises."""
    from onnx.backend.test.runner import Runner

    model = case.model()
    file, artifact = folder / "model.onnx", folder / "model.tw"
    file.write_bytes(model.SerializeToString())
    weights = {tensor.name for tensor in model.graph.initializer}
    names = [info.name for info in model.graph.input if info.name not in weights]
    compiled: Mapping[str, Any] | None = None
    relative, absolute = case.tolerances
    for inputs, outputs in case.data_sets(model):
        feeds = dict(zip(names, inputs, strict=False))
        bound = {**open_shapes(model, feeds), **{name: {"value": feeds[name].tolist()} for name in sorted(fixed)}}
        options = {"target": target, "threads": 1, "tuning_budget_s": 0, "inputs": bound}
        if options != compiled:
            compile_model(Request(file, artifact, CompileOptions.from_json(options)), Host(measure=False))
            compiled = options
        found = _outputs(model, artifact, {name: value for name, value in feeds.items() if name not in fixed})
        try:
            Runner.assert_similar_outputs(outputs, found, relative, absolute)
        except AssertionError:
            alike = alike_in_type if draws(model) else is_rounding
            if not all(map(alike, outputs, found)):
                raise


def draws(model: onnx.ModelProto) -> bool:
    """Whether ONNX says of an operator of the model that another run may give another result."""
    schemas: Any = onnx.defs
    random = schemas.OpSchema.NodeDeterminism.NonDeterministic
    return any(
        schemas.has(node.op_type, domain=node.domain)
        and schemas.get_schema(node.op_type, domain=node.domain).node_determinism == random
        for node in model.graph.node
    )


def alike_in_type(expected: Any, found: Any) -> bool:
    """Whether arrays have one element type and shape: all that can be expected of random numbers."""
    return (expected.dtype, expected.shape) == (found.dtype, found.shape)


def is_rounding(expected: Any, found: Any) -> bool:
    """Whether floats differ by no more than rounding in their own type does.

    That is two units in the last place of the largest number expected. The suite's numbers are computed in that type
    too, and where terms cancel they keep no more digits than that.
    """
    both = isinstance(expected, np.ndarray) and isinstance(found, np.ndarray)
    if not both or expected.dtype != found.dtype or expected.shape != found.shape:
        return False
    if not np.issubdtype(expected.dtype, np.floating) and expected.dtype != ml_dtypes.bfloat16:
        return bool(np.array_equal(expected, found))
    wanted, given = expected.astype(np.float64), found.astype(np.float64)
    if not np.array_equal(np.isfinite(wanted), np.isfinite(given)) or not np.isfinite(wanted).all():
        return False
    finfo: Any = ml_dtypes.finfo
    unit = float(finfo(expected.dtype).eps)
    return bool(np.abs(wanted - given).max(initial=0.0) <= 2 * unit * np.abs(wanted).max(initial=0.0))


def open_shapes(model: onnx.ModelProto, feeds: Mapping[str, Any]) -> dict[str, list[int]]:
    """Shapes, as the data have them, for inputs whose shape the model leaves open, for sequences and optionals."""
    found: dict[str, list[int]] = {}
    for info in model.graph.input:
        shape = info.type.tensor_type.shape
        value = feeds.get(info.name)
        if isinstance(value, list):
            found |= {info.name: [len(value)], **{f"{info.name}.{at}": [*one.shape] for at, one in enumerate(value)}}
            continue
        if not isinstance(value, np.ndarray):
            continue
        stated = info.type.tensor_type.HasField("shape") and all(dim.HasField("dim_value") for dim in shape.dim)
        if not stated:
            found[info.name] = list(feeds[info.name].shape)
    return found


def _outputs(model: onnx.ModelProto, artifact: Path, feeds: Mapping[str, Any]) -> Tensors:
    """The artifact's outputs in the order of the model's."""
    with tilewright.load(artifact, lanes=1) as loaded:
        found: dict[str, Any] = loaded.run(dict(feeds))
        kinds = {spec.name: spec.dtype for spec in loaded.outputs}
    return [
        [_as_suite(one, kinds[f"{info.name}.{at}"]) for at, one in enumerate(value)]
        if isinstance(value := found[info.name], list)
        else _as_suite(value, kinds[info.name])
        for info in model.graph.output
    ]


def _as_suite(array: np.ndarray, dtype: str) -> np.ndarray:
    """An output as the suite has it: an artifact gives bfloat16 and smaller types as bits."""
    return array if dtype in (array.dtype.name, STRING) else array.view(getattr(ml_dtypes, dtype))


def _reasons(error: TilewrightError) -> str:
    reasons: Sequence[str] = [refusal.reason for refusal in error.refusals] or [error.message]
    return "; ".join(dict.fromkeys(reasons))[:REASON_CHARS]


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:REASON_CHARS]
