"""`python -m compiler.platforms model.onnx --platform platform.toml`: where its parts would run; nothing is run."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from compiler.contract import CompileOptions
from compiler.contract.platform import open_platform
from compiler.errors import TilewrightError
from compiler.platforms.drawing import svg
from compiler.platforms.predict import PREDICTION, Prediction, load_graph, predict, to_json
from compiler.platforms.timing import Timeline
from compiler.schedule.solvers.sets import bits

MOST_STAGES = 12
"""Shown as text; JSON has all."""


def main(arguments: list[str] | None = None) -> int:
    """Exit status 0; 1 where the model or the platform is refused, 2 for wrong arguments."""
    parser = argparse.ArgumentParser(prog="python -m compiler.platforms", description="Place a model, predicted.")
    parser.add_argument("model", type=Path, help="the ONNX file")
    parser.add_argument("--platform", type=Path, required=True, help="a .toml file")
    parser.add_argument("--objective", default="latency", help="latency, throughput, or latency_ms=30")
    parser.add_argument("--carry", action="append", default=[], metavar="OUTPUT=INPUT", help="a state between frames")
    parser.add_argument("--dim", action="append", default=[], metavar="NAME=VALUE", help="of a symbolic dimension")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="write the timeline and the curve there")
    parser.add_argument("--json", action="store_true", help="print the prediction as JSON")
    given = parser.parse_args(arguments)
    try:
        dims = {name: int(value) for name, _, value in (one.partition("=") for one in given.dim)}
        carry = [(out, into) for out, _, into in (one.partition("=") for one in given.carry)]
        platform = open_platform(given.platform)
        graph = load_graph(given.model, CompileOptions.from_json({"dims": dims}))
        found = predict(graph, platform, given.platform.parent, given.objective, carry)
        if given.svg:
            given.svg.write_text(svg(found))
    except TilewrightError as error:
        if given.json:
            print(json.dumps({"error": error.to_json()}))
        else:
            print(error, file=sys.stderr)
        return 1
    except (OSError, ValueError) as error:
        print(json.dumps({"error": {"code": "usage", "message": str(error)}}) if given.json else error, file=sys.stderr)
        return 2
    print(json.dumps(to_json(found), indent=2) if given.json else text(found))
    return 0


def text(found: Prediction) -> str:
    """A prediction as lines: the placement, each device alone, each granularity, the curve."""
    problem, made = found.chosen.problem, found.chosen.timeline
    names = [one.name for one in problem.devices]
    lines = [f"{found.platform.about}: {PREDICTION}", "", f"for {found.objective}: {_times(made)}"]
    lines.append(f"by {found.chosen.granularity}, {found.chosen.by}; {len(made.stages)} stages:")
    shown = list(zip(made.stages, made.spans, strict=True))
    for stage, span in shown[:MOST_STAGES]:
        units = bits(stage.units)
        said = problem.names[units[0]] + (f" ... {problem.names[units[-1]]}" if len(units) > 1 else "")
        on = " or ".join(names[device] for device in stage.devices)
        lines.append(f"  {1e3 * span.begin:9.3f} to {1e3 * span.end:9.3f} ms  {on}: {len(units)} units, {said}")
    if len(shown) > MOST_STAGES:
        lines.append(f"  and {len(shown) - MOST_STAGES} more (--json has all)")
    lines.append("busy for a frame: " + ", ".join(f"{name} {1e3 * seconds:.3f} ms" for name, seconds in made.busy))
    for name, size in zip(names, made.streamed, strict=True):
        if size:
            lines.append(f"{name} brings {size / 1e6:.2f} MB of weights for a frame: they do not fit on its chip")
    least = min(one.timeline.latency_s for one in found.curve), min(one.timeline.period_s for one in found.curve)
    for name, reached, bound in zip(("latency", "period"), least, found.bound_s, strict=True):
        lines.append(f"least {name} found {1e3 * reached:.3f} ms: {_gap(reached, bound)}")
    lines += ["", "alone:"]
    for name, one in found.alone:
        lines.append(f"  {name}: {_times(one) if one else 'cannot: ' + _why(found, name)}")
    lines += ["", "granularity   units   best latency ms   best /s   candidates   processor s"]
    for row in found.granularities:
        if row.latency is None or row.throughput is None:
            lines.append(f"{row.name:12} {row.units:6}   not tried: {row.skipped}")
            continue
        often = 1 / row.throughput.period_s if row.throughput.period_s else float("inf")
        lines.append(
            f"{row.name:12} {row.units:6} {1e3 * row.latency.latency_s:17.3f} {often:9.2f} {row.tried:12} "
            f"{row.seconds:13.2f}"
        )
    lines += ["", "latency ms   frames/s   stages   granularity"]
    for point in found.curve:
        often = 1 / point.timeline.period_s if point.timeline.period_s else float("inf")
        count = len(point.timeline.stages)
        lines.append(f"{1e3 * point.timeline.latency_s:10.3f} {often:10.2f} {count:8}   {point.granularity}")
    return "\n".join(lines)


def _times(made: Timeline) -> str:
    often = f", {1 / made.period_s:.2f} frames per second" if made.period_s else ""
    return f"{1e3 * made.latency_s:.3f} ms{often}"


def _gap(reached: float, bound: float) -> str:
    if reached <= bound * (1 + 1e-6):
        return "no placement has less"
    return (
        f"no placement has less than {1e3 * bound:.3f} ms ({reached / bound - 1:.1%} above it)" if bound else "unknown"
    )


def _why(found: Prediction, name: str) -> str:
    kind = next(one.kind for one in found.costs.problem.devices if one.name == name)
    own = [one for one in found.costs.refused if one.device == kind]
    return (
        f"{own[0].operator} {own[0].node!r}: {own[0].reason} ({len(own)} nodes)" if own else "its memory is too small"
    )


if __name__ == "__main__":
    raise SystemExit(main())
