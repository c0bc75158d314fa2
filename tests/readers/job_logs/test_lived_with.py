"""Who went on for long after an error lived with it; and who is silent where all others waited, by
its file or task.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from hangdoctor.readers.job_logs.numbered_files import ranks_of
from tests.support.read_logs import diagnosed, named

LIMIT = "RuntimeError: [unbound_buffer.cc:78] Timed out waiting 11000ms for recv operation to complete\n"


def trace(head: str, function: str, error: str) -> str:
    """An exception with `head` before each line."""
    lines = ["Traceback (most recent call last):", f'  File "/app/fit.py", line 33, in {function}']
    return "".join(f"{head}{line}\n" for line in [*lines, "    run()", error])


def waited(rank: int, head: str = "") -> str:
    """It was in a collective until its limit."""
    own = f"{head}[rank{rank}]:"
    frame = f'{own}   File "/v/site-packages/torch/distributed/distributed_c10d.py", line 3252, in all_reduce\n'
    begin = f'{own} Traceback (most recent call last):\n{own}   File "/app/fit.py", line 33, in main\n{own}     dist.all_reduce(g)\n'
    return f"{begin}{frame}{own} {LIMIT}"


def spoken(rank: int, count: int) -> str:
    return "".join(f"[rank{rank}]: saw chunk {n} of file {n % 7}\n" for n in range(count))


@pytest.mark.parametrize(("after", "ranks"), [(150, [2]), (20, [1])])
def test_a_rank_that_printed_much_more_had_not_ended_by_it(
    tmp_path: Path, after: int, ranks: list[int]
) -> None:
    """Rank 1 caught its KeyError at the top of its program, and rank 2 ended by another one."""
    text = trace("[rank1]: ", "<module>", "KeyError: 'EURUSD'") + spoken(1, after)
    found = diagnosed(tmp_path, text + trace("[rank2]: ", "<module>", "ZeroDivisionError: by zero"))
    assert [c.ranks for c in found.causes] == [ranks], found.summary


def test_an_error_line_of_a_rank_that_printed_much_more(tmp_path: Path) -> None:
    line = "[rank0]: 2026-11-27 07:23:44,377 ERROR gan collapse heuristic fired, ignored\n"
    ended = trace("[rank2]: ", "<module>", "ZeroDivisionError: by zero")
    found = diagnosed(tmp_path, line + spoken(0, 150) + ended)
    assert named(found) == [("error", [2])], found.summary


def test_what_a_job_had_lived_with_did_not_end_it(tmp_path: Path) -> None:
    """The launcher was asked to end by somebody else."""
    rounds = "".join(
        f"epoch 001: loss=4.{n} num_updates={n * 10}\n" + trace("", "<module>", "KeyError: 'bleu'")
        for n in range(5)
    )
    end = "W1127 07:10:28.253000 5 torch/distributed/elastic/agent/server/api.py:753] Received 15 death signal, shutting down workers\n"
    found = diagnosed(tmp_path, rounds + end)
    assert found.causes == [] and "ended from outside by SIGTERM" in found.summary


@pytest.mark.parametrize(("between", "ranks"), [(24, []), (3, [-1])])
def test_three_of_one_kind_with_much_between_them_were_caught(
    tmp_path: Path, between: int, ranks: list[int]
) -> None:
    """Three ranks that fail together print one below the other."""
    lines = "".join(f"chunk {n} of the file read\n" for n in range(between))
    text = (trace("", "produce", "BadFrame: detector counts below zero") + lines) * 3
    found = diagnosed(tmp_path, text + waited(0) + waited(1))
    told = any("BadFrame" in cause.summary for cause in found.causes)
    assert told == bool(ranks), found.summary


@pytest.mark.parametrize(
    "bar", ["|###.......| {}/60", "[==>       ] {}/60", "|█████     | {}/60 loss 0.3"]
)
def test_a_bar_that_a_program_draws_itself_shows_that_it_went_on(tmp_path: Path, bar: str) -> None:
    steps = [bar.format(n) + "\n" for n in range(20, 40)]
    text = steps[0] + trace("", "read", "ValueError: bad row") + "".join(steps[1:]) + waited(0)
    found = diagnosed(tmp_path, text)
    assert all("bad row" not in cause.summary for cause in found.causes), found.summary


FIRST = (
    '[rank2]: Traceback (most recent call last):\n[rank2]:   File "/app/tts.py", line 9, in <module>\n[rank2]: OSError: stale\n'
    "E1127 07:24:29.914000 5 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: 1) local_rank: 2 (pid: 11) of binary: /usr/bin/python\n"
)


def test_an_attempt_that_ended_well_below_one_that_failed(tmp_path: Path) -> None:
    ends = "".join(f"==== rank {rank} training complete ====\n" for rank in range(3))
    assert diagnosed(tmp_path, FIRST + ends).status == "healthy"
    assert named(diagnosed(tmp_path, ends + FIRST)) == [("error", [2])]


@pytest.mark.parametrize(
    "line", ["gnn exit code 0", "torchrun exit status 0", "exited with code 0"]
)
def test_a_scripts_word_on_a_good_end(tmp_path: Path, line: str) -> None:
    assert diagnosed(tmp_path, f"step 10 loss 0.2\n{line}\n").status == "healthy"
    assert diagnosed(tmp_path, f"step 10 loss 0.2\n{line}7\n").status != "healthy"


def test_a_process_that_a_script_could_not_end_any_more_is_no_failure(tmp_path: Path) -> None:
    line = "job.sh: line 4: kill: (9) - No such process\n"
    assert diagnosed(tmp_path, f"step 10 loss 0.2\n{line}").causes == []


def test_the_rank_of_the_file_that_names_none(tmp_path: Path) -> None:
    files = {f"es.{rank}.log": f"gen 639 best 0.2\n{waited(rank)}" for rank in (0, 1, 3)}
    found = diagnosed(tmp_path, {**files, "es.2.log": "gen 639 best 0.2\n"})
    assert named(found) == [("not_entered", [2])], found.summary


def test_the_task_that_only_its_number_names(tmp_path: Path) -> None:
    steps = "".join(f"{rank}: gen 639 best 0.2\n" for rank in range(4)) * 3
    found = diagnosed(tmp_path, steps + "".join(waited(rank, f"{rank}: ") for rank in (0, 2, 3)))
    assert named(found) == [("not_entered", [1])], found.summary


@pytest.mark.parametrize(
    ("names", "heard", "found"),
    [
        ("es.0.log es.1.log es.2.log", [{0}, set(), {2}], {0: 0, 1: 1, 2: 2}),
        ("es.0.log es.1.log es.2.log", [{0}, set(), {1}], {}),  # not its number
        ("es.0.log es.1.log es.2.log", [{0}, set(), set()], {}),  # one alone
        ("es.1.log es.2.log es.3.log", [{1}, {2}, set()], {}),  # not from 0 on
        ("es.0.log es.1.log es.2.log", [{0, 1}, {1}, set()], {}),  # of two ranks
        ("job.log other.log", [{0}, {1}], {}),
    ],
)
def test_numbers_of_files(names: str, heard: list[set[int]], found: dict[int, int]) -> None:
    assert ranks_of(names.split(), heard) == found


def stamped(rank: int, second: int, says: str) -> str:
    return f"2026-11-27 16:08:{second:02d},655 r{rank} INFO {says}\n"


def broken(rank: int, second: int) -> str:
    head = f"2026-11-27 16:08:{second:02d},586 r{rank} ERROR record {second} is broken, using its neighbour\n"
    return head + trace("", "__getitem__", "ValueError: line 1 column 41")


def reads_with_errors(last: int) -> str:
    """Four ranks that caught some errors in their data; rank 3's `last` comes after its last step."""
    rounds = (
        "".join(stamped(rank, second, f"epoch 0 step {second} loss 1.9") for rank in range(4))
        + broken(second % 4, second)
        for second in range(10)
    )
    return "".join(rounds) + broken(3, last)


@pytest.mark.parametrize("says", ["rank {} finished", "training done.", "finished", "Done"])
def test_a_caught_error_below_the_last_step_did_not_end_ranks_that_say_they_are_done(
    tmp_path: Path, says: str
) -> None:
    end = "".join(stamped(rank, 12, says.format(rank)) for rank in range(4))
    found = diagnosed(tmp_path, reads_with_errors(10) + end)
    assert found.status == "healthy", found.summary


def test_nor_others_where_the_job_had_gone_on_after_errors_like_it(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, reads_with_errors(10))
    assert found.causes == [] and found.status == "unknown", found.summary


def test_the_first_error_of_its_kind_below_the_last_step_may_have_ended_it(tmp_path: Path) -> None:
    steps = "".join(
        stamped(rank, second, f"epoch 0 step {second} loss 1.9")
        for second in range(10)
        for rank in range(4)
    )
    found = diagnosed(tmp_path, steps + broken(3, 11))
    assert [c.ranks for c in found.causes] == [[3]], found.summary


def test_what_torch_prints_with_the_rank_before_it_was_not_caught(tmp_path: Path) -> None:
    """Rank 0 caught its own and went on; rank 3 warned twice, then raised, right below its last
    warning.
    """
    caught = "2026-11-27 17:08:29,040 [rank 0] weights ERROR shard has no scale, migrating from format 1\n"
    caught += trace("", "migrate", "KeyError: 'scale'")
    steps = "".join(
        f"2026-11-27 17:08:29,057 [rank {rank}] judge INFO v1 batch {n}/120\n"
        for n in range(20)
        for rank in range(4)
    )
    warned = "2026-11-27 17:08:30,353 [rank 3] weights WARNING reading shard-3.pt failed\n"
    ended = trace("[rank3]: ", "<module>", "RuntimeError: shard-3.pt is cut")
    found = diagnosed(tmp_path, caught + steps + caught + warned + ended)
    assert named(found) == [("error", [3])], found.summary


@pytest.mark.parametrize(
    ("says", "causes"), [("record repaired", []), ("leaving", [("error", [2])])]
)
def test_who_logged_an_error_and_printed_on_had_not_failed(
    tmp_path: Path, says: str, causes: list[tuple[str, list[int]]]
) -> None:
    """Unless the last of its lines says that it leaves."""
    lines = [
        stamped(rank, second, f"lead 3 day {second} CRPS 1.0{second}")
        for second in range(30)
        for rank in range(4)
    ]
    error = "2026-11-27 16:08:12,586 r2 ERROR cannot decode day 12\n" + trace(
        "", "decode", "ValueError: 0 bytes"
    )
    last = stamped(2, 31, says)
    found = diagnosed(tmp_path, "".join(lines[:50]) + error + "".join(lines[50:]) + last)
    assert named(found) == causes, found.summary
