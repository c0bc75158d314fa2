"""No text that users read has a word of the left column of docs/voice.md."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from hangdoctor.cli.main import program

ROOT = Path(__file__).parents[1]
VOICE = ROOT / "docs" / "voice.md"
CODE = ("hangdoctor", "agents", "train", "examples", "benchmarks", "scripts")
PAGES = (".html", ".j2", ".js", ".toml", ".yml", ".sbatch")


def words() -> list[str]:
    """The left column of the table of words: phrases that no text may have."""
    table = VOICE.read_text().split("| not | but |", 1)[1].split("\n\n", 1)[0]
    rows = [line for line in table.splitlines()[2:] if line.startswith("|")]
    return [word.strip() for row in rows for word in row.split("|")[1].split(",")]


def pattern(phrases: list[str]) -> re.Pattern[str]:
    spaced = [r"\s+".join(map(re.escape, phrase.split())) for phrase in phrases]
    return re.compile(rf"(?<![\w-])(?:{'|'.join(spaced)})(?![\w-])", re.IGNORECASE)


def literals(source: str) -> Iterator[tuple[int, str]]:
    """(line, text) of each string that is no docstring; what is filled in at run time is left out."""
    tree = ast.parse(source)
    notes = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = [v.value for v in node.values if isinstance(v, ast.Constant)]
            yield node.lineno, " ".join(map(str, parts))
        elif (
            isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in notes
        ):
            yield node.lineno, node.value


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """What users read of a file: strings of Python, lines of anything else."""
    source = path.read_text()
    if path.suffix == ".py":
        yield from literals(source)
    else:
        yield 0, source


def found(path: Path, wrong: re.Pattern[str]) -> list[str]:
    return [
        f"{path}:{line}: {match.group()!r} in {text[max(0, match.start() - 40) : match.end() + 40]!r}"
        for line, text in texts(path)
        for match in wrong.finditer(text)
    ]


def files() -> list[Path]:
    code = [p for room in CODE for p in (ROOT / room).rglob("*") if p.suffix in (".py", *PAGES)]
    documents = [p for p in (*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")) if p != VOICE]
    return sorted({p.resolve() for p in [*code, *documents] if "__pycache__" not in p.parts})


def helps(command: click.Command, name: str) -> Iterator[tuple[str, str]]:
    """(verb, text) of everything that --help prints, of sub-verbs too."""
    with click.Context(command, info_name=name) as context:
        yield name, command.get_help(context)
        if isinstance(command, click.Group):
            for verb in command.list_commands(context):
                below = command.get_command(context, verb)
                assert below is not None
                yield from helps(below, f"{name} {verb}")


def test_no_text_has_a_word_that_we_do_not_use() -> None:
    wrong = pattern(words())
    assert len(files()) > 300
    assert not [hit for path in files() for hit in found(path, wrong)]


def test_no_help_has_one() -> None:
    wrong = pattern(words())
    said = dict(helps(program, "hangdoctor"))
    assert {"hangdoctor dump", "hangdoctor trace start", "hangdoctor incidents list"} <= set(said)
    assert not [f"{verb}: {m.group()}" for verb, text in said.items() for m in wrong.finditer(text)]


@pytest.mark.parametrize("word", words())
def test_each_word_is_found_where_it_is_planted(word: str, tmp_path: Path) -> None:
    wrong = pattern(words())
    split = "\n".join(word.split())
    plants = {
        "a.py": f'"""A docstring."""\nx = 1\nraise ValueError(f"rank {{x}} {word} here")\n',
        "a.md": f"# Title\n\nSo it {split} is.\n",
        "a.html": f"<p>{word.capitalize()}.</p>\n",
        "a.js": f'say("{word}");\n',
    }
    for name, text in plants.items():
        (tmp_path / name).write_text(text)
        assert found(tmp_path / name, wrong), name


def test_the_words_that_we_use_are_not_found() -> None:
    good = "Rank 5 never reached all_reduce #12. Could not tell slow from stuck; held_up_ms."
    assert len(words()) >= 20 and not pattern(words()).search(good)
