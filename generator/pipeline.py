"""The stages from a manifest to the text of an emitted module, one after another."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

import black
import libcst

from generator.geometry import Resolved
from generator.passes import PASSES
from generator.render import render
from generator.shapes import PassShape, enumerate_shapes
from generator.source_map import Origin, follow, unmark

FORMAT = black.Mode(target_versions={black.TargetVersion.PY310}, line_length=120)
LINES_OF_CODE_LIMIT = 500  # tables of integers not counted


@dataclass(frozen=True)
class Emitted:
    """One emitted module: its text, where each line came from, and every intermediate form by stage name."""

    resolved: Resolved
    shapes: tuple[PassShape, ...]
    text: str
    origins: tuple[Origin | None, ...]
    stages: dict[str, str]

    @property
    def path(self) -> str:
        """Where the module lives below the output folder."""
        return f"{self.resolved.module}/{self.resolved.target}.py"


def emit(resolved: Resolved, manifest: str, templates: Path) -> Emitted:
    """Shapes, programs, templates, passes, format and parse. Pure: equal inputs give equal bytes.

    Raises generator.programs.NoProgram where a shape has no legal program, and InvariantError on a fault of the templates.
    """
    shapes = enumerate_shapes(resolved)
    rendered = render(resolved, shapes, manifest, templates)
    stages = {"rendered": unmark(rendered)[0]}
    tree = libcst.parse_module(rendered)
    for name, run in PASSES:
        tree = run(tree)
        stages[name] = unmark(tree.code)[0]
    code, origins = unmark(tree.code)
    text = black.format_str(code, mode=FORMAT)
    ast.parse(text)
    return Emitted(resolved, shapes, text, tuple(follow(code, origins, text)), stages)
