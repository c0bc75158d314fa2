"""The table of groups: many in a rank's life, many at once, equal members, cheap to make, and never
one for another.
"""

from __future__ import annotations

import gzip
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from hangdoctor.model.group_id import group_uid
from hangdoctor.model.operations import is_unknown
from hangdoctor.probe import format as fmt
from hangdoctor.probe import torchnames
from hangdoctor.probe.box import BoxWriter
from hangdoctor.probe.group_table import GroupEntry, as_range, in_order
from hangdoctor.probe.record_core import Thread
from hangdoctor.probe.recorder import Recorder, local
from hangdoctor.readers.blackbox import read_box
from tests.support.probe_ranks import environment, ranks

BOX_OF_VERSION_1 = Path(__file__).parents[1] / "data" / "boxes" / "version-1.blackbox.gz"


class Torch:
    """torch's own table of groups, {group: {global rank: rank in the group}}."""

    def __init__(self) -> None:
        self.table: dict[object, dict[int, int]] = {}
        self.default = self.make(range(16))
        self.walks = 0

    def live_groups(self) -> list[tuple[object, dict[int, int]]]:
        self.walks += 1
        return list(self.table.items())

    def make(self, members: range | list[int]) -> object:
        group = type("ProcessGroup", (), {})()
        self.table[group] = {rank: place for place, rank in enumerate(members)}
        return group


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Torch:
    fake = Torch()
    monkeypatch.setattr(torchnames, "live_groups", fake.live_groups)
    monkeypatch.setattr(torchnames, "how_many_groups", lambda: len(fake.table))
    monkeypatch.setattr(torchnames, "newest_group", lambda: next(reversed(fake.table.items())))
    monkeypatch.setattr(torchnames, "default_group", lambda: fake.default)
    return fake


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[Recorder]:
    local.thread = Thread()
    yield Recorder(BoxWriter(tmp_path, "a-job"))
    local.thread = Thread()


def operate(recorder: Recorder, group: object) -> None:
    entry = recorder.groups.find(group)
    assert entry is not None
    enter(recorder, entry)


def enter(recorder: Recorder, entry: GroupEntry) -> None:
    entry.seq += 1
    recorder.finish(
        (recorder.write(entry, entry.seq, recorder.box.intern("all_reduce\tsum\t\t"), 0),)
    )


def test_ten_thousand_groups_one_after_the_other(recorder: Recorder, torch: Torch) -> None:
    instances: dict[tuple[int, ...], int] = {}
    expected = []
    for n in range(10_000):
        members = [n % 7, 7 + n % 9]
        group = torch.make(members)
        operate(recorder, group)
        expected.append(group_uid(members, instances.setdefault(tuple(members), 0)))
        instances[tuple(members)] += 1
        del torch.table[group]
    operate(recorder, None)
    read = read_box(recorder.box.path)
    *of_groups, last = [op.group for op in read.ops.operations]
    assert of_groups == expected and last == group_uid(range(16))
    listed = {g.uid: g.ranks for g in read.ops.groups}
    assert listed[last] == list(range(16))
    # The latest are known with their members; of the first only the name is left, and no other's
    # members.
    told = [bool(listed[uid]) for uid in expected]
    assert told.count(True) >= fmt.GROUPS - 8 and all(told[-4_000:]) and not any(told[:5_000])
    assert all(listed[uid] in ([], [n % 7, 7 + n % 9]) for n, uid in enumerate(expected))


def test_groups_that_come_and_go_cost_nothing_for_those_that_stay(
    recorder: Recorder, torch: Torch
) -> None:
    groups = recorder.groups
    groups.sync()
    walks = torch.walks
    made = [torch.make([n % 7, 7 + n % 9]) for n in range(3)]
    for group in made:
        torch.table.pop(group)
    ranks = {0: 0, 1: 1}
    for group in made:
        torch.table[group] = ranks
        groups.one_came()
    assert groups.named(made[0]) is not groups.named(made[1])
    del torch.table[made[1]]
    groups.one_went(made[1])
    assert torch.walks == walks
    assert list(groups.by_id) == [id(g) for g in torch.table]


def test_more_or_fewer_groups_than_expected_are_all_looked_at(
    recorder: Recorder, torch: Torch
) -> None:
    groups = recorder.groups
    groups.sync()
    several = [torch.make([0, 1]), torch.make([0, 2])]
    groups.one_came()  # two did
    assert list(groups.by_id) == [id(g) for g in torch.table]
    for group in several:
        del torch.table[group]
    groups.one_went(several[0])
    assert list(groups.by_id) == [id(g) for g in torch.table]
    late = torch.make([0, 3])
    del torch.table[torch.default]
    torch.default = late
    groups.one_went(None)
    assert list(groups.by_id) == [id(late)] and groups.default is groups.by_id[id(late)]


def test_more_groups_at_once_than_the_table_holds(recorder: Recorder, torch: Torch) -> None:
    groups = [torch.make([0, 1 + n % 15]) for n in range(fmt.GROUPS + 100)]
    operate(recorder, groups[0])
    for group in groups[1:]:
        enter(recorder, recorder.groups.by_id[id(group)])
    read = read_box(recorder.box.path)
    assert len({op.group for op in read.ops.operations}) == len(groups) and "" not in {
        op.group for op in read.ops.operations
    }
    bare = {g.uid for g in read.ops.groups if not g.ranks}
    assert 90 <= len(bare) <= 110
    for group in groups[:200]:  # as soon as some end there is room again
        del torch.table[group]
    late = torch.make([3, 5])
    operate(recorder, late)
    found = read_box(recorder.box.path).ops
    assert next(g.ranks for g in found.groups if g.uid == found.operations[-1].group) == [3, 5]


def test_a_group_at_a_dead_ones_address_is_another(recorder: Recorder, torch: Torch) -> None:
    group = torch.make([1, 2])
    operate(recorder, group)
    torch.table[group] = {1: 0, 2: 1}  # the same object, as far as its id shows
    operate(recorder, group)
    uids = [op.group for op in read_box(recorder.box.path).ops.operations]
    assert uids == [group_uid([1, 2], 0), group_uid([1, 2], 1)]


def test_an_entry_that_is_half_another_groups_is_not_read(recorder: Recorder, torch: Torch) -> None:
    operate(recorder, torch.make([1, 2]))
    begin, _, width = recorder.box.regions["groups"]
    used = read_box(recorder.box.path).ops.groups
    struct.pack_into("<I", recorder.box.map, begin + width * (len(used) - 1) + 12, 0)  # its members
    struct.pack_into("<I", recorder.box.map, begin + width * (len(used) - 1) + fmt.GROUP_CHECK, 0)
    (operation,) = read_box(recorder.box.path).ops.operations
    found = {g.uid: g.ranks for g in read_box(recorder.box.path).ops.groups}
    assert operation.group == group_uid([1, 2]) and found[operation.group] == []


def test_a_record_whose_group_is_being_written_is_torn(recorder: Recorder, torch: Torch) -> None:
    operate(recorder, None)
    operate(recorder, None)
    at = recorder.box.regions["ring"][0] + 2 * fmt.RECORD_BYTES + fmt.UID_WORD * 8
    recorder.box.map[at : at + 8] = bytes.fromhex(group_uid([4, 5]))
    read = read_box(recorder.box.path)
    assert [op.seq for op in read.ops.operations] == [1] and read.torn == 1


class Counted(dict):  # type: ignore[type-arg]
    """A table of ranks that counts how often it is gone through."""

    walks = 0

    def __iter__(self) -> Iterator[int]:
        Counted.walks += 1
        return super().__iter__()


def test_a_new_group_costs_nothing_for_the_wide_ones_that_are_known(
    recorder: Recorder, torch: Torch
) -> None:
    wide = type("ProcessGroup", (), {})()
    torch.table[wide] = Counted((rank, rank) for rank in range(16_384))
    recorder.groups.sync()
    walks = Counted.walks
    assert walks > 0
    for n in range(50):
        operate(recorder, torch.make([n, n + 1]))
    assert Counted.walks == walks
    assert isinstance(recorder.groups.by_id[id(wide)].members, range)  # 16,384 ranks in 48 bytes


@pytest.mark.parametrize(
    ("ranks_of", "members"),
    [
        ({3: 0}, range(3, 4)),
        ({0: 0, 4: 1, 8: 2}, range(0, 9, 4)),
        ({8: 1, 0: 0}, range(0, 9, 8)),
        ({5: 0, 1: 1}, [5, 1]),
        ({0: 0, 1: 1, 3: 2}, [0, 1, 3]),
        ({0: 0, 1: 1, 5: 2, 6: 3}, [0, 1, 5, 6]),
    ],
)
def test_members_in_the_order_of_the_group(
    ranks_of: dict[int, int], members: range | list[int]
) -> None:
    assert in_order(ranks_of) == members and list(in_order(ranks_of)) == sorted(
        ranks_of, key=ranks_of.__getitem__
    )
    assert as_range([]) == []


def test_boxes_of_version_1_are_read_and_their_unknown_groups_are_no_others(tmp_path: Path) -> None:
    """Made by the writer of version 1: 600 groups of one rank, one operation in each, then a wait
    for the store.
    """
    path = tmp_path / "host-1.blackbox"
    path.write_bytes(gzip.decompress(BOX_OF_VERSION_1.read_bytes()))
    ops = read_box(path).ops
    uids = [op.group for op in ops.operations if op.op == "all_reduce"]
    assert len(uids) == 600 and len(set(uids[:500])) == 500
    assert all(is_unknown(uid) for uid in uids[512:]) and not any(
        is_unknown(uid) for uid in uids[:500]
    )
    assert [op.group for op in ops.operations if op.op == "store_wait"] == [""]
    assert ops.operations[-1].detail.startswith("key")


@pytest.mark.torch
@pytest.mark.timeout(180)
@pytest.mark.full
def test_real_ranks_with_six_hundred_groups_alive(tmp_path: Path) -> None:
    """Groups of both and of one rank each, made, used and destroyed; then rank 1 stays away from
    the last one.
    """
    with ranks("many_groups.py", 2, environment(tmp_path), "1100", "100") as started:
        told = [rank.line(150) for rank in started]
        assert told == ["ready"] * 2
        boxes = {box.box.rank: box.ops for box in map(read_box, tmp_path.glob("*.blackbox"))}
        from hangdoctor.diagnosis.ops import OpsEvidence, diagnose_ops

        verdict = diagnose_ops(OpsEvidence(boxes, boxes, world_size=2))
        (finding,) = verdict.findings
        assert finding.where is not None
        place = finding.where.group_ranks
        assert (finding.kind, finding.ranks, place) == ("not_entered", [1], [0, 1]), verdict
        waiting = boxes[0].operations[-1]
        assert (
            waiting.state == "entered" and waiting.group != group_uid([0, 1]) and not boxes[0].notes
        )
        uids = {op.group for op in boxes[0].operations if op.op == "all_reduce"}
        assert len(uids) == 550 + 50 + 1  # half of all groups are of rank 1 alone
