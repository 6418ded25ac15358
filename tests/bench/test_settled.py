from __future__ import annotations

from pathlib import Path

import pytest

from bench.settled import Settled, settled
from bench.subjects import subject
from compiler.contract import CompileOptions
from compiler.ir.machine import Record
from compiler.ir.tile import Menu
from tests.compiling import compile_file


@pytest.mark.parametrize("name", ["tiny_inception", "tiny_mobile", "tiny_lstm"])
@pytest.mark.parametrize("threads", [1, 2])
def test_what_is_scheduled_are_the_kernels_of_a_compilation(name: str, threads: int, tmp_path: Path) -> None:
    one = subject(name, tmp_path)
    options = CompileOptions(threads=threads, tuning_budget_s=0.0)
    report = compile_file(one.file, tmp_path / "m.tw", options, measure=False)
    found = settled(one, options, [])
    assert len(found.kernels.calls) == len(found.menus) == report.kernels
    assert (found.lanes, found.measured) == (threads, 0)


def test_kernels_of_which_there_are_records_count_as_measured(tmp_path: Path) -> None:
    one, options = subject("tiny_cnn", tmp_path), CompileOptions(threads=1)
    unknown = settled(one, options, [])
    records = [_record(unknown, menu).to_json() for menu in unknown.menus]
    assert settled(one, options, records).measured == len(unknown.menus)
    known = settled(one, options, records[:1])
    assert known.measured == sum(menu.workload == records[0]["workload"] for menu in known.menus)


def _record(of: Settled, menu: Menu) -> Record:
    """Says that a kernel under its best tile takes a microsecond."""
    target, variant = of.backend.target, {**menu.best.tile.to_json(), **of.setting.to_json()}
    return Record("kernel", menu.workload, "", "", target.name, target.hardware, variant, 1, 1e-6, 1e-6, 1e-6, 9)
