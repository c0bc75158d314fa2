"""Errors that a program caught, logged and went on after are no failures."""

from __future__ import annotations

from pathlib import Path

import pytest

from hangdoctor.errors import BadInput
from hangdoctor.readers.job_logs.rules import checked, parse, rules
from tests.support.read_logs import diagnosed, logs_of, named

TRACE = """\
Traceback (most recent call last):
  File "/home/me/save.py", line 18, in save
    return upload(rank, step)
  File "/home/me/save.py", line 12, in upload
    raise TimeoutError("PUT s3://exp/ck/30/rank1.bin timed out after 30 s")
TimeoutError: PUT s3://exp/ck/30/rank1.bin timed out after 30 s
"""
HEAD = "2026-01-22 22:43:33,183 [rank1] ERROR upload failed, attempt 1, will retry\n"


def steps(step: int, second: int) -> str:
    return "".join(
        f"2026-01-22 22:43:{second:02d},18{r} [rank{r}] INFO step {step} loss 0.0{r}74\n"
        for r in range(3)
    )


def finished(rank: int) -> str:
    return f"2026-01-22 22:43:35,55{rank} [rank{rank}] INFO training finished, final loss 0.0\n"


def test_a_logged_traceback_after_which_its_rank_made_steps_is_no_failure(tmp_path: Path) -> None:
    text = steps(30, 33) + HEAD + TRACE + steps(40, 34) + "".join(map(finished, range(3)))
    found = diagnosed(tmp_path, text)
    assert (found.status, found.causes) == ("healthy", []), found.summary


def test_one_after_which_the_others_alone_made_a_step_is_the_failure_of_its_rank(
    tmp_path: Path,
) -> None:
    other = "2026-01-22 22:43:34,183 [rank0] INFO step 40 loss 0.0074\n"
    found = diagnosed(tmp_path, steps(30, 33) + HEAD + TRACE + other)
    assert named(found) == [("error", [1])], found.summary


def test_the_last_of_equal_errors_counts(tmp_path: Path) -> None:
    text = steps(30, 33) + HEAD + TRACE + steps(40, 34) + HEAD + TRACE
    assert named(diagnosed(tmp_path, text)) == [("error", [1])]


def test_a_logged_traceback_is_of_the_rank_that_logged_it(tmp_path: Path) -> None:
    (tmp_path / "job.log").write_text(steps(30, 33) + HEAD + TRACE)
    [error] = [f for f in logs_of(tmp_path / "job.log").facts if hasattr(f, "chained")]
    assert error.rank == 1


WARNED = """\
2026-01-22 22:54:18,768 rank{0} INFO epoch 0 done
2026-01-22 22:54:19,598 rank{0} INFO epoch 1 done
"""
DENIED = "2026-01-22 22:54:19,599 rank2 WARNING index not built: [Errno 13] Permission denied: '/scratch/part2.idx'\n"
IN_BARRIER = """\
[rank{0}]: Traceback (most recent call last):
[rank{0}]:   File "/home/me/job.py", line 31, in main
[rank{0}]:     dist.barrier()
[rank{0}]: RuntimeError: [/pytorch/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:12700.
"""
NO_KEY = """\
[rank0]: Traceback (most recent call last):
[rank0]:   File "/home/me/job.py", line 30, in main
[rank0]:     store.wait([f"index_ready/{epoch}/{r}" for r in range(world)], timedelta(seconds=9))
[rank0]: torch.distributed.DistStoreError: wait timeout after 9000ms, keys: /index_ready/2/0, /index_ready/2/1
"""


def test_a_warning_is_no_failure_but_where_a_wait_follows_it_is_the_lead(tmp_path: Path) -> None:
    files = {f"rank{r}.log": WARNED.format(r) for r in range(4)}
    files["rank2.log"] += DENIED
    for rank in (1, 2, 3):
        files[f"rank{rank}.log"] += IN_BARRIER.format(rank)
    files["rank0.log"] += NO_KEY
    found = diagnosed(tmp_path, files)
    [cause] = found.causes
    assert cause.ranks == [2], found.summary
    assert "failed first" not in cause.summary and "went on" in cause.summary
    assert cause.confidence < 0.7


def test_each_pattern_of_the_built_in_rules_is_one() -> None:
    """They are compiled when a log first calls for them; those of the user's file at once."""
    built_in = list(rules().rules)
    assert checked(built_in, "log_rules.toml") == built_in and len(built_in) > 100
    with pytest.raises(BadInput, match="no usable rules"):
        checked(parse('[[rule]]\nid="x"\nanchor=["abc"]\npattern="("\nmeaning="m"', "mine"), "mine")


def test_a_cancelled_task_is_what_its_time_out_did(tmp_path: Path) -> None:
    """asyncio.wait_for cancels what it waits for, and both tracebacks are printed."""
    text = """\
[rank2]: Traceback (most recent call last):
[rank2]:   File "/usr/lib/python3.11/asyncio/tasks.py", line 490, in wait_for
[rank2]:     return fut.result()
[rank2]:   File "/usr/lib/python3.11/asyncio/streams.py", line 522, in _wait_for_data
[rank2]:     await self._waiter
[rank2]: asyncio.exceptions.CancelledError

[rank2]: The above exception was the direct cause of the following exception:

[rank2]: Traceback (most recent call last):
[rank2]:   File "/home/me/stream_train.py", line 80, in train
[rank2]:     await reporter.send(step)
[rank2]:   File "/home/me/stream_train.py", line 39, in send
[rank2]:     await asyncio.wait_for(self.reader.readline(), 80)
[rank2]: TimeoutError
"""
    found = diagnosed(tmp_path, text)
    assert named(found) == [("error", [2])]
    assert "TimeoutError in send (stream_train.py:39)" in found.summary


FIRST = """\
[rank{0}]: Traceback (most recent call last):
[rank{0}]:   File "/home/me/forecast.py", line 33, in check
[rank{0}]:     raise ValueError("negative load in row 3")
[rank{0}]: ValueError: negative load in row 3

[rank{0}]: During handling of the above exception, another exception occurred:

"""
LIMIT = "RuntimeError: [/x/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 70000ms for recv operation to complete"


def waited(rank: int, line: int, call: str) -> str:
    return (
        f"[rank{rank}]: Traceback (most recent call last):\n"
        f'[rank{rank}]:   File "/home/me/forecast.py", line {line}, in main\n'
        f"[rank{rank}]:     {call}\n[rank{rank}]: {LIMIT}\n"
    )


def test_an_error_in_whose_handling_its_rank_waited_came_first_wherever_it_is_printed(
    tmp_path: Path,
) -> None:
    """A callback saves on an exception, which is a barrier; the others' waits end before its own."""
    others = waited(0, 56, "loss.backward()") + waited(2, 56, "loss.backward()")
    found = diagnosed(tmp_path, others + FIRST.format(1) + waited(1, 80, "dist.barrier()"))
    assert named(found) == [("error", [1])], found.summary
    assert "negative load in row 3" in found.summary
    both = FIRST.format(1) + waited(1, 80, "dist.barrier()") + FIRST.format(2)
    found = diagnosed(tmp_path, waited(0, 56, "loss.backward()") + both + waited(2, 80, "b()"))
    assert named(found) != [("error", [1])], "two may follow from a third"
