"""What ships, started as it ships: in environments with nothing but what an extra or an image's lock asks for.

Each is made twice: of links to what this environment has, which takes a second or two, and by pip, as a user's is.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright
from tests import environments
from tests.compose import FILE as COMPOSE
from tests.end_to_end import fleet, house, models
from tests.servers import Missing, free_port
from tests.test_compose import STAGES

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[2]
TRYING = Path(__file__).with_name("trying.py")
BY_PIP = [pytest.mark.network, pytest.mark.slow]
LINKED_AND_BY_PIP = ["linked", pytest.param("pip", marks=BY_PIP)]
NEEDS = {
    **dict.fromkeys(("up", "legalise", "accelerate", "place", "minimise"), "server"),
    **dict.fromkeys(("race", "check", "reproduce", "redeploy"), "server"),
    "verify": "verify",
    "serve": "serve",
}
"""Command -> the extra that it needs, of those that need one before they need a server."""
GIVES = {"cuda": ("pynvml", "nvidia"), "bench": ("onnxruntime", "openvino"), "npu": ("ai_edge_litert", "flatbuffers")}
"""Extra -> modules that can be imported with it and nothing else, of extras that do nothing by themselves."""
FOUND_BY_NAME = (
    "kombu.transport.redis",
    "sqlalchemy.dialects.postgresql.psycopg",
    "sqlalchemy.dialects.sqlite.pysqlite",
    "uvicorn.lifespan.on",
    "uvicorn.loops.uvloop",
)
"""Modules that a library of ours imports by a name in a setting of ours."""
IMPORT_ALL = f"""
import importlib, pkgutil
for package in ("tilewright", "compiler", "service", "worker", "migrations"):
    for module in pkgutil.walk_packages([importlib.import_module(package).__path__[0]], package + "."):
        if "__main__" not in module.name and module.name != "migrations.env":
            importlib.import_module(module.name)
for name in {FOUND_BY_NAME}:
    importlib.import_module(name)
"""
OPTIONS = {"threads": 1, "tuning_budget_s": 0}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return environments.build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str, str], Path]]:
    """`(how, extra)` -> the Python of an environment with the wheel and that extra alone."""
    made: dict[tuple[str, str], Path] = {}

    def make(how: str, extra: str) -> Path:
        if (how, extra) not in made:
            folder = tmp_path_factory.mktemp(f"{how}-{extra}") / "environment"
            try:
                made[how, extra] = (
                    environments.linked(folder, wheel, extra)
                    if how == "linked"
                    else environments.installed(folder, f"{wheel}[{extra}]" if extra else str(wheel))
                )
            except environments.Incomplete as name:
                pytest.skip(f"{name} is not installed here, and only pip can make this environment")
        return made[how, extra]

    yield make
    for python in made.values():
        shutil.rmtree(python.parents[1])


def tried(python: Path, folder: Path, *left_out: str) -> dict[str, dict[str, Any]]:
    """What each command did; see `trying`."""
    variables = {**environments.variables(), "HOME": str(folder), "TILEWRIGHT_DATA_DIR": str(folder / "data")}
    variables |= {f"XDG_{kind}_HOME": str(folder / kind) for kind in ("CONFIG", "DATA", "CACHE", "STATE")}
    done = subprocess.run(
        [str(python), "-P", str(TRYING), *left_out],
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.mark.parametrize("how", LINKED_AND_BY_PIP)
@pytest.mark.parametrize("extra", ["", "verify", "server"])
def test_every_command_helps_and_one_that_needs_an_extra_names_it(
    how: str, extra: str, environment: Callable[[str, str], Path], tmp_path: Path
) -> None:
    python = environment(how, extra)
    needed = {name: need for name, need in NEEDS.items() if need != extra and extra != "server"}
    did = tried(python, tmp_path, *(["up"] if extra == "server" else []))
    assert {name for name, one in did.items() if one["help"]} == set()
    assert {name: one for name, one in did.items() if one["raised"] or "Traceback" in one["output"]} == {}
    assert {name for name, one in did.items() if "tilewright[" in one["output"]} == needed.keys()
    for name, need in needed.items():
        assert f"pip install 'tilewright[{need}]'" in did[name]["output"]
        assert did[name]["status"] == 2


@pytest.mark.parametrize("how", LINKED_AND_BY_PIP)
@pytest.mark.parametrize("extra", GIVES)
def test_an_extra_gives_its_modules_to_a_base_install(
    how: str, extra: str, environment: Callable[[str, str], Path], tmp_path: Path
) -> None:
    python = environment(how, extra)
    environments.run([python, "-P", "-m", "tilewright", "--help"], tmp_path)
    environments.run([python, "-P", "-c", f"import {', '.join(GIVES[extra])}"], tmp_path)


@pytest.mark.parametrize("how", LINKED_AND_BY_PIP)
def test_the_server_imports_nothing_that_its_extra_does_not_ask_for(
    how: str, environment: Callable[[str, str], Path], tmp_path: Path
) -> None:
    environments.run([environment(how, "server"), "-P", "-W", "ignore", "-c", IMPORT_ALL], tmp_path)


@pytest.mark.parametrize("how", LINKED_AND_BY_PIP)
def test_a_server_of_the_wheel_compiles_over_http_and_its_artifact_runs(
    how: str, environment: Callable[[str, str], Path], tmp_path: Path
) -> None:
    command = (str(environment(how, "server")), "-P", "-m", "tilewright", "up")
    with house.running(tmp_path, command, python_path="") as up, up.client() as client:
        runs(client, tmp_path)


def runs(client: tilewright.Client, folder: Path) -> None:
    """One compilation, whose artifact is downloaded and run."""
    job = client.wait(client.compile(models.tiny("tiny_cnn"), OPTIONS)).require_success()
    with tilewright.load(client.download(job, folder / "model.tw")) as model:
        (output,) = model.run(model.random_inputs()).values()
    assert np.isfinite(np.asarray(output)).all()


def built(stage: str, wheel: Path, folder: Path) -> Path:
    """The Python of an environment into which pip installs what the image of a stage installs, in the same words."""
    python = environments.empty(folder, pip=True)
    for word, text in STAGES[stage]:
        if word == "RUN" and text.startswith("pip install "):
            here = text.replace("/requirements/", f"{ROOT}/").replace("/wheels/*.whl", str(wheel))
            environments.pip(python, *here.split()[1:])
    environments.pip(python, "check")
    return python


@pytest.mark.parametrize(
    "image", ["linked", pytest.param("worker", marks=BY_PIP), pytest.param("gpu-worker", marks=BY_PIP)]
)
def test_the_processes_of_the_compose_file_work_with_what_an_image_installs(
    image: str, wheel: Path, environment: Callable[[str, str], Path], tmp_path: Path
) -> None:
    """Migration, API, reconciler, builder and worker, over PostgreSQL and Redis, without a container engine."""
    linked = image == "linked"
    python = environment("linked", "server") if linked else built(image, wheel, tmp_path / "environment")
    with services(tmp_path, python) as machines:
        (api,) = machines.apis(1)
        for name in ("reconciler", "builder", "cpu-worker"):
            machines.start(name)
        with api.client(machines.key) as client:
            runs(client, tmp_path)


@contextlib.contextmanager
def services(folder: Path, python: Path) -> Iterator[fleet.Fleet]:
    """The fleet of an environment; skips where a server is missing."""
    try:
        with fleet.running(folder, python=python) as machines:
            yield machines
    except Missing as reason:
        pytest.skip(str(reason))


@pytest.mark.network
@pytest.mark.slow
def test_the_images_are_built_and_compile(tmp_path: Path) -> None:
    docker = shutil.which("docker")
    if docker is None or subprocess.run([docker, "info"], capture_output=True, check=False).returncode:
        pytest.skip("no container engine answers (docker info)")
    port, key = str(free_port()), secrets.token_hex(24)
    given = {"POSTGRES_PASSWORD": secrets.token_hex(24), "REDIS_PASSWORD": secrets.token_hex(24)}
    variables = {**environments.variables(), **given, "TILEWRIGHT_API_KEY": key, "PUBLISH_PORT": port}
    compose = [docker, "compose", "-f", str(COMPOSE), "-p", f"tilewright-{port}", "--profile", "reconciler"]
    try:
        subprocess.run([*compose, "up", "-d", "--build", "--wait"], env=variables, check=True)
        with tilewright.Client(f"http://127.0.0.1:{port}", key) as client:
            runs(client, tmp_path)
    finally:
        subprocess.run([*compose, "down", "--volumes"], env=variables, check=False)
