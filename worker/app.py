"""The Celery side of a worker: a doorbell, no more. What to do is in the database.

Messages are acknowledged before they are acted upon and never prefetched, so the broker's visibility timeout plays
no part and a job may run for hours. One worker is one process with one thread that runs jobs (`solo`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from celery import Celery, bootsteps, signals

from service.logs import logger
from worker.desk import Desk
from worker.tasks import TASKS, drain

log = logger(__name__)


def make_app(broker_url: str, desk: Desk, look_every_s: float) -> Celery:
    """The application of one worker: `TASKS` bound to its desk, and a look into the database every `look_every_s`."""
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
        app.task(name=name, shared=False)(_bound(task, desk))
    app.steps["worker"].add(_looking(desk, look_every_s))
    return app


def serve(app: Celery, desk: Desk) -> int:
    """Run the worker until SIGTERM or SIGINT; its exit status. A job under way is given back within half a second."""

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
    worker.start()
    return int(worker.exitcode or 0)


def _bound(task: Callable[[Desk, str], int], desk: Desk) -> Callable[[str], int]:
    def run(queue: str) -> int:
        return task(desk, queue)

    return run


def _looking(desk: Desk, every_s: float) -> type[bootsteps.StartStopStep]:
    """A step of the worker that drains the queues from time to time, in the one thread that runs jobs."""

    class Look(bootsteps.StartStopStep):  # type: ignore[misc]
        requires = frozenset({"celery.worker.components:Timer"})

        def start(self, worker: Any) -> None:
            self.timer = worker.timer.call_repeatedly(every_s, look)

        def stop(self, worker: Any) -> None:
            self.timer.cancel()

    def look() -> None:
        try:
            drain(desk, desk.queues[0])
        except Exception:
            log.exception("looking for jobs failed")

    return Look
