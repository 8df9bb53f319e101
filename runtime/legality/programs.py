"""Program configurations of the library in a few words, for tables and records."""

from __future__ import annotations

import re
from typing import Any

_FIELD = re.compile(r"(\w+)=([^,()]+)")


def described(program: Any) -> str:
    """A configuration from its printed form: kind, grid of cores and how the work is cut. Blocks count tiles, chunks
    tokens."""
    text = repr(program)
    kind = text.split("(")[0]
    fields = {name: value.strip() for name, value in _FIELD.findall(text)}
    grid = fields.get("compute_with_storage_grid_size", "").replace("-", "x")
    if "q_chunk_size" in fields:
        return f"chunks q{fields['q_chunk_size']} k{fields['k_chunk_size']} on {grid}"
    if "M_block_size" in fields:
        blocks = "x".join(fields[f"{side}_block_size"] for side in "MKN")
        return f"minimal {grid} blocks {blocks} sub {fields['subblock_h']}x{fields['subblock_w']}"
    if "out_subblock_h" in fields:
        way = {"MultiCastProgramConfig": "2d", "MultiCast1DProgramConfig": "1d"}
        cut = next((short for long, short in way.items() if kind.endswith(long)), kind)
        block = f"{fields['out_block_h']}x{fields['out_block_w']}" if "out_block_h" in fields else "-"
        core = f"{fields['per_core_M']}x{fields['per_core_N']}"
        sub = f"{fields['out_subblock_h']}x{fields['out_subblock_w']}"
        fused = fields.get("fused_activation", "std::nullopt")
        activation = "" if fused == "std::nullopt" else f" +{fused.rpartition('::')[2].lower()}"
        return f"{cut} {grid} k{fields['in0_block_w']} sub {sub} block {block} core {core}{activation}"
    return kind
