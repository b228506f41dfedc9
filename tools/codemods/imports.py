"""Follow a moved module through `from package import module`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import cast

import libcst as cst
from libcst.metadata import MetadataWrapper, ScopeProvider


def with_modules_followed(source: str, moves: Mapping[str, str]) -> str:
    """The source with each moved module imported from its new package. Uses get the new
    name too, unless the file has another thing of that name: then the module is
    imported under its old one.
    """
    if not any(_may_import(source, *old.rpartition(".")[::2]) for old in moves):
        return source
    wrapper = MetadataWrapper(cst.parse_module(source))
    names = _Names(source, moves)
    wrapper.visit(names)
    return wrapper.module.visit(_Following(names, moves)).code


def _may_import(source: str, package: str, module: str) -> bool:
    names = rf"[^\n(]*\b{module}\b|\([^)]*\b{module}\b"
    return re.search(rf"from {re.escape(package)} import ({names})", source) is not None


def _module_of(node: cst.ImportFrom) -> str:
    return "" if node.module is None or node.relative else cst.Module([]).code_for_node(node.module)


class _Names(cst.CSTVisitor):
    """Finds the names in the source that mean a moved module which got another name."""

    METADATA_DEPENDENCIES = (ScopeProvider,)

    def __init__(self, source: str, moves: Mapping[str, str]) -> None:
        super().__init__()
        self._source, self._moves = source, moves
        self.kept: set[str] = set()
        self.new: dict[cst.CSTNode, str] = {}

    def visit_ImportFrom(self, node: cst.ImportFrom) -> None:
        if isinstance(node.names, cst.ImportStar):
            return
        for alias in node.names:
            old = cast("cst.Name", alias.name).value
            full = f"{_module_of(node)}.{old}"
            new = self._moves.get(full, full).rpartition(".")[2]
            if alias.asname is not None or new == old:
                continue
            if re.search(rf"(?<![\w.\"'`/]){new}\b(?!['\"`/])", self._source):
                self.kept.add(full)
                continue
            scope = self.get_metadata(ScopeProvider, node)
            for assignment in scope[old] if scope is not None else ():
                for access in assignment.references:
                    self.new[access.node] = new


class _Following(cst.CSTTransformer):
    def __init__(self, names: _Names, moves: Mapping[str, str]) -> None:
        super().__init__()
        self._names, self._moves = names, moves

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.Name:
        new = self._names.new.get(original_node)
        return updated_node if new is None else updated_node.with_changes(value=new)

    def leave_Attribute(
        self, original_node: cst.Attribute, updated_node: cst.Attribute
    ) -> cst.BaseExpression:
        """A use of which the scope knows the whole chain, `module.name`."""
        new = self._names.new.get(original_node)
        if new is None:
            return updated_node
        return cst.parse_expression(re.sub(r"^\w+", new, cst.Module([]).code_for_node(updated_node)))

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.BaseStatement | cst.FlattenSentinel[cst.BaseStatement]:
        if len(updated_node.body) != 1 or not isinstance(node := updated_node.body[0], cst.ImportFrom):
            return updated_node
        package = _module_of(node)
        if isinstance(node.names, cst.ImportStar):
            return updated_node
        old = [f"{package}.{cast('cst.Name', alias.name).value}" for alias in node.names]
        if all(self._moves.get(full, full) == full for full in old):
            return updated_node
        lines = [self._line(package, alias) for alias in node.names]
        lines = [line.with_changes(trailing_whitespace=updated_node.trailing_whitespace) for line in lines]
        first = lines[0].with_changes(leading_lines=updated_node.leading_lines)
        return cst.FlattenSentinel([first, *lines[1:]])

    def _line(self, package: str, alias: cst.ImportAlias) -> cst.SimpleStatementLine:
        old = cast("cst.Name", alias.name).value
        full = f"{package}.{old}"
        home, _, new = self._moves.get(full, full).rpartition(".")
        asname = (
            cast("cst.Name", alias.asname.name).value
            if alias.asname is not None
            else old
            if full in self._names.kept
            else new
        )
        renamed = "" if asname == new else f" as {asname}"
        return cst.ensure_type(
            cst.parse_statement(f"from {home} import {new}{renamed}\n"), cst.SimpleStatementLine
        )
