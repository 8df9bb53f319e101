"""Storage data types, and rounding to them bit for bit as the library packs host values.

Values are held as float32 (floats) or int64 (integers) whatever the declared type, so a type is a rule here and not a
memory format: `round_to` maps float32 values to the nearest values that the declared type can hold.
"""

from __future__ import annotations

from enum import Enum

import torch

BLOCK = 16  # values along a row that share one exponent in the block-float types
SMALLEST_NORMAL = 2.0**-126


class DataType(Enum):
    BFLOAT16 = 0
    FLOAT32 = 1
    UINT32 = 2
    BFLOAT8_B = 3
    BFLOAT4_B = 4
    UINT16 = 6
    INT32 = 7

    def __repr__(self) -> str:
        return f"DataType.{self.name}"

    __hash__ = object.__hash__  # members are singletons; the default hashes the name on every dispatch


class Layout(Enum):
    ROW_MAJOR = 0
    TILE = 1

    def __repr__(self) -> str:
        return f"Layout.{self.name}"

    __hash__ = object.__hash__


INTEGER_RANGES = {
    DataType.UINT32: (0, 2**32 - 1),
    DataType.UINT16: (0, 2**16 - 1),
    DataType.INT32: (-(2**31), 2**31 - 1),
}
FLOATS = frozenset({DataType.BFLOAT16, DataType.FLOAT32, DataType.BFLOAT8_B, DataType.BFLOAT4_B})
BLOCK_FLOATS = {DataType.BFLOAT8_B: 7, DataType.BFLOAT4_B: 3}  # magnitude bits, the leading one written out
TILE_BYTES = {
    DataType.BFLOAT16: 2048,
    DataType.FLOAT32: 4096,
    DataType.UINT32: 4096,
    DataType.INT32: 4096,
    DataType.UINT16: 2048,
    DataType.BFLOAT8_B: 1088,  # 1024 magnitudes and 64 exponents
    DataType.BFLOAT4_B: 576,  # 512 bytes of magnitudes and 64 exponents
}
ELEMENT_BYTES = {
    DataType.BFLOAT16: 2,
    DataType.FLOAT32: 4,
    DataType.UINT32: 4,
    DataType.INT32: 4,
    DataType.UINT16: 2,
}
TORCH_DTYPES = {
    DataType.BFLOAT16: torch.bfloat16,
    DataType.FLOAT32: torch.float32,
    DataType.BFLOAT8_B: torch.float32,
    DataType.BFLOAT4_B: torch.float32,
    DataType.UINT32: torch.uint32,
    DataType.INT32: torch.int32,
    DataType.UINT16: torch.uint16,
}


def round_to(values: torch.Tensor, dtype: DataType) -> torch.Tensor:
    """float32 values -> the float32 values that `dtype` stores for them. May return `values` itself; never writes to
    it.
    """
    if dtype is DataType.BFLOAT16:
        return values.bfloat16().float()
    if dtype in BLOCK_FLOATS:
        return _round_blocks(values, BLOCK_FLOATS[dtype])
    return values


def _round_blocks(values: torch.Tensor, bits: int) -> torch.Tensor:
    """Block float: 16 values of a row share the largest exponent; magnitudes keep `bits` bits.

    A magnitude is shifted to the shared exponent by truncation (24 significant bits survive) and then rounded half to
    even, saturating; zero has no sign. Rows whose length is no multiple of 16 are padded with zeros, which never raise the shared
    exponent.
    """
    if values.numel() == 0:
        return values
    rows = values.reshape(-1, values.shape[-1] if values.dim() else 1)
    width = rows.shape[-1]
    padding = -width % BLOCK
    blocks = torch.nn.functional.pad(rows, (0, padding)) if padding else rows
    blocks = blocks.reshape(-1, BLOCK)
    largest = blocks.abs().amax(-1, keepdim=True)
    low, high = torch.aminmax(torch.where(largest == 0, 1.0, largest))
    if 2.0**-100 < low.item() and high.item() < 3.0e38:
        rounded = _round_normal_blocks(blocks, largest, bits)
    else:
        rounded = _round_extreme_blocks(blocks, largest, bits)
    rounded = rounded.reshape(-1, width + padding)
    return (rounded[:, :width].contiguous() if padding else rounded).reshape(values.shape)


def _round_normal_blocks(blocks: torch.Tensor, largest: torch.Tensor, bits: int) -> torch.Tensor:
    exponent = torch.frexp(largest)[1] - 1
    one = torch.ones_like(largest)
    aligned = blocks * torch.ldexp(one, 23 - exponent)  # a multiple of 1 is a multiple of the 24th bit
    aligned.trunc_().mul_(2.0 ** (bits - 24)).round_().clamp_(1 - 2**bits, 2**bits - 1)
    return torch.addcmul(torch.zeros(1), aligned, torch.ldexp(one, exponent + 1 - bits), out=aligned)  # no -0 is stored


def _round_extreme_blocks(blocks: torch.Tensor, largest: torch.Tensor, bits: int) -> torch.Tensor:
    """The same rule in float64, where neither scale overflows, with denormals as zero.

    An infinity or NaN survives and lifts its block to the exponent above every finite one, which wipes out its
    neighbours. A NaN whose payload lies below the bits that are kept becomes an infinity.
    """
    finite = torch.isfinite(blocks)
    normal = torch.where(finite & (blocks.abs() >= SMALLEST_NORMAL), blocks, 0.0).double()
    exponent = torch.frexp(normal.abs().amax(-1, keepdim=True))[1] - 1
    exponent = torch.where(torch.isfinite(largest), exponent, 128)
    one = torch.ones_like(exponent, dtype=torch.float64)
    aligned = (normal * torch.ldexp(one, 23 - exponent)).trunc_()
    aligned = (aligned * 2.0 ** (bits - 24)).round_().clamp_(1 - 2**bits, 2**bits - 1)
    payload = blocks.view(torch.int32) & 2**23 - 1
    kept = torch.where(payload > 2 ** (23 - bits), blocks, torch.copysign(torch.tensor(torch.inf), blocks))
    return torch.where(finite, (aligned * torch.ldexp(one, exponent + 1 - bits)).float() + 0.0, kept)
