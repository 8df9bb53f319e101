"""Writing keys and values into a paged cache."""

from __future__ import annotations

import torch

from ..device import Device
from ..dispatch import Plan, launch
from ..dtypes import DataType, Layout
from ..errors import EmulatorError, require
from ..storage import TensorSpec
from ..tensor import Tensor

NAME = "paged_fill_cache"
UNWRITTEN = -1  # a page-table entry whose block is left alone


def _plan(device: Device, cache: TensorSpec, new: TensorSpec, table: TensorSpec, batch_idx) -> Plan:
    return Plan(())


def paged_fill_cache(
    cache_tensor: Tensor, input_tensor: Tensor, page_table: Tensor, *, batch_idx: int = 0
) -> Tensor:
    """Write [1, heads, tokens, dim] into the blocks of a cache [blocks, heads, block size, dim] that one page-table row names.

    Entries of -1 write nothing. Entries outside the cache, or one block named twice, are refused. Returns the cache.
    """
    block_size = cache_tensor.spec.shape[2]
    pages = input_tensor.spec.shape[2] // block_size

    def check(cache: torch.Tensor, new: torch.Tensor, table: torch.Tensor) -> None:
        used = [entry for entry in table[batch_idx, :pages].tolist() if entry != UNWRITTEN]
        for entry in used:
            if not 0 <= entry < cache.shape[0]:
                raise EmulatorError(NAME, f"page-table entry {entry} is outside the cache of {cache.shape[0]} blocks")
        if len(set(used)) != len(used):
            twice = next(entry for entry in used if used.count(entry) > 1)
            raise EmulatorError(NAME, f"block {twice} is written {used.count(twice)} times by one call, in no defined order")

    def compute(cache: torch.Tensor, new: torch.Tensor, table: torch.Tensor) -> None:
        entries = table[batch_idx, :pages]
        heads, tokens, dim = new.shape[1:]
        blocks = new.reshape(heads, pages, block_size, dim).transpose(0, 1)
        written = entries != UNWRITTEN
        if not bool(written.all()):
            entries, blocks = entries[written], blocks[written]
        cache[entries] = blocks

    launch(NAME, (cache_tensor, input_tensor, page_table), (batch_idx,), _plan, compute, check=check, in_place=0)
    return Tensor(cache_tensor.spec, ownership=cache_tensor.ownership)
