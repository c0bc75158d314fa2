"""Who says that a process ended, and whether that was after the first wait had reached its limit."""

from __future__ import annotations

from ...model.log_facts import Ended
from .scene import Scene


def by_step(fact: Ended) -> bool:
    """Whether srun says it, or PALS's mpiexec: both end all tasks once one has failed, and list those too."""
    return fact.by.startswith("slurm") or fact.by == "pals"


def was_seen(fact: Ended) -> bool:
    """By the parent that watched all ranks of a node: it knows the order, logs guess it."""
    return fact.by.startswith("hangdoctor")


def after_first_wait(scene: Scene, fact: Ended) -> bool:
    """Whether a wait had reached its limit before this end: it may follow from that."""
    if scene.first_wait >= len(scene.facts):
        return False
    wait = scene.facts[scene.first_wait]
    if fact.at > 0 and wait.at > 0 and not wait.inherited:
        return fact.at >= wait.at - 1.0
    return fact.file == wait.file and fact.line > wait.line
