"""What habits of kernels are worth by the model: of a small network, whose weights lie in the cache or do not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.gpu import worth
from compiler.contract import CompileOptions
from compiler.devices.cuda import model
from compiler.devices.cuda.target import resolve
from tests.compiler.devices.cuda.test_nvrtc import needs_nvrtc


@needs_nvrtc
@pytest.mark.parametrize("network", ["tiny_cnn", "tiny_mobile"])
def test_launches_are_counted_and_what_they_save_is_the_models(
    network: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    known, of_the_model = list[worth.Worth](), worth.worth

    def once(name: str, file: Path, options: CompileOptions) -> worth.Worth:
        known.append(of_the_model(name, file, options))
        return known[-1]

    monkeypatch.setattr(worth, "worth", once)
    assert worth.main([network, "--json"]) == 0
    (found,) = known
    assert json.loads(capsys.readouterr().out) == vars(found)
    assert 0 < found.early <= found.launches
    assert found.early_s == pytest.approx(1e-9 * model.EARLY_NS * found.early)
    assert (found.prefetch_s, found.asked_bytes > 0) == (0.0, found.asking > 0), "all of it stays in the cache"
    assert found.sequential_s > found.early_s
    hopper = resolve("cuda:sm_90")
    assert model.prefetched_ns(4800.0, False, hopper) == 1.0
    assert model.prefetched_ns(1e9, False, hopper) == hopper.launch_ns
