from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from bench.compress.run import main, pruned, table
from tests.compiler.compress.models import cnn, samples
from tests.compiler.quantize.models import saved


def test_a_network_is_pruned_within_each_error_and_timed_beside_its_dense_form(tmp_path: Path) -> None:
    given = argparse.Namespace(errors=(1e-6, 0.2), form="1x4", method="wanda", rounds=3, budget=0.0, tuning=0.0)
    (row,) = pruned("cnn", saved(cnn(), tmp_path), tmp_path, given, {"s": samples(tmp_path / "s.npz")})
    assert row["error"] <= 0.2
    assert min(row["dense"], row["pruned"]) > 0
    assert f"| cnn | 1x4, wanda | 0.2 | {row['error']:.3f} |" in table([row])


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--mystery"])
    assert ended.value.code == 2
