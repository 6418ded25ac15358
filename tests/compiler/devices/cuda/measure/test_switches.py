"""Whether kernels ask for weights ahead and load constants early: by what two small kernels were measured to take."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from compiler.devices.cuda import device as cuda_device
from compiler.devices.cuda import nvrtc
from compiler.devices.cuda.device import CudaBackend
from compiler.devices.cuda.measure.apart import Lost
from compiler.devices.cuda.measure.bench import Bench, Subject
from compiler.devices.cuda.measure.costs import COSTS, known_costs
from compiler.devices.cuda.measure.switches import SAMPLES, SWITCHES, Switch, known_switch, measure_switches
from compiler.devices.cuda.target import Gpu, resolve
from compiler.devices.cuda.toolchain import find_cuda_toolchain
from compiler.ir.buffers import KernelGraph
from compiler.ir.machine import Record
from compiler.knowledge.records import Records
from tests.compiler.devices.cuda.test_nvrtc import disassembler, needs_nvrtc
from tests.cuda_double import double
from tests.cuda_double.double import compile_kernels, compiler_there
from tests.kept import kept

ALL = (*SWITCHES, *(cost.probe for cost in COSTS))
TARGET = resolve("cuda", Gpu("double", (9, 0), 8, 1 << 20, 8 << 30, 1.8, "cuda:sm_90/0"))
NOTHING = KernelGraph(inputs=(), outputs=(), buffers={}, constants={}, calls=())


class Reported:
    """A bench on which a launch takes so many seconds, by the name of its kernel."""

    def __init__(self, **seconds: float) -> None:
        self.seconds, self.asked, self.closed = seconds, dict[int, str](), False

    def reserve(self, subjects: Sequence[Subject]) -> None:
        rotating = [one for one in subjects if one.operands[0].rotates]
        assert len(rotating) == 4
        assert all(one.copies * one.operands[0].bytes >= 2 * TARGET.l2_bytes for one in rotating)

    def place(self, at: int, subject: Subject) -> None:
        assert subject.grid == TARGET.multiprocessors
        self.asked[at] = subject.name

    def sample(self, at: int) -> float:
        return self.seconds.get(self.asked[at], 1e-6)

    def close(self) -> None:
        self.closed = True


@needs_nvrtc
def test_a_habit_is_taken_up_where_launches_take_less_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Reported(prefetch_on=0.9e-6, early_constants_off=0.9e-6, handover_ns_on=65e-6, code_ns_on=3e-6)
    records = measure_switches(TARGET, ALL, bench=bench)
    assert bench.closed
    assert len(Records(records)) == 8
    assert [known_switch(records, TARGET, switch) for switch in SWITCHES] == [True, False]
    assert known_costs(records, TARGET) == pytest.approx({"handover_ns": 1000.0, "code_ns": 125.0})
    assert known_costs(records[:-1], TARGET) == pytest.approx({"handover_ns": 1000.0})
    assert [known_switch(records[:1], TARGET, switch) for switch in SWITCHES] == [None, None]
    assert known_switch(records, resolve("cuda:sm_90"), SWITCHES[0]) is None, "nobody measured this one"

    backend = CudaBackend(TARGET, find_cuda_toolchain())
    monkeypatch.setattr(cuda_device, "measure_splits", lambda target: [])
    asked: list[list[str]] = []

    def measured(target: object, switches: Sequence[Switch]) -> list[Record]:
        asked.append([switch.field for switch in switches])
        return list(records) if len(switches) == 4 else records[2:]

    monkeypatch.setattr(cuda_device, "measure_switches", measured)
    with_them, found = backend.prepared(NOTHING, (), measure=True)
    assert found == records
    assert (with_them.target.prefetch, with_them.target.early_constants) == (True, False)
    assert (with_them.target.handover_ns, with_them.target.code_ns) == pytest.approx((1000.0, 125.0))
    again, found = backend.prepared(NOTHING, records, measure=True)
    assert (again.target, found) == (with_them.target, [])
    assert backend.prepared(NOTHING, records[:2], measure=True)[0].target == with_them.target
    fields = ["prefetch", "early_constants", "handover_ns", "code_ns"]
    assert asked == [fields, fields[1:]]
    assert backend.prepared(NOTHING, (), measure=False) == (backend, [])
    assert backend.prepared(NOTHING, records, measure=False)[0].target.prefetch


@needs_nvrtc
def test_a_gpu_that_does_not_take_the_kernels_is_left_as_it_is() -> None:
    class Gone(Reported):
        def sample(self, at: int) -> float:
            raise Lost("gone")

    bench = Gone()
    assert measure_switches(TARGET, bench=bench) == []
    assert bench.closed


@pytest.mark.skipif(not compiler_there(), reason="the double of CUDA needs g++")
def test_both_kernels_run_and_leave_what_they_share() -> None:
    for switch in ALL:
        library = compile_kernels(switch.source, "checked", f"{switch.field}.cu")
        image = f"cubin of {library.name}\0".encode()
        file = kept(f"image of {library.name}", ".image", partial(Path.write_bytes, data=image))
        small = replace(TARGET, multiprocessors=2, l2_bytes=1 << 16)
        with double.Device(settings=f"module={file}:sm_90:{library}") as device, Bench(0, 0) as bench:
            subjects = [replace(switch.subject(image, on, small), sample_s=1e-9) for on in (False, True)]
            bench.reserve(subjects)
            for at, subject in enumerate(subjects):
                bench.place(at, subject)
            assert all(bench.sample(at) > 0 for at in range(2) for _ in range(2))
        assert not device.state()["executables"]
    assert SAMPLES > 2


@needs_nvrtc
@pytest.mark.skipif(disassembler() is None, reason="nvdisasm is not installed")
def test_the_kernels_differ_in_the_habit_alone(tmp_path: Path) -> None:
    tool = disassembler()
    assert tool is not None
    for switch in SWITCHES:
        unit = nvrtc.compile_cuda(switch.source, "sm_90a")
        cubin = tmp_path / f"{switch.field}.cubin"
        cubin.write_bytes(unit.image)
        text = subprocess.run([tool, "-c", cubin], capture_output=True, text=True, check=True).stdout
        _, *sections = re.split(r"^//-+ \.text\.(\w+)\s+-+$", text, flags=re.MULTILINE)
        code = dict(zip(sections[::2], sections[1::2], strict=True))
        off, on = (
            re.findall(r"UBLKPF|ACQBULK|BAR\.SYNC|LDG|STG", code[switch.kernel(which)]) for which in (False, True)
        )
        if switch.field == "prefetch":
            assert on.index("UBLKPF") < on.index("ACQBULK")
            assert [one for one in on if one != "UBLKPF"] == off
        else:
            last_off, last_on = (len(one) - one[::-1].index("BAR.SYNC") for one in (off, on))
            assert (off[last_off:].count("LDG"), on[last_on:].count("LDG")) == (1, 0)
            assert sorted(off) == sorted(on)
