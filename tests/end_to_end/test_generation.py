"""A job that generates is cancelled while a real worker runs it: what was said ends, and nothing else is harmed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tilewright
from bench.generate.codes import Coding
from bench.generate.decoder import PAST, SEQUENCE, TOTAL, Attention, decoder
from bench.generate.shapes import SHAPES
from bench.generate.weights import Seeded, parts
from tests.end_to_end.house import House, eventually
from tests.servers import GUARD_S
from tilewright.client import Client
from tilewright.errors import JobFailed
from tilewright.wire import Job

ROOM = 8192
"""Tokens of a text: about as many seconds as a cancelled job must be stopped in, and several times more."""
PROMPT = [3, 1, 4, 1, 5]
SHORT = 8


@pytest.fixture(scope="module")
def made(house: House, client: Client) -> Job:
    """The artifact of a small decoder whose words are many, so that a token takes about a millisecond."""
    shape = replace(SHAPES["tiny"], layers=6, words=8192)
    file = house.folder / "decoder.onnx"
    file.write_bytes(decoder(parts(Seeded(shape), Coding.NBITS4), Attention.GROUPED, ROOM).SerializeToString())
    dims = {SEQUENCE: 1, PAST: ROOM, TOTAL: ROOM}
    return client.wait(client.compile(file, {"carry": "auto", "dims": dims, "tuning_budget_s": 0}), timeout=GUARD_S)


@pytest.fixture(scope="module")
def wanted(client: Client, made: Job, tmp_path_factory: pytest.TempPathFactory) -> list[int]:
    """The tokens after the prompt, as the artifact generates them here."""
    with tilewright.load(client.download(made, tmp_path_factory.mktemp("here") / "decoder.tw")) as model:
        return [*tilewright.generate(model, PROMPT, max_tokens=SHORT)]


def long_text(client: Client, made: Job) -> tilewright.Inference:
    generating = {"max_tokens": ROOM - len(PROMPT), "temperature": 0.8}
    return client.start_inference(made, {"ids": np.array(PROMPT)}, generating=generating)


def test_a_cancelled_text_ends_its_stream_and_the_worker_takes_the_next(
    client: Client, house: House, made: Job, wanted: list[int]
) -> None:
    job = long_text(client, made)
    said: list[int] = []
    for last in client.events(job.id, within_s=GUARD_S):
        if last.kind == "tokens":
            said += last.data["data"]["tokens"]
            client.cancel(job.id)
    assert last.data["state"] == "CANCELLED"
    assert 0 < len(said) < ROOM - len(PROMPT)
    with pytest.raises(JobFailed):
        client.outputs(client.wait(job))
    eventually(lambda: not house.compiling(), "the process that generated is gone")
    assert [*client.generate(made, PROMPT, max_tokens=SHORT)] == wanted


def test_leaving_the_iterator_cancels_the_job(client: Client, made: Job, wanted: list[int]) -> None:
    job = long_text(client, made)
    tokens: Iterator[int] = client.tokens(job)
    assert next(tokens) >= 0
    tokens.close()  # type: ignore[attr-defined]
    assert client.wait(job, timeout=GUARD_S).state == "CANCELLED"
    assert [*client.generate(made, PROMPT, max_tokens=SHORT)] == wanted


def test_a_state_here_goes_on_as_if_nothing_had_been_cancelled(
    client: Client, made: Job, wanted: list[int], tmp_path: Path
) -> None:
    """An iterator that is left on this machine: the next text of the same model is the whole one."""
    with tilewright.load(client.download(made, tmp_path / "decoder.tw")) as model:
        left = tilewright.generate(model, PROMPT, max_tokens=64)
        assert [next(left) for _ in range(3)] == wanted[:3]
        left.close()  # type: ignore[attr-defined]
        assert [*tilewright.generate(model, PROMPT, max_tokens=SHORT)] == wanted
