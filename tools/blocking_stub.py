"""Writes memory/sync/blocking.pyi: what type checkers see of the blocking twins, made
from the async classes' own source.

python -m tools.blocking_stub          writes it
python -m tools.blocking_stub --check  fails where it is stale
"""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from memory.sync import blocking
from memory.sync.wrapper import CONTEXT, SyncWrapper

STUB = Path(blocking.__file__).with_suffix(".pyi")
TWINS = {
    name: twin.__wrapped__
    for name, twin in vars(blocking).items()
    if inspect.isclass(twin) and issubclass(twin, SyncWrapper)
}
"""By the name of the twin, the async class."""
RENAMED = {
    "AsyncIterator": "Iterator",
    "AbstractAsyncContextManager": "AbstractContextManager",
    "Provider": "Any",
}
RENAMED |= {original.__name__: name for name, original in TWINS.items()}
DUNDERS = {"__init__": "__init__", **CONTEXT}


class _Rename(ast.NodeTransformer):
    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name(RENAMED.get(node.id, node.id), node.ctx)


def main() -> int:
    made = stub()
    if "--check" in sys.argv[1:]:
        if not STUB.exists() or STUB.read_text() != made:
            sys.stderr.write("memory/sync/blocking.pyi is stale: python -m tools.blocking_stub\n")
            return 1
        return 0
    STUB.write_text(made)
    return 0


def stub() -> str:
    imports: list[str] = [
        "from collections.abc import Iterator",
        "from contextlib import AbstractContextManager",
    ]
    classes: list[str] = []
    for name, original in TWINS.items():
        members: dict[str, list[ast.stmt]] = {}
        for base in reversed(original.__mro__[:-1]):
            tree = ast.parse(inspect.getsource(inspect.getmodule(base) or blocking))
            imports += [
                ast.unparse(node) for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)
            ]
            imports += [
                f"from {base.__module__} import {one}"
                for one in map(_defined, tree.body)
                if one is not None and one not in RENAMED
            ]
            found = next(
                node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == base.__name__
            )
            members |= _members(found)
        classes.append(_class([node for nodes in members.values() for node in nodes], name))
    text = "\n\n".join(classes)
    plain = sorted(dict.fromkeys(imports), key=lambda line: not line.startswith("from __future__"))
    head = "# Made by tools/blocking_stub.py from the async classes. Do not edit.\n"
    return _tidy("\n".join([head, *plain, "", text, ""]))


def _tidy(source: str) -> str:
    """Unused and doubled imports dropped, formatted: by ruff."""
    for arguments in (["check", "--fix-only", "--quiet", "--select", "I,F401,F811"], ["format", "--quiet"]):
        command = [sys.executable, "-m", "ruff", *arguments, "--stdin-filename", str(STUB), "-"]
        source = subprocess.run(command, input=source, capture_output=True, text=True, check=True).stdout
    return source


def _defined(node: ast.stmt) -> str | None:
    """The name of a class, a type alias or a constant of a module."""
    if isinstance(node, ast.ClassDef):
        return node.name
    target = (
        node.target
        if isinstance(node, ast.AnnAssign)
        else node.targets[0]
        if isinstance(node, ast.Assign)
        else None
    )
    return target.id if isinstance(target, ast.Name) else None


def _named(node: ast.stmt) -> str:
    return getattr(node, "name", "") or (ast.unparse(node.target) if isinstance(node, ast.AnnAssign) else "")


def _members(found: ast.ClassDef) -> dict[str, list[ast.stmt]]:
    """What stands in a class, by its kind and name: of what is overloaded the
    overloads, and not what implements them.
    """
    members: dict[str, list[ast.stmt]] = {}
    for node in found.body:
        there = members.setdefault(f"{type(node).__name__} {_named(node)}", [])
        if not any(map(_is_overload, there)) or _is_overload(node):
            there[:] = [*there, node] if _is_overload(node) else [node]
    return members


def _is_overload(node: ast.stmt) -> bool:
    return any(ast.unparse(decorator) == "overload" for decorator in getattr(node, "decorator_list", ()))


def _class(members: Iterable[ast.stmt], name: str) -> str:
    lines = [f"class {name}:"]
    for node in members:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (
            not node.name.startswith("_") or node.name in DUNDERS
        ):
            lines += [
                f"    @{ast.unparse(decorator)}"
                for decorator in node.decorator_list
                if ast.unparse(decorator) != "lends_reads"
            ]
            lines.append(_method(node))
        elif isinstance(node, ast.AnnAssign) and not _named(node).startswith("_"):
            lines.append(f"    {_named(node)}: {ast.unparse(_Rename().visit(node.annotation))}")
    return "\n".join(lines)


def _method(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    arguments = _Rename().visit(node.args)
    for position, default in enumerate(arguments.defaults):
        arguments.defaults[position] = ast.Constant(...) if default is not None else default
    arguments.kw_defaults = [None if d is None else ast.Constant(...) for d in arguments.kw_defaults]
    returns = "" if node.returns is None else f" -> {ast.unparse(_Rename().visit(node.returns))}"
    return f"    def {DUNDERS.get(node.name, node.name)}({ast.unparse(arguments)}){returns}: ..."


if __name__ == "__main__":
    raise SystemExit(main())
