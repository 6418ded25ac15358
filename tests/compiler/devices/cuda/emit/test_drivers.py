"""Which driver an image needs."""

from __future__ import annotations

import pytest

from compiler.devices.cuda.emit.drivers import INTERFACE, KNOWN_SINCE, oldest_driver
from compiler.devices.cuda.target import PROFILES


@pytest.mark.parametrize(
    ("architecture", "needed"),
    [
        ("sm_80", 12000),
        ("sm_90a", 12000),
        ("sm_100", 12080),
        ("sm_121", 12090),
        ("compute_90", 13020),
        ("sm_130", 13020),
    ],
)
def test_an_image_needs_a_driver_with_the_functions_and_the_architecture(architecture: str, needed: int) -> None:
    assert oldest_driver(architecture, (13, 2)) == needed


def test_an_old_compiler_does_not_make_the_drivers_functions_older() -> None:
    assert oldest_driver("compute_80", (11, 8)) == INTERFACE


def test_every_profile_is_of_a_known_architecture() -> None:
    assert {profile.architecture for profile in PROFILES} <= KNOWN_SINCE.keys()
