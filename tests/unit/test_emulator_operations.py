"""Each operation against plain torch: exactly in meaning in float32 mode, and rounded to the declared type once."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as functional

import runtime.emulator as ttnn
from runtime.emulator.dtypes import round_to
from tests.support.emulated import drawn, open_checked, rows, tiles


@pytest.fixture(params=("float32", "declared"))
def device(request: pytest.FixtureRequest) -> ttnn.Device:
    return open_checked(request.param)


def held(tensor: ttnn.Tensor) -> torch.Tensor:
    """What the device stores, as float32."""
    return ttnn.to_torch(tensor).float()


def assert_result(device: ttnn.Device, result: ttnn.Tensor, expected: torch.Tensor) -> None:
    """Within float32 noise in float32 mode; else at most one unit of the type away from the rounded float32 result."""
    found = held(result)
    assert found.shape == expected.shape
    if device.precision == "float32":
        assert (found - expected).abs().max() <= 1e-5 * expected.abs().max()
    else:
        rounded = round_to(expected, result.dtype)
        assert (found - rounded).abs().max() <= expected.abs().max() * (
            2**-6 if result.dtype is ttnn.bfloat8_b else 2**-8
        )
        assert (found == rounded).float().mean() > 0.99


def test_embedding(device: ttnn.Device) -> None:
    table, ids = rows(device, drawn(100, 96)), torch.tensor([[3, 99, 0, 3] * 8])
    found = ttnn.embedding(rows(device, ids, ttnn.uint32), table, layout=ttnn.TILE_LAYOUT, dtype=ttnn.bfloat16)

    assert torch.equal(held(found), held(table)[ids])


def test_rows_of_hidden_are_picked_by_embedding(device: ttnn.Device) -> None:
    hidden, picks = tiles(device, drawn(1, 1, 64, 96)), torch.tensor([[63, 5] + [0] * 30])
    found = ttnn.embedding(rows(device, picks, ttnn.uint32), hidden, layout=ttnn.TILE_LAYOUT)

    assert torch.equal(held(found), held(hidden)[0, 0][picks])


@pytest.mark.parametrize("index", (100, 2**32 - 1))
def test_an_index_outside_the_table_is_refused(device: ttnn.Device, index: int) -> None:
    live = len(device.live_tensors())
    with pytest.raises(ttnn.EmulatorError, match=f"embedding: index {index} is outside the table of 100 rows"):
        ttnn.embedding(rows(device, [[0, index]], ttnn.uint32), rows(device, drawn(100, 96)))
    assert len(device.live_tensors()) == live


@pytest.mark.parametrize("shape", ((1, 1, 64, 96), (1, 4, 32, 96)))
@pytest.mark.parametrize("as_rows", (True, False))
def test_rms_norm(device: ttnn.Device, shape: tuple[int, ...], as_rows: bool) -> None:
    hidden = tiles(device, drawn(*shape) * 3)
    gains = drawn(96, seed=1)
    weight = rows(device, gains.reshape(1, 1, 3, 32)) if as_rows else tiles(device, gains)
    found = ttnn.rms_norm(hidden, epsilon=1e-2, weight=weight)

    assert_result(device, found, functional.rms_norm(held(hidden), (96,), held(weight).reshape(96), 1e-2))


@pytest.mark.parametrize("bias", (False, True))
@pytest.mark.parametrize("weight_dtype", (ttnn.bfloat16, ttnn.bfloat8_b))
def test_linear(device: ttnn.Device, bias: bool, weight_dtype) -> None:
    left, right = tiles(device, drawn(1, 1, 64, 96)), tiles(device, drawn(96, 160, seed=1), weight_dtype)
    row = tiles(device, drawn(1, 1, 1, 160, seed=2)) if bias else None
    found = ttnn.linear(left, right, bias=row)

    assert_result(device, found, held(left) @ held(right) + (held(row) if bias else 0))


def test_linear_options(device: ttnn.Device) -> None:
    left, right = tiles(device, drawn(2, 1, 64, 96)), tiles(device, drawn(1, 1, 160, 96, seed=1))
    found = ttnn.linear(left, right, transpose_b=True, activation="silu", dtype=ttnn.float32)

    assert found.dtype is ttnn.float32
    assert_result(device, found, functional.silu(held(left) @ held(right)[0, 0].T))


def test_heads_are_split_and_joined(device: ttnn.Device) -> None:
    fused = tiles(device, drawn(2, 1, 32, 5 * 32))
    query, key, value = ttnn.experimental.nlp_create_qkv_heads(
        fused, num_heads=3, num_kv_heads=1, transpose_k_heads=False
    )
    whole = held(fused)[:, 0].unflatten(-1, (5, 32)).transpose(1, 2)

    assert (
        torch.equal(held(query), whole[:, :3])
        and torch.equal(held(key), whole[:, 3:4])
        and torch.equal(held(value), whole[:, 4:])
    )
    assert torch.equal(held(ttnn.experimental.nlp_concat_heads(query)), held(fused)[..., :96])


@pytest.mark.parametrize("dim", (32, 64, 128))
def test_rotary_by_halves(device: ttnn.Device, dim: int) -> None:
    heads, cos, sin = (
        tiles(device, drawn(1, 3, 32, dim)),
        tiles(device, drawn(1, 1, 64, dim, seed=1)),
        tiles(device, drawn(1, 1, 64, dim, seed=2)),
    )
    x, c, s = held(heads), held(cos)[..., :32, :], held(sin)[..., :32, :]
    rotated = torch.cat((-x[..., dim // 2 :], x[..., : dim // 2]), -1)

    assert_result(device, ttnn.experimental.rotary_embedding_hf(heads, cos, sin), x * c + rotated * s)


@pytest.mark.parametrize("dim", (64, 96))
def test_rotary_by_pairs(device: ttnn.Device, dim: int) -> None:
    heads, cos, sin = (
        tiles(device, drawn(1, 3, 32, dim)),
        tiles(device, drawn(1, 1, 32, dim, seed=1)),
        tiles(device, drawn(1, 1, 32, dim, seed=2)),
    )
    matrix = torch.zeros(1, 1, 32, 32)
    for pair in range(0, 32, 2):  # (a, b) -> (-b, a)
        matrix[0, 0, pair + 1, pair], matrix[0, 0, pair, pair + 1] = -1, 1
    x = held(heads)
    swapped = torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)

    found = ttnn.experimental.rotary_embedding_llama(heads, cos, sin, tiles(device, matrix))
    assert_result(device, found, x * held(cos) + swapped * held(sin))


def test_add_and_mul(device: ttnn.Device) -> None:
    a, b = tiles(device, drawn(1, 1, 40, 96)), tiles(device, drawn(1, 1, 40, 96, seed=1))
    x, y = held(a), held(b)

    assert_result(device, ttnn.add(a, b), x + y)
    assert_result(device, ttnn.mul(a, b, dtype=ttnn.bfloat8_b), x * y)
    gated = ttnn.mul(a, b, input_tensor_a_activations=[ttnn.UnaryOpType.SILU])
    assert_result(device, gated, functional.silu(x) * y)
    assert torch.equal(held(a), x) and torch.equal(held(b), y)


@pytest.mark.parametrize("dtype", (ttnn.bfloat8_b, ttnn.bfloat4_b, ttnn.float32))
def test_typecast_rounds_and_does_not_alias(device: ttnn.Device, dtype) -> None:
    source = tiles(device, drawn(1, 2, 32, 64))
    cast = ttnn.typecast(source, dtype)
    expected = held(source) if device.precision == "float32" else round_to(held(source), dtype)

    assert (
        cast.dtype is dtype and cast.buffer_address() != source.buffer_address() and torch.equal(held(cast), expected)
    )


def test_slices_and_layouts_move_values(device: ttnn.Device) -> None:
    tensor = tiles(device, drawn(1, 1, 96, 64), ttnn.bfloat8_b)
    values = held(tensor)

    assert torch.equal(held(ttnn.slice(tensor, (0, 0, 32, 0), (1, 1, 64, 64))), values[:, :, 32:64])
    assert ttnn.slice(tensor, (0, 0, 0, 8), (1, 1, 96, 40)).shape == [1, 1, 96, 32]
    as_rows = ttnn.to_layout(tensor, ttnn.ROW_MAJOR_LAYOUT)
    assert as_rows.dtype is ttnn.bfloat16 and torch.equal(held(as_rows), values)
    assert ttnn.to_layout(tensor, ttnn.TILE_LAYOUT).buffer_address() == tensor.buffer_address()


def test_argmax_takes_the_first_of_equals(device: ttnn.Device) -> None:
    scores = torch.zeros(1, 1, 32, 320)
    scores[0, 0, :, 7] = scores[0, 0, :, 200] = 5
    found = ttnn.argmax(rows(device, scores), dim=-1)

    assert found.dtype is ttnn.uint32 and set(ttnn.to_torch(found).flatten().tolist()) == {7}


def test_topk_orders_equals_by_index(device: ttnn.Device) -> None:
    scores = torch.arange(320.0).repeat(1, 1, 32, 1) % 16
    values, indices = ttnn.topk(tiles(device, scores), k=24, dim=-1)

    assert held(values)[0, 0, 0].tolist() == [15.0] * 20 + [14.0] * 4
    assert ttnn.to_torch(indices)[0, 0, 0].tolist() == [15 + 16 * i for i in range(20)] + [14, 30, 46, 62]


def test_operations_leave_no_other_memory_behind(device: ttnn.Device) -> None:
    left, right = tiles(device, drawn(1, 1, 64, 96)), tiles(device, drawn(96, 96, seed=1))
    before = len(device.live_tensors())
    kept = ttnn.add(ttnn.linear(left, right), left)

    assert len(device.live_tensors()) == before + 1 and kept.is_allocated()


def test_writing_in_place_changes_no_tensor_that_shares_torch_memory(device: ttnn.Device) -> None:
    """Heads are windows on one torch tensor, but different memory on a device."""
    fused = tiles(device, drawn(1, 1, 64, 3 * 64))
    query, key, value = ttnn.experimental.nlp_create_qkv_heads(
        fused, num_heads=1, num_kv_heads=1, transpose_k_heads=False
    )
    cache = ttnn.reshape(query, [2, 1, 32, 64])
    before = [held(tensor) for tensor in (fused, key, value)]
    new = tiles(device, torch.full((1, 1, 32, 64), 99.0))
    ttnn.experimental.paged_fill_cache(cache, new, rows(device, [[1]], ttnn.int32))

    assert (held(query)[0, 0, 32:] == 99).all() and not (held(query)[0, 0, :32] == 99).any()
    assert all(torch.equal(held(tensor), old) for tensor, old in zip((fused, key, value), before))


def test_a_row_of_a_product_depends_on_itself_alone(device: ttnn.Device) -> None:
    """Neither its place in a wave nor what the other rows hold changes a bit."""
    values, weight = drawn(1, 1, 256, 96), tiles(device, drawn(96, 320, seed=1))
    found = held(ttnn.linear(tiles(device, values), weight))
    rolled = held(ttnn.linear(tiles(device, values.roll(32, 2)), weight))
    spoilt = values.clone()
    spoilt[:, :, 128:] = 1e4

    assert torch.equal(rolled, found.roll(32, 2))
    assert torch.equal(held(ttnn.linear(tiles(device, spoilt), weight))[:, :, :128], found[:, :, :128])
