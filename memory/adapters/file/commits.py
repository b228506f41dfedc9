"""Atomic changes of several files, across crashes of the process or the machine.

    staging.d/<name>         new contents, written and synced before anything is changed
    staging.d/journal.json   the renames and removals in order; exists while they run

Before the journal exists, nothing has changed. Afterwards the change is decided: the
next holder of the lock completes it. A change of one file is one rename and needs no
journal.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from memory.adapters.file.codec import DamagedRecord, seal, unseal
from memory.adapters.file.disk import Disk, NotRegularFile
from memory.adapters.file.errors import IncompleteCommit
from memory.adapters.file.thresholds import Thresholds
from memory.domain.errors import StoreError

STAGING, JOURNAL = ("staging.d",), "journal.json"


@dataclass(frozen=True, slots=True)
class Step:
    """Moves a staged file to its place, or removes the file if none is staged.

    Repeating a step changes nothing.
    """

    folder: tuple[str, ...]
    name: str
    staged: str | None = None


@dataclass(slots=True)
class StagedCommit:
    """Content of one commit: new contents, links to kept files, and the steps.

    New contents are keyed by their names in the staging folder.
    """

    contents: dict[str, bytes] = field(default_factory=dict)
    kept: list[tuple[tuple[str, ...], str, str]] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    in_any_order: bool = True
    """Whether a crash between the steps leaves an allowed state."""
    begun: bool = False
    """Whether anything may have changed."""

    def write(self, folder: tuple[str, ...], name: str, content: bytes) -> None:
        staged = _fresh()
        self.contents[staged] = content
        self.steps.append(Step(folder, name, staged))

    def keep(self, folder: tuple[str, ...], name: str, to: tuple[str, ...], new: str) -> None:
        """Give the present file a second name."""
        staged = _fresh()
        self.kept.append((folder, name, staged))
        self.steps.append(Step(to, new, staged))

    def remove(self, folder: tuple[str, ...], name: str) -> None:
        self.steps.append(Step(folder, name))


class Commits:
    """Carries out staged commits. All methods except `is_interrupted` need the lock."""

    def __init__(self, store: str, disk: Disk, thresholds: Thresholds) -> None:
        self._store, self._disk, self._thresholds = store, disk, thresholds

    def is_interrupted(self) -> bool:
        """Whether a commit is running, or was when its process died."""
        return self._disk.exists(STAGING, JOURNAL)

    def prepare(self, staged: StagedCommit) -> None:
        """Write and sync the new contents.

        On failure nothing remains and nothing has changed.
        """
        self._disk.check_writable()
        for folder in {s.folder for s in staged.steps if s.staged is not None}:
            self._disk.make_folder(folder)
        try:
            self._write_all(staged.contents)
            for folder, name, link in staged.kept:
                self._disk.copy(folder, name, STAGING, link)
        except BaseException:
            self.forget(staged)
            raise

    def _write_all(self, contents: dict[str, bytes]) -> None:
        if len(contents) <= self._thresholds.waited_for_alone or not self._disk.fsync:
            for name, content in contents.items():
                self._disk.write_new(STAGING, name, content)
            return
        with ThreadPoolExecutor(self._thresholds.waited_for_together) as pool:
            list(pool.map(lambda item: self._disk.write_new(STAGING, *item), contents.items()))

    def forget(self, staged: StagedCommit) -> None:
        """Remove the prepared files."""
        for step in staged.steps:
            if step.staged is not None:
                with suppress(OSError):
                    self._disk.remove(STAGING, step.staged)

    def carry_out(self, staged: StagedCommit, announce: Callable[[], None]) -> None:
        """Apply what was prepared, and wait until it is durable.

        `announce` is called before the first change, after the journal is written. If
        this raises, nothing has changed. The exception is `IncompleteCommit`: the state
        is open then, and the journal settles it.
        """
        journaled = len(staged.steps) > 1 and not staged.in_any_order
        try:
            if journaled:
                self._write_journal(staged.steps)
            announce()
            done = 0 if journaled else self._do(staged.steps[:1])
        except BaseException:
            with _open_until_done(staged):
                if self._disk.remove(STAGING, JOURNAL):
                    self._disk.sync_folder(STAGING)  # before the files that it names are removed
            staged.begun = False
            self.forget(staged)
            raise
        with _open_until_done(staged):
            if journaled:
                self.finish(staged.steps)
            else:
                self._do(staged.steps[done:])
                self._settle(staged.steps)

    def _write_journal(self, steps: Sequence[Step]) -> None:
        plain = [{"folder": list(s.folder), "name": s.name, "staged": s.staged} for s in steps]
        draft = _fresh()
        try:
            self._disk.write_new(STAGING, draft, seal({"steps": plain}))
            self._disk.rename(STAGING, draft, STAGING, JOURNAL)
        except BaseException:
            self._disk.remove(STAGING, draft)
            raise
        self._disk.sync_folder(STAGING)

    def finish(self, steps: Sequence[Step]) -> None:
        """Complete these steps."""
        self._do(steps)
        self._settle(steps)
        self._disk.remove(STAGING, JOURNAL)
        self._disk.sync_folder(STAGING)

    def _do(self, steps: Sequence[Step]) -> int:
        """Run these steps and return their number."""
        for step in steps:
            if step.staged is None:
                self._disk.remove(step.folder, step.name)
            else:
                self._disk.rename(STAGING, step.staged, step.folder, step.name)
        return len(steps)

    def _settle(self, steps: Sequence[Step]) -> None:
        """Wait until the steps are durable."""
        for folder in dict.fromkeys(s.folder for s in steps):
            with suppress(FileNotFoundError):
                self._disk.sync_folder(folder)

    # -- after a crash -----------------------------------------------------------------

    def unfinished_steps(self) -> list[Step]:
        """Return the steps of a commit that its process did not finish."""
        try:
            text = self._disk.read(STAGING, JOURNAL)
            if text is None:
                return []
            return [Step(tuple(s["folder"]), s["name"], s["staged"]) for s in unseal(text)["steps"]]
        except (DamagedRecord, NotRegularFile, KeyError, TypeError) as exc:
            path = self._disk.root.joinpath(*STAGING, JOURNAL)
            raise StoreError(
                self._store, f"'{path}' cannot be read ({exc}); to go on without its changes, move it"
            ) from exc

    def left_behind(self) -> dict[str, int]:
        """Return the sizes of files that dead processes left, by name.

        It needs the lock, so that nobody else prepares a commit.
        """
        foreign = {JOURNAL, *self._disk.folders(STAGING)}
        return {
            name: self._disk.size(STAGING, name) for name in self._disk.names(STAGING) if name not in foreign
        }

    def clean(self) -> None:
        """Remove the files that dead processes left."""
        for name in self.left_behind():
            self._disk.remove(STAGING, name)


@contextmanager
def _open_until_done(staged: StagedCommit) -> Iterator[None]:
    staged.begun = True
    try:
        yield
    except OSError as exc:
        raise IncompleteCommit(*exc.args) from exc


def _fresh() -> str:
    return f"{os.getpid()}-{secrets.token_hex(8)}.tmp"
