"""Every use of ttnn in an emitted module is one that the recorded library has, and a build refuses any other."""

from __future__ import annotations

import ast
import inspect
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from generator import inputs
from generator.passes.signatures import misuses
from generator.record_signatures import Unrecordable, parse
from generator.signature_changes import changes, report
from generator.signatures import (
    EITHER,
    KEYWORD,
    POSITIONAL,
    RECORDED,
    Argument,
    Instance,
    Parameter,
    Signature,
    Table,
    Unknown,
    accepts,
    problems,
    read,
    refused,
    written,
)
from tests.support.building import COMMITTED, Project, built_project

TABLE = read()
MODULES = sorted(COMMITTED.glob("*/*.py"))


def told(code: str, table: Table = TABLE) -> list[str]:
    return [f"{problem.line}: {problem.message}" for problem in misuses(ast.parse(code), table)]


# --- emitted modules and templates ---


@pytest.mark.parametrize("path", MODULES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_use_of_ttnn_in_a_committed_module_is_recorded(path: Path) -> None:
    assert told(path.read_text(encoding="utf-8")) == []


def test_every_name_that_a_template_uses_is_recorded() -> None:
    """Also in branches that no committed module takes."""
    known = TABLE.calls.keys() | TABLE.names
    found = {
        (path.name, *use)
        for path in inputs.TEMPLATES.rglob("*.jinja")
        for use in re.findall(r"\b(ttnn(?:\.\w+)*)(\.\{\{)?", path.read_text(encoding="utf-8"))
    }
    assert len({name for _, name, _ in found}) > 30
    for template, name, filled in sorted(found):
        if name == "ttnn":
            continue  # an import, or a name that is filled in whole: committed modules show what it becomes
        fits = any(one.startswith(f"{name}.") for one in known) if filled else name in known
        assert fits, f"{template} uses {name}, which generator/record_signatures.py does not list"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            "memory_config=DRAM",
            "memory_configs=DRAM",
            'has no argument "memory_configs"; did you mean "memory_config"?',
        ),
        ("ttnn.exp(", "ttnn.expp(", 'ttnn.expp is not recorded; did you mean "ttnn.exp"?'),
        ("dtype=ACTIVATION_DTYPE", "dtype=DRAM", "takes ttnn.DataType | None for dtype, not a ttnn.MemoryConfig"),
        ("q_chunk_size=query_tokens,", "", "ttnn.SDPAProgramConfig lacks its argument q_chunk_size (int)"),
        ("dim=-1", 'dim="last"', "ttnn.argmax takes int | None for dim, not 'last'"),
        ("k=TOP_K", "k=ALIGNMENT / 4", None),  # what the text does not tell fits
        ("cq_id=0", "cq_id=None", None),
        ("cq_id=0", "cq_id=0.0", "takes ttnn.QueueId | None for cq_id, not 0.0"),
        (
            "ttnn.TILE_LAYOUT",
            "ttnn.TILED_LAYOUT",
            'ttnn.TILED_LAYOUT is not recorded; did you mean "ttnn.TILE_LAYOUT"?',
        ),
        ("ttnn.MathFidelity.HiFi4", "ttnn.MathFidelity.HiFi5", 'did you mean "ttnn.MathFidelity.HiFi4"?'),
        ("(query_tokens, key_tokens)", "(query_tokens, key_tokens=ttnn)", "ttnn itself is a value here"),
        ("ttnn.deallocate(wide)", "ttnn.deallocate(*[wide])", "gets its arguments by * or **"),
        ("ttnn.deallocate(wide)", "ttnn.deallocate(**{'tensor': wide})", "gets its arguments by * or **"),
    ],
)
def test_a_committed_module_with_one_change_is_refused(old: str, new: str, expected: str | None) -> None:
    text = (COMMITTED / "llama_3_1_8b" / "n150.py").read_text(encoding="utf-8")
    assert old in text
    line = text[: text.index(old)].count("\n") + 1
    found = told(text.replace(old, new, 1))
    if expected is None:
        assert found == []
    else:
        assert len({message.split(": ", 1)[1] for message in found}) == 1
        assert expected in found[0] and abs(int(found[0].split(":")[0]) - line) <= 6, (line, found)


def test_an_attention_scale_in_double_precision_is_refused() -> None:
    text = (COMMITTED / "llama_3_1_8b" / "n150.py").read_text(encoding="utf-8")
    double = re.sub(r"(?m)^ATTENTION_SCALE = \S+", f"ATTENTION_SCALE = {128**-0.5!r}", text)
    assert double != text
    found = told(double)
    assert found and all("takes float32 | None for scale, not 0.08838834764831845" in message for message in found)


def test_the_line_of_an_argument_is_told_and_that_of_the_call_where_one_is_missing() -> None:
    assert told("x = ttnn.typecast(\n    y,\n    z,\n    memory=2,\n)") == [
        '4: ttnn.typecast has no argument "memory"; did you mean "memory_config"? (nearest of its 2 forms)'
    ]
    assert told("x = ttnn.silu(\n    memory_config=y,\n)") == [
        "1: ttnn.silu lacks its argument input_tensor (ttnn.Tensor)"
    ]


def test_only_names_that_are_bound_once_are_known_by_their_value() -> None:
    call = "ttnn.argmax(x, dim=DIM)"
    assert told(f"DIM = 'a'\nx = {call}\n") == ["2: ttnn.argmax takes int | None for dim, not 'a'"]
    assert told(f"DIM = 'a'\n\ndef f(x, DIM):\n    return {call}\n") == []
    assert told(f"DIM = 'a'\nDIM = -1\nx = {call}\n") == []


# --- the build ---

CALL = "ttnn.deallocate(wide)"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return built_project(tmp_path)


def edit(project: Project, monkeypatch: pytest.MonkeyPatch, template: str, old: str, new: str) -> int:
    """Change one piece of a template in a copy that builds use from now on; the number of its line."""
    templates = project.root.parent / "templates"
    shutil.copytree(inputs.TEMPLATES, templates)
    monkeypatch.setattr(inputs, "TEMPLATES", templates)
    text = (templates / template).read_text(encoding="utf-8")
    assert old in text
    (templates / template).write_text(text.replace(old, new, 1), encoding="utf-8")
    return text[: text.index(old)].count("\n") + 1


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        ("ttnn.deallocate(wide, forced=True)", 'ttnn.deallocate has no argument "forced"; did you mean "force"?'),
        ("ttnn.dealocate(wide)", 'ttnn.dealocate is not recorded; did you mean "ttnn.deallocate"?'),
        ("ttnn.nothing_like_this(wide)", "ttnn.nothing_like_this is not recorded; if the library has it, "),
        ("ttnn.deallocate()", "ttnn.deallocate lacks its argument tensor (ttnn.Tensor)"),
        ("ttnn.deallocate(wide, True, 1)", "ttnn.deallocate takes 2 arguments by position and gets 3"),
        ("ttnn.deallocate(wide, tensor=wide)", "ttnn.deallocate gets its argument tensor twice"),
        ("ttnn.deallocate(wide, force=True, force=True)", "ttnn.deallocate gets its argument force twice"),
        ('ttnn.deallocate(wide, force="yes")', "ttnn.deallocate takes bool for force, not 'yes'"),
        ("ttnn.deallocate(32)", "ttnn.deallocate takes ttnn.Tensor for tensor, not 32"),
        ("ttnn.TILE_LAYOUT(wide)", "ttnn.TILE_LAYOUT is a ttnn.Layout, no operation"),
    ],
)
def test_a_build_refuses_a_call_that_the_library_does_not_have(
    project: Project, monkeypatch: pytest.MonkeyPatch, new: str, expected: str
) -> None:
    from_line = edit(project, monkeypatch, "body.py.jinja", CALL, new)
    module = project.module.read_text(encoding="utf-8")
    line = module[: module.index(f"    {CALL}")].count("\n") + 1
    before = project.files()
    outcome = project.build()
    assert (outcome.code, outcome.out) == (2, ""), outcome.out
    assert "make no module of m on n150: the emitted module does not call ttnn 0.81.1 as it is:" in outcome.err
    assert f"line {line}, from body.py.jinja:{from_line}: {expected}" in outcome.err
    assert f"\n      {new}\n" in outcome.err
    assert "Traceback" not in outcome.err
    assert project.files() == before


def test_a_misspelt_option_is_told_as_such_where_the_option_is_demanded_too(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = edit(project, monkeypatch, "kinds/mlp.py.jinja", "memory_config=", "memory_configs=")
    outcome = project.build()
    assert outcome.code == 2
    assert f'from kinds/mlp.py.jinja:{line}: ttnn.rms_norm has no argument "memory_configs"' in outcome.err
    assert 'did you mean "memory_config"?' in outcome.err


def test_modules_are_stale_when_the_table_changes() -> None:
    assert inputs.sources()["generator/signatures.json"] == inputs.digest(RECORDED.read_bytes())
    assert "generator/passes/signatures.py" in inputs.sources()


def test_the_table_reads_back_as_it_was_written(tmp_path: Path) -> None:
    assert written(TABLE) == RECORDED.read_text(encoding="utf-8")
    (tmp_path / "table.json").write_text(written(TABLE), encoding="utf-8")
    assert read(tmp_path / "table.json") == TABLE


# --- types ---

TYPES = {
    "t.Grid": ("tuple[int, int]",),
    "t.Rectangle": ("t.Grid",),
    "t.Kind": (),
    "t.Activation": ("t.Kind", "tuple[t.Kind, float]"),
    "t.Tensor": ("ArrayLike[]",),
    "c::Other": (),
}


@pytest.mark.parametrize(
    ("kind", "taken", "not_taken"),
    [
        ("int", [1, -1, Unknown()], [True, 1.0, "1", None, [1], Instance("t.Kind")]),
        ("float", [1, 1.5], [True, "1", None]),
        ("float32", [0.5, Unknown()], [0.1, 1, True, None]),
        ("bool", [True], [1, 0.0, None, "True"]),
        ("str | None", ["a", None], [1, ["a"]]),
        ("Sequence[int]", [[], [1], (1, 2), [Unknown()]], ["12", [1.0], 1, None, Instance("t.Kind")]),
        ("list[int]", [[1]], [(1,)]),
        ("tuple[int, str] | None", [(1, "a"), [1, "a"], None], [(1,), (1, "a", 2), ("a", 1)]),
        ("t.Grid", [(8, 8), Instance("t.Grid")], [8, (8, 8, 8), (8.0, 8), Instance("t.Kind"), None]),
        ("t.Kind | None", [None, Instance("t.Kind")], [1, "a", Instance("t.Grid")]),
        ("c::Other | t.Kind", [Instance("t.Kind")], [1, Instance("t.Grid")]),
        ("Sequence[t.Activation]", [[Instance("t.Kind")], [(Instance("t.Kind"), 1.0)]], [Instance("t.Kind"), ["silu"]]),
        ("t.Rectangle", [Instance("t.Grid")], [(8, 8)]),  # what is made of a grid is not made of what makes a grid
        ("t.Tensor", [Instance("t.Tensor"), Unknown()], [1, 1.0, [1.0], None, Instance("t.Kind")]),
        ("t.Unheard", [1, None, "a", Instance("t.Kind")], []),
        ("Set[int]", [Unknown()], [[1], 1, None]),
    ],
)
def test_which_values_a_type_takes(kind: str, taken: list, not_taken: list) -> None:
    assert [value for value in taken if not accepts(kind, value, TYPES)] == []
    assert [value for value in not_taken if accepts(kind, value, TYPES)] == []


def test_of_several_forms_the_nearest_one_says_what_is_wrong() -> None:
    near = Signature((Parameter("a", EITHER, True, "int"), Parameter("b", KEYWORD, False, "str")), "None")
    far = Signature((Parameter("x", EITHER, True, "int"), Parameter("y", EITHER, True, "int")), "None")
    table = Table("1", {"f": (far, near)}, {}, {})
    assert refused("f", [Argument("x", 1), Argument("y", 2)], table) == []
    (problem,) = refused("f", [Argument(None, 1, 3), Argument("b", 2, 4)], table)
    assert (problem.line, problem.message) == (4, "f takes str for b, not 2 (nearest of its 2 forms)")


# --- binding ---


@st.composite
def forms(draw: st.DrawFn) -> Signature:
    """A signature as Python can have one too: nothing required behind something optional, but by name."""
    kinds = sorted(
        draw(st.lists(st.sampled_from([POSITIONAL, EITHER, KEYWORD]), max_size=5)),
        key=[POSITIONAL, EITHER, KEYWORD].index,
    )
    first_optional = draw(st.integers(0, len(kinds)))
    required = [draw(st.booleans()) if kind == KEYWORD else index < first_optional for index, kind in enumerate(kinds)]
    return Signature(tuple(Parameter("abcde"[i], kind, required[i], "int") for i, kind in enumerate(kinds)), "None")


def binds(form: Signature, positional: int, keywords: list[str]) -> bool:
    kinds = {
        POSITIONAL: inspect.Parameter.POSITIONAL_ONLY,
        EITHER: inspect.Parameter.POSITIONAL_OR_KEYWORD,
        KEYWORD: inspect.Parameter.KEYWORD_ONLY,
    }
    signature = inspect.Signature(
        [
            inspect.Parameter(one.name, kinds[one.kind], default=inspect.Parameter.empty if one.required else None)
            for one in form.parameters
        ]
    )
    try:
        signature.bind(*[1] * positional, **dict.fromkeys(keywords, 1))
    except TypeError:
        return False
    return True


@settings(max_examples=400, deadline=None, derandomize=True)
@given(forms(), st.integers(0, 6), st.lists(st.sampled_from("abcdef"), unique=True, max_size=4))
def test_arguments_meet_parameters_as_python_binds_them(form: Signature, positional: int, keywords: list[str]) -> None:
    arguments = [*[Argument(None, 1)] * positional, *(Argument(name, 1) for name in keywords)]
    assert (problems("f", form, arguments, {}) == []) == binds(form, positional, keywords)


# --- recording ---


def test_a_signature_is_read_from_the_librarys_text() -> None:
    text = (
        "def __call__(self, x: ttnn._ttnn.tensor.Tensor, k: int = \\0, g: ttnn._ttnn.types.Grid, /, "
        'y: "a::B<int, 2>" | ttnn._ttnn.tensor.Tensor, \\*, z: Optional[ttnn.QueueId] = None, '
        "w: collections.abc.Sequence[tuple[int, float]] = \\1) -> list[ttnn._ttnn.tensor.Tensor]"
    )
    assert parse(text) == Signature(
        (
            Parameter("x", POSITIONAL, True, "ttnn.Tensor"),
            Parameter("k", POSITIONAL, False, "int"),
            Parameter("g", POSITIONAL, True, "ttnn.Grid"),
            Parameter("y", EITHER, True, "a::B<int, 2> | ttnn.Tensor"),
            Parameter("z", KEYWORD, False, "ttnn.QueueId | None"),
            Parameter("w", KEYWORD, False, "Sequence[tuple[int, float]]"),
        ),
        "list[ttnn.Tensor]",
    )
    assert parse("def f() -> None") == Signature((), "None")
    with pytest.raises(Unrecordable, match="takes anything"):
        parse("def f(*args) -> None")


# --- what changed between versions ---

A, B, C = (Parameter(name, EITHER, True, kind) for name, kind in (("a", "int"), ("b", "float"), ("c", "str")))


def table(*forms: Signature, version: str = "1", names: dict | None = None, types: dict | None = None) -> Table:
    return Table(version, {"ttnn.f": forms} if forms else {}, names or {}, types or {})


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ((A, B), (A, B), []),
        ((A,), (A, B), ["parameter b (float, required) is added"]),
        ((A,), (A, replace(B, required=False)), ["parameter b (float, optional) is added"]),
        ((A, B), (A,), ["parameter b is removed"]),
        ((A, B), (A, replace(B, name="beta")), ["parameter b is renamed to beta"]),
        ((A, B), (A, C), ["parameter b is removed", "parameter c (str, required) is added"]),
        ((A, replace(B, required=False)), (A, B), ["parameter b is required now"]),
        ((A, B), (A, replace(B, required=False)), ["parameter b is optional now"]),
        ((A, B), (A, replace(B, kind=KEYWORD)), ["parameter b is given by name only now, by position or name before"]),
        ((A, B), (A, replace(B, type="int")), ["parameter b takes int instead of float"]),
        ((A, B), (B, A), ["parameters (a, b) stand as (b, a)"]),
        (
            (A, replace(B, required=False)),
            (A, replace(B, name="beta")),
            ["parameter b is renamed to beta", "parameter beta is required now"],
        ),
    ],
)
def test_a_changed_parameter_is_told_in_words(before: tuple, after: tuple, expected: list[str]) -> None:
    found = changes(table(Signature(before, "None")), table(Signature(after, "None")))
    assert found == [f"ttnn.f: {line}" for line in expected]


def test_forms_operations_names_and_types_that_come_and_go_are_told() -> None:
    one, two, three = Signature((A,), "None"), Signature((B, C), "None"), Signature((B, replace(C, type="bool")), "int")
    assert changes(table(one), table(one, two)) == ["ttnn.f: form (b, c) -> None is new"]
    assert changes(table(one, two), table(two)) == ["ttnn.f: form (a) -> None is missing"]
    assert changes(table(one, two), table(two, one)) == ["ttnn.f: its forms are tried in another order"]
    assert changes(table(one, two), table(one, three)) == [
        "ttnn.f: parameter c takes bool instead of str",
        "ttnn.f: returns int instead of None",
    ]
    fuller = Signature((A, replace(B, type="int")), "None")
    assert changes(table(one, Signature((A, B), "None")), table(fuller)) == [
        "ttnn.f: parameter b takes int instead of float",
        "ttnn.f: form (a) -> None is missing",
    ]
    assert changes(table(one), table()) == ["ttnn.f is missing"]
    assert changes(table(), table(one)) == ["ttnn.f is new"]
    assert changes(table(names={"ttnn.a": "X", "ttnn.b": "X"}), table(names={"ttnn.b": "Y", "ttnn.c": "X"})) == [
        "name ttnn.a is missing",
        "name ttnn.b: X became Y",
        "name ttnn.c is new",
    ]
    assert changes(table(types={"G": ("int",)}), table(types={"G": ()})) == ["type G: int became nothing else"]


def test_a_report_names_both_versions() -> None:
    assert report(table(), table()) == ""
    assert report(table(version="0.81.1"), table(Signature((), "None"), version="0.90.0")) == (
        "ttnn 0.81.1 is recorded, ttnn 0.90.0 is installed; 2 differences:\n"
        "  version 0.81.1 became 0.90.0\n  ttnn.f is new"
    )
