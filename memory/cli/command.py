"""What every command shares: the options that may stand anywhere, an opened memory,
output for people or programs, and how errors end.

Nothing heavy is imported here: `memory --help` has to be quick.
"""

from __future__ import annotations

import inspect
import json
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, ParamSpec, TypeVar

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from memory.facade.config import MemoryConfig
    from memory.facade.memory import Memory

P = ParamSpec("P")
Result = TypeVar("Result", bound="int | Awaitable[int | None] | None")

_EVERYWHERE = "Everywhere"
ConfigOption = Annotated[
    str | None,
    typer.Option(
        "--config",
        "-c",
        metavar="FILE|URL",
        help="A .toml file, a database file or a store's URL.",
        rich_help_panel=_EVERYWHERE,
    ),
]
TenantOption = Annotated[
    str | None,
    typer.Option("--tenant", metavar="NAME", help="Whose memory it is.", rich_help_panel=_EVERYWHERE),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="JSON on standard output, for programs.", rich_help_panel=_EVERYWHERE)
]
TracebackOption = Annotated[
    bool, typer.Option("--traceback", help="Show where an error came from.", rich_help_panel=_EVERYWHERE)
]


@dataclass(frozen=True)
class Cli:
    """One call of the command line."""

    config: str | None = None
    tenant: str | None = None
    json: bool = False
    traceback: bool = False
    kept: list[str] = field(default_factory=list)
    """What of a long command is safe already, in a sentence: told where it ends before
    its end.
    """

    def settings(self) -> MemoryConfig:
        from memory.facade.config import MemoryConfig

        return MemoryConfig.load(self.config, tenant=self.tenant)

    def memory(self) -> Memory:
        """The memory that the options and everything else configure; not open yet. Says
        where the default file will be, when that is made.
        """
        from memory.facade.memory import Memory
        from memory.facade.places import default_file

        made = Memory(self.settings())
        if (path := default_file(made.config)) is not None:
            self.say(
                f"a new memory is made in {path}; --config, MEMORY_CONFIG or `memory init` name another place"
            )
        return made

    @property
    def out(self) -> Console:
        """Where people read results. Never used with --json."""
        return _console(stderr=False)

    @property
    def err(self) -> Console:
        """Where progress and messages go."""
        return _console(stderr=True)

    def say(self, message: str) -> None:
        """A message beside the result, for people only."""
        if not self.json:
            self.err.print(message, markup=False, highlight=False, soft_wrap=True)

    def emit(self, data: object, show: Callable[[Console], None]) -> None:
        """The result of a command: as one JSON document for programs, else as shown to
        people.
        """
        if self.json:
            write_json(data)
        else:
            show(self.out)


def _console(*, stderr: bool) -> Console:
    from rich.console import Console

    class Told(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # `run` ends as for JSON; Rich would end the process with 1

    console = Told(stderr=stderr, highlight=False)
    return (
        console
        if console.is_terminal or "COLUMNS" in os.environ
        else Told(stderr=stderr, highlight=False, width=140)
    )


def write_json(data: object) -> None:
    """One JSON document on standard output, in whatever encoding it has."""
    sys.stdout.write(json.dumps(data, ensure_ascii=not is_utf8(sys.stdout), indent=2, default=str) + "\n")


def is_utf8(stream: object) -> bool:
    """Whether every character can be written to it as it is."""
    return (getattr(stream, "encoding", None) or "").lower().replace("-", "") == "utf8"


def command(
    app: typer.Typer, name: str, **options: Any
) -> Callable[[Callable[Concatenate[Cli, P], Result]], Callable[Concatenate[Cli, P], Result]]:
    """Make a function of `Cli` and its own options a command; what it returns, None
    aside, is the exit code.
    """

    def register(function: Callable[Concatenate[Cli, P], Result]) -> Callable[Concatenate[Cli, P], Result]:
        def wrapper(ctx: typer.Context, **given: Any) -> None:
            cli = _with_options_here(ctx.obj or Cli(), given)
            code = run(cli, lambda: function(cli, **given))  # type: ignore[call-arg]
            raise typer.Exit(code)

        wrapper.__doc__ = function.__doc__
        wrapper.__name__ = function.__name__
        _show_to_typer(wrapper, function)
        app.command(name, **options)(wrapper)
        return function

    return register


def run(cli: Cli, work: Callable[[], int | Awaitable[int | None] | None]) -> int:
    """Do the work and turn however it ends into an exit code. No error leaves as a
    traceback unless asked.
    """
    try:
        result = work()
        if inspect.isawaitable(result):
            import asyncio

            result = asyncio.run(_await_work(result))
        sys.stdout.flush()
        return int(result or 0)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is still buffered has no reader any more
        return 141
    except KeyboardInterrupt:
        done = cli.kept[-1] if cli.kept else "what was reported as done is kept; run it again to do the rest"
        typer.echo(f"interrupted; {done}", err=True)
        if cli.json:
            write_json({"error": {"code": "interrupted", "message": f"interrupted; {done}", "exit": 130}})
        return 130
    except typer.Exit as exc:
        return exc.exit_code
    except Exception as exc:
        if isinstance(exc, typer.BadParameter | typer.Abort):  # Typer's own to tell
            raise
        return fail(cli, exc)


async def _await_work(work: Awaitable[int | None]) -> int | None:
    return await work


def fail(cli: Cli, exc: Exception) -> int:
    """Say what went wrong in one line on standard error, with --json also as an object
    on standard output.
    """
    from memory.cli.exits import BUG, classify_error

    code, name = classify_error(exc)
    message = (
        _message(exc)
        if code != BUG
        else f"this is a bug: {type(exc).__name__}: {exc} (--traceback shows where; please report it)"
    )
    message += _what_now(cli, exc)
    if cli.traceback:
        import traceback

        traceback.print_exception(exc)
    typer.echo(f"error: {message}", err=True)
    if cli.json:
        details = {
            key: getattr(exc, key)
            for key in ("field", "line", "entry_id", "existing_id", "store")
            if getattr(exc, key, None) is not None
        }
        write_json({"error": {"code": name, "message": message, "exit": code, **details}})
    return code


def _what_now(cli: Cli, exc: Exception) -> str:
    """What was kept when a store failed, and what to do."""
    from memory.domain.errors import StoreError, StoreFull

    if not isinstance(exc, StoreError):
        return ""
    kept = cli.kept[-1:] or (["nothing of this call was kept"] if isinstance(exc, StoreFull) else [])
    advice = (
        ["make room (`memory forget`, then `memory vacuum`), and run it again"]
        if isinstance(exc, StoreFull)
        else []
    )
    return "".join(f"; {part}" for part in (*kept, *advice))


def _message(exc: Exception) -> str:
    text = (
        f"{exc.filename}: {exc.strerror}"
        if isinstance(exc, OSError) and exc.filename and exc.strerror
        else str(exc)
    )
    return (
        " ".join("".join(char if char.isprintable() else " " for char in text).split()) or type(exc).__name__
    )


def _with_options_here(cli: Cli, given: dict[str, Any]) -> Cli:
    """The options given before the command, overridden by those given after it, which
    are taken out of `given`.
    """
    here: Mapping[str, Any] = {name: given.pop(name) for name in ("config", "tenant", "json", "traceback")}
    return replace(cli, **{name: value for name, value in here.items() if value not in (None, False)})


def _show_to_typer(called: Callable[..., None], function: Callable[..., Any]) -> None:
    """Give the registered function the signature Typer builds options from: the
    command's own, then those of every command.
    """
    own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
    kind = inspect.Parameter.KEYWORD_ONLY
    shared = [
        ("config", ConfigOption, None),
        ("tenant", TenantOption, None),
        ("json", JsonOption, False),
        ("traceback", TracebackOption, False),
    ]
    parameters = [
        inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context),
        *(parameter.replace(kind=kind) for parameter in own),
        *(
            inspect.Parameter(name, kind, default=default, annotation=annotation)
            for name, annotation, default in shared
        ),
    ]
    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
