"""`hangdoctor diagnose` on recorder dumps, black boxes and RAS answers, alone and mixed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support.stage import hangdoctor

DATA = Path(__file__).parents[1] / "data"


def diagnose(folder: Path, *paths: Path) -> dict[str, Any]:
    return dict(
        json.loads(hangdoctor("diagnose", *map(str, paths), "--json", "-", cwd=folder).stdout)
    )


@pytest.mark.parametrize("form", ["gloo-json", "gloo-pickle"])
def test_a_folder_of_dumps(tmp_path: Path, form: str) -> None:
    verdict = diagnose(tmp_path, DATA / "flight_recorder" / form)
    [cause] = verdict["causes"]
    assert (verdict["status"], cause["kind"], cause["ranks"]) == ("hang", "not_entered", [2])
    assert cause["where"]["seq"] == 4 and cause["where"]["group_ranks"] == [0, 1, 2, 3]
    assert verdict["waits"][0]["ranks"] == [0, 1, 3]


def test_damaged_foreign_and_missing_dumps_are_named_and_the_rest_is_diagnosed(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "dumps"
    shutil.copytree(DATA / "flight_recorder" / "gloo-pickle", folder)
    (
        folder / "comm_lib_trace_rank_0"
    ).unlink()  # gloo shows no world size: only ranks below the highest can be missed
    whole = (folder / "comm_lib_trace_rank_1").read_bytes()
    (folder / "comm_lib_trace_rank_1").write_bytes(whole[: len(whole) // 2])
    (folder / "notes.txt").write_text("what I saw last night\n")
    verdict = diagnose(tmp_path, folder)
    notes = "\n".join(verdict["notes"])
    assert "comm_lib_trace_rank_1" in notes and "notes.txt" in notes
    assert [m["ranks"] for m in verdict["missing"]] == [[0, 1]]
    # Rank 2 did not enter either, but may wait in a transfer for its neighbour stage, which is not
    # seen: gloo's recorder has none.
    cause = verdict["causes"][0]
    assert (cause["kind"], cause["ranks"]) == ("unreachable", [0, 1])
    said = " ".join(clue["says"] for clue in cause["evidence"])
    assert "not finished" in said and "all captured members" not in said


def test_a_pickle_that_wants_to_run_something_is_refused_by_name(tmp_path: Path) -> None:
    import pickle

    class Evil:
        def __reduce__(self) -> tuple[Any, tuple[str]]:
            return (Path.touch, (str(tmp_path / "ran"),))

    folder = tmp_path / "dumps"
    shutil.copytree(DATA / "flight_recorder" / "gloo-pickle", folder)
    (folder / "comm_lib_trace_rank_1").write_bytes(
        pickle.dumps({"entries": [Evil()], "pg_config": {}, "version": "2.10"})
    )
    verdict = diagnose(tmp_path, folder)
    assert not (tmp_path / "ran").exists()
    assert any("comm_lib_trace_rank_1" in n for n in verdict["notes"])


@pytest.mark.parametrize(
    ("name", "kind", "ranks"),
    [
        ("dead-2.28.txt", "unreachable", [21, 22]),
        ("missing-2.29.json", "unreachable", [3]),
    ],
)
def test_answers_of_ras(tmp_path: Path, name: str, kind: str, ranks: list[int]) -> None:
    verdict = diagnose(tmp_path, DATA / "ras" / name)
    assert (verdict["causes"][0]["kind"], verdict["causes"][0]["ranks"]) == (kind, ranks)
    assert verdict["causes"][0]["evidence"][0]["source"] == "ras"
