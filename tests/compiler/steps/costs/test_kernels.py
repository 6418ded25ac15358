"""What kernels cost: by records where all that is compared has some, else by the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from compiler.contract import CompileOptions
from compiler.devices.device import Backend
from compiler.devices.kinds import backend_of, propose
from compiler.fuse import fuse
from compiler.ir.buffers import KernelGraph
from compiler.ir.machine import Record
from compiler.ir.tensor import DType
from compiler.ir.tile import Cost, Tile
from compiler.steps.costs.kernels import kernel_costs
from compiler.tuning.tune import workload_key
from tests.compiler.rewrite.sketch import Sketch


@pytest.fixture(scope="module")
def backend() -> Backend:
    return backend_of(CompileOptions(), {})


@pytest.fixture(scope="module")
def kernels() -> KernelGraph:
    s = Sketch(0, DType.F32)
    x = s.x(16, 32)
    for width in (24, 40, 48):
        x = s("MatMul", x, s.normal(s.dims(x)[-1], width))
    return fuse(s.graph(x)).kernels


def records(backend: Backend, kernels: KernelGraph, positions: list[int], seconds: float = 1e-3) -> list[Record]:
    """As if the model's two favourites had been measured of the kernels of some calls: the second one is the faster."""
    setting = backend.setting(kernels)
    found = []
    for position in positions:
        workload = backend.workload_of(kernels, kernels.calls[position])
        for at, option in enumerate(propose(workload, backend.target, 1)[:2]):
            taken = seconds / (1 + at)
            found.append(
                Record(
                    kind="kernel",
                    workload=workload_key(workload),
                    operator="",
                    description="",
                    target=backend.target.name,
                    hardware=backend.target.hardware,
                    variant={**option.tile.to_json(), "lanes": 1, **setting.to_json()},
                    threads=1,
                    seconds=taken,
                    p10=taken,
                    p90=taken,
                    samples=9,
                )
            )
    return found


def test_where_all_are_known_records_tell_the_best_tile(backend: Backend, kernels: KernelGraph) -> None:
    known = records(backend, kernels, [0, 1, 2])
    costs = kernel_costs(backend, known, backend.setting(kernels), 1, "fp32").of(kernels, kernels.calls)
    assert {cost.source for cost in costs} == {"record"}
    assert len(known) > len(costs)
    assert [cost.seconds for cost in costs] == [min(record.seconds for record in known)] * 3


def test_where_one_is_not_known_the_model_tells_of_all(backend: Backend, kernels: KernelGraph) -> None:
    costs = kernel_costs(backend, records(backend, kernels, [0, 1]), backend.setting(kernels), 1, "fp32")
    assert {cost.source for cost in costs.of(kernels, kernels.calls)} == {"model"}
    assert {cost.source for cost in costs.of(kernels, kernels.calls[:2])} == {"record"}
    workload = backend.workload_of(kernels, kernels.calls[2])
    (modelled,) = costs.of(kernels, kernels.calls[2:])
    assert modelled.seconds == propose(workload, backend.target, 1)[0].seconds


def test_records_of_another_setting_do_not_count(backend: Backend, kernels: KernelGraph) -> None:
    known = records(backend, kernels, [0, 1, 2])
    setting = backend.setting(kernels)
    other = type(setting)("memory" if setting.weights == "cache" else "cache", setting.toolchain)
    costs = kernel_costs(backend, known, other, 1, "fp32").of(kernels, kernels.calls)
    assert {cost.source for cost in costs} == {"model"}


def test_records_of_earlier_compilers_count_while_the_kernels_have_the_same_code(
    backend: Backend, kernels: KernelGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting, known = backend.setting(kernels), records(backend, kernels, [0, 1, 2])
    workloads = {workload_key(one): one for one in (backend.workload_of(kernels, call) for call in kernels.calls)}

    def of_code(record: Record, source: str) -> Record:
        return replace(record, compiler="0.1.0+before", variant={**record.variant, "source": source})

    def costs(known: Sequence[Record]) -> Sequence[Cost]:
        return kernel_costs(backend, known, setting, 1, "fp32").of(kernels, kernels.calls)

    codes = [backend.source_of(workloads[one.workload], Tile.from_json(one.variant)) for one in known]
    alike = [of_code(one, code) for one, code in zip(known, codes, strict=True)]
    assert costs(alike) == costs(known)
    fastest = min(known, key=lambda record: record.seconds)
    fixed = [
        of_code(one, "fixed" if one.seconds == fastest.seconds else code)
        for one, code in zip(known, codes, strict=True)
    ]
    assert [cost.source for cost in costs(fixed)] == ["record"] * 3
    assert all(cost.seconds > fastest.seconds for cost in costs(fixed)), "the next best, of code that is the same"
    assert {cost.source for cost in costs([of_code(one, "") for one in known])} == {"model"}
    illegal = [replace(one, variant={**one.variant, "algorithm": "of another release"}) for one in alike]
    monkeypatch.setattr(type(backend), "source_of", lambda *asked: pytest.fail("code was generated"))
    assert {cost.source for cost in costs(illegal)} == {"model"}
    assert costs(known)


def test_what_was_modelled_stays_for_the_same_target_and_precision_alone(
    backend: Backend, kernels: KernelGraph
) -> None:
    costs = kernel_costs(backend, [], backend.setting(kernels), 1, "fp32")
    costs.of(kernels, kernels.calls)
    assert len(costs.modelled) == 3
    assert costs.on(backend, "fp32").modelled is costs.modelled
    assert not costs.on(backend, "bf16").modelled
