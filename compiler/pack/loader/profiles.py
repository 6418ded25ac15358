"""Which of several programs a processor takes: an artifact may hold one for each of several profiles."""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from compiler.pack.loader.errors import ArtifactError, WrongMachine

_CPUINFO = Path("/proc/cpuinfo")
_TILES = "amx_tile"
_ARCH_PRCTL, _ASK_FOR, _TILE_DATA = 158, 0x1023, 18


def cpu_features(cpuinfo: Path) -> frozenset[str]:
    """What a processor has, by the names of its /proc/cpuinfo; nothing where there is none."""
    try:
        text = cpuinfo.read_text()
    except OSError:
        return frozenset()
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("flags", "Features"):
            return frozenset(value.split())
    return frozenset()


def grants_tiles() -> bool:
    """Whether the operating system lets this process use AMX tiles: Linux wants to be asked, once (since 5.16)."""
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return False
    return bool(ctypes.CDLL(None).syscall(_ARCH_PRCTL, _ASK_FOR, ctypes.c_long(_TILE_DATA)) == 0)


def _features() -> frozenset[str]:
    """What this processor has; tiles of AMX only where the system grants them."""
    found = cpu_features(_CPUINFO)
    return found - {_TILES} if _TILES in found and not grants_tiles() else found


def _fits(required: Mapping[str, Any], features: Collection[str]) -> bool:
    return required["machine"] == platform.machine() and {*required["features"]} <= {*features}


def _of_profile(manifest: Mapping[str, Any], profile: str | None) -> dict[str, Any]:
    """A manifest as if the artifact were made for one profile alone: the one that is named, else the most able here.

    Raises ArtifactError for a profile that it does not hold, WrongMachine where this processor has none of them.
    """
    listed: Sequence[Mapping[str, Any]] = manifest.get("profiles", ())
    names = ", ".join(str(one["target"]) for one in listed) or str(manifest["target"])
    if profile is not None and profile not in (one["target"] for one in listed or (manifest,)):
        raise ArtifactError(f"the artifact has no program for {profile}", f"name one that it has: {names}")
    if not listed:
        return dict(manifest)
    features = _features()
    able = [one for one in listed if (profile == one["target"] if profile else _fits(one["requires"], features))]
    if not able:
        raise WrongMachine(f"the artifact is for {names}, and this machine has none of them", "compile it for this one")
    return {**{key: value for key, value in manifest.items() if key not in ("verified", "unshown")}, **able[0]}
