"""The node's side of `preflight --collectives`, with real ranks, and the test of a device."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hangdoctor.launchers.gather import own_command
from hangdoctor.launchers.remote import Command
from hangdoctor.preflight.collectives import device_test
from hangdoctor.preflight.collectives.check import NetworkTest
from hangdoctor.preflight.collectives.fleet import Fleet, Plan
from hangdoctor.preflight.collectives.options import CollectiveOptions
from hangdoctor.preflight.collectives.words import NodeSetup, Order, Word, line, packed, word_in
from hangdoctor.preflight.compare import Preflight
from hangdoctor.preflight.history import Fault, History, Run
from tests.support.lab import wait_until

pytestmark = pytest.mark.torch


def server() -> subprocess.Popen[bytes]:
    setup = packed(NodeSetup(beside=True))
    return subprocess.Popen(
        [sys.executable, "-m", "hangdoctor", "preflight", "--serve", setup],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"OMP_NUM_THREADS": "1", "HANGDOCTOR_DISABLE": "1"},
    )


def hear(process: subprocess.Popen[bytes], *stages: str) -> Word:
    """The next word of one of these stages."""
    assert process.stdout is not None
    for text in process.stdout:
        word = word_in(text)
        assert word is not None
        if word.stage in stages:
            return word
    raise AssertionError(f"it ended before {stages}")


def send(process: subprocess.Popen[bytes], order: Order) -> None:
    assert process.stdin is not None
    process.stdin.write(line(order))
    process.stdin.flush()


def children(pid: int) -> list[int]:
    return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def alone(process: subprocess.Popen[bytes], seconds: float) -> int:
    """A rank 0 that waits for a rank 1 which never comes; its pid."""
    order = Order("host", 2, 0, 2, address="127.0.0.1", sizes=[1024], seconds=seconds)
    send(process, order)
    assert hear(process, "listens").port > 0
    [rank] = children(process.pid)
    return rank


def test_a_stopped_node_is_named_and_all_are_ended(tmp_path: Path) -> None:
    names = ["a", "b", "c"]
    commands = [
        Command(n, own_command(["preflight", "--serve", packed(NodeSetup(beside=True))]))
        for n in names
    ]
    options = CollectiveOptions([4096, 65536], seconds=5.0, slow_below=0.01, history=tmp_path)
    plan = Plan(options.sizes, options.seconds, 100.0, dict.fromkeys(names, "127.0.0.1"))
    History(tmp_path).keep(Run(time.time() - 3600, names, [Fault(["b"], "failed")]))
    with Fleet(commands, os.environ | {"OMP_NUM_THREADS": "1"}, plan) as fleet:
        fleet.wait_ready()
        pids = {name: unit.process.pid for name, unit in fleet.units.items()}
        network = NetworkTest(options, lambda text: None, leave_out=lambda nodes: f"cordon {nodes}")
        network.test_devices = lambda *_: []  # type: ignore[method-assign]
        os.kill(pids["b"], signal.SIGSTOP)
        found = network.run(Preflight("ok", names), fleet)
    assert all(map(is_gone, pids.values()))
    data = found.collectives
    assert (
        data is not None
        and (data.exclude, data.leave_out) == ("b", "cordon ['b']")
        and data.backend == "gloo"
    )
    assert [(c.kind, c.units, c.status) for c in data.culprits] == [("node", ["b"], "failed")]
    assert "b did not start a process" in found.findings[0].reading
    assert found.findings[0].reading.endswith("; failed twice in the last 7 days")
    [good] = [t for t in data.tests if not t.bad]
    assert good.units == ["a", "c"] and good.speeds[65536] > 0
    [_, run] = History(tmp_path).runs()
    assert run.faults == [Fault(["b"], "failed")]


def is_gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


def test_ranks_end_at_their_deadline_at_stop_and_when_the_input_ends() -> None:
    process = server()
    try:
        hear(process, "ready")
        send(process, Order("device", 1, seconds=60))
        values = hear(process, "device", "failed").values
        assert values["TFLOP/s"] > 0 and values["GB/s"] > 0
        hear(process, "done")
        alone(process, seconds=1)
        assert hear(process, "late", "failed").trial == 2
        wait_until(lambda: children(process.pid) == [], "the late rank has ended")
        stopped = alone(process, seconds=100)
        send(process, Order("stop", 2))
        wait_until(lambda: is_gone(stopped), "a stopped rank has ended")
        last = alone(process, seconds=100)
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(timeout=60) == 0
        assert is_gone(last)
    finally:
        process.kill()
        process.wait()


@pytest.mark.full
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_no_rank_outlives_its_server(number: signal.Signals) -> None:
    process = server()
    try:
        hear(process, "ready")
        rank = alone(process, seconds=100)
        process.send_signal(number)
        process.wait(timeout=60)
        wait_until(lambda: is_gone(rank), "the rank has ended with its server")
    finally:
        process.kill()
        process.wait()


@pytest.mark.full
def test_a_device_that_computes_wrongly_or_forgets_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch = pytest.importorskip("torch")
    cpu = torch.device("cpu")
    assert device_test.multiply_test(torch, cpu, 64) > 0
    assert device_test.memory_test(torch, cpu, 1 << 16) > 0
    left = torch.randint(-8, 9, (64, 64)).float()
    vector = torch.ones(64, 1, dtype=torch.float64)
    product = left @ left
    expected = left.double() @ (left.double() @ vector)
    device_test.check_product(product, vector, expected)
    product[3, 5] += 1
    with pytest.raises(ArithmeticError, match="wrong in 1 of 64 rows"):
        device_test.check_product(product, vector, expected)
    block = torch.full((1000,), 0x55, dtype=torch.uint8)
    block[7] ^= 4
    with pytest.raises(ArithmeticError, match="1 of 1000 bytes"):
        device_test.check_bytes(block, 0x55)
    # A GPU's memory is compared slice by slice: all of it at once would need as much again.
    monkeypatch.setattr(device_test, "_SLICE", 400)
    device_test.check_bytes(torch.zeros(1000, dtype=torch.uint8), 0)
    block[999] = 0
    with pytest.raises(ArithmeticError, match="2 of 1000 bytes"):
        device_test.check_bytes(block, 0x55)
