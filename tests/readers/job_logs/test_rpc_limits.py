"""Calls by torch's RPC that got no answer: who made them waited, and who did not serve is not shown."""

from __future__ import annotations

from pathlib import Path

from tests.support.read_logs import diagnosed, named

CALL = (
    "[rank{0}]: Traceback (most recent call last):\n"
    '[rank{0}]:   File "/app/train.py", line 73, in train\n'
    '[rank{0}]:     w = rpc.rpc_sync("server", exchange, timeout=45)\n'
    "[rank{0}]: RuntimeError: RPCErr:1:RPC ran for more than set timeout (45000 ms) and will now be marked with an error\n"
)


def test_who_called_and_got_no_answer_is_no_culprit(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, "step 10 loss 0.2\n" + CALL.format(2) + CALL.format(3))
    assert (found.status, found.causes) == ("unknown", []), found.summary
    assert "call by RPC got no answer" in found.summary


def test_an_error_of_the_server_before_it_is_the_cause(tmp_path: Path) -> None:
    error = (
        "[rank0]: Traceback (most recent call last):\n"
        '[rank0]:   File "/app/server.py", line 30, in exchange\n'
        "[rank0]: KeyError: 'round'\n"
    )
    found = diagnosed(tmp_path, "step 10 loss 0.2\n" + error + CALL.format(2))
    assert named(found) == [("error", [0])], found.summary
