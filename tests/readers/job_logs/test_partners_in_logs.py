"""Ranks that wait for one another in sends and receives, by the source lines in their tracebacks, and
where ranks waited when nothing names one of them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from hangdoctor.diagnosis.logs.partners import with_partner
from hangdoctor.model.frame import Frame
from tests.support.read_logs import diagnosed, named

LIMIT = "RuntimeError: [/x/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 65000ms for {} operation to complete"
LOST = "RuntimeError: [/x/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:1."
TORCH = "/venv/site-packages/torch/distributed/distributed_c10d.py"


def met(rank: int, line: int, call: str, error: str = "") -> str:
    """A rank's traceback, whose wait for this call of torch.distributed ended at gloo's limit."""
    name = call.partition("(")[0]
    rows = [
        "Traceback (most recent call last):",
        *(f'  File "/home/me/stage.py", line {line}, in step{line}', f"    dist.{call}"),
        *(f'  File "{TORCH}", line 2753, in {name}', "    work.wait()"),
        error or LIMIT.format("send" if name == "send" else "recv"),
    ]
    return "".join(f"[rank{rank}]: {row}\n" for row in rows)


def of(world: int, *texts: str) -> str:
    return f"world_size: {world}\n" + "".join(texts)


DOWN = met(1, 35, "send(y, dst=self.rank + 1)")
UP = met(2, 46, "send(x.grad, dst=self.rank - 1)")
FIRST = met(0, 41, "recv(g, src=self.rank + 1)")


def test_two_ranks_that_send_to_one_another_are_named(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, of(3, UP, DOWN, FIRST))
    assert named(found) == [("p2p_unmatched", [1, 2])], found.summary
    assert "Ranks 1-2 wait for one another: rank 1 in send to rank 2" in found.summary
    assert "(stage.py:35), rank 2 in send to rank 1" in found.summary


def test_three_ranks_in_a_ring_of_sends_and_receives_are_named(tmp_path: Path) -> None:
    up = UP.replace("self.rank - 1", "0")
    found = diagnosed(tmp_path, of(4, up, DOWN, FIRST, met(3, 41, "recv(g, src=self.rank - 1)")))
    assert named(found) == [("p2p_unmatched", [0, 1, 2])], found.summary
    assert "rank 2 in send to rank 0" in found.summary


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            [UP.replace("self.rank - 1", "peer"), DOWN.replace("self.rank + 1", "peer"), FIRST],
            "rank 0 in recv",
        ),
        ([UP.replace(LIMIT.format("send"), LOST), DOWN, FIRST], "which rank"),
        (
            [
                UP.replace("- 1)", "- 1, group=pipe)"),
                DOWN.replace("+ 1)", "+ 1, group=pipe)"),
                FIRST,
            ],
            "rank 1 in send",
        ),
    ],
    ids=["no partners", "one came after the limit", "a group's own numbers"],
)
def test_where_partners_do_not_show_no_pair_is_named(
    tmp_path: Path, text: list[str], says: str
) -> None:
    """Two senders may send to two others, and then neither waits for the other."""
    found = diagnosed(tmp_path, of(3, *text))
    assert "for one another" not in found.summary, found.summary
    assert says in found.summary, found.summary


def test_ranks_that_all_send_in_a_ring_are_told_to_let_some_receive(tmp_path: Path) -> None:
    ring = [met(rank, 12, "send(x, (rank + 1) % world_size)") for rank in range(3)]
    found = diagnosed(tmp_path, of(3, *ring))
    assert named(found) == [] and "all wait in send" in found.summary


@pytest.mark.parametrize(
    ("code", "peer"),
    [
        ("dist.send(y, dst=self.rank + 1)", 4),
        ("dist.send(y, rank - 2)", 1),
        ("dist.send(y, dst=(dist.get_rank() + 1) % dist.get_world_size())", 4),
        ("dist.send(y, dst=0)", 0),
        ("dist.send(y, dst=self.next)", -1),
        ("dist.send(y, dst=rank + 9)", -1),
        ("dist.send(y, dst=rank)", -1),
        ("dist.send(y, dst=ranks[rank + 1])", -1),
        ("dist.send(y, dst=rank + 1, **more)", -1),
        ("dist.send(", -1),
        ("dist.send(y, dst=1 // 0)", -1),
        ("dist.send(y, dst=1 % 0)", -1),
        ("a = dist.send(y, 0), dist.send(y, 1)", -1),
    ],
)
def test_the_other_rank_of_a_call_in_its_source(code: str, peer: int) -> None:
    frames = [Frame("send", TORCH, 2753), Frame("step", "/home/me/stage.py", 3, code=code)]
    [torch, _] = with_partner(frames, rank=3, world=6)
    assert torch.values.get("dst", -1) == peer


def test_where_all_ranks_waited_is_said_beside_that_none_is_known(tmp_path: Path) -> None:
    """One rank waits for a send's handle, and the rank that should receive is among the others."""
    sends = met(2, 69, "isend(w, dst=dst).wait()").replace(
        f'  File "{TORCH}", line 2753, in isend', ""
    )
    rest = [met(rank, 47, "all_reduce(n)") for rank in (0, 1, 3)]
    found = diagnosed(tmp_path, of(4, sends, *rest))
    assert named(found) == [], found.summary
    assert "ranks 0-1,3 in all_reduce (stage.py:47), rank 2 in isend" in found.summary
    assert "to the limit of 65 s" in found.summary


def test_who_alone_printed_no_error_is_the_lead_where_the_others_waited_apart(
    tmp_path: Path,
) -> None:
    """Stages of a pipeline wait at lines of their own, so that it may have begun to wait later."""
    stages = [
        met(rank, line, call)
        for rank, line, call in (
            (0, 64, "send(x, dst=nxt)"),
            (1, 71, "recv(x, src=prv)"),
            (3, 67, "recv(x, src=prv)"),
        )
    ]
    found = diagnosed(tmp_path, of(4, *stages))
    assert named(found) == [], found.summary
    assert "rank 2 printed no error: see first what it did" in found.summary
    assert "which rank made other calls" not in found.summary


def test_the_partner_that_a_helper_of_the_programs_own_was_given(tmp_path: Path) -> None:
    frames = [
        Frame("recv", TORCH, 2799),
        Frame("take", "/home/me/pipe.py", 36, "dist.recv(t, frm)"),
        Frame("forward", "/home/me/pipe.py", 53, "x = self.take(self.rank - 1).detach()"),
    ]
    assert with_partner(frames, 2, 4)[0].values == {"src": 1}
    unclear = "x = self.take(self.last)"
    assert not with_partner([*frames[:2], Frame("forward", "/home/me/pipe.py", 53, unclear)], 2, 4)[
        0
    ].values


def test_the_rank_at_the_end_of_a_chain_of_receives_is_in_another_call(tmp_path: Path) -> None:
    """All wait for it, through one another; with which rank it is, its line does not show."""
    chain = [met(rank, 53, "recv(x, src=self.rank - 1)") for rank in (1, 2, 3)]
    found = diagnosed(tmp_path, of(4, met(0, 43, "send(mask, dst=self.last)", LOST), *chain))
    assert named(found) == [("p2p_unmatched", [0])], found.summary
    assert (
        "send in step43 (stage.py:43), ranks 1-3 in recv each from the rank before" in found.summary
    )
    alike = diagnosed(tmp_path, of(4, met(0, 53, "recv(x, src=self.last)"), *chain))
    assert not [rank for _, ranks in named(alike) for rank in ranks], alike.summary
    two = diagnosed(
        tmp_path, of(4, *chain[1:], *(met(r, 43, "send(m, dst=self.last)") for r in (0, 1)))
    )
    assert not [rank for _, ranks in named(two) for rank in ranks], two.summary
