"""What a replay of a compilation needs: every measurement, and in which step it became known.

A step may decide by all that was measured before it and by what it measured itself, and by nothing that became known
later. So a replay is given each measurement when the step begins that made it, and is granted no measuring: it decides
as the first compilation did. The log is the member `replay.jsonl` of an artifact, one JSON object a line, as
`Record.to_json` gives it, with `step`: how many steps had begun by then, 0 for what was known from the start, and
`used`: whether records.jsonl lists it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from compiler.errors import OptionsError
from compiler.ir.machine import Record, plausible
from compiler.ir.target import Target

MEMBER = "replay.jsonl"
"""Of an artifact."""
STEP, USED = "step", "used"
LISTED = -1
"""The step of what became known in none: shipped with the compiler, or adopted from other hardware."""


@dataclass
class Log:
    """Measurements in the order in which they became known, each with its step.

    As `replayed` it is what an artifact says: nothing is added to it, and it is packed again as it is.

    used  those that an artifact lists as what it was made by
    """

    entries: list[tuple[int, Record]] = field(default_factory=list)
    used: Sequence[Record] = ()
    replayed: bool = False

    def add(self, step: int, record: Record) -> None:
        """Once; a replay's measurements are there already."""
        if not self.replayed:
            self.entries.append((step, record))

    def begin(self, records: Iterable[Record]) -> None:
        """What is known from the start comes first."""
        if not self.replayed:
            self.entries[:0] = [(0, record) for record in records]

    def of_step(self, step: int) -> Sequence[Record]:
        """What became known in a step."""
        return [record for at, record in self.entries if at == step]

    def packed(self, target: Target, used: Sequence[Record]) -> tuple[Sequence[Record], str]:
        """What an artifact lists as used, and the log as a file, of what counts on a target.

        A replay's own: what the first compilation listed, which had more than one measurement of some tiles.
        """
        if not self.replayed:
            counting = [(at, one) for at, one in self.entries if is_of(one, target)]
            logged = {_line(one) for _, one in counting}
            listed = {_line(one): one for one in used}
            self_made = [(LISTED, listed[line]) for line in sorted(listed.keys() - logged)]
            return used, _text([*self_made, *counting], listed.keys())
        return self.used, _text(self.entries, {_line(one) for one in self.used})

    @staticmethod
    def parse(text: str) -> Log:
        """What an artifact says, to be replayed. Raises OptionsError for anything else."""
        entries: list[tuple[int, Record]] = []
        used: list[Record] = []
        for number, line in enumerate(text.splitlines(), 1):
            try:
                plain: Mapping[str, Any] = json.loads(line)
                step, is_used = plain[STEP], plain[USED]
                found = plausible([{name: plain[name] for name in plain if name not in (STEP, USED)}])
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise _damaged(number) from error
            if not isinstance(step, int) or not isinstance(is_used, bool) or not found:
                raise _damaged(number)
            entries.append((step, found[0]))
            used += found if is_used else []
        return Log(entries, used, replayed=True)


def is_of(record: Record, target: Target) -> bool:
    """Whether a record was measured on a target and its hardware."""
    return (record.target, record.hardware) == (target.name, target.hardware)


def _text(entries: Iterable[tuple[int, Record]], used: Collection[str]) -> str:
    lines = [{STEP: step, USED: _line(record) in used, **record.to_json()} for step, record in entries]
    return "".join(json.dumps(line, sort_keys=True, separators=(",", ":")) + "\n" for line in lines)


def _line(record: Record) -> str:
    return json.dumps(record.to_json(), sort_keys=True)


def _damaged(number: int) -> OptionsError:
    return OptionsError(f"line {number} of {MEMBER} is no measurement with its step", fix="download the artifact again")
