"""The stages from a manifest to the text of an emitted module, one after another."""

from __future__ import annotations

import ast
import traceback
from dataclasses import dataclass
from pathlib import Path

import black
import jinja2
import libcst

from generator.geometry import Resolved
from generator.passes import PASSES
from generator.passes.invariants import InvariantError
from generator.passes.signatures import check_signatures
from generator.render import render
from generator.shapes import PassShape, enumerate_shapes
from generator.source_map import Origin, follow, unmark

FORMAT = black.Mode(target_versions={black.TargetVersion.PY310}, line_length=120)


@dataclass(frozen=True)
class Emitted:
    """One emitted module: its text, where each line came from, and the tree after each stage by the stage's name."""

    resolved: Resolved
    shapes: tuple[PassShape, ...]
    text: str
    origins: tuple[Origin | None, ...]
    stages: dict[str, libcst.Module]


class TemplateFault(Exception):
    """The templates cannot be filled, or what they make is no valid module: never a fault of the manifest."""


def emit(resolved: Resolved, manifest: str, templates: Path) -> Emitted:
    """Shapes, programs, templates, passes, format, parse and check of signatures. Pure: equal inputs give equal bytes.

    Raises generator.programs.NoProgram where a shape has no legal program, and TemplateFault.
    """
    try:
        return _emit(resolved, manifest, templates)
    except (jinja2.TemplateError, libcst.ParserSyntaxError, InvariantError) as error:
        raise TemplateFault(f"{_template_line(error)}{error}") from error


def _template_line(error: Exception) -> str:
    """Where in a template an error arose, as a prefix; empty for a fault of the whole module."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.endswith(".jinja")]
    return f"{frames[-1].filename}:{frames[-1].lineno}: " if frames else ""


def _emit(resolved: Resolved, manifest: str, templates: Path) -> Emitted:
    shapes = enumerate_shapes(resolved)
    tree = libcst.parse_module(render(resolved, shapes, manifest, templates))
    stages = {"rendered": tree}
    for name, run in PASSES:
        try:
            tree = run(tree)
        except InvariantError:
            _finished(tree)  # a misspelt option is told as such before it is told as one that is left out
            raise
        stages[name] = tree
    text, origins = _finished(tree)
    return Emitted(resolved, shapes, text, origins, stages)


def _finished(tree: libcst.Module) -> tuple[str, tuple[Origin | None, ...]]:
    """The formatted text of a tree, with every use of ttnn checked, and the origins of its lines."""
    code, origins = unmark(tree.code)
    text = black.format_str(code, mode=FORMAT)
    followed = tuple(follow(code, origins, text))
    check_signatures(ast.parse(text), text, followed)
    return text, followed
