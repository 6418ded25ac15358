"""One large file up and down again, and what it costs the API process in memory."""

from __future__ import annotations

import hashlib
import os
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx

from bench.service.wire import Server
from tilewright.errors import BrokenDownload

PIECE = 4 << 20
MIB = 1 << 20


@dataclass(frozen=True)
class Transfer:
    """Megabytes (10^6 bytes) per second, and what the peak of resident memory rose by in MiB."""

    bytes: int
    up_mb_s: float
    down_mb_s: float
    up_extra_mib: float
    down_extra_mib: float


def transfer(server: Server, size: int, pid: int) -> Transfer:
    """Upload `size` random bytes as a model, and download them. `pid` is the API's process.

    Raises `BrokenDownload` when the server names another digest, or another number of bytes comes back.
    """
    block = random.Random(size).randbytes(PIECE)

    def body() -> Iterator[bytes]:
        for start in range(0, size, PIECE):
            # Each piece differs, so that nothing on the way can take one for another.
            yield (start.to_bytes(8, "little") + block[8:])[: size - start]

    digest = hashlib.sha256()
    for piece in body():
        digest.update(piece)
    headers = {"Authorization": f"Bearer {server.key}"}
    with httpx.Client(base_url=server.url, headers=headers, timeout=600.0, trust_env=False) as http:
        before = reset_peak(pid)
        begin = time.perf_counter()
        kind = {"Content-Type": "application/octet-stream", "Content-Length": str(size)}
        answer = http.post("/models", content=body(), headers=kind).raise_for_status()
        up, up_peak = time.perf_counter() - begin, peak(pid)
        if answer.json()["digest"] != digest.hexdigest():
            raise BrokenDownload("the server names another digest than the bytes have", fix="report this")
        after = reset_peak(pid)
        begin = time.perf_counter()
        received = 0
        with http.stream("GET", f"/models/{digest.hexdigest()}/file") as stream:
            for piece in stream.raise_for_status().iter_raw(PIECE):
                received += len(piece)
        down, down_peak = time.perf_counter() - begin, peak(pid)
    if received != size:
        raise BrokenDownload(f"{received} of {size} bytes came back", fix="report this")
    return Transfer(
        bytes=size,
        up_mb_s=1e-6 * size / up,
        down_mb_s=1e-6 * size / down,
        up_extra_mib=(up_peak - before) / MIB,
        down_extra_mib=(down_peak - after) / MIB,
    )


def reset_peak(pid: int) -> int:
    """Begin anew to watch the peak of a process's resident memory; the bytes it holds now."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def peak(pid: int) -> int:
    """The most bytes a process has held since `reset_peak`."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:"))
