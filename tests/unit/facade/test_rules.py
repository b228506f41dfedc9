"""Rules at the facade: given in files and in Python, shown, planned and explained;
policies by name and by hand.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from memory import (
    BlockingMemory,
    ConfigError,
    Decision,
    Entry,
    HasTag,
    IdleFor,
    Memory,
    NotFound,
    OlderThan,
    PromotionRule,
    Quota,
    QuotaExceeded,
    RecordFacts,
    ScopeExceeds,
)
from memory.facade.config.settings import MemoryConfig
from memory.ports.contract.cells import cells
from tests.acceptance.support import Clock
from tests.support.readme import RULES, blocks
from tests.support.waiting import until

DAY = timedelta(days=1)
EPHEMERAL: Any = {"embedder": "none", "accept_loss": True, "durations": {"sweep_every": "0s"}}


def opened(*rules: Any, clock: Any = None, **more: Any) -> Memory:
    return Memory("memory://", promotion=list(rules), clock=clock or Clock(), **{**EPHEMERAL, **more})


# -- how they are given ----------------------------------------------------------------

TOML = """
[[promotion]]
name = "quiet"
on = "sweep"
tenants = ["acme"]
scope_kinds = ["session"]
when = { any = [ { idle_for = "7d" }, { scope_over = { tokens = 2000 } } ] }

[[promotion]]
name = "known"
on = "session_end"
to_scope = "user"
tags = ["fact"]
"""


def test_a_file_and_python_say_the_same(tmp_path: Path) -> None:
    (tmp_path / "memory.toml").write_text(TOML)
    config = MemoryConfig.load(tmp_path / "memory.toml")
    quiet = PromotionRule(
        name="quiet",
        on="sweep",
        tenants=("acme",),
        scope_kinds=("session",),
        when=IdleFor(7 * DAY) | ScopeExceeds(tokens=2000),
    )
    assert config.promotion == (quiet, PromotionRule(name="known", to_scope="user", tags=("fact",)))
    assert MemoryConfig.load(config).promotion == config.promotion
    assert (
        config.leaves()["promotion.1"]
        == "quiet: on sweep, short → mid: of tenant acme and of a scope of kind session and "
        "(unchanged for 7 days or beyond the newest 2,000 tokens of its scope)"
    )
    assert config.leaves()["promotion.2"] == "known: on session end, short, a copy → user: tagged fact"
    assert config.model_dump(mode="json")["promotion"][0]["when"] == {
        "any": [{"idle_for": "7d"}, {"scope_over": {"tokens": 2000}}]
    }
    assert config.origins["promotion.1"].endswith("memory.toml:2")


@cells(
    "rule, message",
    [
        (
            {"when": {"all": [{"tag": "a"}, {"older_then": "7d"}]}},
            "promotion.r.when.all[1].older_then: is not a condition; did you mean older_than?",
        ),
        (
            {"when": {"tag": "a"}, "tags": ["b"]},
            "promotion.r.tags: cannot be combined with when. Write the condition inside of when",
        ),
        ({"when": 3}, "promotion.r.when: should be a table of conditions"),
        ({"older_than": "0s"}, "promotion.r.older_than: should be longer than zero"),
        ({"tenants": [""]}, "promotion.r.tenants: must not be empty"),
        ({"scope_kinds": ["team"]}, "promotion.1.scope_kinds.1: must be 'session'"),
        ({"to_scope": "user", "target": "mid"}, "promotion.r.target: applies to a move"),
        (
            {"to_scope": "user", "on": "sweep"},
            "promotion.r.to_scope: entries are copied on session_end, not on sweep",
        ),
        ({"to_scope": "team"}, "promotion.r.to_scope: must be 'user' or a scope"),
        ({"on": "friday"}, "promotion.1.on: must be 'session_end', 'sweep' or 'write'"),
        ({"wen": {}}, "did you mean 'when'?"),
    ],
    ids=str,
    shared=True,
)
def test_a_rule_that_cannot_be_is_refused_by_its_path(rule: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        MemoryConfig(promotion=[{"name": "r", **rule}])
    assert message in str(refused.value)


# -- the plan and why ------------------------------------------------------------------


async def test_a_plan_knows_the_versions_that_were_on_their_way_when_it_was_asked_for(tmp_path: Path) -> None:
    few = {"name": "few", "what": "versions", "keep_versions": 1}
    tiers = {
        "short": f"sqlite:///{tmp_path}/short.db",
        "mid": f"sqlite:///{tmp_path}/mid.db",
        "long": f"sqlite:///{tmp_path}/mid.db",
    }
    async with Memory(
        {"tiers": tiers}, retention=[few], embedder="none", durations={"sweep_every": "0s"}
    ) as memory:
        entry = await memory.write("one", scope="session:s1")
        for text in ("two", "three", "four"):
            await memory.update(entry.id, content=text)
        planned = (await memory.admin.plan()).planned
        assert len(planned) == (await memory.admin.sweep()).dropped_versions == 2


async def test_why_computes_the_moment() -> None:
    clock = Clock()
    rules = (
        PromotionRule(name="late", on="sweep", when=OlderThan(9 * DAY)),
        PromotionRule(name="soon", on="sweep", when=IdleFor(2 * DAY) & ~HasTag("pinned")),
        PromotionRule(name="read", on="sweep", min_accesses=3),
        PromotionRule(name="ended", on="session_end", tags=("fact",)),
        PromotionRule(name="further", on="sweep", source="mid", target="long"),
    )
    async with opened(*rules, clock=clock) as memory:
        entry = await memory.write("one", scope="session:s1", tags=["fact"])
        clock.advance(DAY)
        report = await memory.admin.why(entry.id)
        assert (report.entry_id, report.tier, report.scope, report.held) == (
            entry.id,
            "short",
            "session:s1",
            (),
        )
        assert report.next is not None
        assert (report.next.rule, report.next.when) == ("soon", entry.created_at + 2 * DAY)
        late, _, read, ended, further = report.rules
        assert (late.takes, late.when) == (True, entry.created_at + 9 * DAY)
        assert (read.takes, read.when, read.because, read.depends) == (
            False,
            None,
            "read 0 times",
            ("how often it is read",),
        )
        assert (ended.takes, ended.when, ended.depends) == (True, None, ("when its session ends",))
        assert (further.takes, further.because) == (
            False,
            "the rule takes entries from 'mid', and this one is in 'short'",
        )
        for _ in range(3):
            await memory.get(entry.id)
        due = (await memory.admin.why(entry.id)).next
        assert due is not None
        assert (due.rule, due.because) == ("read", "read 3 times")
        with pytest.raises(NotFound):
            await memory.admin.why("01900000-0000-8000-8000-000000000000")


async def test_why_says_what_holds_an_entry() -> None:
    clock = Clock()
    async with opened(PromotionRule(name="all", on="sweep"), clock=clock) as memory:
        entry = await memory.write("one", scope="session:s1", expires_at=clock.moment + DAY)
        clock.advance(2 * DAY)
        assert (await memory.admin.why(entry.id)).held == ("it has expired, so no rule applies to it",)
        assert [one.action for one in (await memory.admin.plan()).planned] == ["expire"]


def test_both_stand_on_the_blocking_twin() -> None:
    with BlockingMemory("memory://", promotion=[{"name": "all", "on": "sweep"}], **EPHEMERAL) as memory:
        entry = memory.write("one", scope="session:s1")
        assert [one.id for one in memory.admin.plan().planned] == [entry.id]
        assert memory.admin.why(entry.id).tier == "short"


# -- behind a write --------------------------------------------------------------------


async def test_an_open_memory_asks_the_rules_for_writes_behind_them() -> None:
    rule = PromotionRule(name="newest", on="write", when=ScopeExceeds(count=2))
    durations = {"sweep_every": "1h"}
    async with opened(rule, clock=lambda: datetime.now(UTC), durations=durations) as memory:
        entries = [await memory.write(f"text {n}", scope="session:s1") for n in range(4)]

        async def moved() -> bool:
            copies = [copy for entry in entries for copy in await memory.admin.where(entry.id)]
            return [copy.tier for copy in copies if copy.role == "home"] == ["mid", "mid", "short", "short"]

        await until(moved)


# -- policies --------------------------------------------------------------------------


class Shouting:
    """Moves what is in capitals."""

    name = "shouting"

    def decide(self, record: Entry, facts: RecordFacts, now: datetime) -> Decision | None:
        return Decision("long", because="it is loud") if record.content.isupper() else None


async def test_a_policy_is_handed_in() -> None:
    async with opened(policies=[Shouting()]) as memory:
        loud, quiet = (
            await memory.write("LOUD", scope="session:s1"),
            await memory.write("quiet", scope="session:s1"),
        )
        [planned] = (await memory.admin.plan()).planned
        assert (planned.id, planned.to, planned.rule, planned.because) == (
            loud.id,
            "long",
            "shouting",
            "it is loud",
        )
        following = (await memory.admin.why(loud.id)).next
        assert following is not None
        assert (following.rule, following.to, following.depends) == (
            "shouting",
            "long",
            ("the policy decides when it runs",),
        )
        assert (await memory.admin.why(quiet.id)).next is None
        await memory.admin.sweep()
        assert [copy.tier for copy in await memory.admin.where(loud.id) if copy.role == "home"] == ["long"]


async def test_a_policy_that_another_distribution_registers_is_found_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "their_policies.py").write_text(
        "from memory import Decision\nclass Everything:\n    name = 'everything'\n    def decide(self,"
        " record, facts, now):\n        return Decision('mid', because='why not')\nnothing = 3\n"
    )
    info = tmp_path / "their_policies-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-policies\nVersion: 1.0\n")
    points = [
        "[memory.policies]",
        "everything = their_policies:Everything",
        "broken = not_installed_at_all:X",
        "nothing = their_policies:nothing",
    ]
    (info / "entry_points.txt").write_text("\n".join([*points, ""]))
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    (tmp_path / "memory.toml").write_text('policies = ["everything"]\npromotion = []\n')
    assert MemoryConfig.load(tmp_path / "memory.toml").leaves()["policies"] == "everything"
    for given in ({"policies": ["everything"]}, {"policies": ["everything", Shouting()]}):
        async with opened(**given) as memory:
            await memory.write("text", scope="session:s1")
            assert [one.because for one in (await memory.admin.plan()).planned] == ["why not"]
    for name, message in (
        ("broken", "policies: 'broken' needs 'not_installed_at_all'"),
        ("missing", "policies: there is no 'missing'; there are: broken, everything, nothing"),
        ("nothing", "policies: a policy needs a name and decide"),
    ):
        with pytest.raises(ConfigError, match=message):
            async with opened(policies=[name]):
                pass


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"on": "friday"}, "policies.shouting.on"),
        ({"tier": "attic"}, "policies.shouting.tier"),
        ({"when": {"tags": "x"}}, "policies.shouting.when.tags"),
    ],
    ids=str,
)
def test_a_policy_that_cannot_be_asked_is_refused(wrong: dict[str, Any], message: str) -> None:
    policy = Shouting()
    vars(policy).update(wrong)
    with pytest.raises(ConfigError, match=message):
        opened(policies=[policy])
    with pytest.raises(ConfigError, match="a policy needs a name and decide"):
        opened(policies=[lambda record: None])
    with pytest.raises(ConfigError, match=r"policies: must be a list of policies, not Shouting"):
        opened(policies=Shouting())


async def test_where_no_policy_is_installed_the_error_says_so() -> None:
    with pytest.raises(
        ConfigError, match=r"there is no 'missing'; none is installed\. In Python, pass any object"
    ):
        async with opened(policies=["missing"]):
            pass


def test_a_class_and_an_async_decide_are_no_policies() -> None:
    class Named:
        name = "named"

        def decide(self, record: Any, facts: Any, now: Any) -> None: ...

    class Waiting:
        name = "waiting"

        async def decide(self, record: Any, facts: Any, now: Any) -> None: ...

    with pytest.raises(ConfigError, match=r"policies\.named: is a class\. Pass an instance of it"):
        opened(policies=[Named])
    with pytest.raises(ConfigError, match=r"policies\.waiting\.decide: must not be async"):
        opened(policies=[Waiting()])


async def test_two_rules_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="two rules are named 'shouting'"):
        await opened(PromotionRule(name="shouting"), policies=[Shouting()]).open()


def test_the_rules_of_the_guide_can_be_read(tmp_path: Path) -> None:
    said = [block for block in blocks("toml", RULES) if "[[promotion]]" in block]
    assert said
    for block in said:
        (tmp_path / "memory.toml").write_text(block)
        assert [rule.name for rule in MemoryConfig.load(tmp_path / "memory.toml").promotion] == [
            "quiet",
            "known",
        ]


@pytest.mark.parametrize("url", ["sqlite:///{}/memory.db", "file://{}/data"])
async def test_a_quota_of_bytes_counts_bytes_in_every_script(tmp_path: Path, url: str) -> None:
    """A character of Hindi or Japanese takes three."""
    config = {
        "stores": {"home": {"url": url.format(tmp_path)}},
        "tiers": dict.fromkeys(("short", "mid", "long"), "home"),
    }
    async with Memory(config, quotas=[Quota(name="small", bytes=9_000)], **EPHEMERAL) as memory:
        for user, text in (("ada", "n" * 2_500), ("bob", "न" * 2_500), ("cleo", "夜" * 2_500)):
            await memory.write(text[:600], scope=f"user:{user}")
            if text.isascii():
                await memory.write(text, scope=f"user:{user}")
            else:
                with pytest.raises(QuotaExceeded):
                    await memory.write(text, scope=f"user:{user}")
