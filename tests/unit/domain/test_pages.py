"""Every page of a listing is used as the list of its items is."""

from __future__ import annotations

import pytest

from memory import BlockingMemory
from memory.domain import artifact, document, scopes, session, task  # noqa: F401 - they define pages
from memory.domain.results import Page
from memory.ports.contract.cells import cells


@cells("kind", Page.__subclasses__(), shared=True)
def test_a_page_is_its_items(kind: type[Page[object]]) -> None:
    page = kind(["a", "b"], cursor="c")  # type: ignore[call-arg]
    assert (list(page), len(page), page[0], page[-1:], "a" in page) == (["a", "b"], 2, "a", ["b"], True)
    assert page.to_dict()["cursor"] == "c"
    assert not kind([])  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"has no item 'cursor'; use .*cursor"):
        page["cursor"]  # type: ignore[call-overload]


def test_a_listing_is_iterated() -> None:
    with BlockingMemory("memory://") as memory:
        session = memory.session("s")
        for title in ("tea", "bread"):
            session.tasks.save(title, title=title)
        assert [one.title for one in session.tasks.list()] == ["tea", "bread"]
        assert [one.id for one in memory.sessions.list()] == ["s"]
