"""The probe's small parts, each alone: names of ranks and jobs, call sites, signatures, whose an
exception is. No torch here.
"""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hangdoctor.probe import call_forms, identity, odd_calls, signatures, sites, whose_error
from hangdoctor.probe import format as fmt
from hangdoctor.probe.box import BoxWriter
from hangdoctor.probe.calls import format as calls_fmt
from hangdoctor.probe.calls import request
from hangdoctor.probe.group_table import as_range, in_order
from hangdoctor.probe.still_written import has_writer

# --------------------------------------------------------------------------- who this process is


@pytest.mark.parametrize(
    ("environ", "ranks"),
    [
        ({"RANK": "0", "WORLD_SIZE": "1"}, (0, 1, -1)),
        ({"RANK": "-1", "SLURM_PROCID": "3"}, (3, -1, -1)),
        ({"RANK": "x"}, (-1, -1, -1)),
        ({"RANK": str((1 << 31) - 1)}, ((1 << 31) - 1, -1, -1)),
        ({"RANK": str(1 << 31)}, (-1, -1, -1)),
        (
            {"OMPI_COMM_WORLD_RANK": "1", "PMI_RANK": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "0"},
            (1, -1, 0),
        ),
        ({"PALS_RANKID": "5", "PALS_NRANKS": "6", "PALS_LOCAL_RANKID": "1"}, (5, 6, 1)),
    ],
)
def test_ranks_from_the_environment(environ: dict[str, str], ranks: tuple[int, int, int]) -> None:
    assert identity.ranks_from(environ) == ranks


@pytest.mark.parametrize(
    ("environ", "key"),
    [
        ({"SLURM_JOB_ID": "7", "PBS_JOBID": "8"}, "slurm-7.x"),
        ({"PBS_JOBID": "8.server"}, "pbs-8.server"),
        ({"MASTER_PORT": "29500"}, "run-localhost-29500"),
        ({"MASTER_PORT": "1", "MASTER_ADDR": "n1", "TORCHELASTIC_RUN_ID": "r/1"}, "r_1-n1-1"),
        ({"PBS_JOBID": "x" * 200}, "pbs-" + "x" * 96),
        ({}, f"session-{os.getsid(0)}"),
        ({"MASTER_PORT": "1", "TORCHELASTIC_RUN_ID": ".."}, "-localhost-1"),
    ],
)
def test_names_of_jobs(environ: dict[str, str], key: str) -> None:
    assert identity.job_key(environ) == key


@pytest.mark.parametrize(
    ("told", "megabytes"),
    [
        ("", 4.0),
        ("x", 4.0),
        ("0", 4.0),
        ("-1", 4.0),
        ("0.5", 0.5),
        ("nan", 4.0),
        ("inf", 4.0),
        (str(1 << 30), 4.0),
    ],
)
def test_a_size_from_the_environment(told: str, megabytes: float) -> None:
    assert identity.megabytes({"SIZE": told}, "SIZE", 4.0) == megabytes
    assert identity.megabytes({}, "SIZE", 4.0) == 4.0


def test_this_process() -> None:
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    assert identity.start_ticks() == identity.start_ticks(os.getpid()) == ticks > 0
    assert identity.start_ticks(1 << 30) == 0
    assert len(identity.boot_id()) == 16 and any(identity.boot_id())
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    assert identity.start_ticks(child) == 0, "a zombie does not run"
    os.waitpid(child, 0)


def test_a_process_in_a_container_has_its_namespace_in_its_files_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    space = Path("/proc/self/ns/pid").stat().st_ino
    monkeypatch.setattr(identity, "_FIRST_NAMESPACE", space)
    assert identity.process_name(7) == "7"
    monkeypatch.setattr(identity, "_FIRST_NAMESPACE", space - 1)
    assert identity.process_name(7) == f"7-{space}"


# --------------------------------------------------------------------------- whose an exception is


def caught(code: str, filename: str = "/app/train.py") -> BaseException:
    scope: dict[str, Any] = {}
    try:
        exec(compile(code, filename, "exec"), scope)
    except BaseException as error:
        error.__traceback__ = (
            error.__traceback__.tb_next if error.__traceback__ else None
        )  # without this function
        return error
    raise AssertionError("nothing was raised")


OURS = str(Path(whose_error.__file__).with_name("wrap.py"))
LIBRARY = str(Path(os.__file__).parent)


@pytest.mark.parametrize(
    ("code", "filename", "ours"),
    [
        ("1 / 0", OURS, True),
        ("1 / 0", "/app/train.py", False),
        ("1 / 0", f"{LIBRARY}/json/decoder.py", True),
        ("1 / 0", f"{LIBRARY}/site-packages/x.py", False),
        ("1 / 0", f"{LIBRARY}/dist-packages/x.py", False),
        ("1 / 0", "<frozen os>", True),
        ("raise ValueError", OURS, False),
        ("raise ValueError('x')", OURS, True),
        ("assert False", OURS, True),
        ("raise MemoryError", OURS, True),
        ("class Limit(Exception): pass\nLimit.__module__ = 'app'\nraise Limit('x')", OURS, False),
        ("import hangdoctor.errors\nraise hangdoctor.errors.BadInput('x')", OURS, True),
    ],
)
def test_whose_an_exception_is(code: str, filename: str, ours: bool) -> None:
    error = caught(code, filename)
    assert whose_error.is_ours(error) is ours
    assert whose_error.suppress(OSError, type(error)).__exit__(type(error), error, None) is ours
    assert whose_error.suppress(KeyError).__exit__(type(error), error, None) is False
    assert whose_error.suppress(KeyError).__exit__(None, None, None) is False


def test_every_frame_must_be_ours() -> None:
    inner = compile("1 / 0", OURS, "exec")
    handler: dict[str, Any] = {"inner": inner}
    try:
        exec(compile("exec(inner)", "/app/handler.py", "exec"), handler)
    except ZeroDivisionError as error:
        error.__traceback__ = error.__traceback__.tb_next if error.__traceback__ else None
        assert not whose_error.is_ours(error)


def test_where_an_exception_came_from_and_what_it_says() -> None:
    error = caught("def f():\n    1 / 0\nf()")
    assert (
        whose_error.place(error.__traceback__) == "/app/train.py:2"
        and whose_error.place(None) == ""
    )
    assert whose_error.said(error) == "ZeroDivisionError: division by zero"
    assert (
        whose_error.said(OSError(2, "no such file", "/x"))
        == "FileNotFoundError: [Errno 2] no such file: '/x'"
    )
    assert whose_error.said(ValueError("a", [1], 7)) == "ValueError: a, 7"

    class Spoken(Exception):
        def __str__(self) -> str:
            raise AssertionError("code of the job")

    assert whose_error.said(Spoken("x")) == "Spoken"


# --------------------------------------------------------------------------- call sites


@pytest.fixture
def box(tmp_path: Path) -> Iterator[BoxWriter]:
    made = BoxWriter(tmp_path, "a-job", 1 << 20)
    yield made
    made.remove()


def frame_in(*files: str) -> types.FrameType:
    """The innermost frame of functions that call one another, the first in the last of these files."""
    scope: dict[str, Any] = {"sys": sys, "below": lambda: sys._getframe(1)}
    for n, file in enumerate(files):
        exec(
            compile(f"def f{n}(below=below):\n    return below()\nbelow = f{n}", file, "exec"),
            scope,
        )
    found = scope["below"]()
    assert isinstance(found, types.FrameType)
    return found


def text_of(box: BoxWriter, site: int) -> str:
    return next(raw.decode() for raw, known in box._ids.items() if known == site)


def test_the_site_is_the_innermost_frame_that_is_no_wrapper(box: BoxWriter) -> None:
    found = sites.Sites(box)
    frame = frame_in(
        "/x/torch/distributed/c10d.py", "/x/deepspeed/comm/comm.py", "/app/train.py", "/app/main.py"
    )
    site = found.find(frame)
    assert text_of(box, site) == "f2 (/app/train.py:2)"
    caller = frame.f_back.f_back if frame.f_back else None
    assert found.find(frame) == site and caller is not None
    assert list(found.known) == [(id(caller.f_code), caller.f_lasti)], "a wrapper has many callers"
    direct = frame_in("/app/other.py")
    assert text_of(box, found.find(direct)) == "f0 (/app/other.py:2)" and len(found.known) == 2
    assert found.find(direct) == found.find(direct) and found.find(None) == 0


def test_where_all_are_wrappers_the_outermost_is_the_site(
    box: BoxWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sites, "is_wrapper", lambda filename: True)
    frame = frame_in("/a.py", "/b.py")
    outermost = frame
    while outermost.f_back is not None:
        outermost = outermost.f_back
    found = sites.Sites(box)
    assert text_of(box, found.find(frame)).endswith(
        f"({outermost.f_code.co_filename}:{outermost.f_lineno})"
    )
    assert not found.known, "whoever is above it is not the same each time"


@pytest.mark.parametrize(
    ("file", "skipped"),
    [
        ("/x/torch/nn/x.py", True),
        ("/x/deepspeed/comm/torch.py", True),
        ("/x/deepspeed/utils/x.py", True),
        ("/x/deepspeed/runtime/pipe/p2p.py", True),
        ("/x/deepspeed/runtime/engine.py", False),
        ("/app/torch.py", False),
        (sites.__file__, True),
        ("/app/train.py", False),
    ],
)
def test_which_files_are_wrappers(file: str, skipped: bool, box: BoxWriter) -> None:
    assert sites.is_wrapper(file) is skipped
    found = sites.Sites(box)
    frame = frame_in(file, "/app/main.py")
    assert found.judge(frame.f_code) == int(skipped)
    located = found.locate(frame, frame.f_code)
    assert located & 1 == int(not skipped) and located >> 1 == found.find(frame) > 0
    assert found.locate(frame, None) & 1 == 0


def test_the_table_of_sites_has_an_end(box: BoxWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sites, "_SITES_MAX", 2)
    found = sites.Sites(box)
    frames = [frame_in(f"/app/{n}.py") for n in range(4)]
    assert len({found.find(f) for f in frames}) == 4 and len(found.known) == 2
    assert [found.judge(f.f_code) for f in frames] == [0, 0, 2, 2]
    assert [found.locate(f, f.f_code) & 1 for f in frames] == [1, 1, 0, 0]


# --------------------------------------------------------------------------- signatures


class Tensor:
    def __init__(self, *shape: int, dtype: str = "torch.float32") -> None:
        self.shape, self.dtype = shape, dtype


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signatures, "_plain", frozenset({Tensor}))
    monkeypatch.setattr(signatures, "_reduce_names", {id(None): "sum"})


F32 = "torch.float32"
A, B = Tensor(4), Tensor(5)
CALLS: list[tuple[Any, tuple[Any, ...], dict[str, Any], Any]] = [
    ("all_reduce", (A,), {}, (("all_reduce", (4,), F32, "sum"), None, None, None, False)),
    (
        "all_reduce",
        (A,),
        {"group": 7, "async_op": True},
        (("all_reduce", (4,), F32, "sum"), 7, None, None, True),
    ),
    (
        "all_reduce",
        (A,),
        {"async_op": 1},
        (("all_reduce", (4,), F32, "sum"), None, None, None, False),
    ),
    (
        "all_reduce",
        (object(), "mine"),
        {},
        (("all_reduce", "", "", "other"), None, None, None, False),
    ),
    (
        "all_reduce_coalesced",
        ([A, B],),
        {},
        (("all_reduce_coalesced", (2, ((4,), (5,))), F32, "sum"), None, None, None, False),
    ),
    (
        "all_reduce_coalesced",
        ([],),
        {},
        (("all_reduce_coalesced", "", "", "sum"), None, None, None, False),
    ),
    ("reduce", (A, 3), {"group_dst": 1}, (("reduce", (4,), F32, "sum"), None, 3, 1, False)),
    ("broadcast", (A,), {"src": 2, "group": 7}, (("broadcast", (4,), F32, ""), 7, 2, None, False)),
    (
        "all_gather",
        ([A, Tensor(4)], A),
        {},
        (("all_gather", (4,), F32, ""), None, None, None, False),
    ),
    ("all_gather", ([B, Tensor(4)], A), {}, (("all_gather", "", F32, ""), None, None, None, False)),
    ("all_gather", ([A, B], A), {}, (("all_gather", "", F32, ""), None, None, None, False)),
    ("all_gather", ([], A), {}, (("all_gather", (4,), F32, ""), None, None, None, False)),
    ("gather", (A,), {}, (("gather", (4,), F32, ""), None, 0, None, False)),
    ("gather", (A,), {"group_dst": 2}, (("gather", (4,), F32, ""), None, None, 2, False)),
    ("scatter", (A,), {"src": 3}, (("scatter", (4,), F32, ""), None, 3, None, False)),
    (
        "all_to_all_single",
        (A, B),
        {},
        (("all_to_all_single", (5,), F32, ""), None, None, None, False),
    ),
    (
        "all_to_all_single",
        (A, B, [2, 2]),
        {},
        (("all_to_all_single", "", F32, ""), None, None, None, False),
    ),
    (
        "all_to_all_single",
        (A, B, []),
        {},
        (("all_to_all_single", (5,), F32, ""), None, None, None, False),
    ),
    (
        "all_to_all_single",
        (A, B),
        {"input_split_sizes": object()},
        (("all_to_all_single", "", F32, ""), None, None, None, False),
    ),
    (
        "all_to_all",
        ([A, A], [A, A]),
        {},
        (("all_to_all", (2, ((4,), (4,))), F32, ""), None, None, None, False),
    ),
    ("all_to_all", ([A, B], [A, B]), {}, (("all_to_all", "", F32, ""), None, None, None, False)),
    ("all_to_all", ([A, A], [B, B]), {}, (("all_to_all", "", F32, ""), None, None, None, False)),
    (
        "all_gather_object",
        ([], 1, 7),
        {},
        (("all_gather_object", "", "", ""), 7, None, None, False),
    ),
    ("gather_object", (1,), {"group": 7}, (("gather_object", "", "", ""), 7, 0, None, False)),
    ("gather_object", (1, None, 3), {}, (("gather_object", "", "", ""), None, 3, None, False)),
    (
        "scatter_object_list",
        ([], [], 2),
        {},
        (("scatter_object_list", "", "", ""), None, 2, None, False),
    ),
    ("monitored_barrier", (7,), {}, (("monitored_barrier", "", "", ""), 7, None, None, False)),
    ("barrier", (), {"async_op": True}, (("barrier", "", "", ""), None, None, None, True)),
    (
        "broadcast_object_list",
        ([],),
        {},
        (("broadcast_object_list", "", "", ""), None, 0, None, False),
    ),
]


@pytest.mark.parametrize(("name", "args", "kwargs", "described"), CALLS)
def test_what_a_call_is_described_by(
    plain: None, name: str, args: Any, kwargs: Any, described: Any
) -> None:
    assert (signatures.COLLECTIVES | signatures.NAMED)[name](*args, **kwargs) == described


def test_sends_and_receives(plain: None) -> None:
    for name, kept, asynchronous in (("send", "send", False), ("isend", "send", True)):
        assert signatures.P2P[name](A, 3, group_dst=1) == (
            (kept, (4,), F32, ""),
            None,
            3,
            1,
            asynchronous,
        )
    for name, kept, asynchronous in (("recv", "recv", False), ("irecv", "recv", True)):
        assert signatures.P2P[name](A, None, 7) == (
            (kept, (4,), F32, ""),
            7,
            None,
            None,
            asynchronous,
        )


def test_of_a_long_list_the_first_are_looked_at(plain: None) -> None:
    shapes, _ = signatures._of_list([A] * 8 + [B])
    assert shapes == (9, ((4,),) * 8)
    assert signatures.render(("reduce_scatter", shapes, F32, "sum")).endswith("[4],[4],...(9)")
    assert (
        signatures.render(("reduce_scatter", (1, ((4, 2),)), F32, "sum"))
        == "reduce_scatter\tsum\tfloat32\t[4, 2]"
    )
    assert signatures.render(("barrier", "", "", "")) == "barrier\t\t\t"
    assert signatures.render(("send", (2, 3), F32)) == "send\t\tfloat32\t[2, 3]"


def test_modes_of_the_job_are_left_while_a_tensor_is_looked_at(
    plain: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = []

    class Outside:
        def __enter__(self) -> None:
            left.append("entered")

        def __exit__(self, *exc: object) -> None:
            left.append("left")

    monkeypatch.setattr(signatures.torchnames, "outside_of_modes", Outside)
    assert signatures.all_reduce(A)[0][1] == (4,) and left == []
    monkeypatch.setattr(signatures, "_modes", lambda: 1)
    assert signatures.all_reduce(A)[0][1] == (4,) and left == ["entered", "left"]


def test_a_call_with_parameters_of_a_later_torch(plain: None) -> None:
    known = odd_calls.describe_known(signatures.broadcast, (A, 3), {"group": 7, "new": 1})
    assert known == (("broadcast", (4,), F32, ""), 7, 3, None, False)
    assert odd_calls.describe_known(signatures.barrier, (1, 2, 3, 4, 5), {}) == (
        ("barrier", "", "", ""),
        1,
        None,
        None,
        False,
    )
    assert odd_calls.describe_known(signatures.broadcast, (), {}) is None


def test_a_call_that_cannot_be_described_keeps_its_group_and_root() -> None:
    bare = odd_calls._bare
    assert bare(signatures.broadcast, (A, 3, 7), {}) == (
        ("broadcast", "", "", ""),
        7,
        3,
        None,
        False,
    )
    assert bare(signatures.reduce, (A,), {"dst": 2, "group_dst": 1}) == (
        ("reduce", "", "", ""),
        None,
        2,
        1,
        False,
    )
    assert bare(signatures.gather, (A,), {}) == (("gather", "", "", ""), None, 0, None, False)
    assert bare(signatures.isend, (A, 1), {}) == (("send", "", "", ""), None, 1, None, True)
    assert bare(signatures.all_reduce, (A,), {"async_op": True}) == (
        ("all_reduce", "", "", ""),
        None,
        None,
        None,
        True,
    )


def test_what_the_extension_learns_of_a_call() -> None:
    names, form = call_forms.form_of(signatures.broadcast, 0)
    assert names == ("tensor", "src", "group", "async_op", "group_src")
    assert form == {
        "fast": 1,
        "required": 1,
        "zero_root": 0,
        "always_async": 0,
        "direction": 0,
        "absent": 0,
        "tensor": 0,
        "root": 1,
        "group": 2,
        "async": 3,
        "group_root": 4,
    }
    assert call_forms.tag_flags((A, 1, None, 7), {}) == 8 << fmt.TAG_SHIFT
    assert call_forms.tag_flags((A, 1), {}) == 1 << fmt.TAG_SHIFT
    for strange in ("a", -1, fmt.TAG_LIMIT, True):
        assert call_forms.tag_flags((A,), {"tag": strange}) == 0
    _, form = call_forms.form_of(signatures.all_to_all_single, 0)
    assert form["absent"] == (1 << 2) | (1 << 3) and form["tensor"] == 1
    _, form = call_forms.form_of(signatures.irecv, 2)
    assert (form["always_async"], form["direction"], form["root"], form["required"]) == (1, 2, 1, 1)
    assert form["tag"] == 3
    _, form = call_forms.form_of(signatures.gather, 0)
    assert (form["zero_root"], form["fast"]) == (1, 1)
    assert call_forms.form_of(signatures.all_gather, 0)[1]["fast"] == 0


# ----------------------------------------------------------------- regions, groups, requests, files


@pytest.mark.parametrize("size", [1 << 20, fmt.DEFAULT_BYTES, (4 << 20) + 12345])
@pytest.mark.parametrize("layout", [fmt, calls_fmt])
def test_regions_follow_one_another_and_fill_the_file(layout: Any, size: int) -> None:
    regions = sorted(layout.regions(size).values())
    assert regions[0][0] == layout.HEADER_BYTES
    ends = [begin + count * width for begin, count, width in regions]
    for end, (begin, _, _) in zip(ends, regions[1:], strict=False):
        assert 0 <= begin - end < 64
    assert size - 2 * 128 < ends[-1] <= size
    records = layout.regions(size)["ring"][1]
    if layout is fmt:
        assert records & (records - 1) == 0 and size / 3 < records * fmt.RECORD_BYTES


def test_groups_in_their_order() -> None:
    assert in_order({4: 0, 6: 1, 8: 2}) == range(4, 9, 2)
    assert (
        in_order({4: 1, 6: 0}) == [6, 4] and in_order({7: 0}) == range(7, 8) and in_order({}) == []
    )
    assert (
        as_range([0, 1, 3, 3]) == [0, 1, 3, 3]
        and as_range([0, 1, 1, 3]) == [0, 1, 1, 3]
        and as_range([5, 5]) == [5, 5]
    )
    assert as_range([0, 2]) == range(0, 3, 2) and as_range([3, 1]) == [3, 1]


def told(**fields: object) -> request.Request | None:
    import json

    return request.decode(json.dumps({"serial": 1, "on": True} | fields))


def test_requests_come_back_and_damaged_ones_are_none() -> None:
    whole = request.Request(
        serial=3,
        on=False,
        follow=("a.b",),
        ignore=("c",),
        from_iteration=7,
        ranks="0-3,8",
        size_mb=2.5,
    )
    assert request.decode(request.encode(whole)) == whole
    assert told(later=1) == told() == request.Request(1, True)
    assert told(follow=["", "x"]) == request.Request(1, True, ("x",)) and told(
        size_mb=2
    ) == request.Request(1, True, size_mb=2)
    for fields in (
        {"serial": "1"},
        {"on": 1},
        {"follow": "x"},
        {"ignore": [1]},
        {"from_iteration": "1"},
        {"ranks": 3},
        {"ranks": "a"},
        {"ranks": "0-x"},
        {"size_mb": "1"},
    ):
        assert told(**fields) is None, fields
    assert (
        request.decode("[]") is None
        and request.decode("[" * 100_000) is None
        and request.decode("{}") is None
    )


def test_which_rank_a_request_is_for() -> None:
    some = request.Request(1, True, ranks="0-3,8")
    assert [r for r in range(12) if request.concerns(some, r)] == [0, 1, 2, 3, 8]
    assert request.concerns(request.Request(1, True), 99)


@pytest.mark.parametrize(
    ("argv", "launcher"),
    [
        (["python", "/x/bin/torchrun", "t.py"], True),
        (["python", "-m", "torch.distributed.run"], True),
        (["python", "-u", "-m", "accelerate.x"], True),
        (["python", "-m", "train"], False),
        (["python", "train.py", "torchrun"], False),
        (["python", "-m"], False),
        (["python"], False),
        (["python", "-a", "-b", "-c", "-d", "torchrun"], True),
        (["python", "-a", "-b", "-c", "-d", "-e", "torchrun"], False),
    ],
)
def test_launchers(argv: list[str], launcher: bool) -> None:
    assert request.is_launcher(argv) is launcher


def test_a_rank_itself_and_its_children() -> None:
    environ = {"RANK": "0", "WORLD_SIZE": "2"}
    assert not request.is_rank_itself(environ, ["python", "torchrun"])
    assert request.is_rank_itself(environ, ["python", "t.py"]) and not request.is_rank_itself(
        environ, ["python", "t.py"]
    )
    environ["RANK"] = "1"
    assert request.is_rank_itself(environ, ["python", "t.py"]), (
        "a spawned process that was given a rank of its own"
    )
    assert not request.is_rank_itself({}, ["python", "t.py"])


def test_a_request_in_a_folder(tmp_path: Path) -> None:
    assert request.read(tmp_path) is None
    request.write(tmp_path, request.Request(1, True))
    assert request.read(tmp_path) == request.Request(1, True)
    file = tmp_path / request.NAME
    assert file.stat().st_mode & 0o777 == 0o600 and [p.name for p in tmp_path.iterdir()] == [
        request.NAME
    ]
    for mode in (0o620, 0o602):
        file.chmod(mode)
        assert request.read(tmp_path) is None, "others could have written it"
    file.unlink()
    file.mkdir()
    assert request.read(tmp_path) is None
    if os.geteuid() == 0:
        theirs = tmp_path / "theirs"
        theirs.mkdir()
        os.chown(theirs, 65_533, 65_533)
        request.write(theirs, request.Request(1, True))
        assert (theirs / request.NAME).stat().st_uid == 65_533, "whose ranks read it"


def test_who_writes_to_a_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    assert has_writer(path) is None
    path.write_text("x")
    assert has_writer(path) is False
    with path.open("a"):
        assert has_writer(path) is True
    assert has_writer(path) is False
