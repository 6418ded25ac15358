from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench.quantize.run import (
    METHODS,
    decibels_of,
    decision_table,
    least,
    main,
    noise,
    noise_table,
    quantised_of,
    time_table,
)
from compiler.contract import QuantisedOutput


def test_every_method_quantises_a_network_and_the_least_output_counts(tmp_path: Path) -> None:
    row = noise("tiny_mobile", tmp_path)
    assert row["layers"] > 3
    assert all(row[method] > 10 for method in METHODS)
    assert row["best"] == max(row[method] for method in ("mse", "minmax", "percentile"))
    assert quantised_of("tiny_mobile", tmp_path).is_file()
    assert f"| tiny_mobile | {row['layers']} | {row['best']:.1f} |" in noise_table([row])
    assert least(QuantisedOutput("y", snr_db, None) for snr_db in (3.0, None, 2.0)) == 2.0


def test_times_are_told_as_ratios() -> None:
    row = {"model": "m", "int8": 1e-3, "fp32": 4e-3, "peer int8": 2e-3, "peer fp32": 5e-3, "db": 30.0, "peer db": 20.0}
    assert "| m | 1.00 | 4.00 | 0.25 | 2.00 | 5.00 | 0.50 | 30.0 | 20.0 |" in time_table([row])


def test_signal_to_noise_is_that_of_the_output_with_least() -> None:
    wanted = [np.array([3.0, 4.0], np.float32), np.array([5.0], np.float32)]
    assert decibels_of([wanted[0], np.array([4.5], np.float32)], wanted) == pytest.approx(20.0)


def test_decisions_are_told_with_how_sure_fp32_was() -> None:
    row = {"model": "m", "method": "mse", "snr": 30.0, "inputs": 8, "same": 0.875, "widest": 0.01, "seconds": 1.0}
    assert "| m | mse | 30.0 | 8 | 87.5% | 0.010 | 1.0 |" in decision_table([row])


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--mystery"])
    assert ended.value.code == 2
