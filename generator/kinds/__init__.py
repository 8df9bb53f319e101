"""What the parts of a layer need from the generator: their device weights, the matmuls that they run, and their operations.

A part is one file here, one template under templates/kinds and one function of the torch reference; the tables of a module
are the parts' tables one after another.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from generator.kinds import attention, experts, gated_delta_net, mlp, model
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
        self, resolved: Resolved, shape: PassShape, chunks: Attention, hidden: Tensor, summed: Tensor, kind: str
    ) -> Iterator[Step]:
        """The part's device operations in a layer of a kind, one of resolved.kinds, and a pass of `shape`: they use up
        `hidden` and leave `summed`.
        """


MIXERS = {"gated_delta_net": gated_delta_net}  # by the kind of layer, where it is no attention


def layer_parts(resolved: Resolved, kind: str) -> tuple[Part, ...]:
    """The parts of a layer of a kind, in the order they run."""
    return (MIXERS.get(kind, attention), mlp if resolved.experts is None else experts)


def parts(resolved: Resolved) -> tuple[Part, ...]:
    """The parts of all layers, each once: what mixes tokens in each kind of layer, then the feed-forward."""
    mixers, (*_, feed_forward) = zip(*(layer_parts(resolved, kind) for kind in resolved.kinds))
    return (*dict.fromkeys(mixers), feed_forward)


def model_weights(resolved: Resolved) -> tuple[WeightRow, ...]:
    """Weights that exist once."""
    return model.weights(resolved)


def layer_weights(resolved: Resolved) -> tuple[WeightRow, ...]:
    """Weights of each layer, in the order they are used."""
    return tuple(row for part in parts(resolved) for row in part.weights(resolved))


def layer_matmuls(resolved: Resolved) -> tuple[MatmulRole, ...]:
    """Matmuls that run over all tokens of a pass, in the order they run."""
    return tuple(role for part in parts(resolved) for role in part.matmuls(resolved))


def head_matmul(resolved: Resolved) -> MatmulRole:
    """The one matmul that sees only the last rows."""
    return model.head(resolved)
