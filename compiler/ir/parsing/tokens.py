"""Tokens of the text forms, and a cursor over them that says what it expected and where."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")

_TOKEN = re.compile(
    r"""
    (?P<space>\s+)
  | (?P<string>"(?:[^"\\\n]|\\.)*")
  | (?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)
  | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
  | (?P<sign>\.\.|//|->|[()\[\]{}<>:;,.=+\-*%\#@])
    """,
    re.VERBOSE | re.ASCII,
)


class ParseError(ValueError):
    """A text that is not what it should be: the line, what was expected, what is there."""

    def __init__(self, line: int, expected: str, found: str) -> None:
        super().__init__(f"line {line}: expected {expected}, found {found}")
        self.line = line
        self.expected = expected


@dataclass(frozen=True)
class Token:
    """`kind` is string, number, word, sign or end."""

    kind: str
    text: str
    line: int

    def __str__(self) -> str:
        return "the end of the text" if self.kind == "end" else f"`{self.text}`"


def tokenize(text: str) -> tuple[Token, ...]:
    """Raises ParseError at a character that begins no token."""
    tokens, at, line = [], 0, 1
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise ParseError(line, "a token", f"`{text[at]}`")
        kind = str(match.lastgroup)
        if kind != "space":
            tokens.append(Token(kind, match.group(), line))
        line += match.group().count("\n")
        at = match.end()
    return (*tokens, Token("end", "", line))


class Cursor:
    """A place in a text. Every method moves past what it returns, or raises ParseError."""

    def __init__(self, text: str) -> None:
        self._tokens = tokenize(text)
        self._at = 0

    @property
    def next(self) -> Token:
        """The token that comes next, without moving past it; at the end one of kind `end`."""
        return self._tokens[self._at]

    def peek(self, *texts: str) -> bool:
        """Whether signs or words with these texts come next."""
        ahead = self._tokens[self._at : self._at + len(texts)]
        return tuple(token.text for token in ahead if token.kind in ("sign", "word")) == texts

    def accept(self, text: str) -> bool:
        """Moves past a sign or word if it comes next."""
        found = self.peek(text)
        self._at += found
        return found

    def expect(self, *texts: str) -> None:
        """Moves past these signs and words."""
        for text in texts:
            if not self.accept(text):
                raise self.fault(f"`{text}`")

    def fault(self, expected: str) -> ParseError:
        """The error, not raised, that something else was expected here."""
        return ParseError(self.next.line, expected, str(self.next))

    def take(self, kind: str, expected: str) -> str:
        """The text of a token of this kind."""
        if self.next.kind != kind:
            raise self.fault(expected)
        self._at += 1
        return self._tokens[self._at - 1].text

    def word(self, expected: str = "a name") -> str:
        """The next token, which must be a word. Raises what `take` raises."""
        return self.take("word", expected)

    def string(self) -> str:
        """A JSON string."""
        fault = self.fault("a JSON string")
        try:
            return str(json.loads(self.take("string", "a JSON string")))
        except json.JSONDecodeError as error:
            raise fault from error

    def optional_string(self) -> str:
        """A JSON string, or the empty one where none comes next."""
        return self.string() if self.next.kind == "string" else ""

    def name(self) -> str:
        """A word, or a JSON string for a name that is none."""
        return self.string() if self.next.kind == "string" else self.word()

    def integer(self) -> int:
        """An integer, perhaps with a minus sign."""
        negative = self.accept("-")
        if not self.next.text.isdigit():
            raise self.fault("an integer")
        return int(self.take("number", "an integer")) * (-1 if negative else 1)

    def number(self) -> int | float:
        """An integer or a float, which may be `inf` or `nan`."""
        sign = -1 if self.accept("-") else 1
        if self.next.text in ("inf", "nan"):
            return sign * float(self.word())
        text = self.take("number", "a number")
        return sign * (int(text) if text.isdigit() else float(text))

    def identity(self, prefix: str, expected: str) -> int:
        """The 7 of `b7`."""
        text = self.next.text
        if self.next.kind != "word" or not text.startswith(prefix) or not text[len(prefix) :].isdigit():
            raise self.fault(expected)
        return int(self.word()[len(prefix) :])

    def repeated(self, item: Callable[[], T], separator: str = ",") -> tuple[T, ...]:
        """One or more items."""
        items = [item()]
        while self.accept(separator):
            items.append(item())
        return tuple(items)

    def listed(self, item: Callable[[], T], opening: str, closing: str) -> tuple[T, ...]:
        """Items between brackets, perhaps none; a comma may follow the last."""
        self.expect(opening)
        items: list[T] = []
        while not self.accept(closing):
            items.append(item())
            if not self.accept(","):
                self.expect(closing)
                break
        return tuple(items)

    def end(self) -> None:
        """Raises ParseError unless the text ends here."""
        if self.next.kind != "end":
            raise self.fault("the end of the text")
