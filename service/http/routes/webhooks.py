"""`/webhooks`: addresses that are told when jobs end, and what was sent to them."""

from __future__ import annotations

from fastapi import Response

from service.db.models import JobState
from service.errors import InvalidWebhook, NotAllowed
from service.http.admission.auth import Reader, Submitter
from service.http.gate import Gated
from service.http.responses.cursors import Cursor, Following, Limit, decode, encode
from service.http.responses.errors import problem_responses
from service.http.schemas.ids import WebhookId
from service.http.schemas.webhooks import DeliveryOut, DeliveryPage, NewWebhookOut, WebhookIn, WebhookList, WebhookOut
from service.http.state import Here
from service.jobs.notifications import webhooks

router = Gated(tags=["webhooks"])


@router.post(
    "/webhooks",
    status_code=201,
    summary="Be told when jobs end",
    responses=problem_responses(NotAllowed, InvalidWebhook),
)
def make_webhook(here: Here, caller: Submitter, response: Response, wanted: WebhookIn) -> NewWebhookOut:
    """From now on each end of a job of the caller's owner is sent there by POST, signed as Standard Webhooks says.

    First a message of the type `webhook.challenge`, to be answered with `data.challenge`; until then the others wait.
    An answer of 200 to 299 takes it; else it is sent again, nine times in all, with pauses from five seconds to a day.
    The secret is in this answer and nowhere else.
    """
    here.trials.spend(str(caller.owner))
    states = [JobState(state) for state in wanted.states]
    private = here.settings.webhooks_private
    made = webhooks.make(here.db, caller.owner, wanted.url, wanted.secret, states, private=private)
    response.headers["Location"] = f"/webhooks/{made.id}"
    return NewWebhookOut.of(made)


@router.get("/webhooks", summary="List webhooks")
def list_webhooks(here: Here, caller: Reader) -> WebhookList:
    """All of the caller's owner, newest first."""
    return WebhookList(webhooks=[WebhookOut.of(row) for row in webhooks.listed(here.db, caller.owner)])


@router.get("/webhooks/{webhook_id}", summary="One webhook", responses=problem_responses(404))
def get_webhook(here: Here, caller: Reader, webhook_id: WebhookId) -> WebhookOut:
    """Where it leads, and what it is told of."""
    return WebhookOut.of(webhooks.find(here.db, caller.owner, webhook_id))


@router.delete(
    "/webhooks/{webhook_id}",
    status_code=204,
    summary="Delete a webhook",
    response_description="It is gone.",
    responses=problem_responses(404),
)
def delete_webhook(here: Here, caller: Submitter, webhook_id: WebhookId) -> Response:
    """Nothing more is sent there, nor what waits; what was sent is forgotten."""
    webhooks.delete(here.db, caller.owner, webhook_id)
    return Response(status_code=204)


@router.post("/webhooks/{webhook_id}/test", status_code=202, summary="Try a webhook", responses=problem_responses(404))
def test_webhook(here: Here, caller: Submitter, webhook_id: WebhookId) -> DeliveryOut:
    """Send it a message of the type `webhook.test`, or its challenge if its receiver was not verified.

    One that was disabled is told of jobs again. What is sent here is tried five times, and kept for an hour.
    """
    here.trials.spend(str(caller.owner))
    return DeliveryOut.of(webhooks.test(here.db, caller.owner, webhook_id))


@router.get(
    "/webhooks/{webhook_id}/deliveries", summary="What a webhook was told", responses=problem_responses(400, 404)
)
def list_deliveries(
    here: Here, caller: Reader, webhook_id: WebhookId, following: Following, limit: Limit = 50, cursor: Cursor = None
) -> DeliveryPage:
    """Messages that were sent or wait, newest first, with what became of the last attempt."""
    rows, last = webhooks.page(here.db, caller.owner, webhook_id, before=decode(cursor), limit=limit)
    return DeliveryPage(deliveries=[DeliveryOut.of(row) for row in rows], next_cursor=following(encode(last)))
