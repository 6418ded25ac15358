"""docker-compose.yml and Dockerfile, as far as they can be checked without an engine."""

from __future__ import annotations

import argparse
import fnmatch
import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import service.__main__
import worker.__main__
import worker.healthy
from service.config import Settings
from tests import compose
from tests.compose import ROOT, Unset
from worker.config import WorkerSettings

SECRETS = {
    "POSTGRES_PASSWORD": "a" * 48,
    "REDIS_PASSWORD": "b" * 48,
    "TILEWRIGHT_API_KEY": "c" * 48,
}
PINS = {"postgres": "POSTGRES", "redis": "REDIS", "s3": "MINIO"}
"""What begins the variable of the digest of an image that is not built here."""
DIGEST = f"@sha256:{'0123456789abcdef' * 4}"
FILE = compose.read(SECRETS)
SERVICES: dict[str, dict[str, Any]] = FILE["services"]
OURS = {name: spec for name, spec in SERVICES.items() if "build" in spec}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
KEYS = {
    *("build", "cap_drop", "command", "depends_on", "deploy", "entrypoint", "environment", "healthcheck", "image"),
    *("init", "mem_limit", "pids_limit", "ports", "profiles", "read_only", "restart", "secrets", "security_opt"),
    *("shm_size", "stop_grace_period", "tmpfs", "user", "volumes"),
}
"""Of the compose specification, as far as they are used here."""
PROGRAMS: dict[str, Callable[[list[str]], int]] = {
    "service": service.__main__.main,
    "worker": worker.__main__.main,
    "worker.healthy": worker.healthy.main,
}


def instructions() -> dict[str, list[tuple[str, str]]]:
    """Of each stage of the Dockerfile those that it runs, with what it starts from first; `""` comes before all."""
    stages: dict[str, list[tuple[str, str]]] = {"": []}
    stage = ""
    text = re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    for line in filter(None, text.splitlines()):
        word, rest = line.split(maxsplit=1)
        if word == "FROM":
            origin, stage = re.fullmatch(r"(\S+) AS ([\w-]+)", rest).groups()  # type: ignore[union-attr]
            stages[stage] = [("FROM", origin), *stages.get(origin, [])]
        else:
            stages[stage].append((word, rest))
    return stages


STAGES = instructions()


def test_services_have_only_keys_that_compose_knows() -> None:
    assert {key for spec in SERVICES.values() for key in spec} <= KEYS
    assert {key for key in FILE if not key.startswith("x-")} == {"name", "secrets", "services", "volumes"}


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_that_is_not_set_stops_it_with_a_word_how_to_make_one(name: str) -> None:
    with pytest.raises(Unset, match=f"{name}: .*openssl rand -hex 24"):
        compose.read({other: value for other, value in SECRETS.items() if other != name})


def test_nothing_but_secrets_must_be_set_and_no_secret_has_a_default() -> None:
    assert {name for name, word in compose.variables().items() if word} == set(SECRETS)
    raw = yaml.safe_load(compose.FILE.read_text())
    for spec in raw["services"].values():
        for name, value in spec.get("environment", {}).items():
            if name.endswith("_FILE"):
                assert value.startswith("/run/secrets/"), name
            elif re.search("PASSWORD|SECRET|KEY$|AUTH$", name):
                assert re.fullmatch(r"\$\{BLOB_\w+:-\}", value), "only what may be left out: an empty file is none"


def test_whoever_reads_a_secret_is_given_its_file_and_nobody_has_it_in_the_environment() -> None:
    sources = {name: spec["environment"] for name, spec in FILE["secrets"].items()}
    assert set(sources.values()) == set(SECRETS)
    for name, spec in SERVICES.items():
        text = str({key: spec.get(key) for key in ("command", "environment", "healthcheck")})
        assert {*re.findall(r"/run/secrets/(\w+)", text)} == {*spec.get("secrets", [])}, name
        assert not any(secret in text for secret in SECRETS.values()), name


@pytest.mark.parametrize("name", SERVICES)
def test_what_a_container_may_take_and_change_is_limited(name: str) -> None:
    spec = SERVICES[name]
    assert re.fullmatch(r"\d+[gm]", spec["mem_limit"])
    assert 0 < spec["pids_limit"] <= 8192
    assert spec["read_only"] is True
    assert "no-new-privileges:true" in spec["security_opt"]
    assert "/tmp" in spec["tmpfs"]


def test_a_worker_may_have_the_processes_of_its_jobs() -> None:
    jobs = WorkerSettings.model_fields["job_processes"].default
    assert all(SERVICES[name]["pids_limit"] >= 8 * jobs for name in ("builder", "cpu-worker", "gpu-worker"))


@pytest.mark.parametrize("name", sorted(OURS.keys() - {"migrate"}))
def test_folders_that_a_process_writes_are_volumes_for_the_rest_is_read_only(name: str) -> None:
    spec = OURS[name]
    mounted = {mount.rpartition(":")[2] for mount in spec["volumes"]}
    written = {spec["environment"][f"TILEWRIGHT_{folder}"] for folder in ("DATA_DIR", "BLOB_DIR")}
    assert written | {spec["environment"].get("TILEWRIGHT_SCRATCH_DIR", "/data")} == mounted
    assert "blobs:/blobs" in spec["volumes"], "whoever looks after bytes must see them"


@pytest.mark.parametrize("name", OURS)
def test_the_environment_is_settings_and_the_settings_accept_it(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given = {key: value for key, value in OURS[name]["environment"].items() if key.startswith("TILEWRIGHT_")}
    fields = {f"TILEWRIGHT_{field.upper()}" for field in {*Settings.model_fields, *WorkerSettings.model_fields}}
    assert {key.removesuffix("_FILE") for key in given} <= fields
    for key in [key for key in os.environ if key.startswith("TILEWRIGHT_")]:
        monkeypatch.delenv(key)
    plain = {key: value for key, value in given.items() if not key.endswith("_FILE")}
    for key, value in plain.items():
        monkeypatch.setenv(key, value)
    for key in given.keys() - plain.keys():
        file = tmp_path / Path(given[key]).name
        file.write_text(SECRETS[FILE["secrets"][file.name]["environment"]])
        monkeypatch.setenv(key, str(file))
    settings, own = Settings(), WorkerSettings()
    reported = {**settings.model_dump(), **own.model_dump()}
    for key, value in plain.items():
        field = reported[key.removeprefix("TILEWRIGHT_").lower()]
        if value and not hasattr(field, "get_secret_value"):
            assert str(field).lower() == value.lower(), key
    assert settings.sqlalchemy_url == f"postgresql+psycopg://tilewright:{'a' * 48}@postgres:5432/tilewright"
    assert settings.celery_url == f"redis://:{'b' * 48}@redis:6379/0"


def test_all_processes_of_ours_share_what_they_must_share() -> None:
    shared = ("DATABASE_URL", "BROKER_URL", "BLOB_DIR", "BLOB_URL", "BLOB_ENDPOINT", "BLOB_REGION")
    for name in shared:
        assert len({spec["environment"][f"TILEWRIGHT_{name}"] for spec in OURS.values()}) == 1, name


class Parsed(Exception):
    """What the real parser made of a command."""


def parsed(command: list[str], monkeypatch: pytest.MonkeyPatch) -> argparse.Namespace:
    """The arguments of `python -P -m PROGRAM ...` as its own parser reads them; the program does not run."""
    assert command[:3] == ["python", "-P", "-m"]
    parse = argparse.ArgumentParser.parse_args

    def parse_only(self: argparse.ArgumentParser, *arguments: Any, **more: Any) -> None:
        raise Parsed(parse(self, *arguments, **more))

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_only)
    with pytest.raises(Parsed) as found:
        PROGRAMS[command[3]](command[4:])
    namespace = found.value.args[0]
    assert isinstance(namespace, argparse.Namespace)
    return namespace


@pytest.mark.parametrize("name", OURS)
def test_a_command_is_one_that_the_program_takes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed(OURS[name]["command"], monkeypatch)


def test_the_roles_are_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    chores = {name: OURS[name]["command"][4] for name in ("migrate", "api", "reconciler")}
    assert chores == {"migrate": "migrate", "api": "serve", "reconciler": "reconcile"}
    queues = {name: OURS[name]["command"][4:] for name in ("builder", "cpu-worker", "gpu-worker")}
    assert queues == {
        "builder": ["--queue", "build"],
        "cpu-worker": ["--queue", "cpu"],
        "gpu-worker": ["--queue", "cuda"],
    }
    assert {name for name, spec in SERVICES.items() if "profiles" in spec} == {"reconciler", "gpu-worker", "s3"}


@pytest.mark.parametrize("name", SERVICES)
def test_what_a_service_waits_for_can_come_true(name: str) -> None:
    for other, how in SERVICES[name].get("depends_on", {}).items():
        assert "profiles" not in SERVICES[other], f"{other} may not be started"
        if how["condition"] == "service_healthy":
            assert "healthcheck" in SERVICES[other]
        else:
            assert how["condition"] == "service_completed_successfully"
            assert SERVICES[other]["restart"] == "on-failure", "it must be allowed to end"


def test_every_process_of_ours_waits_for_the_migrations_and_they_for_the_database() -> None:
    assert SERVICES["migrate"]["depends_on"] == {"postgres": {"condition": "service_healthy"}}
    for name in OURS.keys() - {"migrate"}:
        assert SERVICES[name]["depends_on"]["migrate"] == {"condition": "service_completed_successfully"}, name


def test_whatever_answers_or_works_has_a_health_check(monkeypatch: pytest.MonkeyPatch) -> None:
    assert {name for name, spec in SERVICES.items() if "healthcheck" not in spec} == {"migrate", "reconciler"}
    for spec in OURS.values():
        kind, *command = spec.get("healthcheck", {"test": ["NONE"]})["test"]
        if command[2:4] == ["-m", "worker.healthy"]:
            parsed(command[:], monkeypatch)
        elif kind == "CMD":
            assert command[:3] == ["python", "-P", "-c"]
            compile(command[3], "health check", "exec")


def test_the_ports_are_those_of_the_settings() -> None:
    api = SERVICES["api"]
    port = api["environment"]["TILEWRIGHT_PORT"]
    assert port == str(Settings.model_fields["port"].default)
    assert api["ports"] == [f"127.0.0.1:{port}:{port}"]
    assert f"http://127.0.0.1:{port}/healthz" in api["healthcheck"]["test"][-1]
    assert ("EXPOSE", port) in STAGES["api"]
    assert all("ports" not in spec for name, spec in SERVICES.items() if name != "api"), "nothing else is published"


def test_volumes_are_declared_and_lie_where_the_settings_say() -> None:
    declared, folders = set(FILE["volumes"]), set(dict(STAGES["api"])["RUN"].split())
    used = set()
    for name, spec in SERVICES.items():
        for mount in spec.get("volumes", []):
            source, _, target = mount.rpartition(":")
            used |= {source} - {""}
            if name in OURS:
                reported = {"/data": "DATA_DIR", "/blobs": "BLOB_DIR", "/scratch": "SCRATCH_DIR"}[target]
                assert spec["environment"][f"TILEWRIGHT_{reported}"] == target
                assert target in folders, "the image makes it, with the right owner"
    assert used == declared


def test_no_two_containers_share_working_folders() -> None:
    for name in ("builder", "cpu-worker", "gpu-worker"):
        assert "/scratch" in OURS[name]["volumes"], "anonymous: each container gets its own"


def test_the_gpu_worker_reserves_a_gpu() -> None:
    (device,) = SERVICES["gpu-worker"]["deploy"]["resources"]["reservations"]["devices"]
    assert device == {"driver": "nvidia", "count": 1, "capabilities": ["gpu"]}


@pytest.mark.parametrize("name", OURS)
def test_our_containers_run_with_few_rights(name: str) -> None:
    spec = OURS[name]
    assert spec["cap_drop"] == ["ALL"]
    assert spec["security_opt"] == ["no-new-privileges:true"]
    assert spec["init"] is True, "orphans of a job are waited for"
    users = [rest for word, rest in STAGES[spec["build"]["target"]] if word == "USER"]
    assert users[-1] == "tilewright"


@pytest.mark.parametrize("name", ["api", "builder", "cpu-worker", "gpu-worker", "reconciler"])
def test_a_container_may_take_longer_to_stop_than_its_process_needs(name: str) -> None:
    spec = SERVICES[name]
    needs = int(spec["environment"].get("TILEWRIGHT_GRACEFUL_SHUTDOWN_S", 5))
    assert int(spec["stop_grace_period"].removesuffix("s")) >= 2 * needs


def test_images_are_built_from_stages_that_exist_and_pinned_otherwise() -> None:
    for name, spec in SERVICES.items():
        if name in OURS:
            assert spec["build"]["target"] in STAGES
        else:
            assert re.fullmatch(r"[\w./-]+:.*\d.*", spec["image"]), name
            assert not spec["image"].endswith(":latest")
            pinned = compose.service(name, {**SECRETS, f"{PINS[name]}_DIGEST": DIGEST})
            assert pinned["image"] == spec["image"] + DIGEST
    images = {(spec["image"], spec["build"]["target"]) for spec in OURS.values()}
    assert len({image for image, _ in images}) == len(images), "one image, one stage"


def test_what_the_images_copy_exists_and_reaches_the_engine() -> None:
    rules = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and line[0] != "#"]

    def reaches(path: str) -> bool:
        kept = True
        for rule in rules:
            if fnmatch.fnmatch(path, rule.removeprefix("!").removeprefix("**/")):
                kept = rule.startswith("!")
        return kept

    sources = [
        source
        for stage in STAGES.values()
        for word, rest in stage
        if word == "COPY" and not rest.startswith("--from=")
        for source in rest.split()[:-1]
    ]
    assert sources
    for source in sources:
        assert (ROOT / source).exists(), source
        assert reaches(source), f".dockerignore keeps {source} out"
    assert not reaches("tests")
    assert not reaches(".git")
    packages = {name for name in PROJECT["tool"]["setuptools"]["packages"]["find"]["include"] if "." not in name}
    assert packages <= set(sources), "the wheel is whole"
    assert PROJECT["project"]["readme"] in sources


def test_the_images_python_is_one_that_is_supported() -> None:
    version, digest = (rest.partition("=")[2] for word, rest in STAGES[""] if word == "ARG")
    assert digest == "", "none is known where no registry answers: docs/operations.md says how it is set"
    assert f"Programming Language :: Python :: {version}" in PROJECT["project"]["classifiers"]
    assert STAGES["api"][0] == STAGES["wheel"][0] == ("FROM", "python:${PYTHON}-slim-bookworm${PYTHON_DIGEST}")
    for name, spec in OURS.items():
        assert spec["build"]["args"] == {"PYTHON_DIGEST": ""}
        pinned = compose.service(name, {**SECRETS, "PYTHON_DIGEST": DIGEST})
        assert pinned["build"]["args"] == {"PYTHON_DIGEST": DIGEST}


def test_whatever_compiles_has_a_compiler_and_what_is_installed_is_locked() -> None:
    for name in ("builder", "cpu-worker", "gpu-worker"):
        runs = " ".join(rest for word, rest in STAGES[OURS[name]["build"]["target"]] if word == "RUN")
        assert "gcc libc6-dev" in runs
    for stage, steps in STAGES.items():
        for word, rest in steps:
            if word == "RUN" and "pip install" in rest:
                assert "--require-hashes" in rest or "--no-index" in rest, stage


def test_compose_itself_accepts_the_file() -> None:
    docker = shutil.which("docker")
    if docker is None or subprocess.run([docker, "compose", "version"], capture_output=True, check=False).returncode:
        pytest.skip("docker compose is not installed")
    every = ["--profile", "gpu", "--profile", "reconciler", "--profile", "s3"]
    done = subprocess.run(
        [docker, "compose", "-f", str(compose.FILE), *every, "config", "-q"],
        env={**os.environ, **SECRETS},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
