"""The race of plans on a GPU, held on the double: every plan is emitted, opened by the loader and run in turn.

Its times mean nothing.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from compiler.devices.cuda.device import CudaBackend
from compiler.devices.cuda.emit import program as emit
from compiler.devices.cuda.target import resolve
from compiler.devices.cuda.toolchain import find_cuda_toolchain
from compiler.trace import never_stops
from tests.compiler.devices.cuda.artifact_on_double import artifact_of, on_double
from tests.compiler.devices.cuda.emit.test_scheduled_graphs import network, unread_images
from tests.compiler.devices.cuda.on_double import needs_double
from tests.compiler.devices.cuda.test_nvrtc import needs_nvrtc
from tests.cuda_double.double import MODES

pytestmark = [needs_double, needs_nvrtc]
HOPPER = resolve("cuda:sm_90")
RACE = """
import json, pickle, sys
from pathlib import Path
from compiler.devices.cuda.emit import program as emit
from compiler.measure import plans
from compiler.trace import never_stops
from tests.compiler.devices.cuda.emit.test_scheduled_graphs import unread_images
backend, kernels, raced = pickle.loads(Path(sys.argv[1]).read_bytes())
plans.SECONDS, emit.compile_units = 0.01, unread_images
found = backend.race(kernels, raced, 0, never_stops, Path(sys.argv[1]).parent)
print(json.dumps([(one.spread.median, len(one.spread.samples), one.ratio.ratio) for one in found]))
"""


def backend(hardware: str = "") -> CudaBackend:
    return CudaBackend(replace(HOPPER, hardware=hardware), find_cuda_toolchain())


def test_plans_are_raced_as_artifacts_are_run_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(emit, "compile_units", unread_images)
    whole = network(tmp_path, "fires")
    plans = [whole.plans[name] for name in ("sequential", "streams")]
    twins = [on_double(artifact_of(whole.kernels, plan, tmp_path / f"{at}.tw")) for at, plan in enumerate(plans)]
    settings = dict.fromkeys(setting for twin in twins for setting in twin.settings.split())
    report = tmp_path / "report"
    given = tmp_path / "given.pickle"
    given.write_bytes(pickle.dumps((backend("the double"), whole.kernels, plans)))
    done = subprocess.run(
        [sys.executable, "-c", RACE, str(given)],
        env={
            **os.environ,
            **twins[0].environment,
            "TW_DOUBLE": f"{' '.join(settings)} {MODES[4]}",
            "TW_DOUBLE_REPORT": str(report),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    raced = json.loads(done.stdout.splitlines()[-1])
    assert len(raced) == len(plans)
    assert all(median > 0 and samples > 0 and ratio > 0 for median, samples, ratio in raced)
    assert raced[0][2] == 1.0
    state, fault, *_ = report.read_text().splitlines()
    assert (fault, {name: count for name, count in json.loads(state).items() if count}) == ("", {})
    assert not [one.name for one in tmp_path.iterdir() if one.name.startswith(".plans-")]


def test_where_the_gpu_is_elsewhere_or_someone_is_after_a_stop_request_nothing_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = network(tmp_path, "fires")
    plans = [one.plan for one in whole.found]
    monkeypatch.setattr("compiler.devices.cuda.device.emit_cuda", lambda *_: pytest.fail("a plan was emitted"))
    assert backend().race(whole.kernels, plans, 0, never_stops, tmp_path) is None
    assert backend("the double").race(whole.kernels, plans, 0, lambda: True, tmp_path) is None
