from __future__ import annotations

import numpy as np
import pytest

from compiler.ir.graph import Graph
from compiler.prove.inputs import edge_inputs, sample_inputs
from tests.parse import parse_graph


def every_case(graph: Graph, value: int) -> np.ndarray:
    """All elements that any case gives an input."""
    cases = [*(sample_inputs(graph, seed) for seed in range(5)), *dict(edge_inputs(graph, 0)).values()]
    return np.concatenate([case[value].reshape(-1) for case in cases])


def reached(reader: str, type: str = "i64[200]") -> Graph:
    """A graph whose input 0 is read by the nodes given; 1 is a table of 30 rows of 4."""
    graph = parse_graph(f"graph(%0: {type}, %1: f32[30, 4]) -> (%9)\n{reader}")
    graph.verify()
    return graph


GATHER = "%9: f32[200, 4] = Gather(%1, %0) axis=0"
BEHIND = """  %2: i32[200] = Cast(%0) to=6
  %3: i32[1, 200] = Unsqueeze(%2) axes=(0,)
  %4: i32[200] = Reshape(%3) shape=(200,) allowzero=0
  %9: f32[200, 4] = Gather(%1, %4) axis=0"""
TWICE = """  %5: f32[7, 4] = const sha256 "0"
  %6: f32[200, 4] = Gather(%5, %0) axis=0
  %7: f32[200, 4] = Gather(%1, %0) axis=0
  %9: f32[200, 4] = Add(%6, %7)"""


def test_inputs_have_the_declared_types_and_shapes_and_repeat_with_the_seed() -> None:
    text = "graph(%0: f32[2, 3], %1: bool[50], %2: f16[4], %3: u8[500], %4: i8[500], %5: i64[], %6: f32[0, 2]) -> (%0)"
    graph = parse_graph(text)
    for case in (sample_inputs(graph, 1), *dict(edge_inputs(graph, 1)).values()):
        assert list(case) == [*graph.inputs]
        for value, array in case.items():
            assert (array.dtype, array.shape) == (graph.type(value).dtype.numpy, graph.type(value).dims)
    first, again, other = (sample_inputs(graph, seed) for seed in (1, 1, 2))
    assert all(np.array_equal(first[value], again[value]) for value in graph.inputs)
    assert not np.array_equal(first[0], other[0])
    assert set(first[1].tolist()) == {False, True}
    assert first[3].max() > 200
    assert first[4].min() < -100
    assert first[5] >= 0


@pytest.mark.parametrize(("reader", "rows"), [(GATHER, 30), (BEHIND, 30), ("%9: f32[200, 9] = OneHot(%0) depth=9", 9)])
def test_an_index_stays_in_the_range_of_what_it_indexes(reader: str, rows: int) -> None:
    drawn = every_case(reached(reader), 0)
    assert (drawn.min(), drawn.max()) == (0, rows - 1)


def test_the_smallest_table_an_index_reads_bounds_it() -> None:
    graph = parse_graph(
        f"graph(%0: i64[200], %1: f32[30, 4]) -> (%9)\n{TWICE}".replace('sha256 "0"', f"{{{', '.join(['0'] * 28)}}}")
    )
    assert every_case(graph, 0).max() == 6


def test_an_index_of_several_dimensions_fits_the_least_of_them() -> None:
    graph = reached("%9: f32[100] = GatherND(%1, %0) batch_dims=0", "i64[100, 2]")
    assert every_case(graph, 0).max() == 3


def test_a_float_that_becomes_an_index_stays_in_range_too() -> None:
    drawn = every_case(reached(BEHIND, "f32[200]"), 0)
    assert (drawn.min(), drawn.max()) == (0, 29)


@pytest.mark.parametrize(
    "reader",
    [
        "%9: bool[200] = Cast(%0) to=9",
        "%2: i64[] = const {1}\n%9: i64[200] = Sub(%2, %0)",
        "%2: i64[] = const {1}\n%9: bool[200] = Equal(%0, %2)",
    ],
)
def test_an_attention_mask_is_zero_or_one(reader: str) -> None:
    assert set(every_case(reached(reader), 0).tolist()) == {0, 1}


def test_an_integer_of_no_stated_use_is_a_byte() -> None:
    drawn = every_case(reached("%9: f32[200] = Cast(%0) to=1", "i32[200]"), 0)
    assert (drawn.min(), drawn.max()) == (0, 255)


def test_what_a_logarithm_reads_is_positive() -> None:
    assert every_case(reached("%9: f32[200] = Log(%0)", "f32[200]"), 0).min() >= 0


def test_edge_cases_cover_zero_one_both_signs_and_large_values() -> None:
    cases = dict(edge_inputs(parse_graph("graph(%0: f32[500]) -> (%0)"), 0))
    assert list(cases) == ["zeros", "ones", "negative", "large"]
    assert not cases["zeros"][0].any()
    assert (cases["ones"][0] == 1).all()
    assert (cases["negative"][0] <= 0).all()
    assert np.abs(cases["large"][0]).max() > 100


def test_an_update_is_written_inside_of_what_it_updates() -> None:
    text = """graph(%0: f32[60, 4, 40, 8], %1: f32[60, 4, 3, 8], %2: i64[60]) -> (%9)
  %9: f32[60, 4, 40, 8] = TensorScatter(%0, %1, %2)"""
    graph = parse_graph(text)
    graph.verify()
    found = every_case(graph, 2)
    assert (found.min(), found.max()) == (0, 37)
