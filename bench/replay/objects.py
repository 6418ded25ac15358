"""`python objects.py FOLDER COMPILER ARGUMENT...`: a C compiler that compiles equal sources by equal arguments once.

It stands in for the C compiler of the machine (`launcher` writes a program to be named in $CC), answers `--version` as
that one does, and keeps object files in FOLDER, by all that they are made from. Standard library only.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

PLACE_MAPPED = "-ffile-prefix-map="
"""With it an object file does not show in which folder it was made."""


def launcher(folder: Path, compiler: str) -> Path:
    """A program that does what the C compiler at the path `compiler` does, and keeps object files in `folder`."""
    words = [sys.executable, "-I", "-S", str(Path(__file__).resolve()), str(folder), compiler]
    text = f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n'
    program = folder / f"cc-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    if not program.exists():
        draft = folder / f".{program.name}.{os.getpid()}.{threading.get_ident()}.part"
        draft.write_text(text)
        draft.chmod(0o755)
        draft.replace(program)
    return program


def main(folder: Path, compiler: str, arguments: Sequence[str]) -> int:
    """Exit status of the compiler, 0 for an object file that was known."""
    known = folder / key if (key := key_of(compiler, arguments)) else None
    if known is None:
        os.execv(compiler, [compiler, *arguments])
    output = arguments[arguments.index("-o") + 1]
    if known.exists():
        shutil.copyfile(known, output)
        return 0
    status = subprocess.call([compiler, *arguments])
    if status == 0:
        draft = folder / f".{known.name}.{os.getpid()}.part"
        shutil.copyfile(output, draft)
        draft.replace(known)
    return status


def key_of(compiler: str, arguments: Sequence[str]) -> str:
    """What the object file follows from: compiler, arguments, the source and all files beside it that it may include.

    Empty for what makes no object file, and for one that would show where it was made.
    """
    if not {"-c", "-o"} <= {*arguments} or not any(one.startswith(PLACE_MAPPED) for one in arguments):
        return ""
    units = [one for one in arguments if one.endswith(".c")]
    kept = [one for one in arguments if not one.startswith(PLACE_MAPPED)]
    version = subprocess.run([compiler, "--version"], capture_output=True, check=False).stdout
    digest = hashlib.sha256(repr((compiler, version, kept)).encode())
    for path in sorted(Path().iterdir()):
        if path.is_file() and (path.name in units or path.suffix not in (".c", ".o")):
            digest.update(f"{path.name}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return f"{digest.hexdigest()}.o"


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:]))
