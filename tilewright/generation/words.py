"""Text to tokens and back, by a `tokenizer.json` as Hugging Face's tokenizers read and write it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tilewright.errors import UsageError

EXTRA = "generate"
ENDS = (
    "<|endoftext|>",
    "<|im_end|>",
    "<|end_of_text|>",
    "<|eot_id|>",
    "<|end|>",
    "<end_of_turn>",
    "<eos>",
    "</s>",
)
"""Tokens that end a text or a turn, by the names that published models give them."""
UNFINISHED = "�"
"""What the bytes of a character are shown as while some are to come."""


class Words:
    """A tokenizer. Raises `UsageError` where the extra is not installed, or the file is none."""

    def __init__(self, file: Path) -> None:
        try:
            from tokenizers import Tokenizer
        except ImportError as error:
            fix = f"pip install 'tilewright[{EXTRA}]', or give tokens by number (--ids)"
            raise UsageError("a tokenizer needs a package that is not installed: tokenizers", fix=fix) from error
        try:
            self._tokenizer: Any = Tokenizer.from_file(str(file))
        except Exception as error:  # the package raises nothing narrower
            fix = "give the tokenizer.json that the model was published with"
            raise UsageError(f"{file} is no tokenizer: {error}", fix=fix) from error
        # What a file says of batches would fill a text up, or cut it without a word.
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self.file = file

    @property
    def count(self) -> int:
        """Tokens that it has, those added to its vocabulary too."""
        return int(self._tokenizer.get_vocab_size())

    def ends(self) -> set[int]:
        """Those of ENDS that it has."""
        found = (self._tokenizer.token_to_id(word) for word in ENDS)
        return {token for token in found if token is not None}

    def token(self, word: str) -> int:
        """A token by its text. Raises `UsageError`."""
        found = self._tokenizer.token_to_id(word)
        if found is None:
            raise UsageError(f"{word!r} is no token of {self.file}", fix="give one that is, or its number")
        return int(found)

    def ids(self, text: str, *, is_whole: bool = True) -> list[int]:
        """The tokens of a text, which its post-processor completes where it is whole (one that begins a text, say)."""
        return list(self._tokenizer.encode(text, add_special_tokens=is_whole).ids)

    def text(self, ids: Sequence[int]) -> str:
        """The text of tokens, without those that are none."""
        return str(self._tokenizer.decode(list(ids)))


class Pieces:
    """The text of tokens as they come, in pieces of whole characters.

    A tokenizer may write a token in another way after another one, so that a piece is what the text of the last few
    tokens has more than it had.
    """

    def __init__(self, words: Words) -> None:
        self._words = words
        self._ids: list[int] = []
        self._shown = 0

    def add(self, token: int) -> str:
        """What a further token adds; empty while a character is unfinished."""
        self._ids.append(token)
        before, after = self._words.text(self._ids[: self._shown]), self._words.text(self._ids)
        if after.endswith(UNFINISHED):
            return ""
        # The tokens of the last piece stay, as what the next one is written after.
        self._ids, self._shown = self._ids[self._shown :], len(self._ids) - self._shown
        return after[len(before) :]

    def rest(self) -> str:
        """What is unfinished at the end."""
        before, after = self._words.text(self._ids[: self._shown]), self._words.text(self._ids)
        return after[len(before) :]
