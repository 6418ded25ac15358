"""Two artifacts of one model in turns."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.worker.race.test_race import compiled, made
from worker.race import pair as program
from worker.race.pair import Broken, Unlike, _difference, pair

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(made(tmp_path_factory.mktemp("pair") / "m.onnx"))


def test_an_artifact_beside_itself_has_equal_outputs_and_a_ratio_of_both(artifact: Path, tmp_path: Path) -> None:
    shutil.copy(artifact, tmp_path / "new.tw")
    found = pair(artifact, tmp_path / "new.tw", rounds=6)
    assert (found.rounds, found.threads, found.difference) == (6, 1, 0.0)
    assert found.kept_bytes == found.new_bytes == artifact.stat().st_size
    assert found.low is not None
    assert found.high is not None
    assert 0 < found.low < found.ratio < found.high
    assert found.kept_s > 0
    assert found.new_s > 0


def test_artifacts_of_other_inputs_cannot_be_put_beside_each_other(artifact: Path, tmp_path: Path) -> None:
    other = compiled(made(tmp_path / "m.onnx", dynamic=True), dims={"rows": 5})
    with pytest.raises(Unlike, match="other inputs or outputs"):
        pair(artifact, other, rounds=1)


def test_a_damaged_artifact_is_told_as_whose_it_is(
    artifact: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "none.tw").write_bytes(b"none")
    with pytest.raises(Broken, match=r"none\.tw"):
        pair(artifact, tmp_path / "none.tw", rounds=1)
    with pytest.raises(Unlike, match=r"none\.tw"):
        pair(tmp_path / "none.tw", artifact, rounds=1)
    assert program.main([str(artifact), str(tmp_path / "none.tw")]) == 1
    assert program.main([str(tmp_path / "none.tw"), str(artifact)]) == 2
    assert all("none.tw" in json.loads(line)["error"] for line in capsys.readouterr().out.splitlines())
    assert program.main([str(artifact), str(artifact), "--rounds", "1"]) == 0
    assert json.loads(capsys.readouterr().out)["rounds"] == 1


def test_outputs_are_compared_by_the_largest_value_of_each() -> None:
    kept = {"a": np.array([1.0, -4.0]), "b": np.array([True]), "s": np.array(["x"])}
    assert _difference(kept, kept | {"a": np.array([1.0, -4.5])}) == 0.125
    assert _difference(kept, kept | {"a": np.array([1.0, np.nan])}) is None
    assert _difference(kept, kept | {"a": np.array([1.0])}) is None
