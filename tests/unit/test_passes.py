"""The rewriting passes: what each does, that committed modules need it, and that broken templates are refused by name."""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path

import black
import libcst
import pytest

from generator import inputs
from generator.passes import PASSES
from generator.passes.fold import fold_constants
from generator.passes.invariants import InvariantError, check_invariants
from generator.passes.names import uses, walk
from generator.passes.order import order_definitions
from generator.passes.prune import prune_unused
from generator.passes.variants import drop_variants
from generator.pipeline import FORMAT, TemplateFault, emit
from generator.source_map import unmark
from tests.support.building import committed_text, emitted, resolved

REWRITES = ("fold_constants", "drop_variants", "prune_unused", "order_definitions")


@cache
def rewritten(model: str, target: str, without: str) -> str:
    """A committed module as it would be if one rewriting pass were missing and nothing checked."""
    tree = emitted(model, target).stages["rendered"]
    for name, run in PASSES:
        if name not in (without, "check_invariants"):
            tree = run(tree)
    return black.format_str(unmark(tree.code)[0], mode=FORMAT)


def test_every_rewriting_pass_is_tested_here() -> None:
    assert tuple(name for name, _ in PASSES) == (*REWRITES, "check_invariants")


@pytest.mark.parametrize("name", REWRITES)
@pytest.mark.parametrize("model", ["qwen3-30b-a3b", "mixtral-8x7b-v0.1"])
def test_a_committed_module_changes_when_a_pass_is_removed(model: str, name: str) -> None:
    assert rewritten(model, "p150", without=name) != committed_text(model, "p150")


def test_with_all_passes_it_is_the_committed_module() -> None:
    assert rewritten("qwen2.5-7b", "n150", without="") == committed_text("qwen2.5-7b", "n150")


@pytest.mark.parametrize(
    ("model", "name", "expected"),
    [
        ("qwen2.5-7b", "fold_constants", "    if False:\n        query = head_norm(query, layer.query_norm, place)"),
        ("qwen3-30b-a3b", "drop_variants", "def attend_chunked_batched("),
        ("qwen3.5-35b-a3b", "drop_variants", "def each("),
        ("llama-3.1-8b", "prune_unused", "HEAD_NORM = (1, 1, HEAD_DIM // TILE, TILE)"),
        ("qwen2.5-7b", "prune_unused", "\ndef rotate_pairs("),
    ],
)
def test_what_a_removed_pass_leaves_behind(model: str, name: str, expected: str) -> None:
    target = "p150" if name == "drop_variants" else "n150"
    assert expected in rewritten(model, target, without=name)
    assert expected not in committed_text(model, target)


def test_without_the_ordering_pass_functions_stand_above_those_they_use() -> None:
    def positions(text: str) -> tuple[int, int]:
        return text.index("\ndef attention("), text.index("\ndef rotate_halves(")

    user, used = positions(rewritten("smollm2-135m", "n150", without="order_definitions"))
    assert user < used
    user, used = positions(committed_text("smollm2-135m", "n150"))
    assert used < user


def test_without_folding_the_invariants_refuse_the_module() -> None:
    tree = emitted("smollm2-135m", "n150").stages["rendered"]
    with pytest.raises(InvariantError, match="a conditional expression survives; an `if` statement survives"):
        check_invariants(order_definitions(prune_unused(tree)))


def run(rewrite, code: str) -> str:
    return rewrite(libcst.parse_module(code)).code


@pytest.mark.parametrize(
    ("condition", "truth"),
    [
        ("True", True),
        ("False", False),
        ("not True", False),
        ("True and False", False),
        ("False or True", True),
        ("not (False or False)", True),
        ("False and x", False),
        ("True or x", True),
    ],
)
def test_a_branch_on_a_literal_folds_to_the_side_taken(condition: str, truth: bool) -> None:
    code = f"if {condition}:\n    a = 1\nelse:\n    a = 2\n"
    assert run(fold_constants, code) == f"a = {1 if truth else 2}\n"
    assert run(fold_constants, f"a = 1 if {condition} else 2\n") == f"a = {1 if truth else 2}\n"


@pytest.mark.parametrize("condition", ["x", "x and True", "False or x", "not x", "1"])
def test_a_branch_on_anything_else_is_left_for_the_invariants(condition: str) -> None:
    code = f"if {condition}:\n    a = 1\n"
    assert run(fold_constants, code) == code


def test_chains_of_branches_and_empty_ones_fold() -> None:
    assert run(fold_constants, "if False:\n    a = 1\nelif True:\n    a = 2\nelse:\n    a = 3\n") == "a = 2\n"
    assert run(fold_constants, "if x:\n    a = 1\nelif False:\n    a = 2\nelse:\n    a = 3\n") == (
        "if x:\n    a = 1\nelse:\n    a = 3\n"
    )
    assert run(fold_constants, "if x:\n    a = 1\nelif True:\n    a = 2\nelse:\n    a = 3\n") == (
        "if x:\n    a = 1\nelse:\n    a = 2\n"
    )
    assert run(fold_constants, "if False:\n    a = 1\nelif x:\n    a = 2\n") == "if x:\n    a = 2\n"
    assert run(fold_constants, "if True:\n    if False:\n        a = 1\n    else:\n        b = 1\n") == "b = 1\n"
    assert run(fold_constants, "a = 0\nif True:\n    pass\nif False:\n    a = 1\n") == "a = 0\n"


def test_a_comment_above_a_branch_stays_with_what_is_left_of_it() -> None:
    assert run(fold_constants, "# why\nif True:\n    a = 1\n    b = 2\n") == "# why\na = 1\nb = 2\n"


def test_an_option_that_folds_to_none_goes_away() -> None:
    assert run(fold_constants, "f(x, bias=b if False else None, y=None)\n") == "f(x, y=None)\n"
    assert run(fold_constants, "f(x, bias=b if True else None)\n") == "f(x, bias=b)\n"


def test_pruning_follows_chains_of_uses_and_keeps_the_interface() -> None:
    code = "from m import A, B\nONE = A\nTWO = ONE\nHIDDEN = 1\n\ndef used():\n    return B\n\ndef body():\n    return used()\n"
    assert run(prune_unused, code) == (
        "from m import B\nHIDDEN = 1\n\ndef used():\n    return B\n\ndef body():\n    return used()\n"
    )


def test_a_function_that_only_calls_itself_is_unused() -> None:
    assert run(prune_unused, "HIDDEN = 1\n\ndef alone(x):\n    return alone(x)\n") == "HIDDEN = 1\n"


def test_the_names_of_attributes_and_keywords_are_no_uses() -> None:
    assert run(prune_unused, "ONE = 1\nTWO = 2\nHIDDEN = x.ONE(TWO=3)\n") == "HIDDEN = x.ONE(TWO=3)\n"


def test_the_heading_of_a_pruned_definition_passes_on() -> None:
    code = "LAYERS = 0\n# --- heading\nONE = 1\nHIDDEN = 2\n"
    assert run(prune_unused, code) == "LAYERS = 0\n# --- heading\nHIDDEN = 2\n"


def test_ordering_moves_definitions_above_their_uses_within_a_section_only() -> None:
    code = "# --- one\nb = a\na = 1\n# --- two\nd = c\nc = a\n"
    assert run(order_definitions, code) == "# --- one\na = 1\nb = a\n# --- two\nc = a\nd = c\n"


def test_ordering_changes_nothing_where_nothing_forces_it_and_ends_on_a_cycle() -> None:
    assert run(order_definitions, "b = 1\na = 2\n") == "b = 1\na = 2\n"
    cycle = "def f():\n    return g()\ndef g():\n    return f()\n"
    assert sorted(run(order_definitions, cycle).split("\n")) == sorted(cycle.split("\n"))


GOOD = "from runtime.backend import ttnn\nDRAM = ttnn.DRAM\n\ndef add(a, b):\n    return ttnn.add(a, b, dtype=a.dtype, memory_config=DRAM)\n"


@pytest.mark.parametrize(
    ("code", "fault"),
    [
        ("if x:\n    pass\n", "an `if` statement survives"),
        ("a = 1 if 2 else 3\n", "a conditional expression survives"),
        ("a = [i for i in range(3) if i]\n", "an `if` in a comprehension survives"),
        ('a = "{{ model.name }}"\n', "template syntax survives in"),
        ("def f():\n    '''{% if x %}'''\n", "template syntax survives in"),
        (
            "def f(x):\n    return ttnn.add(x, x, dtype=x, memory_config=x)\n",
            "f uses ttnn, which nothing above it defines",
        ),
        ("a = b\nb = 1\n", "a uses b, which nothing above it defines"),
        ("a = a + 1\n", "a uses a, which nothing above it defines"),
        ("def f(x=y):\n    return x\n", "f uses y, which nothing above it defines"),
        ("def f(x):\n    return lambda z: z + w\n", "f uses w, which nothing above it defines"),
        (
            "def f(a, t):\n    return t.add(a, a, dtype=a)\n",
            "a call of add leaves memory_config to the library's default",
        ),
        (
            "def f(a, t):\n    return t.linear(a, a, dtype=a, memory_config=a, program_config=a)\n",
            "a call of linear leaves compute_kernel_config to the library's default",
        ),
        (
            "def f(a, t):\n    return t.x.rotary_embedding_hf(a, memory_config=a, compute_kernel_config=a)\n",
            "a call of rotary_embedding_hf leaves is_decode_mode to the library's default",
        ),
    ],
)
def test_a_broken_promise_is_named(code: str, fault: str) -> None:
    assert run(check_invariants, GOOD) == GOOD
    with pytest.raises(InvariantError) as caught:
        run(check_invariants, code)
    assert fault in str(caught.value)


@pytest.fixture
def templates(tmp_path: Path) -> Path:
    shutil.copytree(inputs.TEMPLATES, tmp_path / "templates")
    return tmp_path / "templates"


def append(path: Path, text: str) -> int:
    """Add a line to a template; its number."""
    before = path.read_text(encoding="utf-8")
    path.write_text(f"{before}{text}\n", encoding="utf-8")
    return before.count("\n") + 1


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("X = {{ missing_name }}", "'missing_name' is undefined"),
        ("X = {{ model.missing_field }}", "has no attribute 'missing_field'"),
        ("X = {{ model.name | missing_filter }}", "No filter named 'missing_filter'"),
        ("{% if %}", "Expected an expression"),
    ],
)
def test_a_name_that_a_template_does_not_get_fails_by_name_and_line(templates: Path, text: str, fault: str) -> None:
    line = append(templates / "body.py.jinja", text)
    with pytest.raises(TemplateFault) as caught:
        emit(resolved("smollm2-135m", "n150"), "models/smollm2-135m.toml", templates)
    assert fault in str(caught.value)
    assert f"{templates / 'body.py.jinja'}:{line}: " in str(caught.value)


@pytest.mark.parametrize(
    ("text", "fault"), [("WIDTH = (", "Syntax Error"), ("LAYERS = LAYERS + nothing", "LAYERS uses nothing")]
)
def test_a_template_that_makes_no_valid_module_is_refused(templates: Path, text: str, fault: str) -> None:
    append(templates / "body.py.jinja", text)
    with pytest.raises(TemplateFault, match=fault):
        emit(resolved("smollm2-135m", "n150"), "models/smollm2-135m.toml", templates)


class Visitor(libcst.CSTVisitor):
    """What the library's own way through a tree meets, in its order."""

    def __init__(self) -> None:
        self.met: list[libcst.CSTNode] = []

    def on_visit(self, node: libcst.CSTNode) -> bool:
        self.met.append(node)
        return True


class Names(libcst.CSTVisitor):
    def __init__(self) -> None:
        self.names: set[str] = set()

    def visit_Name(self, node: libcst.Name) -> None:  # noqa: N802 (libcst's names)
        self.names.add(node.value)

    def visit_Attribute(self, node: libcst.Attribute) -> bool:  # noqa: N802
        node.value.visit(self)
        return False

    def visit_Arg(self, node: libcst.Arg) -> bool:  # noqa: N802
        node.value.visit(self)
        return False


CODE = (
    libcst.BaseExpression,
    libcst.BaseStatement,
    libcst.BaseSmallStatement,
    libcst.Arg,
    libcst.Param,
    libcst.Parameters,
    libcst.AssignTarget,
    libcst.Decorator,
    libcst.ImportAlias,
    libcst.CompFor,
    libcst.CompIf,
    libcst.Else,
    libcst.IndentedBlock,
    libcst.SubscriptElement,
    libcst.BaseElement,
)
ODD = """
@decorated(with_=some[0:1], *rest, **more)
def f(a, b: int = c, *d, e=g, **h) -> i:
    global j
    try:
        with k as l, m(n) as (o, q):
            return [r if s else t async for u in v if w if x], {**y, z: lambda aa, *, ab=ac: ad}
    except (af, ag) as ah:
        raise ai from aj
    else:
        assert ak, f"{al!r:>{am}} {'an'}"
    while not (ao := ap.aq.ar(as_=at)):
        del au.av[aw, ...]; ax: ay = az; ba += -bb ** bc
    for bd, *be in bf: pass
    if bg < bh <= bi is not bj in bk: yield from bl
"""


@pytest.mark.parametrize(
    "source", [ODD, *(committed_text(model, "n150") for model in ("smollm2-135m", "phi-3.5-mini"))]
)
def test_looking_at_a_tree_meets_all_code_that_the_librarys_visitor_meets(source: str) -> None:
    tree = libcst.parse_module(source)
    visitor = Visitor()
    tree.visit(visitor)
    met = {id(node) for node in walk(tree)}
    missed = [node for node in visitor.met if isinstance(node, CODE) and id(node) not in met]
    assert not missed and len(met) > 50
    for statement in tree.body:
        names = Names()
        statement.visit(names)
        assert uses(statement) == names.names


def test_folding_leaves_statements_without_a_branch_as_they_are_and_takes_top_level_branches() -> None:
    source = "a = 1\nif True:\n    b = 2\n    c = 3\nelse:\n    d = 4\nif False:\n    e = 5\nf = 6 if True else 7\n"
    tree = libcst.parse_module(source)
    folded = fold_constants(tree)
    assert folded.code == "a = 1\nb = 2\nc = 3\nf = 6\n"
    assert folded.body[0] is tree.body[0]


def test_tables_keep_the_variants_that_passes_have():
    code = """\
TRACES = (Shape("single", 1, 32), Shape("chunked", 1, 32))
INPUTS = {"single": a, "batched": b, "chunked": c}
ATTEND = {
    ("full", "single"): d,
    ("full", "chunked_batched"): e,
}
KEPT = {"single": 1, "double": 2}
NONE = {"ragged": f}
"""
    assert black.format_str(run(drop_variants, code), mode=FORMAT) == """\
TRACES = (Shape("single", 1, 32), Shape("chunked", 1, 32))
INPUTS = {"single": a, "chunked": c}
ATTEND = {
    ("full", "single"): d,
}
KEPT = {"single": 1, "double": 2}
NONE = {}
"""
