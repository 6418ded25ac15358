"""What is raised when an artifact cannot be loaded, given something or run."""

from __future__ import annotations


class ArtifactError(Exception):
    """The artifact cannot be loaded: missing, damaged, of another version. `fix` says what to do."""

    def __init__(self, message: str, fix: str) -> None:
        super().__init__(f"{message}. Fix: {fix}")
        self.message = message
        self.fix = fix


class WrongMachine(ArtifactError):
    """The artifact is sound, and this machine cannot run it."""


class NoSuchBinding(ArtifactError):
    """The artifact holds fewer bindings."""


class InputError(ValueError):
    """An input or a preallocated output does not fit the model."""


class RunError(RuntimeError):
    """The model refused to run, or cannot any more."""
