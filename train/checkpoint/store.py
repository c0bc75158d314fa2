"""A training to and from its checkpoint folder; every function here is collective over the world."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from .. import faults, marks
from ..config import Config
from ..options import ConfigError
from ..random_state import RandomState
from ..schedule import LearningRate
from ..topology import Topology
from ..train_state import TrainState
from . import files
from .compare import check_same_training
from .settings import kept_settings
from .universal import load_whole
from .writer import Writer


class Store:
    """Saves and loads one training.

    The engine's own checkpoint engine is replaced by our writer.
    """

    def __init__(
        self, config: Config, topology: Topology, engine: Any, random: RandomState, vocab: int
    ) -> None:
        self.config, self.topology, self.engine, self.random = config, topology, engine, random
        self.vocab = vocab
        self.writer = Writer(
            topology.rank, topology.layout.world_size, config.checkpoint.asynchronous
        )
        engine.checkpoint_engine = self.writer
        self._last = -1

    @property
    def folder(self) -> Path:
        """Where the checkpoints lie."""
        return Path(self.config.checkpoint.dir)

    def save(self, state: TrainState, rate: LearningRate) -> None:
        """Write `global_stepN`; once an iteration.

        Returns when it is complete, or handed over if asynchronous.
        """
        if state.iteration == self._last:
            return
        with marks.phase("checkpoint"):
            faults.point("checkpoint")
            self.wait()
            self._last = state.iteration
            partial = files.tag(state.iteration) + files.PARTIAL
            target = self.folder / partial
            if self.topology.rank == 0:
                files.clear(target)
            self.writer.begin(state.iteration)
            # The engine's barrier comes before its first file: no rank writes into what is being
            # removed.
            self.engine.save_checkpoint(str(self.folder), tag=partial, save_latest=False)
            self.writer.save(
                self.random.state(), str(target / f"random_rank_{self.topology.rank:05d}.pt")
            )
            meta = self.describe(state, rate)
            self.writer.finish(
                target, meta, lambda: files.prune(self.folder, self.config.checkpoint.keep)
            )
            if not self.config.checkpoint.asynchronous:
                self._commit(target, meta)

    def _commit(self, target: Path, meta: dict[str, Any]) -> None:
        dist.barrier()  # every rank's files are on disk
        if self.topology.rank == 0:
            files.commit(target, meta)
            files.prune(self.folder, self.config.checkpoint.keep)
        dist.barrier()

    def wait(self) -> None:
        """Wait until what is written in the background is on disk."""
        self.writer.wait()

    def describe(self, state: TrainState, rate: LearningRate) -> dict[str, Any]:
        """What is saved beside the tensors, as plain data: progress, layout, schedule, vocabulary,
        configuration.
        """
        layout = self.topology.layout
        return {
            "format": 1,
            "state": state.as_dict(),
            "layout": {"tp": layout.tp, "pp": layout.pp, "dp": layout.dp},
            "learning_rate": dataclasses.asdict(rate),
            "vocabulary": self.vocab,
            "config": self.config.as_dict(),
        }

    def find(self) -> files.Saved | None:
        """What `--checkpoint.load` means: the checkpoint that `latest` names or the newest complete
        one before it, a named one, or none.

        Raises:
            ConfigError: the named one is torn.
        """
        wanted = self.config.checkpoint.load
        if wanted == "none" or (wanted == "auto" and not self.config.checkpoint.dir):
            return None
        if wanted != "auto":
            named = files.inspect(Path(wanted))
            if named.fault:
                raise ConfigError(
                    f"--checkpoint.load {wanted} is torn: {named.fault}; choose another one"
                )
            return named
        for saved in files.candidates(self.folder):
            if not saved.fault:
                return saved
            print(
                f"checkpoint: {saved.folder} is torn ({saved.fault}), trying the one before",
                flush=True,
            )
        return None

    def load(self, rate: LearningRate) -> TrainState:
        """Resume; a fresh state where there is nothing to resume from.

        Raises:
            ConfigError: torn, another topology, another model, another schedule.
        """
        found: list[Any] = [None, ""]
        if self.topology.rank == 0:  # one rank looks: all must agree on the answer
            try:
                saved = self.find()
                if saved is not None:
                    check_same_training(saved, self.config, self.describe(TrainState(), rate))
                    length = saved.meta["config"]["model"]["seq_length"]
                    state = TrainState.restored(saved.meta["state"], length)
                    found[0] = (str(saved.folder), state.as_dict())
            except ConfigError as error:
                found[1] = str(error)
        dist.broadcast_object_list(found, src=0)
        if found[1]:
            raise ConfigError(found[1])
        if found[0] is None:
            return TrainState()
        folder, state = Path(found[0][0]), TrainState(**found[0][1])
        with marks.phase("checkpoint"):
            self._load_engine(folder)
        self._last = state.iteration
        if self.topology.rank == 0:
            print(f"checkpoint: resumed from {folder} at iteration {state.iteration}", flush=True)
        return state

    def _load_engine(self, folder: Path) -> None:
        if self.config.checkpoint.universal and self.config.parallel.ulysses:
            load_whole(self.engine)
        with kept_settings(self.engine.optimizer):
            path, _ = self.engine.load_checkpoint(str(folder.parent), tag=folder.name)
        if path is None:
            raise ConfigError(f"DeepSpeed could not read {folder}")
        if self.config.checkpoint.universal:
            return  # another topology has other ranks: dropout starts anew
        state = torch.load(folder / f"random_rank_{self.topology.rank:05d}.pt", weights_only=True)
        self.random.restore(state)
