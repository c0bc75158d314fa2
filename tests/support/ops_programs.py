"""Programs of ranks, run by a small blocking simulator, so that the frontiers in the tests are
honest ones.

    job = Job(4)
    job.group("tp", [2, 3])
    job.rank(2).all_reduce("tp")
    job.rank(3).stuck()
    evidence = job.run()

With `ahead=True` the host enqueues and goes on, and the device takes what is enqueued in order, as
with NCCL.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace

from hangdoctor.diagnosis import wording
from hangdoctor.diagnosis.ops import OpsEvidence, OpsVerdict
from hangdoctor.diagnosis.wording import note_words
from hangdoctor.model.diagnosis import Cause
from hangdoctor.model.layout import Layout
from hangdoctor.model.operations import STORE, Group, Operation, RankOps, group_uid

P2P = ("send", "recv")


@dataclass
class Call:
    """One line of a program; `op` may also be stuck, kernel, sync, compute, wait or finish."""

    op: str
    group: str = ""
    site: str = ""
    shapes: str = "[4]"
    dtype: str = "float32"
    reduce_op: str = ""
    root: int = -1
    peer: int = -1
    iteration: int = -1
    seconds: float = 0.0
    asynchronous: bool = False


@dataclass
class Program:
    job: Job
    number: int
    calls: list[Call] = field(default_factory=list)

    def call(self, op: str, group: str = "world", **fields: object) -> Program:
        fields.setdefault("site", f"{op}_{group} (train.py:{10 + len(op) + len(group)})")
        self.calls.append(Call(op, group, **fields))
        return self

    def all_reduce(self, group: str = "world", **fields: object) -> Program:
        return self.call("all_reduce", group, reduce_op="SUM", **fields)

    def broadcast(self, group: str, root: int, **fields: object) -> Program:
        return self.call("broadcast", group, root=root, **fields)

    def barrier(self, group: str = "world") -> Program:
        return self.call("barrier", group, shapes="", dtype="")

    def send(self, peer: int, group: str = "world", **fields: object) -> Program:
        return self.call("send", group, peer=peer, **fields)

    def recv(self, peer: int, group: str = "world", **fields: object) -> Program:
        return self.call("recv", group, peer=peer, **fields)

    def init(self) -> Program:
        return self.call("init_process_group", shapes="", dtype="")

    def destroy(self) -> Program:
        return self.call("destroy_process_group", shapes="", dtype="")

    def compute(self, seconds: float) -> Program:
        self.calls.append(Call("compute", seconds=seconds))
        return self

    def stuck(self) -> Program:
        self.calls.append(Call("stuck"))
        return self

    def kernel(self) -> Program:
        self.calls.append(Call("kernel"))
        return self

    def wait(self) -> Program:
        self.calls.append(Call("wait"))
        return self

    def sync(self) -> Program:
        self.calls.append(Call("sync"))
        return self

    def finish(self) -> Program:
        self.calls.append(Call("finish"))
        return self


class _Rank:
    def __init__(self, program: Program, offset: float) -> None:
        self.rank = program.number
        self.calls = program.calls
        self.at = 0
        self.clock = offset
        self.queue: deque[tuple[Operation, object]] = deque()
        self.flying: list[tuple[Operation, object]] = []
        self.records: list[Operation] = []
        self.counts: dict[object, int] = {}
        self.finished = False


class Job:
    """`broken`: instances (group name, number) that never complete although everyone is there."""

    def __init__(self, world: int, layout: Layout | None = None, ahead: bool = False) -> None:
        self.world = world
        self.layout = layout
        self.ahead = ahead
        self.groups: dict[str, dict[int, list[int]]] = {
            "world": {r: list(range(world)) for r in range(world)}
        }
        for rank in range(1, world):
            self.groups["world"][rank] = self.groups["world"][0]
        self.programs = {r: Program(self, r) for r in range(world)}
        self.broken: set[tuple[str, int]] = set()
        self.in_place: set[int] = (
            set()
        )  # ranks that never come out of the operation that they enter last

    def group(self, name: str, ranks: list[int]) -> None:
        """One group of an axis; the same name may hold several, each rank is in one of them."""
        for rank in ranks:
            self.groups.setdefault(name, {})[rank] = ranks

    def rank(self, number: int) -> Program:
        return self.programs[number]

    def everyone(self) -> list[Program]:
        return list(self.programs.values())

    def members(self, name: str, rank: int) -> list[int]:
        return self.groups[name][rank]

    # ------------------------------------------------------------------ running

    def run(self, ring: int = 10_000, named: bool = True, limit: int | None = None) -> OpsEvidence:
        """Run until no one can go on (or `limit` completions), and return the records."""
        self._uids: dict[tuple[int, ...], str] = {}
        self._ranks = {r: _Rank(p, 1000.0 + 7.0 * r) for r, p in self.programs.items()}
        self._there: dict[object, dict[int, Operation]] = {}
        self._todo = deque(self._ranks)
        self._left = limit if limit is not None else -1
        while self._todo and self._left != 0:
            self._step(self._ranks[self._todo.popleft()])
        ops = {r: self._records(state, ring, named) for r, state in self._ranks.items()}
        return OpsEvidence(ops, world_size=self.world, layout=self.layout)

    def stuck(self) -> set[int]:
        """Ranks that have come to a `stuck` line with nothing left to wait for."""
        states = self._ranks.values()
        return {
            s.rank
            for s in states
            if s.at < len(s.calls) and s.calls[s.at].op == "stuck" and not s.queue
        }

    def _step(self, rank: _Rank) -> None:
        while rank.at < len(rank.calls):
            call = rank.calls[rank.at]
            if self._waits(rank, call):
                return
            if call.op == "finish":
                rank.finished = True
            elif call.op == "compute":
                rank.clock += call.seconds
            elif call.op == "kernel":
                rank.queue.append((Operation("", 0, "kernel"), None))
            elif call.op not in ("sync", "wait"):
                self._enter(rank, call)
            rank.at += 1

    def _waits(self, rank: _Rank, call: Call) -> bool:
        """Whether the rank cannot make this call yet, for what it has begun."""
        queued, flying = bool(rank.queue), bool(rank.flying)
        waits = {
            "finish": queued or flying,
            "stuck": True,
            "sync": queued,
            "wait": flying,
            "kernel": False,
        }
        return waits.get(call.op, queued and not self.ahead)

    def _enter(self, rank: _Rank, call: Call) -> None:
        uid = self._uid(call.group, rank.rank)
        counter: object = uid
        if call.op in P2P:
            counter = (uid, call.op, call.peer)
        elif call.op in STORE:
            counter = (uid, call.op)
        seq = rank.counts[counter] = rank.counts.get(counter, 0) + 1
        rank.clock += 0.001
        op = Operation(
            uid,
            seq,
            call.op,
            reduce_op=call.reduce_op,
            root=call.root,
            peer=call.peer,
            shapes=call.shapes,
            dtype=call.dtype,
            site=call.site,
            entered_s=rank.clock,
            asynchronous=call.asynchronous,
            iteration=call.iteration,
        )
        rank.records.append(op)
        if call.op == "send":
            key: object = (uid, rank.rank, call.peer, seq)
        elif call.op == "recv":
            key = (uid, call.peer, rank.rank, seq)
        else:
            key = (uid, call.op if call.op in STORE else "", seq)
        if call.asynchronous and not self.ahead:
            rank.flying.append((op, key))
            self._arrive(rank, op, key, call.group)
            return
        rank.queue.append((op, (key, call.group)))
        if len(rank.queue) == 1:
            self._arrive_head(rank)

    def _arrive_head(self, rank: _Rank) -> None:
        while rank.queue:
            op, where = rank.queue[0]
            if op.op == "kernel":
                return
            if self.ahead:
                op.state = "started"
            key, group = where
            if not self._arrive(rank, op, key, group) or (rank.queue and rank.queue[0][0] is op):
                return

    def _arrive(self, rank: _Rank, op: Operation, key: tuple, group: str) -> bool:
        """The operation's turn has come on this rank; completes it when all are there."""
        there = self._there.setdefault(key, {})
        there[rank.rank] = op
        members = key[1:3] if len(key) == 4 else self.members(group, rank.rank)
        if (
            len(there) < len(members)
            or (len(key) == 3 and (group, op.seq) in self.broken)
            or not self._agree(list(there.values()))
        ):
            return False
        now = max(self._ranks[r].clock - 7.0 * r for r in there)
        for other, record in there.items():
            state = self._ranks[other]
            if other in self.in_place and state.at >= len(state.calls) - 1:
                continue
            record.state = "done"
            state.clock = record.left_s = now + 7.0 * other + 0.001
            state.flying = [f for f in state.flying if f[0] is not record]
            if state.queue and state.queue[0][0] is record:
                state.queue.popleft()
                if other != rank.rank:
                    self._arrive_head(state)
            self._todo.append(other)
        if self._left > 0:
            self._left -= 1
        return True

    @staticmethod
    def _agree(ops: list[Operation]) -> bool:
        first = ops[0]
        if first.op in P2P:
            return all(o.shapes == first.shapes and o.dtype == first.dtype for o in ops)
        return all(o.signature() == first.signature() for o in ops)

    def _uid(self, name: str, rank: int) -> str:
        members = tuple(self.members(name, rank))
        if members not in self._uids:
            self._uids[members] = group_uid(members)
        return self._uids[members]

    def _records(self, state: _Rank, ring: int, named: bool) -> RankOps:
        groups = [
            Group(self._uid(name, state.rank), by_rank[state.rank], name if named else "")
            for name, by_rank in self.groups.items()
            if state.rank in by_rank
        ]
        return RankOps(
            state.rank,
            self.world,
            "simulated",
            groups,
            state.records[-ring:],
            len(state.records) > ring,
            iteration=state.records[-1].iteration if state.records else -1,
            heartbeat_s=1000.0 + 7.0 * state.rank + 60.0,
            finished=state.finished,
            runs_ahead=self.ahead,
        )


def training(
    layout: Layout, steps: int = 3, micro: int = 2, layers: int = 2, ahead: bool = False
) -> Job:
    """A 3D-parallel training: forward and backward through the pipeline, gradients over dp, a norm
    over the world.
    """
    job = Job(layout.world_size, layout, ahead)
    for axis in ("tp", "dp", "pp"):
        for ranks in layout.groups(axis):
            if len(ranks) > 1:
                job.group(axis, ranks)
    for program in job.everyone():
        program.init()
        for step in range(steps):
            begin = len(program.calls)
            _one_step(program, layout, micro, layers)
            for call in program.calls[begin:]:
                call.iteration = step
        if ahead:
            program.sync()
        program.destroy().finish()
    return job


def _one_step(program: Program, layout: Layout, micro: int, layers: int) -> None:
    at = layout.coordinates(program.number)
    stride = layout.dp * layout.tp
    first, last = at["pp"] == 0, at["pp"] == layout.pp - 1
    program.compute(0.1)
    if layout.tp > 1:
        program.broadcast(
            "tp",
            program.job.members("tp", program.number)[0],
            site="get_batch (data.py:12)",
            dtype="int64",
        )
    for phase, begins, ends, way in (("forward", first, last, 1), ("backward", last, first, -1)):
        for _ in range(micro):
            if not begins:
                program.recv(
                    program.number - way * stride, site=f"{phase}_recv (pipe.py:{20 + way})"
                )
            for layer in range(layers):
                program.compute(0.01)
                if layout.tp > 1:
                    program.all_reduce(
                        "tp",
                        site=f"{phase} (layer.py:{40 + way})",
                        shapes="[8]" if layer % 2 else "[4]",
                    )
            if not ends:
                program.send(
                    program.number + way * stride, site=f"{phase}_send (pipe.py:{30 + way})"
                )
    if layout.dp > 1:
        program.all_reduce("dp", site="reduce_gradients (optim.py:50)", shapes="[64]")
    program.all_reduce("world", site="gradient_norm (optim.py:60)", shapes="[1]")
    if program.job.ahead:
        program.sync()


def variant(call: Call, **fields: object) -> Call:
    return replace(call, **fields)


def only_cause(verdict: OpsVerdict) -> Cause:
    """The one finding of a verdict, in words."""
    assert verdict.status == "hang"
    found = causes(verdict)
    assert len(found) == 1, [c.summary for c in found]
    return found[0]


def causes(verdict: OpsVerdict) -> list[Cause]:
    """The findings in words, as a report has them."""
    return [wording.cause(finding) for finding in verdict.findings]


def notes(verdict: OpsVerdict) -> list[str]:
    return [note_words.note(note) for note in verdict.notes]
