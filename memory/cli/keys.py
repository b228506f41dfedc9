"""Commands for the API keys of `memory serve`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from memory.cli.command import Cli, add_group
from memory.cli.serve import has_extra, require_extra

if TYPE_CHECKING:
    from memory.facade.memory import Memory
    from memory.server.identity import ApiKey

KeyId = Annotated[
    str, typer.Argument(metavar="ID", help="The id of the key, as `memory keys list` shows it.")
]


def register(app: typer.Typer) -> None:
    add_group(
        app,
        "keys",
        "Create, list, rotate and revoke the API keys of `memory serve`.",
        {"create": create, "list": list_keys, "rotate": rotate, "revoke": revoke},
    )


async def create(
    cli: Cli,
    role: Annotated[
        str,
        typer.Option(
            "--role",
            metavar="ROLE",
            help="What the key may do: reader, writer, admin (of its tenant) or operator (of all).",
        ),
    ],
    scope: Annotated[
        list[str] | None,
        typer.Option(
            "--scope",
            "-s",
            metavar="SCOPE",
            help="A scope or subtree that the key sees, such as user:ada or path:teams/red/**. Repeat the"
            " option for more. Without it, the key sees the whole tenant.",
        ),
    ] = None,
    expires: Annotated[
        str | None,
        typer.Option("--expires", metavar="TIME", help="How long the key is valid, such as 90d."),
    ] = None,
    name: Annotated[str | None, typer.Option("--name", metavar="TEXT", help="A name for people.")] = None,
) -> None:
    """Create a key of the tenant. Its text is shown only now.

    The store keeps only a digest of the text. --tenant names the tenant; without it,
    the key belongs to the configured one.
    """
    require_extra()
    from memory.server.identity import KeyStore
    from memory.server.identity.api_key import make_key
    from memory.server.identity.key_text import length_of

    key, text = make_key(
        cli.settings().tenant,
        role,  # type: ignore[arg-type]
        scopes=scope or (),
        name=name,
        expires_in=None if expires is None else length_of("expires", expires),
        now=datetime.now(UTC),
    )
    async with server_memory(cli) as memory:
        await KeyStore(memory).add(key)
    _show_text(cli, key, text)


async def revoke_keys_of_tenant(memory: Memory) -> int | None:
    """Revoke all keys of a tenant that is to be erased; return how many there were.

    Without the packages of the server it revokes none, and returns None.
    """
    if not has_extra():
        return None
    from memory.server.identity import KeyStore

    return await KeyStore(memory).revoke_all(memory.tenant)


async def list_keys(
    cli: Cli,
    every: Annotated[bool, typer.Option("--all", help="List the keys of every tenant.")] = False,
) -> None:
    """List the keys of the tenant, oldest first, revoked ones too."""
    async with server_memory(cli) as memory:
        from memory.server.identity import KeyStore

        found = await KeyStore(memory).list(None if every else cli.settings().tenant)
    cli.emit([one.to_dict() for one in found], lambda out: _show(out, found))


async def rotate(
    cli: Cli,
    key_id: KeyId,
    overlap: Annotated[
        str,
        typer.Option("--overlap", metavar="TIME", help="How long the earlier text stays valid; 0s ends it."),
    ] = "1d",
) -> None:
    """Give a key a new text, and show it only now. The id stays."""
    require_extra()
    from memory.server.identity import KeyStore
    from memory.server.identity.api_key import check_key_id, check_overlap
    from memory.server.identity.key_text import length_of

    named, lasts = check_key_id(key_id), check_overlap(length_of("overlap", overlap))
    async with server_memory(cli) as memory:
        key, text = await KeyStore(memory).rotate(named, overlap=lasts)
    _show_text(cli, key, text)


async def revoke(cli: Cli, key_id: KeyId) -> None:
    """End a key. Every server process obeys within two seconds."""
    require_extra()
    from memory.server.identity import KeyStore
    from memory.server.identity.api_key import check_key_id

    named = check_key_id(key_id)
    async with server_memory(cli) as memory:
        key = await KeyStore(memory).revoke(named)
    cli.emit(key.to_dict(), lambda out: out.print(f"Key {key.id} is revoked."))


@asynccontextmanager
async def server_memory(cli: Cli) -> AsyncIterator[Memory]:
    """Open only the store that has the server's documents, that of tier `mid`.

    So the command works beside a server that owns the store of another tier.
    """
    require_extra()
    from memory.facade.memory import Memory
    from memory.facade.runtime.store_paths import check_stores_used
    from memory.server.identity.key_store import require_durable

    config = cli.settings()
    check_stores_used(config)
    async with Memory(config.only_tier("mid")) as memory:
        await require_durable(memory)
        yield memory


def _show_text(cli: Cli, key: ApiKey, text: str) -> None:
    cli.say(f"Key {key.id} of tenant {key.tenant}, {key.role}. Keep its text, which is stored nowhere:")
    cli.emit({**key.to_dict(), "key": text}, lambda out: out.print(text, markup=False, soft_wrap=True))


def _show(out: Any, found: Sequence[ApiKey]) -> None:
    from memory.cli import rendering

    rows = [
        [
            one.id,
            one.tenant,
            one.role,
            ", ".join(one.scopes) or "all",
            one.name or "",
            "" if one.created_at is None else rendering.moment(one.created_at),
            "" if one.expires_at is None else rendering.moment(one.expires_at),
            "revoked" if one.revoked_at is not None else "",
        ]
        for one in found
    ]
    columns = ["id", "tenant", "role", "scopes", "name", "since", "until", ""]
    out.print(rendering.table("", columns, rows, nothing="There is no key."))
