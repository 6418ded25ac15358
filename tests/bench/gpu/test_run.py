from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import MappingProxyType

import pytest

from bench.gpu import check, run
from bench.gpu.parts import Asked
from compiler.devices.cuda.target import Gpu

GPU = Gpu("NVIDIA X", (9, 0), 132, 1, 1, 1.0, "cuda:sm_90/1")
ROOT = Path(__file__).parents[3]


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "gpu_here", lambda: GPU)
    monkeypatch.setattr(run, "digest", lambda: "sources")


def play(monkeypatch: pytest.MonkeyPatch, whole: bool, row: dict[str, object]) -> None:
    """Parts that put one row each."""

    def part(name: str) -> object:
        def done(asked: Asked) -> bool:
            asked.notebook(name).put("one", {"network": "resnet50", "precision": "fp16", **row})
            return whole

        return done

    monkeypatch.setattr(run, "PARTS", MappingProxyType({name: part(name) for name in ("tests", "tune")}))


@pytest.mark.parametrize(
    ("whole", "row", "status"),
    [
        (True, {"passed": True}, 0),
        (False, {"passed": True}, 0),
        (True, {"passed": False}, 1),
        (False, {"problem": "x"}, 1),
    ],
)
def test_the_status_tells_right_from_wrong_whether_or_not_all_is_done(
    gpu: None,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    whole: bool,
    row: dict[str, object],
    status: int,
) -> None:
    play(monkeypatch, whole, row)
    assert run.main(["all", "--out", str(tmp_path)]) == status
    assert ("tests is not done: the same command goes on with it" in capsys.readouterr().out) is not whole


def test_json_is_all_that_is_printed(
    gpu: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    play(monkeypatch, True, {"passed": True})
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    run.main(["tests", "--out", str(tmp_path), "--json"])
    assert json.loads(capsys.readouterr().out)["tests"]["one"]["passed"] is True


def test_missing_compilers_are_told_before_anything_begins(
    gpu: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    play(monkeypatch, True, {"passed": True})
    monkeypatch.setattr("shutil.which", lambda name: None)
    run.main(["tests", "--out", str(tmp_path)])
    said = capsys.readouterr().out
    assert "gcc is missing: artifacts need it" in said
    assert "g++ is missing: the double cannot run" in said


def test_an_unknown_network_is_refused(gpu: None, tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as ended:
        run.main(["bench", "--models", "alexnet", "--out", str(tmp_path)])
    assert ended.value.code == 2


def test_without_a_driver_nothing_is_checked_and_nothing_is_wrong(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(check, "DRIVER", "libno_such_driver.so.1")
    assert check.main(["tests"]) == 0
    assert capsys.readouterr().out.startswith("no GPU here: no NVIDIA driver on this machine: libno_such_driver.so.1")


def test_a_python_without_the_packages_is_told_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(check, "missing_driver", lambda: "")
    monkeypatch.setattr(check, "NEEDED", ("json", "no_such_package"))
    assert check.main([]) == 1
    assert "this Python lacks no_such_package" in capsys.readouterr().out


def test_the_door_opens_with_the_standard_library_alone() -> None:
    """`python -S` has no installed packages: what the door imports must not need any."""
    program = "import sys; sys.path.insert(0, '.'); from bench.__main__ import main; sys.exit(main(['gpu', 'tests']))"
    done = subprocess.run([sys.executable, "-S", "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert "no GPU here" in done.stdout or "this Python lacks numpy" in done.stdout, done.stderr


def test_what_a_gpu_machine_has_is_enough_to_import_what_runs_there() -> None:
    """Nothing of the service, the client or the test tools: numpy, onnx, pydantic and what comes with them."""
    modules = ["bench.gpu.run", "bench.gpu.compiling", "bench.gpu.contest", "bench.gpu.schedules", "tests.gpu.__main__"]
    program = (
        f"import sys, importlib; [importlib.import_module(name) for name in {modules}]; print(' '.join(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    foreign = {
        "pytest",
        "hypothesis",
        "rich",
        "typer",
        "httpx",
        "fastapi",
        "onnxruntime",
        "service",
        "worker",
    }
    assert not {name.split(".")[0] for name in done.stdout.split()} & foreign


def test_the_digest_covers_what_results_depend_on() -> None:
    assert run.digest() == run.digest()
    assert all((ROOT / source).exists() for source in run.SOURCES)
