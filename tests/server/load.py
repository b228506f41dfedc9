"""Fifty clients that write to servers, and what must be there of it afterwards."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx

from tests.server.support import ENTRIES

CLIENTS = 50
UNDER_WAY = ("request_under_way", "too_much_contention")
"""Codes of a 409 after which the same request is to be sent again."""


def key_headers(key: str | None, request: str | None = None) -> dict[str, str]:
    """The headers of a request with a key, and perhaps an id."""
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    return headers if request is None else {**headers, "Idempotency-Key": request}


@asynccontextmanager
async def connected() -> AsyncIterator[httpx.AsyncClient]:
    """A client with as many connections as it needs, and no hurry.

    It leaves idle connections sooner than a server does, so that none ends under it.
    """
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=2.0)
    async with httpx.AsyncClient(timeout=120, limits=limits, trust_env=False) as http:
        yield http


def check_problem(answer: httpx.Response) -> str:
    """Check that an error is a whole problem document, and return its code."""
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    problem = answer.json()
    assert problem["status"] == answer.status_code
    assert "Traceback" not in answer.text
    return str(problem["code"])


class Load:
    """Clients that write entries and messages, each with a text of its own.

    With `repeats`, a request has an `Idempotency-Key`, and a client sends it to one
    server after the other until it is acknowledged. Otherwise each is sent once.

    Args:
        http: The client that all share.
        urls: The addresses of the servers, which may change meanwhile.
        key: The key of the clients.
        repeats: Whether requests are repeated.
    """

    def __init__(self, http: httpx.AsyncClient, urls: list[str], key: str | None, *, repeats: bool) -> None:
        self.http, self.urls, self.key, self.repeats = http, urls, key, repeats
        self.stored: dict[str, str] = {}
        """The id of each acknowledged entry, by its text."""
        self.said: list[str] = []
        """The acknowledged messages."""
        self.unanswered: set[str] = set()
        """Texts of requests whose connection broke."""
        self.refused: Counter[tuple[int, str]] = Counter()
        """Errors, by status and code."""
        self.breaks = 0
        self._ended = False
        self._changed = asyncio.Condition()

    def end(self) -> None:
        self._ended = True

    async def reaches(self, more: int) -> None:
        """Wait until so many more requests were acknowledged."""
        wanted = len(self.stored) + len(self.said) + more
        async with self._changed:
            await self._changed.wait_for(lambda: len(self.stored) + len(self.said) >= wanted)

    async def is_refused(self, more: int) -> None:
        """Wait until so many more requests were answered with an error."""
        wanted = self.refused.total() + more
        async with self._changed:
            await self._changed.wait_for(lambda: self.refused.total() >= wanted)

    async def run(self) -> None:
        """Write from all clients until `end`."""
        await asyncio.gather(*[self._client(number) for number in range(CLIENTS)])

    async def _client(self, number: int) -> None:
        made = 0
        while not self._ended:
            await self.write(number, made)
            made += 1

    async def write(self, client: int, number: int) -> None:
        """Make one request of a client, again until it is acknowledged if it repeats."""
        text = f"text {client}.{number}"
        path, body = _request_of(client, number, text)
        for turn in range(client, client + 10_000):
            request = text if self.repeats else None
            try:
                answer = await self.http.post(
                    self.urls[turn % len(self.urls)] + path, json=body, headers=key_headers(self.key, request)
                )
            except httpx.ConnectError:
                self.breaks += 1
                answer = None
            except httpx.TransportError:
                self.breaks += 1
                self.unanswered.add(text)
                answer = None
            if answer is not None and answer.is_success:
                await self._note(text, path, answer.json())
                return
            if answer is not None:
                code = check_problem(answer)
                self.refused[answer.status_code, code] += 1
                assert answer.status_code in (429, 503) or code in UNDER_WAY, answer.text
            await self._notify()
            await asyncio.sleep(0.05)
            if not self.repeats:
                return

    async def _note(self, text: str, path: str, answer: Mapping[str, Any]) -> None:
        if path == ENTRIES:
            self.stored[text] = answer["id"]
        else:
            self.said.append(text)
        self.unanswered.discard(text)
        await self._notify()

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def check(self, *, whole: bool) -> None:
        """Check that everything acknowledged is there once, in the order of each client.

        Args:
            whole: Whether nothing else may be there. Otherwise, requests without an
                answer may have been carried out too.
        """
        print(f"{len(self.stored)} entries, {len(self.said)} messages, {self.breaks} broken connections,")
        print(f"{len(self.unanswered)} without an answer; refused: {dict(self.refused)}")
        every = [one async for one in pages(self.http, self.urls[0] + ENTRIES, self.key, "entries")]
        entries = [one for one in every if one["content"].startswith("text ")]
        found = Counter(one["content"] for one in entries)
        ids = {one["content"]: one["id"] for one in entries}
        assert {text: ids.get(text) for text in self.stored} == self.stored
        said: Counter[str] = Counter()
        for number in range(CLIENTS):
            history = [text async for text in history_of(self.http, self.urls[0], self.key, f"s{number}")]
            said.update(history)
            acknowledged = [text for text in self.said if text.startswith(f"text {number}.")]
            assert [text for text in history if text in set(acknowledged)] == acknowledged
        assert set(self.said) <= said.keys()
        everything = found + said
        assert max(everything.values(), default=1) == 1, everything.most_common(3)
        more = everything.keys() - self.stored.keys() - set(self.said)
        assert more <= (set() if whole else self.unanswered), sorted(more)[:5]


def _request_of(client: int, number: int, text: str) -> tuple[str, dict[str, Any]]:
    """The path and the body of a request: entries of two kinds of scopes, or a message."""
    if number % 3 == 2:
        message = {"role": "user", "content": text}
        return f"/v1/sessions/s{client}/messages", {"messages": [message], "user": f"u{client}"}
    return ENTRIES, {"content": text, "scope": f"session:s{client}" if number % 3 else f"user:u{client}"}


async def pages(
    http: httpx.AsyncClient, url: str, key: str | None, field: str, **query: Any
) -> AsyncIterator[dict[str, Any]]:
    """All records of a list."""
    query["limit"] = 500
    while True:
        answer = await http.get(url, params=query, headers=key_headers(key))
        assert answer.status_code == 200, answer.text
        page = answer.json()
        for one in page[field]:
            yield one
        if page["cursor"] is None:
            return
        query["cursor"] = page["cursor"]


async def history_of(http: httpx.AsyncClient, url: str, key: str | None, session: str) -> AsyncIterator[str]:
    """The texts of a session, in order; none if it does not exist."""
    place = f"{url}/v1/sessions/{session}"
    if (await http.get(place, headers=key_headers(key))).status_code == 404:
        return
    async for item in pages(http, f"{place}/messages", key, "items"):
        yield item["message"]["text"] if "text" in item["message"] else item["message"]["content"]
