"""`python -m compiler.devices.cuda.measure`: a bench on its own.

It answers the questions of `apart.BenchApart` until there are no more.
"""

from __future__ import annotations

from compiler.devices.cuda.measure.apart import serve
from compiler.devices.cuda.measure.bench import Bench
from compiler.devices.cuda.measure.driver import DriverError

if __name__ == "__main__":
    serve(Bench, (DriverError,))
