"""Every kind of job, end to end: a claim, the real child behind its walls, a tiny model, the rows that are left."""

from __future__ import annotations

import dataclasses
import io
import json
import shutil
import uuid
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import sqlalchemy as sa
from onnx import TensorProto, helper

from compiler.contract import (
    BenchmarkOptions,
    CompileOptions,
    CompressOptions,
    LegaliseOptions,
    PlaceOptions,
    QuantizeOptions,
    bundle_digest,
    job_kinds,
)
from compiler.devices.cpu import target as cpu
from compiler.devices.cuda import nvrtc
from service.blobs.members import member
from service.blobs.store import StoredBlob
from service.db import results
from service.db.artifacts import keep_model
from service.db.models import Artifact, JobState, Model, TuningRecord, Workload
from service.errors import JobNotFinished
from service.jobs.accounts.quotas import UNLIMITED
from service.jobs.lifecycle.early_finish import finish
from service.jobs.lifecycle.find import artifact_so_far
from service.jobs.scheduling import lease
from service.jobs.storage.samples import SampleFile
from service.jobs.submission import runs
from service.jobs.submission.minimisations import minimise
from service.jobs.submission.model_changes import ModelChange, change
from service.jobs.submission.submit import Submission, submit
from tests.compiler.compress.models import cnn
from tests.compiler.networks import Network
from tests.servers import GUARD_S
from tilewright import load
from worker.attempt.context import WorkerContext
from worker.attempt.run import run
from worker.devices import device
from worker.limits import Limits
from worker.processes import group
from worker.sandbox import landlock
from worker.work import NOT_MEASURED

WEIGHTS = np.random.default_rng(0).standard_normal((16, 8), dtype=np.float32)
X = np.random.default_rng(1).standard_normal((4, 16), dtype=np.float32)
needs_nvrtc = pytest.mark.skipif(nvrtc.library_path() is None, reason="NVRTC is not installed (nvidia-cuda-nvrtc)")
QUICK = {"tuning_budget_s": 0.0, "threads": 1}


def model(data: str = "") -> bytes:
    """`y = relu(x w)`, with `w` in the model or in a file of external data."""
    weights = helper.make_tensor("w", TensorProto.FLOAT, WEIGHTS.shape, WEIGHTS.tobytes(), raw=True)
    if data:
        weights = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=WEIGHTS.shape)
        weights.data_location = TensorProto.EXTERNAL
        weights.external_data.add(key="location", value=data)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["z"]), helper.make_node("Relu", ["z"], ["y"])]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, X.shape)
    graph = helper.make_graph(nodes, "g", [x], [onnx.ValueInfoProto(name="y")], [weights])
    whole = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(whole.SerializeToString())


def upload(office: Any, data: str = "") -> None:
    """Make it the office's model."""
    whole = office.blobs.put_bytes(model(data))
    weights = office.blobs.put_bytes(WEIGHTS.tobytes())
    file = {"path": data, "sha256": weights.sha256, "bytes": weights.bytes, "key": weights.key}
    files = [file] if data else []
    size = whole.bytes + sum(each["bytes"] for each in files)
    office.model = bundle_digest(whole.sha256, {data: weights.sha256} if data else {})
    row = Model(owner_id=office.owner, digest=office.model, bytes=size, blob_key=whole.key, files=files)
    with office.db.write() as session:
        session.add(row)


@pytest.fixture
def worker(context: WorkerContext) -> WorkerContext:
    """The context with the real child."""
    (context.scratch / "jobs").mkdir(parents=True)
    return dataclasses.replace(context, command=group.CHILD, limits=Limits(wall_s=GUARD_S, memory_bytes=4 << 30))


@pytest.fixture
def compiled(office: Any, worker: WorkerContext) -> Callable[..., Any]:
    """Upload, queue and run one compilation; the job afterwards."""

    def compile_(data: str = "", context: WorkerContext = worker, **options: Any) -> Any:
        upload(office, data)
        job_id = office.submit(**{**QUICK, **options})
        run(context, claimed(context))
        return office.job(job_id)

    return compile_


def claimed(context: WorkerContext) -> lease.Claim:
    claim = lease.claim(context.db, "tester", context.queues, context.lease_s)
    assert claim is not None
    return claim


def rows(office: Any, table: Any) -> list[Any]:
    with office.db.read() as session:
        return list(session.scalars(sa.select(table)))


def arrays(office: Any, **given: Any) -> StoredBlob:
    file = io.BytesIO()
    np.savez(file, **given)
    blob: StoredBlob = office.blobs.put_bytes(file.getvalue())
    return blob


def inferred(office: Any, job_id: uuid.UUID) -> Any:
    with office.db.read() as session:
        return results.inference(session, job_id)


@pytest.mark.parametrize("data", ["", "data/weights.bin"])
def test_a_model_becomes_an_artifact_that_is_timed_and_run(
    office: Any, worker: WorkerContext, compiled: Callable[..., Any], data: str
) -> None:
    job = compiled(data)
    assert job.state == JobState.SUCCEEDED, job.problem
    assert job.report["model_digest"] == job.model_digest
    (artifact,) = rows(office, Artifact)
    assert artifact.id == job.artifact_id
    manifest = json.loads(member(office.blobs, artifact.blob_key, "manifest.json"))
    assert manifest["model_digest"] == job.model_digest

    timing = runs.benchmark(
        office.db,
        office.owner,
        [artifact.id, artifact.id],
        BenchmarkOptions(seconds=0.05),
        limits=UNLIMITED,
    ).job
    running = runs.infer(office.db, office.owner, artifact.id, arrays(office, x=X), limits=UNLIMITED).job
    assert [run(worker, claimed(worker)) for _ in range(2)] == ["succeeded", "succeeded"]

    with office.db.read() as session:
        report = results.benchmark(session, timing.id).report  # type: ignore[union-attr]
    assert [reported["artifact"] for reported in report["artifacts"]] == [str(artifact.id)] * 2
    assert len(report["comparisons"]) == 1
    assert {"open", "time"} <= set(office.said(timing.id))
    reported = inferred(office, running.id)
    outputs = np.load(office.blobs.path(reported.output_key))
    np.testing.assert_allclose(outputs["y"], np.maximum(X @ WEIGHTS, 0), rtol=1e-5, atol=1e-5)
    assert reported.output_bytes == office.blobs.size(reported.output_key)
    assert reported.report["seconds"] > 0
    assert office.said(running.id)[-3:] == ["RUNNING", "run", "SUCCEEDED"]
    (attempt,) = office.attempts(running.id)
    walls = attempt.log.splitlines()[0]
    assert walls.startswith("sandbox: limits")
    assert ("files" in walls) == (landlock.version() > 0)


def test_what_was_measured_is_kept_with_the_text_it_refers_to(office: Any, compiled: Callable[..., Any]) -> None:
    compiled(tuning_budget_s=60.0)
    measured = rows(office, TuningRecord)
    texts = {row.workload for row in rows(office, Workload)}
    kernels = {row.workload for row in measured if row.kind == "kernel"}
    assert kernels
    assert kernels <= texts


def test_a_job_that_is_to_finish_from_the_start_measures_nothing_and_says_so(
    office: Any, worker: WorkerContext, compiled: Callable[..., Any]
) -> None:
    upload(office)
    job_id = office.submit(tuning_budget_s=60.0, threads=1)
    finish(office.db, office.owner, job_id)
    claim = claimed(worker)
    assert claim.finish
    assert run(worker, claim) == "succeeded"
    assert office.job(job_id).report["records_measured"] == 0
    assert any("finished early on request" in notice for notice in office.job(job_id).report["notices"])


def test_a_builder_compiles_for_a_profile_and_measures_nothing_although_it_could(
    office: Any, worker: WorkerContext, compiled: Callable[..., Any]
) -> None:
    profile = cpu.this_machine().name
    builder = dataclasses.replace(worker, queues=(profile,), device=device.NO_DEVICE)
    job = compiled(context=builder, queue=profile)
    assert job.state == JobState.SUCCEEDED, job.problem
    assert job.report["target"] == profile
    assert rows(office, TuningRecord) == []
    assert NOT_MEASURED in job.report["notices"]


@needs_nvrtc
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_a_builder_compiles_for_a_gpu_that_it_does_not_have(
    office: Any, worker: WorkerContext, compiled: Callable[..., Any], precision: str
) -> None:
    builder = dataclasses.replace(worker, queues=("cuda:sm_90",), device=device.NO_DEVICE)
    job = compiled(context=builder, queue="cuda:sm_90", precision=precision)
    assert job.state == JobState.SUCCEEDED, job.problem
    assert (job.report["target"], job.report["hardware"]) == ("cuda:sm_90", "")
    assert NOT_MEASURED in job.report["notices"]


@needs_nvrtc
def test_a_job_for_a_gpu_is_not_measured_by_a_worker_that_holds_cores(
    office: Any, worker: WorkerContext, compiled: Callable[..., Any]
) -> None:
    both = dataclasses.replace(worker, queues=("cpu", "cuda:sm_90"))
    job = compiled(context=both, queue="cuda:sm_90", tuning_budget_s=30.0)
    assert job.state == JobState.SUCCEEDED, job.problem
    assert NOT_MEASURED in job.report["notices"]
    assert rows(office, TuningRecord) == []


def test_arrays_that_do_not_fit_are_the_callers_fault(
    office: Any, worker: WorkerContext, compiled: Callable[..., Any]
) -> None:
    job = compiled()
    bad = runs.infer(office.db, office.owner, job.artifact_id, arrays(office, x=X[:2]), limits=UNLIMITED).job
    assert run(worker, claimed(worker)) == "failed"
    problem = office.job(bad.id).problem
    assert (problem["code"], problem["fault"]) == ("invalid_inputs", "caller")
    assert inferred(office, bad.id).output_key is None


def test_an_artifact_that_is_gone_fails_the_run_with_the_reason(
    office: Any, worker: WorkerContext, compiled: Callable[..., Any]
) -> None:
    job = compiled()
    lost = runs.benchmark(office.db, office.owner, [job.artifact_id], BenchmarkOptions(), limits=UNLIMITED).job
    with office.db.write() as session:
        session.execute(sa.delete(Artifact))
    claim = claimed(worker)
    assert claim.kind == "benchmark"
    assert run(worker, claim) == "failed"
    assert office.job(lost.id).problem["code"] == "inputs_missing"


@pytest.mark.slow
@pytest.mark.skipif(find_spec("ziglang") is None, reason="no Zig. Fix: pip install ziglang")
def test_a_second_job_for_browsers_finds_the_c_library_that_the_first_has_built(
    office: Any, worker: WorkerContext
) -> None:
    context = dataclasses.replace(worker, queues=("wasm:simd128",))
    upload(office)
    first, second = (office.submit("wasm:simd128", **QUICK, compare=[], seed=seed) for seed in range(2))
    assert run(context, claimed(context)) == "succeeded", office.job(first).problem
    (library,) = (context.scratch / "kept").iterdir()
    built = {path: path.stat().st_mtime_ns for path in library.rglob("*")}
    assert run(context, claimed(context)) == "succeeded", office.job(second).problem
    assert built == {path: path.stat().st_mtime_ns for path in library.rglob("*")}, "no job may change it"


def test_a_model_becomes_a_quantised_one_of_its_owner(office: Any, worker: WorkerContext) -> None:
    upload(office, "data/weights.bin")
    stacked = np.random.default_rng(2).standard_normal((3, *X.shape), dtype=np.float32)
    sample = SampleFile("s.npz", arrays(office, x=stacked))
    wanted = ModelChange("quantization", office.owner, office.model, QuantizeOptions(snr_db=20.0), (sample,))
    job_id = change(office.db, wanted, limits=UNLIMITED).job.id
    assert run(worker, claimed(worker)) == "succeeded", office.job(job_id).problem
    report = office.job(job_id).report
    assert [(row["operator"], row["precision"]) for row in report["layers"]] == [("MatMul", "int8")]
    assert report["outputs"][0]["snr_db"] > 30
    assert report["samples"] == 3
    assert {"load", "calibrate", "search", "write"} <= set(office.said(job_id))
    (made,) = [one for one in rows(office, Model) if one.digest == report["quantized_model"]]
    assert (made.owner_id, made.files) == (office.owner, [])
    content = onnx.load_from_string(office.blobs.path(made.blob_key).read_bytes())
    assert [node.op_type for node in content.graph.node].count("QuantizeLinear") == 1


def test_a_quantization_that_names_no_layer_fails_with_the_names_there_are(office: Any, worker: WorkerContext) -> None:
    upload(office)
    wanted = ModelChange("quantization", office.owner, office.model, QuantizeOptions(keep=("nowhere",)))
    job_id = change(office.db, wanted, limits=UNLIMITED).job.id
    assert run(worker, claimed(worker)) == "failed"
    assert office.job(job_id).problem["code"] == "invalid_options"
    assert "'nowhere'" in office.job(job_id).problem["message"]


def test_a_model_becomes_a_pruned_one_of_its_owner(office: Any, worker: WorkerContext) -> None:
    blob = office.blobs.put_bytes(cnn().SerializeToString())
    stacked = np.random.default_rng(2).standard_normal((4, 1, 3, 12, 12), dtype=np.float32)
    sample = SampleFile("s.npz", arrays(office, x=stacked))
    with office.db.write() as session:
        keep_model(session, office.owner, blob.sha256, blob.bytes, blob.key, [])
    options = CompressOptions(sparsity=0.6, form="1x4", tuning_budget_s=0.0)
    wanted = ModelChange("compression", office.owner, blob.sha256, options, (sample,))
    job_id = change(office.db, wanted, limits=UNLIMITED).job.id
    assert run(worker, claimed(worker)) == "succeeded", office.job(job_id).problem
    report = office.job(job_id).report
    assert report["sparsity"] >= 0.6
    assert {"load", "calibrate", "weights", "time", "search", "write"} <= set(office.said(job_id))
    (made,) = [one for one in rows(office, Model) if one.digest == report["compressed_model"]]
    content = onnx.load_from_string(office.blobs.path(made.blob_key).read_bytes())
    (weights,) = [onnx.numpy_helper.to_array(one) for one in content.graph.initializer if one.name == "w1"]
    assert np.count_nonzero(weights) < weights.size


def test_a_model_is_legalised_to_one_of_its_owner_and_placed_on_a_platform(office: Any, worker: WorkerContext) -> None:
    """Both in the real child behind its walls."""
    upload(office)
    wanted = ModelChange("legalisation", office.owner, office.model, LegaliseOptions("relu-conv-add"))
    job_id = change(office.db, wanted, limits=UNLIMITED).job.id
    assert run(worker, claimed(worker)) == "succeeded", office.job(job_id).problem
    report = office.job(job_id).report
    assert report["after"]["share"] == 1.0
    assert {"load", "search", "write"} <= set(office.said(job_id))
    legal = report["legalised_model"]
    example = job_kinds.PLACEMENT.example
    placed = ModelChange("placement", office.owner, legal, PlaceOptions.from_json(example))
    job_id = change(office.db, placed, limits=UNLIMITED).job.id
    assert run(worker, claimed(worker)) == "succeeded", office.job(job_id).problem
    report = office.job(job_id).report
    assert (report["predicted"], report["objective"]) == (True, "throughput")
    assert {*report["alone"]} == {"arm", "tpu"}
    assert report["svg"].startswith("<svg")


def test_a_failed_compilation_is_minimised_to_a_model_of_its_owner(office: Any, worker: WorkerContext) -> None:
    """In the real child behind its walls: trials are forked there, and end themselves."""
    net = Network()
    x = net.node("Conv", [net.input(1, 8, 6, 6), net.weight(8, 8, 3, 3)], (1, 8, 6, 6), pads=[1] * 4)
    x = net.node("Relu", [net.node("Frobnicate", [x], (1, 8, 6, 6))], (1, 8, 6, 6))
    blob = office.blobs.put_bytes(net.model([x]).SerializeToString())
    with office.db.write() as session:
        keep_model(session, office.owner, blob.sha256, blob.bytes, blob.key, [])
    options = CompileOptions(threads=1, tuning_budget_s=0.0)
    failing = submit(office.db, Submission(office.owner, blob.sha256, options), limits=UNLIMITED).job.id
    with pytest.raises(JobNotFinished):
        minimise(office.db, office.owner, failing, 60.0, limits=UNLIMITED)
    assert run(worker, claimed(worker)) == "failed"
    job_id = minimise(office.db, office.owner, failing, 60.0, limits=UNLIMITED).job.id
    assert run(worker, claimed(worker)) == "succeeded", office.job(job_id).problem
    report = office.job(job_id).report
    assert report["nodes"] == {"before": 3, "after": 1}
    assert report["problem"]["refusals"] == office.job(failing).problem["refusals"]
    (made,) = [one for one in rows(office, Model) if one.digest == report["minimised_model"]]
    content = onnx.load_from_string(office.blobs.path(made.blob_key).read_bytes())
    assert [node.op_type for node in content.graph.node] == ["Frobnicate"]
    assert {"load", "search"} <= set(office.said(job_id))


def test_an_artifact_is_there_before_measuring_ends(
    office: Any, worker: WorkerContext, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It came out of the real child whole, agreed, and runs; the job then made its own."""
    upload(office)
    options = CompileOptions(threads=1, tuning_budget_s=60.0, tuning_trials=1)
    job = submit(office.db, Submission(office.owner, office.model, options), limits=UNLIMITED).job
    keep, kept = lease.first_made, []

    def noted(*given: Any, artifact: StoredBlob, report: Any) -> bool:
        kept.append((keep(*given, artifact=artifact, report=report), report))
        assert job.artifact_id is not None
        found = artifact_so_far(office.db, office.owner, job.artifact_id)
        shutil.copyfile(office.blobs.path(found.blob_key), tmp_path / "first.tw")
        return bool(kept[-1][0])

    monkeypatch.setattr(lease, "first_made", noted)
    assert run(worker, claimed(worker)) == "succeeded", office.job(job.id).problem
    ((was_kept, report),) = kept
    assert was_kept
    assert 0 < report["errors"][0]["max_relative"] < report["tolerance"]
    assert report["records_measured"] == 0 < office.job(job.id).report["records_measured"]
    ended = office.job(job.id).report
    (layer,) = ended["layers"]
    assert (layer["value"], layer["call"], layer["inherited"]) == ("y", 0, 0.0)
    assert len(layer["nodes"]) == 2
    assert 0 < layer["max_relative"] <= ended["errors"][0]["max_relative"]
    outputs = load(tmp_path / "first.tw").run({"x": X})
    assert np.allclose(outputs["y"], np.maximum(X @ WEIGHTS, 0), atol=1e-4)
