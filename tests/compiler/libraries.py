"""What a shared library for Windows or macOS says of itself: a reader of as much of the two formats as tests ask."""

from __future__ import annotations

import struct
from dataclasses import dataclass


@dataclass(frozen=True)
class Library:
    """machine is the format's own number; libraries are those that the system's linker is to find."""

    machine: int
    exports: frozenset[str]
    libraries: frozenset[str]
    imports: frozenset[str] = frozenset()
    is_signed: bool = False
    least_system: tuple[int, int] = (0, 0)


def numbers(code: bytes, at: int, form: str) -> tuple[int, ...]:
    return struct.unpack_from(f"<{form}", code, at)


def text(code: bytes, at: int) -> str:
    return code[at : code.index(b"\0", at)].decode()


def read_pe(code: bytes) -> Library:
    """Of PE32+ (Microsoft, "PE Format"): exports, and imports by library."""
    assert code[:2] == b"MZ"
    (at,) = numbers(code, 60, "I")
    assert code[at : at + 4] == b"PE\0\0"
    machine, sections = numbers(code, at + 4, "HH")
    (optional_bytes,) = numbers(code, at + 20, "H")
    optional = at + 24
    assert numbers(code, optional, "H") == (0x20B,)
    table = [numbers(code, optional + optional_bytes + 40 * one + 8, "IIII") for one in range(sections)]

    def place(address: int) -> int:
        for size, begin, held, where in table:
            if begin <= address < begin + max(size, held):
                return address - begin + where
        raise AssertionError(f"no section holds {address:#x}")

    exported, _, imported, _ = numbers(code, optional + 112, "IIII")
    count, _, names = numbers(code, place(exported) + 24, "III")
    exports = {text(code, place(numbers(code, place(names) + 4 * one, "I")[0])) for one in range(count)}
    libraries, imports = set[str](), set[str]()
    row = place(imported)
    while (found := numbers(code, row, "IIIII"))[3]:
        libraries.add(text(code, place(found[3])).lower())
        entry = place(found[0] or found[4])
        while (address := numbers(code, entry, "Q")[0]) != 0:
            if not address >> 63:
                imports.add(text(code, place(address) + 2))
            entry += 8
        row += 20
    return Library(machine, frozenset(exports), frozenset(libraries), frozenset(imports))


def read_mach_o(code: bytes) -> Library:
    """Of 64-bit Mach-O (mach-o/loader.h, mach-o/nlist.h): exported and undefined symbols, without their underscore."""
    magic, machine, _, kind, commands = numbers(code, 0, "IIIII")
    assert (magic, kind) == (0xFEEDFACF, 6), "a 64-bit library"
    exports, imports, libraries = set[str](), set[str](), set[str]()
    is_signed, least, at = False, (0, 0), 32
    for _ in range(commands):
        command, size = numbers(code, at, "II")
        if command == 0xC:  # LC_LOAD_DYLIB
            libraries.add(text(code, at + numbers(code, at + 8, "I")[0]))
        elif command == 2:  # LC_SYMTAB
            symbols, count, strings, _ = numbers(code, at + 8, "IIII")
            for one in range(count):
                name, form, _, _, _ = numbers(code, symbols + 16 * one, "IBBHQ")
                if form & 0xE0 == 0 and form & 1 and not form & 0x10:  # external, no debugger's, not private
                    (exports if form & 0xE else imports).add(text(code, strings + name).removeprefix("_"))
        elif command == 0x1D:  # LC_CODE_SIGNATURE
            is_signed = True
        elif command == 0x32:  # LC_BUILD_VERSION
            platform, version = numbers(code, at + 8, "II")
            assert platform == 1, "macOS"
            least = version >> 16, version >> 8 & 255
        at += size
    return Library(machine, frozenset(exports), frozenset(libraries), frozenset(imports), is_signed, least)
