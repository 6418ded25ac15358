"""`tilewright compile`."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilewright.cli import options as given
from tilewright.cli import summary
from tilewright.cli.here import needs_compiler
from tilewright.cli.output import (
    Json,
    Key,
    ProfileName,
    Url,
    connect,
    console,
    demand_place,
    failures,
    print_json,
    print_problem,
)
from tilewright.cli.preflight import show as show_preflight
from tilewright.cli.progress import job_bar, sent, transfer_bar
from tilewright.errors import ClientError, JobFailed, UsageError

if TYPE_CHECKING:
    from tilewright.client import Client
    from tilewright.wire import Job


def compile_model(
    model: Annotated[str, typer.Argument(help="An ONNX file, a zip or folder, an address, or a digest.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Default: the model's name with .tw; for several targets a folder."),
    ] = None,
    target: given.Targets = None,
    threads: given.Threads = None,
    dim: given.Dims = None,
    shape: given.Shapes = None,
    budget: given.Budget = None,
    tolerance: given.Tolerance = None,
    precision: given.Precision = None,
    devices: given.Devices = None,
    objective: given.Objective = None,
    carry: given.Carry = None,
    system: given.System = None,
    option: given.Others = None,
    data: given.Data = None,
    samples: Annotated[
        list[Path] | None,
        typer.Option("--samples", help="An .npz of inputs to judge on, and the first to time on; repeatable."),
    ] = None,
    workload: given.Workload = "",
    fresh: Annotated[bool, typer.Option("--fresh", help="Compile even if the cache has it.")] = False,
    priority: given.Priority = 0,
    preflight: Annotated[bool, typer.Option("--preflight", help="Queue nothing that would be refused.")] = False,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait for the end and download.")] = True,
    timeout: given.Timeout = None,
    name: given.Name = None,
    note: given.Note = None,
    tag: given.Tags = None,
    max_queue: given.MaxQueue = None,
    max_run: given.MaxRun = None,
    compiler: given.Compiler = None,
    here: Annotated[
        bool, typer.Option("--local", help="On this machine, without a server; kept in the user's cache.")
    ] = False,
    url: Url = "",
    key: Key = "",
    profile: ProfileName = "",
    as_json: Json = False,
) -> None:
    """Compile a model and download the artifact. With `--json`: the job at the end, and `artifact`, the file.

    Several targets make one request and one artifact each; with `--json` then `{"jobs": [...]}`. With `--local` there
    is no job, and `artifact` alone.
    """
    with failures(as_json):
        options = given.build_options(
            threads, dim, shape, budget, tolerance, precision, option, devices, objective, carry
        )
        wanted = given.for_targets({**options, **({"system": system} if system else {})}, target)
        given.demand_files(model, *(data or ()), *(samples or ()))
        paths = _outputs(given.file_name(model), output, target or [])
        if wait:
            for path in paths:
                demand_place(path)
        if here:
            asks = {"--data": data, "--samples": samples, "--workload": workload, "--preflight": preflight}
            _demand_plain({**asks, "--no-wait": not wait, "several --target": len(wanted) > 1})
            _compiled_here(Path(given.fetched(model)), wanted[0], paths[0], as_json)
            return
        called, model = given.name_of(name, model), given.fetched(model)
        with connect(url, key, profile) as client:
            source = sent(client, model, data, quiet=as_json)
            if preflight:
                for one in wanted:
                    _check(client, source, one, as_json, compiler or "")
            limits = {"max_queue_s": max_queue, "max_run_s": max_run}
            said = given.given_of(name=called, note=note, tags=tag, compiler=compiler, **limits)
            common: dict[str, Any] = {"samples": samples or (), "fresh": fresh, "priority": priority, **said}
            if workload:
                common["workload"] = workload
            jobs = client.compile(source, wanted, **common) if len(wanted) > 1 else None
            if jobs is None:
                jobs = [client.compile(source, wanted[0], **common)]
            if not wait:
                _print([job.said for job in jobs], as_json) if as_json else print(*(job.id for job in jobs), sep="\n")
                return
            _finish(client, jobs, paths, as_json, timeout)


def _demand_plain(asked: Mapping[str, object]) -> None:
    """Raises `UsageError` for what only a server does."""
    if words := [word for word, given_ in asked.items() if given_]:
        raise UsageError(f"--local goes without {', '.join(words)}", fix="leave it out, or let a server compile")


def _compiled_here(model: Path, options: Mapping[str, Any], output: Path, as_json: bool) -> None:
    """Compile on this machine, unless that was done before, and put a copy of the artifact to its place."""
    needs_compiler()
    from tilewright import local

    if not as_json:
        console().print("compiling on this machine, unless that was done before", style="dim")
    kept = local.compiled(model, options)
    draft = output.with_name(f".{output.name}.{os.getpid()}.part")
    try:
        shutil.copyfile(kept, draft)
        draft.replace(output)
    finally:
        draft.unlink(missing_ok=True)
    if as_json:
        print_json({"artifact": str(output), "notices": local.noticed(kept)})
        return
    print(output, flush=True)
    for notice in local.noticed(kept):
        console().print(f"note: {notice}", markup=False)
    target, system = (str(options.get(name, usual)) for name, usual in (("target", "cpu"), ("system", "linux")))
    console().print(f"Next: {summary.next_command(target, system, output)}", markup=False)


def _finish(
    client: Client, jobs: Sequence[Job], paths: Sequence[Path], as_json: bool, timeout: float | None = None
) -> None:
    """Wait for all, download what was made. Raises `JobFailed` for one job; of several it leaves with its status."""
    shown: list[dict[str, Any]] = []
    until = None if timeout is None else time.monotonic() + timeout
    for job, path in zip(jobs, paths, strict=True):
        ended = _waited(client, job, as_json, None if until is None else until - time.monotonic())
        if not ended.ended or ended.state != "SUCCEEDED":
            if len(jobs) == 1:
                ended.require_success()
            shown.append(dict(ended.said))
            if not as_json:
                print_problem(ended)
            continue
        with transfer_bar("download", quiet=as_json) as progress:
            artifact = client.download(ended, path, progress)
        shown.append({**ended.said, "artifact": str(artifact)})
        if not as_json:
            print(artifact, flush=True)
            for line in summary.lines(ended, artifact, client.url, _report(client, ended)):
                console().print(line, markup=False)
    if as_json:
        _print(shown, as_json)
    if any("artifact" not in one for one in shown):
        raise typer.Exit(JobFailed.exit_status)


def _report(client: Client, job: Job) -> Mapping[str, Any]:
    """What the job says of itself; empty where that cannot be had."""
    try:
        return dict(client.report(job)["report"] or {})
    except ClientError:
        return {}


def _waited(client: Client, job: Job, as_json: bool, timeout: float | None) -> Job:
    try:
        with job_bar(quiet=as_json) as show:
            if job.cached and not as_json:
                for event in client.events(job, within_s=timeout):
                    show(event)
            return client.wait(job, show, timeout=timeout)
    except KeyboardInterrupt:
        console().print(
            f"The job goes on: tilewright watch {job.id}, tilewright finish {job.id}, or tilewright cancel {job.id}"
        )
        raise


def _check(client: Client, source: Any, options: dict[str, Any], as_json: bool, compiler: str) -> None:
    """Raises `JobFailed` when the compilation would be refused."""
    found = client.preflight(source, options, compiler=compiler)
    if found.ok:
        return
    if not as_json:
        show_preflight(found)
    problem = found.said.get("problem") or {"refusals": list(found.refusals)}
    message = problem.get("message") or "the model would be refused"
    raise _refused(message, problem)


def _refused(message: str, problem: dict[str, Any]) -> ClientError:
    return JobFailed(message, fix=problem.get("fix", ""), problem=problem)


def _print(said: list[dict[str, Any]] | list[Any], as_json: bool) -> None:
    print_json(said[0] if len(said) == 1 else {"jobs": said})


def _outputs(model: str, output: Path | None, targets: Sequence[str]) -> list[Path]:
    """Where each artifact goes. Raises `UsageError` when several are to go to one file."""
    source = Path(model)
    name = source.resolve() if source.is_dir() else source
    if len(targets) < 2:
        beside = name if source.is_dir() else source
        return [output / f"{name.stem}.tw" if output and output.is_dir() else output or beside.with_suffix(".tw")]
    if output and output.exists() and not output.is_dir():
        raise UsageError(f"{output} is a file, and the job makes several artifacts", fix="give a folder with --output")
    folder = output or name.parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make {folder}: {error.strerror}", fix="name another folder with --output") from error
    return [folder / f"{name.stem}.{target.replace(':', '-')}.tw" for target in targets]
