"""The fused experts and their weighted sum on the emulated device: values against plain torch, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
from torch.nn.functional import silu

import runtime.emulator as ttnn
from tests.support.emulated import drawn, open_checked, rows, tiles

HIDDEN, WIDTH, SLOTS = 96, 64, 192
COUNTS, STARTS = (33, 0, 32, 1), (0, 64, 64, 96)
GRID = ttnn.CoreCoord(2, 2)
fused = ttnn.experimental.deepseek_prefill.moe_fused_swiglu
combine = ttnn.experimental.deepseek_prefill.post_combine_reduce


@pytest.fixture(params=["float32", "declared"])
def device(request: pytest.FixtureRequest) -> Iterator[ttnn.Device]:
    opened = open_checked(request.param)
    yield opened
    ttnn.close_device(opened)


def weights(seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    gate, up = (drawn(HIDDEN, WIDTH, seed=10 * seed + index) * HIDDEN**-0.5 for index in range(2))
    return gate, up, drawn(WIDTH, HIDDEN, seed=10 * seed + 2) * WIDTH**-0.5


def run(
    device: ttnn.Device,
    placed: torch.Tensor,
    counts: Sequence[int] = COUNTS,
    starts: Sequence[int] = STARTS,
    table: Sequence[int] = (0, 1, 2, 3),
    **options: Any,
) -> torch.Tensor:
    experts = [weights(seed) for seed in range(len(table))]
    output = ttnn.empty((SLOTS, HIDDEN), ttnn.bfloat16, ttnn.TILE_LAYOUT, device=device)
    arguments = {
        "dtype": ttnn.bfloat16,
        "core_grid": GRID,
        "output": output,
        "expert_region_offsets": rows(device, [list(starts)], ttnn.uint32),
        "read_x_at_offset": True,
    }
    gates, ups, downs = ([tiles(device, one[role]) for one in experts] for role in range(3))
    numbers = [rows(device, [list(values)], ttnn.uint32) for values in (counts, table)]
    returned = fused(rows(device, placed), gates, ups, downs, *numbers, **{**arguments, **options})
    assert returned is output
    return ttnn.to_torch(output).float()


def near(found: torch.Tensor, wanted: torch.Tensor, device: ttnn.Device) -> bool:
    error = (found - wanted).abs().max() / wanted.abs().max()
    limit = 1e-6 if device.precision == "float32" else 0.04
    assert error <= limit, f"relative error {error:g} over {limit:g}"
    return True


def test_every_expert_runs_over_its_own_rows_and_no_others(device):
    placed = drawn(SLOTS, HIDDEN, seed=1)
    found = run(device, placed)
    for seed, (first, count) in enumerate(zip(STARTS, COUNTS)):
        if count:
            gate, up, down = weights(seed)
            x = placed[first : first + count]
            assert near(found[first : first + count], (silu(x @ gate) * (x @ up)) @ down, device)
    written = [slot for first, count in zip(STARTS, COUNTS) for slot in range(first, first + count)]
    beyond = [slot for slot in range(SLOTS) if slot not in written]
    assert found[beyond].isnan().all(), "rows that no expert has, or past a count, hold nothing to rely on"


def test_counts_and_starts_are_found_through_the_table(device):
    placed = drawn(SLOTS, HIDDEN, seed=2)
    found = run(device, placed, counts=(5, 0, 40, 0), starts=(64, 0, 0, 0), table=(2, 0, 1, 3))
    gate, up, down = weights(0)
    assert near(found[:40], (silu(placed[:40] @ gate) * (placed[:40] @ up)) @ down, device)
    gate, up, down = weights(1)
    assert near(found[64:69], (silu(placed[64:69] @ gate) * (placed[64:69] @ up)) @ down, device)


def test_the_clamped_gate_and_biases(device):
    placed = 4 * drawn(SLOTS, HIDDEN, seed=3)
    each = [biases_of(seed) for seed in range(4)]
    given = {
        f"{role}_biases": [tiles(device, one[index]) for one in each]
        for index, role in enumerate(("gate", "up", "down"))
    }
    found = run(device, placed, activation=ttnn.RoutedExpertActivation.SwiGluOai, **given)
    gate, up, down = weights(2)
    x = placed[64:96]
    left = (x @ gate + each[2][0]).clamp(max=7)
    right = (x @ up + each[2][1]).clamp(-7, 7)
    assert left.max() == 7 and right.abs().max() == 7, "both limits are met"
    wanted = ((right + 1) * left * torch.sigmoid(1.702 * left)) @ down + each[2][2]
    assert near(found[64:96], wanted, device)


def biases_of(seed: int) -> list[torch.Tensor]:
    return [3 * drawn(1, size, seed=50 + 3 * seed + index) for index, size in enumerate((WIDTH, WIDTH, HIDDEN))]


@pytest.mark.parametrize(
    "change, message",
    [
        ({"starts": (0, 64, 65, 96)}, "must begin at a multiple of 32"),
        ({"starts": (0, 0, 32, 96)}, "not before 64"),
        ({"starts": (0, 64, 64, 192)}, "end inside 192 rows"),
        ({"counts": (33, 0, 32, 97)}, "end inside 192 rows"),
        ({"table": (0, 1, 2, 4)}, "the table names expert 4 of 4"),
        ({"core_grid": ttnn.CoreCoord(2, 3)}, "columns >= rows >= 2"),
        ({"core_grid": ttnn.CoreCoord(3, 2)}, "2 tiles cannot be split across 3 columns"),
        ({"read_x_at_offset": False}, "only the form"),
        ({"dtype": ttnn.bfloat8_b}, "output must be BFLOAT8_B"),
    ],
)
def test_what_the_kernel_would_skip_or_write_over_is_refused(device, change, message):
    with pytest.raises(ttnn.EmulatorError, match=message):
        run(device, drawn(SLOTS, HIDDEN), **change)


def test_experts_too_wide_for_a_core_are_refused_with_the_bytes():
    device = open_checked()
    hidden, width = 4096, 7168
    gate = ttnn.empty((hidden, width), ttnn.bfloat8_b, ttnn.TILE_LAYOUT, device=device)
    down = ttnn.empty((width, hidden), ttnn.bfloat8_b, ttnn.TILE_LAYOUT, device=device)
    output = ttnn.empty((64, hidden), ttnn.bfloat16, ttnn.TILE_LAYOUT, device=device)
    number = rows(device, [[0]], ttnn.uint32)
    placed = ttnn.empty((64, hidden), ttnn.bfloat16, ttnn.ROW_MAJOR_LAYOUT, device=device)
    options = {"output": output, "expert_region_offsets": number, "read_x_at_offset": True, "dtype": ttnn.bfloat16}
    with pytest.raises(ttnn.EmulatorError, match=r"needs up to 3336640 B of buffers on each core, of 1393312 B"):
        fused(placed, [gate], [gate], [down], number, number, **options)
    ttnn.close_device(device)


def test_rows_are_weighed_and_summed_in_order(device):
    picked, shares = drawn(1, 1, 64, 3, 96, seed=4), drawn(1, 1, 64, 3, 1, seed=5)
    found = ttnn.to_torch(combine(rows(device, picked), rows(device, shares), expert_dim=3)).float()
    assert near(found, (picked * shares).sum(3), device)


def test_a_row_of_nan_is_not_hidden_by_a_weight_of_zero(device):
    picked, shares = drawn(1, 1, 32, 2, 32), torch.zeros(1, 1, 32, 2, 1)
    picked[0, 0, 5, 1] = float("nan")
    found = ttnn.to_torch(combine(rows(device, picked), rows(device, shares), expert_dim=3))
    assert found[0, 0, 5].isnan().all() and not found[0, 0, :5].isnan().any()


def test_scatter_writes_columns_and_refuses_what_the_library_leaves_to_chance(device):
    target, index = torch.zeros(1, 1, 2, 6), torch.tensor([[[[4, 0], [1, 5]]]])
    source = torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]]])
    found = ttnn.to_torch(
        ttnn.scatter(rows(device, target), -1, rows(device, index, ttnn.uint16), rows(device, source))
    )
    assert found.tolist() == [[[[2, 0, 0, 0, 1, 0], [0, 3, 0, 0, 0, 4]]]]
    for wrong, message in (([[4, 6], [1, 5]], "outside the row of 6"), ([[4, 4], [1, 5]], "writes one column twice")):
        with pytest.raises(ttnn.EmulatorError, match=message):
            ttnn.scatter(
                rows(device, target), -1, rows(device, torch.tensor([[wrong]]), ttnn.uint16), rows(device, source)
            )


def test_counts_become_indices_only_where_they_are_whole(device):
    whole = tiles(device, torch.tensor([[3.0, 100000.0]]), ttnn.float32)
    assert ttnn.to_torch(ttnn.typecast(whole, ttnn.uint32)).tolist() == [[3, 100000]]
    for value, message in ((2.5, "must be whole numbers"), (-1.0, "does not fit UINT32")):
        with pytest.raises(ttnn.EmulatorError, match=message):
            ttnn.typecast(tiles(device, torch.tensor([[value]]), ttnn.float32), ttnn.uint32)
