"""The report on a terminal: one screen, the verdict last, words and commands in one piece."""

from __future__ import annotations

import ast
import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from hangdoctor.cli.console import console
from hangdoctor.model.diagnosis import (
    Cause,
    Diagnosis,
    Evidence,
    Job,
    RankLine,
    StackFrame,
    StackGroup,
)
from hangdoctor.report import terminal_report
from hangdoctor.text.durations import duration
from hangdoctor.text.job_names import short_job

SENTENCE = (
    "Rank 5 (n2, pid 7791) never reached all_reduce #12; it is sleeping in load_batch (data.py:40). "
    "Ranks 0-4,6-7 have been waiting for 41 s."
)
COMMAND = "hangdoctor run -- CMD"
BUNDLE = "hangdoctor-demo-1-20261120-031500 (a page to send: hangdoctor report hangdoctor-demo-1)"


def hung(ranks: int) -> Diagnosis:
    frames = [StackFrame(f"step_{n}", f"/app/module_{n}.py", n + 1) for n in range(6)]
    stacks = [
        StackGroup([rank], "MainThread", [*frames, StackFrame(f"at_{rank}", "/app/train.py", rank)])
        for rank in range(ranks)
    ]
    places = [
        RankLine(
            rank=rank,
            node="n2",
            pid=100 + rank,
            gpu="",
            local_rank=rank,
            state="S still",
            place="a place",
        )
        for rank in range(ranks)
    ]
    advice = (
        f"Stacks do not show operation numbers. Start the job with {COMMAND}, or with a recorder."
    )
    cause = Cause(
        "not_entered",
        [5],
        ["n2"],
        0.94,
        SENTENCE,
        evidence=[Evidence("stack", [5], f"clue {n}") for n in range(6)],
        advice=advice,
    )
    return Diagnosis(
        "hang",
        Job("torchrun:demo-1", ranks, ["n2"]),
        SENTENCE,
        [cause],
        stacks=stacks,
        ranks=places,
        notes=[f"note {n}" for n in range(6)],
    )


def shown(diagnosis: Diagnosis, width: int, rows: int, is_terminal: bool = True) -> list[str]:
    out = io.StringIO()
    screen = Console(
        file=out, width=width, force_terminal=is_terminal, color_system=None, emoji=False
    )
    terminal_report.render(diagnosis, screen, BUNDLE, rows=rows)
    return out.getvalue().splitlines()


@pytest.mark.parametrize(("ranks", "width", "rows"), [(8, 80, 23), (8, 160, 24), (64, 100, 30)])
def test_a_report_is_one_screen_and_says_what_it_left_out(
    ranks: int, width: int, rows: int
) -> None:
    lines = shown(hung(ranks), width, rows)
    assert len(lines) <= rows and max(map(len, lines)) <= width
    assert any(re.fullmatch(r"  \d+ more lines?: --full", line) for line in lines)
    whole = shown(hung(ranks), width, 0)
    assert len(whole) > rows and not any("--full" in line for line in whole)


def test_evidence_that_is_left_out_is_counted() -> None:
    diagnosis = hung(8)
    diagnosis.causes[0].evidence = [Evidence("stack", [r], "in step") for r in range(8)]
    lines = shown(diagnosis, 100, 0)
    assert [line.strip() for line in lines if "the page list" in line] == [
        "and     2 more (--json and the page list them)"
    ]


def test_the_last_three_lines_are_the_verdict_what_to_do_and_the_bundle() -> None:
    *_, verdict, what, bundle = shown(hung(8), 160, 40, is_terminal=False)
    assert verdict == f"HANG {SENTENCE} (not_entered, confidence 94 %)"
    assert what.startswith("DO   Stacks do not show") and bundle == f"bundle {BUNDLE}"
    wrapped = shown(hung(8), 80, 40)
    begins = [n for n, line in enumerate(wrapped) if line.startswith(("HANG", "DO ", "bundle"))]
    assert len(begins) == 3 and wrapped[begins[0] - 1] == "" and "" not in wrapped[begins[0] :]


@pytest.mark.parametrize("width", range(30, 130, 7))
def test_words_wrap_whole_and_a_command_is_never_broken(width: int) -> None:
    lines = shown(hung(8), width, 0)
    assert any(COMMAND.removeprefix("hangdoctor ") in line for line in lines)
    words = " ".join(" ".join(lines).split())
    for sentence in (SENTENCE, hung(8).causes[0].advice):
        assert sentence in words


def test_a_pipe_gets_lines_as_they_are() -> None:
    assert max(map(len, shown(hung(8), 80, 0, is_terminal=False))) > 80


def test_a_line_number_between_colons_is_no_emoji(capsys: pytest.CaptureFixture[str]) -> None:
    """Not in the rows of a terminal, in a pipe, or in `report --text`."""
    diagnosis = hung(8)
    said = diagnosis.causes[0].advice = "Compare it with pipe_tied.py:100: one sends."
    assert f"DO   {said}" in shown(diagnosis, 160, 0)
    terminal_report.render(diagnosis, console(no_color=True, width=160))
    assert f"DO   {said}" in capsys.readouterr().out
    assert f"DO   {said}" in terminal_report.plain(diagnosis)


def test_no_console_turns_names_between_colons_into_emoji() -> None:
    """Every one that the tool makes, and every text with markup, says so: rich's own way is to."""
    makers = ("Console", "from_markup")
    for path in sorted((Path(terminal_report.__file__).parents[1]).rglob("*.py")):
        source = path.read_text()
        if not any(maker in source for maker in makers):
            continue
        for call in (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)):
            name = getattr(call.func, "attr", getattr(call.func, "id", ""))
            if name in makers:
                said = {k.arg: getattr(k.value, "value", None) for k in call.keywords}
                assert said.get("emoji") is False, f"{path}:{call.lineno}"


def test_durations_have_one_format() -> None:
    said = [duration(s) for s in (0, 0.04, 0.42, 1, 2.46, 5, 9.96, 41.4, 119.9, 720, 7199, 11520)]
    assert said == [
        "0 s",
        "0 s",
        "0.4 s",
        "1 s",
        "2.5 s",
        "5 s",
        "10 s",
        "41 s",
        "120 s",
        "12 min",
        "120 min",
        "3.2 h",
    ]


def test_jobs_have_short_names_that_are_parts_of_their_keys() -> None:
    from hangdoctor.readers.jobnames import names_job

    keys = {
        "torchrun:5f0e7c21-9a1b-4c3d-8e2f-0123456789ab": "5f0e7c21",
        "torchrun:demo-3135": "demo-3135",
        "5f0e7c21-9a1b-4c3d-8e2f-0123456789ab-127.0.0.1-29500": "5f0e7c21-127.0.0.1-29500",
        "slurm:7.0": "slurm:7.0",
        "torchrun:": "torchrun:",
        "127.0.0.1:29500": "127.0.0.1:29500",
    }
    for key, short in keys.items():
        assert short_job(key) == short
    for key in list(keys)[:2]:
        assert names_job(short_job(key), key)
