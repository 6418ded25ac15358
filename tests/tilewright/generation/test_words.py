from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import pytest

from tilewright.errors import UsageError
from tilewright.generation.words import Pieces, Words

LETTERS = ["<|endoftext|>", "a", "b", "Ġ", "ab", "Ã", "¤", "Ġb"]
"""The sixth and the seventh are the bytes of ä."""


def tokenizer(path: Path) -> Path:
    """A tokenizer of bytes in pairs with a few tokens."""
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    end = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    model = {
        "type": "BPE",
        "vocab": {word: at for at, word in enumerate(LETTERS)},
        "merges": ["a b", "Ġ b"],
        "unk_token": None,
    }
    text = {
        "version": "1.0",
        "truncation": {"max_length": 12, "strategy": "LongestFirst", "stride": 0, "direction": "Right"},
        "padding": {
            "strategy": {"Fixed": 16},
            "direction": "Right",
            "pad_to_multiple_of": None,
            "pad_id": 0,
            "pad_type_id": 0,
            "pad_token": LETTERS[0],
        },
        "added_tokens": [{"id": 0, "content": LETTERS[0], **end}],
        "pre_tokenizer": level,
        "decoder": level,
        "model": model,
    }
    path.write_text(json.dumps(text))
    return path


class Encoded(NamedTuple):
    ids: list[int]


class Tokenizer:
    """Of the package tokenizers as much as is used, for tokens that are the longest words at a place."""

    def __init__(self, vocabulary: dict[str, int]) -> None:
        self._vocabulary = vocabulary
        self.pads, self.most = 16, 12
        # Letters for the bytes above 127, and for the space, as ByteLevel has them; of what occurs here.
        self._bytes = {"Ã": 0xC3, "¤": 0xA4, "Ġ": 0x20}

    @classmethod
    def from_file(cls, file: str) -> Tokenizer:
        return cls(json.loads(Path(file).read_text())["model"]["vocab"])

    def no_padding(self) -> None:
        self.pads = 0

    def no_truncation(self) -> None:
        self.most = 1 << 30

    def get_vocab_size(self) -> int:
        return len(self._vocabulary)

    def token_to_id(self, word: str) -> int | None:
        return self._vocabulary.get(word)

    def encode(self, text: str, add_special_tokens: bool = True) -> Encoded:
        letters = {byte: letter for letter, byte in self._bytes.items()}
        left, found = "".join(letters.get(byte, chr(byte)) for byte in text.encode()), []
        while left:
            word = max(filter(left.startswith, self._vocabulary), key=len)
            found.append(self._vocabulary[word])
            left = left[len(word) :]
        return Encoded(found[: self.most] + [0] * (self.pads - len(found)))

    def decode(self, ids: list[int]) -> str:
        words = {at: word for word, at in self._vocabulary.items()}
        text = "".join(words[one] for one in ids if one)
        return bytes(self._bytes.get(letter, ord(letter)) for letter in text).decode(errors="replace")


@pytest.fixture(params=["tokenizers", "as much as is used"])
def words(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Words:
    """By the package, where it is installed (it is in no lock), and by a stand-in."""
    if request.param == "tokenizers":
        pytest.importorskip("tokenizers", reason="the extra generate is not installed")
    else:
        monkeypatch.setitem(sys.modules, "tokenizers", SimpleNamespace(Tokenizer=Tokenizer))
    return Words(tokenizer(tmp_path / "tokenizer.json"))


def test_a_text_is_neither_filled_up_nor_cut_as_the_file_says_of_batches(words: Words) -> None:
    assert words.ids("a" * 20) == [1] * 20


def test_text_becomes_tokens_and_text_again(words: Words) -> None:
    assert words.count == len(LETTERS)
    assert words.ids("ab bä<|endoftext|>") == [4, 7, 5, 6, 0]
    assert words.text([4, 7, 5, 6, 0]) == "ab bä"
    assert words.ends() == {0}
    assert words.token("ab") == 4


def test_a_word_that_is_no_token_is_refused(words: Words) -> None:
    with pytest.raises(UsageError, match="'abab' is no token of"):
        words.token("abab")


def test_pieces_are_of_whole_characters_and_together_the_text(words: Words) -> None:
    pieces = Pieces(words)
    assert [pieces.add(token) for token in (4, 7, 5, 6, 1)] == ["ab", " b", "", "ä", "a"]
    assert pieces.rest() == ""


def test_a_character_that_stays_unfinished_is_told_at_the_end(words: Words) -> None:
    pieces = Pieces(words)
    assert [pieces.add(token) for token in (1, 5)] == ["a", ""]
    assert pieces.rest() == "�"


def test_what_is_no_tokenizer_is_refused(words: Words, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(UsageError, match=r"x.json is no tokenizer") as refusal:
        Words(tmp_path / "x.json")
    assert "tokenizer.json" in refusal.value.fix


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(UsageError, match="a tokenizer needs") as refusal:
        Words(tmp_path / "tokenizer.json")
    assert "pip install 'tilewright[generate]'" in refusal.value.fix
