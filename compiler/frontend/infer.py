"""The walk: call by call from inputs to outputs, each typed by its operator's record.

A call whose inputs are constant is folded.

Everything happens in this one pass, because each step needs what the pass has learnt so far: functions and branches are
inlined (a branch not taken is never looked at), loops unrolled, old forms upgraded, parameters turned into attributes.
A node that cannot be compiled leaves a Refusal, those that read it are passed over, and all Refusals are raised
together at the end.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import numpy as np

from compiler.errors import ModelTooLarge, OpenDimension, Refusal, TilewrightError, UnsupportedModel
from compiler.frontend.assembly import Assembly
from compiler.frontend.bind import Bound
from compiler.frontend.domains import rule_of
from compiler.frontend.fold import fold, may_fold, work_of
from compiler.frontend.functions import check_expansion, expand_function, key_of, schema_body
from compiler.frontend.legalise import check, may_expand, normal_attrs, plain, upgrade
from compiler.frontend.limits import Limits
from compiler.frontend.model import NEWEST_OPSET, Body, Call, Expansion, Foreign, Model, quoted
from compiler.frontend.open.borders import SIZES, enter, leave
from compiler.frontend.open.measured import chosen, truth
from compiler.frontend.open.rules import is_said_by_data, results_of
from compiler.frontend.open.site import OpenSite
from compiler.frontend.open.sized import MEASURED, is_sized_by_data
from compiler.frontend.open.values import Narrower, OpenValues, SameSize, WholeSteps
from compiler.frontend.regions import attempt, conditional_region
from compiler.frontend.schema import Form, check_types, form_of
from compiler.frontend.scope import REFUSED, Scope
from compiler.frontend.site import NotKnown, Site
from compiler.frontend.special import FOLDED, Place
from compiler.frontend.tensors import check_size
from compiler.frontend.unroll import loop, scan
from compiler.ir.graph import Graph, Node
from compiler.ir.open_shapes import OpenShapes
from compiler.ir.tensor import TensorType
from compiler.ops.operator import Operator, Unsupported
from compiler.ops.traits import Trait

Ids = tuple[int | None, ...]
T = TypeVar("T")


def infer(
    model: Model, bound: Bound, operators: Mapping[str, Operator], limits: Limits, regions: bool = False
) -> tuple[Graph, OpenShapes | None]:
    """The typed, folded, live graph of a model whose inputs are bound; its open axes, where there are any.

    regions  whether what the graph is made for decides while running how often a loop runs, and which branch

    Raises UnsupportedModel with a Refusal for each node that cannot be compiled, ModelTooLarge and MalformedModel at
    once.
    """
    check_expansion(model, limits)
    walk = _Walk(model, operators, limits, regions)
    scope = Scope(model.opsets)
    for name, kind in bound.types.items():
        value = bound.values.get(name)
        scope.slots[name] = walk.graph.input(kind, name) if value is None else walk.graph.constant(value, name)
    inputs = enter(walk.values, bound.open, bound.dimensions)
    walk.body(model.body, scope)
    outputs = [(name, scope.find(name)) for name in model.body.outputs]
    for name, slot in outputs:
        if isinstance(slot, Foreign):
            walk.refuse(Refusal(f"output {quoted(name)} is {slot.what}", "use a type from bool to double"))
    walk.raise_refusals()
    results = [(name, slot) for name, slot in outputs if isinstance(slot, int)]
    if not walk.values.sizes:
        return walk.graph.finish(results), None
    return leave(walk.values, results, bound.dimensions, inputs)


def is_known(call: Call, model: Model, operators: Mapping[str, Operator]) -> bool:
    """Whether the walk has a way for calls of this operator at all.

    Whether this very call is taken, only the walk can say.
    """
    if key_of(call) in model.functions or rule_of(call) is not None:
        return True
    if call.domain or (form_of(call.op, NEWEST_OPSET) is None and call.op not in operators):
        return False
    return call.op in operators or call.op in FOLDED or call.op in STRUCTURAL or may_expand(call.op)


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
        results: Ids
        try:
            results = self._results(call, self._inputs(call, scope), scope)
        except Unsupported as no:
            part = f" (as a part of {scope.defines})" if scope.defines not in ("", call.op) else ""
            self.refuse(Refusal(no.reason + part, no.fix, scope.source(call.source), call.operator))
            results = (REFUSED,) * len(call.outputs)
        scope.slots.update({name: id for name, id in zip(call.outputs, results, strict=True) if name})

    def _inputs(self, call: Call, scope: Scope) -> Ids:
        ids: list[int | None] = []
        for name in call.inputs:
            slot = scope.find(name) if name else None
            if isinstance(slot, Foreign):
                raise Unsupported(f"input {quoted(name)} is {slot.what}", "use a type from bool to double")
            ids.append(slot)
        return tuple(ids)

    def _results(self, call: Call, ids: Ids, scope: Scope) -> Ids:
        if REFUSED in ids:
            return (REFUSED,) * len(call.outputs)
        function = self.model.functions.get(key_of(call))
        if function is not None:
            prefix = f"{scope.source(call.source)}/"
            return self.expand(call, ids, scope, expand_function(call, function), prefix)
        self.values.source = scope.source(call.source)
        if (rule := rule_of(call)) is not None:
            site = Site(call, self._types(ids), self._arrays(ids))
            return self.expand(call, ids, scope, self._rewritten(lambda: rule(site), ids), None)
        if call.domain:
            raise Unsupported(
                f"operators of domain {quoted(call.domain)} are not known",
                "export with ai.onnx operators or local functions",
            )
        opset = scope.opsets.get("")
        if opset is None:
            raise Unsupported("the model imports no opset of ai.onnx", "add the opset to the model's opset_import")
        check(call, opset)
        if call.op in STRUCTURAL:
            return STRUCTURAL[call.op](self, call, ids, scope)
        place = Place(call, self._types(ids), self._arrays(ids), self.limits)
        if call.op in SIZES and self.values.concerns(ids):
            return (self._named(_guarded(lambda: SIZES[call.op](self.values, call, ids)), call, scope),)
        if call.op in FOLDED and (array := FOLDED[call.op](place)) is not None:
            return (self.graph.shared(array, scope.label(call.outputs[0])),)
        if is_sized_by_data(self.values, call.op, ids):
            return self._measured(call, ids, scope)
        if call.op in FOLDED and call.op not in self.operators and not may_expand(call.op):
            raise self._never_folded(call, ids, opset)
        expansion = self._rewritten(lambda: upgrade(call, opset, place.types, place.constants), ids)
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
        found = _guarded(lambda: MEASURED[call.op](site))
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
        check_types(form, types)
        expansion = _guarded(lambda: schema_body(call, opset, types, form.defaults))
        if expansion is None:
            raise Unsupported(
                "the operator is not supported", "replace it by supported operators; GET /operators lists them"
            )
        return self.expand(call, ids, scope, expansion, None)

    def _record(self, call: Call, ids: Ids, scope: Scope, operator: Operator, form: Form) -> Ids:
        types = self._types(ids)
        check_types(form, types, moves=Trait.MOVES in operator.traits)
        attrs = normal_attrs(call, form)
        if self.values.concerns(ids) or is_said_by_data(self.values, call.op, ids):
            count = max((position + 1 for position, name in enumerate(call.outputs) if name), default=0)
            site = OpenSite(self.values, call.op, ids, attrs, count)
            found = _guarded(lambda: results_of(site))
            named = [self._named(id, call, scope, place) for place, id in enumerate(found)]
            return (*named, *(None for _ in call.outputs[count:]))
        inputs = list(ids)
        for position, name in operator.parameters:
            if position < len(inputs) and (id := inputs[position]) is not None:
                array = self.graph.constants.get(id)
                if array is None or array.size > self.limits.parameter_elements:
                    raise self._unknown_parameter(id, name)
                attrs[name] = plain(array)
                inputs[position] = None
        count = max((position + 1 for position, name in enumerate(call.outputs) if name), default=0)
        first = len(self.graph.values)
        source = scope.source(call.source)
        node = Node(call.op, tuple(inputs), tuple(range(first, first + count)), attrs, source)
        types = self._types(node.inputs)
        results = _guarded(lambda: operator.infer(node, types))
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
                self.graph.constant(arrays[position], label)
        if arrays is None:
            self.graph.node(node)
        return (*node.outputs, *(None for _ in call.outputs[count:]))

    def _named(self, id: int, call: Call, scope: Scope, place: int = 0) -> int:
        """The value by the name that the call gives it, where nothing else has named it."""
        label = scope.label(call.outputs[place])
        if label and not self.graph.values[id].name and id not in self.graph.constants:
            self.graph.rename(id, label)
        return id

    def _rewritten(self, rule: Callable[[], T], ids: Ids) -> T:
        """What a rule makes of a call. Raises Unsupported."""
        try:
            return _guarded(rule)
        except NotKnown as no:
            id = ids[no.position]
            assert id is not None
            raise self._unknown_parameter(id, no.name) from no

    def _never_folded(self, call: Call, ids: Ids, opset: int) -> Unsupported:
        """Why an operator that is only ever folded is not."""
        form = form_of(call.op, opset)
        assert form is not None
        for id, formal in zip(ids, form.formals, strict=False):
            if id is not None and id not in self.graph.constants:
                return self._unknown_parameter(id, formal.name)
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

    def how_to_fix(self, id: int) -> str:
        if self.refused >= self.limits.refusals:  # it will not be shown
            return ""
        names = self.graph.inputs_behind(id)
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
        return _guarded(lambda: fold(operator, node, arrays, results))

    def identity(self, call: Call, ids: Ids, scope: Scope) -> Ids:
        """Identity: `y = x`."""
        return ids[:1]

    def dropout(self, call: Call, ids: Ids, scope: Scope) -> Ids:
        """Dropout when not training, or of no element: `y = x`, and a mask of ones."""
        training = self.graph.constants.get(ids[2]) if len(ids) > 2 and ids[2] is not None else np.array(False)
        ratio = self.graph.constants.get(ids[1]) if len(ids) > 1 and ids[1] is not None else None
        if ratio is not None and not ratio.any():
            training = np.array(False)
        opset = scope.opsets.get("") or NEWEST_OPSET
        if training is None or training.any() or (opset < 7 and not call.attrs.get("is_test", 0)):
            raise Unsupported("it is in training form", "export the model in inference mode (model.eval())")
        if len(call.outputs) == 1:
            return ids[:1]
        assert ids[0] is not None
        kind = self.graph.type(ids[0])
        dtype = kind.dtype.numpy if opset < 10 else np.dtype(np.bool_)
        mask = np.broadcast_to(np.ones((), dtype), kind.dims)
        return (ids[0], self.graph.constant(mask, scope.label(call.outputs[1])))

    def branch(self, call: Call, ids: Ids, scope: Scope) -> Ids:
        """If with a known condition is the branch taken, the other one is not looked at; else one of both results."""
        assert ids[0] is not None
        condition = self.graph.constants.get(ids[0])
        if condition is not None and condition.size != 1:
            raise Unsupported(f"its condition has {condition.size} elements", "give a scalar condition")
        if condition is not None:
            return self._branch(call, "then_branch" if bool(condition.reshape(())) else "else_branch", scope)
        taken = truth(self.values, ids[0])
        if self.regions:
            both_ways = [partial(self._branch, call, name, scope) for name in ("then_branch", "else_branch")]
            try:
                with attempt(self):
                    return conditional_region(self, taken, both_ways)
            except Unsupported:
                self.values.source = scope.source(call.source)
        refused = self.refused
        both = [self._branch(call, name, scope) for name in ("then_branch", "else_branch")]
        if self.refused > refused or REFUSED in (*both[0], *both[1]):
            return (REFUSED,) * len(call.outputs)
        self.values.source = scope.source(call.source)
        results: list[int | None] = []
        for one, other in zip(*both, strict=True):
            if one is None or other is None:
                raise Unsupported("a branch has a result that is absent", "export the model again")
            try:
                results.append(chosen(self.values, taken, one, other))
            except Unsupported as no:
                raise Unsupported(no.reason, self.how_to_fix(ids[0])) from None
        return tuple(results)

    def _branch(self, call: Call, which: str, scope: Scope) -> Ids:
        """The results of one branch."""
        body = call.attrs.get(which)
        if not isinstance(body, Body) or body.inputs or len(body.outputs) != len(call.outputs):
            raise Unsupported("its branch does not fit its outputs", "export the model again")
        inner = scope.inner()
        self.body(body, inner)
        results: list[int | None] = []
        for name in body.outputs:
            slot = inner.find(name)
            if isinstance(slot, Foreign):
                raise Unsupported(f"its result {quoted(name)} is {slot.what}", "use a type from bool to double")
            results.append(slot)
        return tuple(results)

    def present(self, call: Call, ids: Ids, scope: Scope) -> Ids:
        """OptionalHasElement: whether there is an input; one that is a tensor always has its element."""
        there = np.array(bool(ids) and ids[0] is not None)
        return (self.graph.constant(there, scope.label(call.outputs[0])),)

    def element(self, call: Call, ids: Ids, scope: Scope) -> Ids:
        """OptionalGetElement of a tensor: `y = x`."""
        if not ids or ids[0] is None:
            raise Unsupported("it asks for the element of an optional that has none", "export the model again")
        return ids[:1]


STRUCTURAL: dict[str, Callable[[_Walk, Call, Ids, Scope], Ids]] = {
    "Dropout": _Walk.dropout,
    "Identity": _Walk.identity,
    "If": _Walk.branch,
    "Loop": loop,
    "OptionalGetElement": _Walk.element,
    "OptionalHasElement": _Walk.present,
    "Scan": scan,
}
"""Operators that are resolved while the graph is read, and never stand in it."""


def _guarded(step: Callable[[], T]) -> T:
    """What `step` returns; what it trips over in an ill-formed node becomes a refusal of that node."""
    try:
        return step()
    except OpenDimension as error:  # a rule asked for the number of an open axis
        raise Unsupported(f"it has no rule for an open dimension: {error}", "bind that dimension to a number") from None
    except (Unsupported, TilewrightError, SameSize, WholeSteps, Narrower):
        raise
    except MemoryError:
        raise ModelTooLarge("a constant of the model does not fit into memory", fix="bind smaller shapes") from None
    except Exception as error:
        reason = f"its inputs and attributes do not fit together ({type(error).__name__}: {error!s:.200})"
        raise Unsupported(reason, "check the model with onnx.checker, or export it again") from error
