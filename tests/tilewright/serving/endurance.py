"""`python -m tests.tilewright.serving.endurance --fates 100 --seed 7`: kills and new files under clients that ask on.

Clients send texts of unequal lengths to `tilewright serve --batching`, and again where a connection breaks. Each answer
must be that of an artifact that was served while it was asked for, as the same process gives it without a server. While
no server is being killed or stopped, no connection may break and no request be refused.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import numpy as np

from bench.texts.encoder import INPUTS, Encoder
from compiler.contract import CompileOptions
from tests.compiling import compile_file
from tilewright import load
from tilewright.serving.app import HEADER_LENGTH

WORDS, LONGEST, MOST_TEXTS = 50, 12, 8
TOLERANCE = 1e-4
"""Of an answer beside that of the text alone; those of two artifacts differ by a hundred times that."""
PATIENCE_S = 120.0
"""In which a request must be answered, a server be up, and a new file be loaded."""
AGAIN_S = 0.02
TEXTS = 40
Text = Mapping[str, np.ndarray]


def made(folder: Path, seed: int) -> Path:
    """An artifact for texts of unequal lengths, whose weights the seed says."""
    encoder = Encoder(vocabulary=WORDS, seed=seed)
    encoder.layer()
    model, artifact = folder / f"{seed}.onnx", folder / f"{seed}.tw"
    model.write_bytes(encoder.finish(embedding=encoder.mean()))
    options = {"ragged": dict.fromkeys(INPUTS, 1), "dims": {"batch": MOST_TEXTS, "sequence": LONGEST}}
    compile_file(model, artifact, CompileOptions.from_json({**options, "threads": 1, "tuning_budget_s": 0}))
    return artifact


def drawn_texts(count: int, seed: int) -> list[Text]:
    """Texts of all lengths that the model takes."""
    random = np.random.default_rng(seed)
    lengths = random.integers(1, LONGEST + 1, count)
    return [
        {"input_ids": random.integers(0, WORDS, length), "token_type_ids": np.zeros(length, np.int64)}
        for length in lengths
    ]


def body_of(texts: Sequence[Text]) -> tuple[bytes, int]:
    """A request's body in binary, and the length of its JSON."""
    arrays = {name: np.concatenate([text[name] for text in texts]) for name in texts[0]}
    arrays["offsets"] = np.cumsum([0, *(len(text["input_ids"]) for text in texts)])
    inputs = [
        {"name": name, "datatype": "INT64", "shape": [array.size], "parameters": {"binary_data_size": array.nbytes}}
        for name, array in arrays.items()
    ]
    head = json.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}}).encode()
    return b"".join((head, *(array.tobytes() for array in arrays.values()))), len(head)


@dataclass
class Tally:
    """What became of all requests; `breaches` is what must not be."""

    answered: int = 0
    again: int = 0
    slowest_s: float = 0.0
    fates: Counter[str] = field(default_factory=Counter)
    breaches: list[str] = field(default_factory=list)


class Run:
    """A server, clients, and what happens to the two.

    files  artifacts of different weights, by name; the first one is served at first
    """

    def __init__(self, folder: Path, files: Mapping[str, Path], clients: int, seed: int) -> None:
        self.folder, self.files, self.random = folder, files, Random(seed)
        self.served = folder / "served.tw"
        self.scratch = folder / "scratch"
        self.scratch.mkdir()
        self.texts = drawn_texts(TEXTS, seed)
        self.wanted = {name: self._alone(file) for name, file in files.items()}
        self.tally, self.lock = Tally(), threading.Lock()
        self.name, self.allowed = next(iter(files)), {next(iter(files))}
        self.may_break, self.is_over = True, False
        self.ends = 0
        self.port, self.reloads = 0, 0
        self.threads = [threading.Thread(target=self._client, args=(seed, at)) for at in range(clients)]

    def _alone(self, file: Path) -> list[np.ndarray]:
        with load(file) as model:
            return [model.run_texts([text])[0]["embedding"] for text in self.texts]

    # ---- clients

    def _client(self, seed: int, at: int) -> None:
        random = Random((seed, at).__repr__())
        port, connection = 0, http.client.HTTPConnection("127.0.0.1", timeout=PATIENCE_S)
        while not self.is_over:
            chosen = random.choices(range(TEXTS), k=random.randint(1, MOST_TEXTS))
            begin, tries = time.monotonic(), 0
            while True:
                with self.lock:
                    may_break, ends, allowed = self.may_break, self.ends, {*self.allowed}
                try:
                    if port != self.port:
                        connection.close()
                        port = connection.port = self.port
                    self._ask(connection, chosen, allowed)
                    break
                except (OSError, http.client.HTTPException) as error:
                    connection.close()
                    tries += 1
                    with self.lock:
                        if not may_break and ends == self.ends:
                            self.tally.breaches.append(f"a connection broke: {error!r}")
                if time.monotonic() - begin > PATIENCE_S:
                    self._breach(f"no answer after {tries} tries")
                    break
                time.sleep(AGAIN_S)
            with self.lock:
                self.tally.answered += 1
                self.tally.again += tries
                self.tally.slowest_s = max(self.tally.slowest_s, time.monotonic() - begin)
        connection.close()

    def _ask(self, connection: http.client.HTTPConnection, chosen: Sequence[int], allowed: set[str]) -> None:
        body, head = body_of([self.texts[at] for at in chosen])
        connection.request("POST", "/v2/models/m/infer", body, {HEADER_LENGTH: str(head)})
        answer = connection.getresponse()
        content = answer.read()
        if answer.status != 200:
            self._breach(f"status {answer.status}: {content.decode()[:200]}")
            return
        found = np.frombuffer(content[int(answer.headers[HEADER_LENGTH]) :], np.float32).reshape(len(chosen), -1)
        with self.lock:
            allowed |= self.allowed
        errors = {
            name: float(np.abs(found - np.stack([self.wanted[name][at] for at in chosen])).max()) for name in self.files
        }
        if min(errors[name] for name in allowed) > TOLERANCE:
            self._breach(f"another answer than that of {' or '.join(allowed)}: {errors}")

    def _breach(self, said: str) -> None:
        with self.lock:
            self.tally.breaches.append(said)

    # ---- the server

    def start(self) -> None:
        """Come up."""
        words = ["serve", f"m={self.served}", "--batching", "--port", "0", "--json", "--queue", "1024"]
        self.errors = (self.folder / "errors.txt").open("a")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tilewright", *words],
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            env={**os.environ, "TMPDIR": str(self.scratch)},
        )
        assert self.process.stdout is not None
        said = self.process.stdout.readline()
        assert said, (self.folder / "errors.txt").read_text()
        self.port, self.reloads = int(json.loads(said)["url"].rpartition(":")[2]), 0
        with self.lock:
            self.may_break = False

    def end(self, how: signal.Signals) -> None:
        """Kill it, or ask it to end."""
        with self.lock:
            self.may_break = True
            self.ends += 1
        self.process.send_signal(how)
        status = self.process.wait(PATIENCE_S)
        if status not in (0, -how):
            self._breach(f"it ended with status {status}")
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.errors.close()

    def put(self, content: bytes) -> None:
        """A file in the place of the served one."""
        fresh = self.folder / "fresh"
        fresh.write_bytes(content)
        fresh.replace(self.served)

    def put_another(self) -> None:
        """Another artifact in the place of the served one."""
        self.name = self.random.choice([name for name in self.files if name != self.name])
        with self.lock:
            self.allowed = {*self.allowed, self.name}
        self.put(self.files[self.name].read_bytes())

    def until(self, holds: Callable[[], bool], what: str) -> None:
        """Waits."""
        end = time.monotonic() + PATIENCE_S
        while not holds():
            assert time.monotonic() < end, f"{what}; {(self.folder / 'errors.txt').read_text()[-2000:]}"
            time.sleep(AGAIN_S)

    def loaded(self) -> bool:
        """Whether a file more was loaded than before."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics") as answer:
            found = answer.read().decode().partition('tilewright_serve_reloads_total{model="m"} ')[2]
        return bool(found) and float(found.split()[0]) > self.reloads

    # ---- fates

    def replaced(self) -> None:
        """By another artifact, which all requests from now on get."""
        self.put_another()
        self.until(self.loaded, "a file is not loaded")
        self.reloads += 1
        self.alone()

    def damaged(self) -> None:
        """By half a file, which changes nothing, then by another one."""
        said = (self.folder / "errors.txt").read_text().count("cannot be loaded")
        content = self.files[self.name].read_bytes()
        self.put(content[: len(content) // 2])
        self.until(
            lambda: (self.folder / "errors.txt").read_text().count("cannot be loaded") > said, "half a file is no fault"
        )
        self.replaced()

    def killed(self) -> None:
        """While it answers; another one comes up."""
        self.end(signal.SIGKILL)
        self.start()

    def stopped(self) -> None:
        """It answers what it has, and ends; another one comes up."""
        self.end(signal.SIGTERM)
        self.start()

    def killed_while_replaced(self) -> None:
        """A file takes the served one's place, and the server is killed before, while or after it loads it."""
        self.put_another()
        time.sleep(self.random.uniform(0, 1.2))
        self.killed()
        self.alone()

    def alone(self) -> None:
        """From now on nothing but the newest artifact may answer."""
        with self.lock:
            self.allowed = {self.name}

    def run(self, fates: Sequence[str]) -> Tally:
        """Lets these come to pass."""
        self.put(self.files[self.name].read_bytes())
        self.start()
        try:
            for thread in self.threads:
                thread.start()
            for fate in fates:
                getattr(self, fate)()
                self.tally.fates[fate] += 1
                time.sleep(self.random.uniform(0, 0.2))
            self.is_over = True
            for thread in self.threads:
                thread.join()
            self.end(signal.SIGTERM)
        finally:
            self.is_over = True
            self.process.kill()
        if left := [*self.scratch.iterdir()]:
            self._breach(f"{len(left)} files are left, such as {left[0].name}")
        return self.tally


FATES = ("replaced", "damaged", "killed", "stopped", "killed_while_replaced")


def dealt(count: int, seed: int) -> list[str]:
    """That many fates in a drawn order, each as often as the others."""
    found = [FATES[at % len(FATES)] for at in range(count)]
    Random(seed).shuffle(found)
    return found


def main() -> int:
    """Exit status: 0, or 1 where a request was lost or answered wrongly."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fates", type=int, default=100, help="how many (100)")
    parser.add_argument("--clients", type=int, default=8, help="that ask at a time (8)")
    parser.add_argument("--seed", type=int, default=0, help="of fates and texts (0)")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = {"a": made(folder, 1), "b": made(folder, 2), "c": made(folder, 3)}
        tally = Run(folder, files, given.clients, given.seed).run(dealt(given.fates, given.seed))
    print(
        f"{tally.answered} requests answered, sent again {tally.again} times, the slowest after {tally.slowest_s:.1f} s"
    )
    print(", ".join(f"{count} times {fate}" for fate, count in tally.fates.items()))
    print("\n".join(tally.breaches[:20]) or "nothing was lost or wrong")
    return bool(tally.breaches)


if __name__ == "__main__":
    sys.exit(main())
