"""The renames of unreleased names, which users of the unreleased version run on their
own code.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from tools.codemods.names import CLASSES, FUNCTIONS
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


def test_an_argument_is_renamed_in_calls_of_its_own_class_only() -> None:
    source = "from memory import Memory\nfrom other import Box\n\nMemory('m.db', onward=f)\nBox(onward=f)\n"
    wanted = source.replace("'m.db', onward", "'m.db', on_window_exit")
    assert renamed(source, Path("mine/app.py")) == wanted


def test_functions_and_methods_are_renamed() -> None:
    source = "from memory.domain.shapes import given_as\n\ngiven_as(session.mend_tool_calls(), 'openai')\n"
    wanted = source.replace("given_as", "export_messages").replace("mend_tool", "repair_tool")
    assert renamed(source, Path("mine/app.py")) == wanted


def test_a_document_changes_in_its_code_only() -> None:
    text = "Held by `Held`:\n```python\nraise Held\n```\n"
    assert renamed_text(text) == "Held by `LegalHoldActive`:\n```python\nraise LegalHoldActive\n```\n"


def test_every_new_name_is_there_and_no_old_one() -> None:
    for full, new in {**CLASSES, **FUNCTIONS}.items():
        module = import_module(full.rpartition(".")[0])
        assert (hasattr(module, new), hasattr(module, full.rpartition(".")[2])) == (True, False), full
