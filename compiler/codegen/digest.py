"""What identifies a kernel's code, so that what was measured of it counts for as long as the code stays the same.

Two texts are the same code whose tokens are the same but for the function's own name: comments and blanks play no part.
Of a header those declarations count that the text uses, so that a new one changes no other kernel.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

DIGITS = 16
"""Hexadecimal, of a digest."""
COMMENT = re.compile(r'("(?:[^"\\\n]|\\.)*")|/\*.*?\*/|//[^\n]*', re.DOTALL)
WORD = re.compile(r"[A-Za-z_]\w*")
INCLUDED = re.compile(r'#\s*include\s+"([^"]+)"')
DIRECTIVE = re.compile(r"\s*#\s*(\w+)\s*(\w*)")
DECLARED = re.compile(r"(?:struct|union|enum)\s+(\w+)\s*\{|(\w+)\s*(?:\(|\[[^;]*;|=|;)")
PASTED = re.compile(r"\b(tw_\w+)\s*##")


def source_digest(name: str, text: str, headers: Mapping[str, str], facts: Sequence[object]) -> str:
    """SHA-256 (16 hex digits) of the kernel `name` in `text`.

    `headers` are those that it, or one of them, may include, by file name; `facts` what else its code depends on, such
    as flags and how it is launched.
    """
    bare = uncommented(text).replace(name, "kernel")
    included: dict[str, str] = {}
    asked = INCLUDED.findall(bare)
    while asked:
        one = asked.pop()
        if one in headers and one not in included:
            included[one] = headers[one]
            asked += INCLUDED.findall(headers[one])
    used = _used(frozenset(WORD.findall(bare)), tuple(included.values()))
    return hashlib.sha256(repr((" ".join(bare.split()), used, *map(str, facts))).encode()).hexdigest()[:DIGITS]


def uncommented(text: str) -> str:
    """C or CUDA C++ with a blank for each comment."""
    return COMMENT.sub(lambda found: found[1] or " ", text)


@dataclass(frozen=True)
class _Part:
    """A declaration or a directive of a header, with the conditions that it stands under.

    `name` is what it declares; empty where that is not seen: then it counts for every kernel.
    """

    name: str
    text: str
    words: frozenset[str]


def _used(words: frozenset[str], headers: tuple[str, ...]) -> tuple[str, ...]:
    """What a text with these words uses of headers.

    All of them where it uses a name that a macro makes of parts.
    """
    parts = [part for header in headers for part in _parts(header)]
    stems = tuple(stem for header in headers for stem in PASTED.findall(header))
    names = {part.name for part in parts}
    if any(word.startswith(stems) and word not in names for word in words):
        return tuple(part.text for part in parts)
    seen, asked = set[str](), set(words)
    while asked:
        seen |= asked
        asked = {word for part in parts if not part.name or part.name in asked for word in part.words} - seen
    return tuple(part.text for part in parts if not part.name or part.name in seen)


@lru_cache(maxsize=32)
def _parts(header: str) -> tuple[_Part, ...]:
    conditions: list[str] = []
    found = []
    for text in _pieces(uncommented(header)):
        directive = DIRECTIVE.match(text)
        word = directive[1] if directive else ""
        if word in {"if", "ifdef", "ifndef"}:
            conditions.append(text)
        elif word in {"else", "elif"}:
            conditions[-1] += f" {text}"
        elif word == "endif":
            conditions.pop()
        elif word not in {"pragma", "undef"}:
            declared = DECLARED.search(text)
            name = directive[2] if directive else (declared[1] or declared[2]) if declared else ""
            name = "" if name.startswith("__") or word == "include" else name
            whole = " ".join((*conditions, text))
            found.append(_Part(name, whole, frozenset(WORD.findall(whole))))
    return tuple(found)


def _pieces(text: str) -> Iterator[str]:
    """Directives, and what ends in a semicolon or a brace outside of all others; blanks are single."""
    piece: list[str] = []
    depth = 0
    joined = re.sub(r"\\\n", " ", text)
    for line in joined.splitlines():
        words = " ".join(line.split())
        if not words:
            continue
        if words.startswith("#") and not depth:
            if piece:
                yield " ".join(piece)
            piece = []
            yield words
            continue
        piece.append(words)
        bare = re.sub(r'"(?:[^"\\]|\\.)*"', "", words)
        depth += sum(bare.count(one) for one in "{(") - sum(bare.count(one) for one in "})")
        if not depth and words[-1] in ";})":
            yield " ".join(piece)
            piece = []
    if piece:
        yield " ".join(piece)
