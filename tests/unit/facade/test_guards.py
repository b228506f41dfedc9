"""What a configuration puts around a store: `timeout`, `retry`, `breaker`, `telemetry`."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from memory import Memory
from memory.adapters.wrappers.base import Wrapper
from memory.domain.errors import ConfigError
from memory.facade.config.settings import MemoryConfig, load
from memory.facade.runtime.build import build_engine
from memory.ports.clock import system_clock
from memory.ports.contract.cells import cells

URL = "memory://"


def layers(config: MemoryConfig) -> list[str]:
    """The names of what stands around the short store, from the outside in."""
    store: Any = build_engine(config, embedder=None, clock=system_clock).topology.serving["short"]
    names = []
    while isinstance(store, Wrapper):
        names.append(type(store).__name__)
        store = store.inner
    return names


def around(**settings: Any) -> MemoryConfig:
    telemetry = settings.pop("telemetry", False)
    return MemoryConfig(stores={"main": {"url": URL, **settings}}, telemetry=telemetry, embedder="none")


def test_nothing_stands_around_a_store_unless_set() -> None:
    assert layers(around()) == []


def test_each_stands_at_its_place() -> None:
    assert layers(around(timeout="2s", retry=3, breaker=5, telemetry=True)) == [
        "Telemetry",
        "CircuitBreaker",
        "Retry",
        "Timeout",
    ]
    assert layers(around(retry={"attempts": 2})) == ["Retry"]


def test_tables_and_single_numbers_are_read() -> None:
    config = around(timeout="250ms", retry=4, breaker={"failures": 2, "cool_down": "1m"})
    main = config.stores["main"]
    assert main.timeout == timedelta(milliseconds=250)
    assert main.retry is not None
    assert (main.retry.attempts, main.retry.backoff) == (4, timedelta(milliseconds=100))
    assert main.breaker is not None
    assert (main.breaker.failures, main.breaker.cool_down) == (2, timedelta(minutes=1))


def test_they_come_from_file_and_environment_and_are_shown_with_their_origin(tmp_path: Path) -> None:
    (tmp_path / "memory.toml").write_text(
        f'[stores.main]\nurl = "{URL}"\ntimeout = "3s"\nretry = {{ attempts = 5 }}\n'
    )
    config = load(
        environ={"MEMORY__STORES__MAIN__RETRY__BACKOFF": "1s", "MEMORY__STORES__MAIN__BREAKER": "7"},
        folder=tmp_path,
    )
    shown = config.leaves()
    assert shown["stores.main.timeout"] == "3s"
    assert (shown["stores.main.retry.attempts"], shown["stores.main.retry.backoff"]) == (5, "1s")
    assert (shown["stores.main.breaker.failures"], shown["stores.main.breaker.cool_down"]) == (7, "10s")
    assert config.origins["stores.main.retry.backoff"] == "MEMORY__STORES__MAIN__RETRY__BACKOFF"
    assert config.origins["stores.main.timeout"].endswith("memory.toml:3")


@cells(
    "settings, problem",
    [
        ({"timeout": "0s"}, r"stores\.main\.timeout: should be longer than zero"),
        ({"timeout": "soon"}, r"stores\.main\.timeout: should be a duration"),
        ({"retry": 0}, r"stores\.main\.retry\.attempts: must be at least 1"),
        (
            {"retry": {"tries": 3}},
            r"there is no setting 'tries' in \[stores\.main\.retry\].*known: attempts, backoff",
        ),
        (
            {"breaker": {"failures": 3, "cooldown": "1s"}},
            r"there is no setting 'cooldown'.*did you mean 'cool_down'",
        ),
        ({"breaker": "often"}, r"stores\.main\.breaker\.failures"),
    ],
    shared=True,
)
def test_what_cannot_be_is_refused_by_name(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        around(**settings)


async def test_a_guarded_memory_works_as_a_bare_one() -> None:
    async with Memory(around(timeout="5s", retry=2, breaker=3, telemetry=True)) as memory:
        entry = await memory.write("The kettle is red", scope="user:ada")
        assert [hit.entry.id for hit in await memory.search("kettle", scope="user:ada")] == [entry.id]


def test_telemetry_without_its_package_says_what_to_install(tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "from memory import Memory\n"
        "import asyncio, json\n"
        "async def main():\n"
        "    try:\n"
        "        async with Memory('memory://', telemetry=True): pass\n"
        "    except Exception as error: print(json.dumps([type(error).__name__, str(error)]))\n"
        "asyncio.run(main())\n"
    )
    told = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path
    ).stdout
    kind, message = json.loads(told)
    assert kind == "ConfigError"
    assert "pip install 'memory-tiers[telemetry]'" in message
