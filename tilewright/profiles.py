"""Servers by name, in the user's configuration: `$XDG_CONFIG_HOME/tilewright/config.toml`.

profile = "lab"            # in use when nothing else says which

[profiles.lab]
url = "https://tw.example.org"
key_file = "/home/me/.lab.key"     # or: key = "twk_..."
"""

from __future__ import annotations

import os
import re
import tempfile
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tilewright.errors import UsageError

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_ESCAPED = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


@dataclass(frozen=True)
class Profile:
    """A server and how it is entered: a key, a file with one, or neither."""

    url: str
    key: str = field(default="", repr=False)
    key_file: str = ""

    def read_key(self) -> str:
        """The key; empty: none. Raises `UsageError` when its file cannot be read."""
        if not self.key_file:
            return self.key
        try:
            return Path(self.key_file).expanduser().read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(
                f"cannot read the key in {self.key_file}: {error}", fix="mend it with `tilewright profiles add`"
            ) from error


@dataclass(frozen=True)
class Profiles:
    """All of them; `used` names the one in use, empty: none."""

    profiles: Mapping[str, Profile] = field(default_factory=dict)
    used: str = ""

    def get(self, name: str) -> Profile:
        """One of them. Raises `UsageError`."""
        if name not in self.profiles:
            known = ", ".join(sorted(self.profiles)) or "none"
            raise UsageError(
                f"there is no profile {name!r}", fix=f"known: {known}; add it with `tilewright profiles add`"
            )
        return self.profiles[name]

    def to_toml(self) -> str:
        """The text that `load` reads back."""
        lines = [f"profile = {_quoted(self.used)}", ""] if self.used else []
        for name, profile in sorted(self.profiles.items()):
            lines.append(f"[profiles.{name if _BARE.fullmatch(name) else _quoted(name)}]")
            given = {"url": profile.url, "key": profile.key, "key_file": profile.key_file}
            lines += [*(f"{key} = {_quoted(value)}" for key, value in given.items() if value), ""]
        return "\n".join(lines)


def config_file() -> Path:
    """Where profiles are kept; `TILEWRIGHT_CONFIG` names another file."""
    if chosen := os.environ.get("TILEWRIGHT_CONFIG"):
        return Path(chosen)
    home = os.environ.get("XDG_CONFIG_HOME", "")
    return (Path(home) if os.path.isabs(home) else Path.home() / ".config") / "tilewright" / "config.toml"


def load() -> Profiles:
    """What the file says; nothing when there is none. Raises `UsageError` naming what is wrong in it."""
    path = config_file()
    try:
        said = tomllib.loads(path.read_text())
        found = {name: Profile(**_strings(entry)) for name, entry in said.get("profiles", {}).items()}
        used = said.get("profile", "")
    except FileNotFoundError:
        return Profiles()
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise UsageError(f"cannot read {path}: {error}", fix="mend or remove the file") from error
    if not isinstance(used, str) or (used and used not in found):
        raise UsageError(
            f"{path}: profile = {used!r} names no profile", fix="choose one with `tilewright profiles use`"
        )
    return Profiles(found, used)


def save(profiles: Profiles) -> Path:
    """Write the file, whole or not at all; only its owner can read it, since it may hold keys. Raises `UsageError`."""
    path = config_file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".config")  # mode 0600
        try:
            with os.fdopen(handle, "w") as file:
                file.write(profiles.to_toml())
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}", fix="make its folder writable") from error
    return path


def _strings(entry: Mapping[str, object]) -> dict[str, str]:
    wrong = [name for name, value in entry.items() if not isinstance(value, str)]
    if wrong or "url" not in entry:
        raise ValueError(f"a profile has {wrong[0]!r} that is no string" if wrong else "a profile has no url")
    return {name: str(value) for name, value in entry.items()}


def _quoted(text: str) -> str:
    """A basic string of TOML 1.0."""
    return '"' + "".join(_ESCAPED.get(c) or (c if c.isprintable() else f"\\U{ord(c):08x}") for c in text) + '"'
