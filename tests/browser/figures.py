"""Figures of the page: `python -m tests.browser.figures`.

Of a network of the zoo, compiled by the service for 16 threads without tuning, and of a full history: what the first
view weighs, what a frame costs while the graph and the timeline are moved and magnified, and what lists take.
A frame's script is the wall time of its callback; its CPU time is that of all processes of the browser, rasterising
without a GPU included. Other work on the machine makes the first longer, and the second hardly.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import onnx

from bench.zoo import build
from tests.browser.history import JOBS, RECORDS, write_history
from tests.browser.webdriver import Browser, browser
from tests.end_to_end.house import House, eventually, running

THREADS = 16
FRAMES = 120
TASKS = 20_000
SMALLER, LARGE = 6, 8
"""How often a drawing is made smaller until all is in sight, and larger until it can be read."""
TICK_S = 1 / os.sysconf("SC_CLK_TCK")

DRIVE = """
const [frames, step] = [arguments[0], new Function("canvas", "frame", arguments[1])];
const done = arguments[arguments.length - 1];
const canvas = document.querySelector("main canvas");
const real = requestAnimationFrame, spent = [];
window.requestAnimationFrame = (call) => real((at) => {
  const begin = performance.now();
  call(at);
  spent.push(performance.now() - begin);
});
let frame = 0;
const next = () => {
  if (frame === frames) { window.requestAnimationFrame = real; done(spent); return; }
  step(canvas, frame++);
  real(next);
};
real(next);
"""
ZOOM = """
const {left, top, width, height} = canvas.getBoundingClientRect();
const way = frame % 60 < 30 ? -1 : 1;
const at = {clientX: left + width / 2, clientY: top + height / 2};
canvas.dispatchEvent(new WheelEvent("wheel", {...at, deltaY: 24 * way, cancelable: true}));
"""
PAN = """
const key = ["ArrowRight", "ArrowLeft", "ArrowDown", "ArrowUp"][Math.floor(frame / 15) % 4];
canvas.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true, cancelable: true}));
"""
LARGER = """
const real = fetch, tasks = arguments[0];
window.fetch = async (to, ...more) => {
  const answer = await real(to, ...more);
  if (!String(to).endsWith("/plan")) return answer;
  const plan = await answer.json(), once = plan.tasks, end = Math.max(...once.map((one) => one.end_s));
  const [perLane] = [once.reduce((count, one) => count.set(one.lane, (count.get(one.lane) || 0) + 1), new Map())];
  for (let turn = 1; plan.tasks.length < tasks; turn++) {
    plan.tasks = plan.tasks.concat(once.slice(0, tasks - plan.tasks.length).map((one) => ({
      ...one, begin_s: one.begin_s + turn * end, end_s: one.end_s + turn * end,
      waits: one.waits.map(([lane, count]) => [lane, count + turn * perLane.get(lane)]),
    })));
  }
  return new Response(JSON.stringify(plan));
};
"""
"""The plan of an artifact, run several times over, until it has so many tasks."""


def main() -> None:
    """Prints one line for each figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="nasnet_a_large", help="of the zoo")
    model: str = parser.parse_args().model
    with tempfile.TemporaryDirectory(prefix="tilewright-figures-") as folder, running(Path(folder)) as house:
        made = compiled(house, model, Path(folder))
        with browser() as page:
            page.size(1280, 900)
            first_view(house, page)
            page.press("Use a key")
            page.type("#key", house.key)
            page.press("Sign in")
            page.sees("succeeded")
            drawings(house, page, made)
            write_history(house)
            lists(house, page)
    print(f"load of the machine at the end: {', '.join(f'{one:.1f}' for one in os.getloadavg())}")


def compiled(house: House, model: str, folder: Path) -> dict[str, Any]:
    """The job that compiled the network."""
    file = folder / "model.onnx"
    onnx.save(build(model), file)
    headers = {"Authorization": f"Bearer {house.key}"}
    options = json.dumps({"threads": THREADS, "tuning_budget_s": 0})
    with (
        httpx.Client(base_url=house.url, headers=headers, timeout=600.0, trust_env=False) as api,
        file.open("rb") as it,
    ):
        job = api.post("/compile", files={"model": it}, data={"options": options}).raise_for_status().json()

        def ended() -> dict[str, Any] | None:
            found: dict[str, Any] = api.get(f"/jobs/{job['id']}").raise_for_status().json()
            assert found["state"] not in ("FAILED", "CANCELLED"), found
            return found if found["state"] == "SUCCEEDED" else None

        while (found := ended()) is None:
            time.sleep(1.0)
        print(f"{model} was compiled in {found['run_seconds']:.0f} s for {THREADS} threads")
        return found


def first_view(house: House, page: Browser) -> None:
    """Bytes and time of what somebody sees who comes for the first time."""
    page.go(house.url)
    page.sees("Use a key")
    painted = "return performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
    milliseconds = page.until(lambda: page.run(painted), "a paint")
    sizes = page.run(
        "return [...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]"
        ".map((one) => [one.transferSize, one.decodedBodySize])"
    )
    sent, whole = (sum(one[at] for one in sizes) for at in (0, 1))
    weight = f"{sent / 1000:.0f} kB sent, {whole / 1000:.0f} kB of content"
    print(f"first view: {len(sizes)} files, {weight}, painted after {milliseconds:.0f} ms")


def drawings(house: House, page: Browser, job: dict[str, Any]) -> None:
    """What a frame costs in each drawing."""
    page.go(f"{house.url}/#/jobs/{job['id']}/graph")
    page.find("main canvas")
    page.run(
        "[...document.querySelectorAll('main button')].find((one) => one.innerText.startsWith('as loaded')).click()"
    )
    page.run("[...document.querySelectorAll('main button')].find((one) => one.innerText.startsWith('kernels')).click()")
    page.until(lambda: page.run("return document.querySelectorAll('main canvas').length") == 1, "one drawing")
    boxes = page.run("return document.querySelector('main canvas').dataset.boxes")
    frames(page, f"graph of {boxes} operators")
    page.run(LARGER, TASKS)
    page.go(f"{house.url}/#/jobs/{job['id']}/schedule")
    drawn = "return +document.querySelector('main canvas')?.dataset.boxes"
    page.until(lambda: page.run(drawn) == TASKS, "the tasks")
    frames(page, f"timeline of {TASKS:,} tasks on {THREADS} lanes")


def frames(page: Browser, what: str) -> None:
    """Of all of it in sight magnified and made smaller, then moved, then of a part moved, as large as can be read."""
    magnified = "document.querySelector(`main .drawing button[aria-label=${arguments[0]}]`).click()"
    page.press("Whole")
    for _ in range(SMALLER):
        page.run(magnified, "smaller")
    report(page, f"{what}, all in sight, magnified", ZOOM)
    report(page, f"{what}, all in sight, moved", PAN)
    for _ in range(SMALLER + LARGE):
        page.run(magnified, "larger")
    report(page, f"{what}, a part moved", PAN)


def report(page: Browser, what: str, step: str) -> None:
    before = cpu_seconds()
    spent = page.drive(DRIVE, FRAMES, step)
    each = 1e3 * (cpu_seconds() - before) / FRAMES
    sorted_ms = sorted(spent)
    print(
        f"{what}: {len(spent)} frames, script {statistics.median(spent):.1f} ms (95 of 100 within "
        f"{sorted_ms[int(0.95 * (len(spent) - 1))]:.1f}), CPU time of the browser {each:.1f} ms a frame"
    )


def cpu_seconds() -> float:
    """Of all processes of browsers that descend from this one."""
    parents: dict[int, tuple[int, str, float]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            head, _, rest = stat.read_text().rpartition(")")
        except OSError:
            continue
        fields = rest.split()
        name = head.partition("(")[2]
        parents[int(stat.parent.name)] = (int(fields[1]), name, TICK_S * (int(fields[11]) + int(fields[12])))

    def ours(process: int) -> bool:
        while process in parents:
            if process == os.getpid():
                return True
            process = parents[process][0]
        return False

    return sum(spent for process, (_, name, spent) in parents.items() if name.startswith("chrom") and ours(process))


def lists(house: House, page: Browser) -> None:
    """What it takes to see a page of many rows, and the next one."""
    views: tuple[tuple[str, str, Callable[[str], bool]], ...] = (
        (f"{JOBS:,} jobs", "jobs", lambda name: "/jobs?" in name),
        (f"{RECORDS:,} records", "records", lambda name: "/tuning-records?" in name),
    )
    for what, view, asked in views:
        page.go("about:blank")
        page.go(f"{house.url}/#/{view}")
        rows = "return document.querySelectorAll('tbody tr').length"
        eventually(lambda rows=rows: page.run(rows) >= 50, "rows")  # type: ignore[misc]
        first = entries(page, asked)
        page.run("performance.clearResourceTimings()")
        before = cpu_seconds()
        page.press("Older")
        eventually(lambda asked=asked: entries(page, asked), "the next page")  # type: ignore[misc]
        page.until(lambda: page.run("return document.body.innerText.includes('Newer')"), "shown")
        time.sleep(1.0)
        spent = cpu_seconds() - before
        second = entries(page, asked)
        asked_ms = f"first page asked for in {first[0]:.0f} ms, the next in {second[0]:.0f} ms"
        print(f"{what}: {asked_ms}, {1e3 * spent:.0f} ms of CPU to show it")


def entries(page: Browser, wanted: Callable[[str], bool]) -> list[float]:
    """Milliseconds of each request that fits."""
    reported = page.run("return performance.getEntriesByType('resource').map((one) => [one.name, one.duration])")
    return [duration for name, duration in reported if wanted(name)]


if __name__ == "__main__":
    main()
