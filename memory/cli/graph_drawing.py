"""Draw the entries linked to an entry, as SVG text.

The picture is read from the middle. Entries that point at the entry are on its left;
entries to which it points are on its right. Entries two steps away are in the outer
columns, beside the entry through which they were reached. So every entry has a row of
its own, and boxes never overlap. docs/decisions/064 explains why no layout library is
used. The same expansion always gives the same picture.
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memory.domain.entry import Entry
    from memory.domain.relation import Expansion

WIDTH, HEIGHT = 240, 40
"""The size of an entry's box, in pixels."""
COLUMN, ROW = WIDTH + 190, HEIGHT + 12
"""The distance from one box to the next, in pixels."""
MARGIN = 28
ROUND = 140
"""Room beside the outermost column for links between two entries of that column."""
TO_LABEL = 62
"""The distance from a box to the middle of a label; each line runs alone there."""
A_SIDE = 12
"""The number of rows of a side from which entries go to the other, shorter side."""
TITLE = 31
"""Latin letters of a title that fit into a box; a wide letter counts as two."""
TOLD = 600
"""Characters of an entry in the tooltip of its box."""
COLOURS = {
    "relates_to": "#5f6b7a",
    "refines": "#1a6fb5",
    "contradicts": "#c0392b",
    "supersedes": "#7d3c98",
    "supports": "#1e8449",
}

_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_TURNING = re.compile("[\u202a-\u202e\u2066-\u2069]")
"""Characters that would change the reading direction of the text after them."""

_STYLE = """
text { font-family: system-ui, "DejaVu Sans", "Noto Sans", sans-serif; text-anchor: middle; unicode-bidi: plaintext; }
.box { fill: #f4f7fb; stroke: #51637a; }
.title { font-size: 13px; fill: #16202c; }
.about { font-size: 10px; fill: #51637a; }
.retired .box { fill: #fafafa; stroke: #b9b9b9; stroke-dasharray: 4 3; }
.retired .title, .retired .about { fill: #8a8a8a; }
.seed .box { fill: #1f3f66; stroke: #0d1f35; stroke-width: 3; }
.seed .title { fill: #ffffff; font-weight: 600; }
.seed .about { fill: #d5e0ee; }
.seed.retired .box { fill: #6b7683; stroke: #3c4652; stroke-dasharray: 4 3; }
.link { fill: none; stroke-width: 1.5; }
.dim { opacity: 0.55; stroke-dasharray: 5 4; }
.label { font-size: 11px; paint-order: stroke; stroke: #ffffff; stroke-width: 4px; stroke-linejoin: round; }
.note { font-size: 12px; fill: #51637a; }
"""  # noqa: E501


@dataclass(frozen=True, slots=True)
class BoxPosition:
    """The middle of a box, and its column.

    Column 0 holds the entry itself; negative columns are on its left.
    """

    column: int
    x: float
    y: float


def draw(found: Expansion) -> str:
    """Return the picture as an SVG document."""
    at = places(found)
    beside = MARGIN + ROUND * any(
        at[one.source_id].column == at[one.target_id].column for one in found.relations
    )
    left, right = (
        min(place.x for place in at.values()) - WIDTH / 2 - beside,
        max(place.x for place in at.values()) + WIDTH / 2 + beside,
    )
    top, foot = (
        min(place.y for place in at.values()) - HEIGHT / 2 - MARGIN,
        max(place.y for place in at.values()) + HEIGHT / 2 + MARGIN,
    )
    notes = [
        *found.notices,
        *["dashed and grey: a retired entry, shown because it superseded another or was superseded"]
        * bool(found.retired),
    ]
    bottom = foot + 18 * len(notes)
    seed = found.nodes[0].entry
    return "\n".join(
        [
            (
                f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{right - left:.0f}"'
                f' height="{bottom - top:.0f}" viewBox="{left:.0f} {top:.0f} {right - left:.0f}'
                f' {bottom - top:.0f}">'
            ),
            f"<title>{_text('Entries linked to: ' + _label(seed), TOLD)}</title>",
            f"<style>{_STYLE}</style>",
            "<defs>" + "".join(_arrow(label) for label in COLOURS) + "</defs>",
            f'<rect x="{left:.0f}" y="{top:.0f}" width="100%" height="100%" fill="#ffffff"/>',
            *_links(found, at),
            *(
                _box(
                    node.entry,
                    at[node.entry.id],
                    is_seed=node.depth == 0,
                    is_retired=node.entry.id in found.retired,
                )
                for node in found.nodes
            ),
            *(
                f'<text class="note" x="{(left + right) / 2:.0f}"'
                f' y="{foot + 18 * n:.0f}">{_text(note)}</text>'
                for n, note in enumerate(notes)
            ),
            "</svg>\n",
        ]
    )


# -- placement ------------------------------------------------------------------------


def places(found: Expansion) -> dict[str, BoxPosition]:
    """Return the place of each entry's box.

    Entries one step away are in the columns beside the entry. Entries two steps away
    are beside the entry through which they were reached.
    """
    seed, near = found.nodes[0].entry.id, [node.entry.id for node in found.nodes if node.depth == 1]
    behind = _behind(found, near)
    points_at = {relation.source_id for relation in found.relations if relation.target_id == seed}
    pointed_at = {relation.target_id for relation in found.relations if relation.source_id == seed}
    sides: dict[int, list[str]] = {-1: [], 1: []}
    rows = {-1: 0, 1: 0}
    for one in near:
        side = -1 if one in points_at and one not in pointed_at else 1
        if rows[side] >= A_SIDE and rows[-side] < rows[side]:
            side = -side
        sides[side].append(one)
        rows[side] += max(1, len(behind[one]))
    at = {seed: BoxPosition(0, 0, 0)}
    for side, ones in sides.items():
        row = -(rows[side] - 1) / 2
        for one in ones:
            taken = max(1, len(behind[one]))
            at[one] = BoxPosition(side, side * COLUMN, (row + (taken - 1) / 2) * ROW)
            at.update(
                {
                    other: BoxPosition(2 * side, 2 * side * COLUMN, (row + n) * ROW)
                    for n, other in enumerate(behind[one])
                }
            )
            row += taken
    return at


def _behind(found: Expansion, near: Iterable[str]) -> dict[str, list[str]]:
    """Return, for each entry one step away, the entries that it reaches first."""
    linked: dict[str, set[str]] = defaultdict(set)
    for relation in found.relations:
        linked[relation.source_id].add(relation.target_id)
        linked[relation.target_id].add(relation.source_id)
    behind: dict[str, list[str]] = {one: [] for one in near}
    for node in found.nodes:
        if node.depth > 1:
            behind[next(one for one in behind if one in linked[node.entry.id])].append(node.entry.id)
    return behind


# -- shapes ----------------------------------------------------------------------------


def _links(found: Expansion, at: dict[str, BoxPosition]) -> list[str]:
    """Return the lines, which lie below the boxes, then their labels.

    Links of one direction between two entries share a line.
    """
    labels: dict[tuple[str, str], list[str]] = defaultdict(list)
    for relation in sorted(found.relations, key=lambda one: (one.created_at, one.id)):
        labels[relation.source_id, relation.target_id].append(relation.label)
    lines, texts = [], []
    for (source, target), said in labels.items():
        beside = 0 if (target, source) not in labels else 7 if source < target else -7
        dim = " dim" if {source, target} & found.retired else ""
        way, (x, y) = _way(at[source], at[target], beside)
        lines.append(
            f'<path class="link{dim}" d="{way}" stroke="{COLOURS[said[0]]}" marker-end="url(#{said[0]})"/>'
        )
        texts.append(
            f'<text class="label" x="{x:.0f}" y="{y + 4:.0f}"'
            f' fill="{COLOURS[said[0]]}">{_text(", ".join(said))}</text>'
        )
    return lines + texts


def _way(source: BoxPosition, target: BoxPosition, beside: float) -> tuple[str, tuple[float, float]]:
    """Return a curve from one box to another, and the place of its label."""
    outward = 1 if source.column > 0 or target.column > 0 else -1
    if source.column == target.column:  # around the outside of their column
        bend = outward * (60 + abs(source.y - target.y) / 12)
        out, back = (outward, bend), (outward, bend)
    else:
        to_the_right = 1 if source.column < target.column else -1
        bend = to_the_right * (COLUMN - WIDTH) / 2
        out, back = (to_the_right, bend), (-to_the_right, -bend)
    x1, y1 = source.x + out[0] * WIDTH / 2, source.y + beside
    x2, y2 = target.x + back[0] * WIDTH / 2, target.y + beside
    points = ((x1, y1), (x1 + out[1], y1), (x2 + back[1], y2), (x2, y2))
    way = f"M {x1:.0f} {y1:.0f} C {points[1][0]:.0f} {y1:.0f} {points[2][0]:.0f} {y2:.0f} {x2:.0f} {y2:.0f}"
    if source.column == target.column:
        return way, _on_the_way(points, 0.5)
    room = x2 + back[0] * TO_LABEL if abs(target.column) >= abs(source.column) else x1 + out[0] * TO_LABEL
    return way, min(
        (_on_the_way(points, part / 50) for part in range(51)), key=lambda point: abs(point[0] - room)
    )


def _on_the_way(points: tuple[tuple[float, float], ...], part: float) -> tuple[float, float]:
    rest = 1 - part
    weights = (rest**3, 3 * rest**2 * part, 3 * rest * part**2, part**3)
    return sum(w * x for w, (x, _) in zip(weights, points, strict=True)), sum(
        w * y for w, (_, y) in zip(weights, points, strict=True)
    )


def _box(entry: Entry, at: BoxPosition, *, is_seed: bool, is_retired: bool) -> str:
    """Return a box. It clips its content at its edges."""
    kind = " ".join(["entry", *["seed"] * is_seed, *["retired"] * is_retired])
    until = f" · until {entry.valid_to:%Y-%m-%d}" if is_retired and entry.valid_to is not None else ""
    about = f"{entry.type.value} · {entry.valid_from:%Y-%m-%d}{until}"
    told = f"{_label(entry)}\n{entry.type.value} · {entry.scope.text} · {entry.id}"
    return (
        f'<svg class="{kind}" x="{at.x - WIDTH / 2:.0f}" y="{at.y - HEIGHT / 2:.0f}" width="{WIDTH}"'
        f' height="{HEIGHT}"><title>{_text(told, TOLD)}</title><rect class="box" x="1.5" y="1.5"'
        f' width="{WIDTH - 3}" height="{HEIGHT - 3}" rx="7"/><text class="title" x="{WIDTH / 2:.0f}"'
        f' y="17">{_text(cut(_label(entry)))}</text><text class="about" x="{WIDTH / 2:.0f}"'
        f' y="32">{_text(about)}</text></svg>'
    )


def _arrow(label: str) -> str:
    return (
        f'<marker id="{label}" viewBox="0 0 10 10" refX="10" refY="5" markerWidth="7" markerHeight="7"'
        f' orient="auto"><path d="M 0 0 L 10 5 L 0 10 z" fill="{COLOURS[label]}"/></marker>'
    )


# -- texts -----------------------------------------------------------------------------


def _label(entry: Entry) -> str:
    return entry.title or entry.content


def cut(text: str, room: int = TITLE) -> str:
    """Shorten a text to one line of a box; a shortened text ends in an ellipsis."""
    line, left = " ".join(text.split()), float(room)
    for place, char in enumerate(line):
        left -= 0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
        if left < 0 or place >= 4 * room:
            return line[: max(place - 1, 0)].rstrip() + "…"
    return line


def _text(text: str, most: int | None = None) -> str:
    """Escape a stored text for XML.

    Characters that XML forbids are replaced; those that change the reading direction
    are removed.
    """
    said = text if most is None or len(text) <= most else text[: most - 1] + "…"
    return escape(_FORBIDDEN.sub("\ufffd", _TURNING.sub("", said)))
