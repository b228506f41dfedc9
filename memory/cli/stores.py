"""Commands for the stores: stats, doctor, vacuum, reindex and route."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from memory.cli.command import Cli, add_commands

if TYPE_CHECKING:
    from memory.domain.maintenance_reports import ReindexReport
    from memory.domain.plan import RouteReport
    from memory.domain.store_reports import Stats, VacuumReport


LISTED = 20
"""The largest number of lost or remaining items shown to people."""


def register(app: typer.Typer) -> None:
    add_commands(
        app, {"stats": stats, "doctor": doctor, "vacuum": vacuum, "reindex": reindex, "route": route}
    )


async def stats(cli: Cli) -> None:
    """Show how many entries each tier holds, and their size."""
    async with cli.memory() as memory:
        counted = await memory.admin.stats()
        tenant = memory.tenant
    cli.emit({"tenant": tenant, **counted.to_dict()}, lambda out: show_stats(out, counted))


def show_stats(out: Any, counted: Stats) -> None:
    """Show the tiers with counts and sizes to people."""
    from memory.cli import rendering

    rows = [
        [
            rendering.tier(part.tier),
            part.store,
            part.entries,
            rendering.size(part.bytes),
            part.replicas,
            part.pending_replicas,
        ]
        for part in counted.tiers
    ]
    figures = ("entries", "size", "replicas", "pending")
    out.print(rendering.table("Tiers", ["tier", "store", *figures], rows, right=figures))
    if counted.by_type:
        out.print(
            rendering.table("Types", ["type", "entries"], list(counted.by_type.items()), right=("entries",))
        )
    if counted.documents:
        size = rendering.size(counted.document_bytes)
        out.print(rendering.plain(f"{counted.documents:,} documents, {size}"))
    if counted.pending_steps:
        out.print(
            rendering.plain(
                f"{_pending_text(counted.pending_steps)}; sweeps complete them, and `memory doctor` names"
                " those that cannot be completed"
            )
        )
    in_quarantine = [
        f"store '{store}' has {count:,} damaged records of all tenants in quarantine"
        for store, count in counted.quarantined.items()
    ]
    for sentence in (*counted.stuck, *counted.degraded, *counted.rolled_back_stores, *in_quarantine):
        out.print(rendering.plain(f"- {sentence}", "yellow"))


def _pending_text(count: int) -> str:
    return "1 record has pending steps" if count == 1 else f"{count:,} records have pending steps"


async def doctor(
    cli: Cli,
    audit: Annotated[
        bool,
        typer.Option(
            "--audit",
            help=(
                "Read everything: name damaged records, and compare word indexes, statistics and stores with"
                " the records."
            ),
        ),
    ] = False,
    repair: Annotated[
        bool,
        typer.Option(
            "--repair",
            help=(
                "Do what --audit does, and repair what it finds. Indexes are rebuilt from the records. If a"
                " store alone was rolled back, the writes that it lost are copied from the other stores."
            ),
        ),
    ] = False,
    forget_store: Annotated[
        str | None,
        typer.Option(
            "--forget-store",
            metavar="NAME",
            help="Before the check, note that this store, which was used earlier, is no longer needed.",
        ),
    ] = None,
) -> int:
    """Check the configuration and every store, and complete pending steps.

    A pending step is work that a write left for later, such as a copy in another store.
    Stores that do not open are reported too. No store is created. Exits with 1 if a
    check failed.
    """
    from memory.cli.transfer import progress
    from memory.facade.reports import examine
    from memory.facade.route_report import meaning_by_tier, messages_by_meaning, rules_by_kind
    from memory.facade.runtime.build import build_engine
    from memory.facade.runtime.store_paths import (
        check_stores_used,
        not_there_yet,
        on_the_default_file,
        path_of,
    )
    from memory.ports.clock import system_clock

    if forget_store is not None:
        async with cli.memory() as memory:
            named = await memory.admin.forget_store(forget_store)
        cli.say(f"{named} stores no longer expect store '{forget_store}'")
    config = cli.settings()
    file = sorted(
        {origin.rpartition(":")[0] or origin for origin in config.origins.values() if ".toml" in origin}
    )
    check_stores_used(config)
    engine = build_engine(config, embedder=None, clock=system_clock, prepared=False)
    with progress(cli, "comparing the stores") as told:
        found = await examine(
            engine, audited=audit, repair=repair, absent=not_there_yet(config), progress=told
        )
    paths = {store.name: path for store in config.stores_in_use() if (path := path_of(store)) is not None}
    sound = not found.problems and all(report.ok for report in found.stores)
    data = {
        "ok": found.ok,
        "tenant": config.tenant,
        "config_files": file,
        "default_file": on_the_default_file(config),
        "stores": [
            {**report.to_dict(), "path": str(paths[report.store]) if report.store in paths else None}
            for report in found.stores
        ],
        "meaning": meaning_by_tier(engine) if sound else {},
        "messages": messages_by_meaning(engine) if sound else None,
        "rules": rules_by_kind(engine),
        "problems": found.problems,
        "pending_steps": found.pending_steps,
        "reindex": found.reindex,
        "overdue": found.overdue,
        "healed": found.healed,
        "rolled_back_stores": [{**one.to_dict(), "said": str(one)} for one in found.rolled_back_stores],
        **({} if found.compared is None else {"compared": found.compared.to_dict()}),
        **({"audits": [one.to_dict() for one in found.audits]} if audit or repair else {}),
    }
    cli.emit(data, lambda out: _show_health(out, data))
    return 0 if found.ok else 1


def _show_health(out: Any, data: dict[str, Any]) -> None:
    from memory.cli import rendering

    out.print(
        rendering.plain(
            f"tenant {data['tenant']}; configuration from"
            f" {', '.join(data['config_files']) or 'defaults, environment and arguments'}"
        )
    )
    if data["default_file"]:
        out.print(rendering.plain(data["default_file"]))
    for store in data["stores"]:
        absent = store["ok"] and not store["version"] and store["detail"].endswith("makes it")
        state = (
            rendering.plain("not created yet", "yellow")
            if absent
            else rendering.plain("ok", "green")
            if store["ok"]
            else rendering.plain("failed", "bold red")
        )
        facts = {
            "tiers": ", ".join(store["tiers"]),
            "location": store["path"],
            "detail": store["detail"] if store["detail"] != store["path"] else "",
            "version": store["version"],
            "latency": f"{store['latency_ms']:.1f} ms" if store["version"] else "",
            "capabilities": ", ".join(
                name.replace("_", " ") for name, claim in store["capabilities"].items() if claim is True
            ),
            "embedder": store["embedder"],
            "quarantined": (
                f"{store['quarantined']:,} damaged records are in quarantine" if store["quarantined"] else ""
            ),
            **{name.replace("_", " "): value for name, value in store["facts"].items()},
        }
        out.print()
        out.print(rendering.facts(store["store"], state, facts))
    said = dict.fromkeys(data["meaning"].values())
    for sentence in said:
        tiers = ", ".join(tier for tier, one in data["meaning"].items() if one == sentence)
        out.print(rendering.plain(f"\ntier{'s' * (len(said) == 1)} {tiers}: {sentence}"))
    if data["messages"] is not None:
        out.print(rendering.plain(f"messages: {data['messages']}"))
    said_of_rules = [f"{kind} {', '.join(names)}" for kind, names in data["rules"].items() if names]
    out.print(rendering.plain(f"rules: {'; '.join(said_of_rules) or 'none'}"))
    for problem in data["problems"]:
        out.print(rendering.plain(f"\n{problem}", "bold red"))
    if data["pending_steps"]:
        out.print(rendering.plain(f"\nnot completed: {_pending_text(data['pending_steps'])}", "yellow"))
    if data["reindex"]:
        out.print(rendering.plain(f"\n{data['reindex']}", "yellow"))
    for sentence in (*data["overdue"], *data["healed"]):
        out.print(rendering.plain(f"- {sentence}", "yellow"))
    for one in data["rolled_back_stores"]:
        remedy = (
            "it was not repaired"
            if "compared" in data and data["compared"]["repaired"]
            else "`memory doctor --repair` repairs it as far as the other stores allow"
        )
        out.print(rendering.plain(f"\n{one['said']}; {remedy}", "bold red"))
    if "compared" in data:
        _show_compared(out, data["compared"])
    for one in data.get("audits", ()):
        _show_audited(out, one)


def _show_audited(out: Any, one: dict[str, Any]) -> None:
    from memory.cli import rendering

    out.print()
    out.print(
        rendering.plain(
            _audit_text(one), "bold red" if one["error"] else "yellow" if one["problems"] else "green"
        )
    )
    for problem in one["problems"]:
        out.print(rendering.plain(f"- {problem}"))
    if one["damaged"]:
        out.print(
            rendering.plain(
                f"{one['store']}: these records are damaged; delete them, or write their content again:",
                "bold red",
            )
        )
    for record in one["damaged"]:
        out.print(rendering.plain(f"- {record}"))


def _show_compared(out: Any, came: dict[str, Any]) -> None:
    from memory.cli import rendering

    entries = "1 entry" if came["entries"] == 1 else f"{came['entries']:,} entries"
    out.print()
    if came["error"]:
        out.print(
            rendering.plain(f"the stores could not be compared with each other: {came['error']}", "bold red")
        )
    elif not came["differs"] and not came["lost"]:
        out.print(rendering.plain(f"{entries} compared between the stores; nothing differs", "green"))
    else:
        remedy = (
            "and were repaired"
            if came["repaired"]
            else "and `memory doctor --repair` repairs them as far as the stores allow"
        )
        out.print(
            rendering.plain(
                f"{entries} compared between the stores; these differences were found {remedy}:", "yellow"
            )
        )
    for what, count in came["differs"].items():
        out.print(rendering.plain(f"- {count:,}: {what}"))
    for sentence in came["left"][:LISTED]:
        out.print(rendering.plain(f"- {sentence}", "yellow"))
    lost = came["lost"]
    if lost:
        what = "lost" if came["repaired"] else "that cannot be restored"
        out.print(rendering.plain(f"{len(lost):,} write{'s' * (len(lost) != 1)} {what}:", "bold red"))
    for one in lost[:LISTED]:
        out.print(rendering.plain(f"- {one['id']} of {one['tenant']}: {one['said']}"))
    if len(lost) > LISTED:
        out.print(rendering.plain(f"- … {len(lost) - LISTED:,} more; `memory --json doctor` names them all"))
    for sentence in came["unknown"]:
        out.print(rendering.plain(f"- {sentence}", "yellow"))


def _audit_text(one: dict[str, Any]) -> str:
    if one["error"]:
        return f"{one['store']} could not be audited: {one['error']}"
    if not one["problems"]:
        return f"{one['store']}: {one['checked']:,} records checked; indexes and statistics match them"
    remedy = (
        "and was rebuilt from the records"
        if one["repaired"]
        else "and `memory doctor --repair` rebuilds it from the records"
    )
    return f"{one['store']}: {one['checked']:,} records checked; derived data differed {remedy}:"


async def vacuum(cli: Cli) -> int:
    """Reclaim the space that deleted content takes, in every store.

    Exits with 1 if a store could not be reached.
    """
    async with cli.memory() as memory:
        stores = await memory.admin.vacuum()
    cli.emit(
        {"stores": [one.to_dict() for one in stores], "bytes": sum(one.bytes for one in stores)},
        lambda out: _show_vacuum(out, stores),
    )
    return 1 if any(one.error for one in stores) else 0


def _show_vacuum(out: Any, stores: list[VacuumReport]) -> None:
    from memory.cli import rendering

    rows = [
        [one.store, rendering.size(one.bytes), one.error or ("" if one.bytes else "nothing to reclaim")]
        for one in stores
    ]
    out.print(rendering.table("Reclaimed space", ["store", "size", "about"], rows, right=("size",)))


async def reindex(cli: Cli) -> int:
    """Rebuild all vectors, of every tenant, with the configured embedder.

    Searches are answered meanwhile. Processes with the new embedder can open the memory
    as soon as the reindex has begun. Processes with the earlier embedder can open it
    until the reindex ends. Until then, a process finds by meaning only records that
    have a vector of the process's own embedder. Run the command again if it was
    interrupted or left records. Exits with 1 if records are left.
    """
    from memory.cli.transfer import progress

    memory = cli.build_memory()
    with progress(cli, "rebuilding vectors") as advance:
        came = await memory.admin.reindex(progress=advance)
    cli.emit(came.to_dict(), lambda out: _show_reindexed(out, came))
    return 0 if came.ended else 1


def _show_reindexed(out: Any, came: ReindexReport) -> None:
    from memory.cli import rendering

    made = "1 vector" if came.made == 1 else f"{came.made:,} vectors"
    end = (
        "none is left"
        if came.ended
        else f"{came.left:,} are left; run it again"
        if came.left
        else "some may be left; run it again"
    )
    out.print(rendering.plain(f"{made} rebuilt with {came.model}: {end}", "" if came.ended else "yellow"))
    for sentence in came.waiting:
        out.print(rendering.plain(f"- {sentence}", "yellow"))


async def route(
    cli: Cli,
    scope: Annotated[
        str, typer.Argument(metavar="SCOPE", help="The scope of the record, such as user:ada or session:s1.")
    ],
    collection: Annotated[
        str, typer.Option(metavar="NAME", help="The kind of record, such as entries or messages.")
    ] = "entries",
    explain: Annotated[bool, typer.Option("--explain", help="Explain each decision in a sentence.")] = False,
) -> None:
    """Show where a new record would be stored, and which tiers would hold copies.

    No store is created.
    """
    from memory.domain.scope import Scope
    from memory.facade.route_report import explain_unopened

    found = await explain_unopened(cli.settings(), Scope.parse(scope), collection)
    data = {
        "collection": found.collection,
        "scope": found.scope,
        "tier": found.tier,
        "store": found.store,
        "replicas": found.replicas,
    }
    if explain:
        data["because"] = list(found.because)
    cli.emit(data, lambda out: _show_route(out, found, explain))


def _show_route(out: Any, found: RouteReport, explain: bool) -> None:
    from memory.cli import rendering

    rows = [
        ["home", rendering.tier(found.tier), found.store],
        *(["replica", rendering.tier(tier), store] for tier, store in found.replicas.items()),
    ]
    out.print(
        rendering.table(
            f"A new record of {found.collection} in {found.scope}", ["copy", "tier", "store"], rows
        )
    )
    for sentence in found.because if explain else ():
        out.print(rendering.plain(f"- {sentence}"))
