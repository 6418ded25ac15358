"""`python -m compiler.devices.cuda.measure`: a bench on its own.

It answers the questions of `apart.BenchApart` until there are no more.
"""

from __future__ import annotations

import os
import sys

from compiler.devices.cuda.measure.apart import read_message, write_message
from compiler.devices.cuda.measure.bench import Bench, Refused
from compiler.devices.cuda.measure.driver import DriverError


def serve(requests: int, answers: int) -> None:
    """Answer requests that come over a descriptor: `(index, seed)` first, then `(method of Bench, arguments)`.

    An answer is `ok` and a result; `refused` and why; or `lost` and why, after which nothing more can be done in this
    process.
    """
    try:
        index, seed = read_message(requests)
        with Bench(index, seed) as bench:
            write_message(answers, ("ok", None))
            while True:
                try:
                    method, arguments = read_message(requests)
                except EOFError:
                    return
                try:
                    write_message(answers, ("ok", getattr(bench, method)(*arguments)))
                except Refused as reason:
                    write_message(answers, ("refused", str(reason)))
                except DriverError as error:
                    write_message(answers, ("lost", str(error)))
                    os._exit(0)  # nothing can be given back to a context that is lost
    except Exception as error:
        write_message(answers, ("lost", f"{type(error).__name__}: {error}"))


if __name__ == "__main__":
    # What libraries print must not get between the answers.
    mine = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    serve(sys.stdin.fileno(), mine)
