"""A rank that raised an error of its own after all others had waited for it to their limit."""

from __future__ import annotations

from pathlib import Path

from tests.support.read_logs import diagnosed

C10D = "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
LIMIT = "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 8000ms for recv operation to complete"
FULL = "OSError: [Errno 28] No space left on device"
LOST = "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:537] Connection closed by peer [127.0.0.1]:3881"


def raised(rank: int, name: str, says: str, *, inner: str = "") -> str:
    lines = (
        "Traceback (most recent call last):",
        '  File "/home/u/roast.py", line 90, in <module>',
        "    main()",
        f'  File "/home/u/roast.py", line 63, in {name}',
        *((f'  File "{C10D}", line 2812, in {inner}',) if inner else ()),
        says,
    )
    return "".join(f"[rank{rank}]: {line}\n" for line in lines)


WAITED = "".join(raised(rank, "reduce", LIMIT, inner="all_reduce") for rank in (1, 2, 0))


def test_its_error_is_said_with_what_helps(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, "step 8\n" + WAITED + raised(3, "flush", FULL))
    [cause] = found.causes
    assert (cause.kind, cause.ranks) == ("not_entered", [3]), found.summary
    assert "it raised OSError in flush (roast.py:63) later: no space is left." in cause.summary
    assert "df -i" in cause.advice and "sooner than their time limit" in cause.advice


def test_one_that_follows_from_the_end_of_the_others_is_not(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, "step 8\n" + WAITED + raised(3, "sync", LOST, inner="all_reduce"))
    assert all("raised" not in cause.summary for cause in found.causes), found.summary


THREAD = """\
Exception in thread read-ahead:
Traceback (most recent call last):
  File "/usr/lib/python3.11/threading.py", line 1038, in _bootstrap_inner
    self.run()
  File "/home/u/stream.py", line 43, in _produce
    text = raw.decode("utf-8")
UnicodeDecodeError: 'utf-8' codec can't decode byte 0xe9
"""


def test_a_thread_that_had_ended_may_be_what_the_rank_waits_for(tmp_path: Path) -> None:
    """Nothing shows whose it was: one rank alone did not wait."""
    steps = "".join(f"[rank{rank}]: step 8\n" for rank in range(4))
    found = diagnosed(tmp_path, steps + THREAD + WAITED)
    [cause] = found.causes
    assert (cause.kind, cause.ranks) == ("not_entered", [3]), found.summary
    assert "its thread 'read-ahead', it seems, had ended with UnicodeDecodeError" in cause.summary
    assert "hand its exception on" in cause.advice


def test_of_two_such_threads_either_may_be(tmp_path: Path) -> None:
    other = THREAD.replace("read-ahead", "writer").replace("UnicodeDecodeError", "OSError")
    steps = "".join(f"[rank{rank}]: step 8\n" for rank in range(4))
    [cause] = diagnosed(tmp_path, steps + THREAD + other + WAITED).causes
    assert "it seems" not in cause.summary
