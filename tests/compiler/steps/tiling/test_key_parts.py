"""Which calls of attention are cut into parts of their keys, and an artifact whose lanes share them."""

from __future__ import annotations

import itertools
import json
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from compiler.codegen.calls import workload_of
from compiler.contract import CompileOptions
from compiler.devices.cpu.algorithms import legal_tiles
from compiler.devices.cpu.emit.lower import count_tiles
from compiler.devices.cpu.target import resolve
from compiler.forms.attention import RUN, as_few_queries
from compiler.fuse.joins import ChosenJoins
from compiler.ir.machine import Workload
from compiler.ir.tile import Cost, Menu, Variant
from compiler.pack.loader import Model
from compiler.steps.tiling.key_parts import KeyCuts
from compiler.tuning.menus import Tiler
from compiler.tuning.proposal import Proposal
from tests.compiler.fuse.attention.test_key_parts import attention_of
from tests.compiler.fuse.few_queries import Form
from tests.compiling import compile_file

TARGET = resolve("cpu:x86-64-v4")
TOKEN = Form(heads=3, groups=3, keys=4096, depth=64, columns=64)
"""One token of SmolLM2-135M, over a cache that is long."""


def legal(workload: Workload, lanes: int, precision: str) -> list[Proposal]:
    return legal_tiles(workload, TARGET, lanes, precision)


TILER = Tiler(TARGET, legal, lambda workload, tile: count_tiles(workload, tile, TARGET))


def cut(form: Form, lanes: int, source: str = "model", meeting_s: float = 1e-6) -> tuple[int, ChosenJoins]:
    """In how many parts the keys of a call are, and all calls with their menus, those of others having none."""
    kernels, call = attention_of(form)
    workload = workload_of(kernels, call)
    best = min(legal(workload, lanes, "fp32"), key=lambda one: one.seconds)
    own = Menu("own", (Variant(best.tile, TILER.count_tiles(workload, best.tile), 1, Cost(best.seconds, source)),))
    settled = ChosenJoins(replace(kernels, calls=(call,)), (own,), ())
    found = KeyCuts(TILER, workload_of, "fp32", lanes, meeting_s).cut(settled)
    view = as_few_queries(found.kernels.calls[0].kernel)
    assert view is not None
    assert len(found.menus) == len(found.kernels.calls)
    return 1 if view.part is None else view.part.axis.extent, found


@pytest.mark.parametrize(
    ("lanes", "changes", "parts"),
    [
        (2, {}, 2),
        (4, {}, 4),
        (16, {}, 16),
        (3, {}, 1),
        (1, {}, 1),
        (2, {"heads": 2}, 1),
        (4, {"heads": 2}, 2),
        (2, {"keys": 2 * RUN}, 1),
        (2, {"lowest": -65504.0}, 2),
        (2, {"across": True}, 2),
    ],
)
def test_keys_are_cut_where_heads_leave_lanes_idle(lanes: int, changes: Mapping[str, Any], parts: int) -> None:
    assert cut(replace(TOKEN, **changes), lanes)[0] == parts


def test_parts_cost_together_what_the_call_was_measured_to_take() -> None:
    count, found = cut(TOKEN, 2, "measured")
    (alone,) = cut(TOKEN, 1, "measured")[1].menus
    assert found.menus[0].best.cost == alone.best.cost
    assert found.menus[0].best.tiles == count * alone.best.tiles
    assert found.menus[1].best.cost.is_modelled


def test_a_meeting_that_costs_more_than_it_saves_is_left_out() -> None:
    assert cut(TOKEN, 2, meeting_s=1e-3)[0] == 1


HEADS, WIDTH, KEYS = 3, 64, 4 * RUN + 10


def attention(path: Path, lowest: float) -> Path:
    """One query of each head over keys up to a place; scores of others are the lowest."""
    info = helper.make_tensor_value_info
    sizes = {"q": [1, HEADS, 1, WIDTH], "k": [1, HEADS, KEYS, WIDTH], "v": [1, HEADS, KEYS, WIDTH]}
    inputs = [info(name, TensorProto.FLOAT, dims) for name, dims in sizes.items()]
    inputs.append(info("last", TensorProto.INT64, [1, 1, 1, 1]))
    steps: tuple[tuple[str, list[str], str, dict[str, Any]], ...] = (
        ("Transpose", ["k"], "across", {"perm": [0, 1, 3, 2]}),
        ("MatMul", ["q", "across"], "scores", {}),
        ("LessOrEqual", ["places", "last"], "seen", {}),
        ("Where", ["seen", "scores", "lowest"], "masked", {}),
        ("Softmax", ["masked"], "weights", {"axis": -1}),
        ("MatMul", ["weights", "v"], "y", {}),
    )
    nodes = [helper.make_node(op, reads, [made], **attrs) for op, reads, made, attrs in steps]
    constants: dict[str, np.ndarray] = {"places": np.arange(KEYS), "lowest": np.array(lowest, np.float32)}
    held = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "attention", inputs, [info("y", TensorProto.FLOAT, sizes["q"])], held)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
    return path


@pytest.mark.parametrize("lowest", [-3e38, -10000.0, -20.0])
def test_an_artifact_whose_lanes_share_the_keys_of_heads_is_right_at_any_length(
    lowest: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of keys that are left out nothing is read, unless a score is as low as theirs."""
    monkeypatch.setattr("compiler.steps.tiling.key_parts.LEAST_GAIN", -10.0)
    artifact = tmp_path / "model.tw"
    compile_file(attention(tmp_path / "model.onnx", lowest), artifact, CompileOptions(threads=2, tuning_budget_s=0))
    with zipfile.ZipFile(artifact) as packed:
        calls = json.loads(packed.read("plan.json"))["calls"]
    assert [call["tiles"] for call in calls if call["blocking"]["algorithm"] == "few_queries"] == [2 * HEADS]
    random = np.random.default_rng(3)
    q, k, v = (random.normal(size=(HEADS, count, WIDTH)) for count in (1, KEYS, KEYS))
    scores = q @ k.swapaxes(1, 2)
    with Model(artifact) as model:
        for last, factor in itertools.product((0, RUN - 1, RUN, KEYS - 1, -1), (1.0, -(2.0**20))):
            masked = np.where(np.arange(KEYS) <= last, factor * scores, np.float64(np.float32(lowest)))
            weights = np.exp(masked - masked.max(axis=-1, keepdims=True))
            wanted = weights @ v / weights.sum(axis=-1, keepdims=True)
            unread = np.zeros(KEYS, np.bool_)
            if last >= 0 and masked.max(axis=-1).min() > lowest + 200:
                unread[last + 1 :] = True
            held = [np.where(unread[:, None], np.nan, one) for one in (k, v)]
            arrays = zip(("q", "k", "v"), (factor * q, *held), strict=True)
            given = {name: array[None].astype(np.float32) for name, array in arrays}
            got = model.run({**given, "last": np.full((1, 1, 1, 1), last)})["y"][0]
            np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4, err_msg=f"{last} {factor}")
