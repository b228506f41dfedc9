"""Many files changed as one: what a call writes is kept whole or not at all, whenever
the process or the machine stops.

staging.d/<name>         new contents, written and waited for before anything is changed
staging.d/journal.json   the renames and removals that make them count, in order; there while they are carried out

Until the journal is there nothing has happened; once it is, everything has: whoever has
the lock next carries out what is left. A change of one file is one rename and needs no
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
    """The staged file takes its place, or where none is named, the file there is
    removed. Repeating a step changes nothing.
    """

    folder: tuple[str, ...]
    name: str
    staged: str | None = None


@dataclass(slots=True)
class StagedCommit:
    """What one commit is going to do: new contents under their names in the staging
    folder, links to files kept, and the steps.
    """

    contents: dict[str, bytes] = field(default_factory=dict)
    kept: list[tuple[tuple[str, ...], str, str]] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    in_any_order: bool = True
    """Whether a crash between the steps leaves what may be left."""
    begun: bool = False
    """Whether anything may have changed."""

    def write(self, folder: tuple[str, ...], name: str, content: bytes) -> None:
        staged = _fresh()
        self.contents[staged] = content
        self.steps.append(Step(folder, name, staged))

    def keep(self, folder: tuple[str, ...], name: str, to: tuple[str, ...], new: str) -> None:
        """Let the file as it is now be found under another name too."""
        staged = _fresh()
        self.kept.append((folder, name, staged))
        self.steps.append(Step(to, new, staged))

    def remove(self, folder: tuple[str, ...], name: str) -> None:
        self.steps.append(Step(folder, name))


class Commits:
    """Carries out what is staged. Every method but `interrupted` wants the lock."""

    def __init__(self, store: str, disk: Disk, thresholds: Thresholds) -> None:
        self._store, self._disk, self._thresholds = store, disk, thresholds

    def is_interrupted(self) -> bool:
        """Whether a commit is under way, or was when its process died."""
        return self._disk.exists(STAGING, JOURNAL)

    def prepare(self, staged: StagedCommit) -> None:
        """Write the new contents and wait for them. On failure nothing is left and
        nothing has changed.
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
        """Take back what was prepared."""
        for step in staged.steps:
            if step.staged is not None:
                with suppress(OSError):
                    self._disk.remove(STAGING, step.staged)

    def carry_out(self, staged: StagedCommit, announce: Callable[[], None]) -> None:
        """Make what was prepared count, and wait until it is kept. `announce` is called
        before the first change, and after the journal is there.

        Where it raises, nothing has changed, but for `IncompleteCommit`: that leaves open what
        has, and the journal settles it.
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
                    self._disk.sync_folder(STAGING)  # before what it names goes
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
        """Carry out what is left of these."""
        self._do(steps)
        self._settle(steps)
        self._disk.remove(STAGING, JOURNAL)
        self._disk.sync_folder(STAGING)

    def _do(self, steps: Sequence[Step]) -> int:
        """Take these steps; how many they were."""
        for step in steps:
            if step.staged is None:
                self._disk.remove(step.folder, step.name)
            else:
                self._disk.rename(STAGING, step.staged, step.folder, step.name)
        return len(steps)

    def _settle(self, steps: Sequence[Step]) -> None:
        """Wait until the steps are on the disk."""
        for folder in dict.fromkeys(s.folder for s in steps):
            with suppress(FileNotFoundError):
                self._disk.sync_folder(folder)

    # -- after a crash -----------------------------------------------------------------

    def unfinished_steps(self) -> list[Step]:
        """The steps of a commit that its process did not finish."""
        try:
            text = self._disk.read(STAGING, JOURNAL)
            if text is None:
                return []
            return [Step(tuple(s["folder"]), s["name"], s["staged"]) for s in unseal(text)["steps"]]
        except (DamagedRecord, NotRegularFile, KeyError, TypeError) as exc:
            path = self._disk.root.joinpath(*STAGING, JOURNAL)
            raise StoreError(
                self._store, f"'{path}' cannot be read ({exc}); move it away to go on without what it says"
            ) from exc

    def left_behind(self) -> dict[str, int]:
        """What dead processes staged and never used, with its size. With the lock:
        nobody else is preparing anything.
        """
        foreign = {JOURNAL, *self._disk.folders(STAGING)}
        return {
            name: self._disk.size(STAGING, name) for name in self._disk.names(STAGING) if name not in foreign
        }

    def clean(self) -> None:
        """Remove it."""
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
