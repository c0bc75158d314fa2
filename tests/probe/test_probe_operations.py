"""A real gloo job of 3 ranks that calls everything, with the probe and without."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import msgspec
import pytest

from hangdoctor.model import splits
from hangdoctor.model.operations import P2P, STORE, Operation, group_uid
from hangdoctor.model.splits import Splits
from hangdoctor.readers.blackbox import Contents
from tests.support.probe_ranks import environment, ranks

pytestmark = [pytest.mark.torch, pytest.mark.timeout(180)]
WORLD = 3


def run(env: dict[str, str], saved_to: str) -> list[tuple[int, str, str]]:
    with ranks("every_operation.py", WORLD, env, saved_to) as started:
        return [rank.end() for rank in started]


@pytest.fixture(scope="module")
def with_probe(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[list[tuple[int, str, str]], list[Contents], Path]:
    saved, folder = tmp_path_factory.mktemp("saved"), tmp_path_factory.mktemp("boxes")
    ended = run(environment(folder), str(saved))
    assert [code for code, _, _ in ended] == [0] * WORLD, ended
    boxes = [
        msgspec.json.decode((saved / f"{r}.json").read_bytes(), type=Contents) for r in range(WORLD)
    ]
    return ended, boxes, folder


@pytest.fixture(scope="module")
def boxes(with_probe: tuple[object, list[Contents], Path]) -> list[Contents]:
    return with_probe[1]


def of(box: Contents, op: str) -> list[Operation]:
    return [o for o in box.ops.operations if o.op == op]


def test_results_exceptions_and_output_are_those_without_the_probe(
    with_probe, tmp_path: Path
) -> None:  # type: ignore[no-untyped-def]
    without = run(environment(tmp_path, HANGDOCTOR_DISABLE="1"), "-")
    assert not list(tmp_path.iterdir())
    for rank, (seen, plain) in enumerate(zip(with_probe[0], without, strict=True)):
        assert seen[:2] == plain[:2], f"rank {rank}"
        assert "ring" in seen[1] and "TypeError" in seen[1]
        assert _without_numbers(seen[2]) == _without_numbers(plain[2]), f"rank {rank}"


def _without_numbers(stderr: str) -> list[str]:
    """Lines without timestamps, pids and addresses, which differ between any two runs; torch's
    warnings remain, but for those on how fast its sockets were.
    """
    return [
        "".join(c for c in line if not c.isdigit()).partition("/")[0]
        for line in stderr.splitlines()
        if "socket.cpp:" not in line
    ]


def test_the_box_is_removed_when_the_job_ends_well(with_probe) -> None:  # type: ignore[no-untyped-def]
    assert list(with_probe[2].iterdir()) == []


def test_collectives_of_one_group_have_equal_numbers_and_signatures_on_all_members(
    boxes: list[Contents],
) -> None:
    groups = {g.uid: g.ranks for box in boxes for g in box.ops.groups}
    seen: dict[tuple[str, int], dict[int, tuple[object, ...]]] = defaultdict(dict)
    for box in boxes:
        for o in box.ops.operations:
            if o.op not in P2P and o.op not in STORE and o.seq:
                assert box.ops.rank not in seen[o.group, o.seq], "a number counted twice"
                seen[o.group, o.seq][box.ops.rank] = o.signature()
    assert len(seen) > 30
    for (group, seq), by_rank in seen.items():
        assert sorted(by_rank) == groups[group], (group, seq, by_rank)
        assert len(set(by_rank.values())) == 1, (group, seq, by_rank)
    for group in groups:
        numbers = sorted(n for g, n in seen if g == group)
        assert numbers == list(range(1, len(numbers) + 1))


@pytest.mark.parametrize(
    ("op", "fields"),
    [
        ("all_reduce", {"shapes": "[4]", "dtype": "float32", "reduce_op": "sum", "root": -1}),
        ("broadcast", {"shapes": "[3, 2]", "root": 1}),
        ("reduce", {"shapes": "[3, 2]", "root": 2, "reduce_op": "sum"}),
        ("all_gather", {"shapes": "[5]"}),
        ("all_gather_into_tensor", {"shapes": "[2]"}),
        ("gather", {"shapes": "[2]", "root": 0}),
        ("scatter", {"shapes": "[2]", "root": 1}),
        ("reduce_scatter", {"shapes": "[3],[3],[3]", "reduce_op": "sum"}),
        ("reduce_scatter_tensor", {"shapes": "[6]"}),
        ("all_to_all_single", {"shapes": "[3]"}),
        ("barrier", {"shapes": ""}),
        ("all_gather_object", {}),
        ("gather_object", {"root": 0}),
        ("broadcast_object_list", {"root": 2}),
        ("scatter_object_list", {"root": 0}),
        ("monitored_barrier", {}),
        ("init_process_group", {}),
        ("new_group", {}),
    ],
)
def test_every_collective_is_recorded_with_its_fields(
    boxes: list[Contents], op: str, fields: dict[str, object]
) -> None:
    for box in boxes:
        first = of(box, op)[0]
        assert {name: getattr(first, name) for name in fields} == fields
        assert first.state == "done" and not first.failed
        assert first.entered_s <= first.left_s
        assert first.group == group_uid(range(WORLD))
        assert (
            first.site.startswith(("<module> (", "<lambda> ("))
            and "every_operation.py:" in first.site
        )
        assert first.thread == box.box.pid


def test_an_all_to_all_in_parts_has_their_sizes(boxes: list[Contents]) -> None:
    for rank, box in enumerate(boxes):
        whole, parts = of(box, "all_to_all_single")
        assert whole.detail == "" and parts.shapes == ""
        sizes = Splits(tuple(range(1, WORLD + 1)), (rank + 1,) * WORLD)
        assert parts.detail == str(sizes) and splits.read(parts.detail) == sizes
        assert "every_operation.py:" in parts.site and parts.state == "done"


def test_a_name_imported_before_use_is_recorded_too(boxes: list[Contents]) -> None:
    assert of(boxes[0], "all_reduce")[1].reduce_op == "max"


def test_operations_inside_others_are_folded_into_them(boxes: list[Contents]) -> None:
    # all_gather_object gathers sizes and payloads by all_gather: one operation on every rank.
    assert len(of(boxes[0], "all_gather_object")) == 1
    assert len(of(boxes[0], "all_gather")) == 1
    assert len(of(boxes[0], "all_gather_into_tensor")) == 1


def test_asynchronous_operations_are_done_when_awaited_polled_or_dropped(
    boxes: list[Contents],
) -> None:
    for box in boxes:
        handles = [o for o in of(box, "all_reduce") if o.asynchronous]
        assert [o.state for o in handles] == ["done"] * 3


def test_sends_and_receives_match_by_peer_and_number(boxes: list[Contents]) -> None:
    sent: dict[tuple[int, int], list[tuple[int, str]]] = defaultdict(list)
    received: dict[tuple[int, int], list[tuple[int, str]]] = defaultdict(list)
    for box in boxes:
        me = box.ops.rank
        for o in of(box, "send"):
            sent[me, o.peer].append((o.seq, o.shapes + o.detail))
        for o in of(box, "recv"):
            received[o.peer, me].append((o.seq, o.shapes + o.detail))
    assert set(sent) == {(0, 1), (1, 2), (2, 0)}
    assert sent == received
    # ring, isend, batch; between 0 and 1 the object list's size and payload besides
    assert sent[1, 2] == [(1, "[6]tag 0"), (2, "[7]tag 5"), (3, "[8]tag 2")]
    assert [n for n, _ in sent[0, 1]] == [1, 2, 3, 4, 5]


def test_groups_have_one_name_on_all_members_and_equal_sets_are_distinguished(
    boxes: list[Contents],
) -> None:
    uids = [{g.uid: g.ranks for g in box.ops.groups} for box in boxes]
    first, second, odd = group_uid([0, 1]), group_uid([0, 1], 1), group_uid([0, 2])
    assert uids[0][first] == uids[1][first] == uids[0][second] == uids[1][second] == [0, 1]
    assert uids[0][odd] == uids[2][odd] == [0, 2]
    assert first not in uids[2] and odd not in uids[1]
    broadcast = [o for o in of(boxes[0], "broadcast") if o.group == first]
    assert [o.root for o in broadcast] == [1], "group_src is turned into a global rank"


def test_what_torch_refused_is_marked_and_not_counted(boxes: list[Contents]) -> None:
    for box in boxes:
        failed = [o for o in box.ops.operations if o.failed]
        assert {o.op for o in failed} == {"all_reduce", "broadcast", "store_wait"}
        assert [o.seq for o in failed if o.op == "all_reduce"] == [0, 0]


def test_store_waits_name_their_keys(boxes: list[Contents]) -> None:
    for box in boxes:
        assert {"probe-test", "never"} <= {o.detail for o in of(box, "store_wait")}


def test_threads_are_distinguished(boxes: list[Contents]) -> None:
    for box in boxes:
        assert {"MainThread", "communicator"} <= {t.name for t in box.threads}
        others = [o for o in of(box, "all_reduce") if o.thread != box.box.pid]
        assert len(others) == 2


def test_the_header_says_who_it_is(boxes: list[Contents]) -> None:
    for rank, box in enumerate(boxes):
        assert (box.box.rank, box.box.world_size, box.box.local_rank) == (rank, WORLD, rank)
        assert box.box.status == "live" and box.box.state == "running" and "gloo" in box.box.backend
        assert (
            box.ops.heartbeat_s >= box.box.created_s
            and not box.ops.runs_ahead
            and not box.ops.overwritten
        )
        assert box.torn == 0 and box.ops.notes == []
