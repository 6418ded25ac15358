"""What the receiver of webhooks checks."""

from __future__ import annotations

import time

import pytest

from tilewright import UsageError, verified

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
BODY = b'{"test": 2432232314}'
HEADERS = {
    "Webhook-Id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
    "Webhook-Timestamp": "1614265330",
    "Webhook-Signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
}
"""The example of the standard's own libraries."""


@pytest.fixture(autouse=True)
def at_that_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 1614265330.0 + 60)


def test_the_example_of_the_standard_is_taken() -> None:
    assert verified(BODY, HEADERS, SECRET) == {"test": 2432232314}
    rotated = {**HEADERS, "Webhook-Signature": f"v1,bm9wZQ== {HEADERS['Webhook-Signature']} v2,x"}
    assert verified(BODY, rotated, SECRET)


@pytest.mark.parametrize(
    "changed",
    [
        {"Webhook-Id": "msg_other"},
        {"Webhook-Timestamp": "1614265331"},
        {"Webhook-Timestamp": "1614264330"},
        {"Webhook-Timestamp": "soon"},
        {"Webhook-Signature": "v1,AAAA"},
        {"Webhook-Signature": HEADERS["Webhook-Signature"].replace("v1", "v1a")},
        {"Webhook-Signature": ""},
    ],
    ids=str,
)
def test_anything_else_is_refused(changed: dict[str, str]) -> None:
    with pytest.raises(UsageError):
        verified(BODY, {**HEADERS, **changed}, SECRET)


def test_another_body_or_secret_is_refused() -> None:
    for body, secret in ((BODY + b" ", SECRET), (BODY, "whsec_" + "A" * 32)):
        with pytest.raises(UsageError, match="signature"):
            verified(body, HEADERS, secret)
