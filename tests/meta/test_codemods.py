"""The renames of unreleased names, which users of the unreleased version run on their
own code.
"""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

import memory
from tools.codemods.names import ARGUMENTS, CLASSES, GATHERED, INNER_CLASSES, MEMBERS, MODULES, VALUES
from tools.codemods.rename import renamed, renamed_text

LIBRARY = Path(memory.__file__).parent
IMPORTED = ("from memory import Held\n", "from memory.domain.errors import Held\n")


@pytest.mark.parametrize("line", IMPORTED)
def test_a_name_is_followed_from_its_import(line: str) -> None:
    source = line + "\n\ndef f(x: Held, y: 'Held | None') -> None:\n    raise Held()\n"
    assert renamed(source) == source.replace("Held", "LegalHoldActive")


def test_a_name_of_another_library_stays() -> None:
    source = (
        "import re\nimport memory\nfrom other import Held, Memory\n\n\nclass Written:\n    pass\n\n\n"
        "raise Held(Written(), re.search('a', b, types=c), Memory(onward=f))\n"
    )
    assert renamed(source) == source


def test_a_name_by_its_module_and_under_another_name_is_followed() -> None:
    source = (
        "import memory\nfrom memory import Held as H, Memory as M\n\nraise memory.Held from H(M(onward=f))\n"
    )
    wanted = source.replace("Held", "LegalHoldActive").replace("onward", "on_window_exit")
    assert renamed(source) == wanted


MOVED = """from memory.ports import asking, clock  # noqa: F401 - as it is
from memory.ports.asking import Condition
from memory.ports.batch import Held


def find(given: Condition) -> object:
    return asking.select(given), clock, "memory.ports.asking.select", Held
"""


def test_modules_that_moved_are_followed() -> None:
    new = renamed(MOVED)
    wanted = re.sub(r"\basking\b", "query_evaluation", MOVED).replace("Condition", "Predicate")
    wanted = wanted.replace("Held", "StoredRow")
    wanted = wanted.replace(
        "ports import query_evaluation, clock",
        "ports import query_evaluation  # noqa: F401 - as it is\nfrom memory.ports import clock",
    )
    assert sorted(new.splitlines()) == sorted(wanted.splitlines())
    assert renamed(new) == new


def test_a_document_changes_in_its_code_only() -> None:
    text = (
        "{0} of a memory by `{0}`:\n```python\nraise {0}  # Only here\nf(…, {0}=1)\n```\n```toml\n#"
        " {0}\n```\n"
    )
    new = text.replace("`{0}`", "`{1}`").replace("raise {0}", "raise {1}")
    assert renamed_text(text.format("Held")) == new.format("Held", "LegalHoldActive")


def _defines(full: str, name: str) -> bool:
    """Whether the module of this old path, or the one that it moved to, defines the name."""
    old = full.rpartition(".")[0]
    modules = [LIBRARY.parent / Path(*path.split(".")) for path in {old, MODULES.get(old, old)}]
    files = [module.with_suffix(ending) for module in modules for ending in (".py", ".pyi")]
    text = "".join(file.read_text() for file in files if file.is_file())
    return re.search(rf"^(class {name}\b|{name}\s*[:=])", text, re.MULTILINE) is not None


@pytest.mark.parametrize("table", [CLASSES, INNER_CLASSES], ids=["public", "inner"])
def test_every_new_class_is_there_and_no_old_one(table: dict[str, str]) -> None:
    for full, new in table.items():
        assert (_defines(full, new), _defines(full, full.rpartition(".")[2])) == (True, False), full


OLD_PROGRAM = """
from typing import TYPE_CHECKING

from memory import BlockingMemory, BlockingMemoryManager, Memory, NamedStore, Only
from memory.domain.enriched import STILL_OWED
from memory.domain.shapes import SHAPES, given_as, langchain_messages, messages_of, messages_of_each, system_of
from memory.domain.shapes.tools import tool_as

CALLS = (STILL_OWED, langchain_messages, tool_as, messages_of_each, Memory("memory://", onward=None))


def keep(old, new):
    return "keep"


def tell(*seen):
    pass


with BlockingMemory("memory://", onward=lambda messages: []) as memory:
    drinks = memory.write("I drink tea", scope="user:ada", key="drink", on_conflict="update", check=False)
    memory.write_many([{"content": "I like tea", "scope": "user:ada", "on_conflict": "refuse"}])
    report = memory.remember("I drink oolong", scope="user:ada", check=True, decide=keep)
    entry = report.entry
    print(entry.checked, entry.checked.action, entry.checked.note)
    print(entry.checked.superseded, report.entry.checked.found, memory.enrichment(entry.id).owed)
    only: Only = {"types": ["context"]}
    memory.search("tea", scope="user:ada", by="words", types=["user"], limit=3, tags=["home"])
    assert memory.search("tea", scope="user:ada", by="both", only=only, conversation_id="c1")
    memory.search("tea", scope="user:ada", by="meaning")
    memory.search_messages("tea", user="ada", by="words")

    session = memory.session("c1", user="ada")
    session.append({"role": "user", "content": "tea"})
    session.mend_tool_calls()
    session.search("tea", by="words")
    given = given_as(session.context(1000).messages, SHAPES[0])
    print(messages_of(given[0]), system_of([]), session.end().onward)
    report = session.end()
    print(report.onward)

    (number,) = memory.numbers.of([entry.id]).values()
    numbers = memory.numbers
    print(numbers.resolve(f"#{number}"), memory.numbers.resolve_many(["#1"]))
    print(list(memory.entries.all(retired=True)), memory.entries.said_in(entry.id))

    admin = memory.admin
    memory.admin.hold("case", reason="asked", tenant=True)
    assert [one.name for one in admin.holds()] == ["case"]
    admin.release_hold("case")
    admin.distrust(source="web", distrusted_by="ops", reason="wrong")
    (blocked,) = admin.distrusted()
    print(blocked.distrusted_by, blocked.distrusted_at)
    admin.roll_back(source="web", dry_run=True)
    admin.trust(source="web")
    print(admin.set_back(), admin.sweep().still_owed, admin.stats().set_back, admin.compare(told=tell), admin.reindex(told=tell))
    memory.admin.import_([], told=tell)
    print(memory.commands.schema(shape="openai"))

    stores = [NamedStore("ada", memory.scoped("user:ada"), writable=True)]
    with BlockingMemoryManager(stores, check=True, decide=keep) as manager:
        manager.add("I drink tea")
        print(manager.schemas(shape="anthropic"))
"""


def test_the_program_has_everything_that_is_told_by_its_name() -> None:
    tables = (*ARGUMENTS.values(), *VALUES.values())
    names = {name for table in tables for name in table} | {old.rpartition(".")[2] for old in MEMBERS}
    boosts = {name for _, gathered in GATHERED.values() for name in gathered}
    assert (names | boosts) - set(re.findall(r"\w+", OLD_PROGRAM)) == set()


def test_a_program_of_before_runs_with_the_new_names(tmp_path: Path) -> None:
    new = renamed(OLD_PROGRAM)
    (tmp_path / "program.py").write_text(new)
    runpy.run_path(str(tmp_path / "program.py"))
    assert renamed(new) == new


def test_a_snippet_of_a_document_gets_the_new_names() -> None:
    before = (
        "A memory:\n```python\nada.write(…, on_conflict='update')\n```\nand `admin.holds()`, `remember`.\n"
    )
    after = before.replace("on_conflict='update'", 'if_exists="replace"')
    after = after.replace("holds", "legal_holds.list").replace("remember", "write_with_report")
    assert renamed_text(before) == after
