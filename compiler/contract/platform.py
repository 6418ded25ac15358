"""A described platform: devices, what joins them, and where the times of each one's kernels come from (a TOML file)."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, Field, Strict, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from compiler.errors import OptionsError, Refusal

CONFIG = ConfigDict(extra="forbid")
MOST_DEVICES = 8
"""With copies: the search gives each a factor of its own."""
MOST_BYTES = 1 << 20
"""Of a platform's file."""

Text = Annotated[str, Strict(), Field(min_length=1, max_length=400)]
Count = Annotated[int, Strict()]
Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


@dataclass(frozen=True, config=CONFIG)
class Formula:
    """Times by a formula: `max(macs / rate, bytes / rate)` of sums of products, elements / rate of all else.

    macs, elements  per second: multiply-accumulates; elements of other operators' results
    depthwise       multiply-accumulates per second of convolutions with a group for each channel; None: as `macs`
    bytes           per second of operands and results from memory; None: never what limits
    call            seconds of each stage that begins; `operator` of each operator that computes something
    element_bytes   of an element, as it is stored and sent
    unsupported     operators, in ONNX's names, that cannot run there
    """

    macs: Rate
    elements: Rate
    depthwise: Rate | None = None
    bytes: Rate | None = None
    call: Seconds = 0.0
    operator: Seconds = 0.0
    element_bytes: Annotated[int, Strict(), Field(ge=1, le=16)] = 4
    unsupported: tuple[Text, ...] = ()


@dataclass(frozen=True, config=CONFIG)
class Accelerator:
    """An accelerator by a profile of `legalise`: its operators with their constraints, and its estimate of costs.

    A stage costs a call, its operators, and weights that do not fit on the chip, brought again each time.

    profile      a name, a file beside the platform's, or the fields of one
    operators    further operators that it carries out without constraints: the profile lists what `legalise` may write
    operator     seconds of each operator that computes something
    call, macs, elements, memory, streamed  instead of the profile's
    """

    profile: Text | dict[str, Any]
    operators: tuple[Text, ...] = ()
    operator: Seconds = 0.0
    call: Seconds | None = None
    macs: Rate | None = None
    elements: Rate | None = None
    memory: Seconds | None = None
    streamed: Rate | None = None


@dataclass(frozen=True, config=CONFIG)
class Records:
    """Measured times of nodes by name (or of operators), in seconds; a node without one cannot run there.

    A formula beside them gives times of other nodes.

    file   a JSON object with them, beside the platform's file
    times  or the object itself
    clock  per second: they are cycles
    """

    file: Text | None = None
    times: dict[Text, Seconds] | None = None
    clock: Rate | None = None
    call: Seconds = 0.0
    element_bytes: Annotated[int, Strict(), Field(ge=1, le=16)] = 4


@dataclass(frozen=True, config=CONFIG)
class PlatformDevice:
    """One device, or `count` equal ones: `name.0`, `name.1`."""

    about: Text = "a device"
    count: Annotated[int, Strict(), Field(ge=1, le=MOST_DEVICES)] = 1
    memory: Text | None = None
    formula: Formula | None = None
    records: Records | None = None
    accelerator: Accelerator | None = None


@dataclass(frozen=True, config=CONFIG)
class Link:
    """What joins two devices, one for each copy: `latency` of a message, `bytes` per second, `back` the other way.

    overlaps  whether a device computes while its link sends; otherwise neither copy of the second device does
    """

    between: tuple[Text, Text]
    bytes: Rate
    latency: Seconds = 0.0
    back: Rate | None = None
    overlaps: Annotated[bool, Strict()] = True


@dataclass(frozen=True, config=CONFIG)
class Memory:
    """A memory that devices share: `bytes` of weights that fit, `handover` seconds until another one goes on there."""

    bytes: Rate
    handover: Seconds = 0.0


@dataclass(frozen=True, config=CONFIG)
class Platform:
    """What a file describes. `host` has a frame's inputs and is given its outputs; without it the first device."""

    about: Text
    sources: Annotated[tuple[Text, ...], Field(min_length=1)]
    devices: Annotated[dict[Text, PlatformDevice], Field(min_length=1)]
    links: dict[Text, Link] = Field(default_factory=dict)
    memories: dict[Text, Memory] = Field(default_factory=dict)
    host: Text | None = None

    def names(self) -> tuple[tuple[str, str], ...]:
        """Each copy's name, and the name of its description."""
        return tuple(
            (name if one.count == 1 else f"{name}.{at}", name)
            for name, one in self.devices.items()
            for at in range(one.count)
        )


def open_platform(path: Path) -> Platform:
    """The platform that a file describes. Raises OptionsError, which names each wrong field and what to write."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise OptionsError(
                f"{path.name} has more than {MOST_BYTES} bytes", fix="give the description of a platform"
            )
        said = tomllib.loads(path.read_text())
    except OSError as error:
        raise OptionsError(
            f"the platform {str(path)!r:.100} cannot be read: {error.strerror}", fix="give the path of a .toml file"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise OptionsError(f"{path.name} is no TOML: {error}", fix="correct the line that it names") from None
    return parse_platform(said)


def parse_platform(said: Mapping[str, Any]) -> Platform:
    """A platform from what a file says. Raises OptionsError with every fault."""
    try:
        found = TypeAdapter(Platform).validate_python(said)
    except ValidationError as error:
        raise _refused([_fault(one) for one in error.errors(include_url=False)]) from None
    if faults := _faults(found):
        raise _refused(faults)
    return found


def _refused(faults: list[Refusal]) -> OptionsError:
    many = f"the platform has {len(faults)} faults, first: " if len(faults) > 1 else ""
    return OptionsError(
        f"{many}{faults[0].reason}", fix=faults[0].fix, refusals=tuple(faults) if len(faults) > 1 else ()
    )


def _fault(error: Mapping[str, Any]) -> Refusal:
    at = ".".join(map(str, error["loc"])) or "the platform"
    kind, context = error["type"], error.get("ctx") or {}
    if kind in ("missing", "missing_argument"):
        return Refusal(f"{at} is missing", fix=f"write it: docs/placement.md shows a platform with {at.split('.')[-1]}")
    if kind in ("unexpected_keyword_argument", "extra_forbidden"):
        return Refusal(f"{at} is no field", fix="remove it, or correct its name: docs/placement.md lists the fields")
    bounds = {"greater_than": "above", "greater_than_equal": "of at least", "less_than_equal": "of at most"}
    said = f"{at} is {error['input']!r:.60}"
    if kind in bounds:
        return Refusal(said, fix=f"write a number {bounds[kind]} {next(iter(context.values()))}")
    return Refusal(said, fix=f"write what it should be: {error['msg'].lower()}")


def _faults(found: Platform) -> list[Refusal]:
    faults = []
    known = f"the devices are {', '.join(found.devices)}"
    for name, one in found.devices.items():
        given = [kind for kind in ("formula", "records", "accelerator") if getattr(one, kind) is not None]
        if given not in (["formula"], ["records"], ["accelerator"], ["formula", "records"]):
            said = " and ".join(given) or "nothing"
            faults.append(
                Refusal(
                    f"devices.{name} takes its times from {said}",
                    fix=f"write one of [devices.{name}.formula], [devices.{name}.records], "
                    f"[devices.{name}.accelerator]; a formula may stand beside records, for nodes that these lack",
                )
            )
        if one.records is not None and (one.records.file is None) == (one.records.times is None):
            faults.append(
                Refusal(
                    f"devices.{name}.records has {'no times' if one.records.file is None else 'times twice'}",
                    fix="write either `file`, a JSON file beside this one, or `times`",
                )
            )
        if one.memory is not None and one.memory not in found.memories:
            faults.append(
                Refusal(
                    f"devices.{name}.memory is {one.memory!r:.60}, which is not described",
                    fix=f"write [memories.{one.memory}], or leave it out",
                )
            )
    for name, link in found.links.items():
        for end in link.between:
            if end not in found.devices:
                faults.append(Refusal(f"links.{name}.between names {end!r:.60}, which is no device", fix=known))
        if link.between[0] == link.between[1] and found.devices.get(link.between[0], PlatformDevice()).count == 1:
            faults.append(Refusal(f"links.{name}.between names one device twice", fix="name its two ends"))
    if found.host is not None and found.host not in {name for name, _ in found.names()}:
        faults.append(
            Refusal(
                f"host is {found.host!r:.60}, which is no device",
                fix=f"write one of {', '.join(name for name, _ in found.names())}",
            )
        )
    if len(found.names()) > MOST_DEVICES:
        faults.append(
            Refusal(f"there are {len(found.names())} devices", fix=f"describe at most {MOST_DEVICES}, copies counted")
        )
    if not faults:
        faults += _unreached(found)
    return faults


def _unreached(found: Platform) -> list[Refusal]:
    """Devices to which nothing leads from the host."""
    names = dict(found.names())
    host = found.host or next(iter(names))
    reached, waiting = {host}, [names[host]]
    while waiting:
        at = waiting.pop()
        joined = [set(link.between) for link in found.links.values() if at in link.between]
        memory = found.devices[at].memory
        joined += [{name for name, one in found.devices.items() if memory and one.memory == memory}]
        for one in sorted(set().union(*joined) - reached):
            if one not in {names[name] for name in reached}:
                waiting.append(one)
            reached |= {name for name, kind in names.items() if kind == one}
    return [
        Refusal(
            f"nothing leads from {host} to {name}", fix=f"write a link between {names[host]} and {kind}, or a memory"
        )
        for name, kind in names.items()
        if name not in reached
    ]
