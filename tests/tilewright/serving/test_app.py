"""`tilewright serve` over HTTP: what it answers is what the artifact gives."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from starlette.testclient import TestClient

import tilewright
from compiler.contract import CompileOptions
from tests.compiling import compile_file
from tests.end_to_end.architectures import encoder_block
from tests.tilewright.generation.decoders import Summing, growing
from tests.tilewright.generation.test_words import LETTERS, Tokenizer, tokenizer
from tilewright.errors import UsageError
from tilewright.generation.words import Words
from tilewright.loading import Model
from tilewright.serving import served as serving
from tilewright.serving.app import HEADER_LENGTH, Serving, names_of
from tilewright.serving.openai import Texts
from tilewright.serving.served import Cores, Served

OPTIONS = {"threads": 1, "tuning_budget_s": 0, "dims": {"b": {"min": 1, "max": 3}, "s": {"min": 1, "max": 12}}}
WHOLE = {
    "inputs": [
        {"name": "ids", "datatype": "INT64", "shape": [2, 3], "data": [[1, 2, 3], [4, 5, 6]]},
        {"name": "mask", "datatype": "INT64", "shape": [2, 3], "data": [1, 1, 1, 1, 1, 0]},
    ]
}


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served")
    (folder / "encoder.onnx").write_bytes(encoder_block(words=len(LETTERS)))
    compile_file(folder / "encoder.onnx", folder / "encoder.tw", CompileOptions.from_json(OPTIONS))
    return folder / "encoder.tw"


@dataclass
class Decoder(Summing):
    """With what a server asks of a model beside running it."""

    words: int = len(LETTERS)
    manifest: Mapping[str, Any] = field(default_factory=lambda: {"target": "cpu:test"})

    def close(self) -> None:
        pass


@pytest.fixture
def words(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Words:
    monkeypatch.setitem(sys.modules, "tokenizers", SimpleNamespace(Tokenizer=Tokenizer))
    return Words(tokenizer(tmp_path / "tokenizer.json"))


@contextmanager
def client(path: Path, words: Words | None = None, queue: int = 9, **more: Any) -> Iterator[TestClient]:
    models = {"m": Served("m", path, Cores(2), queue=queue)}
    texts = {"m": Texts(words)} if words else {}
    with TestClient(Serving(models, texts=texts, **more).app()) as made:
        yield made


def refusal(answer: Any) -> tuple[int, str]:
    error = answer.json()["error"]
    return answer.status_code, error["message"] if isinstance(error, dict) else error


def test_an_inference_is_that_of_the_artifact_as_json_and_in_binary(artifact: Path) -> None:
    ids, mask = np.array([[1, 2, 3], [4, 5, 6]]), np.array([[1, 1, 1], [1, 1, 0]])
    with tilewright.load(artifact) as model:
        wanted = model.run({"ids": ids, "mask": mask})["states"]
    with client(artifact) as server:
        found = server.post("/v2/models/m/infer", json=WHOLE).json()["outputs"]
        assert [(one["name"], one["datatype"], one["shape"]) for one in found] == [("states", "FP32", [2, 3, 16])]
        np.testing.assert_array_equal(np.array(found[0]["data"], np.float32).reshape(wanted.shape), wanted)
        inputs = [{**one, "parameters": {"binary_data_size": 48}} for one in WHOLE["inputs"]]
        head = json.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}}).encode()
        binary = server.post(
            "/v2/models/m/versions/1/infer",
            content=head + ids.tobytes() + mask.tobytes(),
            headers={HEADER_LENGTH: str(len(head))},
        )
    assert binary.content[int(binary.headers[HEADER_LENGTH]) :] == wanted.tobytes()


def test_a_model_and_the_server_say_what_they_are(artifact: Path) -> None:
    with client(artifact) as server:
        about = server.get("/v2/models/m").json()
        assert [(one["name"], one["shape"]) for one in about["inputs"]] == [("ids", [-1, -1]), ("mask", [-1, -1])]
        assert about["outputs"] == [{"name": "states", "datatype": "FP32", "shape": [-1, -1, 16]}]
        assert server.get("/v2").json()["extensions"] == ["binary_tensor_data"]
        assert server.post("/v2/repository/index").json() == [{"name": "m", "version": "1", "state": "READY"}]
        for path in ("/v2/health/live", "/v2/health/ready", "/v2/models/m/ready", "/v2/models/m/versions/1/ready"):
            assert server.get(path).status_code == 200
        server.post("/v2/models/m/infer", json=WHOLE)
        server.post("/v2/models/m/infer", json={"inputs": []})
        counted = server.get("/metrics").text
    assert 'tilewright_serve_requests_total{model="m",status="answered"} 1.0' in counted
    assert 'tilewright_serve_requests_total{model="m",status="refused"} 1.0' in counted
    assert 'tilewright_serve_request_seconds_count{model="m"} 1.0' in counted


def test_what_cannot_be_answered_is_refused_with_the_fix(artifact: Path) -> None:
    infer = "/v2/models/m/infer"
    too_long = {"inputs": [{**one, "shape": [1, 13], "data": [1] * 13} for one in WHOLE["inputs"]]}
    with client(artifact, body_bytes=4096) as server:
        refused: dict[str, Callable[[], Any]] = {
            "404 version 1 of a model 'n' is not served. Fix: ask for version 1 of m": lambda: server.get(
                "/v2/models/n"
            ),
            "404 version 2 of": lambda: server.post("/v2/models/m/versions/2/infer", json=WHOLE),
            "413 the body is larger than": lambda: server.post(infer, content=b" " * 5000),
            "415 the body is compressed": lambda: server.post(infer, headers={"Content-Encoding": "gzip"}),
            "400 Inference-Header-Content-Length is '-1'": lambda: server.post(infer, headers={HEADER_LENGTH: "-1"}),
            "400 input 'mask' is missing": lambda: server.post(infer, json={"inputs": WHOLE["inputs"][:1]}),
            "400 input 'ids' has 13 along axis 1": lambda: server.post(infer, json=too_long),
            "400 the model m has no tokenizer": lambda: server.post("/v1/embeddings", json={"model": "m"}),
            "404 version 1 of a model ''": lambda: server.post("/v1/embeddings", json={}),
            "400 the body is no JSON object": lambda: server.post("/v1/completions", json=[1]),
        }
        for reason, ask in refused.items():
            status, text = refusal(ask())
            assert f"{status} {text}".startswith(reason), f"{status} {text}"


def test_without_a_key_of_the_server_nothing_but_its_health_is_told(artifact: Path) -> None:
    with client(artifact, keys=("one", "two")) as server:
        assert server.get("/v2/health/live").status_code == 200
        for given in (None, "Bearer three", "Basic one", "Bearer"):
            answer = server.get("/v2/models/m", headers={"Authorization": given} if given else {})
            assert refusal(answer)[0] == 401
        assert server.get("/v2/models/m", headers={"Authorization": "Bearer two"}).status_code == 200


def test_a_full_queue_is_told_with_when_to_come_again(artifact: Path) -> None:
    with client(artifact, queue=0) as server:
        answer = server.post("/v2/models/m/infer", json=WHOLE)
    assert (answer.status_code, answer.headers["Retry-After"]) == (429, "1")


def test_embeddings_are_means_of_states_of_length_one_whatever_the_form(artifact: Path, words: Words) -> None:
    texts = ["ab", "ab bä", "b"]
    with tilewright.load(artifact) as model:
        wanted = []
        for text in texts:
            ids = np.array([words.ids(text)])
            mean = model.run({"ids": ids, "mask": np.ones_like(ids)})["states"][0].mean(0)
            wanted.append(mean / np.linalg.norm(mean))
    with client(artifact, words) as server:
        plain = server.post("/v1/embeddings", json={"model": "m", "input": texts}).json()
        coded = server.post(
            "/v1/embeddings",
            json={"model": "m", "input": [words.ids(text) for text in texts], "encoding_format": "base64"},
        ).json()
    for at, (one, other) in enumerate(zip(plain["data"], coded["data"], strict=True)):
        np.testing.assert_allclose(one["embedding"], wanted[at], rtol=1e-5, atol=1e-6)
        bits = np.frombuffer(base64.b64decode(other["embedding"]), "<f4")
        np.testing.assert_array_equal(bits, np.array(one["embedding"], np.float32))
    assert plain["usage"]["prompt_tokens"] == sum(len(words.ids(text)) for text in texts)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("", "input 0 is empty"),
        (["ab", ""], "input 1 is empty"),
        ([], "there are 0 inputs"),
        (None, "the input is no text"),
        ([1, 2, 999], "input 0 has the token 999"),
        ("ab" * 13, "input 0 has 13 tokens, and the model takes 12"),
    ],
)
def test_texts_that_cannot_be_embedded_are_refused(given: Any, reason: str, artifact: Path, words: Words) -> None:
    with client(artifact, words) as server:
        status, text = refusal(server.post("/v1/embeddings", json={"model": "m", "input": given}))
    assert (status, text[: len(reason)]) == (400, reason)


@pytest.fixture
def decoder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(serving, "load", lambda path, lanes: Decoder(growing().bindings))
    (tmp_path / "m.tw").touch()
    return tmp_path / "m.tw"


def events(text: str) -> list[Any]:
    lines = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def test_a_completion_is_what_the_decoder_goes_on_with_at_once_or_in_pieces(decoder: Path, words: Words) -> None:
    asked = {"model": "m", "prompt": "ab", "max_tokens": 5}
    model = cast(Model, Decoder(growing().bindings))
    tokens = list(tilewright.generate(model, words.ids("ab"), max_tokens=5, stop=words.ends()))
    wanted = words.text(tokens)
    assert wanted
    with client(decoder, words) as server:
        whole = server.post("/v1/completions", json=asked).json()
        parts = events(server.post("/v1/completions", json={**asked, "stream": True}).text)
    assert whole["choices"][0]["text"] == wanted
    assert whole["usage"]["completion_tokens"] == len(tokens)
    assert "".join(part["choices"][0]["text"] for part in parts) == wanted
    reasons = [part["choices"][0]["finish_reason"] for part in parts]
    assert reasons[:-1] == [None] * (len(parts) - 1)
    assert reasons[-1] == whole["choices"][0]["finish_reason"]


def test_a_text_that_ends_a_completion_is_left_out_even_where_it_comes_in_pieces(decoder: Path, words: Words) -> None:
    asked = {"model": "m", "prompt": "ab", "max_tokens": 8}
    with client(decoder, words) as server:
        text = server.post("/v1/completions", json=asked).json()["choices"][0]["text"]
        for size in (1, 2, 3):
            stop = text[2 : 2 + size]
            told = server.post("/v1/completions", json={**asked, "stop": [stop, "?"]}).json()["choices"][0]
            assert (told["text"], told["finish_reason"]) == (text[: text.find(stop)], "stop")
        for at in range(1, len(text) + 1):  # it begins, and does not go on
            told = server.post("/v1/completions", json={**asked, "stop": text[:at] + "?"}).json()["choices"][0]
            assert told["text"] == text


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"n": 2}, "more than one completion"),
        ({"stop": 3}, "`stop` is neither"),
        ({"temperature": "hot"}, "temperature is 'hot'"),
        ({"max_tokens": 0}, "max_tokens is 0"),
        ({"prompt": ["ab", "b"]}, "more than one completion"),
        ({"prompt": "ab" * 40}, "the prompt has 40 tokens"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_completions_that_cannot_be_are_refused_before_an_answer_begins(
    more: Mapping[str, Any], reason: str, stream: bool, decoder: Path, words: Words
) -> None:
    asked = {"model": "m", "prompt": "ab", "stream": stream, **more}
    with client(decoder, words) as server:
        status, text = refusal(server.post("/v1/completions", json=asked))
    assert (status, text[: len(reason)]) == (400, reason)


TURNS = "{% for one in messages %}{{ one.content }}{% endfor %}{{ eos_token }}"
"""A template of chats in the letters that there are."""


@contextmanager
def chatting(decoder: Path, words: Words, template: str) -> Iterator[TestClient]:
    words.file.with_name("tokenizer_config.json").write_text(
        json.dumps({"chat_template": template, "eos_token": {"content": LETTERS[0]}})
    )
    models = {"m": Served("m", decoder, Cores(1))}
    with TestClient(Serving(models, texts={"m": Texts.beside(words.file, "mean")}).app()) as made:
        yield made


def test_a_chat_is_gone_on_with_as_the_template_writes_it(decoder: Path, words: Words) -> None:
    said = [{"role": "system", "content": "a"}, {"role": "user", "content": [{"type": "text", "text": "ab"}]}]
    asked = {"model": "m", "messages": said, "max_tokens": 5}
    with chatting(decoder, words, TURNS) as server:
        plain = server.post("/v1/completions", json={"model": "m", "prompt": [1, 4, 0], "max_tokens": 5}).json()
        whole = server.post("/v1/chat/completions", json=asked).json()
        parts = events(server.post("/v1/chat/completions", json={**asked, "stream": True}).text)
    wanted = plain["choices"][0]["text"]
    assert wanted
    assert whole["object"] == "chat.completion"
    assert whole["choices"][0]["message"] == {"role": "assistant", "content": wanted}
    assert whole["usage"] == plain["usage"]
    deltas = [part["choices"][0]["delta"] for part in parts]
    assert [delta.get("role") for delta in deltas] == ["assistant", *[None] * (len(deltas) - 1)]
    assert "".join(delta["content"] for delta in deltas) == wanted


@pytest.mark.parametrize(
    ("template", "messages", "reason"),
    [
        (TURNS, [], "there are no messages"),
        (TURNS, [{"role": "user"}], "message 0 has no role, or its content is no text"),
        (TURNS, [{"role": "user", "content": [{"type": "image_url"}]}], "message 0 has no role, or its content"),
        (
            "{{ raise_exception('no system here') }}",
            [{"role": "user", "content": "a"}],
            "the template of chats refuses",
        ),
        ("{{ messages.__class__.__mro__ }}", [{"role": "user", "content": "a"}], "the template of chats refuses"),
    ],
)
def test_messages_that_no_prompt_is_made_of_are_refused(
    template: str, messages: list[Any], reason: str, decoder: Path, words: Words
) -> None:
    with chatting(decoder, words, template) as server:
        status, text = refusal(server.post("/v1/chat/completions", json={"model": "m", "messages": messages}))
    assert (status, text[: len(reason)]) == (400, reason)


def test_a_model_without_a_template_takes_no_chats_and_a_broken_template_is_refused(
    decoder: Path, words: Words
) -> None:
    with client(decoder, words) as server:
        status, text = refusal(server.post("/v1/chat/completions", json={"model": "m", "messages": []}))
    assert (status, text[:48]) == (400, "the model m was given no template of chats. Fix:"[:48])
    with (
        pytest.raises(UsageError, match="the template of chats is none"),
        chatting(decoder, words, "{% for one in %}"),
    ):
        pass


def test_a_template_without_what_reads_it_is_refused_with_the_extra(
    decoder: Path, words: Words, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(UsageError, match="not installed: jinja2"), chatting(decoder, words, TURNS):
        pass


def test_files_are_served_by_their_names_or_those_given() -> None:
    assert names_of(["a/b.tw", "c=a/b.tw"]) == {"b": "a/b.tw", "c": "a/b.tw"}
    with pytest.raises(UsageError, match="two models are named 'b'"):
        names_of(["a/b.tw", "c/b.tw"])
