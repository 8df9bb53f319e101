"""Drawing one token for each row from its best candidates, and the device's random state."""

from __future__ import annotations

import math

import torch

from ..arguments import checked
from ..configs import DRAM_MEMORY_CONFIG
from ..device import Device
from ..dispatch import Plan, launch
from ..dtypes import DataType, Layout
from ..errors import EmulatorError, require
from ..storage import TILE, Buffer, Ownership, TensorSpec, tensor_spec
from ..tensor import Tensor

NAME = "sampling"
SEED = "manual_seed"
MOST_ROWS = 32  # one core draws for one row
MOST_CHOICES = 32  # what one row of the kernel's tile of candidates holds
SEEDS = 2**32
INDEX_TYPES = (DataType.UINT32, DataType.INT32)


def _plan(
    device: Device, values: TensorSpec, indices: TensorSpec, k: TensorSpec, p: TensorSpec, temperature: TensorSpec, seed
) -> Plan:
    require(
        values.dtype is DataType.BFLOAT16 and values.layout is Layout.TILE,
        NAME,
        f"values must be BFLOAT16 in tiles, got {values!r}",
    )
    require(
        len(values.shape) == 4 and values.shape[:2] == (1, 1) and 1 <= values.shape[2] <= MOST_ROWS,
        NAME,
        f"values must be [1, 1, 1 to {MOST_ROWS} rows, candidates], got {list(values.shape)}",
    )
    rows, candidates = values.shape[2:]
    tiles = candidates // TILE
    require(
        candidates % TILE == 0 and tiles > 0 and tiles & (tiles - 1) == 0,
        NAME,
        f"candidates must fill 1, 2, 4, 8 .. tiles of {TILE}, got {candidates}",
    )
    require(
        indices.shape == values.shape and indices.dtype in INDEX_TYPES and indices.layout is Layout.ROW_MAJOR,
        NAME,
        f"indices must be UINT32 or INT32 rows of the shape of the values, got {indices!r}",
    )
    for name, spec, dtypes in (
        ("k", k, INDEX_TYPES),
        ("p", p, (DataType.BFLOAT16,)),
        ("temp", temperature, (DataType.BFLOAT16,)),
    ):
        require(
            spec.shape == (rows,) and spec.dtype in dtypes and spec.layout is Layout.ROW_MAJOR,
            NAME,
            f"{name} must be {rows} row-major values of {' or '.join(dtype.name for dtype in dtypes)}, got {spec!r}",
        )
    return Plan((tensor_spec((1, 1, 1, rows), DataType.UINT32, Layout.ROW_MAJOR, values.memory_config),))


def _check(
    values: torch.Tensor, indices: torch.Tensor, k: torch.Tensor, p: torch.Tensor, temperature: torch.Tensor
) -> None:
    """The library never looks at these values, and its kernel then reads past the candidates or divides by nothing."""
    most = min(values.shape[-1], MOST_CHOICES)
    for row, (count, share, inverse) in enumerate(zip(k.tolist(), p.tolist(), temperature.tolist())):
        if not 1 <= count <= most:
            raise EmulatorError(NAME, f"k of row {row} must be between 1 and the {most} candidates, got {count}")
        if not 0 <= share <= 1:
            raise EmulatorError(NAME, f"p of row {row} must be between 0 and 1, got {share}")
        if not 0 < inverse < math.inf:
            raise EmulatorError(
                NAME, f"temp of row {row}, the inverse of the temperature, must be above 0 and finite, got {inverse}"
            )
    if int(indices.min()) < 0:
        raise EmulatorError(NAME, f"an index must not be below 0, got {int(indices.min())}")


@checked
def sampling(
    input_values_tensor: Tensor,
    input_indices_tensor: Tensor,
    k: Tensor,
    p: Tensor,
    temp: Tensor,
    *,
    seed: int | None = None,
) -> Tensor:
    """One index for each row -> [1, 1, 1, rows] UINT32, from values and indices [1, 1, rows, candidates].

    Each row keeps its k largest values (the first among equals), takes softmax(values * temp) over them, where temp is
    one over the temperature, keeps the fewest of the likeliest that hold more than a share p, and draws among them, as
    the library's writer_interleaved.cpp does. k = 1 or p = 0 is argmax. Draws come from the device's random state, which `manual_seed` or `seed` sets and
    every call advances, a replayed one too. The state is this emulator's own: the library's generator is part of the
    hardware and cannot be reproduced, so the tokens that follow from a seed differ from its.
    """
    if seed is not None:
        _check_seed(NAME, seed)
    device = input_values_tensor.buffer(NAME).device
    random, row_random = device.random, device.row_random

    def compute(
        values: torch.Tensor, indices: torch.Tensor, k: torch.Tensor, p: torch.Tensor, temperature: torch.Tensor
    ) -> torch.Tensor:
        if seed is not None:
            random.manual_seed(seed)
            row_random.clear()
        uniform = torch.rand(values.shape[-2], generator=random, dtype=torch.float64)
        for row, own in row_random.items():
            if row < len(uniform):
                uniform[row] = torch.rand((), generator=own, dtype=torch.float64)
        choice = _draw(values[0, 0].double(), k, p.double(), temperature.double(), uniform)
        return indices[0, 0].gather(-1, choice).reshape(1, 1, 1, -1)

    inputs = (input_values_tensor, input_indices_tensor, k, p, temp)
    return launch(NAME, inputs, (seed,), _plan, compute, check=_check)[0]


def _draw(
    values: torch.Tensor, k: torch.Tensor, p: torch.Tensor, inverse_temperature: torch.Tensor, uniform: torch.Tensor
) -> torch.Tensor:
    """Values [rows, candidates], the rest [rows] -> the place of the drawn candidate in each row, [rows, 1]."""
    ordered, places = values.sort(dim=-1, descending=True, stable=True)
    beyond = torch.arange(values.shape[-1]) >= k[:, None]
    share = (ordered * inverse_temperature[:, None]).masked_fill(beyond, -math.inf).softmax(-1)
    needless = share.cumsum(-1) - share > p[:, None]
    needless[:, 0] = False
    reached = share.masked_fill(needless, 0).cumsum(-1)
    return places.gather(-1, (reached <= uniform[:, None] * reached[:, -1:]).sum(-1, keepdim=True))


def _check_seed(name: str, seed: int) -> None:
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < SEEDS:
        raise TypeError(
            f"{name}(): incompatible function arguments: a seed is a whole number from 0 to {SEEDS - 1}, got {seed!r}"
        )


def _plan_seed(device: Device, seeds: TensorSpec, users: TensorSpec) -> Plan:
    for name, spec in (("seeds", seeds), ("user_ids", users)):
        require(
            len(spec.shape) == 1 and spec.dtype is DataType.UINT32 and spec.layout is Layout.ROW_MAJOR,
            SEED,
            f"{name} must be row-major UINT32 of rank 1, got {spec!r}",
        )
    require(
        seeds.shape == users.shape,
        SEED,
        f"seeds and user_ids must have as many entries, got {seeds.volume} and {users.volume}",
    )
    return Plan((tensor_spec((1,), DataType.UINT32, Layout.ROW_MAJOR, DRAM_MEMORY_CONFIG),))


def _check_users(seeds: torch.Tensor, users: torch.Tensor) -> None:
    if int(users.max()) >= MOST_ROWS:
        raise EmulatorError(
            SEED, f"a user id is the row that a core draws for, 0 to {MOST_ROWS - 1}: {int(users.max())}"
        )


@checked
def manual_seed(
    seeds: int | Tensor = 0, *, device: Device | None = None, user_ids: int | Tensor | None = None
) -> Tensor:
    """Set the device's random state. Returns the library's [1] UINT32 tensor without meaning.

    seeds: one number for all rows, or a tensor with one seed for each row of the tensor `user_ids`. As in the library,
    each number is a program of its own, so that one not set before compiles and live traces forbid it; tensors of one
    length are one program whatever they hold.
    """
    if isinstance(seeds, Tensor):
        return _seed_rows(seeds, user_ids)
    _check_seed(SEED, seeds)
    require(user_ids is None, SEED, "rows are seeded by a tensor of seeds beside the tensor of user_ids")
    require(device is not None, SEED, "the device must be stated when the seed is a number")
    device.enter(SEED)
    _refuse_in_capture(device)
    if (SEED, seeds) not in device.programs:
        device.compile((SEED, seeds), None)
    spec = tensor_spec((1,), DataType.UINT32, Layout.ROW_MAJOR, DRAM_MEMORY_CONFIG)
    owner = Ownership(Buffer(spec, device, SEED))
    device.random.manual_seed(seeds)
    device.row_random.clear()
    device.note(SEED, (spec,))
    return Tensor(spec, ownership=owner)


def _seed_rows(seeds: Tensor, user_ids: int | Tensor | None) -> Tensor:
    require(isinstance(user_ids, Tensor), SEED, "a tensor of seeds needs the tensor user_ids beside it")
    device = seeds.buffer(SEED).device
    _refuse_in_capture(device)
    row_random = device.row_random

    def compute(seeds: torch.Tensor, users: torch.Tensor) -> torch.Tensor:
        for seed, user in zip(seeds.tolist(), users.tolist()):
            row_random[user] = torch.Generator().manual_seed(seed)
        return torch.zeros(1, dtype=torch.int64)

    return launch(SEED, (seeds, user_ids), (), _plan_seed, compute, check=_check_users)[0]


def _refuse_in_capture(device: Device) -> None:
    require(
        not device.capturing,
        SEED,
        "a seed in a recording would be set again by every replay; set it before the capture",
    )
