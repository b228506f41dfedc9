"""Move modules and rewrite what names them: `python -m tools.codemods.move`.

Run it in the root of a clean checkout. It moves the files by `git mv`, rewrites imports
and texts, writes the `__init__` of each new package, adds the contract of layers, and
sorts and formats what it changed. A second run changes nothing.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from tools.codemods.imports import with_modules_followed
from tools.codemods.moves import ENGINE, LAYERS, MOVES, PACKAGES, RENAMES, ROOT

_NEW = frozenset(MOVES.values())
_DOTTED = re.compile(r"(?<![\w.])memory(?:\.\w+)+")
_SUFFIXES = (".py", ".pyi", ".md", ".toml", ".txt", ".cfg", ".yml", ".yaml")
_LEFT = ("docs/behaviours.md", "tools/codemods/", "tests/meta/test_moves.py", "CHANGELOG.md")
"""Generated, or about the moves themselves."""


def moved_dotted(text: str, packages: Collection[str] = ()) -> str:
    """The text with every dotted name of a moved module in its new form. Names of
    `packages` stay: an old module may have the name of a new package.
    """

    def new(found: re.Match[str]) -> str:
        name = found[0]
        if name in packages or _is_new(name, text[found.end() : found.end() + 200]):
            return name
        parts = name.split(".")
        for end in range(len(parts), 0, -1):
            module = ".".join(parts[:end])
            if module in MOVES:
                return ".".join([MOVES[module], *parts[end:]])
        return name

    return _DOTTED.sub(new, text)


def _is_new(name: str, behind: str) -> bool:
    """Whether the name is one of the new layout already."""
    parts = name.split(".")
    if any(".".join(parts[:end]) in _NEW - set(MOVES) for end in range(len(parts), 0, -1)):
        return True
    imported = re.match(r"\s+import\s+\(?\s*(\w+)", behind)
    return imported is not None and f"{name}.{imported[1]}" in _NEW


def moved_paths(text: str, taken: frozenset[str] = frozenset()) -> str:
    """The text with every path of a moved file in its new form: `orchestrator/x.py`,
    `conversations/x.py` without its folder, and a bare `x.py` if no file of another
    folder has that name (`taken` are those names).
    """
    text = _PATHS.sub(lambda found: f"{found[1]}{_NEW_PATHS[found[2]]}{found[3]}", text)
    text = _RENAMED.sub(lambda found: f"{found[1]}{_RENAMED_PATHS[found[2]]}{found[3]}", text)
    text = _INNER.sub(lambda found: f"{_NEW_PATHS[found[1]]}.py", text)
    text = _INNER_DOTTED.sub(lambda found: f"`{found[1]}{_new_dotted(found[2])}`", text)
    return _BARE.sub(lambda found: found[0] if found[1] in taken else f"{_NEW_STEMS[found[1]]}.py", text)


def _new_dotted(old: str) -> str:
    return MOVES[f"{ROOT}.{old}"].removeprefix(f"{ROOT}.")


def _any_of(names: Iterable[str]) -> str:
    return "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))


def _slashed(module: str) -> str:
    return module.removeprefix(f"{ROOT}.").replace(".", "/")


_NEW_PATHS = {_slashed(old): _slashed(new) for old, new in ENGINE.items()}
_RENAMED_PATHS = {
    old.removeprefix("memory.").replace(".", "/"): new.removeprefix("memory.").replace(".", "/")
    for old, new in RENAMES.items()
}
_NEW_STEMS = {
    old: new
    for old, new in ((o.rpartition(".")[2], n.rpartition(".")[2]) for o, n in MOVES.items())
    if old != new
}
_FOLDER = ROOT.rpartition(".")[2]
_PATHS = re.compile(rf"(?<![\w/])((?:\.\./)*(?:memory/)?{_FOLDER}/)({_any_of(_NEW_PATHS)})(\.py|(?=`))")
_RENAMED = re.compile(rf"(?<![\w/])((?:\.\./)*(?:memory/)?)({_any_of(_RENAMED_PATHS)})(\.py|(?=[`,;)]))")
_INNER = re.compile(rf"(?<![\w/])({_any_of(path for path in _NEW_PATHS if '/' in path)})\.py")
_INNER_DOTTED = re.compile(rf"`({_FOLDER}\.)({_any_of(path.replace('/', '.') for path in _NEW_PATHS)})`")
_BARE = re.compile(rf"(?<![\w/.])({_any_of(_NEW_STEMS)})\.py\b")


def rewritten(source: str, path: Path, taken: frozenset[str] = frozenset()) -> str:
    """One file with the new names."""
    if path.suffix in (".py", ".pyi"):
        source = moved_dotted(with_modules_followed(source, MOVES))
    else:
        source = moved_dotted(source, LAYERS if path.suffix == ".toml" else ())
    return moved_paths(source, taken)


# -- the tree --------------------------------------------------------------------------


def _git(*command: str) -> str:
    return subprocess.run(["git", *command], check=True, capture_output=True, text=True).stdout


def _path(module: str) -> Path:
    return Path(*module.split(".")).with_suffix(".py")


def move_files() -> list[Path]:
    """Move what has not moved yet. Two steps: a folder may get the name of a file."""
    pending = [(_path(old), _path(new)) for old, new in MOVES.items() if old != new]
    pending = [(old, new) for old, new in pending if old.exists() and not new.exists()]
    for old, new in pending:
        new.parent.mkdir(parents=True, exist_ok=True)
        _git("mv", str(old), str(new))
    return [new for _, new in pending]


def used_outside(packages: Iterable[str]) -> dict[str, list[str]]:
    """Of each package the modules that are imported from outside of it. The engine,
    which builds them all, does not count.
    """
    used: dict[str, set[str]] = {package: set() for package in packages}
    for path in Path("memory").rglob("*.py"):
        importer = ".".join(path.with_suffix("").parts)
        if importer == f"{ROOT}.engine":
            continue
        for name in imported(path.read_text()):
            for package, modules in used.items():
                if name.startswith(f"{package}.") and not importer.startswith(f"{package}."):
                    modules.add(name.removeprefix(f"{package}.").split(".")[0])
    return {
        package: sorted(m for m in modules if _exists(f"{package}.{m}")) for package, modules in used.items()
    }


def _exists(module: str) -> bool:
    return _path(module).exists() or _path(module).with_suffix("").is_dir()


def imported(source: str) -> set[str]:
    """The full names of all that a source imports."""
    names = set[str]()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return names


def write_packages(packages: Mapping[str, str]) -> list[Path]:
    """Write the `__init__` of each package: what it is for, and which of its modules
    other packages import.
    """
    written = []
    for package, modules in used_outside(packages).items():
        path = _path(package).with_suffix("") / "__init__.py"
        listed = "".join(f'    "{module}",\n' for module in modules)
        text = packages[package]
        close = '"""\n' if "\n" not in text else '\n"""\n'
        exported = f"\n__all__ = [\n{listed}]\n" if modules else ""
        path.write_text(f'"""{text}{close}{exported}')
        written.append(path)
    return written


CONTRACT = """
[[tool.importlinter.contracts]]
id = "engine-layers"
name = "Packages of the engine import only packages below them"
type = "layers"
layers = [
{layers}]
"""
_IMPORTS = Path("tests/meta/test_imports.py")
_ANCHOR = "\n[[tool.importlinter.contracts]]\n# The facade has a memory answer"
_VIOLATION = (
    '    "engine-layers": ("memory/orchestrator/trust/wrong.py", "import memory.orchestrator.engine"),\n'
)


def add_contract(pyproject: str) -> str:
    """`pyproject.toml` with the contract of layers."""
    if 'id = "engine-layers"' in pyproject:
        return pyproject
    above = [f"{ROOT}.engine", *reversed(LAYERS)]
    contract = CONTRACT.format(layers="".join(f'    "{layer}",\n' for layer in above))
    assert _ANCHOR in pyproject
    return pyproject.replace(_ANCHOR, contract + _ANCHOR)


def add_violation(tests: str) -> str:
    """`tests/meta/test_imports.py` with a file that breaks the contract of layers."""
    end = "}\n" + '"""For each import contract'
    return tests if "engine-layers" in tests else tests.replace(end, _VIOLATION + end)


def rewrite_files(tracked: Iterable[Path], taken: frozenset[str]) -> list[Path]:
    """Rewrite what names a moved module, wherever it is now."""
    renamed = dict(zip((_path(o) for o in MOVES), (_path(n) for n in MOVES.values()), strict=True))
    changed = []
    for path in dict.fromkeys(p if p.exists() else renamed.get(p, p) for p in tracked):
        named = path.suffix in _SUFFIXES or path.name == "Makefile" or path.parts[0] == ".ci"
        if not named or not path.is_file() or str(path).startswith(_LEFT):
            continue
        before = path.read_text()
        beside = ROOT.replace(".", "/") in str(path)  # a bare name is of a module beside
        after = rewritten(before, path, frozenset() if beside else taken)
        if after != before:
            path.write_text(after)
            changed.append(path)
    return changed


def main() -> int:
    tracked = [Path(name) for name in _git("ls-files").splitlines()]
    own = {_path(module) for module in (*MOVES, *_NEW)}
    taken = frozenset(path.stem for path in tracked if path.suffix == ".py" and path not in own)
    moved = move_files()
    changed = [*moved, *rewrite_files(tracked, taken)]
    if moved:
        changed += write_packages(PACKAGES)
    for path, added in ((Path("pyproject.toml"), add_contract), (_IMPORTS, add_violation)):
        path.write_text(added(path.read_text()))
    python = [str(path) for path in dict.fromkeys(changed) if path.suffix in (".py", ".pyi")]
    if python:
        ruff = [sys.executable, "-m", "ruff"]
        subprocess.run([*ruff, "check", "--quiet", "--select", "I", "--fix", *python], check=True)
        subprocess.run([*ruff, "format", "--quiet", *python], check=True)
    print(f"{len(moved)} files moved, {len(set(changed))} written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
