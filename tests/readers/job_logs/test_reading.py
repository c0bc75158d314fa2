"""The reader of job logs: prefixes, torn lines, packed and huge files, attempts, what is kept."""

from __future__ import annotations

import gzip
import io
import os
import sys
from pathlib import Path

import pytest

from hangdoctor.cli.diagnose import load
from hangdoctor.diagnosis import diagnose
from hangdoctor.errors import BadInput
from hangdoctor.model.log_facts import Cancelled, Ended, Fact, PythonError, TimedOut
from hangdoctor.readers import job_logs
from hangdoctor.readers.job_logs import source
from hangdoctor.readers.job_logs.habits import Habits
from hangdoctor.readers.job_logs.prefix import Said, group_name, records, strip
from hangdoctor.readers.job_logs.stamps import Clock
from tests.support.read_logs import diagnosed, logs_of, named
from tests.support.written_logs import caught, failed, table, traceback

WATCHDOG = "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=81, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=600000) ran for 600301 milliseconds before timing out."


def only(logs: job_logs.JobLogs, kind: type[Fact]) -> list[Fact]:
    return [f for f in logs.facts if isinstance(f, kind)]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("[rank12]: text", {"rank": 12}),
        ("[RANK 12]: text", {"rank": 12}),
        ("[rank 12] text", {"rank": 12}),
        ("[12]<stderr>:text", {"rank": 12}),
        ("[1,12]<stdout>:text", {"rank": 12}),
        ("[default3]:text", {"local": 3}),
        ("[trainer3]:[rank11]: text", {"local": 3, "rank": 11}),
        (
            "\x1b[36m(RayTrainWorker pid=811, ip=10.0.0.4)\x1b[0m text",
            {"pid": 811, "node": "10.0.0.4"},
        ),
        ("(MegatronPolicyWorker[rank=9] pid=30, ip=10.0.0.4) text", {"pid": 30, "rank": 9}),
        ("(Worker_TP3 pid=30) text", {"pid": 30, "worker": "TP3"}),
        ("(Worker_DP1_TP3_EP7 pid=30) text", {"pid": 30, "worker": "DP1 TP3"}),
        ("[2026-04-23 21:31:41 DP0 TP2] text", {"worker": "DP0 TP2"}),
        ("2026-08-30 11:06:12,922: rank4[208][MainThread]: text", {"rank": 4}),
        ("ERROR 09-05 21:05:38 [executor.py:59] text", {"level": "ERROR"}),
        ("[rank: 5] text", {"rank": 5}),
        ("n4:810:922 [2] text", {"node": "n4", "pid": 810, "local": 2}),
        ("n4 [stderr] text", {"node": "n4"}),
        ("704.7s\t1384\t[rank1]: text", {"rank": 1}),
        (
            "[E709 17:05:38.162555850 ProcessGroupNCCL.cpp:632] [PG ID 1 PG GUID 3(mesh_tp) Rank 3] text",
            {"group": "3(mesh_tp)", "group_rank": 3},
        ),
        (
            "[rank7]:[E ProcessGroupNCCL.cpp:1537] [PG 0 Rank 7] text",
            {"rank": 7, "group": "0", "group_rank": 7},
        ),
        ("2026-07-09 12:30:01,123 [rank3]: text", {"rank": 3}),
        ("12:30:01.123456 [rank3]: text", {"rank": 3}),
        (
            "W1122 01:36:29.414000 6664 torch/distributed/elastic/multiprocessing/api.py:1028] text",
            {"agent": 6664},
        ),
    ],
)
def test_prefixes(line: str, told: dict[str, object]) -> None:
    [record] = records(line)
    said = strip(record, Said(), Habits(), Clock())
    assert said.text == "text"
    assert {name: getattr(said, name) for name in told} == told


def test_prefixes_that_only_a_file_shows() -> None:
    assert strip("12: text", Said(), Habits(tasks=True), Clock()).task == 12
    assert strip("12: text", Said(), Habits(), Clock()).text == "12: text"
    assert strip("n4: text", Said(), Habits(hosts=True), Clock()).node == "n4"
    assert strip("ValueError: text", Said(), Habits(), Clock()).text == "ValueError: text"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("ID 0 PG GUID 0(default_pg)", "0(default_pg)"),
        ("0 (default_pg)", "0(default_pg)"),
        ("0", "0"),
        ("ID 1 PG GUID 3", "3"),
    ],
)
def test_names_of_groups(text: str, name: str) -> None:
    assert group_name(text) == name


def test_two_records_in_one_line_are_two(tmp_path: Path) -> None:
    text = f"Epoch 10: 240it [05:55, loss=5.46][rank0]:[E709 17:05:38.1 ProcessGroupNCCL.cpp:632] [Rank 0] {WATCHDOG}[rank1]:[E709 17:05:38.2 ProcessGroupNCCL.cpp:632] [Rank 1] {WATCHDOG}\n"
    (tmp_path / "a.log").write_text(text)
    waits = only(logs_of(tmp_path / "a.log"), TimedOut)
    assert sorted(w.rank for w in waits) == [0, 1]


def test_a_line_that_was_broken_in_two(tmp_path: Path) -> None:
    line = f"[rank3]:[E709 17:05:38.1 ProcessGroupNCCL.cpp:632] [Rank 3] {WATCHDOG}"
    (tmp_path / "a.log").write_text(line[:150] + "\n" + line[150:] + "\n")
    [wait] = only(logs_of(tmp_path / "a.log"), TimedOut)
    assert (wait.rank, getattr(wait, "seq", None), wait.line) == (3, 81, 2)


@pytest.mark.parametrize("form", ["gz", "utf-16", "crlf", "progress bar"])
def test_forms_of_files(tmp_path: Path, form: str) -> None:
    text = traceback(2, "ValueError: bad sample") + table(failed(2, 1))
    path = tmp_path / ("job.log.gz" if form == "gz" else "job.log")
    data = {
        "gz": gzip.compress(text.encode()),
        "utf-16": text.encode("utf-16"),
        "crlf": text.replace("\n", "\r\n").encode(),
        "progress bar": (
            "\r".join(f"{i}%|#| {i}/100 [00:01" for i in range(99)) + "\r" + text
        ).encode(),
    }
    path.write_bytes(data[form])
    assert named(diagnose(load([path]))) == [("error", [2])]


def test_a_packed_file_that_is_cut_gives_what_it_has(tmp_path: Path) -> None:
    text = traceback(2, "ValueError: bad sample") + os.urandom(200_000).hex()
    (tmp_path / "job.log.gz").write_bytes(gzip.compress(text.encode())[:-5000])
    assert named(diagnose(load([tmp_path / "job.log.gz"]))) == [("error", [2])]


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO(traceback(2, "ValueError: bad sample").encode())
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(raw))
    assert named(diagnose(load([Path("-")]))) == [("error", [2])]


def test_the_middle_of_a_large_log_is_searched_and_lines_are_counted(tmp_path: Path) -> None:
    boring = " iteration {:8d}/ 9000000 | lm loss: 2.1E+00 | grad norm: 0.5 |\n"
    before = "".join(boring.format(i) for i in range(40_000))
    after = before
    (tmp_path / "a.log").write_text(before + traceback(2, "ValueError: bad sample") + after)
    assert (tmp_path / "a.log").stat().st_size > 8 * source.BLOCK
    logs = logs_of(tmp_path / "a.log")
    [error] = [f for f in logs.facts if isinstance(f, PythonError)]
    assert (error.line, error.error, error.rank) == (40_006, "ValueError", 2)
    assert error.frame is not None and error.frame.name == "load_batch"
    assert logs.files[0].lines == 80_006


def test_what_is_said_a_thousand_times_is_kept_once(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(caught(3) * 5000 + traceback(1, "ValueError: x") * 2000)
    logs = logs_of(tmp_path / "a.log")
    assert len(logs.facts) < 10
    assert [f.times for f in logs.facts if isinstance(f, TimedOut)] == [5000]


def test_local_ranks_become_ranks_by_lines_that_tell_both(tmp_path: Path) -> None:
    text = "[default1]:[rank9]: started\n[default1]:[rank9]: ok\n"
    text += "[default1]:terminate called\n[default1]:  what():  CUDA error: unknown error\n"
    assert named(diagnosed(tmp_path, text)) == [("error", [9])]


def test_a_local_rank_alone_is_no_rank(tmp_path: Path) -> None:
    verdict = diagnosed(tmp_path, "[default3]:  what():  CUDA error: unknown error\n")
    assert named(verdict) == [("error", [])] and "local rank 3" in verdict.summary


def test_a_tree_of_torchrun(tmp_path: Path) -> None:
    files = {f"run/attempt_0/{r}/stderr.log": caught(r) for r in (0, 1, 3)}
    files["run/attempt_0/2/stderr.log"] = traceback(2, "ValueError: bad sample")
    verdict = diagnosed(tmp_path, files)
    assert named(verdict) == [("error", [2])]
    assert verdict.chain[0].file.startswith("run/attempt_0/") or verdict.chain[0].file.startswith(
        "attempt_0/"
    )


def test_the_last_attempt_is_judged(tmp_path: Path) -> None:
    agent = "E0709 17:0{}:00.000000 77 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: 1) local_rank: {} (pid: {}) of binary: python\n"
    text = traceback(1, "ValueError: first") + agent.format(1, 1, 701)
    text += traceback(2, "OSError: [Errno 28] No space left on device") + agent.format(2, 2, 802)
    verdict = diagnosed(tmp_path, text)
    assert named(verdict) == [("error", [2])] and "disk" in verdict.summary


def test_a_run_that_goes_on_after_a_cancelled_one(tmp_path: Path) -> None:
    lines = "".join(f" iteration {i:6d}/ 1000 | loss: 1\n" for i in range(20, 40))
    text = (
        lines
        + "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-07-09T12:00:00 DUE TO PREEMPTION ***\n"
    )
    text += "".join(f" iteration {i:6d}/ 1000 | loss: 1\n" for i in range(1, 9))
    text += traceback(1, "ValueError: later")
    assert named(diagnosed(tmp_path, text)) == [("error", [1])]


def test_srun_tells_tasks_and_nodes(tmp_path: Path) -> None:
    text = "srun: error: n4: task 45: Out Of Memory\nsrun: error: n[1-3]: tasks 0-3: Terminated\n"
    text += "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks have been OOM Killed.\n"
    verdict = diagnosed(tmp_path, text)
    assert [(c.kind, c.ranks, c.nodes) for c in verdict.causes] == [("dead", [45], ["n4"])]
    assert "memory" in verdict.summary


def test_slurm_names_the_lost_node_and_not_the_first_of_the_step(tmp_path: Path) -> None:
    text = "srun: error: Node failure on n12\nslurmstepd: error: *** STEP 1.0 ON n3 CANCELLED AT 2026-07-09T12:00:00 DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***\n"
    [cause] = diagnosed(tmp_path, text).causes
    assert (cause.kind, cause.nodes) == ("unreachable", ["n12"])


def test_nccl_names_the_peer(tmp_path: Path) -> None:
    text = "n1:810:922 [0] misc/socket.cc:50 NCCL WARN socketProgress: Connection closed by remote peer n7.cluster<55912>\n"
    [cause] = diagnosed(tmp_path, text).causes
    assert (cause.kind, cause.nodes) == ("unreachable", ["n7.cluster"])


def test_stamps_of_torch_get_the_year_of_the_others(tmp_path: Path) -> None:
    text = "[2026-07-09 16:00:00,000] [INFO] [launch.py:1:main] dist_world_size=2\n" + caught(0)
    text += table(failed(1, -6))
    (tmp_path / "a.log").write_text(text)
    logs = logs_of(tmp_path / "a.log")
    [wait], [end] = only(logs, TimedOut), only(logs, Ended)
    assert abs((end.at - wait.at) - 62) < 1


def test_a_text_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("what I saw last night\n")
    with pytest.raises(BadInput, match="no line of a job log"):
        load([tmp_path / "notes.txt"])


def test_a_log_without_a_line_that_is_known_cannot_tell(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, "walks 100\nwalks 200\n")
    assert (found.status, found.causes) == ("unknown", [])
    assert "neither a failure nor a clean end" in found.summary
    (tmp_path / "job.log").write_text("")
    with pytest.raises(BadInput, match="no line of a job log"):
        load([tmp_path / "job.log"])


@pytest.mark.parametrize(
    "line",
    [
        "[ERROR] DEVICE(19,ffff90,python):2026-03-18 [stream.cc:24] SyncStream] Call of the runtime failed",
        "2026-03-18 20:50:24 | ERROR | engine | wait for event 73 of stream 12 took too long",
        "F1118 20:50:24 event wait timed out during execution, stream_id:12",
    ],
)
def test_a_line_that_says_error_is_shown_where_no_line_is_known(tmp_path: Path, line: str) -> None:
    """Neither a warning, nor a setting, nor a number of errors."""
    before = "WARNING error: retried\nlog_level=ERROR\n0 errors\nINFO timed out, again\n"
    found = diagnosed(tmp_path, before + line + "\nERROR another\n")
    assert (found.status, [c.ranks for c in found.causes]) == ("failed", [[]])
    assert "in words that are not known here" in found.summary
    assert line[-24:-4] in found.summary and "job.log:5" in str(found.causes[0].evidence)


@pytest.mark.parametrize(
    "odd", [" " * 9000, "1" * 9000, "[" * 9000, "[rank1]:" * 900, "(pid=" * 900]
)
def test_odd_lines_cost_no_more_than_others(tmp_path: Path, odd: str) -> None:
    text = f"{odd}x\n{odd}Error\n" * 20 + traceback(2, "ValueError: bad sample")
    assert named(diagnosed(tmp_path, text)) == [("error", [2])]


def test_a_cancelled_job_accuses_nobody(tmp_path: Path) -> None:
    text = "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-07-09T12:00:00 ***\n"
    verdict = diagnosed(tmp_path, text)
    assert (verdict.status, named(verdict)) == ("unknown", [])
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "a.log").write_text(text)
    assert only(logs_of(tmp_path / "b" / "a.log"), Cancelled)
