"""Which programs this machine can run: by their first bytes, and of one for each of several profiles the ablest."""

from __future__ import annotations

import ctypes
import platform
import struct
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from compiler.pack.loader.errors import ArtifactError, WrongMachine

_CPUINFO = Path("/proc/cpuinfo")
_TILES = "amx_tile"
_ARCH_PRCTL, _ASK_FOR, _TILE_DATA = 158, 0x1023, 18
_SYSTEMS = {"linux": ("Linux", "linux"), "win32": ("Windows", "windows"), "darwin": ("macOS", "macos")}
"""By Python's name: how a system is called, and the value of the option `system` that makes programs for it."""
_ELF = {62: "x86_64", 183: "aarch64"}
_PE = {0x8664: "x86_64", 0xAA64: "aarch64"}
_MACH_O = {0x01000007: "x86_64", 0x0100000C: "aarch64"}
"""Each format's numbers of the architectures."""
_OTHER = "another architecture"
_WHOLE = {"x86_64": ("cpu:x86-64", "cpu:x86-64-v2"), "aarch64": ("cpu:arm64", "cpu:aarch64")}
"""By architecture: the target of all its processors, and the profile that asks least of them."""


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
        if sys.platform != "linux":  # which those with several profiles are made for
            raise _of_system("linux")
        fix = _fix([one["target"] for one in listed])
        raise WrongMachine(f"the artifact is for {names}, and this machine has none of them", fix)
    return {**{key: value for key, value in manifest.items() if key not in ("verified", "unshown")}, **able[0]}


def _built_for(code: bytes) -> tuple[str, str] | None:
    """System, as Python calls it, and architecture of a shared library; None for what is none.

    By the headers of ELF, of PE (Microsoft's PE format, "COFF File Header"), and of Mach-O (mach-o/loader.h).
    """
    if len(code) < 64:
        return None
    if code[:4] == b"\x7fELF":
        return "linux", _ELF.get(struct.unpack_from("<H", code, 18)[0], _OTHER)
    if code[:4] == b"\xcf\xfa\xed\xfe":
        return "darwin", _MACH_O.get(struct.unpack_from("<I", code, 4)[0], _OTHER)
    at = struct.unpack_from("<I", code, 60)[0]
    if code[:2] == b"MZ" and code[at : at + 4] == b"PE\0\0" and at + 6 <= len(code):
        return "win32", _PE.get(struct.unpack_from("<H", code, at + 4)[0], _OTHER)
    return None


def _machine() -> str:
    """This one's architecture, as Linux calls it."""
    return {"AMD64": "x86_64", "ARM64": "aarch64", "arm64": "aarch64"}.get(platform.machine(), platform.machine())


def _of_system(system: str) -> WrongMachine:
    """For what is made for another system, by Python's name, with the option that makes one for this one."""
    here, option = _SYSTEMS.get(sys.platform, (sys.platform, ""))
    how = f"compile it with the option system {option} (--system {option})" if option else "run it there"
    return WrongMachine(f"the artifact is for {_SYSTEMS[system][0]}, this is {here}", how)


def _fix(held: Collection[str] = ()) -> str:
    """The target that makes what runs on this machine, unless it is among the profiles that an artifact holds."""
    whole, least = _WHOLE.get(_machine(), ("", ""))
    if not whole:
        return f"compile the model for cpu on {_machine()}"
    if least in held:
        return "run it on another machine: no target asks less"
    return f"compile it for this one: --target {whole}"


def _check_machine(code: bytes) -> None:
    """Raises WrongMachine for a program that this machine or its system cannot run, with the option that makes one."""
    if code[:4] == b"\0asm":
        raise WrongMachine(
            "the model is compiled for browsers",
            "tilewright export model.tw FOLDER --as browser, or compile it for cpu",
        )
    built = _built_for(code)
    if built is None:
        return
    system, machine = built
    if system != sys.platform:
        raise _of_system(system)
    if machine != _machine():
        fix = _fix()
        if system != "linux":
            profile = {"x86_64": "cpu:x86-64-v3", "aarch64": "cpu:aarch64"}.get(_machine(), "a profile of it")
            fix = f"compile it for this one: --target {profile} --system {_SYSTEMS[system][1]}"
        raise WrongMachine(f"the artifact is for {machine}, this machine is {_machine()}", fix)
