"""What the parts of a layer need from the generator: their device weights, the matmuls that they run, and their operations.

A part is one file here, one template under templates/kinds and one function of the torch reference; the tables of a module
are the parts' tables one after another.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from generator.kinds import attention, mlp, model
from generator.kinds.rows import MatmulRole, WeightRow

if TYPE_CHECKING:
    from generator.attentions import Attention
    from generator.geometry import Resolved
    from generator.shapes import PassShape
    from generator.steps import Step, Tensor


class Part(Protocol):
    """A module of this folder that states one half of a layer."""

    __name__: str

    def weights(self, resolved: Resolved) -> tuple[WeightRow, ...]: ...

    def matmuls(self, resolved: Resolved) -> tuple[MatmulRole, ...]: ...

    def steps(
        self, resolved: Resolved, shape: PassShape, chunks: Attention, hidden: Tensor, summed: Tensor
    ) -> Iterator[Step]:
        """The part's device operations in a pass of `shape`: they use up `hidden` and leave `summed`."""


def layer_parts(resolved: Resolved) -> tuple[Part, ...]:
    """The parts of every layer, in the order they run."""
    return (attention, mlp)


def model_weights(resolved: Resolved) -> tuple[WeightRow, ...]:
    """Weights that exist once."""
    return model.weights(resolved)


def layer_weights(resolved: Resolved) -> tuple[WeightRow, ...]:
    """Weights of each layer, in the order they are used."""
    return tuple(row for part in layer_parts(resolved) for row in part.weights(resolved))


def layer_matmuls(resolved: Resolved) -> tuple[MatmulRole, ...]:
    """Matmuls that run over all tokens of a pass, in the order they run."""
    return tuple(role for part in layer_parts(resolved) for role in part.matmuls(resolved))


def head_matmul(resolved: Resolved) -> MatmulRole:
    """The one matmul that sees only the last rows."""
    return model.head(resolved)
