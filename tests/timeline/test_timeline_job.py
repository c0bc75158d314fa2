"""A real job of two nodes with clocks an hour apart that ends in a hang: its timeline, in every
form, against what it did.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hangdoctor.probe.calls import request
from hangdoctor.readers.blackbox import read_ops
from hangdoctor.timeline.heatmap import _ms
from tests.support.pf_reading import Read, Slice, read
from tests.support.probe_ranks import environment, ranks
from tests.support.stage import hangdoctor, wait_until

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(shutil.which("cc") is None, reason="the clock that is ahead is made in C"),
]
JOB = Path(__file__).parents[1] / "support" / "jobs" / "timeline_job.py"
AHEAD = 3600 * 10**9
STEPS, SLOW, LATE_MS = 12, 5, 1000
OPS_A_STEP = 2 + 1 + 2  # of each rank: two of its pair, one message, two of all


@dataclass
class Made:
    """What the commands wrote, and the boxes that they read."""

    folder: Path
    stragglers: dict[str, Any]
    said: str

    def file(self, name: str) -> bytes:
        return (self.folder / name).read_bytes()

    def boxes(self) -> dict[int, Path]:
        return {read_ops(p).rank: p for p in (self.folder / "kept").glob("*.blackbox")}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    """The job hangs; a bundle and a copy of the boxes are taken, everything else is made of those
    after it has gone.
    """
    folder = tmp_path_factory.mktemp("timeline")
    env = environment(folder / "boxes")
    env["PYTHONPATH"] = env["PYTHONPATH"].split(":")[-1]  # this job installs the probe by itself
    env[request.VARIABLE] = request.encode(request.Request(1, True, ("timeline_job",)))
    with ranks(str(JOB), 4, env, str(folder), str(STEPS), str(AHEAD)) as job:
        for rank in job:
            while rank.line() != "trained":
                pass
        wait_until(
            lambda: sum(_waits(p) for p in (folder / "boxes").rglob("*.blackbox")) == 3,
            "three ranks wait",
        )
        # Before they have waited for so long that the job hangs. Sockets cannot be copied.
        subprocess.run(["cp", "-r", folder / "boxes", folder / "kept"], check=False)
        pids = [part for rank in job for part in ("--pid", str(rank.pid))]
        hangdoctor("dump", *pids, "--bundle", "bundle", "--settle", "0.5", "--quiet", cwd=folder)
    hangdoctor(
        "report",
        "bundle",
        "--perfetto",
        "r.pftrace",
        "--folded",
        "r.folded",
        "--speedscope",
        "r.speedscope.json",
        "--folded-by-rank",
        "each.folded",
        cwd=folder,
    )
    told = hangdoctor(
        "trace", "export", "kept", "-o", "t.pftrace", "--torch-profiler", "profile", cwd=folder
    ).stderr
    found = hangdoctor(
        "trace", "stragglers", "bundle", "--json", "-", "--svg", "heat.svg", cwd=folder
    ).stdout
    yield Made(folder, json.loads(found), told)


def _waits(box: Path) -> bool:
    operations = read_ops(box).operations
    return bool(operations) and operations[-1].state == "entered" and operations[-1].shapes == "[7]"


@pytest.fixture(scope="module")
def reported(made: Made) -> Read:
    return read(made.file("r.pftrace"))


@pytest.fixture(scope="module")
def exported(made: Made) -> Read:
    return read(made.file("t.pftrace"))


# --------------------------------------------------------------------------- the trace


def test_every_operation_of_every_rank_is_there_once(
    made: Made, reported: Read, exported: Read
) -> None:
    for rank, box in made.boxes().items():
        recorded = read_ops(box).operations
        for found in (reported, exported):
            shown = found.operations(rank)
            assert len(shown) == len(recorded)
            assert sum(s.name.startswith("barrier") for s in shown) == 302
            by_kind = [s for s in shown if "iteration" in s.facts]
            assert len([s for s in by_kind if s.facts["iteration"] == SLOW]) == OPS_A_STEP


def test_the_hang_is_the_open_slices_and_the_culprit_is_marked(reported: Read) -> None:
    unfinished = {
        r: [s for s in reported.operations(r) if "unfinished" in s.categories[0]] for r in range(4)
    }
    assert {r: len(found) for r, found in unfinished.items()} == {0: 1, 1: 0, 2: 1, 3: 1}
    for rank in (0, 2, 3):
        [hang] = unfinished[rank]
        assert (
            hang.end == -1
            and hang.name.startswith("UNFINISHED all_reduce")
            and hang.facts["shapes"] == "[7]"
        )
        assert hang.begin == max(s.begin for s in reported.operations(rank))
    assert all(
        s.end >= s.begin for r in range(4) for s in reported.operations(r) if s not in unfinished[r]
    )
    marked = {
        reported.names[u]: [s.name for s in found]
        for u, found in reported.instants.items()
        if "rank" in reported.names[u]
    }
    assert marked == {"rank 1": ["culprit: not_entered"]}


def test_members_of_one_operation_are_joined_by_a_flow_that_ends_at_the_last(
    reported: Read,
) -> None:
    flows: dict[int, list[tuple[int, Slice, bool]]] = {}
    for rank in range(4):
        for slice in reported.operations(rank):
            assert len(slice.flows) + len(slice.ends) <= 1
            for flow in slice.flows + slice.ends:
                flows.setdefault(flow, []).append((rank, slice, bool(slice.ends)))
    for members in flows.values():
        assert len(members) >= 2 and len({rank for rank, _, _ in members}) == len(members)
        assert [last for _, _, last in sorted(members, key=lambda m: (m[1].begin, m[0]))] == [
            False
        ] * (len(members) - 1) + [True]
        assert len({(s.facts["group"], s.facts["seq"]) for _, s, _ in members}) == 1
    messages = [
        sorted((s.name, rank) for rank, s, _ in m)
        for m in flows.values()
        if any("send" in s.name for _, s, _ in m)
    ]
    assert sorted(messages) == sorted(
        [[("recv from 0", 2), ("send to 2", 0)], [("recv from 1", 3), ("send to 3", 1)]]
        * (STEPS + 1)
    )
    hang = [m for m in flows.values() if any(s.end < 0 for _, s, _ in m)]
    assert [sorted(rank for rank, _, _ in m) for m in hang] == [[0, 2, 3]]


def test_on_the_axis_no_rank_leaves_an_all_reduce_before_the_last_has_entered(
    reported: Read,
) -> None:
    """With clocks an hour apart this holds only where they are aligned."""
    instances: dict[tuple[object, object], list[Slice]] = {}
    for rank in range(4):
        for s in reported.operations(rank):
            if s.name.startswith(("all_reduce", "barrier")) and s.end >= 0:
                instances.setdefault((s.facts["group"], s.facts["seq"]), []).append(s)
    assert sum(len(m) == 4 for m in instances.values()) == 302 + 2 * STEPS
    for members in instances.values():
        assert max(s.begin for s in members) <= min(s.end for s in members) + 2000


def test_the_clock_that_is_an_hour_ahead_is_found_within_a_millisecond(
    made: Made, reported: Read
) -> None:
    [track] = [u for u, name in reported.names.items() if name == "clocks of the nodes"]
    near, far = sorted(reported.instants[track], key=lambda s: str(s.facts["ranks"]))
    assert (near.facts["ranks"], near.facts["offset_ns"]) == ("0-1", 0)
    error = int(str(far.facts["offset_ns"])) + AHEAD
    assert far.facts["ranks"] == "2-3" and "far" in str(far.facts["clock"])
    assert abs(error) <= int(str(far.facts["bound_ns"])) + 1000
    assert abs(error) < 1_000_000
    assert "clock far/" in made.said and ("-3600.0" in made.said or "-3599.9" in made.said)


def test_steps_phases_and_micro_batches_lie_on_tracks_of_their_own(reported: Read) -> None:
    tracks = reported.rank(0)
    assert [s.name for s in tracks["iterations"]] == [f"iteration {n}" for n in range(STEPS)]
    assert [s.name for s in tracks["phases"]] == ["forward", "reduce"] * STEPS
    assert [s.facts["number"] for s in tracks["micro-batches"]] == [0, 1] * STEPS
    for step, phase in zip(tracks["iterations"], tracks["phases"][::2], strict=True):
        inside = [s for s in tracks["MainThread"] if phase.begin <= s.begin <= phase.end]
        assert [s.facts["iteration"] for s in inside] == [step.facts["number"]] * 2
    assert [s.name for s in tracks["in flight"]] == ["all_reduce"] * STEPS
    first = next(s for s in tracks["MainThread"] if s.facts.get("iteration") == 0)
    assert (
        first.place is not None
        and first.place[0] == "micro_batches"
        and first.place[1].endswith("timeline_job.py")
    )
    assert (first.facts["bytes"], first.facts["shapes"], first.facts["dtype"]) == (
        16 * 4 * 4,
        "[16, 4]",
        "float32",
    )


def test_python_calls_nest_around_the_operations_that_they_made(
    exported: Read, reported: Read
) -> None:
    for rank in (0, 1):
        tracks = exported.rank(rank)
        calls = tracks["calls, MainThread"]
        steps = [s for s in calls if s.name == "train_step"]
        messages = [s for s in calls if s.name == "messages"]
        assert len(steps) == STEPS and len(messages) == STEPS + 1
        assert {s.depth for s in messages[1:]} == {steps[0].depth + 1} and all(
            s.end > 0 for s in steps
        )
        assert steps[0].place is not None and steps[0].place[1].endswith("timeline_job.py")
        sends = [s for s in tracks["MainThread"] if s.name.startswith("send")]
        for call, send in zip(messages, sends, strict=True):
            # Each record has its own pair of readings of the two clocks; a thread that is put
            # aside between the two readings of a pair makes it some microseconds wrong.
            assert call.begin - 100_000 <= send.begin and send.end <= call.end + 100_000
    # A bundle keeps the last 200 events of each thread.
    assert 0 < len(reported.rank(0)["calls, MainThread"]) <= 200


def test_slices_of_torch_profiler_lie_where_the_rank_recorded_the_same(exported: Read) -> None:
    """The profile's own annotation of a phase against the probe's mark of that phase: two clocks of
    one process.
    """
    for rank in (0, 1):
        tracks = exported.rank(rank)
        phases = [s for s in tracks["phases"] if s.name == "reduce"]
        ours = [
            s
            for name, track in tracks.items()
            if name.startswith("torch, thread")
            for s in track
            if s.name == "reduce of all"
        ]
        assert len(ours) == len(phases) == STEPS
        for phase, annotation in zip(phases, ours, strict=True):
            assert (
                phase.begin - 1_000_000 <= annotation.begin
                and annotation.end <= phase.end + 1_000_000
            )
        assert any(
            s.name == "aten::ones" and s.depth
            for name, t in tracks.items()
            if name.startswith("torch")
            for s in t
        )
    assert not any(name.startswith("torch") for name in exported.rank(2))


# --------------------------------------------------------------------------- stragglers


def test_the_late_rank_is_named_in_its_step_and_those_it_held_up_are_not(made: Made) -> None:
    found = made.stragglers
    assert [s["step"] for s in found["steps"]] == list(range(STEPS))
    slow = found["steps"][SLOW]
    assert (
        slow["last"] == 2
        and 0.8 * LATE_MS < slow["held_up_ms"] < 1.2 * slow["duration_ms"]
        and slow["waited_ms"] >= slow["held_up_ms"]
    )
    assert slow["held_up_ms"] == max(s["held_up_ms"] for s in found["steps"])
    by_rank = {r["rank"]: r for r in found["ranks"]}
    assert max(found["ranks"], key=lambda r: r["held_up_ms"])["rank"] == 2
    # Rank 3 came as late to everything that followed, because it had waited for rank 2.
    assert found["held_up_ms"][3][SLOW] < 0.3 * LATE_MS
    assert by_rank[3]["waited_ms"] > 0.8 * LATE_MS and by_rank[0]["waited_ms"] > 0.8 * LATE_MS
    assert slow["communication"] > 0.5 and all(0 <= s["communication"] <= 1 for s in found["steps"])
    far = next(g for g in found["groups"] if "2-3" in g["group"])
    assert (far["operations"], far["bytes"], far["last"]) == (2 * STEPS, 2 * STEPS * 256, 2)
    assert any("unfinished" in note for note in found["notes"])
    assert found["hang"] is None or found["hang"]["missing"] == [1], (
        "how long it has hung is a matter of the machine"
    )


def test_the_heat_map_is_a_picture_of_the_same_numbers(made: Made) -> None:
    picture = ElementTree.fromstring(made.file("heat.svg"))
    titles = [t.text or "" for t in picture.iter("{http://www.w3.org/2000/svg}title")]
    assert len(titles) == 4 * STEPS
    value = made.stragglers["held_up_ms"][2][SLOW]
    assert f"rank 2, step {SLOW}: {_ms(value)}" in titles
    words = [t.text for t in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert {"rank", "step (iteration)", "all steps"} <= set(words) and any(
        " and more" in str(w) for w in words
    )


def test_the_table_names_the_rank_in_its_first_line(made: Made) -> None:
    table = hangdoctor("trace", "stragglers", "kept", cwd=made.folder).stdout
    assert table.startswith("Rank 2 (node far) made the others wait most: ")
    assert "clock far/" in table and "the whole job" in table


# --------------------------------------------------------------------------- stacks


def test_folded_stacks_count_ranks_and_write_them_as_ranges(made: Made) -> None:
    lines = made.file("r.folded").decode().splitlines()
    counted = {line.rpartition(" ")[0]: int(line.rpartition(" ")[2]) for line in lines}
    [waiting] = [
        s for s in counted if s.startswith("ranks 0,2-3;MainThread;") and ";all_reduce (" in s
    ]
    [away] = [s for s in counted if s.startswith("rank 1;MainThread;")]
    assert counted[waiting] == 3 and counted[away] == 1 and "Event.wait (" in away
    assert waiting.split(";")[2].startswith("<module> (") and "timeline_job.py" in waiting


def test_folded_stacks_of_each_rank(made: Made) -> None:
    lines = made.file("each.folded").decode().splitlines()
    mine = [line.split(";", 1)[1] for line in lines if line.startswith("rank 2;MainThread;")]
    assert len(mine) == 1 and mine[0].endswith(" 1") and ";all_reduce (" in mine[0]
    assert {line.split(";")[0] for line in lines} == {f"rank {r}" for r in range(4)}


def test_speedscope_keeps_to_its_schema(made: Made) -> None:
    file = json.loads(made.file("r.speedscope.json"))
    assert file["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    assert set(file) <= {"$schema", "shared", "profiles", "name", "activeProfileIndex", "exporter"}
    frames = file["shared"]["frames"]
    assert all(
        set(f) <= {"name", "file", "line", "col"} and isinstance(f["name"], str) for f in frames
    )
    assert [p["name"] for p in file["profiles"]] == ["all ranks", *(f"rank {r}" for r in range(4))]
    for profile in file["profiles"]:
        assert profile["type"] == "sampled" and profile["unit"] in ("none", "seconds", "bytes")
        assert len(profile["samples"]) == len(profile["weights"]) > 0
        assert profile["endValue"] - profile["startValue"] == sum(profile["weights"])
        assert all(0 <= i < len(frames) for sample in profile["samples"] for i in sample)
    one = next(p for p in file["profiles"] if p["name"] == "rank 1")
    assert any(frames[s[-1]]["name"].endswith("wait") for s in one["samples"])
