"""A line for every tensor before and after chosen iterations, to find which one changed."""

from __future__ import annotations

from ..digests.files import Place, write
from ..loop import Callback, Trainer
from ..random_state import RandomState
from ..topology import Topology
from ..train_state import Step


class Digests(Callback):
    """Every rank writes its own files into `--log.digests`."""

    def __init__(self, topology: Topology, random: RandomState) -> None:
        self.topology, self.random = topology, random

    def before_step(self, trainer: Trainer) -> None:
        """The state that the iteration starts from."""
        self._write(trainer, trainer.state.iteration + 1, "before")

    def after_step(self, trainer: Trainer, step: Step) -> None:
        """The state that the iteration has left."""
        self._write(trainer, trainer.state.iteration, "after")

    def _write(self, trainer: Trainer, iteration: int, when: str) -> None:
        log = trainer.config.log
        wanted = chosen(log.digest_iterations)
        if wanted and iteration not in wanted:
            return
        engine, t = trainer.engine, self.topology
        place = Place(iteration, when, t.rank, t.layout.coordinates(t.rank))
        write(log.digests, place, engine.module, engine.optimizer, self.random.state())


def chosen(text: str) -> set[int]:
    """The iterations in "805,806"; none for all.

    Raises:
        ValueError: it is not a list of numbers.
    """
    return {int(word) for word in text.split(",") if word.strip()}
