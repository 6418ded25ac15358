"""`tilewright.InferenceSession` beside ONNX Runtime's, on the same models."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright
import tilewright.session
from compiler.__main__ import main as compile_main
from tests.end_to_end.house import process
from tests.servers import GUARD_S
from tilewright import local
from tilewright.errors import JobFailed, UsageError
from tilewright.session import session as session_module
from tilewright.session.binding import IOBinding, OrtValue
from tilewright.session.options import compile_options
from tilewright.session.session import HOST, OURS, InferenceSession, InvalidArgument

pytestmark = pytest.mark.processes
FAST = {"tuning_budget_s": 0.0, "threads": 1}
RANGE = {**FAST, "dims": {"rows": {"min": 1, "opt": 2, "max": 8}}}


def written(path: Path, rows: int | str) -> Path:
    """Two inputs of different types and two outputs: x w + b, and whether n is above 3."""
    weights = np.random.default_rng(0).standard_normal((8, 4), dtype=np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["y"]),
            helper.make_node("Greater", ["n", "three"], ["above"]),
        ],
        "the_graph",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, 8]),
            helper.make_tensor_value_info("n", TensorProto.INT64, [3]),
        ],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, 4]),
            helper.make_tensor_value_info("above", TensorProto.BOOL, [3]),
        ],
        [numpy_helper.from_array(weights, "w"), numpy_helper.from_array(np.array(3, np.int64), "three")],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9, producer_name="us")
    helper.set_model_props(made, {"author": "nobody"})
    onnx.save(made, path)
    return path


class Files:
    """Two models, each with its artifact."""

    def __init__(self, folder: Path) -> None:
        self.fixed, self.open = written(folder / "fixed.onnx", 2), written(folder / "open.onnx", "rows")
        self.of = {self.fixed: folder / "fixed.tw", self.open: folder / "open.tw"}
        for model, options in ((self.fixed, FAST), (self.open, RANGE)):
            words = [str(model), "-o", str(self.of[model]), "--json", "--options"]
            assert compile_main([*words, str(options).replace("'", '"')]) == 0


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("session"))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def held(files: Files, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Compiling takes until this is called, and gives the artifact of the fixed or the open model."""
    go = threading.Event()

    def compiled(model: Path, options: Any = None) -> Path:
        assert go.wait(GUARD_S)
        made = local.kept(model, options)
        written = made.with_suffix(f".{threading.get_ident()}")  # whole at once, as the cache's own files are
        written.write_bytes(files.of[files.open if "open" in model.name else files.fixed].read_bytes())
        return written.replace(made)

    monkeypatch.setattr(local, "compiled", compiled)
    return go.set


def theirs(model: Path) -> Any:
    return onnxruntime.InferenceSession(str(model), providers=[HOST])


def fed(rows: int = 2, seed: int = 1) -> dict[str, Any]:
    x = np.random.default_rng(seed).standard_normal((rows, 8), dtype=np.float32)
    return {"x": x, "n": np.array([1, 4, 3])}


def assert_same(found: list[Any], expected: list[Any]) -> None:
    for got, want in zip(found, expected, strict=True):
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("which", ["fixed", "open"])
def test_an_artifact_has_the_names_shapes_types_and_values_of_its_model(files: Files, which: str) -> None:
    model = getattr(files, which)
    ours, other = tilewright.InferenceSession(files.of[model]), theirs(model)
    assert [(one.name, one.shape, one.type) for one in ours.get_inputs()] == [
        (one.name, one.shape, one.type) for one in other.get_inputs()
    ]
    unnamed = [[None if isinstance(size, str) else size for size in one.shape] for one in other.get_outputs()]
    assert [one.shape for one in ours.get_outputs()] == unnamed
    assert [(one.name, one.type) for one in ours.get_outputs()] == [(one.name, one.type) for one in other.get_outputs()]
    for rows in (2,) if which == "fixed" else (1, 2, 5):
        assert_same(ours.run(None, fed(rows)), other.run(None, fed(rows)))
    assert_same(ours.run(["above", "y"], fed()), other.run(["above", "y"], fed()))
    assert_same(ours.run([], fed()), other.run(None, fed()))
    assert ours.get_providers() == [OURS]
    assert ours.get_modelmeta().custom_metadata_map["tilewright.target"].startswith("cpu")


@pytest.mark.parametrize(
    ("names", "feed"),
    [
        (None, {"x": fed()["x"]}),
        (["nope"], fed()),
        (None, {**fed(), "zz": np.zeros(1, np.float32)}),
        (None, {**fed(), "x": np.zeros((3, 8), np.float32)}),
        (None, {**fed(), "x": np.zeros((2, 8, 1), np.float32)}),
        (None, {**fed(), "x": np.zeros((2, 8))}),
    ],
)
def test_what_onnx_runtime_refuses_is_refused_by_an_error_of_the_same_kind(
    files: Files, names: Any, feed: dict[str, Any]
) -> None:
    with pytest.raises(Exception) as refused:
        theirs(files.fixed).run(names, feed)
    with pytest.raises(ValueError) as ours:
        InferenceSession(files.of[files.fixed]).run(names, feed)
    assert type(ours.value).__name__ == type(refused.value).__name__


def test_bound_arrays_are_read_and_written(files: Files) -> None:
    session, beside = InferenceSession(files.of[files.fixed]), theirs(files.fixed)
    inputs, y, above = fed(), np.empty((2, 4), np.float32), np.empty(3, np.bool_)
    bound = session.io_binding()
    assert isinstance(bound, IOBinding)
    bound.bind_cpu_input("x", inputs["x"])
    bound.bind_ortvalue_input("n", onnxruntime.OrtValue.ortvalue_from_numpy(inputs["n"]))
    bound.bind_output("above")
    bound.bind_output("y", "cpu", 0, np.float32, y.shape, y.ctypes.data)
    session.run_with_iobinding(bound)
    want = beside.run(["above", "y"], inputs)
    assert_same([bound.get_outputs()[0].numpy(), y], want)
    assert_same(bound.copy_outputs_to_cpu(), want)
    inputs["x"][...] = 1
    session.run_with_iobinding(bound)
    assert_same([y], beside.run(["y"], inputs))

    bound.clear_binding_outputs()
    value = OrtValue.ortvalue_from_numpy(above)
    bound.bind_ortvalue_output("above", value)
    bound.bind_input("x", "cpu", 0, np.float32, (2, 8), inputs["x"].ctypes.data)
    session.run_with_iobinding(bound)
    assert_same([value.numpy()], beside.run(["above"], inputs))
    bound.clear_binding_inputs()
    with pytest.raises(ValueError, match="Required inputs"):
        session.run_with_iobinding(bound)
    with pytest.raises(ValueError, match="there is no output 'zz'"):
        bound.bind_output("zz")
    with pytest.raises(UsageError, match="device 'cuda'"):
        bound.bind_output("y", "cuda")


def test_a_run_in_a_thread_calls_back_with_outputs_or_what_failed(files: Files) -> None:
    session, told, done = InferenceSession(files.of[files.fixed]), [], threading.Semaphore(0)

    def callback(outputs: Any, data: Any, said: str) -> None:
        told.append((outputs, data, said))
        done.release()

    session.run_async(["y"], fed(), callback, "mine")
    session.run_async(["y"], {}, callback, "bad")
    assert all(done.acquire(timeout=GUARD_S) for _ in range(2))
    assert_same(told[0][0], theirs(files.fixed).run(["y"], fed()))
    assert told[0][1:] == ("mine", "")
    assert (told[1][0], told[1][1]) == ([], "bad")
    assert "Required inputs" in told[1][2]


@pytest.mark.parametrize("which", ["fixed", "open"])
def test_onnx_runtime_answers_until_the_model_is_compiled_and_says_the_same(
    files: Files, held: Callable[[], None], which: str
) -> None:
    model = getattr(files, which)
    options = FAST if which == "fixed" else RANGE
    session, beside = InferenceSession(str(model), options=options), theirs(model)
    assert session.get_providers() == [HOST]
    assert not session.wait(0.0)
    assert_same(session.run(None, fed()), beside.run(None, fed()))
    with pytest.raises(InvalidArgument):
        session.run(["y"], {**fed(), "x": np.zeros((2, 7), np.float32)})
    before = (session.get_inputs(), session.get_outputs(), session.get_modelmeta())
    held()
    assert session.wait(GUARD_S)
    assert session.get_providers() == [OURS]
    assert_same(session.run(None, fed()), beside.run(None, fed()))
    again = InferenceSession(model, options=options)
    assert again.get_providers() == [OURS]
    for one in (session, again):
        assert (one.get_inputs(), one.get_outputs(), one.get_modelmeta()) == before
    meta = beside.get_modelmeta()
    assert (
        (before[2].producer_name, before[2].graph_name) == (meta.producer_name, meta.graph_name) == ("us", "the_graph")
    )
    assert before[2].custom_metadata_map == {"author": "nobody"}


def test_sizes_that_the_artifact_lacks_are_answered_by_onnx_runtime(files: Files, held: Callable[[], None]) -> None:
    held()
    for session in (InferenceSession(files.open, options=RANGE), InferenceSession(files.open, options=RANGE)):
        assert session.wait(GUARD_S)
        assert_same(session.run(None, fed(11)), theirs(files.open).run(None, fed(11)))
        with pytest.raises(InvalidArgument):
            session.run(None, {**fed(), "x": np.zeros((2, 8))})
        assert session.get_providers() == [OURS]


def test_a_model_that_the_compiler_refuses_stays_with_onnx_runtime_and_without_it_fails(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(model: Path, options: Any = None) -> Path:
        raise JobFailed("operator Bogus is unknown")

    monkeypatch.setattr(local, "compiled", refuse)
    session = InferenceSession(files.fixed, options=FAST)
    assert not session.wait(GUARD_S)
    assert "operator Bogus is unknown" in session.refused
    assert_same(session.run(None, fed()), theirs(files.fixed).run(None, fed()))
    monkeypatch.setattr(session_module, "peer", lambda: None)
    with pytest.raises(JobFailed):
        InferenceSession(files.fixed, options=FAST)


def test_without_onnx_runtime_it_begins_when_the_model_is_compiled(
    files: Files, held: Callable[[], None], monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    held()
    cache.mkdir()
    monkeypatch.setattr(session_module, "peer", lambda: None)
    session = InferenceSession(files.fixed, options=FAST)
    assert session.get_providers() == [OURS]
    assert [one.name for one in session.get_inputs()] == ["x", "n"]
    with pytest.raises(InvalidArgument):
        session.run(None, {**fed(), "x": np.zeros((3, 8), np.float32)})


def test_bytes_are_a_model_too_and_what_is_no_model_is_refused(files: Files, tmp_path: Path) -> None:
    session = InferenceSession(files.fixed.read_bytes(), options=FAST)
    assert session.wait(GUARD_S), session.refused  # it is really compiled
    assert_same(session.run(None, fed()), theirs(files.fixed).run(None, fed()))
    (tmp_path / "bad.onnx").write_bytes(b"no model")
    for bad in (tmp_path / "bad.onnx", tmp_path / "absent.onnx", tmp_path / "absent.tw", b"no model"):
        with pytest.raises(UsageError):
            InferenceSession(bad)


def test_options_have_effect_or_none_or_are_refused(files: Files) -> None:
    options = tilewright.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = 3
    options.enable_profiling = False
    options.add_free_dimension_override_by_name("rows", 4)
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"
    with pytest.raises(RuntimeError, match="absent"):
        options.get_session_config_entry("absent")
    session = InferenceSession(files.of[files.fixed], options, providers=[(HOST, {}), "CUDAExecutionProvider"])
    assert session.get_session_options() is options
    assert compile_options(options, {"seed": 1}) == {"threads": 1, "dims": {"rows": 4}, "seed": 1}
    given = onnxruntime.SessionOptions()
    given.intra_op_num_threads = 2
    assert compile_options(given, {}) == {"threads": 2}
    assert compile_options(onnxruntime.SessionOptions(), {}) == {}
    InferenceSession(files.of[files.fixed], given)
    given.enable_profiling = True
    with pytest.raises(UsageError, match="enable_profiling"):
        InferenceSession(files.of[files.fixed], given)
    for name, value in (
        ("enable_profiling", True),
        ("optimized_model_filepath", "o.onnx"),
        ("intra_op_num_threads", -1),
    ):
        with pytest.raises(UsageError, match=name):
            setattr(options, name, value)
    with pytest.raises(AttributeError, match="colour"):
        options.colour = 1
    with pytest.raises(UsageError, match="libraries of operators"):
        options.register_custom_ops_library("x.so")
    with pytest.raises(UsageError, match="CUDAExecutionProvider"):
        InferenceSession(files.of[files.fixed], providers=["CUDAExecutionProvider"])


def test_a_dimension_that_options_fix_is_fixed_whoever_answers(files: Files, held: Callable[[], None]) -> None:
    options = tilewright.SessionOptions()
    options.add_free_dimension_override_by_name("rows", 2)
    session = InferenceSession(files.open, options)
    assert session.get_inputs()[0].shape == [2, 8]
    given = onnxruntime.SessionOptions()
    given.add_free_dimension_override_by_name("rows", 2)
    beside = onnxruntime.InferenceSession(str(files.open), given, providers=[HOST])
    assert [one.shape for one in session.get_inputs()] == [one.shape for one in beside.get_inputs()]
    assert_same(session.run(None, fed()), beside.run(None, fed()))
    held()
    assert session.wait(GUARD_S)
    assert_same(session.run(None, fed()), beside.run(None, fed()))


def test_a_program_that_ends_while_its_model_is_compiled_leaves_no_process_and_no_folder(
    files: Files, cache: Path
) -> None:
    program = (
        "import sys, tilewright\nsession = tilewright.InferenceSession(sys.argv[1])\n"
        "from tilewright import local\nwhile not local._running: pass\n"
        "print(session.get_providers(), *(one.pid for one in local._running))"
    )
    command = [sys.executable, "-c", program, str(files.fixed)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=GUARD_S, check=True)
    assert done.stdout.startswith(f"['{HOST}']"), done.stderr
    end = time.monotonic() + GUARD_S
    while process(int(done.stdout.split()[-1])) is not None:
        assert time.monotonic() < end
        time.sleep(0.05)
    assert {path.suffix for path in cache.iterdir()} == {".lock", ".json"}


def test_every_attribute_of_onnx_runtimes_options_is_known() -> None:
    given = onnxruntime.SessionOptions()
    values = {name for name in dir(given) if not name.startswith("_") and not callable(getattr(given, name))}
    assert values - {"use_per_session_threads"} <= {*dir(tilewright.SessionOptions())}


OTHERS = """
import sys
import numpy as np
import tilewright.session
tilewright.session.stand_in({"tuning_budget_s": 0.0, "threads": 1})
import onnxruntime as ort
from onnxruntime import ExecutionMode, GraphOptimizationLevel, SessionOptions, get_available_providers, get_device
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument as theirs
assert ort is tilewright.session and ort.__version__ and ort.OrtDevice and ort.get_all_providers()
ort.disable_telemetry_events()
ort.set_default_logger_severity(3)
options = SessionOptions()
options.graph_optimization_level = GraphOptimizationLevel.ORT_ENABLE_ALL
options.execution_mode = ExecutionMode.ORT_SEQUENTIAL
run = ort.RunOptions()
run.log_severity_level = 4
run.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
providers = [("CPUExecutionProvider", {"arena_extend_strategy": "kSameAsRequested"})]
session = ort.InferenceSession(sys.argv[1], sess_options=options, providers=providers)
feed = {"x": np.ones((2, 8), np.float32), "n": np.array([1, 3, 5])}
first = session.run(None, feed, run)
assert session.wait(600), session.refused
assert session.get_providers()[0] in get_available_providers() and get_device() == "CPU"
second = session.run(None, feed)
assert np.allclose(first[0], second[0], rtol=1e-5, atol=1e-5) and (first[1] == second[1]).all()
try:
    ort.no_such_name
except AttributeError as error:
    print(error)
"""


def test_a_program_that_imports_onnx_runtime_gets_ours_once_it_stands_in(files: Files) -> None:
    """The other answers meanwhile all the same, and has the names that we have not."""
    done = subprocess.run(
        [sys.executable, "-c", OTHERS, str(files.fixed)], capture_output=True, text=True, timeout=GUARD_S
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "module 'tilewright.session' has no attribute 'no_such_name'"


@pytest.mark.parametrize("name", ["GraphOptimizationLevel", "ExecutionMode"])
def test_enumerations_have_the_numbers_of_onnx_runtimes(name: str) -> None:
    ours, theirs = getattr(tilewright.session, name), getattr(onnxruntime, name)
    assert {one.name: one.value for one in ours} == {key: int(one) for key, one in theirs.__members__.items()}
