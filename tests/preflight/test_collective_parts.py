"""The parts of `preflight --collectives` without a network: a trial's orders, words, wording."""

from __future__ import annotations

import subprocess
import threading
import time
from pathlib import Path

import pytest

from hangdoctor.cli.preflight import EXIT_CODES
from hangdoctor.errors import UsageError
from hangdoctor.preflight.collectives import fabric, outcome
from hangdoctor.preflight.collectives.check import _device_test
from hangdoctor.preflight.collectives.fleet import Unit
from hangdoctor.preflight.collectives.options import sizes_in
from hangdoctor.preflight.collectives.report import Collectives, DeviceTest
from hangdoctor.preflight.collectives.running_trial import RunningTrial, size_text
from hangdoctor.preflight.collectives.search import Culprit, Found
from hangdoctor.preflight.collectives.speed_table import speed_table
from hangdoctor.preflight.collectives.trial import Judge, Result, Trial
from hangdoctor.preflight.collectives.words import Order, Word, line, order_in, word_in
from hangdoctor.preflight.compare import HISTORY, Finding, Preflight, with_more
from hangdoctor.preflight.history import FILE, MAX_LINES, Fault, History, Run, times_this_week
from hangdoctor.preflight.terminal_findings import lines

DAY_S = 86400.0


def trial_of(*units: str, ranks: int = 1) -> RunningTrial:
    counts = dict.fromkeys(units, ranks)
    return RunningTrial(7, Trial(units, "pairs"), counts, [8, 64], seconds=20.0, address="n1")


def finish(trial: RunningTrial, rank: int, seconds: float) -> None:
    for word in (
        Word("joined", 7, rank),
        Word("size", 7, rank, size=8, seconds=seconds),
        Word("size", 7, rank, size=64, seconds=seconds),
        Word("done", 7, rank),
    ):
        assert trial.hear("n1", word, 1.0) == {}


def test_rank_0_listens_before_the_others_are_told_where() -> None:
    trial = trial_of("n1", "n2", ranks=2)
    [(unit, first)] = trial.start(0.0).items()
    assert (unit, first.what, first.first_rank, first.world) == ("n1", "host", 0, 4)
    orders = trial.hear("n1", Word("listens", 7, 0, port=4711), 0.5)
    told = [(unit, o.what, o.first_rank, o.port, o.address) for unit, o in orders.items()]
    assert told == [("n1", "join", 0, 4711, "n1"), ("n2", "join", 2, 4711, "n1")]
    for rank in range(4):
        assert not trial.over(1.0)
        finish(trial, rank, seconds=1e-9 * (rank + 1))
    result = trial.result(1.0)
    assert trial.over(1.0) and result.complete and result.error == ""
    assert result.speeds[64] == pytest.approx(64 / 4e-9 * 2 * 3 / 4 / 1e9), "of the slowest rank"


def test_a_trial_that_fails_says_which_unit_was_behind_and_ends_early() -> None:
    trial = trial_of("n1", "n2", "n3")
    trial.start(0.0)
    assert trial.result(20.0).error == "n1 did not start a process", "no other was asked"
    trial.hear("n1", Word("listens", 7, 0, port=4711), 0.1)
    for rank in range(3):
        trial.hear(f"n{rank + 1}", Word("started", 7, rank), 0.1)
    for rank in (0, 1):
        trial.hear(f"n{rank + 1}", Word("store", 7, rank), 0.1)
    assert not trial.over(5.0) and trial.over(20.0)
    refused = Word("failed", 7, 2, text="DistNetworkError: connection refused")
    trial.hear("n3", refused, 5.0)
    assert not trial.over(5.5) and trial.over(6.0)
    result = trial.result(6.0)
    assert not result.complete and result.speeds == {} and result.seconds == 6.0
    said = "n3 did not reach the store on n1 (DistNetworkError: connection refused)"
    assert result.error == said


def test_a_late_trial_keeps_the_sizes_that_all_ranks_finished() -> None:
    trial = trial_of("n1", "n2")
    trial.start(0.0)
    trial.hear("n1", Word("listens", 7, 0, port=4711), 0.1)
    for rank in (0, 1):
        trial.hear("n1", Word("joined", 7, rank), 0.1)
        trial.hear("n1", Word("size", 7, rank, size=8, seconds=1.0), 0.1)
    trial.hear("n1", Word("size", 7, 0, size=64, seconds=1.0), 0.1)
    result = trial.result(20.0)
    assert list(result.speeds) == [8] and "did not finish the all_reduce of 64 B" in result.error
    trial.lose("n2", "its command ended with exit code 255", 20.0)
    assert "exit code 255" in trial.result(21.0).error


def test_lines_of_others_are_no_words() -> None:
    word = Word("size", 3, 1, size=64, seconds=0.5)
    assert word_in(line(word).rstrip()) == word
    assert word_in(b"Last login: today " + line(word)) == word
    assert order_in(line(Order("stop", 3)).rstrip()) == Order("stop", 3)
    for noise in (b"", b"motd", b"HANGDOCTOR-COLLECTIVE {", b"HANGDOCTOR-COLLECTIVE [1]", b"\xff"):
        assert word_in(noise) is None and order_in(noise) is None


def culprit(kind: str, units: list[str], status: str = "failed") -> Culprit:
    evidence = Result(units, "pairs", False, error="n3 did not join", seconds=30, status=status)
    return Culprit(kind, units, status, evidence, tried=3, bad=3)


def test_findings_name_node_link_and_what_to_do() -> None:
    good = Result(["n1", "n2"], "pairs", True, {1 << 20: 2.0})
    found = Found([culprit("node", ["n3"]), culprit("link", ["n1", "n4"], "slow")], [good])
    past = {"n3": "failed twice in the last 7 days"}
    node, link = outcome.of_search(
        found, Judge(0.5), past, lambda nodes: f"sbatch --exclude={nodes[0]}"
    )
    assert (node.check, node.verdict, node.nodes) == ("node n3", "fail", ["n3"])
    assert node.reading == (
        "all_reduce fails with 3 of 3 other nodes that work with others: n3 stopped after 30 s: "
        "n3 did not join; failed twice in the last 7 days"
    )
    assert node.advice.startswith("sbatch --exclude=n3;")
    assert (link.check, link.verdict) == ("link n1-n4", "warn")
    assert "both work with other nodes" in link.reading
    assert outcome.excluded(found.culprits, ["n1", "n2", "n3", "n4", "n5"], ["n5"]) == [
        "n3",
        "n4",
        "n5",
    ]
    assert outcome.excluded([culprit("undecided", ["n1", "n2"])], ["n1", "n2"], []) == []


def test_where_no_pair_works_the_network_is_named_and_not_a_node() -> None:
    pairs = [["n1", "n2"], ["n1", "n3"], ["n2", "n3"]]
    results = [Result(p, "pairs", False, error="no", status="failed") for p in pairs]
    found = Found([culprit("undecided", p) for p in pairs[:2]], results)
    [finding] = outcome.of_search(found, Judge(0.5), {}, None)
    assert finding.check == "network" and "no two nodes can do an all_reduce" in finding.reading


def test_a_wrong_or_slow_device_is_named() -> None:
    tests = [DeviceTest("n1", i, 60.0, 2000.0) for i in range(4)]
    [fine] = outcome.of_devices(tests, 0.5)
    assert fine.verdict == "ok" and "4 devices" in fine.reading
    tests[1].tflops = 20.0
    tests[2].error = "ArithmeticError: a matmul is wrong in 3 of 8192 rows"
    wrong, slow = outcome.of_devices(tests, 0.5)
    assert wrong.verdict == "fail" and wrong.reading.startswith("n1 GPU 2: ")
    assert slow.verdict == "warn" and slow.reading.startswith("n1 GPU 1 is slow: 20 TFLOP/s")


def test_what_could_not_be_tested_is_said_and_nothing_is_called_ready() -> None:
    """A warning of the node's own checks does not hide it; a failure stays one."""
    late = DeviceTest("n2", 0, untested="its test did not finish in time")
    open_ = outcome.of_left_out({"n1": "8 ranks of bloom, pid 7"}, {})
    open_ += outcome.of_devices([DeviceTest("n3", 0, 60.0, 2000.0), late], 0.5)
    open_ += outcome.of_unfinished(Found(links=3, of_links=28), "stopped after 20 min")
    warned = Finding("clock", "warn", ["n1"], "not synchronized")
    before = Preflight("warn", ["n1", "n2", "n3"], [warned])
    found = with_more(before, open_, Collectives())
    assert (found.verdict, EXIT_CODES[found.verdict]) == ("unknown", 12)
    first = next(lines(found))
    said = (
        "Could not tell: not tested: network and devices of n1, devices of n2, part of the network."
    )
    assert said in first and "Ready" not in first
    assert [f.nodes for f in found.findings if f.verdict == "ok"] == [["n3"]]
    bad = outcome.of_left_out({}, {"n4": "did not answer after 60 s"})
    failed = with_more(before, open_ + bad, Collectives())
    assert failed.verdict == "fail"
    assert "Not ready" in next(lines(failed)) and "Not tested: network" in next(lines(failed))
    kept = with_more(before, [Finding(HISTORY, "unknown", [], "disk full")], Collectives())
    assert kept.verdict == "warn", "the tests themselves were made"


@pytest.mark.parametrize(
    ("words", "error", "untested"),
    [
        ([Word("device", 1, 0, values={"TFLOP/s": 1.0})], "", ""),
        ([Word("failed", 1, 0, text="ArithmeticError: wrong")], "ArithmeticError: wrong", ""),
        ([Word("failed", 1, 0, text="OutOfMemoryError: CUDA")], "", "OutOfMemoryError: CUDA"),
        ([Word("started", 1, 0), Word("late", 1, 0)], "", "its test did not finish in time"),
    ],
)
def test_a_device_without_an_answer_is_not_called_wrong(
    words: list[Word], error: str, untested: str
) -> None:
    with subprocess.Popen(["true"]) as process:
        test = _device_test("n1", Unit("n1", process), 0, words)
    assert (test.error, test.untested) == (error, untested)


IB = "n1:12:34 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.1<0>"
SOCKET = "n1:12:34 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0>"
USING = "n1:12:34 [0] NCCL INFO Using network Socket"
LIBFABRIC = "n1:12:34 [0] NCCL INFO Using network AWS Libfabric"


def test_sockets_on_a_fast_fabric_are_noticed_with_their_source(tmp_path: Path) -> None:
    port = tmp_path / "infiniband" / "mlx5_0" / "ports" / "1"
    port.mkdir(parents=True)
    (port / "state").write_text("1: DOWN\n")
    assert fabric.of_host(tmp_path) == ""
    (port / "state").write_text("4: ACTIVE\n")
    (tmp_path / "cxi" / "cxi0").mkdir(parents=True)
    assert fabric.of_host(tmp_path) == "InfiniBand or RoCE (mlx5_0) and Slingshot (cxi0)"
    log = f"n1:12:34 [0] NCCL INFO Bootstrap : Using eth0\n{SOCKET}\n{USING}\nelse\n"
    assert fabric.transport_line(log) == USING
    assert [fabric.is_socket(text) for text in (IB, SOCKET, USING, LIBFABRIC, "")] == [
        False,
        True,
        True,
        False,
        False,
    ]
    seen = outcome.Seen({"n1": "InfiniBand", "n2": "InfiniBand", "n3": ""}, {})
    [untested] = outcome.of_fabric(seen, "gloo")
    assert untested.verdict == "unknown" and untested.nodes == ["n1", "n2"]
    seen.lines = {"n1": USING, "n2": IB, "n3": USING}
    [fallen] = outcome.of_fabric(seen, "nccl")
    assert fallen.verdict == "warn" and fallen.nodes == ["n1"] and USING in fallen.reading


def test_history_is_bounded_private_and_counts_a_week(tmp_path: Path) -> None:
    history = History(tmp_path / "new")
    assert history.runs() == []
    now = 100 * DAY_S
    for day, status in ((90, "failed"), (95, "failed"), (99, "slow"), (101, "failed")):
        history.keep(Run(day * DAY_S, ["n1", "n3"], [Fault(["n3"], status)]))
    file = tmp_path / "new" / FILE
    assert file.stat().st_mode & 0o777 == 0o600
    with file.open("ab") as out:
        out.write(b"torn {\n")
    assert times_this_week(history.runs(), ["n3"], now) == {"failed": 1, "slow": 1}
    assert times_this_week(history.runs(), ["n1"], now) == {}
    lines = file.read_bytes().splitlines()[:1] * (MAX_LINES + 5)
    file.write_bytes(b"\n".join(lines) + b"\n")
    history.keep(Run(now, ["n9"]))
    assert len(history.runs()) == MAX_LINES and history.runs()[-1].units == ["n9"]


def test_two_runs_at_once_are_both_kept(tmp_path: Path) -> None:
    def keep(number: int) -> None:
        History(tmp_path).keep(Run(time.time(), [f"n{number}"]))

    threads = [threading.Thread(target=keep, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {run.units[0] for run in History(tmp_path).runs()} == {f"n{i}" for i in range(8)}


def test_the_table_has_every_size_and_what_did_not_finish() -> None:
    tests = [
        Result(["n1", "n2"], "pairs", True, {65536: 0.5, 1 << 20: 2.25}, seconds=0.31),
        Result(["n1", "n3"], "pairs", False, {65536: 0.01}, seconds=30.0, status="slow"),
        Result(["n1", "n2", "n3"], "all", False, seconds=30.0, status="failed"),
    ]
    data = Collectives(
        "gloo", [65536, 1 << 20], tests, exclude="n3", leave_out="sbatch --exclude=n3"
    )
    assert list(speed_table(data)) == [
        "",
        "all_reduce by gloo, bus bandwidth in GB/s",
        "  stage  nodes   64 kB  1 MB  seconds  result",
        "  pairs  n1-n2   0.5    2.25  0.3      ok",
        "  pairs  n1-n3   0.01   -     30.0     slow",
        "  all    n[1-3]  -      -     30.0     failed",
        "sbatch --exclude=n3",
    ]
    data.tests = tests * 20
    assert "and 20 more tests" in list(speed_table(data))[-2]


def test_sizes_are_read_and_written_alike() -> None:
    assert sizes_in("16M,64k, 1G,1000") == [1000, 64 << 10, 16 << 20, 1 << 30]
    assert [size_text(s) for s in sizes_in("64k,16MB,1g,12")] == ["12 B", "64 kB", "16 MB", "1 GB"]
    for wrong in ("", "1,x", "3", "32G", "1k,2k,3k,4k,5k,6k,7k,8k,9k", "-1k"):
        with pytest.raises(UsageError):
            sizes_in(wrong)
