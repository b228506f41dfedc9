"""The renames of unreleased names, which users of the unreleased version run on their
own code.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from memory.facade.memory import NOUNS, Memory
from tools.codemods.names import CLASSES, INNER_CLASSES, MEMBERS
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
        assert (hasattr(module, new), hasattr(module, full.rpartition(".")[2])) == (True, False), full


def test_members_of_the_facade_and_their_arguments_are_followed() -> None:
    source = (
        'await self.memory.admin.distrust(source="web", distrusted_by="ops", reason="r")\n'
        'await memory.admin.hold("case", reason="r", tenant=True)\n'
        "memory.numbers.of(ids)\n"
        "kept = [one async for one in memory.entries.all(retired=True)]\n"
        "all(kept)\n"
        "session.roll_back(checkpoint)\n"
    )
    wanted = (
        'await self.memory.admin.block_source(source="web", blocked_by="ops", reason="r")\n'
        'await memory.admin.legal_holds.add("case", reason="r", tenant=True)\n'
        "memory.short_ids.of(ids)\n"
        "kept = [one async for one in memory.entries.iterate(include_retired=True)]\n"
        "all(kept)\n"
        "session.roll_back(checkpoint)\n"
    )
    assert renamed(source, Path("mine/app.py")) == wanted
    assert renamed_text(f"```python\n{source}```\n") == f"```python\n{wanted}```\n"


def test_every_new_member_is_there_and_no_old_one() -> None:
    for old, new in MEMBERS.items():
        noun, _, method = old.partition(".")
        owner: Any = {"memory": Memory, **NOUNS}[noun]
        assert not hasattr(owner, method), old
        for name in new.split(".")[1:]:
            assert hasattr(owner, name), new
            owner = (
                get_type_hints(found.fget)["return"]
                if isinstance(found := getattr(owner, name), property)
                else found
            )
