"""Writing, finding, showing, promoting and forgetting from the command line, on a real
database file.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from memory import BlockingMemory
from memory.domain.search_results import SearchResult
from memory.policies.entry_query import EntryQuery
from memory.policies.ranking.preferences import Preferences
from memory.ports.contract.cells import cells
from tests.unit.cli.conftest import CommandLine


@pytest.fixture
def tea(memory: CommandLine) -> Any:
    return memory.json(
        "write",
        "Ada prefers green tea",
        "--scope",
        "user:ada",
        "--tag",
        "fact",
        "--metadata",
        '{"confidence": 0.9}',
    )


def test_what_was_written_is_found_and_shown(memory: CommandLine, tea: Any) -> None:
    found = memory.json("search", "tea", "-s", "user:ada")
    assert [hit["entry"]["content"] for hit in found["results"]] == ["Ada prefers green tea"]
    assert found["degraded"] == []
    shown = memory.json("show", tea["id"])
    assert shown["metadata"] == {"confidence": 0.9}
    assert shown["scope"] == "user:ada"
    assert [(copy["tier"], copy["role"]) for copy in shown["copies"]] == [("mid", "home")]


def test_people_get_tables_with_the_same_facts(memory: CommandLine, tea: Any) -> None:
    for words in (("search", "tea", "-s", "user:ada", "--explain"), ("show", tea["id"], "--history")):
        text = memory.ok(*words)
        assert "Ada prefers green tea" in text
        assert tea["id"] in text
    assert "lexical #1" in memory.ok("search", "tea", "-s", "user:ada", "--explain")


def test_options_of_every_command_may_stand_before_or_after_it(memory: CommandLine) -> None:
    before = memory("--json", "--tenant", "acme", "write", "x", "-s", "user:ada")
    assert '"tenant": "acme"' in before.stdout
    assert memory.json("search", "x", "-s", "user:ada", "--tenant", "acme")["results"]
    assert memory.json("search", "x", "-s", "user:ada", code=1)["results"] == []


def test_explain_says_how_each_result_was_found(memory: CommandLine, tea: Any) -> None:
    (hit,) = memory.json("search", "tea", "-s", "user:ada", "--explain")["results"]
    assert hit["explanation"]["ranks"]["lexical"] == 1
    assert hit["explanation"]["tier"] == "mid"
    (plain,) = memory.json("search", "tea", "-s", "user:ada")["results"]
    assert "explanation" not in plain


def test_a_session_can_be_searched_along(memory: CommandLine, tea: Any) -> None:
    memory.ok("write", "tea is out of stock", "-s", "session:s1")
    assert len(memory.json("search", "tea", "-s", "user:ada", "--session", "s1")["results"]) == 2


def test_messages_are_searched_along_where_they_are_asked_for(memory: CommandLine, tea: Any) -> None:
    memory.ok(
        "session",
        "import",
        memory.write_lines("chat.jsonl", {"role": "user", "content": "no tea is left", "name": "Ada"}),
        "--id",
        "s1",
    )
    assert len(memory.json("search", "tea", "-s", "session:s1", code=1)["results"]) == 0
    (found,) = memory.json("search", "tea", "-s", "session:s1", "--messages", "--explain")["results"]
    assert (found["session_id"], found["message"]["message"]["content"], found["explanation"]["rank"]) == (
        "s1",
        "no tea is left",
        1,
    )
    both = memory.ok("search", "tea", "-s", "user:ada", "--session", "s1", "--messages")
    assert all(said in both for said in ("Ada prefers green tea", "no tea is left", "Ada in session s1, 1"))


@pytest.mark.behaviour("D68")
def test_search_takes_filters_and_preferences_and_these_leave_nothing_out(
    memory: CommandLine, tea: Any
) -> None:
    memory.ok("write", "tea again", "-s", "user:ada", "--type", "learning", "--tag", "fact", "--tag", "late")

    def found(*options: str) -> list[str]:
        answer = memory.json("search", "tea", "-s", "user:ada", *options)
        return sorted(hit["entry"]["content"] for hit in answer["results"])

    both = ["Ada prefers green tea", "tea again"]
    for preferred in (("--boost-type", "learning"), ("--boost-tag", "late")):
        assert found(*preferred) == both
    assert found("--filter-type", "learning") == ["tea again"]
    assert found("--filter-type", "learning", "--filter-type", "context") == both
    assert found("--filter-tag", "fact") == both
    assert found("--filter-tag", "fact", "--filter-tag", "late") == ["tea again"]
    assert memory("search", "tea", "-s", "user:ada", "--filter-tag", "none").exit_code == 1
    assert memory("search", "tea", "-s", "user:ada", "--since", "2999-01-01T00:00:00Z").exit_code == 1


def test_what_a_search_prefers_is_asked_for(memory: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[EntryQuery] = []

    async def search(self: object, asked: EntryQuery, text: str, *, explain: bool) -> SearchResult:
        heard.append(asked)
        return SearchResult()

    monkeypatch.setattr("memory.orchestrator.retrieval.search.EntrySearch.search", search)
    memory("search", "tea", "-s", "user:ada")
    options = (
        "--mode",
        "lexical",
        "--min-relevance",
        "0.5",
        "--boost-type",
        "user",
        "--boost-tag",
        "a",
        "--boost-tag",
        "b",
        "--boost-conversation",
        "c1",
        "--no-age-decay",
    )
    memory("search", "tea", "-s", "user:ada", *options)
    plain, asked = heard
    assert (plain.mode, plain.min_relevance, plain.preferred) == ("hybrid", None, Preferences())
    preferred = Preferences(types=("user",), tags=("a", "b"), conversation_id="c1", age_decay=False)
    assert asked == replace(plain, mode="lexical", min_relevance=0.5, preferred=preferred)


def test_writing_again_under_a_key_writes_nothing_twice_and_other_text_conflicts(memory: CommandLine) -> None:
    first = memory.json("write", "x", "-s", "user:ada", "--key", "k")
    assert memory.json("write", "x", "-s", "user:ada", "--key", "k")["id"] == first["id"]
    refused = memory.json("write", "y", "-s", "user:ada", "--key", "k", code=6)
    assert refused["error"]["code"] == "conflict"
    assert refused["error"]["existing_id"] == first["id"]


def test_a_key_whose_entry_was_forgotten_is_a_conflict_unless_it_is_to_be_revived(
    memory: CommandLine,
) -> None:
    first = memory.json("write", "x", "-s", "user:ada", "--key", "k")
    memory.ok("forget", first["id"], "--yes")
    refused = memory.json("write", "x", "-s", "user:ada", "--key", "k", code=6)
    assert "'k' was deleted at" in refused["error"]["message"]
    assert memory.json("write", "y", "-s", "user:ada", "--key", "k", "--revive")["content"] == "y"


def test_where_it_was_said_is_written_and_shown(memory: CommandLine) -> None:
    said = memory.json(
        "write",
        "I prefer tea",
        "-s",
        "user:ada",
        "--conversation-id",
        "trip",
        "--number",
        "7",
        "--speaker",
        "Ada",
    )
    assert (said["conversation_id"], said["number_in_conversation"], said["speaker"]) == ("trip", 7, "Ada")
    shown = memory.ok("show", said["id"])
    assert "said by" in shown
    assert "trip 7" in shown


def test_an_entry_has_data_and_may_stay_out_of_searches(memory: CommandLine) -> None:
    plan = ("write", "plan", "-s", "user:ada", "--data")
    made = memory.json(*plan, '{"price": 3}', "--no-search")
    assert (made["data"], made["searchable"]) == ({"price": 3}, False)
    assert memory("search", "plan", "-s", "user:ada").exit_code == 1
    assert '{"price": 3}' in memory.ok("show", made["id"])
    assert memory.json("update", made["id"], "--data", "[1, 2]")["data"] == [1, 2]
    assert memory.json("write", "", "-s", "user:ada", "--data", "[1]")["data"] == [1]
    for wrong, problem in (("{", "is not JSON such as"), ("3", "must be an object or a list")):
        refused = memory.json(*plan, wrong, code=2)
        assert refused["error"]["message"].startswith(f"data: {problem}")


def test_a_vector_of_the_caller_is_checked(memory: CommandLine) -> None:
    for wrong, problem in (("x", "is not JSON"), ('"x"', ""), ("[0.1, 0.2]", "")):
        refused = memory.json("write", "tea", "-s", "user:ada", "--vector", wrong, code=2)
        assert refused["error"]["message"].startswith(f"vector: {problem}")


def test_text_may_come_from_standard_input(memory: CommandLine) -> None:
    assert memory.json("write", "-", "-s", "user:ada", stdin="two\nlines")["content"] == "two\nlines"


def test_nothing_found_is_exit_code_1_and_no_error(memory: CommandLine) -> None:
    result = memory("search", "xyzzy", "-s", "user:bob")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "nothing found in user:bob\n"


@cells(
    "words, message",
    [
        (
            ("search", "x", "-s", "nobody"),
            "error: scope: 'nobody' should look like user:ada, session:s1, object:ticket:t1 or path:teams/red/",
        ),
        (("search", "x", "-s", "user:ada", "-n", "0"), "error: limit: must be 1..1000, not 0"),
        (
            ("search", "x", "-s", "user:ada", "--mode", "smell"),
            "error: mode: invalid mode: 'smell'; choose from hybrid, lexical, semantic",
        ),
        (
            ("search", "x", "-s", "user:ada", "--mode", "semantic"),
            "error: mode: 'semantic' needs an embedder",
        ),
        (
            ("search", "x", "-s", "user:ada", "--boost-type", "story"),
            "error: boost.types: invalid boost.types: 'story'",
        ),
        (
            ("search", "x", "-s", "user:ada", "--filter-type", "story"),
            "error: filter.types: invalid filter.types: 'story'",
        ),
        (
            ("search", "x", "-s", "user:ada", "--min-relevance", "2"),
            "error: min_relevance: must be 0..1, not 2",
        ),
        (
            ("search", "x", "-s", "user:ada", "--as-of", "yesterday"),
            "error: as_of: 'yesterday' is not an ISO 8601 moment",
        ),
        (
            ("write", "x", "-s", "user:ada", "--metadata", "{"),
            "error: metadata: is not a JSON object such as",
        ),
        (("write", "x", "-s", "user:ada", "--type", "story"), "error: type: invalid type: 'story'"),
        (("promote", "x"), "error: promote: takes exactly one of --to SCOPE and --tier TIER"),
        (
            ("promote", "x", "--tier", "mid", "--delete-original"),
            "error: --delete-original: works only with --to",
        ),
        (("promote", "x", "--tier", "attic"), "error: tier: invalid tier"),
        (
            ("forget",),
            "error: forget: takes exactly one of: ids, --scope SCOPE, --user ID, or --tenant NAME alone",
        ),
        (("forget", "x", "--scope", "user:ada"), "error: forget: takes exactly one of: ids, --scope SCOPE"),
        (
            ("forget", "--user", "ada", "--scope", "user:ada"),
            "error: forget: takes exactly one of: ids, --scope SCOPE",
        ),
        (
            ("forget", "--user", "ada"),
            "error: --yes: is needed with --json or without a terminal, to delete everything of user ada",
        ),
        (
            ("forget", "--tenant", "acme"),
            "error: --yes: is needed with --json or without a terminal, to delete everything of tenant acme",
        ),
        (("forget", "user:ada"), "error: entry_id: 'user:ada' is a scope, not an id"),
        (
            ("forget", "--user", "user:ada", "--yes"),
            "error: user: 'user:ada' is a scope, not a user's id: pass the id alone, 'ada'",
        ),
        (("forget", "x", "--dry-run"), "error: --dry-run: works only with --scope, --user or --tenant"),
        (
            ("forget", "--scope", "user:ada"),
            "error: --yes: is needed with --json or without a terminal, to delete everything of user:ada",
        ),
    ],
    shared=True,
)
def test_wrong_input_is_one_line_on_standard_error_and_exit_code_2(
    memory: CommandLine, words: tuple[str, ...], message: str
) -> None:
    result = memory(*words)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith(message)
    assert result.stderr.count("\n") == 1


def test_an_unknown_id_is_exit_code_1(memory: CommandLine) -> None:
    assert memory.json("show", "nope", code=1)["error"] == {
        "code": "not_found",
        "message": "Memory entry not found: nope",
        "exit": 1,
        "entry_id": "nope",
    }


def test_promote_copies_to_a_broader_scope(memory: CommandLine) -> None:
    note = memory.json("write", "x", "-s", "session:s1")
    (copy,) = memory.json("promote", note["id"], "--to", "user:ada")["promoted"]
    assert copy["promoted_from_id"] == note["id"]
    assert copy["id"] in memory.ok("promote", note["id"], "--to", "user:ada")
    refused = memory.json("promote", copy["id"], "--to", "session:s1", code=2)
    assert refused["error"]["code"] == "invalid_scope_promotion"


def test_promote_moves_to_a_later_tier(memory: CommandLine) -> None:
    note = memory.json("write", "x", "-s", "session:s1")
    report = memory.json("promote", note["id"], "--tier", "long")
    assert [(m["entry_id"], m["from_tier"], m["to_tier"]) for m in report["moved"]] == [
        (note["id"], "short", "long")
    ]
    assert memory.json("show", note["id"])["tier"] == "long"
    again = memory("promote", note["id"], "--tier", "long")
    assert again.exit_code == 1
    assert "it is already in that tier or a later one" in again.stdout


def test_forget_deletes_by_id_once(memory: CommandLine, tea: Any) -> None:
    assert "forgotten" in memory.ok("forget", tea["id"])
    assert memory.json("forget", tea["id"], code=1) == {
        "deleted": [],
        "not_found": [tea["id"]],
        "kept": {},
        "incomplete": [],
    }
    assert memory("show", tea["id"]).exit_code == 1


def test_a_command_that_fails_at_one_of_several_ids_says_which_are_done(memory: CommandLine) -> None:
    first, held, last = (memory.json("write", text, "-s", "user:ada")["id"] for text in ("a", "b", "c"))
    memory.ok("legal-holds", "add", "case", "--reason", "r", "--entry", held)
    refused = memory("forget", first, held, last)
    assert refused.exit_code == 6
    assert f"1 of 3 ids are done: {first}" in refused.stderr
    assert [one["id"] for one in memory.json("list", "-s", "user:ada")["entries"]] == [last, held]


def test_standard_input_that_is_no_text_is_refused(memory: CommandLine) -> None:
    for words in (
        ("write", "-", "-s", "user:ada"),
        ("mem", "-", "-s", "user:ada"),
        ("scratchpad", "append", "-"),
        ("update", "1", "--content", "-"),
    ):
        refused = memory(*words, stdin=b"caf\xe9")
        assert refused.exit_code == 2, words
        assert "standard input is not utf-8" in refused.stderr
    assert memory("list", "-s", "user:ada").exit_code == 1


def test_forget_names_the_copies_that_stay(memory: CommandLine) -> None:
    note = memory.json("write", "x", "-s", "session:s1")
    (copy,) = memory.json("promote", note["id"], "--to", "user:ada")["promoted"]
    (other,) = memory.json("promote", copy["id"], "--to", "org:o")["promoted"]
    assert memory.json("forget", note["id"])["kept"] == {note["id"]: sorted([copy["id"], other["id"]])}
    assert f"kept: {other['id']}" in memory.ok("forget", copy["id"])


def test_forget_reaches_a_user_or_a_tenant_and_counts_first(memory: CommandLine) -> None:
    turn = {"role": "user", "content": "my IBAN is 123"}
    with BlockingMemory("sqlite:///memory.db", embedder="none") as own:
        for tenant in ("default", "acme"):
            mine = own.for_tenant(tenant)
            mine.write("likes tea", scope="user:ada")
            for number in (1, 2):
                mine.session(f"s{number}", user="ada").append(turn)
            mine.session("other", user="bob").append({**turn, "name": "ada"})
    assert (
        memory.ok("forget", "--scope", "user:ada", "--yes")
        == "1 entries of user:ada forgotten; 2 sessions with this user are left; to delete them too, run"
        " `memory forget --user ada`\n"
    )
    reached = {"user": "ada", "sessions": 2, "messages": 1, "entries": 0, "documents": 0, "held": []}
    assert memory.json("forget", "--user", "ada", "--dry-run") == {**reached, "dry_run": True}
    assert memory.json("forget", "--user", "ada", "--dry-run") == {
        **reached,
        "dry_run": True,
    }, "it erased nothing"
    assert memory.json("forget", "--user", "ada", "--yes") == {**reached, "dry_run": False}
    assert memory("forget", "--user", "ada", "--yes").exit_code == 1
    counted = memory.json("forget", "--tenant", "acme", "--dry-run")
    assert (counted["tenant"], counted["records"]["sessions"]) == ("acme", {"sqlite": 3})
    assert memory.json("forget", "--tenant", "acme", "--user", "bob", "--dry-run")["sessions"] == 1
    assert "3 sessions" in memory.ok("forget", "--tenant", "acme", "--yes")
    assert memory("forget", "--tenant", "acme", "--yes").exit_code == 1
    assert [one["id"] for one in memory.json("session", "list")["sessions"]] == ["other"]


def test_forget_says_which_keys_it_cannot_revoke_without_the_server(
    memory: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write() -> None:
        memory.ok("write", "x", "-s", "user:ada", "--tenant", "acme")

    write()
    assert memory.json("forget", "--tenant", "acme", "--yes")["keys_revoked"] == 0
    write()
    monkeypatch.setattr("memory.cli.serve.EXTRA", ("a_package_that_is_nowhere",))
    told = memory.ok("forget", "--tenant", "acme", "--yes")
    assert "not revoked: API keys of the tenant" in told
    write()
    assert memory.json("forget", "--tenant", "acme", "--yes")["keys_revoked"] is None


def test_forget_empties_exactly_the_scope_named(memory: CommandLine, tea: Any) -> None:
    memory.ok("write", "stays", "-s", "user:bob")
    assert memory.json("forget", "--scope", "user:ada", "--yes") == {
        "scope": "user:ada",
        "deleted": 1,
        "sessions_left": [],
        "scopes": 1,
        "documents": 0,
        "held": [],
        "dry_run": False,
    }
    assert memory("forget", "--scope", "user:ada", "--yes").exit_code == 1
    assert memory.json("search", "stays", "-s", "user:bob")["results"]


def test_stored_text_is_shown_as_text_and_never_as_markup_or_control_codes(memory: CommandLine) -> None:
    nasty = "[red]danger[/red] \x1b[31mred\x1b[0m \x07 {braces}"
    entry = memory.json("write", nasty, "-s", "user:ada", "--title", "[bold]t[/bold]")
    assert entry["content"] == nasty
    for words in (("search", "danger", "-s", "user:ada", "--explain"), ("show", entry["id"])):
        text = memory.ok(*words)
        assert "[red]danger[/red]" in text
        assert "[bold]t[/bold]" in text
        assert "\x1b" not in text
        assert "\x07" not in text


def test_browse_goes_through_all_scopes_by_the_last_change_page_by_page(
    memory: CommandLine, tea: Any
) -> None:
    said = ("--conversation-id", "c1", "--speaker", "Ada")
    memory.ok(
        "write", "the kettle is new", "-s", "workspace:kitchen", "--type", "project", "--tag", "kettle", *said
    )
    memory.ok("update", tea["id"], "--title", "Tea")
    first = memory.json("browse", "-n", "1")
    rest = memory.json("browse", "-n", "1", "--cursor", first["cursor"])
    assert [one["content"] for one in (*first["entries"], *rest["entries"])] == [
        "Ada prefers green tea",
        "the kettle is new",
    ]
    assert rest["cursor"] is None
    kettle = ["the kettle is new"]
    for options in (
        ("--type", "project"),
        ("--tag", "kettle"),
        ("-s", "workspace:kitchen"),
        ("--updated-before", first["entries"][0]["updated_at"]),
    ):
        assert [one["content"] for one in memory.json("browse", *options)["entries"]] == kettle, options
    assert [one["content"] for one in memory.json("browse", "--conversation", "c2")["entries"]] == [
        "Ada prefers green tea"
    ]
    assert "the kettle is new" in memory.ok("browse", "-s", "workspace:kitchen", "-s", "user:nobody")
    assert memory("browse", "-s", "user:nobody").exit_code == 1
    assert memory("browse", "-n", "0").exit_code not in (0, 1)


def test_scopes_are_listed_and_a_subtree_is_forgotten(memory: CommandLine) -> None:
    for scope in ("path:teams/red/", "path:teams/red/notes/", "path:teams/redwood/", "user:ada"):
        memory.ok("write", "tea", "--scope", scope)
    listed = memory.json("scopes", "--prefix", "path:teams/")
    counted = {one["scope"]: one["entries"] for one in listed["scopes"]}
    assert counted == {"path:teams/red/": 1, "path:teams/red/notes/": 1, "path:teams/redwood/": 1}
    assert "path:teams/" in memory.ok("scopes", "--max-depth", "1")
    said = memory.ok("forget", "--scope", "path:teams/red/**", "--yes")
    assert "2 entries of path:teams/red/** forgotten, in 2 scopes" in said
    assert "path:teams/redwood/" in memory.ok("scopes", "-n", "1")
    assert memory("scopes", "--kind", "org").exit_code == 1
