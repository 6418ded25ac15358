from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from compiler.fuse import fuse
from compiler.fuse.joins import HOPE, Join, choose_joins, joins, promising, replaced
from compiler.ir.buffers import Call, KernelGraph
from compiler.ir.tensor import DType
from compiler.ir.tile import Cost, Menu, Tile, Variant
from tests.compiler.fuse.byte_attentions import Form
from tests.compiler.fuse.byte_attentions import join_of as attention_of_bytes
from tests.compiler.rewrite.sketch import Sketch


def chain(pairs: int, *, branches: int = 1) -> KernelGraph:
    """Separable convolutions one behind the other, in several branches of one input that are added up."""
    s = Sketch(0, DType.F32)
    x = s("Conv", s.x(1, 8, 9, 9), s.normal(8, 8, 1, 1))
    ends = []
    for _ in range(branches):
        y = x
        for _ in range(pairs):
            y = s("Conv", y, s.normal(8, 1, 3, 3), pads=(1, 1, 1, 1), group=8)
            y = s("Conv", y, s.normal(8, 8, 1, 1))
        ends.append(y)
    whole = ends[0]
    for end in ends[1:]:
        whole = s("Add", whole, end)
    return fuse(s.graph(s("MaxPool", whole, kernel_shape=(2, 2)))).kernels


def menu(seconds: float, source: str = "measured", tiles: int = 8) -> Menu:
    return Menu("", (Variant(Tile("loops"), tiles, 1, Cost(seconds, source)),))


def reasons_for(kernels: KernelGraph, seconds: Sequence[float], lanes: int = 1, **more: float) -> tuple[list[str], int]:
    """The reasons for each join under menus in which every call takes one second; how many calls are left."""
    found = joins(kernels)
    result = choose_joins(kernels, found, [menu(1.0)] * len(kernels.calls), list(map(menu, seconds)), lanes, **more)
    result.kernels.verify()
    assert len(result.menus) == len(result.kernels.calls)
    return [verdict.reason for verdict in result.log], len(result.kernels.calls)


def test_every_window_before_a_pointwise_convolution_is_offered_once() -> None:
    kernels = chain(3)
    assert [join.calls for join in joins(kernels)] == [(1, 2), (3, 4), (5, 6)]
    assert {join.kind for join in joins(kernels)} == {"separable"}


def test_joins_that_are_less_work_are_taken_and_others_left() -> None:
    reasons, calls = reasons_for(chain(4), [1.9, 2.1, 1.99, 1.5])
    assert reasons == ["", "it is no less work", "it saves less than measurements err by", ""]
    assert calls == len(chain(4).calls) - 2


def test_of_very_many_joins_those_that_save_most_are_weighed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compiler.fuse.joins.MOST_VISITS", 2 * len(chain(4).calls) + 1)
    reasons, _ = reasons_for(chain(4), [1.9, 1.2, 1.8, 1.5])
    many = "the model has too many calls to weigh them all"
    assert reasons == [many, "", many, ""]


def test_menus_go_where_their_calls_go() -> None:
    kernels = chain(2)
    found = joins(kernels)
    apart = [menu(float(at + 1)) for at in range(len(kernels.calls))]
    result = choose_joins(kernels, found, apart, [menu(0.5), menu(99.0)], 1)
    assert [one.best.cost.seconds for one in result.menus] == [1.0, 0.5, 4.0, 5.0, 6.0]
    assert result.kernels.calls[1] is found[0].call


def test_what_was_measured_is_not_compared_with_what_was_modelled() -> None:
    kernels = chain(1)
    result = choose_joins(kernels, joins(kernels), [menu(1.0)] * len(kernels.calls), [menu(0.1, "model")], 1)
    assert [verdict.reason for verdict in result.log] == ["not all of them were measured"]
    assert result.kernels is not None
    assert result.kernels.calls == kernels.calls


@pytest.mark.parametrize(("foreseen", "reason"), [(0.5, ""), (0.9, "not all of them were measured")])
def test_where_not_all_was_measured_the_model_decides_on_attention_of_bytes(foreseen: float, reason: str) -> None:
    kernels, found = attention_of_bytes(Form())
    offered = [replace(found, foreseen=foreseen)]
    apart = [menu(1.0) for _ in kernels.calls]
    result = choose_joins(kernels, offered, apart, [menu(2.0, "model")], 1)
    assert [verdict.reason for verdict in result.log] == [reason]
    assert len(result.kernels.calls) == len(kernels.calls) - (0 if reason else 2)


def test_a_join_that_cannot_be_shared_by_the_lanes_is_left_where_that_lengthens_the_path() -> None:
    kernels = chain(1)
    whole = Menu("", (Variant(Tile("loops"), 1, 1, Cost(1.6, "measured")),))
    many = [menu(1.0)] * len(kernels.calls)
    assert choose_joins(kernels, joins(kernels), many, [whole], 1).log[0].reason == ""
    assert choose_joins(kernels, joins(kernels), many, [whole], 2).log[0].reason == "it would lengthen the longest path"


def test_a_join_that_cannot_be_shared_is_taken_where_branches_run_side_by_side() -> None:
    kernels = chain(1, branches=6)
    whole = Menu("", (Variant(Tile("loops"), 1, 1, Cost(1.6, "measured")),))
    found = joins(kernels)
    result = choose_joins(kernels, found, [menu(1.0)] * len(kernels.calls), [whole] * len(found), 2)
    assert len(found) == 6
    assert all(not verdict.reason for verdict in result.log)


def test_fewer_meetings_of_lanes_are_worth_a_little_more_work() -> None:
    assert reasons_for(chain(1), [2.1], lanes=2)[0] == ["it is no less work"]
    assert reasons_for(chain(1), [2.1], lanes=2, sync_s=0.6)[0] == [""]


@pytest.mark.parametrize(("joined", "kept"), [(2 * HOPE - 0.01, 1), (2 * HOPE + 0.01, 0)])
def test_joins_that_the_model_thinks_much_slower_are_not_tiled(joined: float, kept: int) -> None:
    kernels = chain(1)

    class Known:
        lanes = 1

        def of(self, kernels: KernelGraph, calls: Sequence[Call]) -> tuple[Cost, ...]:
            return tuple(Cost(joined if "Conv+Conv" in call.kernel.family else 1.0, "model") for call in calls)

    assert len(promising(kernels, joins(kernels), Known())) == kept


def test_what_nobody_needs_any_more_is_gone() -> None:
    kernels = chain(1)
    (join,) = joins(kernels)
    (between,) = kernels.calls[join.calls[0]].outputs
    assert between not in replaced(kernels, [join]).buffers


def test_a_verdict_tells_both_costs() -> None:
    kernels = chain(1)
    result = choose_joins(kernels, joins(kernels), [menu(2e-6)] * len(kernels.calls), [menu(3e-6)], 1)
    assert "2.0 + 2.0 us apart, 3.0 us as one (measured); joined" in str(result.log[0])
    assert isinstance(result.log[0].join, Join)
