"""Every sentence, advice and clue that there is, as whole texts: `tests/data/wording/said.txt`.

A change of words changes that file; `python -m tests.diagnosis.test_every_sentence` writes it anew, to be read in the diff.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msgspec.structs import replace

from hangdoctor.diagnosis import findings as f
from hangdoctor.diagnosis import wording
from hangdoctor.diagnosis.findings import (
    Apart,
    Clue,
    Doing,
    End,
    EndedMeanwhile,
    Finding,
    GroupRef,
    Home,
    Op,
    Usual,
    Waiters,
)
from hangdoctor.diagnosis.findings.log_places import OtherWords
from hangdoctor.diagnosis.findings.log_stories import (
    FailedFirst,
    GaveUpOn,
    HeartbeatStopped,
    LogAgrees,
    LogContradicts,
    LoggedDeath,
    NamedByProgram,
    Quote,
    Someone,
    StoppedRunning,
    TableTells,
    WentOn,
)
from hangdoctor.diagnosis.health import Reason, Remaining
from hangdoctor.diagnosis.ops.evidence import Note, Remark
from hangdoctor.diagnosis.own_loops import Differs, OwnLoop
from hangdoctor.diagnosis.wording import differences, ended, note_words, remaining, terms
from hangdoctor.model.capture import Frame
from hangdoctor.model.diagnosis import Kind
from hangdoctor.model.gpu import Gpu, Xid
from hangdoctor.model.start_up import Launch

SAID = Path(__file__).parents[1] / "data" / "wording" / "said.txt"
WORLD = GroupRef("world", "", tuple(range(8)))
REDUCE = Op("all_reduce", 12, WORLD, site="train (/app/train.py:31)")
ALL_TO_ALL = Op("all_to_all_single", 7, WORLD, site="dispatch (/app/moe.py:88)")
GATHER = Op("all_gather", 4, WORLD, site="eval (/app/eval.py:9)")
STEP = Op("all_reduce", frame=Frame("step", "/app/train.py", 31))
BY_FRAMEWORK = Op(
    "all_reduce",
    frame=Frame("step", "/app/train.py", 31),
    caller=Frame("gather", "/v/site-packages/accelerate/accelerator.py", 7),
)
BARRIER = Op("barrier", frame=Frame("write", "/app/writer.py", 9))
NEW_GROUP = Op("new_group", frame=Frame("groups", "/app/train.py", 12))
NEW_MESH = Op("init_device_mesh", site="main (/app/train.py:57)")
SEND, RECV = Op("send", 3, peer=5), Op("irecv", 3, peer=-1)
LOAD = Frame("load_batch", "/app/data.py", 40)
READS = Frame("load_batch", "/app/data.py", 40, code="line = server.stdout.readline()")
SLEEPS = Doing("blocked", "clock_nanosleep")
HOME = [Home(5, "n2", 7791, "3")]
TORCHRUN = f.Agent("n1", 71)
DIFFERS = Differs("n", (1, (2,)), (3, (0, 1, 3)))
OWN_LOOP = OwnLoop((0, 1, 2, 3), LOAD, 6, 10.0, DIFFERS, (("n2", 7791, 2), ("n1", 7780, 0)))
TABLE = Quote("job.log", 18, "sums of the ranks:")
WORD = Quote("job.log", 3, "rank 5 is stuck")
OTHERS = Waiters((0, 1, 2, 3), REDUCE, 41.0)


def one(kind: Kind, story: f.Story, **facts: Any) -> Finding:
    return Finding(kind, [5], story, 0.9, ["n2"], **({"homes": HOME} | facts))


def two(kind: Kind, story: f.Story, **facts: Any) -> Finding:
    return Finding(kind, [4, 5], story, 0.9, ["n2", "n3"], **facts)


MEMBERS = f.OwnNumbers("ab", (2,), (("h1", 7791, "3"),))


def unnumbered(kind: Kind, story: f.Story) -> Finding:
    """Of members whose ranks in the job are not known."""
    return Finding(kind, [], story, 0.5, ["h1"])


def held(holding: f.Holding, **facts: Any) -> Finding:
    return one(
        "not_entered",
        f.NeverReached(REDUCE),
        holding=holding,
        **({"frame": LOAD, "doing": SLEEPS} | facts),
    )


def never(kind: Kind = "not_entered", op: Op | None = REDUCE, **facts: Any) -> Finding:
    return one(kind, f.NeverReached(op), **facts)


def in_other(how: Apart, **facts: Any) -> f.InOther:
    return f.InOther(how, STEP, **({"others": (0, 1), "their_op": GATHER} | facts))


def disagrees(**facts: Any) -> f.Disagrees:
    usual = {
        "mine": REDUCE,
        "theirs": REDUCE,
        "fields": ("reduce_op",),
        "my_values": ("max",),
        "their_values": ("sum",),
        "ground": f.DecidedBy.ROLE,
    }
    return f.Disagrees(**(usual | facts))


def diverged(how: Any, **facts: Any) -> f.Diverged:
    return f.Diverged(how, **({"mine": GATHER, "theirs": REDUCE, "reference": 1} | facts))


KINDS: tuple[Kind, ...] = (
    "not_entered", "data_wait", "checkpoint_wait", "slow", "unreachable", "io_wait", "interpreter_lock", "busy", "dead", "end_stall",
)  # fmt: skip
CHILD = f.OnChild(8012, "python helper.py --with a very long command line of many words")
TRANSFER = f.Against("not_entered", (5,), f.Why.UNRECORDED_TRANSFER)

FINDINGS: list[Finding] = [
    *(never(kind, frame=LOAD, doing=SLEEPS, waiters=OTHERS) for kind in KINDS),
    *(never(kind) for kind in KINDS),
    *(never(kind, homes=[]) for kind in KINDS),
    *(never(kind, homes=[], frame=LOAD) for kind in KINDS),
    one("stopped", StoppedRunning(20.0, REDUCE), waiters=OTHERS), two("stopped", StoppedRunning(20.0)),
    one("not_entered", StoppedRunning(20.0, REDUCE, inside=False), waiters=OTHERS),
    one("stopped", StoppedRunning(20.0, REDUCE, inside=False, how="stopped"), waiters=OTHERS),
    one("interpreter_lock", StoppedRunning(20.0, REDUCE, inside=False, how="gil"), waiters=OTHERS),
    one("mismatch", OtherWords("run/7f3a", "run/19c0", (0, 1, 2)), frame=LOAD),
    one("end_stall", WentOn(REDUCE, (0, 1))), two("end_stall", WentOn(REDUCE, (0, 1, 3))), one("error", FailedFirst("ValueError", "bad shard", later=True), frame=LOAD),
    *(two("error", TableTells(how, TABLE, tuple(range(8)), "ValueError")) for how in ("no number", "all other", "some no number", "one no number", "one other")),
    one("error", TableTells("one other", TABLE, tuple(range(8)))), one("not_entered", NamedByProgram(WORD)), one("not_entered", GaveUpOn(3, WORD)), two("error", FailedFirst("ValueError", "bad shard", together=True), frame=LOAD),
    one("error", FailedFirst("ValueError", "bad shard", others=3), frame=LOAD), two("error", FailedFirst("ValueError", "bad shard", one_of=True), frame=LOAD),
    Finding("error", [2, 3, 5], FailedFirst("ValueError", "bad shard", one_of=True), 0.5), Finding("dead", [5], FailedFirst("", meaning="it crashed", others=2, others_on=("n7",)), 0.7, ["n2", "n7"]),
    one("dead", LoggedDeath(End(7), aborted=True, others=3)), Finding("error", [], FailedFirst("ValueError", "bad shard", someone=Someone(part="SGLang's detokenizer")), 0.5),
    one("error", FailedFirst("OSError", "no space", thread="writer"), frame=LOAD), Finding("error", [], FailedFirst("OSError", "no space", advice="df.", thread="writer"), 0.5),
    never(op=None), never("busy", op=None), never("data_wait", children=True, frame=LOAD),
    never(doing=Doing("running"), waiters=Waiters((0,), REDUCE, 1.0)), never(doing=Doing("running"), waiters=Waiters((0,), REDUCE, 0.9)),
    never(op=None, waiters=Waiters((0, 1), REDUCE, 5.0)), never(op=None, waiters=Waiters((0, 1), REDUCE, elsewhere=(2, 3))),
    never(op=None, waiters=Waiters((0, 1), REDUCE)), never(waiters=Waiters((0, 1), REDUCE, elsewhere=(2, 7))), never(waiters=Waiters((5,), REDUCE, 9.0)),
    never(waiters=Waiters((0, 5), REDUCE, 9.0)), never(usual=Usual(1, 2, 30), waiters=OTHERS), never(unrecorded=True), never(against=[TRANSFER]),
    never("order", gradients=True), never(gradients=True),
    two("not_entered", f.NeverReached(REDUCE), frame=LOAD, doing=SLEEPS, homes=[Home(4, "n2", 7), Home(5, "n3", 8)]),
    two("data_wait", f.NeverReached(REDUCE), doing=Doing("still")),
    Finding("not_entered", [5], f.NeverReached(REDUCE), 0.5, ["n2"], doing=Doing("still"), frame=READS),
    Finding("not_entered", [5], f.NeverReached(REDUCE), 0.5, ["n2"], frame=replace(READS, code="x" * 121)),
    never(doing=Doing("idle"), frame=Frame("Worker.main_loop", "/v/site-packages/ray/_private/worker.py", 1069)),
    held(f.Debugger("pdb")), held(f.Debugger("pdb"), frame=None), held(f.TypedInput()), held(f.ChildEnded(8012, End(1))),
    held(f.ChildEnded(8012, End(-9, 1)), homes=[]), held(f.ChildStopped(8012)), held(f.ChildStopped(8012, 99)), held(CHILD), held(CHILD, doing=None, frame=None),
    held(f.OnChild(8012, "sleep 9", LOAD, "read", True)), held(f.OnChild(8012, "sleep 9", None, "read")), held(f.OnChild(8012, "sleep 9", None, "write(1 -> pipe:[7])", unread=True)), held(f.OnFifo()), held(f.OnFifo(), frame=None),
    held(f.AtWorker(8012, LOAD)), held(f.OnPool(4)), held(f.LostThread("trainer")),
    *(held(f.OnDescriptor("x", "7", path, writes, locks))
      for path in ("pipe:[12]", "socket:[12]", "/data/a file") for writes in (False, True) for locks in (False, True)),
    held(f.OnDescriptor("flock", "7", "/data/a file", False, True, own_lock=True)),
    held(f.OnDescriptor("write", "7", "pipe:[12]", True, False, far=f.FarSide("", 99, "python wrapper.py"))),
    held(f.OnDescriptor("read", "7", "pipe:[12]", False, False, far=f.FarSide("", 99, "tar x"))),
    *(held(f.OnDescriptor("recvfrom", "7", "socket:[12]", False, False, far=far))
      for far in (f.FarSide("10.0.0.7:8080"), f.FarSide("127.0.0.1:80", 99, "python serve.py"), f.FarSide("127.0.0.1:80", 99, "redis"),
                  f.FarSide("127.0.0.1:80", 99, "python t.py", 3), f.FarSide("127.0.0.1:80", 99, "python t.py", 3, (("MainThread", LOAD), ("T1", LOAD))))),
    *(one(kind, f.HoldsLock("/data/a file", (0, 2)), frame=LOAD, doing=SLEEPS, waiters=OTHERS) for kind in (*KINDS, "order")),
    one("not_entered", f.HoldsLock("/data/l", (0,))), one("not_entered", f.HoldsLock("/data/l", (0,), 77), frame=LOAD), one("order", f.HoldsLock("/data/l", (0,), op=REDUCE), frame=LOAD, waiters=OTHERS),
    one("not_entered", f.HoldsLock("/data/l", (0,)), homes=[]), one("not_entered", f.HoldsLock("/data/l", (0,)), frame=LOAD, holding=CHILD),
    one("not_entered", f.LockedBy("/data/a file", 99, "rsync -a /a/long/path/of/many/words host:/data"), frame=LOAD, waiters=OTHERS),
    Finding("not_entered", [], f.LeftLock("/home/a/.cache/torch_extensions/py311_cpu/fused adam/lock", LOAD, (0, 1, 2)), 0.85, nodes=["n2"]),
    two("not_entered", f.LockedBy("/data/l", 99, "")), two("order", f.LockRing(("/data/a", "/data/b")), waiters=OTHERS),
    *(held(f.OnQueue(full, threads)) for full in (True, False) for threads in ((), (("T1", LOAD), ("T2", LOAD)))), held(f.OnQueue(True), frame=None),
    *(held(f.OnLock((("T1", LOAD), ("T2", LOAD)), True, starved)) for starved in (False, True)), held(f.OnLock(result=True)),
    held(f.OnLock()), held(f.OnLock(), frame=None), held(f.OnLock((("T1", LOAD), ("T2", LOAD), ("T3", LOAD)))),
    one("p2p_unmatched", f.NeverPosted(SEND, 1)), one("p2p_unmatched", f.NeverPosted(RECV, 1), frame=LOAD), one("io_wait", f.NeverPosted(SEND, 1)),
    one("device_wait", f.NeverStarted(REDUCE), waiters=OTHERS), two("device_wait", f.NeverStarted(REDUCE)),
    one("device_wait", f.WaitsForDevice(9.8), frame=LOAD), one("device_wait", f.WaitsForDevice(op=REDUCE)),
    one("device_wait", f.NeverStarted(REDUCE, (0, 1, 2))), two("device_wait", f.NeverStarted(REDUCE, (0,))),
    one("start_stall", f.NotJoined(Op("init_process_group"))), one("start_stall", f.NotJoined(Op("init_process_group"), "no process"), homes=[]),
    one("end_stall", f.NotJoined(Op("destroy_process_group")), frame=LOAD), two("start_stall", f.NotJoined(REDUCE)),
    *(one("dead", f.Died(end)) for end in (End(), End(0), End(3), End(-9), End(-9, 1), End(-15, 2), End(None, 2), End(-99))), two("dead", f.Died(End(0))), one("dead", f.Died(End(0), 39.6)),
    Finding("dead", [5], f.Died(End(1)), 0.9),
    one("stopped", f.Stopped("signal"), frame=LOAD, doing=SLEEPS), one("stopped", f.Stopped("signal"), homes=[], doing=SLEEPS),
    one("stopped", f.Stopped("freezer")), one("stopped", f.Stopped("debugger")), one("stopped", f.Stopped("debugger", 99)), two("stopped", f.Stopped("signal")),
    one("stopped", f.Stopped("signal"), homes=[Home(5, "", 7)]),
    one("io_wait", f.InputOutput("", "")), one("io_wait", f.InputOutput("read(7)", "nfs_wait"), frame=LOAD),
    one("interpreter_lock", f.HoldsGil(7, None)), one("interpreter_lock", f.HoldsGil(7, LOAD), frame=LOAD), one("interpreter_lock", f.ForkedLock(8, LOAD)),
    one("interpreter_lock", f.HoldsGil(7, LOAD, "saver", runs=True), waiters=OTHERS), one("interpreter_lock", f.HoldsGil(7, LOAD, "MainThread")),
    one("interpreter_lock", f.HoldsGil(7, LOAD, "saver", beside=(1, 3))), two("interpreter_lock", f.HoldsGil(7, LOAD, "saver", beside=(3,))),
    never("slow", frame=LOAD, doing=Doing("working"), holding=f.BehindThread("saver", 7, LOAD, 2, 2), waiters=OTHERS),
    one("end_stall", f.ShutDown(REDUCE), waiters=OTHERS), two("end_stall", f.ShutDown(STEP)), one("end_stall", f.ShutDown(None), waiters=OTHERS), two("end_stall", f.ShutDown(None)),
    *(Finding("in_communication", list(range(8)), f.AllIn(REDUCE, tuple(range(8)), counted, sides), 0.8, nodes,
              waiters=Waiters(tuple(range(8)), REDUCE, seconds))
      for counted, sides, nodes, seconds in ((True, False, ["n1"], 41.0), (False, False, [], 1.0), (True, True, [], 0.9), (False, True, [], 0.0))),
    two("in_communication", f.AllIn(replace(SEND, site="on (/a/p.py:9)"), (4, 5), True, True, other=replace(RECV, site="off (/a/p.py:13)"))),
    one("p2p_unmatched", f.AllIn(replace(SEND, site="on (/a/p.py:9)"), (4, 5), True, True, other=replace(RECV, site="off (/a/p.py:13)"), partners=(4, 6))),
    two("in_communication", f.AllIn(replace(SEND, seq=-1, frame=LOAD), (4, 5), False, True, other=replace(RECV, seq=-1, frame=LOAD))),
    one("in_communication", f.HeldBehind(REDUCE, (0,)), boxes_unread=True),
    one("order", f.OwnOrder(Op("new_group", site="build (/app/t.py:55)"), (4, 5), (5, 6, 7), (6, 7))),
    one("mismatch", f.PartsApart(ALL_TO_ALL, (f.PartApart(5, 4, 0, 96), f.PartApart(5, 6, 1, 2)))), two("mismatch", f.PartsApart(ALL_TO_ALL, (f.PartApart(4, 5, 3, 2),))), two("mismatch", f.PartsApart(ALL_TO_ALL, (f.PartApart(4, 5, 3, 2, exact=False),))),
    one("in_communication", f.HeldBehind(REDUCE, (0,))), two("in_communication", f.HeldBehind(REDUCE, (0, 1))),
    one("start_stall", f.OtherStore("n1:29500 (10.0.0.9)", "10.0.0.1:29500", 3)),
    one("start_stall", f.StoreRefused("n1:29500 (10.0.0.1)", "connection refused", 29500)),
    Finding("start_stall", [8, 9], f.NotAtRendezvous(TORCHRUN, "n1:29500", 2, 1, 8, 41.0, (1,)), 0.9), Finding("start_stall", [], f.NotAtRendezvous(TORCHRUN, "n1:29500", 4, 2), 0.9, ["n3", "n4"]),
    Finding("start_stall", [], f.NotAtRendezvous(TORCHRUN, "n1:29500", 4, 2), 0.9), Finding("start_stall", [], f.NotAtRendezvous(TORCHRUN, "n1:29500", 2, 0), 0.9), Finding("start_stall", [], f.NotAtRendezvous(TORCHRUN, "", 2, 0), 0.9),
    Finding("start_stall", [8, 9], f.SameNodeRank((TORCHRUN, f.Agent("n2", 8)), 0, (1,), "n1:29500", 41.0), 0.9, ["n2"]), Finding("start_stall", [], f.SameNodeRank((TORCHRUN, f.Agent("n2", 8), f.Agent("", 9)), 0, (1, 2)), 0.9, ["n2"]),
    *(Finding("start_stall", [], f.NoWayToRendezvous(TORCHRUN, "n1:29500 (10.0.0.1)", why, other), 0.9, ["n2"]) for why in ("connection refused", "no answer in 2 s", "a name without an address on its node") for other in ("", "n3:29500")),
    one("start_stall", f.OtherPort(29501, 29500, (0, 1)), waiters=Waiters((0, 1), Op("init_process_group"))), two("start_stall", f.OtherPort(29501, 29500, (0,))),
    one("start_stall", f.StillImporting("torch", 94.0, "/sw/env", "nfs4")),
    one("start_stall", f.StillImporting("torch", 94.0, "/sw/env", "nfs4", computes=True)), two("start_stall", f.StillImporting("torch", 94.0, computes=True)),
    two("start_stall", f.NoProcessThere(("n3",))),
    two("start_stall", f.NoneLeaves(REDUCE, True)), two("end_stall", f.NoneLeaves(REDUCE, False)),
    two("start_stall", f.NoneLeaves(NEW_GROUP, True, later=True)), one("start_stall", f.NotJoined(NEW_GROUP, later=True), frame=LOAD),
    two("start_stall", f.NoneLeaves(NEW_GROUP, True, later=True, sides=(((4,), NEW_GROUP), ((5,), NEW_MESH)))), two("mismatch", f.OwnGroup(NEW_GROUP, (0, 1, 2))),
    one("mismatch", f.Disagrees(NEW_MESH, NEW_MESH, ("order of groups",), ("members 0,2 as group #4",), ("members 0,2 as group #1",), f.DecidedBy.MAJORITY), waiters=OTHERS),
    one("mismatch", f.Disagrees(NEW_MESH, NEW_MESH, ("mesh shape",), ("mesh shape 3 x 2",), ("mesh shape 2 x 3",), f.DecidedBy.MAJORITY), waiters=OTHERS),
    one("end_stall", f.StillIn(REDUCE)), one("end_stall", f.StillIn(Op("", frame=LOAD), ended=(0,))), one("end_stall", f.StillIn(Op(""), leaving=(1,), leaving_op=GATHER)),
    two("end_stall", f.StillIn(GATHER, (0, 1), (2, 3), REDUCE, True)), one("end_stall", f.StillIn(Op("", 0), leaving=(1,))),
    one("end_stall", f.LeftWithout(REDUCE), waiters=OTHERS),
    one("not_entered", f.NeverReached(REDUCE, SEND), waiters=OTHERS), one("order", f.NeverReached(REDUCE, raised=True), waiters=OTHERS),
    one("not_entered", f.PeerElsewhere(1, SEND, REDUCE), waiters=OTHERS),
    one("not_entered", f.PeerElsewhere(1, RECV, STEP)),
    *(two("order", in_other(how)) for how in Apart if how not in (Apart.EITHER, Apart.ROOTS, Apart.CALLED_ALONE)), one("order", in_other(Apart.CALLED_ALONE, condition="rank == 0")), two("order", in_other(Apart.EITHER, others=(5,))),
    one("mismatch", in_other(Apart.ROOTS, roots=tuple((n, n + 1) for n in range(5)))), one("order", in_other(Apart.AHEAD, their_op=None)),
    two("order", in_other(Apart.EITHER, others=(5,), their_op=None)), one("order", in_other(Apart.BEHIND, others=()), waiters=OTHERS),
    two("unreachable", f.NotSeen(("node n3 did not report", "x"))), Finding("unreachable", [5], f.NotSeen((), ("n7",)), 0.5),
    Finding("unreachable", [5], f.NotSeen(()), 0.5), Finding("unreachable", [4, 5], f.NotSeen(()), 0.5),
    one("dead", f.LostByRas(None, ())), two("dead", f.LostByRas(None, ("h1", "h2"))), one("not_entered", f.FewerByRas(None, "", 7)),
    two("not_entered", f.FewerByRas(None, "all_reduce", 7)), two("not_entered", f.FewerByRas(None, "all_reduce", 7, (6,), 9)),
    unnumbered("unreachable", f.LostByRas(MEMBERS, ("h1",))), unnumbered("not_entered", f.FewerByRas(MEMBERS, "all_reduce", 7)),
    unnumbered("error", f.ErrorByRas(MEMBERS, "invalid usage")), one("error", f.ErrorByRas(None, "async_error 1")),
    one("unreachable", f.LostProcesses((("h1", 7791, "3"),), True)), Finding("unreachable", [], f.LostProcesses(tuple(("", n, "") for n in range(5)), False), 0.7), one("not_entered", f.UnsetKey("'a'")), two("not_entered", f.UnsetKey("'a'")), one("order", f.UnsetKey("'a'", (4, 6), REDUCE)),
    one("mismatch", disagrees(), waiters=Waiters((0, 1), REDUCE, elsewhere=(2,))), one("mismatch", disagrees(theirs=None)), two("mismatch", disagrees(ground=f.DecidedBy.UNDECIDED)), two("mismatch", disagrees(ground=f.DecidedBy.UNDECIDED, sides=((4,), (5,)))),
    one("mismatch", disagrees(fields=("op",), theirs=GATHER)), one("mismatch", disagrees(fields=("op",), theirs=Op("barrier"))),
    one("mismatch", disagrees(fields=("dtype", "shapes"), my_values=("f16", "[1]"))), one("mismatch", disagrees(fields=())),
    *(one("order", diverged(how)) for how in ("skipped", "extra", "either", "swapped", "other", "group", "own")),
    *(one(kind, diverged("skipped", before_records=True)) for kind in ("order", "p2p_unmatched", "mismatch", "end_stall")), one("order", diverged("extra", before_records=True)),
    one("p2p_unmatched", diverged("skipped", mine=replace(SEND, site="on (/a/p.py:9)"), theirs=replace(SEND, site="on (/a/p.py:9)"), tags=("tag 31", "tag 30"))),
    one("order", diverged("skipped"), waiters=OTHERS), one("order", diverged("skipped"), waiters=Waiters((0,), GATHER)), one("order", diverged("own", mine=None, theirs=None), waiters=OTHERS),
    *(one("error", f.GpuFailed(3, number, "name=python"), waiters=OTHERS) for number in (31, 48, 74, 79, 119, 143)),
    two("order", f.Ring(REDUCE, GATHER)), two("order", f.Ring()), two("p2p_unmatched", f.Ring()), two("p2p_unmatched", f.Ring(sides=((4, SEND), (5, SEND)))), two("p2p_unmatched", f.Ring(sides=((4, REDUCE), (5, SEND)))), one("p2p_unmatched", f.OtherPartners(SEND, (1,), (2, 3), (0, 4))), one("p2p_unmatched", f.OtherPartners(RECV, (), (2,), (0,)), waiters=OTHERS), one("p2p_unmatched", f.OtherRound(True, (0, 1, 3), ((4, RECV), (5, RECV)))), one("p2p_unmatched", f.OtherRound(False, (0, 1), ((5, RECV), (4, SEND)))), two("not_entered", f.OneOf(())), two("not_entered", f.OneOf((7,))),
    one("slow", f.SlowByWaiting(0.04, 0.61)), one("slow", f.SlowByPace(2.5)), one("slow", f.SlowByHistory(600.0, 4.0, 60.0, 65.0, 70.0)),
    one("slow", f.SlowByArrival(0.52, 0.61)), two("slow", f.SlowByArrival(0.52, 0.61)), one("slow", f.SlowBySamples(6, 9.0)), two("slow", f.SlowBySamples(6, 9.0)),
    one("slow", f.SlowBySamples(6, 9.0, 0.83)), one("slow", f.SlowBySamples(6, 9.0, 0.5, (0.34, 0.05))),
    one("mismatch", f.AsksForOther(("key", "path"), (0, 1, 2), 3, 6.0), frame=LOAD),
    *(two("order", f.TwoThreads((4, 5), STEP, BARRIER, same)) for same in (True, False)), one("order", f.TwoThreads((0, 1), STEP, BARRIER, True, 5)),
    one("mismatch", f.OtherRoot("best", 2, 0, REDUCE, (1,))),
    one("p2p_unmatched", f.AmountApart("num_steps", 2, 4, LOAD, (((4,), SEND), ((5,), RECV)))), one("p2p_unmatched", f.AmountApart("n", 2, 4, LOAD, ())),
    one("mismatch", f.StepsApart("step", 36, 40, 42, STEP, (0, 1, 3))), one("mismatch", f.StepsApart("it", 9, 7, 7, STEP, (0,))),
    *(two("p2p_unmatched", f.UnmatchedPair(4, op, 5, STEP, (0, 1)), waiters=OTHERS) for op in (replace(SEND, seq=-1, frame=LOAD), replace(RECV, seq=-1, peer=5, frame=LOAD))),
    one("p2p_unmatched", f.UnmatchedPair(0, replace(RECV, seq=-1, peer=5, frame=LOAD), 5, STEP, (1, 2), (1, 2))),
    one("p2p_unmatched", f.OwesAnswer(replace(RECV, seq=-1, peer=0, frame=LOAD), 0, replace(RECV, seq=-1, peer=None, frame=LOAD), (1, 2))),
    *(make("order", f.Interrupted("barrier", LOAD, REDUCE, others)) for make in (one, two) for others in ((0, 1), (3,), ())),
    Finding("not_entered", [], f.UnnamedElsewhere(("process 12",), None, ("process 13", "process 14"), STEP, LOAD), 0.7),
    Finding("end_stall", [], f.UnnamedElsewhere(("process 12",), REDUCE, ("the process of b.txt",), STEP), 0.7),
    *(one("slow", f.Compiling(compiler, on), frame=LOAD, waiters=Waiters((0, 1), STEP)) for compiler, on in (("XLA", False), ("torch.compile", True), ("Triton", True))), two("slow", f.Compiling("XLA", True)),
]  # fmt: skip

FACTS: list[f.Fact] = [
    f.At((LOAD, LOAD), "x = 1"), f.At(()), f.At((LOAD,), "", Frame("main", "/app/train.py", 5)), f.InOp(BY_FRAMEWORK), f.NoStack(), f.NoStack("gone"), f.CannotRun(LOAD), f.ThreadState("S", "still", "", None),
    f.ThreadState("S", "odd", "pipe_read", SLEEPS), f.BytesMoved(5, 61 << 20), f.StoppedState("T"), f.IdleState("", ""), f.IdleState("read", "nfs"), f.Ended(End(-9, 1)),
    f.InOp(REDUCE), f.InOp(REDUCE, True), f.InStore('n1:29500', (0, 1), 4), f.InStore('n1:29500', (0, 1), 2), f.InOp(STEP), f.InOp(Op("all_reduce", 0)), f.WaitsIn(), f.WaitsIn((1, 2)), f.WaitsIn(share=0.56), f.DidNotRun(), f.SeenByHeartbeat(), f.PrintedAtLimit(), f.RaisedAtTheEnd("JSONDecodeError: Expecting value", 26.0), f.IsPast(LOAD),
    f.AgentWaits(TORCHRUN, Launch("torchrun", 2, 4, per_node=8, world_size=16, endpoint="n1:29500"), 41.0), f.AgentWaits(TORCHRUN, Launch("torchrun", 2), 41.0),
    f.AskedFor(Launch("mpirun", world_size=16), 8), f.AskedFor(Launch("mpirun", 3, world_size=16), 8), f.AskedFor(Launch("torchrun", 1, per_node=8, world_size=8), 7), f.LastOp(None), f.LastOp(REDUCE), f.LastOp(REDUCE, True), f.HasGil(), f.NoInterpreter(True), f.NoInterpreter(False), f.HoldsGil(7, None), f.HoldsGil(7, LOAD), f.HoldsGil(7, LOAD, "saver", True), f.BehindThread("saver", 7, LOAD, 3, 4), f.ForkedLock(8, LOAD), f.ChildDied(8, None),
    f.ChildDied(8, End(1)), f.ChildStopped(8), f.ChildAt(8, "", (LOAD,)), f.ChildAt(8, "S", (LOAD, LOAD)), f.Threads(tuple((f"T{n}", LOAD) for n in range(4))),
    f.Threads(tuple((f"T{n}", LOAD) for n in range(6))), f.LockWait("/data/l", 9), f.Silence(()), f.Silence(("a", "b")), f.WaitsFor(REDUCE, 3), f.PartedAt(7, REDUCE, None, 1, False), f.Unreturned(SEND, 5, (1, 2), (0,)),
    f.PartedAt(7, GATHER, REDUCE, 1, True), f.Signed(("a", "b"), ""), f.Signed(("a",), "train (/x/app/train.py:31)"), f.SameSignature(REDUCE), f.EndedCleanly(),
    f.UnnamedAt(("process 12",), (LOAD,)), f.UnnamedAt(("process 12", "process 13"), ()),
    f.RasSays(f.LostByRas(MEMBERS, ("h",))), f.RasSays(f.FewerByRas(None, "", 7)), f.RasSays(f.ErrorByRas(None, "invalid usage")), f.RasSeesAll(8), f.WaitedShare(3.2, 3.2), f.WaitedShare(3.2, 60.6),
    f.GpuState(Gpu(3)), f.GpuState(Gpu(3, busy=4, memory_mb=70, memory_total_mb=80, clock_mhz=300, clock_max_mhz=1980, slowed=["hw_slowdown"])),
    f.GpuState(Gpu(3, uncorrected=1, link_errors=2, clock_mhz=300, xids=[Xid(79, says="GPU has fallen off the bus."), Xid(143)])),
    f.GpuStandsOut(0, 98, 100, 7), f.GpuStandsOut(97, 3, 3, 7),
    f.Pace(f.SlowByPace(2.5)), f.Pace(f.SlowByWaiting(0.04, 0.61)), f.Pace(f.SlowByArrival(0.52, 0.61)), f.WaitsInKey("'a'"), f.Quoted("So it is."),
    LogAgrees("dead", (5,)), LogAgrees("not_entered", (4, 5), REDUCE, (0, 1)), LogAgrees("not_entered", (5,), Op(""), (0,)),
    LogAgrees("dead", (5,), source="boxes"), LogAgrees("dead", (5,), source="dumps"), LogAgrees("dead", (5,), Op(""), (0, 1), "boxes"),
    LogContradicts("dead", (5,), source="boxes"), LogContradicts("dead", (5,), source="dumps"), LogContradicts("dead", (5,), Op("gloo"), "boxes"),
    HeartbeatStopped(12.0), HeartbeatStopped(12.0, "stopped"), HeartbeatStopped(12.0, "gil"), LogContradicts("mismatch", (3,)), LogContradicts("not_entered", (4, 5), REDUCE),
]  # fmt: skip

TERMS: list[str] = [
    *(terms.duration(s) for s in (0.94, 0.99, 1.0, 119.4, 119.99, 120.0, 7199.0, 7200.0)), terms.share(0.005), terms.share(1.0), terms.cut("a" * 9, 9), terms.cut("a" * 10, 9),
    terms.cut("a bcdefghij", 3), terms.ranks([]), terms.ranks([3, 3]), terms.count(1, "rank"), terms.count(0, "rank"), terms.capital(""),
    *(terms.doing(d) for d in (Doing("running"), Doing("working"), Doing("still"), Doing("blocked", "read(5 -> pipe:[7])"), Doing("blocked", "recvfrom(5 -> socket:[7])"),
                              Doing("blocked", "write(5 -> /a/b.pt)"), Doing("blocked", "write(5 -> /a/)"), Doing("blocked", "poll"), Doing("blocked", "futex"), Doing("retrying", "OSError"))),
    *(terms.op(o) for o in (Op("all_reduce", 0), Op("all_reduce"), Op("send", 0, peer=0), Op("recv", peer=3), Op("barrier", 3, GroupRef("", "", (1, 2))), Op("barrier", 3, GroupRef("dp", "x", (1, 3))))),
    terms.who([1], []), terms.who([1, 2], [], ["n1"]), terms.who([1], [Home(1)]), terms.who([1, 2], [], ["n1", "m2", "o3", "p4"]), terms.who([1, 2], [], ["n1", "m2", "o3", "p4", "q5"]),
    terms.long_op(None), terms.op_at(None), terms.op_at(STEP), terms.long_op(STEP), terms.long_op(GATHER), terms.long_frame("x"), terms.site("f (/a/b.py:3)"), terms.site("b.py:3"),
    terms.end(End(0)), terms.long_op(Op('all_reduce', 3, WORLD, site=REDUCE.site, frame=LOAD)), terms.long_op(Op('all_reduce')),
    differences._bare(GATHER), terms.signal_name(15), terms.signal_name(99),
]  # fmt: skip


HEALTHY = (
    Reason.ALL_MOVED,
    Reason.OTHERS_MOVED,
    Reason.MOST_MOVED,
    Reason.ALL_STIRRED,
    Reason.SLEEP_BY_TURNS,
)


ENDS = [
    ((End(0), (0, 1, 2)),),
    ((End(3), (2,)), (End(-15), (0, 1))),
    ((End(), (0, 1)), (End(1), (2,))),
    ((End(), (0, 1, 2)),),
    tuple((End(code), (code,)) for code in range(6)),
]


PLACES = (
    f.Standing(("process 12",), op=STEP), f.Standing(("stack 2 of a.txt",), frame=LOAD),
    f.Standing(("process 14",), frame=LOAD, end=11), f.Standing(tuple(f"process {n}" for n in range(5))),
)  # fmt: skip

LOCK = Frame("a lock inside of malloc", "", 0)
AWAITED = ("", "workers", "requests", "nodes", "exit", "ranks")
LONE_PLACES = (
    f.Standing(("process 12",), frame=LOCK, locked=True), f.Standing(("process 12",), within=LOAD),
    *(f.Standing(("torchrun's agent",), frame=LOAD, rankless=True, awaits=what) for what in AWAITED),
)  # fmt: skip


def left() -> list[str]:
    """Why no cause is named, and the notes."""
    lines = []
    for place in LONE_PLACES:
        lines.append(remaining.unknown(Remaining(Reason.UNNAMED, places=(place,))))
    whys = tuple(f"n{n}: no answer" for n in range(9))
    for reason in Reason:
        told = remaining.healthy if reason in HEALTHY else remaining.unknown
        sides = (((1,), STEP), ((2, 3), GATHER), ((4,), REDUCE))
        loop = OWN_LOOP if reason is Reason.OWN_LOOP else None
        few = Remaining(
            reason,
            (1,),
            (2, 3),
            REDUCE,
            whys[:1],
            4,
            sides=sides,
            under=((1,), "rank == 0"),
            loop=loop,
            lost=Finding("unreachable", [], f.LostByRas(MEMBERS, ("h1",)), 0.5),
            places=(f.Standing(("process 12", "process 13"), op=STEP),),
        )
        lines.append(f"{reason.name}: {told(few)}")
        if reason not in (Reason.ONE_RANK, Reason.OWN_LOOP):
            many = Remaining(
                reason, (1, 2), (3,), STEP, whys, 4, sides=sides[1:], halves=(3,), smaller=(1, 2),
                lost=Finding("unreachable", [4, 5], f.LostByRas(None, ("h1",)), 0.5), places=PLACES,
            )  # fmt: skip
            lines.append(f"{reason.name}: {told(many)}")
    alike = Remaining(Reason.OWN_LOOP, loop=replace(OWN_LOOP, differs=None))
    lines.append(remaining.unknown(alike))
    lines.append(remaining.advice(Remaining(Reason.OWN_LOOP, loop=OWN_LOOP), "", ()))
    lines.append(remaining.unknown(Remaining(Reason.NOT_CAPTURED)))
    lines.append(
        remaining.unknown(Remaining(Reason.ALL_AT_STORE, (1, 2), op=REDUCE, keys=("done",)))
    )
    lines.append(remaining.healthy(Remaining(Reason.ALL_MOVED, number=1)))
    lines += [f"EndedMeanwhile: {ended.meanwhile(EndedMeanwhile(ends))}" for ends in ENDS]
    lines.append(ended.meanwhile(EndedMeanwhile(ENDS[1], named=True), "Rank 2 is dead."))
    for remark in Remark:
        notes = (
            Note(remark, (1, 2), 3, "all_reduce", LOAD, (4,)),
            Note(remark, (1,), 1, "send", None, (4,)),
        )
        lines += [f"{remark.name}: {note_words.note(note)}" for note in notes]
    return lines


def said() -> str:
    lines = []
    for finding in FINDINGS:
        lines += [f"{finding.kind}, {type(finding.story).__name__}: {wording.summary(finding)}"]
        lines += [f"    {wording.advice(finding)}"] if wording.advice(finding) else []
    lines += [
        f"{type(fact).__name__}: {wording.evidence(Clue('stack', (5,), fact)).says}"
        for fact in FACTS
    ]
    return "\n".join([*lines, *left(), *TERMS]) + "\n"


def test_every_sentence_is_what_it_was() -> None:
    assert said().splitlines() == SAID.read_text().splitlines()


def test_a_cause_has_all_that_the_finding_has() -> None:
    finding = never(frame=LOAD, clues=[Clue("ops", (5, 6), f.EndedCleanly())], against=[TRANSFER])
    finding.confidence = 0.876
    cause = wording.cause(finding)
    assert (cause.kind, cause.ranks, cause.nodes, cause.confidence) == (
        "not_entered",
        [5],
        ["n2"],
        0.88,
    )
    assert (cause.summary, cause.advice) == (wording.summary(finding), wording.advice(finding))
    [clue], [other] = cause.evidence, cause.alternatives
    assert (
        (clue.source, clue.ranks, clue.says) == ("ops", [5, 6], "ended cleanly")
        and other.kind == "not_entered"
        and other.why_not
    )


if __name__ == "__main__":
    SAID.parent.mkdir(exist_ok=True)
    SAID.write_text(said())
