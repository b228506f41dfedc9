"""The byte code that `make install-dev` writes is what pytest would have written."""

from __future__ import annotations

import pytest

from tools import compile_tests


@pytest.mark.thorough
def test_pytest_takes_the_byte_code_and_explains_assertions_with_it(pytester: pytest.Pytester) -> None:
    file = pytester.makepyfile(test_one="def test_sum():\n    assert [1, 2] == [1, 3]\n")
    written = compile_tests.compile_module(file)
    before = (written.stat().st_ino, written.read_bytes())
    told = pytester.runpytest_subprocess("-p", "no:cacheprovider").stdout.str()
    assert "At index 1 diff: 2 != 3" in told
    assert (written.stat().st_ino, written.read_bytes()) == before
    assert list(written.parent.glob("test_one.*pytest*")) == [written]


def test_every_test_module_of_this_run_is_among_them(request: pytest.FixtureRequest) -> None:
    compiled = set(compile_tests.modules_in(compile_tests.FOLDERS))
    assert {item.path for item in request.session.items} <= compiled
