"""The Celery side of a worker: a doorbell, no more. What to do is in the database.

Messages are acknowledged before they are acted upon and never prefetched, so the broker's visibility timeout plays
no part and a job may run for hours. One worker is one process with one thread that runs jobs (`worker.rounds`); the
main thread is Celery's, waits while a job runs that it was rung for (`solo`), and handles signals.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from celery import Celery, signals

from worker.desk import Desk
from worker.rounds import Rounds, Task
from worker.tasks import TASKS


def make_app(broker_url: str, desk: Desk, rounds: Rounds) -> Celery:
    """The application of one worker: a message has one of `TASKS` carried out in the thread of `rounds`."""
    app = Celery("tilewright", broker=broker_url, set_as_current=False)
    app.conf.update(
        task_serializer="json",
        accept_content=["json"],
        task_acks_late=False,
        task_ignore_result=True,
        task_publish_retry=False,
        task_default_queue=desk.queues[0],
        task_create_missing_queues=True,
        worker_prefetch_multiplier=1,
        worker_disable_prefetch=True,
        worker_enable_remote_control=False,
        worker_send_task_events=False,
        worker_cancel_long_running_tasks_on_connection_loss=False,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        broker_connection_retry=True,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_connection_timeout=2,
        broker_transport_options={"socket_connect_timeout": 2, "socket_timeout": 10},
    )
    for name, task in TASKS.items():
        app.task(name=name, shared=False)(_bound(task, rounds))
    return app


def serve(app: Celery, desk: Desk, rounds: Rounds) -> int:
    """Run the worker until SIGTERM or SIGINT; its exit status. A job under way is given back within half a second.

    To be called in the main thread.
    """

    def going_down(**_: Any) -> None:
        desk.stop.request()

    signals.worker_shutting_down.connect(going_down, weak=False)
    worker = app.Worker(
        hostname=desk.name,
        queues=list(desk.queues),
        pool="solo",
        concurrency=1,
        loglevel="WARNING",
        quiet=True,
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
    )
    rounds.start()
    try:
        worker.start()
    finally:
        rounds.stop()
    return int(worker.exitcode or 0)


def _bound(task: Task, rounds: Rounds) -> Callable[[str], None]:
    def run(queue: str) -> None:
        rounds.make(task, queue)

    return run
