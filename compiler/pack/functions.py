"""Generated C and CUDA by function: which text belongs to which kernel, whichever file it stands in."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

ATTRIBUTES = re.compile(r"__attribute__\s*\(\(.*?\)\)(?=\s)|__launch_bounds__\s*\([^)]*\)")
NAME = re.compile(r"(\w+)\s*\(")
KERNEL = re.compile(r"[a-z]\d+(?=_)")


@dataclass(frozen=True)
class Source:
    """The functions of one file by name, each with the comment above it, and the lines between them."""

    functions: Mapping[str, str]
    rest: str


@dataclass(frozen=True)
class Sources:
    """The functions of several files, the file that each stands in, and the other lines of each file."""

    functions: dict[str, str] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)
    rests: dict[str, str] = field(default_factory=dict)


def cut(text: str) -> Source:
    """A file as the printers write it: functions begin in the first column, and end with a brace there.

    A second function of the same name (a specialisation) gets a number.
    """
    functions: dict[str, str] = {}
    rest: list[str] = []
    comment: list[str] = []
    body: list[str] = []
    name = ""
    commenting = False
    for line in text.splitlines():
        if name:
            body.append(line)
            if line == "}":
                functions[name] = "\n".join(body)
                name, body = "", []
        elif commenting or line.startswith("/*"):
            comment.append(line)
            commenting = "*/" not in line
        elif begun := _begun(line):
            name = begun if begun not in functions else f"{begun}#{sum(one.startswith(begun) for one in functions)}"
            body, comment = [*comment, line], []
        else:
            rest += [*comment, line]
            comment = []
    return Source(functions, "\n".join([*rest, *comment, *body]))


def _begun(line: str) -> str:
    """The name of the function whose body begins with this line; empty where none does."""
    if not line.endswith("{") or line[:1] in " \t#/}" or " = " in line:
        return ""
    found = NAME.search(ATTRIBUTES.sub("", line))
    return found[1] if found else ""


def gather(files: Mapping[str, str]) -> Sources:
    """All functions of several files. Of two functions of one name in two files the later has its file in its name."""
    gathered = Sources()
    for file, text in sorted(files.items()):
        source = cut(text)
        for name, body in source.functions.items():
            known = name if name not in gathered.functions else f"{file}:{name}"
            gathered.functions[known], gathered.places[known] = body, file
        gathered.rests[file] = source.rest
    return gathered


def kernels_of(functions: Iterable[str]) -> dict[str, str]:
    """Each function's kernel, by the number that its name begins with: the shortest name with that number.

    A function without a number is its own kernel.
    """
    shortest: dict[str, str] = {}
    of: dict[str, str] = {}
    for name in sorted(functions, key=lambda one: (len(one), one)):
        numbered = KERNEL.match(name)
        of[name] = shortest.setdefault(numbered[0], name) if numbered else name
    return of
