"""Writing keys and values into a paged cache."""

from __future__ import annotations

import torch

from ..arguments import checked
from ..device import Device
from ..dispatch import Plan, launch
from ..dtypes import DataType, Layout
from ..errors import EmulatorError, require
from ..storage import TILE, TensorSpec, is_l1
from ..tensor import Tensor

NAME = "paged_fill_cache"
UNWRITTEN = -1  # a page-table entry whose block is left alone
L1_ALIGNMENT, ROW_ALIGNMENT = 16, 32
BLOCK_SIZES = (16, 32, 64, 128)


def _plan(device: Device, cache: TensorSpec, new: TensorSpec, table: TensorSpec, batch_idx: int) -> Plan:
    require(
        len(cache.shape) == 4 and cache.layout is Layout.TILE and cache.is_float,
        NAME,
        f"the cache must be [blocks, heads, block size, dim] floats in tiles, got {cache!r}",
    )
    _, heads, block_size, dim = cache.shape
    require(block_size in BLOCK_SIZES, NAME, f"the block size must be one of {BLOCK_SIZES}, got {block_size}")
    require(
        len(new.shape) == 4 and new.shape[0] == 1 and new.layout is Layout.TILE,
        NAME,
        f"the input must be [1, heads, tokens, dim] in tiles, got {new!r}",
    )
    require(
        (new.shape[1], new.shape[3]) == (heads, dim) and dim % TILE == 0,
        NAME,
        f"the input has {new.shape[1]} heads of {new.shape[3]}, the cache {heads} of {dim} "
        f"(which must be a multiple of {TILE})",
    )
    require(
        new.dtype is cache.dtype, NAME, f"the input is {new.dtype.name}, the cache {cache.dtype.name}; cast it first"
    )
    require(
        len(table.shape) == 2 and table.dtype is DataType.INT32 and table.layout is Layout.ROW_MAJOR,
        NAME,
        f"the page table must be [rows, pages] INT32 rows, got {table!r}",
    )
    row_bytes = -(-table.shape[1] * 4 // L1_ALIGNMENT) * L1_ALIGNMENT
    require(
        not is_l1(table.memory_config) or row_bytes % ROW_ALIGNMENT == 0,
        NAME,
        f"rows of a page table in L1 must take a multiple of {ROW_ALIGNMENT} B, got {row_bytes} B for {table!r}",
    )
    require(batch_idx < table.shape[0], NAME, f"row {batch_idx} is outside the page table of {table.shape[0]} rows")
    tokens = new.shape[2]
    require(
        tokens % block_size == 0 and tokens % TILE == 0, NAME, f"{tokens} tokens are no whole blocks of {block_size}"
    )
    require(
        tokens <= table.shape[1] * block_size,
        NAME,
        f"{tokens} tokens need {tokens // block_size} blocks of {block_size}, the page table has {table.shape[1]}",
    )
    return Plan(())


@checked
def paged_fill_cache(cache_tensor: Tensor, input_tensor: Tensor, page_table: Tensor, *, batch_idx: int = 0) -> Tensor:
    """Write [1, heads, tokens, dim] into the blocks of a cache [blocks, heads, block size, dim] that one page-table
    row names.

    Entries of -1 write nothing. Entries outside the cache, or one block named twice, are refused. Returns the cache.
    """
    if isinstance(batch_idx, bool) or not isinstance(batch_idx, int) or batch_idx < 0:
        raise TypeError(f"{NAME}(): batch_idx must be a whole number from 0 on, got {batch_idx!r}")

    def check(cache: torch.Tensor, new: torch.Tensor, table: torch.Tensor) -> None:
        entries = table[batch_idx, : new.shape[2] // cache.shape[2]].tolist()
        used = [entry for entry in entries if entry != UNWRITTEN]
        for entry in used:
            if not 0 <= entry < cache.shape[0]:
                raise EmulatorError(NAME, f"page-table entry {entry} is outside the cache of {cache.shape[0]} blocks")
        if len(set(used)) != len(used):
            twice = next(entry for entry in used if used.count(entry) > 1)
            raise EmulatorError(
                NAME, f"block {twice} is written {used.count(twice)} times by one call, in no defined order"
            )

    def compute(cache: torch.Tensor, new: torch.Tensor, table: torch.Tensor) -> None:
        heads, tokens, dim = new.shape[1:]
        block_size = cache.shape[2]
        entries = table[batch_idx, : tokens // block_size]
        blocks = new[0].unflatten(1, (tokens // block_size, block_size)).transpose(0, 1)
        written = entries != UNWRITTEN
        if not bool(written.all()):
            entries, blocks = entries[written], blocks[written]
        cache[entries] = blocks

    launch(NAME, (cache_tensor, input_tensor, page_table), (batch_idx,), _plan, compute, check=check, in_place=0)
    return Tensor(cache_tensor.spec, ownership=cache_tensor.ownership)
