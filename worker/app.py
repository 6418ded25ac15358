"""The Celery side of a worker: a doorbell, no more. What to do is in the database.

`celery -A worker.app worker -Q cpu` and `python -m worker` start the same: Celery's consumer beside the one thread that
runs jobs (`worker.attempt.rounds`). Messages are acknowledged before they are acted upon and never prefetched, so the
broker's visibility timeout plays no part and a job may run for hours. The main thread is Celery's: it handles signals
and remote control. A message waits in the pool's thread until its round is over, so that further ones go to idle
workers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from celery import Celery, bootsteps, signals
from celery.utils.nodenames import default_nodename
from pydantic import ValidationError

from compiler.contract import kinds
from compiler.errors import OptionsError, TilewrightError
from service.config import Settings, exit_status, reason
from service.db.arrivals import arrivals
from service.jobs.scheduling.doorbell import NO_BROKER, routed
from worker.attempt.rounds import Rounds, Task
from worker.attempt.tasks import TASKS, drain
from worker.config import WorkerSettings
from worker.opening import opened, own_name
from worker.pool import OneThread
from worker.processes import group

ASK_S = 0.5
"""How often a worker without a broker looks whether it shall end: messages in memory wake nobody."""
_PRESENCE_PATIENCE_S = 0.1


class Jobs(bootsteps.StartStopStep):  # type: ignore[misc] # Celery ships no types
    """What a worker has beside Celery's parts: its context, and the thread that runs jobs from `start` to `stop`.

    `create` comes before Celery handles signals, so that a worker which waits for its database can be ended.
    """

    requires = ("celery.worker.components:Pool",)

    def __init__(self, worker: Any, command: tuple[str, ...] = group.CHILD, **options: Any) -> None:
        super().__init__(worker, **options)
        self._command = command

    def create(self, worker: Any) -> None:
        """Open the context for the queues that were asked for, which stand for all that the consumer then listens to.

        Raises `SystemExit`, with the reason on standard error.
        """
        asked = tuple(worker.app.amqp.queues.consume_from)
        name = own_name(asked) if worker.hostname == default_nodename(None) else worker.hostname
        try:
            if not isinstance(worker.pool, OneThread):
                raise OptionsError("a worker runs one job at a time, in a thread of its own", fix="leave out --pool")
            self._context = opened(asked, name, command=self._command)
        except (TilewrightError, ValidationError) as error:
            print(f"worker: {reason(error)}", file=sys.stderr)
            raise SystemExit(exit_status(error)) from None
        self._arrivals = arrivals(self._context.db, self._context.queues)
        self._rounds = worker.app.rounds = Rounds(self._context, drain, WorkerSettings().look_every_s, self._arrivals)
        worker.app.amqp.queues.select(self._context.queues)

    def start(self, worker: Any) -> None:
        """Run jobs, from the first that is there."""
        signals.worker_shutting_down.connect(self._going_down)
        self._context.status.start()
        self._rounds.start()

    def close(self, worker: Any) -> None:
        """Begin to give back the job under way, before Celery waits for its tasks."""
        self._context.stop.request()

    def stop(self, worker: Any) -> None:
        """Return when the job under way has been given back, within half a second."""
        self._rounds.stop()
        self._arrivals.close()
        self._context.status.stop(_PRESENCE_PATIENCE_S)

    terminate = stop

    def _going_down(self, **_: Any) -> None:
        self._context.stop.request()


def make_app() -> Celery:
    """The application; it reads the environment when it is first used."""
    app = Celery("tilewright", set_as_current=False)
    app.add_defaults(_configuration)
    app.steps["worker"].add(Jobs)
    for name, task in TASKS.items():
        app.task(name=name, shared=False)(_bound(app, task))
    return app


def serve(asked: Sequence[str], name: str, *, command: tuple[str, ...] = group.CHILD) -> int:
    """Run a worker until SIGTERM or SIGINT; its exit status. A job under way is given back within half a second.

    asked    names of queues (`worker.devices.queues`)
    command  what does each job

    To be called in the main thread. Raises `SystemExit` for a worker that cannot begin.
    """
    worker = app.Worker(
        hostname=name,
        queues=list(asked),
        command=command,
        loglevel="WARNING",
        quiet=True,
        without_gossip=True,
        without_mingle=True,
    )
    worker.start()
    return int(worker.exitcode or 0)


def _configuration() -> dict[str, Any]:
    url = Settings().celery_url
    waits = {"polling_interval": ASK_S} if url == NO_BROKER else {"socket_connect_timeout": 2, "socket_timeout": 10}
    return {
        "broker_url": url,
        "task_serializer": "json",
        "accept_content": ["json"],
        "task_acks_late": False,
        "task_ignore_result": True,
        "task_publish_retry": False,
        "task_default_queue": kinds.CPU.device(),
        "task_routes": (routed,),
        "task_create_missing_queues": True,
        "worker_pool": f"{OneThread.__module__}:{OneThread.__name__}",
        "worker_concurrency": 1,
        "worker_prefetch_multiplier": 1,
        "worker_disable_prefetch": url != NO_BROKER,  # which has no messages to fetch, and says that it cannot
        "worker_send_task_events": True,
        "worker_cancel_long_running_tasks_on_connection_loss": False,
        "worker_hijack_root_logger": False,
        "worker_redirect_stdouts": False,
        "broker_connection_retry": True,
        "broker_connection_retry_on_startup": True,
        "broker_connection_max_retries": None,
        "broker_connection_timeout": 2,
        "broker_transport_options": waits,
    }


def _bound(app: Celery, task: Task) -> Callable[..., int]:
    def run(queue: str, job: str | None = None) -> int:
        """A round through a queue; how many jobs ran. `job` is for whoever watches: the database says what is next."""
        return int(app.rounds.make(task, queue))

    return run


app = make_app()
"""What `celery -A worker.app` finds."""
