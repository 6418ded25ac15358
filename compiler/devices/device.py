"""What the pipeline asks of a kind of target; it knows no kind by name."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self

import numpy as np

from compiler.codegen.weights import Weights
from compiler.ir.buffers import Call, KernelGraph
from compiler.ir.machine import Machine, Record, Setting, Workload
from compiler.ir.plans.lanes import Pair, StageClock
from compiler.ir.plans.parts import Parts, Portion
from compiler.ir.plans.plan import Plan
from compiler.ir.plans.touched import Regions
from compiler.ir.plans.transfers import Transfers
from compiler.ir.program import Program, StreamProgram
from compiler.ir.states import Carried
from compiler.ir.target import Target
from compiler.ir.tile import Tile
from compiler.knowledge.budget import Share
from compiler.measure.plans import Raced
from compiler.pack.loader import Model
from compiler.prove.array_module import ArrayModule
from compiler.prove.bisect import Stepper
from compiler.schedule import JointLaunch, ResidentBlocks
from compiler.trace import StopRequest
from compiler.tuning.proposal import Proposal

COMPILERS = 2
"""C compilers that run at a time."""


class Staged(Protocol):
    """What stages are cut from: kernels with workloads and keys, in call order, for so many lanes in a setting."""

    @property
    def kernels(self) -> KernelGraph:
        """The kernels of the plan."""
        ...

    @property
    def workloads(self) -> Sequence[Workload]:
        """What each call computes."""
        ...

    @property
    def keys(self) -> Sequence[str]:
        """The key of each workload."""
        ...

    @property
    def lanes(self) -> int:
        """How many lanes the plan may use."""
        ...

    @property
    def setting(self) -> Setting:
        """Where the model's constants are when a run begins, and the compiler."""
        ...

    @property
    def state(self) -> str:
        """Whether the cores are `near` to each other or `far`."""
        ...


class RecordingClock(StageClock, Protocol):
    """A clock of stages that keeps what it measured."""

    @property
    def answers(self) -> Sequence[Record]:
        """The records by which it answered."""
        ...

    def done(self) -> None:
        """No more is asked."""
        ...


class LaneDevice(Protocol):
    """What a device answers on which lanes, its cores, share the tile tasks of kernels and wait for each other."""

    def handover(self, known: Sequence[Record], *, measure: bool, pair: tuple[int, int] | None = None) -> Record | None:
        """What it costs one lane to see another's result, with the cores as they are; None if unknown.

        Between a `pair` of cores, the lower first, by position among those of the process; without one it is the
        machine's figure.
        """
        ...

    def pairs(self, cores: Sequence[int]) -> Sequence[Sequence[Pair]]:
        """All pairs of these cores, by position among those of the process, in rounds that `handovers` may measure."""
        ...

    def handovers(self, known: Sequence[Record], pairs: Sequence[Pair], *, measure: bool) -> Mapping[Pair, Record]:
        """As `handover`, of the pairs of a round at the same time, without those of which nothing is known."""
        ...

    def regions(self, kernels: KernelGraph) -> Regions:
        """What ranges of a kernel's tile tasks read and write."""
        ...

    def stage_clock(
        self,
        staged: Staged,
        machine: Machine | None,
        known: Sequence[Record],
        share: Share,
        add_record: Callable[[Record], None],
        seed: int,
    ) -> RecordingClock:
        """What times stages within a share of the tuning budget, or by what is `known`.

        `add_record` gets new records.
        """
        ...

    def moving_seconds(self, moved_bytes: int, working_bytes: int, lanes: int) -> float:
        """Seconds of a lane in which it moves bytes to and from where they lie between two uses.

        That is beyond the caches of its own if it works on more memory than these hold before it comes back to any.
        All of so many lanes do the same.
        """
        ...

    def repacked_bytes(self, kernels: KernelGraph, plan: Plan, other: Plan) -> int:
        """Bytes of constants that calls want packed in another way under the other plan."""
        ...

    def stream(
        self,
        kernels: KernelGraph,
        parts: Parts,
        portions: Sequence[Portion],
        cores: Sequence[int | None],
        folders: Sequence[str],
    ) -> StreamProgram:
        """What runs parts of a model on these cores, one for each device; the library of each part in its folder.

        A device that is no core has None: a thread on any core drives it.
        """
        ...


@dataclass(frozen=True)
class Runner:
    """What runs packed artifacts of a target on this machine.

    open      the loader: it takes the artifact's path, and `plan`
    emulator  what stands in for the device, in words; empty for the device itself. Times under one mean nothing
    arrays    arrays on the device, in which a reference is evaluated sooner than in numpy's; None where there are none
    """

    open: type[Model]
    emulator: str = ""
    arrays: Callable[[], ArrayModule | None] = lambda: None


class Backend(Protocol):
    """One target, with the compiler that makes code for it. `str` says what is known of the device, in one line.

    | step     | asked for       | answer                                                                              |
    |----------|-----------------|-------------------------------------------------------------------------------------|
    | load     | target          | its name, fingerprint and default lanes, and whether it is here                     |
    | tile     | stored          | the kernels with the elements that a precision keeps in memory                      |
    |          | joins           | the kinds of joined calls (`compiler.fuse.joins`) that it has an algorithm for      |
    |          | workload_of     | a call with as much of its buffers' geometry as its code depends on                 |
    |          | setting         | what measurements of these kernels depend on besides tile and hardware              |
    |          | prepared        | the backend with facts of the device, and the records that they are from            |
    |          | alike           | the backend as it is to who tunes some kernels for another process                  |
    |          | starting_points | the records that count, or hint, for this target                                    |
    |          | machine         | on what trials are measured                                                         |
    |          | legal_tiles     | how a kernel may be tiled, for a plan of so many lanes, in a precision              |
    |          | source_of       | the digest of the code that a kernel has under a tile                               |
    |          | count_tiles     | into how many tile tasks a tile cuts a kernel                                       |
    |          | choose          | which of the model's favourites is taken unmeasured                                 |
    |          | describe        | what is known of a kernel under a tile, for people                                  |
    | schedule | lanes           | cores that share kernels out (`LaneDevice`); None for a device that launches them   |
    |          | transfers       | what copies cost to and from its own memory; None where that is the host's          |
    |          | joint_launch    | what calls take that share one launch; None where there are no launches             |
    |          | resident_tile   | whether resident blocks may carry out a tile; None where there are no such blocks  |
    |          | resident_blocks | what calls take on resident blocks; None where there are no such blocks            |
    |          | race            | how long plans take when they are run whole, in turn                                |
    | emit     | emit            | the program                                                                         |
    | agree    | runner          | what runs an artifact here, the device or an emulator of it; None where nothing does|
    |          | stepper         | single calls, run for bisection                                                     |
    |          | rounded         | what of a plan rounds more than fp32 does, because the precision permits it         |
    """

    @property
    def target(self) -> Target:
        """What code is generated for."""
        ...

    def stored(self, kernels: KernelGraph, precision: str, exact: Collection[int] = ()) -> KernelGraph:
        """Calls at the positions `exact` round nothing that they write."""
        ...

    @property
    def joins(self) -> frozenset[str]:
        """Names of the joins that there are algorithms for."""
        ...

    def workload_of(self, kernels: KernelGraph, call: Call) -> Workload:
        """What a call computes, as records and algorithms know it."""
        ...

    def setting(self, kernels: KernelGraph) -> Setting:
        """Where a model's constants are when a run begins, and the compiler."""
        ...

    def prepared(self, kernels: KernelGraph, known: Sequence[Record], *, measure: bool) -> tuple[Self, list[Record]]:
        """Facts come from records of this hardware if there are any, else are measured if `measure` holds."""
        ...

    def alike(self, known: Sequence[Record], setting: Setting) -> Self | None:
        """The backend for kernels that another process prepared, by the records and the setting it had.

        None where such kernels cannot be measured for others.
        """
        ...

    def starting_points(self, known: Sequence[Record], setting: Setting) -> Sequence[Record]:
        """The records of which tiles are tried first; those of like hardware may be adapted."""
        ...

    def machine(
        self,
        seed: int,
        stop_requested: StopRequest,
        setting: Setting,
        notice: Callable[[str], None],
        keep: Callable[[str, str], None],
    ) -> AbstractContextManager[Machine | None]:
        """None for a target that does not run here.

        `notice` hears of what the user should know, `keep` is given titles and texts for whoever looks into it.
        """
        ...

    def legal_tiles(self, workload: Workload, lanes: int, precision: str) -> list[Proposal]:
        """Every legal tile of a workload with its expected seconds, for plans of so many lanes."""
        ...

    def count_tiles(self, workload: Workload, tile: Tile) -> int:
        """Into how many tile tasks a tile cuts the workload."""
        ...

    def source_of(self, workload: Workload, tile: Tile) -> str:
        """By which measurements are known to be of this code (`knowledge.carried`). It is generated for it."""
        ...

    def choose(self, options: Sequence[tuple[Workload, Sequence[Tile]]]) -> Sequence[int]:
        """For each workload the number of one of its tiles."""
        ...

    def describe(self, workload: Workload, tile: Tile) -> str:
        """Only what is known without doing anything for it; may be empty."""
        ...

    @property
    def lanes(self) -> LaneDevice | None:
        """What lanes answer for themselves; None for a device that has no such lanes."""
        ...

    @property
    def transfers(self) -> Transfers | None:
        """What a part on this device pays beside its calls; None for one that works in the host's memory."""
        ...

    def joint_launch(self, kernels: KernelGraph) -> JointLaunch | None:
        """What launches kernels together; None for a device that does not."""
        ...

    @property
    def resident_tile(self) -> Callable[[Tile], bool] | None:
        """Whether resident blocks may carry out a tile; None for a device without such blocks."""
        ...

    def resident_blocks(self, kernels: KernelGraph) -> ResidentBlocks | None:
        """What resident blocks take for calls; None for a device without such blocks."""
        ...

    def race(
        self,
        kernels: KernelGraph,
        plans: Sequence[Plan],
        seed: int,
        stop_requested: StopRequest,
        place: Path,
        share: Share | None = None,
        inputs: Mapping[str, np.ndarray] | None = None,
    ) -> Sequence[Raced] | None:
        """None where nothing was run: the target is elsewhere, has one lane, or a stop request came.

        `place` is a folder where files may be put meanwhile. Running plans, not building what an artifact needs anyway,
        is spent from `share`. All plans run on `inputs`, by the model's names; None: on random ones of the `seed`.
        """
        ...

    def weights(self, earlier: Weights | None = None, *, small: bool = True) -> Weights:
        """Where constants are placed as the device wants them, after those of an `earlier` program of the artifact.

        `small`: where the device's programs can make constants of what takes less, that is placed.
        """
        ...

    def emit(
        self,
        kernels: KernelGraph,
        plan: Plan,
        others: Sequence[Plan] = (),
        weights: Weights | None = None,
        carried: Sequence[Carried] = (),
    ) -> Program:
        """Its constants are added to `weights`, which begin with it unless some are given.

        `others` are for cores between which a hand-over costs something else (`compiler.ir.plans.guards`), `carried`
        the states that its C interface keeps from run to run.
        """
        ...

    @property
    def runner(self) -> Runner | None:
        """What runs an artifact on this machine; None if nothing does."""
        ...

    def stepper(self, kernels: KernelGraph, plan: Plan) -> AbstractContextManager[Stepper]:
        """Runs a plan call by call, to find the first that is wrong."""
        ...

    def rounded(self, plan: Plan, precision: str) -> frozenset[str]:
        """The precisions to which a plan rounds."""
        ...
