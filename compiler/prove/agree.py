"""Agreement of a built program with the float64 reference, on random and edge inputs."""

from __future__ import annotations

import math
import operator
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial, reduce
from typing import Any

import numpy as np

from compiler.contract import BesideFloat32, OutputError
from compiler.errors import InputsError
from compiler.ir.graph import Graph, Value
from compiler.ir.open_shapes import OpenShapes
from compiler.ir.small import places, wide
from compiler.ir.tensor import DType
from compiler.ops import having
from compiler.ops.traits import Trait
from compiler.prove.array_module import ArrayModule
from compiler.prove.beside import Decisions, beside_float32, count_decisions, with_decisions
from compiler.prove.choices import is_torn
from compiler.prove.inputs import EDGES, FURTHER, edge_inputs, further_inputs, sample_inputs
from compiler.prove.reference import Operators, Watch, evaluate_graph, rounds_to_small, unwatched
from compiler.prove.sizes import cut, own_outputs

ModelRunner = Callable[[Sequence[np.ndarray]], Sequence[np.ndarray]]
"""Runs the program under judgement: inputs, then outputs, in the graph's order, declared dtypes and shapes."""
Evaluate = Callable[..., dict[int, np.ndarray]]
"""`evaluate_graph` of the graph that is the reference."""

DEFAULT_TOLERANCE: Mapping[str, float] = {"fp32": 1e-4, "tf32": 2e-2, "fp16": 2e-2, "bf16": 5e-2, "auto": 2e-2}
"""Largest accepted error relative to an output's largest value, by precision. Two orders of float32 arithmetic on one
model differ by up to 1e-5, and by 1.6e-4 on deep segmentation and detection nets; faster algorithms (Winograd) cost
some 1e-5 more. Operands rounded to bf16 cost 3e-3 to 2.3e-2 in the worst of the edge cases. All that goes through
memory rounded to fp16 costs 5e-8 to 8.3e-3, to bf16 6.5e-7 to 6e-2; tf32 keeps as many bits as fp16."""
MANTISSA: Mapping[str, int] = {"tf32": 11, "fp16": 11, "bf16": 8}
"""Bits of the short floats, the leading one counted."""
LARGEST: Mapping[str, float] = {"fp16": 65504.0}
"""What activations may reach, by precision, where that is less than float32's range."""
QUANTISED_TOLERANCE = 2e-2
"""For models that round to 8 bits inside: a value near the middle falls to either side, which differs by up to 4e-3 in
QDQ models and by 1.6e-2 in dynamically quantised ones between two correct runtimes."""
QUANTISING = having(Trait.QUANTISED) - {"DequantizeLinear"}
"""Operators that round activations to 8 bits, or read what one of them rounded. A model whose weights alone are stored
in 8 bits rounds nothing when it runs."""
PART_ELEMENTS = 2**20
"""Of an output, compared at once."""
RANDOM = "random"
"""The case that is judged first."""
NOISE_ALLOWANCE = 4.0
"""Without a stated tolerance, an error up to this many times what numpy's own evaluation in the job's precision has is
rounding, not a fault."""
FURTHER_DRAWS = 3
"""Of rounding errors, before what exceeds those of numpy's own evaluation is a fault."""
SUM_ALLOWANCE = 16.0
"""NOISE_ALLOWANCE of the further draws in float32: they round each weight once, while a sum of n products rounds n
times, which moves it about the square root of n as far (Higham and Mary, "A New Approach to Probabilistic Rounding
Error Analysis", 2019, theorem 3.1). This is the root of 256. Sums of the smaller precisions are kept in float32."""
FLOAT32_MANTISSA = 24
MOST_GRANTED = 2e-2
"""Beyond this a wrong result could pass for rounding: such a case decides nothing, unless the job states its
tolerance."""


BESIDE_S = 3.0
"""Of the time that is left, from which on the random case is evaluated in the model's own types as well."""


class Why(StrEnum):
    """Why a case shows nothing of the outputs, or of some of them; in words that follow "undecided: "."""

    NOT_FINITE = "every result is NaN or infinity"
    EMPTY = "an output is empty"
    ROUNDING = "rounding errors exceed the largest tolerance"
    OUTSIDE = "the inputs lead to indices out of range"
    BEYOND = "the model's values exceed the largest number of the precision"
    SKIPPED = "the time limit was reached"


@dataclass(frozen=True)
class Case:
    """What one set of inputs showed: of the outputs `decided` that the program agrees, or `why` not of all of them."""

    name: str
    decided: tuple[str, ...]
    why: Why | None = None

    @property
    def judged(self) -> bool:
        """Whether results were compared, be it of empty outputs."""
        return bool(self.decided) or self.why in (None, Why.EMPTY)


@dataclass(frozen=True)
class Known:
    """Inputs by value id, and what the reference gives for them: the graph's outputs by id."""

    inputs: dict[int, np.ndarray]
    found: dict[int, np.ndarray]


@dataclass(frozen=True)
class Agreement:
    """The verdict. `errors` holds each output's largest errors over the cases judged, `worst` the largest relative one.

    `tolerance` is the one that was applied, with what float32 rounding was granted. `each` says of every case what it
    showed. `unshown` are the outputs of which no drawn case and no sample shows anything: where there is one, or no
    case was judged at all, the program has not failed, and nothing is proved. `failing_way` is the way to run it, 0 or
    1 + a position in `others`, that was furthest off in the case that failed. `beyond_range` says which value of the
    random case is larger than the precision's largest number, where that may be why it fails. `beside` has the errors
    of the random case beside those of an evaluation in the model's own types.
    """

    errors: tuple[OutputError, ...]
    worst: float
    tolerance: float
    each: tuple[Case, ...]
    unshown: tuple[str, ...] = ()
    failing_inputs: Mapping[int, np.ndarray] | None = None
    failing_way: int = 0
    beyond_range: str = ""
    beside: tuple[BesideFloat32, ...] = ()

    @property
    def failed(self) -> bool:
        """Whether a case showed that the program computes something else."""
        return self.failing_inputs is not None

    @property
    def passed(self) -> bool:
        """Whether it agrees wherever that was judged, and every output was."""
        return not self.failed and bool(self.cases) and not self.unshown

    @property
    def cases(self) -> tuple[str, ...]:
        """Names of those that were judged, the one that failed last."""
        return tuple(case.name for case in self.each if case.judged)

    @property
    def undecided(self) -> tuple[str, ...]:
        """Names of those that showed nothing."""
        return tuple(case.name for case in self.each if not case.judged and case.why is not Why.SKIPPED)

    @property
    def skipped(self) -> tuple[str, ...]:
        """Names of those for which the time ran out."""
        return tuple(case.name for case in self.each if case.why is Why.SKIPPED)


def default_tolerance(graph: Graph, precision: str) -> float:
    """The tolerance of a job that states none. Raises KeyError for an unknown precision."""
    stated = DEFAULT_TOLERANCE[precision]
    is_quantised = any(node.op in QUANTISING or rounds_to_small(graph, node) for node in graph.nodes)
    return max(stated, QUANTISED_TOLERANCE) if is_quantised else stated


def agree(
    model_runner: ModelRunner,
    graph: Graph,
    operators: Operators,
    tolerance: float | None,
    seed: int,
    *,
    precision: str = "fp32",
    largest: float = math.inf,
    budget_s: float = math.inf,
    others: Sequence[ModelRunner] = (),
    samples: Mapping[str, Mapping[int, np.ndarray]] | None = None,
    watch: Watch = unwatched,
    shapes: OpenShapes | None = None,
    module: ArrayModule | None = None,
    known: Known | None = None,
) -> Agreement:
    """Runs the program on random inputs, samples and edge cases, each judged against the unrewritten graph's reference.

    `others` are other ways to run it, judged with it: of each output the largest error of all of them counts. With
    `tolerance` None the precision's default holds, and an error that numpy's own evaluation in that precision shares is
    granted. The random case and the `samples`, inputs by name of the sample, are always judged; further draws and edge
    cases begin while `budget_s` wall seconds last, further draws also until every output was shown. An edge case shows
    nothing: of zeros, say, too much is the same. Stops at the first case that fails. An edge case that fails where the
    reference has values beyond `largest`, the largest number that the program can keep, decides nothing; nor do drawn
    inputs that lead the model outside of what it indexes. `shapes` says which axes of the outputs have a size that
    follows from data: the runners give the model's outputs alone, at these sizes. `watch` hears how far each evaluation
    of the graph is, which goes on in a `module` where one is given. `known` is what the random case is to be, evaluated
    already; None: it is drawn. Raises InputsError where a sample leads outside, or
    where the random inputs do, which the artifact is timed on, and there are no samples.
    """
    anew = partial(evaluate_graph, graph, operators=operators, watch=watch, module=module)

    def evaluate(inputs: dict[int, np.ndarray], **way: Any) -> dict[int, np.ndarray]:
        return known.found if known and inputs is known.inputs and not way else anew(inputs, **way)

    accepted = default_tolerance(graph, precision) if tolerance is None else tolerance
    unshown = {named(value): None for value in own_outputs(graph, shapes) if value.type.elements}
    each: list[Case] = []
    errors: tuple[OutputError, ...] = ()
    granted = accepted
    end = time.monotonic() + budget_s
    certain = {RANDOM, *(samples or {})}
    beside: tuple[BesideFloat32, ...] = ()
    for name, inputs in _cases(graph, seed, samples or {}, shapes, known):
        is_needed = name in certain or (name in FURTHER and unshown)
        if each and not is_needed and time.monotonic() >= end:
            each.append(Case(name, (), Why.SKIPPED))
            continue
        bits = MANTISSA.get(precision, 0) if tolerance is None else 0
        runners = model_runner, *others
        try:
            noise = Noise(bits, DEFAULT_TOLERANCE[precision], granted=tolerance is None)
            found = _judge(runners, graph, shapes, evaluate, inputs, accepted, noise)
        except InputsError as error:
            if name in certain and (name != RANDOM or not samples):
                outside = f"{name} inputs: {error.message}"
                raise InputsError(outside, error.fix, details=error.details) from error
            found = Why.OUTSIDE
        if isinstance(found, Why):
            each.append(Case(name, (), found))
            continue
        if not found.passed:
            beyond = _beyond(graph, inputs, evaluate, largest) if math.isfinite(largest) else ""
            if beyond and name not in certain:
                each.append(Case(name, (), Why.BEYOND))
                continue
            each.append(Case(name, ()))
            verdict = (found.errors, _worst(found.errors), found.tolerance, (*each,))
            return Agreement(*verdict, (*unshown,), inputs, found.furthest, beyond)
        each.append(Case(name, found.decided, found.why))
        if name not in EDGES:
            unshown = {output: None for output in unshown if output not in found.decided}
        if known and name == RANDOM and end - time.monotonic() >= BESIDE_S:
            with suppress(InputsError):  # an index that rounding makes another one
                plain, want = (cut(graph, shapes, one) for one in (evaluate(inputs, wide=False), known.found))
                outputs = own_outputs(graph, shapes)
                beside = beside_float32(outputs, found.errors, _of_any_shape(plain, want, outputs))
        if name in certain:
            beside = with_decisions(beside, found.decisions)
        errors = tuple(map(_worse, errors, found.errors)) if errors else found.errors
        granted = max(granted, found.tolerance)
    return Agreement(errors, _worst(errors), granted, (*each,), (*unshown,), beside=beside)


def compare(got: Sequence[np.ndarray], want: Sequence[np.ndarray], outputs: Sequence[Value]) -> tuple[OutputError, ...]:
    """How far each output is from its reference.

    Floats: NaN must be NaN in both, and an infinity the same infinity (a reference beyond the output dtype's range
    counts as infinite); one that does not makes the errors infinite. Elements that agree in kind without being finite
    count as equal. Integers and booleans: `max_ulp` is the count of unequal elements. Small types: it is the most steps
    from an element to its reference, from one value of the type to the next. The relative error of an all-zero
    reference is the absolute one.
    """
    if not len(got) == len(want) == len(outputs):
        raise ValueError(f"{len(got)} results and {len(want)} references for {len(outputs)} outputs")
    return tuple(_error(value, g, w) for value, g, w in zip(outputs, got, want, strict=True))


def merged(one: Agreement, other: Agreement) -> Agreement:
    """The verdict on two programs of the same outputs, or on one at two sizes, neither of which failed."""
    errors = tuple(map(_worse, one.errors, other.errors)) if one.errors and other.errors else one.errors or other.errors
    return replace(
        one,
        errors=errors,
        worst=_worst(errors),
        tolerance=max(one.tolerance, other.tolerance),
        each=(*one.each, *other.each),
        unshown=tuple(output for output in one.unshown if output in other.unshown),
    )


def distance(value: Value, error: OutputError) -> float:
    """What a tolerance is held against: the relative error.

    For integers and booleans the part of the elements that differ, if that is less: a class that wins by a hair may
    lose by one. For small types the largest number of steps between two elements.
    """
    if value.type.dtype.is_small:
        return error.max_ulp
    if value.type.dtype.is_float or not value.type.elements:
        return error.max_relative
    return min(error.max_relative, error.max_ulp / value.type.elements)


def _cases(
    graph: Graph,
    seed: int,
    samples: Mapping[str, Mapping[int, np.ndarray]],
    shapes: OpenShapes | None,
    known: Known | None,
) -> Iterator[tuple[str, dict[int, np.ndarray]]]:
    yield RANDOM, known.inputs if known else sample_inputs(graph, seed, shapes)
    yield from ((name, dict(inputs)) for name, inputs in samples.items())
    if graph.inputs:
        yield from further_inputs(graph, seed, shapes)
        yield from edge_inputs(graph, seed, shapes)


@dataclass(frozen=True)
class _Verdict:
    """On one case. `decided` are the outputs that it shows, `why` it does not show all of them.

    `furthest` is the way to run the program whose largest error is the largest. `decisions` are by output how many
    rows decide for a class, and how many of them otherwise than the reference.
    """

    errors: tuple[OutputError, ...]
    passed: bool
    tolerance: float
    decided: tuple[str, ...]
    why: Why | None
    decisions: Decisions
    furthest: int = 0


@dataclass(frozen=True)
class Noise:
    """What rounding alone may do.

    mantissa  bits of the precision's floats, 0 for float32
    nudge     how far the precision's rounding errors move a value, relative to the largest: what a small type rounds
              to another element for it may be either
    granted   whether an error that numpy's own evaluation has too is accepted
    """

    mantissa: int
    nudge: float
    granted: bool


def _judge(
    runners: Sequence[ModelRunner],
    graph: Graph,
    shapes: OpenShapes | None,
    evaluate: Evaluate,
    inputs: dict[int, np.ndarray],
    accepted: float,
    noise: Noise,
) -> _Verdict | Why:
    """The verdict on one case, or why it shows nothing.

    The model overflows in its own precision, gives no finite number, or is so badly conditioned there that rounding
    alone exceeds what may be granted. An output shows what the program computes where it has an element and one of
    them is finite, or where no input has a part in it: what is NaN then is so by design.
    """
    outputs, constant = own_outputs(graph, shapes), constant_outputs(graph)
    found = evaluate(inputs)
    if shapes and (broken := shapes.broken(graph.outputs, found)):
        raise InputsError(f"the model does not take them: {broken}", fix="give samples that it takes")
    want = cut(graph, shapes, found)
    shown = [value.id in constant or np.isfinite(array).any() for value, array in zip(outputs, want, strict=True)]
    empty = [array.size == 0 for array in want]
    if not any(map(operator.or_, shown, empty)):
        return Why.NOT_FINITE
    why = None if all(shown) else Why.EMPTY if any(empty) else Why.NOT_FINITE
    decided = tuple(named(value) for value, is_shown in zip(outputs, shown, strict=True) if is_shown)
    given = [inputs[value] for value in graph.inputs]
    small: list[dict[int, np.ndarray]] = []
    each = []
    decisions: Decisions = {}
    verdict = partial(_Verdict, decided=decided, why=why, decisions=decisions)
    for run in runners:
        got = list(run(given))
        each.append(_of_any_shape(got, want, outputs))
        count_decisions(decisions, outputs, got, want)
        small.append({at: got[at] for at, value in enumerate(outputs) if value.type.dtype.is_small})
    errors = tuple(reduce(_worse, ways) for ways in zip(*each, strict=True))
    furthest = max(range(len(each)), key=lambda way: _worst(each[way]))
    beyond = [
        at
        for at, (value, error) in enumerate(zip(outputs, errors, strict=True))
        if distance(value, error) > (0 if at in small[0] else accepted)
    ]
    if any(at in small[0] for at in beyond):
        if not _at_ties(graph, shapes, evaluate, inputs, noise.nudge, want, small):
            return verdict(errors, False, accepted, furthest=furthest)
        beyond = [at for at in beyond if at not in small[0]]
    if not beyond:
        return verdict(errors, True, accepted)
    if is_torn(graph, evaluate, inputs, accepted, noise.mantissa):
        return Why.ROUNDING
    if not noise.granted and all(math.isfinite(errors[at].max_relative) for at in beyond):
        return verdict(errors, False, accepted, furthest=furthest)
    granted = [accepted] * len(outputs)
    for own in rounding_errors(graph, shapes, evaluate, inputs, noise, want, outputs):
        if not all(math.isfinite(own[at]) for at in beyond):
            return Why.ROUNDING
        for at in beyond if noise.granted else ():
            granted[at] = max(granted[at], NOISE_ALLOWANCE * own[at])
        if max(granted) > max(accepted, MOST_GRANTED):
            return Why.ROUNDING
        if all(distance(outputs[at], errors[at]) <= granted[at] for at in beyond):
            return verdict(errors, True, max(granted), furthest=furthest)
        if not noise.granted or not all(math.isfinite(errors[at].max_relative) for at in beyond):
            break
    return verdict(errors, False, max(granted), furthest=furthest)


def constant_outputs(graph: Graph) -> frozenset[int]:
    """Outputs in which no input of the model has a part; all, where there are floats and none of them has an element.

    What a reduction of nothing gives, such as the logarithm of 0, is no matter of the numbers that are drawn.
    """
    floats = [graph.type(value).elements for value in graph.inputs if graph.type(value).dtype.is_float]
    if floats and not any(floats):
        return frozenset(graph.outputs)
    reached = set(graph.inputs)
    for node in graph.nodes:
        if any(value in reached for value in node.inputs):
            reached.update(node.outputs)
    return frozenset(graph.outputs) - reached


def named(value: Value) -> str:
    """The name of an output in verdicts: the model's, else its id."""
    return value.name or f"%{value.id}"


def rounding_errors(
    graph: Graph,
    shapes: OpenShapes | None,
    evaluate: Evaluate,
    inputs: dict[int, np.ndarray],
    noise: Noise,
    want: Sequence[np.ndarray],
    outputs: Sequence[Value],
) -> Iterator[list[float]]:
    """What rounding does to each output: of numpy's own evaluation in the precision, then of further draws.

    One evaluation is one draw of rounding errors: where the model magnifies them, another one that is as right may be
    an order of magnitude further off. So the float64 evaluation follows with every value rounded to the precision's
    mantissa, and to fewer bits, whose larger errors are scaled down. The first counts what falls to the other side in a
    small type too.
    """
    ways: list[dict[str, float]] = [{"wide": False, "mantissa": noise.mantissa}]
    if any(rounds_to_small(graph, node) for node in graph.nodes):
        ways += [{"nudge": noise.nudge}, {"nudge": -noise.nudge}]

    def off(way: Mapping[str, float]) -> list[float]:
        found = _of_any_shape(cut(graph, shapes, evaluate(inputs, **way)), want, outputs)
        return [distance(value, error) for value, error in zip(outputs, found, strict=True)]

    yield [max(each) for each in zip(*map(off, ways), strict=True)]
    bits = noise.mantissa or FLOAT32_MANTISSA
    sums = 1.0 if noise.mantissa else SUM_ALLOWANCE / NOISE_ALLOWANCE
    for fewer in range(FURTHER_DRAWS):
        yield [error * sums / 2**fewer for error in off({"mantissa": bits - fewer})]


def _at_ties(
    graph: Graph,
    shapes: OpenShapes | None,
    evaluate: Evaluate,
    inputs: dict[int, np.ndarray],
    nudge: float,
    want: Sequence[np.ndarray],
    small: Sequence[Mapping[int, np.ndarray]],
) -> bool:
    """Whether outputs of small types, by position, are the reference's but where rounding decides between neighbours.

    There an element may be the next one, on the side to which a nudge leads the reference too.
    """
    low, high = (cut(graph, shapes, evaluate(inputs, nudge=sign * nudge)) for sign in (-1, 1))
    for at in small[0]:
        dtype = graph.type(graph.outputs[at]).dtype
        if len({array.shape for array in (want[at], low[at], high[at], *(way[at] for way in small))}) > 1:
            return False
        exact, *nudged = (places(array, dtype) for array in (want[at], low[at], high[at]))
        least, most = (pick(np.stack([exact, *nudged]), axis=0) for pick in (np.min, np.max))
        for way in small:
            got = places(way[at], dtype)
            if np.any((got < np.maximum(least, exact - 1)) | (got > np.minimum(most, exact + 1))):
                return False
    return True


def _of_any_shape(
    got: Sequence[np.ndarray], want: Sequence[np.ndarray], outputs: Sequence[Value]
) -> tuple[OutputError, ...]:
    """As `compare`; infinite errors where a size that follows from data is another one."""
    return tuple(
        compare([g], [w], [value])[0] if g.shape == w.shape else OutputError(named(value), math.inf, math.inf, math.inf)
        for value, g, w in zip(outputs, got, want, strict=True)
    )


def _beyond(graph: Graph, inputs: dict[int, np.ndarray], evaluate: Evaluate, largest: float) -> str:
    """Which node is the first whose result exceeds `largest` by magnitude; empty where none does."""
    made = [id for node in graph.nodes for id in node.outputs if graph.type(id).dtype.is_float]
    values = evaluate(inputs, keep=made)
    for node in graph.nodes:
        for array in (values[id] for id in node.outputs if id in values and values[id].dtype.kind == "f"):
            reached = float(np.max(np.abs(array), initial=0.0, where=np.isfinite(array)))
            if reached > largest:
                found = f"node {node.source!r} ({node.op}) gives values of up to {reached:.3g}"
                return f"{found}, and the largest number is {largest:.5g}"
    return ""


def _error(value: Value, got: np.ndarray, want: np.ndarray) -> OutputError:
    name = named(value)
    if got.shape != want.shape:
        raise ValueError(f"output {name!r} has shape {list(got.shape)}, its reference {list(want.shape)}")
    if not got.size:
        return OutputError(name, 0.0, 0.0, 0.0)
    with np.errstate(all="ignore"):
        if value.type.dtype.is_small:
            return _small_error(name, got, want, value.type.dtype)
        if value.type.dtype.is_float:
            return _float_error(name, got, want.astype(np.float64, copy=False))
        return _integer_error(name, got, want)


def _float_error(name: str, got: np.ndarray, want: np.ndarray) -> OutputError:
    """Compared part by part: what is held besides the two stays small."""
    flat_got, flat_want = got.reshape(-1), want.reshape(-1)
    starts = range(0, flat_got.size, PART_ELEMENTS)
    parts = [_part_error(flat_got[at : at + PART_ELEMENTS], flat_want[at : at + PART_ELEMENTS]) for at in starts]
    absolute, scale, ulp = (max(one) for one in zip(*parts, strict=True))
    return OutputError(name, absolute, _relative(absolute, scale), ulp)


def _part_error(got: np.ndarray, want: np.ndarray) -> tuple[float, float, float]:
    """The largest error, the largest value of the reference, the largest error in units in the last place."""
    rounded = want.astype(got.dtype).astype(np.float64)
    have = got.astype(np.float64)
    finite = np.isfinite(rounded)
    unlike = (np.isfinite(have) != finite) | (~finite & (np.isnan(have) != np.isnan(rounded)))
    unlike |= np.isinf(rounded) & np.isinf(have) & (have != rounded)
    if unlike.any():
        return math.inf, 0.0, math.inf
    distance = np.where(finite, np.abs(have - want), 0.0)
    scale = float(np.max(np.abs(want), initial=0.0, where=finite))
    # The spacing below float32's normal range is constant, and float32 has no value beyond its range.
    limits = np.finfo(np.float32)
    unit = np.spacing(np.clip(np.where(finite, np.abs(want), 1.0), limits.tiny, limits.max).astype(np.float32))
    return float(distance.max()), scale, float((distance / unit.astype(np.float64)).max())


def _small_error(name: str, got: np.ndarray, want: np.ndarray, dtype: DType) -> OutputError:
    """In steps; infinite where one is NaN alone."""
    steps = np.abs(places(got, dtype) - places(want, dtype))
    have, exact = (array.astype(wide(dtype).numpy).astype(np.float64) for array in (got, want))
    if np.any(np.isnan(have) != np.isnan(exact)):
        return OutputError(name, math.inf, math.inf, math.inf)
    apart = np.where(steps > 0, np.abs(have - exact), 0.0)
    scale = float(np.max(np.abs(exact), initial=0.0, where=np.isfinite(exact)))
    absolute = float(apart.max())
    return OutputError(name, absolute, _relative(absolute, scale), float(steps.max()))


def _integer_error(name: str, got: np.ndarray, want: np.ndarray) -> OutputError:
    """Differences in float64; where they round to none, unequal integers still differ by one."""
    unequal = got != want
    count = int(np.count_nonzero(unequal))
    if not count:
        return OutputError(name, 0.0, 0.0, 0.0)
    absolute = float(max(1.0, np.abs(got.astype(np.float64) - want.astype(np.float64)).max()))
    return OutputError(name, absolute, _relative(absolute, float(np.abs(want.astype(np.float64)).max())), float(count))


def _relative(absolute: float, scale: float) -> float:
    return absolute / scale if scale >= float(np.finfo(np.float32).tiny) else absolute


def _worst(errors: Sequence[OutputError]) -> float:
    return max((error.max_relative for error in errors), default=0.0)


def _worse(one: OutputError, two: OutputError) -> OutputError:
    return replace(
        one,
        max_absolute=max(one.max_absolute, two.max_absolute),
        max_relative=max(one.max_relative, two.max_relative),
        max_ulp=max(one.max_ulp, two.max_ulp),
    )
