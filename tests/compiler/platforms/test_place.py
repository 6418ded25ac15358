"""A file to a prediction: times by hand, what is refused and how, what is written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from bench.zoo import build
from compiler.contract import CompileOptions
from compiler.contract.platform import open_platform, parse_platform
from compiler.errors import OptionsError
from compiler.ir.graph import Graph
from compiler.platforms.__main__ import main
from compiler.platforms.drawing import svg
from compiler.platforms.predict import load_graph, predict, to_json
from compiler.platforms.problem import HOST_INPUT, Device, Link, Problem, Tensor
from compiler.platforms.search import Search, latency, throughput
from compiler.platforms.timing import Stage, Timing
from tests.compiler.networks import Network

HERE = Path()
ARM = {"formula": {"macs": 1e9, "elements": 1e8}}
BOARD: dict[str, Any] = {
    "about": "a board",
    "sources": ["made up"],
    "devices": {"arm": ARM, "tpu": {"count": 2, "accelerator": {"profile": "edgetpu"}}},
    "links": {"usb": {"between": ["arm", "tpu"], "bytes": 3e8}},
}


@pytest.fixture(scope="module")
def cnn() -> Graph:
    return load_graph(build("tiny_cnn").SerializeToString(), CompileOptions())


def chain(memory: float = 100.0, count: int = 2, fixed: int = 0) -> Problem:
    """Two units on a slow host and on equal accelerators that hold 100 bytes of weights and stream 10 per second."""
    devices = [Device("host", "host", element_bytes=1)]
    devices += [Device(f"a.{at}", "a", 1.0, memory, 10.0, 1) for at in range(count)]
    links: dict[tuple[int, int], Link] = {}
    for at in range(1, count + 1):
        links |= {ends: Link(f"l{at}", 0.5, 4.0, ends) for ends in ((0, at), (at, 0))}
    tensors = [Tensor(4, HOST_INPUT, 1), Tensor(2, 0, 2), Tensor(6, 1, 0, given=True)]
    seconds = [[100.0, 100.0], *([[2.0, 3.0]] * count)]
    return Problem(["u", "v"], [(), (0,)], seconds, [{1: 80}, {2: 60}], tensors, devices, links, fixed=fixed)


def test_a_timeline_adds_up_calls_messages_and_weights_that_do_not_fit() -> None:
    timing = Timing(chain())
    whole = timing.timeline([Stage((1,), 3)])
    parts = timing.timeline([Stage((1,), 1), Stage((2,), 2)])
    assert whole is not None
    assert parts is not None
    # in 0.5 + 4/4, a call, 2 + 3, the 80 bytes that do not fit beside the 60, out 0.5 + 6/4
    assert whole.latency_s == pytest.approx(1.5 + 1 + 5 + 8 + 2)
    assert whole.streamed == (0.0, 80.0, 0.0)
    assert whole.period_s == pytest.approx(14.0)
    # two calls, nothing streamed, two more messages of 2 bytes by way of the host
    assert parts.latency_s == pytest.approx(1.5 + (1 + 2) + 2 * (0.5 + 0.5) + (1 + 3) + 2)
    assert parts.period_s == pytest.approx(4.0)
    assert dict(parts.busy) == pytest.approx({"host": 0, "a.0": 3, "a.1": 4, "l1": 2.5, "l2": 3})


def test_stages_are_replicated_over_equal_devices_unless_they_hold_a_state() -> None:
    search, stateful = Search(chain(memory=1000.0)), Search(chain(memory=1000.0, fixed=3))
    for one in (search, stateful):
        one.run([latency, throughput])
    assert search.best(throughput).timeline.stages == (Stage((1, 2), 3),)
    assert search.best(throughput).timeline.period_s == pytest.approx(3.0)
    assert all(len(stage.devices) == 1 for stage in stateful.best(throughput).timeline.stages)
    assert stateful.best(throughput).timeline.period_s == pytest.approx(4.0)


def test_every_granularity_and_every_device_alone_is_told(cnn: Graph) -> None:
    found = predict(cnn, parse_platform(BOARD), HERE, "throughput")
    said = to_json(found)
    assert [one["name"] for one in said["granularities"]] == ["operator", "kernel", "cluster", "block", "whole"]
    assert said["alone"].keys() == {"arm", "tpu.0", "tpu.1"}
    tried = [one.throughput.period_s for one in found.granularities if one.throughput]
    assert found.chosen.timeline.period_s == min(tried)
    assert found.chosen.timeline.period_s <= min(one.period_s for _, one in found.alone if one)
    pairs = [(one.timeline.latency_s, one.timeline.period_s) for one in found.curve]
    assert pairs == sorted(pairs)
    assert [period for _, period in pairs] == sorted((p for _, p in pairs), reverse=True)
    drawn = ElementTree.fromstring(svg(found))
    assert sum(one.tag.endswith("rect") for one in drawn.iter()) > len(found.chosen.timeline.stages)


def test_a_latency_that_nothing_keeps_is_refused_with_the_least(cnn: Graph) -> None:
    with pytest.raises(OptionsError, match="at most 1e-06 ms: the least is"):
        predict(cnn, parse_platform(BOARD), HERE, "latency_ms=0.000001", among=("whole",))
    kept = predict(cnn, parse_platform(BOARD), HERE, "latency_ms=1000", among=("kernel",))
    assert kept.chosen.timeline.latency_s <= 1.0


def test_records_say_where_their_nodes_run_and_what_they_take(cnn: Graph, tmp_path: Path) -> None:
    times = {node.source: 600.0 for node in cnn.nodes if node.op == "Conv"}
    (tmp_path / "dsp.json").write_text(json.dumps(times))
    board = {**BOARD, "devices": {"arm": ARM, "dsp": {"records": {"file": "dsp.json", "clock": 6e8}}}}
    board["links"] = {"bus": {"between": ["arm", "dsp"], "bytes": 1e9}}
    found = predict(cnn, parse_platform(board), tmp_path, among=("operator",))
    problem = found.costs.problem
    for at, node in enumerate(cnn.nodes):
        if node.op == "Conv":
            assert problem.seconds[1][at] == pytest.approx(1e-6)
    assert {one.operator for one in found.costs.refused} == {node.op for node in cnn.nodes} - {"Conv", "Reshape"}
    assert any(stage.devices == (1,) for stage in found.chosen.timeline.stages)
    (tmp_path / "dsp.json").write_text('{"x": -1}')
    with pytest.raises(OptionsError, match=r"devices.dsp.records.file.*says -1 of 'x'"):
        predict(cnn, parse_platform(board), tmp_path)


def test_a_state_between_frames_stays_on_one_device() -> None:
    net = Network()
    x, h = net.input(1, 32), net.input(1, 32)
    added = net.node("Add", [x, net.node("MatMul", [h, net.weight(32, 32)], (1, 32))], (1, 32))
    out, into = net.node("Tanh", [added], (1, 32)), h
    graph = load_graph(net.model([out, added]).SerializeToString(), CompileOptions())
    board = {**BOARD, "devices": {"arm": {**ARM, "count": 2}}}
    board["links"] = {"bus": {"between": ["arm", "arm"], "bytes": 1e12}}
    free = predict(graph, parse_platform(board), HERE, "throughput")
    held = predict(graph, parse_platform(board), HERE, "throughput", [(out, into)])
    assert any(len(stage.devices) == 2 for stage in free.chosen.timeline.stages)
    assert all(len(stage.devices) == 1 for stage in held.chosen.timeline.stages)
    assert held.chosen.timeline.period_s > free.chosen.timeline.period_s
    with pytest.raises(OptionsError, match="carry names 'nothing', which is no output"):
        predict(graph, parse_platform(board), HERE, carry=[("nothing", into)])
    with pytest.raises(OptionsError, match="gives one input two states"):
        predict(graph, parse_platform(board), HERE, carry=[(out, into), (added, into)])


@pytest.mark.parametrize(
    ("changed", "field", "fix"),
    [
        ({"devices": {"arm": {"formula": {"macs": 0, "elements": 1}}}}, "devices.arm.formula.macs is 0", "above 0"),
        ({"devices": {"arm": {"formula": {"elements": 1}}}}, "devices.arm.formula.macs is missing", "write it"),
        ({"device": {}}, "device is no field", "remove it"),
        ({"devices": {"arm": {}}, "links": {}}, "devices.arm takes its times from nothing", "write one of"),
        ({"links": {"usb": {"between": ["arm", "gpu"], "bytes": 1}}}, "names 'gpu', which is no device", "arm, tpu"),
        ({"links": {}}, "nothing leads from arm to tpu.0", "write a link"),
        ({"host": "tpu"}, "host is 'tpu'", "tpu.0"),
        ({"devices": {"arm": {**ARM, "memory": "dram"}}, "links": {}}, "devices.arm.memory", r"\[memories.dram\]"),
    ],
)
def test_a_wrong_field_is_named_with_what_to_write(changed: dict[str, Any], field: str, fix: str) -> None:
    with pytest.raises(OptionsError, match=field) as refused:
        parse_platform({**BOARD, **changed})
    assert refused.match(fix)


def test_the_command_prints_a_placement_and_refuses_what_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, platform = tmp_path / "m.onnx", tmp_path / "p.toml"
    model.write_bytes(build("tiny_cnn").SerializeToString())
    platform.write_text(
        'about = "one"\nsources = ["made up"]\n[devices.a.formula]\nmacs = 1e9\nelements = 1e8\nunsupported = []\n'
    )
    assert open_platform(platform).names() == (("a", "a"),)
    assert main([str(model), "--platform", str(platform), "--svg", str(tmp_path / "p.svg")]) == 0
    assert "nothing was run" in capsys.readouterr().out
    assert ElementTree.parse(tmp_path / "p.svg").getroot().tag.endswith("svg")
    platform.write_text(platform.read_text().replace("[]", '["Conv"]'))
    assert main([str(model), "--platform", str(platform), "--json"]) == 1
    assert "a does not support Conv" in json.loads(capsys.readouterr().out)["error"]["message"]
