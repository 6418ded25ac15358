"""Kills processes of a service under load until enough have died, then waits until it has come to rest."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

import sqlalchemy as sa

from service.db.engine import Database
from service.db.models import Job
from service.errors import DatabaseUnavailable
from service.jobs.lifecycle.transitions import TERMINAL
from tests.torture.clients import Clients, Wish
from tests.torture.fates import DOOMS, Course, Lane, Scene, doom, possible
from tests.torture.ground import Ground

TICK_S = 0.02
LOOK_S = 0.2
LOAD = 8
"""Jobs that wait or run while fates are dealt."""
MODELS = 12
"""Distinct models; most jobs are of one that was sent before."""
STALE_REQUESTS = 0.3
"""The share of jobs that the cache may answer."""
REST_S = (0.1, 0.6)
"""Between two fates of a lane, so that some work gets done."""
PATIENCE_S = 60.0
"""A service in which nothing has changed for this long will not end."""
WIDTH: dict[Lane, int] = {"worker": 2}
"""How many fates of a lane are under way at once, if not one."""


@dataclass
class Tally:
    """What was dealt, by the fates' names, and what it came to."""

    struck: Counter[str] = field(default_factory=Counter)
    wall_s: float = 0.0
    stuck: str = ""
    """What had not ended when patience did."""

    @property
    def kills(self) -> int:
        """Processes that were killed."""
        return sum(doom(name).kills * times for name, times in self.struck.items())


def deck(kind: str, kills: int, rng: Random) -> list[str]:
    """The fates of a run, the last one first to be dealt: each at least once, as many more as make `kills`."""
    names = possible(kind)
    cards = list(names)
    rng.shuffle(cards)
    while sum(DOOMS[name].kills for name in cards) < kills:
        cards.insert(0, rng.choices(names, [DOOMS[name].weight for name in names])[0])
    return cards


@dataclass
class Driver:
    """One run over a ground that has been started; to be used in the main thread."""

    ground: Ground
    clients: Clients
    seed: int
    say: Callable[[str], None] = lambda line: None
    patience_s: float = PATIENCE_S
    tally: Tally = field(default_factory=Tally)

    def run(self, cards: Sequence[str]) -> Tally:
        """Deal these fates, the last one first; at return every job has ended, or patience has."""
        started = time.monotonic()
        self.clients.start()
        try:
            self._deal(list(cards))
            self._settle()
        finally:
            self.clients.stop()
        self.tally.wall_s = time.monotonic() - started
        return self.tally

    def _deal(self, cards: list[str]) -> None:
        rng = Random(self.seed)
        load = _Load(self.ground, self.clients, Random(self.seed + 1))
        lanes: dict[Lane, list[_UnderWay]] = {}
        patience = _Patience(self.patience_s, self._progress)
        all_cards = len(cards)
        while (cards or any(lanes.values())) and not patience.over():
            self.ground.mend()
            load.keep_up()
            for lane, under_way in lanes.items():
                lanes[lane] = [fate for fate in under_way if not self._stepped(fate)]
            if card := self._next(cards, lanes):
                scene = Scene(self.ground, self.clients, Random(rng.random()))
                lanes.setdefault(doom(card).lane, []).append(
                    _UnderWay(card, doom(card).course(scene), rng.uniform(*REST_S))
                )
                self.say(
                    f"{all_cards - len(cards)}/{all_cards} fates, {self.tally.kills} kills, "
                    f"{len(self.clients.wishes)} jobs"
                )
            time.sleep(TICK_S)
        if cards or any(lanes.values()):
            left = [fate.name for under_way in lanes.values() for fate in under_way]
            self.tally.stuck = f"nothing changed for {self.patience_s:g} s; under way: {', '.join(left)}"

    def _next(self, cards: list[str], lanes: dict[Lane, list[_UnderWay]]) -> str:
        """The next card whose lane is free, taken from the deck; nothing if there is none."""
        for at in range(len(cards) - 1, -1, -1):
            lane = doom(cards[at]).lane
            if len(lanes.get(lane, ())) < WIDTH.get(lane, 1):
                return cards.pop(at)
        return ""

    def _stepped(self, fate: _UnderWay) -> bool:
        """Whether it is over, with the rest that follows it."""
        if fate.struck_at is None:
            if next(fate.course, self) is self:
                fate.struck_at = time.monotonic()
                self.tally.struck[fate.name] += 1
            return False
        return time.monotonic() - fate.struck_at > fate.rest_s

    def _settle(self) -> None:
        """Let the service work until all that was asked for is accepted and has ended."""
        for token in self.ground.fates.glob("*@*"):
            token.unlink(missing_ok=True)
        patience = _Patience(self.patience_s, self._progress)
        while self.clients.pending or self._open():
            self.ground.mend()
            if patience.over():
                self.tally.stuck = self.tally.stuck or f"nothing changed for {self.patience_s:g} s"
                return
            time.sleep(TICK_S)

    def _open(self) -> int:
        return open_jobs(self.ground.db)

    def _progress(self) -> object:
        """Something that changes for as long as the service gets on."""
        return len(self.clients.accepted), ended_jobs(self.ground.db), sum(self.tally.struck.values())


@dataclass
class _UnderWay:
    name: str
    course: Course
    rest_s: float
    struck_at: float | None = None


@dataclass
class _Patience:
    """Runs out when `progress` has not changed for a time."""

    seconds: float
    progress: Callable[[], object]
    _last: object = None
    _since: float = field(default_factory=time.monotonic)
    _looked: float = 0.0

    def over(self) -> bool:
        now = time.monotonic()
        if now - self._looked < LOOK_S:
            return False
        self._looked = now
        if (seen := self.progress()) != self._last:
            self._last, self._since = seen, now
        return now - self._since > self.seconds


@dataclass
class _Load:
    """Keeps as many jobs in the service as the fates need."""

    ground: Ground
    clients: Clients
    rng: Random
    _looked: float = 0.0

    def keep_up(self) -> None:
        now = time.monotonic()
        if now - self._looked < LOOK_S:
            return
        self._looked = now
        for _ in range(LOAD - self.clients.pending - open_jobs(self.ground.db)):
            number = len(self.clients.wishes)
            model = f"model {self.rng.randrange(MODELS)}".encode() * 1000
            self.clients.ask(Wish(f"wish-{number}", model, fresh=self.rng.random() >= STALE_REQUESTS))


def open_jobs(db: Database) -> int:
    """How many jobs have not ended; more than any load while the database is away."""
    return _count(db, Job.state.not_in(TERMINAL), LOAD)


def ended_jobs(db: Database) -> int:
    """How many have; -1 while the database is away."""
    return _count(db, Job.state.in_(TERMINAL), -1)


def _count(db: Database, which: sa.ColumnElement[bool], unknown: int) -> int:
    try:
        with db.read() as session:
            return session.scalar(sa.select(sa.func.count()).select_from(Job).where(which)) or 0
    except DatabaseUnavailable:
        return unknown
