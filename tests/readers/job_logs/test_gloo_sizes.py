"""gloo ends a process that receives data of another size: torch 2.13, four ranks of torchrun, rank 3
called all_gather with 12 elements in place of 10.
"""

from __future__ import annotations

from pathlib import Path

from hangdoctor.report.terminal_report import plain
from tests.support.read_logs import diagnosed

C10D = "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"

LOG = """\
step 8
terminate called after throwing an instance of 'gloo::EnforceNotMet'
  what():  [enforce fail at /pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:456] op.preamble.length <= op.nbytes. 24 vs 20. Received data size doesn't match expected size. Is there a distributed collective mismatch in your code?
[rank1]: Traceback (most recent call last):
[rank1]:   File "/home/me/shapes.py", line 16, in <module>
[rank1]:     main()
[rank1]:   File "/home/me/shapes.py", line 8, in gather_logits
[rank1]:     dist.all_gather(out, x)
[rank1]: RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:537] Read error [127.0.0.1]:38793: Connection reset by peer. This is typically caused by a remote worker crashing.
W1122 09:34:17.277000 6 torch/distributed/elastic/multiprocessing/api.py:1028] Sending process 53 closing signal SIGTERM
E1122 09:34:17.386000 6 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: -6) local_rank: 0 (pid: 52) of binary: /usr/bin/python
"""


def test_what_gloo_says_is_the_cause_and_who_made_the_other_call_is_left_open(
    tmp_path: Path,
) -> None:
    found = diagnosed(tmp_path, LOG)
    [cause] = found.causes
    assert (cause.kind, cause.ranks) == ("mismatch", []), found.summary
    assert found.status == "failed"
    assert "different calls" in cause.summary and "hangdoctor run -- CMD" in cause.advice
    lines = plain(found).splitlines()
    [evidence] = [line for line in lines if line.startswith("  log ")]
    assert evidence.startswith("  log     rank 0: job.log:3: what():"), "by who aborted"
    assert "as rank 0 found" in cause.summary


def test_the_rank_that_received_it_is_not_named(tmp_path: Path) -> None:
    """By the prefix of srun -l it is known who spoke: that is only one of the two sides."""
    first = LOG.splitlines()[1:3]
    lines = [*(f"0: {line}" for line in first), *LOG.splitlines()[3:10]]
    [cause] = diagnosed(tmp_path, "\n".join(lines)).causes
    assert (cause.kind, cause.ranks) == ("mismatch", []), cause
    assert "which of them is wrong does not show" in cause.summary


def test_the_one_that_went_on_to_a_smaller_call_is_named_where_all_others_met_in_one_line(
    tmp_path: Path,
) -> None:
    """A rank that leaves out a gradient all_reduce receives it in its next call, a sum of one
    number; a few elements more are of one call, whose two sides have one line.
    """
    lines = LOG.replace("24 vs 20", "480 vs 4").splitlines()
    inner = f'[rank1]:   File "{C10D}", line 4164, in all_gather'
    said, other, table = lines[1:3], [*lines[3:8], inner, lines[8]], lines[9:]
    third = [line.replace("[rank1]", "[rank3]") for line in other]
    found = diagnosed(tmp_path, "\n".join([*said, *other, *third, *table]))
    [cause] = found.causes
    assert (found.status, cause.kind, cause.ranks) == ("failed", "mismatch", [0]), found.summary
    assert "ranks 1,3 were in all_gather in gather_logits (shapes.py:8)" in cause.summary
    assert "leave out a call" in cause.advice

    near = [line.replace("480 vs 4.", "24 vs 20.") for line in said]
    [cause] = diagnosed(tmp_path, "\n".join([*near, *other, *third, *table])).causes
    assert cause.ranks == [], "either side"

    elsewhere = [line.replace('shapes.py", line 8', 'shapes.py", line 9') for line in third]
    [cause] = diagnosed(tmp_path, "\n".join([*said, *other, *elsewhere, *table])).causes
    assert cause.ranks == [], "the others had parted"
