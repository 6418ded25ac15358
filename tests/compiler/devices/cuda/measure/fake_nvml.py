"""A stand-in for the package `nvidia-ml-py`.

A module `pynvml` with one GPU whose answers a JSON file decides, read at each question.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

SOURCE = """
import json, pathlib
NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0
class NVMLError(Exception): pass
class Answer:
    def __init__(self, **named): self.__dict__.update(named)
def told(name):
    answers = json.loads((pathlib.Path(__file__).parent / "answers.json").read_text())
    if name not in answers: raise NVMLError(name)
    found = answers[name]
    if isinstance(found, list) and found and isinstance(found[0], list):
        turn = pathlib.Path(__file__).parent / (name + ".turn")
        at = int(turn.read_text()) if turn.exists() else 0
        turn.write_text(str(at + 1))
        found = found[0][min(at, len(found[0]) - 1)]
    return found
def log(name):
    with open(pathlib.Path(__file__).parent / "calls", "a") as file: file.write(name + "\\n")
def nvmlInit(): log("init"); told("init")
def nvmlShutdown(): log("shutdown")
def nvmlDeviceGetCount(): return told("count")
def nvmlDeviceGetHandleByIndex(index):
    if index >= told("count"): raise NVMLError("index")
    return ("index", index)
def nvmlDeviceGetHandleByPciBusId(bus): return ("bus", told("buses").index(bus.decode()))
def nvmlDeviceGetName(handle): return told("name").encode()
def nvmlDeviceGetUUID(handle): return told("uuid")
def nvmlDeviceGetPciInfo(handle): return Answer(busId=told("bus").encode())
def nvmlDeviceGetCudaComputeCapability(handle): return tuple(told("capability"))
def nvmlDeviceGetMemoryInfo(handle): return Answer(total=told("memory"), free=told("free"))
def nvmlDeviceGetMaxClockInfo(handle, which): return told("max_clocks")[which - 1]
def nvmlDeviceGetClockInfo(handle, which): return told(("", "sm_clock", "memory_clock")[which])
def nvmlDeviceGetCurrentClocksThrottleReasons(handle): return told("throttle")
def nvmlDeviceGetTemperature(handle, sensor): return told("temperature")
def nvmlDeviceGetPowerUsage(handle): return told("power")
def nvmlSystemGetDriverVersion(): return told("driver").encode()
"""
H200: dict[str, Any] = {
    "init": True,
    "count": 1,
    "buses": ["0000:1b:00.0"],
    "name": "NVIDIA H200",
    "uuid": "GPU-0",
    "bus": "00000000:1B:00.0",
    "capability": [9, 0],
    "memory": 150 << 30,
    "free": 149 << 30,
    "max_clocks": [1980, 3201],
    "sm_clock": 1980,
    "memory_clock": 3201,
    "throttle": 0,
    "temperature": 31,
    "power": 76_500,
    "driver": "580.95.05",
}


def install(folder: Path, **changed: Any) -> Path:
    """Puts the module into a folder, to be found through `sys.path`.

    A value [[a, b, ...]] is given out in turn, None not at all.
    """
    folder.mkdir(exist_ok=True)
    (folder / "pynvml.py").write_text(SOURCE)
    answers = {name: value for name, value in {**H200, **changed}.items() if value is not None}
    (folder / "answers.json").write_text(json.dumps(answers))
    return folder
