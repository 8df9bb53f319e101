"""Write what each stage of the pipeline made, numbered in the order they run."""

from __future__ import annotations

import json
from pathlib import Path

from generator.pipeline import Emitted
from generator.placement import choose_programs
from generator.source_map import unmark


def dump(folder: Path, emitted: Emitted) -> None:
    """Stages of one module below `folder`/model/target; later stages are Python source, earlier ones JSON."""
    resolved, shapes = emitted.resolved, emitted.shapes
    chosen = choose_programs(resolved, shapes)
    programs = {
        "matmuls": [[role, size, vars(choice)] for (role, size), choice in chosen.matmuls.items()],
        "attention": [[shape.to_json(), vars(choice)] for shape, choice in chosen.attentions.items()],
        "places": [[size, sorted(places)] for size, places in chosen.places.items()],
    }
    data = {"resolved": resolved.to_json(), "shapes": [shape.to_json() for shape in shapes], "programs": programs}
    stages = [(f"{name}.json", json.dumps(value, indent=1) + "\n") for name, value in data.items()]
    stages += [(f"{name}.py", unmark(tree.code)[0]) for name, tree in emitted.stages.items()]
    stages.append(("formatted.py", emitted.text))
    place = folder / resolved.module / resolved.target
    place.mkdir(parents=True, exist_ok=True)
    for number, (name, text) in enumerate(stages, 1):
        (place / f"{number:02}-{name}").write_text(text, encoding="utf-8")
