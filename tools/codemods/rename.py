"""Rewrite one source or document by the table of `names.py`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import libcst as cst
from libcst.metadata import MetadataWrapper, QualifiedNameProvider, QualifiedNameSource

from tools.codemods.imports import with_modules_followed
from tools.codemods.names import (
    ARGUMENTS,
    CLASSES,
    DRAFT,
    FUNCTIONS,
    GATHERED,
    INNER_CLASSES,
    MEMBERS,
    MODULES,
    PUBLIC,
    VALUES,
)


def _last(path: str) -> str:
    return path.rpartition(".")[2]


_EXPORTED = {_last(full): new for full, new in CLASSES.items()}
_PATHS = {
    **CLASSES,
    **INNER_CLASSES,
    **FUNCTIONS,
    **{f"{PUBLIC}.{old}": new for old, new in _EXPORTED.items()},
}
_IN_DOCUMENTS = {
    **_EXPORTED,
    **{_last(full): new for full, new in FUNCTIONS.items()},
    **{old[1:]: new[1:] for old, new in MEMBERS.items() if old.startswith(".")},
}
"""Names that a snippet has without an import."""
_OLD = (
    *map(_last, (*_PATHS, *MODULES, *MEMBERS)),
    *(name for names in ARGUMENTS.values() for name in names),
    *(name for _, names in GATHERED.values() for name in names),
)
OLD = re.compile(rf"\b({'|'.join(dict.fromkeys(_OLD))})\b")
"""A source that needs rewriting matches this somewhere."""
_USED = re.compile(rf"\b(from|import)\s+{PUBLIC}\b|\b{PUBLIC}\.\w")
_MENTIONED = re.compile(rf"\b{PUBLIC}\b", re.IGNORECASE)
_DOTTED = re.compile(rf"(?<![\w.]){PUBLIC}(?:\.\w+)+")
_CODE = re.compile(r"```(\w*)\n(.*?)```|`([^`\n]+)`", re.DOTALL)


def renamed(source: str) -> str:
    """The Python source with the new names, if it imports the library or has a `memory`."""
    return _moved(_parsed(source, _Renaming())) if _USED.search(source) else source


def renamed_text(text: str) -> str:
    """The document with the new names in its code, if it mentions the library."""
    return _CODE.sub(_code, text) if _MENTIONED.search(text) else text


def _moved(source: str) -> str:
    """The source with the new paths of modules."""

    def path(found: re.Match[str]) -> str:
        parts = found[0].split(".")
        old = ".".join(parts[:3])
        return ".".join([MODULES[old], *parts[3:]]) if old in MODULES else found[0]

    return _DOTTED.sub(path, with_modules_followed(source, MODULES))


def _parsed(source: str, renaming: _Renaming) -> str:
    return MetadataWrapper(cst.parse_module(source)).visit(renaming).code


def _code(found: re.Match[str]) -> str:
    language, block, span = found.groups()
    if span is not None:
        return f"`{_snippet(span)}`"
    return f"```{language}\n{_snippet(block)}```" if language in ("", "py", "python") else found[0]


def _snippet(code: str) -> str:
    if OLD.search(code) is None:
        return code
    try:
        return _parsed(code.replace("…", "___"), _Renaming(in_document=True)).replace("___", "…")
    except cst.ParserSyntaxError:
        words = {**_EXPORTED, **{old: new for old, new in MEMBERS.items() if not old.startswith(".")}}
        for old, new in words.items():
            code = re.sub(rf"(?<![\w.\"'-]){re.escape(old)}(?![\w\"'])", new, code)
        return code


class _Renaming(cst.CSTTransformer):
    """Follows imports for classes and functions; tells methods by their names."""

    METADATA_DEPENDENCIES = (QualifiedNameProvider,)

    def __init__(self, *, in_document: bool = False) -> None:
        super().__init__()
        self._loose = _IN_DOCUMENTS if in_document else {}
        self._imports: dict[str, str] = {}
        self._other_modules: set[str] = set()
        self._others: set[str] = set()
        self._annotations = 0

    def _imported(self, node: cst.CSTNode) -> list[str]:
        known = self.get_metadata(QualifiedNameProvider, node, set())
        return [one.name for one in known if one.source is QualifiedNameSource.IMPORT]

    def _new_name(self, node: cst.Name | cst.Attribute, name: str) -> str | None:
        for full in self._imported(node):
            if _last(full) == name:
                return _PATHS.get(full)
        is_known = self.get_metadata(QualifiedNameProvider, node, set())
        return None if is_known or isinstance(node, cst.Attribute) else self._loose.get(name)

    def _keys(self, node: cst.BaseExpression) -> tuple[str, ...]:
        """The keys that the tables may have for what is called or read."""
        first = node
        while isinstance(first, cst.Attribute | cst.Call | cst.Await):
            first = _before(first)
        root = first.value if isinstance(first, cst.Name) else ""
        if isinstance(node, cst.Attribute) and root not in self._other_modules:
            name = node.attr.value
            return f"{_own_name(node.value)}.{name}", f".{name}", name
        if isinstance(node, cst.Name) and root not in self._others | self._other_modules:
            return (*map(_last, self._imported(node)), root)
        return ()

    def visit_Import(self, node: cst.Import) -> None:
        for alias in node.names:
            name = alias.evaluated_alias or alias.evaluated_name.partition(".")[0]
            if alias.evaluated_name.partition(".")[0] != PUBLIC:
                self._other_modules.add(name)

    def leave_ImportFrom(self, original_node: cst.ImportFrom, updated_node: cst.ImportFrom) -> cst.ImportFrom:
        if isinstance(original_node.names, cst.ImportStar):
            return updated_node
        module = cst.Module([]).code_for_node(original_node.module) if original_node.module else ""
        if original_node.relative or module.partition(".")[0] != PUBLIC:
            self._others |= {one.evaluated_alias or one.evaluated_name for one in original_node.names}
            return original_node
        names = []
        for alias in original_node.names:
            new = _PATHS.get(f"{module}.{alias.evaluated_name}")
            if new is not None and alias.asname is None:
                self._imports[alias.evaluated_name] = new
            names.append(alias if new is None else alias.with_changes(name=cst.Name(new)))
        return updated_node.with_changes(names=names)

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.Name:
        new = self._new_name(original_node, original_node.value)
        return updated_node if new is None else updated_node.with_changes(value=new)

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.Attribute:
        updated_node = updated_node.with_changes(attr=original_node.attr)
        if new := self._new_name(original_node, original_node.attr.value):
            return updated_node.with_changes(attr=cst.Name(new))
        old = next((one for one in self._keys(original_node) if one in MEMBERS), None)
        return updated_node if old is None else _with_member(updated_node, old, MEMBERS[old])

    def leave_Arg(self, original_node: cst.Arg, updated_node: cst.Arg) -> cst.Arg:
        return updated_node.with_changes(keyword=original_node.keyword)

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:
        arguments = list(updated_node.args)
        for key in self._keys(original_node.func):
            arguments = [_argument(one, ARGUMENTS.get(key, {})) for one in arguments]
            arguments = _gathered(arguments, *GATHERED.get(key, ("", ())))
        return updated_node.with_changes(args=arguments)

    def leave_Dict(self, original_node: cst.Dict, updated_node: cst.Dict) -> cst.Dict:
        needed, names = DRAFT
        keys = [_text(one.key) for one in updated_node.elements if isinstance(one, cst.DictElement)]
        if needed not in keys:
            return updated_node
        return updated_node.with_changes(elements=[_element(one, names) for one in updated_node.elements])

    def visit_Annotation(self, node: cst.Annotation) -> None:
        self._annotations += 1

    def leave_Annotation(self, original_node: cst.Annotation, updated_node: cst.Annotation) -> cst.Annotation:
        self._annotations -= 1
        return updated_node

    def leave_SimpleString(
        self, original_node: cst.SimpleString, updated_node: cst.SimpleString
    ) -> cst.SimpleString:
        """A type that is written as a string, or a docstring with code in it."""
        value = updated_node.value
        if not self._annotations:
            return updated_node.with_changes(value=_CODE.sub(_code, value))
        new = re.sub(r"(?<!\.)\b\w+", lambda found: self._imports.get(found[0], found[0]), value)
        return updated_node.with_changes(value=new)


def _before(node: cst.Attribute | cst.Call | cst.Await) -> cst.BaseExpression:
    if isinstance(node, cst.Attribute):
        return node.value
    return node.func if isinstance(node, cst.Call) else node.expression


def _own_name(node: cst.BaseExpression) -> str:
    """The name of an object, or of the method that returned it."""
    while isinstance(node, cst.Call | cst.Await):
        node = _before(node)
    if isinstance(node, cst.Attribute):
        return node.attr.value
    return node.value if isinstance(node, cst.Name) else ""


def _with_member(node: cst.Attribute, old: str, new: str) -> cst.Attribute:
    (old_owner, _), (owner, first, *more) = old.split("."), new.split(".")
    if owner != old_owner:
        if not isinstance(node.value, cst.Attribute):
            return node  # a variable of that name
        node = node.with_changes(value=node.value.with_changes(attr=cst.Name(owner)))
    node = node.with_changes(attr=cst.Name(first))
    for name in more:
        node = cst.Attribute(node, cst.Name(name))
    return node


def _argument(argument: cst.Arg, names: Mapping[str, str]) -> cst.Arg:
    old = "" if argument.keyword is None else argument.keyword.value
    if old not in names:
        return argument
    return argument.with_changes(keyword=cst.Name(names[old]), value=_value(old, argument.value))


def _gathered(arguments: list[cst.Arg], into: str, names: Sequence[str]) -> list[cst.Arg]:
    """The arguments with those of these names as one dictionary, where the first was."""
    taken = {id(one): one.keyword.value for one in arguments if one.keyword and one.keyword.value in names}
    if not taken:
        return arguments
    of_dict = [one for one in arguments if id(one) in taken]
    elements = [cst.DictElement(cst.SimpleString(f'"{taken[id(one)]}"'), one.value) for one in of_dict]
    first = of_dict[0].with_changes(keyword=cst.Name(into), value=cst.Dict(elements))
    left = [first if one is of_dict[0] else one for one in arguments if one not in of_dict[1:]]
    return [*left[:-1], left[-1].with_changes(comma=arguments[-1].comma)]


def _element(element: cst.BaseDictElement, names: Mapping[str, str]) -> cst.BaseDictElement:
    old = (_text(element.key) or "") if isinstance(element, cst.DictElement) else ""
    if old not in names:
        return element
    return element.with_changes(key=cst.SimpleString(f'"{names[old]}"'), value=_value(old, element.value))


def _value(argument: str, value: cst.BaseExpression) -> cst.BaseExpression:
    new = VALUES.get(argument, {}).get(_text(value) or "")
    return value if new is None else cst.SimpleString(f'"{new}"')


def _text(node: cst.BaseExpression) -> str | None:
    text = node.evaluated_value if isinstance(node, cst.SimpleString) else None
    return text if isinstance(text, str) else None
