"""The report's section on the schedule: what was found, when everything runs, and where that is not as predicted."""

from __future__ import annotations

from compiler.contract import PlanReached
from compiler.ir.buffers import KernelGraph
from compiler.ir.plans.plan import Plan
from compiler.ir.program import Program
from compiler.pack.chart.drawing import schedule_svg
from compiler.pack.chart.schedule import Schedule
from compiler.pack.chart.times import handover_share, lane_times
from compiler.pack.chart.wording import duration, escaped, plural
from compiler.pack.chart.words import heading, most_different, remark, sharing
from compiler.pack.elements import bar, section, table
from compiler.pack.facts import Facts
from compiler.pack.timeline import schedule_of


def schedule_section(program: Program, plan: Plan, kernels: KernelGraph, facts: Facts) -> str:
    """The picture, and the tables around it. What was not measured is not shown, and the page says so."""
    schedule = schedule_of(kernels, plan, facts)
    figure = f"<figure>{schedule_svg(schedule)}</figure>"
    return "\n".join(
        filter(
            None,
            (_plans(facts), section("Schedule", _words(program, schedule), figure), _lanes(schedule), _calls(schedule)),
        )
    )


def _words(program: Program, schedule: Schedule) -> str:
    nodes, graphs = plural(len(program.launches), "node"), len(program.graphs)
    several = f"{plural(graphs, 'CUDA graph')} with {nodes}, between which the host decides. "
    launches = several if graphs else f"One CUDA graph with {nodes}. " if program.launches else ""
    kind = "chain of launches that follow each other" if schedule.lane == "stream" else "thread"
    reading = f"Time runs to the right, each {schedule.lane} is a {kind}, each box work on one kernel"
    shared = f": {sharing(schedule)}" if sharing(schedule) else ""
    measured = (
        "Measured are medians of traced runs, in which each task notes when it begins and ends."
        if schedule.measured
        else "Nothing was measured: times are what the records and the cost model predict."
    )
    predicted = f" Predicted {escaped(remark(schedule), 400)}." if remark(schedule) else ""
    return (
        f"{launches}{escaped(heading(schedule))}. {reading}{shared}. {measured}{predicted} Hover for names and times."
    )


def _plans(facts: Facts) -> str:
    """What each scheduler found; nothing where there was no choice and nothing was run."""
    if not any(one.measured_s for one in facts.plans) and len(facts.plans) < 2:
        return ""
    head = (
        ("schedule", ""),
        ("lanes", "n"),
        ("hand-overs", "n"),
        ("predicted", "n"),
        ("measured", "n"),
        ("over predicted", "n"),
        ("of the first", "n"),
        ("found in", "n"),
    )
    lines = [
        (
            f"<b>{escaped(one.scheduler)}</b>, taken" if one.taken else escaped(one.scheduler),
            str(one.lanes),
            str(one.waits),
            duration(one.predicted_s),
            "not run" if one.measured_s is None else duration(one.measured_s),
            f"{one.measured_s / one.predicted_s:.2f}" if one.measured_s and one.predicted_s else "-",
            _interval(one),
            "-" if one.found_s is None else duration(one.found_s),
        )
        for one in facts.plans
    ]
    words = (
        "Whole runs, side by side in rounds. A schedule replaces the first one only where it is certainly faster: "
        "where the interval of its ratio, which holds it with 95% confidence, lies below 1. "
        "Those that are predicted to be much slower are not run."
    )
    return section(
        "Schedules that were found", words if len(facts.plans) > 1 else "Whole runs of it alone.", table(head, lines)
    )


def _interval(one: PlanReached) -> str:
    if one.ratio is None:
        return "-"
    if one.low is None or one.high is None:
        return f"{one.ratio:.3f}"
    return f"{one.ratio:.3f} ({one.low:.3f} to {one.high:.3f})"


def _lanes(schedule: Schedule) -> str:
    head = (
        (schedule.lane, ""),
        ("", ""),
        ("tasks", "n"),
        ("busy", "n"),
        ("share", "n"),
        ("", "bar"),
        ("waiting", "n"),
        ("of it hand-overs", "n"),
        ("between tasks", "n"),
        ("idle at the end", "n"),
    )
    lines = []
    times = [(name, timeline, lane_times(timeline, schedule.lanes)) for name, timeline in schedule.timelines]
    for lane in range(schedule.lanes):
        for name, timeline, lanes in times:
            one = lanes[lane]
            share = one.busy / timeline.seconds if timeline.seconds else 0.0
            seconds = map(duration, (one.waiting, one.handing, one.between, one.idle))
            lines.append((str(lane), name, str(one.tasks), duration(one.busy), f"{share:.0%}", bar(share), *seconds))
    shares = " and ".join(f"{handover_share(timeline):.1%} {name}" for name, timeline in schedule.timelines)
    words = (
        f"A {schedule.lane} waits until a task of another has ended and this is known to it; "
        "the time from the end until then is the hand-over. "
        f"On the critical path hand-overs take {shares} of the whole."
    )
    return section(f"Where the time of each {schedule.lane} goes", words, table(head, lines))


def _calls(schedule: Schedule) -> str:
    found = most_different(schedule)
    if not found:
        return ""
    head = (("#", "n"), ("family", ""), ("predicted", "n"), ("measured", "n"), ("difference", "n"), ("ratio", "n"))
    lines = [
        (
            str(one.call),
            escaped(one.family).replace("+", "+<wbr>"),
            duration(one.predicted),
            duration(one.measured),
            ("+" if one.more >= 0 else "−") + duration(abs(one.more)),
            "-" if one.ratio is None else f"{one.ratio:.2f}",
        )
        for one in found
    ]
    words = (
        f"The {plural(len(found), 'kernel')} whose time in the run differs most from the predicted one, "
        f"on the {schedule.lane} on which it took longest."
    )
    return section("Kernels that did not take their time", words, table(head, lines))
