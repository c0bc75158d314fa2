"""The small changes that a test should notice: each is a text in place of another one in a module's
source.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Change:
    """One changed place of one module."""

    path: str  # in the repository
    line: int
    begin: int  # in bytes of the source
    end: int
    new: str
    body: (
        tuple[int, int] | None
    )  # lines of the statement where it is inside of a function; None: done at import

    def apply(self, source: bytes) -> bytes:
        """The module's source with the change made."""
        return source[: self.begin] + self.new.encode() + source[self.end :]

    def key(self, source: bytes) -> str:
        """``path: old line -> new line``: the same wherever in the file the line has moved to."""
        begin = source.rfind(b"\n", 0, self.begin) + 1
        end = source.find(b"\n", self.end)
        end = len(source) if end < 0 else end
        old = source[begin:end]
        new = source[begin : self.begin] + self.new.encode() + source[self.end : end]
        return f"{self.path}: {_one_line(old)} -> {_one_line(new)}"


def _one_line(text: bytes) -> str:
    return " ".join(text.decode().split())


_COMPARED: dict[type[ast.cmpop], tuple[str, ...]] = {
    ast.Lt: ("<=", ">="),
    ast.LtE: ("<", ">"),
    ast.Gt: (">=", "<="),
    ast.GtE: (">", "<"),
    ast.Eq: ("!=",),
    ast.NotEq: ("==",),
    ast.Is: ("is not",),
    ast.IsNot: ("is",),
    ast.In: ("not in",),
    ast.NotIn: ("in",),
}
_COMPUTED: dict[type[ast.operator], str] = {
    ast.Add: "-",
    ast.Sub: "+",
    ast.Mult: "//",
    ast.Div: "*",
    ast.FloorDiv: "*",
    ast.Mod: "+",
    ast.LShift: ">>",
    ast.RShift: "<<",
    ast.BitAnd: "|",
    ast.BitOr: "&",
}
_SWAPPED = {"min": "max", "max": "min", "any": "all", "all": "any"}


class _Finder:
    def __init__(self, path: str, source: bytes) -> None:
        self.path, self.source = path, source
        starts = [0]
        for line in source.splitlines(keepends=True):
            starts.append(starts[-1] + len(line))
        self.starts = starts
        self.found: list[Change] = []
        self.statement: tuple[int, int] | None = None

    def add(self, node: ast.expr | ast.stmt, new: str) -> None:
        begin, end = self.span(node)
        self.found.append(Change(self.path, node.lineno, begin, end, new=new, body=self.statement))

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self.starts[node.lineno - 1] + node.col_offset, self.starts[
            node.end_lineno - 1
        ] + node.end_col_offset

    def text(self, node: ast.expr) -> str:
        begin, end = self.span(node)
        return self.source[begin:end].decode()

    # ------------------------------------------------------------------- statements

    def block(self, body: list[ast.stmt], inside: bool) -> None:
        for statement in body:
            self.visit_statement(statement, inside)

    def visit_statement(self, node: ast.stmt, inside: bool) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            self.visit_expressions(node.args)
            self.block(node.body, True)
            return
        if isinstance(node, ast.ClassDef):
            self.block(node.body, inside)
            return
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            return  # a docstring
        if _sets_a_limit(node):
            return
        before = self.statement
        self.statement = (node.lineno, _head_end(node)) if inside else None
        self.change_statement(node)
        for name, value in ast.iter_fields(node):
            self.visit_field(name, value)
        for body in _bodies(node):
            self.block(body, inside)
        self.statement = before

    def visit_field(self, name: str, value: Any) -> None:
        """What a statement has beside the statements in it."""
        if name == "annotation":
            self.visit_limits(value)
            return
        for one in value if isinstance(value, list) else [value]:
            within = isinstance(one, ast.stmt | ast.ExceptHandler | ast.match_case)
            if isinstance(one, ast.AST) and not within:  # a name, as in `global x`, is neither
                self.visit_expressions(one)

    def change_statement(self, node: ast.stmt) -> None:
        match node:
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                pass
            case ast.If() | ast.While():
                self.add(node.test, "False")
                if isinstance(node, ast.If):
                    self.add(node.test, "True")
            case ast.Return(value=value) if value is not None and not _is_none(value):
                self.add(node, "return None")
            case ast.Raise():
                self.add(node, "pass")
            case ast.Expr(value=ast.Call() | ast.Await()) | ast.AugAssign():
                self.add(node, "pass")
            case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
                self.add(node, "pass")
            case ast.Break():
                self.add(node, "pass")
            case ast.Continue():
                self.add(node, "break")
                self.add(node, "pass")

    # ------------------------------------------------------------------- expressions

    def visit_limits(self, node: ast.AST) -> None:
        """Numbers in a type: only those that are checked, as in ``Meta(ge=0)``."""
        for call in ast.walk(node):
            if (
                isinstance(call, ast.Call)
                and isinstance(call.func, ast.Name)
                and call.func.id == "Meta"
            ):
                self.visit_expressions(call)

    def visit_expressions(self, node: ast.AST) -> None:
        if isinstance(node, ast.JoinedStr):
            return  # places inside of an f-string are not told before Python 3.12
        if _is_size(node) or (
            isinstance(node, ast.keyword) and node.arg in ("max_length", "min_length")
        ):
            return
        if isinstance(node, ast.expr):
            self.change_expression(node)
        for name, value in ast.iter_fields(node):
            if name == "annotation":
                continue
            for one in value if isinstance(value, list) else [value]:
                if isinstance(one, ast.AST) and not isinstance(one, ast.stmt):
                    self.visit_expressions(one)

    def change_expression(self, node: ast.expr) -> None:
        match node:
            case ast.Compare():
                self.compare(node)
            case ast.BoolOp():
                self.join(node)
            case ast.UnaryOp(op=ast.Not()):
                self.add(node, f"({self.text(node.operand)})")
            case ast.BinOp() if type(node.op) in _COMPUTED and not _is_text(node):
                left, right = self.text(node.left), self.text(node.right)
                self.add(node, f"(({left}) {_COMPUTED[type(node.op)]} ({right}))")
            case ast.IfExp():
                self.add(node.test, "True")
                self.add(node.test, "False")
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                for loop in node.generators:
                    for test in loop.ifs:
                        self.add(test, "True")
            case ast.Call(func=ast.Name(id=name)) if name in _SWAPPED:
                self.add(node.func, _SWAPPED[name])
            case ast.Constant():
                self.constant(node)

    def compare(self, node: ast.Compare) -> None:
        operands = [node.left, *node.comparators]
        for place, op in enumerate(node.ops):
            for other in _COMPARED[type(op)]:
                signs = [_sign(o) for o in node.ops]
                signs[place] = other
                words = [f"({self.text(operands[0])})"]
                for sign, operand in zip(signs, operands[1:], strict=True):
                    words += [sign, f"({self.text(operand)})"]
                self.add(node, f"({' '.join(words)})")

    def join(self, node: ast.BoolOp) -> None:
        texts = [f"({self.text(value)})" for value in node.values]
        word, other = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        self.add(node, f"({f' {other} '.join(texts)})")
        for left_out in range(len(texts)):
            rest = texts[:left_out] + texts[left_out + 1 :]
            self.add(node, f"({f' {word} '.join(rest)})")

    def constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self.add(node, str(not node.value))
        elif isinstance(node.value, int):
            self.add(node, str(node.value + 1))
            self.add(node, f"({node.value - 1})")
        elif isinstance(node.value, float):
            self.add(node, repr(node.value * 2 + 1))


def _sets_a_limit(node: ast.stmt) -> bool:
    """``LIMIT = 4096``: whether it is the right number is not a question for a test."""
    match node:
        case (
            ast.Assign(targets=[ast.Name(id=name)], value=value)
            | ast.AnnAssign(target=ast.Name(id=name), value=value)
        ):
            return name.isupper() and value is not None and _is_arithmetic(value)
    return False


def _is_arithmetic(node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp):
        return _is_arithmetic(node.left) and _is_arithmetic(node.right)
    return isinstance(node, ast.Constant | ast.Name | ast.UnaryOp)


def _is_size(node: ast.AST) -> bool:
    """``1 << 20``."""
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.LShift) and _is_arithmetic(node)


def _sign(op: ast.cmpop) -> str:
    return (
        ast.unparse(ast.Compare(ast.Name("a"), [op], [ast.Name("b")]))
        .removeprefix("a ")
        .removesuffix(" b")
    )


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _is_text(node: ast.BinOp) -> bool:
    """Whether it formats or joins texts, or is a union of types."""
    if isinstance(node.op, ast.BitOr):
        return any(
            _is_none(n) or (isinstance(n, ast.Name) and n.id[:1].isupper())
            for n in (node.left, node.right)
        )
    return any(
        isinstance(n, ast.JoinedStr) or (isinstance(n, ast.Constant) and isinstance(n.value, str))
        for n in (node.left, node.right)
    )


def _bodies(node: ast.stmt) -> Iterator[list[ast.stmt]]:
    for value in (getattr(node, name, None) for name in ("body", "orelse", "finalbody")):
        if isinstance(value, list):
            yield value
    for part in [*getattr(node, "handlers", []), *getattr(node, "cases", [])]:
        yield part.body


def _head_end(node: ast.stmt) -> int:
    """The last line of a statement before its body."""
    first = next((body[0].lineno for body in _bodies(node) if body), None)
    return max(node.lineno, first - 1) if first is not None else node.end_lineno or node.lineno


def changes(source: bytes, path: str) -> list[Change]:
    """All changes of one module, each once; whether it still compiles is not looked at."""
    finder = _Finder(path, source)
    finder.block(ast.parse(source).body, False)
    return list({(c.begin, c.end, c.new): c for c in finder.found}.values())


def is_different(change: Change, source: bytes) -> bool:
    """Whether it compiles, and to something else."""
    try:
        return ast.dump(ast.parse(change.apply(source))) != ast.dump(ast.parse(source))
    except SyntaxError:
        return False
