"""Commands for entries: write, search, list, browse, show, promote, forget."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from memory.cli.command import Cli, add_commands, for_each
from memory.cli.keys import revoke_keys_of_tenant
from memory.cli.options import (
    AsOfOption,
    CursorOption,
    DataOption,
    EntryId,
    EntryIds,
    ExpiresOption,
    KnownAtOption,
    LimitOption,
    MetadataOption,
    OnlyTagsOption,
    OnlyTypesOption,
    ScopeOption,
    SinceOption,
    TagsOption,
    VectorOption,
    drop_none,
    expiry,
    json_object,
    json_value,
    moment,
    read_text,
)
from memory.cli.short_ids import id_of, ids_of, numbers_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

    from memory.domain.entry import Entry
    from memory.domain.scope import Scope, Subtree
    from memory.domain.search_results import EntryPage
    from memory.domain.session import DeletedEntry


def register(app: typer.Typer) -> None:
    add_commands(
        app,
        {
            "write": write,
            "search": search,
            "list": list_entries,
            "browse": browse,
            "show": show_entry,
            "promote": promote,
            "forget": forget,
        },
    )


async def write(
    cli: Cli,
    content: Annotated[
        str, typer.Argument(metavar="TEXT", help="The text to remember; - reads standard input.")
    ],
    scope: ScopeOption,
    kind: Annotated[
        str | None,
        typer.Option(
            "--type",
            metavar="TYPE",
            help="The type: user, feedback, project, reference, learning or context.",
        ),
    ] = None,
    title: Annotated[
        str | None,
        typer.Option(help="The title. A search gives its words more weight than those of the text."),
    ] = None,
    source: Annotated[
        str | None, typer.Option(help="The source of the text, such as web:example.com.")
    ] = None,
    agent: Annotated[str | None, typer.Option(help="The agent that writes it.")] = None,
    run: Annotated[str | None, typer.Option(help="The run of that agent.")] = None,
    tag: TagsOption = None,
    metadata: MetadataOption = None,
    data: DataOption = None,
    vector: VectorOption = None,
    no_search: Annotated[
        bool, typer.Option("--no-search", help="Keep the entry out of searches. It can still be read.")
    ] = False,
    confidence: Annotated[
        float | None, typer.Option(help="The confidence, from 0 to 1. Promotion rules can ask for it.")
    ] = None,
    expires: ExpiresOption = None,
    conversation_id: Annotated[
        str | None,
        typer.Option(
            "--conversation-id",
            metavar="ID",
            help="The id of the conversation in which the text was said. It must be a session, unless you"
            " also give --number or --speaker.",
        ),
    ] = None,
    number: Annotated[
        int | None,
        typer.Option(
            "--number",
            help="The position of the message in the conversation. A search also uses the words of"
            " neighbouring messages.",
        ),
    ] = None,
    speaker: Annotated[str | None, typer.Option(help="Who said the text.")] = None,
    artifact: Annotated[
        str | None,
        typer.Option(
            metavar="ID", help="The artifact that the entry refers to, by its short id (#42) or id."
        ),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(help="A key that makes the write safe to repeat: the same key is stored once."),
    ] = None,
    revive: Annotated[
        bool,
        typer.Option("--revive", help="Write a new entry even if the entry under the key was deleted."),
    ] = False,
    if_exists: Annotated[
        str | None,
        typer.Option(
            "--if-exists",
            metavar="error|update|replace|keep",
            help="If the key has an entry: fail, change what is given, replace all of it, or keep it.",
        ),
    ] = None,
    expected_version: Annotated[
        str | None,
        typer.Option(
            "--expected-version",
            metavar="VERSION|absent",
            help="Write only if the entry under the key still has this version, or does not exist.",
        ),
    ] = None,
    supersedes: Annotated[
        list[str] | None,
        typer.Option(
            "--supersedes",
            metavar="ID",
            help="An entry that this one supersedes. Repeat the option for more.",
        ),
    ] = None,
    detect_conflicts: Annotated[
        bool,
        typer.Option(
            "--detect-conflicts", help="List entries that may contradict or repeat it. No entry is changed."
        ),
    ] = False,
) -> None:
    """Write a text into memory, as an entry of a scope."""
    from memory import ABSENT
    from memory.cli import rendering

    text = read_text(content)
    options = drop_none(
        type=kind,
        title=title,
        source=source,
        agent=agent,
        run=run,
        tags=tag,
        metadata=json_object("metadata", metadata),
        data=json_value("data", data, '{"price": 3}'),
        vector=json_value("vector", vector, "[0.1, 0.2]"),
        searchable=False if no_search else None,
        key=key,
    )
    options |= drop_none(
        conversation_id=conversation_id, number_in_conversation=number, speaker=speaker, confidence=confidence
    )
    async with cli.memory() as memory:
        options |= drop_none(
            artifact_id=None if artifact is None else await id_of(memory, artifact, "artifact")
        )
        options |= drop_none(supersedes=None if supersedes is None else await ids_of(memory, supersedes))
        options |= drop_none(
            if_exists=if_exists,
            expected_version=ABSENT if expected_version == "absent" else expected_version,
        )
        entry = await memory.write(
            text,
            scope=scope,
            expires_at=expiry("expires", expires),
            revive=revive,
            detect_conflicts=detect_conflicts,
            **options,
        )
    near = list(entry.conflict_report.found) if entry.conflict_report is not None else []

    def people(out: Console) -> None:
        out.print(rendering.plain(f"{entry.id}  in {entry.tier}, {entry.scope.text}"))
        for other in near:
            out.print(rendering.plain(f"near it: {other.id}  {other.content}", limit=200))

    cli.emit(
        entry.to_dict() | ({"near": [one.to_dict() for one in near]} if detect_conflicts else {}),
        people,
    )


async def search(
    cli: Cli,
    query: Annotated[str, typer.Argument(help="The text to search for.")],
    scope: ScopeOption,
    limit: LimitOption = 10,
    mode: Annotated[
        str,
        typer.Option(
            "--mode",
            metavar="MODE",
            help="How to search: hybrid, lexical (by words) or semantic (by meaning).",
        ),
    ] = "hybrid",
    filter_type: Annotated[
        list[str] | None,
        typer.Option(metavar="TYPE", help="Find only entries of this type. Repeat to allow several types."),
    ] = None,
    filter_tag: Annotated[
        list[str] | None,
        typer.Option(metavar="TAG", help="Find only entries with this tag. Repeat to require several tags."),
    ] = None,
    boost_type: Annotated[
        list[str] | None,
        typer.Option(metavar="TYPE", help="Rank entries of this type higher. Repeat to boost several types."),
    ] = None,
    boost_tag: Annotated[
        list[str] | None,
        typer.Option(metavar="TAG", help="Rank entries with this tag higher. Repeat to boost several tags."),
    ] = None,
    boost_conversation: Annotated[
        str | None, typer.Option(metavar="ID", help="Rank entries of this conversation higher.")
    ] = None,
    min_relevance: Annotated[
        float | None,
        typer.Option(metavar="RELEVANCE", help="Show only hits of at least this relevance, from 0 to 1."),
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only results created at or after this time.")
    ] = None,
    as_of: AsOfOption = None,
    known_at: KnownAtOption = None,
    session: Annotated[
        str | None, typer.Option(metavar="ID", help="Search the entries of this session too.")
    ] = None,
    no_age_decay: Annotated[
        bool, typer.Option("--no-age-decay", help="Do not rank older entries lower.")
    ] = False,
    messages: Annotated[
        bool,
        typer.Option(
            "--messages",
            help=(
                "Search messages too. With scope session:ID, search the messages of that session. With scope"
                " user:ID, search those of all sessions with that user."
            ),
        ),
    ] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show how each result was found and ranked.")
    ] = False,
) -> int:
    """Search the entries of a scope by words and by meaning.

    Exits with 1 if nothing is found.
    """
    from memory.cli import rendering
    from memory.domain.session import FoundMessage

    scopes = [scope, f"session:{session}"] if session is not None else scope
    asked = {
        "mode": mode,
        "since": moment("since", since),
        "as_of": moment("as_of", as_of),
        "known_at": moment("known_at", known_at),
    }
    async with cli.memory() as memory:
        found = await memory.search(
            query,
            scope=scopes,
            limit=limit,
            boost={"types": boost_type, "tags": boost_tag, "conversation_id": boost_conversation},
            filter={"types": filter_type, "tags": filter_tag},
            min_relevance=min_relevance,
            age_decay=not no_age_decay,
            explain=explain,
            messages=messages,
            **asked,
        )
        numbers = await numbers_of(
            cli, memory, (hit.entry.id for hit in found if not isinstance(hit, FoundMessage))
        )
    results = [
        rendering.hit_json(hit) | ({"explanation": hit.explanation} if explain else {}) for hit in found
    ]
    for note in found.degraded:
        cli.say(f"incomplete: {note}")

    def people(out: Console) -> None:
        if found:
            out.print(rendering.hits(found, numbers, explain=explain))
        else:
            cli.say(f"nothing found in {scope}")
        if found.left_out:
            out.print(rendering.left_out(found.left_out))

    cli.emit(
        {
            "results": results,
            "degraded": list(found.degraded),
            **({"left_out": found.left_out} if explain else {}),
        },
        people,
    )
    return 0 if found else 1


async def list_entries(
    cli: Cli,
    scope: ScopeOption,
    kind: OnlyTypesOption = None,
    tag: OnlyTagsOption = None,
    since: SinceOption = None,
    before: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only entries created before this time.")
    ] = None,
    oldest: Annotated[bool, typer.Option("--oldest", help="List the oldest entries first.")] = False,
    limit: LimitOption = 20,
    cursor: CursorOption = None,
) -> int:
    """List the entries of a scope, newest first.

    Exits with 1 if there is none.
    """
    asked = drop_none(
        types=kind, tags=tag, since=moment("since", since), before=moment("before", before), cursor=cursor
    )
    async with cli.memory() as memory:
        page = await memory.retrieve(scope, limit=limit, order="oldest" if oldest else "newest", **asked)
        numbers = await numbers_of(cli, memory, (entry.id for entry in page))
    return _show_page(cli, page, numbers, scope)


async def browse(
    cli: Cli,
    scope: Annotated[
        list[str] | None,
        typer.Option(
            "--scope",
            "-s",
            metavar="SCOPE",
            help="Only entries of this scope. Repeat the option for more scopes.",
        ),
    ] = None,
    conversation: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Only entries with this conversation id, and entries without one."),
    ] = None,
    kind: OnlyTypesOption = None,
    tag: OnlyTagsOption = None,
    since: SinceOption = None,
    updated_before: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only entries whose last change was before this time.")
    ] = None,
    include_retired: Annotated[
        bool, typer.Option("--include-retired", help="List retired entries too.")
    ] = False,
    limit: LimitOption = 50,
    cursor: CursorOption = None,
) -> int:
    """List entries of all scopes, last changed first.

    Exits with 1 if there is none.
    """
    asked = drop_none(conversation=conversation, types=kind, tags=tag, cursor=cursor)
    asked |= drop_none(since=moment("since", since), updated_before=moment("updated_before", updated_before))
    async with cli.memory() as memory:
        page = await memory.browse(scope or None, limit=limit, include_retired=include_retired, **asked)
        numbers = await numbers_of(cli, memory, (entry.id for entry in page))
    return _show_page(cli, page, numbers, ", ".join(scope or ["any scope"]))


def _show_page(cli: Cli, page: EntryPage, numbers: Mapping[str, int], where: str) -> int:
    """Show a page of entries, and the cursor of the next page."""
    from memory.cli import rendering

    for note in page.degraded:
        cli.say(f"incomplete: {note}")

    def people(out: Console) -> None:
        if page:
            out.print(rendering.entries(page, numbers))
        else:
            cli.say(f"nothing in {where}")
        if page.cursor:
            cli.say(f"more: --cursor {page.cursor}")

    cli.emit(
        {
            "entries": [entry.to_dict() for entry in page],
            "cursor": page.cursor,
            "degraded": list(page.degraded),
        },
        people,
    )
    return 0 if page else 1


async def show_entry(
    cli: Cli,
    entry_id: EntryId,
    as_of: AsOfOption = None,
    known_at: KnownAtOption = None,
    history: Annotated[
        bool, typer.Option("--history", help="Show every kept version too, oldest first.")
    ] = False,
) -> None:
    """Show an entry, its copies in the tiers and, with --history, its kept versions."""
    from memory.cli import rendering
    from memory.domain.errors import NotFound

    async with cli.memory() as memory:
        entry_id = await id_of(memory, entry_id)
        entry = await memory.get(
            entry_id, as_of=moment("as_of", as_of), known_at=moment("known_at", known_at)
        )
        if entry is None:
            raise NotFound(entry_id)
        copies = await memory.admin.where(entry_id)
        versions = await memory.entries.history(entry_id) if history else []
        numbers = await numbers_of(cli, memory, [entry_id])
    places = [
        {"tier": copy.tier, "store": copy.store, "role": str(copy.role), "version": copy.version}
        for copy in copies
    ]
    data = {
        **entry.to_dict(),
        "copies": places,
        **({"history": [v.to_dict() for v in versions]} if history else {}),
    }

    def people(out: Console) -> None:
        out.print(rendering.entry_block(entry, numbers))
        out.print(
            rendering.table(
                "Copies",
                ["tier", "store", "role", "version"],
                [list(place.values()) for place in places],
                right=("version",),
            )
        )
        if history:
            out.print(rendering.versions(versions, entry_id))

    cli.emit(data, people)


async def promote(
    cli: Cli,
    entry_ids: EntryIds,
    to: Annotated[
        str | None, typer.Option("--to", metavar="SCOPE", help="Copy to this broader scope.")
    ] = None,
    tier: Annotated[
        str | None, typer.Option("--tier", metavar="TIER", help="Move to this later tier: mid or long.")
    ] = None,
    delete_original: Annotated[
        bool, typer.Option("--delete-original", help="With --to: delete the entry once its copy is stored.")
    ] = False,
) -> int:
    """Copy entries to a broader scope (--to), or move them to a later tier (--tier).

    Exits with 1 if --tier moves none of the entries.
    """
    from memory.cli import rendering
    from memory.domain import validation
    from memory.domain.errors import InvalidInput
    from memory.domain.scope import Scope
    from memory.policies.routing import TIERS

    if (to is None) == (tier is None):
        raise InvalidInput("promote", "takes exactly one of --to SCOPE and --tier TIER")
    if tier is not None and delete_original:
        raise InvalidInput(
            "--delete-original", "works only with --to: a move to another tier (--tier) leaves no original"
        )
    if tier is not None:
        validation.one_of("tier", tier, TIERS)
    async with cli.memory() as memory:
        entry_ids = await ids_of(memory, entry_ids)
        if to is not None:
            target = Scope.parse(to)

            async def copy(entry_id: str) -> Entry:
                return await memory.promote(entry_id, target, delete_original=delete_original)

            copies = list((await for_each(cli, entry_ids, copy)).values())
            rows = [
                [f"{copy.promoted_from_id}\n→ {copy.id}", copy.scope.text, rendering.tier(copy.tier)]
                for copy in copies
            ]
            data = {"promoted": [copy.to_dict() for copy in copies]}
            cli.emit(
                data, lambda out: out.print(rendering.table("Promoted", ["entry", "scope", "tier"], rows))
            )
            return 0
        report = await memory.admin.move(entry_ids, to=str(tier))
    cli.emit(report.to_dict(), lambda out: rendering.promotion(out, report))
    return 0 if report.moved or not report.kept else 1


def _stores(cli: Cli) -> str:
    """Return the stores that would lose data, with places and without passwords."""
    from memory.facade.config.values import mask_url
    from memory.facade.runtime.store_paths import path_of

    config = cli.settings()
    return (
        ", ".join(
            f"{store.name} ({path_of(store) or mask_url(store.url)})" for store in config.stores_in_use()
        )
        + f", tenant {config.tenant}"
    )


async def forget(
    cli: Cli,
    entry_ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ID]...", help="The ids of entries, or their short ids: #42 or 42."),
    ] = None,
    scope: Annotated[
        str | None,
        typer.Option(
            "--scope",
            "-s",
            metavar="SCOPE",
            help="Delete everything in this scope, such as user:ada, or subtree, such as path:teams/red/**.",
        ),
    ] = None,
    user: Annotated[
        str | None,
        typer.Option(
            "--user",
            metavar="ID",
            help="Delete everything of a user: the sessions with the user, and the scope user:ID.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show how much would be deleted, and delete nothing.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask before deleting a scope, a user or a tenant.")
    ] = False,
) -> int:
    """Delete entries by id, or everything of a scope, a user or a tenant.

    Give one of: ids, --scope, --user, or --tenant alone. A deletion cannot be undone;
    use --dry-run first to count. --scope user:ada keeps the sessions with Ada; --user
    ada deletes them too. Exits with 1 if an id is not found or nothing is deleted.
    """
    from memory.domain.errors import InvalidInput

    named = [name for name, given in (("ids", entry_ids), ("--scope", scope), ("--user", user)) if given]
    if len(named) > 1 or not (named or cli.tenant):
        raise InvalidInput(
            "forget", "takes exactly one of: ids, --scope SCOPE, --user ID, or --tenant NAME alone"
        )
    if named == ["ids"]:
        if dry_run:
            raise InvalidInput(
                "--dry-run",
                "works only with --scope, --user or --tenant; use `memory show ID` to see one entry",
            )
        return await _forget_entries(cli, entry_ids or [])
    return await _forget_whole(cli, scope, user, dry_run=dry_run, yes=yes)


async def _forget_entries(cli: Cli, entry_ids: list[str]) -> int:
    async with cli.memory() as memory:
        gone = await for_each(cli, await ids_of(memory, entry_ids), memory.delete)
    lines = [f"{entry_id}  {_deletion_text(deleted)}" for entry_id, deleted in gone.items()]
    data = {"deleted": [i for i, d in gone.items() if d], "not_found": [i for i, d in gone.items() if not d]}
    kept = {entry_id: list(deleted.kept) for entry_id, deleted in gone.items() if deleted.kept}
    cli.emit(
        {**data, "kept": kept, "incomplete": [i for i, d in gone.items() if not d.is_complete]},
        lambda out: out.print("\n".join(lines), markup=False),
    )
    return 0 if all(gone.values()) else 1


def _deletion_text(deleted: DeletedEntry) -> str:
    if not deleted:
        return "not found"
    kept = (
        f"; these entries were made from it and are kept: {', '.join(deleted.kept)}" if deleted.kept else ""
    )
    rest = "" if deleted.is_complete else "; a store did not answer; a sweep will delete the rest"
    return f"forgotten{kept}{rest}"


async def _forget_whole(cli: Cli, scope: str | None, user: str | None, *, dry_run: bool, yes: bool) -> int:
    """Delete a scope, a user or the tenant, after asking for confirmation."""
    from memory.domain.errors import InvalidInput
    from memory.domain.scope import Scope
    from memory.facade.arguments import scope_or_subtree, user_of

    whole = scope_or_subtree(scope) if scope is not None else None
    person = user_of(user) if user is not None else None
    what = (
        str(whole)
        if whole is not None
        else f"user {person}"
        if person is not None
        else f"tenant {cli.tenant}"
    )
    if not yes and not dry_run:
        if cli.json or not sys.stdin.isatty():
            raise InvalidInput(
                "--yes", f"is needed with --json or without a terminal, to delete everything of {what}"
            )
        typer.confirm(
            f"Delete everything of {what} in {_stores(cli)}? This cannot be undone.", abort=True, err=True
        )
    would = "would be forgotten" if dry_run else "forgotten"
    async with cli.memory() as memory:
        if whole is not None:
            of_scope = await memory.admin.erase(whole, dry_run=dry_run)
            data: dict[str, Any] = {
                "scope": whole.text,
                "deleted": int(of_scope),
                "sessions_left": list(of_scope.sessions_left),
                "scopes": of_scope.scopes,
                "documents": of_scope.documents,
                "held": list(of_scope.held),
            }
            documents = f" and {of_scope.documents} documents" if of_scope.documents else ""
            left = _sessions_left_text(whole, of_scope.sessions_left)
            said = f"{of_scope} entries{documents} of {whole} {would}{left}"
            said += _scopes_text(whole, of_scope.scopes)
            said += "".join(f"\nleft under legal hold: the derived entry {one}" for one in of_scope.held)
            count = int(of_scope) + of_scope.documents
        elif person is not None:
            of_user = await memory.admin.erase_user(Scope.user(person), dry_run=dry_run)
            data, count = (
                {"user": person, **of_user.to_dict()},
                of_user.sessions + of_user.messages + of_user.entries + of_user.documents,
            )
            there = (
                f"{of_user.sessions} sessions, {of_user.messages} messages in sessions of others,"
                f" {of_user.entries} entries, {of_user.documents} documents"
            )
            said = f"of user {person}: {there} {would}"
            said += "".join(f"\nleft: {sentence}" for sentence in of_user.held)
        else:
            await memory.open()
            keys = 0 if dry_run else await revoke_keys_of_tenant(memory)
            of_tenant = await memory.admin.erase_tenant(dry_run=dry_run)
            counts = {kind: sum(stores.values()) for kind, stores in of_tenant.records.items()}
            data = {"tenant": memory.tenant, **of_tenant.to_dict(), "keys_revoked": keys}
            count = sum(counts.values())
            listed = ", ".join(f"{number} {kind}" for kind, number in counts.items()) or "nothing"
            said = f"of tenant {memory.tenant}, in {of_tenant.scopes} scopes: {listed} {would}"
            if keys is None:
                said += (
                    "\nnot revoked: API keys of the tenant, if `memory serve` has any. To revoke them,"
                    " install 'memory-tiers[server]' and repeat the command"
                )
            elif keys:
                said += f"\nrevoked: {keys} API key{'s' * (keys > 1)} of the tenant"
    cli.emit({**data, "dry_run": dry_run}, lambda out: out.print(said, markup=False, soft_wrap=True))
    return 0 if count else 1


def _scopes_text(scope: Scope | Subtree, count: int) -> str:
    from memory.domain.scope import Scope

    return "" if isinstance(scope, Scope) else f", in {count} scope{'' if count == 1 else 's'}"


def _sessions_left_text(scope: Scope | Subtree, sessions: Sequence[str]) -> str:
    """Describe the sessions that a scope's erasure leaves, and how to delete them."""
    from memory.domain.scope import Scope, ScopeKind

    if not sessions or not isinstance(scope, Scope):
        return ""
    if scope.kind is ScopeKind.SESSION:
        return f"; its conversation is left; to delete it, run `memory session delete {scope.id}`"
    count = (
        "1 session with this user is"
        if len(sessions) == 1
        else f"{len(sessions)} sessions with this user are"
    )
    return f"; {count} left; to delete them too, run `memory forget --user {scope.id}`"
