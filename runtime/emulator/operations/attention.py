"""Attention over a whole sequence, over packed windows, and of a chunk over a paged cache."""

from __future__ import annotations

from typing import Any

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
from .attention_math import Reach, attended, packed
from .attention_programs import check_inputs, check_program, check_sink, check_window, program_bytes, streams
from .heads import join_heads

WHOLE = "scaled_dot_product_attention"
CHUNKED = "chunked_scaled_dot_product_attention"
MOST_BOUNDS = 1024
TABLE_WIDTH_MULTIPLE = 8  # rows of the page table are read 32 bytes at a time


def _chunks(program: SDPAProgramConfig | None) -> tuple[int, int]:
    """Query and key tokens taken at a time; without a program the library takes one tile of each."""
    return (TILE, TILE) if program is None else (program.q_chunk_size, program.k_chunk_size)


def _given(**tensors: Any) -> dict[str, Any]:
    """The optional tensors that a call has."""
    return {name: tensor for name, tensor in tensors.items() if tensor is not None}


def _split(rest: tuple[Any, ...]) -> tuple[dict[str, TensorSpec], tuple[Any, ...]]:
    """Specs of the optional tensors by the names in the first attribute, and the other attributes."""
    specs = [part for part in rest if isinstance(part, TensorSpec)]
    names, *attributes = rest[len(specs) :]
    return dict(zip(names, specs, strict=True)), tuple(attributes)


def _plan_whole(device: Device, query: TensorSpec, key: TensorSpec, value: TensorSpec, *rest) -> Plan:
    optional, attributes = _split(rest)
    window, _, concatenate, memory_config, program, compute = attributes
    bounds, sink = optional.get("bounds"), optional.get("sink")
    check_inputs(WHOLE, query, key, value)
    if sink is not None:
        check_sink(WHOLE, query, sink)
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
        require(not window and sink is None, WHOLE, "packed windows exclude a sliding window and a sink")
    batch, heads, tokens, dim = query.shape
    shape = (batch, 1, tokens, heads * dim) if concatenate else query.shape
    output = tensor_spec(shape, query.dtype, Layout.TILE, memory_config or DRAM_MEMORY_CONFIG)
    if program is None:
        return Plan((output,))
    check_program(device, WHOLE, program)
    size = program_bytes(
        device.board,
        query,
        key,
        program,
        compute,
        bounded=bounds is not None,
        window=window or 0,
        sink=sink is not None,
    )
    return Plan((output,), l1_bytes=size)


@checked
def scaled_dot_product_attention(
    input_tensor_q: Tensor,
    input_tensor_k: Tensor,
    input_tensor_v: Tensor,
    *,
    is_causal: bool = True,
    scale: float | None = None,
    sliding_window_size: int | None = None,
    memory_config: MemoryConfig | None = None,
    program_config: SDPAProgramConfig | None = None,
    compute_kernel_config: WormholeComputeKernelConfig | None = None,
    attention_sink: Tensor | None = None,
    cu_window_seqlens: Tensor | None = None,
    output_concat_heads: bool = False,
) -> Tensor:
    """Causal attention of queries [batch, heads, tokens, dim] to keys and values [batch, key-value heads, tokens, dim].

    Of a `sliding_window_size` of W a token sees itself and the W - 1 before it. `attention_sink` [1, heads, 1, 1] joins
    the scores before they are scaled and takes weight away to no value. `cu_window_seqlens` (boundaries from 0 up to
    the number of tokens) keeps attention inside each window of a packed sequence, without the other two. Returns the
    shape of the queries, or [batch, 1, tokens, heads * dim] with `output_concat_heads`.
    """
    require(is_causal, WHOLE, "only causal attention is modelled")
    check_window(WHOLE, sliding_window_size)
    optional = _given(bounds=cu_window_seqlens, sink=attention_sink)
    names = tuple(optional)
    reach = Reach(_chunks(program_config), window=sliding_window_size or 0, skips=streams(compute_kernel_config))

    def check(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *rest: torch.Tensor) -> None:
        if "bounds" not in names:
            return
        edges, tokens = rest[names.index("bounds")].tolist(), query.shape[-2]
        # Bounds may repeat: the kernel passes over windows without tokens.
        if edges[0] != 0 or edges[-1] != tokens or any(low > high for low, high in zip(edges, edges[1:])):
            raise EmulatorError(WHOLE, f"window bounds must rise from 0 to {tokens}, got {edges}")

    def compute(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
        factor = query.shape[-1] ** -0.5 if scale is None else scale
        given = dict(zip(names, rest))
        if "bounds" in given:
            result = packed(query, key, value, given["bounds"].tolist(), factor, reach)
        else:
            result = attended(query, key, value, factor, reach, given.get("sink"))
        return join_heads(result) if output_concat_heads else result

    inputs = (input_tensor_q, input_tensor_k, input_tensor_v, *optional.values())
    options = (sliding_window_size, scale, output_concat_heads, memory_config, program_config, compute_kernel_config)
    return launch(WHOLE, inputs, (names, *options), _plan_whole, compute, check=check)[0]


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
    optional, attributes = _split(rest)
    start, window, _, memory_config, program, compute = attributes
    start_tensor, sink = optional.get("start"), optional.get("sink")
    check_inputs(CHUNKED, query, keys, values)
    if sink is not None:
        check_sink(CHUNKED, query, sink)
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
    size = program_bytes(
        device.board,
        query,
        keys,
        program,
        compute,
        window=window or 0,
        sink=sink is not None,
        table=table,
        started=start_tensor is not None,
    )
    return Plan((output,), l1_bytes=size)


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
    sliding_window_size: int | None = None,
    attention_sink: Tensor | None = None,
) -> Tensor:
    """Attention of a chunk of queries [batch, heads, tokens, dim], which stand at positions from the start on, to all
    that a paged cache [blocks, key-value heads, block size, dim] holds up to each of them.

    The start is an int (part of the program) or one INT32 on the device, a multiple of both attention chunks. Window
    and sink are those of the whole attention. Blocks that are read must exist: from the first key chunk that the first
    query chunk visits (the first of the row, but for a window without float32 accumulation) up to the one that holds
    the last query.
    """
    if scale is not None and not (isinstance(scale, float) and float(numpy.float32(scale)) == scale):
        raise TypeError(f"{CHUNKED}(): scale must be a float that float32 holds exactly, got {scale!r}")
    require(
        (chunk_start_idx is None) != (chunk_start_idx_tensor is None),
        CHUNKED,
        "state the start once, as chunk_start_idx or as chunk_start_idx_tensor",
    )
    check_window(CHUNKED, sliding_window_size)
    optional = _given(start=chunk_start_idx_tensor, sink=attention_sink)
    names = tuple(optional)
    chunks = _chunks(program_config)

    def reach_of(rest: tuple[torch.Tensor, ...]) -> Reach:
        start = int(rest[names.index("start")]) if "start" in names else chunk_start_idx
        return Reach(chunks, start, sliding_window_size or 0, streams(compute_kernel_config))

    def visited_blocks(query: torch.Tensor, keys: torch.Tensor, table: torch.Tensor, reach: Reach) -> tuple[int, int]:
        block, length = keys.shape[2], table.shape[1] * keys.shape[2]
        end = min(-(-(reach.start + query.shape[-2]) // chunks[1]) * chunks[1], length)
        return reach.visited(0, length)[0] // block, -(-end // block)

    def check(
        query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, table: torch.Tensor, *rest: torch.Tensor
    ) -> None:
        reach = reach_of(rest)
        _check_start(reach.start, query.shape[-2], table.shape[1] * keys.shape[2], chunks)
        first, end = visited_blocks(query, keys, table, reach)
        for entry in table[:, first:end].flatten().tolist():
            if not 0 <= entry < keys.shape[0]:
                raise EmulatorError(CHUNKED, f"page-table entry {entry} is outside the cache of {keys.shape[0]} blocks")

    def compute(
        query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, table: torch.Tensor, *rest: torch.Tensor
    ) -> torch.Tensor:
        reach = reach_of(rest)
        first, end = visited_blocks(query, keys, table, reach)
        entries = torch.cat((table[:, first : first + 1].expand(-1, first), table[:, first:end]), 1)
        factor = query.shape[-1] ** -0.5 if scale is None else scale
        key = _gathered(keys, entries)
        value = _gathered(values, entries)
        return attended(query, key, value, factor, reach, dict(zip(names, rest)).get("sink"))

    inputs = (input_tensor_q, input_tensor_k, input_tensor_v, page_table_tensor, *optional.values())
    options = (chunk_start_idx, sliding_window_size, scale, memory_config, program_config, compute_kernel_config)
    return launch(CHUNKED, inputs, (names, *options), _plan_chunked, compute, check=check)[0]


def _gathered(cache: torch.Tensor, entries: torch.Tensor) -> torch.Tensor:
    """Blocks [batch, pages] of a cache as one sequence for each row: [batch, heads, pages * block size, dim]."""
    batch, pages = entries.shape
    blocks = cache.transpose(0, 1)[:, entries.flatten()]
    return blocks.unflatten(1, (batch, pages)).transpose(0, 1).flatten(2, 3)
