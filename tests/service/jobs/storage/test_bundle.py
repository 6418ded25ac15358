from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.errors import BadRequest
from service.jobs.storage.bundle import demand_distinct, relative_path


@pytest.mark.parametrize(
    ("given_", "path"),
    [("a", "a"), ("./a", "a"), ("a//b/./c", "a/b/c"), ("ü/a b.bin", "ü/a b.bin"), ("a..b", "a..b"), ("...", "...")],
)
def test_a_relative_path_is_normalised(given_: str, path: str) -> None:
    assert relative_path(given_) == path


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("", "names no file"),
        (".", "names no file"),
        ("a/", "names no file"),
        ("/a", "absolute"),
        ("//a", "absolute"),
        ("C:/a", "absolute"),
        ("c:a", "absolute"),
        ("..", "upwards"),
        ("a/../../b", "upwards"),
        ("a/../b", "upwards"),
        ("..\\a", "upwards"),
        ("\\a", "absolute"),
        ("C:\\a", "absolute"),
        ("a\\", "names no file"),
        ("a\0b", "control"),
        ("a\nb", "control"),
        ("a\x7fb", "control"),
        ("a\x85b", "control"),
        ("a\udc80", "surrogate"),
        ("ü" * 251, "longer"),
        ("a/" * 250 + "ab", "longer"),
        ("x" * 256, "longer"),
    ],
)
def test_a_path_that_could_lead_elsewhere_is_refused_with_its_reason(path: str, why: str) -> None:
    with pytest.raises(BadRequest) as refused:
        relative_path(path)
    assert why in refused.value.message
    assert refused.value.fix


def test_a_path_of_windows_has_slashes() -> None:
    assert relative_path("weights\\.\\w.bin") == relative_path("weights/w.bin") == "weights/w.bin"


@given(st.text(st.characters() | st.sampled_from("./\\:\0"), max_size=30))
def test_an_accepted_path_stays_below_its_folder_and_is_its_own_normal_form(text: str) -> None:
    try:
        path = relative_path(text)
    except BadRequest:
        return
    parts = path.split("/")
    assert all(part not in ("", ".", "..") for part in parts)
    assert relative_path(path) == path


def test_files_must_fit_into_one_folder() -> None:
    demand_distinct(["a", "b/a", "b/c", "ab"])
    for paths in (["a", "a"], ["a", "a/b"], ["a/b/c", "a"], [str(number) for number in range(1001)]):
        with pytest.raises(BadRequest):
            demand_distinct(paths)
