"""Steps that ranks print by their number: whose prints stopped while those of all others went on."""

from __future__ import annotations

from pathlib import Path

from hangdoctor.diagnosis import diagnose
from hangdoctor.readers.offline import read
from tests.support.read_logs import diagnosed
from tests.support.written_logs import caught


def said(rank: int, step: int, form: str = "rank {} step {}: batch loaded") -> str:
    return form.format(rank, step) + "\n"


def round_of(ranks: range, step: int) -> str:
    return "".join(said(rank, step) for rank in ranks)


def test_a_rank_that_printed_nothing_after_a_step_that_others_left_behind(tmp_path: Path) -> None:
    text = round_of(range(4), 118) + said(0, 119) + said(2, 119) + said(3, 119) + said(0, 120)
    verdict = diagnosed(tmp_path, text + said(2, 120) + said(3, 120))
    assert verdict.causes == [] and verdict.status == "unknown"
    assert "Rank 1 printed nothing after" in verdict.summary and "step 120" in verdict.summary


def test_its_own_word_for_a_rank_and_lines_within_a_step(tmp_path: Path) -> None:
    part = "this is process {} in training step {} part 1"
    text = "".join(said(r, 4, part) + said(r, 4, part) for r in (0, 1))
    verdict = diagnosed(tmp_path, text + said(0, 4, part) + said(0, 5, part))
    assert "Rank 1 printed nothing after" in verdict.summary and "rank 0 went on" in verdict.summary


def test_ranks_that_run_side_by_side_are_in_no_order(tmp_path: Path) -> None:
    text = round_of(range(4), 118) + said(0, 119) + said(2, 119) + said(3, 119)
    assert "printed nothing after" not in diagnosed(tmp_path, text).summary
    one_ahead = round_of(range(4), 118) + said(2, 119) + said(2, 120)
    assert "printed nothing after" not in diagnosed(tmp_path, one_ahead).summary


def test_who_waited_itself_or_ended_is_no_lead(tmp_path: Path) -> None:
    text = round_of(range(3), 10) + said(0, 11) + said(2, 11) + said(0, 12) + said(2, 12)
    assert "Rank 1 printed nothing after" in diagnosed(tmp_path, text + caught(0)).summary
    assert "printed nothing after" not in diagnosed(tmp_path, text + caught(1)).summary


def test_a_step_of_another_rank_is_not_the_speakers(tmp_path: Path) -> None:
    text = "waiting for rank 1 at step 7\n" + round_of(range(2), 9) + round_of(range(2), 10)
    assert "printed nothing after" not in diagnosed(tmp_path, text).summary


def test_one_that_prints_more_rarely_is_not_behind(tmp_path: Path) -> None:
    rarely = "".join(
        said(0, step) + (said(1, step) if step in (5, 10) else "") for step in range(1, 20)
    )
    assert "printed nothing after" not in diagnosed(tmp_path, rarely).summary
    more = "".join(said(0, s) + said(0, s) + said(1, s) for s in (1, 2, 3)) + said(0, 4)
    assert "printed nothing after" not in diagnosed(tmp_path, more).summary


def test_a_file_of_each_rank(tmp_path: Path) -> None:
    for rank, last in ((0, 12), (1, 9), (2, 12)):
        lines = [f"2026-03-01 10:00:{at:02d},120 INFO step {at} done\n" for at in range(last + 1)]
        (tmp_path / f"rank{rank}.log").write_text("".join(lines))
    summary = diagnose(read(sorted(tmp_path.iterdir()))).summary
    assert "Rank 1 printed nothing after" in summary and "step 12" in summary


def test_a_line_into_which_another_ones_time_was_written_is_of_no_further_rank(
    tmp_path: Path,
) -> None:
    """ "rank=220:25:40" is rank 2, and the time of the next line."""
    lines = [
        f"20:25:40 rank={r} step {step} loss 0.8829" for step in range(300, 340) for r in range(3)
    ]
    lines[50] = "20:25:40 rank=220:25:40 step 309 loss 0.8829"
    lines[117:] = ["20:25:44 rank=0 step 341 loss 0.8", "20:25:44 rank=1 step 341 loss 0.8"]
    assert "220" not in diagnosed(tmp_path, "\n".join(lines) + "\n").summary
