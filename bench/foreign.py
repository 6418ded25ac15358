"""Programs of others on `tilewright.InferenceSession`: packages that use ONNX Runtime and hold their models.

`pip install --target DIR rapidocr-onnxruntime magika nudenet ddddocr faster-whisper`, then `python -m bench foreign
DIR`. Each package runs what its page shows, in a process with ONNX Runtime and in one where `tilewright.session` stands
in; nothing of it is changed. What it says is compared, and what its models gave at each run, once all are compiled.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

TURNS = 5


def picture(words: str, height: int = 160, width: int = 640) -> np.ndarray:
    """uint8[height, width, 3]: black words on white, drawn by OpenCV, which three of the packages bring."""
    cv2 = importlib.import_module("cv2")
    page = np.full((height, width, 3), 255, np.uint8)
    cv2.putText(page, words, (20, height // 2 + 20), cv2.FONT_HERSHEY_SIMPLEX, 2.0, (0, 0, 0), 4)
    return page


def sound(seconds: float = 4.0) -> np.ndarray:
    """float32 at 16 kHz: harmonics of a voice's pitch that come and go, in noise."""
    at = np.arange(int(16000 * seconds)) / 16000
    voice = sum(np.sin(2 * np.pi * 140 * k * at) / k for k in range(1, 20)) * (np.sin(2 * np.pi * 1.5 * at) > 0)
    return np.asarray(0.1 * voice + 0.003 * np.random.default_rng(0).standard_normal(at.size), np.float32)


def rapidocr() -> Callable[[], Any]:
    """Words of a picture, their boxes and how sure it is."""
    engine, page = importlib.import_module("rapidocr_onnxruntime").RapidOCR(), picture("Tilewright 2026")
    return lambda: [(text, np.round(box).tolist()) for box, text, _ in engine(page)[0] or ()]


def magika() -> Callable[[], Any]:
    """Types of files by their content."""
    found = importlib.import_module("magika").Magika()
    files = [Path(__file__).read_bytes(), b'#include <stdio.h>\nint main(void) { return puts("x"); }\n' * 4, b"{}" * 99]
    return lambda: [str(found.identify_bytes(one).output.label) for one in files]


def nudenet() -> Callable[[], Any]:
    """Parts of people in a picture; there are none in this one."""
    detector, page = importlib.import_module("nudenet").NudeDetector(), picture("nobody", 320, 320)
    return lambda: [one["class"] for one in detector.detect(page)]


def ddddocr() -> Callable[[], Any]:
    """The letters of a captcha."""
    reader = importlib.import_module("ddddocr").DdddOcr(show_ad=False)
    data = importlib.import_module("cv2").imencode(".png", picture("k7Qx", 64, 220))[1].tobytes()
    return lambda: reader.classification(data)


def faster_whisper() -> Callable[[], Any]:
    """Where somebody speaks, by Silero's network over the whole sound at once."""
    vad = importlib.import_module("faster_whisper.vad")
    return lambda: vad.get_speech_timestamps(sound())


PACKAGES: Mapping[str, Callable[[], Callable[[], Any]]] = {
    one.__name__: one for one in (rapidocr, magika, nudenet, ddddocr, faster_whisper)
}


def child(name: str, ours: bool, budget: float) -> dict[str, Any]:
    """What a package says, what its models gave in the order of their runs, and processor seconds of a turn."""
    sessions: list[Any] = []
    if ours:
        module = importlib.import_module("tilewright.session")
        module.stand_in({"tuning_budget_s": budget, "compare": []})
    else:
        module = importlib.import_module("onnxruntime")
    gave: list[list[np.ndarray]] = []
    opens, runs = module.InferenceSession.__init__, module.InferenceSession.run

    def opened(self: Any, *given: Any, **named: Any) -> None:
        opens(self, *given, **named)
        sessions.append(self)

    def run(self: Any, *given: Any, **named: Any) -> Any:
        found = runs(self, *given, **named)
        gave.append(found)
        return found

    module.InferenceSession.__init__, module.InferenceSession.run = opened, run
    program = PACKAGES[name]()
    program()  # models that are opened at the first use are opened now
    told = [one.wait(1200) or one.refused for one in sessions] if ours else []
    gave.clear()
    said, gave_once = program(), list(gave)
    taken = []
    for _ in range(TURNS):
        begin = time.process_time()
        program()
        taken.append(time.process_time() - begin)
    return {"said": said, "gave": gave_once, "seconds": sorted(taken)[TURNS // 2], "told": told}


def _in_a_process(name: str, ours: bool, at: Path, budget: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "found"
        path = os.pathsep.join([str(Path(__file__).resolve().parent.parent), *sys.path[1:], str(at)])
        words = [sys.executable, "-m", "bench.foreign", str(at), "--only", name, "--budget", str(budget)]
        subprocess.run(
            [*words, "--out", str(out), *(["--ours"] if ours else [])],
            env={**os.environ, "PYTHONPATH": path},
            check=True,
            stdout=subprocess.DEVNULL,
        )
        found = pickle.loads(out.read_bytes())  # what the process of this very file wrote
        return dict(found)


def apart(ours: list[list[np.ndarray]], theirs: list[list[np.ndarray]]) -> float:
    """The largest difference of outputs, relative to the largest value of theirs; infinite for other shapes."""
    if [[one.shape for one in run] for run in ours] != [[one.shape for one in run] for run in theirs]:
        return float("inf")
    worst = 0.0
    for one, other in zip([a for run in ours for a in run], [a for run in theirs for a in run], strict=True):
        if other.size:
            largest = float(np.abs(other.astype(np.float64)).max()) or 1.0
            worst = max(worst, float(np.abs(one.astype(np.float64) - other.astype(np.float64)).max()) / largest)
    return worst


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 1 where a package says something else than with ONNX Runtime."""
    parser = argparse.ArgumentParser(prog="python -m bench foreign", description=__doc__)
    parser.add_argument("at", type=Path, help="the folder that the packages were installed to")
    parser.add_argument("--only", choices=[*PACKAGES], help="one package")
    parser.add_argument("--budget", type=float, default=5.0, help="seconds of measuring for each model (5)")
    parser.add_argument("--ours", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.out:
        given.out.write_bytes(pickle.dumps(child(given.only, given.ours, given.budget)))
        return 0
    differ = 0
    print("| package | says the same | largest difference | processor ms, ONNX Runtime | ours | artifacts that run |")
    print("|---|---|---|---|---|---|")
    for name in [given.only] if given.only else PACKAGES:
        theirs, ours = (_in_a_process(name, one, given.at, given.budget) for one in (False, True))
        same = json.dumps(ours["said"]) == json.dumps(theirs["said"])
        differ += not same
        ran = f"{sum(one is True for one in ours['told'])} of {len(ours['told'])}"
        times = f"{1e3 * theirs['seconds']:.1f} | {1e3 * ours['seconds']:.1f}"
        print(f"| {name} | {same} | {apart(ours['gave'], theirs['gave']):.1e} | {times} | {ran} |", flush=True)
        for reason in ours["told"]:
            if reason is not True:
                print(f"{name}: {reason}", file=sys.stderr)
        if not same:
            print(f"{name}: {ours['said']} instead of {theirs['said']}", file=sys.stderr)
    return int(differ > 0)


if __name__ == "__main__":
    sys.exit(main())
