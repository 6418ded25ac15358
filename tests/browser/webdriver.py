"""A browser that tests drive: Chromium behind chromedriver, by the W3C's WebDriver protocol over HTTP."""

from __future__ import annotations

import base64
import contextlib
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx

from tests.servers import GUARD_S, free_port

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
"""Key of an element's id (WebDriver, section 11)."""
SWITCHES = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)


def missing() -> str:
    """Which program is not installed; empty: both are."""
    needed = {"chromium": "chromium", "chromedriver": "chromium-driver"}
    return ", ".join(package for program, package in needed.items() if shutil.which(program) is None)


class Browser:
    """One window."""

    def __init__(self, session: httpx.Client) -> None:
        self._session = session

    def _post(self, path: str, **given: Any) -> Any:
        answer = self._session.post(path, json=given)
        assert answer.status_code == 200, answer.text
        return answer.json()["value"]

    def go(self, url: str) -> None:
        """Load a page, or change what follows `#` of the one that is there."""
        self._post("url", url=url)

    def run(self, script: str, *arguments: Any) -> Any:
        """What a piece of JavaScript returns."""
        return self._post("execute/sync", script=script, args=list(arguments))

    def drive(self, script: str, *arguments: Any) -> Any:
        """What a piece of JavaScript gives to the function that is its last argument."""
        return self._post("execute/async", script=script, args=list(arguments))

    def text(self) -> str:
        """All text that can be seen."""
        return str(self.run("return document.body.innerText"))

    def until(self, holds: Callable[[], Any], what: str) -> Any:
        """Wait until something holds; what it gave."""
        end = time.monotonic() + GUARD_S
        while time.monotonic() < end:
            with contextlib.suppress(AssertionError):
                if found := holds():
                    return found
            time.sleep(0.1)
        raise AssertionError(f"never came: {what}\n{self.text()}\n{self.said()}")

    def sees(self, text: str) -> None:
        """Wait for a text."""
        self.until(lambda: text in self.text(), text)

    def find(self, selector: str) -> str:
        """The id of the first element of a CSS selector, once there is one."""
        found = self.until(lambda: self._post("elements", using="css selector", value=selector), selector)
        return str(found[0][ELEMENT])

    def _act(self, selector: str, verb: str, **given: Any) -> None:
        """Do something to the first such element; again where the page put another in its place meanwhile."""

        def tried() -> httpx.Response | None:
            answer = self._session.post(f"element/{self.find(selector)}/{verb}", json=given)
            return None if "stale element reference" in answer.text else answer

        answer = self.until(tried, f"{verb} of {selector}")
        assert answer.status_code == 200, answer.text

    def click(self, selector: str) -> None:
        """Click on the first such element."""
        self._act(selector, "click")

    def click_at(self, selector: str, x: int, y: int) -> None:
        """Click so many pixels right of and below the upper left corner of the first such element."""
        element = self.find(selector)
        width, height = self.run("return [arguments[0].clientWidth, arguments[0].clientHeight]", {ELEMENT: element})
        # The origin of an element is its middle.
        to = {"type": "pointerMove", "origin": {ELEMENT: element}, "x": x - width // 2, "y": y - height // 2}
        pressed = [to, {"type": "pointerDown", "button": 0}, {"type": "pointerUp", "button": 0}]
        self._post("actions", actions=[{"type": "pointer", "id": "mouse", "actions": pressed}])

    def press(self, name: str) -> None:
        """Click on the button or link of this name."""
        mark = "return [...document.querySelectorAll('button, a')].find((one) => one.innerText.trim() === arguments[0])"
        found = self.until(lambda: self.run(mark, name), name)
        self._post(f"element/{found[ELEMENT]}/click")

    def visit(self, name: str) -> None:
        """Press a link of the navigation, and wait until its view is there: the one before it may look alike."""
        self.press(name)
        current = "return document.querySelector('nav [aria-current=page]')?.innerText.trim()"
        self.until(lambda: self.run(current) == name, f"the view {name}")

    def type(self, selector: str, text: str) -> None:
        """Type into the first such element; into one for files their paths."""
        self._act(selector, "value", text=text)

    def drop(self, selector: str, paths: Sequence[Path]) -> None:
        """Drop files and folders of this machine on the middle of the first such element."""
        self.find(selector)
        x, y = self.run(
            "const {left, top, width, height} = document.querySelector(arguments[0]).getBoundingClientRect();"
            "return [left + width / 2, top + height / 2]",
            selector,
        )
        data = {"items": [], "files": list(map(str, paths)), "dragOperationsMask": 1}
        for step in ("dragEnter", "dragOver", "drop"):
            given = {"type": step, "x": x, "y": y, "data": data}
            self._post("goog/cdp/execute", cmd="Input.dispatchDragEvent", params=given)

    def downloads(self, folder: Path) -> None:
        """Let what is downloaded lie in a folder."""
        given = {"behavior": "allow", "downloadPath": str(folder)}
        self._post("goog/cdp/execute", cmd="Browser.setDownloadBehavior", params=given)

    def keys(self, text: str) -> None:
        """Press keys, one after the other, on what has the focus (WebDriver, section 17.4.2 names the others)."""
        pressed = [{"type": kind, "value": key} for key in text for kind in ("keyDown", "keyUp")]
        self._post("actions", actions=[{"type": "key", "id": "keyboard", "actions": pressed}])

    def cookies(self) -> list[dict[str, Any]]:
        """Those of the page that is shown, those too that its scripts cannot read."""
        kept: list[dict[str, Any]] = self._session.get("cookie").json()["value"]
        return kept

    def forget(self, instead: Sequence[dict[str, Any]] = ()) -> None:
        """Sign out without a word: drop the page's cookies, and keep these instead."""
        self._session.delete("cookie")
        for one in instead:
            self._post("cookie", cookie=one)

    def size(self, width: int, height: int) -> None:
        """Of the window."""
        self._post("window/rect", width=width, height=height)

    @contextlib.contextmanager
    def tab(self, *, dark: bool = False) -> Iterator[Browser]:
        """This browser in a tab of its own, in which nobody is signed in, 1280 by 900.

        Afterwards whoever was signed in is so again, and what the console said is gone.
        """
        own, kept, here = (
            self._session.get("window").json()["value"],
            self.cookies(),
            self.run("return location.origin"),
        )
        self.forget()
        self._post("window", handle=self._post("window/new", type="tab")["handle"])
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self._post("goog/cdp/execute", cmd="Emulation.setEmulatedMedia", params={"features": scheme})
        self.size(1280, 900)
        try:
            yield self
        finally:
            self._session.delete("window")
            self._post("window", handle=own)
            if self.run("return location.origin") == here:
                self.forget(kept)
            self.size(1280, 900)
            self.said()

    def picture(self, file: Path) -> None:
        """What is seen, as PNG."""
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(base64.b64decode(self._session.get("screenshot").json()["value"]))

    def said(self) -> list[str]:
        """Errors and warnings of the console that were not asked for before."""
        lines = self._post("se/log", type="browser")
        return [line["message"] for line in lines if line["level"] in ("SEVERE", "WARNING")]


@contextlib.contextmanager
def browser() -> Iterator[Browser]:
    """A window of a browser with a profile of its own; the browser is gone afterwards."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="tilewright-browser-") as profile:
        driver = subprocess.Popen(
            ["chromedriver", f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=300.0, trust_env=False) as http:
                session = _session(http, [*SWITCHES, f"--user-data-dir={profile}"])
                http.base_url = http.base_url.join(f"/session/{session}/")
                try:
                    yield Browser(http)
                finally:
                    ended = httpx.delete(f"http://127.0.0.1:{port}/session/{session}", timeout=60.0, trust_env=False)
                    assert ended.status_code == 200, ended.text  # chromedriver alone would leave the browser
        finally:
            driver.terminate()
            driver.wait()


def _session(http: httpx.Client, switches: list[str]) -> str:
    options = {"args": switches, "binary": shutil.which("chromium")}
    wanted = {"browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
    end = time.monotonic() + GUARD_S
    while True:
        try:
            answer = http.post("/session", json={"capabilities": {"alwaysMatch": wanted}})
            break
        except httpx.ConnectError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["value"]["sessionId"])
