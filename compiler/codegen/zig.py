"""Zig's C compiler, which makes code for other operating systems and architectures, and C that these compile alike.

The wheel `ziglang` brings it; it builds a C library when it first links one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from compiler.contract.systems import LINUX, MACOS, WINDOWS

TRIPLES = {LINUX.name: "{}-linux-gnu", WINDOWS.name: "{}-windows-gnu", MACOS.name: "{}-macos.13.0"}
"""How Zig calls a system, by that of the option `system`, for an architecture."""
COMPILING = ("-fno-sanitize=undefined", "-fno-stack-protector")
"""Zig adds these where code is not optimised."""
_RUNTIMES = ("convert", "filesystem", "heap", "math", "private", "runtime", "stdio", "string", "time", "utility")
ALONE: Mapping[str, tuple[str, ...]] = {
    WINDOWS.name: ("-nostdlib", "-lkernel32", *(f"-lapi-ms-win-crt-{part}-l1-1-0" for part in _RUNTIMES))
}
"""How to link without the C library that Zig would build first, a minute and a half of a core, for systems that bring
one: the functions of C are Windows' own, and `tw_windows.h` has the rest, which COMPILING_ALONE switches on.
"""
COMPILING_ALONE = ("-DTW_ALONE", "-D__USE_MINGW_ANSI_STDIO=0")
STARTING: Mapping[str, tuple[str, ...]] = {WINDOWS.name: ("-Wl,-e,mainCRTStartup",)}
"""Where such a program begins; the linker would look for a window's."""
LINKING: Mapping[str, tuple[str, ...]] = {
    LINUX.name: ("-shared", "-Wl,--build-id=none", "-Wl,-z,noexecstack", "-pthread"),
    WINDOWS.name: ("-shared", "-s", "-Wl,-Brepro", *ALONE[WINDOWS.name]),
    MACOS.name: ("-shared", "-s", "-pthread"),
}
_CPUS = {"armv8-a": "generic", "armv8.2-a": "generic+v8_2a"}
_WIDE = re.compile(
    r"""(?P<kept>/\*.*?\*/|//[^\n]*|'(?:\\.|[^'\\\n])+')
    |(?P<text>"(?:\\.|[^"\\\n])*")
    |(?P<type>\blong\b(?:\s+(?:long|int)\b)?(?!\s+double\b))
    |(?P<number>(?<![.\w])(?:0x[0-9a-fA-F]+|[0-9]+))(?P<unsigned>[uU]?)[lL]\b""",
    re.DOTALL | re.VERBOSE,
)


def machine_flags(flags: Sequence[str]) -> tuple[str, ...]:
    """GCC's flags of a processor as Zig spells them: one word for it and its extensions.

    `-march=x86-64-v4 -mavx512vnni` is `-mcpu=x86_64_v4+avx512vnni`. What GCC alone takes is left out.
    """
    march = next((flag.removeprefix("-march=") for flag in flags if flag.startswith("-march=")), "")
    if not march:
        return tuple(flags)
    name, *extensions = march.split("+")
    extensions += [flag.removeprefix("-m") for flag in flags if flag.startswith("-mavx")]
    others = [flag for flag in flags if flag.startswith("-mprefer")]
    return (f"-mcpu={'+'.join([_CPUS.get(name, name.replace('-', '_')), *extensions])}", *others)


def spelled_for(system: str, texts: Mapping[str, str]) -> dict[str, str]:
    """C for an operating system: `long`, which has 64 bits elsewhere and 32 on Windows, as `long long` there."""
    if system != WINDOWS.name:
        return dict(texts)
    return {name: _WIDE.sub(_widened, text) for name, text in texts.items()}


def _widened(found: re.Match[str]) -> str:
    if found["type"]:
        return "long long"
    if found["number"]:
        return f"{found['number']}{found['unsigned']}LL"
    return re.sub(r"%(\d*)l([du])", r"%\1ll\2", found["text"]) if found["text"] else found[0]
