"""The ids in paths."""

from __future__ import annotations

import uuid
from typing import Annotated

from fastapi import Path

from service.http.schemas.common import JOB_EXAMPLE
from service.http.schemas.models import BATCH_ID, UPLOAD_ID
from service.http.schemas.owners import KEY_ID
from service.http.schemas.records import RECORD_EXAMPLE
from service.http.schemas.runs import BENCHMARK_ID, INFERENCE_ID
from service.http.schemas.shares import SHARE_ID
from service.http.schemas.webhooks import WEBHOOK_ID

JobId = Annotated[uuid.UUID, Path(description="Id of a job of any kind.", examples=[JOB_EXAMPLE["id"]])]
BatchId = Annotated[uuid.UUID, Path(description="As `POST /compile` answered.", examples=[BATCH_ID])]
ArtifactId = Annotated[
    uuid.UUID, Path(description="`artifact_id` of the job that makes it.", examples=[JOB_EXAMPLE["artifact_id"]])
]
UploadId = Annotated[uuid.UUID, Path(description="As `POST /uploads` answered.", examples=[UPLOAD_ID])]
BenchmarkId = Annotated[uuid.UUID, Path(description="As `POST /benchmarks` answered.", examples=[BENCHMARK_ID])]
InferenceId = Annotated[uuid.UUID, Path(description="As `POST /inferences` answered.", examples=[INFERENCE_ID])]
RecordId = Annotated[uuid.UUID, Path(description="Id of a tuning record.", examples=[RECORD_EXAMPLE["id"]])]
WebhookId = Annotated[uuid.UUID, Path(description="As `POST /webhooks` answered.", examples=[WEBHOOK_ID])]
ShareId = Annotated[uuid.UUID, Path(description="As `POST /jobs/{id}/shares` answered.", examples=[SHARE_ID])]
KeyId = Annotated[uuid.UUID, Path(description="Id of a key; `GET /keys` lists them.", examples=[KEY_ID])]
