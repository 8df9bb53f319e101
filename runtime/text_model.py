"""The text model inside the checkpoint of a model that also takes images: its tensors by the names that they have alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from runtime.checkpoint import Checkpoint

# What stands before the text model's names, as published and in state dicts of transformers 5, and what it stands for.
PREFIXES = (("language_model.", ""), ("model.language_model.", "model."))
OTHER_PARTS = ("vision_tower.", "multi_modal_projector.")


class TextModel:
    """A checkpoint without the tensors of other parts, read one at a time as the checkpoint itself is."""

    def __init__(self, whole: Checkpoint, prefix: str, stands_for: str) -> None:
        self._whole = whole
        self._names = {}
        for name in whole.names():
            if name.startswith(prefix):
                self._names[stands_for + name.removeprefix(prefix)] = name
            elif not name.removeprefix("model.").startswith(OTHER_PARTS):
                self._names[name] = name

    def names(self) -> Iterable[str]:
        return self._names.keys()

    def shape(self, name: str) -> tuple[int, ...]:
        return self._whole.shape(self._names[name])

    def read(self, name: str) -> torch.Tensor:
        return self._whole.read(self._names[name])

    def where(self, name: str) -> str:
        return self._whole.where(self._names.get(name, name))


def text_model(whole: Checkpoint) -> Checkpoint:
    """The text model of a checkpoint; the checkpoint itself where it is nothing else."""
    for prefix, stands_for in PREFIXES:
        if any(name.startswith(prefix) for name in whole.names()):
            return TextModel(whole, prefix, stands_for)
    return whole
