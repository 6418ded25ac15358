"""`python -m compiler.redeploy model.tw tuned.onnx -o tuned.tw`: the program of an artifact with other weights.

The model must have the graph that the artifact was compiled from; only values of constants may differ. It is compiled
with the artifact's options, every step is given what it knew when the artifact was made (`compiler.knowledge.replay`),
nothing is measured, and the result is proved like any other. Most often the program is the same to the byte. Where
values decide (zeros that are left out, constants that are folded, a rounding that does not agree any more) it is told
which kernels are others.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from compiler.contract import COMPILER_VERSION, OutputError
from compiler.errors import ArtifactUnusable, TilewrightError
from compiler.frontend import bind_what_is_open, load
from compiler.ops import OPERATORS
from compiler.pack.alike import difference
from compiler.pipeline import compile_model
from compiler.reproduce import MANIFEST, PLAN, STATED, Original, folders_of, functions_of, members_of, reasons
from compiler.request import Host, Request
from compiler.trace import Observer, ignore

GRAPH = "graph.json"
OF_VALUES = (MANIFEST, GRAPH, "report.html", "weights.bin")
"""Members that tell of a model's values; all others make up its program, and say how it came about."""
NUMBER = re.compile(r"^[a-z]\d+(?=_)")
BESIDE_THE_MODEL = tuple(name for name in STATED if name != "model_digest")


@dataclass(frozen=True)
class Redeployed:
    """What came of it. The artifact agreed with the new model, or there is none.

    artifact, made  SHA-256 of the file given, and of that made now
    differing       members of the program that differ, or that one of both lacks
    kernels         how many kernels there are now
    changed         those of them whose code the artifact did not have, by the names of their functions
    calls           calls with other tiles than any in the artifact, or with a time that is no more a measured one
    measured        how many calls rest on a measurement that the artifact packed
    reasons         what beside the weights is other than it was: compiler, toolchain, machine
    errors          of each output against the reference
    """

    artifact: str
    made: str
    differing: tuple[str, ...]
    kernels: int
    changed: tuple[str, ...]
    calls: tuple[str, ...]
    measured: int
    reasons: tuple[str, ...]
    errors: tuple[OutputError, ...]
    tolerance: float
    notices: tuple[str, ...]

    @property
    def is_same_program(self) -> bool:
        """Whether everything but the weights, and what tells of them, has the same bytes."""
        return not self.differing

    def to_json(self) -> dict[str, Any]:
        """Its fields by name and `same_program`, ready for `json.dumps`."""
        return {"same_program": self.is_same_program, **asdict(self)}

    def __str__(self) -> str:
        worst = max((one.max_relative for one in self.errors), default=0.0)
        said = [f"same program: {'yes' if self.is_same_program else 'no'}", f"agrees within {worst:.1e} of the largest"]
        said += [f"other code: {kernel}" for kernel in self.changed]
        said += [f"differs: {one}" for one in (*self.calls, *self.differing)]
        return "\n".join([*said, *(f"why: {reason}" for reason in self.reasons), *self.notices])


def redeploy(
    artifact: Path,
    model: Path,
    out: Path,
    data: Mapping[str, Path] | None = None,
    samples: Sequence[Path] = (),
    observe: Observer = ignore,
) -> Redeployed:
    """Compiles `model` to `out` as `artifact` was; `data` as `Request` has it, `samples` are .npz to judge on.

    Raises ArtifactUnusable for an artifact that cannot be replayed, is of precision int8, whose scales are of its
    weights, or of another graph than the model: then with a refusal that names the first node or tensor that differs.
    Raises the errors of `compile_model`.
    """
    original = Original.of(artifact)
    if original.options.precision == "int8":
        raise ArtifactUnusable(
            "the scales of an artifact in precision int8 are those of its weights", fix="compile the model anew"
        )
    _demand_graph(original, model, data)
    judged = {str(path): path for path in samples}
    request = Request(model, out, original.options, data, judged, original.logs)
    come = compile_model(request, Host(observe=observe, measure=False))
    members = members_of(out)
    manifest = json.loads(members[MANIFEST])
    before, now = _digests(original.members), _digests(members)
    plans = list(_calls(original.manifest, original.members)), list(_calls(manifest, members))
    return Redeployed(
        hashlib.sha256(artifact.read_bytes()).hexdigest(),
        come.artifact_digest,
        tuple(sorted(_differing(original.members, members))),
        len(now),
        tuple(sorted(name for name, digest in now.items() if digest not in {*before.values()})),
        tuple(_others(*plans)),
        sum(call["predicted_from"] == "measured" for call in plans[1]),
        tuple(reasons(original.manifest, manifest, BESIDE_THE_MODEL)),
        come.errors,
        come.tolerance,
        come.notices,
    )


def _demand_graph(original: Original, model: Path, data: Mapping[str, Path] | None) -> None:
    """Raises ArtifactUnusable unless the model has, in each binding, the graph that the artifact tells."""
    options, _ = bind_what_is_open(model, original.options, OPERATORS, data)
    for folder, one in zip(folders_of(original.manifest), options.bindings, strict=True):
        found = difference(json.loads(original.members[folder + GRAPH]), load(model, one, OPERATORS, data=data).graph)
        if found is not None:
            raise ArtifactUnusable(
                "the model has another graph than the artifact was compiled from",
                fix="compile it: tilewright compile MODEL; or export it as the earlier one was",
                refusals=(found,),
            )


def _differing(before: Mapping[str, bytes], now: Mapping[str, bytes]) -> Iterator[str]:
    for name in {*before, *now}:
        if name.rpartition("/")[2] not in OF_VALUES and before.get(name) != now.get(name):
            yield name


def _digests(members: Mapping[str, bytes]) -> dict[str, str]:
    """Of the code of each kernel, without the number of the kernel, which is that of its place."""
    found = {}
    for kernel, functions in functions_of(members).items():
        numbered = NUMBER.match(kernel.rpartition("/")[2])
        texts = "\n".join(functions[name] for name in sorted(functions))
        plain = re.sub(rf"\b{numbered[0]}_", "", texts) if numbered else texts
        found[kernel] = hashlib.sha256(plain.encode()).hexdigest()
    return found


def _calls(manifest: Mapping[str, Any], members: Mapping[str, bytes]) -> Iterator[dict[str, Any]]:
    """All calls, of one binding after the other."""
    for folder in folders_of(manifest):
        yield from json.loads(members[folder + PLAN])["calls"]


def _others(before: Sequence[Mapping[str, Any]], now: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Calls that the earlier plan does not have so, or not so often."""
    left = Counter(map(_made, before))
    for at, call in enumerate(now):
        made = _made(call)
        left[made] -= 1
        if left[made] < 0:
            how = ", by the cost model" if call["predicted_from"] == "model" else ""
            yield f"call {at}, {call['family']} of {', '.join(call['sources'])}: {call['tile']}{how}"


def _made(call: Mapping[str, Any]) -> tuple[str, str, str]:
    """How a call is carried out, and what that rests on."""
    return call["family"], json.dumps(call["blocking"], sort_keys=True), call["predicted_from"]


def main(arguments: list[str] | None = None) -> int:
    """Exit status 0 for an artifact that agrees, 1 where there is none, 2 for wrong arguments."""
    parser = argparse.ArgumentParser(prog="python -m compiler.redeploy", description="Other weights, same program.")
    parser.add_argument("artifact", type=Path, help="the .tw file")
    parser.add_argument("model", type=Path, help="the ONNX file with other weights")
    parser.add_argument("-o", "--out", type=Path, required=True, help="the artifact to make")
    parser.add_argument("--samples", type=Path, nargs="+", default=[], metavar="FILE.npz", help="to be judged on")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    given = parser.parse_args(arguments)
    try:
        found = redeploy(given.artifact, given.model, given.out, samples=given.samples)
    except (TilewrightError, OSError) as error:
        said = error.to_json() if isinstance(error, TilewrightError) else {"code": "unreadable", "message": str(error)}
        print(json.dumps({"error": said}) if given.json else "", end="")
        print(f"{given.model}: {error} (compiler {COMPILER_VERSION})", file=sys.stderr)
        return 1
    print(json.dumps(found.to_json(), indent=2) if given.json else found)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
