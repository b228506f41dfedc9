"""The picture of what is linked to an entry: an SVG document that a person can read,
whatever entries are called.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from itertools import combinations
from xml.etree import ElementTree

from memory import Scope
from memory.cli.graph_drawing import HEIGHT, ROW, TITLE, WIDTH, cut, draw, places
from memory.domain.entry import Entry, EntryType
from memory.domain.relation import Expansion, Node, Relation
from memory.domain.relation_labels import LABELS
from memory.orchestrator.entries.graph import MOST_NODES
from memory.ports.contract.cells import cells

BEGAN = datetime(2026, 1, 2, tzinfo=UTC)
SVG = "{http://www.w3.org/2000/svg}"


def entry(number: int, title: str, *, until: datetime | None = None) -> Entry:
    return Entry(
        id=f"00000000-0000-8000-8000-{number:012}",
        tenant="default",
        scope=Scope.user("ada"),
        content=f"what {title} says",
        title=title,
        type=EntryType.PROJECT,
        created_at=BEGAN,
        updated_at=BEGAN,
        valid_from=BEGAN,
        valid_to=until,
        version="0000000000001",
        tier="mid",
    )


def relation(number: int, source: Node, label: str, target: Node) -> Relation:
    return Relation(
        f"link {number}", source.entry.id, target.entry.id, label, BEGAN + timedelta(seconds=number)
    )


def hub(*titles: str, depths: dict[int, int] | None = None) -> Expansion:
    """Entries by these titles, linked to the first, or to the one that is named."""
    nodes = [
        Node(entry(n, title), 0 if n == 0 else 2 if n in (depths or {}) else 1)
        for n, title in enumerate(titles)
    ]
    links = [
        relation(n, nodes[(depths or {}).get(n, 0)], LABELS[n % 5], nodes[n]) for n in range(1, len(nodes))
    ]
    return Expansion(tuple(nodes), tuple(links))


def drawn(found: Expansion) -> ElementTree.Element:
    return ElementTree.fromstring(draw(found))  # noqa: S314 (ours: that it is well-formed is what is tested)


def boxes(picture: ElementTree.Element) -> list[tuple[float, float, float, float]]:
    """Left, top, right and foot of each."""
    found = []
    for box in picture.iter(f"{SVG}svg"):
        if "entry" in box.get("class", ""):
            x, y, width, height = (float(box.get(name, "")) for name in ("x", "y", "width", "height"))
            found.append((x, y, x + width, y + height))
    return found


def titles(picture: ElementTree.Element) -> list[str]:
    return [text.text or "" for text in picture.iter(f"{SVG}text") if text.get("class") == "title"]


def labels(picture: ElementTree.Element) -> list[str]:
    return [text.text or "" for text in picture.iter(f"{SVG}text") if text.get("class") == "label"]


def test_one_entry_is_one_box() -> None:
    picture = drawn(hub("alone"))
    assert (titles(picture), labels(picture), len(boxes(picture))) == (["alone"], [], 1)


def test_what_points_at_an_entry_stands_on_its_left_and_the_line_leads_from_the_one_to_the_other() -> None:
    here, there, other = Node(entry(0, "here"), 0), Node(entry(1, "there"), 1), Node(entry(2, "other"), 1)
    found = Expansion(
        (here, there, other), (relation(1, here, "supports", there), relation(2, other, "refines", here))
    )
    at = places(found)
    assert at[other.entry.id].x < at[here.entry.id].x < at[there.entry.id].x
    picture = drawn(found)
    assert labels(picture) == ["supports", "refines"]
    begins = {}
    for path in picture.iter(f"{SVG}path"):
        if path.get("class") == "link":
            words = path.get("d", "").split()
            begins[path.get("marker-end")] = (float(words[1]), float(words[-2]))
    assert begins == {
        "url(#supports)": (WIDTH / 2, at[there.entry.id].x - WIDTH / 2),
        "url(#refines)": (at[other.entry.id].x + WIDTH / 2, -WIDTH / 2),
    }


def test_links_of_one_direction_share_a_line_and_those_back_have_another() -> None:
    one, two = Node(entry(0, "one"), 0), Node(entry(1, "two"), 1)
    links = (
        relation(1, one, "supports", two),
        relation(2, one, "refines", two),
        relation(3, two, "contradicts", one),
    )
    picture = drawn(Expansion((one, two), links))
    assert labels(picture) == ["supports, refines", "contradicts"]
    there, back = [
        path.get("d", "").split() for path in picture.iter(f"{SVG}path") if path.get("class") == "link"
    ]
    assert {there[2], there[-1]}.isdisjoint({back[2], back[-1]}), "they lie beside each other"


def test_what_links_two_entries_of_a_column_goes_round_it_within_the_picture() -> None:
    found = hub("seed", "one", "two")
    picture = drawn(
        Expansion(found.nodes, (*found.relations, relation(9, found.nodes[1], "refines", found.nodes[2])))
    )
    (way,) = [
        path.get("d", "").split()
        for path in picture.iter(f"{SVG}path")
        if path.get("marker-end") == "url(#refines)" and path.get("d")
    ][-1:]
    left, _, width, _ = (float(part) for part in picture.get("viewBox", "").split())
    assert max(box[2] for box in boxes(picture)) < float(way[4]) < left + width - 60, (
        "and there is room for what it means"
    )


@cells("seed", range(20), shared=True)
def test_no_two_boxes_meet_at_fifty_entries_and_all_lie_within_the_picture(seed: int) -> None:
    r = random.Random(seed)  # noqa: S311
    near = r.randint(1, 49)
    found = hub(
        *(f"entry {n} with a long title" * r.randint(1, 9) for n in range(MOST_NODES)),
        depths={n: r.randint(1, near) for n in range(near + 1, 50)},
    )
    nodes = found.nodes
    more = [
        relation(100 + n, *(lambda two: (two[0], r.choice(LABELS), two[1]))(r.sample(nodes, 2)))
        for n in range(r.randint(0, 60))
    ]
    picture = drawn(Expansion(nodes, (*found.relations, *more)))
    found_boxes = boxes(picture)
    assert len(found_boxes) == MOST_NODES
    for one, other in combinations(found_boxes, 2):
        assert one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1], (
            one,
            other,
        )
    left, top, width, height = (float(part) for part in picture.get("viewBox", "").split())
    assert all(
        left <= box[0] and box[2] <= left + width and top <= box[1] and box[3] <= top + height
        for box in found_boxes
    )
    assert height <= 50 * ROW + 100
    assert {box[3] - box[1] for box in found_boxes} == {HEIGHT}


def test_fifty_entries_beside_one_are_shared_by_both_sides() -> None:
    at = places(hub(*(str(n) for n in range(MOST_NODES))))
    columns = [place.column for place in at.values()]
    assert abs(columns.count(-1) - columns.count(1)) <= 1


@cells(
    "title",
    [
        "</text><script>alert(1)</script>",
        "]]> & <!-- \"quoted\" 'so'",
        "a\x00b\x08c\x1bd\ufffee\uffff",
        "\u202egnp.exe",
        "عدا تعيش في برلين",
        "é" * 3,
    ],
    shared=True,
)
def test_whatever_an_entry_is_called_it_is_text(title: str) -> None:
    found = hub("seed", title)
    picture = drawn(found)
    assert not list(picture.iter(f"{SVG}script"))
    shown = titles(picture)[1]
    assert "\u202e" not in shown
    if title.isprintable():
        assert shown == cut(title)
    draw(found).encode("utf-8")


def test_long_titles_are_cut_and_told_to_who_points_at_them() -> None:
    picture = drawn(hub("seed", "long " * 30))
    assert titles(picture)[1] == "long long long long long long…"
    assert len(titles(picture)[1]) <= TITLE
    assert ("long " * 30).strip() in [
        told.text.partition("\n")[0].strip() for told in picture.iter(f"{SVG}title") if told.text
    ]
    assert cut("好" * 40) == "好" * 14 + "…"
    assert cut("a\u0301" * 20) == "a\u0301" * 20
    assert len(cut("\u0301" * 5_000)) <= 4 * TITLE
    assert cut("two\n lines") == "two lines"


def test_what_is_retired_is_dimmed_with_its_links_and_the_seed_is_marked() -> None:
    new, old = Node(entry(0, "new"), 0), Node(entry(1, "old", until=datetime(2026, 2, 3, tzinfo=UTC)), 1)
    found = Expansion(
        (new, old), (relation(1, new, "supersedes", old),), ("more are there",), frozenset({old.entry.id})
    )
    picture = drawn(found)
    assert [box.get("class") for box in picture.iter(f"{SVG}svg") if "entry" in box.get("class", "")] == [
        "entry seed",
        "entry retired",
    ]
    assert [path.get("class") for path in picture.iter(f"{SVG}path") if path.get("marker-end")] == [
        "link dim"
    ]
    texts = [text.text or "" for text in picture.iter(f"{SVG}text")]
    assert "project · 2026-01-02 · until 2026-02-03" in texts
    assert "more are there" in texts
    assert any("retired" in text for text in texts)


def test_the_same_graph_is_the_same_picture() -> None:
    found = hub(*"abcdefg", depths={5: 2, 6: 1})
    assert draw(found) == draw(Expansion(found.nodes, tuple(reversed(found.relations))))
