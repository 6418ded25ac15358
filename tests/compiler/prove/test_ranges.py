from __future__ import annotations

import math
import random

import numpy as np
import pytest

from compiler.ir.graph import Graph, Node, Value
from compiler.ir.tensor import DType, TensorType
from compiler.ops import OPERATORS
from compiler.prove.inputs import edge_inputs, sample_inputs
from compiler.prove.interval import Interval
from compiler.prove.ranges import derive
from compiler.prove.reference import evaluate_graph
from compiler.prove.transfer import Site, forward
from tests.parse import parse_graph
from tests.seeds import each

ROWS = 30
"""Of the table %1 that the graphs of these tests read."""
GATHER = "%9: f32[6, 4] = Gather(%1, %8) axis=0"


def of(*lines: str, inputs: str = "%0: i64[6]", result: str = "%9") -> Graph:
    """A graph with the table %1 among its inputs."""
    graph = parse_graph("\n".join([f"graph({inputs}, %1: f32[{ROWS}, 4]) -> ({result})", *lines]))
    graph.verify()
    return graph


def range_of(graph: Graph, value: int = 0) -> tuple[float, float]:
    """The derived range of an input, with all demands kept when the drawn inputs are run."""
    found = derive(graph)
    assert found.unproven == ()
    run_every_case(graph)
    interval = found.ranges[value].interval
    return interval.low, interval.high


def run_every_case(graph: Graph) -> int:
    cases = [*(sample_inputs(graph, seed) for seed in range(3)), *(case for _, case in edge_inputs(graph, 0))]
    for case in cases:
        evaluate_graph(graph, case, OPERATORS)
    return len(cases)


ONE_OPERAND = {
    "an index is moved up": (("%2: i64[] = const {5}", "%8: i64[6] = Add(%0, %2)"), (-5, 24)),
    "an index is moved down": (("%2: i64[] = const {5}", "%8: i64[6] = Sub(%0, %2)"), (5, 34)),
    "an index is counted from behind": (("%2: i64[] = const {29}", "%8: i64[6] = Sub(%2, %0)"), (0, 29)),
    "an index is a multiple": (("%2: i64[] = const {4}", "%8: i64[6] = Mul(%0, %2)"), (0, 7)),
    "an index is a negative multiple": (("%2: i64[] = const {-4}", "%8: i64[6] = Mul(%0, %2)"), (-7, 0)),
    "an index is a quotient": (("%2: i64[] = const {4}", "%8: i64[6] = Div(%0, %2)"), (-3, 119)),
    "an index is negated": (("%8: i64[6] = Neg(%0)",), (-29, 0)),
    "an index is a size": (("%8: i64[6] = Abs(%0)",), (-29, 29)),
    "an index is raised to a least one": (("%2: i64[] = const {3}", "%8: i64[6] = Max(%0, %2)"), (-math.inf, 29)),
    "an index is a remainder": (("%2: i64[] = const {30}", "%8: i64[6] = Mod(%0, %2)"), (0, 29)),
    "an index is a remainder of more than there is": (
        ("%2: i64[] = const {90}", "%8: i64[6] = Mod(%0, %2)"),
        (0, 29),
    ),
    "an index is counted up": (("%8: i64[6] = CumSum(%0) axis=0",), (0, 4)),
    "an index is padded": (
        (
            "%2: i64[4] = Slice(%0) starts=(0,) ends=(4,) axes=(0,) steps=(1,)",
            '%8: i64[6] = Pad(%2) pads=(1, 1) constant_value=7 mode="constant"',
        ),
        (0, 29),
    ),
    "an index goes through a float": (
        (
            "%2: f32[] = const {3.0}",
            "%3: f32[6] = Cast(%0) to=1",
            "%4: f32[6] = Mul(%3, %2)",
            "%5: f32[6] = Floor(%4)",
            "%8: i64[6] = Cast(%5) to=7",
        ),
        (0, 9),
    ),
    "an index below zero is counted from the end": (
        (
            "%2: i64[] = const {0}",
            "%3: i64[] = const {30}",
            "%4: bool[6] = Less(%0, %2)",
            "%5: i64[6] = Add(%0, %3)",
            "%8: i64[6] = Where(%4, %5, %0)",
        ),
        (0, 29),
    ),
}


@pytest.mark.parametrize(("nodes", "wanted"), ONE_OPERAND.values(), ids=ONE_OPERAND)
def test_a_demand_is_walked_back_through_arithmetic(nodes: tuple[str, ...], wanted: tuple[float, float]) -> None:
    assert range_of(of(*nodes, GATHER)) == wanted


def test_one_row_of_the_edges_of_a_graph_is_an_index_of_nodes() -> None:
    """Edges come as [2, edges]: their beginnings and their ends are picked out before they are used."""
    graph = of(
        "%2: i64[] = const {0}",
        "%3: i64[] = const {1}",
        "%4: i64[6] = Gather(%0, %2) axis=0",
        "%5: i64[6] = Gather(%0, %3) axis=0",
        "%6: f32[6, 4] = Gather(%1, %4) axis=0",
        "%7: i64[6, 1] = Unsqueeze(%5) axes=(1,)",
        f'%9: f32[{ROWS}, 4] = ScatterND(%1, %7, %6) reduction="add"',
        inputs="%0: i64[2, 6]",
    )
    assert range_of(graph) == (0, 29)


def test_two_inputs_that_make_an_index_together_share_its_range() -> None:
    graph = of("%8: i64[6] = Add(%0, %2)", GATHER, inputs="%0: i64[6], %2: i64[6]")
    assert [range_of(graph, value) for value in (0, 2)] == [(0, 14), (0, 14)]
    graph = of("%8: i64[6] = Mul(%0, %2)", GATHER, inputs="%0: i64[6], %2: i64[6]")
    assert [range_of(graph, value) for value in (0, 2)] == [(0, 5), (0, 5)]


def test_what_is_known_of_one_operand_leaves_the_rest_to_the_other() -> None:
    graph = of(
        "%3: i64[6] = ArgMax(%2) axis=1 keepdims=0",
        "%8: i64[6] = Add(%0, %3)",
        GATHER,
        inputs="%0: i64[6], %2: f32[6, 10]",
    )
    assert range_of(graph) == (0, 20)


def test_a_pair_of_coordinates_that_are_flattened_keep_their_own_ranges() -> None:
    """row * 6 + column, each an index by itself as well."""
    graph = of(
        "%2: i64[] = const {6}",
        "%3: f32[5] = const {0.0, 1.0, 2.0, 3.0, 4.0}",
        "%4: f32[6] = const {0.0, 1.0, 2.0, 3.0, 4.0, 5.0}",
        "%5: f32[6] = Gather(%3, %0) axis=0",
        "%6: f32[6] = Gather(%4, %10) axis=0",
        "%7: i64[6] = Mul(%0, %2)",
        "%8: i64[6] = Add(%7, %10)",
        GATHER,
        inputs="%0: i64[6], %10: i64[6]",
    )
    assert [range_of(graph, value) for value in (0, 10)] == [(0, 4), (0, 5)]


def test_positions_counted_from_the_end_are_used_where_no_others_are_left() -> None:
    graph = of(
        "%2: i64[] = const {30}",
        "%3: i64[6] = Sub(%0, %2)",
        "%4: f32[6, 4] = Gather(%1, %3) axis=0",
        "%5: f32[6, 4] = Gather(%1, %0) axis=0",
        "%9: f32[6, 4] = Add(%4, %5)",
    )
    assert range_of(graph) == (0, 29)


@pytest.mark.parametrize(
    ("node", "shape"),
    [
        ("%9: f32[6, 4] = GatherElements(%1, %0) axis=0", "[6, 4]"),
        (f'%9: f32[{ROWS}, 4] = ScatterElements(%1, %0, %2) axis=0 reduction="none"', "[6, 4]"),
    ],
)
def test_indices_of_elements_stay_among_them(node: str, shape: str) -> None:
    assert range_of(of(node, inputs=f"%0: i64{shape}, %2: f32[6, 4]")) == (0, 29)


def test_the_lengths_of_sequences_are_at_most_their_steps() -> None:
    reverse = of("%9: f32[7, 6] = ReverseSequence(%2, %0) time_axis=0 batch_axis=1", inputs="%0: i64[6], %2: f32[7, 6]")
    assert range_of(reverse) == (0, 7)
    layer = of(
        '%9: f32[7, 1, 6, 3], _ = GRU(%2, %3, %4, _, %0, _) direction="reverse" hidden_size=3'.replace(", _ =", " ="),
        inputs="%0: i32[6], %2: f32[7, 6, 2], %3: f32[1, 9, 2], %4: f32[1, 9, 3]",
    )
    assert range_of(layer) == (0, 7)


def test_lengths_that_are_compared_with_positions_reach_from_none_to_all() -> None:
    graph = of(
        "%2: i64[6] = const {0, 1, 2, 3, 4, 5}",
        "%3: i64[6, 1] = Unsqueeze(%0) axes=(1,)",
        "%9: bool[6, 6] = Less(%2, %3)",
    )
    assert range_of(graph) == (0, 6)


def test_a_token_that_is_compared_as_well_is_drawn_from_the_whole_vocabulary() -> None:
    graph = of(
        "%2: i64[] = const {0}",
        "%3: bool[6] = Equal(%0, %2)",
        "%4: f32[6, 4] = Gather(%1, %0) axis=0",
        "%5: bool[6, 1] = Unsqueeze(%3) axes=(1,)",
        "%6: f32[] = const {0.0}",
        "%9: f32[6, 4] = Where(%5, %6, %4)",
    )
    assert range_of(graph) == (0, 29)


def test_a_float_mask_that_is_turned_into_a_bias_is_zero_or_one() -> None:
    graph = of(
        "%2: f32[] = const {1.0}",
        "%3: f32[] = const {-10000.0}",
        "%4: f32[6] = Sub(%2, %0)",
        "%9: f32[6] = Mul(%4, %3)",
        inputs="%0: f32[6]",
    )
    assert range_of(graph) == (0, 1)
    assert set(np.unique(sample_inputs(graph, 0)[0])) == {0.0, 1.0}


def test_a_range_names_the_nodes_it_comes_from() -> None:
    found = derive(of("%2: i64[] = const {5}", "%8: i64[6] = Add(%0, %2)", GATHER)).ranges[0]
    assert found.why == "Gather '' reads it as a position among 30"


def test_inputs_of_which_nothing_is_demanded_have_no_range() -> None:
    assert derive(of("%9: f32[6] = Cast(%0) to=1")).ranges == {}


def test_an_index_that_is_computed_from_weights_is_not_proven_and_its_inputs_are_named() -> None:
    graph = of(
        "%2: f32[6, 6] = MatMul(%10, %10)",
        "%8: i64[6, 6] = Cast(%2) to=7",
        "%9: f32[6, 6, 4] = Gather(%1, %8) axis=0",
        inputs="%0: i64[6], %10: f32[6, 6]",
    )
    (open_,) = derive(graph).unproven
    assert (open_.demand.node.op, open_.inputs) == ("Gather", (10,))


def test_a_constant_index_depends_on_no_input() -> None:
    assert derive(of("%8: i64[2] = const {1, 40}", "%9: f32[2, 4] = Gather(%1, %8) axis=0")).unproven == ()


def residuals(layers: int) -> Graph:
    """Each layer adds a root of what came before, so that every demand is walked back through all earlier layers."""
    lines, last = ["%3: f32[] = const {0.5}"], 0
    for at in range(10, 10 + 3 * layers, 3):
        lines += [
            f"%{at}: f32[6] = Sub(%{last}, %3)",
            f"%{at + 1}: f32[6] = Sqrt(%{at})",
            f"%{at + 2}: f32[6] = Add(%{last}, %{at + 1})",
        ]
        last = at + 2
    return of(*lines, inputs="%0: f32[6]", result=f"%{last}")


def test_the_walk_takes_as_many_steps_more_as_the_graph_is_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = 0

    def counted(site: Site) -> Interval:
        nonlocal steps
        steps += 1
        return forward(site)

    monkeypatch.setattr("compiler.prove.ranges.forward", counted)
    taken = []
    for layers in (20, 40):
        steps = 0
        assert derive(residuals(layers)).ranges[0].interval.low >= 0.5
        taken.append(steps)
    assert taken[0] > 0
    assert taken[1] < 2.5 * taken[0]


class Arithmetic:
    """A random graph in which integers (and some floats) are shifted about before they index the table."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.values: dict[int, Value] = {}
        self.constants: dict[int, np.ndarray] = {}
        self.nodes: list[Node] = []
        self.table = self.value(DType.F32, (ROWS, 4))
        self.inputs = [self.value(self.random.choice((DType.I64, DType.I32, DType.U8, DType.F32)), (6,)) for _ in "ab"]
        self.ready = [self.as_integer(value) for value in self.inputs]

    def value(self, dtype: DType, shape: tuple[int, ...]) -> int:
        id = len(self.values)
        self.values[id] = Value(id, TensorType(dtype, shape), f"v{id}")
        return id

    def constant(self, number: float, dtype: DType = DType.I64) -> int:
        id = self.value(dtype, ())
        self.constants[id] = np.array(number, dtype.numpy)
        return id

    def node(
        self, op: str, *inputs: int, dtype: DType = DType.I64, shape: tuple[int, ...] = (6,), **attrs: object
    ) -> int:
        result = self.value(dtype, shape)
        self.nodes.append(Node(op, inputs, (result,), attrs, f"n{len(self.nodes)}"))  # type: ignore[arg-type]
        return result

    def as_integer(self, value: int) -> int:
        return self.node("Cast", value, to=7)

    def step(self) -> int:
        x, y = self.random.choice(self.ready), self.random.choice(self.ready)
        small = self.random.randint(1, 9)
        match self.random.randrange(13):
            case 0 | 1:
                return self.node(self.random.choice(("Add", "Sub")), x, self.constant(self.random.randint(-20, 20)))
            case 2:
                return self.node("Mul", x, self.constant(self.random.choice((-3, -1, 2, 5))))
            case 3:
                return self.node("Div", x, self.constant(small))
            case 4:
                return self.node("Mod", x, self.constant(small), fmod=self.random.randint(0, 1))
            case 5:
                return self.node(self.random.choice(("Max", "Min")), x, self.constant(self.random.randint(-9, 35)))
            case 6:
                return self.node("Clip", x, self.constant(-small), self.constant(small))
            case 7:
                return self.node(self.random.choice(("Neg", "Abs")), x)
            case 8:
                return self.node(self.random.choice(("Add", "Sub", "Mul")), x, y)
            case 9:
                test = self.node("Less", x, self.constant(0), dtype=DType.BOOL)
                return self.node("Where", test, self.node("Add", x, self.constant(ROWS)), y)
            case 10:
                real = self.node("Cast", x, dtype=DType.F32, to=1)
                scaled = self.node("Mul", real, self.constant(self.random.uniform(0.1, 3), DType.F32), dtype=DType.F32)
                return self.as_integer(
                    self.node(self.random.choice(("Floor", "Ceil", "Round")), scaled, dtype=DType.F32)
                )
            case 11:
                return self.node("CumSum", x, axis=0)
            case _:
                return self.node("Gather", x, self.node("Mod", y, self.constant(6)), axis=0)

    def graph(self) -> Graph:
        for _ in range(self.random.randint(1, 6)):
            self.ready.append(self.step())
        outputs = [
            self.node("Gather", self.table, index, dtype=DType.F32, shape=(6, 4), axis=0)
            for index in (self.ready[-1], self.random.choice(self.ready))
        ]
        graph = Graph(self.values, tuple(self.nodes), (self.table, *self.inputs), tuple(outputs), self.constants)
        graph.verify()
        return graph


@each(range(300))
def test_inputs_in_their_ranges_never_lead_an_index_outside(seed: int) -> None:
    graph = Arithmetic(seed).graph()
    if not derive(graph).unproven:
        assert run_every_case(graph) == 7


def test_most_random_graphs_are_proven() -> None:
    graphs = [Arithmetic(seed).graph() for seed in range(300)]
    open_ = [graph for graph in graphs if derive(graph).unproven]
    assert len(open_) < 45, "\n\n".join(map(str, open_[:3]))
