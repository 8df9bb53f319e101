"""A checkpoint -> the device, through the module's weight tables, one tensor at a time.

Names and shapes are checked before the first upload; values as each tensor is read. On any failure nothing stays on the
device.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

from runtime import expert_weights
from runtime.backend import ttnn
from runtime.checkpoint import Checkpoint, open_checkpoint
from runtime.errors import ModuleError, WeightError
from runtime.resources import Ownership, Scope
from runtime.tables import Geometry, Weight, layer_kinds, states
from runtime.transforms import EMBEDDINGS, RULES, source_shapes
from runtime.wrapped import TEXT_MODEL, TextModel, is_of_further_tokens, is_text_model

FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
UPLOADED = (torch.float32, torch.bfloat16)
NAMED = 4  # tensors that one message lists

# Some checkpoints carry these although they follow from the rest: a tied head, and the turning rates of the rotary
# embedding.
TIED_HEAD = "lm_head.weight"
ROTARY_BUFFER = "rotary_emb.inv_freq"


def load_weights(
    module: ModuleType, device: Any, source: str | Path | Mapping[str, torch.Tensor], layers: int | None = None
) -> SimpleNamespace:
    """Every weight of a module on the device: one attribute for each of WEIGHTS and `layers`, a tuple of namespaces.

    In a module with recurrent state, a layer has its `kind`, a text, and the weights of that kind and of every kind.

    source: a safetensors file or folder, or a mapping from published names to tensors. layers: only so many, from the
    first on. Raises WeightError with the tensor, its file and both shapes.
    """
    count = module.LAYERS if layers is None else layers
    if not 0 < count <= module.LAYERS:
        raise ModuleError(f"{count} layers were asked for; the module has 1 to {module.LAYERS}")
    checkpoint = open_checkpoint(source)
    if is_text_model(module):
        checkpoint = TextModel(checkpoint)
    check_checkpoint(module, checkpoint, count)
    with Ownership().scope() as scope:
        loaded = {weight.name: _upload(checkpoint, device, weight, module.GEOMETRY, scope) for weight in module.WEIGHTS}
        loaded["layers"] = tuple(
            [
                SimpleNamespace(
                    **{
                        weight.name: _load(checkpoint, device, of_layer(weight, layer), module.GEOMETRY, scope)
                        for weight in module.LAYER_WEIGHTS
                        if has_weight(module, layer, weight)
                    },
                    **({"kind": layer_kinds(module)[layer]} if states(module) else {}),
                )
                for layer in range(count)
            ]
        )
        weights = SimpleNamespace(**loaded)
        scope.move(*tensors(weights))
    return weights


def tensors(weights: SimpleNamespace) -> Iterator[Any]:
    """Every device tensor of loaded weights."""
    for name, value in vars(weights).items():
        if name == "layers":
            for layer in value:
                for held in vars(layer).values():
                    if not isinstance(held, str):  # the kind of the layer
                        yield from flat(held)
        else:
            yield value


def flat(held: Any) -> Iterator[Any]:
    """The tensors of one weight: itself, or one for each expert in each part."""
    if not isinstance(held, tuple):
        yield held
        return
    for inner in held:
        yield from flat(inner)


def release(weights: SimpleNamespace) -> None:
    """Free every weight. Raises the first error after all were tried."""
    with Ownership().scope() as scope:
        for tensor in tensors(weights):
            scope.own(tensor)


def has_weight(module: ModuleType, layer: int, weight: Weight) -> bool:
    """Whether a layer has a row of the table: all have it, or those of the layer's kind."""
    return weight.kind in ("", *layer_kinds(module)[layer : layer + 1])


def of_layer(weight: Weight, layer: int) -> Weight:
    """The row of the table with the layer filled into its source names."""

    def filled(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple([name.replace("{layer}", str(layer)) for name in names])

    return replace(weight, sources=filled(weight.sources), otherwise=filled(weight.otherwise))


def of_checkpoint(weight: Weight, names: Collection[str]) -> Weight:
    """The row of the table with the sources that a checkpoint has: the other ones where only these are there."""
    lacking = weight.otherwise and _names(weight)[0] not in names and all(name in names for name in weight.otherwise)
    return replace(weight, sources=weight.otherwise) if lacking else weight


def _names(weight: Weight) -> tuple[str, ...]:
    return expert_weights.source_names(weight) if weight.experts else weight.sources


def _shapes(weight: Weight, geometry: Geometry) -> tuple[tuple[int, ...], ...]:
    if not weight.experts:
        return source_shapes(weight, geometry)
    return (expert_weights.source_shape(weight),) * len(_names(weight))


def check_checkpoint(module: ModuleType, checkpoint: Checkpoint, layers: int) -> None:
    """Raise WeightError unless the checkpoint has the tensors of `layers` layers in their shapes, and none that the
    module lacks.
    """
    wanted: dict[str, tuple[int, ...]] = {}
    allowed: set[str] = set()
    present = set(checkpoint.names())
    for weight in module.WEIGHTS:
        wanted.update(zip(weight.sources, source_shapes(weight, module.GEOMETRY)))
    for weight in module.LAYER_WEIGHTS:
        for layer in range(module.LAYERS):
            if not has_weight(module, layer, weight):
                continue
            named = of_checkpoint(of_layer(weight, layer), present)
            allowed.update(_names(named))
            if layer < layers:
                wanted.update(zip(_names(named), _shapes(named, module.GEOMETRY)))
    missing = [name for name in wanted if name not in present]
    if missing:
        raise WeightError(f"{checkpoint.where(missing[0])} lacks {_listed(missing)}, which {module.MODEL} needs")
    for name, shape in wanted.items():
        found = checkpoint.shape(name)
        if found != shape:
            raise WeightError(f"tensor {name} in {checkpoint.where(name)} is {found}; {module.MODEL} needs {shape}")
    extra = sorted(name for name in present - wanted.keys() - allowed if not _follows(module, checkpoint, name))
    if extra:
        raise WeightError(
            f"{checkpoint.where(extra[0])} has {_listed(extra)}, which {module.MODEL} does not use; "
            f"is it another model's?"
        )


def _follows(module: ModuleType, checkpoint: Checkpoint, name: str) -> bool:
    """Whether a tensor that no table names only repeats what the others say, or says what prefill does not need."""
    if name.endswith(ROTARY_BUFFER) or is_of_further_tokens(name, module.GEOMETRY):
        return True
    if name.removeprefix(TEXT_MODEL) != TIED_HEAD or not module.GEOMETRY.tied_embeddings:
        return False
    embedding = next(weight.sources[0] for weight in module.WEIGHTS if weight.transform in EMBEDDINGS)
    same = checkpoint.shape(name) == checkpoint.shape(embedding) and torch.equal(
        checkpoint.read(name), checkpoint.read(embedding)
    )
    if not same:
        raise WeightError(
            f"tensor {name} in {checkpoint.where(name)} differs from {embedding}, and {module.MODEL} ties the two; "
            f"set tied_embeddings = false in its manifest if the model is not tied"
        )
    return True


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"{', '.join(names[:NAMED])}{more}"


def _load(checkpoint: Checkpoint, device: Any, weight: Weight, geometry: Geometry, scope: Scope) -> Any:
    """A weight of a layer: a tensor, or a tuple of tensors, one for each expert, in a tuple of the parts of their width."""
    found = of_checkpoint(weight, checkpoint.names())
    if not found.experts:
        return _upload(checkpoint, device, found, geometry, scope)
    joined, names = expert_weights.is_joined(found), _names(found)

    def upload(expert: int) -> list[Any]:
        source = _finite(checkpoint, names[0], expert) if joined else _finite(checkpoint, names[expert])
        values = (expert_weights.device_values(source, found, part) for part in range(found.parts))
        return [_place(device, found, part, scope) for part in values]

    return expert_weights.arranged(found, upload)


def _upload(checkpoint: Checkpoint, device: Any, weight: Weight, geometry: Geometry, scope: Scope) -> Any:
    sources = [_finite(checkpoint, name) for name in weight.sources]
    return _place(device, weight, RULES[weight.transform](sources, weight, geometry), scope)


def _place(device: Any, weight: Weight, values: torch.Tensor, scope: Scope) -> Any:
    if tuple(values.shape) != weight.shape:
        raise ModuleError(
            f"weight {weight.name} is {weight.shape} in the module and its rule made {tuple(values.shape)}"
        )
    return scope.own(
        ttnn.from_torch(
            values, dtype=weight.dtype, layout=weight.layout, device=device, memory_config=ttnn.DRAM_MEMORY_CONFIG
        )
    )


def _finite(checkpoint: Checkpoint, name: str, index: int | None = None) -> torch.Tensor:
    """One tensor, or one entry of it, in a type that the library takes, refused if it is no float or holds NaN or infinity."""
    tensor = checkpoint.read(name) if index is None else checkpoint.read_entry(name, index)
    if tensor.dtype not in FLOATS:
        raise WeightError(
            f"tensor {name} in {checkpoint.where(name)} holds {tensor.dtype}; "
            f"give float32, bfloat16, float16 or float64"
        )
    if tensor.dtype not in UPLOADED:
        tensor = tensor.to(torch.float32)
    low, high = tensor.aminmax()
    if not (torch.isfinite(low) and torch.isfinite(high)):
        count = int((~torch.isfinite(tensor)).sum())
        raise WeightError(
            f"tensor {name} in {checkpoint.where(name)} has {count} of {tensor.numel()} values that are not finite"
        )
    return tensor
