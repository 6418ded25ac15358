from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.cache import Cache
from bench.generate import contenders, run
from bench.generate.codes import Coding
from bench.generate.contenders import LLAMA, OURS, PEERS, Material, absent, contender
from bench.generate.exactness import Exactness
from bench.generate.race import Timed
from bench.generate.run import Row, exactness_table, main, table
from bench.generate.shapes import SHAPES
from bench.generate.weights import Seeded, parts
from tilewright.errors import UsageError

TIMED = Timed((0.5, 0.7), ((0.01, 0.02), (0.02, 0.04)), 0.5, 3_000_000)


def material(folder: Path, coding: Coding = Coding.NBITS4, **more: Any) -> Material:
    return Material("tiny", parts(Seeded(SHAPES["tiny"]), coding), Cache(folder), 0.0, **more)


def test_a_decoder_is_measured_beside_a_peer_and_the_reference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--peers", "onnxruntime-0,llama.cpp", "--threads", "1", "--rounds", "2", "--tokens", "3", "--exact", "20"]
    files = ["--cache", str(tmp_path), "--json", str(tmp_path / "rows.json"), "--markdown", str(tmp_path / "t.md")]
    assert main(["tiny", "--lengths", "16", *words, *files]) == 0
    said = capsys.readouterr().out
    assert "llama.cpp takes no part: it opens GGUF files (--weights)" in said
    assert "openvino-genai takes no part: " in said
    written = json.loads((tmp_path / "rows.json").read_text())
    ours, peer = written["rows"]
    assert (ours["engine"], peer["engine"], ours["length"], ours["prompt"]) == ("tilewright", "onnxruntime-0", 16, 13)
    for row in (ours, peer):
        assert row["problem"] is None
        assert row["token_ms"] > 0
        assert row["first_s"] > 0
        assert row["tokens_per_second"] == pytest.approx(1e3 / row["token_ms"])
        assert row["resident_bytes"] > row["file_bytes"] > 100_000
    assert ours["ours_over_theirs"] is None
    assert peer["ours_over_theirs"][0] > 0
    (exact,) = written["exactness"]
    assert {(one["equal"], one["count"]) for one in exact.values()} == {(20, 20)}
    assert max(one["error"] for one in exact.values()) < 1e-5
    text = (tmp_path / "t.md").read_text()
    assert "`python -m bench generate tiny --lengths 16" in text
    assert "| 16 | 1 | onnxruntime-0 | " in text
    assert "- llama.cpp: it opens GGUF files" in text


def test_caches_of_fewer_bits_race_with_ours(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--peers", "tilewright-int8", "--threads", "1", "--rounds", "2", "--tokens", "3", "--exact", "20"]
    files = ["--cache", str(tmp_path), "--json", str(tmp_path / "rows.json")]
    assert main(["tiny", "--lengths", "16", *words, *files]) == 0
    assert "| tilewright-int8 | " in capsys.readouterr().out
    written = json.loads((tmp_path / "rows.json").read_text())
    assert [(row["engine"], row["problem"]) for row in written["rows"]] == [(OURS, None), ("tilewright-int8", None)]
    (exact,) = written["exactness"]
    assert exact[OURS]["error"] < 1e-5 < exact["tilewright-int8"]["error"] < 5e-2


def test_of_an_engine_that_has_no_tokens_the_reason_stands_in_their_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*given: object) -> None:
        raise UsageError("it opens no such file")

    monkeypatch.setattr(run, "contender", fails)
    made = material(tmp_path)
    assert run._exact(OURS, made, made.parts, 3) == "it opens no such file"


def test_a_table_has_medians_and_marks_rounds_by_the_clock_in_which_threads_waited() -> None:
    one = Row("m", "nbits4", "tilewright", 128, 1, 112, TIMED, None, 2_000_000)
    two = Row("m", "nbits4", "other", 128, 2, 112, TIMED, (2.0, 1.5, 2.5), 0)
    bad = Row("m", "nbits4", "third", 128, 2, 112, None, None, 0, "it failed. Fix: mend it")
    assert table([one, two, bad]).splitlines()[2:] == [
        "| 128 | 1 | tilewright | 0.60 | 20.00 (13.00..34.00) | 50.0 |  | 3 | 2 |",
        "| 128 | 2 | other | 0.60 | 20.00 (13.00..34.00) (*) | 50.0 | 2.00 (1.50..2.50) | 3 | 0 |",
        "| 128 | 2 | third | it failed. Fix: mend it | | | | | |",
    ]


def test_a_table_of_exactness_says_what_there_is() -> None:
    found: dict[str, Exactness | str] = {"a": Exactness(9, 4, 1e-3, 2e-2, 3e-4), "b": Exactness(9, 9), "c": "it failed"}
    assert exactness_table(found).splitlines()[2:] == [
        "| a | 4 of 9 | 1.0e-03 (2.0e-02) | 3.0e-04 |",
        "| b | 9 of 9 |  |  |",
        "| c | it failed | | |",
    ]
    assert exactness_table({}) == ""


def test_who_takes_no_part_has_a_reason_with_what_mends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = material(tmp_path)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert {absent(name, here) for name in PEERS if name != LLAMA} == {
        "not installed (pip install onnxruntime)",
        "not installed (pip install onnxruntime-genai)",
        "not installed (pip install openvino)",
    }
    assert absent(LLAMA, here) == "it opens GGUF files (--weights)"
    assert "npm install node-llama-cpp" in absent(LLAMA, material(tmp_path, gguf=tmp_path / "m.gguf"))
    both = material(tmp_path, gguf=tmp_path / "m.gguf", llama=tmp_path)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert absent(LLAMA, both) == "node is not installed"
    monkeypatch.setattr(shutil, "which", lambda name: "/usr/bin/node")
    assert absent(LLAMA, both) == ""


def test_accuracy_levels_are_of_weights_in_blocks(tmp_path: Path) -> None:
    assert absent("onnxruntime-0", material(tmp_path, Coding.FP32)) == "accuracy levels are of weights in blocks"
    assert absent("onnxruntime-4", material(tmp_path, Coding.FP32)) == ""


def test_contenders_are_started_with_file_threads_and_length(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"12345")
    here = material(tmp_path, gguf=tmp_path / "m.gguf", llama=tmp_path)
    one = contender("onnxruntime-4", here, 32, 2)
    assert one.words[:4] == [sys.executable, "-m", "bench.generate.child", "onnxruntime-4"]
    assert one.words[5:] == ["2", "32"]
    assert one.held == Path(one.words[4]).stat().st_size > 100_000
    other = contender(LLAMA, here, 32, 2)
    assert (other.words[0], other.words[3:], other.held, other.writes) == ("node", ["2", "32"], 5, False)
    assert Path(other.words[1]).exists()
    folder = Path(contender("onnxruntime-genai", here, 32, 2).words[4])
    config = json.loads((folder / "genai_config.json").read_text())
    assert config["search"]["max_length"] == config["model"]["context_length"] == 32
    assert config["model"]["decoder"]["session_options"]["intra_op_num_threads"] == 2
    assert (folder / "model.onnx").resolve() == Path(one.words[4])


def test_an_artifact_that_cannot_be_made_is_a_row_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from compiler.errors import OptionsError

    def refuse(*_: Any) -> Path:
        raise OptionsError("no", fix="yes")

    monkeypatch.setitem(contenders.FILES, "tilewright", refuse)
    words = ["--peers", "onnxruntime-0", "--threads", "1", "--rounds", "1", "--exact", "0", "--tokens", "2"]
    files = ["--cache", str(tmp_path), "--json", str(tmp_path / "rows.json")]
    assert main(["tiny", "--lengths", "8", *words, *files]) == 1
    ours, peer = json.loads((tmp_path / "rows.json").read_text())["rows"]
    assert (ours["problem"], ours["token_ms"]) == ("no. Fix: yes", None)
    assert peer["problem"] is None
    assert peer["ours_over_theirs"] is None


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["tiny", "--weights", "m.gguf"],
        ["huge"],
        ["tiny", "--peers", "nobody"],
        ["tiny", "--peers", "openvino-genai"],
        ["tiny", "--lengths", "0"],
    ],
)
def test_arguments_that_make_no_sense_end_it(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert capsys.readouterr().err


def test_a_file_that_is_no_gguf_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gguf", None)
    assert main(["--weights", str(tmp_path / "m.gguf"), "--cache", str(tmp_path)]) == 2
