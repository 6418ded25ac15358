"""docs/kubernetes, as far as it can be checked without a cluster."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from service.config import Settings
from service.http.metrics import DESCRIPTIONS, PREFIX
from service.http.routes import routers
from tests.compose import ROOT
from tests.docs.test_monitoring import LABELS
from tests.test_compose import STAGES, parsed
from worker.config import WorkerSettings
from worker.devices.holder import profiles

FOLDER = ROOT / "docs" / "kubernetes"
VERSIONS = {
    "ConfigMap": "v1",
    "Deployment": "apps/v1",
    "Job": "batch/v1",
    "PodDisruptionBudget": "policy/v1",
    "ScaledObject": "keda.sh/v1alpha1",
    "Service": "v1",
}
POD = {
    *("affinity", "automountServiceAccountToken", "containers", "restartPolicy", "securityContext"),
    *("terminationGracePeriodSeconds", "volumes"),
}
"""Fields of a pod, as far as they are used here; the next are of a container."""
CONTAINER = {
    *("command", "env", "envFrom", "image", "livenessProbe", "name", "ports", "readinessProbe", "resources"),
    *("securityContext", "startupProbe", "volumeMounts"),
}
KUSTOMIZATION = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
OBJECTS: dict[tuple[str, str], dict[str, Any]] = {}
for name in KUSTOMIZATION["resources"]:
    for entry in yaml.safe_load_all((FOLDER / name).read_text()):
        key = entry["kind"], entry["metadata"]["name"]
        assert key not in OBJECTS, key
        OBJECTS[key] = entry
PODS = {key: entry["spec"]["template"] for key, entry in OBJECTS.items() if "template" in entry.get("spec", {})}
WORKERS = [key for key, pod in PODS.items() if pod["metadata"]["labels"].get("tier") == "worker"]
SECRET = re.search(
    r"kubectl -n tilewright create secret generic tilewright \\\n((?:  --from.*\n)+)",
    (ROOT / "docs" / "operations.md").read_text(),
)
SECRETS = {} if SECRET is None else dict(re.findall(r"--from-(?:literal|file)=(\w+)=(\S+)", SECRET[1]))


def container(key: tuple[str, str]) -> dict[str, Any]:
    """The only one of a pod."""
    (only,) = PODS[key]["spec"]["containers"]
    return dict(only)


def environment(key: tuple[str, str]) -> dict[str, str]:
    """What a container is given; that of its own wins."""
    given: dict[str, str] = {}
    for source in container(key)["envFrom"]:
        given |= OBJECTS["ConfigMap", source["configMapRef"]["name"]]["data"]
    return given | {entry["name"]: entry["value"] for entry in container(key).get("env", [])}


def matches(selector: dict[str, str]) -> list[tuple[str, str]]:
    """The pods that carry these labels."""
    return [key for key, pod in PODS.items() if selector.items() <= pod["metadata"]["labels"].items()]


def test_every_file_is_a_resource_and_every_object_of_a_known_kind_and_version() -> None:
    files = {path.name for path in FOLDER.iterdir()} - {"kustomization.yaml"}
    assert files == {*KUSTOMIZATION["resources"]}
    assert {(kind, entry["apiVersion"]) for (kind, _), entry in OBJECTS.items()} == {*VERSIONS.items()}
    for pod in PODS.values():
        assert pod["spec"].keys() <= POD
        assert all(one.keys() <= CONTAINER for one in pod["spec"]["containers"])


def test_what_refers_to_pods_finds_those_that_are_meant() -> None:
    for (kind, name), entry in OBJECTS.items():
        spec = entry.get("spec", {})
        if kind == "Deployment":
            assert matches(spec["selector"]["matchLabels"]) == [(kind, name)]
        elif kind == "PodDisruptionBudget":
            assert matches(spec["selector"]["matchLabels"]) == [("Deployment", name)]
            assert spec["minAvailable"] < OBJECTS["Deployment", name]["spec"]["replicas"]
        elif kind == "Service":
            (key,) = matches(spec["selector"])
            assert {port["targetPort"] for port in spec["ports"]} <= {port["name"] for port in container(key)["ports"]}
    for key, pod in PODS.items():
        apart = pod["spec"].get("affinity", {}).get("podAntiAffinity", {})
        for rule in apart.get("requiredDuringSchedulingIgnoredDuringExecution", []):
            assert matches(rule["labelSelector"]["matchLabels"]) == [key]


@pytest.mark.parametrize("key", PODS, ids=lambda key: key[1])
def test_the_environment_is_settings_and_the_settings_accept_it(
    key: tuple[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given = environment(key)
    fields = {f"TILEWRIGHT_{field.upper()}" for field in {*Settings.model_fields, *WorkerSettings.model_fields}}
    assert {name if name in fields else name.removesuffix("_FILE") for name in given} <= fields
    for name, value in given.items():
        place = Path(value)
        if name.endswith("_FILE"):
            assert place.parent == Path("/run/secrets/tilewright")
            assert place.name in SECRETS, "docs/operations.md makes it"
            place = tmp_path / place.name
            place.write_text("a-secret-of-more-than-20-characters")
        monkeypatch.setenv(name, str(place) if name.endswith("_FILE") else value)
    settings = Settings()
    WorkerSettings()
    assert settings.sqlalchemy_url.startswith("postgresql+psycopg://tilewright:a-secret-of")
    assert settings.celery_url.startswith("redis://:a-secret-of")
    assert str(settings.data_dir) == given["TILEWRIGHT_DATA_DIR"]


def test_every_secret_that_is_made_is_read() -> None:
    read = {Path(value).name for key in PODS for name, value in environment(key).items() if name.endswith("_FILE")}
    assert read == {*SECRETS}


@pytest.mark.parametrize("key", PODS, ids=lambda key: key[1])
def test_a_pod_has_few_rights_and_volumes_where_it_writes(key: tuple[str, str]) -> None:
    pod, one, given = PODS[key]["spec"], container(key), environment(key)
    uid = re.search(r"useradd --uid (\d+)", dict(STAGES["api"])["RUN"])
    assert uid is not None
    user = int(uid[1])
    assert pod["automountServiceAccountToken"] is False
    assert (pod["securityContext"]["runAsUser"], pod["securityContext"]["runAsNonRoot"]) == (user, True)
    assert one["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {mount["name"] for mount in one["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    mounted = {mount["mountPath"]: mount.get("readOnly", False) for mount in one["volumeMounts"]}
    folders = ["TILEWRIGHT_DATA_DIR"] + (["TILEWRIGHT_SCRATCH_DIR"] if key in WORKERS else [])
    for name in folders:
        parent = str(Path(given[name]).parent)
        assert mounted[parent] is False, "a folder inside the volume: an empty one is open to everybody"
    assert mounted["/tmp"] is False
    assert mounted["/run/secrets/tilewright"] is True
    assert "memory" in one["resources"]["limits"]


@pytest.mark.parametrize("key", PODS, ids=lambda key: key[1])
def test_commands_and_probes_are_there(key: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    one = container(key)
    parsed(one["command"], monkeypatch)
    probes = [probe for name, probe in one.items() if name.endswith("Probe")]
    assert bool(probes) == (key[0] == "Deployment")
    routes = {getattr(route, "path", "") for router in routers() for route in router.routes}
    ports = {port["name"]: str(port["containerPort"]) for port in one.get("ports", [])}
    for probe in probes:
        if "exec" in probe:
            parsed(probe["exec"]["command"], monkeypatch)
        else:
            assert probe["httpGet"]["path"] in routes
            assert ports[probe["httpGet"]["port"]] == environment(key)["TILEWRIGHT_PORT"]
    scraped = PODS[key]["metadata"].get("annotations", {})
    if ports:
        assert scraped["prometheus.io/path"] in routes
        assert scraped["prometheus.io/port"] in ports.values()


def test_images_are_those_of_the_dockerfile() -> None:
    named = {image["name"] for image in KUSTOMIZATION["images"]}
    assert (
        {container(key)["image"] for key in PODS}
        == named
        == {f"tilewright-{stage}" for stage in ("api", "worker", "gpu-worker")}
    )
    assert {name.removeprefix("tilewright-") for name in named} <= {*STAGES}
    assert all({"newTag", "digest"} & image.keys() for image in KUSTOMIZATION["images"])


def queries() -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    for (kind, name), entry in OBJECTS.items():
        if kind == "ScaledObject":
            for trigger in entry["spec"]["triggers"]:
                yield name, entry["spec"], trigger


def test_all_workers_grow_with_the_age_of_queues_that_they_serve() -> None:
    known = {*profiles(), "cpu", "cuda"}
    known |= {f"run:{name}" for name in known}
    scaled = set()
    for name, spec, trigger in queries():
        assert (spec["scaleTargetRef"]["name"], ("Deployment", name) in WORKERS) == (name, True)
        assert 0 <= spec["minReplicaCount"] < spec["maxReplicaCount"]
        assert trigger["type"] == "prometheus"
        query, threshold = trigger["metadata"]["query"], float(trigger["metadata"]["threshold"])
        (metric,) = re.findall(rf"{PREFIX}(\w+)", query)
        assert metric in DESCRIPTIONS
        ((label, pattern),) = re.findall(r"\{(\w+)=~\"([^\"]+)\"\}", query)
        assert label in LABELS[metric]
        assert threshold > 0
        queues = {queue for queue in known if re.fullmatch(pattern, queue)}
        asked = container(("Deployment", name))["command"][-1]
        kind = "cuda" if asked == "cuda" else "cpu"
        assert queues
        assert all(queue.removeprefix("run:").partition(":")[0] == kind for queue in queues)
        assert any(queue.startswith("run:") for queue in queues) == (asked != "build")
        scaled.add(name)
    assert scaled == {name for _, name in WORKERS}
