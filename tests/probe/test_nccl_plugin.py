"""The profiler plugin, called by a driver in the order and with the structures of each of NCCL's versions.

NCCL itself needs a GPU: nothing here has run with it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hangdoctor.probe import retention
from hangdoctor.probe.nccl import format as fmt
from hangdoctor.readers.nccl_profiler import NcclEvents, Record
from tests.support.nccl_driver import (
    VERSIONS,
    Built,
    build,
    environment,
    events_in,
    private,
)

pytestmark = pytest.mark.timeout(120)
HASHES = ("00000000000000a1", "00000000000000b2")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build(tmp_path_factory.mktemp("nccl"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return private(tmp_path / "run")


@pytest.fixture(scope="module", params=VERSIONS)
def walked(
    request: pytest.FixtureRequest, built: Built, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[NcclEvents]:
    """What a living process has recorded that made every kind of event."""
    where = private(tmp_path_factory.mktemp("walk") / "run")
    process = built.start(where, request.param, "walk")
    assert process.stdout is not None
    said = process.stdout.readline()
    assert said.startswith("ready"), process.communicate()
    [events] = events_in(where)
    yield events
    _, err = process.communicate("\n", timeout=20)
    assert (process.returncode, err) == (0, "")


def of(events: NcclEvents, communicator: int, kind: int = fmt.COLLECTIVE) -> list[Record]:
    """The records of one of the two communicators, as far as they are of this kind."""
    [place] = [p for p, c in events.communicators.items() if c.hash == HASHES[communicator]]
    return [r for r in events.records if (r.comm, r.generation) == place and r.kind == kind]


def test_communicators_are_told_apart(walked: NcclEvents) -> None:
    assert walked.alive and walked.torn == 0 and not walked.overwritten
    [first, second] = walked.communicators.values()
    assert (first.hash, first.rank, second.hash, second.rank) == (HASHES[0], 0, HASHES[1], 1)
    told = walked.interface >= 4  # before, NCCL does not say how many ranks there are
    assert (first.ranks, second.ranks) == ((2, 4) if told else (0, 0))
    assert first.name == ("world" if told else "")
    assert first.live and second.live


def test_what_a_collective_is(walked: NcclEvents) -> None:
    first, second = of(walked, 0)[:2]
    assert (fmt.OPS[first.op], first.elements, first.bytes) == ("all_reduce", 1000, 4000)
    assert (fmt.OPS[second.op], second.elements, second.bytes) == ("broadcast", 3, 12)
    assert (fmt.TYPES[first.datatype], second.peer) == ("float32", 1)
    assert (first.number, second.number) == (1, 2), "one count for all kinds of collectives"
    assert (first.nccl_number, second.nccl_number) == (0, 0), "NCCL counts each kind"
    assert first.channels == (2 if walked.interface >= 4 else 0)


def test_enqueued_started_and_ended_are_three_moments(walked: NcclEvents) -> None:
    done, *_, started, enqueued = of(walked, 0)
    assert all(r.begun_ns and r.begun_ns <= r.launched_ns for r in (done, started, enqueued))
    sees = walked.interface >= 3  # the versions before report no kernels
    assert bool(enqueued.flags & fmt.SEES_KERNELS) == sees
    kernels = [(r.kernels_started, r.kernels_ended) for r in (done, started, enqueued)]
    assert kernels == ([(2, 2), (2, 0), (0, 0)] if sees else [(0, 0)] * 3)
    assert [r.ended for r in (done, started, enqueued)] == [sees, False, False]
    assert done.started_ns, "data that left the GPU shows it, too"
    assert bool(started.started_ns) == sees and not enqueued.started_ns
    if sees:
        assert done.launched_ns <= done.started_ns <= done.ended_ns


def test_the_progress_of_network_transfers(walked: NcclEvents) -> None:
    done, *_, stuck = of(walked, 0)
    assert (done.transfers_started, done.transfers_ended) == (2, 2)
    assert (done.steps_wanted, done.steps_started, done.steps_ended) == (4, 4, 4)
    assert (stuck.transfers_started, stuck.transfers_ended) == (1, 0)
    assert (stuck.steps_wanted, stuck.steps_started, stuck.steps_ended) == (2, 1, 0)
    assert stuck.moved_ns and done.moved_ns


def test_sends_and_receives_are_counted_by_peer(walked: NcclEvents) -> None:
    sends = [(r.peer, r.number) for r in of(walked, 1, fmt.SEND)]
    assert sends == [(3, 1), (3, 2), (0, 1), (1, 1)]
    assert [(r.peer, r.number) for r in of(walked, 1, fmt.RECEIVE)] == [(2, 1)]
    to_itself = of(walked, 1, fmt.SEND)[-1]
    assert not to_itself.sees_device, "NCCL reports no kernel of a copy"


def test_what_a_graph_captures_is_marked_where_nccl_says_so(walked: NcclEvents) -> None:
    captured = [r for r in of(walked, 0) if r.flags & fmt.CAPTURED]
    unknown = [r for r in of(walked, 0) if r.flags & fmt.CAPTURE_UNKNOWN]
    if walked.interface < 5:
        assert not captured and len(unknown) == len(of(walked, 0))
    else:
        assert [r.elements for r in captured] == [77] and not unknown


def test_copy_engine_collectives_are_recorded_without_an_end(walked: NcclEvents) -> None:
    found = [(fmt.OPS[r.op], r.elements) for r in of(walked, 0, fmt.COPY_ENGINE)]
    assert found == ([("all_gather_into_tensor", 64)] if walked.interface >= 6 else [])
    assert not any(r.sees_device for r in of(walked, 0, fmt.COPY_ENGINE))


# ----------------------------------------------------------------- the life of the file


@pytest.mark.parametrize("version", VERSIONS)
def test_a_process_that_destroys_its_communicators_leaves_nothing(
    built: Built, folder: Path, version: int
) -> None:
    assert built.run(folder, version, "end") == "files 0\n"
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("version", VERSIONS)
def test_one_that_ends_in_the_middle_leaves_its_file(
    built: Built, folder: Path, version: int
) -> None:
    process = built.start(folder, version, "walk")
    assert process.stdout is not None and process.stdout.readline()
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=20)
    [events] = events_in(folder)
    assert not events.alive and events.pid == process.pid
    assert len(of(events, 0)) >= 4


def test_without_kernels_nccl_is_asked_for_less(built: Built, folder: Path) -> None:
    built.run(folder, 6, "walk", HANGDOCTOR_NCCL_EVENTS="host")
    [events] = events_in(folder)
    assert events.records and not any(r.sees_device for r in events.records)
    assert not any(r.kernels_started for r in events.records)
    assert of(events, 0)[0].transfers_ended == 2


@pytest.mark.parametrize(
    "off", [{"HANGDOCTOR_NCCL_EVENTS": "off"}, {"HANGDOCTOR_DISABLE": "1"}], ids=str
)
def test_it_can_be_switched_off(built: Built, folder: Path, off: dict[str, str]) -> None:
    assert "files 0" in built.run(folder, 5, "many", "10", "1", **off)
    assert list(folder.iterdir()) == []


def test_a_folder_that_is_not_there_is_made(built: Built, folder: Path) -> None:
    built.run(folder / "new", 5, "walk")
    assert len(events_in(folder / "new")) == 1
    assert (folder / "new").stat().st_mode & 0o777 == 0o700


def test_in_a_folder_of_all_it_uses_a_private_one(built: Built, folder: Path) -> None:
    folder.chmod(0o1777)
    built.run(folder, 5, "walk")
    own = folder / f"hangdoctor-{os.geteuid()}"
    assert [path.name for path in folder.iterdir()] == [own.name]
    assert own.stat().st_mode & 0o777 == 0o700 and len(events_in(own)) == 1


@pytest.mark.parametrize("version", VERSIONS)
def test_where_nothing_can_be_written_the_job_runs_without(built: Built, version: int) -> None:
    assert "files 0" in built.run(Path("/proc/nothing"), version, "many", "10", "2")


def test_a_link_in_place_of_its_file_is_not_followed(built: Built, folder: Path) -> None:
    """A name cannot be known before the process is there, so the folder itself is the link."""
    private(folder / "real")
    (folder / "link").symlink_to(folder / "real")
    assert "files 0" in built.run(folder / "link", 5, "many", "10", "1")
    assert list((folder / "real").iterdir()) == []


def test_a_limit_on_files_is_no_signal(built: Built, folder: Path) -> None:
    limited = ["prlimit", "--fsize=100000", str(built.program), str(built.plugin), "5", "walk"]
    ended = subprocess.run(
        limited,
        env=environment(folder, {}),
        input="\n",
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (ended.returncode, ended.stderr) == (0, "") and "files 0" in ended.stdout
    assert list(folder.iterdir()) == []


BOXED = """
import ctypes, sys
from pathlib import Path
from hangdoctor.probe.box import BoxWriter
folder, library, plugin = sys.argv[1:]
box = BoxWriter(Path(folder), "job", 1 << 20)
ctypes.CDLL(library).be_stuck(plugin.encode(), 5, 0, 2, b"started")
print(*sorted(p.name for p in Path(folder).iterdir()), flush=True)
box.end_without_error()
"""


def test_beside_a_black_box_it_has_its_name_and_goes_with_it(built: Built, folder: Path) -> None:
    elsewhere = environment(folder / "not-here", {})
    words = [sys.executable, "-c", BOXED, str(folder), str(built.library), str(built.plugin)]
    ended = subprocess.run(words, env=elsewhere, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "")
    box, events = ended.stdout.split()
    assert events == box.removesuffix(".blackbox") + ".nccl"
    assert list(folder.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a file system of its own")
@pytest.mark.parametrize("kilobytes", [256, 1024, 4096])
def test_a_full_file_system_means_no_file(built: Built, tmp_path: Path, kilobytes: int) -> None:
    mount = (
        f'mount -t tmpfs -o size={kilobytes}k,mode=700 x {tmp_path} || exit 77; "$@"; ls {tmp_path}'
    )
    words = [str(built.program), str(built.plugin), "5", "walk"]
    ended = subprocess.run(
        ["unshare", "-m", "sh", "-c", mount, "sh", *words],
        env=os.environ | {"HANGDOCTOR_DIR": str(tmp_path)},
        input="\n",
        capture_output=True,
        text=True,
        timeout=60,
    )
    if ended.returncode == 77 or "unshare" in ended.stderr:
        pytest.skip("no file system can be mounted here")
    _, driver, *files = ended.stdout.splitlines()
    assert (ended.returncode, ended.stderr, driver) == (0, "", "files 0")
    assert len(files) == (1 if kilobytes == 4096 else 0)


def test_a_forked_child_leaves_its_parents_file_alone(built: Built, folder: Path) -> None:
    built.run(folder, 5, "fork")
    files = {e.pid: e for e in events_in(folder)}
    assert len(files) == 2
    sizes = {
        tuple(c.name for c in e.communicators.values()): [r.elements for r in e.records]
        for e in files.values()
    }
    assert sizes == {("parent",): [10, 10, 12], ("child",): [11]}


def test_it_may_be_loaded_and_unloaded_a_thousand_times(built: Built, folder: Path) -> None:
    assert built.run(folder, 5, "again", "1000") == "files 0\n"
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("version", VERSIONS)
def test_a_million_events_of_four_threads(built: Built, folder: Path, version: int) -> None:
    """An operation has 21 events and more: start, stop, states."""
    process = built.start(folder, version, "many", "12000", "4")
    assert process.stdout is not None
    grown, ready = process.stdout.readline(), process.stdout.readline()
    assert ready.startswith("ready"), process.communicate()
    [events] = events_in(folder)
    said, err = process.communicate("\n", timeout=20)
    assert (said, err) == ("files 0\n", "")
    assert int(grown.split()[1]) < 1024, "kB beyond the file, which was mapped before"
    assert events.torn == 0 and events.overwritten
    assert len(events.records) == 8192
    assert not any(c.live for c in events.communicators.values())


def test_files_of_ended_programs_are_tidied_up(built: Built, folder: Path) -> None:
    """A program without Python has no black box, which else decides how long a run is kept."""
    built.run(folder, 5, "walk")
    [path] = folder.glob("*.nccl")
    now_ns = path.stat().st_mtime_ns + 1
    ended = retention.ended_run(folder, now_ns)
    assert ended is not None and ended.files == [path]
    process = built.start(folder, 5, "walk")
    assert process.stdout is not None and process.stdout.readline()
    assert retention.ended_run(folder, now_ns) is None, "one of its processes lives"
    process.communicate("\n", timeout=20)
