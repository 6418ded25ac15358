"""What is spelled otherwise for Zig's compiler, and for systems on which `long` has 32 bits."""

from __future__ import annotations

import pytest

from compiler.codegen.zig import machine_flags, spelled_for
from compiler.contract.systems import LINUX, MACOS, WINDOWS
from compiler.devices.cpu.target import PROFILES


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("void f(long a, unsigned long b);", "void f(long long a, unsigned long long b);"),
        ("static _Atomic long n = 3000000000L;", "static _Atomic long long n = 3000000000LL;"),
        ("#define BYTES 4096UL", "#define BYTES 4096ULL"),
        ("x = 0x10l + 1.5L + n1L;", "x = 0x10LL + 1.5L + n1L;"),
        ("long long a; long double b; long int c;", "long long a; long double b; long long c;"),
        ("/* how long: 1L */ // as long as 2L\nlong x;", "/* how long: 1L */ // as long as 2L\nlong long x;"),
        ('fail("too long: %ld of %lu, %lld", a, b, c);', 'fail("too long: %lld of %llu, %lld", a, b, c);'),
        ("char c = '\"'; long d; char e = '\"';", "char c = '\"'; long long d; char e = '\"';"),
        ("atomic_long_thing(along, longer);", "atomic_long_thing(along, longer);"),
    ],
)
def test_long_is_long_long_on_windows_and_nowhere_else(before: str, after: str) -> None:
    assert spelled_for(WINDOWS.name, {"a.c": before}) == {"a.c": after}
    assert spelled_for(WINDOWS.name, {"a.c": after}) == {"a.c": after}
    for system in (LINUX, MACOS):
        assert spelled_for(system.name, {"a.c": before}) == {"a.c": before}


def test_processors_and_their_extensions_are_one_word() -> None:
    spelled = {profile.name: machine_flags(profile.flags) for profile in PROFILES}
    assert spelled["cpu:x86-64-v3-vnni"] == ("-mcpu=x86_64_v3+avxvnni",)
    assert spelled["cpu:x86-64-v4-vnni"] == ("-mcpu=x86_64_v4+avx512vnni", "-mprefer-vector-width=512")
    assert spelled["cpu:aarch64"] == ("-mcpu=generic",)
    assert spelled["cpu:aarch64-i8mm"] == ("-mcpu=generic+v8_2a+dotprod+i8mm",)
    assert machine_flags(("-msimd128",)) == ("-msimd128",)
