from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from compiler.contract.legalisation import PROFILES
from compiler.errors import OptionsError
from compiler.ir.graph import Graph
from compiler.legalise.profile import FOLDER, open_profile, parse
from tests.compiler.legalise.graphs import COST, drawn, profile, single

GOOD: dict[str, Any] = {"about": "a", "sources": ["b"], "dtypes": ["f32"], "cost": COST, "operators": {"Conv": {}}}


def test_every_profile_of_the_package_is_whole_and_names_its_sources() -> None:
    assert tuple(sorted(path.stem for path in FOLDER.glob("*.toml"))) == PROFILES
    for name in PROFILES:
        found = open_profile(name)
        assert found.name == name
        assert found.sources
        assert "Conv" in found.operators


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"about": ""}, "about is missing"),
        ({"sources": "x"}, "sources is no list of texts"),
        ({"colour": 1}, "colour is no field"),
        ({"parts": "some"}, "parts is 'some'"),
        ({"cost": {**COST, "macs": 0}}, "cost.macs is 0"),
        ({"cost": {**COST, "macs": "many"}}, "cost.macs is 'many'"),
        ({"cost": None}, "cost is missing"),
        ({"operators": {}}, "operators is missing"),
        ({"operators": {"Konv": {}}}, "operators.Konv is no operator"),
        ({"operators": {"Conv": {"kernel": 0}}}, "operators.Conv.kernel is 0"),
        ({"operators": {"Conv": {"kernal": 3}}}, "operators.Conv.kernal is no field"),
        ({"operators": {"Conv": {"group": "two"}}}, "operators.Conv.group is 'two'"),
        ({"operators": {"Conv": {"values": {"mode": "x"}}}}, "operators.Conv.values is no table of lists"),
        ({"operators": {"Conv": 3}}, "operators.Conv is no table"),
    ],
)
def test_a_wrong_field_is_named_with_its_fix(change: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionsError) as caught:
        parse({**GOOD, **change}, "own")
    assert said in caught.value.message
    assert caught.value.fix
    assert parse(GOOD, "own").operators


def test_a_file_of_a_users_own_is_taken_and_broken_ones_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    cost = "\n".join(f"{key} = {value}" for key, value in COST.items())
    path.write_text(
        f'about = "mine"\nsources = ["me"]\ndtypes = ["f32"]\n[cost]\n{cost}\n[operators]\nConv = {{ kernel = 3 }}\n'
    )
    assert open_profile(str(path)).operators["Conv"].kernel == 3
    path.write_text("about = ")
    with pytest.raises(OptionsError, match="no TOML"):
        open_profile(str(path))
    with pytest.raises(OptionsError, match="no accelerator profile"):
        open_profile("ethos")


def conv(shape: tuple[int, ...] = (1, 4, 6, 6), kernel: int = 3, **attributes: Any) -> Graph:
    group = attributes.get("group", 1)
    return single("Conv", shape, [drawn(8, shape[1] // group, kernel, kernel)], **attributes)


@pytest.mark.parametrize(
    ("graph", "limit", "said"),
    [
        (conv(kernel=5), {"kernel": 3}, "windows of at most 3, not 5"),
        (conv(strides=[4, 4]), {"stride": 3}, "strides of at most 3, not 4"),
        (conv(dilations=[2, 2]), {"dilation": 1}, "dilations of at most 1, not 2"),
        (conv(), {"channels": 4}, "at most 4 channels, not 8"),
        (conv((2, 4, 6, 6)), {"batch": 1}, "a batch of at most 1, not 2"),
        (conv(), {"elements": 100}, "at most 100 elements"),
        (conv(), {"rank": 3}, "at most 3 dimensions, not 4"),
        (conv((2, 4, 6, 6)), {"innermost": 3}, "innermost dimensions above 1, not 4"),
        (conv(group=2), {"group": "depthwise"}, "one group, or one for each channel, not 2"),
        (conv(group=4), {"group": "one"}, "no groups, not 4"),
        (conv(), {"constant": [0]}, "a constant as input 0"),
        (conv(), {"values": {"auto_pad": ["VALID"]}}, "auto_pad of VALID, not NOTSET"),
    ],
)
def test_what_breaks_a_constraint_is_told_in_words(graph: Graph, limit: dict[str, Any], said: str) -> None:
    types = {value: one.type for value, one in graph.values.items()}
    reason = profile("", {"Conv": {**limit, "why": "so it is"}}).refusal(graph.nodes[0], types, graph.constants)
    assert reason is not None
    assert said in reason
    assert "so it is" in reason
    assert profile("Conv").refusal(graph.nodes[0], types, graph.constants) is None


def test_a_missing_operator_and_a_dtype_are_named() -> None:
    graph = conv()
    types = {value: one.type for value, one in graph.values.items()}
    assert profile("Relu").refusal(graph.nodes[0], types, graph.constants) == "test has no Conv"
    said = profile("Conv", dtypes=["i8"]).refusal(graph.nodes[0], types, graph.constants)
    assert said == "test's Conv takes i8, not f32"
