"""train.tb: charts renamed, cut and merged; what was read stays as it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("tensorboard")

from hangdoctor.train.tb import rewrite
from hangdoctor.train.tb.__main__ import main
from hangdoctor.train.tb.events import EventFile, event_files
from hangdoctor.train.tb.rewrite import read_map
from tests.support.event_files import LOSS, charts, write_run
from tests.support.trainer_ranks import ROOT

MAP = ROOT / "train" / "configs" / "grouped_charts.map"


def old_run(folder: Path, iterations: range, name: str) -> Path:
    """Events of a frozen training branch: every name of the map, and one that stays."""
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(folder), filename_suffix=f".{name}") as writer:
        for i in iterations:
            for tag in [*read_map(MAP), "memory"]:
                unit = {"samples": 16, "gigaflos": 1000}.get(tag.rpartition(" vs ")[2], 1)
                writer.add_scalar(tag, i / 7, i * unit)
    (path,) = folder.glob(f"events*.{name}")
    return path


def values(path: Path) -> list[tuple[float, int, str, float]]:
    """Every event that adds to a chart: time, step, name, value."""
    found = []
    for event in EventFile(path):
        for value in event.summary.value:
            found.append((event.wall_time, event.step, value.tag, value.simple_value))
    return found


def run(capsys: Any, *words: object) -> tuple[int, str, str]:
    code = main([str(word) for word in words])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_the_23_names_of_the_13b_training_become_those_of_main_in_one_pass(
    tmp_path, capsys
) -> None:
    old = [
        old_run(tmp_path / "old" / "sub", range(1, 4), "a"),
        old_run(tmp_path / "old", range(4, 6), "b"),
    ]
    before = [path.read_bytes() for path in old]
    names = read_map(MAP)
    assert len(names) == 23
    code, said, _ = run(capsys, "rename", tmp_path / "old", "--to", tmp_path / "new", "--map", MAP)
    assert code == 0 and "  lm loss vs gigaflos: 5 events renamed\n" in said
    for path in old:
        again = tmp_path / "new" / path.relative_to(tmp_path / "old")
        wanted = [(at, step, names.get(tag, tag), v) for at, step, tag, v in values(path)]
        assert values(again) == wanted
    assert set(charts(tmp_path / "new")) == {*names.values(), "memory"}
    assert [path.read_bytes() for path in old] == before


def test_a_map_that_names_nothing_of_it_leaves_nothing(tmp_path, capsys) -> None:
    path = write_run(tmp_path / "tb", (1, 2), "a")
    code, _, said = run(capsys, "rename", path, "--to", tmp_path / "new", "--map", MAP)
    assert code == 1 and "no chart has a name of the map" in said
    assert [p.name for p in tmp_path.iterdir()] == ["tb"]


@pytest.mark.parametrize("where", [("--after", "3"), ("--from", "4")])
def test_cut_by_iteration_cuts_the_other_units_too(where, tmp_path, capsys) -> None:
    old_run(tmp_path / "tb", range(1, 8), "a")
    code, said, _ = run(capsys, "cut", tmp_path / "tb", "--to", tmp_path / "new", *where)
    assert code == 0 and "96 events of 24 charts left out" in said
    shown = charts(tmp_path / "new")
    assert (shown["lm loss"], shown["memory"]) == ([1, 2, 3], [1, 2, 3])
    assert shown["lm loss vs samples"] == [16, 32, 48]
    assert shown["lm loss validation ppl vs gigaflos"] == [1000, 2000, 3000]


def test_merged_runs_are_one_file_by_time(tmp_path, capsys) -> None:
    for name, iterations in (("a", (1, 2)), ("b", (3, 4)), ("c", (5,))):
        write_run(tmp_path / name, iterations, name)
    write_run(tmp_path / "a" / "rolled_back" / "x", (9,), "aside")
    words = [tmp_path / name for name in "cab"]
    code, _, _ = run(capsys, "merge", *words, "--to", tmp_path / "all", "--json", tmp_path / "done")
    assert code == 0
    (path,) = event_files(tmp_path / "all")
    assert [step for _, step, tag, _ in values(path) if tag == LOSS] == [1, 2, 3, 4, 5]
    versions = [event for event in EventFile(path) if event.file_version]
    assert len(versions) == 1 and next(iter(EventFile(path))).file_version
    done = json.loads((tmp_path / "done").read_text())
    assert (done["schema"], done["events"]) == ("hangdoctor.event_files/1", 11)


def test_half_an_event_of_a_killed_job_is_left_out_and_said(tmp_path, capsys) -> None:
    path = write_run(tmp_path / "tb", (1, 2, 3), "a")
    path.write_bytes(path.read_bytes()[:-9])
    code, said, _ = run(capsys, "merge", tmp_path / "tb", "--to", tmp_path / "new")
    assert code == 0 and f"note: {path}: the last " in said and "cannot be read" in said
    assert charts(tmp_path / "new")[f"{LOSS} vs samples"] == [16, 32]


def test_a_disk_that_fills_leaves_nothing_behind(tmp_path, capsys, monkeypatch) -> None:
    for name in ("a", "b"):
        write_run(tmp_path / "tb", (1, 2), name)
    real, written = rewrite.write_events, []

    def full(path: Path, events: Any) -> int:
        if written:
            raise OSError(28, "No space left on device", str(path))
        written.append(path)
        return real(path, events)

    monkeypatch.setattr(rewrite, "write_events", full)
    code, _, said = run(capsys, "cut", tmp_path / "tb", "--to", tmp_path / "new", "--after", 1)
    assert code == 1 and "No space left" in said
    assert written and [p.name for p in tmp_path.iterdir()] == ["tb"]


def test_what_is_there_is_never_written_over(tmp_path, capsys) -> None:
    path = write_run(tmp_path / "tb", (1, 2), "a")
    before = path.read_bytes()
    code, _, said = run(capsys, "cut", tmp_path / "tb", "--to", tmp_path / "tb", "--after", 1)
    assert code == 1 and "is there already: give --to a folder that is not" in said
    assert path.read_bytes() == before
    (tmp_path / "empty").mkdir()
    code, _, said = run(capsys, "merge", tmp_path / "empty", "--to", tmp_path / "new")
    assert code == 1 and "has no event files" in said
    words = [tmp_path / "tb", path, "--to", tmp_path / "new", "--after", 1]
    assert "more than one IN has it" in run(capsys, "cut", *words)[2]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('"lm loss"', 'line 1: write "old name" "new name"'),
        ('# none\n"a" "b"\n"a" "c"\n', "line 3: 'a' has two new names"),
        ('"a "b"', "line 1: No closing quotation"),
        (None, "cannot be read"),
    ],
)
def test_a_map_that_cannot_be_meant_is_refused(text, complaint, tmp_path, capsys) -> None:
    write_run(tmp_path / "tb", (1,), "a")
    if text is not None:
        (tmp_path / "map").write_text(text)
    words = ["rename", tmp_path / "tb", "--to", tmp_path / "new", "--map", tmp_path / "map"]
    code, _, said = run(capsys, *words)
    assert code == 1 and complaint in said


@pytest.mark.parametrize("words", [[], ["cut", "a", "--to", "b"], ["merge", "a"]])
def test_wrong_usage_is_exit_code_2(words: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
