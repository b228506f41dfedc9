"""Merges the answers that several stores or places gave to one question."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from memory.ports.heads import cut
from memory.ports.query import Hit, Page, Query
from memory.ports.query_evaluation import merge_pages
from memory.ports.record import Standing


def with_sort_values(query: Query) -> Query:
    """Return the query whose heads also carry the fields by which they are sorted.

    `merge_answers` needs them.
    """
    if query.select is None:
        return query
    return replace(query, select=query.select | {by.field for by in query.order})


def merge_answers(pages: Sequence[Page], query: Query) -> Page:
    """Merge the pages that answer `with_sort_values(query)` into one page."""
    corrupt = tuple(key for page in pages for key in page.corrupt)
    if query.select is not None:
        heads, cursor = merge_pages([(page.heads, page.cursor) for page in pages], query)
        return Page((), cursor, corrupt, tuple(heads))
    found: list[Standing]
    found, cursor = merge_pages([(page.records, page.cursor) for page in pages], query)
    return Page(tuple(found), cursor, corrupt)


def without_sort_values(page: Page, query: Query) -> Page:
    """Return the merged page with exactly the values that the query selects."""
    if query.select is None:
        return page
    select = query.select
    return replace(page, heads=tuple(cut(head, select) for head in page.heads))


def best_hits(hits: Iterable[Hit], limit: int) -> list[Hit]:
    """Return the best hits, best first; ties go by id."""
    return sorted(hits, key=lambda hit: (-hit.score, hit.head.key.id))[:limit]
