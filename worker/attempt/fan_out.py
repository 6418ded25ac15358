"""Answers a job's child that offers kernels to other workers.

Questions come as `worker.attempt.helper_requests` says; the rows are `service.jobs.scheduling.fan_out`.
What a child says is not trusted: it may only offer work of its own owner, within the job's own budget.
"""

from __future__ import annotations

import json
import math
import os
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeGuard

from service.db.plain import storable
from service.db.tuning_shares import Place
from service.errors import DatabaseUnavailable
from service.jobs.scheduling import fan_out
from service.jobs.scheduling.fan_out import Offer, code
from service.jobs.scheduling.lease import Claim
from service.jobs.tuning.records import LONGEST, MAX_TEXT_BYTES
from service.logs import logger
from worker.attempt.context import WorkerContext
from worker.attempt.helper_requests import MOST_TASKS, answer_path
from worker.processes.frames import GarbledFrame

MOST_TERMS_BYTES = 4_000
MOST_TILES = 512
"""Of one kernel in one offer..."""
MOST_TILE_BYTES = 2_000
"""... and of each, as JSON."""
NOBODY: Mapping[str, Any] = {}

log = logger(__name__)


class Answers:
    """To the questions of one attempt, in its worker's thread.

    place    target and hardware of what is measured
    folder   where answers are put, which the child may read and not write
    """

    def __init__(self, context: WorkerContext, claim: Claim, place: Place, folder: Path) -> None:
        self._context, self._folder = context, folder
        self._budget_s = float(claim.options.get("tuning_budget_s", 0.0))
        self._offer = Offer(claim, context.name, 0, place, code())
        self._mine: tuple[uuid.UUID, ...] = ()
        self._seen: set[uuid.UUID] = set()

    def answer(self, message: Mapping[str, Any]) -> None:
        """Put down the answer to a frame of kind `share`. Raises `GarbledFrame` when it is no question.

        A database that is away answers that there is nobody.
        """
        number, ask = message.get("number"), message.get("ask")
        if not is_number(number) or ask not in ("offer", "take", "over"):
            raise GarbledFrame("a question lacks its number, or asks nothing")
        try:
            said = self._said(ask, message)
        except DatabaseUnavailable as error:
            log.warning("kernels are not divided among workers", reason=error.message)
            said = NOBODY
        put_down(self._folder, number, said)

    def _said(self, ask: str, message: Mapping[str, Any]) -> Mapping[str, Any]:
        match ask:
            case "offer":
                return self._offered(message)
            case "take":
                return self._taken(message)
        fan_out.over(self._context.db, self._offer)
        return NOBODY

    def _offered(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        terms, tasks = message.get("terms"), message.get("tasks")
        if not isinstance(terms, dict) or len(json.dumps(terms)) > MOST_TERMS_BYTES:
            raise GarbledFrame("the terms of an offer are none, or too long")
        if not isinstance(tasks, list) or len(tasks) > MOST_TASKS or not all(map(_is_task, tasks)):
            raise GarbledFrame("the kernels of an offer are none, or too many")
        if any(task["seconds"] > self._budget_s for task in tasks):
            raise GarbledFrame("the kernels of an offer may take longer than their job grants")
        self._offer = replace(self._offer, number=self._offer.number + 1)
        self._mine = ()
        return {"others": fan_out.offer(self._context.db, self._offer, terms, tasks, self._budget_s)}

    def _taken(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        seconds, measured = amounts(message)
        progress = fan_out.take_own(self._context.db, self._offer, self._mine, seconds, measured, self._seen)
        self._mine = progress.ids
        return {name: value for name, value in asdict(progress).items() if name != "ids"}


def _is_task(task: object) -> bool:
    if not isinstance(task, dict):
        return False
    key, text, tiles = (task.get(name) for name in ("key", "text", "tiles"))
    return (
        isinstance(key, str)
        and isinstance(text, str)
        and (key, text) == (storable(key), storable(text))
        and 0 < len(key) <= LONGEST["workload"]
        and len(text.encode()) <= MAX_TEXT_BYTES
        and isinstance(tiles, list)
        and 0 < len(tiles) <= MOST_TILES
        and all(isinstance(tile, dict) and len(json.dumps(tile)) <= MOST_TILE_BYTES for tile in tiles)
        and _is_amount(task.get("seconds"))
        and isinstance(task.get("again"), bool)
    )


def _is_amount(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and math.isfinite(value) and value >= 0


def is_number(number: object) -> TypeGuard[int]:
    """Whether a question may have it."""
    return isinstance(number, int) and 0 < number < 1 << 31


def amounts(message: Mapping[str, Any]) -> tuple[float, int]:
    """Seconds that measuring took, and how many tiles were measured. Raises `GarbledFrame`."""
    seconds, measured = message.get("seconds"), message.get("measured")
    if not _is_amount(seconds) or not isinstance(measured, int) or not 0 <= measured < 1 << 31:
        raise GarbledFrame("what measuring took is no amount")
    return float(seconds), measured


def put_down(folder: Path, number: int, said: Mapping[str, Any]) -> None:
    """The answer to a question, which appears whole."""
    path = answer_path(folder, number)
    hidden = path.with_suffix(".new")
    hidden.write_text(json.dumps(said))
    os.replace(hidden, path)


def places(context: WorkerContext, targets: Sequence[str]) -> tuple[Place, ...]:
    """What this worker may measure for others: of each target, as records name it and its hardware."""
    from worker.devices import device

    found = (
        device.measured_as(target, context.hardware) for target in targets if device.measures(target, context.device)
    )
    return tuple(dict.fromkeys(place for place in found if place is not None))
