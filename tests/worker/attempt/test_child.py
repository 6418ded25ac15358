from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from compiler.contract import Event
from tests.servers import GUARD_S
from worker.attempt.child import Spec
from worker.attempt.supervise import Ending, supervise
from worker.lease.wakeup import Wakeup
from worker.limits import Limits
from worker.processes.group import Group

WITH_PIPELINE = """
import sys, types
from compiler import contract, errors
pipeline = types.ModuleType("compiler.pipeline")
def compile_model(request, host):
    model, artifact, options, samples = request.model, request.artifact, request.options, request.samples
    records, observe, stop_requested, first = host.records, host.observe, host.stop_requested, host.first
{body}
pipeline.compile_model = compile_model
sys.modules["compiler.pipeline"] = pipeline
from worker.attempt.child import main
main(sys.argv[1:])
"""

SUCCESS = """
    import os, threading
    assert list(map(dict, records)) == [{"workload": "earlier"}]
    observe(contract.Event("phase", "load", 0.0))
    observe(contract.Event("record", "tile", 0.5, data={"workload": "new"}))
    artifact.write_bytes(model.read_bytes() + options.target.encode())
    return contract.CompileReport(
        model_digest="m", artifact_digest="a", artifact_bytes=1, target="cpu", hardware=os.environ["HOME"], threads=1,
        phase_seconds={}, nodes=1, kernels_before_fusion=1, kernels=1, arena_bytes=0, weight_bytes=0, latency_s=1e-3)
"""


@pytest.fixture
def compile_with(tmp_path: Path) -> Callable[..., tuple[Ending, list[Event], Spec]]:
    """The real child, around a `compile_model` with this body."""

    def run(
        body: str,
        options: dict[str, Any] | None = None,
        walls: tuple[str, ...] = (),
        samples: tuple[tuple[str, Path], ...] = (),
    ) -> tuple[Ending, list[Event], Spec]:
        scratch = tmp_path / "job" / "work"
        scratch.mkdir(parents=True)
        model = tmp_path / "model.onnx"
        model.write_bytes(b"model:")
        program = tmp_path / "child.py"
        program.write_text(WITH_PIPELINE.format(body=body))
        limits = Limits(wall_s=GUARD_S, memory_bytes=1 << 30)
        spec = Spec(
            kind="compile",
            inputs=(("model", model),),
            output=scratch / "output",
            scratch=scratch,
            finish=scratch / "finish",
            options=options or {},
            records=({"workload": "earlier"},),
            limits=limits,
            walls=walls,
            samples=samples,
        )
        seen: list[Event] = []
        wakeup = Wakeup()
        group = Group.start(spec.to_json(), scratch, command=(sys.executable, "-P", str(program)))
        ending = supervise(group, limits, wakeup, seen.append)
        wakeup.close()
        return ending, seen, spec

    return run


def test_a_model_is_compiled_behind_the_walls(compile_with: Callable[..., Any]) -> None:
    ending, seen, spec = compile_with(SUCCESS)
    assert ending.kind == "report", ending
    assert ending.report["hardware"] == str(spec.scratch)
    assert "limits" in ending.standing
    assert [event.kind for event in seen] == ["phase", "record"]
    assert seen[1].data == {"workload": "new"}
    assert spec.output.read_bytes() == b"model:cpu"


def test_where_a_wall_is_missing_that_is_demanded_nothing_is_read(compile_with: Callable[..., Any]) -> None:
    ending, seen, spec = compile_with(SUCCESS, walls=("limits", "moat"))
    assert (ending.problem["code"], ending.problem["fault"]) == ("walls_missing", "machine")
    assert "moat" in ending.problem["message"]
    assert "limits" not in ending.problem["message"]
    assert seen == []
    assert not spec.output.exists()


def test_a_spec_survives_the_pipe(tmp_path: Path) -> None:
    spec = Spec(
        kind="inference",
        inputs=(("a", tmp_path / "0.tw"), ("inputs", tmp_path / "x.npz")),
        output=tmp_path / "output",
        scratch=tmp_path,
        finish=tmp_path / "finish",
        options={"threads": 2},
        records=({"x": 1},),
        limits=Limits(wall_s=1.5),
        measures=False,
        walls=("files",),
        samples=(("my sample.npz", tmp_path / "sample0"),),
    )
    assert Spec.from_json(spec.to_json()) == spec
    assert tmp_path / "sample0" in spec.readable


def test_samples_are_read_behind_the_walls(compile_with: Callable[..., Any], tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "sample0").write_bytes(b"arrays")
    body = "    assert {name: path.read_bytes() for name, path in samples.items()} == {'my.npz': b'arrays'}\n"
    ending, _, _ = compile_with(body + SUCCESS, samples=(("my.npz", folder / "sample0"),))
    assert ending.kind == "report", ending


def test_the_compiler_gets_a_stop_request_once_the_file_is_there(compile_with: Callable[..., Any]) -> None:
    asked = "    before = stop_requested(); open('finish', 'w').close(); assert not before; assert stop_requested()\n"
    ending, _, _ = compile_with(asked + SUCCESS)
    assert ending.kind == "report", ending


def test_what_the_job_printed_follows_the_walls_that_stood(compile_with: Callable[..., Any]) -> None:
    ending, _, _ = compile_with("    print('a word'); raise ZeroDivisionError('oh')")
    first, *rest = ending.log.splitlines()
    assert first == f"sandbox: {', '.join(ending.standing)}"
    assert "a word" in rest
    assert "ZeroDivisionError: oh" in rest


@pytest.mark.parametrize(
    ("body", "code", "fault"),
    [
        ('    raise errors.MalformedModel("bad", fix="mend it")', "malformed_model", "caller"),
        ("    return bytearray(10**15)", "memory_limit", "machine"),
        ("    raise OSError(28, 'No space left on device')", "disk_full", "machine"),
        ("    raise errors.machine_error('failed', OSError(28, 'No space left'))", "disk_full", "machine"),
        ("    raise errors.machine_error('failed', OSError(30, 'Read-only'))", "place_unusable", "machine"),
        ("    raise ZeroDivisionError('oh')", "internal", "ours"),
        ("    import faulthandler; faulthandler._sigsegv()", "compiler_crashed", "ours"),
        ("    def deep(n): return deep(n + 1)\n    deep(0)", "internal", "ours"),
    ],
)
def test_each_failure_becomes_a_problem_with_code_fault_and_fix(
    compile_with: Callable[..., Any], body: str, code: str, fault: str
) -> None:
    ending, _, _ = compile_with(body)
    assert (ending.problem["code"], ending.problem["fault"]) == (code, fault)
    assert ending.problem["fix"]


def test_the_stack_of_a_segfault_is_in_its_problem(compile_with: Callable[..., Any]) -> None:
    ending, _, _ = compile_with("    import faulthandler; faulthandler._sigsegv()")
    assert "Segmentation fault" in ending.problem["details"]["log_tail"]
    assert "compile_model" in ending.problem["details"]["log_tail"]


def test_unknown_options_are_the_callers_fault(compile_with: Callable[..., Any]) -> None:
    ending, _, _ = compile_with(SUCCESS, {"colour": "red"})
    assert ending.problem["code"] == "invalid_options"
