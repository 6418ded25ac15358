from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tilewright
from tests.tilewright.generation.decoders import Summing, fixed, following
from tilewright.cli import generate
from tilewright.errors import UsageError

Command = Callable[..., Any]
PROMPT = [3, 1, 4, 1, 5]
IDS = "3,1,4,1,5"


class Opened(Summing):
    def __enter__(self) -> Opened:
        return self

    def __exit__(self, *reason: object) -> None:
        pass


class Letters:
    """A tokenizer whose tokens are letters from a."""

    count = 11

    def __init__(self, file: Path) -> None:
        self.file = file

    def ends(self) -> set[int]:
        return {following(PROMPT, 3)[2]}

    def token(self, word: str) -> int:
        return ord(word) - ord("a")

    def ids(self, text: str) -> list[int]:
        return [ord(letter) - ord("a") for letter in text]

    def text(self, ids: list[int]) -> str:
        return "".join(chr(ord("a") + one) for one in ids)


@pytest.fixture(autouse=True)
def decoder(monkeypatch: pytest.MonkeyPatch) -> Opened:
    model = Opened(fixed(1, 4).bindings)
    monkeypatch.setattr(tilewright, "load", lambda path, lanes=None: model)
    monkeypatch.setattr(generate, "Words", Letters)
    return model


def text(tokens: list[int]) -> str:
    return Letters(Path()).text(tokens)


def test_tokens_by_number_need_no_tokenizer(command: Command) -> None:
    done = command("generate", "m.tw", "--ids", IDS, "--max-tokens", 4)
    assert done.exit_code == 0, done.output
    assert done.stdout.split() == [str(token) for token in following(PROMPT, 4)]
    assert "[5 tokens read in " in done.stderr
    assert " tokens a second; 4 tokens: --max-tokens]" in done.stderr


def test_a_prompt_is_gone_on_with_until_the_text_ends(command: Command) -> None:
    done = command("generate", "m.tw", "--tokenizer", "t.json", "--prompt", text(PROMPT))
    assert done.exit_code == 0, done.output
    assert done.stdout == text(following(PROMPT, 2)) + "\n"
    assert "3 tokens: the text ended]" in done.stderr


def test_json_has_tokens_text_seconds_and_what_ended_it(command: Command) -> None:
    done = command("generate", "m.tw", "--tokenizer", "t.json", "--prompt", text(PROMPT), "--json")
    said = json.loads(done.stdout)
    assert said["tokens"] == following(PROMPT, 3)
    assert said["text"] == text(following(PROMPT, 2))
    assert (said["prompt_tokens"], said["stopped"]) == (5, "end")
    assert 0 < said["first_s"] <= said["seconds"]
    assert said["tokens_per_second"] > 0
    full = json.loads(command("generate", "m.tw", "--ids", IDS, "--json").stdout)
    assert (full["stopped"], len(full["tokens"]), full["text"]) == ("capacity", 8, None)
    one = json.loads(command("generate", "m.tw", "--ids", IDS, "--max-tokens", 1, "--json").stdout)
    assert (one["stopped"], one["tokens_per_second"]) == ("length", None)


def test_stop_tokens_are_given_by_number_or_text_instead_of_the_usual_ones(command: Command) -> None:
    first, second, third = following(PROMPT, 3)
    assert len({first, second, third}) == 3
    done = command("generate", "m.tw", "--ids", IDS, "--stop", str(second), "--json")
    assert json.loads(done.stdout)["tokens"] == [first, second]
    words = ("--tokenizer", "t.json", "--prompt", text(PROMPT))
    done = command("generate", "m.tw", *words, "--stop", text([first]), "--json")
    assert json.loads(done.stdout)["tokens"] == [first]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "there must be a prompt or tokens"),
        (["--ids", IDS, "--prompt", "a"], "there must be a prompt or tokens"),
        (["--prompt", "a"], "a prompt needs the model's tokenizer"),
        (["--ids", "1,x"], "--ids 1,x are no numbers"),
        (["--ids", IDS, "--stop", "end"], "--stop end is no number"),
        (["--ids", "1," * 12 + "1"], "the prompt has 13 tokens, and the model's caches have room for 12"),
        (["--ids", "11"], "token 11 is not among the 11"),
        (["--ids", "1", "--top-p", "2"], "top_p is 2.0"),
    ],
)
def test_what_makes_no_sense_is_said_before_anything_runs(
    command: Command, decoder: Opened, words: list[str], said: str
) -> None:
    done = command("generate", "m.tw", *words)
    assert done.exit_code == 2
    assert said in done.stderr
    assert "Fix: " in done.stderr
    assert decoder.taken == []


def test_a_tokenizer_of_more_tokens_than_the_model_has_is_refused(
    command: Command, decoder: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Letters, "count", 12)
    done = command("generate", "m.tw", "--tokenizer", "t.json", "--prompt", "a", "--json")
    assert done.exit_code == 2
    assert json.loads(done.stdout)["error"]["message"] == "t.json has 12 tokens, and the model's vocabulary 11"
    assert decoder.taken == []


def test_what_the_artifact_refuses_while_it_generates_is_a_usage_error(
    command: Command, decoder: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise decoder.errors[0]("the model is closed. Fix: load it again")

    monkeypatch.setattr(Opened, "run", refuse)
    done = command("generate", "m.tw", "--ids", IDS)
    assert done.exit_code == UsageError.exit_status
    assert "Fix: load it again" in done.stderr
