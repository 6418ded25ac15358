"""`python -m compiler.reproduce model.tw model.onnx`: makes an artifact again from what it packs, or fails.

Nothing is measured: every step is given what it knew when the artifact was made (`compiler.knowledge.replay`). What
comes out must be the same file, byte for byte; otherwise it is reported what differs, and why where that is known. By a
newer compiler it is what the compiler changes for this model: kernels that are generated otherwise, and measurements
that no longer hold for them.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from compiler.contract import COMPILER_VERSION, CompileOptions, kinds
from compiler.errors import ArtifactUnusable, InputsError, TilewrightError
from compiler.knowledge.replay import MEMBER, Log
from compiler.pack.functions import gather, kernels_of
from compiler.pack.join import CHUNKS
from compiler.pipeline import compile_model
from compiler.request import Host, Request
from compiler.trace import ignore

MANIFEST, PLAN = "manifest.json", "plan.json"
OTHER_BYTES = 5
"""The exit status when other bytes came out."""
ABSENT = "absent"
MOST_SHOWN = 80
"""Characters of a value that differs."""
ANOTHER = "give the .tw file as it was downloaded"
STATED = ("compiler_version", "toolchain", "model_digest", "target", "hardware")
"""Of the manifest: what decides the bytes beside options and measurements."""


@dataclass(frozen=True)
class Reproduced:
    """What came of it.

    artifact, made  SHA-256 of the file given, and of that made now
    differing       members that differ, or that one of both lacks
    fields          of plans that differ, the first field that does, with both values
    reasons         what is other than it was: compiler, toolchain, machine, model
    missing         calls of kernels that rested on a measurement which is not packed, or holds no more since another
                    code is generated
    kernels         how many kernels are generated now
    changed         those of them, and of before, whose code is not the same, by the names of their functions
    measured        how many calls rested on a measurement
    """

    artifact: str
    made: str
    measurements: int
    differing: tuple[str, ...]
    fields: tuple[str, ...]
    reasons: tuple[str, ...]
    missing: tuple[str, ...]
    kernels: int
    changed: tuple[str, ...]
    measured: int

    @property
    def is_same(self) -> bool:
        """Whether both artifacts have the same bytes."""
        return self.artifact == self.made

    def to_json(self) -> dict[str, Any]:
        """Its fields by name and `same`, ready for `json.dumps`."""
        return {"same": self.is_same, **asdict(self)}

    def __str__(self) -> str:
        if self.is_same:
            return f"the same bytes, from {self.measurements} measurements: SHA-256 {self.made}"
        each = [f"differs: {name}" for name in self.differing]
        each += [f"first: {field}" for field in self.fields]
        each += [f"why: {reason}" for reason in self.reasons]
        each += [f"other code: {kernel}" for kernel in self.changed]
        return "\n".join(["other bytes", *each, *(f"not measured: {call}" for call in self.missing)])


@dataclass(frozen=True)
class Original:
    """An artifact that can be replayed: its files, what its manifest states, and the log of each binding."""

    members: Mapping[str, bytes]
    manifest: Mapping[str, Any]
    options: CompileOptions
    logs: tuple[Log, ...]

    @staticmethod
    def of(artifact: Path) -> Original:
        """What lies at `artifact`.

        Raises ArtifactUnusable for a file that is damaged or packs no log, and for an artifact for several devices or
        of a model compiled whole.
        """
        members = members_of(artifact)
        manifest = json.loads(members[MANIFEST])
        if (kind := kinds.find(str(manifest["target"]))) is not None and kind.whole:
            raise ArtifactUnusable(
                f"an artifact for {manifest['target']} packs no measurements to replay", fix="compile the model again"
            )
        options = CompileOptions.from_json(manifest["options"])
        if options.devices:
            raise ArtifactUnusable(
                "an artifact for several devices cannot be replayed", fix="replay one for each device"
            )
        logs = tuple(Log.parse(text.decode()) for text in _logs(manifest, members))
        return Original(members, manifest, options, logs)


def reproduce(
    artifact: Path,
    model: Path,
    out: Path,
    data: Mapping[str, Path] | None = None,
    samples: Sequence[Path] = (),
    observe: Any = None,
) -> Reproduced:
    """Compiles `model` to `out` as `artifact` was; `data` and `samples` as `Request` has them.

    Raises ArtifactUnusable for an artifact that packs no log or is for several devices or a model compiled
    whole, InputsError where the samples
    are not those that it was judged on, and the errors of `compile_model`.
    """
    original = Original.of(artifact)
    members, manifest, logs = original.members, original.manifest, original.logs
    given = _samples(manifest, samples)
    request = Request(model, out, original.options, data, given, logs)
    compile_model(request, Host(observe=observe or ignore, measure=False))
    made = members_of(out)
    before, now = functions_of(members), functions_of(made)
    plan = json.loads(members[PLAN])
    differing = tuple(sorted(name for name in {*members, *made} if members.get(name) != made.get(name)))
    return Reproduced(
        hashlib.sha256(artifact.read_bytes()).hexdigest(),
        hashlib.sha256(out.read_bytes()).hexdigest(),
        sum(len(log.entries) for log in logs),
        differing,
        tuple(first_field(name, members, made) for name in differing if Path(name).name == PLAN),
        tuple(reasons(manifest, json.loads(made[MANIFEST]))),
        tuple(_missing(plan, json.loads(made[PLAN]))),
        len(now),
        tuple(sorted(name for name in {*before, *now} if before.get(name) != now.get(name))),
        sum(call["predicted_from"] == "measured" for call in plan["calls"]),
    )


def first_field(name: str, before: Mapping[str, bytes], now: Mapping[str, bytes]) -> str:
    """Where two members of JSON that differ first do: the path of keys and positions, and what stands there in both."""
    one, other = (json.loads(members[name]) if name in members else ABSENT for members in (before, now))
    path = ""
    while True:
        if isinstance(one, dict) and isinstance(other, dict):
            places: Sequence[Any] = [*one, *(key for key in other if key not in one)]
            pairs = [(place, one.get(place, ABSENT), other.get(place, ABSENT)) for place in places]
        elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
            pairs = [(place, *pair) for place, pair in enumerate(zip(one, other, strict=True))]
        else:
            return f"{name}: {path or 'all of it'} was {_short(one)}, here {_short(other)}"
        apart = next((pair for pair in pairs if pair[1] != pair[2]), None)
        if apart is None:
            return f"{name}: the same fields in another text"
        place, one, other = apart
        path = f"{path}.{place}" if path else str(place)


def _short(value: Any) -> str:
    if isinstance(value, list):
        return f"a list of {len(value)}"
    text = value if value is ABSENT else json.dumps(value)
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."


def members_of(artifact: Path) -> dict[str, bytes]:
    """All files of an artifact, each of which must be the one that its manifest promises."""
    try:
        with zipfile.ZipFile(artifact) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
        promised = {name: one["sha256"] for name, one in json.loads(members[MANIFEST])["files"].items()}
    except (zipfile.BadZipFile, KeyError, TypeError, ValueError) as error:
        raise ArtifactUnusable(f"{artifact} is no artifact: {error}", fix=ANOTHER) from error
    for name, digest in promised.items():
        if hashlib.sha256(members.get(name, b"")).hexdigest() != digest:
            raise ArtifactUnusable(f"{name} in {artifact} is missing or damaged", fix=ANOTHER)
    return members


def functions_of(members: Mapping[str, bytes]) -> dict[str, dict[str, str]]:
    """The functions of each kernel in an artifact's sources; those of a further binding with its folder before."""
    files: dict[str, dict[str, str]] = {}
    for name, text in members.items():
        folder, source, _ = name.rpartition("source/kernels_")
        if source:
            files.setdefault(folder, {})[name] = text.decode()
    found: dict[str, dict[str, str]] = {}
    for folder, texts in files.items():
        functions = gather(texts).functions
        for name, kernel in kernels_of(functions).items():
            found.setdefault(folder + kernel, {})[name] = functions[name]
    return found


def folders_of(manifest: Mapping[str, Any]) -> list[str]:
    """Where the files of each program lie, of one profile after the other: prefixes of members' names."""
    profiles = manifest.get("profiles") or (manifest,)
    return [one["folder"] for profile in profiles for one in profile.get("bindings", ())] or [""]


def _logs(manifest: Mapping[str, Any], members: Mapping[str, bytes]) -> list[bytes]:
    """The log of each binding, in order, then of each portion."""
    chunks = manifest.get(CHUNKS, {})
    folders = [*folders_of(manifest), *(chunks[name]["folder"] for name in ("before", "behind") if name in chunks)]
    lacking = [folder + MEMBER for folder in folders if folder + MEMBER not in members]
    if lacking:
        raise ArtifactUnusable(
            f"the artifact has no {lacking[0]}, without which its measurements are missing",
            fix="it is of an older compiler: compile the model again",
        )
    return [members[folder + MEMBER] for folder in folders]


def _samples(manifest: Mapping[str, Any], samples: Sequence[Path]) -> dict[str, Path]:
    """Those that the artifact was judged on, or its ranges come from, in order.

    Raises InputsError where one is missing.
    """
    found = {hashlib.sha256(path.read_bytes()).hexdigest(): path for path in samples}
    wanted = manifest.get("quantised", manifest).get("samples", ())
    for digest in wanted:
        if digest not in found:
            raise InputsError(
                f"the sample with SHA-256 {digest}, on which the artifact was judged, is missing",
                fix="name its .npz with --samples",
            )
    return {str(found[digest]): found[digest] for digest in wanted}


def reasons(before: Mapping[str, Any], now: Mapping[str, Any], stated: Sequence[str] = STATED) -> list[str]:
    """What two manifests state otherwise of what decides the bytes, beside options and measurements."""
    found = [f"{name} was {before.get(name)!r}, here {now.get(name)!r}" for name in stated if before[name] != now[name]]
    probed = ['"probe"' in json.dumps(one) for one in (before, now)]
    return [*found, "it has a probe, which needs a machine that runs it"] if probed == [True, False] else found


def _missing(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Calls whose time was measured then, and is the cost model's now."""
    calls = zip(before["calls"], now["calls"], strict=False)
    return [
        f"call {at}, {then['family']} of {', '.join(then['sources'])}"
        for at, (then, here) in enumerate(calls)
        if then["predicted_from"] == "measured" and here["predicted_from"] != "measured"
    ]


def main(arguments: list[str] | None = None) -> int:
    """Exit status 0 for the same bytes, 5 for others, 1 where it cannot be compiled, 2 for wrong arguments."""
    parser = argparse.ArgumentParser(prog="python -m compiler.reproduce", description="Make an artifact again.")
    parser.add_argument("artifact", type=Path, help="the .tw file")
    parser.add_argument("model", type=Path, help="the ONNX file that it was compiled from")
    parser.add_argument("-o", "--out", type=Path, help="keep what is made here")
    parser.add_argument("--samples", type=Path, nargs="+", default=[], metavar="FILE.npz", help="if it was given any")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    given = parser.parse_args(arguments)
    try:
        with tempfile.TemporaryDirectory(prefix="reproduce-") as folder:
            out = given.out or Path(folder) / "made.tw"
            found = reproduce(given.artifact, given.model, out, samples=given.samples)
    except (TilewrightError, OSError) as error:
        code = error.code if isinstance(error, TilewrightError) else "unreadable_file"
        print(json.dumps({"error": {"code": code, "message": str(error)}}) if given.json else "", end="")
        print(f"{given.artifact}: {error} (compiler {COMPILER_VERSION})", file=sys.stderr)
        return 1
    print(json.dumps(found.to_json(), indent=2) if given.json else found)
    return 0 if found.is_same else OTHER_BYTES


if __name__ == "__main__":
    raise SystemExit(main())
