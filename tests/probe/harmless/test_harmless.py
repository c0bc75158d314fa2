"""Each program ends, prints, writes and leaves the same plain, below `hangdoctor run`, and traced."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.harmless.compare import differences
from tests.support.harmless.observe import PLAIN, PROGRAMS, RUN, TRACED, Running

# Programs in which no probe is at work on purpose, and why.
WITHOUT = {
    "other_commands.sh": "no Python in it",
}


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder with a short name: sockets below it must not have too long ones."""
    with tempfile.TemporaryDirectory(prefix="hd-") as folder:
        yield Path(folder)


# Places where there can be no box: a limit on the size of files.
NO_BOX = {"size", "file size"}


@pytest.mark.timeout(240)
@pytest.mark.parametrize("program", sorted(p.name for p in PROGRAMS.glob("*.[ps][yh]")))
def test_a_program_looks_the_same_as_the_plain_one(program: str, short: Path) -> None:
    ways = {"plain": PLAIN, "run": RUN, "traced": TRACED}
    running = {
        way: Running(PROGRAMS / program, before, short / way) for way, before in ways.items()
    }
    seen = {way: one.end() for way, one in running.items()}
    found = [
        f"{way}: {line}"
        for way in ("run", "traced")
        for line in differences(seen["plain"], seen[way])
    ]
    assert not found, "\n".join([*found, *seen["run"].stderr.splitlines()[-5:]])
    states = {way: set(one.probes.values()) for way, one in seen.items()}
    assert states["plain"] <= {"none"}
    off = [
        f"{way} {at}: {s}"
        for way, one in seen.items()
        for at, s in one.probes.items()
        if "off" in s and at not in NO_BOX
    ]
    assert not off, off  # the probe is of no use to a job in which it gave up
    if program not in WITHOUT:
        assert "records" in states["run"] | states["traced"] or "traces" in states["traced"], states


def test_every_program_says_what_it_would_notice() -> None:
    for path in PROGRAMS.glob("*.[ps][yh]"):
        first = path.read_text().splitlines()[0]
        assert first.startswith(('"""Would notice', "# Would notice")) and len(first) > 30, path
