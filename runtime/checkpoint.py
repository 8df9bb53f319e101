"""Where weights are read from: a safetensors file or folder, memory-mapped, or a mapping of tensors. Never a pickle."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError, safe_open

from runtime.errors import WeightError

INDEX = "model.safetensors.index.json"
SAFETENSORS = ".safetensors"
PICKLES = (".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt")


class Checkpoint(Protocol):
    """Named tensors that are read one at a time."""

    def names(self) -> Iterable[str]: ...

    def shape(self, name: str) -> tuple[int, ...]:
        """Without reading the values."""

    def read(self, name: str) -> torch.Tensor: ...

    def read_entry(self, name: str, index: int) -> torch.Tensor:
        """One entry along the first dimension, without reading the others."""

    def where(self, name: str) -> str:
        """The file or mapping that holds `name`, for messages; of an unknown name, the checkpoint as a whole."""


class Tensors:
    """A mapping of tensors, such as the state dict of a transformers model."""

    def __init__(self, tensors: Mapping[str, torch.Tensor]) -> None:
        self._tensors = tensors

    def names(self) -> Iterable[str]:
        return self._tensors.keys()

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self.read(name).shape)

    def read(self, name: str) -> torch.Tensor:
        tensor = self._tensors[name]
        if not isinstance(tensor, torch.Tensor):
            raise WeightError(f"tensor {name} in the state dict is {type(tensor).__name__}, not a torch tensor")
        return tensor.detach()

    def read_entry(self, name: str, index: int) -> torch.Tensor:
        return self.read(name)[index]

    def where(self, name: str) -> str:
        return "the state dict"


class Files:
    """One or more safetensors files. Only headers are read when it is made; tensors stay mapped until they are asked
    for.
    """

    def __init__(self, path: Path, files: Iterable[Path]) -> None:
        self._path = path
        self._holders: dict[str, tuple[Path, Any]] = {}
        for file in files:
            handle = _open(file)
            for name in handle.keys():
                if name in self._holders:
                    raise WeightError(f"tensor {name} is in {self._holders[name][0]} and in {file}; keep one of them")
                self._holders[name] = (file, handle)

    def names(self) -> Iterable[str]:
        return self._holders.keys()

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._holders[name][1].get_slice(name).get_shape())

    def read(self, name: str) -> torch.Tensor:
        return self._read(name, lambda handle: handle.get_tensor(name))

    def read_entry(self, name: str, index: int) -> torch.Tensor:
        return self._read(name, lambda handle: handle.get_slice(name)[index])

    def _read(self, name: str, read: Callable[[Any], torch.Tensor]) -> torch.Tensor:
        file, handle = self._holders[name]
        try:
            return read(handle)
        except (SafetensorError, OSError, RuntimeError, ValueError, KeyError) as error:
            raise WeightError(f"tensor {name} in {file} cannot be read: {error}; fetch the file again") from error

    def where(self, name: str) -> str:
        return str(self._holders[name][0] if name in self._holders else self._path)


def open_checkpoint(source: str | Path | Mapping[str, torch.Tensor]) -> Checkpoint:
    """A checkpoint by its path (a .safetensors file, or a folder of them with or without an index) or a mapping of
    tensors.
    """
    if isinstance(source, Mapping):
        return Tensors(source)
    path = Path(source)
    if path.is_dir():
        return Files(path, _files_of(path))
    if not path.exists():
        raise WeightError(f"there is no checkpoint at {path}; give a {SAFETENSORS} file or a folder of them")
    if path.suffix in PICKLES:
        raise WeightError(f"{path} is a pickle, which may run code when it is read; convert it to {SAFETENSORS}")
    if path.suffix != SAFETENSORS:
        raise WeightError(f"{path} is not a {SAFETENSORS} file; give one, or a folder of them")
    return Files(path, (path,))


def _files_of(folder: Path) -> list[Path]:
    index = folder / INDEX
    if index.is_file():
        return _indexed(folder, index)
    files = sorted(folder.glob(f"*{SAFETENSORS}"))
    if not files:
        pickles = sorted(file.name for file in folder.iterdir() if file.suffix in PICKLES)
        found = f"only pickles ({', '.join(pickles)}), which are never read; convert them" if pickles else "none"
        raise WeightError(f"{folder} must hold {SAFETENSORS} files and has {found}")
    return files


def _indexed(folder: Path, index: Path) -> list[Path]:
    try:
        names = set(json.loads(index.read_text())["weight_map"].values())
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise WeightError(f"{index} has no readable weight_map: {error!r}; fetch it again") from error
    files = []
    for name in sorted(map(str, names)):
        file = folder / name
        if file.name != name or file.suffix != SAFETENSORS:
            raise WeightError(f"{index} names {name!r}, which is not a {SAFETENSORS} file of that folder")
        if not file.is_file():
            raise WeightError(f"{index} names {name}, which is missing from {folder}; fetch it")
        files.append(file)
    return files


def _open(file: Path) -> Any:
    try:
        return safe_open(file, framework="pt")
    except (SafetensorError, OSError) as error:
        raise WeightError(f"{file} is truncated or no {SAFETENSORS} file: {error}; fetch it again") from error
