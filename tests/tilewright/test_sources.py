"""Models by address: from the web, whose server is a transport here, and from the Hub, whose library is stood for."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from tests.tilewright.messages import message
from tilewright import local, sources
from tilewright.client import Client
from tilewright.errors import ServerUnreachable, UsageError
from tilewright.package import package

Command = Callable[..., Any]
NET = message(b"onnx")
ADDRESS = "https://models.test/nets/my%20net.onnx?download=true"


def naming(*locations: str) -> bytes:
    """A model whose tensors lie in these files."""
    import onnx

    graph = onnx.GraphProto(name="g")
    for location in locations:
        tensor = graph.initializer.add(name=location, data_type=1, dims=[1], data_location=1)
        tensor.external_data.add(key="location", value=location)
    return bytes(onnx.ModelProto(ir_version=9, graph=graph).SerializeToString())


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Files by path; what was asked for with which ETag; a path may lead elsewhere, or the network be down."""
    state = SimpleNamespace(files={"/nets/my net.onnx": NET}, asked=[], moved={}, down=False, tags=True)

    def answer(request: httpx.Request) -> httpx.Response:
        state.asked.append((request.url.path, request.headers.get("if-none-match", "")))
        if state.down:
            raise httpx.ConnectError("no network")
        if request.url.path in state.moved:
            return httpx.Response(302, headers={"location": state.moved[request.url.path]})
        body = state.files.get(request.url.path)
        if body is None:
            return httpx.Response(404)
        tag = f'"{len(body)}"'
        if request.headers.get("if-none-match") == tag:
            return httpx.Response(304)
        return httpx.Response(200, content=body, headers={"etag": tag} if state.tags else {})

    monkeypatch.setattr(httpx, "Client", functools.partial(httpx.Client, transport=httpx.MockTransport(answer)))
    return state


def test_a_file_of_the_web_is_fetched_once_and_anew_when_it_changes(web: SimpleNamespace) -> None:
    first = sources.fetched(ADDRESS)
    assert (first.name, first.read_bytes()) == ("my net.onnx", NET)
    assert sources.fetched(ADDRESS) == first
    assert [tag for _, tag in web.asked] == ["", f'"{len(NET)}"']
    web.files["/nets/my net.onnx"] = message(b"another")
    assert sources.fetched(ADDRESS).read_bytes() == message(b"another")
    web.tags = False
    web.files["/nets/my net.onnx"] = NET
    assert sources.fetched(ADDRESS).read_bytes() == NET
    sources.fetched(ADDRESS)
    assert web.asked[-1][1] == "", "a file without an ETag is asked for whole"


def test_external_data_is_fetched_beside_the_model(web: SimpleNamespace, cache: Path) -> None:
    web.files |= {
        "/nets/my net.onnx": naming("w 1.bin", "more/w2.bin"),
        "/nets/w 1.bin": b"1",
        "/nets/more/w2.bin": b"22",
    }
    model = sources.fetched(ADDRESS)
    assert (model.with_name("w 1.bin").read_bytes(), (model.parent / "more" / "w2.bin").read_bytes()) == (b"1", b"22")
    assert package(ADDRESS).media_type == "application/zip"


@pytest.mark.parametrize("location", ["../other.bin", "/etc/passwd", "a/../../b", "..\\b"])
def test_external_data_elsewhere_is_not_fetched(web: SimpleNamespace, location: str) -> None:
    web.files["/nets/my net.onnx"] = naming(location)
    with pytest.raises(UsageError, match="not below its folder"):
        sources.fetched(ADDRESS)
    assert len(web.asked) == 1


def test_what_cannot_be_fetched_is_said(web: SimpleNamespace, cache: Path) -> None:
    with pytest.raises(UsageError, match="answered 404"):
        sources.fetched("https://models.test/none.onnx")
    web.moved["/moved.onnx"] = "http://models.test/nets/my net.onnx"
    with pytest.raises(UsageError, match="not https"):
        sources.fetched("https://models.test/moved.onnx")
    web.moved["/moved.onnx"] = "https://models.test/nets/my net.onnx"
    assert sources.fetched("https://models.test/moved.onnx").read_bytes() == NET
    web.files["/page.onnx"] = b"<html>"
    with pytest.raises(UsageError, match="is no ONNX file"):
        sources.fetched("https://models.test/page.onnx")
    web.down = True
    with pytest.raises(ServerUnreachable, match="no network"):
        sources.fetched(ADDRESS)
    cache.joinpath("tilewright").mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sources, "folder", lambda: cache / "tilewright" / "file" / "below")
        (cache / "tilewright" / "file").write_text("")
        with pytest.raises(UsageError, match="cannot keep"):
            sources.fetched(ADDRESS)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> SimpleNamespace:
    """Stands for `huggingface_hub`: files by name, as links into a cache, and what was asked for."""
    state = SimpleNamespace(files={"onnx/model.onnx": naming("w.bin"), "onnx/w.bin": b"w"}, asked=[])

    def hf_hub_download(repo_id: str, filename: str, *, revision: str | None = None) -> str:
        state.asked.append((repo_id, filename, revision))
        if filename not in state.files:
            raise FileNotFoundError(f"404 Client Error.\nEntry Not Found for {filename}")
        blob, link = tmp_path / "blobs" / filename.replace("/", "-"), tmp_path / "snapshot" / filename
        for path in (blob, link):
            path.parent.mkdir(parents=True, exist_ok=True)
        blob.write_bytes(state.files[filename])
        link.unlink(missing_ok=True)
        link.symlink_to(blob)
        return str(link)

    monkeypatch.setitem(sys.modules, "huggingface_hub", SimpleNamespace(hf_hub_download=hf_hub_download))
    monkeypatch.setattr(sources, "require", lambda extra, purpose: state.asked.clear())
    return state


def test_a_file_of_the_hub_comes_through_its_library_with_its_data(hub: SimpleNamespace) -> None:
    found = sources.fetched("hf://owner/repo@v1.2/onnx/model.onnx")
    assert found.name == "model.onnx"
    assert (found.parent / "w.bin").read_bytes() == b"w"
    assert hub.asked == [("owner/repo", "onnx/model.onnx", "v1.2"), ("owner/repo", "onnx/w.bin", "v1.2")]
    assert package("hf://owner/repo/onnx/model.onnx").media_type == "application/zip"
    assert hub.asked[0][2] is None


def test_what_the_hub_does_not_give_is_said_in_one_line(hub: SimpleNamespace) -> None:
    with pytest.raises(UsageError, match=r"cannot fetch none\.onnx of owner/repo: 404 Client Error\.$") as caught:
        sources.fetched("hf://owner/repo/none.onnx")
    assert "HF_TOKEN" in caught.value.fix
    for wrong in ("hf://owner", "hf://owner/repo", "hf://owner/repo/", "hf:///repo/m.onnx", "hf://o/r@/m.onnx"):
        with pytest.raises(UsageError, match="names no file of the Hub"):
            sources.fetched(wrong)


def test_without_the_library_of_the_hub_it_is_said_which_extra_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilewright.extras.missing", lambda extra: ["huggingface_hub"] if extra == "hub" else [])
    with pytest.raises(UsageError) as caught:
        sources.fetched("hf://owner/repo/m.onnx")
    assert "tilewright[hub]" in caught.value.fix


@pytest.mark.parametrize(
    ("address", "name"),
    [
        (ADDRESS, "my net.onnx"),
        ("hf://owner/repo@v1/onnx/model.onnx", "model.onnx"),
        ("https://models.test/", "model.onnx"),
        ("https://models.test/a/..%2f..%2fetc", "etc"),
    ],
)
def test_an_address_gives_a_name_for_a_file(address: str, name: str) -> None:
    assert sources.is_address(address)
    assert sources.name_of(address) == name


def test_paths_digests_and_bytes_are_no_addresses() -> None:
    for other in ("m.onnx", "/a/hf:/b", "http://models.test/m.onnx", "5" * 64, b"https://", Path("https://x/y")):
        assert not sources.is_address(other)


def test_an_address_is_a_model_for_the_client_and_for_compiling_here(
    client: Client, server: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "net.onnx").write_bytes(NET)
    monkeypatch.setattr(sources, "fetched", lambda address: tmp_path / "net.onnx")
    client.compile("hf://owner/repo/net.onnx")
    assert [one.content for one in server.sent("/models")] == [NET]
    monkeypatch.setattr(local, "compiled", lambda path, options: path)
    monkeypatch.setattr(local, "load", lambda path, lanes: path)
    assert local.compile("https://models.test/net.onnx") == tmp_path / "net.onnx"  # type: ignore[comparison-overlap]


def test_commands_take_addresses_and_leave_what_they_make_in_the_current_folder(
    command: Command, server: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "kept.onnx").write_bytes(NET)
    monkeypatch.setattr(sources, "fetched", lambda address: tmp_path / "kept.onnx")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    done = command("compile", "hf://owner/repo/onnx/net.onnx")
    assert (done.exit_code, done.stdout) == (0, "net.tw\n"), done.output
    assert "fetching hf://owner/repo/onnx/net.onnx" in done.stderr
    assert json.loads(server.sent("/compile")[-1].content)["name"] == "net.onnx"
    server.answers["/preflight"] = {"ok": True, "operators": [], "refusals": []}
    assert command("preflight", ADDRESS).exit_code == 0
    assert command("models", "upload", ADDRESS).exit_code == 0
