"""The key of a wait in the store, and the rank that is to set it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hangdoctor.readers import pyspy_frames
from hangdoctor.readers.asked_keys import asked
from hangdoctor.stacks.loop_counts import SETTER

LOOP = """def wait_all(self, step):
    for r in range({ranks}):
        key = f"done/{{step}}/{{{used}}}"
        self.store.wait([key], limit)
"""
SHOWN = {"key": "'done/32/2'", "r": "2", "step": "32", "token": "'hf_abcdefghijklmnopqrst'"}


def of_loop(ranks: str = "self.world", used: str = "r") -> tuple[str, int]:
    lines = LOOP.format(ranks=ranks, used=used).split("\n")
    return asked(lines, 4, lines[3].strip(), SHOWN)


@pytest.mark.parametrize(
    "ranks", ["self.world", "world_size", "1, WORLD", "dist.get_world_size()", "0, n_ranks"]
)
def test_whose_turn_it_is_in_a_loop_over_all_ranks(ranks: str) -> None:
    assert of_loop(ranks) == ("done/32/2", 2)


@pytest.mark.parametrize(("ranks", "used"), [("self.parts", "r"), ("self.world", "step")])
def test_another_loop_shows_only_the_key(ranks: str, used: str) -> None:
    assert of_loop(ranks, used) == ("done/32/2", -1)


@pytest.mark.parametrize(
    ("code", "key"),
    [
        ("store.get('ready')", "ready"),
        ("self.store.wait([f'done/{step}/{r}'])", "done/32/2"),
        ("client.blocking_key_value_get(key, 60000)", "done/32/2"),
        ("store.wait([key, 'other'])", ""),
        ("store.wait(keys)", ""),
        ("store.wait([f'{step:04}'])", ""),
        ("store.get(token)", ""),
        ("store.get('two words')", ""),
        ("queue.get(key)", ""),
        ("store.set(key, b'1')", ""),
    ],
)
def test_keys(code: str, key: str) -> None:
    assert asked([code], 1, code, SHOWN) == (key, -1)


def test_a_text_that_was_cut_is_no_key() -> None:
    assert asked([], 1, "store.get(key)", {"key": "'done/3...'"}) == ("", -1)


def test_they_are_kept_with_the_users_innermost_frame(tmp_path: Path) -> None:
    program = tmp_path / "save.py"
    program.write_text(LOOP.format(ranks="self.world", used="r"))
    variables = [{"name": name, "repr": text, "arg": False} for name, text in SHOWN.items()]
    frame = {"name": "wait_all", "filename": str(program), "line": 4, "locals": variables}
    thread = {"thread_id": 1, "thread_name": "MainThread", "frames": [frame]}
    [found] = pyspy_frames.parse_json(json.dumps([thread]).encode())
    assert found.frames[0].key == "done/32/2"
    assert found.frames[0].values[SETTER] == 2
