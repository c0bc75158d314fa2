"""Facts of ranks that have ended, from what their boxes keep."""

from __future__ import annotations

from hangdoctor.model.capture import Frame
from hangdoctor.model.log_facts import GlooTimeout, PythonError
from hangdoctor.probe import wrap
from hangdoctor.probe.whose_error import installed
from hangdoctor.readers import ended_ranks
from hangdoctor.readers.job_logs.tracebacks import own_frame

SAID = "[/x/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 6000ms for recv operation to complete"


def test_an_exception_at_gloos_limit_is_a_wait() -> None:
    """As logs have it: so that the rank which did not come is named, and not those that waited."""
    error = PythonError(error="RuntimeError", message=SAID, rank=1, node="n1", at=5.0)
    [fact] = ended_ranks._waits(error)
    assert isinstance(fact, GlooTimeout)
    assert (fact.rank, fact.node, fact.at, fact.limit_ms) == (1, "n1", 5.0, 6000.0)


def test_other_exceptions_are_no_waits() -> None:
    assert ended_ranks._waits(PythonError(error="ValueError", message="bad shard")) == []


def test_the_probes_own_frames_are_not_the_users() -> None:
    """It wraps the calls that fail; from a checkout it lies in no folder of packages."""
    frames = [
        Frame("main", "/app/train.py", 9),
        Frame("wrapper", "/src/hangdoctor/probe/wrap.py", 225),
        Frame("init_process_group", "/v/lib/python3.11/site-packages/torch/distributed/c.py", 1),
    ]
    assert own_frame(frames) == frames[0]
    assert installed(wrap.__file__) and not installed("/app/train.py")
