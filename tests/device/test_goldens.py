"""The emulator's numbers are those of the library's golden functions, or of its kernels where goldens are missing or differ.

Every comparison runs twice: with nothing rounded, where results may differ as float32 sums do, and in the declared types, where
a result must be as near to the reference as its type can be.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch

import runtime.emulator as emulator
from runtime.emulator.dtypes import BLOCK, BLOCK_FLOATS
from tests.device.golden_values import Comparison, Value
from tests.device.goldens import comparisons
from tests.support.emulated_calls import BOARDS, emulated_operations
from tests.support.golden_notes import GOLDEN, GOLDEN_NOTES

WITHOUT_NUMBERS = {  # they make or move whole tensors: what a tensor holds is compared in test_block_floats.py
    "empty",
    "zeros",
    "allocate_tensor_on_device",
    "from_torch",
    "to_torch",
    "to_device",
    "from_device",
    "copy_host_to_device_tensor",
    "copy_device_to_host_tensor",
    "deallocate",
}
BY_OPERATION: dict[str, list[Comparison]] = {}
for _comparison in comparisons():
    BY_OPERATION.setdefault(_comparison.operation, []).append(_comparison)


def golden_function(library: ModuleType, operation: str) -> Callable[..., Any] | None:
    found = library
    for part in operation.split("."):
        found = getattr(found, part)
    try:
        return library.get_golden_function(found)
    except RuntimeError:
        return None


def uploaded(device: Any, value: Value) -> Any:
    dtype, layout = getattr(emulator, value.dtype), getattr(emulator, value.layout)
    return emulator.from_torch(value.values, dtype=dtype, layout=layout, device=device)


def held(tensor: Any) -> torch.Tensor:
    values = emulator.to_torch(tensor)
    return values.float() if values.is_floating_point() else values.long()


def power_of_two(exponents: torch.Tensor) -> torch.Tensor:
    return (2.0 ** exponents.double()).float()


def room(reference: torch.Tensor, ours: torch.Tensor, dtype: Any) -> torch.Tensor:
    """How far a value of this type may be from the number that it stands for."""
    if dtype is emulator.bfloat16:
        return power_of_two(torch.frexp(reference.abs())[1] - 9)
    if dtype not in BLOCK_FLOATS:
        return torch.zeros(1)
    width = reference.shape[-1]
    larger = torch.nn.functional.pad(torch.maximum(reference.abs(), ours.abs()), (0, -width % BLOCK))
    largest = larger.unflatten(-1, (-1, BLOCK)).amax(-1, keepdim=True)
    unit = power_of_two(torch.frexp(largest)[1] - BLOCK_FLOATS[dtype])
    return unit.expand(*unit.shape[:-1], BLOCK).flatten(-2)[..., :width]


def compare(library: ModuleType, comparison: Comparison, precision: str) -> int:
    """Run one comparison and return how many values it held."""
    device = emulator.open_device(board=BOARDS[comparison.board], precision=precision)
    tensors = {name: uploaded(device, value) for name, value in comparison.inputs.items()}
    seen = {name: held(tensor) for name, tensor in tensors.items()}
    results = comparison.call(emulator, **tensors)
    references = comparison.reference(golden_function(library, comparison.operation), **seen)
    many = isinstance(results, (tuple, list))
    compared = 0
    for result, reference in zip(*(results, references) if many else ((results,), (references,)), strict=True):
        ours = held(result)
        reference = reference.to(ours.dtype).reshape(ours.shape)
        allowed = comparison.tolerance * reference.abs().max()
        if precision == "declared":
            allowed = allowed + room(reference, ours, result.dtype)
        wrong = ~((ours - reference).abs() <= allowed)
        compared += ours.numel()
        assert not wrong.any(), (
            f"{comparison.operation} in {precision} of {list(ours.shape)}: {int(wrong.sum())} values differ by up to "
            f"{(ours - reference).abs().max()}, the reference reaches {reference.abs().max()}"
        )
    return compared


@pytest.mark.parametrize("operation", BY_OPERATION)
def test_numbers_are_those_of_the_library(
    host_library: ModuleType, operation: str, record_property: Callable[[str, object], None]
) -> None:
    counts = Counter()
    for comparison in BY_OPERATION[operation]:
        for precision in emulator.device.PRECISIONS:
            counts[precision] += compare(host_library, comparison, precision)

    assert all(counts[precision] > 0 for precision in emulator.device.PRECISIONS)
    record_property("count of values compared with golden functions or kernels", counts.total())


def test_every_operation_is_compared_and_says_with_what(
    host_library: ModuleType, report: Callable[[str], None]
) -> None:
    operations = emulated_operations() - WITHOUT_NUMBERS
    with_golden = {name for name in operations if golden_function(host_library, name) is not None}

    assert set(BY_OPERATION) == operations == set(GOLDEN_NOTES)
    for name in operations:
        note = GOLDEN_NOTES[name]
        assert note.startswith("no golden") == (name not in with_golden), f"{name}: {note}"
    exact = sum(note == GOLDEN for note in GOLDEN_NOTES.values())
    report(
        f"numerics: {len(operations)} operations, {exact} against their golden functions as they are, "
        f"{len(with_golden) - exact} with the differences of golden and kernel noted, "
        f"{len(operations) - len(with_golden)} without a golden function against formulas of the kernels"
    )


def test_kernel_sources_that_notes_name_are_in_the_library(library) -> None:
    sources = library / "ttnn" / "cpp" / "ttnn" / "operations"
    for name, note in GOLDEN_NOTES.items():
        paths = [word.strip("(),;:") for word in note.split() if word.strip("(),;:").endswith((".cpp", ".hpp"))]
        for path in paths:
            found = list(sources.rglob(path.rsplit("/", 1)[-1])) if "/" not in path else [sources / path]
            assert any(place.exists() for place in found), f"{name}: {path}"
