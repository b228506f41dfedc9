"""What somebody does next with a session: drawn by chance from what the model knows to
be there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.model.sessions.talk import REMEMBER, Line, Talk
from tests.model.words import is_own

if TYPE_CHECKING:
    from tests.model.generate import Drawn, Generator
    from tests.model.run import Run

NAMED = ("s1", "s2", "s3", "c1", "c2", "c1/part")
"""Some have entries of their scope too."""
USERS, AGENTS, SPACES = ("ada", "bob", None), ("guide", "clerk", None), ("work", None)
LONG = 110
"""Lines beyond which a session is soon deleted."""
REASONS = ("manual", "empty_response", "invalid_input", "of no use")

Draw = Callable[["Generator", "Run", str], "Drawn | None"]


# -- of what to speak ------------------------------------------------------------------


def _talk(g: Generator, run: Run, tenant: str) -> Talk | None:
    talks = run.talks.of(tenant, run.clock.now)
    return g.chance.choice(talks) if talks else None


def _line(g: Generator, talk: Talk, *, among: list[Line] | None = None) -> Line | None:
    """Mostly one of the newest."""
    lines = [line for line in (talk.lines if among is None else among) if line.ref is not None]
    if not lines:
        return None
    return g.chance.choice(lines[-8:] if g.chance.random() < 0.7 else lines)


def _of_line(kind: str, more: Callable[[Generator], dict[str, Any]] = lambda g: {}) -> Draw:
    def draw(g: Generator, run: Run, tenant: str) -> Drawn | None:
        talk = _talk(g, run, tenant)
        line = None if talk is None else _line(g, talk)
        return (
            None
            if talk is None or line is None
            else (kind, {"session": talk.id, "message": line.ref, **more(g)})
        )

    return draw


def _of_talk(kind: str, more: Callable[[Generator], dict[str, Any]] = lambda g: {}) -> Draw:
    def draw(g: Generator, run: Run, tenant: str) -> Drawn | None:
        talk = _talk(g, run, tenant)
        return None if talk is None else (kind, {"session": talk.id, **more(g)})

    return draw


# -- what to say -----------------------------------------------------------------------


def _draft(g: Generator) -> dict[str, Any]:
    may, draft = g.chance.random, dict[str, Any]()
    draft |= {
        "user": g.chance.choice(USERS),
        "agent": g.chance.choice(AGENTS),
        "namespace": g.chance.choice(SPACES),
    }
    draft |= {"system": g.text("sys")} if may() < 0.6 else {}
    draft |= {"title": g.chance.choice(("Plans", "ünï talk"))} if may() < 0.3 else {}
    draft |= {"tags": g.chance.sample(("red", "blue", "to do"), g.chance.choice((0, 1, 2)))}
    draft |= {"metadata": {"number": g.number}} if may() < 0.3 else {}
    draft |= {"expires_at": {"in": g.chance.choice((3.5, 3_600.5, 86_400.5))}} if may() < 0.12 else {}
    return draft


def _text(g: Generator, part: str) -> str:
    return g.text(part) + (f" {REMEMBER}" if g.chance.random() < 0.3 else "")


def _message(g: Generator, part: str, role: str | None = None) -> dict[str, Any]:
    role = role or g.chance.choice(("user", "user", "assistant"))
    message: dict[str, Any] = {"role": role, "content": _text(g, part)}
    message |= {"id": f"m{g.number}-{part}"} if g.chance.random() < 0.6 else {}
    return message | (
        {"name": g.chance.choice(("ada", "bob"))} if role == "user" and g.chance.random() < 0.3 else {}
    )


def _called(g: Generator) -> list[dict[str, Any]]:
    """A call of one or two tools, answered in full, in part, in another order, late or
    never.
    """
    names = [f"call{g.number}{letter}" for letter in "ab"[: g.chance.choice((1, 1, 2))]]
    calls = [{"id": name, "name": "look", "arguments": "{}"} for name in names]
    asked = {"role": "assistant", "content": g.chance.choice(("", g.text("ask"))), "tool_calls": calls}
    answered = g.chance.sample(names, g.chance.choice((0, 1, len(names))))
    results = [
        {"role": "tool", "content": g.text(f"r{n}x"), "tool_call_id": name} for n, name in enumerate(answered)
    ]
    return [asked, *results]


def _messages(g: Generator) -> list[dict[str, Any]]:
    if g.chance.random() < 0.2:
        return _called(g)
    return [_message(g, f"t{n}x") for n in range(g.chance.choice((1, 1, 1, 2, 3, 12)))]


def _say(g: Generator, run: Run, tenant: str) -> Drawn | None:
    messages = _messages(g)
    args: dict[str, Any] = {"session": g.chance.choice(NAMED), "messages": messages, "draft": _draft(g)}
    talk = run.talks.get(tenant, args["session"], run.clock.now)
    if talk is not None and g.chance.random() < 0.05 and len(talk.lines) < LONG / 2:
        args["messages"] = messages = [
            _message(g, f"t{n}x") for n in range(70)
        ]  # a log that is longer than what is read at once
    args |= {"several": True} if len(messages) > 1 or g.chance.random() < 0.3 else {}
    return "say", args | ({"in_history": False} if g.chance.random() < 0.05 else {})


def _answer(g: Generator, run: Run, tenant: str) -> Drawn | None:
    """The result of a call that has none, or has one already."""
    talk = _talk(g, run, tenant)
    calls = [] if talk is None else [call for line in talk.lines for call, _ in line.said["calls"]]
    if talk is None or not calls:
        return None
    message = {"role": "tool", "content": g.text("late"), "tool_call_id": g.chance.choice(calls[-4:])}
    return "say", {"session": talk.id, "messages": [message], "draft": {}}


def _say_again(g: Generator, run: Run, tenant: str) -> Drawn | None:
    drawn = _of_line("say_again")(g, run, tenant)
    if drawn is None:
        return None
    content = None if g.chance.random() < 0.3 else _text(g, "again")
    return "say_again", drawn[1] | {
        "content": content,
        "messages": [_message(g, "newx")] if g.chance.random() < 0.4 else [],
    }


def _say_together(g: Generator, run: Run, tenant: str) -> Drawn | None:
    talk = _talk(g, run, tenant)
    line = None if talk is None else _line(g, talk)
    if talk is None:
        return None
    messages = [_message(g, f"w{n}x", "user") for n in range(g.chance.choice((2, 3, 4)))]
    return "say_together", {
        "session": talk.id,
        "messages": messages,
        "out": line.ref if line is not None and g.chance.random() < 0.5 else None,
    }


def _stream(g: Generator) -> dict[str, Any]:
    text = _text(g, "p")
    cuts = sorted(g.chance.sample(range(len(text)), g.chance.choice((0, 1, 3))))
    pieces = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    return {"pieces": pieces if g.chance.random() < 0.95 else [], "breaks": g.chance.random() < 0.2}


def _amend(g: Generator, run: Run, tenant: str) -> Drawn | None:
    drawn = _of_line("amend")(g, run, tenant)
    if drawn is None:
        return None
    named = {"message": "system"} if g.chance.random() < 0.2 else {}
    return "amend", drawn[1] | named | {"content": _text(g, "am")}


def _fork(g: Generator, run: Run, tenant: str) -> Drawn | None:
    talk = _talk(g, run, tenant)
    if talk is None or len(talk.lines) > LONG:
        return None
    line = (
        _line(g, talk, among=[line for line in talk.lines if not line.is_redacted and line.window])
        if g.chance.random() < 0.6
        else None
    )
    return "fork", {
        "session": talk.id,
        "to": g.chance.choice(NAMED),
        "at": None if line is None else line.ref,
    }


def _restore(g: Generator, run: Run, tenant: str) -> Drawn | None:
    """Mostly one that was excluded."""
    talk = _talk(g, run, tenant)
    out = (
        []
        if talk is None
        else [line for line in talk.lines if line.excluded is not None and not line.is_redacted]
    )
    line = None if talk is None else _line(g, talk, among=out if out and g.chance.random() < 0.8 else None)
    return None if talk is None or line is None else ("restore", {"session": talk.id, "message": line.ref})


def _roll_back(g: Generator, run: Run, tenant: str) -> Drawn | None:
    """Mostly to a check-point of the session, now and then to one of another."""
    marks = run.talks.marks
    marked = {serial for serial, *_ in list(marks.values())[-20:]}
    talks = [talk for talk in run.talks.of(tenant, run.clock.now) if talk.serial in marked]
    talk = g.chance.choice(talks) if talks else _talk(g, run, tenant)
    own = [] if talk is None else [ref for ref, (serial, *_) in marks.items() if serial == talk.serial]
    among = own if own and g.chance.random() < 0.9 else list(marks)[-3:]
    return (
        None
        if talk is None or not among
        else ("roll_back", {"session": talk.id, "mark": among[-1], "reason": g.chance.choice(REASONS)})
    )


def _replace(g: Generator, run: Run, tenant: str) -> Drawn | None:
    talk = _talk(g, run, tenant)
    if talk is None:
        return None
    keep = [g.chance.random() < 0.8 for _ in range(g.chance.choice((1, 5, 9)))]
    messages = [_message(g, f"n{n}x") for n in range(g.chance.choice((0, 1, 2)))]
    args: dict[str, Any] = {
        "session": talk.id,
        "keep": keep,
        "messages": messages,
        "edit": g.text("ed") if g.chance.random() < 0.4 else None,
    }
    return "replace_window", args | {
        "meanwhile": _message(g, "mean", "user") if g.chance.random() < 0.3 else None
    }


def _summarise(g: Generator) -> dict[str, Any]:
    policy = g.chance.choice((None, None, "tokens", "messages", "turns"))
    return {
        "text": None if g.chance.random() < 0.06 else g.text("sum"),
        "policy": policy,
        "keep_last": g.chance.choice((0, 1, 2, 4, 9)),
    }


def _describe(g: Generator) -> dict[str, Any]:
    given = {
        "title": g.chance.choice(("Renamed", None)),
        "tags": ["blue"],
        "metadata": {"number": -g.number},
        "expires_at": g.chance.choice((None, g.expiry())),
    }
    return {"changes": {name: given[name] for name in g.chance.sample(list(given), g.chance.choice((1, 2)))}}


def _drop(g: Generator, run: Run, tenant: str) -> Drawn | None:
    """Mostly a long one."""
    long = [talk.id for talk in run.talks.of(tenant, run.clock.now) if len(talk.lines) > LONG]
    return ("drop", {"session": g.chance.choice(long or NAMED)}) if long or g.chance.random() < 0.4 else None


def _boundary(g: Generator, run: Run, tenant: str) -> Drawn | None:
    ends = [talk.id for talk in run.talks.of(tenant, run.clock.now) if talk.expires_at is not None]
    return ("session_boundary", {"session": g.chance.choice(ends)}) if ends else None


# -- beside the log, and reading -------------------------------------------------------


def _task(g: Generator) -> dict[str, Any]:
    task = {"title": g.text("task"), "status": g.chance.choice(("pending", "completed"))}
    name, is_part = f"t{g.chance.randrange(3)}", g.chance.random() < 0.3
    return {"task": name, "says": task | ({"parent_id": "t0"} if is_part and name != "t0" else {})}


def _run(g: Generator) -> dict[str, Any]:
    says = {
        "child_id": "c1/part",
        "status": g.chance.choice(("running", "completed")),
        "mode": "background",
        "message_count": g.number,
    }
    return {"run": f"r{g.chance.randrange(3)}", "says": says}


def _window(g: Generator) -> dict[str, Any]:
    return {"last": g.chance.choice((0, 1, 3, 10, 200)), "share": g.chance.choice((0.0, 0.2, 0.5, 0.9, 1.0))}


def _history(g: Generator, run: Run, tenant: str) -> Drawn | None:
    talk = _talk(g, run, tenant)
    if talk is None:
        return None
    may, asked = (
        g.chance.random,
        dict[str, Any](order=g.chance.choice(("oldest", "newest")), limit=g.chance.choice((1, 3, 40, 1000))),
    )
    asked |= {"first": g.chance.randrange(talk.count + 2)} if may() < 0.3 else {}
    asked |= {"last": g.chance.randrange(talk.count + 2)} if may() < 0.3 else {}
    asked |= {"roles": g.chance.sample(("system", "user", "assistant", "tool"), 2)} if may() < 0.2 else {}
    asked |= {"summaries": False} if may() < 0.2 else {}
    asked |= {"offset": g.chance.randrange(5)} if may() < 0.2 else {}
    asked |= {"compaction": g.chance.randrange(5)} if may() < 0.2 else {}
    refs = [line.ref for line in talk.lines if line.ref is not None]
    asked |= {"refs": g.chance.sample(refs, min(3, len(refs)))} if may() < 0.2 else {}
    return "read_history", {"session": talk.id, "asked": asked}


def _search(g: Generator, run: Run, tenant: str) -> Drawn | None:
    talk = _talk(g, run, tenant)
    words = (
        [] if talk is None else [word for line in talk.lines for word in line.text.split() if is_own(word)]
    )
    if talk is None or not words:
        return None
    own = {"user": talk.user, "agent": talk.agent, "namespace": talk.namespace}
    others: dict[str, tuple[str | None, ...]] = {"user": USERS, "agent": AGENTS, "namespace": SPACES}
    asked = {
        name: value if g.chance.random() < 0.6 else g.chance.choice(others[name])
        for name, value in own.items()
        if g.chance.random() < 0.3
    }
    asked = {name: value for name, value in asked.items() if value is not None}
    return "search_said", {
        "session": talk.id,
        "word": g.chance.choice(words),
        "here": g.chance.random() < 0.5,
        "asked": asked,
    }


def _list(g: Generator, run: Run, tenant: str) -> Drawn | None:
    given = {
        "status": ("active", "ended", "archived"),
        "user": ("ada", "bob"),
        "agent": ("guide",),
        "namespace": ("work",),
        "tags": (["blue"], ["red", "blue"]),
    }
    asked = {
        name: g.chance.choice(given[name])
        for name in g.chance.sample(list(given), g.chance.choice((0, 1, 1, 2)))
    }
    return "list_sessions", {"asked": asked, "limit": g.chance.choice((1, 2, 50))}


def _created(g: Generator, run: Run, tenant: str) -> Drawn | None:
    return "create", {"session": g.chance.choice(NAMED), "draft": _draft(g)}


def _erase_user(g: Generator, run: Run, tenant: str) -> Drawn | None:
    return "erase_user", {"user": g.chance.choice(("ada", "bob"))}


def _reason(g: Generator) -> dict[str, Any]:
    return {"reason": g.chance.choice(REASONS)}


DRAWS: dict[str, tuple[float, Draw]] = {
    "create": (0.5, _created),
    "say": (6, _say),
    "answer": (1, _answer),
    "say_again": (1, _say_again),
    "say_together": (0.7, _say_together),
    "stream": (1, _of_talk("stream", _stream)),
    "amend": (1, _amend),
    "exclude": (1.2, _of_line("exclude", _reason)),
    "restore": (1, _restore),
    "clear": (0.3, _of_talk("clear")),
    "mark": (1, _of_talk("mark", lambda g: {"name": g.chance.choice((None, "here"))})),
    "roll_back": (1.2, _roll_back),
    "replace_window": (0.6, _replace),
    "mend": (0.5, _of_talk("mend")),
    "summarise": (1.5, _of_talk("summarise", _summarise)),
    "fork": (0.5, _fork),
    "put_away": (0.2, _of_talk("put_away")),
    "resume": (1, _of_talk("resume")),
    "describe": (0.5, _of_talk("describe", _describe)),
    "drop": (0.7, _drop),
    "erase_message": (0.8, _of_line("erase_message")),
    "erase_user": (0.3, _erase_user),
    "session_boundary": (0.3, _boundary),
    "save_task": (1, _of_talk("save_task", _task)),
    "delete_task": (0.3, _of_talk("delete_task", lambda g: {"task": f"t{g.chance.randrange(3)}"})),
    "save_run": (0.4, _of_talk("save_run", _run)),
    "delete_run": (0.2, _of_talk("delete_run", lambda g: {"run": f"r{g.chance.randrange(3)}"})),
    "read_window": (1.5, _of_talk("read_window", _window)),
    "read_history": (1.5, _history),
    "read_session": (0.7, _of_talk("read_session")),
    "search_said": (1.2, _search),
    "list_sessions": (0.8, _list),
}
"""How often each is done, beside what is done with entries, and how it is drawn."""
