"""train.rollback: back to global_step6210, whole or not at all, and undone."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("tensorboard")

from hangdoctor.train.checkpoint import files, training
from hangdoctor.train.rollback import journal as journals
from hangdoctor.train.rollback.__main__ import main
from tests.support.event_files import LOSS, charts, write_run
from tests.support.trainer_ranks import ROOT


def checkpoint(folder: Path, iteration: int, events: Path | None = None) -> None:
    partial = folder / f"global_step{iteration}.partial"
    partial.mkdir(parents=True)
    (partial / "weights.pt").write_text(str(iteration))
    files.leave_marker(partial, 0, {"weights.pt": len(str(iteration))})
    config = {"log": {"tensorboard": str(events) if events else ""}}
    files.commit(partial, {"state": {"consumed_samples": iteration * 16}, "config": config})


@pytest.fixture
def job(tmp_path: Path) -> tuple[Path, Path]:
    """As in the chronicle: saved at 3000, 6210, 6900 and 7200, started anew at 6000 and 6901."""
    ckpt, tb = tmp_path / "ckpt", tmp_path / "tb"
    for iteration in (3000, 6210, 6900, 7200):
        checkpoint(ckpt, iteration, tb)
    (ckpt / "global_step7230.partial").mkdir()
    (ckpt / "global_step6900_universal").mkdir()
    write_run(tb, (1000, 3000), "first")
    write_run(tb, (6100, 6200, 6300, 6900), "second")
    write_run(tb, (7000, 7010), "third")
    return ckpt, tb


def tree(*folders: Path) -> dict[str, bytes | None]:
    """All that lies below: files with what is in them."""
    found = [path for folder in folders for path in folder.rglob("*")]
    return {str(path): path.read_bytes() if path.is_file() else None for path in found}


def run(capsys: Any, *words: object) -> tuple[int, str, str]:
    code = main([str(word) for word in words])
    said = capsys.readouterr()
    return code, said.out, said.err


def names(folder: Path) -> set[str]:
    return {path.name.partition(".second")[0] for path in folder.iterdir()}


def test_back_to_6210_as_the_chronicle_did_by_hand(job, capsys) -> None:
    ckpt, tb = job
    code, said, _ = run(capsys, ckpt, "--to", 6210)
    assert code == 0
    assert (ckpt / "latest").read_text() == "global_step6210"
    assert (ckpt / files.MEGATRON_LATEST).read_text() == "6210"
    assert [s.iteration for s in files.candidates(ckpt)] == [6210, 3000]
    (aside,) = (ckpt / "rolled_back").iterdir()
    moved = {"global_step6900", "global_step7200", "global_step7230.partial"}
    assert names(aside) == moved | {"global_step6900_universal", "rollback.json"}
    # The charts end with the checkpoint, by iteration and by samples; posterity has the rest.
    assert charts(tb)[LOSS] == [1000, 3000, 6100, 6200]
    assert charts(tb)[f"{LOSS} vs samples"] == [16000, 48000, 97600, 99200]
    lost = tb / "rolled_back" / aside.name
    assert charts(lost)[LOSS] == [6100, 6200, 6300, 6900, 7000, 7010]
    assert (
        f"back to {ckpt}/global_step6210 (99360 consumed samples); latest was global_step7200"
        in said
    )
    assert "(iterations 6300-6900)" in said and "its 4 values up to the checkpoint" in said


def test_undone_it_is_as_before_and_done_again_there_is_nothing_to_do(job, capsys) -> None:
    before = tree(*job)
    assert run(capsys, job[0], "--to", 6210)[0] == 0
    code, said, _ = run(capsys, job[0], "--to", 6210)
    assert code == 0 and said.startswith("nothing to do: latest names global_step6210")
    assert tree(*job) != before
    assert run(capsys, job[0], "--undo")[0] == 0
    assert tree(*job) == before


def test_a_dry_run_says_the_same_and_does_nothing(job, capsys) -> None:
    before = tree(*job)
    code, said, _ = run(capsys, job[0], "--to", 6210, "--dry-run")
    assert (
        code == 0
        and f"would be moved to {job[0]}/rolled_back/NAME: global_step7230.partial, global_step7200, "
        in said
    )
    assert tree(*job) == before
    code, said, _ = run(capsys, job[0], "--to", 6210, "--dry-run", "--json", "-")
    plain = json.loads(said)
    assert (plain["schema"], plain["done"], len(plain["moves"])) == (
        "hangdoctor.rollback/1",
        False,
        6,
    )


class PowerCut(BaseException):
    """No handler of errors sees it."""


def cut_off(monkeypatch: pytest.MonkeyPatch, after: int, error: BaseException) -> None:
    """The renames after so many fail, as does all else that is written then."""
    done, real_move, real_write = [0], journals.move, journals.write_durably

    def counted(real: Any) -> Any:
        def act(*args: Any) -> None:
            if done[0] == after:
                raise error
            done[0] += 1
            real(*args)

        return act

    monkeypatch.setattr(journals, "move", counted(real_move))
    monkeypatch.setattr(journals, "write_durably", counted(real_write))


@pytest.mark.parametrize("way", ["--to", "--undo"])
def test_cut_off_anywhere_it_is_finished_or_taken_back(way, job, capsys, monkeypatch) -> None:
    """Every rename and every text in turn is the first that is not done."""
    before = tree(*job)
    for step in itertools.count(1):
        cut_off(monkeypatch, step, PowerCut())
        try:
            main([str(job[0]), "--to", "6210"])
            break
        except PowerCut:
            monkeypatch.undo()
        # A training that starts now finds a checkpoint, and none of the others is in its way.
        assert files.candidates(job[0])[0].iteration in (7200, 6900, 6210)
        if step > 2:
            code, _, said = run(capsys, job[0], "--to", 3000)
            assert code == 1 and "was cut off: finish it with --to 6210, or use --undo" in said
        if way == "--to":
            assert run(capsys, job[0], "--to", 6210)[0] == 0
            assert [s.iteration for s in files.candidates(job[0])] == [6210, 3000]
            assert charts(job[1])[LOSS] == [1000, 3000, 6100, 6200]
        assert run(capsys, job[0], "--undo")[0] == (0 if way == "--to" or step > 1 else 1)
        assert tree(*job) == before
    assert step == 12, "the journal three times, seven renames, two texts"


def test_an_undoing_that_was_cut_off_is_repeated(job, capsys, monkeypatch) -> None:
    before = tree(*job)
    for step in range(1, 9):
        assert run(capsys, job[0], "--to", 6210)[0] == 0
        cut_off(monkeypatch, step, PowerCut())
        with pytest.raises(PowerCut):
            main([str(job[0]), "--undo"])
        monkeypatch.undo()
        code, _, said = run(capsys, job[0], "--to", 6210)
        assert code == 1 and "was cut off: repeat --undo" in said
        assert run(capsys, job[0], "--undo")[0] == 0
        assert tree(*job) == before


def test_where_the_file_system_refuses_all_is_as_before(job, capsys, monkeypatch) -> None:
    before, refused = tree(*job), [0]
    real = journals.move

    def third_refused(source: Path, target: Path) -> None:
        refused[0] += 1
        if refused[0] == 3:
            raise OSError(13, "Permission denied", str(source))
        real(source, target)

    monkeypatch.setattr(journals, "move", third_refused)
    code, _, said = run(capsys, job[0], "--to", 6210)
    assert code == 1 and "Permission denied" in said and "everything is as it was before" in said
    assert tree(*job) == before


def test_what_was_saved_since_is_never_mixed_with_what_comes_back(job, capsys) -> None:
    """Rolled back twice: each branch comes back alone."""
    ckpt, _ = job
    assert run(capsys, ckpt, "--to", 6210)[0] == 0
    (first,) = (p.name for p in (ckpt / "rolled_back").iterdir())
    checkpoint(ckpt, 6300)
    checkpoint(ckpt, 6900)
    code, _, said = run(capsys, ckpt, "--undo")
    assert code == 1 and f"move them aside with --to 6210, then --undo {first}" in said
    assert "global_step6300" in said
    assert run(capsys, ckpt, "--to", 6210)[0] == 0
    assert run(capsys, ckpt, "--undo", first)[0] == 0
    assert [s.iteration for s in files.candidates(ckpt)] == [7200, 6900, 6210, 3000]
    (second,) = (p for p in (ckpt / "rolled_back").iterdir())
    assert (second / "global_step6300" / "weights.pt").read_text() == "6300"


def test_a_job_that_trains_there_is_seen(job, capsys) -> None:
    ckpt, _ = job
    begin = (
        "import sys; from pathlib import Path; from hangdoctor.train.checkpoint import training; "
    )
    begin += "training.begin(Path(sys.argv[1])); print('begun', flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", begin, str(ckpt)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "SLURM_JOB_ID": "4711"}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environment) as trainer:
        assert trainer.stdout is not None and trainer.stdout.readline() == b"begun\n"
        code, _, said = run(capsys, ckpt, "--to", 6210)
        assert code == 1 and f"process {trainer.pid} on " in said and "job 4711" in said
        trainer.kill()
    # It is gone and could not say so.
    assert training.who(ckpt) == ""
    mark = json.loads((ckpt / training.NAME).read_text())
    (ckpt / training.NAME).write_text(json.dumps({**mark, "host": "another-host"}))
    assert run(capsys, ckpt, "--to", 6210)[0] == 1
    assert run(capsys, ckpt, "--to", 6210, "--force")[0] == 0


def test_a_checkpoint_that_is_not_whole_is_refused_with_those_that_are(job, capsys) -> None:
    (job[0] / "global_step6210" / "weights.pt").unlink()
    before = tree(*job)
    for iteration in (6210, 6000):
        code, _, said = run(capsys, job[0], "--to", iteration)
        assert code == 1 and "whole ones in " in said and "3000, 6900, 7200" in said
    assert tree(*job) == before


def test_event_files_may_be_left_alone_or_be_elsewhere(job, capsys, tmp_path) -> None:
    ckpt, tb = job
    shown = charts(tb)
    assert run(capsys, ckpt, "--to", 6210, "--keep-events")[0] == 0
    assert charts(tb) == shown
    assert run(capsys, ckpt, "--undo")[0] == 0
    tb.rename(tmp_path / "elsewhere")
    code, said, _ = run(capsys, ckpt, "--to", 6210, "--dry-run")
    assert code == 0 and "which is no folder from here: give --events DIR" in said
    assert run(capsys, ckpt, "--to", 6210, "--events", tmp_path / "elsewhere")[0] == 0
    assert charts(tmp_path / "elsewhere")[LOSS] == [1000, 3000, 6100, 6200]


@pytest.mark.parametrize("words", [["ckpt"], ["ckpt", "--to", "5", "--undo"], []])
def test_wrong_usage_is_exit_code_2(words: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
