"""Rich tables and blocks for people.

Stored text is shown as text, never as markup or control codes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from memory.domain.entry import Entry
from memory.domain.results import as_json
from memory.domain.session import FoundMessage
from memory.policies.ranking.formatting import percentage

if TYPE_CHECKING:
    from memory.domain.promotion_report import PromotionReport
    from memory.domain.search_results import FoundEntry

T = TypeVar("T")
K = TypeVar("K")

WHOLE = frozenset(
    "# score relevance tier store scope type id entry role version since setting from to turn home".split()
)
"""Columns whose cells are never broken, because they are read or copied whole."""
TERMS = 5
"""The largest number of terms of a score that are shown by name."""
TIER_STYLE = {"short": "yellow", "mid": "cyan", "long": "green"}


def plain(text: object, style: str = "", limit: int | None = None) -> Text:
    """Return stored text that is safe to print.

    Control characters become spaces. A text that is cut ends in an ellipsis.
    """
    cleaned = "".join(char if char.isprintable() or char == "\n" else " " for char in str(text))
    if limit is not None and len(cleaned) > limit:
        cleaned = cleaned[: limit - 1].rstrip() + "…"
    return Text(cleaned, style=style)


def table(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    right: Sequence[str] = (),
    nothing: str = "",
) -> Table | Text:
    """Return a table of plain cells; the columns in `right` are aligned right.

    Without rows, return the text `nothing` if it is given.
    """
    made = Table(
        title=title or None, box=SIMPLE_HEAD, title_justify="left", title_style="bold", pad_edge=False
    )
    for name in columns:
        made.add_column(
            name, justify="right" if name in right else "left", overflow="fold", no_wrap=name in WHOLE
        )
    for row in rows:
        made.add_row(*(cell if isinstance(cell, Text | Group) else plain(cell) for cell in row))
    return Text(nothing) if nothing and not made.rows else made


def facts(title: str, state: Text, values: Mapping[str, object]) -> Group:
    """Return a heading and its facts, one on each line.

    Long values continue below their beginning.
    """
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True, style="dim")
    grid.add_column(overflow="fold")
    for name, value in values.items():
        if value not in (None, ""):
            grid.add_row(f"  {name}", plain(value))
    return Group(Text.assemble((title, "bold"), ": ", state), grid)


def tier(name: str) -> Text:
    return Text(name, style=TIER_STYLE.get(name, ""))


def moment(when: datetime | None) -> str:
    return "" if when is None else f"{when:%Y-%m-%d %H:%M}"


def size(count: int) -> str:
    """Return a number of bytes in a readable unit."""
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def entry_block(entry: Entry, numbers: Mapping[str, int]) -> Group:
    """Return a block with the whole entry."""
    lines: list[Text] = []
    if entry.title:
        lines.append(plain(entry.title, "bold"))
    lines.append(plain(entry.content))
    facts: dict[str, object] = {
        "number": number(entry.id, numbers),
        "id": entry.id,
        "scope": entry.scope.text,
        "type": entry.type,
        "tier": entry.tier,
        "tags": ", ".join(entry.tags),
        "source": entry.source,
        "agent": entry.agent,
        "run": entry.run,
        "origins": ", ".join(entry.origins or ()),
        "said by": entry.speaker,
        "said in": " ".join(
            str(said) for said in (entry.conversation_id, entry.number_in_conversation) if said is not None
        ),
        "artifact": _artifact(entry),
        "metadata": ", ".join(f"{name}={value}" for name, value in entry.metadata.items()),
        "data": None if entry.data is None else json.dumps(entry.data, ensure_ascii=False),
        "created": entry.created_at,
        "updated": entry.updated_at if entry.updated_at != entry.created_at else None,
        "expires": entry.expires_at,
        "promoted from": entry.promoted_from_id,
        "compacted from": ", ".join(entry.compacted_from_ids or ()),
    }
    lines += [Text.assemble((f"  {name:<15}", "dim"), plain(value)) for name, value in facts.items() if value]
    return Group(*lines)


def number(thing_id: str, numbers: Mapping[str, int]) -> str:
    """Return the short id such as `#42`, or nothing if the thing has none."""
    return f"#{numbers[thing_id]}" if thing_id in numbers else ""


def _artifact(entry: Entry) -> str:
    """Describe the artifact to which an entry refers."""
    if entry.artifact is None:
        return entry.artifact_id or ""
    return (
        f"{entry.artifact.path} ({entry.artifact.media_type}, {size(entry.artifact.size)}),"
        f" {entry.artifact.id}"
    )


def entries(listed: Iterable[Entry], numbers: Mapping[str, int], limit: int = 200) -> Table | Text:
    """Return a table of entries: the beginning of the text, and key fields."""
    rows = []
    for entry in listed:
        about = " · ".join(
            str(said)
            for said in (
                number(entry.id, numbers),
                entry.id,
                entry.type,
                ", ".join(entry.tags),
                entry.expires_at and f"until {moment(entry.expires_at)}",
            )
            if said
        )
        title = [plain(entry.title, "bold")] if entry.title else []
        rows.append(
            [
                moment(entry.created_at),
                tier(entry.tier),
                Group(*title, plain(entry.content, limit=limit), plain(about, "dim")),
            ]
        )
    return table("", ["since", "tier", "entry"], rows)


def versions(listed: Iterable[Entry], entry_id: str) -> Table | Text:
    """Return a table of versions; those of superseded entries are dimmed."""
    rows = []
    for one in listed:
        style = "" if one.id == entry_id else "dim"
        title = [plain(one.title, style or "bold")] if one.title else []
        ended = "" if one.valid_to is None else moment(one.valid_to)
        rows.append(
            [moment(one.updated_at), ended, Group(*title, plain(one.content, style, limit=200)), one.version]
        )
    return table("Versions", ["since", "retired", "text", "version"], rows, right=("version",))


def hit_json(hit: FoundEntry | FoundMessage) -> dict[str, Any]:
    """Return a hit as data: score, relevance, and the entry, or message and session."""
    numbers = {"score": hit.score, "relevance": hit.relevance}
    if isinstance(hit, FoundMessage):
        return {**numbers, "message": as_json(hit.item), "session_id": hit.session_id}
    return {**numbers, "entry": hit.entry.to_dict()}


def relevance(value: float | None) -> str:
    """Return a relevance as a percentage; a dash where it is unknown."""
    return "–" if value is None else percentage(value)


def sort_key(score: float | None) -> str:
    """Return a score with enough digits to explain the order; a dash without one."""
    return "–" if score is None else f"{score:.4f}"


def hits(
    found: Sequence[FoundEntry | FoundMessage],
    numbers: Mapping[str, int],
    *,
    explain: bool,
    limit: int | None = 400,
) -> Table | Text:
    """Return a table of search results, best first.

    With `explain`, each shows how it got its place.
    """
    rows = []
    for place, hit in enumerate(found, start=1):
        in_tier, said = _tier_and_text(hit, numbers, limit)
        body = Group(*said, *(explanation_lines(hit.explanation) if explain else []))
        rows.append([str(place), sort_key(hit.score), relevance(hit.relevance), in_tier, body])
    columns = ["#", "score", "relevance", "tier", "result"]
    return table("", columns, rows, right=("#", "score", "relevance"))


def _tier_and_text(
    hit: FoundEntry | FoundMessage, numbers: Mapping[str, int], limit: int | None
) -> tuple[Text, list[Text]]:
    """Return the tier, the text and a description of a hit."""
    if isinstance(hit, FoundMessage):
        by = hit.speaker or hit.message.role.value
        about = plain(
            f"{by} in session {hit.session_id}, {hit.item.number} · {moment(hit.item.created_at)}", "dim"
        )
        return tier("mid"), [plain(hit.message.text, limit=limit), about]
    entry = hit.entry
    title = [plain(entry.title, "bold")] if entry.title else []
    about = plain(
        " · ".join(
            filter(None, (number(entry.id, numbers), entry.id, entry.scope.text, moment(entry.created_at)))
        ),
        "dim",
    )
    return tier(entry.tier), [*title, plain(entry.content, limit=limit), about]


def explanation_lines(explanation: Mapping[str, Any]) -> list[Text]:
    """Return the lines that explain the relevance of a hit and its place.

    They give the relevance in words, the ranks and the nearest part of a long text.
    Then come the terms of the order with their factors, and the store.
    """
    factors = [
        f"× {_humanize(name)} {by:.2f}"
        for name, by in explanation.get("multipliers", {}).items()
        if f"{by:.2f}" != "1.00"
    ]
    order = [] if (reached := explanation.get("order")) is None else [f"= {reached:.2f}"]
    where = f"in {explanation['store']}" if explanation.get("store") else ""
    where += (
        f", its vectors as of {age:.0f} s ago" if (age := explanation.get("vectors_age")) is not None else ""
    )
    supposed = ", ".join(
        f"'{said}' taken for '{meant}'" for said, meant in explanation.get("corrected", {}).items()
    )
    nearest = (
        f"nearest in part {part['number']} of {part['of']}, from character {part['characters'][0]}"
        if (part := explanation.get("part"))
        else ""
    )
    relevant = explanation.get("relevance", {}).get("in_words", "")
    lines = (
        relevant,
        supposed,
        ranks_text(explanation.get("ranks", {})),
        nearest,
        _sum(explanation.get("terms", {})),
        " ".join(factors + order),
        where,
    )
    return [plain(line) for line in lines if line]


def ranks_text(ranks: Mapping[str, int | None]) -> str:
    """Return the rank in each list that found the hit."""
    return " · ".join(f"{_humanize(way)} #{rank}" for way, rank in ranks.items() if rank is not None)


def _sum(terms: Mapping[str, float]) -> str:
    """Return the largest terms, and the sum of the others."""
    ordered = sorted(terms.items(), key=lambda term: -abs(term[1]))
    told = [*ordered[:TERMS], ("others", sum(value for _, value in ordered[TERMS:]))]
    signed = [
        f"{'−' if value < 0 else '+'} {_humanize(name)} {abs(value):.2f}"
        for name, value in told
        if f"{abs(value):.2f}" != "0.00"
    ]
    return " ".join(signed).removeprefix("+ ")


def _humanize(name: str) -> str:
    return name.replace("_", " ")


def left_out(left: Mapping[str, Any]) -> Text:
    """Return how many results are not shown, by reason."""
    counted = {why: what if isinstance(what, int) else len(what) for why, what in left.items()}
    return plain(
        "not shown: " + ", ".join(f"{count} {_humanize(why)}" for why, count in counted.items()), "dim"
    )


def promotion(out: Console, report: PromotionReport) -> None:
    """Print derived, moved, copied and kept entries with the reasons, each once."""
    if report.derived:
        out.print(plain(f"{len(report.derived)} entries made from its messages"))
    for (rule, because, start, end), moved in group_by(
        report.moved, lambda item: (item.rule, item.because, item.from_tier, item.to_tier)
    ).items():
        out.print(
            Text.assemble(
                f"{len(moved)} moved from ",
                tier(start),
                " to ",
                tier(end),
                " by ",
                plain(rule),
                ": ",
                plain(because),
            )
        )
        out.print(plain("\n".join(f"  {item.entry_id}" for item in moved)))
    for (rule, because, scope), copied in group_by(
        report.copied, lambda item: (item.rule, item.because, item.to_scope)
    ).items():
        out.print(
            Text.assemble(
                f"{len(copied)} copied into ", plain(scope), " by ", plain(rule), ": ", plain(because)
            )
        )
        out.print(plain("\n".join(f"  {item.entry_id} → {item.copy_id}" for item in copied)))
    for (name, because), kept in group_by(report.kept, lambda item: (item.tier, item.because)).items():
        where = Text.assemble(" kept in ", tier(name)) if name else Text(" not moved")
        out.print(Text.assemble(f"{len(kept)}", where, ": ", plain(because)))
        out.print(plain("\n".join(f"  {item.entry_id}" for item in kept)))


def group_by(items: Iterable[T], reason: Callable[[T], K]) -> dict[K, list[T]]:
    """Group items by a common property, in the order of their arrival."""
    groups: dict[K, list[T]] = {}
    for item in items:
        groups.setdefault(reason(item), []).append(item)
    return groups
