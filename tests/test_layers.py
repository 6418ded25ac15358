"""Who may know whom: the import contracts bite, and what must stay light stays light."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("tilewright", "compiler", "service", "worker", "migrations", "bench")
COMPILER_PROPER = (
    "compiler.pipeline",
    "compiler.ir",
    "compiler.ops",
    "compiler.frontend",
    "onnx",
    "onnxruntime",
    "ml_dtypes",
)
CONTRACT_AND_ERRORS = {"compiler", "compiler.errors", "compiler.contract"}
SERVER_LIBRARIES = ("fastapi", "sqlalchemy", "alembic", "celery", "redis", "onnx", "ml_dtypes")

# One forbidden import per contract: (contract id, file to plant, the import, how the report names it).
VIOLATIONS = (
    ("packages", "service/jobs/planted.py", "import worker", "service.jobs.planted -> worker"),
    ("compiler", "compiler/fuse/planted.py", "import compiler.tuning", "compiler.fuse.planted -> compiler.tuning"),
    (
        "devices",
        "compiler/devices/cpu/planted.py",
        "import compiler.devices.cuda.target",
        "compiler.devices.cpu.planted -> compiler.devices.cuda.target",
    ),
    (
        "cpu-products",
        "compiler/devices/cpu/attention/sums.py",
        "import compiler.devices.cpu.algorithms.gemv",
        "compiler.devices.cpu.attention.sums -> compiler.devices.cpu.algorithms.gemv",
    ),
    (
        "cpu-few-rows",
        "compiler/devices/cpu/products/few_rows/coded.py",
        "import compiler.devices.cpu.products.few_rows.dense",
        "compiler.devices.cpu.products.few_rows.coded -> compiler.devices.cpu.products.few_rows.dense",
    ),
    (
        "cpu-attention",
        "compiler/devices/cpu/attention/pairs.py",
        "import compiler.devices.cpu.attention.fp32",
        "compiler.devices.cpu.attention.pairs -> compiler.devices.cpu.attention.fp32",
    ),
    (
        "cuda-products",
        "compiler/devices/cuda/products/tiles.py",
        "import compiler.devices.cuda.algorithms.gemv",
        "compiler.devices.cuda.products.tiles -> compiler.devices.cuda.algorithms.gemv",
    ),
    (
        "cpu-algorithms",
        "compiler/devices/cpu/algorithms/gemv.py",
        "import compiler.devices.cpu.algorithms.winograd",
        "compiler.devices.cpu.algorithms.gemv -> compiler.devices.cpu.algorithms.winograd",
    ),
    (
        "cuda-algorithms",
        "compiler/devices/cuda/algorithms/transpose.py",
        "import compiler.devices.cuda.algorithms.gemv",
        "compiler.devices.cuda.algorithms.transpose -> compiler.devices.cuda.algorithms.gemv",
    ),
    ("service", "service/db/planted.py", "import service.jobs", "service.db.planted -> service.jobs"),
    ("light-api", "service/http/planted.py", "import compiler.ir", "service.http.planted -> compiler.ir"),
    ("compiler-knows-no-web", "compiler/pack/planted.py", "import pydantic", "compiler.pack.planted -> pydantic"),
    ("sealed-child", "worker/attempt/child.py", "import service.db", "worker.attempt.child -> service.db"),
    ("client-apart", "tilewright/planted.py", "import compiler.errors", "tilewright.planted -> compiler.errors"),
    ("bench-apart", "bench/planted.py", "import service.jobs", "bench.planted -> service.jobs"),
    ("nothing-needs-bench", "worker/planted.py", "import bench.zoo", "worker.planted -> bench.zoo"),
    ("no-cycles", "tilewright/planted_other.py", "import tilewright.planted_third", ".planted_third -> .planted_other"),
)


def modules_loaded_by(*names: str) -> set[str]:
    """The names in `sys.modules` after a fresh interpreter imported `names`."""
    program = (
        "import importlib, json, sys\nfor name in sys.argv[1:]: importlib.import_module(name)\n"
        "print(json.dumps(list(sys.modules)))"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    outcome = subprocess.run(
        [sys.executable, "-P", "-c", program, *names], env=environment, capture_output=True, text=True, check=False
    )
    assert outcome.returncode == 0, outcome.stderr
    return set(json.loads(outcome.stdout.splitlines()[-1]))


def modules_of(package: str) -> list[str]:
    """Every module of a package, from its files; `__main__` would run."""
    files = sorted((ROOT / package).rglob("*.py"))
    names = (".".join(file.relative_to(ROOT).with_suffix("").parts) for file in files)
    return [name.removesuffix(".__init__") for name in names if not name.endswith("__main__")]


def room(module: str) -> str:
    """The package of ours, or the room in it, that a module is part of.

    `compiler.contract` of `compiler.contract.options`.
    """
    return ".".join(module.split(".")[:2])


def none_loaded(forbidden: Iterable[str], loaded: set[str]) -> bool:
    return not loaded.intersection(forbidden)


@pytest.mark.parametrize("name", ["compiler", "compiler.errors", "compiler.contract"])
def test_the_contract_and_the_errors_load_nothing_of_the_compiler_proper(name: str) -> None:
    loaded = modules_loaded_by(name)
    ours = {module for module in loaded if module.split(".")[0] in PACKAGES}
    assert {room(module) for module in ours} <= CONTRACT_AND_ERRORS
    assert none_loaded([*COMPILER_PROPER, "numpy"], loaded)


def test_the_whole_service_loads_nothing_of_the_compiler_but_contract_and_errors() -> None:
    loaded = modules_loaded_by(*modules_of("service"))
    ours = {module for module in loaded if module.split(".")[0] == "compiler"}
    assert {room(module) for module in ours} <= CONTRACT_AND_ERRORS
    assert none_loaded([*COMPILER_PROPER, "worker", "migrations", "bench"], loaded)


def test_what_a_user_imports_loads_no_other_package_and_no_server_library() -> None:
    loaded = modules_loaded_by(*modules_of("tilewright"))
    assert none_loaded([*PACKAGES[1:], *SERVER_LIBRARIES], loaded)


def test_the_compiler_package_holds_a_docstring_only() -> None:
    code = compile((ROOT / "compiler" / "__init__.py").read_text(), "compiler", "exec")
    assert set(code.co_names) == {"__doc__"}


@pytest.fixture(scope="module")
def report_on_planted_violations(tmp_path_factory: pytest.TempPathFactory) -> str:
    """import-linter's report on a copy of the packages with every violation planted."""
    copy = tmp_path_factory.mktemp("violations")
    for package in PACKAGES:
        shutil.copytree(ROOT / package, copy / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", copy)
    for _, file, line, _ in VIOLATIONS:
        with (copy / file).open("a") as planted:
            planted.write(f"{line}\n")
    (copy / "tilewright/planted_third.py").write_text("import tilewright.planted_other\n")
    program = (
        "import sys; sys.path.insert(0, '.'); from importlinter.cli import lint_imports_command; lint_imports_command()"
    )
    outcome = subprocess.run(
        [sys.executable, "-P", "-c", program, "--no-logo", "--no-cache"],
        cwd=copy,
        env={**os.environ, "PYTHONPATH": str(copy), "COLUMNS": "400"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert outcome.returncode == 1, outcome.stdout + outcome.stderr
    return outcome.stdout


@pytest.mark.parametrize(("contract", "mention"), [(row[0], row[3]) for row in VIOLATIONS])
def test_every_import_contract_finds_a_planted_violation(
    contract: str, mention: str, report_on_planted_violations: str
) -> None:
    assert f"0 kept, {len(VIOLATIONS)} broken" in report_on_planted_violations
    assert mention in report_on_planted_violations, contract
