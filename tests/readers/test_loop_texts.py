"""Checksums of the texts that a loop of the program's own asks with."""

from __future__ import annotations

import json
from pathlib import Path

from hangdoctor.readers import pyspy_frames
from hangdoctor.readers.loop_texts import checksums

LOOP = """import time

def barrier(store, prefix):
    key = f"{prefix}/order"
    n = store.add(key, 1)
    while n < 4:
        time.sleep(0.1)
        n = store.add(key, 0)
"""


SERVES = """def serve(self, key):
    while not self.stop.is_set():
        answer(key)
"""
ENDLESS = """def serve(self, key):
    while True:
        answer(key)
"""
TRIES = """def wait(self, key):
    while True:
        if store.has(key, where, password):
            return key
        time.sleep(1)
"""


def test_texts_and_paths_have_one_and_secrets_none() -> None:
    found = checksums(
        TRIES.split("\n"),
        5,
        {
            "key": "'run/4dad2'",
            "where": "PosixPath('/tmp/a')",
            "n": "3",
            "store": "<Store>",
            "password": "'abc'",
            "elsewhere": "'abc'",
        },
    )
    assert set(found) == {"key", "where"} and all(0 <= n < 1 << 16 for n in found.values())
    other = checksums(TRIES.split("\n"), 5, {"key": "'run/f5e2f'"})
    assert other["key"] != found["key"]
    for source in (SERVES, ENDLESS):  # what comes there is another thing on each rank
        assert checksums(source.split("\n"), 3, {"key": "'a'"}) == {}


def test_they_are_of_the_users_innermost_function_in_a_loop(tmp_path: Path) -> None:
    program = tmp_path / "stream.py"
    program.write_text(LOOP)
    variables = [{"name": "key", "repr": "'a/order'", "arg": False}]

    def texts(line: int) -> dict[str, int]:
        frame = {"name": "barrier", "filename": str(program), "line": line, "locals": variables}
        thread = {"thread_id": 1, "os_thread_id": 1, "frames": [frame]}
        [parsed] = pyspy_frames.parse_json(json.dumps([thread]).encode())
        return parsed.frames[0].texts

    assert set(texts(7)) == {"key"} and texts(5) == {}
