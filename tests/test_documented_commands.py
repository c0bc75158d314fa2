"""Every command of hangdoctor that a page shows exists, with these flags; and each page of a platform
says what was run and what was not.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from hangdoctor.cli.main import program

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
PLATFORMS = ("any-launcher", "kubernetes", "pbs", "ray", "start-up", "frameworks", "fleet", "mcp")
FENCED = re.compile(r"^```[^\n]*\n(.*?)^```", re.M | re.S)
INLINE = re.compile(r"`([^`]+)`")
FLAG = re.compile(r"--?[A-Za-z][\w-]*")
# Words that stand for several, or for what a user fills in: the page says so.
OPEN = re.compile(r"\.\.\.|\||…|<|\[")
SAYS = re.compile(
    r"\b(?:not (?:yet )?run|not tried|run for the tests|tried (?:on|in|with)|recorded|run here)",
    re.I,
)


def commands(text: str) -> Iterator[str]:
    """Command lines of hangdoctor in blocks and in the text, without what follows a pipe or `#`."""
    lines = [
        line for block in FENCED.findall(text) for line in block.replace("\\\n", " ").split("\n")
    ]
    inline = INLINE.findall(FENCED.sub("", text))
    for line in [*lines, *(part.replace("\n", " ") for part in inline)]:
        found = re.match(r"(?:\$ )?(hangdoctor [a-z].*)", line.strip())
        if found is not None:
            yield re.split(r"\s+#|\s\|\s|\s&&|\s>|;", found[1])[0]


def wrong_in(line: str) -> str:
    """What hangdoctor does not know in a command line, "" where it knows all."""
    try:
        words = shlex.split(line)[1:]
    except ValueError:
        return ""  # cut by the page
    verb: click.Command = program
    while words and isinstance(verb, click.Group) and not words[0].startswith("-"):
        below = verb.commands.get(words[0]) or verb.get_command(click.Context(verb), words[0])
        if below is None:
            return f"no verb {words[0]}"
        verb, words = below, words[1:]
    known = {"--help"} | {o for p in verb.params for o in (*p.opts, *p.secondary_opts)}
    if verb.name == "run" and "--" in words:
        words = words[: words.index("--")]
    asked = [word.partition("=")[0] for word in words if FLAG.match(word)]
    return next((f"no flag {flag}" for flag in asked if flag not in known), "")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_commands_of_a_page_exist(page: Path) -> None:
    shown = [line for line in commands(page.read_text()) if not OPEN.search(line)]
    assert not [f"{line}: {why}" for line in shown if (why := wrong_in(line))]


def test_the_check_finds_what_is_wrong() -> None:
    text = "```\n$ hangdoctor dump --lokal   # here\nhangdoctor dupm\n```\nSo `hangdoctor fleet --web 127.0.0.1:0`.\n"
    assert [wrong_in(line) for line in commands(text)] == ["no flag --lokal", "no verb dupm", ""]
    every = [line for page in PAGES for line in commands(page.read_text())]
    assert len([line for line in every if not OPEN.search(line)]) > 100


@pytest.mark.parametrize("name", PLATFORMS)
def test_the_page_of_a_platform_says_what_was_run(name: str) -> None:
    assert SAYS.search((ROOT / "docs" / f"{name}.md").read_text())
