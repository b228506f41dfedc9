"""Common parts of all commands: shared options, the memory, output and errors.

Nothing heavy is imported here, so that `memory --help` is fast.
"""

from __future__ import annotations

import inspect
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, TypeVar

import typer

from memory.cli.exit_codes import INTERRUPTED, PIPE_CLOSED
from memory.cli.options import NO_ROOM

if TYPE_CHECKING:
    from rich.console import Console

    from memory.facade.config.settings import MemoryConfig
    from memory.facade.memory import Memory

_EVERYWHERE = "Options of every command"
ConfigOption = Annotated[
    str | None,
    typer.Option(
        "--config",
        "-c",
        metavar="FILE|URL",
        help="The configuration: a .toml file, a database file or the URL of a store.",
        rich_help_panel=_EVERYWHERE,
    ),
]
TenantOption = Annotated[
    str | None,
    typer.Option(
        "--tenant",
        metavar="NAME",
        help="The tenant. Tenants never see each other's data.",
        rich_help_panel=_EVERYWHERE,
    ),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print the result as JSON, for programs.", rich_help_panel=_EVERYWHERE)
]
TracebackOption = Annotated[
    bool,
    typer.Option("--traceback", help="Print the Python traceback of an error.", rich_help_panel=_EVERYWHERE),
]


@dataclass(frozen=True)
class Cli:
    """Hold the shared options of one call of the command line."""

    config: str | None = None
    tenant: str | None = None
    json: bool = False
    traceback: bool = False
    kept: list[str] = field(default_factory=list)
    """Sentences that say how much of a long command is stored already.

    The last one is printed if the command ends early.
    """

    def settings(self) -> MemoryConfig:
        from memory.facade.config.settings import MemoryConfig

        return MemoryConfig.load(self.config, tenant=self.tenant)

    def build_memory(self) -> Memory:
        """Create the configured memory, not yet opened."""
        from memory.facade.memory import Memory

        return Memory(self.settings())

    def announce_new(self, config: MemoryConfig) -> None:
        """Print where the default file will be if that file does not exist yet."""
        from memory.facade.runtime.store_paths import default_file

        if (path := default_file(config)) is not None:
            self.say(
                f"creating a new memory in {path}; to use another place, set --config or MEMORY_CONFIG, or"
                " run `memory init`"
            )

    @asynccontextmanager
    async def memory(self) -> AsyncIterator[Memory]:
        """Give the configured memory, which the first call that needs a store opens.

        So wrong arguments are refused before any store is touched. A command that
        reads a stream or makes views opens the memory itself.
        """
        from memory.facade.runtime.access import access_of

        made = self.build_memory()

        async def open_now() -> None:
            self.announce_new(made.config)
            await made.open()

        access_of(made).open_on_use(open_now)
        try:
            yield made
        finally:
            await made.close()

    @property
    def out(self) -> Console:
        """The console for results. It is never used with --json."""
        return _console(stderr=False)

    @property
    def err(self) -> Console:
        """The console for progress and messages."""
        return _console(stderr=True)

    def say(self, message: str) -> None:
        """Print a message beside the result, but not with --json."""
        if not self.json:
            self.err.print(message, markup=False, highlight=False, soft_wrap=True)

    def emit(self, data: object, show: Callable[[Console], None]) -> None:
        """Print the result: one JSON document with --json, else by `show`."""
        if self.json:
            write_json(data)
        else:
            show(self.out)


T = TypeVar("T")


async def for_each(cli: Cli, ids: Sequence[str], call: Callable[[str], Awaitable[T]]) -> dict[str, T]:
    """Call with each id, and return the results by id.

    If a call fails, or the user interrupts, the error says which ids are done.
    """
    found = dict[str, T]()
    for one in ids:
        found[one] = await call(one)
        cli.kept[:] = [f"{len(found)} of {len(ids)} ids are done: {', '.join(found)}"]
    return found


Command = Callable[Concatenate[Cli, ...], int | Awaitable[int | None] | None]


def _console(*, stderr: bool) -> Console:
    from rich.console import Console

    class Told(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # `run` handles it as for JSON; Rich would exit with 1

    console = Told(stderr=stderr, highlight=False)
    return (
        console
        if console.is_terminal or "COLUMNS" in os.environ
        else Told(stderr=stderr, highlight=False, width=140)
    )


def write_json(data: object) -> None:
    """Write one JSON document to standard output, in the encoding of that stream."""
    text = json.dumps(data, ensure_ascii=not is_utf8(sys.stdout), indent=2, default=str)
    if not _is_text(text):  # the name of a file, whose bytes JSON can escape
        text = json.dumps(data, indent=2, default=str)
    sys.stdout.write(text + "\n")


def _is_text(text: str) -> bool:
    """Return whether a text came from bytes that are text, not from others."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_utf8(stream: object) -> bool:
    """Return whether the stream is UTF-8 and can encode every character."""
    return (getattr(stream, "encoding", None) or "").lower().replace("-", "") == "utf8"


def add_group(app: typer.Typer, name: str, text: str, commands: Mapping[str, Command]) -> None:
    """Register a command that only has commands of its own, with its help text."""
    group = typer.Typer(help=text, no_args_is_help=True)
    add_commands(group, commands)
    app.add_typer(group, name=name)


def add_commands(app: typer.Typer, commands: Mapping[str, Command]) -> None:
    """Register functions of `Cli` and their own options as commands, by name.

    The return value of a function is the exit code; None counts as 0.
    """
    for name, function in commands.items():
        app.command(name)(_as_command(function))


def _as_command(function: Command) -> Callable[..., None]:
    def wrapper(ctx: typer.Context, **given: Any) -> None:
        cli = _with_options_here(ctx.obj or Cli(), given)
        raise typer.Exit(run(cli, lambda: function(cli, **given)))

    wrapper.__doc__ = _help_text(function)
    wrapper.__name__ = function.__name__
    _show_to_typer(wrapper, function)
    return wrapper


def run(cli: Cli, work: Callable[[], int | Awaitable[int | None] | None]) -> int:
    """Run the work and return the exit code.

    Errors are reported in one line. A traceback is printed only with --traceback.
    """
    if not cli.traceback:
        _log_in_one_line()
    try:
        result = work()
        if inspect.isawaitable(result):
            import asyncio

            result = asyncio.run(_await_work(result))
        sys.stdout.flush()
        return int(result or 0)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # nobody reads the output that is still buffered
        return PIPE_CLOSED
    except KeyboardInterrupt:
        forget_unawaited()
        done = (
            cli.kept[-1]
            if cli.kept
            else "everything reported as done is stored; run the command again for the rest"
        )
        typer.echo(f"interrupted; {done}", err=True)
        if cli.json:
            write_json(
                {"error": {"code": "interrupted", "message": f"interrupted; {done}", "exit": INTERRUPTED}}
            )
        return INTERRUPTED
    except typer.Exit as exc:
        return exc.exit_code
    except Exception as exc:
        if isinstance(exc, typer.BadParameter | typer.Abort):  # Typer reports these
            raise
        return fail(cli, exc)


def forget_unawaited() -> None:
    """Leave out the warnings of Python about work that an interrupt left unbegun."""
    import warnings

    warnings.simplefilter("ignore", RuntimeWarning)


def _log_in_one_line() -> None:
    """Log warnings and errors without tracebacks, if nothing else sets up logging."""
    import logging

    class OneLine(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            error = record.exc_info[1] if record.exc_info else None
            return record.getMessage() + (f": {_message(error)}" if isinstance(error, Exception) else "")

    if logging.lastResort is not None:
        logging.lastResort.setFormatter(OneLine())


def log_tracebacks() -> None:
    """Log errors with tracebacks, for a command that runs until it is stopped."""
    import logging

    if logging.lastResort is not None:
        logging.lastResort.setFormatter(None)


async def _await_work(work: Awaitable[int | None]) -> int | None:
    return await work


def fail(cli: Cli, exc: Exception) -> int:
    """Report an error in one line on standard error, with --json as an object too."""
    from memory.cli.exit_codes import BUG, CONFIG, USAGE, classify_error

    code, name = classify_error(exc)
    message = (
        _message(exc)
        if code != BUG
        else f"this is a bug: {type(exc).__name__}: {exc} (--traceback shows where; please report it)"
    )
    message += _what_now(cli, exc)
    if code in (USAGE, CONFIG) and not all(map(_is_text, sys.argv)):
        message += f". An argument holds bytes that are not {sys.getfilesystemencoding()}: convert it first"
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
    """Return how much was done before the error, and advice for the user."""
    from memory.domain.errors import StoreError, StoreFull

    if not isinstance(exc, StoreError):
        return "".join(f"; {part}" for part in cli.kept[-1:])
    kept = cli.kept[-1:] or (["nothing of this call was stored"] if isinstance(exc, StoreFull) else [])
    advice = (
        ["free some space (`memory forget`, then `memory vacuum`) and run the command again"]
        if isinstance(exc, StoreFull)
        else []
    )
    return "".join(f"; {part}" for part in (*kept, *advice))


def _message(exc: Exception) -> str:
    from memory.domain.errors import InvalidInput
    from memory.domain.model_errors import in_json_words

    if isinstance(exc, InvalidInput):
        exc = in_json_words(exc)
    text = str(exc)
    if isinstance(exc, OSError) and (exc.filename or exc.errno in NO_ROOM):
        text = f"{exc.filename or 'standard output'}: {exc.strerror}"
    return (
        " ".join("".join(char if char.isprintable() else " " for char in text).split()) or type(exc).__name__
    )


def _with_options_here(cli: Cli, given: dict[str, Any]) -> Cli:
    """Merge the options before the command with those after it, which win.

    The shared options are removed from `given`.
    """
    here: Mapping[str, Any] = {name: given.pop(name) for name in ("config", "tenant", "json", "traceback")}
    return replace(cli, **{name: value for name, value in here.items() if value not in (None, False)})


def _help_text(function: Callable[..., Any]) -> str:
    """Return the docstring with one line per paragraph, so that any width wraps it.

    Typer keeps the line breaks of the source. Indented lines are an example and stay.
    """
    paragraphs = (inspect.getdoc(function) or "").split("\n\n")
    return "\n\n".join(
        one if "\n " in one or one.startswith(" ") else " ".join(one.split()) for one in paragraphs
    )


def _show_to_typer(called: Callable[..., None], function: Callable[..., Any]) -> None:
    """Give the registered function the signature from which Typer builds options.

    It has the command's own options first, then those of every command.
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
