from __future__ import annotations

import pytest

from bench.devices.run import main, table

ROW = {
    "model": "tiny",
    "devices": ["cpu:0", "cpu:1@x86-64-v3"],
    "parts": [3, 2],
    "alone_s": {"cpu:0": 2e-3, "cpu:1@x86-64-v3": 4e-3},
    "streamed_s": 1.6e-3,
    "predicted_s": 1.5e-3,
    "latency_s": 2.5e-3,
    "predicted_latency_s": 2.25e-3,
    "run_s": 2e-3,
    "bound_s": 1 / 750,
    "processor_s": {"cpu:0": 2e-3, "cpu:1@x86-64-v3": 4e-3, "streamed": 1.4e-3, "by itself": 2.4e-3},
    "processor_bound_s": 1 / 750,
}


def test_a_row_has_inferences_per_second_beside_the_bound() -> None:
    head, _, row = table([ROW]).splitlines()
    cells = dict(zip(head.split(" | "), row.split(" | "), strict=True))
    assert cells["cpu:0 /s"] == "500.0"
    assert cells["streamed /s"] == "625.0"
    assert cells["bound /s"] == "750.0"
    assert cells["of the bound"] == "0.83"
    assert cells["by processor time: of the bound"] == "0.95"
    assert cells["predicted over measured period"] == "0.94"
    assert cells["the same by processor time"] == "1.07"
    assert (cells["by itself ms"], cells["predicted ms"]) == ("2.50", "2.25")
    assert cells["predicted over measured, by itself"] == "0.90"
    assert cells["the same without others' time |"] == "0.94 |"
    assert cells["parts"] == "3+2"


@pytest.mark.parametrize("wrong", [["--devices", "cpu:0"], ["--devices", "cpu:0,gpu:1"], ["no_such_network"]])
def test_what_cannot_be_measured_is_refused_before_anything_is_built(
    wrong: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(wrong)
    assert ended.value.code == 2
    assert "error" in capsys.readouterr().err
