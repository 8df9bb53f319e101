"""The tables of a module without its text: all that admission, planning and staging read of it.

They are made by the generator from a manifest, so that a plan over them is the plan that an emitted module would give.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from generator import catalog, geometry, targets
from generator.geometry import Resolved
from generator.manifest import ModelFile, check
from generator.pass_time import microseconds
from generator.placement import choose_programs
from generator.shapes import enumerate_shapes
from generator.toml_source import scan
from runtime.tables import Shape

TARGET = "p150"
BLOCK = 32
DTYPES = dict.fromkeys(("weights", "embedding", "head", "key_value", "activation"), "bfloat16")


def manifest(
    context: int,
    chunk: int,
    wave_tokens: int,
    lengths: tuple[int, ...],
    blocks: int,
    ragged_tokens: tuple[int, ...] = (),
) -> ModelFile:
    """A model of one small layer whose passes have the sizes of a large one's. All sizes are tokens but `blocks`."""
    data: dict[str, Any] = {
        "name": "planning",
        "family": "llama",
        "source": "sizes of passes only",
        "model": {
            "vocabulary": 64,
            "hidden": 32,
            "intermediate": 32,
            "layers": 1,
            "query_heads": 1,
            "key_value_heads": 1,
            "maximum_context": context,
            "norm_epsilon": 1e-5,
            "activation": "silu",
            "tied_embeddings": True,
            "rope": {"kind": "default", "theta": 10000.0},
        },
        "target": {
            TARGET: {
                "context": context,
                "block_size": BLOCK,
                "key_value_blocks": blocks,
                "lengths": lengths,
                "waves": (1, 2, 4, 8, 16, 32),
                "wave_tokens": wave_tokens,
                **({"ragged_tokens": ragged_tokens} if ragged_tokens else {}),
                "prefill_chunk": chunk,
                "attention_chunk": 128,
                "dtypes": DTYPES,
            }
        },
    }
    return check(data, "planning.toml", scan(""), (TARGET,))


def resolve(file: ModelFile) -> Resolved:
    return geometry.resolve(file, targets.load_board(catalog.BUILT_IN, TARGET))


def tables(resolved: Resolved) -> SimpleNamespace:
    """What admission and the planner read of the module that `resolved` gives."""
    shapes = enumerate_shapes(resolved)
    priced = microseconds(resolved, choose_programs(resolved, shapes), shapes) if resolved.ragged_tokens else {}
    fields = Shape.__dataclass_fields__.keys() - {"microseconds"}
    return SimpleNamespace(
        VOCABULARY=resolved.vocabulary,
        CONTEXT=resolved.context,
        BLOCK_SIZE=resolved.block_size,
        KEY_VALUE_BLOCKS=resolved.key_value_blocks,
        PREFILL_CHUNK=resolved.prefill_chunk,
        ALIGNMENT=resolved.alignment,
        LENGTHS=resolved.lengths,
        TRACES=tuple(
            Shape(**{name: getattr(shape, name) for name in fields}, microseconds=priced.get(shape, 0))
            for shape in shapes
        ),
    )
