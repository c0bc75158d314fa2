"""Tables of one value a rank beside the error of a check, and errors that several ranks raise alike."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.read_logs import diagnosed, named
from tests.support.written_logs import traceback

RAISED = """\
Traceback (most recent call last):
  File "/job/fit.py", line 31, in check
    raise {error}(text)
{error}: the sums do not agree
"""
TITLE = "sums of the ranks:\n"
AFTER = "\nDuring handling of the above exception, another exception occurred:\n\n"
CUT = 'Traceback (most recent call last):\n  File "/job/fit.py", line 50, in main\n    fit()\n'


def table(*values: str) -> str:
    return TITLE + "".join(f"rank {n:>3} = {value}\n" for n, value in enumerate(values))


@pytest.mark.parametrize("error", ["FloatingPointError", "ValueError"])
@pytest.mark.parametrize(
    ("values", "ranks", "says"),
    [
        (("nan", "nan", "nan", "nan"), [], "Ranks 0-3 all have a value that is no number"),
        (("1.5", "2.5", "3.5", "4.5"), [], "Ranks 0-3 do not have one value"),
        (("1.5", "1.5", "nan", "1.5"), [2], "Rank 2 alone has a value that is no number"),
        (("1.5", "1.5", "1.5", "7.0"), [3], "Rank 3 alone has another value than all others"),
        (("nan", "nan", "1.5", "1.5"), [], "which was first does not show"),
    ],
)
def test_the_table_in_the_message_of_a_check(
    tmp_path: Path, error: str, values: tuple[str, ...], ranks: list[int], says: str
) -> None:
    head = "-- Process 3 terminated with the following error:\n"
    found = diagnosed(
        tmp_path, head + RAISED.format(error=error) + "-" * 60 + "\n" + table(*values)
    )
    assert found.status == "failed" and named(found) == [("error", ranks)], found.summary
    assert says in found.summary and error in found.summary


def test_the_table_of_a_check_whose_error_is_missing(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, table("1.5", "2.5", "3.5") + AFTER + CUT)
    assert named(found) == [("error", [])] and "do not have one value" in found.summary


@pytest.mark.parametrize(
    "text",
    [
        table("1.5", "2.5", "3.5"),  # a program prints such tables
        table("1.5", "2.5", "3.5") + "Training finished\n",
    ],
)
def test_a_table_alone_is_no_failure(tmp_path: Path, text: str) -> None:
    assert diagnosed(tmp_path, text).causes == []


def test_a_table_that_is_not_of_the_error(tmp_path: Path) -> None:
    out_of_memory = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
    text = traceback(2, out_of_memory) + table("1.5", "2.5", "3.5")
    assert named(diagnosed(tmp_path, text)) == [("error", [2])]
    before = table("1.5", "2.5", "3.5") + traceback(1, "KeyError: 'shard'")
    assert named(diagnosed(tmp_path, before)) == [("error", [1])]


def test_values_that_agree_say_nothing(tmp_path: Path) -> None:
    text = RAISED.format(error="ValueError") + table("1.5", "1.5", "1.5")
    found = diagnosed(tmp_path, text)
    assert "table" not in found.summary and "ValueError" in found.summary


def test_one_error_of_several_ranks_in_one_place(tmp_path: Path) -> None:
    text = "".join(traceback(n, "AssertionError: still in use") for n in (1, 3))
    found = diagnosed(tmp_path, text)
    assert named(found) == [("error", [1, 3])], found.summary
    assert "alike, and which of them was first does not show" in found.summary
    other = traceback(1, "AssertionError: still in use") + traceback(3, "KeyError: 'shard'")
    assert named(diagnosed(tmp_path, other)) == [("error", [1])]


def test_a_guard_against_nan_that_may_have_another_ranks(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, traceback(3, "FloatingPointError: loss is nan"))
    assert named(found) == [("error", [3])] and found.causes[0].confidence <= 0.6
    assert "need not have had it first" in found.causes[0].advice


def test_nothing_chained_is_a_failure_in_words(tmp_path: Path) -> None:
    """The line between two exceptions says nothing; neither is a cut one after it the cause."""
    found = diagnosed(tmp_path, AFTER + CUT)
    assert "During handling" not in found.summary and found.causes == []


WHOLE = (
    'Traceback (most recent call last):\n  File "/job/fit.py", line 50, in main\n    fit()\n{}\n'
)


@pytest.mark.parametrize(
    "said",
    [
        "KeyboardInterrupt",
        "RuntimeError: DDP expects same model across all ranks, but Rank 3 has 21 params, while rank 0 has inconsistent 0 params.",
    ],
)
def test_a_cut_traceback_after_a_whole_one_that_follows(tmp_path: Path, said: str) -> None:
    found = diagnosed(tmp_path, WHOLE.format(said) + CUT.replace("line 50", "line 61"))
    assert found.causes == [] and "last line is missing" not in found.summary
    if "DDP" in said:
        assert "rank 3" in found.summary and "rank 0" in found.summary


NAMED = "2026-09-05 07:57:34.55: W external/x/util.cc:199] cannot make an executor for device 1: failed call: GPU_ERROR_INVALID_DEVICE: invalid ordinal\n"


def test_an_error_named_right_above_a_cut_traceback(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, NAMED + CUT)
    assert found.status == "failed" and "cannot make an executor" in found.summary
    whole = diagnosed(tmp_path, NAMED + WHOLE.format("ValueError: no device"))
    assert "ValueError" in whole.summary
    assert diagnosed(tmp_path, NAMED).causes == [], "a warning alone is no failure"
    far = diagnosed(tmp_path, NAMED + "step 3 loss 2.0\n" * 3 + CUT)
    assert "cannot make an executor" not in far.summary
