"""Words that went out of use: no identifier of the library has them any more, so that
each thing has one name (docs/protocols.md).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from memory.ports.contract.cells import cells

RETIRED = {
    "shelf": "table",
    "grave": "tombstone",
    "bury": "delete",
    "burial": "deletion",
    "spoil": "damage",
    "aside": "quarantine",
    "debt": "pending",
    "finisher": "handler",
    "ledger": "partitions",
    "drawer": "bucket",
    "permit": "token",
}
"""Each with the word that is used now."""
_FORMS = {f"{word}{end}": word for word in RETIRED for end in ("", "s", "ed", "er")} | {
    "shelves": "shelf",
    "shelved": "shelf",
    "buries": "bury",
    "buried": "bury",
}
_LIBRARY = Path(__file__).parents[2] / "memory"


def identifiers(source: str) -> Iterator[str]:
    """Every name that the source gives to something: modules, classes, functions,
    parameters, variables, attributes.
    """
    for node in ast.walk(ast.parse(source)):
        match node:
            case (
                ast.ClassDef(name=name)
                | ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.arg(arg=name)
            ):
                yield name
            case (
                ast.Name(id=name, ctx=ast.Store())
                | ast.Attribute(attr=name, ctx=ast.Store())
                | ast.keyword(arg=str(name))
            ):
                yield name
            case ast.alias(asname=str(name)):
                yield name
            case _:
                pass


def words(identifier: str) -> list[str]:
    """`set_aside`, `SetAside` and `SET_ASIDE` are two words."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", identifier)]


def retired(path: Path) -> Iterator[str]:
    source = path.read_text(encoding="utf-8")
    lowered = source.lower()
    named = [path.stem, *(identifiers(source) if any(word in lowered for word in _FORMS) else ())]
    for identifier in dict.fromkeys(named):
        for word in words(identifier):
            if word in _FORMS:
                yield f"{path.relative_to(_LIBRARY.parent)}: {identifier} (say {RETIRED[_FORMS[word]]})"


VERBS = {
    "applied": "a field of rows",
    "awaited": "what `inspect` calls it",
    "cached": "established",
    "cast": "a verb",
    "cut": "a verb",
    "due": "an adjective of the port, as in `due_at`",
    "embed": "a verb",
    "failed": "a callback that pymongo names",
    "hit": "a noun of caches and searches",
    "put": "a verb",
    "read": "a verb",
    "run": "a verb",
    "scoped": "established: a view of one scope",
    "split": "a verb",
    "started": "a callback that pymongo names",
    "succeeded": "a callback that pymongo names",
}
"""Functions may have these names, which look like participles, and why."""
_PARTICIPLE = re.compile(
    r"""[a-z]+ed | begun | born | bought | bound | broken | brought | built | caught | cast | chosen | come | cut
    | dealt | done | drawn | driven | due | fallen | forgotten | found | frozen | given | gone | got | grown | heard
    | held | hidden | hit | kept | known | laid | learnt | led | left | lent | lost | made | meant | met | owed | paid
    | put | read | rewritten | run | said | seen | sent | set | shown | sold | sought | spent | split | spoken | stood
    | swept | sworn | taken | taught | thought | thrown | told | torn | undone | withdrawn | withheld | won | worn
    | written""",
    re.VERBOSE,
)


_FUNCTION = re.compile(r"^\s*(?:async )?def (\w+)\(", re.MULTILINE)


def functions(source: str) -> list[str]:
    """The names of all functions of a source, read without parsing it: that takes fifty
    times as long.
    """
    return _FUNCTION.findall(source)


def bare_participles(source: str) -> Iterator[str]:
    """Functions of a source that are named by one participle: `judged`, not `judge`."""
    for function in functions(source):
        name = function.strip("_")
        if _PARTICIPLE.fullmatch(name) and name not in VERBS:
            yield function


@pytest.mark.thorough
def test_functions_are_named_by_verbs_or_by_what_they_return() -> None:
    sources = {path: path.read_text(encoding="utf-8") for path in sorted(_LIBRARY.rglob("*.py"))}
    found = [f"{path.stem}: {name}" for path, source in sources.items() for name in bare_participles(source)]
    assert found == []
    names = {name.strip("_") for source in sources.values() for name in functions(source)}
    assert set(VERBS) <= names, "a name that no function has needs no exception"


@cells("name", ["judged", "_said", "told", "kept", "is_judged", "judge", "read", "_put"], shared=True)
def test_the_test_finds_participles(name: str) -> None:
    expected = [name] if name in ("judged", "_said", "told", "kept") else []
    assert list(bare_participles(f"class A:\n    async def {name}(self): ...\n")) == expected


@pytest.mark.thorough
def test_no_identifier_has_a_word_that_went_out_of_use() -> None:
    found = [one for path in sorted(_LIBRARY.rglob("*.py")) for one in retired(path)]
    assert found == []


@pytest.mark.parametrize(
    "source",
    [
        "class BookShelf: ...",
        "def set_aside(): ...",
        "def f(graves): ...",
        "SPOILED = 1",
        "self.debts = 1",
        "import x as ledger",
        "f(burial=1)",
        "async def bury_all(): ...",
        "for shelf in x: ...",
    ],
)
def test_the_test_finds_them(source: str, tmp_path: Path) -> None:
    assert [word for identifier in identifiers(source) for word in words(identifier) if word in _FORMS]


def test_other_words_pass() -> None:
    assert not [
        w
        for i in identifiers("inside = [1]\nasides_not = inside.append(2)\n")
        for w in words(i)
        if w in _FORMS and w != "asides"
    ]
