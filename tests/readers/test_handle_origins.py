"""What the handles are of that a line waits for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hangdoctor.readers.handle_origins import EITHER, begun, origin, polled
from hangdoctor.readers.pyspy_frames import parse_json
from hangdoctor.stacks.loop_counts import PEER

FUNCTIONS = {
    "for work in dist.batch_isend_irecv(ops):\n    work.wait()": EITHER,
    "reqs = dist.batch_isend_irecv(ops)\nfor r in reqs:\n    r.wait()": EITHER,
    "reqs = []\nreqs.append(dist.irecv(x, src=0))\nfor n, r in enumerate(reqs):\n    r.wait()": "irecv",
    "reqs = [dist.isend(x, dst=n) for n in peers]\nreqs += [dist.irecv(y, 0)]\nreqs[0].wait()": EITHER,
    "work = None\nif last:\n    work = isend(x, 1)\nif work is not None:\n    work.wait()": "isend",
    "a, b = dist.isend(x, 1), dist.irecv(y, 0)\na.wait()": "isend",
    "a, b = pair = dist.isend(x, 1), dist.irecv(y, 0)\nb.wait()": "irecv",
    "[r.wait() for r in reversed([dist.isend(x, 1)])]": "isend",
    "dist.isend(x, dst=1).wait()": "isend",
    # What may be of something else is unknown.
    "work = dist.all_reduce(x, async_op=True)\nwork.wait()": "",
    "work = dist.isend(x, 1)\nwork = dist.broadcast(x, 0, async_op=True)\nwork.wait()": "",
    "self.work.wait()": "",
    "work = make()\nwork.wait()": "",
    "given.wait()": "",
    "event = threading.Event()\nevent.wait()": "",
    "works = []\nfor w in works:\n    w.wait()": "",
    "x = y\ny = x\nx.wait()": "",
    "work = dist.isend(x, 1)\nwork.done()": "",
    "work = dist.isend(x, (\nwork.wait()": "",  # not a program
}


def program(body: str) -> list[str]:
    lines = ["class Ring:", "    def pass_on(self, given):"]
    return [*lines, *(f"        {line}" for line in body.split("\n")), "", "def other(work): ..."]


@pytest.mark.parametrize("body", FUNCTIONS)
def test_where_handles_come_from(body: str) -> None:
    lines = program(body)
    waits = next((n for n, line in enumerate(lines, 1) if ".wait()" in line), 3)
    assert origin(lines, waits) == FUNCTIONS[body]
    assert origin(lines, 0) == origin(lines, 99) == ""


def test_the_frame_of_a_stack_has_it(tmp_path: Path) -> None:
    source = tmp_path / "ring.py"
    lines = program("for work in dist.batch_isend_irecv(ops):\n    work.wait()")
    source.write_text("\n".join(lines))
    frame = {"name": "pass_on", "filename": str(source), "line": 4}
    [thread] = parse_json(json.dumps([{"thread_id": 1, "frames": [frame]}]).encode())
    assert thread.frames[0].handle == EITHER


@pytest.mark.parametrize(
    ("body", "line", "call"),
    [
        (
            "r = comm.Irecv(b, given, 3)\nwhile not r.Test():\n    time.sleep(1)",
            2,
            "comm.Irecv(b, given, 3)",
        ),
        ("r = comm.isend(b, dest=1)\nwhile not r.test()[0]:\n    pass", 1, "comm.isend(b, dest=1)"),
        ("w = dist.irecv(b, 2)\nwhile not w.is_completed():\n    beat()", 2, "dist.irecv(b, 2)"),
        # Another loop, another handle, or more than one that it may be
        ("r = comm.Irecv(b, 0)\nwhile busy:\n    time.sleep(1)", 2, ""),
        ("w = dist.all_reduce(b, async_op=True)\nwhile not w.is_completed():\n    beat()", 2, ""),
        (
            "r = comm.Irecv(b, 0)\nif x:\n    r = comm.Irecv(b, 1)\nwhile not r.Test():\n    beat()",
            4,
            "",
        ),
        ("while not given.Test():\n    beat()", 1, ""),
        ("r = comm.Irecv(b, 0)\nwhile not r.Test():\n    for n in y:\n        beat()", 3, ""),
    ],
)
def test_what_a_loop_asks_about_is_the_call_that_began_it(body: str, line: int, call: str) -> None:
    assert polled(program(body), 3 + line) == call


@pytest.mark.parametrize(
    ("body", "line", "call"),
    [
        (
            "s = dist.isend(x, to)\nr = dist.irecv(y, source)\ns.wait()\nr.wait()",
            3,
            "dist.isend(x, to)",
        ),
        (
            "s = dist.isend(x, to)\nr = dist.irecv(y, source)\ns.wait()\nr.wait()",
            4,
            "dist.irecv(y, source)",
        ),
        ("isend(x, 1).wait()", 1, "isend(x, 1)"),
        (
            "ops = [dist.P2POp(dist.irecv, x, peer, group=g)]\nfor w in dist.batch_isend_irecv(ops):\n    w.wait()",
            3,
            "dist.irecv(x, peer)",
        ),
        (
            "ops = []\nops.append(P2POp(op=dist.isend, tensor=x, peer=a))\nfor w in batch_isend_irecv(ops):\n    w.wait()",
            4,
            "dist.isend(x, a)",
        ),
        ("for n in near:\n    w = dist.irecv(x, n)\n    w.wait()", 3, "dist.irecv(x, n)"),
        # The variable has gone on, or may have, or there are several
        ("for n in near:\n    w = dist.irecv(x, n)\nw.wait()", 3, ""),
        ("to = 1\nw = dist.isend(x, to)\nto = 2\nw.wait()", 4, ""),
        ("ws = [dist.isend(x, n) for n in near]\nfor w in ws:\n    w.wait()", 3, ""),
        ("for w in [dist.isend(x, a), dist.irecv(y, b)]:\n    w.wait()", 2, ""),
        ("w = dist.all_reduce(x, async_op=True)\nw.wait()", 2, ""),
        (
            "ops = [P2POp(dist.isend, x, a), P2POp(dist.irecv, y, b)]\nfor w in batch_isend_irecv(ops):\n    w.wait()",
            3,
            "",
        ),
    ],
)
def test_with_whom_the_awaited_transfer_was_begun(body: str, line: int, call: str) -> None:
    assert begun(program(body), line + 2) == call
    assert begun(program(body), 0) == begun(program(body), 99) == ""


def test_the_frame_of_a_wait_has_the_peer(tmp_path: Path) -> None:
    source = tmp_path / "ring.py"
    source.write_text("\n".join(program("s = dist.isend(x, (to + 1) % 8)\ns.wait()")))
    local = {"name": "to", "repr": "7"}
    frame = {"name": "pass_on", "filename": str(source), "line": 4, "locals": [local]}
    [thread] = parse_json(json.dumps([{"thread_id": 1, "frames": [frame]}]).encode())
    assert thread.frames[0].values == {PEER: 0}
