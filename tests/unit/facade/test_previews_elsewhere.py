"""An erasure beside another process that lists the same sessions all the time: what it
shows from then on has nothing of the erased text.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from memory import Memory

SESSIONS = 10
LIMIT = 60
"""Seconds, for a machine that is very busy: an answer of the other process is waited
for, and nothing else.
"""
ELSEWHERE = """
import asyncio, json, sys
from memory import Memory

async def main():
    async with Memory(sys.argv[1], embedder="none") as memory:
        async def lists():
            while True:
                await memory.sessions.list()

        listing = asyncio.create_task(lists())
        print("ready", flush=True)
        while asked := (await asyncio.to_thread(sys.stdin.readline)).split():
            call, name = asked
            session, shown = memory.session(name), []
            if call == "say":
                await session.append({"role": "assistant", "content": "ok"})
            else:
                shown += [info.preview for info in (await memory.sessions.list()).sessions if info.id == name]
                shown += [(await memory.sessions.get(name)).preview, (await session.info()).preview]
                shown += [message.text for message in (await session.context()).messages]
                shown += [found.message.text for found in await memory.search_messages("secret")]
            print(json.dumps(shown), flush=True)
        listing.cancel()

asyncio.run(main())
"""


class OtherProcess:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._stdin, self._stdout = process.stdin, process.stdout

    async def answer(self) -> str:
        return (await asyncio.wait_for(self._stdout.readline(), LIMIT)).decode().strip()

    async def ask(self, *words: str) -> Any:
        self._stdin.write(" ".join(words).encode() + b"\n")
        return json.loads(await self.answer())


@pytest.mark.thorough
async def test_no_preview_of_another_process_has_what_was_erased(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/m.db"
    async with Memory(url, embedder="none") as memory:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", ELSEWHERE, url, stdin=pipe, stdout=pipe
        )
        other = OtherProcess(process)
        assert await other.answer() == "ready"
        for number in range(SESSIONS):
            session, secret = memory.session(f"s{number}", user="ada"), f"secret {number} onyxfish"
            await session.append({"id": "m1", "role": "user", "content": secret})
            assert await other.ask("say", f"s{number}") == []
            if number % 2:
                assert secret in await other.ask("show", f"s{number}")
            await session.erase("m1")
            shown = await other.ask("show", f"s{number}")
            assert "ok" in shown
            assert "onyxfish" not in str(shown)
        await asyncio.wait_for(process.communicate(b"\n"), LIMIT)
        assert process.returncode == 0
        assert not [line async for line in memory.admin.export() if "onyxfish" in str(line)]
