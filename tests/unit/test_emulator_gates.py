"""Gates and caps: which gelu, and what the device holds of a number that it multiplies by."""

from __future__ import annotations

import pytest
import torch

import runtime.emulator as ttnn
from tests.support.emulated import drawn, open_checked, tiles
from tests.support.emulated_calls import BOARDS

VALUES = drawn(1, 1, 32, 64) * 3


def test_the_gate_by_tanh_is_the_approximation_and_not_the_error_function() -> None:
    device, up = open_checked("float32"), drawn(1, 1, 32, 64, seed=1)
    found = {
        kind: ttnn.to_torch(
            ttnn.mul(
                tiles(device, VALUES),
                tiles(device, up),
                input_tensor_a_activations=[getattr(ttnn.UnaryOpType, kind)],
            )
        )
        for kind in ("GELU", "GELU_TANH")
    }
    for kind, approximate in (("GELU", "none"), ("GELU_TANH", "tanh")):
        expected = torch.nn.functional.gelu(VALUES, approximate=approximate) * up
        assert (found[kind] - expected).abs().max() <= 1e-6

    assert (found["GELU"] - found["GELU_TANH"]).abs().max() > 1e-4


@pytest.mark.parametrize(
    ("dtype", "precision", "held"),
    (
        ("bfloat16", "declared", torch.tensor(1 / 30).bfloat16().item()),
        ("bfloat8_b", "declared", torch.tensor(1 / 30).bfloat16().item()),
        ("float32", "declared", 1 / 30),
        ("bfloat16", "float32", 1 / 30),
    ),
)
def test_a_factor_is_held_in_bfloat16_but_beside_float32(dtype: str, precision: str, held: float) -> None:
    device = open_checked(precision)
    values = tiles(device, torch.full((1, 1, 32, 32), 64.0), getattr(ttnn, dtype))
    found = ttnn.to_torch(ttnn.mul(values, 1 / 30, dtype=ttnn.float32)).double()

    assert torch.allclose(found, torch.full((), 64.0 * held).double(), rtol=1e-7, atol=0)


def test_a_cap_of_one_operation_is_that_of_tanh() -> None:
    """What comes in was divided by the cap before, with the weight of the norm in front of it."""
    device = open_checked("float32")
    capped = ttnn.mul(tiles(device, VALUES / 4), 4.0, input_tensor_a_activations=[ttnn.UnaryOpType.TANH])

    assert (ttnn.to_torch(capped) - 4 * torch.tanh(VALUES / 4)).abs().max() <= 1e-6


@pytest.mark.parametrize("factor", (float("inf"), float("nan"), 1e40))
def test_a_factor_must_be_finite_in_float32(factor: float) -> None:
    with pytest.raises(ttnn.EmulatorError, match="must be finite"):
        ttnn.mul(tiles(open_checked(), VALUES), factor)


def test_soft_caps_are_refused_off_blackhole_with_the_way_around() -> None:
    beside = ttnn.open_device(board=BOARDS["p150"], precision="float32")
    found = ttnn.to_torch(ttnn.softcap(tiles(beside, VALUES), 2.5))

    assert (found - 2.5 * torch.tanh(VALUES / 2.5)).abs().max() <= 1e-6
    with pytest.raises(ttnn.EmulatorError, match="on Blackhole only, not on n150; multiply"):
        ttnn.softcap(tiles(open_checked(), VALUES), 2.5)


def test_tanh_and_gelu_of_one_tensor() -> None:
    device = open_checked("float32")
    values = tiles(device, VALUES)

    assert torch.equal(ttnn.to_torch(ttnn.tanh(values)), VALUES.tanh())
    assert torch.equal(ttnn.to_torch(ttnn.gelu(values)), torch.nn.functional.gelu(VALUES))
    by_tanh = ttnn.to_torch(ttnn.gelu(values, variant=ttnn.GeluVariant.Tanh))
    assert torch.equal(by_tanh, torch.nn.functional.gelu(VALUES, approximate="tanh"))
