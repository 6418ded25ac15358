"""`make torture ARGS='--kills 200 --seed 7 --database postgresql'`.

Kill a service until enough has died, and look what became of it.
"""

from __future__ import annotations

import argparse
import json
import sys
import time

from tests.servers import Missing
from tests.torture import clock
from tests.torture.fates import DOOMS
from tests.torture.report import torture

EVERY_S = 5.0


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 0, 1 when a promise was broken, 2 when a server is missing."""
    parser = argparse.ArgumentParser(prog="make torture", description="Kill tests of the service.")
    parser.add_argument("--kills", type=int, default=200, help="processes to kill at the least")
    parser.add_argument(
        "--seed", type=int, default=0, help="decides what is dealt; not what is under way at that moment"
    )
    parser.add_argument("--database", choices=["sqlite", "postgresql"], default="sqlite")
    parser.add_argument("--fates", nargs="+", choices=[*DOOMS], metavar="FATE", help="these alone, each once")
    parser.add_argument("--log-full", action="store_true", help="no process finds room for its log")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    chosen = parser.parse_args(arguments)
    cards = chosen.fates or ()
    try:
        with clock.settable() as is_settable:
            if not is_settable:
                print(clock.MISSING, file=sys.stderr)
            report = torture(
                chosen.database,
                chosen.seed,
                kills=chosen.kills,
                cards=cards,
                log_full=chosen.log_full,
                say=_Progress().say,
            )
    except Missing as reason:
        print(reason, file=sys.stderr)
        return 2
    print(json.dumps(report.to_json(), indent=2) if chosen.json else report)
    return 1 if report.breaches else 0


class _Progress:
    """One line now and then, on standard error."""

    def __init__(self) -> None:
        self._said = 0.0

    def say(self, line: str) -> None:
        if time.monotonic() - self._said > EVERY_S:
            self._said = time.monotonic()
            print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
