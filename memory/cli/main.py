"""Define the command line, `memory`: a thin layer over the facade.

Results go to standard output: as tables for people or, with `--json`, as one JSON
document for programs. Progress and messages go to standard error. For exit codes see
`memory.cli.exit_codes`.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from typing import Annotated, Any, cast

import typer
from typer.core import TyperGroup

from memory.cli import (
    artifacts,
    audit,
    backups,
    blocked_sources,
    entries,
    entry_changes,
    keys,
    knowledge_graph,
    legal_holds,
    mcp,
    mem,
    rules,
    scopes,
    scratchpads,
    serve,
    sessions,
    setup,
    transfer,
    worker,
)
from memory.cli import stores as places
from memory.cli.command import (
    Cli,
    ConfigOption,
    JsonOption,
    TenantOption,
    TracebackOption,
    fail,
    forget_unawaited,
    write_json,
)
from memory.cli.demo import command as demo
from memory.cli.exit_codes import EPILOG, INTERRUPTED, NOTHING, PIPE_CLOSED, USAGE

GUESSES = {
    "get read view cat": "show",
    "delete remove rm del erase purge": "forget",
    "add put insert store save remember new": "write",
    "find query ask recall retrieve": "search",
    "ls": "list",
    "set edit change": "update",
    "retire": "invalidate",
    "link": "relate",
    "links": "related",
    "dump": "export",
    "load": "import",
    "health check status info": "doctor",
    "server http run start": "serve",
    "migrate upgrade": "doctor",
    "sessions conversation conversations chats messages": "session",
    "scope user users": "scopes",
    "key token tokens": "keys",
    "help": "--help",
    "version": "--version",
}
"""Commands that users guess, and the right word."""


class _Interrupted(BaseException):
    """An interrupt outside of a command's work, which Typer would not report."""


class Commands(TyperGroup):
    """The commands. The error for a guessed one names the right one."""

    def make_context(self, *words: Any, **options: Any) -> Any:
        """Parse the options before the command."""
        try:
            return super().make_context(*words, **options)
        except KeyboardInterrupt:
            raise _Interrupted from None

    def invoke(self, ctx: Any) -> Any:
        """Parse the options of the command, and run it."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise _Interrupted from None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command, and explain a guess that is none."""
        try:
            return super().resolve_command(ctx, args)
        except _UsageError as exc:
            for guesses, right in GUESSES.items():
                if args and args[0] in guesses.split():
                    cast("Any", exc).message = f"No such command '{args[0]}'. Use 'memory {right}'"
            raise


app = typer.Typer(
    name="memory",
    cls=Commands,
    help=(
        "Tiered memory for AI agents, on the stores that your team already runs. New here? Try [bold]memory"
        " demo[/bold]."
    ),
    epilog=EPILOG,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)
for part in (
    demo,
    setup,
    entries,
    entry_changes,
    sessions,
    scratchpads,
    artifacts,
    mcp,
    knowledge_graph,
    mem,
    rules,
    legal_holds,
    blocked_sources,
    scopes,
    places,
    transfer,
    backups,
    worker,
    serve,
    keys,
    audit,
):
    part.register(app)


def _asks_json() -> bool:
    """Return whether `--json` was given, where the options are not parsed.

    That is before a command is chosen, or if the options are wrong.
    """
    return "--json" in sys.argv[1:]


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        if _asks_json():
            write_json({"version": version("memory-tiers")})
        else:
            typer.echo(f"memory-tiers {version('memory-tiers')}")
        raise typer.Exit


@app.callback()
def options(
    ctx: typer.Context,
    config: ConfigOption = None,
    tenant: TenantOption = None,
    json: JsonOption = False,
    traceback: TracebackOption = False,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", is_eager=True, callback=_version)
    ] = False,
) -> None:
    """Read the options that may stand before or after the command."""
    ctx.obj = Cli(config, tenant, json, traceback)


def main() -> None:
    """Run the command line: the entry point of `memory`.

    An interrupt ends it in one line, even before and after a command runs.
    """
    try:
        _run_app()
    except (KeyboardInterrupt, _Interrupted):
        forget_unawaited()
        sys.exit(_end(INTERRUPTED, "interrupted", "interrupted", prefix=""))


def _run_app() -> None:
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:  # the caller closed it, as with >&-
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w", encoding="utf-8"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(
                errors="replace"
            )  # an encoding that lacks a character must not stop the command
    try:
        code = app(standalone_mode=False)
    except typer.Abort as exc:
        code = INTERRUPTED if isinstance(exc.__cause__, KeyboardInterrupt) else NOTHING
        _end(code, "stopped", "stopped, nothing was done", prefix="")
    except _UsageError as exc:
        code = _wrong_usage(exc)
    except SystemExit as exc:  # of Typer and Rich: 1 where the reader of the help has gone
        code = PIPE_CLOSED if exc.code == 1 else exc.code
    except OSError as exc:
        code = fail(Cli(), exc)
    sys.exit(_flush_output(code))


def _flush_output(code: Any) -> Any:
    """Write what is buffered, and return the exit code: another one if this fails."""
    try:
        sys.stdout.flush()
    except OSError as exc:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # nothing is left to fail when Python ends
        if isinstance(exc, BrokenPipeError):
            return PIPE_CLOSED
        if not code:
            return fail(Cli(), exc)
    return code


_UsageError = cast("type[Exception]", typer.BadParameter.__base__)  # Typer does not export this class


def _wrong_usage(exc: Any) -> int:
    """Report wrong usage in one line; show the whole help if no argument was given."""
    if type(exc).__name__ == "NoArgsIsHelpError" and not _asks_json():
        exc.show()
        return USAGE
    if type(exc.__cause__).__name__ == "ValidationError":  # the sentence of pydantic
        from memory.domain.model_errors import explain_errors, show_value

        [problem] = explain_errors(exc.__cause__.errors(include_url=False)[:1], show=show_value)
        exc.message = problem.message
    command_path = exc.ctx.command_path if exc.ctx is not None else "memory"
    message = f"{exc.format_message()}{_advise_quotes(exc)} (try: {command_path} --help)"
    return _end(USAGE, "usage", message)


def _advise_quotes(exc: Any) -> str:
    """Return advice for a text that the shell has split into words, or nothing."""
    found = re.fullmatch(r"Got unexpected extra arguments?(?:\(s\))? \((.*)\)", exc.format_message())
    if found is None:
        return ""
    if any("--content" in one.opts for one in exc.ctx.command.params):
        return f". Pass a new text as --content {shlex.quote(found[1])}"
    return ". Put a text of several words in quotes"


def _end(code: int, name: str, message: str, *, prefix: str = "error: ") -> int:
    """Report on standard error how the command ended, with `--json` as an object."""
    typer.echo(f"{prefix}{message}", err=True)
    if _asks_json():
        write_json({"error": {"code": name, "message": message, "exit": code}})
    return code


if __name__ == "__main__":
    main()
