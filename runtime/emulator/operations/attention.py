"""Attention over a whole sequence, over packed windows, and of a chunk over a paged cache."""

from __future__ import annotations

import numpy
import torch

from ..arguments import checked
from ..configs import DRAM_MEMORY_CONFIG, MemoryConfig, SDPAProgramConfig, WormholeComputeKernelConfig
from ..device import Device
from ..dispatch import Plan, launch
from ..dtypes import DataType, Layout
from ..errors import EmulatorError, require
from ..storage import TILE, TensorSpec, tensor_spec
from ..tensor import Tensor
from .attention_math import causal, from_start, packed
from .attention_programs import check_inputs, check_program, program_bytes
from .heads import join_heads

WHOLE = "scaled_dot_product_attention"
CHUNKED = "chunked_scaled_dot_product_attention"
MOST_BOUNDS = 1024
TABLE_WIDTH_MULTIPLE = 8  # rows of the page table are read 32 bytes at a time


def _chunks(program: SDPAProgramConfig | None) -> tuple[int, int]:
    """Query and key tokens taken at a time; without a program the library takes one tile of each."""
    return (TILE, TILE) if program is None else (program.q_chunk_size, program.k_chunk_size)


def _plan_whole(device: Device, query: TensorSpec, key: TensorSpec, value: TensorSpec, *rest) -> Plan:
    bounds, attributes = (rest[0], rest[1:]) if isinstance(rest[0], TensorSpec) else (None, rest)
    _, concatenate, memory_config, program, _ = attributes
    check_inputs(WHOLE, query, key, value)
    require(
        query.shape[0] == key.shape[0] and query.shape[2] == key.shape[2],
        WHOLE,
        "causal attention needs the batch and length of queries and keys equal, "
        f"got {list(query.shape)} and {list(key.shape)}",
    )
    if bounds is not None:
        require(
            len(bounds.shape) == 1
            and bounds.layout is Layout.ROW_MAJOR
            and bounds.dtype in (DataType.INT32, DataType.UINT32)
            and 2 <= bounds.shape[0] <= MOST_BOUNDS,
            WHOLE,
            f"cu_window_seqlens must be 2 to {MOST_BOUNDS} INT32 or UINT32 values in a row, got {bounds!r}",
        )
        require(query.shape[0] == 1, WHOLE, f"windows need a batch of 1, got {query.shape[0]}")
    batch, heads, tokens, dim = query.shape
    shape = (batch, 1, tokens, heads * dim) if concatenate else query.shape
    output = tensor_spec(shape, query.dtype, Layout.TILE, memory_config or DRAM_MEMORY_CONFIG)
    if program is None:
        return Plan((output,))
    check_program(device, WHOLE, program)
    return Plan((output,), l1_bytes=program_bytes(query, key, program, windows=bounds.shape[0] if bounds else 0))


@checked
def scaled_dot_product_attention(
    input_tensor_q: Tensor,
    input_tensor_k: Tensor,
    input_tensor_v: Tensor,
    *,
    is_causal: bool = True,
    scale: float | None = None,
    memory_config: MemoryConfig | None = None,
    program_config: SDPAProgramConfig | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    cu_window_seqlens: Tensor | None = None,
    output_concat_heads: bool = False,
) -> Tensor:
    """Causal attention of queries [batch, heads, tokens, dim] to keys and values [batch, key-value heads, tokens, dim].

    `cu_window_seqlens` (boundaries from 0 up to the number of tokens) keeps attention inside each window of a packed
    sequence. Returns the shape of the queries, or [batch, 1, tokens, heads * dim] with `output_concat_heads`.
    """
    require(is_causal, WHOLE, "only causal attention is modelled")
    chunks = _chunks(program_config)

    def check(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, bounds: torch.Tensor | None = None) -> None:
        if bounds is None:
            return
        edges, tokens = bounds.tolist(), query.shape[-2]
        if edges[0] != 0 or edges[-1] != tokens or any(low >= high for low, high in zip(edges, edges[1:])):
            raise EmulatorError(WHOLE, f"window bounds must rise from 0 to {tokens}, got {edges}")

    def compute(
        query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, bounds: torch.Tensor | None = None
    ) -> torch.Tensor:
        factor = query.shape[-1] ** -0.5 if scale is None else scale
        if bounds is None:
            result = causal(query, key, value, factor, chunks)
        else:
            result = packed(query, key, value, bounds.tolist(), factor, chunks)
        return join_heads(result) if output_concat_heads else result

    inputs = (input_tensor_q, input_tensor_k, input_tensor_v)
    if cu_window_seqlens is not None:
        inputs = (*inputs, cu_window_seqlens)
    attributes = (scale, output_concat_heads, memory_config, program_config, compute_kernel_config)
    return launch(WHOLE, inputs, attributes, _plan_whole, compute, check=check)[0]


def _check_start(start: int, tokens: int, length: int, chunks: tuple[int, int]) -> None:
    """The library checks a start only when it is an int, and never the value of a start tensor."""
    for size in chunks:
        if start < 0 or start % size:
            raise EmulatorError(
                CHUNKED, f"the start {start} must be a multiple of the attention chunks {chunks[0]} and {chunks[1]}"
            )
    if start + tokens > length:
        raise EmulatorError(
            CHUNKED, f"start {start} and {tokens} tokens go beyond the {length} tokens of the page table"
        )


def _plan_chunked(
    device: Device, query: TensorSpec, keys: TensorSpec, values: TensorSpec, table: TensorSpec, *rest
) -> Plan:
    start_tensor, attributes = (rest[0], rest[1:]) if isinstance(rest[0], TensorSpec) else (None, rest)
    start, _, memory_config, program, _ = attributes
    check_inputs(CHUNKED, query, keys, values)
    if program is not None:
        check_program(device, CHUNKED, program)
    tokens = query.shape[2]
    require(tokens % TILE == 0, CHUNKED, f"the number of tokens must be a multiple of {TILE}, got {tokens}")
    require(
        len(table.shape) == 2 and table.dtype is DataType.INT32 and table.layout is Layout.ROW_MAJOR,
        CHUNKED,
        f"the page table must be [rows, pages] INT32 rows, got {table!r}",
    )
    require(
        table.shape[0] == query.shape[0],
        CHUNKED,
        f"the page table has {table.shape[0]} rows for a batch of {query.shape[0]}",
    )
    require(
        table.shape[1] % TABLE_WIDTH_MULTIPLE == 0,
        CHUNKED,
        f"the page table's width must be a multiple of {TABLE_WIDTH_MULTIPLE}, got {table.shape[1]}",
    )
    if start_tensor is not None:
        require(
            start_tensor.shape == (1,) and start_tensor.dtype is DataType.INT32,
            CHUNKED,
            f"the start tensor must be one INT32, got {start_tensor!r}",
        )
    else:
        _check_start(start, tokens, table.shape[1] * keys.shape[2], _chunks(program))
    output = tensor_spec(query.shape, query.dtype, Layout.TILE, memory_config or DRAM_MEMORY_CONFIG)
    if program is None:
        return Plan((output,))
    return Plan((output,), l1_bytes=program_bytes(query, keys, program, table=table, started=start_tensor is not None))


@checked
def chunked_scaled_dot_product_attention(
    input_tensor_q: Tensor,
    input_tensor_k: Tensor,
    input_tensor_v: Tensor,
    page_table_tensor: Tensor,
    chunk_start_idx: int | None = None,
    *,
    chunk_start_idx_tensor: Tensor | None = None,
    scale: float | None = None,
    memory_config: MemoryConfig | None = None,
    program_config: SDPAProgramConfig | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
) -> Tensor:
    """Attention of a chunk of queries [batch, heads, tokens, dim], which stand at positions from the start on, to all
    that a paged cache [blocks, key-value heads, block size, dim] holds up to each of them.

    The start is an int (part of the program) or one INT32 on the device, a multiple of both attention chunks. Blocks
    that are read must exist: up to the last key chunk that the last query chunk visits.
    """
    if scale is not None and not (isinstance(scale, float) and float(numpy.float32(scale)) == scale):
        raise TypeError(f"{CHUNKED}(): scale must be a float that float32 holds exactly, got {scale!r}")
    require(
        (chunk_start_idx is None) != (chunk_start_idx_tensor is None),
        CHUNKED,
        "state the start once, as chunk_start_idx or as chunk_start_idx_tensor",
    )
    chunks = _chunks(program_config)

    def visited_blocks(query: torch.Tensor, keys: torch.Tensor, table: torch.Tensor, start: int) -> torch.Tensor:
        block, key_chunk = keys.shape[2], chunks[1]
        end = min(-(-(start + query.shape[-2]) // key_chunk) * key_chunk, table.shape[1] * block)
        return table[:, : -(-end // block)]

    def check(
        query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, table: torch.Tensor, *start: torch.Tensor
    ) -> None:
        begin = int(start[0]) if start else chunk_start_idx
        _check_start(begin, query.shape[-2], table.shape[1] * keys.shape[2], chunks)
        for entry in visited_blocks(query, keys, table, begin).flatten().tolist():
            if not 0 <= entry < keys.shape[0]:
                raise EmulatorError(CHUNKED, f"page-table entry {entry} is outside the cache of {keys.shape[0]} blocks")

    def compute(
        query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, table: torch.Tensor, *start: torch.Tensor
    ) -> torch.Tensor:
        begin = int(start[0]) if start else chunk_start_idx
        entries = visited_blocks(query, keys, table, begin)
        factor = query.shape[-1] ** -0.5 if scale is None else scale
        key = _gathered(keys, entries)
        value = _gathered(values, entries)
        return from_start(query, key, value, begin, factor, chunks)

    inputs = (input_tensor_q, input_tensor_k, input_tensor_v, page_table_tensor)
    if chunk_start_idx_tensor is not None:
        inputs = (*inputs, chunk_start_idx_tensor)
    attributes = (chunk_start_idx, scale, memory_config, program_config, compute_kernel_config)
    return launch(CHUNKED, inputs, attributes, _plan_chunked, compute, check=check)[0]


def _gathered(cache: torch.Tensor, entries: torch.Tensor) -> torch.Tensor:
    """Blocks [batch, pages] of a cache as one sequence for each row: [batch, heads, pages * block size, dim]."""
    batch, pages = entries.shape
    blocks = cache.transpose(0, 1)[:, entries.flatten()]
    return blocks.unflatten(1, (batch, pages)).transpose(0, 1).flatten(2, 3)
