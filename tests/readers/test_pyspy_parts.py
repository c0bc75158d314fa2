"""py-spy's output, part by part: frames, names of nodes, command lines, what is no rank."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hangdoctor.errors import BadInput
from hangdoctor.readers import pyspy_ranks, pyspy_text, rank_environment


@pytest.mark.parametrize(
    ("line", "frame"),
    [
        ("    f (a.py:3)", ("f", "a.py", 3)),
        ("    f (a.py)", ("f", "a.py", 0)),
        ("    f (a:x.py)", ("f", "a:x.py", 0)),
        ("    f  (a.py:3)", None),
        ("    f (x) (a.py:3)", ("f (x)", "a.py", 3)),
        ("    f (x)  (a.py:3)", ("f", "x)  (a.py", 3)),
        ("    (a.py:3)", None),
        ("     f (a.py:3)", None),
        ("    f (a.py:3", None),
        ("    (  (x)", None),
        ("    a b (c d.py:1)", ("a b", "c d.py", 1)),
    ],
)
def test_frames(line: str, frame: tuple[str, str, int] | None) -> None:
    found = pyspy_text.frame_of(line)
    assert (None if found is None else (found.name, found.file, found.line)) == frame


@pytest.mark.parametrize(
    ("name", "node"),
    [
        ("trace-r7i6n0.out", "r7i6n0"),
        ("stacks_n1.txt", "n1"),
        ("py-spy.n2.json.err", "n2"),
        ("n3.out", "n3"),
        ("trace-n1-77.out", "n1-77"),
    ],
)
def test_nodes_of_files(name: str, node: str) -> None:
    assert pyspy_text.node_of(Path(name)) == node


@pytest.mark.parametrize(
    ("node", "rest"),
    [
        ("n1-77", "n1"),
        ("77", ""),
        ("n177", "n177"),
        ("n1_pid77", "n1_pid77"),
        ("n1-pid-77", "n1"),
        ("77-n1", "n1"),
    ],
)
def test_the_process_in_a_files_name_is_no_part_of_the_node(node: str, rest: str) -> None:
    assert pyspy_text.without_pid(node, 77) == rest


def stacks(*processes: tuple[int, str], frame: str = "f (a.py:1)") -> str:
    return "".join(
        f"Process {pid}: {command}\nThread 0x1F (active+gil)\n    {frame}\n\n"
        for pid, command in processes
    )


def test_threads_and_prefixes_of_hosts() -> None:
    text = 'n1: Process 7: python a.py\nn2: Process 8: python a.py\nn1: Thread 0x1F (active+gil): "Main"\nn1:     f (a.py:1)\nn2: Thread 8 (idle)\nn2:     g (b.py:2)\n'
    text += "n1: Error: x\nfailed\nThread 9 (idle)\n    h (c.py:3)\n"
    found = pyspy_text.parse_text(text, "here")
    assert [(p.node, p.pid, p.command) for p in found.processes] == [
        ("n1", 7, "python a.py"),
        ("n2", 8, "python a.py"),
    ]
    [[one], [two]] = [p.threads for p in found.processes]
    assert (one.tid, one.name, one.gil, one.active, str(one.frames[0])) == (
        31,
        "Main",
        True,
        True,
        "f (a.py:1)",
    )
    assert (two.tid, two.name, two.gil, two.active, str(two.frames[0])) == (
        8,
        "",
        False,
        False,
        "g (b.py:2)",
    )
    assert found.errors == ["Error: x", "failed"]


def test_ranks_are_ordered_by_node_and_local_rank(tmp_path: Path) -> None:
    for node in ("n10", "n9"):
        processes = [(100 - n, f"python t.py --local_rank={n}") for n in range(2)]
        (tmp_path / f"trace-{node}.out").write_text(stacks(*processes))
    capture = pyspy_ranks.read_files(sorted(tmp_path.iterdir()))
    assert [
        (r.rank, r.node, r.local_rank, r.pid, r.world_size)
        for r in sorted(capture.ranks(), key=lambda r: r.rank or 0)
    ] == [
        (0, "n9", 0, 100, 4),
        (1, "n9", 1, 99, 4),
        (2, "n10", 0, 100, 4),
        (3, "n10", 1, 99, 4),
    ]
    assert (
        capture.numbered
        and capture.world_size == 4
        and any("numbered by node, then by local rank" in n for n in capture.notes)
    )


def test_a_host_of_a_prefix_keeps_a_number_that_is_a_process(tmp_path: Path) -> None:
    path = tmp_path / "trace-x.out"
    path.write_text("".join(f"n1-7: {line}\n" for line in stacks((7, "python t.py")).splitlines()))
    [rank] = pyspy_ranks.read_files([path]).ranks()
    assert rank.node == "n1-7"


def test_what_is_no_rank_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "trace-n1.out"
    several = [(n, "python t.py") for n in range(1, 4)]
    other = [(4, "python other.py"), (5, "python -m tool.x"), (6, "python")]
    path.write_text(stacks(*several, *other[:2]) + stacks((8, "torchrun t.py")))
    capture = pyspy_ranks.read_files([path])
    assert [r.pid for r in capture.ranks()] == [1, 2, 3] and any(
        "1 launchers, 2 other programs" in n for n in capture.notes
    )
    path.write_text(stacks(*several[:2], *other[:2]))
    assert len(pyspy_ranks.read_files([path]).ranks()) == 4, "two of four are no majority"
    path.write_text(stacks(*several[:1], frame="f (/x/torch/utils/data/_utils/worker.py:3)"))
    assert len(pyspy_ranks.read_files([path]).ranks()) == 1, (
        "where nothing else is there, it is shown"
    )


def test_files_without_a_stack_are_named(tmp_path: Path) -> None:
    paths = [tmp_path / f"trace-{n}.out" for n in range(6)]
    for path in paths:
        path.write_text("Process 7: x\n")
    with pytest.raises(BadInput) as error:
        pyspy_ranks.read_files(paths)
    assert str(error.value).endswith(", ".join(str(p) for p in paths[:5]))


def test_json_with_and_without_a_command_line() -> None:
    frames = [{"name": "f", "filename": "a.py", "line": 3}]
    thread = {
        "pid": 7,
        "thread_id": 2,
        "frames": frames,
        "process_info": {"pid": 7, "command_line": "python t.py"},
    }
    bare = {k: v for k, v in thread.items() if k != "process_info"}
    found = pyspy_text.parse_json_stream(
        f"{json.dumps([thread])}\n{json.dumps([bare | {'process_info': None}])}\n", "n1"
    )
    assert [(p.pid, p.command, p.node) for p in found.processes] == [
        (7, "python t.py", "n1"),
        (7, "", "n1"),
    ]
    found = pyspy_text.parse_json_stream(
        f"{json.dumps([thread | {'pid': 'x'}])}\n{json.dumps([thread])}", "n1"
    )
    assert len(found.processes) == 1 and len(found.errors) == 1


@pytest.mark.parametrize(
    ("argv", "launcher"),
    [
        (["/usr/bin/torchrun", "t.py"], True),
        (["python", "-m", "torch.distributed.run", "t.py"], True),
        (["python", "/x/bin/torchrun", "t.py"], True),
        (["python", "t.py"], False),
        (["python", "-u", "t.py", "torchrun"], False),
        (["python"], False),
        ([], False),
        (["bash", "-c", "x"], False),
    ],
)
def test_launchers(argv: list[str], launcher: bool) -> None:
    assert rank_environment.is_launcher(argv) is launcher


@pytest.mark.parametrize(
    ("environ", "numbers"),
    [
        (
            {"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"},
            (3, 8, 1, 2),
        ),
        ({"SLURM_PROCID": "3", "SLURM_NTASKS": "8"}, (3, 8, -1, 0)),
        ({}, None),
        ({"RANK": "x"}, None),
        ({"RANK": "-1"}, None),
    ],
)
def test_ranks_of_an_environment(environ: dict[str, str], numbers: tuple[int, ...] | None) -> None:
    found = rank_environment.rank_of(environ)
    assert (None if found is None else tuple(found)) == numbers


def test_damaged_json_ends_the_search_where_no_other_list_begins() -> None:
    for text, errors, pids in (("[1,", 1, []), ("[", 1, []), ("no list", 0, [])):
        found = pyspy_text.parse_json_stream(text, "n1")
        assert (len(found.errors), [p.pid for p in found.processes]) == (errors, pids), text
    whole = [{"pid": 7, "thread_id": 7, "frames": []}]
    found = pyspy_text.parse_json_stream(f"[1,\n{json.dumps(whole)}", "n1")
    assert (len(found.errors), [p.pid for p in found.processes]) == (1, [7])


def test_a_file_of_errors_alone_is_py_spys_and_other_text_is_not(tmp_path: Path) -> None:
    path = tmp_path / "trace-n1.out"
    path.write_text("Error: Failed to suspend process\n")
    assert len(pyspy_text.read_file(path).errors) == 1
    path.write_text("hello\n")
    with pytest.raises(BadInput, match="is not the output of py-spy dump"):
        pyspy_text.read_file(path)


def test_what_is_missing_is_counted_over_all_files(tmp_path: Path) -> None:
    for node in ("n1", "n2"):
        text = stacks((7, "python t.py")) + "Error: x\nError: y\n"
        text += "".join(f"Process {pid}: python t.py\n" for pid in range(20, 29))
        (tmp_path / f"trace-{node}.out").write_text(text)
    capture = pyspy_ranks.read_files(sorted(tmp_path.iterdir()))
    assert "these files have 4 errors: " in "\n".join(capture.notes)
    first = ", ".join(map(str, range(20, 28)))
    assert f"trace-n2.out: no stack of 9 processes ({first})" in capture.notes
    assert {rank.local_rank for rank in capture.ranks()} == {-1}, "no word of it anywhere"


def test_the_program_of_a_command_line() -> None:
    for command, script in (
        ("python -u /a/t.py --x y.py", "t.py"),
        ("python -m pkg.train --x", "pkg.train"),
        ("python -m", ""),
        ("python", ""),
    ):
        assert pyspy_ranks._script(pyspy_text.TextProcess(1, command, "n1")) == script


def test_names_are_sorted_by_the_numbers_in_them() -> None:
    names = ["n10", "n9", "m10", "10", "9"]
    assert sorted(names, key=lambda n: list(pyspy_ranks._natural(n))) == [
        "9",
        "10",
        "m10",
        "n9",
        "n10",
    ]


def test_a_second_stack_without_its_head_is_of_another_process() -> None:
    """In containers every process is number 1: its other threads tell it from a later sample."""
    stack = 'Thread 1 (idle): "MainThread"\n    step (melt.py:{})\nThread {} (idle): "reader"\n    select (io.py:3)\n'
    head = "Process 1: python melt.py\n"
    other = pyspy_text.parse_text(
        head + stack.format(31, 70) + "# and rank 5\n" + stack.format(37, 71), ""
    )
    assert [p.threads[0].frames[0].line for p in pyspy_ranks._once(other.processes)] == [31, 37]
    later = pyspy_text.parse_text(
        head + stack.format(31, 70) + "10 s later\n" + stack.format(37, 70), ""
    )
    [process] = pyspy_ranks._once(later.processes)
    assert process.earlier[0].frames[0].line == 31 and process.threads[0].frames[0].line == 37


def test_headings_of_ranks_above_stacks_without_their_heads(tmp_path: Path) -> None:
    """The numbers of threads are addresses then, in another order than the ranks."""
    stack = 'the stack of rank {}:\nThread 0x7F{}6E7C01740 (idle): "MainThread"\n    step (melt.py:{})\n'
    (tmp_path / "stacks.txt").write_text(stack.format(0, "F", 31) + stack.format(1, "1", 37))
    capture = pyspy_ranks.read_files([tmp_path / "stacks.txt"])
    lines = {r.rank: r.samples[-1].threads[0].frames[0].line for r in capture.ranks()}
    assert lines == {0: 31, 1: 37} and not capture.numbered
    assert [rank.pid for rank in capture.ranks()] == [0, 0], "an address is no process"
