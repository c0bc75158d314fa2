"""Tables, lists and boxes of several lines in a log: each reader of one kind is fed every line, and gives a
fact when its table is over.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from ...model.log_facts import AnyFact
from . import (
    ends_of_tests,
    hccl_tasks,
    jax_barriers,
    launcher_tables,
    message_queues,
    mpich_stacks,
    ms_mpi,
    shape_lists,
    state_tables,
    ucc_checks,
)
from .elastic_table import HEADS, Table
from .nccl_calls import NcclCalls
from .prefix import Said
from .process_lists import ProcessLists
from .program_boxes import ProgramBoxes
from .rank_steps import RankSteps
from .rank_values import RankTables
from .stack_tables import StackTables
from .stamps import Clock

# Texts by which a table begins, whose next lines are to be read.
BEGINS = (
    *(*HEADS, *launcher_tables.BEGINS, *shape_lists.BEGINS, hccl_tasks.BEGIN),
    *(jax_barriers.BEGIN, ucc_checks.BEGIN, "in comm", message_queues.BEGIN, "pending request"),
    ms_mpi.BEGIN,
)


class Told(Struct):
    """One fact of a table: who says it, None for the speaker of the line; in which line, 0 for this one."""

    fact: AnyFact
    says: str
    goes_on: bool = False  # the next lines may belong to it
    said: Said | None = None
    line: int = 0


class TablesRead:
    """Of one file."""

    def __init__(self) -> None:
        self.boxes = ProgramBoxes()
        self.in_box = False  # the line that was fed last is part of one
        self.mpi_stacks = mpich_stacks.MpichStacks()
        self.queues = message_queues.MessageQueues()
        self._failures = Table()
        self._launchers = launcher_tables.LauncherTables()
        self._shapes = shape_lists.ShapeLists()
        self._stacks = StackTables()
        self._processes = ProcessLists()
        self._values = RankTables()
        self._states = state_tables.StateTables()
        self._steps = RankSteps()
        self._tasks = hccl_tasks.HcclTasks()
        self._ucc = ucc_checks.UccChecks()
        self._tests = ends_of_tests.EndsOfTests()
        self._nccl = NcclCalls()
        self._microsoft = ms_mpi.MsMpi()

    def feed(self, said: Said, text: str, line: int, clock: Clock) -> Iterator[Told]:
        """What a line tells, by tables that it ends; `text`: the line with its prefix."""
        self._nccl.feed(said, line)
        self.in_box = self.boxes.feed(said)
        self._steps.feed(said, line)
        self._states.feed(text)
        for fact in (
            self._failures.feed(said.text, clock),
            self._launchers.feed(said.text, text),
            self._shapes.feed(said),
            self._tasks.feed(text),
            self._ucc.feed(said.text),
            self.mpi_stacks.feed(said),
            self._values.feed(said.text),
            self.queues.feed(text),
            self.queues.pending(said),
            self._tests.feed(said.text),
            self._microsoft.feed(text),
        ):
            if fact is not None:
                yield Told(fact, text, goes_on=True)
        for stack in self._stacks.feed(text):
            yield Told(stack, text)
        for seen in self._processes.feed(text):
            yield Told(seen, "a list of processes")

    def rest(self, of_file: Said) -> Iterator[Told]:
        """What tables and lists hold that go on to the end of the file."""
        for row in self._stacks.rest():
            yield Told(row, "a table of stacks", said=of_file)
        for seen in self._processes.rest():
            yield Told(seen, "a list of processes", said=of_file)
        for step in self._steps.rest(of_file.rank):
            yield Told(step, step.says, said=of_file, line=step.line)
        states = self._states.rest()
        if states is not None:
            yield Told(states, states.says, said=of_file)
        values = self._values.rest()
        if values is not None:
            yield Told(values, values.title, said=of_file)

    def cut(self, of_file: Said, clock: Clock) -> Iterator[Told]:
        """What the end of the file has cut."""
        end = self._failures.rest(clock)
        if end is not None:
            yield Told(end, "a row of the table of failures, which is cut", said=of_file)
        for call, said, line in self._nccl.rest():
            yield Told(call, said.text, said=said, line=line)
