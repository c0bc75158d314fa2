"""A launcher that finds the rendezvous closed has come after the end: its exit says nothing of its node."""

from __future__ import annotations

from pathlib import Path

from tests.support.read_logs import diagnosed

CLOSED = """\
Traceback (most recent call last):
  File "/env/lib/python3.10/site-packages/torch/distributed/elastic/rendezvous/dynamic_rendezvous.py", line 635, in run
    raise RendezvousClosedError()
torch.distributed.elastic.rendezvous.api.RendezvousClosedError
"""
ENDS = """\
srun: error: n1: task 1: Exited with exit code 1
srun: Terminating StepId=21941655.1
srun: error: n2: task 2: Exited with exit code 1
"""


def test_the_task_of_such_a_launcher_is_not_accused(tmp_path: Path) -> None:
    assert diagnosed(tmp_path, CLOSED + ENDS).causes == []
