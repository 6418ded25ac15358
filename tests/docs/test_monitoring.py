"""The alert rules for Prometheus and the dashboard for Grafana ask for metrics that there are."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
import yaml
from prometheus_client import CollectorRegistry

from service.db.models import JobState
from service.http.metrics import DESCRIPTIONS, METHODS, PREFIX, answers, broken
from service.http.routes import routers
from tests.docs.pages import DOCS

GAUGES = {"jobs", "queue_age_seconds", "blob_unchecked_seconds", "blobs_faulty", "workers"}
"""Numbers that do not only grow; the others end in `_total`."""
LABELS = {
    "jobs": {"kind", "state", "queue"},
    "queue_age_seconds": {"queue"},
    "blob_unchecked_seconds": set(),
    "blobs_faulty": {"fault"},
    "workers": {"state"},
    "jobs_accepted_total": {"kind", "queue"},
    "jobs_ended_total": {"kind", "state", "queue"},
    "cache_hits_total": set(),
    "blob_faults_total": {"fault"},
    "leases_lost_total": set(),
    "phases_total": {"phase"},
    "phase_seconds_total": {"phase"},
    "device_seconds_total": {"queue"},
    "tuning_records_total": {"kind", "target"},
    "log_lines_lost_total": set(),
    "readiness_checks_total": set(),
    "http_connections_broken_total": {"why"},
    "http_requests_total": {"method", "route", "status"},
    "http_seconds_bucket": {"method", "route", "le"},
}
ALERTS = yaml.safe_load((DOCS / "monitoring" / "alerts.yml").read_text())
LEVELS = {
    "no accepted job is lost": {"TilewrightLeasesLost": "> 3"},
    "99.9 % of requests": {"TilewrightErrors": "> 0.001 * sum("},
    "within 0.5 s": {"TilewrightSlow": "> 0.5"},
    "within 15 minutes": {"TilewrightQueueOld": "> 900", "TilewrightUnserved": "sum(tilewright_workers) == 0"},
    "every byte that is kept": {"TilewrightBlobsFaulty": "> 0"},
    "more than half of the jobs": {"TilewrightJobsFail": "> 0.5 * sum("},
}
"""What each level of docs/operations.md says, and the alerts that tell of it with the number that they compare."""
BOARD = json.loads((DOCS / "monitoring" / "dashboard.json").read_text())


def rules() -> list[dict[str, str]]:
    return [rule for group in ALERTS["groups"] for rule in group["rules"]]


def expressions() -> Iterator[str]:
    yield from (rule["expr"] for rule in rules())
    yield from (target["expr"] for panel in BOARD["panels"] for target in panel["targets"])


def test_labels_are_known_of_every_metric() -> None:
    counted = {name if name in GAUGES else f"{name}_total" for name in DESCRIPTIONS}
    registry = CollectorRegistry()
    answers(registry)
    broken(registry)
    http = {family.name.removeprefix(PREFIX) for family in registry.collect()}
    assert {*LABELS} == counted | {"http_requests_total", "http_seconds_bucket", "http_connections_broken_total"}
    assert http == {"http_requests", "http_seconds", "http_connections_broken"}


@pytest.mark.parametrize("expression", [*expressions()])
def test_an_expression_asks_for_metrics_and_labels_that_there_are(expression: str) -> None:
    found = re.findall(rf"{PREFIX}(\w+)", expression)
    assert found
    assert {*found} <= {*LABELS}
    known = set().union(*(LABELS[name] for name in found))
    for names in re.findall(r"\bby \(([^)]*)\)", expression):
        assert set(names.replace(" ", "").split(",")) <= known
    for selector in re.findall(r"\{(.*?\w+=~?\".*?\")\}", expression):
        pairs = re.findall(r"(\w+)=~?\"([^\"]*)\"", selector)
        assert pairs
        for name, value in pairs:
            assert name in known
            assert name != "state" or value in {*JobState}
            assert name != "method" or value in METHODS
            assert name != "route" or value in {
                getattr(route, "path", "") for router in routers() for route in router.routes
            }


def test_every_metric_is_drawn() -> None:
    drawn = {name for expression in expressions() for name in re.findall(rf"{PREFIX}(\w+)", expression)}
    assert drawn == {*LABELS}


def test_rules_say_what_is_wrong_and_what_to_do_and_refer_to_labels_that_they_keep() -> None:
    assert len({rule["alert"] for rule in rules()}) == len(rules()) > 0
    for rule in rules():
        texts = rule["annotations"]
        assert {*texts} == {"summary", "description"}
        kept = {name for names in re.findall(r"\bby \(([^)]*)\)", rule["expr"]) for name in names.split(", ")}
        assert {*re.findall(r"\$labels\.(\w+)", str(texts))} <= kept


def test_each_service_level_has_alerts_that_compare_with_its_number() -> None:
    section = (DOCS / "operations.md").read_text().partition("## Service levels\n")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ")][1:]
    expressions_of = {rule["alert"]: rule["expr"] for rule in rules()}
    assert len(rows) == len(LEVELS)
    for (said, alerts), row in zip(LEVELS.items(), rows, strict=True):
        assert said in row[0], row
        assert {*re.findall(r"`(Tilewright\w+)`", row[-1])} == {*alerts}, row
        for alert, compared in alerts.items():
            assert compared in expressions_of[alert], alert
