"""Rows of the tables that the parts of a layer contribute."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from generator import programs
from generator.shapes import largest_pass
from generator.tiles import TILE, tiles

if TYPE_CHECKING:
    from generator.geometry import Resolved

LAYER = "model.layers.{layer}."  # what the published names of a layer's weights begin with


@dataclass(frozen=True)
class WeightRow:
    """One entry of an emitted weight table. `shape`, `dtype` and `layout` are expressions over the module's constants.

    `experts`, `parts`, `otherwise` and `kind` are those of runtime.tables.Weight.
    """

    name: str
    sources: tuple[str, ...]
    transform: str
    shape: str
    dtype: str
    layout: str = "TILED"
    experts: int = 0
    parts: int = 1
    otherwise: tuple[str, ...] = ()
    kind: str = ""


@dataclass(frozen=True)
class MatmulRole:
    """One kind of matmul: sizes in elements, dtypes by their ttnn names; `bias_dtype` is None without a bias.

    `fused` names what a minimal matmul does besides (matmuls.PAIRS, matmuls.RESIDUAL), "" for a plain matmul. `over_tokens`: the
    inner dimension is that of the tokens, whatever `inner` says. `one_row`: one row comes of it, and not one for each token.
    """

    name: str
    inner: int
    output: int
    weight_dtype: str
    output_dtype: str = "bfloat16"
    bias_dtype: str | None = None
    fused: str = ""
    over_tokens: bool = False
    one_row: bool = False

    def sides(self, token_tiles: int) -> tuple[int, int, int]:
        """Tiles of the rows, the inner dimension and the columns in a pass of so many tiles of tokens."""
        inner = token_tiles if self.over_tokens else tiles(self.inner)
        return 1 if self.one_row else token_tiles, inner, tiles(self.output)


def norm(name: str, source: str, rule: str = "norm", layout: str = "ROW_MAJOR") -> WeightRow:
    """A norm over the hidden width."""
    return WeightRow(name, (source,), rule, "HIDDEN_NORM", "NORM_DTYPE", layout)


def layer_norm(resolved: Resolved, name: str, place: str) -> WeightRow:
    """A norm of each layer, published after its place there."""
    return norm(name, f"{LAYER}{place}_layernorm.weight", norm_rule(resolved), norm_layout(resolved))


def norm_rule(resolved: Resolved) -> str:
    """How the weight of a norm is made from the published one."""
    return "offset_norm" if resolved.unit_offset_norms else "norm"


def norm_layout(resolved: Resolved) -> str:
    """How the weight of a norm over hidden lies: row-major unless the norm runs in blocks."""
    return "TILED" if programs.norms_in_blocks(resolved) else "ROW_MAJOR"


def routed_tokens(resolved: Resolved) -> int:
    """Tokens of the largest pass, for which the constants of routing are made."""
    return largest_pass(resolved.lengths, resolved.waves, resolved.wave_tokens, resolved.ragged_tokens)


def extent(row: WeightRow, resolved: Resolved) -> tuple[int, ...]:
    """The shape of a weight in numbers: its expression with the constants that a module of this model has."""
    hidden, head_dim = resolved.hidden, resolved.head_dim
    constants = {
        "TILE": TILE,
        "VOCABULARY": resolved.device_vocabulary,
        "HIDDEN": hidden,
        "INTERMEDIATE": resolved.device_intermediate,
        "QUERY_HEADS": resolved.device_query_heads,
        "QUERY_WIDTH": resolved.device_query_width,
        "QUERY_KEY_VALUE_WIDTH": resolved.device_query_key_value_width,
        "HEAD_DIM": head_dim,
        "CONTEXT": resolved.context,
        "PREFILL_CHUNK": resolved.prefill_chunk,
        "HIDDEN_NORM": (1, 1, 1, hidden) if programs.norms_in_blocks(resolved) else (1, 1, hidden // TILE, TILE),
        "HEAD_NORM": (1, 1, head_dim // TILE, TILE),
    }
    if resolved.experts is not None:
        constants |= {
            "EXPERTS": resolved.experts.count,
            "EXPERTS_PER_TOKEN": resolved.experts.per_token,
            "EXPERT_WIDTH": resolved.experts.intermediate // row.parts,
            "MOST_TOKENS": routed_tokens(resolved),
        }
    if resolved.experts is not None and resolved.experts.shared_intermediate:
        constants["SHARED_WIDTH"] = resolved.experts.shared_intermediate
    net = resolved.gated_delta_net
    if net is not None:
        constants |= {
            "VALUE_HEADS": net.value_heads,
            "KEY_DIM": net.key_dim,
            "VALUE_DIM": net.value_dim,
            "VALUE_WIDTH": net.value_width,
            "CONVOLUTION_WIDTH": net.convolution_width,
            "RECURRENT_CHUNK": net.chunk,
        }
    return eval(row.shape, {"__builtins__": {}}, constants)  # an expression of this package


def stored_as(row: WeightRow, resolved: Resolved) -> str:
    """The dtype of a weight by its ttnn name."""
    role = row.dtype.removesuffix("_DTYPE").lower()
    names = {
        "weight": "weights",
        "embedding": "embedding",
        "head": "head",
        "activation": "activation",
        "expert": "experts",
        "state": "state",
    }
    return getattr(resolved.dtypes, names[role]) if role in names else "uint32" if role == "index" else "bfloat16"
