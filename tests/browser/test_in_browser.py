"""Artifacts for browsers, run in one: by their own page, and by the service's."""

from __future__ import annotations

import base64
import io
import threading
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from bench.zoo import build
from tests.browser.conftest import SCREENS
from tests.browser.test_page import asked, entered
from tests.browser.test_walk import submitted
from tests.browser.webdriver import Browser, browser
from tests.compiler.devices.cpu.emulation.arm import SIMD128, wasm
from tests.compiler.test_pipeline_arm import compiled
from tests.end_to_end.house import House
from tilewright.exports import browser_folder

UNPACKED = """
const [given, names] = arguments;
const archive = Uint8Array.from(atob(given), (one) => one.charCodeAt(0)).buffer;
return import('/web/in_browser.js').then(({members}) => members(archive, names)).then(
  (found) => Object.fromEntries(Object.entries(found).map(([name, bytes]) => [name, [...bytes]])),
  (error) => error.message);
"""
"""The members of an archive, as numbers; else what is said of it."""


class Silent(SimpleHTTPRequestHandler):
    """Serves a folder, of which the browser keeps nothing, and logs nothing; below `/?shared` isolated from others."""

    def end_headers(self) -> None:
        """With those that say so."""
        self.send_header("Cache-Control", "no-store")
        if "shared" in f"{self.path}{self.headers['Referer']}":
            self.send_header("Cross-Origin-Opener-Policy", "same-origin")
            self.send_header("Cross-Origin-Embedder-Policy", "require-corp")
        super().end_headers()

    def log_message(self, format: str, *given: object) -> None:
        """Nothing."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """Where the page of a network is served, and its folder."""
    wasm()
    place = tmp_path_factory.mktemp("page")
    _, artifact = compiled(build("tiny_cnn").SerializeToString(), place, target=SIMD128, threads=2)
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
        window.sees("and one thread")
        assert float(window.run("return document.getElementById('state').dataset.milliseconds")) > 0
        assert window.run("return document.querySelectorAll('#ports tr').length") == 2
        assert window.drive(worker) is True
        window.go(f"{url}/demo.html?shared")
        window.sees("ms a run")
        window.sees("and 2 threads")
        (folder / "weights.bin").unlink()
        window.go(f"{url}/demo.html?again")
        window.sees("weights.bin cannot be fetched: HTTP 404")


@pytest.mark.slow
def test_the_page_of_its_job_runs_it_and_shows_the_time_here(house: House, page: Browser) -> None:
    wasm()
    inside = entered(house, page)
    number = submitted(house, build("tiny_mobile").SerializeToString(), f'{{"target": "{SIMD128}"}}')
    inside.go(f"{house.url}/#/jobs/{number}")
    inside.until(lambda: asked(house, f"/jobs/{number}")["state"] == "SUCCEEDED", "an artifact")
    inside.sees("No worker can time it")
    inside.press("Run in this browser")
    inside.sees("a run in this browser: the median of")
    assert inside.said() == []
    inside.picture(SCREENS / "in_browser.png")


def test_members_of_archives_are_found_stored_and_deflated_and_one_that_is_missing_is_named(
    house: House, page: Browser
) -> None:
    inside = entered(house, page)
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("stored", b"abc" * 5)
        archive.writestr("packed", b"abc" * 500, zipfile.ZIP_DEFLATED)
        archive.comment = b"PK\x05"
    given = base64.b64encode(file.getvalue()).decode()
    found = inside.run(UNPACKED, given, ["packed", "stored"])
    assert {name: bytes(content) for name, content in found.items()} == {"stored": b"abc" * 5, "packed": b"abc" * 500}
    assert inside.run(UNPACKED, given, ["stored", "model.wasm"]) == "the artifact has no model.wasm"
    assert inside.run(UNPACKED, given[:200], ["stored"]) == "the artifact is no whole archive"
