"""The page of an artifact for browsers, opened in one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from bench.zoo import build
from tests.browser.webdriver import browser
from tests.compiler.devices.cpu.emulation.arm import SIMD128, wasm
from tests.compiler.test_pipeline_arm import compiled
from tilewright.exports import browser_folder


class Silent(SimpleHTTPRequestHandler):
    """Serves a folder and logs nothing."""

    def log_message(self, format: str, *given: object) -> None:
        """Nothing."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """Where the page of a network is served, and its folder."""
    wasm()
    place = tmp_path_factory.mktemp("page")
    _, artifact = compiled(build("tiny_mobile").SerializeToString(), place, target=SIMD128)
    folder = browser_folder(artifact, place / "page")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Silent, directory=folder)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", folder
        server.shutdown()


def test_the_page_runs_the_model_and_shows_its_time_and_says_why_where_it_does_not(served: tuple[str, Path]) -> None:
    url, folder = served
    worker = "const w = new Worker('worker.js', { type: 'module' }); w.onmessage = (e) => arguments[0](e.data);"
    (folder / "worker.js").write_text(
        'import { load } from "./model.js"; const model = await load(); const [{ name }] = model.inputs;'
        "const found = await model.run({ [name]: model.port(0).slice() });"
        "postMessage([...Object.values(found)[0]].every(Number.isFinite));"
    )
    with browser() as window:
        window.go(f"{url}/demo.html")
        window.sees("ms a run")
        assert float(window.run("return document.getElementById('state').dataset.milliseconds")) > 0
        assert window.run("return document.querySelectorAll('#ports tr').length") == 2
        assert window.drive(worker) is True
        (folder / "weights.bin").unlink()
        window.go(f"{url}/demo.html?again")
        window.sees("weights.bin cannot be fetched: HTTP 404")
