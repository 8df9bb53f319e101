"""What a sequence leaves behind in a model's layers."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from runtime.reference.gated_delta_net import State, fresh
from runtime.tables import GatedDeltaNet


@dataclass
class Cache:
    """Keys (rotated) and values of every attention layer so far, `[key_value_heads, tokens, head_dim]` each, which grow with
    each call; and what each recurrent layer keeps, as it is after the last token. Layers are counted among their kind.
    `length` is in tokens.
    """

    keys: list[Tensor] = field(default_factory=list)
    values: list[Tensor] = field(default_factory=list)
    recurrent: list[State] = field(default_factory=list)
    length: int = 0

    def extend(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """All keys and values of an attention layer, with these behind those before."""
        if layer == len(self.keys):
            self.keys.append(key)
            self.values.append(value)
        else:
            self.keys[layer] = torch.cat((self.keys[layer], key), dim=1)
            self.values[layer] = torch.cat((self.values[layer], value), dim=1)
        return self.keys[layer], self.values[layer]

    def state(self, layer: int, net: GatedDeltaNet, dtype: torch.dtype) -> State:
        """What a recurrent layer keeps; of a sequence without tokens zero."""
        return self.recurrent[layer] if layer < len(self.recurrent) else fresh(net, dtype)

    def keep(self, layer: int, state: State) -> None:
        """In place of what a recurrent layer kept before."""
        self.recurrent[layer : layer + 1] = [state]
