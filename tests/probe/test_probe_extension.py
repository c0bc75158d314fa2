"""The hot path in C and in Python: the same boxes, and nothing of the job's is disturbed by either."""

from __future__ import annotations

import functools
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from hangdoctor.model.operations import P2P, Operation
from hangdoctor.probe import record_core as hot
from hangdoctor.readers.blackbox import Contents
from tests.support import forked
from tests.support.probe_ranks import SCRIPTS, environment, ranks

pytestmark = [pytest.mark.torch, pytest.mark.timeout(420)]

built = pytest.mark.skipif(
    hot.native is None, reason="the extension was not built here: no C compiler"
)
_PT_LOAD, _PT_TLS = 1, 7  # kinds of segments of an ELF file

both = pytest.mark.parametrize(
    "pure", [pytest.param("0", marks=built), "1"], ids=["extension", "python"]
)


WHATS = ["looks", "modes", "shapes", "recent", "threads", "handlers", "hook", "waits"]
Alone = Callable[[str, str], str]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Alone:
    """What `extension.py` prints of a scenario, with the extension ("0") or in Python ("1")."""

    @functools.cache
    def all_of(pure: str) -> dict[str, forked.Ended]:
        env = environment(tmp_path_factory.mktemp("boxes"), HANGDOCTOR_RECORD_PURE=pure)
        return forked.run(SCRIPTS / "extension.py", WHATS, env)

    def one(what: str, pure: str) -> str:
        ended = all_of(pure)[what]
        assert ended.returncode == 0, ended.stderr
        return ended.stdout.strip()

    return one


def recorded(folder: Path, pure: str) -> list[list[Operation]]:
    """Operations of 3 ranks that call everything, without what differs between any two runs."""
    saved = folder / "saved"
    saved.mkdir(parents=True)
    with ranks(
        "every_operation.py",
        3,
        environment(folder / "boxes", HANGDOCTOR_RECORD_PURE=pure),
        str(saved),
    ) as started:
        ended = [rank.end() for rank in started]
    assert [code for code, _, _ in ended] == [0, 0, 0], ended
    boxes = [
        msgspec.json.decode((saved / f"{rank}.json").read_bytes(), type=Contents)
        for rank in range(3)
    ]
    return [[_bare(box, op) for op in box.ops.operations] for box in boxes]


def _bare(box: Contents, op: Operation) -> Operation:
    name = next((t.name for t in box.threads if t.tid == op.thread), "?")
    keys = "keys" if op.detail else ""  # some have the port of the run
    detail = op.detail if op.op in P2P else keys
    return msgspec.structs.replace(
        op,
        entered_s=0.0,
        left_s=float(op.left_s > 0),
        thread=0,
        detail=f"{detail} {name}",
        waited=False,
    )


@built
def test_the_same_program_leaves_the_same_box(tmp_path: Path) -> None:
    in_c, in_python = recorded(tmp_path / "c", "0"), recorded(tmp_path / "python", "1")
    for rank, (ours, theirs) in enumerate(zip(in_c, in_python, strict=True)):
        assert len(ours) > 40, f"rank {rank}"
        # Two threads of the program take turns as they like: by group and number, not by serial
        # number.
        assert sorted(map(repr, ours)) == sorted(map(repr, theirs)), f"rank {rank}"


@both
def test_a_wrapped_function_looks_like_the_original(alone: Alone, pure: str) -> None:
    assert alone("looks", pure) == "as the original"


@built
def test_function_modes_and_subclasses_are_not_asked(alone: Alone) -> None:
    assert alone("modes", "0").startswith("same")


@built
def test_shapes_are_those_of_each_call(alone: Alone) -> None:
    said = alone("shapes", "0")
    assert said == alone("shapes", "1")
    assert "('[2, 3]', 'float32', 'sum', -1), ('[2, 3]', 'int64', 'max', -1)" in said
    assert "('[1, 2, 3, 4, 5, 6, 7]', 'float32', 'sum', -1)" in said


@built
def test_what_is_at_hand_of_earlier_calls_is_of_this_box(alone: Alone) -> None:
    said = alone("recent", "0")
    assert said == alone("recent", "1")
    assert said.count("('[80]', '<lambda> (line7.py:2)')") == 4


@built
def test_a_clock_that_stands_in_for_the_c_librarys_is_asked(tmp_path: Path) -> None:
    library = tmp_path / "clock.so"
    source = SCRIPTS / "other_clock.c"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    env = environment(tmp_path, HANGDOCTOR_RECORD_PURE="0", LD_PRELOAD=str(library))
    ended = forked.run(SCRIPTS / "extension.py", ["clock"], env)["clock"]
    assert ended.stdout.split() == ["True", "True"], ended


@both
def test_threads_come_and_go(alone: Alone, pure: str) -> None:
    assert alone("threads", pure) == "[250, 250, 250, 250] True 0"


@built
def test_interrupts_are_the_jobs_and_leave_nothing_half_done(alone: Alone) -> None:
    assert alone("handlers", "0") == "caught 100 all_reduce done 0"


@both
def test_called_where_no_python_frame_is_above(alone: Alone, pure: str) -> None:
    assert alone("hook", pure) == "on"


@built
def test_no_variable_is_of_a_thread() -> None:
    """Without memory for such variables of a library that was loaded late, the C library aborts the process."""
    folder = Path(hot.__file__).parent
    for path in [*folder.glob("record/*.so"), *folder.glob("calls/*.so")]:
        data = path.read_bytes()
        assert data[:5] == b"\x7fELF\x02"
        (begin,) = struct.unpack_from("<Q", data, 32)
        size, count = struct.unpack_from("<HH", data, 54)
        kinds = [struct.unpack_from("<I", data, begin + n * size)[0] for n in range(count)]
        assert _PT_LOAD in kinds and _PT_TLS not in kinds, path


@both
def test_handles_are_waited_for_by_threads_that_have_recorded_nothing(
    alone: Alone, pure: str
) -> None:
    assert alone("waits", pure) == "done done started done 0 on"
