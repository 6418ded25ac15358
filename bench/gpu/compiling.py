"""`python -m bench.gpu.compiling NETWORK PRECISION`: one network compiled for this machine's GPU.

Its measurements are added to a file.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from bench.gpu.half_hour.beside import cut_for_two_queues
from bench.gpu.records import read
from bench.gpu.subjects import model_file
from bench.problem import problem
from compiler.contract import CompileOptions, Event
from compiler.devices.cuda import nvrtc
from compiler.errors import TilewrightError
from compiler.pipeline import compile_model
from compiler.request import Host, Request


def main(arguments: list[str]) -> int:
    """Exit status 0 when the artifact was written; 1, with the reason, when it was not."""
    parser = argparse.ArgumentParser(prog="python -m bench.gpu.compiling", description=__doc__)
    parser.add_argument("network")
    parser.add_argument("precision")
    parser.add_argument("--target", default="cuda", help="as the compiler names it (default: the GPU that is here)")
    parser.add_argument(
        "--budget", type=float, default=0.0, help="seconds of measuring; 0: records and the model decide"
    )
    parser.add_argument("--records", type=Path, required=True, help="earlier measurements, to which new ones are added")
    parser.add_argument("--folder", type=Path, required=True, help="where models lie")
    parser.add_argument("--artifact", type=Path, required=True)
    parser.add_argument("--kept", type=Path, help="where compiled kernels are kept from one call to the next")
    parser.add_argument("--options", type=json.loads, default={}, help="further options of the job, as a JSON object")
    given = parser.parse_args(arguments)
    nvrtc.keep_in(given.kept)
    asked = {"precision": given.precision, "tuning_budget_s": given.budget, **given.options}
    if "devices" in asked:
        cut_for_two_queues()
    else:
        asked["target"] = given.target
    options = CompileOptions.from_json(asked)
    given.artifact.parent.mkdir(parents=True, exist_ok=True)
    given.records.parent.mkdir(parents=True, exist_ok=True)
    known = read(given.records)
    try:
        with given.records.open("a", buffering=1) as kept:

            def observe(event: Event) -> None:
                if event.kind == "record":
                    kept.write(json.dumps(dict(event.data)) + "\n")
                elif event.kind in ("phase", "notice"):
                    print(f"{event.phase} {event.message}".rstrip(), flush=True)

            model = model_file(given.network, given.folder)
            report = compile_model(Request(model, given.artifact, options), Host(known, observe))
    except TilewrightError as error:
        print(problem(error), file=sys.stderr)
        return 1
    given.artifact.with_suffix(".json").write_text(json.dumps(report.to_json(), indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
