"""Few ranks that were elsewhere than all others: by a guard's words, an interrupt, an empty place in
torchelastic's table.
"""

from __future__ import annotations

from pathlib import Path

from hangdoctor.model.log_facts import Progress, PythonError
from tests.support.read_logs import diagnosed, logs_of, named

LOST = "RuntimeError: [/pytorch/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:1."


def guard(rank: int, place: str) -> str:
    return (
        f"22:51:17 rank={rank} step 15 loss 31.894\n"
        f"22:51:26 rank={rank} WATCHDOG no progress for 8 s at step 17, in {place}; exiting\n"
    )


def test_a_guard_that_saw_one_rank_elsewhere_names_it(tmp_path: Path) -> None:
    files = {f"rank{r}.log": guard(r, "all_reduce" if r else "load") for r in range(4)}
    found = diagnosed(tmp_path, files)
    assert named(found) == [("not_entered", [0])], found.summary
    assert found.status == "hang" and "was in load at step 17" in found.summary
    assert "Ranks 1-3 have been waiting in all_reduce for 8 s" in found.summary


def test_a_guard_that_saw_all_in_one_place_names_nobody(tmp_path: Path) -> None:
    files = {f"rank{r}.log": guard(r, "all_reduce") for r in range(4)}
    found = diagnosed(tmp_path, files)
    assert (found.status, found.causes) == ("unknown", []), found.summary
    assert "no progress" in found.summary and "iteration 17" not in found.summary


def interrupt(rank: int, *frames: str) -> str:
    lines = ["Traceback (most recent call last):", *frames, "KeyboardInterrupt"]
    return "".join(f"[default{rank}]:[rank{rank}]: {line}\n" for line in lines)


USER = '  File "/home/me/job.py", line 10, in read_shard'
TORCH = (
    '  File "/venv/site-packages/torch/distributed/distributed_c10d.py", line 3252, in all_reduce'
)
INTERRUPT = "W1122 22:51:45.204000 5469 torch/distributed/elastic/multiprocessing/api.py:1028] Sending process 6522 closing signal SIGINT\n"


def test_an_interrupt_that_met_one_rank_outside_names_it(tmp_path: Path) -> None:
    """Where the job had printed no step for long before; else where it met it may be chance."""
    text = INTERRUPT + interrupt(2, USER) + "".join(interrupt(r, TORCH) for r in (0, 1, 3))
    found = diagnosed(tmp_path, "2026-11-22 22:51:02,000 rank0 INFO step 40\n" + text)
    assert named(found) == [("not_entered", [2])], found.summary
    assert found.status == "hang" and "read_shard" in found.summary
    for before in ("", "step 40 loss 0.2\n", "2026-11-22 22:51:44,000 rank0 INFO step 40\n"):
        chance = diagnosed(tmp_path, before + text)
        assert (chance.status, chance.causes) == ("unknown", []), chance.summary
        assert "rank 2 in read_shard" in chance.summary and "dump before Ctrl-C" in chance.summary


def test_an_interrupt_that_met_all_outside_names_nobody(tmp_path: Path) -> None:
    text = INTERRUPT + "".join(interrupt(r, USER) for r in range(4))
    found = diagnosed(tmp_path, text)
    assert found.causes == [], found.summary
    assert "another process's end" not in found.summary


FAILED = """\
E1122 22:49:42.720000 3200 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: 1) local_rank: 0 (pid: 100) of binary: python
Failures:
[1]:
  time      : 2026-11-22_22:49:42
  host      : localhost
  rank      : 1 (local_rank: 1)
  exitcode  : 1 (pid: 101)
[2]:
  time      : 2026-11-22_22:49:42
  host      : localhost
  rank      : {2} (local_rank: {2})
  exitcode  : -15 (pid: 102)  (SIGTERM)
Root Cause (first observed failure):
[0]:
  time      : 2026-11-22_22:49:42
  host      : localhost
  rank      : 0 (local_rank: 0)
  exitcode  : 1 (pid: 100)
"""


def folders(silent: str) -> dict[str, str]:
    tree = {f"run_x/attempt_0/{r}/stderr.log": lost(r) for r in range(3)}
    tree["run_x/attempt_0/3/stderr.log"] = silent
    return tree | {"job.out": FAILED.replace("{2}", "2")}


def lost(rank: int) -> str:
    head = f"[rank{rank}]: Traceback (most recent call last):\n"
    frame = f'[rank{rank}]:   File "/home/me/job.py", line 31, in main\n'
    return (
        f"2026-11-22 22:49:30,66{rank} INFO step 13 loss 0.2\n{head}{frame}[rank{rank}]: {LOST}\n"
    )


def test_a_rank_that_left_while_all_others_lost_it_is_named(tmp_path: Path) -> None:
    bye = "2026-11-22 22:49:30,770 INFO stream exhausted after 14 batches, bye\n"
    found = diagnosed(tmp_path, folders("2026-11-22 22:49:30,669 INFO step 13 loss 0.2\n" + bye))
    assert named(found) == [("dead", [3])], found.summary
    assert "sys.exit(0)" in found.summary


def test_its_folder_is_enough(tmp_path: Path) -> None:
    assert named(diagnosed(tmp_path, folders("hello\n"))) == [("dead", [3])]


def test_one_that_the_table_leaves_out_between_two_others_had_ended_well(tmp_path: Path) -> None:
    """Nothing else shows that there was a rank 2."""
    lines = "".join(map(lost, (0, 1, 3))) + FAILED.replace("{2}", "3")
    found = diagnosed(tmp_path, lines)
    assert named(found) == [("dead", [2])], found.summary
    assert "sys.exit(0)" in found.summary
    assert (
        diagnosed(tmp_path, "".join(map(lost, range(4))) + FAILED.replace("{2}", "3")).causes == []
    )


def test_the_empty_files_of_a_folder_are_not_noted(tmp_path: Path) -> None:
    files = folders("hello\n") | {f"run_x/attempt_0/{r}/stdout.log": "" for r in range(4)}
    assert not [note for note in diagnosed(tmp_path, files).notes if "no stack" in note]


AGAIN = """\
[default1]:[rank1]: Traceback (most recent call last):
[default1]:[rank1]:   File "/home/me/job.py", line 29, in main
[default1]:[rank1]: RuntimeError: corrupt record in part-0007.tfrecord
W1122 23:03:52.354000 23492 torch/distributed/elastic/multiprocessing/api.py:1028] Sending process 23676 closing signal SIGTERM
E1122 23:03:52.699000 23492 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: 1) local_rank: 1 (pid: 23678) of binary: python
"""


def test_the_error_of_an_earlier_start_is_history(tmp_path: Path) -> None:
    first = "".join(f"[default{r}]:step {s}\n" for s in (0, 5, 10) for r in range(4))
    second = "".join(f"[default{r}]:step {s}\n" for s in (0, 5, 10, 15) for r in range(4))
    (tmp_path / "out.log").write_text(first + AGAIN + second + "training finished\n")
    logs = logs_of(tmp_path / "out.log")
    assert logs.attempts == 2
    [error] = [f for f in logs.facts if isinstance(f, PythonError)]
    assert error.attempt == 0
    found = diagnosed(tmp_path, first + AGAIN + second + "training finished\n")
    assert (found.status, found.causes) == ("healthy", []), found.summary
    assert any(note.startswith("Start 1 of the job had ended") for note in found.notes)


def test_a_rank_is_known_by_its_folder_where_others_tell_theirs(tmp_path: Path) -> None:
    diagnosed(tmp_path, folders("2026-11-22 22:49:30,669 INFO step 13 loss 0.2\n"))
    told = logs_of(tmp_path).facts
    assert {f.rank for f in told if isinstance(f, Progress)} == {0, 1, 2, 3}


def test_a_rank_that_lost_the_others_itself_has_not_left(tmp_path: Path) -> None:
    assert diagnosed(tmp_path, folders(lost(3))).causes == []


# ---------------------------------------------------------------------- gloo's limit


LIMIT = "RuntimeError: [/x/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 25000ms for recv operation to complete"


def at(rank: int, op: str, line: int, error: str) -> str:
    frames = [
        f'  File "/home/me/moe.py", line {line}, in main',
        f'  File "/venv/site-packages/torch/distributed/distributed_c10d.py", line 3252, in {op}',
    ]
    lines = ["Traceback (most recent call last):", *frames, error]
    return "".join(f"[rank{rank}]: {text}\n" for text in lines)


def test_who_lost_a_connection_at_the_line_of_those_that_reached_the_limit_waited_there(
    tmp_path: Path,
) -> None:
    text = at(0, "all_gather", 20, LOST) + at(3, "all_reduce", 27, LIMIT)
    text += at(1, "all_gather", 20, LIMIT) + at(2, "all_gather", 20, LIMIT)
    found = diagnosed(tmp_path, text)
    assert named(found) == [("order", [3])], found.summary
    # All lost a connection: no rank is known to have waited.
    lost_all = "".join(at(r, "all_gather" if r else "all_reduce", 20, LOST) for r in range(4))
    assert diagnosed(tmp_path, lost_all).causes == []


LAUNCHER = """\
E1122 22:49:42.720000 3200 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: 1) local_rank: 1 (pid: 101) of binary: python
Failures:
{0}Root Cause (first observed failure):
[1]:
  time      : 2026-11-22_22:49:42
  host      : localhost
  rank      : 1 (local_rank: 1)
  exitcode  : 1 (pid: 101)
"""


def launcher(ranks: int) -> str:
    rows = [
        f"[{r}]:\n  time      : 2026-11-22_22:49:42\n  host      : localhost\n"
        f"  rank      : {r} (local_rank: {r})\n  exitcode  : -15 (pid: 10{r})  (SIGTERM)\n"
        for r in range(ranks)
        if r != 1
    ]
    return LAUNCHER.replace("{0}", "".join(rows))


def test_ranks_that_the_launcher_ended_before_their_own_limit_are_no_culprits(
    tmp_path: Path,
) -> None:
    """One of all that is silent is; of several, any may have waited as the others did."""
    one = "".join(at(r, "all_reduce", 65, LIMIT) for r in (1, 2, 3)) + launcher(4)
    assert named(diagnosed(tmp_path, one)) == [("not_entered", [0])]
    two = "".join(at(r, "all_reduce", 65, LIMIT) for r in (1, 3, 5)) + launcher(6)
    found = diagnosed(tmp_path, two + at(4, "all_to_all", 55, LOST))
    assert (found.status, found.causes) == ("unknown", []), found.summary
    apart = "".join(at(r, "all_reduce", 65, LIMIT) for r in (1, 3)) + launcher(4)
    found = diagnosed(tmp_path, apart + at(2, "all_to_all", 55, LOST))
    assert found.causes == [], found.summary


# ---------------------------------------------------------------------- DistributedDataParallel's check


def test_the_rank_whose_model_differs_is_named_for_what_all_raise(tmp_path: Path) -> None:
    def check(rank: int, own: int, other: int, params: int) -> str:
        error = f"RuntimeError: DDP expects same model across all ranks, but Rank {rank} has {own} params, while rank {other} has inconsistent {params} params."
        frames = '  File "/home/me/job.py", line 8, in main'
        lines = ["Traceback (most recent call last):", frames, error]
        return "".join(f"[rank{rank}]: {text}\n" for text in lines)

    text = check(0, 6, 1, 8) + check(1, 8, 0, 6)
    found = diagnosed(tmp_path, text + check(2, 6, 1, 8))
    assert named(found) == [("mismatch", [1])], found.summary
    assert "with 8 params where the others ran DistributedDataParallel with 6" in found.summary
    two = diagnosed(tmp_path, text)
    assert named(two) == [("mismatch", [0, 1])] and "does not show" in two.summary
