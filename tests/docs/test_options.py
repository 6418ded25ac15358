from __future__ import annotations

import dataclasses
import json
import re
from typing import Any

import pytest

from compiler.accelerate.chips import TARGETS
from compiler.contract import MAX_BUDGET_SECONDS, MAX_THREADS, CompileOptions, InputSpec, kinds
from compiler.contract.options import OF_INT8
from compiler.devices.kinds import profiles
from compiler.disabled import enabled_passes
from compiler.fuse import STEPS
from compiler.prove.agree import DEFAULT_TOLERANCE, QUANTISED_TOLERANCE
from compiler.schedule import SCHEDULING
from tests.docs.options_table import PAGES, written
from tests.docs.pages import DOCS, blocks, first_cells

PAGE = (DOCS / "options.md").read_text()
FIELDS = [field.name for field in dataclasses.fields(CompileOptions)]
OTHERS: dict[str, Any] = {
    "target": "cpu:x86-64-v3",
    "precision": "bf16",
    "snr_db": 30.0,
    "ranges": "mse",
    "equalise": True,
    "tolerance": 1e-3,
    "threads": 3,
    "inputs": {"x": InputSpec((1, 2))},
    "dims": {"batch": 2},
    "bounds": {"resize": 640},
    "ragged": {"input_ids": 1},
    "chunks": {"sound": 8192},
    "tuning_budget_s": 1.0,
    "tuning_trials": 100,
    "scheduler": "stages",
    "sparsity": "off",
    "seed": 1,
    "proof_limit_s": 60.0,
    "unverified": "allow",
    "without": ("weights", "inline"),
    "devices": ("cpu:0", "cpu:1@x86-64-v2"),
    "objective": "throughput",
    "carry": {"next": "h"},
    "cache": "bf16",
    "last_only": ("logits",),
    "format": "tosa",
    "weights": "ready",
    "profiles": ("cpu:x86-64-v3",),
    "system": "windows",
    "compare": ("onnxruntime",),
}
WITH: dict[str, dict[str, Any]] = {
    "objective": {"devices": ("cpu:0", "cpu:1")},
    **{name: {"precision": "int8"} for name in OF_INT8},
    "carry": {"devices": ("cpu", "npu:ethos-u65-256"), "objective": "throughput"},
    "cache": {"carry": "auto"},
    "format": {"target": "npu:ethos-u65-256"},
    "profiles": {"target": "cpu:x86-64"},
    "system": {"target": "cpu:x86-64-v3"},
}
"""What a field must have beside it to mean anything."""
"""For each field a value that is not its default."""


def test_the_table_is_that_of_the_schema() -> None:
    for path, options in PAGES.items():
        page = path.read_text()
        assert written(page, options) == page, "run `python -m tests.docs.options_table`"


def test_every_field_has_a_row_and_no_other_has() -> None:
    assert first_cells(PAGE) == FIELDS


@pytest.mark.parametrize("name", FIELDS)
def test_a_row_states_the_default(name: str) -> None:
    stated = re.search(rf"^\| `{name}` \| `([^`]+)` \|", PAGE, re.MULTILINE)
    assert stated
    assert json.loads(stated[1]) == CompileOptions().to_json()[name]


@pytest.mark.parametrize("name", FIELDS)
def test_every_field_on_which_artifacts_depend_takes_part_in_the_cache_key(name: str) -> None:
    plain = CompileOptions(**WITH.get(name, {}))
    other = dataclasses.replace(plain, **{name: OTHERS[name]})
    assert (other.cache_key("model") == plain.cache_key("model")) == (name == "compare")
    assert (other.artifact_json() == plain.artifact_json()) == (name == "compare")


def test_the_model_takes_part_in_the_cache_key_and_stating_a_default_does_not() -> None:
    assert CompileOptions().cache_key("one") != CompileOptions().cache_key("two")
    assert CompileOptions.from_json({"target": "cpu", "seed": 0}).cache_key("one") == CompileOptions().cache_key("one")


@pytest.mark.parametrize(
    "word",
    [
        *kinds.precisions(),
        *kinds.schedulers(),
        *(profile.name for profile in profiles()),
        *TARGETS,
    ],
)
def test_every_value_that_is_accepted_is_named(word: str) -> None:
    assert word in PAGE


def test_the_stated_limits_are_those_of_the_code() -> None:
    assert f"integer from 1 to {MAX_THREADS}" in PAGE
    assert f"number from 0 to {MAX_BUDGET_SECONDS:g}" in PAGE
    stated = re.search(r"`null`: (\S+), or (\S+) for models that quantise", PAGE)
    assert stated
    assert (float(stated[1]), float(stated[2])) == (DEFAULT_TOLERANCE["fp32"], QUANTISED_TOLERANCE)
    assert f"or {DEFAULT_TOLERANCE['bf16']:.0e} in bf16".replace("e-0", "e-") in PAGE
    assert {DEFAULT_TOLERANCE[name] for name in ("tf32", "fp16", "auto")} == {QUANTISED_TOLERANCE}
    assert "for models that quantise and in tf32, fp16 and `auto`" in PAGE


def test_every_step_of_fusion_is_named_and_every_rule_that_is_named_exists() -> None:
    assert all(f"`{step}`" in PAGE for step in (*STEPS, *SCHEDULING))
    for text in re.findall(r"'({\"without\".*?})'", PAGE):
        enabled_passes(json.loads(text)["without"])


def test_options_in_examples_are_accepted() -> None:
    found = [text for block in blocks(PAGE, "sh") for text in re.findall(r"'(?:options=)?({.*?})'", block)]
    found += [text for block in blocks(PAGE, "python") for text in re.findall(r"{.*}", block)]
    assert len(found) == 5
    for text in found:
        assert CompileOptions.from_json(json.loads(text)) != CompileOptions()
