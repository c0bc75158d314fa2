"""Logs of several runs: one after the other in one file, or each in its own. They are no one job."""

from __future__ import annotations

from pathlib import Path

from tests.support.read_logs import diagnosed, logs_of, named

STEP = """\
srun: error: n{node}: task {task}: Aborted
srun: Terminating job step {job}.0
slurmstepd: *** STEP {job}.0 ON n1 CANCELLED AT 2026-02-{day}T10:59:46 ***
"""
BLOCK = """\
[n3:{pid}] *** An error occurred in MPI_Irecv
[n3:{pid}] *** reported by process [{job},{rank}]
[n3:{pid}] *** MPI_ERR_RANK: invalid rank
[n3:{pid}] *** MPI_ERRORS_ARE_FATAL (processes in this communicator will now abort,
"""
SEVERAL = "These logs are of 2 runs"


def test_each_in_its_own_file(tmp_path: Path) -> None:
    first = STEP.format(node=5, task=43, job=182529, day=26)
    last = STEP.format(node=7, task=47, job=184122, day=27)
    found = diagnosed(tmp_path, {"b.log": first, "a.log": last})
    assert named(found) == [("dead", [47])], found.summary
    [note] = [note for note in found.notes if SEVERAL in note]
    assert "rank 43 failed" in note


def test_files_of_one_job_and_of_its_parts_are_one_run(tmp_path: Path) -> None:
    first = STEP.format(node=5, task=43, job=182529, day=26)
    for job in (182529, 182530):  # the parts of a heterogeneous job have numbers beside one another
        last = STEP.format(node=7, task=47, job=job, day=26)
        found = diagnosed(tmp_path, {"b.log": first, "a.log": last})
        assert not any(SEVERAL in note for note in found.notes), found.notes
    found = diagnosed(tmp_path, {"b.log": first, "a.log": "[rank3]: step 4\nTask failed\n"})
    assert not any(SEVERAL in note for note in found.notes), "a file that has no number"


def test_one_after_the_other_in_a_file(tmp_path: Path) -> None:
    first = BLOCK.format(pid=51, job=4456568, rank=4)
    last = BLOCK.format(pid=62, job=3087233017, rank=2)
    found = diagnosed(tmp_path, f"$ mpirun a\n{first}$ mpirun a -b\n{last}")
    assert named(found) == [("error", [2])], found.summary
    assert any(SEVERAL in note and "rank 4 failed" in note for note in found.notes)


def test_what_the_other_run_printed_before_it_was_ended(tmp_path: Path) -> None:
    first = STEP.format(node=5, task=43, job=182529, day=26)
    raised = 'Traceback (most recent call last):\n  File "/job/a.py", line 3, in <module>\nValueError: x\n\n'
    last = STEP.format(node=7, task=47, job=184122, day=27).replace(
        "Aborted", "Exited with exit code 1"
    )
    found = diagnosed(tmp_path, f"{first}[me@login a]$ sbatch b\n\n{raised}{last}")
    assert named(found) == [("error", [47])], found.summary


def test_without_a_line_between_nothing_shows_where_the_other_begins(tmp_path: Path) -> None:
    first = BLOCK.format(pid=51, job=4456568, rank=4)
    last = BLOCK.format(pid=62, job=3087233017, rank=2)
    diagnosed(tmp_path, first + last)
    assert logs_of(tmp_path / "job.log").runs == 1
    mixed = first + "\n" + last + "\n" + BLOCK.format(pid=53, job=4456568, rank=5)
    diagnosed(tmp_path, mixed)
    assert logs_of(tmp_path / "job.log").runs == 1, "both ran at once"


def test_jobs_of_one_mpirun_are_one_run(tmp_path: Path) -> None:
    """Those that a program spawns have numbers of their own."""
    first = BLOCK.format(pid=51, job=(68 << 16) + 1, rank=4)
    last = BLOCK.format(pid=62, job=(68 << 16) + 2, rank=2)
    diagnosed(tmp_path, first + "\n" + last)
    assert logs_of(tmp_path / "job.log").runs == 1


def test_a_run_that_ended_well_after_one_that_failed(tmp_path: Path) -> None:
    failed = "$ srun a\n" + STEP.format(node=5, task=43, job=182529, day=26)
    well = "$ srun b\nsrun: job step 182777.0 started\nTraining completed successfully\n"
    found = diagnosed(tmp_path, failed + well)
    assert found.status == "failed" and named(found)[0][1] == [43], found.summary
