"""Records: what is known, looked up by kind, device, workload, setting and state of the cores."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, overload

from compiler.ir.machine import Record, Setting
from compiler.ir.target import Target
from compiler.knowledge.kinds import EXHAUSTED, SECONDS, STATE, TRIALS, Kind


class Records(Sequence[Record]):
    """Records in the order in which they became known: of several that count the last one is usually believed."""

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self._all: list[Record] = []
        self._of_kind: dict[tuple[str, str, str], list[Record]] = defaultdict(list)
        self._of_workload: dict[tuple[str, str, str, str], list[Record]] = defaultdict(list)
        for record in records:
            self._append(record)

    @staticmethod
    def of(records: Iterable[Record]) -> Records:
        """Records that are indexed already as they are, others indexed now."""
        return records if isinstance(records, Records) else Records(records)

    def add(self, record: Record) -> bool:
        """False for one that was known, which changes nothing."""
        if record in self:
            return False
        self._append(record)
        return True

    def find(
        self,
        kind: Kind,
        target: Target,
        *,
        workload: str | None = None,
        setting: Setting | None = None,
        state: str | None = None,
    ) -> list[Record]:
        """Those of a kind that were measured on a target and its hardware, in order.

        None stands for any workload, setting or state.
        """
        place = kind.name, target.name, target.hardware
        found = self._of_kind.get(place, []) if workload is None else self._of_workload.get((*place, workload), [])
        return [
            record
            for record in found
            if (setting is None or setting.is_of(record)) and (state is None or record.variant.get(STATE) == state)
        ]

    def was_searched(
        self, kind: Kind, workload: str, target: Target, setting: Setting, seconds: float, trials: int | None = None
    ) -> bool:
        """Whether a marker of this kind says that a workload was searched with as large a budget.

        A search until nothing promising was left counts like one with any budget.
        """
        markers = self.find(kind, target, workload=workload, setting=setting)
        return any(covers(marker.variant, seconds, trials) for marker in markers)

    def _append(self, record: Record) -> None:
        self._all.append(record)
        place = record.kind, record.target, record.hardware
        self._of_kind[place].append(record)
        self._of_workload[(*place, record.workload)].append(record)

    def __contains__(self, record: object) -> bool:
        if not isinstance(record, Record):
            return False
        place = record.kind, record.target, record.hardware, record.workload
        return record in self._of_workload.get(place, ())

    def __iter__(self) -> Iterator[Record]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    @overload
    def __getitem__(self, at: int) -> Record: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Record]: ...
    def __getitem__(self, at: int | slice) -> Record | Sequence[Record]:
        return self._all[at]


def covers(searched: Mapping[str, Any], seconds: float, trials: int | None) -> bool:
    """Whether a search, by the variant of its record, had all that a budget allows."""
    had, tried = searched.get(SECONDS), searched.get(TRIALS)
    enough = tried is None or (trials is not None and isinstance(tried, int) and tried >= trials)
    return searched.get(EXHAUSTED) is True or (isinstance(had, float | int) and had >= seconds and enough)
