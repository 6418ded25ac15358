"""The plans of an artifact that holds several, as programs read them.

Each is for cores between which a hand-off takes at most so long.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from compiler.ir.plans.guards import by_limit
from compiler.ir.plans.plan import Plan, Task


def guarded_json(plan: Plan, others: Sequence[Plan]) -> dict[str, Any]:
    """For plan.json of `plan`: its number, its limit in seconds, and all of the others.

    The number is as `tw_config.plan` has it; a limit of None is for any cores.

    Of another plan's calls only what the plan decides is listed, without times: costs were found for the tiles of
    `plan`. Empty where there are no others. Raises VerifyError for limits that the runtime cannot choose by.
    """
    if not others:
        return {}
    numbers = {id(one): number for number, one in enumerate(by_limit((plan, *others)), 1)}
    return {
        "number": numbers[id(plan)],
        "most_handover_s": _limit(plan),
        "others": [{"number": numbers[id(one)], **_plan_json(one)} for one in others],
    }


def _plan_json(plan: Plan) -> dict[str, Any]:
    return {
        "most_handover_s": _limit(plan),
        "scheduler": plan.scheduler,
        "lanes": plan.lanes,
        "arena_bytes": plan.arena_bytes,
        "predicted_s": plan.predicted_s,
        "calls": [
            {"tile": str(tile), "blocking": tile.to_json(), "tiles": tiles, "predicted_s": None, "predicted_from": None}
            for tile, tiles in plan.tiles
        ],
        "tasks": [task_json(task) for task in plan.tasks_of_one_device()],
        "storages": storages_json(plan),
    }


def task_json(task: Task) -> dict[str, Any]:
    """What the plan says of a task."""
    return {
        "call": task.call,
        "lane": task.lane,
        "first": task.first,
        "last": task.last,
        "waits": [[wait.lane, wait.count] for wait in task.waits],
        **({"beside": True} if task.beside else {}),
    }


def storages_json(plan: Plan) -> dict[str, Any]:
    """Where each storage lies, by its number."""
    return {
        str(storage): {"space": place.space, "at": place.at, "bytes": place.bytes}
        for storage, place in plan.places.items()
    }


def _limit(plan: Plan) -> float | None:
    return None if plan.most_handover_s == math.inf else plan.most_handover_s
