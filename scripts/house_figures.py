"""Figures of how the code reads: `scripts/house_figures.py [TREE]`, one row per top-level package,
and all of them.

They are a symptom, not a limit. Near them: pystack, memray, httpx and gcm have 5.2 to 6.2 tokens in
a line of code, at most 1 % of lines over 100 columns, and 2 to 4 % of functions over complexity 10.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
WIDE = 100
COMPLEX = 10
MANY = 7
COLUMNS = {
    "lines": "lines of code: without blanks, comments and docstrings",
    "tokens": "tokens in a line of code",
    "wide": f"lines over {WIDE} columns, %",
    "complex": f"functions over complexity {COMPLEX}, %",
    "positional": f"calls with {MANY} positional arguments or more",
    "nested": "conditional expressions inside another",
    "skip": "# fmt: skip",
    "undocumented": "public functions and classes without docstring",
}
_LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_Defined = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_SCOPES = (*_FUNCTIONS, ast.ClassDef, ast.Module)
_BRANCHES = (
    ast.If,
    ast.IfExp,
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.ExceptHandler,
    ast.Assert,
    ast.match_case,
)


def figures(source: str) -> Counter[str]:
    """Counts of one file. Shares are made of them once they are summed over files.

    Raises:
        SyntaxError: if `source` is no Python
    """
    tree = ast.parse(source)
    functions = [node for node in ast.walk(tree) if isinstance(node, _FUNCTIONS)]
    rows = source.splitlines()
    counts = Counter(_tokens_and_lines(source, _docstring_lines(tree)))
    counts["rows"] = len(rows)
    counts["wide"] = sum(len(row) > WIDE for row in rows)
    counts["functions"] = len(functions)
    counts["complex"] = sum(complexity(function) > COMPLEX for function in functions)
    counts["positional"] = len(long_calls(tree, MANY))
    counts["nested"] = sum(1 for _ in _nested_conditionals(tree))
    counts["skip"] = source.count("# fmt: " + "skip")
    counts["undocumented"] = len(undocumented(tree))
    return counts


def undocumented(tree: ast.Module) -> list[str]:
    """Public functions, methods and classes without a docstring, as "name (line)"."""
    return [
        f"{node.name} (line {node.lineno})"
        for node in _public(tree)
        if ast.get_docstring(node) is None
    ]


def long_calls(tree: ast.AST, least: int) -> list[str]:
    """Calls with this many positional arguments or more, as "name (line)"."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [
        f"{ast.unparse(call.func)} (line {call.lineno})"
        for call in calls
        if len(call.args) >= least
    ]


def complexity(function: ast.AST) -> int:
    """McCabe's number with every condition counted, `and`, `or` and comprehensions included, as
    radon counts.

    What an inner function decides is the inner function's.
    """
    total = 1
    pending = list(ast.iter_child_nodes(function))
    while pending:
        node = pending.pop()
        if isinstance(node, _FUNCTIONS):
            continue
        pending.extend(ast.iter_child_nodes(node))
        if isinstance(node, _BRANCHES):
            total += 1
        elif isinstance(node, ast.BoolOp):
            total += len(node.values) - 1
        elif isinstance(node, ast.comprehension):
            total += 1 + len(node.ifs)
    return total


def _tokens_and_lines(source: str, docstrings: set[int]) -> dict[str, int]:
    total = 0
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        first, last = token.start[0], token.end[0]
        if token.type in _LAYOUT or first in docstrings:
            continue
        total += 1
        lines.update(range(first, last + 1))
    return {"tokens": total, "lines": len(lines)}


def _docstring_lines(tree: ast.AST) -> set[int]:
    lines: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, _SCOPES) and ast.get_docstring(node, clean=False) is not None:
            text = node.body[0]
            lines.update(range(text.lineno, (text.end_lineno or text.lineno) + 1))
    return lines


def _nested_conditionals(tree: ast.AST) -> Iterator[ast.IfExp]:
    """Conditional expressions of which a branch or the condition is one, too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.IfExp):
            parts = (node.test, node.body, node.orelse)
            if any(isinstance(part, ast.IfExp) for part in parts):
                yield node


def _public(tree: ast.Module | ast.ClassDef) -> Iterator[_Defined]:
    """Functions, methods and classes without `_` in front; methods of private classes and inner
    functions left out.
    """
    for node in tree.body:
        if not isinstance(node, (*_FUNCTIONS, ast.ClassDef)) or node.name.startswith("_"):
            continue
        yield node
        if isinstance(node, ast.ClassDef):
            yield from _public(node)


def _is_python(file: Path) -> bool:
    """Whether a file is Python: by its name, or by its first line where it has no suffix."""
    if file.suffix or not file.is_file():
        return file.suffix == ".py"
    first = file.read_bytes()[:32].split(b"\n")[0]
    return first.startswith(b"#!") and b"python" in first


def packages(tree: Path) -> dict[str, list[Path]]:
    """The Python files of a working tree by package: those of `hangdoctor` one by one, other
    folders whole.
    """
    found: dict[str, list[Path]] = {}
    for top in ("hangdoctor", "agents", "train", "benchmarks", "scripts", "tests"):
        for file in sorted(filter(_is_python, (tree / top).rglob("*"))):
            parts = file.relative_to(tree).parts
            if (tree / top / parts[1]).is_symlink():
                continue  # hangdoctor/agents and hangdoctor/train, counted where they lie
            package = "/".join(parts[:2]) if top == "hangdoctor" and len(parts) > 2 else top
            found.setdefault(package, []).append(file)
    return found


def row_of(name: str, counts: Counter[str]) -> str:
    """One line of the table."""
    cells = [
        f"{counts['lines']:6d}",
        f"{counts['tokens'] / max(1, counts['lines']):6.2f}",
        f"{100 * counts['wide'] / max(1, counts['rows']):6.1f}",
        f"{100 * counts['complex'] / max(1, counts['functions']):7.1f}",
        f"{counts['positional']:10d}",
        f"{counts['nested']:6d}",
        f"{counts['skip']:4d}",
        f"{counts['undocumented']:12d}",
    ]
    return f"{name:24}" + " ".join(cells)


def main() -> None:
    """Print the table of the working tree that is named, or of this one."""
    tree = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT
    print(f"{'package':24} lines tokens   wide complex positional nested skip undocumented")
    everything: Counter[str] = Counter()
    for name, files in packages(tree).items():
        counts: Counter[str] = Counter()
        for file in files:
            counts.update(figures(file.read_text()))
        everything.update(counts)
        print(row_of(name, counts))
    print(row_of("all", everything))
    print()
    for name, meaning in COLUMNS.items():
        print(f"{name:12} {meaning}")


if __name__ == "__main__":
    main()
