"""Flags for options of a compilation, against the schema that the server checks them by."""

from __future__ import annotations

import json
from typing import Any

import pytest

from compiler.contract import CompileOptions, InputSpec, kinds, properties
from tilewright.cli import commands
from tilewright.cli.options import build_options, for_targets
from tilewright.errors import UsageError

COMMANDS: dict[str, Any] = commands.tree()
FLAGS = {
    "--target": "target",
    "--precision": "precision",
    "--tolerance": "tolerance",
    "--threads": "threads",
    "--dim": "dims",
    "--shape": "inputs",
    "--budget": "tuning_budget_s",
    "--devices": "devices",
    "--objective": "objective",
    "--carry": "carry",
}
"""The option that each flag sets; what has no flag goes through `--option`."""
SCHEMA: dict[str, Any] = properties(CompileOptions)


def flags(command: str) -> dict[str, Any]:
    """The parameters of a command by flag."""
    return {flag: parameter for parameter in COMMANDS[command].params for flag in parameter.opts}


def test_every_flag_makes_the_option_that_the_schema_takes() -> None:
    plain = build_options(
        3, ["batch=2"], ["x=1x2"], 7.5, 1e-3, "bf16", ["seed=5", 'scheduler="stages"', 'without=["weights"]']
    )
    (asked,) = for_targets(plain, ["cpu:x86-64-v4-bf16"])
    assert CompileOptions.from_json(asked) == CompileOptions(
        target="cpu:x86-64-v4-bf16",
        precision="bf16",
        tolerance=1e-3,
        threads=3,
        inputs={"x": InputSpec((1, 2))},
        dims={"batch": 2},
        tuning_budget_s=7.5,
        scheduler="stages",
        seed=5,
        without=("weights",),
    )


@pytest.mark.parametrize(
    ("text", "dims"),
    [
        ("batch=1:4:16", {"batch": {"min": 1, "opt": 4, "max": 16}}),
        ("batch=1:16", {"batch": {"min": 1, "max": 16}}),
        ("batch=1,8,1:4:16", {"batch": [1, 8, {"min": 1, "opt": 4, "max": 16}]}),
    ],
)
def test_a_dimension_may_have_a_range(text: str, dims: Any) -> None:
    plain = build_options(None, [text], None, None, None, None, None)
    assert plain == {"dims": dims}
    assert CompileOptions.from_json(plain) == CompileOptions.from_json({"dims": dims})


def test_an_objective_may_bound_the_latency() -> None:
    plain = build_options(None, None, None, None, None, None, None, "cpu:0,cpu:1", "latency_ms=30")
    assert plain == {"devices": ["cpu:0", "cpu:1"], "objective": {"latency_ms": 30.0}}
    assert str(CompileOptions.from_json(plain).objective) == "latency_ms=30"
    with pytest.raises(UsageError, match="'soon' is no number"):
        build_options(None, None, None, None, None, None, None, "cpu:0,cpu:1", "latency_ms=soon")


def test_states_are_given_by_output_and_names_may_hold_an_equals_sign() -> None:
    devices = "cpu:0,cpu:1", "throughput"
    plain = build_options(None, None, None, None, None, None, None, *devices, ["next=h", "a=b=c"])
    assert plain["carry"] == {"next": "h", "a=b": "c"}
    assert dict(CompileOptions.from_json(plain).named_states) == plain["carry"]
    assert build_options(None, None, None, None, None, None, None, carry=["auto"]) == {"carry": "auto"}
    for words, said in ((["next"], "is not NAME=VALUE"), (["next=h", "next=c"], "names output 'next' twice")):
        with pytest.raises(UsageError, match=said):
            build_options(None, None, None, None, None, None, None, *devices, words)


@pytest.mark.parametrize(
    ("text", "said"), [("batch=1:2:3:4", "is no range"), ("batch=1:", "not a whole"), ("batch=a:2", "not a whole")]
)
def test_what_is_no_range_is_refused(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        build_options(None, [text], None, None, None, None, None)


@pytest.mark.parametrize("command", ["compile", "preflight", "clone"])
def test_a_command_that_compiles_has_every_flag_and_the_rest_by_name(command: str) -> None:
    assert set(FLAGS.values()) <= set(SCHEMA)
    assert {*FLAGS, "--option"} <= set(flags(command))


@pytest.mark.parametrize("name", [*SCHEMA])
def test_every_option_can_be_given_by_name(name: str) -> None:
    stated = CompileOptions().to_json()[name]
    plain = build_options(None, None, None, None, None, None, [f"{name}={json.dumps(stated)}"])
    assert CompileOptions.from_json(plain) == CompileOptions()


@pytest.mark.parametrize("command", ["compile", "preflight", "clone"])
def test_the_help_of_a_flag_names_every_kind_and_precision(command: str) -> None:
    for flag, values in (("--target", kinds.names()), ("--precision", kinds.precisions())):
        for value in values:
            assert value in flags(command)[flag].help, (flag, value)
