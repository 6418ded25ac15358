"""Artifacts in the forms that servers and registries of others take."""

from __future__ import annotations

from tilewright.exports.browser import browser_folder
from tilewright.exports.oci import oci_layout
from tilewright.exports.triton import triton_repository

__all__ = ["browser_folder", "oci_layout", "triton_repository"]
