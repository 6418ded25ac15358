"""`tilewright generate`."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

import tilewright
from tilewright.cli.output import Json, Key, ProfileName, Url, artifact_id, connect, console, failures, print_json
from tilewright.cli.run import refusals
from tilewright.errors import UsageError
from tilewright.generation.generate import MOST_TOKENS, as_input, ended, most
from tilewright.generation.generate import generate as tokens_after
from tilewright.generation.ports import ports
from tilewright.generation.words import Pieces, Words


def generate(
    artifact: Annotated[str, typer.Argument(help="A .tw file of a decoder with caches; with --server an id.")],
    prompt: Annotated[str, typer.Option("--prompt", help="The text to go on with; - reads standard input.")] = "",
    tokenizer: Annotated[
        Path | None, typer.Option("--tokenizer", help="The model's tokenizer.json.", show_default=False)
    ] = None,
    ids: Annotated[str, typer.Option("--ids", help="Tokens by number, 1,2,3, instead of a prompt.")] = "",
    max_tokens: Annotated[int, typer.Option("--max-tokens", min=1, help="Tokens to generate at most.")] = MOST_TOKENS,
    temperature: Annotated[float, typer.Option("--temperature", help="0: always the most probable token.")] = 0.0,
    top_k: Annotated[int, typer.Option("--top-k", help="Draw among so many; 0: among all.")] = 0,
    top_p: Annotated[float, typer.Option("--top-p", help="Draw among the fewest with this probability.")] = 1.0,
    seed: Annotated[int, typer.Option("--seed", help="Of what is drawn.")] = 0,
    stop: Annotated[
        list[str] | None,
        typer.Option("--stop", help="A token that ends the text, by text or number; default: the usual ones."),
    ] = None,
    lanes: Annotated[int | None, typer.Option("--threads", min=1, help="Default: as it was compiled for.")] = None,
    server: Annotated[bool, typer.Option("--server", help="On the server's device: ARTIFACT is an id there.")] = False,
    url: Url = "",
    key: Key = "",
    profile: ProfileName = "",
    as_json: Json = False,
) -> None:
    """Generate text with a decoder, on this machine or the server's. With `--json`: tokens, text, seconds."""
    with failures(as_json):
        words = Words(tokenizer) if tokenizer else None
        given = _given(prompt, ids, words)
        ends = _ends(stop, words)
        how: dict[str, Any] = {"max_tokens": max_tokens, "temperature": temperature, "top_k": top_k, "top_p": top_p}

        def show(coming: Iterator[int]) -> _Told:
            return _told(coming, ends, words, is_shown=not as_json)

        if server:
            with connect(url, key, profile) as client:
                queued = client.start_inference(
                    artifact_id(client, artifact),
                    {"ids": as_input(given)},
                    threads=lanes,
                    seed=seed,
                    generating={**how, "stop": sorted(ends)},
                )
                told = show(client.tokens(queued))
                stopped = client.result(queued, type(queued)).said["report"]["stopped"]
        else:
            with tilewright.load(artifact, lanes) as model, refusals(model):
                found = ports(model)
                if words and words.count > found.words:
                    raise UsageError(
                        f"{words.file} has {words.count} tokens, and the model's vocabulary {found.words}",
                        fix="give the tokenizer.json that the model was published with",
                    )
                told = show(tokens_after(model, given, seed=seed, stop=ends, **how))
            stopped = ended(told.tokens, ends, most(found, given), max_tokens)
        if as_json:
            print_json({"prompt_tokens": len(given), **told.to_json(), "stopped": stopped})
        else:
            print(flush=True)
            console().print(_summary(len(given), told, stopped), markup=False)


@dataclass(frozen=True)
class _Told:
    """Tokens, the text of all but the one that ended it (None without a tokenizer), and when they came in seconds."""

    tokens: Sequence[int]
    text: str | None
    times: Sequence[float]

    @property
    def rate(self) -> float | None:
        """Tokens a second after the first, which has waited for the prompt; None of one token."""
        took = self.times[-1] - self.times[0]
        return (len(self.times) - 1) / took if took > 0 else None

    def to_json(self) -> dict[str, Any]:
        """Plain JSON."""
        return {
            "tokens": list(self.tokens),
            "text": self.text,
            "first_s": self.times[0],
            "seconds": self.times[-1],
            "tokens_per_second": self.rate,
        }


def _told(coming: Iterator[int], ends: set[int], words: Words | None, *, is_shown: bool) -> _Told:
    """Takes all tokens, and shows each when it comes."""
    begin = time.perf_counter()
    tokens: list[int] = []
    times: list[float] = []
    said: list[str] = []
    pieces = Pieces(words) if words else None

    def show(piece: str) -> None:
        said.append(piece)
        if is_shown:
            sys.stdout.write(piece)
            sys.stdout.flush()

    for token in coming:
        times.append(time.perf_counter() - begin)
        tokens.append(token)
        if pieces is None:
            show(f"{token} ")
        elif token not in ends:
            show(pieces.add(token))
    if pieces is not None:
        show(pieces.rest())
    return _Told(tokens, "".join(said) if words else None, times)


def _given(prompt: str, ids: str, words: Words | None) -> list[int]:
    """The tokens of the prompt. Raises `UsageError`."""
    if bool(prompt) is bool(ids):
        raise UsageError("there must be a prompt or tokens", fix="give --prompt TEXT with --tokenizer, or --ids 1,2,3")
    if ids:
        try:
            return [int(one) for one in ids.split(",")]
        except ValueError as error:
            raise UsageError(f"--ids {ids} are no numbers", fix="give numbers with commas between, as 1,2,3") from error
    if words is None:
        fix = "give --tokenizer tokenizer.json, as the model was published with, or tokens by --ids 1,2,3"
        raise UsageError("a prompt needs the model's tokenizer", fix=fix)
    return words.ids(sys.stdin.read() if prompt == "-" else prompt)


def _ends(stop: Sequence[str] | None, words: Words | None) -> set[int]:
    """Tokens that end the text. Raises `UsageError`."""
    if stop is None:
        return words.ends() if words else set()
    ends = set()
    for one in stop:
        if one.isdecimal():
            ends.add(int(one))
        elif words:
            ends.add(words.token(one))
        else:
            raise UsageError(f"--stop {one} is no number", fix="give the token's number, or a --tokenizer")
    return ends


def _summary(prompt: int, told: _Told, stopped: str) -> str:
    """One line about how fast it was, and what ended it."""
    why = {"end": "the text ended", "length": "--max-tokens", "capacity": "the caches are full"}[stopped]
    rate = "" if told.rate is None else f", then {told.rate:.1f} tokens a second"
    return f"[{prompt} tokens read in {told.times[0]:.2f} s{rate}; {len(told.tokens)} tokens: {why}]"
