"""Documents: agents put, read, list and delete them, under conditions and in groups;
what must be there; and what somebody might break.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from memory import ABSENT, DocumentDelete, DocumentPut
from memory.domain.document import DocumentInfo
from memory.domain.versions import version_text
from memory.facade.resources.admin import Admin
from memory.facade.resources.documents import Documents
from memory.facade.runtime.access import access_of, engine_of
from tests.model import check
from tests.model.model import covers
from tests.model.mutants import Method, mutant
from tests.model.operations import Operation, carried, imported, operation
from tests.model.paths import PATHS, SUBTREES
from tests.model.said import Said
from tests.model.shelf import Document, Place, is_same
from tests.model.structured import filter_of, passes
from tests.model.words import own_word

if TYPE_CHECKING:
    from tests.model.generate import Drawn, Generator
    from tests.model.run import Run

SCOPES = ("user:ada", "session:s1", "org:o", *PATHS[:5])
KEYS = ("settings", "step/1", "step/10", "step/2", "Step/1", "st%p_*\n", "ünï/日本", "a" * 500)
LARGE = 300_000
"""Characters of a value that is stored in chunks."""
STEPS: tuple[Any, ...] = (0, 1, 2, 2.0, "2", None, True)
EXPIRES = (3.5, 60.5, 3_600.5, 86_400.5, 5 * 86_400.5)
CONDITIONS = (
    (["value", "step"], "$gt", 1),
    (["value", "step"], "$eq", 2),
    (["value", "step"], "$ne", "2"),
    (["value", "step"], "$exists", True),
    (["value", "state", "tags"], "$contains", "a"),
    (["metadata", "kind"], "$eq", "run"),
    (["metadata", "kind"], "$in", ["run", "walk"]),
    (["metadata", "kind"], "$exists", False),
    (["key"], "$gte", "step/2"),
)


# -- what is drawn ---------------------------------------------------------------------


def _keeps(run: Run) -> bool:
    """Whether the stores keep documents at all."""
    return engine_of(run.memory).topology.archive.capabilities.groups


def _value(g: Generator, part: str) -> Any:
    """As it is written in an operation: JSON, or in `bytes` a text that stands for
    bytes.
    """
    word, form = own_word(g.number, part), g.chance.random()
    if form < 0.15:
        return {"bytes": f"\x00\xff {word}"}
    if form < 0.2:
        return {"json": word}
    value: dict[str, Any] = {"step": g.chance.choice(STEPS), "note": f"naïve 日本 \n {word}"}
    value |= {"state": {"tags": g.chance.choice(([], ["a"], ["b", "a"])), "": [1.0, {"a.b": None}]}}
    value |= {"filling": LARGE} if form > 0.97 else {}
    return {"json": value}


def _put_of(g: Generator, run: Run, tenant: str, part: str = "p") -> dict[str, Any]:
    may = g.chance.random
    given: dict[str, Any] = _place_of(g, run, tenant) | {"value": _value(g, part)}
    given |= (
        {"metadata": {"kind": g.chance.choice(("run", "walk")), "by": own_word(g.number, part + "m")}}
        if may() < 0.5
        else {}
    )
    given |= {"expires_in": g.chance.choice(EXPIRES), "refresh_on_read": may() < 0.4} if may() < 0.2 else {}
    given |= {"expected": g.chance.choice(("now", "now", "stale", "absent"))} if may() < 0.35 else {}
    return given | ({"if_exists": "error"} if may() < 0.15 and "expected" not in given else {})


def _place_of(g: Generator, run: Run, tenant: str) -> dict[str, str]:
    """Mostly of a document that is there."""
    there = [place for place in run.model.shelf.all if place[0] == tenant]
    if there and g.chance.random() < 0.6:
        _, scope, key = g.chance.choice(there)
        return {"scope": scope, "key": key}
    return {"scope": g.chance.choice(SCOPES), "key": g.chance.choice(KEYS)}


def _scope(g: Generator, run: Run, tenant: str) -> str:
    """Mostly one with documents."""
    return _place_of(g, run, tenant)["scope"]


def _keys(g: Generator) -> dict[str, str]:
    may, keys = g.chance.random, dict[str, str]()
    keys |= {"prefix": g.chance.choice(("step/", "st", "st%", "ü", "Step"))} if may() < 0.4 else {}
    keys |= {"start": g.chance.choice(KEYS)} if may() < 0.2 else {}
    return keys | ({"stop": g.chance.choice(KEYS)} if may() < 0.2 else {})


def _where(g: Generator) -> list[Any]:
    return [list(one) for one in g.chance.sample(CONDITIONS, g.chance.choice((1, 1, 2)))]


def _draw_put(g: Generator, run: Run, tenant: str) -> Drawn | None:
    return ("put_document", _put_of(g, run, tenant)) if _keeps(run) else None


def _draw_read(g: Generator, run: Run, tenant: str) -> Drawn | None:
    return ("read_document", _place_of(g, run, tenant)) if _keeps(run) else None


def _draw_delete(g: Generator, run: Run, tenant: str) -> Drawn | None:
    expected = g.chance.choice((None, None, "now", "stale"))
    return ("delete_document", _place_of(g, run, tenant) | {"expected": expected}) if _keeps(run) else None


def _draw_apply(g: Generator, run: Run, tenant: str) -> Drawn | None:
    """Puts and deletions in one scope; half the time one of them is refused by chance."""
    scope, changes = _scope(g, run, tenant), list[dict[str, Any]]()
    for n, key in enumerate(g.chance.sample(KEYS, g.chance.choice((1, 2, 3)))):
        change = _put_of(g, run, tenant, f"g{n}x") | {"scope": scope, "key": key}
        if g.chance.random() < 0.3:
            change = {"delete": True, "scope": scope, "key": key}
        changes.append(change)
    return ("apply_documents", {"changes": changes}) if _keeps(run) else None


def _draw_list(g: Generator, run: Run, tenant: str) -> Drawn | None:
    scope = g.chance.choice((_scope(g, run, tenant), SUBTREES[0], *SUBTREES[:2]))
    args: dict[str, Any] = {"scope": scope, "keys": _keys(g)}
    args |= {"limit": g.chance.choice((1, 2, 100)), "values": g.chance.random() < 0.5}
    args |= {"reverse": True} if g.chance.random() < 0.3 else {}
    args |= {"where": _where(g)} if g.chance.random() < 0.4 else {}
    if g.chance.random() < 0.15:
        return "find_documents", {"scope": args["scope"], "key": g.chance.choice(KEYS)}
    return "list_documents", args


def _draw_delete_many(g: Generator, run: Run, tenant: str) -> Drawn | None:
    args: dict[str, Any] = {"scope": _scope(g, run, tenant), "keys": _keys(g)}
    return "delete_documents", args | ({"where": _where(g)} if g.chance.random() < 0.6 else {})


DRAWS: dict[str, tuple[float, Callable[[Generator, Run, str], Drawn | None]]] = {
    "put_document": (4, _draw_put),
    "read_document": (1, _draw_read),
    "delete_document": (0.5, _draw_delete),
    "apply_documents": (0.7, _draw_apply),
    "list_documents": (1.5, _draw_list),
    "delete_documents": (0.3, _draw_delete_many),
}


# -- what is done ----------------------------------------------------------------------


@operation
async def put_document(run: Run, op: Operation) -> None:
    given = op.args
    place = (op.tenant, given["scope"], given["key"])
    asked = _asked(run, op, given)
    said = await run.ask(op, "documents.put", *place[1:], asked.pop("value"), **asked)
    if refusal := _refusal(run, said, op, given):
        said.refused(refusal)
    else:
        _put(run, said, place, said.given(), given)


@operation
async def read_document(run: Run, op: Operation) -> None:
    """It alone, and with others."""
    place = (op.tenant, op.args["scope"], op.args["key"])
    said = await run.ask(op, "documents.get", *place[1:])
    _is_shown(said, place, said.given(), run.model.shelf.read(place, said.begun))
    said = await run.ask(op, "documents.get_many", place[1], list(KEYS))
    for key, told in zip(KEYS, said.given(), strict=True):
        other = (op.tenant, place[1], key)
        _is_shown(said, other, told, run.model.shelf.read(other, said.begun))


@operation
async def delete_document(run: Run, op: Operation) -> None:
    place = (op.tenant, op.args["scope"], op.args["key"])
    expected = _expected(run, op, place, op.args["expected"])
    said = await run.ask(op, "documents.delete", *place[1:], expected_version=expected)
    if refusal := _refusal(run, said, op, op.args | {"delete": True}):
        said.refused(refusal)
        return
    there = run.model.shelf.get(place, said.begun)
    said.equals(there is not None)
    run.model.shelf.remove([place] if there is not None else [])


@operation
async def apply_documents(run: Run, op: Operation) -> None:
    """All of the changes, or none."""
    changes = op.args["changes"]
    asked = [
        DocumentDelete(one["scope"], one["key"])
        if "delete" in one
        else DocumentPut(one["scope"], one["key"], **_asked(run, op, one))
        for one in changes
    ]
    said = await run.ask(op, "documents.apply", asked)
    refusals = {refusal for one in changes if (refusal := _refusal(run, said, op, one))}
    if refusals:
        said.refused(*refusals)
        return
    for one, told in zip(changes, said.given(), strict=True):
        place = (op.tenant, one["scope"], one["key"])
        if "delete" not in one:
            _put(run, said, place, told, one)
        elif told is not None:
            said.wrong("answers for a deletion", repr(told))
        elif run.model.shelf.get(place, said.begun) is not None:
            run.model.shelf.remove([place])


@operation
async def list_documents(run: Run, op: Operation) -> None:
    args = op.args
    await listed(
        run,
        op.tenant,
        args["scope"],
        args["keys"],
        worker=op.worker,
        limit=args["limit"],
        values=args["values"],
        reverse=args.get("reverse", False),
        where=args.get("where", ()),
    )


@operation
async def find_documents(run: Run, op: Operation) -> None:
    scope, key = op.args["scope"], op.args["key"]
    said = await run.ask(op, "documents.find", scope, key, values=True)
    wanted = [one for one in _within(run, said, op.tenant, scope, {}, ()) if one[0][2] == key]
    _are_shown(said, sorted(said.given().documents, key=lambda one: str(one.scope)), wanted)


@operation
async def delete_documents(run: Run, op: Operation) -> None:
    scope, where = op.args["scope"], op.args.get("where", ())
    filtered: dict[str, Any] = {"filter": filter_of(where)} if where else {}
    said = await run.ask(op, "documents.delete_many", scope, **op.args["keys"], **filtered)
    if run.model.holds_all(op.tenant, scope):
        said.refused("LegalHoldActive")
        return
    going = [place for place, _ in _within(run, said, op.tenant, scope, op.args["keys"], where)]
    said.equals(len(going))
    run.model.shelf.remove(going)


def _asked(run: Run, op: Operation, given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a put, as the call takes them."""
    place = (op.tenant, given["scope"], given["key"])
    asked = {name: given[name] for name in ("metadata", "refresh_on_read", "if_exists") if name in given}
    asked |= {"expires_in": timedelta(seconds=given["expires_in"])} if "expires_in" in given else {}
    expected = _expected(run, op, place, given.get("expected"))
    return asked | {"value": _meant(given["value"]), "expected_version": expected}


def _meant(value: Mapping[str, Any]) -> Any:
    if "bytes" in value:
        return value["bytes"].encode()
    said = value["json"]
    if isinstance(said, dict) and "filling" in said:
        return said | {"filling": "." * said["filling"]}
    return said


def _expected(run: Run, op: Operation, place: Place, given: str | None) -> Any:
    there = run.model.shelf.get(place, run.clock.now)
    if given == "now" and there is not None:
        return there.version
    return None if given in (None, "now") else ABSENT if given == "absent" else version_text(op.number)


def _refusal(run: Run, said: Said, op: Operation, given: Mapping[str, Any]) -> str:
    """The error with which a change must be refused; empty if it must be made."""
    place = (op.tenant, given["scope"], given["key"])
    there = run.model.shelf.get(place, said.begun)
    if given.get("expected") == "stale" or (given.get("expected") == "absent" and there is not None):
        return "VersionConflict"
    if given.get("if_exists") == "error" and there is not None:
        return "Conflict"
    is_held = there is not None and run.model.holds_all(op.tenant, given["scope"])
    return "LegalHoldActive" if is_held and "delete" in given else ""


def _put(run: Run, said: Said, place: Place, told: Any, given: Mapping[str, Any]) -> None:
    run.model.shelf.put(
        said,
        place,
        told,
        _meant(given["value"]),
        dict(given.get("metadata", {})),
        timedelta(seconds=given["expires_in"]) if "expires_in" in given else None,
        refreshes=given.get("refresh_on_read", False),
    )


# -- what must be there ----------------------------------------------------------------


def _is_shown(said: Said, place: Place, told: Any, wanted: Document | None) -> None:
    if (told is None) != (wanted is None):
        said.wrong("shows a document" if wanted is None else "shows none", f"{place}: {told!r}, {wanted}")
    if wanted is not None:
        is_same(said, told, wanted.shown(place))


def _are_shown(said: Said, told: Sequence[DocumentInfo], wanted: Sequence[tuple[Place, Document]]) -> None:
    places = [(one.scope, one.key) for one in told]
    if sorted(places) != sorted(place[1:] for place, _ in wanted):
        said.wrong("lists others", f"{places}, wanted {[place[1:] for place, _ in wanted]}")
    by_place = {place[1:]: one for place, one in wanted}
    for one in told:
        place = (one.scope, one.key)
        is_same(said, one, by_place[place].shown((said.call, *place)))


def _within(
    run: Run, said: Said, tenant: str, scope: str, keys: Mapping[str, str], where: Sequence[Any]
) -> list[tuple[Place, Document]]:
    """The documents of a scope or a subtree that have these keys and pass a filter."""
    return [
        (place, one)
        for place, one in run.model.shelf.of(tenant, said.begun)
        if covers([scope], place[1])
        and place[2].startswith(keys.get("prefix", ""))
        and keys.get("start", "") <= place[2]
        and ("stop" not in keys or place[2] < keys["stop"])
        and all(passes(condition, one.fields(place[2])) for condition in where)
    ]


async def listed(
    run: Run,
    tenant: str,
    scope: str,
    keys: Mapping[str, str] | None = None,
    *,
    worker: int,
    limit: int = 100,
    values: bool = True,
    reverse: bool = False,
    where: Sequence[Any] = (),
) -> None:
    """Page by page, each once, in the order of the keys."""
    found, cursor = list[DocumentInfo](), None
    given: dict[str, Any] = {"limit": limit, "values": values, "reverse": reverse, **(keys or {})}
    given |= {"filter": filter_of(where)} if where else {}
    for _ in range(check.MOST):
        said = await run.ask(
            None, "documents.list", scope, tenant=tenant, worker=worker, cursor=cursor, **given
        )
        page = said.given()
        found += page.documents
        if page.damaged or page.degraded or len(page.documents) > limit:
            said.wrong(
                "has another page", f"{page.damaged}, {page.degraded}, {len(page.documents)} of {limit}"
            )
        if (cursor := page.cursor) is None:
            break
    _are_shown(said, found, _within(run, said, tenant, scope, keys or {}, where))
    order = [one.key for one in found]
    if order != sorted(order, reverse=reverse):
        said.wrong("lists in another order", str(order))


@check.look
async def whole(run: Run, tenant: str, worker: int) -> None:
    for scope in sorted(run.model.shelf.scopes(tenant)):
        await listed(run, tenant, scope, worker=worker, limit=7)
    if any(covers(SUBTREES[:1], scope) for scope in run.model.shelf.scopes(tenant)):
        await listed(run, tenant, SUBTREES[0], worker=worker, limit=3, values=False, reverse=True)


@imported
async def carried_over(run: Run, tenant: str, elsewhere: str, worker: int) -> None:
    """What another tenant imported says what was exported; its version is its own."""
    now = run.clock.now
    for scope in sorted(run.model.shelf.counts(tenant, now)):
        said = await run.ask(
            None, "documents.list", scope, tenant=elsewhere, worker=worker, values=True, limit=check.MOST
        )
        there = {one.key: one for one in said.given().documents}
        wanted = {place[2]: one for place, one in run.model.shelf.of(tenant, now) if place[1] == scope}
        if there.keys() != wanted.keys():
            said.wrong("has other documents after an import", f"{sorted(there)}, wanted {sorted(wanted)}")
        for key, one in wanted.items():
            told = there[key]
            own = replace(one, version=told.version, updated_at=told.updated_at)
            is_same(said, told, own.shown((elsewhere, scope, key)))


@carried
async def cleared(run: Run, tenant: str, elsewhere: str, worker: int) -> None:
    """They are deleted in the scopes that were not erased there."""
    for scope in sorted(run.model.shelf.scopes(tenant)):
        await run.ask(None, "documents.delete_many", scope, tenant=elsewhere, worker=worker)


# -- what somebody might break ---------------------------------------------------------


@mutant("documents.put")
async def a_document_is_put_over_any_version(
    whole: Method, documents: Documents, *args: Any, **kwargs: Any
) -> Any:
    expected = kwargs.get("expected_version")
    return await whole(
        documents, *args, **(kwargs | {"expected_version": expected if expected is ABSENT else None})
    )


@mutant("documents.put")
async def a_document_that_is_put_again_keeps_its_metadata(
    whole: Method, documents: Documents, scope: str, key: str, value: Any, **kwargs: Any
) -> Any:
    before = await documents.get(scope, key)
    kept = {} if before is None else {"metadata": before.metadata}
    return await whole(documents, scope, key, value, **(kept | kwargs))


@mutant("documents.apply")
async def a_group_of_documents_is_changed_one_by_one(
    whole: Method, documents: Documents, changes: Any
) -> Any:
    return await whole(documents, changes, atomic=False)


@mutant("documents.list")
async def a_list_of_documents_knows_no_filter(
    whole: Method, documents: Documents, *args: Any, **kwargs: Any
) -> Any:
    return await whole(documents, *args, **(kwargs | {"filter": None}))


@mutant("documents.list")
async def a_list_of_documents_ends_before_its_last_page(
    whole: Method, documents: Documents, *args: Any, **kwargs: Any
) -> Any:
    page = await whole(documents, *args, **kwargs)
    return replace(page, cursor=None) if kwargs.get("cursor") else page


@mutant("documents.get")
async def a_read_does_not_keep_a_document(whole: Method, documents: Documents, scope: str, key: str) -> Any:
    page = await documents.list(scope, prefix=key, values=True)
    return next((one for one in page.documents if one.key == key), None)


@mutant("admin.erase")
async def erasing_a_scope_leaves_its_documents(whole: Method, admin: Admin, scope: Any, **kwargs: Any) -> Any:
    documents = Documents(access_of(admin))
    there = [] if kwargs else (await documents.list(scope, values=True)).documents
    erased = await whole(admin, scope, **kwargs)
    for one in there[:1]:
        await documents.put(one.scope, one.key, one.value)  # type: ignore[attr-defined]
    return erased
