"""What the parts of a layer need from the generator: their device weights and the matmuls that they run.

A part is one file here, one template under templates/kinds and one function of the torch reference; the tables of a module
are the parts' tables one after another.
"""

from __future__ import annotations

from generator.geometry import Resolved
from generator.kinds import attention, mlp, model
from generator.kinds.rows import MatmulRole, WeightRow

LAYER_PARTS = (attention, mlp)


def model_weights(resolved: Resolved) -> tuple[WeightRow, ...]:
    """Weights that exist once."""
    return model.weights(resolved)


def layer_weights(resolved: Resolved) -> tuple[WeightRow, ...]:
    """Weights of each layer, in the order they are used."""
    return tuple(row for part in LAYER_PARTS for row in part.weights(resolved))


def layer_matmuls(resolved: Resolved) -> tuple[MatmulRole, ...]:
    """Matmuls that run over all tokens of a pass, in the order they run."""
    return tuple(role for part in LAYER_PARTS for role in part.matmuls(resolved))


def head_matmul(resolved: Resolved) -> MatmulRole:
    """The one matmul that sees only the last rows."""
    return model.head(resolved)
