"""What ranks printed of their own before they waited, and in which of these lines one is alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hangdoctor.model.diagnosis import Diagnosis
from hangdoctor.readers.job_logs.speaker_labels import learn
from tests.support.ports import free_port
from tests.support.read_logs import diagnosed, named
from tests.support.stage import hangdoctor
from tests.support.written_logs import caught

PROGRAM = Path(__file__).parent / "programs" / "printing_job.py"
LIMIT = (
    "[rank{0}]: Traceback (most recent call last):\n"
    '[rank{0}]:   File "/job/train.py", line 31, in step\n'
    "[rank{0}]:     dist.all_reduce(x)\n"
    "[rank{0}]: RuntimeError: [/x/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 12000ms for recv "
    "operation to complete\n"
)


def steps(ranks: range, first: int, last: int, form: str = "[r{0}] step {1} loss {2}\n") -> str:
    return "".join(
        form.format(rank, step, f"0.{step}{rank}") for step in range(first, last) for rank in ranks
    )


def judged(folder: Path, text: str) -> Diagnosis:
    return diagnosed(folder, text + "".join(LIMIT.format(rank) for rank in range(4)))


def test_the_only_one_that_left_something_out(tmp_path: Path) -> None:
    text = steps(range(4), 0, 20) + "[r2] WARN step 20 skipped: ZeroDivisionError\n"
    verdict = judged(tmp_path, text + steps(range(4), 20, 40))
    assert named(verdict) == [("order", [2])]
    assert "'WARN step 20 skipped: ZeroDivisionError' (job.log:81)" in verdict.summary
    assert verdict.causes[0].confidence == 0.6
    assert "hangdoctor run, shows the call" in verdict.causes[0].advice


@pytest.mark.parametrize(
    "line",
    [
        "".join(f"[r{rank}] WARN step 20 skipped: bad row\n" for rank in range(4)),
        "[r0] INFO skipped iterations: 0 of this step\n",
        "[r2] WARN step 20 skipped: RuntimeError: Connection closed by peer\n",
        "[r2] WARN will not be skipped\n",
    ],
    ids=["all did", "none was", "a wait that failed", "of no step"],
)
def test_else_such_a_line_says_nothing(tmp_path: Path, line: str) -> None:
    text = steps(range(4), 0, 20) + line + steps(range(4), 20, 40)
    assert named(judged(tmp_path, text)) != [("order", [2])]
    assert "left something out" not in judged(tmp_path, text).summary


def test_another_last_line_than_all_others(tmp_path: Path) -> None:
    text = "".join(f"[r{rank}] epoch 0 finished\n" for rank in range(4)) + steps(range(4), 0, 30)
    verdict = judged(tmp_path, text + "[r3] epoch 1 finished\n")
    assert named(verdict) == [("order", [3])]
    assert "by what it printed last: 'epoch 1 finished' (job.log:125)" in verdict.summary


def test_a_line_that_only_it_prints_again_and_again_is_a_habit(tmp_path: Path) -> None:
    """As those of rank 0, which saves the checkpoints."""
    text = ""
    for step in range(0, 30, 10):
        text += steps(range(4), step, step + 10) + "[r0] saved a checkpoint\n"
    assert named(judged(tmp_path, text)) != [("order", [0])]


def test_another_value_where_all_had_the_same(tmp_path: Path) -> None:
    form = "[r{0}] step {1} tag={1} t={2}\n"
    text = steps(range(4), 0, 30, form)
    odd = [f"[r{rank}] step 30 tag={90 if rank == 1 else 30} t=0.1{rank}\n" for rank in range(4)]
    verdict = judged(tmp_path, text + "".join(odd))
    assert named(verdict) == [("order", [1])]
    assert "alone printed 'step 30 tag=90 t=0.11'" in verdict.summary


def test_values_that_are_measured_are_not_compared(tmp_path: Path) -> None:
    form = "[r{0}] step {1} rss=379 MB\n"
    text = steps(range(4), 0, 30, form)
    more = [f"[r{rank}] step 30 rss={381 if rank == 1 else 379} MB\n" for rank in range(4)]
    assert named(judged(tmp_path, text + "".join(more))) != [("order", [1])]


def test_of_two_that_differ_none_is_named(tmp_path: Path) -> None:
    text = steps(range(4), 0, 30) + "[r1] step 30 skipped\n" + steps(range(4), 30, 40)
    verdict = judged(tmp_path, text + "[r3] saving the epoch\n")
    assert "was elsewhere" not in verdict.summary and "left something out" not in verdict.summary


def test_what_the_one_that_did_not_wait_printed_last(tmp_path: Path) -> None:
    text = steps(range(4), 0, 30) + "[r2] opening shard_7.bin\n"
    waits = "".join(LIMIT.format(rank) for rank in (0, 1, 3))
    verdict = diagnosed(tmp_path, text + waits)
    assert named(verdict) == [("not_entered", [2])]
    assert "it printed last 'opening shard_7.bin' (job.log:121)" in verdict.summary


def test_last_lines_before_an_abort_may_be_lost_in_buffers(tmp_path: Path) -> None:
    """NCCL's watchdog ends the process at once."""
    text = steps(range(4), 0, 30, "[rank{0}]: step {1} loss {2}\n")
    text = text.replace("[rank2]: step 29 loss 0.292\n", "")
    verdict = diagnosed(tmp_path, text + "".join(caught(rank) for rank in range(4)))
    assert "was elsewhere" not in verdict.summary


def test_the_one_that_says_that_it_leaves(tmp_path: Path) -> None:
    closed = "jax.errors.JaxRuntimeError: INTERNAL: Gloo all-reduce failed: Connection closed by peer [127.0.0.1]:4\n"
    head = (
        'Traceback (most recent call last):\n  File "/job/fit.py", line 9, in <module>\n    run()\n'
    )
    text = steps(range(3), 0, 30, "process {0} INFO step {1} loss {2}\n")
    text += "process 1 ERROR scratch quota used up, giving up\n" + (head + closed) * 2
    verdict = diagnosed(tmp_path, text)
    assert verdict.status == "failed" and named(verdict) == [("dead", [1])]
    assert "'process 1 ERROR scratch quota used up, giving up' (job.log:91)" in verdict.summary


@pytest.mark.parametrize(
    ("form", "word"),
    [
        ("07:15 worker{0} INFO batch {1} loss 0.5", "worker"),
        ("Nov 27 07:15:56 sr-{0}  INFO: step {1} l1=0.4", "sr-"),
        ("[{0}] step {1}", "["),
        ("[   5.67s] r{0} step {1}", "r"),
        ("09:27:21.657 {0}: part 1 step {1} loss 5.5", ""),
        ("I process {0} INFO step {1}", "process "),
        ("10:25:18 * voice {0}/3 | step {1} loss 2.0", "voice "),
        ('{{"t": 17.5, "proc": {0}, "event": "update", "u": {1}}}', '"proc": '),
        ("1795775496.98,{0},63,{1},0.13,", "column 1"),
    ],
)
def test_the_word_for_a_process_is_learned(form: str, word: str) -> None:
    lines = [form.format(rank, step) for step in range(40) for rank in range(3)]
    label = learn(lines)
    assert label is not None and label.word == word
    assert [label.of(line) for line in lines[:4]] == [0, 1, 2, 0]


def test_a_step_is_no_process() -> None:
    assert learn([f"step {n} of 40: loss 0.{n}" for n in range(40)]) is None
    assert learn([f"epoch {n // 20} step {n}" for n in range(40)]) is None


def test_the_only_one_that_neither_lost_the_others_nor_was_ended(tmp_path: Path) -> None:
    """It went by itself, with whatever words."""
    closed = "[rank{0}]: RuntimeError: [/x/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:1\n"
    swept = "W1127 09:24:28.014000 12 torch/distributed/elastic/multiprocessing/api.py:1028] Sending process 13 closing signal SIGTERM\n"
    text = steps(range(4), 0, 30) + "[r3] mined 160 tiles\n"
    whole = text + "".join(closed.format(rank) for rank in range(3))
    assert named(diagnosed(tmp_path, whole)) == [("dead", [3])]
    assert named(diagnosed(tmp_path, text + closed.format(0) + swept)) == []


def test_all_ranks_say_that_they_are_through(tmp_path: Path) -> None:
    text = steps(range(3), 0, 30) + "[r1] ERROR preview failed: no soundfont\n"
    end = "".join(f"[r{rank}] fine\n" for rank in range(3))
    verdict = diagnosed(tmp_path, text + end)
    assert (verdict.status, verdict.causes) == ("healthy", [])
    assert diagnosed(tmp_path, text + end.replace("[r2] fine\n", "")).status != "healthy"
    part = end.replace("fine", "evaluation of the last epoch done")
    assert diagnosed(tmp_path, text + part).status != "healthy", "that is said of a part"
    each = "".join(f"[r{rank}] step {n} done\n" for n in range(30) for rank in range(3))
    assert diagnosed(tmp_path, each).status != "healthy", "that is said of each step"


def test_all_gave_up_alike(tmp_path: Path) -> None:
    """A check that all ranks make, as of the gradients' norm, is none's alone."""
    text = steps(range(4), 0, 30)
    end = "".join(f"[r{rank}] gradient norm inf at step 30, giving up\n" for rank in range(4))
    table = FAILED.replace("exitcode: 1", "exitcode: 3") + "main.py FAILED\n"
    verdict = diagnosed(tmp_path, text + end + table)
    assert verdict.status == "failed" and named(verdict) == [("error", [0, 1, 2, 3])]
    assert "all gave up, as each printed last: 'gradient norm inf at step 30" in verdict.summary
    some = end.replace("[r2] gradient norm inf at step 30, giving up\n", "")
    assert "all gave up" not in diagnosed(tmp_path, text + some + table).summary


FAILED = "E1127 10:25:09.557000 14 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: 1) local_rank: 1 (pid: 17) of binary: /usr/bin/python\n"
BROKEN = (
    "[rank1]: Traceback (most recent call last):\n"
    '[rank1]:   File "/job/melody.py", line 43, in <module>\n[rank1]:     load()\n'
    "[rank1]: ValueError: invalid load key\n"
)


def test_what_torchrun_started_again_did_not_fail_for_good(tmp_path: Path) -> None:
    """Its table comes only where it gives up."""
    text = steps(range(3), 0, 3) + BROKEN + FAILED
    verdict = diagnosed(tmp_path, text + steps(range(3), 0, 30))
    assert verdict.causes == [] and verdict.status == "unknown", verdict.summary
    assert named(diagnosed(tmp_path, text + "[r0] loading\n[r1] loading\n")) == [("error", [1])]
    end = "".join(f"[r{rank}] all done\n" for rank in range(3))
    assert diagnosed(tmp_path, text + steps(range(3), 0, 30) + end).status == "healthy"


def test_a_log_of_which_no_line_is_known_still_has_an_odd_one(tmp_path: Path) -> None:
    form = "[{0}] DEBUG send scores q={1} tag={1}\n"
    text = steps(range(4), 0, 30, form)
    text += "".join(
        f"[{rank}] DEBUG send scores q=30 tag={9 if rank == 2 else 30}\n" for rank in range(4)
    )
    verdict = diagnosed(tmp_path, text)
    assert verdict.status == "unknown" and verdict.causes == []
    assert "One line differs, which may be the reason: rank 2 printed" in verdict.summary


@pytest.mark.torch
def test_a_real_job_in_which_one_rank_drops_a_batch(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    run = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "3"]
    run += ["--master-port", str(free_port()), str(PROGRAM)]
    with log.open("w") as out:
        environ = os.environ | {"OMP_NUM_THREADS": "1", "LIMIT_S": "8"}
        done = subprocess.run(run, stdout=out, stderr=subprocess.STDOUT, env=environ, timeout=150)
    assert done.returncode != 0
    said = json.loads(hangdoctor("diagnose", str(log), "--json", "-", cwd=tmp_path).stdout)
    assert [c["ranks"] for c in said["causes"]] == [[1]], log.read_text()


NAN = "FloatingPointError: non-finite loss at step 41\n"


def guarded(rank: int) -> str:
    head = f"[rank{rank}]: "
    return (
        f'{head}Traceback (most recent call last):\n{head}  File "/job/train.py", line 9, in <module>\n'
        f'{head}    main()\n{head}  File "/job/guard.py", line 21, in check_finite\n{head}    raise\n{head}{NAN}'
    )


@pytest.mark.parametrize(("who", "ranks"), [((2,), [2]), ((1, 2), [0, 1, 2, 3])])
def test_who_alone_printed_a_number_that_is_not_finite(
    tmp_path: Path, who: tuple[int, ...], ranks: list[int]
) -> None:
    """All ranks see what came of it, and stop by the same guard."""
    seen = "".join(f"[r{rank}] WARN readings in [-inf, 1.6], kept\n" for rank in who)
    text = steps(range(4), 0, 40) + "[r1] WARN readings in [-2.5, 1.6], kept\n" + seen
    found = diagnosed(tmp_path, text + "".join(map(guarded, range(4))))
    assert found.status == "failed" and named(found) == [("error", ranks)], found.summary
    assert ("alone printed a number that is not finite" in found.summary) == (who == (2,))


def test_an_error_line_above_one_last_line_of_all_ranks_was_survived(tmp_path: Path) -> None:
    text = steps(range(4), 0, 40) + "[r3] ERROR push of the metrics failed (20 so far)\n"
    for words in ("trained 40 steps", "wrote no model"):
        found = diagnosed(tmp_path, text + "".join(f"[r{r}] {words}\n" for r in range(4)))
        assert (found.status, found.causes) == ("unknown", []), found.summary
    assert diagnosed(tmp_path, text).causes, "nothing shows that it went on"
    agreed = "".join(f"[r{r}] saving an emergency checkpoint\n" for r in range(4))
    assert diagnosed(tmp_path, text + agreed).causes, "the one that failed says so, too"


def test_a_kill_without_a_rank_is_of_the_only_one_that_lost_nobody(tmp_path: Path) -> None:
    """How many ranks there are, their own lines show."""
    closed = LIMIT.replace("Timed out waiting 12000ms for recv operation to complete", "")
    closed = closed.replace("unbound_buffer.cc:78", "pair.cc:553").rstrip()
    lost = [closed.format(rank) + "Connection closed by peer [127.0.0.1]:4\n" for rank in (0, 2, 3)]
    text = steps(range(4), 0, 30) + "".join(lost)
    found = diagnosed(
        tmp_path, text + "start.sh: line 11:    15 Killed       RANK=$r python t.py\n"
    )
    assert named(found) == [("dead", [1])], found.summary


def test_a_warning_that_speaks_of_nan_in_words_is_no_number(tmp_path: Path) -> None:
    text = "[r3] WARN NaN in unused columns are kept\n" + steps(range(4), 0, 40)
    text += "[r1] WARN readings in [-2.5, 1.6], kept\n[r2] WARN readings in [-inf, 1.6], kept\n"
    found = diagnosed(tmp_path, text + "".join(map(guarded, range(4))))
    assert named(found) == [("error", [2])], found.summary
