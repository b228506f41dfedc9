"""Commands on the stores: stats, doctor and route."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from memory.cli.command import Cli, command

if TYPE_CHECKING:
    from memory.facade.explain import RouteReport
    from memory.facade.reports import Stats


def register(app: typer.Typer) -> None:
    command(app, "stats")(stats)
    command(app, "doctor")(doctor)
    command(app, "route")(route)


async def stats(cli: Cli) -> None:
    """How much each tier holds."""
    async with cli.memory() as memory:
        counted = await memory.stats()
        tenant = memory.tenant
    cli.emit({"tenant": tenant, **stats_json(counted)}, lambda out: show_stats(out, counted))


def stats_json(counted: Stats) -> dict[str, Any]:
    """The tiers with counts and sizes, for programs."""
    tiers = [
        {"tier": part.tier, "store": part.store, "entries": part.entries, "bytes": part.bytes, "replicas": part.replicas} for part in counted.tiers
    ]
    return {"tiers": tiers, "by_type": dict(counted.by_type), "owed": counted.owed}


def show_stats(out: Any, counted: Stats) -> None:
    """The tiers with counts and sizes, for people."""
    from memory.cli import show

    rows = [[show.tier(part.tier), part.store, part.entries, show.size(part.bytes), part.replicas] for part in counted.tiers]
    out.print(show.table("Tiers", ["tier", "store", "entries", "size", "replicas"], rows, right=("entries", "size", "replicas")))
    if counted.by_type:
        out.print(show.table("Types", ["type", "entries"], list(counted.by_type.items()), right=("entries",)))
    if counted.owed:
        out.print(f"{counted.owed} steps are owed; a sweep will do them", markup=False)


async def doctor(cli: Cli) -> int:
    """Check the configuration and every store, also those that do not open. Ends with 1 when a check failed."""
    from dataclasses import asdict

    from memory.facade.build import build_engine
    from memory.facade.reports import examine
    from memory.ports.clock import system_clock

    config = cli.settings()
    file = sorted({origin.rpartition(":")[0] or origin for origin in config.origins.values() if ".toml" in origin})
    found = await examine(build_engine(config, embedder=None, clock=system_clock))
    stores = [{**asdict(report), "tiers": list(report.tiers)} for report in found.stores]
    data = {"ok": found.ok, "tenant": config.tenant, "config_files": file, "stores": stores, "problems": found.problems}
    cli.emit(data, lambda out: _show_health(out, data))
    return 0 if found.ok else 1


def _show_health(out: Any, data: dict[str, Any]) -> None:
    from memory.cli import show

    out.print(f"tenant {data['tenant']}; configuration from {', '.join(data['config_files']) or 'defaults, environment and arguments'}", markup=False)
    rows = []
    for store in data["stores"]:
        state = show.plain("ok", "green") if store["ok"] else show.plain("failed", "bold red")
        can = ", ".join(name.replace("_", " ") for name, claim in store["capabilities"].items() if claim is True)
        facts = ", ".join(f"{name} {value}" for name, value in store["facts"].items())
        about = show.plain("\n".join(filter(None, (store["detail"], f"can: {can}" if can else "", facts, store["embedder"]))))
        rows.append([store["store"], ", ".join(store["tiers"]), state, store["version"], f"{store['latency_ms']:.1f} ms", about])
    out.print(show.table("Stores", ["store", "tiers", "state", "version", "answers in", "about"], rows, right=("answers in",)))
    for problem in data["problems"]:
        out.print(show.plain(problem, "bold red"))


async def route(
    cli: Cli,
    scope: Annotated[str, typer.Argument(metavar="SCOPE", help="Whose record it would be, such as user:ada or session:s1.")],
    collection: Annotated[str, typer.Option(metavar="NAME", help="What kind of record.")] = "entries",
    explain: Annotated[bool, typer.Option("--explain", help="Say why, a sentence a decision.")] = False,
) -> None:
    """Where a new record would be born, and which tiers would hold copies of it."""
    async with cli.memory() as memory:
        found = memory.explain_route(scope, collection)
    data = {"collection": found.collection, "scope": found.scope, "tier": found.tier, "store": found.store, "replicas": found.replicas}
    if explain:
        data["because"] = list(found.because)
    cli.emit(data, lambda out: _show_route(out, found, explain))


def _show_route(out: Any, found: RouteReport, explain: bool) -> None:
    from memory.cli import show

    rows = [["home", show.tier(found.tier), found.store], *(["replica", show.tier(tier), store] for tier, store in found.replicas.items())]
    out.print(show.table(f"A new record of {found.collection} in {found.scope}", ["copy", "tier", "store"], rows))
    for sentence in found.because if explain else ():
        out.print(show.plain(f"- {sentence}"))
