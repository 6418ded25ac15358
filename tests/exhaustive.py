"""Which tests `make test` leaves to `make test-rest`: they have the mark `exhaustive`, and one rule gives it.

`make test` is every behaviour once and one small network for each path. A file that takes a moment is in it with all
tests. Of a longer one it has each test function with the first set of its parameters, but for functions that take
long; of a file of such functions alone the shortest. What nothing shorter tries is in it all the same (`PATHS`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import pytest

from tests.pace import UNKNOWN_S, function_of, kept, name_of

WHOLE_FILE_S = 0.5
"""Files that took no longer are in `make test` with all sets of parameters."""
LONG_S = 0.5
"""Test functions that took longer with one set of parameters are left to `make test-rest`."""
LONG = ("slow", "exhaustive")
"""Marks of tests that say so themselves, whatever they took."""
PATHS = {
    "a network on CPUs": "tests/test_models.py::test_a_network_of_the_zoo_compiles_and_agrees",
    "a model on the double of CUDA, all accesses watched": (
        "tests/compiler/devices/cuda/emit/test_whole_models.py::test_no_access_of_a_model_races_or_leaves_its_memory"
    ),
    "an artifact for a GPU, proven on one": (
        "tests/compiler/test_pipeline_cuda.py"
        "::test_a_model_that_fp16_cannot_hold_is_compiled_in_fp32_and_the_node_and_the_way_out_are_named"
    ),
    "single instructions as NVRTC emits them": (
        "tests/ptx/test_families.py::test_single_instructions_do_what_their_families_expect"
    ),
    "algorithms as NVRTC emits them": (
        "tests/ptx/test_families.py::test_a_sample_of_algorithms_computes_what_kernels_mean"
    ),
    "a network as NVRTC emits it": "tests/ptx/test_networks.py::test_a_network_computes_what_onnx_runtime_does",
    "a network for ARM under its emulator": (
        "tests/compiler/test_pipeline_arm.py::test_a_network_agrees_under_the_emulator_and_says_that_nothing_was_timed"
    ),
    "a network for browsers, in Node.js": (
        "tests/compiler/test_pipeline_wasm.py::test_a_network_agrees_in_node_and_says_that_nothing_was_timed"
    ),
    "a network for Windows under Wine": (
        "tests/compiler/test_pipeline_systems.py::test_a_network_for_windows_agrees_under_wine_and_says_so"
    ),
    "a pruned layer on CPUs": (
        "tests/compiler/test_pruned_models.py"
        "::test_a_dense_layer_with_combined_columns_brings_its_inputs_into_their_order"
    ),
    "a job on an NPU": "tests/worker/devices/test_npu.py::test_a_job_compiles_estimates_and_infers_behind_its_walls",
    "a job in its child": "tests/worker/attempt/test_jobs.py::test_a_model_becomes_an_artifact_that_is_timed_and_run",
    "a worker that is killed": (
        "tests/worker/test_worker_process.py::test_a_job_whose_worker_is_killed_is_done_by_another"
    ),
    "the API's process": (
        "tests/service/test_main.py"
        "::test_it_starts_from_nothing_takes_jobs_without_a_broker_and_stops_with_a_stream_open"
    ),
    "`tilewright up`": (
        "tests/tilewright/up/test_run.py::test_everything_comes_up_beside_decoys_mends_itself_and_goes_without_a_trace"
    ),
    "a service from the upload to the download, and its artifact run": (
        "tests/end_to_end/test_command_line.py::test_an_artifact_of_the_command_line_agrees_with_onnx_runtime"
    ),
    "the page in a browser": "tests/browser/test_page.py::test_what_is_shown_of_a_job_is_what_the_api_tells",
    "the wheel": "tests/test_packaging.py::test_the_wheel_holds_every_file_of_its_packages",
}
"""What has to be gone through once in `make test`, with the test function that does."""
SERVICE = "each needs a service of its own; the command line's test takes the same way"
BROWSER = "each needs a browser and a service of its own; test_page.py has one"
ELSEWHERE = {
    "tests/bench/gpu/test_first_on_double.py": "networks on the double of CUDA; its parts have tests",
    "tests/bench/gpu/test_worth.py": "one long test; what it adds up has tests",
    "tests/bench/replay/test_every_algorithm.py": "two long tests, of all algorithms of a kind each",
    "tests/browser/test_arrival.py": BROWSER,
    "tests/browser/test_in_browser.py": BROWSER,
    "tests/browser/test_many.py": BROWSER,
    "tests/browser/test_page.py": BROWSER,
    "tests/browser/test_result.py": BROWSER,
    "tests/browser/test_walk.py": BROWSER,
    "tests/compiler/devices/cpu/codegen/test_backend_kernels.py": "one test, of all nodes of ONNX's suite",
    "tests/compiler/devices/cuda/algorithms/test_sass.py": "what an assembler makes of all algorithms, in two tests",
    "tests/compiler/devices/cuda/codegen/test_declared.py": "kernels of all algorithms, which have tests of their own",
    "tests/end_to_end/test_architectures.py": SERVICE,
    "tests/end_to_end/test_cache.py": SERVICE,
    "tests/end_to_end/test_command_line.py": SERVICE,
    "tests/end_to_end/test_curl.py": SERVICE,
    "tests/end_to_end/test_generation.py": SERVICE,
    "tests/end_to_end/test_installed.py": SERVICE,
    "tests/end_to_end/test_killed.py": SERVICE,
    "tests/end_to_end/test_malformed.py": SERVICE,
    "tests/end_to_end/test_many_machines.py": SERVICE,
    "tests/end_to_end/test_upgrade.py": SERVICE,
    "tests/end_to_end/test_wheel.py": SERVICE,
    "tests/service/jobs/lifecycle/test_state_machine.py": "drawn lives of jobs; each step of a life has tests",
    "tests/test_without_tools.py": "runs other tests once more, without a tool each",
    "tests/torture/test_torture.py": "many kills of whole services; tests/worker has one of a worker",
}
"""Files of which `make test` has at most what `PATHS` names, with the reason."""
COLLECTED = pytest.StashKey[Sequence[pytest.Item]]()
"""All tests that were found, before any is deselected."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark them before pytest looks for marks, in the order of their files: each process finds them in its own."""
    items.sort(key=lambda item: name_of(item.path))
    for item in exhaustive(items, kept()):
        item.add_marker(pytest.mark.exhaustive)
    config.stash[COLLECTED] = tuple(items)


def exhaustive(items: Iterable[pytest.Item], seconds: Mapping[str, float]) -> list[pytest.Item]:
    """What is left out of these, by what files and functions took."""
    files: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        files[name_of(item.path)].append(item)
    rest: list[pytest.Item] = []
    for file, tests in files.items():
        taken = {item.nodeid for item in _taken(file, tests, seconds)}
        rest += [item for item in tests if item.nodeid not in taken]
    return rest


def _taken(file: str, tests: Sequence[pytest.Item], seconds: Mapping[str, float]) -> list[pytest.Item]:
    """Those tests of a file that `make test` has."""
    paths = set(PATHS.values())
    able = [item for item in tests if not any(item.get_closest_marker(mark) for mark in LONG)]
    if seconds.get(file, UNKNOWN_S) <= WHOLE_FILE_S:
        return able
    firsts: dict[str, pytest.Item] = {}
    for item in able:
        firsts.setdefault(function_of(item.nodeid), item)
    if file in ELSEWHERE:
        return [item for function, item in firsts.items() if function in paths]
    short = [item for name, item in firsts.items() if name in paths or seconds.get(name, 0.0) <= LONG_S]
    return short or sorted(firsts.values(), key=lambda item: seconds[function_of(item.nodeid)])[:1]
