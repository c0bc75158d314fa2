"""Facts of ranks that have ended, from what their boxes keep."""

from __future__ import annotations

from hangdoctor.model.log_facts import GlooTimeout, PythonError
from hangdoctor.readers import ended_ranks

SAID = "[/x/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 6000ms for recv operation to complete"


def test_an_exception_at_gloos_limit_is_a_wait() -> None:
    """As logs have it: so that the rank which did not come is named, and not those that waited."""
    error = PythonError(error="RuntimeError", message=SAID, rank=1, node="n1", at=5.0)
    [fact] = ended_ranks._waits(error)
    assert isinstance(fact, GlooTimeout)
    assert (fact.rank, fact.node, fact.at, fact.limit_ms) == (1, "n1", 5.0, 6000.0)


def test_other_exceptions_are_no_waits() -> None:
    assert ended_ranks._waits(PythonError(error="ValueError", message="bad shard")) == []
