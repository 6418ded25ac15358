"""What the first half hour found, as a page that a person reads in a minute: what is wrong first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.gpu.half_hour.cases import Case

MOST_WRONG = 20
"""Rows that are told of one by one."""


def summary(rows: Mapping[str, Mapping[str, Any]], cases: Sequence[Case]) -> str:
    """Markdown: what failed, what probes said beside what was assumed, networks beside their predictions."""
    wrong = {key: reason for key, row in rows.items() if (reason := _wrong(row))}
    others = {"facts", "families", *(case.key for case in cases)}
    families = [row for key, row in rows.items() if key not in others and not key.startswith("probe ")]
    lines = [f"# The first half hour on {rows.get('facts', {}).get('gpu', 'a GPU')}", ""]
    passed = sum(bool(row.get("passed")) for row in families)
    done = sum(case.key in rows for case in cases)
    lines += [f"{passed} of {len(families)} families right, {done} of {len(cases)} networks tried, {len(wrong)} wrong."]
    if wrong:
        lines += ["", "Wrong:", "", *(f"- {key}: {reason}" for key, reason in list(wrong.items())[:MOST_WRONG])]
        lines += [f"- and {len(wrong) - MOST_WRONG} more"] * (len(wrong) > MOST_WRONG)
    if said := [*_probes(rows)]:
        lines += ["", "| asked | found | assumed before |", "|---|---|---|", *said]
    if told := [_network(case, rows[case.key]) for case in cases if case.key in rows]:
        lines += ["", "| network | decides | predicted µs | with copies | in place | first run | runs alike |"]
        lines += ["|---|---|---|---|---|---|---|", *told]
    return "\n".join(lines) + "\n"


def _wrong(row: Mapping[str, Any]) -> str:
    if "problem" in row:
        return _short(row["problem"])
    return _short("; ".join(map(str, row.get("failed", ())))) if not row.get("passed", True) else ""


def _probes(rows: Mapping[str, Mapping[str, Any]]) -> list[str]:
    found: dict[str, Any] = {}
    for row in rows.values():
        found |= row.get("found", {})
    lines = []
    for name, said in (found.get("launches") or {}).items():
        lines.append(f"| {name} | {said:.0f} | {ASSUMED.get(name, '')} |")
    for name, ns in found.get("costs", {}).items():
        lines.append(f"| {name} | {ns:.0f} | {found['expected'][name]:.0f} |")
    if "l2_bytes" in found:
        driver, profile = (found["l2_bytes"][who] / 2**20 for who in ("driver", "profile"))
        lines.append(f"| L2, MiB | {driver:.0f} | {profile:.0f} |")
    for name, row in found.items():
        if isinstance(row, dict) and "on" in row:
            lines.append(f"| {name} | {'not answered' if row['on'] is None else 'on' if row['on'] else 'off'} | off |")
    for row in found.get("drifts", ()):
        drift = "did not run" if row["drift"] is None else f"{row['drift']:+.1e}"
        expected = ", ".join(f"{gpu} {one:+.1e}" for gpu, one in row.get("expected", {}).items())
        lines.append(f"| drift of {row['terms']} terms, {row['algorithm']} {row['precision']} | {drift} | {expected} |")
    return lines


ASSUMED: Mapping[str, str] = {"launch_ns": "1300", "cross_ns": "1000", "fan_in_ns": "250"}
"""Of the profiles (`compiler.devices.cuda.target`)."""


def _network(case: Case, row: Mapping[str, Any]) -> str:
    found = row.get("repeated", {})
    predicted = f"{1e6 * row['latency_s']:.1f}" if "latency_s" in row else ""
    medians = [f"{found[name]['median']:.1f}" if name in found else "" for name in ("with_copies_us", "in_place_us")]
    first = f"{found['first_us']:.0f}" if "first_us" in found else ""
    alike = found.get("runs", 0) - len(found.get("differing", ()))
    runs = f"{alike} of {found['runs']}" if found else "failed"
    return f"| {case.key} | {case.decides} | {predicted} | {' | '.join(medians)} | {first} | {runs} |"


def _short(text: str) -> str:
    return " ".join(text.split())[:200]
