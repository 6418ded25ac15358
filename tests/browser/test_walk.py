"""The way of somebody who comes for the first time, and what may be in it: broken uploads, models that are refused.

And every view by the rules of WCAG 2.1 (A and AA) that a program can check, and by the keyboard alone.
"""

from __future__ import annotations

import base64
import collections
import contextlib
import hashlib
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import onnx
import onnx.reference
import onnxruntime
import pytest

from bench.zoo import build
from tests.browser.conftest import SCREENS
from tests.browser.test_page import NODE, SECONDS, VIEWS, asked, bearer, entered, with_key
from tests.browser.webdriver import Browser
from tests.end_to_end.house import House
from tests.end_to_end.models import LONG, model, tiny

PIECE = 4 << 20
"""In which the page sends large models."""
REFUSED = model(
    [
        onnx.helper.make_node("Relu", ["x"], ["h"], name="before"),
        onnx.helper.make_node("ImageDecoder", ["h"], ["i"], name=NODE),
        onnx.helper.make_node("Neg", ["i"], ["y"], name="after"),
    ],
    {"x": [4]},
    ["y"],
    opset=20,
)
WATCH = """
window.seen = new Set();
new MutationObserver(() => {
  const state = document.querySelector("main .state");
  if (state) seen.add(state.innerText);
}).observe(document.body, {childList: true, subtree: true, characterData: true});
"""
CHOSEN = "return document.querySelector('main .box h2')?.innerText"
"""What of a graph is chosen."""


AXE = Path(__file__).parent / "vendor" / "axe.min.js"
PUBLISHED = "29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c"
"""SHA-256 of axe.min.js of axe-core 4.14.1 (MPL-2.0), as it was published."""
ORDER = """
const found = [], main = document.querySelector('main');
const seen = (one) => one.getClientRects().length && !one.closest('svg, pre, canvas, .scroll, label.drop');
const first = [...main.querySelectorAll('h1, h2, p, table, button, form, nav')].find(seen);
if (first?.tagName !== 'H1') found.push(`order: ${first?.outerHTML.slice(0, 80)} stands above the heading`);
const heads = [...main.querySelectorAll('h1, h2')].filter(seen).map((one) => one.getBoundingClientRect());
for (let at = 1; at < heads.length; at++)
  if (heads[at].top < heads[at - 1].bottom && heads[at].left < heads[at - 1].right
    && heads[at - 1].left < heads[at].right) found.push('order: headings overlap');
for (const parent of [main, ...main.querySelectorAll('div, section, form, p, li')].filter(seen)) {
  const all = [...parent.children].filter((one) => seen(one) && getComputedStyle(one).position === 'static'
    && getComputedStyle(one).display !== 'inline').map((one) => [one, one.getBoundingClientRect()]);
  all.forEach(([one, a], at) => all.slice(at + 1).forEach(([other, b]) => {
    const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
    const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    if (wide > 1 && high > 1) found.push(`overlap: ${one.outerHTML.slice(0, 80)} and ${other.outerHTML.slice(0, 80)}`);
  }));
}
return found;
"""
"""What of a view stands above its heading, or over something else that it is beside."""
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]
TABS = {
    "overview": "Proof",
    "schedule": "critical path",
    "graph": "one colour",
    "kernels": "slowest first",
    "tuning": "measured",
    "source": "#include",
    "history": "this one",
    "log": "the job is running",
}


@pytest.fixture(scope="module")
def inside(house: House, page: Browser) -> Browser:
    """The page of somebody who has just entered a key."""
    return entered(house, page)


@pytest.fixture(scope="module")
def job(house: House, inside: Browser, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A model that a stranger has dropped, whose batch was bound, and whose compilation was watched."""
    page, file = inside, tmp_path_factory.mktemp("models") / "tiny.onnx"
    network = onnx.load_from_string(tiny(LONG))
    for value in (*network.graph.input, *network.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "batch"
    file.write_bytes(network.SerializeToString())
    page.visit("Jobs")
    page.press("drop a model")
    page.sees("Drop an ONNX model here")
    page.drop("label.drop", [file])
    page.sees("It can be compiled")
    page.type("input[name=dim-batch]", "\ue0032")
    page.press("Look again")
    page.until(lambda: "was not bound" not in page.text(), "the binding is known")
    page.type("input[type=number][step]", "0")
    page.run(WATCH)
    page.click("main button.main")
    page.sees("What made it fast")
    states = page.run("return [...seen]")
    assert states[-1] == "succeeded"
    assert {"queued", "leased", "running"} & {*states}, "it is watched while it is compiled"
    made = job_here(house, page)
    assert (made["name"], made["options"]["dims"]) == ("tiny.onnx", {"batch": 2})
    return made


@pytest.fixture(scope="module")
def refused(house: House) -> str:
    """The id of a job that fails at a node."""
    return submitted(house, REFUSED)


def test_a_stranger_goes_on_to_compare_and_download(
    house: House, inside: Browser, job: dict[str, Any], tmp_path: Path
) -> None:
    page = inside
    page.go(f"{house.url}/#/jobs/{job['id']}")
    page.sees("What made it fast")
    page.press("Compile with changes")
    page.sees("It can be compiled")
    page.run("document.querySelector('textarea[name=others]').value = ''")
    page.type("textarea[name=others]", '{"scheduler": "sequential"}')
    page.click("main button.main")
    page.sees("Steps")
    page.sees("What made it fast")
    second = job_here(house, page)
    assert second["cloned_from"] == job["id"]
    assert (second["options"]["dims"], second["options"]["scheduler"]) == ({"batch": 2}, "sequential")
    page.press("History")
    page.sees("this one")
    compared = asked(house, f"/comparison?job={second['id']}&job={job['id']}")["jobs"]
    rows = page.run("return [...document.querySelectorAll('tbody tr')].map((one) => one.innerText)")
    assert len(rows) == len(compared) == 2
    for row, one in zip(rows, compared, strict=True):
        assert page.run(SECONDS, one["figures"]["latency_s"]) in row
    assert page.run("return document.querySelectorAll('svg circle.history').length") == 2
    page.picture(SCREENS / "history.png")
    page.press("beside this one")
    page.sees("Time both in turns")
    page.sees('"sequential"')
    shown = page.run(
        "return [...document.querySelectorAll('main table')].map((table) => [...table.tBodies[0].rows]"
        ".map((row) => [...row.cells].map((cell) => cell.innerText)))"
    )
    by_name = {row[0]: row[1:] for row in shown[0]}
    assert by_name["option scheduler"] == ['"auto"', '"sequential"']
    both = [asked(house, f"/jobs/{one['id']}") for one in (job, second)]
    assert by_name["one inference"] == [page.run(SECONDS, one["latency_s"]) for one in both]
    plans = [asked(house, f"{one['links']['artifact']}/plan") for one in both]
    assert by_name["kernels"] == [str(len(plan["calls"])) for plan in plans]
    for side, plan in enumerate(plans):
        times = sorted(page.run(SECONDS, call["predicted_s"]) for call in plan["calls"])
        assert sorted(row[2 + side] for row in shown[1] if row[2 + side]) == times, "each kernel once"
    page.picture(SCREENS / "beside.png")
    page.visit("Benchmarks")
    page.sees("Time them")
    page.run("document.querySelectorAll('main input[type=checkbox]').forEach((one) => one.click())")
    page.press("Time them")
    page.sees("all kernels")
    page.sees('tiny.onnx, scheduler "auto"')
    number = str(page.run("return location.hash")).rpartition("/")[2]
    as_told(house, page, number, {job["artifact_id"], second["artifact_id"]})
    page.picture(SCREENS / "compared.png")
    page.go(f"{house.url}/#/jobs/{job['id']}")
    page.downloads(tmp_path)
    page.press("Download")
    kept = tmp_path / f"{job['artifact_id']}.tw"
    page.until(kept.exists, "the artifact's file")
    receipt = asked(house, f"{job['links']['receipt']}")
    assert hashlib.sha256(kept.read_bytes()).hexdigest() == receipt["sha256"]
    assert page.said() == []


def job_here(house: House, page: Browser) -> dict[str, Any]:
    """The job whose view this is, which has succeeded."""
    number = str(page.run("return location.hash")).split("/")[2]
    job: dict[str, Any] = asked(house, f"/jobs/{number}")
    assert job["state"] == "SUCCEEDED"
    return job


def as_told(house: House, page: Browser, number: str, artifacts: set[str]) -> None:
    """A benchmark of two artifacts shows the medians, the interval and the verdict that the API tells."""
    report = asked(house, f"/benchmarks/{number}")["report"]
    assert {one["artifact"] for one in report["artifacts"]} == artifacts
    text = page.text()
    (pair,) = report["comparisons"]
    figures = "return import('/web/shown.js').then(({figures}) => arguments[0].map(figures))"
    interval = page.run(figures, [pair["ratio"], pair["low"], pair["high"]])
    assert "\t".join([*interval, pair["verdict"]]) in text
    names = [f'tiny.onnx, scheduler "{one}"' for one in ("auto", "sequential")]
    assert all(name in text for name in names)
    for one in report["artifacts"]:
        assert page.run(SECONDS, one["median_s"]) in text
        assert all(kernel["family"] in text for kernel in one["kernels"])
    assert page.run("return document.querySelectorAll('svg rect.bar').length") > 0


def test_a_folder_is_dropped_with_its_external_data(house: House, inside: Browser, tmp_path: Path) -> None:
    page, folder = inside, tmp_path / "folder"
    (folder / "weights").mkdir(parents=True)
    (folder / ".DS_Store").write_text("noise")
    weight = onnx.numpy_helper.from_array(np.ones((8, 8), np.float32), "w")
    whole = model([onnx.helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": [1, 8]}, ["y"], tensors=[weight])
    outside = onnx.load_from_string(whole)
    file = folder / "outside.onnx"
    onnx.save(outside, file, save_as_external_data=True, location="weights/w.bin", size_threshold=0)
    page.go(f"{house.url}/#/jobs")
    page.visit("Compile")
    page.sees("Drop an ONNX model here")
    page.drop("label.drop", [folder])
    page.sees("It can be compiled")
    assert "folder/outside.onnx, folder/weights/w.bin\n" in page.text()
    (kept,) = asked(house, "/models?query=outside.onnx")["models"]
    assert [one["path"] for one in kept["files"]] == ["weights/w.bin"]
    assert page.said() == []


def test_an_upload_goes_on_after_a_broken_piece_and_after_a_reload(
    house: House, inside: Browser, tmp_path: Path
) -> None:
    page, file = inside, tmp_path / "large.onnx"
    weight = onnx.numpy_helper.from_array(np.ones((1500, 1500), np.float32), "w")
    multiply = onnx.helper.make_node("MatMul", ["x", "w"], ["y"], name="large")
    file.write_bytes(model([multiply], {"x": [1, 1500]}, ["y"], tensors=[weight]))
    assert 2 * PIECE < file.stat().st_size < 3 * PIECE
    page.go(f"{house.url}/#/compile")
    page.run("location.reload()")
    page.sees("Drop an ONNX model here")
    broken = (  # the second piece breaks off once, the third never ends
        "const real = fetch; window.sent = [];"
        "window.fetch = (to, asked = {}) => {"
        "  if (asked.method !== 'PATCH' || !String(to).startsWith('/uploads/')) return real(to, asked);"
        "  sent.push(Number(asked.headers['Upload-Offset']));"
        "  if (sent.length === 2) return Promise.reject(new TypeError('the line broke'));"
        "  return sent.length < 4 ? real(to, asked) : new Promise(() => {});"
        "}"
    )
    page.run(broken)
    page.type("#model", str(file))
    page.until(lambda: page.run("return sent") == [0, PIECE, PIECE, 2 * PIECE], "the piece again, and the next one")
    page.run("location.reload()")
    page.sees("Drop an ONNX model here")
    page.run(broken)
    page.type("#model", str(file))
    page.until(lambda: page.run("return sent"), "what is missing")
    assert page.run("return sent") == [2 * PIECE]
    page.sees("It can be compiled")
    kept = asked(house, f"/models/{hashlib.sha256(file.read_bytes()).hexdigest()}")
    assert (kept["name"], kept["bytes"]) == ("large.onnx", file.stat().st_size)
    assert page.said() == []


def test_a_refused_model_shows_the_node_in_its_graph(house: House, inside: Browser, tmp_path: Path) -> None:
    page, file = inside, tmp_path / "refused.onnx"
    file.write_bytes(REFUSED)
    page.go(f"{house.url}/#/compile")
    page.run("location.reload()")
    page.type("#model", str(file))
    page.sees("It cannot be compiled as it is")
    page.until(lambda: page.run(CHOSEN) == f"ImageDecoder {NODE}", "the node, chosen in the graph")
    digest = hashlib.sha256(REFUSED).hexdigest()
    (step,) = asked(house, f"/models/{digest}/graph")["steps"]
    assert page.run("return document.querySelector('canvas').dataset.boxes") == str(len(step["nodes"])) == "3"
    page.until(lambda: blamed_pixels(page) > 100, "the node in the picture")
    page.click("canvas")
    page.run("document.querySelector('canvas').focus()")
    page.keys("n")
    page.until(lambda: page.run(CHOSEN) != f"ImageDecoder {NODE}", "another node")
    page.click("main td a")
    page.until(lambda: page.run(CHOSEN) == f"ImageDecoder {NODE}", "the one again")
    page.picture(SCREENS / "refused.png")
    assert page.said() == []


def blamed_pixels(page: Browser) -> int:
    """How many points of the drawing have the colour of what a problem names."""
    return int(
        page.run(
            "const canvas = document.querySelector('canvas');"
            "const all = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;"
            "let count = 0;"
            "for (let at = 0; at < all.length; at += 4)"
            "  count += all[at] === 0xb3 && all[at + 1] === 0x26 && all[at + 2] === 0x1e;"
            "return count"
        )
    )


def submitted(house: House, content: bytes, options: str = "{}") -> str:
    """The id of a job for a model."""
    sent = httpx.post(
        f"{house.url}/compile",
        files={"model": content},
        data={"options": options},
        headers=bearer(house),
        timeout=60.0,
        trust_env=False,
    )
    return str(sent.raise_for_status().json()["id"])


def test_a_job_that_fails_leads_to_the_node_and_nobody_sees_it_but_its_owner(
    house: House, inside: Browser, refused: str
) -> None:
    page = inside
    weight = onnx.numpy_helper.from_array(np.random.default_rng(7).random((9, 5), np.float32), "w")
    product = model(
        [onnx.helper.make_node("MatMul", ["x", "w"], ["y"], name="p")], {"x": [3, 9]}, ["y"], tensors=[weight]
    )
    inexact = submitted(house, product, '{"threads": 1, "tuning_budget_s": 0, "tolerance": 1e-12}')
    page.go(f"{house.url}/#/jobs/{refused}")
    page.sees("failed")
    page.sees("insert a Cast before it")
    page.press(NODE)
    page.until(lambda: page.run(CHOSEN) == f"ImageDecoder {NODE}", "the node")
    page.until(lambda: blamed_pixels(page) > 100, "the node in the picture")
    page.picture(SCREENS / "failed.png")
    page.go(f"{house.url}/#/jobs/{inexact}")
    page.sees("is the first to leave the float64 reference")
    reported = asked(house, f"/jobs/{inexact}")["problem"]["details"]
    page.press(f"Show {reported['node']} in the graph")
    page.until(lambda: page.run(CHOSEN) == f"{reported['operator']} {reported['node']}", "the first that diverges")
    assert page.said() == []
    for path, wanted in (("/owners", {"name": "eve"}), ("/keys", {"owner": "eve", "label": "eve", "role": "compiler"})):
        made = httpx.post(house.url + path, json=wanted, headers=bearer(house), trust_env=False).raise_for_status()
    with page.tab() as window:
        window.go(house.url)
        with_key(window, made.json()["key"])
        window.visit("Jobs")
        window.sees("No job yet")
        window.go(f"{house.url}/#/jobs/{refused}")
        window.sees("there is no job")


def test_another_page_of_this_machine_can_neither_read_nor_change_anything(
    house: House, inside: Browser, refused: str
) -> None:
    page = inside
    before = asked(house, "/jobs?limit=200")["jobs"]
    with other_page() as elsewhere:
        page.go(f"http://127.0.0.1:{elsewhere}/")
        assert page.run(
            "const url = arguments[0], with_ = {credentials: 'include', mode: 'no-cors'};"
            "return Promise.all(['/jobs', `/jobs/${arguments[1]}`].map((path) => fetch(url + path, with_)))"
            ".then((all) => all.map((one) => one.type))",
            house.url,
            refused,
        ) == ["opaque", "opaque"]
        page.run(
            "const sent = {method: 'POST', credentials: 'include', mode: 'no-cors', body: new FormData()};"
            "return Promise.all([`/jobs/${arguments[1]}/clone`, '/session/links', '/compile']"
            ".map((path) => fetch(arguments[0] + path, sent))).then(() => 1)",
            house.url,
            refused,
        )
        for path in (f"/jobs/{refused}/purge", "/session"):
            form = "const form = document.createElement('form'); form.method = 'POST'; form.action = arguments[0];"
            page.run(f"{form} document.body.append(form); form.submit()", house.url + path)
            page.sees("a session of the page counts only for what the page itself asks")
            page.go(f"http://127.0.0.1:{elsewhere}/")
    page.go(f"{house.url}/#/jobs")
    page.sees("Sign out")
    assert [one["id"] for one in asked(house, "/jobs?limit=200")["jobs"]] == [one["id"] for one in before]
    page.said()


@contextlib.contextmanager
def other_page() -> Iterator[int]:
    """The port of another program of this machine, whose page is of the same site: cookies go there too."""

    class Other(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!doctype html><title>other</title><p>another page</p>")

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing is said."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Other) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("file", ["squeezenet1_1.onnx", "encoder.onnx"])
def test_a_sample_is_a_network_that_every_reader_of_onnx_takes(inside: Browser, file: str) -> None:
    encoded = inside.run(
        "return import('/web/samples.js').then(({SAMPLES}) => {"
        "  const bytes = SAMPLES.find((one) => one.file === arguments[0]).make(); let text = '';"
        "  for (let at = 0; at < bytes.length; at += 8192)"
        "    text += String.fromCharCode(...bytes.subarray(at, at + 8192));"
        "  return btoa(text);"
        "})",
        file,
    )
    network = onnx.load_from_string(base64.b64decode(encoded))
    onnx.checker.check_model(network, full_check=True)
    operators = collections.Counter(node.op_type for node in network.graph.node)
    if file == "squeezenet1_1.onnx":
        theirs = build("squeezenet1_1")
        assert operators == collections.Counter(node.op_type for node in theirs.graph.node)
        sizes = [sum(np.prod(one.dims) for one in each.graph.initializer) for each in (network, theirs)]
        assert sizes[0] == sizes[1]
    else:
        assert operators["Softmax"] == operators["Gelu"] == 2
    (given,) = network.graph.input
    shape = [one.dim_value for one in given.type.tensor_type.shape.dim]
    inputs = {given.name: np.random.default_rng(5).normal(size=shape).astype(np.float32)}
    session = onnxruntime.InferenceSession(network.SerializeToString(), providers=["CPUExecutionProvider"])
    (answer,) = session.run(None, inputs)
    reference: Any = onnx.reference.ReferenceEvaluator(network)
    expected = np.asarray(reference.run(None, inputs)[0])
    assert np.isfinite(answer).all()
    assert 0.1 < np.std(answer) < 100, "weights keep the variance, so that times are those of usual numbers"
    np.testing.assert_allclose(answer, expected, rtol=1e-3, atol=1e-3 * np.abs(expected).max())


def violations(page: Browser) -> list[str]:
    """What axe finds of this view, with the elements."""
    page.run(AXE.read_text() + "\nwindow.axe = axe;")
    found: list[str] = page.run(
        "return axe.run(document, {runOnly: {type: 'tag', values: arguments[0]}}).then((found) => found.violations"
        ".flatMap((one) => one.nodes.map((node) => `${one.id}: ${node.html.slice(0, 200)} ${node.failureSummary}`)))",
        RULES,
    )
    return found


def test_the_checker_is_as_it_was_published_and_finds_faults(house: House, page: Browser) -> None:
    assert hashlib.sha256(AXE.read_bytes()).hexdigest() == PUBLISHED
    with page.tab():
        page.go(house.url)
        page.press("Use a key")
        page.sees("API key")
        assert violations(page) == []
        page.run("document.querySelector('label').replaceWith(document.querySelector('#key'))")
        assert any(one.startswith("label:") for one in violations(page))


@pytest.mark.parametrize(("width", "dark"), [(390, True), (1280, False)])
def test_no_view_breaks_a_rule(
    house: House, page: Browser, job: dict[str, Any], refused: str, width: int, dark: bool
) -> None:
    with page.tab(dark=dark):
        page.size(width, 900)
        entered(house, page)
        assert page.run("return matchMedia('(prefers-color-scheme: dark)').matches") is dark
        views = {
            **VIEWS,
            **{f"jobs/{job['id']}/{tab}": text for tab, text in TABS.items()},
            f"jobs/{refused}/graph?node={NODE}": "named by the problem",
            f"beside/{job['id']}/{job['id']}": "Time both in turns",
        }
        found = {}
        for view, text in views.items():
            page.go(f"{house.url}/#/{view}")
            page.sees(text)
            if faults := [*violations(page), *page.run(ORDER)]:
                found[view] = faults
            wide = page.run("return document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert wide <= 0, view
            name = "blamed" if "?" in view else view.rpartition("/")[2]
            page.picture(SCREENS / f"{name}-{width}-{'dark' if dark else 'light'}.png")
        assert "\n".join(f"{view}: {one}" for view, faults in found.items() for one in faults) == ""
        assert page.said() == []


def test_the_keyboard_reaches_views_drawings_and_what_they_tell(
    house: House, page: Browser, job: dict[str, Any]
) -> None:
    with page.tab():
        page.size(1280, 900)
        entered(house, page)
        page.go(f"{house.url}/#/jobs/{job['id']}")
        page.sees("Proof")
        page.run("document.querySelector('nav.tabs a[href$=schedule]').focus()")
        page.keys("\ue007")
        page.sees("critical path")
        page.run("document.querySelector('canvas').focus()")
        page.keys("n")
        plan = asked(house, f"/artifacts/{job['artifact_id']}/plan")
        first = min(range(len(plan["tasks"])), key=lambda at: (plan["tasks"][at]["begin_s"], plan["tasks"][at]["lane"]))
        page.sees(plan["calls"][plan["tasks"][first]["call"]]["tile"])
        assert page.run("return getComputedStyle(document.activeElement).outlineStyle") != "none"
        page.picture(SCREENS / "keyboard.png")
        page.keys("\ue00c")
        page.until(lambda: page.run("return document.querySelectorAll('main pre').length") == 0, "nothing is chosen")


def focused_by_tab(page: Browser, wanted: str, most: int = 60) -> None:
    """Go on by the Tab key until the element of a selector has the focus, which must be seen."""
    for _ in range(most):
        page.keys("\ue004")
        if page.run("return document.activeElement.matches(arguments[0])", wanted):
            assert page.run("return getComputedStyle(document.activeElement).outlineStyle") != "none", wanted
            return
    raise AssertionError(f"the Tab key never came to {wanted}")


REACHED = {
    "start": "main li button",
    "jobs": "main tbody a",
    "compile": "input#model",
    "benchmarks": "main input[type=checkbox]",
    "records": "main form button",
    "operations": "main details summary",
    "jobs/{id}/overview": "main nav.tabs a",
    "jobs/{id}/schedule": "main canvas",
    "jobs/{id}/graph": "main canvas",
    "jobs/{id}/kernels": "main div.scroll",
    "jobs/{id}/tuning": "main nav.tabs a[href$=log]",
    "jobs/{id}/source": "main select",
    "jobs/{id}/history": "main nav.tabs a[href$=history]",
    "jobs/{id}/log": "main pre",
}
"""Of each view what is to be worked with there."""


def test_the_tab_key_reaches_what_each_view_is_for(house: House, page: Browser, job: dict[str, Any]) -> None:
    assert {name.rpartition("/")[2] for name in REACHED} == {*VIEWS, *TABS}
    with page.tab():
        page.size(1280, 900)
        entered(house, page)
        for view, wanted in REACHED.items():
            page.go(f"{house.url}/#/{view.format(id=job['id'])}")
            page.sees({**VIEWS, **TABS}[view.rpartition("/")[2]])
            page.find(wanted)
            page.run("document.querySelector('main').focus()")
            focused_by_tab(page, wanted)
        page.go(f"{house.url}/#/jobs/{job['id']}/graph")
        page.sees("one colour")
        page.run("document.querySelector('main').focus()")
        focused_by_tab(page, "main canvas")
        page.keys("n")
        page.sees("Measurements")
        assert page.run("return document.querySelectorAll('pre').length") > 0
        page.go(f"{house.url}/#/jobs/{job['id']}")
        page.sees("Name the job")
        page.run("document.querySelector('main .labels button').focus()")
        page.keys("\ue007")
        page.run("document.querySelector('main').focus()")
        focused_by_tab(page, "input[name=name]")
        page.keys("by keys")
        focused_by_tab(page, "form.box button.main")
        page.keys("\ue007")
        page.until(lambda: asked(house, f"/jobs/{job['id']}")["name"] == "by keys", "the name")
