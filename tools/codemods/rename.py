"""Rewrite one source: names that mean a renamed class, wherever they are imported from,
and calls of renamed methods or with renamed arguments in a source that imports `memory`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import libcst as cst
from libcst.metadata import MetadataWrapper, QualifiedNameProvider, QualifiedNameSource

from tools.codemods.names import (
    ARGUMENTS,
    CLASSES,
    DRAFT,
    GATHERED,
    INNER_CLASSES,
    METHODS,
    PUBLIC,
    VALUES,
)

_OLD_NAMES = (
    *(full.rpartition(".")[2] for full in (*CLASSES, *INNER_CLASSES)),
    *METHODS,
    *dict.fromkeys(name for names in ARGUMENTS.values() for name in names),
    *dict.fromkeys(name for _, names in GATHERED.values() for name in names),
)
OLD = re.compile(rf"\b({'|'.join(_OLD_NAMES)})\b")
"""What a source that needs rewriting has somewhere."""
_CODE = re.compile(r"```.*?```|`[^`\n]+`", re.DOTALL)
_SNIPPET = re.compile(r"(```python\n)(.*?)(?=^```)", re.DOTALL | re.MULTILINE)


def renamed(source: str, path: Path) -> str:
    """The Python source with the new names; `path` says which module it is."""
    module = _module(path)
    wrapper = MetadataWrapper(cst.parse_module(source))
    return wrapper.visit(_Renaming(module)).visit(_Calls()).code


def renamed_text(text: str) -> str:
    """A document with the new names, in its code."""
    return _SNIPPET.sub(
        lambda found: found[1] + _calls(found[2]), _CODE.sub(lambda found: _words(found[0]), text)
    )


def _calls(code: str) -> str:
    """The code of a document with its calls rewritten; as it is where it does not parse."""
    try:
        return cst.parse_module(code).visit(_Calls()).code
    except cst.ParserSyntaxError:
        return code


def _words(code: str) -> str:
    for full, new in CLASSES.items():
        old = full.rpartition(".")[2]
        code = re.sub(rf"(?<![\w.\"'-]){old}(?![\w\"'])", new, code)
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
        return updated_node if new is None else updated_node.with_changes(attr=cst.Name(new))

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


class _Calls(cst.CSTTransformer):
    """Renames methods and arguments in a source that imports the library.

    Types are not known here: a method is told by its name alone.
    """

    def __init__(self) -> None:
        super().__init__()
        self._imported = False

    def visit_Import(self, node: cst.Import) -> None:
        for alias in node.names:
            self._see(alias.name)

    def visit_ImportFrom(self, node: cst.ImportFrom) -> None:
        self._see(node.module)

    def _see(self, module: cst.BaseExpression | None) -> None:
        name = "" if module is None else cst.Module([]).code_for_node(module)
        self._imported |= name.partition(".")[0] == PUBLIC

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:
        if not self._imported:
            return updated_node
        function = updated_node.func
        if isinstance(function, cst.Attribute) and function.attr.value in METHODS:
            function = function.with_changes(attr=cst.Name(METHODS[function.attr.value]))
        name = function.attr if isinstance(function, cst.Attribute) else function
        called = name.value if isinstance(name, cst.Name) else ""
        arguments = [_argument(argument, ARGUMENTS.get(called, {})) for argument in updated_node.args]
        if called in GATHERED:
            arguments = _gathered(arguments, *GATHERED[called])
        return updated_node.with_changes(func=function, args=arguments)

    def leave_Dict(self, original_node: cst.Dict, updated_node: cst.Dict) -> cst.Dict:
        needed, names = DRAFT
        keys = [_text(one.key) for one in updated_node.elements if isinstance(one, cst.DictElement)]
        if not self._imported or needed not in keys:
            return updated_node
        return updated_node.with_changes(elements=[_element(one, names) for one in updated_node.elements])


def _argument(argument: cst.Arg, names: Mapping[str, str]) -> cst.Arg:
    if argument.keyword is None or argument.keyword.value not in names:
        return argument
    new = names[argument.keyword.value]
    return argument.with_changes(keyword=cst.Name(new), value=_value(new, argument.value))


def _gathered(arguments: list[cst.Arg], into: str, names: Sequence[str]) -> list[cst.Arg]:
    """The arguments with those of these names as one dictionary, where the first was."""
    taken = [one for one in arguments if one.keyword is not None and one.keyword.value in names]
    if not taken:
        return arguments
    elements = [
        cst.DictElement(cst.SimpleString(f'"{one.keyword.value}"'), one.value)
        for one in taken
        if one.keyword is not None
    ]
    first = taken[0].with_changes(keyword=cst.Name(into), value=cst.Dict(elements))
    left = [first if one is taken[0] else one for one in arguments if one not in taken[1:]]
    return [*left[:-1], left[-1].with_changes(comma=arguments[-1].comma)]


def _element(element: cst.BaseDictElement, names: Mapping[str, str]) -> cst.BaseDictElement:
    new = names.get(_text(element.key) or "") if isinstance(element, cst.DictElement) else None
    if new is None:
        return element
    return element.with_changes(key=cst.SimpleString(f'"{new}"'), value=_value(new, element.value))


def _value(argument: str, value: cst.BaseExpression) -> cst.BaseExpression:
    new = VALUES.get(argument, {}).get(_text(value) or "")
    return value if new is None else cst.SimpleString(f'"{new}"')


def _text(node: cst.BaseExpression) -> str | None:
    said = node.evaluated_value if isinstance(node, cst.SimpleString) else None
    return said if isinstance(said, str) else None
