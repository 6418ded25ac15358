"""What a compilation measures, as it arrives from the child.

It is checked piece by piece, because the child may be hostile.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from compiler.contract import Event, kinds
from compiler.errors import TilewrightError
from service.db.plain import storable
from service.jobs.scheduling.lease import Claim, Measured
from service.jobs.tuning.records import FIELDS, LONGEST, MAX_TEXT_BYTES, MAX_VARIANT_BYTES, to_row
from service.logs import logger
from worker.devices.holder import profiles
from worker.processes.frames import GarbledFrame

MAX_TEXTS_BYTES = 64 * 1024 * 1024
"""Of all texts of one attempt."""
WORD = re.compile(r"[A-Za-z0-9_-]{1,32}")
"""What a kind of record is called."""

log = logger(__name__)


class Intake:
    """Measurements of one attempt on their way to the database."""

    def __init__(self, claim: Claim) -> None:
        self._claim = claim
        self._sent: set[str] = set()
        self._texts_bytes = 0

    def take(self, event: Event) -> Measured:
        """What a `record` or `workload` event brings. Raises `GarbledFrame` when it is not what it says."""
        if event.kind == "record":
            return Measured(records=(self._record(event.data),))
        return Measured(workloads=self._workload(event.data))

    def _record(self, record: Mapping[str, Any]) -> Mapping[str, Any]:
        claim = self._claim
        try:
            to_row(record, owner=claim.owner, job=claim.job_id, model_digest=claim.model_digest)
        except TilewrightError as error:
            raise GarbledFrame(error.message) from error
        if not WORD.fullmatch(record["kind"]) or record["target"] not in _targets():
            raise GarbledFrame("a record is of no known target, or its kind is no word")
        if len(json.dumps(record["variant"])) > MAX_VARIANT_BYTES:
            raise GarbledFrame("the variant of a record is too long")
        return {name: record[name] for name in FIELDS}

    def _workload(self, data: Mapping[str, Any]) -> Mapping[str, str]:
        key, text = data.get("workload"), data.get("text")
        if not isinstance(key, str) or not isinstance(text, str) or not 0 < len(key) <= LONGEST["workload"]:
            raise GarbledFrame("a workload lacks its key or its text")
        key, text = storable(key), storable(text)
        size = len(text.encode())
        if size > MAX_TEXT_BYTES or self._texts_bytes + size > MAX_TEXTS_BYTES:
            log.warning("text of a workload left out", job=str(self._claim.job_id), bytes=size)
            return {}
        if key in self._sent:
            return {}
        self._sent.add(key)
        self._texts_bytes += size
        return {key: text}


def _targets() -> list[str]:
    """What a record may be of: a profile, or `cpu`."""
    return [*profiles(), *(kind.name for kind in kinds.KINDS if not kind.accelerator)]
