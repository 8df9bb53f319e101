"""Heads and attention."""

from __future__ import annotations

import torch
import torch.nn.functional as functional

from ..configs import MemoryConfig, SDPAProgramConfig, WormholeComputeKernelConfig
from ..device import Device
from ..dispatch import Plan, launch
from ..dtypes import DataType, Layout
from ..errors import EmulatorError, require
from ..storage import TensorSpec, tensor_spec
from ..tensor import Tensor


def _plan_create(device: Device, fused: TensorSpec, heads, key_value_heads, memory_config) -> Plan:
    batch, _, tokens, width = fused.shape
    dim = width // (heads + 2 * key_value_heads)
    place = memory_config or fused.memory_config
    query = tensor_spec((batch, heads, tokens, dim), fused.dtype, Layout.TILE, place)
    key = tensor_spec((batch, key_value_heads, tokens, dim), fused.dtype, Layout.TILE, place)
    return Plan((query, key, key), moves=True)


def nlp_create_qkv_heads(
    input: Tensor,
    *,
    num_heads: int,
    num_kv_heads: int | None = None,
    transpose_k_heads: bool = True,
    memory_config: MemoryConfig | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """[batch, 1, tokens, (heads + 2 key-value heads) * dim], queries first -> queries, keys and values [batch, heads, tokens, dim]."""
    name = "nlp_create_qkv_heads"
    require(not transpose_k_heads, name, "transposed keys are not modelled: pass transpose_k_heads=False")
    key_value_heads = num_heads if num_kv_heads is None else num_kv_heads

    def compute(fused: torch.Tensor) -> tuple[torch.Tensor, ...]:
        batch, _, tokens, width = fused.shape
        total = num_heads + 2 * key_value_heads
        heads = fused.view(batch, tokens, total, width // total).transpose(1, 2)
        return heads.split((num_heads, key_value_heads, key_value_heads), 1)

    return launch(name, (input,), (num_heads, key_value_heads, memory_config), _plan_create, compute)


def _plan_concat(device: Device, heads: TensorSpec, memory_config) -> Plan:
    batch, count, tokens, dim = heads.shape
    shape = (batch, 1, tokens, count * dim)
    return Plan((tensor_spec(shape, heads.dtype, Layout.TILE, memory_config or heads.memory_config),), moves=True)


def nlp_concat_heads(input_tensor: Tensor, *, memory_config: MemoryConfig | None = None) -> Tensor:
    """[batch, heads, tokens, dim] -> [batch, 1, tokens, heads * dim]."""
    return launch("nlp_concat_heads", (input_tensor,), (memory_config,), _plan_concat, _concatenate)[0]


def _concatenate(heads: torch.Tensor) -> torch.Tensor:
    batch, count, tokens, dim = heads.shape
    return heads.transpose(1, 2).reshape(batch, 1, tokens, count * dim)


def _plan_attention(device: Device, query, key, value, *rest) -> Plan:
    concatenate, memory_config = rest[-4], rest[-3]
    batch, heads, tokens, dim = query.shape
    shape = (batch, 1, tokens, heads * dim) if concatenate else query.shape
    return Plan((tensor_spec(shape, query.dtype, Layout.TILE, memory_config or query.memory_config),))


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
    name = "scaled_dot_product_attention"
    require(is_causal, name, "only causal attention is modelled")
    factor = scale

    def compute(query, key, value, bounds=None):
        if bounds is None:
            result = _causal(query, key, value, factor)
        else:
            result = _packed(query, key, value, bounds.tolist(), factor)
        return _concatenate(result) if output_concat_heads else result

    inputs = (input_tensor_q, input_tensor_k, input_tensor_v)
    if cu_window_seqlens is not None:
        inputs = (*inputs, cu_window_seqlens)
    attributes = (scale, output_concat_heads, memory_config, program_config, compute_kernel_config)
    return launch(name, inputs, attributes, _plan_attention, compute)[0]


def _causal(query, key, value, scale):
    return functional.scaled_dot_product_attention(query, key, value, is_causal=True, scale=scale, enable_gqa=True)


def _packed(query, key, value, bounds, scale):
    sizes = {high - low for low, high in zip(bounds, bounds[1:])}
    if len(sizes) == 1:
        rows, size = len(bounds) - 1, sizes.pop()
        windows = [part[0].unflatten(1, (rows, size)).transpose(0, 1) for part in (query, key, value)]
        return _causal(*windows, scale).transpose(0, 1).flatten(1, 2)[None]
    parts = [
        _causal(query[:, :, low:high], key[:, :, low:high], value[:, :, low:high], scale) for low, high in zip(bounds, bounds[1:])
    ]
    return torch.cat(parts, 2)


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
    name = "chunked_scaled_dot_product_attention"

    def compute(query, keys, values, table, start=None):
        begin = chunk_start_idx if start is None else int(start)
        tokens, dim = query.shape[-2:]
        block = keys.shape[2]
        end = begin + tokens
        entries = table[0, : -(-end // block)]
        key = keys.transpose(0, 1)[:, entries].flatten(1, 2)[None, :, :end]
        value = values.transpose(0, 1)[:, entries].flatten(1, 2)[None, :, :end]
        mask = torch.full((tokens, end), float("-inf")).triu_(begin + 1)
        return functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scale, enable_gqa=True)

    inputs = (input_tensor_q, input_tensor_k, input_tensor_v, page_table_tensor)
    if chunk_start_idx_tensor is not None:
        inputs = (*inputs, chunk_start_idx_tensor)
    attributes = (chunk_start_idx, scale, False, memory_config, program_config, compute_kernel_config)
    return launch(name, inputs, attributes, _plan_attention, compute)[0]
