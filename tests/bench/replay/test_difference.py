from __future__ import annotations

import json
from dataclasses import replace

import pytest

from bench.replay.difference import SHOWN, clipped, differences
from bench.replay.outcome import Outcome
from tests.bench.replay.artifacts import KERNELS, MANIFEST, PLAN, outcome


def kinds(found: Outcome) -> list[tuple[str, str]]:
    """Kind and name of all that differs from the artifact as it was."""
    return [(one.kind, one.name) for one in differences(outcome(), found)]


def test_equal_artifacts_do_not_differ() -> None:
    assert differences(outcome(), outcome()) == []


def test_a_kernel_is_told_by_name_with_the_lines_that_differ() -> None:
    (one,) = differences(outcome(), outcome(source__kernels_0_c=KERNELS.replace("y[0] = x[0]", "y[0] = 2 * x[0]")))
    assert (one.kind, one.name) == ("kernel", "k0_conv")
    assert "-    y[0] = x[0];\n+    y[0] = 2 * x[0];" in one.detail
    assert "k0_conv_4" in one.detail, "the function of the kernel"


def test_a_comment_counts() -> None:
    assert kinds(outcome(source__kernels_0_c=KERNELS.replace("Four", "4"))) == [("kernel", "k0_conv")]


def test_a_function_on_one_side_alone_is_told() -> None:
    kept = KERNELS.partition("void k1_softmax")[0]
    (less,) = differences(outcome(), outcome(source__kernels_0_c=kept))
    assert (less.kind, less.name, less.detail) == ("kernel", "k1_softmax", "k1_softmax: only before, 5 lines")
    (more,) = differences(outcome(source__kernels_0_c=kept), outcome())
    assert more.detail == "k1_softmax: only after, 5 lines"


def test_a_kernel_in_another_file_moved_and_did_not_change() -> None:
    first, softmax = KERNELS.split("void k1_softmax")
    moved = outcome(source__kernels_0_c=first, source__kernels_1_c=f"void k1_softmax{softmax}")
    assert kinds(moved) == [
        ("moved", "source/kernels_0.c -> source/kernels_1.c"),
        ("file", "source/kernels_1.c"),
    ]


def test_text_between_functions_and_the_order_of_functions_count() -> None:
    assert kinds(outcome(source__kernels_0_c=KERNELS.replace("tw_kernel.h", "other.h"))) == [
        ("source", "source/kernels_0.c")
    ]
    first, softmax = KERNELS.split("void k1_softmax")
    head, convolution = first.split("/* Four")
    turned = f"{head}void k1_softmax{softmax}/* Four{convolution}"
    plan = json.dumps({**PLAN, "scheduler": "stages"})
    assert kinds(outcome(source__kernels_0_c=turned, plan_json=plan)) == [
        ("plan", "scheduler"),
        ("file", "source/kernels_0.c"),
    ]


def test_the_plan_is_told_by_call_and_task() -> None:
    plan = json.loads(json.dumps(PLAN))
    plan["calls"][0]["tile"] = "8x8"
    plan["tasks"].append({"call": 1, "lane": 1})
    plan["scheduler"] = "stages"
    found = differences(outcome(), outcome(plan_json=json.dumps(plan)))
    assert [(one.kind, one.name, one.detail) for one in found] == [
        ("plan", "call 0 (Conv)", 'tile "4x4" -> "8x8"'),
        ("plan", "scheduler", '"sequential" -> "stages"'),
        ("plan", "tasks", "2 before, 3 after"),
    ]


@pytest.mark.parametrize("name", ["weights.bin", "model.so"])
def test_bytes_are_told_by_member(name: str) -> None:
    assert kinds(outcome(**{name.replace(".", "_"): "others"})) == [("bytes", name)]


def test_a_header_and_a_record_are_told_as_files() -> None:
    assert kinds(outcome(source__tw_kernel_h="#pragma once\n\n")) == [("file", "source/tw_kernel.h")]
    assert kinds(outcome(records_jsonl="{}\n")) == [("file", "records.jsonl")]


def test_versions_are_a_kind_of_their_own() -> None:
    manifest = json.dumps({**MANIFEST, "toolchain": "gcc 13", "lanes": 2})
    assert kinds(outcome(manifest_json=manifest)) == [("manifest", "lanes"), ("versions", "toolchain")]


def test_what_differs_in_white_space_alone_is_still_told() -> None:
    spaced = json.dumps(PLAN, indent=3)
    (one,) = differences(outcome(), outcome(plan_json=spaced))
    assert (one.kind, one.name) == ("file", "plan.json")
    assert kinds(outcome(source__tw_kernel_h="#pragma once")) == [("file", "source/tw_kernel.h")]


def test_failures_are_compared_by_their_words() -> None:
    refused, other = Outcome("refused"), Outcome("crashed")
    assert differences(refused, refused) == []
    assert [(one.name, one.detail) for one in differences(refused, outcome())] == [("before alone", "refused")]
    assert [(one.name, one.detail) for one in differences(outcome(), other)] == [("after alone", "crashed")]
    (one,) = differences(refused, other)
    assert one.detail.endswith("-refused\n+crashed")


def test_what_the_compiler_says_beside_the_artifact_counts() -> None:
    said = replace(outcome(), report={"kernels": 3})
    assert kinds(said) == [("report", "kernels")]


def test_long_differences_are_cut_and_say_so() -> None:
    assert clipped(["+"] * (SHOWN + 2)).endswith("\n(2 more lines)")
    assert clipped(["+"] * SHOWN) == "\n".join("+" * SHOWN)
