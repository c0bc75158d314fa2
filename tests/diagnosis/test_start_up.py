"""Why ranks have not joined: the pass on captures as the readers make them."""

from __future__ import annotations

from typing import Any

from hangdoctor.diagnosis import diagnose
from hangdoctor.launchers.gather import Gathered, join
from hangdoctor.model.capture import Frame, JobCapture, NodeCapture, RankCapture, SilentNode
from hangdoctor.model.diagnosis import Diagnosis
from hangdoctor.model.operations import Group, Operation, RankOps
from hangdoctor.model.start_up import Import, StoreView
from hangdoctor.readers.capture_options import CaptureOptions
from hangdoctor.transport.stdout_frame import NodeReply
from tests.support.captures import LOAD, MAIN, captured, causes, sample, stack, still, thread

JOIN = stack(
    ("_create_c10d_store", "/site-packages/torch/distributed/rendezvous.py", 189),
    ("init_process_group", "/site-packages/torch/distributed/distributed_c10d.py", 1700),
    MAIN,
)
IMPORTS = stack(
    ("<module>", "/sw/env/lib/python3.11/site-packages/torch/functional.py", 9),
    ("_find_and_load", "<frozen importlib._bootstrap>", 1027),
    ("<module>", "/sw/env/lib/python3.11/site-packages/torch/__init__.py", 5),
    ("_find_and_load", "<frozen importlib._bootstrap>", 1027),
    ("<module>", "/app/train.py", 1),
)


def _rest(frames: list[Frame]) -> list[tuple[str, str, int]]:
    return [(frame.name, frame.file, frame.line) for frame in frames[1:]]


def at_store(rank: int, link: str, address: str = "10.0.0.1", **more: Any) -> RankCapture:
    store = StoreView("n1", 29500, [address] if address else [], link, **more)  # type: ignore[arg-type]
    return still(rank, JOIN, node=f"n{rank + 1}", store=store)


def judged(*ranks: RankCapture, **more: Any) -> Diagnosis:
    nodes = {rank.node: NodeCapture(rank.node, ranks=[rank]) for rank in ranks}
    for node in nodes.values():
        node.expected = [(f"n{n + 1}", [n]) for n in range(4)]
    return diagnose(JobCapture("j", list(nodes.values()), world_size=4, taken=1.0, **more))


def first(of: Diagnosis) -> str:
    return of.causes[0].summary


def test_a_rank_that_looks_elsewhere_is_named_with_both_addresses() -> None:
    lost = at_store(3, "none", "10.0.0.9", refused="connection refused")
    found = judged(*(at_store(r, "connected") for r in (1, 2)), at_store(0, "listens"), lost)
    assert causes(found) == [("start_stall", [3])]
    assert first(found).startswith(
        "Rank 3 (n4, pid 12) looks for the store at n1:29500 (10.0.0.9); 3 ranks have reached it at 10.0.0.1:29500."
    )
    assert "getent hosts n1" in found.causes[0].advice
    evidence = [e.says for e in found.causes[0].evidence]
    assert "3 of 4 ranks have reached the store at n1:29500; missing: rank 3" in evidence


def test_a_name_without_an_address_and_another_port_are_named() -> None:
    others = [at_store(0, "listens"), at_store(1, "connected")]
    unknown = at_store(2, "none", "")
    port = at_store(3, "none")
    assert port.store is not None
    port.store.port = 29501
    found = judged(*others, unknown, port)
    said = sorted(cause.summary for cause in found.causes)
    assert "n1:29500, a name without an address on its node" in said[0]
    assert said[1].startswith("Rank 3 (n4, pid 12) uses MASTER_PORT 29501, ranks 0-2 use 29500.")
    assert not any("getent" in c.advice for c in found.causes if "MASTER_PORT" in c.summary)


def test_the_hosts_own_loopback_name_is_no_other_address() -> None:
    """Debian's /etc/hosts has a node's own name at 127.0.1.1: it listens there all the same."""
    host = at_store(0, "listens", "127.0.1.1")
    found = judged(host, *(at_store(r, "connected") for r in (1, 2, 3)))
    assert found.causes[0].ranks == [0, 1, 2, 3]
    assert "they probably cannot reach each other" in first(found)


def test_a_port_that_is_refused_is_named_while_another_rank_listens() -> None:
    shut = [at_store(r, "asks", refused="no answer in 2 s") for r in (2, 3)]
    found = judged(at_store(0, "listens"), at_store(1, "connected"), *shut)
    assert causes(found) == [("start_stall", [2, 3])]
    assert "cannot reach the store at n1:29500 (10.0.0.1): no answer in 2 s" in first(found)
    assert "Open TCP port 29500" in found.causes[0].advice


def test_the_store_of_torchruns_agent_counts_too() -> None:
    """No rank listens there, but some are connected."""
    shut = at_store(3, "asks", refused="no route to host")
    found = judged(*(at_store(r, "connected") for r in (0, 1, 2)), shut)
    assert causes(found) == [("start_stall", [3])]
    assert "(10.0.0.1): no route to host" in first(found)


def test_who_is_in_the_store_is_evidence_beside_a_rank_that_is_elsewhere() -> None:
    late = still(2, LOAD, node="n3")
    found = judged(at_store(0, "listens"), *(at_store(r, "connected") for r in (1, 3)), late)
    assert causes(found) == [("start_stall", [2])]
    evidence = [e.says for e in found.causes[0].evidence]
    assert "3 of 4 ranks have reached the store at n1:29500; missing: rank 2" in evidence


def test_where_no_rank_listens_it_is_the_host_that_is_late() -> None:
    waiting = [at_store(r, "none", refused="connection refused") for r in (1, 2, 3)]
    found = judged(still(0, LOAD, node="n1"), *waiting)
    assert causes(found) == [("start_stall", [0])]
    assert "has not joined init_process_group" in first(found)


def test_a_rank_that_still_imports_is_named_with_its_file_system() -> None:
    own = Import("torch", "/sw/env/lib/x.py", 94.0, "/sw/env", "nfs4")
    late = still(2, IMPORTS, node="n3", importing=own)
    joined = [at_store(0, "listens"), *(at_store(r, "connected") for r in (1, 3))]
    found = judged(*joined, late)
    assert causes(found) == [("start_stall", [2])]
    assert "is still importing torch after 94 s, from /sw/env (nfs4)." in first(found)
    assert "time python -c 'import torch'" in found.causes[0].advice
    own.seconds = 3.0
    assert "has not joined" in first(judged(*joined, late)), "seconds of import are usual"


def test_all_ranks_that_still_import_are_one_finding() -> None:
    own = Import("torch", "/sw/env/lib/x.py", 120.0, "/sw/env", "nfs4")
    found = judged(*(still(r, IMPORTS, node=f"n{r + 1}", importing=own) for r in range(4)))
    assert found.status == "hang" and causes(found) == [("start_stall", [0, 1, 2, 3])]
    own.seconds = 5 * 3600.0
    later = judged(*(still(r, IMPORTS, node=f"n{r + 1}", importing=own) for r in range(4)))
    assert all(cause.kind != "start_stall" for cause in later.causes)


def test_ranks_that_import_one_module_after_the_other_are_starting() -> None:
    own = Import("torch", "/sw/env/lib/x.py", 40.0, "/sw/env", "nfs4")
    further = stack(("<module>", "/sw/env/site-packages/torch/nn/__init__.py", 3), *_rest(IMPORTS))
    ranks = []
    for number in range(4):
        samples = [sample(0.0, thread(IMPORTS)), sample(1.0, thread(further, switches=50))]
        ranks.append(captured(number, samples, node=f"n{number + 1}", importing=own))
    assert judged(*ranks).causes == []


def test_a_node_without_a_process_never_started() -> None:
    found = judged(at_store(0, "listens"), at_store(1, "connected"), at_store(3, "connected"))
    assert causes(found) == [("start_stall", [2])]
    assert first(found).startswith("Rank 2 never started: n3 has no process of this job.")
    assert "sbatch --exclude=n3" in found.causes[0].advice
    silent = judged(
        *(at_store(r, "connected") for r in (0, 1, 3)),
        silent=[SilentNode("n3", "no answer within 20 s", [2])],
    )
    assert "never started" not in first(silent), "a node that does not answer may have it"


def test_after_the_first_operation_it_is_no_start() -> None:
    done = Operation("g", 1, "all_reduce", state="done", entered_s=1.0, left_s=2.0)
    ranks = [at_store(0, "listens"), *(at_store(r, "connected") for r in (1, 2))]
    lost = at_store(3, "none", "10.0.0.9")
    for rank in (*ranks, lost):
        group = Group("g", [0, 1, 2, 3])
        rank.ops = RankOps(rank.rank, 4, groups=[group], operations=[done])
    assert all("looks for the store" not in c.summary for c in judged(*ranks, lost).causes)


def entering(rank: RankCapture) -> RankCapture:
    """The same with the probe's record of a set-up that is under way."""
    under_way = Operation("", 1, "init_process_group", state="entered", entered_s=1.0)
    rank.ops = RankOps(rank.rank, 4, operations=[under_way])
    return rank


def test_the_reasons_hold_beside_records_of_operations() -> None:
    lost = entering(at_store(1, "none", "10.0.0.9"))
    found = judged(entering(at_store(0, "listens")), lost, entering(at_store(3, "connected")))
    assert causes(found) == [("start_stall", [1]), ("start_stall", [2])]
    assert "looks for the store" in first(found)
    assert "Rank 2 never started: n3 has no process of this job" in found.causes[1].summary


def test_a_rank_that_was_never_seen_is_not_dead_beside_records() -> None:
    gone = RankCapture(pid=0, rank=2, node="n3", world_size=4, gone=True)
    ranks = [entering(at_store(r, "connected")) for r in (0, 1, 3)]
    nodes = [NodeCapture(rank.node, ranks=[rank]) for rank in (*ranks, gone)]
    found = diagnose(JobCapture("j", nodes, world_size=4, taken=1.0))
    assert causes(found) == [("start_stall", [2])]


def test_a_host_without_a_rank_never_started_outside_slurm_too() -> None:
    """A list of hosts was asked: one has no rank, and the others need more than were seen."""
    ranks = [at_store(0, "listens"), *(at_store(r, "connected") for r in (1, 3))]
    gathered = Gathered(empty={"n3": NodeReply("n3", b"", "no rank found")})
    gathered.captures = {rank.node: NodeCapture(rank.node, ranks=[rank]) for rank in ranks}
    for rank in ranks:
        rank.world_size = 4
    options = CaptureOptions()
    found = diagnose(join(gathered, ["n1", "n2", "n3", "n4"], {}, options))
    assert causes(found) == [("start_stall", [2])]
    assert first(found).startswith("Rank 2 never started: n3 has no process of this job.")
    assert "whether the command that starts the ranks ran there" in found.causes[0].advice
    assert "sbatch" not in found.causes[0].advice
    ended = RankCapture(pid=0, rank=2, node="n3", world_size=4, gone=True, exit_code=1)
    gathered.empty = {}
    gathered.captures["n3"] = NodeCapture("n3", ranks=[ended])
    found = diagnose(join(gathered, ["n1", "n2", "n3", "n4"], {}, options))
    assert "never started" not in first(found), "it has left an exit code"


def test_a_rank_without_a_trace_is_not_dead_while_the_others_still_import() -> None:
    samples = [sample(at, thread(IMPORTS, state="R", cpu_s=at)) for at in (0.0, 1.0)]
    importing = captured(0, samples)
    importing.importing = Import("torch", "/sw/env/torch.py", 22.0, "/", "ext4")
    missing = RankCapture(pid=0, rank=1, world_size=2, gone=True)
    found = diagnose(JobCapture("j", [NodeCapture("n1", ranks=[importing, missing])], world_size=2))
    assert (found.status, causes(found)) == ("unknown", [])
    assert "rank 0 is still importing, and no process of rank 1 is there" in found.summary
    killed = RankCapture(pid=7, rank=1, world_size=2, gone=True, exit_code=-9)
    found = diagnose(JobCapture("j", [NodeCapture("n1", ranks=[importing, killed])], world_size=2))
    assert causes(found) == [("dead", [1])]
