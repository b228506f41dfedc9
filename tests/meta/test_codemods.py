"""The renames of unreleased names, which users of the unreleased version run on their
own code.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from tools.codemods.names import CLASSES, INNER_CLASSES
from tools.codemods.rename import renamed, renamed_text

IMPORTED = ("from memory import Held\n", "from memory.domain.errors import Held\n")


@pytest.mark.parametrize("line", IMPORTED)
def test_a_name_is_followed_from_its_import(line: str) -> None:
    source = line + "\n\ndef f(x: Held) -> None:\n    raise Held()\n"
    assert renamed(source, Path("mine/app.py")) == source.replace("Held", "LegalHoldActive")


def test_a_name_of_another_library_stays() -> None:
    source = "from other import Held\n\n\nclass Written:\n    pass\n\n\nraise Held(Written())\n"
    assert renamed(source, Path("mine/app.py")) == source


def test_a_name_by_its_module_and_under_another_name_is_followed() -> None:
    source = "import memory\nfrom memory import Held as H\n\nraise memory.Held from H()\n"
    wanted = (
        "import memory\nfrom memory import LegalHoldActive as H\n\nraise memory.LegalHoldActive from H()\n"
    )
    assert renamed(source, Path("mine/app.py")) == wanted


def test_a_document_changes_in_its_code_only() -> None:
    text = "Held by `Held`:\n```python\nraise Held\n```\n"
    assert renamed_text(text) == "Held by `LegalHoldActive`:\n```python\nraise LegalHoldActive\n```\n"


def test_every_new_name_is_there_and_no_old_one() -> None:
    for full, new in {**CLASSES, **INNER_CLASSES}.items():
        module = import_module(full.rpartition(".")[0])
        old = getattr(module, full.rpartition(".")[2], None)
        is_here = getattr(old, "__module__", None) == module.__name__  # another's name may be imported
        assert (hasattr(module, new), is_here) == (True, False), full


CALLS = """
memory.write("tea", scope="user:ada", key="drink", on_conflict="update", check=False)
memory.write_many([{"content": "tea", "scope": "user:ada", "on_conflict": "refuse", "decide": ask}])
memory.remember("tea", scope="user:ada", check=True, decide=ask)
MemoryManager(stores, check=True)
subprocess.run(command, check=True)
"""
CALLS_AFTER = """
memory.write("tea", scope="user:ada", key="drink", if_exists="replace", detect_conflicts=False)
memory.write_many([{"content": "tea", "scope": "user:ada", "if_exists": "error", "resolve": ask}])
memory.write_with_report("tea", scope="user:ada", detect_conflicts=True, resolve=ask)
MemoryManager(stores, detect_conflicts=True)
subprocess.run(command, check=True)
"""


@pytest.mark.parametrize("line", ["import memory\n", "from memory.facade.memory import Memory\n"])
def test_methods_and_arguments_are_renamed_where_the_library_is_imported(line: str) -> None:
    assert renamed(line + CALLS, Path("mine/app.py")) == line + CALLS_AFTER
    assert renamed("import other\n" + CALLS, Path("mine/app.py")) == "import other\n" + CALLS


def test_calls_in_a_document_are_renamed() -> None:
    text = "Then:\n```python\nimport memory\n{}```\nmore\n"
    assert renamed_text(text.format(CALLS)) == text.format(CALLS_AFTER)


SEARCHES = """
memory.search("tea", scope="user:ada", by="words", types=["user"], limit=3, tags=["home"])
ada.search("tea", only={"types": ["user"]}, conversation_id="c1")
session.search("tea", by=how)
memory.search_messages("tea", by="both")
memory.retrieve("user:ada", types=["user"])
re.search("tea", text)
"""
SEARCHES_AFTER = """
memory.search("tea", scope="user:ada", mode="lexical", boost={"types": ["user"], "tags": ["home"]}, limit=3)
ada.search("tea", filter={"types": ["user"]}, boost={"conversation_id": "c1"})
session.search("tea", mode=how)
memory.search_messages("tea", mode="hybrid")
memory.retrieve("user:ada", types=["user"])
re.search("tea", text)
"""


def test_what_a_search_boosts_is_gathered_and_its_other_arguments_are_renamed() -> None:
    line = "from memory import Only\n"
    assert renamed(line, Path("mine/app.py")) == line.replace("Only", "SearchFilter")
    assert renamed("import memory\n" + SEARCHES, Path("mine/app.py")) == "import memory\n" + SEARCHES_AFTER
