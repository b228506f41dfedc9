"""Rewrite one source: names that mean a renamed class, wherever they are imported from."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import libcst as cst
from libcst.metadata import MetadataWrapper, QualifiedNameProvider, QualifiedNameSource

from tools.codemods.names import CLASSES, INNER_CLASSES, KEYWORDS, MEMBERS, PUBLIC

_OLD_CLASSES = (full.rpartition(".")[2] for full in (*CLASSES, *INNER_CLASSES))
_OLD_MEMBERS = (member.replace(".", r"\s*\.\s*") for member in (*MEMBERS, *KEYWORDS))
OLD = re.compile(rf"\b({'|'.join((*_OLD_CLASSES, *_OLD_MEMBERS))})\b")
"""What a source that needs rewriting has somewhere."""
_CODE = re.compile(r"```.*?```|`[^`\n]+`", re.DOTALL)


def renamed(source: str, path: Path) -> str:
    """The Python source with the new names; `path` says which module it is."""
    module = _module(path)
    wrapper = MetadataWrapper(cst.parse_module(source))
    return wrapper.visit(_Renaming(module)).code


def renamed_text(text: str) -> str:
    """A document with the new names, in its code."""
    return _CODE.sub(lambda found: _words(found[0]), text)


def _words(code: str) -> str:
    for full, new in CLASSES.items():
        old = full.rpartition(".")[2]
        code = re.sub(rf"(?<![\w.\"'-]){old}(?![\w\"'])", new, code)
    for member, named in KEYWORDS.items():
        for old, new in named.items():
            code = re.sub(rf"(\b{re.escape(member)}\([^()]*\b){old}=", rf"\g<1>{new}=", code)
    for member, new in MEMBERS.items():
        code = re.sub(rf"\b{re.escape(member)}\b", new, code)
    return code


def _module(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


class _Renaming(cst.CSTTransformer):
    METADATA_DEPENDENCIES = (QualifiedNameProvider,)

    def __init__(self, module: str) -> None:
        super().__init__()
        self._here = module
        self._imports: dict[str, str] = {}
        self._new: Mapping[str, str] = {
            **CLASSES,
            **INNER_CLASSES,
            **{f"{PUBLIC}.{full.rpartition('.')[2]}": new for full, new in CLASSES.items()},
        }

    def _wanted(self, node: cst.CSTNode, name: str) -> str | None:
        for found in self.get_metadata(QualifiedNameProvider, node, set()):
            local = found.source is QualifiedNameSource.LOCAL
            full = f"{self._here}.{found.name}" if local else found.name
            new = self._new.get(full)
            if new is not None and full.endswith(f".{name}"):
                return new
        return None

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.Name:
        new = self._wanted(original_node, original_node.value)
        return updated_node if new is None else updated_node.with_changes(value=new)

    def leave_Attribute(
        self, original_node: cst.Attribute, updated_node: cst.Attribute
    ) -> cst.BaseExpression:
        new = self._wanted(original_node, original_node.attr.value)
        if new is not None:
            return updated_node.with_changes(attr=cst.Name(new))
        if (member := MEMBERS.get(_member(original_node))) is None:
            return updated_node
        found = updated_node.value  # the name before it stays
        for name in member.split(".")[1:]:
            found = cst.Attribute(found, cst.Name(name))
        return found

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:
        keywords = KEYWORDS.get(_member(original_node.func))
        if keywords is None:
            return updated_node
        args = [
            arg.with_changes(keyword=cst.Name(keywords.get(arg.keyword.value, arg.keyword.value)))
            if arg.keyword is not None
            else arg
            for arg in updated_node.args
        ]
        return updated_node.with_changes(args=args)

    def leave_ImportFrom(self, original_node: cst.ImportFrom, updated_node: cst.ImportFrom) -> cst.ImportFrom:
        if original_node.module is None or isinstance(updated_node.names, cst.ImportStar):
            return updated_node
        source = cst.Module([]).code_for_node(original_node.module)
        for alias in updated_node.names:
            old = alias.name.value if isinstance(alias.name, cst.Name) else ""
            if alias.asname is None and f"{source}.{old}" in self._new:
                self._imports[old] = self._new[f"{source}.{old}"]
        names = [self._imported(source, alias) for alias in updated_node.names]
        return updated_node.with_changes(names=names)

    def _imported(self, source: str, alias: cst.ImportAlias) -> cst.ImportAlias:
        old = alias.name.value if isinstance(alias.name, cst.Name) else ""
        new = self._new.get(f"{source}.{old}")
        if new is None:
            return alias
        asname = alias.asname
        if asname is not None and isinstance(asname.name, cst.Name) and asname.name.value == old:
            asname = asname.with_changes(name=cst.Name(new))  # what a package exports again
        return alias.with_changes(name=cst.Name(new), asname=asname)

    def leave_AnnAssign(self, original_node: cst.AnnAssign, updated_node: cst.AnnAssign) -> cst.AnnAssign:
        """A type that is written as a string."""
        value = updated_node.value
        if isinstance(value, cst.SimpleString) and self._is_alias(original_node.annotation):
            return updated_node.with_changes(value=value.with_changes(value=self._in_string(value.value)))
        return updated_node

    @staticmethod
    def _is_alias(annotation: cst.Annotation) -> bool:
        return isinstance(annotation.annotation, cst.Name) and annotation.annotation.value == "TypeAlias"

    def _in_string(self, text: str) -> str:
        return re.sub(r"\w+", lambda found: self._imports.get(found[0], found[0]), text)

    def leave_SimpleString(
        self, original_node: cst.SimpleString, updated_node: cst.SimpleString
    ) -> cst.SimpleString:
        value = updated_node.value
        if self._here == PUBLIC:  # its table of names
            quoted = {f'"{old.rpartition(".")[2]}"': f'"{new}"' for old, new in CLASSES.items()}
            return updated_node.with_changes(value=quoted.get(value, value))
        return updated_node.with_changes(value=renamed_text(value)) if "`" in value else updated_node


def _member(node: cst.BaseExpression) -> str:
    """An attribute with the name before it, such as `admin.trust`; else nothing."""
    if not isinstance(node, cst.Attribute):
        return ""
    if isinstance(node.value, cst.Attribute):
        return f"{node.value.attr.value}.{node.attr.value}"
    return f"{node.value.value}.{node.attr.value}" if isinstance(node.value, cst.Name) else ""
