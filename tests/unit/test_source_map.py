"""Markers of the source map: put on every template line that makes code, carried through, taken off without a trace."""

from __future__ import annotations

import black
import pytest

from generator.source_map import CLOSE, OPEN, Origin, follow, mark, unmark
from tests.support.building import emitted


def test_every_line_that_makes_code_is_marked_and_no_other() -> None:
    source = 'a = 1\n\n{% if x %}\n{# why #}\n"""One\ntwo\n"""\nb = {{ y }}\n'
    marked = mark("t.jinja", source).split("\n")
    assert [OPEN in line for line in marked] == [True, False, False, False, True, True, True, True, False]


def test_marks_inside_a_docstring_are_no_comments() -> None:
    marked = mark("t.jinja", '"""One\ntwo\n"""\na = 1').split("\n")
    assert ["#" in line for line in marked] == [False, False, True, True]
    assert compile("\n".join(marked), "t", "exec")


def test_unmarking_gives_back_the_source_and_its_lines() -> None:
    source = '"""One\ntwo\n"""\n\na = (1,  # one\n     2)\n'
    code, origins = unmark(mark("t.jinja", source))
    assert code == source
    assert origins == [
        Origin("t.jinja", 1),
        Origin("t.jinja", 2),
        Origin("t.jinja", 3),
        None,
        Origin("t.jinja", 5),
        Origin("t.jinja", 6),
        None,
    ]


def test_a_line_left_with_nothing_but_its_marker_goes() -> None:
    assert unmark(f"a = 1\n  #{OPEN}t:2{CLOSE}\nb = 2")[0] == "a = 1\nb = 2"


def test_origins_follow_the_formatter_as_it_splits_and_joins() -> None:
    code = "f(a,\n  b)\ng(" + ", ".join(f"argument_{i}" for i in range(12)) + ")\n"
    origins = [Origin("t", 1), Origin("t", 2), Origin("t", 3), None]
    text = black.format_str(code, mode=black.Mode(line_length=40))
    assert text.startswith("f(a, b)\ng(\n")
    lines = follow(code, list(origins), text)
    assert lines[0] == Origin("t", 1)
    assert [line for line, origin in zip(text.split("\n"), lines) if origin == Origin("t", 3)] == [
        "g(",
        *(f"    argument_{i}," for i in range(12)),
    ]


def test_code_that_the_formatter_did_not_just_lay_out_is_refused() -> None:
    with pytest.raises(ValueError):
        follow("a = 1\n", [Origin("t", 1), None], "a = 1 + 1\n")


@pytest.mark.parametrize("model", ["llama-3.2-1b", "qwen2.5-7b", "qwen3-0.6b"])
def test_every_line_of_an_emitted_module_comes_from_a_template(model: str) -> None:
    made = emitted(model, "n150")
    unknown = [
        line
        for line, origin in zip(made.text.split("\n"), made.origins)
        if origin is None and line.strip() not in ("", ")", "),", "(", "}", "")
    ]
    assert unknown == []
    assert OPEN not in made.text and CLOSE not in made.text
