"""Dumps of active operations alone (`include_only_active`): made by torch's format, since they need
NCCL.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.accuracy import simulated
from benchmarks.accuracy.simulate import Settings, simulate
from hangdoctor.diagnosis import diagnose
from hangdoctor.model.diagnosis import Diagnosis
from hangdoctor.model.layout import Layout
from hangdoctor.readers.offline import read
from tests.support.active_dumps import dump, entry, write

RANKS = range(4)
TWO_GROUPS = {"0": RANKS, "1": [0, 1]}


def of(folder: Path, dumps: dict[int, dict[str, Any]]) -> Diagnosis:
    return diagnose(read(write(folder, dumps)))


def pending(completed: int, ahead: int = 4) -> dict[str, Any]:
    entries = [entry(completed + n, completed + 1 + n) for n in range(ahead)]
    return dump({"0": RANKS}, {"0": completed}, entries)


def test_a_rank_without_active_entries_is_outside_and_its_peers_wait(tmp_path: Path) -> None:
    dumps = {rank: pending(80) for rank in RANKS}
    dumps[2] = dump({"0": RANKS}, {"0": 80}, [])
    found = of(tmp_path, dumps)
    assert (found.status, found.causes[0].kind, found.causes[0].ranks) == (
        "hang",
        "not_entered",
        [2],
    )
    assert [w.ranks for w in found.waits] == [[0, 1, 3]]


def test_a_rank_that_has_not_ended_what_its_peers_have_ended_is_stuck_on_its_device(
    tmp_path: Path,
) -> None:
    dumps = {rank: pending(80) for rank in RANKS}
    dumps[2] = pending(79, ahead=5)
    found = of(tmp_path, dumps)
    assert (found.status, found.causes[0].kind, found.causes[0].ranks) == (
        "hang",
        "device_wait",
        [2],
    )


def test_all_in_the_same_operation_accuses_no_single_rank(tmp_path: Path) -> None:
    found = of(tmp_path, {rank: pending(80) for rank in RANKS})
    assert [(c.kind, c.ranks) for c in found.causes] == [("in_communication", [0, 1, 2, 3])]


def test_a_ring_that_lost_its_oldest_pending_operation_is_not_taken_for_whole(
    tmp_path: Path,
) -> None:
    dumps = {rank: pending(80) for rank in RANKS}
    lost = [entry(90 + n, 91 + n) for n in range(4)]
    dumps[2] = dump({"0": RANKS}, {"0": 80}, lost)
    found = of(tmp_path, dumps)
    assert not any(c.kind in ("not_entered", "device_wait") for c in found.causes)


def test_the_status_of_a_group_without_entries_is_joined_by_its_number(tmp_path: Path) -> None:
    """Rank 1 has nothing pending in the group of 0 and 1 and has not reached what 0 waits in."""
    dumps = {rank: pending(80) for rank in RANKS}
    waits = [entry(200, 41, group="1"), *[entry(201 + n, 81 + n) for n in range(2)]]
    dumps[0] = dump(TWO_GROUPS, {"0": 80, "1": 40}, waits)
    dumps[1] = dump(TWO_GROUPS, {"0": 80, "1": 40}, [])
    found = of(tmp_path, dumps)
    assert (found.causes[0].kind, found.causes[0].ranks) == ("not_entered", [1])


@pytest.mark.parametrize("version", ["2.1", "2.4", "2.9", "2.10"])
def test_json_of_the_debug_server_leaves_out_empty_entries(tmp_path: Path, version: str) -> None:
    dumps = {rank: pending(80) | {"version": version} for rank in RANKS}
    dumps[3] = dump({"0": RANKS}, {"0": 80}, [], version)
    paths = []
    for rank, contents in dumps.items():
        status = {g: {k: str(v) for k, v in s.items()} for g, s in contents["pg_status"].items()}
        told = contents | {"pg_status": status}
        if not told["entries"]:
            del told["entries"]
        paths.append(tmp_path / f"dump_{rank}.json")
        paths[-1].write_text(json.dumps(told))
    found = diagnose(read(paths))
    assert (found.causes[0].kind, found.causes[0].ranks) == ("not_entered", [3])


def test_of_two_ranks_without_a_dump_neither_is_blamed_alone(tmp_path: Path) -> None:
    """One of them may wait for the other: without completed operations nothing shows which."""
    dumps = {}
    for rank, pair in ((0, "1"), (1, "2")):
        groups = {"0": RANKS, pair: [rank, rank + 2]}
        dumps[rank] = dump(groups, {"0": 80, pair: 40}, [entry(200, 41, group=pair)])
    found = of(tmp_path, dumps)
    assert [(c.kind, c.ranks, c.confidence) for c in found.causes] == [
        ("unreachable", [2, 3], 0.65)
    ]
    assert found.notes == [
        "Ranks 0-1 wait for ranks 2-3, which have no dump, and the other dumps keep no completed "
        "operations: one of these may be waiting for another. Find the dumps of ranks 2-3."
    ]
    assert [(w.ranks, w.for_) for w in found.waits] == [([0], [2]), ([1], [3])]


def test_one_rank_without_a_dump_is_named_as_unseen(tmp_path: Path) -> None:
    found = of(tmp_path, {rank: pending(80) for rank in (0, 1, 3)})
    assert [(c.kind, c.ranks) for c in found.causes] == [("unreachable", [2])]


@pytest.mark.parametrize("silent", [0.0, 0.1])
def test_of_simulated_jobs_no_rank_that_merely_waits_is_named_alone(
    tmp_path: Path, silent: float
) -> None:
    """A rank whose dump is missing may be named instead, or a pair that holds the culprit."""
    exact = number = 0
    cases = simulated.cases([Layout(dp=2, pp=2, tp=2)], range(2), silent, only_active=True)
    for n, case in enumerate(case for case in cases if case.kind not in simulated.NEEDS_TWO):
        case.write(tmp_path / str(n))
        found = diagnose(simulated.capture_of_folder(tmp_path / str(n)))
        named = {r for c in found.causes for r in c.ranks}
        right = [set(case.truth.ranks), *map(set, case.truth.alternatives)]
        culprits = set().union(*right, case.missing)
        assert named <= culprits or set(case.truth.ranks) <= named, (case.name, found.summary)
        exact += named in right
        number += 1
    assert number >= 28
    assert exact >= (number if not silent else 0.85 * number)


def test_a_silent_rank_in_the_place_of_ones_like_is_no_error(tmp_path: Path) -> None:
    """What corresponds to a rank's peer may be a rank without a dump."""
    settings = Settings(silent=0.1, only_active=True)
    case = simulate("wrong_peer", Layout(dp=4, pp=4, tp=8), 0, settings)
    case.write(tmp_path / "dumps")
    found = diagnose(simulated.capture_of_folder(tmp_path / "dumps"))
    assert {r for cause in found.causes for r in cause.ranks} <= set(case.truth.ranks)


def transfer(record: int, name: str, number: int, **changes: Any) -> dict[str, Any]:
    """A part of a batch, or its end, as torch 2.11 records them beside the 80th collective."""
    return entry(record, 80) | {
        "profiling_name": f"nccl:{name}",
        "p2p_seq_id": number,
        "is_p2p": name != "coalesced",
        **changes,
    }


def test_parts_of_finished_batches_are_not_pending(tmp_path: Path) -> None:
    """They never learn that they have ended, and their ends are left out with what has completed."""
    parts = [transfer(100 + n, "send 0->1", n) for n in range(1, 9)]
    waits = [transfer(120, "recv 0<-1", 9), transfer(121, "coalesced", 9)]
    pair = {"0": range(2)}
    dumps = {0: dump(pair, {"0": 80}, parts + waits)}
    dumps[1] = dump(pair, {"0": 80}, [transfer(90 + n, "recv 1<-0", n) for n in range(1, 20)])
    ops = [rank.ops for rank in read(write(tmp_path, dumps)).ranks()]
    pending = [[(o.op, o.peer) for o in some.unfinished()] for some in ops if some is not None]
    assert pending == [[("recv", 1)], []]
