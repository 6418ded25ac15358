from __future__ import annotations

from typing import Any

import pytest

from service.jobs.scheduling.doorbell import TASK, routed
from worker.app import make_app
from worker.attempt.tasks import TASKS

pytestmark = pytest.mark.processes


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("TILEWRIGHT_BROKER_URL", "redis+socket:///nowhere")
    return make_app()


def test_messages_are_acknowledged_early_never_prefetched_and_json_only(app: Any) -> None:
    conf = app.conf
    assert conf.broker_url == "redis+socket:///nowhere"
    assert conf.task_acks_late is False
    assert conf.worker_disable_prefetch is True
    assert conf.task_ignore_result is True
    assert conf.accept_content == ["json"]
    assert conf.worker_cancel_long_running_tasks_on_connection_loss is False
    assert conf.broker_connection_max_retries is None


def test_every_task_of_the_list_is_bound(app: Any) -> None:
    assert set(TASKS) <= set(app.tasks)


@pytest.mark.parametrize("call", [(("run:cuda",), {}), ((), {"queue": "run:cuda"})])
def test_a_message_goes_to_the_device_class_that_it_names(app: Any, call: tuple[Any, Any]) -> None:
    assert app.amqp.router.route({}, TASK, *call)["queue"].name == "run:cuda"
    assert routed("celery.ping", ("cpu",), {}, {}) == {}
