"""The behaviours that ADK asks of a session service, and what its users do."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from google.adk.errors import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.sessions import Session
from google.adk.sessions.base_session_service import GetSessionConfig
from google.adk.tools.tool_confirmation import ToolConfirmation
from google.genai import types

from memory import BlockingMemory, InvalidInput, Memory
from tests.fitness.google_adk.adapter import MemorySessionService
from tests.fitness.google_adk.state import session_key

ADA: dict[str, Any] = {"app_name": "boats", "user_id": "ada"}
BOB: dict[str, Any] = {"app_name": "boats", "user_id": "bob"}


@pytest.fixture
async def memory(config: dict[str, Any]) -> AsyncIterator[Memory]:
    async with Memory(config, loop="own") as opened:
        yield opened


@pytest.fixture
def service(memory: Memory) -> MemorySessionService:
    return MemorySessionService(memory)


def event(text: str | None = None, *, state: dict[str, Any] | None = None, **more: Any) -> Event:
    content = None if text is None else types.Content(role="user", parts=[types.Part(text=text)])
    fields = {"invocation_id": "run", "author": "user", **more}
    return Event(content=content, actions=EventActions(state_delta=state or {}), **fields)


async def get(service: MemorySessionService, session: Session, **config: Any) -> Session:
    found = await service.get_session(
        app_name=session.app_name,
        user_id=session.user_id,
        session_id=session.id,
        config=GetSessionConfig(**config) if config else None,
    )
    assert found is not None
    return found


def texts(session: Session) -> list[str]:
    return [one.content.parts[0].text for one in session.events]


class TestLife:
    async def test_a_session_is_created_read_and_deleted(self, service: MemorySessionService) -> None:
        assert await service.get_session(**ADA, session_id="none") is None
        made = await service.create_session(**ADA, state={"key": "value"})
        assert made.id
        assert made.state == {"key": "value"}
        assert made.last_update_time <= time.time()
        assert await get(service, made) == made
        await service.delete_session(**ADA, session_id=made.id)
        assert await service.get_session(**ADA, session_id=made.id) is None
        await service.delete_session(**ADA, session_id=made.id)

    async def test_an_id_is_used_once_and_without_padding(self, service: MemorySessionService) -> None:
        await service.create_session(**ADA, session_id="s", state={"keep": 1})
        for same in ("s", "  s  "):
            with pytest.raises(AlreadyExistsError, match="s already exists"):
                await service.create_session(**ADA, session_id=same, state={"keep": 2})
        padded = await service.get_session(**ADA, session_id=" s ")
        assert padded is not None
        assert (padded.id, padded.state) == ("s", {"keep": 1})
        assert (await service.create_session(**ADA, session_id="   ")).id.strip()
        await service.delete_session(**ADA, session_id=" s ")
        assert (await service.create_session(**ADA, session_id="s")).state == {}

    async def test_one_of_two_creators_wins(self, service: MemorySessionService) -> None:
        made = await asyncio.gather(
            *(service.create_session(**ADA, session_id="race", state={"by": n}) for n in range(6)),
            return_exceptions=True,
        )
        won = [one for one in made if isinstance(one, Session)]
        assert len(won) == 1
        assert all(isinstance(one, AlreadyExistsError) for one in made if one is not won[0])
        assert (await get(service, won[0])).state == won[0].state

    async def test_sessions_are_listed_by_their_update(self, service: MemorySessionService) -> None:
        for name in ("a", "b", "c"):
            await service.create_session(**ADA, session_id=name, state={"name": name, "user:pet": "cat"})
        await service.create_session(**BOB, session_id="a", state={"name": "bob's", "app:open": True})
        await service.create_session(app_name="other", user_id="ada", session_id="a")
        first = await service.get_session(**ADA, session_id="a")
        assert first is not None
        await service.append_event(first, event("news"))
        mine = (await service.list_sessions(**ADA)).sessions
        assert [one.id for one in mine] == ["b", "c", "a"]
        assert all(one.events == [] for one in mine)
        assert mine[2].state == {"name": "a", "user:pet": "cat", "app:open": True}
        everyone = (await service.list_sessions(app_name="boats")).sessions
        assert sorted((one.user_id, one.id) for one in everyone) == [
            ("ada", "a"),
            ("ada", "b"),
            ("ada", "c"),
            ("bob", "a"),
        ]
        assert (await service.list_sessions(app_name="none")).sessions == []

    async def test_apps_users_and_tenants_never_mix(
        self, memory: Memory, service: MemorySessionService
    ) -> None:
        """Ids with slashes and wildcards name one session each."""
        names = ["a", "a/b", "b", "%", "*", "ü"]
        for app in names:
            for user in names:
                await service.create_session(
                    app_name=app, user_id=user, session_id="b", state={"of": [app, user]}
                )
        for app in names:
            assert len((await service.list_sessions(app_name=app)).sessions) == len(names)
            for user in names:
                found = await service.get_session(app_name=app, user_id=user, session_id="b")
                assert found is not None
                assert found.state == {"of": [app, user]}
        other = MemorySessionService(memory.for_tenant("globex"))
        assert (await other.list_sessions(app_name="a")).sessions == []

    async def test_an_erased_user_leaves_nothing(self, memory: Memory, service: MemorySessionService) -> None:
        made = await service.create_session(**ADA, session_id="s", state={"user:secret": 1, "mine": 2})
        await service.append_event(made, event("a secret"))
        await memory.admin.erase_user("ada")
        assert await service.get_session(**ADA, session_id="s") is None
        assert (await service.list_sessions(app_name="boats")).sessions == []
        assert await service.get_user_state(**ADA) == {}


class TestState:
    async def test_app_and_user_state_are_shared(self, service: MemorySessionService) -> None:
        first = await service.create_session(**ADA, state={"app:a": 1, "user:u": 1, "s": 1, "temp:t": 1})
        assert first.state == {"app:a": 1, "user:u": 1, "s": 1}
        await service.append_event(first, event(state={"app:b": 2, "user:v": 2, "r": 2}))
        assert first.state == {"app:a": 1, "app:b": 2, "user:u": 1, "user:v": 2, "s": 1, "r": 2}
        assert (await get(service, first)).state == first.state
        second = await service.create_session(**ADA)
        assert second.state == {"app:a": 1, "app:b": 2, "user:u": 1, "user:v": 2}
        third = await service.create_session(**BOB)
        assert third.state == {"app:a": 1, "app:b": 2}
        assert await service.get_user_state(**ADA) == {"u": 1, "v": 2}
        assert await service.get_user_state(**BOB) == {}
        assert (await service.create_session(app_name="other", user_id="ada")).state == {}

    async def test_values_replace_and_none_is_a_value(self, service: MemorySessionService) -> None:
        before = {
            f"{level}{name}": value
            for level in ("", "user:", "app:")
            for name, value in {
                "profile": {"name": "ada", "role": "admin"},
                "flag": False,
                "pref": "dark",
            }.items()
        }
        session = await service.create_session(**ADA, state=before)
        delta: dict[str, Any] = {}
        for level in ("", "user:", "app:"):
            delta |= {
                f"{level}profile": {"name": "bob"},
                f"{level}pref": None,
                f"{level}": "",
                f"{level}=": 1,
            }
        await service.append_event(session, event(state=delta))
        for found in (session, await get(service, session)):
            assert found.state == before | delta
            assert found.state["flag"] is False

    async def test_temporary_state_is_not_stored(self, service: MemorySessionService) -> None:
        session = await service.create_session(**ADA)
        said = event(state={"temp:out": "one", "kept": "two"})
        await service.append_event(session, said)
        assert session.state == {"temp:out": "one", "kept": "two"}
        assert said.actions.state_delta == {"kept": "two"}
        found = await get(service, session)
        assert found.state == {"kept": "two"}
        assert found.events[0].actions.state_delta == {"kept": "two"}

    async def test_what_is_no_json_becomes_a_text(self, service: MemorySessionService) -> None:
        session = await service.create_session(**ADA)
        await service.append_event(session, event(state={"call": lambda: 1, "ok": 2, "user:call": object()}))
        found = await get(service, session)
        assert found.state["ok"] == 2
        assert isinstance(found.state["call"], str)
        assert isinstance(found.state["user:call"], str)

    async def test_shared_state_loses_no_change(self, service: MemorySessionService) -> None:
        """Sixteen sessions change the state of their user and of the app at once."""
        sessions = [await service.create_session(**ADA) for _ in range(16)]
        await asyncio.gather(
            *(
                service.append_event(one, event(state={f"user:{n}": n, f"app:{n}": n}))
                for n, one in enumerate(sessions)
            )
        )
        assert await service.get_user_state(**ADA) == {str(n): n for n in range(16)}
        assert len((await service.create_session(**BOB)).state) == 16

    async def test_a_state_that_is_too_large_changes_nothing(self, service: MemorySessionService) -> None:
        session = await service.create_session(**ADA, state={"small": 1})
        with pytest.raises(InvalidInput, match="state"):
            await service.append_event(session, event(state={"large": "x" * 70_000, "app:a": 1}))
        found = await get(service, session)
        assert (found.state, found.events) == ({"small": 1}, [])


class TestEvents:
    async def test_a_complete_event_comes_back_equal(self, service: MemorySessionService) -> None:
        session = await service.create_session(**ADA)
        whole = Event(
            invocation_id="run",
            author="user",
            content=types.Content(
                role="user",
                parts=[
                    types.Part(text="look"),
                    types.Part.from_bytes(data=b"\x00\xff" * 100, mime_type="image/png"),
                    types.Part(function_call=types.FunctionCall(id="1", name="f", args={"x": [1.5, None]})),
                ],
            ),
            turn_complete=True,
            partial=False,
            actions=EventActions(
                artifact_delta={"file": 0},
                transfer_to_agent="agent",
                escalate=True,
                requested_tool_confirmations={"1": ToolConfirmation(hint="sure?", payload={"id": "album"})},
            ),
            long_running_tool_ids={"tool"},
            error_code="code",
            error_message="message",
            interrupted=True,
            grounding_metadata=types.GroundingMetadata(
                search_entry_point=types.SearchEntryPoint(sdk_blob=b"blob")
            ),
            usage_metadata=types.GenerateContentResponseUsageMetadata(prompt_token_count=1),
            citation_metadata=types.CitationMetadata(),
            custom_metadata={"custom": "value"},
            timestamp=1_700_000_000.123,
            input_transcription=types.Transcription(text="in", finished=True),
        )
        session.last_update_time = 0
        await service.append_event(session, whole)
        assert await get(service, session) == session

    async def test_an_event_with_several_results_is_one_event(self, service: MemorySessionService) -> None:
        session = await service.create_session(**ADA)
        call = types.Content(
            role="model",
            parts=[
                types.Part(function_call=types.FunctionCall(id=str(n), name="f", args={"n": n}))
                for n in range(3)
            ],
        )
        result = types.Content(
            role="user",
            parts=[
                types.Part(function_response=types.FunctionResponse(id=str(n), name="f", response={"n": n}))
                for n in range(3)
            ],
        )
        for number in range(4):
            await service.append_event(session, event(f"question {number}"))
            await service.append_event(session, Event(invocation_id="run", author="helper", content=call))
            await service.append_event(
                session,
                Event(
                    invocation_id="run",
                    author="helper",
                    content=result,
                    actions=EventActions(state_delta={"n": number}),
                ),
            )
        found = await get(service, session)
        assert found == session
        for most in range(1, 13):
            assert (await get(service, session, num_recent_events=most)).events == session.events[-most:]

    async def test_the_newest_events(self, service: MemorySessionService) -> None:
        session = await service.create_session(**ADA)
        start = int(time.time())
        for number in range(1, 6):
            await service.append_event(session, event(str(number), timestamp=start + number))
        assert texts(await get(service, session)) == ["1", "2", "3", "4", "5"]
        cases: list[tuple[dict[str, Any], list[str]]] = [
            ({"num_recent_events": 0}, []),
            ({"num_recent_events": 3}, ["3", "4", "5"]),
            ({"num_recent_events": 9}, ["1", "2", "3", "4", "5"]),
            ({"after_timestamp": start + 4}, ["4", "5"]),
            ({"after_timestamp": start + 99}, []),
            ({"after_timestamp": start - 9}, ["1", "2", "3", "4", "5"]),
            ({"after_timestamp": start + 4, "num_recent_events": 3}, ["4", "5"]),
            ({"after_timestamp": start + 2, "num_recent_events": 2}, ["4", "5"]),
        ]
        for asked, expected in cases:
            found = await get(service, session, **asked)
            assert texts(found) == expected, asked
            assert found.last_update_time == session.last_update_time

    async def test_long_sessions(self, service: MemorySessionService) -> None:
        session = await service.create_session(**ADA)
        for number in range(120):
            await service.append_event(session, event(f"text {number}" + "x" * 2_000, state={"n": number}))
        found = await get(service, session)
        assert found == session
        assert (await get(service, session, num_recent_events=100)).events == session.events[-100:]

    async def test_partial_events_are_not_stored(self, service: MemorySessionService) -> None:
        session = await service.create_session(**ADA)
        partial = event("par", partial=True)
        assert await service.append_event(session, partial) is partial
        assert session.events == []
        assert (await get(service, session)).events == []

    async def test_the_update_is_that_of_the_event(self, service: MemorySessionService) -> None:
        session = await service.create_session(**ADA)
        moment = session.last_update_time + 10
        await service.append_event(session, event(timestamp=moment))
        assert session.last_update_time == moment
        assert (await get(service, session)).last_update_time == moment

    async def test_a_deleted_or_unknown_session(self, service: MemorySessionService) -> None:
        session = await service.create_session(**ADA)
        await service.delete_session(**ADA, session_id=session.id)
        for gone in (session, Session(**ADA, id="never")):
            with pytest.raises(SessionNotFoundError, match="not found"):
                await service.append_event(gone, event("lost"))
        assert (await service.list_sessions(**ADA)).sessions == []

    async def test_a_stale_session_changes_nothing(self, service: MemorySessionService) -> None:
        session = await service.create_session(**ADA)
        stale = session.model_copy(deep=True)
        await service.append_event(session, event("first", state={"a": 1}))
        with pytest.raises(StaleSessionError, match="modified in storage"):
            await service.append_event(stale, event("second", state={"b": 1, "app:b": 1}))
        found = await get(service, session)
        assert texts(found) == ["first"]
        assert found.state == {"a": 1}

    async def test_one_of_two_writers_wins(self, config: dict[str, Any]) -> None:
        """Two processes read the same session, and both append."""
        async with Memory(config, loop="own") as one, Memory(config, loop="own") as other:
            services = [MemorySessionService(one), MemorySessionService(other)]
            session = await services[0].create_session(**ADA)
            for number in range(5):
                both = [await get(service, session) for service in services]
                results = await asyncio.gather(
                    *(
                        service.append_event(seen, event(f"{number}", state={f"{number}-{n}": n}))
                        for n, (service, seen) in enumerate(zip(services, both, strict=True))
                    ),
                    return_exceptions=True,
                )
                assert sorted(type(result).__name__ for result in results) == ["Event", "StaleSessionError"]
            found = await get(services[1], session)
            assert texts(found) == ["0", "1", "2", "3", "4"]
            assert len(found.state) == 5

    async def test_a_session_without_marker(self, service: MemorySessionService) -> None:
        """A session that was made from JSON is compared by its time."""
        session = await service.create_session(**ADA)
        await service.append_event(session, event("first"))
        copy = Session.model_validate_json(session.model_dump_json())
        await service.append_event(copy, event("second"))
        old = Session.model_validate_json(session.model_dump_json())
        with pytest.raises(StaleSessionError):
            await service.append_event(old, event("third"))
        assert texts(await get(service, session)) == ["first", "second"]

    async def test_an_event_that_comes_again_is_stored_once(self, service: MemorySessionService) -> None:
        session = await service.create_session(**ADA)
        before = session.model_copy(deep=True)
        said = event("once", state={"n": 1, "user:n": 1})
        await service.append_event(session, said)
        await service.append_event(session, said)
        await service.append_event(before, said)  # the answer to the first call was lost
        for seen in (session, before):
            assert texts(seen) == ["once"]
        await service.append_event(before, event("twice"))
        assert texts(await get(service, session)) == ["once", "twice"]
        with pytest.raises(AlreadyExistsError, match="another event"):
            await service.append_event(before, event("other", id=said.id))
        assert texts(await get(service, session)) == ["once", "twice"]

    async def test_the_memory_has_the_conversation(
        self, memory: Memory, service: MemorySessionService
    ) -> None:
        """Other users of the memory find and read the messages."""
        session = await service.create_session(**ADA)
        await service.append_event(session, event("the sloop leaks", state={"n": 1}))
        (hit,) = await memory.search_messages("sloop", user="ada")
        assert hit.session_id == session_key("boats", "ada", session.id)
        window = await memory.session(hit.session_id).context()
        assert list(window.to("openai")) == [{"role": "user", "content": "the sloop leaks"}]

    def test_any_event_loop(self, config: dict[str, Any]) -> None:
        memory = Memory(config, loop="own")
        with BlockingMemory(memory):
            service = MemorySessionService(memory)

            async def talk(number: int) -> list[str]:
                session = await service.create_session(**ADA, session_id=str(number))
                for text in "abc":
                    await service.append_event(session, event(text))
                return texts(await get(service, session))

            with ThreadPoolExecutor(4) as pool:
                assert list(pool.map(lambda n: asyncio.run(talk(n)), range(8))) == [["a", "b", "c"]] * 8
