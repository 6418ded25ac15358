"""Parts of programs: when they are equal, and what may be put in their place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from compiler.ir.graph import Graph, Node
from compiler.ir.tensor import DType
from compiler.rewrite.program import Program
from compiler.rewrite.region import Region, around, cut, put_back, with_ids
from compiler.rewrite.view import No
from tests.compiler.rewrite.sketch import Sketch, assert_same_values


def region(graph: Graph, keys: Sequence[int] = ()) -> Region:
    program = Program(graph)
    program.ordered()
    return cut(program, keys or [node.outputs[0] for node in graph.nodes])


def chain(width: int = 3, scale: float = 2.0, axis: int = 0, offset: int = 0) -> Graph:
    s = Sketch(offset)
    for _ in range(offset):
        s.c(1.0)
    x = s.x(4, width)
    return s.graph(s("Softmax", s("Add", s("Mul", x, s.c(scale)), s.normal(width)), axis=axis))


def test_regions_are_of_one_structure_whatever_ids_names_and_weights_they_have() -> None:
    assert region(chain()).structure == region(chain(offset=3)).structure
    others = [chain(width=5), chain(scale=3.0), chain(axis=1)]
    structures = {region(graph).structure for graph in (chain(), *others)}
    assert len(structures) == 4, "shapes, single numbers and attributes count"
    whole = region(chain())
    assert replace(whole, free=frozenset(whole.graph.outputs)).structure != whole.structure


def test_values_that_others_need_are_outputs_of_a_region_and_inner_ones_are_free() -> None:
    s = Sketch()
    x = s.x(4)
    a = s("Tanh", x)
    b = s("Sigmoid", a)
    c = s("Cos", a)
    found = region(s.graph(b, c), [a, b])
    assert (found.graph.inputs, found.graph.outputs) == ((x,), (a, b))
    assert found.free == {a}


def test_surroundings_reach_one_step_up_two_steps_down_and_to_all_that_a_concat_joins() -> None:
    s = Sketch()
    x = s.x(1, 4)
    far = s("Tanh", x)
    above = s("Tanh", s("Tanh", far))
    here = s("Sin", above)
    joined = s("Concat", here, s("Cos", x), axis=1)
    below = s("Tanh", joined)
    beyond = s("Tanh", below)
    found = around(Program(s.graph(beyond)), [here])
    assert found == {above, here, joined, joined - 1, below}


def test_a_pad_beyond_on_the_way_to_the_surroundings_is_no_step() -> None:
    s = Sketch()
    x, size = s.x(1, 4), s.x(dtype=DType.I64)
    made = s("Tanh", s("Tanh", x))
    padded = [s("PadBeyond", made, size, axis=1)]
    padded.append(s("PadBeyond", padded[0], size, axis=0))
    here = s("Sin", padded[1])
    after = s("PadBeyond", here, size, axis=1)
    last = s("Cos", s("Tanh", after))
    found = around(Program(s.graph(s("Exp", last))), [here])
    assert found == {made, *padded, here, after, last - 1, last}


def test_what_is_put_back_has_ids_of_its_own_and_only_changes_what_differs() -> None:
    s = Sketch()
    x = s.x(4)
    kept = s("Tanh", x)
    old = s("Sigmoid", kept)
    graph = s.graph(s("Cos", s("Sin", old)))
    program = Program(graph)
    before = region(graph, [kept, old]).graph
    new = before.next_id
    after = replace(
        before,
        values={**before.values, new: replace(before.values[old], id=new, name="")},
        nodes=(before.nodes[0], Node("Identity", (kept,), (new,)), Node("Sigmoid", (new,), (old,))),
    )
    assert program.made_by.get(new) is not None, "that id is another value in the whole program"
    assert put_back(program, before, after, "as a test") is None
    whole = program.graph()
    assert_same_values(graph, whole)
    assert {node.op for node in whole.nodes} == {"Tanh", "Identity", "Sigmoid", "Sin", "Cos"}
    assert program.alive(graph.nodes[0])


def test_ids_that_died_are_not_given_out_again() -> None:
    graph = chain()
    last = graph.outputs[0]
    other = replace(graph, values={**graph.values, last + 1: replace(graph.values[last], id=last + 1)})
    renamed = with_ids(other, graph, 50)
    assert renamed.values.keys() - graph.values.keys() == {50}


def test_two_nodes_are_not_joined_where_one_needs_the_other_outside_of_the_region() -> None:
    s = Sketch()
    x = s.x(4)
    first = s("Tanh", x)
    between = s("Sin", first)
    second = s("Tanh", between)
    graph = s.graph(first, second)
    before = region(graph, [first, second]).graph
    both = Node("Fused", (x, between), (first, second))
    program = Program(graph)
    refused = put_back(program, before, replace(before, nodes=(both,)), "as a test")
    assert refused == No("the program would become cyclic")
    assert program.graph() == graph


def test_what_another_choice_changed_is_left() -> None:
    s = Sketch()
    x = s.x(4)
    a = s("Tanh", x)
    b = s("Sin", a)
    graph = s.graph(s("Cos", b))
    program = Program(graph)
    before = region(graph, [a, b]).graph
    shorter = replace(before, nodes=(Node("Neg", (x,), (b,)),))
    assert put_back(program, before, shorter, "the first") is None
    assert put_back(program, before, shorter, "the second") == No("another choice changed what it replaces")
    reading = region(graph, [b]).graph
    assert put_back(program, reading, replace(reading, nodes=(Node("Neg", (a,), (b,)),)), "the third") is not None


def test_a_value_that_somebody_reads_by_now_does_not_vanish() -> None:
    s = Sketch()
    x = s.x(4)
    a = s("Tanh", x)
    b = s("Sin", a)
    c = s("Cos", x)
    graph = s.graph(b, c)
    before = region(graph, [a, b]).graph
    alone = region(graph, [c]).graph
    other = replace(alone, values={**alone.values, a: graph.values[a]})
    program = Program(graph)
    reads = replace(other, nodes=(Node("Add", (x, a), (c,)),), inputs=(x, a))
    assert put_back(program, other, reads, "reads what is inner to the region") is None
    shorter = replace(before, nodes=(Node("Neg", (x,), (b,)),))
    assert put_back(program, before, shorter, "as a test") == No("another choice reads what would vanish")
