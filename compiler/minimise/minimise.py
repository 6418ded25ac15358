"""The smallest part of a model that still fails in the same way, as a file, and its report."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from compiler.contract import PHASES, CompileOptions, Event
from compiler.errors import CallerError, Disagreement, ModelTooLarge
from compiler.frontend import load, survey
from compiler.frontend.reading.tensors import DTYPES
from compiler.measure.npz import write_outputs
from compiler.minimise.failure import TIMED_OUT, Failure, Signature
from compiler.minimise.network import Network, Part, ValueType
from compiler.minimise.reduce import Search, Step
from compiler.minimise.trials import in_own_process, trial
from compiler.ops import OPERATORS
from compiler.prove.inputs import sample_inputs
from compiler.prove.reference import evaluate_graph
from compiler.trace import Observer, StopRequest, ignore, never_stops

PATIENCE = 3.0
"""How often as long as the whole model took a part may take, that is not larger."""
LEAST_TRIAL_S = 20.0
"""Seconds that a part may take at least."""
SAMPLE_BYTES = 1 << 28
"""Of all intermediate values together that are kept, so that parts are given what they had in the whole model."""
CODES = {dtype: code for code, dtype in DTYPES.items()}
MOST_TRIALS = 2000
SEARCH = "search"
"""The phase in which parts are tried."""
MOST_BYTES = 2**31 - 1
"""Of a model file: protobuf's own limit."""


class NothingFails(CallerError):
    """The model compiles under these options, so there is nothing to minimise."""

    code = "nothing_fails"


@dataclass(frozen=True)
class BeforeAfter:
    """A count of the whole model, and of the part."""

    before: int
    after: int


@dataclass(frozen=True)
class MinimiseReport:
    """The smallest part of a model that was found to fail as the whole does.

    problem    the error that the part ends with, with the phase it comes in
    preserved  the signature that the whole model and the part share
    operators  of the part, in order
    bytes      of the file, with its external data before
    trials, seconds, complete   how much was tried, and whether nothing was left to try
    tried      of each step what was tried, how many trials, and how many nodes remained
    sizes, filled   axes that were made shorter, and the number of weights that were filled with one number
    options    under which the part fails
    inputs     names of the arrays under which it does, or None
    """

    problem: Mapping[str, Any]
    preserved: Signature
    nodes: BeforeAfter
    operators: tuple[str, ...]
    bytes: BeforeAfter
    trials: int
    seconds: float
    complete: bool
    tried: tuple[Step, ...]
    sizes: Mapping[str, int]
    filled: int
    options: CompileOptions
    inputs: tuple[str, ...] | None

    def to_json(self) -> dict[str, Any]:
        """Its fields by name, ready for `json.dumps`."""
        nested = {name: asdict(getattr(self, name)) for name in ("preserved", "nodes", "bytes")}
        return {**vars(self), **nested, "tried": [*map(asdict, self.tried)], "options": self.options.to_json()}

    def __str__(self) -> str:
        nodes, size, problem = self.nodes, self.bytes, self.problem
        lines = [
            f"{nodes.after} of {nodes.before} nodes ({', '.join(self.operators[:12])}), "
            f"{size.after} of {size.before} bytes, still end with {problem['code']} in {problem['phase']}",
            f"  {problem['message']}",
            *(f"  {one['operator']} {one['node']!r}: {one['reason']}" for one in problem["refusals"][:3]),
        ]
        lines += [f"{one.step}: {one.trials} trials, {one.nodes} nodes remain" for one in self.tried]
        if not self.complete:
            lines.append("time was over before everything was tried: --seconds gives more")
        return "\n".join(lines)


def minimise(
    model: Path,
    out: Path,
    options: CompileOptions,
    seconds: float = 300.0,
    data: Mapping[str, Path] | None = None,
    samples: Mapping[str, Path] | None = None,
    *,
    observe: Observer = ignore,
    inputs: Path | None = None,
    scratch: Path | None = None,
    stop_requested: StopRequest = never_stops,
) -> MinimiseReport:
    """Writes the smallest part of `model` found in so many seconds that fails as the whole does to `out`.

    Every trial compiles a part in a process of its own, unmeasured, with the model's options. `data` and `samples` are
    as `compiler.request.Request` has them. Of a disagreement `inputs` becomes an .npz of inputs that show it, where
    they are known. Temporary files lie in `scratch`, by default beside `out`.

    Raises NothingFails for a model that compiles, MalformedModel for a file that is no ONNX.
    """
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="minimise-", dir=scratch or out.parent) as place:
        folder = Path(place)
        observe(Event("phase", PHASES[0], 0.0))
        network = Network.of(model, folder, data)
        observe(Event("phase", SEARCH, 0.0))
        found = trial(model, options, data, samples or {}, PHASES[-1], seconds, folder)
        target = _target(found)
        assert found is not None
        whole_seconds = time.monotonic() - begun
        bound = _learn_types(network, model, options, data, seconds)
        given = _options(options, bound)
        judge = _Judge(network, given, target, max(LEAST_TRIAL_S, PATIENCE * whole_seconds), folder)
        if target.code == Disagreement.code:
            judge.values = _values(model, options, data, samples or {}, seconds, folder)
        everything = Part(tuple(range(len(network.nodes))))
        if not judge(everything):
            judge.fall_back(options)
            if not judge(everything):
                raise CallerError(
                    f"the failure ({target.code}) is gone once the file is written anew, so no part of it was tried",
                    fix="send the whole model",
                    details={"problem": dict(found.problem)},
                )
        most = begun + seconds

        def fails(part: Part) -> bool:
            if not judge(part):
                return False
            share = 1 - len(part.nodes) / max(len(everything.nodes), 1)
            observe(Event("progress", SEARCH, min(share, 0.99), f"{len(part.nodes)} nodes still fail"))
            return True

        search = Search(network, everything, fails, lambda: time.monotonic() > most or stop_requested(), MOST_TRIALS)
        complete = search.run(_named(network, found, target))
        made = network.build(search.best, whole=True)
        assert made is not None
        if made.ByteSize() > MOST_BYTES:
            raise ModelTooLarge("the part that fails does not fit into one file", fix="give more seconds")
        last = judge.failure(search.best) or found
        written = _write_inputs(judge, search.best, inputs) if inputs else None
        out.write_bytes(made.SerializeToString())
        return MinimiseReport(
            problem=dict(last.problem),
            preserved=target,
            nodes=BeforeAfter(len(network.nodes), len(search.best.nodes)),
            operators=tuple(network.nodes[place].op_type for place in search.best.nodes),
            bytes=BeforeAfter(_bytes(model, network), out.stat().st_size),
            trials=search.trials,
            seconds=round(time.monotonic() - begun, 3),
            complete=complete,
            tried=tuple(search.log),
            sizes={str(old): new for old, new in search.best.sizes.items()},
            filled=len(search.best.filled),
            options=judge.options_of(search.best),
            inputs=written,
        )


class _Judge:
    """Whether a part fails as the whole model does.

    values  intermediate values of the whole model by name, in declared types: inputs of parts
    """

    def __init__(
        self, network: Network, options: CompileOptions, target: Signature, seconds: float, folder: Path
    ) -> None:
        self.network, self.options, self.target, self.seconds, self.folder = network, options, target, seconds, folder
        self.values: Mapping[str, np.ndarray] = {}

    def fall_back(self, options: CompileOptions) -> None:
        """Take the options as they were given, and no values: the model is not bound by its types."""
        self.options, self.values = options, {}

    def __call__(self, part: Part) -> bool:
        found = self.failure(part)
        return found is not None and self.target in found.signatures

    def failure(self, part: Part) -> Failure | None:
        """How the part fails; None where it does not, or is no model."""
        made = self.network.build(part)
        if made is None:
            return None
        path = self.folder / "part.onnx"
        path.write_bytes(made.SerializeToString())
        samples = {}
        if (arrays := self.arrays(part)) is not None:
            write_outputs(self.folder / "inputs.npz", arrays)
            samples = {"inputs.npz": self.folder / "inputs.npz"}
        options, until = self.options_of(part), self.target.phase
        return trial(path, options, self.network.files(), samples, until, self.seconds, self.folder)

    def options_of(self, part: Part) -> CompileOptions:
        """The options, without inputs that the part does not have."""
        names = {*self.network.inputs_of(part)}
        left = {name: spec for name, spec in self.options.inputs.items() if name in names}
        return self.options if len(left) == len(self.options.inputs) else replace(self.options, inputs=left)

    def arrays(self, part: Part) -> dict[str, np.ndarray] | None:
        """What the part's inputs are in the whole model; None where one of them is unknown."""
        names = self.network.inputs_of(part)
        if not names or any(name not in self.values for name in names):
            return None
        found = {}
        for name in names:
            whole = self.values[name]
            found[name] = whole[tuple(slice(part.sizes.get(size, size)) for size in whole.shape)]
        return found


def _target(found: Failure | None) -> Signature:
    """What is to be preserved: the first refusal, or the fault. Raises NothingFails, CallerError."""
    if found is None:
        raise NothingFails("the model compiles under these options", fix="give the options under which it failed")
    if not found.signatures:
        raise CallerError(
            "the whole model neither compiled nor failed in time", fix="give more seconds", details={"code": TIMED_OUT}
        )
    return found.signatures[0]


def _learn_types(
    network: Network, model: Path, options: CompileOptions, data: Mapping[str, Path] | None, seconds: float
) -> dict[str, list[Any]]:
    """Adds the types of values that the file does not say; types of inputs as the options bind them, by name.

    The compiler's own inference comes first, onnx's fills in what lies behind refused nodes. Both run in processes of
    their own, since they read a model that may be what makes them crash.
    """
    surveyed = in_own_process(lambda: _surveyed(model, options, data), seconds)
    inferred = in_own_process(lambda: _inferred(network), seconds)
    said = {"values": {}, "inputs": {}} if isinstance(surveyed, Failure) else surveyed
    for each in ({} if isinstance(inferred, Failure) else inferred, said["values"], said["inputs"]):
        for name, (dtype, dims) in each.items():
            network.types[name] = ValueType(dtype, None if dims is None else tuple(dims))
    bound: dict[str, list[Any]] = said["inputs"]
    return bound


def _surveyed(model: Path, options: CompileOptions, data: Mapping[str, Path] | None) -> dict[str, Any]:
    """Types as the front end has them: of all values where the model is taken, and of inputs where they are bound."""
    if isinstance(options.dims, tuple) or options.open_sizes:
        return {"values": {}, "inputs": {}}
    found = survey(model, options, OPERATORS, data)
    if found.open_shapes is not None and found.open_shapes.dimensions:
        return {"values": {}, "inputs": {}}
    texts = {*found.border.inputs, *found.border.outputs}
    values = found.graph.values.values() if found.graph else ()
    each = {one.name: (CODES[one.type.dtype], one.type.dims) for one in values if one.name and one.name not in texts}
    bound = {name: (CODES[type.dtype], type.dims) for name, type in found.types.items() if name not in texts}
    return {"values": each, "inputs": bound}


def _inferred(network: Network) -> dict[str, Any]:
    """Types as onnx's shape inference has them, of the file without its large weights."""
    from onnx import shape_inference

    made = network.build(Part(tuple(range(len(network.nodes)))))
    if made is None:
        return {}
    infos = shape_inference.infer_shapes(made, data_prop=True).graph.value_info
    found = {}
    for info in infos:
        tensor = info.type.tensor_type
        if tensor.elem_type and tensor.HasField("shape"):
            dims = [dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None for dim in tensor.shape.dim]
            found[info.name] = (tensor.elem_type, dims)
    return found


def _options(options: CompileOptions, bound: Mapping[str, Any]) -> CompileOptions:
    """The options for parts, whose inputs have the types that the options bind them to."""
    if not bound:
        return options
    fixed = {name: spec for name, spec in options.inputs.items() if spec.value is not None}
    return replace(options, inputs=fixed, dims={})


def _values(
    model: Path,
    options: CompileOptions,
    data: Mapping[str, Path] | None,
    samples: Mapping[str, Path],
    seconds: float,
    folder: Path,
) -> dict[str, np.ndarray]:
    """Intermediate values of the model by name, by the reference; empty where they cannot be had."""
    path = folder / "values.npz"

    def evaluate() -> bool:
        graph = load(model, options, OPERATORS, data=data).graph
        if sum(value.type.bytes for value in graph.values.values()) > SAMPLE_BYTES:
            return False
        first = next(iter(samples.values()), None)
        inputs = sample_inputs(graph, options.seed)
        if first is not None:
            with np.load(first) as given:
                inputs = {id: given[graph.values[id].name] for id in graph.inputs}
        kept = {id: value.name for id, value in graph.values.items() if value.name}
        found = evaluate_graph(graph, inputs, OPERATORS, wide=False, keep=[id for id in kept if id not in inputs])
        plain = {kept[id]: array for id, array in {**inputs, **found}.items() if id in kept}
        write_outputs(path, {name: array for name, array in plain.items() if array.dtype.kind in "fiub"})
        return True

    if in_own_process(evaluate, seconds) is not True:
        return {}
    with np.load(path) as archive:
        return {name: archive[name] for name in archive.files}


def _named(network: Network, found: Failure, target: Signature) -> list[int]:
    """Positions of the nodes that the failure names, those that are to remain first."""
    problem = found.problem
    names = [one["node"] for one in problem["refusals"] if one["operator"] == target.operator]
    details = problem["details"]
    names += [details.get("node", ""), *details.get("sources", ()), *details.get("unchecked", ())]
    places: dict[str, list[int]] = {}
    for place, name in enumerate(network.sources):
        places.setdefault(name, []).append(place)
    return list(dict.fromkeys(place for name in names for place in places.get(name, ())))


def _write_inputs(judge: _Judge, part: Part, path: Path) -> tuple[str, ...] | None:
    """The inputs under which a part was judged, as an .npz; None where it was judged on drawn ones, or on none."""
    if (arrays := judge.arrays(part)) is None:
        return None
    write_outputs(path, arrays)
    return tuple(arrays)


def _bytes(model: Path, network: Network) -> int:
    return model.stat().st_size + sum(path.stat().st_size for path in network.data.values() if path.exists())
