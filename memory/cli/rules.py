"""Commands for rules and maintenance: plan, why and sweep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from memory.cli.command import Cli, add_commands
from memory.cli.options import EntryId
from memory.cli.short_ids import id_of

if TYPE_CHECKING:
    from memory.domain.maintenance_reports import SweepReport
    from memory.domain.plan import BlockedAction, Forecast, Plan, WhyReport


LISTED = 20
"""The largest number of records with the same plan that are shown to people."""


def register(app: typer.Typer) -> None:
    add_commands(app, {"plan": plan, "why": why, "sweep": sweep})


async def plan(cli: Cli) -> None:
    """Show what a sweep would do now, for all tenants, and why.

    The plan also names what the sweep would leave as it is. Nothing is changed.
    """
    async with cli.memory() as memory:
        made = await memory.admin.plan()
    cli.emit(made.to_dict(), lambda out: _show_plan(out, made))


def _show_plan(out: Any, made: Plan) -> None:
    from rich.text import Text

    from memory.cli import rendering

    if not made.planned:
        all_was_asked = not (made.stays or made.waiting)
        out.print(
            "No rule applies to any record now, and nothing has expired."
            if all_was_asked
            else "A sweep would do nothing now, as far as is known."
        )
    alike = rendering.group_by(
        made.planned,
        lambda one: (one.rule, one.action, one.because, one.tier, one.to, one.collection, one.depends),
    )
    for (rule, action, because, tier, to, collection, depends), some in alike.items():
        onto = rendering.plain(to) if action == "copy" else rendering.tier(to)
        goes = (
            Text.assemble(" from ", rendering.tier(tier), " to ", onto)
            if to
            else Text.assemble(" in ", rendering.tier(tier))
            if tier
            else Text("")
        )
        what = collection.replace("_", " ")
        out.print(
            Text.assemble(
                f"{action} {len(some):,} ({what})",
                goes,
                Text.assemble(" for quota " if action == "evict" else " by ", rendering.plain(rule))
                if rule
                else "",
                ": ",
                rendering.plain(because),
                rendering.plain("".join(f"; {said}" for said in depends)),
            )
        )
        out.print(
            rendering.table(
                "",
                ["id", "tenant and scope"],
                [[one.id, f"{one.tenant}\n{one.scope}"] for one in some[:LISTED]],
            )
        )
        if len(some) > LISTED:
            out.print(f"and {len(some) - LISTED:,} more; --json lists them all")
    if made.stays:
        rows = [
            [one.id, f"{one.tenant}\n{one.scope}\n{_action_text(one)}: {one.because}"]
            for one in made.stays[:LISTED]
        ]
        out.print(rendering.table("Stays", ["id", "tenant, scope, and the action that is not taken"], rows))
        if len(made.stays) > LISTED:
            out.print(f"and {len(made.stays) - LISTED:,} more; --json lists them all")
    for sentence in made.waiting[:LISTED]:
        out.print(rendering.plain(f"- not known: {sentence}", "yellow"))
    if len(made.waiting) > LISTED:
        out.print(f"and {len(made.waiting) - LISTED:,} more that are not known; --json lists them all")


def _action_text(one: BlockedAction) -> str:
    return one.action + (f" to {one.to}" if one.to else "") + (f" by {one.rule}" if one.rule else "")


async def why(
    cli: Cli,
    entry_id: EntryId,
) -> None:
    """Show which rules will act on an entry, when, and why the others do not."""
    async with cli.memory() as memory:
        report = await memory.admin.why(await id_of(memory, entry_id))
    cli.emit(report.to_dict(), lambda out: _show_why(out, report))


def _show_why(out: Any, report: WhyReport) -> None:
    from rich.text import Text

    from memory.cli import rendering

    out.print(
        Text.assemble(
            (report.entry_id, "bold"),
            " in ",
            rendering.tier(report.tier),
            f" (store {report.store}), {report.scope}",
        )
    )
    following = report.next
    if following is None:
        out.print("No sweep moves it unless it changes.")
    else:
        out.print(rendering.plain(f"Next: {following.rule} {_does(following)} {_when(following)}."))
    rows = [
        [rule.rule, f"{_does(rule)}\n{_when(rule)}" if rule.takes else "does not apply", _because(rule)]
        for rule in report.rules
    ]
    out.print(rendering.table("Rules", ["rule", "what it does", "because"], rows))
    for sentence in report.held:
        out.print(rendering.plain(f"- {sentence}", "yellow"))


def _does(rule: Forecast) -> str:
    return (
        "deletes it"
        if rule.action == "delete"
        else f"{'copies' if rule.action == 'copy' else 'moves'} it to {rule.to}"
    )


def _when(rule: Forecast) -> str:
    from memory.cli import rendering

    return (
        f"with the first sweep at or after {rendering.moment(rule.when)}"
        if rule.when is not None
        else f"on {rule.on.replace('_', ' ')}"
    )


def _because(rule: Forecast) -> str:
    return rule.because + (f"\ndepends on {' and '.join(rule.depends)}" if rule.depends else "")


async def sweep(cli: Cli) -> int:
    """Run maintenance once, for all tenants.

    A sweep completes pending steps, deletes expired data, and applies the rules.
    Exits with 1 if a step has to wait or needs attention, or if another process is
    running a sweep.
    """
    async with cli.memory() as memory:
        report = await memory.admin.sweep()
    cli.emit(report.to_dict(), lambda out: _show_sweep(out, report))
    return 0 if report.ran and not (report.waiting or report.stays) else 1


def _show_sweep(out: Any, report: SweepReport) -> None:
    from memory.cli import rendering

    if not report.ran:
        out.print("Another process is running a sweep.")
    did = {
        name.replace("_", " "): count
        for name, count in report.to_dict().items()
        if isinstance(count, int) and not isinstance(count, bool) and count
    }
    if did:
        out.print(rendering.table("Done", ["what", "how many"], list(did.items()), right=("how many",)))
    elif report.ran:
        out.print("Nothing to do.")
    for sentence in (*report.waiting, *report.stays):
        out.print(rendering.plain(f"- {sentence}", "yellow"))
