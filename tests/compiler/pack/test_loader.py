from __future__ import annotations

import errno
import functools
import os
import re
import signal
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tests.seeds import each

HEADERS = Path(__file__).parents[3] / "compiler" / "codegen"
X = np.array([[1, -2, 3], [4, 5, -6]], np.float32)
N = np.array(7, np.int64)
Y = np.array([2, 3, 5], np.float32) * X + 7


def change(artifact: Path, name: str, content: bytes, target: Path) -> Path:
    """A copy of an artifact in which one member's bytes are others, stored unpacked; sizes in the manifest stay."""
    with zipfile.ZipFile(artifact) as old, zipfile.ZipFile(target, "w") as new:
        for member in old.namelist():
            new.writestr(member, content if member == name else old.read(member))
    return target


def extracted(artifact: Path) -> Path:
    folder = artifact.parent / "extracted"
    with zipfile.ZipFile(artifact) as archive:
        archive.extractall(folder)
    return folder


def test_the_c_structures_are_those_of_the_header(loader: ModuleType, tmp_path: Path) -> None:
    fields = [(loader._Tensor, "tw_tensor"), (loader._Config, "tw_config")]
    asked = [(kind, name, field) for kind, name in fields for field, _ in kind._fields_]
    lines = [f'printf("%zu\\n", offsetof({name}, {field}));' for _, name, field in asked]
    lines += [f'printf("%zu\\n", sizeof({name}));' for _, name in fields]
    program = '#include <stddef.h>\n#include <stdio.h>\n#include "model.h"\nint main(void) {' + "".join(lines) + "}"
    (tmp_path / "ask.c").write_text(program)
    subprocess.run(["gcc", "-I", str(HEADERS), "-o", tmp_path / "ask", tmp_path / "ask.c"], check=True)
    answers = [int(line) for line in subprocess.check_output([tmp_path / "ask"]).split()]
    expected = [getattr(kind, field).offset for kind, _, field in asked]
    assert answers == [*expected, *(loader.ctypes.sizeof(kind) for kind, _ in fields)]


def test_dlpack_codes_are_those_of_the_header(loader: ModuleType) -> None:
    header = (HEADERS / "model.h").read_text()
    codes = {"TW_INT": "int32", "TW_UINT": "uint8", "TW_FLOAT": "float64", "TW_BFLOAT": "bfloat16", "TW_BOOL": "bool"}
    for word, dtype in codes.items():
        assert f"{word} = {loader._TYPES[dtype][0]}" in header
    assert f"#define TW_ABI_VERSION {loader.ABI_VERSION}\n" in header


def test_it_runs_from_the_archive_and_from_a_folder(loader: ModuleType, artifact: Path) -> None:
    for path in (artifact, extracted(artifact)):
        with loader.Model(path) as model:
            outputs = model.run({"x": X, "n": N})
            np.testing.assert_array_equal(outputs["y"], Y)
            np.testing.assert_array_equal(outputs["z"], X > 0)
            np.testing.assert_array_equal(model.run_flat([X, N])[0], Y)


def test_new_outputs_that_are_not_copied_begin_a_cache_line(
    loader: ModuleType, artifact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loader, "QUICK_BYTES", 0)
    with loader.Model(artifact) as model:
        for _ in range(8):
            for array in model.run_flat([X, N]):
                assert array.__array_interface__["data"][0] % 64 == 0
        assert model._program.quick is None


def test_it_tells_inputs_and_outputs(loader: ModuleType, artifact: Path) -> None:
    with loader.Model(artifact) as model:
        assert model.inputs == (("x", "float32", (2, 3)), ("n", "int64", ()))
        assert [str(spec) for spec in model.outputs] == ["float32[2, 3]", "bool[2, 3]"]
        assert model.lanes == 2
    for asked, given in ((1, 1), (2, 2), (9, 2)):
        with loader.Model(artifact, lanes=asked) as model:
            assert model.lanes == given


def test_lists_strided_arrays_and_dlpack_tensors_are_inputs(loader: ModuleType, artifact: Path) -> None:
    class Foreign:
        def __dlpack__(self, **options: Any) -> object:
            return X.copy().__dlpack__()

        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

    wide = np.zeros((3, 4), np.float32).T[::2]
    wide[:] = X
    packed = np.zeros(2, np.dtype([("pad", "u1"), ("row", "f4", 3)]))["row"]
    packed[:] = X
    with loader.Model(artifact) as model:
        for x in (Foreign(), wide, packed, X.tolist()):
            np.testing.assert_array_equal(model.run({"x": x, "n": 7})["y"], Y)


def test_small_arrays_are_copied_and_results_are_the_callers_own(
    loader: ModuleType, artifact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with loader.Model(artifact) as model:
        assert model._program.quick is not None
        first = model.run({"x": X, "n": N})
        kept = first["y"].copy()
        x = X.copy()
        second = model.run({"x": -x, "n": N})
        np.testing.assert_array_equal(first["y"], kept)
        assert not np.array_equal(second["y"], kept)
        assert first["y"].flags.owndata
        assert first["y"].flags.writeable
        with pytest.raises(loader.InputError, match="input 'x' has shape"):
            model.run({"x": X[:1], "n": N})
        with pytest.raises(loader.InputError, match="not float32"):
            model.run({"x": X.astype(np.float64), "n": N})
        with pytest.raises(loader.InputError, match="missing"):
            model.run({"x": X})
        with pytest.raises(loader.InputError, match="unknown input 'm'"):
            model.run({"x": X, "m": N})
    monkeypatch.setattr(loader, "QUICK_BYTES", 0)
    with loader.Model(artifact) as model:
        assert model._program.quick is None
        np.testing.assert_array_equal(model.run({"x": X, "n": N})["y"], kept)


def test_outputs_are_written_where_the_caller_wants_them(loader: ModuleType, artifact: Path) -> None:
    strided = np.zeros((3, 2), np.float32).T
    with loader.Model(artifact) as model:
        outputs = model.run({"x": X, "n": N}, out={"y": strided})
        assert outputs["y"] is strided
        np.testing.assert_array_equal(strided, Y)
        z = np.zeros((2, 3), np.bool_)
        flat = model.run_flat([X, N], [None, z])
        np.testing.assert_array_equal(flat[0], Y)
        assert flat[1] is z
        np.testing.assert_array_equal(z, X > 0)


def test_small_arrays_in_order_and_given_outputs_are_filled_as_by_name(loader: ModuleType, artifact: Path) -> None:
    strided, z = np.zeros((3, 2), np.float32).T, np.zeros((2, 3), np.bool_)
    with loader.Model(artifact) as model:
        assert model._program.quick is not None
        quick = model._program.quick
        y = model.run_flat((X, N))[0]
        np.testing.assert_array_equal(y, Y)
        assert y.flags.owndata
        np.testing.assert_array_equal(model.run_flat([-X, N])[0], 14 - Y)
        np.testing.assert_array_equal(y, Y, "results are the caller's own")
        runs: list[Callable[[], dict[str, Any]]] = [
            lambda: model.run({"x": X, "n": N}, {"z": z, "y": strided}),
            lambda: dict(zip("yz", model.run_flat([X, N], (strided, z)), strict=True)),
        ]
        for run in runs:
            found = run()
            assert [*found] == ["y", "z"]
            assert found["y"] is strided
            assert found["z"] is z
            np.testing.assert_array_equal(strided, Y)
            np.testing.assert_array_equal(z, X > 0)
            strided[...], z[...] = 0, False
        assert quick.flat([X, N], (strided, z), again=False)
        assert quick.named({"x": X, "n": N}, {"y": strided, "z": z}, again=False)
        for inputs, words in WRONG_INPUTS[2:5]:
            with pytest.raises(loader.InputError, match=re.escape(words)):
                model.run_flat([*inputs.values()])
        with pytest.raises(loader.InputError, match="1 outputs for 2"):
            model.run_flat([X, N], [strided])
        with pytest.raises(loader.RunError, match="refuses 13"):
            model.run_flat([X, np.array(13, np.int64)], [strided, z])
    with pytest.raises(loader.RunError, match="closed"):
        model.run_flat([X, N])


MEMORY = np.zeros(16, np.float32)
ROWS = MEMORY[2:8].reshape(2, 3)
SHARED: dict[str, Callable[[], tuple[np.ndarray, np.ndarray]]] = {
    "itself": lambda: (ROWS, ROWS),
    "itself, which owns its memory": lambda: (owned := np.zeros((2, 3), np.float32), owned),
    "another view of the same": lambda: (ROWS, MEMORY[2:8].reshape(2, 3)),
    "the array that it is a view of": lambda: (owned := np.zeros((2, 3), np.float32), owned[:]),
    "reversed": lambda: (ROWS, MEMORY[7:1:-1].reshape(2, 3)),
    "backwards from its first element on": lambda: (ROWS[::-1, ::-1], MEMORY[7:13].reshape(2, 3)),
    "a part of it": lambda: (ROWS, MEMORY[7:13].reshape(2, 3)),
    "between its elements": lambda: (MEMORY[0:12:2].reshape(2, 3), MEMORY[1:13:2].reshape(2, 3)),
    "memory of no array": lambda: (
        memory := bytearray(40),
        (np.frombuffer(memory, np.float32, 6).reshape(2, 3), np.frombuffer(memory, np.float32, 6, 16).reshape(2, 3)),
    )[1],
}


@pytest.mark.parametrize("quick", [1 << 16, 0])
@pytest.mark.parametrize("way", SHARED)
def test_an_output_in_memory_of_an_input_is_refused(
    loader: ModuleType, artifact: Path, monkeypatch: pytest.MonkeyPatch, way: str, quick: int
) -> None:
    monkeypatch.setattr(loader, "QUICK_BYTES", quick)
    y, x = SHARED[way]()
    z = np.zeros((2, 3), np.bool_)
    with loader.Model(artifact) as model:
        assert (model._program.quick is not None) == bool(quick)
        refused = functools.partial(pytest.raises, loader.InputError, match="output 'y' shares memory with an input")
        for given, filled in ((x, y), (y, x)):
            with refused():
                model.run({"x": given, "n": N}, {"z": z, "y": filled})
            with refused():
                model.run({"x": given, "n": N}, {"y": filled})
            with refused():
                model.run_flat([given, N], [filled, z])
            with refused():
                model.bind([given, N], [filled, z])
        apart = MEMORY[8:14].reshape(2, 3)
        assert model.run({"x": ROWS, "n": N}, {"y": apart, "z": z})["y"] is apart


@each(range(40))
def test_what_is_shared_among_many_arrays_is_what_numpy_says_of_each_pair(seed: int, loader: ModuleType) -> None:
    random = np.random.default_rng(seed)
    pools = [np.zeros(64, np.int16), np.zeros(64, np.int16)[8:], np.frombuffer(bytearray(128), np.int16)]

    def drawn() -> np.ndarray:
        kind = random.integers(0, 8)
        if kind == 0:
            return np.zeros(int(random.integers(0, 3)), np.int16)
        pool = pools[int(random.integers(0, len(pools) if kind == 1 else 2))]
        if kind == 2:
            return pool
        begin, end = np.sort(random.integers(0, len(pool) + 1, 2))
        part = pool[begin : begin + (end - begin) // int(random.integers(1, 9)) :][:: int(random.integers(1, 4))]
        return part[::-1] if kind > 5 else part[None]

    for _ in range(10):
        outputs, inputs = ([drawn() for _ in range(int(random.integers(1, 8)))] for _ in range(2))
        wanted = [one for one in outputs if any(np.may_share_memory(one, other) for other in inputs)]
        for few in (loader.FEW_PAIRS, 0):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(loader, "FEW_PAIRS", few)
                found = loader._shared(outputs, inputs)
                assert found is (wanted[0] if wanted else None)
                assert loader._may_fill(outputs, inputs) is not bool(wanted)


def test_a_bound_run_sees_what_is_written_to_its_inputs_and_tells_its_seconds(
    loader: ModuleType, artifact: Path
) -> None:
    x, y, z = X.copy(), np.zeros((2, 3), np.float32), np.zeros((2, 3), np.bool_)
    with loader.Model(artifact) as model:
        run = model.bind([x, N], [y, z])
        assert run() > 0
        np.testing.assert_array_equal(y, Y)
        x[:] = -1
        run()
        np.testing.assert_array_equal(y, model.run({"x": x, "n": N})["y"])
        with pytest.raises(loader.InputError, match="1 outputs for 2"):
            model.bind([x, N], [y])
    with pytest.raises(loader.RunError, match="closed"):
        run()


WRONG_INPUTS: list[tuple[dict[str, Any], str]] = [
    ({"x": X}, "input 'n' is missing. Fix: give it as int64[]"),
    ({"x": X, "n": N, "m": N}, "unknown input 'm'. Fix: the model's are 'x', 'n'"),
    ({"x": X.astype(np.float64), "n": N}, "input 'x' is float64, not float32. Fix: .astype('float32')"),
    ({"x": X.astype(">f4"), "n": N}, "input 'x' is >f4, not float32"),
    ({"x": X[None], "n": N}, "input 'x' has shape (1, 2, 3). Fix: give (2, 3)"),
    ({"x": "text", "n": N}, "input 'x' cannot be read as float32[2, 3]"),
]


@pytest.mark.parametrize(("inputs", "words"), WRONG_INPUTS)
def test_an_input_that_does_not_fit_is_named_with_the_fix(
    loader: ModuleType, artifact: Path, inputs: dict[str, Any], words: str
) -> None:
    with loader.Model(artifact) as model, pytest.raises(loader.InputError) as refusal:
        model.run(inputs)
    assert words in str(refusal.value)


def test_a_tensor_on_another_device_is_refused_by_name(loader: ModuleType, artifact: Path) -> None:
    class OnGpu:
        def __dlpack__(self, **options: Any) -> object:
            raise BufferError("device 2 is not the host")

        def __dlpack_device__(self) -> tuple[int, int]:
            return (2, 0)

    with loader.Model(artifact) as model, pytest.raises(loader.InputError, match=r"input 'x'.*host memory"):
        model.run({"x": OnGpu(), "n": N})


def test_an_output_array_that_does_not_fit_is_named_with_the_fix(loader: ModuleType, artifact: Path) -> None:
    x = X.copy()
    fixed = np.zeros((2, 3), np.float32)
    fixed.flags.writeable = False
    wrong = [
        ({"w": fixed}, "unknown output 'w'"),
        ({"y": np.zeros((3, 2), np.float32)}, r"output 'y' is float32\[3, 2\]. Fix: give float32\[2, 3\]"),
        ({"y": [0]}, "output 'y' is a list"),
        ({"y": fixed}, "read-only"),
        ({"y": x}, "shares memory with an input"),
    ]
    with loader.Model(artifact) as model:
        for out, words in wrong:
            with pytest.raises(loader.InputError, match=words):
                model.run({"x": x, "n": N}, out=out)
        with pytest.raises(loader.InputError, match="1 inputs for 2"):
            model.run_flat([x])


def test_what_the_library_refuses_is_told(loader: ModuleType, artifact: Path) -> None:
    with loader.Model(artifact) as model, pytest.raises(loader.RunError, match="this model refuses 13"):
        model.run({"x": X, "n": 13})


def test_a_closed_model_says_so_and_closes_twice(loader: ModuleType, artifact: Path) -> None:
    model = loader.Model(artifact)
    model.close()
    model.close()
    with pytest.raises(loader.RunError, match="closed"):
        model.run({"x": X, "n": N})


def test_closing_gives_descriptors_back(loader: ModuleType, artifact: Path) -> None:
    def opened() -> int:
        return len(os.listdir("/proc/self/fd"))

    loader.Model(artifact).close()
    before = opened()
    for _ in range(3):
        loader.Model(artifact).close()
    with pytest.raises(loader.ArtifactError):
        loader.Model(change(artifact, "model.so", b"none", artifact.with_name("broken.tw")))
    assert opened() == before


def test_two_artifacts_are_told_apart_though_one_takes_the_others_descriptor(
    loader: ModuleType, artifact: Path, parts: Any, build: Callable[..., bytes], tmp_path: Path
) -> None:
    other = parts.library(build('-DMISSING="teeth"')).pack(tmp_path / "other.tw").path
    for _ in range(2):
        with loader.Model(artifact) as model:
            np.testing.assert_array_equal(model.run({"x": X, "n": N})["y"], Y)
        with pytest.raises(loader.WrongMachine, match="lacks teeth"):
            loader.Model(other)


def test_a_forked_child_is_told_to_load_its_own(loader: ModuleType, artifact: Path) -> None:
    with loader.Model(artifact) as model:
        model._program.process += 1  # as in a child, without a fork beside this process's threads
        with pytest.raises(loader.RunError, match="forked"):
            model.run({"x": X, "n": N})
        model._program.process -= 1


def test_threads_may_share_a_model(loader: ModuleType, artifact: Path) -> None:
    wrong: list[int] = []

    def work(model: Any, n: int) -> None:
        for _ in range(50):
            if not np.array_equal(model.run({"x": X, "n": n})["y"], Y - 7 + n):
                wrong.append(n)

    with loader.Model(artifact) as model:
        threads = [threading.Thread(target=work, args=(model, n)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


def test_where_no_file_can_be_in_memory_a_temporary_one_is_used(
    loader: ModuleType, artifact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(13, "not here")

    monkeypatch.setattr(os, "memfd_create", refuse)
    monkeypatch.setattr(loader.tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    with loader.Model(artifact) as model:
        np.testing.assert_array_equal(model.run({"x": X, "n": N})["y"], Y)
    assert list((tmp_path / "temporary").iterdir()) == []


@pytest.mark.parametrize(
    ("trouble", "says"),
    [("noexec", "noexec"), ("full", "No space left"), ("none", "no place"), ("damaged", "cannot be loaded")],
)
def test_where_no_place_permits_to_load_the_library_it_is_said_what_to_set(
    trouble: str, says: str, loader: ModuleType, artifact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> Any:
        full = trouble == "full" and OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        raise full or OSError("failed to map segment from shared object")

    def nowhere(**_: object) -> Any:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    monkeypatch.setattr(os, "memfd_create", refuse)
    monkeypatch.setattr(loader.tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(loader.ctypes, "CDLL", refuse)
    if trouble == "noexec":
        monkeypatch.setattr(loader.os, "statvfs", lambda path: type("Status", (), {"f_flag": os.ST_NOEXEC}))
    if trouble == "none":
        monkeypatch.setattr(loader.tempfile, "mkstemp", nowhere)
    with pytest.raises(loader.WrongMachine, match=says) as caught:
        loader.Model(artifact)
    assert ("TMPDIR" in caught.value.fix) == (trouble != "damaged")


CALLS: dict[str, Callable[[Any], object]] = {
    "run": lambda model: model.run({"x": X, "n": N}),
    "run into arrays": lambda model: model.run({"x": X, "n": N}, {"y": np.empty_like(Y)}),
    "run_flat": lambda model: model.run_flat([X, N]),
    "profile": lambda model: model.profile({"x": X, "n": N}, 1),
    "close": lambda model: model.close(),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_tracing_hook_amid_a_run_is_refused_and_not_waited_for(name: str, loader: ModuleType, artifact: Path) -> None:
    with loader.Model(artifact) as model:
        met: list[str] = []

        def hook(frame: Any, event: str, argument: object) -> Any:
            if model._program.lock._is_owned():
                try:
                    CALLS[name](model)
                    met.append("done")
                except loader.RunError as error:
                    met.append(str(error))
            return hook

        before = sys.gettrace()
        sys.settrace(hook)
        try:
            found = model.run({"x": X, "n": N})["y"]
        finally:
            sys.settrace(before)
        np.testing.assert_array_equal(found, Y)
        assert met
        assert all("this very thread" in one for one in met)
        np.testing.assert_array_equal(model.run({"x": X, "n": N})["y"], Y)


def test_a_signal_handler_runs_the_model_between_runs_and_is_refused_amid_one(
    loader: ModuleType, artifact: Path
) -> None:
    with loader.Model(artifact) as model:
        right, refused, wrong = 0, 0, 0

        def handler(*_: object) -> None:
            nonlocal right, refused, wrong
            try:
                same = np.array_equal(model.run({"x": X, "n": N})["y"], Y)
                right, wrong = right + same, wrong + (not same)
            except loader.RunError:
                refused += 1

        before = signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 1e-3, 1e-3)
        try:
            for _ in range(1_000_000):
                assert np.array_equal(model.run({"x": X, "n": N})["y"], Y)
                if right + refused >= 100:
                    break
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        assert right + refused >= 100
        assert not wrong


@pytest.mark.parametrize("version", [1, 2])
def test_a_library_of_an_older_abi_version_is_run_and_has_one_plan(
    loader: ModuleType, parts: Any, build: Callable[..., bytes], tmp_path: Path, version: int
) -> None:
    path = parts.library(build(f"-DABI={version}")).pack(tmp_path / "m.tw").path
    with loader.Model(path) as model:
        np.testing.assert_array_equal(model.run({"x": X, "n": N})["y"], Y)
        assert model.plan == (1, "sequential", 2, None, None, None)
        assert model.lanes == 2
        with pytest.raises(loader.RunError, match="too old to be traced"):
            model.trace()
    with pytest.raises(ValueError, match=r"plan is 2\. Fix: give 1 to 1"):
        loader.Model(path, plan=2)


def test_it_tells_which_plan_runs_and_why(loader: ModuleType, artifact: Path, guarded: Path) -> None:
    with loader.Model(artifact) as model:
        assert model.plan == (1, "sequential", 2, 3, None, None)
        assert str(model.plan) == "plan 1: sequential, 2 lanes"
    with loader.Model(guarded) as model:
        assert model.plan == (2, "sequential", 2, 3, None, 2.5e-7)
        assert str(model.plan) == "plan 2: sequential, 2 lanes; it took 250 ns"
    with loader.Model(guarded, plan=1) as model:
        assert model.plan[:4] == (1, "greedy", 2, 2)
        assert str(model.plan) == "plan 1: greedy, 2 lanes where a hand-over takes at most 100 ns; it took 250 ns"
    with pytest.raises(ValueError, match=r"plan is 3\. Fix: give 1 to 2"):
        loader.Model(guarded, plan=3)


def test_it_finds_the_running_plan_in_plan_json(loader: ModuleType, guarded: Path) -> None:
    for number, tasks in ((1, 2), (2, 3)):
        with loader.Model(guarded, plan=number) as model:
            running = model.plan_json()
            assert len(running["tasks"]) == tasks == model.plan.tasks
            assert [call["family"] for call in running["calls"]] == ["Mul", "Cast_Add_Greater"]
            assert [row["family"] for row in model.profile(repeats=1)] == ["Mul", "Cast_Add_Greater"]


def test_a_trace_has_the_median_begin_and_end_of_each_task_of_the_running_plan(
    loader: ModuleType, guarded: Path
) -> None:
    """Every other run of the library begins its tasks half a second later."""
    with loader.Model(guarded) as model:
        assert model.trace(repeats=2) == [(task + 0.25, task + 1.0) for task in range(3)]
    with loader.Model(guarded, plan=1) as model:
        assert len(model.trace({"x": X, "n": N})) == 2


def test_a_profile_names_each_call_and_sums_to_one(loader: ModuleType, artifact: Path) -> None:
    with loader.Model(artifact) as model:
        rows = model.profile(repeats=3)
    assert [(row["call"], row["family"], row["seconds"], row["share"]) for row in rows] == [
        (0, "Mul", 3e-6, 0.75),
        (1, "Cast_Add_Greater", 1e-6, 0.25),
    ]
    assert all(row["sources"] for row in rows), "the nodes of the model that each computes"


def test_a_bench_keeps_every_sample_and_their_percentiles(loader: ModuleType, artifact: Path) -> None:
    with loader.Model(artifact) as model:
        reported = model.bench(seconds=0.02)
    assert reported["runs"] == len(reported["samples"]) >= 10
    assert reported["median"] == np.percentile(reported["samples"], 50)
    assert 0 < reported["min"] <= reported["p10"] <= reported["median"] <= reported["p90"] <= reported["p99"]
    assert reported["load"] > 0
