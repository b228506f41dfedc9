"""Write the table of backends of docs/backends.md: what each claims, which tiers it may
serve, and how that is tested.

    python -m tools.support_matrix            write it
    python -m tools.support_matrix --check    exit 1 where what is written is stale

Everything comes from what the tests hold the backends to: the claims pinned in their
contract harnesses, the engine's needs, the image names, and what CI requires.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from memory.ports.capabilities import CACHE_NEEDS, FLAGS, HOME_NEEDS, Capabilities
from memory.ports.contract.harness import Harness
from tests.contract.every_harness import DRIVEN, FILES
from tests.contract.harnesses import InMemory, Sqlite
from tests.support.backends import BACKENDS
from tests.support.servers import IMAGES

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "backends.md"
BEGIN, END = "<!-- support matrix: make docs -->", "<!-- end of support matrix -->"


MARKS = {flag: flag.replace("_", " ") for flag in FLAGS}


def tiers(claims: Capabilities) -> str:
    """What the engine lets it serve."""
    if claims.durable and not claims.missing(HOME_NEEDS):
        return "any" if claims.semantic else "any; by meaning with another in long"
    if not claims.missing(CACHE_NEEDS):
        return "short, as a cache; any where its loss is accepted"
    return "none"


def tested(name: str, required: set[str]) -> str:
    engine = BACKENDS[name].engine
    image = IMAGES.get(engine)
    on = f"`{image.default}`" if image is not None else engine
    return f"CI, on {on}" if name in required else f"written, **not run** here (needs {on})"


def required() -> set[str]:
    """The backends without which CI fails."""
    found = re.search(r"MEMORY_REQUIRE:-([\w,]+)\}", (ROOT / ".ci" / "run").read_text())
    assert found is not None, ".ci/run names no backends that it requires"
    return set(found[1].split(","))


def table() -> str:
    everyone: tuple[type[Harness], ...] = (Sqlite, InMemory, *FILES, *DRIVEN)
    harnesses = {h.name: h for h in everyone}
    shown = {name: backend.shown for name, backend in BACKENDS.items() if backend.shown}
    assert set(harnesses) == set(shown), "every backend is shown, and nothing else"
    in_ci = required()
    lines = [
        f"| backend | tiers | {' | '.join(MARKS.values())} | tested |",
        f"|---|---|{'---|' * len(FLAGS)}---|",
    ]
    for name, url in shown.items():
        claims = harnesses[name].claims
        flags = " | ".join("✓" if getattr(claims, flag) else "" for flag in FLAGS)
        lines.append(f"| {url} | {tiers(claims)} | {flags} | {tested(name, in_ci)} |")
    return "\n".join(lines)


def written(page: str) -> str:
    """Replace the table of the page by the current one."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    assert begin, f"{PAGE.name} has no line {BEGIN}"
    assert end, f"{PAGE.name} has no line {END}"
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


def main(arguments: list[str]) -> int:
    text = PAGE.read_text(encoding="utf-8")
    fresh = written(text)
    if "--check" in arguments:
        if fresh != text:
            sys.stderr.write("the table in docs/backends.md is stale: run `make docs`\n")
            return 1
        return 0
    PAGE.write_text(fresh, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
