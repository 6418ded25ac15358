"""Every way a request to the service can fail, beside the compiler's own tree.

    TilewrightError (compiler.errors)
    └── ServiceError
        ├── RequestError             the request is at fault
        │   ├── BadRequest               a field, header or part is missing or malformed
        │   ├── NotAuthenticated         no key, or one that is unknown, revoked or expired
        │   ├── NotAllowed               the key lacks the scope
        │   ├── OwnerSuspended           the operator has barred the key's owner
        │   ├── QuotaExceeded            the owner stores as many bytes as it may
        │   ├── NotFound                 no such thing, or it belongs to another owner
        │   │   └── SourceUnknown            a tuning record whose workload's text was never recorded
        │   ├── BodyTooLarge             the upload exceeds the stated limit
        │   ├── QueueFull                the owner has too many jobs waiting
        │   ├── DeviceTimeUsed           the owner has had its device seconds of this month
        │   ├── OwnerExists              there is an owner of this name
        │   ├── KeyEnded                 the key was revoked or has expired, and cannot be rotated
        │   ├── TooManyAtOnce            the owner has too many requests of this kind open
        │   ├── RateLimited              the key has sent too many requests
        │   ├── IdempotencyKeyReused     the key was used with another body
        │   ├── InvalidWebhook           the address or secret of a webhook cannot be used
        │   ├── WrongKind                the job is of a kind of which that cannot be asked
        │   ├── JobFinished              the job has ended and cannot be changed
        │   ├── JobNotFinished           what was asked for exists only after the job has ended
        │   ├── ArtifactNeverMade        the job ended without an artifact
        │   ├── EncodingUnsupported      the body is compressed
        │   ├── RangeUnsatisfiable       the file has no such range of bytes
        │   ├── PartTooLarge             a part of an artifact is too large to be served by itself
        │   ├── DigestMismatch           the bytes are not those that were announced
        │   ├── WrongOffset              a piece of an upload begins elsewhere than the last one ended
        │   ├── ModelInUse               jobs of the model are queued or run
        │   ├── JobInUse                 benchmarks or inferences of the job's artifact wait or run
        │   └── Removed                  it was kept for as long as the service keeps such things
        ├── ArtifactUnreadable       an artifact is not the archive that it should be
        └── UnavailableError         the service is at fault, and trying again later may help
            ├── Busy                     it does as much of this at a time as it may; nothing is broken
            ├── DatabaseUnavailable      the database does not answer
            │   └── DatabaseFull             its disk is full
            ├── StorageUnavailable       a blob cannot be read or written (disk full, store away)
            │   ├── BlobLost                 bytes that a row names are not in the store
            │   │   └── ArtifactLost             those of an artifact that was made
            │   └── BlobDamaged              bytes that a row names are others than were kept
            └── NotReady                 a part of the service that is needed is not up
                └── Misconfigured            nor will it be until settings, machine or program are others

Status codes are decided in `service.http.responses.errors` alone.
"""

from __future__ import annotations

from typing import ClassVar

from compiler.errors import Fault, TilewrightError


class ServiceError(TilewrightError):
    """Root of the service's errors; fields as in `TilewrightError`."""

    code = "service_error"
    fault: ClassVar[Fault] = "ours"


class RequestError(ServiceError):
    code = "request_error"
    fault = "caller"


class BadRequest(RequestError):
    code = "bad_request"


class NotAuthenticated(RequestError):
    code = "not_authenticated"


class NotAllowed(RequestError):
    code = "not_allowed"


class OwnerSuspended(RequestError):
    code = "owner_suspended"


class QuotaExceeded(RequestError):
    code = "quota_exceeded"


class NotFound(RequestError):
    code = "not_found"


class SourceUnknown(NotFound):
    code = "source_unknown"


class BodyTooLarge(RequestError):
    code = "body_too_large"


class QueueFull(RequestError):
    code = "queue_full"


class DeviceTimeUsed(RequestError):
    code = "device_time_used"


class OwnerExists(RequestError):
    code = "owner_exists"


class KeyEnded(RequestError):
    code = "key_ended"


class TooManyAtOnce(RequestError):
    code = "too_many_at_once"


class RateLimited(RequestError):
    code = "rate_limited"


class IdempotencyKeyReused(RequestError):
    code = "idempotency_key_reused"


class InvalidWebhook(RequestError):
    code = "invalid_webhook"


class WrongKind(RequestError):
    code = "wrong_kind"


class JobFinished(RequestError):
    code = "job_finished"


class JobNotFinished(RequestError):
    code = "job_not_finished"


class ArtifactNeverMade(RequestError):
    code = "artifact_never_made"


class EncodingUnsupported(RequestError):
    code = "encoding_unsupported"


class RangeUnsatisfiable(RequestError):
    code = "range_unsatisfiable"


class PartTooLarge(RequestError):
    code = "part_too_large"


class DigestMismatch(RequestError):
    code = "digest_mismatch"


class WrongOffset(RequestError):
    code = "wrong_offset"


class ModelInUse(RequestError):
    code = "model_in_use"


class JobInUse(RequestError):
    code = "job_in_use"


class Removed(RequestError):
    code = "removed"


class ArtifactUnreadable(ServiceError):
    code = "artifact_unreadable"


class UnavailableError(ServiceError):
    code = "unavailable"
    fault = "machine"


class Busy(UnavailableError):
    code = "busy"


class DatabaseUnavailable(UnavailableError):
    code = "database_unavailable"


class DatabaseFull(DatabaseUnavailable):
    code = "database_full"


class StorageUnavailable(UnavailableError):
    code = "storage_unavailable"


class BlobLost(StorageUnavailable):
    code = "blob_lost"


class ArtifactLost(BlobLost):
    code = "artifact_lost"


class BlobDamaged(StorageUnavailable):
    code = "blob_damaged"


class NotReady(UnavailableError):
    code = "not_ready"


class Misconfigured(NotReady):
    """Starting again does not mend it."""
