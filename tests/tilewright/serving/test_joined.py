"""`tilewright serve --batching`: requests that are joined into runs get what each would get alone."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

import tilewright
from bench.texts.encoder import INPUTS, Encoder
from compiler.contract import CompileOptions
from tests.compiling import compile_file
from tests.end_to_end.architectures import encoder_block
from tests.tilewright.generation.test_words import LETTERS, Tokenizer, tokenizer
from tilewright.generation.words import Words
from tilewright.serving.app import Serving
from tilewright.serving.openai import Texts
from tilewright.serving.served import Cores, Served

RAGGED = {"ragged": dict.fromkeys(INPUTS, 1), "dims": {"batch": 6, "sequence": 12}, "threads": 1, "tuning_budget_s": 0}
BATCHED = {"dims": {"b": {"min": 1, "max": 6}, "s": {"min": 1, "max": 12}}, "threads": 1, "tuning_budget_s": 0}


@pytest.fixture(scope="module", params=["mean", "states"])
def packed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packed")
    encoder = Encoder(vocabulary=len(LETTERS))
    encoder.layer()
    outputs = {"states": encoder.x} if request.param == "states" else {"embedding": encoder.mean()}
    (folder / "m.onnx").write_bytes(encoder.finish(**outputs))
    compile_file(folder / "m.onnx", folder / "m.tw", CompileOptions.from_json(RAGGED))
    return folder / "m.tw"


@pytest.fixture(scope="module")
def batched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("batched")
    (folder / "m.onnx").write_bytes(encoder_block(words=len(LETTERS)))
    compile_file(folder / "m.onnx", folder / "m.tw", CompileOptions.from_json(BATCHED))
    return folder / "m.tw"


@pytest.fixture
def words(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Words:
    monkeypatch.setitem(sys.modules, "tokenizers", SimpleNamespace(Tokenizer=Tokenizer))
    return Words(tokenizer(tmp_path / "tokenizer.json"))


@contextmanager
def client(path: Path, words: Words, joins: bool) -> Iterator[TestClient]:
    served = Served("m", path, Cores(2), joins=joins)
    with TestClient(Serving({"m": served}, texts={"m": Texts(words)}).app()) as found:
        yield found


def of_length_one(found: np.ndarray) -> np.ndarray:
    mean = found.mean(0) if found.ndim == 2 else found
    return np.asarray(mean / np.linalg.norm(mean))


@pytest.mark.parametrize("joins", [False, True])
def test_embeddings_of_packed_texts_are_those_of_each_alone(packed: Path, words: Words, joins: bool) -> None:
    texts = ["ab", "ab bä", "b", "b" * 12, "a a a", "ab ab", "bab", "b b"]
    with tilewright.load(packed) as model:
        feeds = [{"input_ids": words.ids(one), "token_type_ids": [0] * len(words.ids(one))} for one in texts]
        wanted = [of_length_one(next(iter(model.run_texts([one])[0].values()))) for one in feeds]
    with client(packed, words, joins) as server, ThreadPoolExecutor(4) as callers:

        def ask(at: int) -> list[Any]:
            some = texts[at % 8 :] + texts[: at % 8]
            answer = server.post("/v1/embeddings", json={"model": "m", "input": some})
            assert answer.status_code == 200, answer.text
            return [one["embedding"] for one in answer.json()["data"]]

        for at, found in enumerate(callers.map(ask, range(16))):
            np.testing.assert_allclose(found, wanted[at % 8 :] + wanted[: at % 8], atol=5e-6)
        answer = server.post("/v1/embeddings", json={"model": "m", "input": "ab" * 13})
    assert answer.status_code == 400
    assert "13 tokens, and the model takes 12" in answer.text


@pytest.mark.parametrize("joins", [False, True])
def test_packed_texts_are_inferred_in_the_programs_own_form(packed: Path, words: Words, joins: bool) -> None:
    ids, offsets = [1, 2, 3, 4, 5, 6], [0, 2, 6]

    def tensor(name: str, data: list[int]) -> dict[str, Any]:
        return {"name": name, "datatype": "INT64", "shape": [len(data)], "data": data}

    def body(offsets: list[int]) -> dict[str, Any]:
        tensors = {"input_ids": ids, "token_type_ids": [0] * 6, "offsets": offsets}
        return {"inputs": [tensor(name, data) for name, data in tensors.items()]}

    with tilewright.load(packed) as model:
        (name, wanted), *_ = model.run(
            {"input_ids": np.array(ids), "token_type_ids": np.zeros(6, np.int64), "offsets": np.array(offsets)}
        ).items()
    with client(packed, words, joins) as server:
        (found,) = server.post("/v2/models/m/infer", json=body(offsets)).json()["outputs"]
        refused = server.post("/v2/models/m/infer", json=body([0, 2, 5]))
    assert (found["name"], found["shape"]) == (name, [*wanted.shape])
    np.testing.assert_allclose(np.array(found["data"]).reshape(wanted.shape), wanted, atol=5e-6)
    assert refused.status_code == 400


def test_batches_are_joined_and_taken_apart(batched: Path, words: Words) -> None:
    def body(rows: int, length: int) -> dict[str, Any]:
        drawn = np.random.default_rng((rows, length)).integers(0, len(LETTERS), (rows, length))
        feeds = {"ids": drawn, "mask": np.ones_like(drawn)}
        return {
            "inputs": [
                {"name": name, "datatype": "INT64", "shape": [*one.shape], "data": one.tolist()}
                for name, one in feeds.items()
            ]
        }

    asked = [body(rows, length) for rows in (1, 2, 6) for length in (3, 12)] * 4
    with client(batched, words, joins=False) as server:
        wanted = [server.post("/v2/models/m/infer", json=one).json()["outputs"] for one in asked[:6]] * 4
    with client(batched, words, joins=True) as server, ThreadPoolExecutor(6) as callers:
        found = [*callers.map(lambda one: server.post("/v2/models/m/infer", json=one), asked)]
        too_long = server.post("/v2/models/m/infer", json=body(1, 13))
        missing = server.post("/v2/models/m/infer", json={"inputs": body(1, 3)["inputs"][:1]})
    for one, outputs in zip(found, wanted, strict=True):
        for got, want in zip(one.json()["outputs"], outputs, strict=True):
            assert got["shape"] == want["shape"]
            np.testing.assert_allclose(got["data"], want["data"], atol=5e-6)
    assert too_long.status_code == missing.status_code == 400
    assert "has 13 along axis 1" in too_long.text


def test_one_more_than_may_wait_is_refused(packed: Path, words: Words) -> None:
    served = Served("m", packed, Cores(1), queue=0, joins=True)
    with TestClient(Serving({"m": served}, texts={"m": Texts(words)}).app()) as server:
        answer = server.post("/v1/embeddings", json={"model": "m", "input": "ab"})
    assert (answer.status_code, answer.headers["Retry-After"]) == (429, "1")
