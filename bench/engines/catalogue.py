"""The engines there are."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from importlib.metadata import version

from bench.engines import iree, onnxruntime, openvino, tilewright
from bench.engines.driver import Driver
from tilewright.errors import UsageError

OURS = "tilewright"

DRIVERS: tuple[Driver, ...] = (
    Driver(OURS, "tilewright", (), tilewright.open_artifact, layers=tilewright.layers),
    Driver("onnxruntime", "onnxruntime", ("onnxruntime",), onnxruntime.open_session, layers=onnxruntime.layers),
    Driver("onnxruntime-parallel", "onnxruntime", ("onnxruntime",), onnxruntime.open_parallel_session),
    Driver("openvino", "openvino", ("openvino",), openvino.open_model, layers=openvino.layers),
    Driver(
        "iree",
        "iree.compiler",
        ("iree-base-compiler[onnx]", "iree-base-runtime"),
        iree.open_module,
        prepare=iree.compile_model,
    ),
)

NO_PEERS = {
    "torch": "PyTorch reads no ONNX: what would be measured is a converter and its choice of modules, not PyTorch",
    "tvm": "untuned it takes a hundred times as long as the others, "
    "and the tuner of 0.27 crashes before its first trial",
}
"""Engines that somebody may look for here, and why they are not among the peers."""


def driver(name: str) -> Driver:
    """The engine called `name`. Raises KeyError."""
    return {known.name: known for known in DRIVERS}[name]


def peers() -> tuple[str, ...]:
    """All engines but ours."""
    return tuple(known.name for known in DRIVERS if known.name != OURS)


def chosen(text: str) -> tuple[str, ...]:
    """Peers out of names with commas between.

    Raises `UsageError` for one that is none, that comes twice or is not installed.
    """
    names = tuple(filter(None, text.split(",")))
    for name in names:
        if name in NO_PEERS:
            raise UsageError(f"{name} is no peer: {NO_PEERS[name]}", fix=f"use {', '.join(peers())}")
        if name not in peers() or names.count(name) > 1:
            raise UsageError(f"--peers {text}: {name!r} is unknown or there twice", fix=f"use {', '.join(peers())}")
        demand(driver(name))
    return names


def telling(peers: Sequence[str]) -> tuple[str, ...]:
    """The peers, if all of them report their layers. Raises `UsageError`."""
    for peer in peers:
        if driver(peer).layers is None:
            raise UsageError(f"{peer} does not tell what each of its layers costs", fix=f"leave {peer} out of --peers")
    return tuple(peers)


def demand(engine: Driver) -> None:
    """Raises `UsageError` naming what pip installs, unless the engine can be imported."""
    if not _found(engine.module):
        wanted = " ".join(f"'{package}'" if "[" in package else package for package in engine.packages)
        raise UsageError(f"{engine.name} is not installed", fix=f"pip install {wanted}")


def _found(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # not even what it is part of
        return False


def versions(names: Sequence[str]) -> dict[str, str]:
    """Version by distribution, of all that the engines are installed from."""
    packages = [package.partition("[")[0] for name in names for package in driver(name).packages]
    return {package: version(package) for package in packages}
