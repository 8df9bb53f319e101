"""The figures of the README that the mock device gives are those that it gives today."""

from __future__ import annotations

from typing import Any

from generator import catalog
from generator.lock import module_path
from generator.captured import add_modelled_time
from runtime.legality.environment import PROJECT
from runtime.legality.table import markdown


def as_the_command_says(verdict: dict[str, Any]) -> dict[str, Any]:
    """The verdict under the model's own name, not its folder's, with modelled times."""
    (name,) = (
        model
        for model in catalog.names(catalog.BUILT_IN)
        if module_path(model, verdict["target"], twin=False).split("/")[0] == verdict["model"]
    )
    named = {**verdict, "model": name, "shapes": [dict(shape) for shape in verdict["shapes"]]}
    add_modelled_time(named, catalog.BUILT_IN)
    return named


def test_the_table_of_all_modules_is_the_one_that_the_command_prints(verdicts) -> None:
    table = markdown([as_the_command_says(verdict) for verdict in verdicts.values()])
    missing = set(table.split("\n")) - set((PROJECT / "README.md").read_text(encoding="utf-8").split("\n"))

    assert (
        not missing
    ), f"`codegen legal --all --markdown` prints these lines, which the README lacks: {sorted(missing)}"
