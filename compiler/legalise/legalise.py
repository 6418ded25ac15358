"""A model to one that an accelerator carries out, with a table of where each node runs, before and after."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from compiler.contract import LegaliseOptions
from compiler.errors import BudgetMissed, InputsError, Refusal, UnsupportedModel
from compiler.frontend.reading.limits import Limits
from compiler.frontend.reading.read import read
from compiler.ir.graph import Graph, Node
from compiler.legalise.errors import propagated
from compiler.legalise.placement import CPUS, Place, Placement, place
from compiler.legalise.profile import Constraint, Profile, as_given
from compiler.legalise.program import ASKING, Approximation, Budget, Context, legalised
from compiler.legalise.ranges import Range, of_array, transfer
from compiler.legalise.rules import APPROXIMATE, EQUAL
from compiler.legalise.write import OF_SWISH, OPSET, to_onnx
from compiler.ops import OPERATORS
from compiler.prove.reference import evaluate_graph
from compiler.quantize.calibrate import Evaluated
from compiler.quantize.progress import Progress, put
from compiler.quantize.samples import bound, derived, given
from compiler.rewrite import Rewritten, rewrite
from compiler.rewrite.rules import RULES
from compiler.trace import Observer, ignore

FAMILIES = frozenset({"folding", "identities", "clamps", "shapes", "activations", "norms", "weights", "convolutions"})
"""Rules of rewriting that are applied first: composed forms are found, constants folded."""
MARGIN = 0.25
"""Of its width: by how much a range is wider than the samples showed, on either side."""
ROUNDS = 8
"""Error budgets of each approximation that are tried, until the outputs are as near as is wanted."""
MOST_SAMPLES = 16
BEGINS = {"load": 0.0, "search": 0.2, "write": 0.95}
DERIVED = "no samples were given: ranges and errors are those of random inputs, which are seldom like real ones"


@dataclass(frozen=True)
class Legalised:
    """What a legalisation found.

    original, graph       before and after; `normal`: before, with composed forms found and constants folded
    approximations        by the value that is approximated
    proved, sampled       errors of the outputs by name, absolute; infinity: no bound
    scales                the largest value of each output on the samples
    values                the sampled error of each value that was approximated
    """

    original: Graph
    normal: Graph
    graph: Graph
    rewritten: Rewritten
    profile: Profile
    before: Placement
    after: Placement
    approximations: Mapping[int, Approximation]
    proved: Mapping[str, float]
    sampled: Mapping[str, float]
    scales: Mapping[str, float]
    values: Mapping[int, float]
    notes: tuple[str, ...]

    def not_approximated(self, node: Node) -> str:
        """Why a node was not replaced by something near it; empty where no rule says so."""
        where = f"{node.source!r}"
        said = [one.reason for one in self.rewritten.refusals if one.where == where and one.rule in ASKING]
        return said[-1] if said else ""

    def relative(self, errors: Mapping[str, float]) -> float:
        """The greatest of the outputs' errors, each relative to its largest value."""
        return max((error / (self.scales[name] or 1.0) for name, error in errors.items()), default=0.0)


def legalise(
    model: Path,
    out: Path | None,
    options: LegaliseOptions,
    samples: Mapping[str, Path] | None = None,
    observe: Observer = ignore,
    data: Mapping[str, Path] | None = None,
    *,
    among: Collection[str] | None = None,
    besides: Collection[str] = (),
) -> dict[str, Any]:
    """Writes the legalised model to `out` (None: nowhere), and returns the report, JSON-able.

        profile, options
        before, after   nodes, share on the accelerator, parts, hand-overs, and seconds by the formula for each CPU
        placement       for each node after: `node`, `operator`, `where`, `reason`, `rules`, `bound`, `error` (sampled),
                        `terms`, `domain`, `accelerator_s`, `cpu_s`; `left` is the same for nodes before
        outputs         `name`, `proved` and `sampled` error, `largest` value; a proved error of null: there is no bound
        rules           how often each was applied
        notices         what the user should know

    `samples` are .npz archives of inputs by what the caller calls them, `data` the files of a model's external data,
    and `observe` hears of each phase that begins. Of the profile's operators only those `among`
    these count, where any are named: a caller may write fewer than the accelerator has, and `besides` what the profile
    lacks. Raises OptionsError, UnsupportedModel where `whole` is asked for and a node is left, BudgetMissed where the
    tolerance cannot be held, and what the front end raises.
    """
    progress = Progress(observe, BEGINS)
    progress.begin("load")
    profile = as_given(options.profile)
    if among is not None:
        profile = replace(profile, operators={name: one for name, one in profile.operators.items() if name in among})
    profile = replace(profile, operators={**dict.fromkeys(besides, Constraint()), **profile.operators})
    values = given(read(model, Limits(), data), samples, options) if samples else derived(model, options, data)
    evaluated = Evaluated(model, options, data)
    loaded = evaluated.loaded(values[0])
    progress.begin("search")
    found = legalised_graph(loaded.graph, profile, options, [bound(loaded, one) for one in values[:MOST_SAMPLES]])
    if out is not None:
        progress.begin("write")
        opset = OF_SWISH if "Swish" in profile.operators else OPSET
        put(out, to_onnx(found.graph, opset).SerializeToString())
    notices = [*loaded.notices, *([] if samples else [DERIVED])]
    return _report(found, options, notices)


def legalised_graph(
    graph: Graph, profile: Profile, options: LegaliseOptions, samples: Sequence[Mapping[int, np.ndarray]]
) -> Legalised:
    """A verified graph legalised; see `legalise`. Raises InputsError for samples on which a node gives NaN."""
    normal = rewrite(graph, rules=[rule for rule in RULES if rule.family in FAMILIES]).graph
    kept = [value for value in normal.values if value not in normal.constants and normal.type(value).dtype.is_float]
    wanted = [evaluate_graph(normal, sample, OPERATORS, keep=kept) for sample in samples]
    _demand_numbers(normal, wanted)
    ranges = {value: _range([one[value] for one in wanted]) for value in kept}
    scales = {_name(normal, value): _largest([one[value] for one in wanted]) for value in _outputs(normal)}
    attempt = _Attempt(graph, normal, profile, options, samples, wanted, ranges, scales)
    error = _coarse(options.tolerance * (max(scales.values(), default=1.0) or 1.0))
    best: Legalised | None = None
    last: Legalised | None = None
    for _ in range(1 if options.fixed or options.method == "exact" else ROUNDS):
        last = attempt.with_budget(error)
        reached = last.relative(last.proved if options.judge == "proved" else last.sampled)
        if reached <= options.tolerance or options.fixed:
            if best is None or last.after.share > best.after.share or not last.approximations:
                best = last
            break
        if not last.approximations:
            break
        error = _coarse(error * _factor(reached, options.tolerance))
    if best is None:
        assert last is not None
        raise _missed(last, options)
    if options.whole:
        _demand_whole(best)
    return best


@dataclass
class _Attempt:
    """One legalisation under an error budget for each approximation."""

    graph: Graph
    normal: Graph
    profile: Profile
    options: LegaliseOptions
    samples: Sequence[Mapping[int, np.ndarray]]
    wanted: Sequence[Mapping[int, np.ndarray]]
    ranges: Mapping[int, Range]
    scales: Mapping[str, float]

    def with_budget(self, error: float) -> Legalised:
        options = self.options
        budget = Budget(error, options.terms, forms=options.method == "auto", fixed=options.fixed)
        approximate = () if options.method == "exact" else APPROXIMATE
        context = Context(self.profile, EQUAL, approximate, budget, dict(self.ranges))
        rewritten = legalised(self.normal, context)
        graph = rewritten.graph
        found = [evaluate_graph(graph, sample, OPERATORS, keep=context.approximations) for sample in self.samples]
        known = self._known(graph, context.approximations)
        errors = propagated(graph, context.approximations, known)
        outputs = _outputs(graph)
        pairs = list(zip(self.wanted, found, strict=True))
        both = {value for value in context.approximations if value in self.ranges}
        return Legalised(
            self.graph,
            self.normal,
            graph,
            rewritten,
            self.profile,
            place(self.graph, self.profile),
            place(graph, self.profile),
            context.approximations,
            {_name(graph, value): errors[value] for value in outputs},
            {_name(graph, v): max(_distance(one[v], two[v]) for one, two in pairs) for v in outputs},
            self.scales,
            {value: max(_distance(one[value], two[value]) for one, two in pairs) for value in both},
            tuple(context.notes),
        )

    def _known(self, graph: Graph, approximations: Mapping[int, Approximation]) -> dict[int, Range]:
        """Ranges of every value of the legalised graph: of those that the model has as sampled, else what follows."""
        found = dict(self.ranges) | {value: of_array(array) for value, array in graph.constants.items()}
        for node in graph.nodes:
            for value in node.outputs:
                if value not in found:
                    judged = approximations[value].node if value in approximations else node
                    ends = tuple(None if one is None else found.get(one) for one in judged.inputs)
                    found[value] = transfer(judged, ends, lambda at: graph.type(at).dims, graph.constants)
        return found


def _factor(reached: float, tolerance: float) -> float:
    """By how much the error permitted to each approximation changes, where the outputs were wrong by `reached`."""
    return min(0.5, max(0.1, 0.8 * tolerance / reached)) if math.isfinite(reached) else 0.1


def _coarse(error: float) -> float:
    """Down to a power of the root of 2, so that like budgets share the sums that were found."""
    return float(2 ** (math.floor(2 * math.log2(error)) / 2))


def _range(arrays: Sequence[np.ndarray]) -> Range:
    low = min(float(array.min(initial=0.0)) if array.size == 0 else float(array.min()) for array in arrays)
    high = max(float(array.max(initial=0.0)) if array.size == 0 else float(array.max()) for array in arrays)
    room = MARGIN * (high - low)
    return (low - room if low < 0 else max(low - room, 0.5 * low)), high + room


def _largest(arrays: Sequence[np.ndarray]) -> float:
    return max(float(np.abs(array).max(initial=0.0)) for array in arrays)


def _distance(one: np.ndarray, two: np.ndarray) -> float:
    return float(np.abs(one - two).max(initial=0.0))


def _demand_numbers(graph: Graph, wanted: Sequence[Mapping[int, np.ndarray]]) -> None:
    for node in graph.nodes:
        for number, values in enumerate(wanted):
            if any(value in values and np.isnan(values[value]).any() for value in node.outputs):
                raise InputsError(
                    f"node {node.source!r} ({node.op}) gives NaN on sample {number}: no error can be told of it there",
                    fix="give samples that lie where the model is defined",
                    details={"node": node.source, "operator": node.op, "sample": number},
                )


def _outputs(graph: Graph) -> list[int]:
    return [value for value in graph.outputs if graph.type(value).dtype.is_float]


def _name(graph: Graph, value: int) -> str:
    return graph.values[value].name or f"%{value}"


def _label(node: Node) -> str:
    return node.source or f"{node.op} %{node.outputs[0]}"


def _missed(found: Legalised, options: LegaliseOptions) -> BudgetMissed:
    reached = found.relative(found.proved if options.judge == "proved" else found.sampled)
    worst = sorted(found.approximations.values(), key=lambda one: -one.bound)[:8]
    refusals = tuple(
        Refusal(
            f"{one.method} wrong by at most {one.bound:.3g}" + (f" with {one.terms} ReLUs" if one.terms else ""),
            _remedy(one, options),
            one.node.source,
            one.node.op,
        )
        for one in worst
    )
    said = "have no bound" if math.isinf(reached) else f"are wrong by {reached:.3g} of their largest value"
    return BudgetMissed(
        f"the outputs {said} ({options.judge}), and {options.tolerance:g} is permitted",
        fix=(refusals[0].fix if refusals else "")
        or "raise the tolerance or the number of terms, or judge the sampled error",
        refusals=refusals,
    )


def _remedy(one: Approximation, options: LegaliseOptions) -> str:
    more = math.ceil(one.terms * 1.5) if one.terms else 0
    return f"more than {options.terms} terms, such as {more}, or a larger tolerance" if one.terms else ""


def _demand_whole(found: Legalised) -> None:
    left = [one for one in found.after.places if one.reason is not None]
    if not left:
        return
    own = found.not_approximated(left[0].node)
    raise UnsupportedModel(
        f"{len(left)} nodes do not run on {found.profile.name}: {left[0].node.op} {_label(left[0].node)!r}, "
        f"{left[0].reason}",
        fix=next(
            iter((*filter(None, [own]), *found.notes)),
            "replace the operator in the model, or leave it to the CPU: without `whole`",
        ),
        refusals=tuple(Refusal(str(one.reason), "", _label(one.node), one.node.op) for one in left[:50]),
    )


def _report(found: Legalised, options: LegaliseOptions, notices: list[str]) -> dict[str, Any]:
    applied: dict[str, int] = {}
    by_place: dict[str, list[str]] = {}
    for one in found.rewritten.log:
        applied[one.rule] = applied.get(one.rule, 0) + 1
        by_place.setdefault(one.where.strip("'"), []).append(one.rule)
    notices += [f"an approximation was not taken: {note}" for note in found.notes[:4]]
    return {
        "profile": found.profile.name,
        "options": options.to_json(),
        "before": found.before.to_json(),
        "after": found.after.to_json(),
        "placement": [_row(one, found, by_place) for one in found.after.places],
        "left": [_row(one, None, {}) for one in found.before.places],
        "outputs": [
            {
                "name": name,
                "proved": None if math.isinf(found.proved[name]) else found.proved[name],
                "sampled": found.sampled[name],
                "largest": found.scales[name],
            }
            for name in found.sampled
        ],
        "rules": dict(sorted(applied.items())),
        "notices": notices,
        "cpus": {name: cpu.source for name, cpu in CPUS.items()},
    }


def _row(one: Place, found: Legalised | None, rules: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    approximation = found.approximations.get(one.node.outputs[0]) if found else None
    domain = approximation.domain if approximation else None
    finite = domain is not None and all(map(math.isfinite, domain))
    more = found.not_approximated(one.node) if found and one.reason else ""
    return {
        "node": _label(one.node),
        "operator": one.node.op,
        "where": "accelerator" if one.is_on_accelerator else "cpu",
        "reason": f"{one.reason}; {more}" if more else one.reason,
        "rules": sorted(set(rules.get(_label(one.node), ()))),
        "bound": approximation.bound if approximation else None,
        "terms": approximation.terms if approximation else None,
        "domain": list(domain) if domain and finite else None,
        "error": found.values.get(one.node.outputs[0]) if found and approximation else None,
        "accelerator_s": one.accelerator,
        "cpu_s": dict(one.cpu),
    }
