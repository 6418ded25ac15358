"""The environment is made from nothing, made once, and where it cannot be made the reason and the cure are named."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import bootstrap

ROOT = Path(__file__).parents[1]


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files that the environment depends on, taken for the checkout."""
    for name in (*bootstrap.INPUTS, bootstrap.DEMO):
        shutil.copy(ROOT / name, tmp_path)
    monkeypatch.setattr(bootstrap, "ROOT", str(tmp_path))
    monkeypatch.setattr(bootstrap, "VENV", str(tmp_path / ".venv"))
    monkeypatch.setattr(bootstrap, "VENV_PYTHON", str(tmp_path / ".venv/bin/python"))
    monkeypatch.setattr(bootstrap, "STAMP", str(tmp_path / ".venv/tilewright.stamp"))
    # An environment without pip is made in a tenth of the time, and nothing here installs with it.
    real = bootstrap.has
    monkeypatch.setattr(bootstrap, "has", lambda module: module != "ensurepip" and real(module))
    return tmp_path


@pytest.fixture
def installs(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The arguments of each `pip install`; nothing is downloaded."""
    calls: list[tuple[str, ...]] = []
    monkeypatch.setattr(bootstrap, "install", lambda *what: calls.append(what))
    return calls


def run_bootstrap(*interpreter: str, path: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": path, "HOME": os.environ.get("HOME", "/")}
    command = [*interpreter, str(ROOT / "bootstrap.py")]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_the_first_run_installs_the_lock_by_hash_and_the_project_without_its_dependencies(
    checkout: Path, installs: list[tuple[str, ...]]
) -> None:
    bootstrap.prepare()
    assert installs == [
        ("--require-hashes", "-r", str(checkout / "requirements.txt")),
        ("--no-deps", "--no-build-isolation", "--no-index", "-e", str(checkout)),
    ]


def test_the_second_run_does_nothing(installs: list[tuple[str, ...]]) -> None:
    bootstrap.prepare()
    installs.clear()
    bootstrap.prepare()
    assert installs == []


def test_the_demo_installs_its_own_lock_and_the_tests_the_rest(checkout: Path, installs: list[tuple[str, ...]]) -> None:
    bootstrap.prepare(bootstrap.DEMO)
    bootstrap.prepare(bootstrap.DEMO)
    assert [what[-1] for what in installs] == [str(checkout / "requirements-demo.txt"), str(checkout)]
    installs.clear()
    bootstrap.prepare()
    assert installs[0] == ("--require-hashes", "-r", str(checkout / "requirements.txt"))
    installs.clear()
    bootstrap.prepare(bootstrap.DEMO)
    assert installs == [], "the whole lock holds the other"


def test_what_the_demo_installs_holds_no_tool_of_the_tests() -> None:
    names = {pin.partition("==")[0] for pin in bootstrap.versions((ROOT / bootstrap.DEMO).read_text())}
    assert {"onnxruntime", "onnx", "fastapi", "setuptools"} <= names
    assert not names & {"pytest", "moto", "mypy", "ruff", "hypothesis", "openvino", "import-linter"}
    whole = bootstrap.versions((ROOT / bootstrap.WHOLE).read_text())
    assert len(names) < 0.6 * len(whole)


def pretended(folder: Path, *lines: str, status: int = 0) -> list[str]:
    """The command of an installer that prints these lines."""
    program = folder / "installer.py"
    program.write_text(f"import sys\nprint({chr(10).join(lines)!r}, flush=True)\nsys.exit({status})\n")
    return [sys.executable, str(program)]


def test_an_installation_says_how_far_it_is(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = pretended(
        checkout,
        "Collecting numpy==2 (from -r x)",
        "  Downloading numpy",
        "Collecting onnx==1",
        "Installing collected packages: numpy, onnx",
    )
    monkeypatch.setattr(bootstrap, "installers", lambda: [(command, dict(os.environ))])
    monkeypatch.setattr(bootstrap, "TOLD_EVERY_S", -1.0)
    lock = checkout / "small.txt"
    lock.write_text("numpy==2 \\\n    --hash=sha256:0\nonnx==1 \\\n    --hash=sha256:0\nother==3 ; x \\\n")
    bootstrap.install("--require-hashes", "-r", str(lock))
    said = capsys.readouterr().err.splitlines()
    assert said[:-1] == [
        "bootstrap: preparing .venv: at most 3 packages, once",
        "bootstrap: fetching 1 of at most 3: numpy",
        "bootstrap: fetching 2 of at most 3: onnx",
        "bootstrap: installing 2 packages",
    ]
    assert said[-1].startswith("bootstrap: .venv is ready after ")


def test_an_installation_that_fails_shows_its_last_words(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [f"line {number}" for number in range(50)]
    command = pretended(checkout, *lines, "ERROR: no such version", status=7)
    monkeypatch.setattr(bootstrap, "installers", lambda: [(command, dict(os.environ))])
    with pytest.raises(subprocess.CalledProcessError) as raised:
        bootstrap.install("-r", str(checkout / bootstrap.DEMO))
    assert (raised.value.returncode, "install" in raised.value.cmd) == (7, True)
    said = capsys.readouterr().err
    assert "ERROR: no such version" in said
    assert "line 49" in said
    assert "line 20\n" not in said


def test_uv_is_asked_first_and_where_it_fails_pip_goes_on(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (checkout / "uv").write_text("#!/bin/sh\necho uv knows no such index; exit 2\n")
    (checkout / "uv").chmod(0o755)
    monkeypatch.setenv("PATH", f"{checkout}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(bootstrap, "succeeds", lambda *command: True)
    uv, pip = bootstrap.installers()
    assert uv[0] == ["uv", "pip"]
    assert uv[1]["VIRTUAL_ENV"] == bootstrap.VENV
    assert pip[0] == [bootstrap.VENV_PYTHON, "-m", "pip"]
    monkeypatch.setattr(bootstrap, "installers", lambda: [uv, (pretended(checkout, "Collecting x"), dict(os.environ))])
    bootstrap.install("-r", str(checkout / "requirements.txt"))
    said = capsys.readouterr().err
    assert "uv knows no such index" in said
    assert said.index("uv failed") < said.index("is ready")


@pytest.mark.parametrize("name", bootstrap.INPUTS)
def test_a_changed_input_is_installed_again(name: str, checkout: Path, installs: list[tuple[str, ...]]) -> None:
    bootstrap.prepare()
    installs.clear()
    with (checkout / name).open("a") as file:
        file.write("\n# changed\n")
    bootstrap.prepare()
    assert len(installs) == 2


def test_an_install_that_failed_is_tried_again(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*what: str) -> None:
        raise subprocess.CalledProcessError(1, what)

    monkeypatch.setattr(bootstrap, "install", fail)
    with pytest.raises(subprocess.CalledProcessError):
        bootstrap.prepare()
    assert not bootstrap.is_prepared(bootstrap.digest())


def test_a_broken_environment_is_made_anew(checkout: Path, installs: list[tuple[str, ...]]) -> None:
    broken = checkout / ".venv" / "bin"
    broken.mkdir(parents=True)
    (checkout / ".venv" / "pyvenv.cfg").write_text("home = /nowhere\n")
    (broken / "python").symlink_to("/nowhere/python")
    bootstrap.prepare()
    assert bootstrap.runs(bootstrap.VENV_PYTHON)


def test_a_folder_that_is_no_environment_is_left_alone(checkout: Path, installs: list[tuple[str, ...]]) -> None:
    precious = checkout / ".venv" / "thesis.txt"
    precious.parent.mkdir()
    precious.write_text("years of work")
    with pytest.raises(bootstrap.Unprepared, match="no virtual environment"):
        bootstrap.prepare()
    assert precious.read_text() == "years of work"


def test_missing_tools_are_named_all_at_once_with_the_cure(tmp_path: Path) -> None:
    outcome = run_bootstrap(sys.executable, path=str(tmp_path))
    assert outcome.returncode == 1
    assert "missing: make, a C compiler" in outcome.stderr
    assert "Install" in outcome.stderr


@pytest.mark.parametrize(
    ("tool", "command"), [("apt-get", "apt-get install -y"), ("dnf", "dnf install -y"), ("pacman", "pacman -S")]
)
def test_the_cure_is_in_this_systems_words(
    tool: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / tool).write_text("#!/bin/sh\n")
    (tmp_path / tool).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert command in bootstrap.advice()


def test_a_compiler_that_cannot_build_a_library_is_refused_with_its_own_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = tmp_path / "broken-cc"
    compiler.write_text("#!/bin/sh\necho 'stdint.h: No such file or directory'\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", str(compiler))
    with pytest.raises(bootstrap.Unprepared, match=r"stdint\.h: No such file"):
        bootstrap.demand_compiler_works()


def test_the_compiler_of_this_machine_works() -> None:
    bootstrap.demand_compiler_works()


def test_an_interpreter_out_of_range_without_a_better_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 9, 1, "final", 0))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert bootstrap.main([]) == 1
    assert "Python 3.11 to 3.14 is needed" in capsys.readouterr().err


def test_pip_settings_reach_uv_and_settings_made_for_uv_win(tmp_path: Path) -> None:
    config = tmp_path / "pip.conf"
    config.write_text("[global]\nfind-links = /wheels /more\n[install]\nextra-index-url = file:///one file:///two\n")
    environment = {"PIP_CONFIG_FILE": str(config), "PIP_INDEX_URL": "file:///main", "PIP_CERT": "/ca.pem"}
    pip = bootstrap.pip_settings(environment)
    assert bootstrap.uv_settings(pip, {"SSL_CERT_FILE": "/other.pem"}) == {
        "UV_DEFAULT_INDEX": "file:///main",
        "UV_INDEX": "file:///one file:///two",
        "UV_FIND_LINKS": "/wheels,/more",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
    }


def test_the_other_locks_keep_to_the_versions_of_the_first_without_its_markers() -> None:
    lock = "a==1.0 ; python_version < '4' \\\n    --hash=sha256:00\nb-c==2 \\\nd==1 ; x\nd==2 ; y\n"
    assert bootstrap.versions(lock) == ["a==1.0\n", "b-c==2\n"]


def test_what_an_image_installs_is_among_what_is_tested() -> None:
    first, *others = ((ROOT / name).read_text() for name, _ in bootstrap.LOCKS)
    known = set(bootstrap.versions(first))
    for lock in others:
        alien = [pin for pin in set(bootstrap.versions(lock)) - known if pin.split("==")[0] + "==" in first]
        assert alien == []


@pytest.mark.network
@pytest.mark.slow
def test_a_bare_copy_prepares_itself_and_then_has_nothing_to_do(tmp_path: Path) -> None:
    copy = tmp_path / "checkout"
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".venv", ".git", "__pycache__", "*_cache", "*.egg-info"))
    command = [sys.executable, "bootstrap.py"]
    first = subprocess.run(command, cwd=copy, capture_output=True, text=True, check=False)
    assert first.returncode == 0, first.stderr
    second = subprocess.run(command, cwd=copy, capture_output=True, text=True, check=True)
    assert (second.stdout, second.stderr) == ("", "")
    program = "import compiler, service, fastapi, onnx, celery, pytest; print(compiler.__file__)"
    found = subprocess.run(
        [copy / ".venv/bin/python", "-P", "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == str(copy / "compiler" / "__init__.py")
