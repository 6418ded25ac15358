#!/usr/bin/env python3
"""Make `.venv` from nothing: `python3 bootstrap.py`. Standard library only.

Every `make` target runs this first. It finds a Python >= 3.11, checks for make and a working C compiler, creates
the virtual environment, installs `requirements.txt` by hash and this project as an editable, and leaves a stamp:
a second run with the same lock, `pyproject.toml` and interpreter does nothing. `--demo` installs what the service and
the demo need, `requirements-demo.txt`, and leaves what the tests need to a later run without it. What installs is
whatever the machine has: uv, the environment's own pip, or the system's pip (where ensurepip is missing). pip's
configured index and find-links are honoured by all three; where uv fails, pip goes on.

`python3 bootstrap.py --lock` writes the three requirements files anew from `pyproject.toml`.

This file is read by old interpreters, if only to report that they are too old: hence no `__future__` import and
no syntax newer than Python 3.6 in here.
"""

import configparser
import fcntl
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import typing

ROOT = os.path.dirname(os.path.abspath(__file__))
VENV = os.path.join(ROOT, ".venv")
VENV_PYTHON = os.path.join(VENV, "bin", "python")
STAMP = os.path.join(VENV, "tilewright.stamp")
WHOLE, DEMO = "requirements.txt", "requirements-demo.txt"
INPUTS = (WHOLE, "pyproject.toml", "bootstrap.py")
TOLD_EVERY_S = 5.0
"""Where lines cannot be written over: how often it is said how far an installation is."""
LAST_LINES = 20
LOCKS = (
    ("requirements.txt", ("server", "bench", "dev")),
    ("requirements-server.txt", ("server",)),
    ("requirements-cuda.txt", ("server", "cuda")),
    ("requirements-demo.txt", ("server", "demo")),
)
OLDEST, TOO_NEW = (3, 11), (3, 15)  # the lock's range, as in pyproject.toml under tool.uv
PYTHONS = ("python3.13", "python3.12", "python3.11", "python3.14")
SYSTEMS = (
    ("apt-get", "apt-get update && {sudo}apt-get install -y {python} {python}-venv make gcc libc6-dev"),
    ("dnf", "dnf install -y python3.12 make gcc glibc-devel"),
    ("yum", "yum install -y python3.12 make gcc glibc-devel"),
    ("zypper", "zypper install -y python312 make gcc glibc-devel"),
    ("pacman", "pacman -S --needed python make gcc"),
    ("brew", "brew install python@3.12 make gcc"),
)
PROBE = (
    b"#include <math.h>\n#include <stdint.h>\n#include <stdlib.h>\n"
    b"int32_t probe(double x) { return (int32_t)floor(x); }\n"
)


class Unprepared(Exception):
    """The environment cannot be made here; the text says why and what to do."""


def main(arguments: "list[str]") -> int:
    """Prepare the environment, or write the lock; the exit status of the process."""
    try:
        if not OLDEST <= sys.version_info < TOO_NEW:
            continue_with(usable_python())
        if arguments == ["--lock"]:
            lock()
        elif arguments == ["--demo"]:
            prepare(DEMO)
        elif arguments:
            raise Unprepared(f"unknown argument {arguments[0]!r}; there are --demo and --lock")
        else:
            prepare()
    except Unprepared as problem:
        print(f"bootstrap: {problem}", file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as failure:
        command = " ".join(str(word) for word in failure.cmd)
        print(f"bootstrap: this command failed (exit status {failure.returncode}):\n  {command}", file=sys.stderr)
        if "install" in failure.cmd:
            print("Where packages come from is pip's setting: index-url, find-links, proxy, cert.", file=sys.stderr)
        return 1
    return 0


# ---- what the machine must have


def usable_python() -> str:
    """The path of a Python in range, tried by running it (a version manager's shim may be hollow)."""
    question = f"import sys; sys.exit(not {OLDEST} <= sys.version_info < {TOO_NEW})"
    for name in PYTHONS:
        path = shutil.which(name)
        if path and succeeds(path, "-c", question):
            return path
    found = "{}.{}".format(*sys.version_info[:2])
    wanted = "{}.{} to {}.{}".format(*OLDEST, TOO_NEW[0], TOO_NEW[1] - 1)
    raise Unprepared(f"Python {wanted} is needed; {sys.executable} is {found}.\n{advice()}")


def continue_with(python: str) -> None:
    """Replace this process by the same program under `python`."""
    os.execv(python, [python, os.path.join(ROOT, "bootstrap.py"), *sys.argv[1:]])


def advice() -> str:
    """The command that installs what is missing, in this system's words."""
    for tool, command in SYSTEMS:
        if shutil.which(tool):
            sudo = "" if tool == "brew" or os.geteuid() == 0 else "sudo "
            return f"Install it with:\n  {sudo}{command.format(sudo=sudo, python=apt_python())}"
    return "Install Python 3.11 or newer (with venv), make and a C compiler (gcc or clang)."


def apt_python() -> str:
    """The newest Python package in range that apt knows; its default where apt cannot say."""
    known = (name for name in PYTHONS if succeeds("apt-cache", "show", "--quiet=2", name))
    return next(known, "python3")


def succeeds(*command: str) -> bool:
    """Whether a command exists and ends with status 0; what it prints is dropped."""
    try:
        return subprocess.call(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) == 0
    except OSError:
        return False


def c_compiler() -> "str | None":
    """The C compiler that the compiler would call, if there is one."""
    names = (os.environ.get("CC", ""), "cc", "gcc", "clang")
    return next((name for name in names if name and shutil.which(name)), None)


def demand_tools() -> None:
    """Raise `Unprepared` naming every missing tool at once."""
    missing = [] if shutil.which("make") else ["make"]
    if c_compiler() is None:
        missing.append("a C compiler (gcc or clang)")
    if missing:
        raise Unprepared(f"missing: {', '.join(missing)}.\n{advice()}")


def demand_compiler_works() -> None:
    """Build a shared library that uses the C library: a compiler without its headers is none."""
    compiler = c_compiler()
    if compiler is None:
        raise Unprepared(f"missing: a C compiler (gcc or clang).\n{advice()}")
    with tempfile.TemporaryDirectory() as folder:
        command = [compiler, "-x", "c", "-shared", "-fPIC", "-o", os.path.join(folder, "probe.so"), "-", "-lm"]
        outcome = subprocess.run(command, input=PROBE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if outcome.returncode:
        text = outcome.stdout.decode(errors="replace")
        raise Unprepared(f"the C compiler {compiler!r} cannot build a shared library:\n{text}\n{advice()}")


# ---- the environment


def digest(lock: str = WHOLE) -> str:
    """What the environment depends on: the interpreter, its place, and the contents of the lock and of `INPUTS`."""
    state = hashlib.sha256(repr((sys.version, VENV)).encode())
    for name in (lock, *INPUTS[1:]):
        with open(os.path.join(ROOT, name), "rb") as file:
            state.update(hashlib.sha256(file.read()).digest())
    return state.hexdigest()


def is_prepared(*wanted: str) -> bool:
    """Whether an earlier run finished with one of these digests."""
    try:
        with open(STAMP) as file:
            return file.read() in wanted and os.path.exists(VENV_PYTHON)
    except OSError:
        return False


def prepare(lock: str = WHOLE) -> None:
    """Make or update `.venv`; nothing to do when the stamp is right. The whole lock holds all of the others."""
    demand_tools()
    wanted = digest(lock)
    enough = {wanted, digest()}
    if is_prepared(*enough):
        return
    with open(os.path.join(ROOT, "pyproject.toml"), "rb") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)  # two targets started together: the second waits and finds it done
        if is_prepared(*enough):
            return
        demand_compiler_works()
        if not runs(VENV_PYTHON):
            create()
        install("--require-hashes", "-r", os.path.join(ROOT, lock))
        install("--no-deps", "--no-build-isolation", "--no-index", "-e", ROOT)
        with open(STAMP + ".new", "w") as file:
            file.write(wanted)
        os.replace(STAMP + ".new", STAMP)


def runs(python: str) -> bool:
    """Whether this is an interpreter of the version running now."""
    question = f"import sys; sys.exit(sys.version_info[:2] != {tuple(sys.version_info[:2])})"
    return succeeds(python, "-c", question)


def create() -> None:
    """An empty `.venv` of the running interpreter, with pip inside where the machine has ensurepip."""
    if os.path.lexists(VENV):
        if not os.path.exists(os.path.join(VENV, "pyvenv.cfg")):
            raise Unprepared(f"{VENV} exists and is no virtual environment: move it away")
        shutil.rmtree(VENV)
    without_pip = [] if has("ensurepip") else ["--without-pip"]
    if has("venv"):
        subprocess.run([sys.executable, "-m", "venv", *without_pip, VENV], check=True)
    elif shutil.which("uv"):
        subprocess.run(["uv", "venv", "--quiet", "--python", sys.executable, VENV], check=True)
    else:
        raise Unprepared(f"{sys.executable} has no venv module and there is no uv.\n{advice()}")


def has(module: str) -> bool:
    """Whether the running interpreter has this module."""
    return importlib.util.find_spec(module) is not None


def install(*what: str) -> None:
    """Install into `.venv` with the first installer there is that can, and say how far it is."""
    found = installers()
    for at, (command, environment) in enumerate(found):
        try:
            return install_by([*command, "install", *what], environment)
        except subprocess.CalledProcessError:
            if at == len(found) - 1:
                raise
            tell(f"{os.path.basename(command[0])} failed, and another installer goes on", last=True)


def install_by(command: "list[str]", environment: "dict[str, str]") -> None:
    """Run one installer. Raises CalledProcessError where it fails, after its last words."""
    what = command[command.index("install") + 1 :]
    if "-r" not in what:
        subprocess.run([*command, "-qq"], env=environment, stdin=subprocess.DEVNULL, check=True)
        return
    with open(what[-1]) as lock:
        most = len(set(re.findall(r"^([\w.-]+)==", lock.read(), re.MULTILINE)))
    begin = time.monotonic()
    tell(f"preparing .venv: at most {most} packages, once", last=True)
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as outcome:
        lines = follow(outcome.stdout or iter(()), most)
    if outcome.returncode:
        sys.stderr.write("".join(lines))
        raise subprocess.CalledProcessError(outcome.returncode, command)
    tell(f".venv is ready after {time.monotonic() - begin:.0f} s", last=True)


def follow(output: "typing.Iterable[bytes]", most: int) -> "list[str]":
    """Say which package is fetched, as an installer's output tells it; the last lines of it."""
    last: list[str] = []
    fetched = 0
    said = time.monotonic()
    for line in output:
        text = line.decode(errors="replace")
        last = [*last[1 - LAST_LINES :], text]
        fetching = re.match(r"Collecting ([\w.-]+)", text)
        fetched += fetching is not None
        if fetching and (sys.stderr.isatty() or time.monotonic() - said > TOLD_EVERY_S):
            tell(f"fetching {fetched} of at most {most}: {fetching.group(1)}")
            said = time.monotonic()
        elif text.startswith("Installing collected packages"):
            tell(f"installing {text.count(',') + 1} packages")
    return last


def tell(text: str, last: bool = False) -> None:
    """One line on standard error, in the place of the one before on a terminal."""
    over = sys.stderr.isatty()
    end = "\n" if last or not over else ""
    print(f"{chr(13) if over else ''}bootstrap: {text}{chr(27) + '[K' if over else ''}", end=end, file=sys.stderr)
    sys.stderr.flush()


def installers() -> "list[tuple[list[str], dict[str, str]]]":
    """Of uv, which takes seconds, and of a pip, each with its environment, the command before the word `install`."""
    environment = dict(os.environ, PIP_DISABLE_PIP_VERSION_CHECK="1", PIP_NO_INPUT="1", PIP_ROOT_USER_ACTION="ignore")
    for name in ("PYTHONPATH", "PYTHONHOME", "PIP_USER", "PIP_TARGET", "PIP_PREFIX", "PIP_REQUIRE_VIRTUALENV"):
        environment.pop(name, None)  # each would install somewhere else
    found = []
    if shutil.which("uv"):
        settings = uv_settings(pip_settings(environment), environment)
        found.append((["uv", "pip"], dict(environment, **settings, VIRTUAL_ENV=VENV)))
    if succeeds(VENV_PYTHON, "-m", "pip", "--version"):
        found.append(([VENV_PYTHON, "-m", "pip"], environment))
    elif system_pip_reaches_out():
        found.append(([sys.executable, "-m", "pip", "--python", VENV_PYTHON], environment))
    if found:
        return found
    raise Unprepared(f"no installer: neither ensurepip, nor pip >= 22.3, nor uv.\n{advice()}")


def system_pip_reaches_out() -> bool:
    """Whether the running interpreter's pip can install into another environment (`--python`, pip 22.3)."""
    return succeeds(sys.executable, "-m", "pip", "--python", VENV_PYTHON, "--version")


# ---- pip's settings in uv's words


def pip_settings(environment: "dict[str, str]") -> "dict[str, str]":
    """Look up pip's `index-url`, `extra-index-url`, `find-links` and `cert`.

    From its files, then from the environment.
    """
    home = os.path.expanduser("~")
    files = ["/etc/xdg/pip/pip.conf", "/etc/pip.conf", f"{home}/.pip/pip.conf", f"{home}/.config/pip/pip.conf"]
    files.append(environment.get("PIP_CONFIG_FILE", os.devnull))
    parser = configparser.RawConfigParser()
    parser.read(files)
    settings = {}
    for name in ("index-url", "extra-index-url", "find-links", "cert"):
        for section in ("global", "install"):
            if parser.has_option(section, name):
                settings[name] = parser.get(section, name)
        variable = "PIP_" + name.upper().replace("-", "_")
        if environment.get(variable):
            settings[name] = environment[variable]
    return settings


def uv_settings(pip: "dict[str, str]", environment: "dict[str, str]") -> "dict[str, str]":
    """The variables that make uv look where pip would; what is already set for uv wins."""
    words = {
        "UV_DEFAULT_INDEX": pip.get("index-url", ""),
        "UV_INDEX": " ".join(pip.get("extra-index-url", "").split()),
        "UV_FIND_LINKS": ",".join(pip.get("find-links", "").split()),
        "SSL_CERT_FILE": pip.get("cert", ""),
        # pip takes the best match over all indexes; the hashes make that safe.
        "UV_INDEX_STRATEGY": "unsafe-best-match",
    }
    return {name: value for name, value in words.items() if value and not environment.get(name)}


# ---- the lock


def lock() -> None:
    """Write the requirements files: every platform and Python at once, all hashes of each version, no index URL."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("UV_")}
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        pip = [os.path.join(folder, "bin", "python"), "-m", "pip"]
        subprocess.run([*pip, "install", "--quiet", "uv"], check=True)
        constraints = os.path.join(folder, "constraints.txt")
        for name, extras in LOCKS:
            with open(os.path.join(ROOT, LOCKS[0][0])) as first, open(constraints, "w") as file:
                file.writelines(versions(first.read()) if name != LOCKS[0][0] else ())
            compile_lock(os.path.join(folder, "bin", "uv"), name, extras, constraints, environment)


def versions(lock: str) -> "list[str]":
    """The lines `name==version` of a requirements file, but for names with several.

    Without markers: uv would resolve for the interpreters that a marker leaves out, for which some wheels do not exist.
    """
    pins = re.findall(r"^([\w.-]+)==([^ ]+)", lock, re.MULTILINE)
    names = [name for name, _ in pins]
    return ["{}=={}\n".format(*pin) for pin in pins if names.count(pin[0]) == 1]


def compile_lock(
    uv: str, name: str, extras: "tuple[str, ...]", constraints: str, environment: "dict[str, str]"
) -> None:
    """One requirements file; versions already in it, or among the constraints, are kept while they satisfy."""
    command = [
        uv,
        "pip",
        "compile",
        "pyproject.toml",
        "--quiet",
        "--universal",
        "--generate-hashes",
        "--output-file",
        name,
    ]
    command += [
        "--no-emit-index-url",
        "--no-emit-find-links",
        "--no-annotate",
        "--no-header",
        "--fork-strategy",
        "fewest",
    ]
    command += ["--python-version", "{}.{}".format(*OLDEST)]
    command += [word for extra in extras for word in ("--extra", extra)]
    command += ["--constraint", constraints]
    subprocess.run(command, cwd=ROOT, env=environment, check=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
