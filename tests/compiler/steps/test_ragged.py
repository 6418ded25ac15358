"""An encoder compiled for texts of unequal lengths, run by its loader, beside another runtime text by text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from bench.texts.encoder import INPUTS, Encoder, InBytes
from compiler.contract import CompileOptions
from compiler.errors import InputsError
from compiler.errors import OptionsError as Refused
from compiler.pack.loader import InputError, Model, RunError
from tests.compiling import compile_file

OPTIONS = {"dims": {"batch": 6, "sequence": 40}, "ragged": dict.fromkeys(INPUTS, 1), "threads": 1}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    encoder = Encoder(seed=3)
    encoder.layer()
    encoder.layer(hide=encoder.local(5), turn=encoder.turned())
    path = tmp_path_factory.mktemp("ragged") / "encoder.onnx"
    path.write_bytes(encoder.finish(states=encoder.x, embedding=encoder.mean()))
    return path


@pytest.fixture(scope="module")
def artifact(file: Path) -> Path:
    path = file.with_suffix(".tw")
    report = compile_file(file, path, CompileOptions(**OPTIONS, tuning_budget_s=0.0))  # type: ignore[arg-type]
    assert report.verified
    assert len(report.sizes) == 5
    assert {one.dims["tokens"] for one in report.sizes} >= {240, 40, 6}
    return path


@pytest.fixture
def model(artifact: Path) -> Iterator[Model]:
    with Model(artifact) as opened:
        yield opened


def text(length: int, seed: int = 0) -> dict[str, np.ndarray]:
    random = np.random.default_rng((seed, length))
    return {name: random.integers(0, most, length) for name, most in (("input_ids", 50), ("token_type_ids", 2))}


def wanted(session: onnxruntime.InferenceSession, given: dict[str, np.ndarray]) -> list[np.ndarray]:
    whole = given | {"attention_mask": np.ones_like(given["input_ids"])}
    states, embedding = session.run(None, {name: one[None] for name, one in whole.items()})
    return [states[0], embedding[0]]


@pytest.mark.parametrize("lengths", [[1], [40], [3, 40, 1, 17], [40] * 9, [5, 1, 2, 30, 40, 7, 11, 1, 2, 3, 33, 29]])
def test_texts_have_the_results_that_another_runtime_gives_them_alone(
    file: Path, model: Model, lengths: list[int]
) -> None:
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    texts = [text(length, at) for at, length in enumerate(lengths)]
    found = model.run_texts(texts)
    assert len(found) == len(texts)
    for one, given in zip(found, texts, strict=True):
        states, embedding = wanted(session, given)
        np.testing.assert_allclose(one["states"], states, atol=2e-5)
        np.testing.assert_allclose(one["embedding"], embedding, atol=2e-6)


def test_results_do_not_depend_on_the_texts_beside_them(model: Model) -> None:
    mine = text(13)
    alone = model.run_texts([mine])[0]
    for others in ([text(1), text(40)], [text(40, 1)] * 4):
        for place in (0, 1, len(others)):
            among = model.run_texts([*others[:place], mine, *others[place:]])[place]
            for name, array in alone.items():
                np.testing.assert_allclose(among[name], array, atol=5e-6)


def test_no_texts_have_no_results(model: Model) -> None:
    assert model.run_texts([]) == []


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "text 1 has no 'input_ids'"),
        ([1, 2], "text 1 has no names"),
        (text(3) | {"x": 1}, "text 1 has 'x'"),
        ({"input_ids": [], "token_type_ids": []}, "text 1 has no tokens"),
        (text(41), "text 1 has 41 tokens"),
        ({"input_ids": [1.5], "token_type_ids": [0]}, "text 1 has float64"),
        ({"input_ids": [1, 2], "token_type_ids": [0]}, "text 1 has 2 and 1 tokens"),
        ({"input_ids": [50], "token_type_ids": [0]}, "text 1 has 'input_ids' from 50 to 50"),
        (text(3) | {"attention_mask": [1, 0, 1]}, "text 1 has zeros in 'attention_mask'"),
    ],
)
def test_a_text_that_does_not_fit_is_refused_by_its_number(model: Model, given: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        model.run_texts([text(4), given])


def test_a_mask_of_ones_may_be_given(model: Model) -> None:
    given = text(5)
    found = model.run_texts([given | {"attention_mask": np.ones(5, np.int64)}])
    np.testing.assert_array_equal(found[0]["embedding"], model.run_texts([given])[0]["embedding"])


def test_offsets_of_no_texts_are_refused_while_running(model: Model) -> None:
    tokens = np.zeros(9, np.int64)
    with pytest.raises(InputError, match="tokens that offsets leave out"):
        model.run({"input_ids": tokens, "token_type_ids": tokens, "offsets": np.array([0, 3, 8])})


def test_an_artifact_without_the_option_says_so(file: Path, tmp_path: Path) -> None:
    at = tmp_path / "plain.tw"
    compile_file(file, at, CompileOptions(dims={"batch": 1, "sequence": 4}, threads=1, tuning_budget_s=0.0))
    with Model(at) as plain, pytest.raises(RunError, match="compile it with ragged"):
        plain.run_texts([text(4)])


def test_samples_are_refused(file: Path, tmp_path: Path) -> None:
    sample = tmp_path / "sample.npz"
    np.savez(sample, input_ids=text(4)["input_ids"])
    with pytest.raises((Refused, InputsError), match="samples"):
        compile_file(file, tmp_path / "x.tw", CompileOptions(**OPTIONS), samples={"one": sample})  # type: ignore[arg-type]


def test_a_model_in_bytes_has_the_results_that_another_runtime_gives_its_texts_alone(tmp_path: Path) -> None:
    encoder = InBytes(seed=3)
    encoder.largest = 63  # see tests/peers.py
    encoder.layer()
    path = tmp_path / "bytes.onnx"
    path.write_bytes(encoder.finish(states=encoder.x, embedding=encoder.mean()))
    report = compile_file(path, path.with_suffix(".tw"), CompileOptions(**OPTIONS, tuning_budget_s=0.0))  # type: ignore[arg-type]
    assert report.verified
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    texts = [text(length, at) for at, length in enumerate((3, 40, 1, 17))]
    with Model(path.with_suffix(".tw")) as model:
        for one, given in zip(model.run_texts(texts), texts, strict=True):
            states, embedding = wanted(session, given)
            np.testing.assert_allclose(one["states"], states, atol=2e-2 * np.abs(states).max())
            np.testing.assert_allclose(one["embedding"], embedding, atol=2e-2)
