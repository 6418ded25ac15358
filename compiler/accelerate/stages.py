"""Parts of an accelerator's artifact as a pipeline: what each waits for while several inferences are in flight.

A device does one part at a time, for one frame at a time. What one part hands to another lies in an edge of some slots,
of which frame f uses slot f mod slots; inputs and outputs of the model are the caller's, who has others for each frame.
So a part may begin a frame when those that it reads from have ended it, and when those that read its slot have ended
the frame that was there before. That list is the whole synchronisation, as in `compiler.ir.plans.parts`.

Of its parts that may begin a device takes the one of the earliest round, which is the frame's number and the part's
added. That is a modulo schedule (Rau, "Iterative modulo scheduling", MICRO 1994) whose rounds nobody waits for: what
part i reads of part j < i was made i - j rounds before, so that edges of i - j + 1 slots hold no device back, and a
frame ends as often as the device with most to do has done it once. Edges between neighbours so have two slots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from compiler.errors import VerifyError
from compiler.ir.plans.parts import After


@dataclass(frozen=True)
class Stage:
    """A part on a device (0 the CPU, 1 the accelerator) with the names of what it reads and makes."""

    device: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    after: tuple[After, ...] = ()

    def __str__(self) -> str:
        after = f" after {', '.join(map(str, self.after))}" if self.after else ""
        return f"device {self.device}: {', '.join(self.inputs)} -> {', '.join(self.outputs)}{after}"


@dataclass(frozen=True)
class Stages:
    """Stages in the order of one frame; `given` are inputs of the model, as stages read them.

    carried  what is made in one frame, and the input of the next frame that it is
    """

    stages: tuple[Stage, ...]
    given: tuple[str, ...]
    carried: tuple[tuple[str, str], ...] = ()

    @staticmethod
    def of(
        parts: Sequence[tuple[int, Sequence[str], Sequence[str]]],
        given: Sequence[str],
        carried: Sequence[tuple[str, str]] = (),
    ) -> Stages:
        """With what each waits for, of device, inputs and outputs of each."""
        each = (Stage(device, tuple(reads), tuple(makes)) for device, reads, makes in parts)
        plain = Stages(tuple(each), tuple(given), tuple(carried))
        slots = plain.edges
        found: list[Stage] = []
        for one in plain.stages:
            before = [at for at, other in enumerate(found) if {*other.outputs} & {*one.inputs}]
            free: dict[int, int] = {}
            for name in one.outputs:
                for reader in plain.readers(name):
                    free[reader] = min(slots[name], free.get(reader, slots[name]))
            after = [*(After(at, 0) for at in before), *(After(at, frames) for at, frames in free.items())]
            after += [After(at, 1) for at in plain.makers_of_states(one) if at != len(found)]
            found.append(replace(one, after=tuple(after)))
        return replace(plain, stages=tuple(found))

    def makers_of_states(self, stage: Stage) -> list[int]:
        """The stages that make, in the frame before, what a stage reads."""
        names = {made for made, read in self.carried if read in stage.inputs}
        return [at for at, one in enumerate(self.stages) if names & {*one.outputs}]

    def readers(self, name: str) -> list[int]:
        """The stages that read it."""
        return [at for at, one in enumerate(self.stages) if name in one.inputs]

    @property
    def edges(self) -> dict[str, int]:
        """What one stage makes and others read, and how many slots it has."""
        made = {name: at for at, one in enumerate(self.stages) for name in one.outputs}
        return {name: max(last) - at + 1 for name, at in made.items() if (last := self.readers(name))}

    @property
    def frames(self) -> int:
        """In flight at most: one in each stage, with fewer devices wait, and one for the caller."""
        return len(self.stages) + 1

    def verify(self) -> None:
        """Raises VerifyError unless each frame's reads come after its writes, and no slot is written too early.

        What happens before what follows from `after` and from each stage's frames following each other: nothing is
        assumed of which device is faster, or which of its stages a device takes first.
        """
        made = self._verify_order()
        edges, ended = self.edges, self._happens_before()
        for (frame, number), past in ended.items():
            one = self.stages[number]
            for at in self.makers_of_states(one) if frame else ():
                if at != number and not past >> self._bit(frame - 1, at) & 1:
                    raise VerifyError(f"stage {number} may read a state of frame {frame} before {at} has made it")
            for name in one.inputs:
                if name not in self.given and not past >> self._bit(frame, made[name]) & 1:
                    raise VerifyError(f"stage {number} may read {name!r:.100} of frame {frame} before it is made")
            for name in one.outputs:
                earlier = frame - edges.get(name, frame + 1)
                for at in self.readers(name) if earlier >= 0 else ():
                    if not past >> self._bit(earlier, at) & 1:
                        raise VerifyError(f"stage {number} may write {name!r:.100} for frame {frame} while {at} reads")

    def _verify_order(self) -> dict[str, int]:
        """Which stage makes each value; each is made once, before stages that read it."""
        made: dict[str, int] = {}
        for number, one in enumerate(self.stages):
            for name in one.outputs:
                if name in made or name in self.given:
                    raise VerifyError(f"stage {number} `{one}` makes {name!r:.100}, which is made already")
                made[name] = number
            for name in one.inputs:
                if name not in self.given and made.get(name, number) == number:
                    raise VerifyError(f"stage {number} `{one}` reads {name!r:.100}, which no stage before it makes")
            for after in one.after:
                if not 0 <= after.part < len(self.stages) or (after.frames == 0 and after.part >= number):
                    raise VerifyError(f"stage {number} waits for {after}, which may never come")
        return made

    def _bit(self, frame: int, stage: int) -> int:
        return frame * len(self.stages) + stage

    def _happens_before(self) -> dict[tuple[int, int], int]:
        """For each frame and stage, as a set of bits, what has ended for certain when it begins."""
        found: dict[tuple[int, int], int] = {}
        for frame in range(max(self.edges.values(), default=1) + 2):
            for number, one in enumerate(self.stages):
                waits = [(frame - after.frames, after.part) for after in one.after]
                past = 0
                for earlier, other in [(frame - 1, number), *waits]:
                    if earlier >= 0:
                        past |= found[earlier, other] | 1 << self._bit(earlier, other)
                found[frame, number] = past
        return found

    def __str__(self) -> str:
        return "\n".join(f"stage {number}: {one}" for number, one in enumerate(self.stages))
