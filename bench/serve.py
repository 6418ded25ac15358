"""`python -m bench serve`: a model behind HTTP, asked by several callers, beside ONNX Runtime behind the same server.

The peer is `tilewright serve`'s own application with an ONNX Runtime session for a model, so that what differs is what
runs the model. Each answers the same requests, binary as in the protocol, in turns; callers ask again at once. Beside
the time of answers stands the processor time of a request, which says most on a machine that others use too.

With `--texts` the model is an encoder, each request one text of some length: ours joins those that wait (`--batching`),
and the peer runs each by itself, which is nearly the best that it does (`bench texts`).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import httpx
import numpy as np
import onnxruntime
import uvicorn
from rich.console import Console

import tilewright
from bench import subjects
from bench.ending import ended
from bench.subject import Subject
from bench.texts.encoder import INPUTS, minilm
from bench.texts.run import LONGEST, MEDIAN, MOST_TEXTS, SPREAD, lengths_of, padded, texts_of
from compiler.contract import CompileOptions
from compiler.pack.loader import TensorSpec
from compiler.pipeline import compile_model
from compiler.request import Request
from tilewright.loading import Model
from tilewright.serving.app import HEADER_LENGTH, Serving
from tilewright.serving.served import Cores, Served
from tilewright.serving.tensors import DATATYPES

CALLERS = (1, 8, 64)
TURNS = 3
MOST_WAITING = 1 << 10
"""More than there are callers: none is refused."""
TYPES = {"tensor(float)": "float32", "tensor(double)": "float64"}
"""ONNX Runtime's names of types that are not `tensor(NAME)` with the name that numpy has."""
ALONE_S = 3.0
"""How long the artifact runs without a server."""
TEXTS = 256
"""Different ones, that callers ask for in turn."""
MINILM = "minilm"
"""The encoder of `bench texts`, by this name."""


@dataclass(frozen=True)
class Row:
    """What one server did for some callers. Times are milliseconds."""

    engine: str
    callers: int
    per_second: float
    median_ms: float
    p99_ms: float
    processor_ms: float
    resident_mib: float


@dataclass(frozen=True)
class Asked:
    """What is served and asked for: files and requests by engine, and our server's options.

    alone_ms  processor time of a request without a server, where all of a run wait at once
    """

    name: str
    files: Mapping[str, Path]
    sent: Mapping[str, Sequence[bytes]]
    options: Sequence[str]
    alone_ms: float


class Peer:
    """ONNX Runtime with one thread, as a model that is served."""

    errors = (onnxruntime.capi.onnxruntime_pybind11_state.RuntimeException,)
    lanes = 1
    manifest: Mapping[str, Any] = {"target": "onnxruntime"}

    def __init__(self, file: Path) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
        self.inputs, self.outputs = (
            tuple(TensorSpec(one.name, TYPES.get(one.type, one.type[7:-1]), tuple(one.shape)) for one in side)
            for side in (self._session.get_inputs(), self._session.get_outputs())
        )
        self.bindings = (self,)

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """Outputs by name."""
        names = [one.name for one in self.outputs]
        return dict(zip(names, self._session.run(names, dict(inputs)), strict=True))

    def close(self) -> None:
        """Nothing: its memory goes with it."""


def serve_peer(model: Path) -> None:
    """Until it is stopped; says where it is as `tilewright serve --json` does."""
    cores = Cores(len(os.sched_getaffinity(0)))
    served = Served("m", model, cores, queue=MOST_WAITING, opened=lambda file: cast(Model, Peer(file)))
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listening:
        print(json.dumps({"url": f"http://127.0.0.1:{listening.getsockname()[1]}"}), flush=True)
        config = uvicorn.Config(Serving({"m": served}).app(), log_level="warning")
        uvicorn.Server(config).run(sockets=[listening])


@contextlib.contextmanager
def serving(engine: str, file: Path, options: Sequence[str]) -> Iterator[tuple[int, int]]:
    """A server's port and process, as long as the context lasts."""
    ours = ["tilewright", "serve", f"m={file}", "--port", "0", "--queue", str(MOST_WAITING), "--json", *options]
    command = ours if engine == "tilewright" else ["bench.serve", str(file), "--peer"]
    with subprocess.Popen([sys.executable, "-m", *command], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            if not (said := process.stdout.readline()):
                raise RuntimeError(f"a server ended with status {process.wait()}")
            url = str(json.loads(said)["url"])
            httpx.get(f"{url}/v2/models/m/ready").raise_for_status()
            yield int(url.rpartition(":")[2]), process.pid
        finally:
            process.terminate()


def request(feeds: Mapping[str, np.ndarray]) -> bytes:
    """All bytes of an inference."""
    inputs = [
        {
            "name": name,
            "datatype": DATATYPES[str(array.dtype)],
            "shape": array.shape,
            "parameters": {"binary_data_size": array.nbytes},
        }
        for name, array in feeds.items()
    ]
    head = json.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}}).encode()
    body = b"".join((head, *(array.tobytes() for array in feeds.values())))
    lines = ("POST /v2/models/m/infer HTTP/1.1", "Host: bench", f"Content-Length: {len(body)}")
    return "\r\n".join((*lines, f"{HEADER_LENGTH}: {len(head)}", "", "")).encode() + body


async def load(port: int, sent: Iterator[bytes], callers: int, seconds: float) -> list[float]:
    """Seconds of each answer that began within this time."""
    times: list[float] = []
    end = time.perf_counter() + seconds

    async def call() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while (begin := time.perf_counter()) < end:
            writer.write(next(sent))
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            assert head.startswith("http/1.1 200"), head
            await reader.readexactly(int(head.partition("\r\ncontent-length:")[2].split()[0]))
            times.append(time.perf_counter() - begin)
        writer.close()

    await asyncio.gather(*(call() for _ in range(callers)))
    return times


def processor_s(pid: int) -> float:
    """Seconds of processor time that a process has had."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_mib(pid: int) -> float:
    """Memory of a process, MiB."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def measured(asked: Asked, callers: Sequence[int], seconds: float) -> Iterator[Row]:
    """A row for each server and number of callers; servers take turns."""
    sent = {engine: itertools.cycle(all_sent) for engine, all_sent in asked.sent.items()}
    with contextlib.ExitStack() as running:
        up = {
            engine: running.enter_context(serving(engine, file, asked.options)) for engine, file in asked.files.items()
        }
        for count in callers:
            times: dict[str, list[float]] = {engine: [] for engine in up}
            used, took_s = dict.fromkeys(up, 0.0), dict.fromkeys(up, 0.0)
            for _ in range(TURNS):
                for engine, (port, pid) in up.items():
                    before = processor_s(pid)
                    begin = time.perf_counter()
                    times[engine] += asyncio.run(load(port, sent[engine], count, seconds / TURNS))
                    took_s[engine] += time.perf_counter() - begin
                    used[engine] += processor_s(pid) - before
            for engine, (_, pid) in up.items():
                took = sorted(times[engine])
                yield Row(
                    engine,
                    count,
                    len(took) / took_s[engine],
                    1e3 * statistics.median(took),
                    1e3 * took[min(len(took) - 1, len(took) * 99 // 100)],
                    1e3 * used[engine] / len(took),
                    resident_mib(pid),
                )


def alone_ms(run: Callable[[], Any]) -> float:
    """Processor milliseconds of what runs without a server."""
    run()
    begin, end, runs = time.process_time(), time.perf_counter() + ALONE_S, 0
    while time.perf_counter() < end:
        run()
        runs += 1
    return 1e3 * (time.process_time() - begin) / runs


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 0, or as `ended` says."""
    parser = argparse.ArgumentParser(prog="python -m bench serve", description=__doc__)
    parser.add_argument("model", help="a network of the zoo, or an .onnx file with inputs of fixed shapes")
    parser.add_argument("--texts", action="store_true", help=f"the model is an .onnx encoder, or {MINILM}")
    parser.add_argument("--callers", type=int, nargs="+", default=CALLERS, help="who ask at a time (1 8 64)")
    parser.add_argument("--seconds", type=float, default=9.0, help="for each server and number of callers (9)")
    parser.add_argument("--budget", type=float, default=5.0, help="seconds of measuring when compiling (5)")
    parser.add_argument("--json", type=Path, help="write the rows there")
    parser.add_argument("--peer", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.peer:
        serve_peer(Path(given.model))
        return 0
    return ended(lambda: _measure(given), parser, Console(stderr=True))


def inferences(given: argparse.Namespace, folder: Path) -> Asked:
    """Of a model of fixed shapes, always the same one."""
    subject, artifact = subjects.subject(given.model, folder), folder / "m.tw"
    options = CompileOptions.from_json({"threads": 1, "tuning_budget_s": given.budget, **subject.options})
    compile_model(Request(subject.file, artifact, options))
    with tilewright.load(artifact) as model:
        feeds = model.random_inputs()
        took_ms = alone_ms(lambda: model.run(feeds))
    files = {"tilewright": artifact, "onnxruntime": subject.file}
    return Asked(subject.name, files, {engine: [request(feeds)] for engine in files}, (), took_ms)


def texts(given: argparse.Namespace, folder: Path) -> Asked:
    """Of an encoder, of lengths as `bench texts` draws them."""
    artifact = folder / "m.tw"
    subject = Subject(MINILM, "bench", folder / "minilm.onnx")
    if given.model == MINILM:
        subject.file.write_bytes(minilm())
    else:
        subject = subjects.from_file(Path(given.model))
    options = CompileOptions(
        threads=1,
        tuning_budget_s=given.budget,
        ragged=dict.fromkeys(INPUTS, 1),
        dims={"batch": MOST_TEXTS, "sequence": LONGEST},
    )
    compile_model(Request(subject.file, artifact, options))
    with tilewright.load(artifact) as model:
        limits = model.manifest["inputs"][0].get("range") or (0, 1000)
        drawn = texts_of(lengths_of(TEXTS, MEDIAN, SPREAD, seed=0), int(limits[1]), seed=0)
        took_ms = alone_ms(lambda: model.run_texts(drawn)) / TEXTS
    sent = {
        "tilewright": [request({**one, "offsets": np.array([0, len(one["input_ids"])])}) for one in drawn],
        "onnxruntime": [request(padded([one])) for one in drawn],
    }
    return Asked(subject.name, {"tilewright": artifact, "onnxruntime": subject.file}, sent, ("--batching",), took_ms)


def _measure(given: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory() as folder:
        asked, rows = (texts if given.texts else inferences)(given, Path(folder)), []
        print(f"{asked.name}: {asked.alone_ms:.3f} processor ms a request without a server, one thread\n")
        print("| callers | engine | requests a second | median ms | p99 ms | processor ms a request | resident MiB |")
        print("|---|---|---|---|---|---|---|")
        for row in measured(asked, given.callers, given.seconds):
            rows.append({"model": asked.name, "alone_ms": asked.alone_ms, **asdict(row)})
            times = f"{row.per_second:.0f} | {row.median_ms:.2f} | {row.p99_ms:.1f} | {row.processor_ms:.3f}"
            print(f"| {row.callers} | {row.engine} | {times} | {row.resident_mib:.0f} |", flush=True)
    if given.json:
        given.json.write_text(json.dumps(rows, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
