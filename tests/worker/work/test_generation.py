"""A decoder's artifact generates as a job does it, beside `tilewright.generate`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import tilewright
from bench.generate.codes import Coding
from bench.generate.decoder import Attention, decoder
from bench.generate.shapes import SHAPES
from bench.generate.weights import Seeded, parts
from compiler.contract import CompileOptions, Event
from compiler.errors import InputsError, TilewrightError
from tests.compiler.networks import Network
from tests.compiling import compile_file
from worker.attempt.child import Outbox, Spec
from worker.limits import Limits
from worker.work import generation, inference

CAPACITY = 24
PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]
QUICK = {"threads": 1, "tuning_budget_s": 0}


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("decoder")
    model = decoder(parts(Seeded(SHAPES["tiny"]), Coding.NBITS4), Attention.GROUPED, CAPACITY)
    (folder / "m.onnx").write_bytes(model.SerializeToString())
    compile_file(folder / "m.onnx", folder / "m.tw", CompileOptions.from_json({**QUICK, "carry": "auto"}))
    return folder / "m.tw"


class Told:
    """Stands for the pipe to the worker."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def event(self, event: Event) -> None:
        self.events.append(event)

    @property
    def tokens(self) -> list[int]:
        """Of all events, each of which begins where the one before has ended."""
        tokens: list[int] = []
        for event in self.events:
            if event.kind == "tokens":
                assert event.data["first"] == len(tokens)
                tokens += event.data["tokens"]
        return tokens


def asked(folder: Path, artifact: Path, ids: Any = PROMPT, seed: int | None = None, **how: Any) -> Spec:
    np.savez(folder / "in.npz", ids=np.array(ids))
    generating = {"max_tokens": 10, "temperature": 0.0, "top_k": 0, "top_p": 1.0, "stop": [], **how}
    options = {"threads": 1, "generate": generating, **({} if seed is None else {"seed": seed})}
    inputs = (("artifact", artifact), ("inputs", folder / "in.npz"))
    limits = Limits(wall_s=60.0, memory_bytes=1 << 30)
    return Spec("inference", inputs, folder / "out.npz", folder, folder / "finish", options, (), limits)


def done(spec: Spec) -> tuple[dict[str, Any], Told]:
    told = Told()
    return inference.work(spec, cast(Outbox, told)), told


def test_tokens_are_those_of_this_machine_and_are_told_once_each(
    artifact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generation, "MOST_TOLD", 3)
    report, told = done(asked(tmp_path, artifact))
    with tilewright.load(artifact) as model:
        expected = list(tilewright.generate(model, PROMPT, max_tokens=10))
    assert told.tokens == expected
    assert max(len(event.data.get("tokens", ())) for event in told.events) <= 3
    with np.load(tmp_path / "out.npz") as out:
        assert out["tokens"].tolist() == expected
    assert (report["prompt_tokens"], report["stopped"], report["lanes"]) == (8, "length", 1)
    assert 0 < report["first_s"] <= report["seconds"]
    assert report["outputs"]["tokens"]["shape"] == [10]
    fractions = [event.fraction for event in told.events]
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1


def test_the_first_token_waits_for_no_other(artifact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generation, "TOLD_EVERY_S", 1e9)
    _, told = done(asked(tmp_path, artifact))
    assert [len(event.data["tokens"]) for event in told.events if event.kind == "tokens"] == [1, 9]


def test_a_job_that_is_tried_again_draws_the_same_and_a_seed_draws_others(artifact: Path, tmp_path: Path) -> None:
    hot = {"temperature": 5.0, "top_k": 50}
    first, again, other = (done(asked(tmp_path, artifact, seed=seed, **hot))[1].tokens for seed in (None, None, 7))
    assert first == again != other


def test_a_text_ends_by_a_stop_token_or_with_its_caches(artifact: Path, tmp_path: Path) -> None:
    _, free = done(asked(tmp_path, artifact))
    stop = free.tokens[4]
    report, told = done(asked(tmp_path, artifact, stop=[stop]))
    assert told.tokens == free.tokens[: free.tokens.index(stop) + 1]
    assert report["stopped"] == "end"
    report, told = done(asked(tmp_path, artifact, max_tokens=100))
    assert (report["stopped"], len(told.tokens)) == ("capacity", CAPACITY - len(PROMPT) + 1)


@pytest.mark.parametrize(
    ("ids", "said"),
    [
        ([], "the prompt has no tokens"),
        ([1] * (CAPACITY + 1), "caches have room for 24"),
        ([1, 320], "token 320 is not among the 320"),
        ([1.5], "input 'ids' is float64, not int64"),
        ([[1, 2]], "input 'ids' has shape"),
    ],
)
def test_a_prompt_that_cannot_be_read_is_the_callers_fault(artifact: Path, tmp_path: Path, ids: Any, said: str) -> None:
    with pytest.raises(InputsError) as refused:
        done(asked(tmp_path, artifact, ids or np.array(ids, np.int64)))
    assert said in str(refused.value) + str(refused.value.refusals)


def test_what_is_no_decoder_is_refused_with_what_it_lacks(tmp_path: Path) -> None:
    net = Network()
    model = net.model([net.node("Relu", [net.input(2, 4)], (2, 4))])
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    compile_file(tmp_path / "m.onnx", tmp_path / "m.tw", CompileOptions.from_json(QUICK))
    with pytest.raises(TilewrightError, match="has no input of tokens"):
        done(asked(tmp_path, tmp_path / "m.tw"))
