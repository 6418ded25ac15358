from __future__ import annotations

import pytest

from bench.engines import catalogue
from bench.engines.catalogue import DRIVERS, NO_PEERS, OURS, chosen, demand, driver, peers, telling, versions
from bench.engines.driver import Driver
from tilewright.errors import UsageError


def test_every_engine_but_ours_is_a_peer_that_pip_installs() -> None:
    assert set(peers()) == {known.name for known in DRIVERS} - {OURS}
    assert all(driver(peer).packages for peer in peers())
    assert NO_PEERS.keys().isdisjoint(peers())


def test_peers_are_named_with_commas_between_and_may_be_none() -> None:
    assert chosen("onnxruntime") == ("onnxruntime",)
    assert chosen("") == ()


@pytest.mark.parametrize("text", ["tensorflow", "onnxruntime,onnxruntime", "tilewright"])
def test_a_peer_that_is_unknown_or_there_twice_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is unknown or there twice"):
        chosen(text)


@pytest.mark.parametrize("name", NO_PEERS)
def test_an_engine_that_would_be_no_fair_peer_is_refused_with_the_reason(name: str) -> None:
    with pytest.raises(UsageError, match=f"{name} is no peer: {NO_PEERS[name]}"):
        chosen(f"onnxruntime,{name}")


def test_an_engine_that_is_not_there_is_refused_with_what_pip_installs() -> None:
    absent = Driver("absent", "no_module_of_this_name", ("absent-compiler[onnx]", "absent-runtime"), driver(OURS).open)
    with pytest.raises(UsageError) as refused:
        demand(absent)
    assert (refused.value.message, refused.value.fix) == (
        "absent is not installed",
        "pip install 'absent-compiler[onnx]' absent-runtime",
    )


def test_a_peer_that_tells_no_layers_is_refused_where_they_are_asked_for() -> None:
    assert telling(["onnxruntime"]) == ("onnxruntime",)
    with pytest.raises(UsageError, match="onnxruntime-parallel does not tell what each of its layers costs"):
        telling(["onnxruntime", "onnxruntime-parallel"])


def test_two_ways_to_run_one_package_are_two_peers_of_one_version() -> None:
    assert chosen("onnxruntime,onnxruntime-parallel") == ("onnxruntime", "onnxruntime-parallel")
    assert versions(["onnxruntime", "onnxruntime-parallel"]).keys() == {"onnxruntime"}


def test_versions_are_those_of_what_pip_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "version", lambda package: f"v-{package}")
    assert versions(["onnxruntime", OURS]) == {"onnxruntime": "v-onnxruntime"}
