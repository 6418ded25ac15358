"""An honest caller beside hostile ones: `python -m bench service --hostile`.

The hostile ones run in a process of their own, behind others on the cores, as they would from other machines: keyless
connections that send half a head and keep still, keyless bodies of tens of MiB, keyless looks at readiness, and with
a key of another owner bodies without end and empty pieces for a finished zip that lacks the name of its model.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import json
import os
import subprocess
import sys
import time
import zipfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from bench.service.transfer import MIB, peak, reset_peak
from bench.service.wire import Server

HALF_OPEN = 1000
PATCHES = 45
KEYLESS_BODIES = 8
LOOKS = 20
ZIP_BYTES = 256 << 20
JSON_BYTES = 57 << 20
PER_S = 20.0
"""Requests of the honest caller."""
PATIENCE_S = 60.0

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Beset:
    """What the honest caller got: answers, milliseconds from when each was due; MiB of the API's memory at its peak."""

    asked: int
    answered: int
    p50_ms: float
    p99_ms: float
    worst_ms: float
    before_mib: float
    peak_mib: float
    hostile: dict[str, int]


def beset(honest: Server, hostile: Server, pid: int, seconds: float) -> Beset:
    """Ask for the owner's jobs at a fixed rate while the hostile ones do their worst. `pid` is the API's process."""
    with attacked(hostile, pid, seconds) as attack:
        asked, taken = asyncio.run(_honest(honest, seconds))
    ordered = sorted(taken) or [float("inf")]
    return Beset(
        asked=asked,
        answered=len(taken),
        p50_ms=ordered[len(ordered) // 2],
        p99_ms=ordered[int(0.99 * (len(ordered) - 1))],
        worst_ms=ordered[-1],
        before_mib=attack.before_mib,
        peak_mib=attack.peak_mib,
        hostile=attack.heard,
    )


@dataclass
class Attack:
    """What is known once it is over: MiB of the API's memory, and what the hostile ones were answered."""

    before_mib: float
    peak_mib: float = 0.0
    heard: dict[str, int] = field(default_factory=dict)


@contextlib.contextmanager
def attacked(hostile: Server, pid: int, seconds: float) -> Iterator[Attack]:
    """The hostile ones do their worst for so long, beside the block. `pid` is the API's process."""
    upload = _whole_zip(hostile)
    attack = Attack(before_mib=reset_peak(pid) / MIB)
    order = json.dumps({**asdict(hostile), "upload": upload, "seconds": seconds})
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, [ROOT, *sys.path]))}
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "bench.service.hostile", order], env=environment, stdout=subprocess.PIPE
    )
    try:
        yield attack
        said = process.communicate(timeout=2 * PATIENCE_S)[0]
    finally:
        process.kill()
        process.wait()
    attack.peak_mib = peak(pid) / MIB
    attack.heard = json.loads(said or b"{}")


def _whole_zip(server: Server) -> str:
    """The path of an upload that has arrived whole, and becomes a model only when somebody names one of two."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a.onnx", bytes(ZIP_BYTES // 2))
        archive.writestr("b.onnx", bytes(ZIP_BYTES // 2))
    data = file.getvalue()
    with _client(server) as http:
        announced = {
            "bytes": len(data),
            "media_type": "application/zip",
            "sha256": hashlib.sha256(data).hexdigest(),
        }
        path = str(http.post("/uploads", json=announced).raise_for_status().headers["location"])
        http.patch(path, content=data, headers={"Upload-Offset": "0"})
    return f"{path} {len(data)}"


def _client(server: Server) -> httpx.Client:
    headers = {"Authorization": f"Bearer {server.key}"}
    return httpx.Client(base_url=server.url, headers=headers, timeout=600.0, trust_env=False)


async def _honest(server: Server, seconds: float) -> tuple[int, list[float]]:
    """How many requests were made, and milliseconds that each answered one took."""
    headers = {"Authorization": f"Bearer {server.key}"}
    taken: list[float] = []
    async with httpx.AsyncClient(
        base_url=server.url, headers=headers, timeout=PATIENCE_S, trust_env=False, limits=httpx.Limits()
    ) as http:

        async def ask(due: float) -> None:
            with contextlib.suppress(httpx.HTTPError):
                (await http.get("/jobs")).raise_for_status()
                taken.append(1e3 * (time.perf_counter() - due))

        begin = time.perf_counter()
        asking = []
        for number in range(int(seconds * PER_S)):
            due = begin + number / PER_S
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            asking.append(asyncio.create_task(ask(due)))
        await asyncio.gather(*asking)
    return len(asking), taken


async def _attack(server: Server, upload: str, seconds: float) -> Counter[str]:
    """What the hostile ones were answered, by what they did and status."""
    path, size = upload.split()
    address = urlsplit(server.url)
    key = {"Authorization": f"Bearer {server.key}"}
    heard: Counter[str] = Counter()
    end = time.monotonic() + seconds
    large = b'{"artifacts": [' + b'"x",' * (JSON_BYTES // 4) + b'"x"]}'
    kind = {"Content-Type": "application/json"}

    async def again(what: str, ask: Callable[[], Awaitable[httpx.Response]]) -> None:
        while time.monotonic() < end:
            try:
                heard[f"{what}: {(await ask()).status_code}"] += 1
            except httpx.HTTPError as error:
                heard[f"{what}: {type(error).__name__}"] += 1
                await asyncio.sleep(0.01)

    async def half_open() -> None:
        while time.monotonic() < end:
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection(address.hostname, address.port)
                writer.write(b"GET / HTTP/1.1\r\nHost:")
                with contextlib.suppress(TimeoutError):
                    heard["half-open: opened"] += 1
                    await asyncio.wait_for(reader.read(), max(0.1, end - time.monotonic()))
                    heard["half-open: closed by the server"] += 1
                writer.close()
            await asyncio.sleep(0.1)

    async def endless() -> AsyncIterator[bytes]:
        while time.monotonic() < end:
            yield bytes(1 << 16)

    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=server.url, timeout=PATIENCE_S, trust_env=False, limits=limits) as http:
        offset = {**key, "Upload-Offset": size}
        tasks = [half_open() for _ in range(HALF_OPEN)]
        tasks += [again("empty PATCH", lambda: http.patch(path, headers=offset)) for _ in range(PATCHES)]
        tasks += [
            again("keyless body", lambda: http.post("/benchmarks", content=large, headers=kind))
            for _ in range(KEYLESS_BODIES)
        ]
        tasks += [
            again("endless body", lambda: http.post("/benchmarks", content=endless(), headers={**key, **kind}))
            for _ in range(KEYLESS_BODIES)
        ]
        tasks += [again("keyless /readyz", lambda: http.get("/readyz")) for _ in range(LOOKS)]
        await asyncio.gather(*tasks)
    return heard


if __name__ == "__main__":
    os.nice(10)
    given = json.loads(sys.argv[1])
    counted = asyncio.run(_attack(Server(given["url"], given["key"]), given["upload"], given["seconds"]))
    print(json.dumps(dict(sorted(counted.items()))))
