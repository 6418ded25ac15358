"""The walk: call by call from inputs to outputs, each typed by its operator's record.

A call whose inputs are constant is folded.

Everything happens in this one pass, because each step needs what the pass has learnt so far: functions and branches are
inlined (a branch not taken is never looked at), loops unrolled, old forms upgraded, parameters turned into attributes.
A node that cannot be compiled leaves a Refusal, those that read it are passed over, and all Refusals are raised
together at the end.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

from compiler.errors import ModelTooLarge, OptionsError, Refusal, UnsupportedModel
from compiler.frontend.assembly import Assembly
from compiler.frontend.binding.bind import Bound
from compiler.frontend.control.branches import conditional
from compiler.frontend.control.opset_eight import scan_of_any_opset
from compiler.frontend.control.preview import FLEX_ATTENTION, flex_attention
from compiler.frontend.control.regions import attempt
from compiler.frontend.control.sequences import PASSING, SEQUENCES, Sequences, is_sequence
from compiler.frontend.control.unroll import loop
from compiler.frontend.expansions.domains import rule_of, why_not
from compiler.frontend.expansions.draws import DRAWING, RANDOM_BITS, dropout
from compiler.frontend.expansions.ml.trees import OWN_FOREST
from compiler.frontend.expansions.packed import OWN_LSTM
from compiler.frontend.expansions.site import NotKnown, Site
from compiler.frontend.fold import fold, may_fold, work_of
from compiler.frontend.guarded import guarded, of_numbers
from compiler.frontend.open.borders import SIZES, enter, leave
from compiler.frontend.open.data_dependent import held
from compiler.frontend.open.extent import is_open
from compiler.frontend.open.few import MOST, few_values, one_of
from compiler.frontend.open.growth import enter_caches, leave_caches
from compiler.frontend.open.rules import is_said_by_data, results_of
from compiler.frontend.open.site import OpenSite
from compiler.frontend.open.sized import HELD, MEASURED, is_sized_by_data
from compiler.frontend.open.values import OpenValues
from compiler.frontend.opsets.legalise import check, may_expand, normal_attrs, not_below_six, plain, upgrade
from compiler.frontend.opsets.schema import Form, check_types, form_of
from compiler.frontend.own import (
    MOST_NAMED,
    REGIONS,
    ZIP_MAP,
    coded_lstm,
    forest,
    number_of,
    random_bits,
    zip_map,
)
from compiler.frontend.reading.functions import check_expansion, expand_function, key_of, schema_body
from compiler.frontend.reading.limits import Limits
from compiler.frontend.reading.model import NEWEST_OPSET, Body, Call, Expansion, Foreign, Model, quoted
from compiler.frontend.reading.strings import NUMBER_OF, gives_text
from compiler.frontend.reading.tensors import check_size
from compiler.frontend.scope import REFUSED, Scope
from compiler.frontend.special import FOLDED, Place
from compiler.ir.border import Border
from compiler.ir.graph import Graph, Node
from compiler.ir.open_shapes import OpenShapes
from compiler.ir.tensor import TensorType
from compiler.ops.operator import Operator, Unsupported
from compiler.ops.traits import Trait

Ids = tuple[int | None, ...]
T = TypeVar("T")


@dataclass(frozen=True)
class Inferred:
    """A graph, its open axes (None: it has none), its strings and randomness, and what the user should know.

    `is_partial` says that a branch is left out that does not take the sizes.
    """

    graph: Graph
    open_shapes: OpenShapes | None
    border: Border
    notices: tuple[str, ...]
    is_partial: bool = False


def infer(
    model: Model, bound: Bound, operators: Mapping[str, Operator], limits: Limits, regions: bool = False
) -> Inferred:
    """The typed, folded, live graph of a model whose inputs are bound.

    regions  whether what the graph is made for decides while running how often a loop runs, and which branch

    Raises UnsupportedModel with a Refusal for each node that cannot be compiled, ModelTooLarge and MalformedModel at
    once.
    """
    check_expansion(model, limits)
    walk = _Walk(model, operators, limits, regions)
    walk.values.bounds, walk.values.wide = bound.bounds, bound.wide
    scope = Scope(model.opsets)
    for name, kind in bound.types.items():
        value = bound.values.get(name)
        scope.slots[name] = walk.graph.input(kind, name) if value is None else walk.graph.constant(value, name)
    walk.graph.texts.update(id for id in walk.graph.inputs if walk.graph.values[id].name in bound.texts)
    if bound.growing:
        scope.slots |= enter_caches(walk.values, bound.growing, bound.lengths)
    walk.own_inputs = len(walk.graph.inputs)
    inputs = enter(walk.values, bound.open, bound.dimensions)
    walk.body(model.body, scope)
    outputs = [(name, scope.find(name)) for name in model.body.outputs]
    for name, slot in outputs:
        if isinstance(slot, Foreign):
            walk.refuse(Refusal(f"output {quoted(name)} is {slot.what}", "use a type from bool to double"))
    walk.raise_refusals()
    if unknown := [name for name in bound.bounds if name not in walk.sources]:
        known = ", ".join(map(quoted, walk.values.bounded)) or "none"
        raise OptionsError(
            f"bounds[{quoted(unknown[0])}] names no node of the model", fix=f"nodes whose sizes data say are: {known}"
        )
    results = walk.outputs([(name, slot) for name, slot in outputs if isinstance(slot, int)])
    walk.raise_refusals()
    texts = frozenset(name for name, slot in results if slot in walk.graph.texts)
    words = tuple(walk.graph.words) if bound.texts or texts else ()
    missing = tuple(name for name, slot in outputs if slot is None)
    outside = replace(model.outside, returned=walk.returned, missing=missing)
    border = Border(words, bound.texts, texts, walk.state is not None, outside=outside)
    inputs = inputs if walk.state is None else (*inputs, (None,))
    if bound.growing and not walk.values.demands:
        growth, results = leave_caches(walk.values, bound.growing, results)
        return Inferred(walk.graph.finish(results), None, replace(border, growth=growth), tuple(walk.notices))
    if not (walk.values.sizes or walk.values.demands or walk.values.examples):
        return Inferred(walk.graph.finish(results), None, border, tuple(walk.notices))
    left = leave(walk.values, results, bound.dimensions, inputs)
    return Inferred(*left, border, tuple(walk.notices), walk.left_out > 0)


def is_known(call: Call, model: Model, operators: Mapping[str, Operator]) -> bool:
    """Whether the walk has a way for calls of this operator at all.

    Whether this very call is taken, only the walk can say.
    """
    if key_of(call) in model.functions or rule_of(call) is not None:
        return True
    if call.operator in STRUCTURAL:
        return True
    if call.domain or (form_of(call.op, NEWEST_OPSET) is None and call.op not in operators):
        return False
    return (
        call.op in operators or call.op in FOLDED or call.op in STRUCTURAL or call.op in DRAWING or may_expand(call.op)
    )


@dataclass
class _Walk:
    model: Model
    operators: Mapping[str, Operator]
    limits: Limits
    regions: bool
    graph: Assembly = field(default_factory=Assembly)
    refusals: list[Refusal] = field(default_factory=list)
    refused: int = 0
    calls: int = 0
    reads: int = 0
    folded: int = 0
    depth: int = 0
    notices: list[str] = field(default_factory=list)
    own_inputs: int = 0
    """How many inputs the model has; those of the compiler follow."""
    state: int | None = None
    """What random operators read; None: there are none."""
    streams: int = 0
    left_out: int = 0
    """How many branches do not take the sizes."""
    sequences: Sequences = field(default_factory=Sequences)
    returned: dict[str, int] = field(default_factory=dict)
    """How many elements outputs have that are sequences."""
    sources: set[str] = field(default_factory=set)
    values: OpenValues = field(init=False)

    def __post_init__(self) -> None:
        self.values = OpenValues(self.graph, self.operators, self.limits)

    def refuse(self, refusal: Refusal) -> None:
        self.refused += 1
        if len(self.refusals) < self.limits.refusals:
            self.refusals.append(refusal)

    def raise_refusals(self) -> None:
        if not self.refused:
            return
        shown = "" if self.refused == len(self.refusals) else f", of which the first {len(self.refusals)} are listed"
        raise UnsupportedModel(
            f"{self.refused} of the model's nodes cannot be compiled{shown}",
            refusals=tuple(self.refusals),
            details={"refused": self.refused},
        )

    def outputs(self, found: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
        """Of a sequence its elements, each an output of its own."""
        results: list[tuple[str, int]] = []
        taken = {name for name, _ in found}
        for name, id in found:
            if not is_sequence(id):
                results.append((name, id))
                continue
            elements = [(f"{name}.{at}", one) for at, one in enumerate(self.sequences.of(id)) if one is not None]
            if not taken.isdisjoint(each for each, _ in elements):
                reason = f"output {quoted(name)} is a sequence of {len(elements)} tensors"
                self.refuse(Refusal(reason, "give its elements as outputs, of names that no other output has"))
                continue
            results += elements
            self.returned[name] = len(elements)
            shown = ", ".join(quoted(each) for each, _ in elements[:MOST_NAMED]) or "none"
            self.notices.append(
                f"output {quoted(name)} is a sequence: its {len(elements)} elements are outputs, {shown}"
            )
        if not results and not self.refused:
            self.refuse(Refusal("no output of the model has an element", "export with an output that has some"))
        return results

    def body(self, body: Body, scope: Scope) -> None:
        self.count_reads(len(body.constants))
        for name, constant in body.constants.items():
            scope.slots[name] = (
                constant if isinstance(constant, Foreign) else self.graph.shared(constant, scope.label(name))
            )
        self.run(body.calls, scope)

    def run(self, calls: Iterable[Call], scope: Scope) -> None:
        self.depth += 1
        if self.depth > self.limits.expansion_depth:
            raise ModelTooLarge(
                f"functions and branches are nested deeper than {self.limits.expansion_depth} levels",
                fix="inline some of them",
            )
        for call in calls:
            self.call(call, scope)
        self.depth -= 1

    def count(self) -> None:
        """One more call. Raises ModelTooLarge past a limit."""
        self.calls += 1
        if self.calls > self.limits.nodes:
            raise ModelTooLarge(
                f"the model expands to more than {self.limits.nodes} nodes", fix="simplify the model, or split it"
            )

    def count_reads(self, names: int) -> None:
        """That many names more that a call reads, or constants that a body enters.

        Raises ModelTooLarge past the limit.
        """
        self.reads += names
        if self.reads > self.limits.reads:
            raise ModelTooLarge(
                f"the nodes that the model expands to read more than {self.limits.reads} tensors",
                fix="simplify the model, or split it",
            )

    def call(self, call: Call, scope: Scope) -> None:
        self.count()
        self.count_reads(len(call.inputs))
        self.sources.add(scope.source(call.source))
        results: Ids
        try:
            results = self._by_value(call, self._inputs(call, scope), scope)
        except Unsupported as no:
            part = f" (as a part of {scope.defines})" if scope.defines not in ("", call.op) else ""
            self.refuse(Refusal(no.reason + part, self._fix(no, call, scope), scope.source(call.source), call.operator))
            results = (REFUSED,) * len(call.outputs)
        scope.slots.update({name: id for name, id in zip(call.outputs, results, strict=True) if name})

    def _fix(self, no: Unsupported, call: Call, scope: Scope) -> str:
        """What would mend it; where sizes are in the way that data say, also to fix what says them."""
        found = (scope.find(name) for name in call.inputs if name)
        ids = [id for id in found if isinstance(id, int) and id != REFUSED]
        if not self.values.read or not self.values.concerns(ids) or '"value": ...' in no.fix:
            return no.fix
        return f"{no.fix}; or {self.how_to_fix(*self.values.read)}"

    def _inputs(self, call: Call, scope: Scope) -> Ids:
        ids: list[int | None] = []
        for name in call.inputs:
            slot = scope.find(name) if name else None
            if isinstance(slot, Foreign):
                raise Unsupported(f"input {quoted(name)} is {slot.what}", "use a type from bool to double")
            ids.append(slot)
        return tuple(ids)

    def _by_value(self, call: Call, ids: Ids, scope: Scope, side_by_side: int = 1) -> Ids:
        """The results. An input that must be known and is not may have few legal values: then the results for each.

        `side_by_side` is how many times the call is compiled already, for values of its other inputs.
        """
        demanded = len(self.values.demands)
        try:
            return self._results(call, ids, scope)
        except NotKnown as no:
            del self.values.demands[demanded:]
            place, name = no.position, no.name
        id = ids[place]
        assert id is not None
        self.values.source = scope.source(call.source)
        few = few_values(self.values, call.op, ids, place, name)
        if few is None or len(few) * side_by_side > MOST:
            raise self._unknown_parameter(id, name)
        fitting, each, refused = [], [], self.refused
        inner = Scope(scope.opsets, scope.source(call.source), named=False, defines=scope.defines or call.operator)
        for value, flag in few:
            known = (*ids[:place], self.values.constant(value), *ids[place + 1 :])
            with self.values.guarded(flag):
                try:
                    each.append(self._by_value(call, known, inner, side_by_side * len(few)))
                    fitting.append((value, flag))
                except Unsupported as no:  # no legal one, after all
                    why = no
        if self.refused > refused:
            return (REFUSED,) * len(call.outputs)
        if not each:
            raise why
        self.values.source = scope.source(call.source)
        if self.graph.type(id).elements:
            self.values.give_examples(id, [value for value, _ in fitting])
        found = one_of(self.values, call.op, name, fitting, each)
        return tuple(None if one is None else self._named(one, call, scope, at) for at, one in enumerate(found))

    def _results(self, call: Call, ids: Ids, scope: Scope) -> Ids:
        if REFUSED in ids:
            return (REFUSED,) * len(call.outputs)
        function = self.model.functions.get(key_of(call))
        if function is not None:
            prefix = f"{scope.source(call.source)}/"
            return self.expand(call, ids, scope, expand_function(call, function), prefix)
        self.values.source = scope.source(call.source)
        if any(map(is_sequence, ids)) and (call.domain or call.op not in {*SEQUENCES, *PASSING}):
            raise Unsupported("it is given a sequence, which the operator does not take", "give it the elements")
        if (rule := rule_of(call)) is not None:
            texts = tuple(id in self.graph.texts for id in ids)
            site = Site(call, self._types(ids), self._arrays(ids), texts, self.graph.numbers_of)
            return self.expand(call, ids, scope, guarded(lambda: rule(site)), None)
        if "::" in call.operator and call.operator in STRUCTURAL:
            return STRUCTURAL[call.operator](self, call, ids, scope)
        if call.domain:
            raise why_not(call)
        return self._standard(call, ids, scope)

    def _standard(self, call: Call, ids: Ids, scope: Scope) -> Ids:
        """Results of an operator of ai.onnx."""
        opset = scope.opsets.get("")
        if opset is None:
            raise Unsupported("the model imports no opset of ai.onnx", "add the opset to the model's opset_import")
        call, opset = not_below_six(call, opset)
        check(call, opset)
        if call.op in STRUCTURAL:
            return STRUCTURAL[call.op](self, call, ids, scope)
        if call.op in DRAWING:
            return self.drawn(call, ids, scope)
        place = Place(call, self._types(ids), self._arrays(ids), limits=self.limits)
        if call.op in SIZES and self.values.concerns(ids):
            return (self._named(guarded(lambda: SIZES[call.op](self.values, call, ids)), call, scope),)
        if call.op in FOLDED and (array := guarded(lambda: FOLDED[call.op](place))) is not None:
            return (self.graph.shared(array, scope.label(call.outputs[0])),)
        if call.op in SIZES:  # data say them
            return (self._named(guarded(lambda: SIZES[call.op](self.values, call, ids)), call, scope),)
        at, same = HELD.get(call.op, (len(ids), 0))
        if at < len(ids) and (id := ids[at]) is not None and self.values.known(id) is None:
            asked = OpenSite(self.values, call.op, ids, {}, 1)
            ids = (*ids[:at], guarded(lambda: held(asked, at, same)), *ids[at + 1 :])
        if is_sized_by_data(self.values, call.op, ids):
            return self._measured(call, ids, scope)
        if call.op in FOLDED and call.op not in self.operators and not may_expand(call.op):
            raise self._never_folded(call, ids, opset)
        expansion = guarded(lambda: upgrade(call, opset, place.types, place.constants))
        if expansion is not None:
            return self.expand(call, ids, scope, expansion, None)
        form = form_of(call.op, NEWEST_OPSET)
        if call.op in self.operators and form is not None:
            return self._record(call, ids, scope, self.operators[call.op], form)
        return self._composed(call, ids, scope, opset, place.types)

    def _measured(self, call: Call, ids: Ids, scope: Scope) -> Ids:
        """Results that have as many elements as data say."""
        form = form_of(call.op, NEWEST_OPSET)
        assert form is not None
        count = max((position + 1 for position, name in enumerate(call.outputs) if name), default=0)
        site = OpenSite(self.values, call.op, ids, normal_attrs(call, form), count)
        is_text = gives_text(call.op, self.graph.are_texts(ids))
        found = guarded(lambda: MEASURED[call.op](site))
        self.graph.texts.update(found[:1] if is_text else ())
        named = [self._named(id, call, scope, place) for place, id in enumerate(found[:count])]
        return (*named, *(None for _ in call.outputs[count:]))

    def _types(self, ids: Ids) -> tuple[TensorType | None, ...]:
        """With a symbol for each open axis."""
        return tuple(None if id is None else self.values.type(id) for id in ids)

    def _arrays(self, ids: Ids) -> tuple[np.ndarray | None, ...]:
        return tuple(None if id is None else self.graph.constants.get(id) for id in ids)

    def expand(self, call: Call, ids: Ids, scope: Scope, expansion: Expansion, prefix: str | None) -> Ids:
        """Evaluates an expansion in a scope of its own; without a prefix its nodes carry the source of the call."""
        if prefix is None:
            defines = scope.defines or call.operator
            inner = Scope(expansion.opsets, scope.source(call.source), named=False, defines=defines)
        else:
            inner = Scope(expansion.opsets, prefix)
        inner.slots.update(dict.fromkeys(expansion.inputs))
        inner.slots.update(zip(expansion.inputs, ids, strict=False))
        for name, array in expansion.constants.items():
            inner.slots[name] = self.graph.constant(array, inner.label(name))
        before = len(self.graph.values)
        self.run(expansion.calls, inner)
        results: list[int | None] = []
        for outer, name in zip(call.outputs, expansion.outputs, strict=False):
            id = inner.find(name) if outer and name else None
            if isinstance(id, Foreign) or (id is None and outer):
                raise Unsupported(
                    f"its result {quoted(outer)} is not computed by its body", "export without that result"
                )
            if id is not None and id >= before:
                self.graph.rename(id, scope.label(outer))
            results.append(id)
        return tuple(results)

    def _composed(self, call: Call, ids: Ids, scope: Scope, opset: int, types: tuple[TensorType | None, ...]) -> Ids:
        form = form_of(call.op, opset)
        assert form is not None
        gives_text(call.op, self.graph.are_texts(ids))  # which refuses strings of all others
        check_types(form, types)
        expansion = guarded(lambda: schema_body(call, opset, types, form.defaults))
        if expansion is None:
            raise why_not(call)
        return self.expand(call, ids, scope, expansion, None)

    def _record(self, call: Call, ids: Ids, scope: Scope, operator: Operator, form: Form) -> Ids:
        types = self._types(ids)
        check_types(form, types, moves=Trait.MOVES in operator.traits)
        attrs = normal_attrs(call, form)
        is_text = gives_text(call.op, self.graph.are_texts(ids))
        if self.values.concerns(ids) or is_said_by_data(self.values, call.op, ids):
            count = max((position + 1 for position, name in enumerate(call.outputs) if name), default=0)
            site = OpenSite(self.values, call.op, ids, attrs, count)
            try:
                found = guarded(lambda: results_of(site))
            except NotKnown:
                raise
            except Unsupported as no:
                return self._by_body(call, ids, scope, form, no)
            self.graph.texts.update(found if is_text else ())
            named = [self._named(id, call, scope, place) for place, id in enumerate(found)]
            return (*named, *(None for _ in call.outputs[count:]))
        inputs = list(ids)
        for position, name in operator.parameters:
            if position < len(inputs) and (id := inputs[position]) is not None:
                array = self.graph.constants.get(id)
                if array is None:
                    raise NotKnown(position, name)
                if array.size > self.limits.parameter_elements:
                    raise self._unknown_parameter(id, name)
                attrs[name] = plain(array)
                inputs[position] = None
        count = max((position + 1 for position, name in enumerate(call.outputs) if name), default=0)
        first = len(self.graph.values)
        source = scope.source(call.source)
        node = Node(call.op, tuple(inputs), tuple(range(first, first + count)), attrs, source)
        types = self._types(node.inputs)
        results = guarded(lambda: operator.infer(node, types))
        if len(results) != count:
            raise Unsupported(f"it has {len(results)} outputs where {count} are asked for", "export the model again")
        for result in results:
            check_size(result.capacity, result.dtype, f"the result of {call.operator} {quoted(source)}", self.limits)
        arrays = None if form.random else self._fold(operator, node, results)
        for position, (result, name) in enumerate(zip(results, call.outputs, strict=False)):
            label = scope.label(name) if name else ""
            if arrays is None:
                self.graph.value(result, label)
            else:
                id = self.graph.constant(arrays[position], label)
                self.graph.texts.update((id,) if is_text else ())
        if arrays is None:
            self.graph.node(node)
        return (*node.outputs, *(None for _ in call.outputs[count:]))

    def _by_body(self, call: Call, ids: Ids, scope: Scope, form: Form, no: Unsupported) -> Ids:
        """Results of an operator that has no rule for its open axes, by the body that ONNX gives for it.

        Raises `no` where there is none, or none of which every node is taken.
        """
        before = self.refused
        try:
            with attempt(self):
                expansion = guarded(lambda: schema_body(call, NEWEST_OPSET, self._types(ids), form.defaults))
                if expansion is None:
                    raise no
                found = self.expand(call, ids, scope, expansion, None)
                if self.refused > before:
                    raise no
                return found
        except Unsupported:
            raise no from None

    def _named(self, id: int, call: Call, scope: Scope, place: int = 0) -> int:
        """The value by the name that the call gives it, where nothing else has named it."""
        label = scope.label(call.outputs[place])
        if label and not self.graph.values[id].name and id not in self.graph.constants:
            self.graph.rename(id, label)
        return id

    def _never_folded(self, call: Call, ids: Ids, opset: int) -> Unsupported:
        """Why an operator that is only ever folded is not."""
        form = form_of(call.op, opset)
        assert form is not None
        for position, (id, formal) in enumerate(zip(ids, form.formals, strict=False)):
            if id is not None and id not in self.graph.constants:
                return NotKnown(position, formal.name)
        return Unsupported("its result is too large to be computed when compiling", "bind smaller shapes")

    def _unknown_parameter(self, id: int, name: str) -> Unsupported:
        known = self.graph.constants.get(id)
        if known is not None:
            return Unsupported(
                f"input {name!r} has {known.size} elements, too many for a parameter", "simplify the node"
            )
        return Unsupported(
            f"input {name!r} must be known when compiling, but is computed at run time", self.how_to_fix(id)
        )

    def how_to_fix(self, *ids: int) -> str:
        """What makes values known that only data say."""
        if self.refused >= self.limits.refusals:  # it will not be shown
            return ""
        names = list(dict.fromkeys(name for id in ids for name in self.graph.inputs_behind(id)))
        if not names:
            return "make it a constant, or compute it from shapes alone"
        given = ", ".join(f'{json.dumps(name[:60])}: {{"value": ...}}' for name in names[:4])
        return f'give the value of the input it depends on in the options: {{"inputs": {{{given}}}}}'

    def _fold(self, operator: Operator, node: Node, results: tuple[TensorType, ...]) -> tuple[np.ndarray, ...] | None:
        arrays = self._arrays(node.inputs)
        if not node.used or any(array is None for array in self._arrays(node.used)):
            return None
        if not may_fold(operator, node, arrays, results, self.limits, self.folded):
            return None
        self.folded += work_of(node, [array.size for array in arrays if array is not None], results)
        return guarded(lambda: fold(operator, node, arrays, results))

    def drawn(self, call: Call, ids: Ids, scope: Scope) -> Ids:
        """Random numbers, by `compiler.frontend.expansions.draws`."""
        rule = DRAWING.get(call.op, dropout)
        site = Site(call, self._types(ids), self._arrays(ids))
        return self.expand(call, ids, scope, guarded(lambda: rule(site)), None)

    def identity(self, call: Call, ids: Ids, scope: Scope) -> Ids:
        """Identity: `y = x`."""
        return ids[:1]

    def dropout(self, call: Call, ids: Ids, scope: Scope) -> Ids:
        """Dropout when not training, or of no element: `y = x`, and a mask of ones; else what it draws."""
        training = self.graph.constants.get(ids[2]) if len(ids) > 2 and ids[2] is not None else np.array(False)
        ratio = self.graph.constants.get(ids[1]) if len(ids) > 1 and ids[1] is not None else None
        if ratio is not None and not ratio.any():
            training = np.array(False)
        opset = scope.opsets.get("") or NEWEST_OPSET
        if opset < 7 and not call.attrs.get("is_test", 0):
            raise Unsupported("it is in training form", "export the model in inference mode (model.eval())")
        if training is None or training.any():
            return self.drawn(call, ids, scope)
        if len(call.outputs) == 1:
            return ids[:1]
        assert ids[0] is not None
        kind = self.graph.type(ids[0])
        dtype = kind.dtype.numpy if opset < 10 else np.dtype(np.bool_)
        mask = self.graph.constant(np.broadcast_to(np.ones((), dtype), kind.dims), scope.label(call.outputs[1]))
        shape = self.values.shape(ids[0])
        return (ids[0], self.values.settled(mask, shape) if is_open(shape) else mask)

    def knows(self, call: Call) -> bool:
        """Whether there is a way for calls of this operator at all."""
        return is_known(call, self.model, self.operators)


STRUCTURAL: dict[str, Callable[[_Walk, Call, Ids, Scope], Ids]] = {
    **{name: of_numbers(rule) for name, rule in {FLEX_ATTENTION: flex_attention, **SEQUENCES}.items()},
    NUMBER_OF: number_of,
    OWN_FOREST: forest,
    OWN_LSTM: coded_lstm,
    **REGIONS,
    RANDOM_BITS: random_bits,
    ZIP_MAP: zip_map,
    "Dropout": _Walk.dropout,
    "Identity": _Walk.identity,
    "If": conditional,
    "Loop": loop,
    "Scan": scan_of_any_opset,
}
"""Operators that are resolved while the graph is read, and never stand in it."""
