"""Show the steps of the demo to people."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Console, Group
from rich.text import Text

from memory.cli.rendering import group_by, plain, ranks_text, relevance, size, sort_key, table, tier
from memory.facade.config.settings import MemoryConfig
from memory.facade.config.values import mask_url
from memory.policies.routing import TIERS


def _heading(out: Console, number: int, title: str) -> None:
    out.print()
    out.print(Text(f"{number}  {title}", style="bold"))


def opening(out: Console, config: MemoryConfig) -> None:
    serving = config.serving_stores()
    places = {store.name: mask_url(store.url) for store in serving.values()}
    tiers = ", ".join(f"{name} on {serving[name].name}" for name in TIERS)
    out.print(
        plain(
            f"Tiers: {tiers}. Stores: " + ", ".join(f"{name} = {url}" for name, url in places.items()), "dim"
        ),
        soft_wrap=True,
    )
    out.print("Ines restores her grandfather's boat and tells an assistant about it over three weeks.")


def _imported_turns(out: Console, found: Mapping[str, Any]) -> None:
    _heading(out, 1, "Remember")
    again = f", {found['already_there']} already existed" if found["already_there"] else ""
    out.print(
        f"{found['turns']} turns of the conversation: {found['imported']} imported{again}."
        f" {found['known_before']} things were known before."
    )


def _routes(out: Console, rows: list[dict[str, Any]]) -> None:
    _heading(out, 2, "Where each kind of record went, and why")
    cells = [
        [r["scope"], r["type"], r["entries"], tier(r["tier"]), r["store"], ", ".join(r["replicas"])]
        for r in rows
    ]
    out.print(
        table("", ["scope", "type", "entries", "home", "store", "replica in"], cells, right=("entries",))
    )
    for (home, because), alike in group_by(rows, lambda r: (r["tier"], r["because"])).items():
        scopes = ", ".join(dict.fromkeys(r["scope"] for r in alike))
        out.print(Text.assemble(f"{scopes}: kept in ", tier(home), f", because {because}"))


def _answers(out: Console, answers: list[dict[str, Any]]) -> None:
    _heading(out, 3, "Five questions")
    for answer in answers:
        _answer(out, answer)


def _answer(out: Console, answer: Mapping[str, Any], shown: int = 2) -> None:
    shared = answer["shared_words"]
    common = (
        f"has {', '.join(shared)} in common with the answer"
        if shared
        else "shares no word with the answer: found by meaning alone"
    )
    out.print()
    out.print(Text.assemble((answer["question"], "bold cyan"), (f"   {common}", "dim")))
    hits = [hit for hit in answer["hits"] if hit["place"] <= shown or hit["evidence"]]
    rows = []
    for hit in hits:
        mark = Text("✓", style="bold green") if hit["evidence"] else Text("")
        body = Group(plain(hit["content"], limit=220), plain(hit["turn"] or "known before", "dim"))
        found_by = ranks_text({"lexical": hit["lexical_rank"], "semantic": hit["semantic_rank"]})
        numbers = [hit["place"], sort_key(hit["score"]), relevance(hit["relevance"])]
        rows.append([mark, *numbers, tier(hit["tier"]), found_by, body])
    columns = ["", "#", "score", "relevance", "tier", "found by", "evidence"]
    out.print(table("", columns, rows, right=("#", "score", "relevance")))
    if answer["found_at"] is None:
        out.print(
            plain(
                f"✗ the evidence ({', '.join(answer['expected'])}) is not among the first"
                f" {len(answer['hits'])}",
                "bold red",
            )
        )


def _promotion(out: Console, found: Mapping[str, Any]) -> None:
    _heading(out, 4, "The session ends")
    for rule in found["rules"]:
        out.print(plain(f"rule {rule['name']}: {rule['says']}"))
    if found["moved"]:
        for (rule, start, end), moved in group_by(
            found["moved"], lambda m: (m["rule"], m["from_tier"], m["to_tier"])
        ).items():
            rows: list[list[object]] = []
            for because, alike in group_by(moved, lambda m: m["because"]).items():
                rows.append(["", plain(because, "dim")])
                rows += [[m["turn"], plain(m["content"], limit=60)] for m in alike]
            out.print(
                Text.assemble(f"{len(moved)} moved from ", tier(start), " to ", tier(end), f" by rule {rule}")
            )
            out.print(table("", ["turn", "because, and what it says"], rows))
    else:
        out.print("Nothing moved: an earlier run on this database did it.")
    for (name, because), kept in group_by(found["kept"], lambda k: (k["tier"], k["because"])).items():
        out.print(Text.assemble(f"{len(kept)} stay in ", tier(name), f": {because}"))


def _again(out: Console, answer: Mapping[str, Any]) -> None:
    _heading(out, 5, "Asked again, after the move")
    _answer(out, answer, shown=1)


def _tiers(out: Console, found: Mapping[str, Any]) -> None:
    _heading(out, 6, "The tiers now")
    rows = [
        [tier(part["tier"]), part["store"], part["entries"], size(part["bytes"]), part["replicas"]]
        for part in found["tiers"]
    ]
    out.print(
        table(
            "", ["tier", "store", "entries", "size", "replicas"], rows, right=("entries", "size", "replicas")
        )
    )
    if len({part["store"] for part in found["tiers"]}) == 1:
        out.print(
            "One store serves all three tiers here: a replica is the row itself, and a move is one"
            " conditional write.",
            style="dim",
        )
    if found["pending_steps"]:
        out.print(f"{found['pending_steps']} steps are pending; a sweep completes them.")


def _window(out: Console, found: Mapping[str, Any]) -> None:
    _heading(out, 7, "A small window is compacted, and no message is lost")
    out.print(
        f"The same {found['said']} turns in a session, for a model with a window of {found['budget']} tokens."
        " A script writes the summaries."
    )
    rows = [
        [n, one["archived"], one["tokens_before"], one["tokens_after"]]
        for n, one in enumerate(found["compactions"], start=1)
    ]
    columns = ["#", "messages compacted", "tokens before", "tokens after"]
    out.print(table("", columns, rows, right=columns))
    window = found["window"]
    out.print(
        f"The model would receive {window['messages']} messages now ({window['tokens']} tokens); the history"
        f" has {found['kept']} of {found['said']}."
    )
    for one in found["recalled"]:
        where = "still in the window" if one["in_window"] else "no longer in the window"
        out.print()
        out.print(Text.assemble((one["question"], "bold cyan"), (f"   {where}", "dim")))
        if one["found_at"] is None:
            out.print(
                plain(
                    f"✗ the evidence ({', '.join(one['expected'])}) is not among the first messages found in"
                    " the session",
                    "bold red",
                )
            )
        else:
            out.print(
                Text.assemble(
                    ("✓ ", "bold green"),
                    f"found in the session, at rank {one['found_at']}: ",
                    plain(one["content"], limit=220),
                )
            )


SECTIONS: dict[str, Callable[[Console, Any], None]] = {
    "remembered": _imported_turns,
    "routes": _routes,
    "answers": _answers,
    "promotion": _promotion,
    "asked_again": _again,
    "tiers": _tiers,
    "window": _window,
}


def closing(out: Console, document: Mapping[str, Any]) -> None:
    hits = [answer["found_at"] for answer in document["answers"]]
    found = sum(place is not None for place in hits)
    out.print()
    out.print(f"{found} of {len(hits)} answers found among the first five, in {document['seconds']:.1f} s.")
    if document["kept_in"]:
        out.print(
            plain(
                f"Kept in {document['kept_in']}. To explore it: memory --config {document['kept_in']} search"
                " 'blue paint' --scope session:andorinha"
            ),
            soft_wrap=True,
        )
