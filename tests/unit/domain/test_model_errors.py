"""Wrong values of models are explained by field, with what is accepted and what was given."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from memory.domain.errors import InvalidInput, WrongArguments
from memory.domain.model_errors import explain_error, explain_errors, in_json_words, show_value
from memory.ports.contract.cells import cells


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    role: Literal["user", "assistant"]
    text: str = ""


class Given(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    parts: list[Part] = []
    scope: str | list[str] | None = None
    when: str | int | float = 0
    count: Annotated[int, Field(ge=1, le=9)] = 1
    tags: Annotated[list[str], Field(max_length=2)] = []
    share: float = 0.5
    on: bool = False
    extra: dict[str, Any] = {}
    name: Annotated[str, Field(min_length=1)] = "x"


CASES: list[tuple[dict[str, Any], list[tuple[str, str]]]] = [
    ({"count": "5"}, [("count", 'must be a whole number, not "5"')]),
    ({"count": 0}, [("count", "must be at least 1, not 0")]),
    ({"count": 10}, [("count", "must be at most 9, not 10")]),
    ({"share": "much"}, [("share", 'must be a number, not "much"')]),
    ({"on": "yes"}, [("on", 'must be true or false, not "yes"')]),
    ({"tags": "a"}, [("tags", 'must be a list, not "a"')]),
    ({"tags": ["a", 1]}, [("tags[1]", "must be text, not 1")]),
    ({"tags": ["a", "b", "c"]}, [("tags", "must have at most 2 items")]),
    ({"extra": []}, [("extra", "must be an object, not []")]),
    ({"name": ""}, [("name", "must have at least 1 character")]),
    ({"scope": 5}, [("scope", "must be text or a list, not 5")]),
    ({"scope": ["a", None]}, [("scope[1]", "must be text, not null")]),
    ({"when": [1]}, [("when", "must be text or a number, not [1]")]),
    ({"parts": {"role": "user"}}, [("parts", 'must be a list, not {"role": "user"}')]),
    ({"parts": ["hi"]}, [("parts[0]", 'must be an object, not "hi"')]),
    ({"parts": [{"role": "user"}, {}]}, [("parts[1].role", "is missing")]),
    ({"parts": [{"role": "user", "at": 1}]}, [("parts[0].at", "is unknown")]),
    (
        {"parts": [{"role": "human"}], "count": None},
        [
            ("parts[0].role", "must be 'user' or 'assistant', not \"human\"; did you mean 'user'?"),
            ("count", "must be a whole number, not null"),
        ],
    ),
    ({"name": "n" * 9, "on": "x" * 200}, [("on", f'must be true or false, not "{"x" * 59}…')]),
]


def errors_of(given: Any) -> list[Any]:
    with pytest.raises(ValidationError) as refused:
        Given.model_validate(given)
    return list(refused.value.errors(include_url=False))


@cells("given, told", CASES, ids=lambda one: str(one)[:40], shared=True)
def test_each_field_has_one_problem_in_our_words(given: dict[str, Any], told: list[tuple[str, str]]) -> None:
    problems = explain_errors(errors_of(given), given, show=show_value)
    assert [(one.field, one.message) for one in problems] == told


@cells("given", [given for given, _ in CASES], ids=lambda one: str(one)[:40], shared=True)
def test_values_are_shown_only_if_the_caller_asks_for_them(given: dict[str, Any]) -> None:
    messages = [one.message for one in explain_errors(errors_of(given), given)]
    assert not any(", not " in one for one in messages)


def test_a_body_that_is_no_object_and_a_table_are_named_so() -> None:
    [problem] = explain_errors(errors_of([1]), [1], show=show_value)
    assert (problem.field, problem.message) == ("", "must be an object, not [1]")
    assert explain_error(errors_of({"extra": 1})[0], an_object="a table") == "must be a table"


@cells(
    "problem, told",
    [
        ("must be text, not NoneType", "must be text, not null"),
        ("must be a dict, a dataclass or a pydantic model, not list", "must be an object, not a list"),
        ("needs a key. Pass the key= of the entry", "needs a key. Pass the key of the entry"),
        ("pass first= or speaker=.", "pass first or speaker."),
        ("is 'a=b', not a moment", "is 'a=b', not a moment"),
        ("must not be a string", "must not be a string"),
    ],
    shared=True,
)
def test_errors_for_callers_of_other_languages_have_no_words_of_python(problem: str, told: str) -> None:
    shown = in_json_words(InvalidInput("field", problem))
    assert (shown.field, shown.problem) == ("field", told)
    with_names = WrongArguments("field", problem)
    assert in_json_words(with_names) is with_names
