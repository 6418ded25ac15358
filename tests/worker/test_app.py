from __future__ import annotations

import pytest

from tests.worker.quiet import Quiet
from worker.app import make_app
from worker.desk import Desk
from worker.rounds import Rounds
from worker.tasks import TASKS, drain

pytestmark = pytest.mark.processes


def test_messages_are_acknowledged_early_never_prefetched_and_json_only(desk: Desk) -> None:
    conf = make_app("redis+socket:///nowhere", desk, Rounds(desk, drain, 3.0, Quiet())).conf
    assert conf.task_acks_late is False
    assert conf.worker_disable_prefetch is True
    assert conf.task_ignore_result is True
    assert conf.accept_content == ["json"]
    assert conf.worker_cancel_long_running_tasks_on_connection_loss is False
    assert conf.broker_connection_max_retries is None


def test_every_task_of_the_list_is_bound(desk: Desk) -> None:
    assert set(TASKS) <= set(make_app("redis+socket:///nowhere", desk, Rounds(desk, drain, 3.0, Quiet())).tasks)
