"""Conformance cases of what follows the body: candidates, sampling, log-probabilities, and the views of chunked waves.

Cases are as in emulator_cases.py, which takes these in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Case = Callable[[Any, Any], Any]

BF16, BF8, F32 = "bfloat16", "bfloat8_b", "float32"
U32, I32, U16 = "uint32", "int32", "uint16"
ROWS = 32
SAMPLING_DTYPES = (BF16, U32, U32, BF16, BF16)
SAMPLING_LAYOUTS = ("TILE",) + 4 * ("ROW_MAJOR",)


def cast(source: str, target: str, layout: str = "TILE", shape: tuple[int, ...] = (1, 1, 32, 32)) -> Case:
    return lambda t, make: t.typecast(make(shape, source, layout), getattr(t, target))


def sampling(
    values=(1, 1, ROWS, 32),
    indices=None,
    users=(ROWS,),
    dtypes=SAMPLING_DTYPES,
    layouts=SAMPLING_LAYOUTS,
    place="DRAM",
    positional=False,
    **k,
) -> Case:
    """`dtypes` and `layouts` are those of values, indices, k, p and temperature."""

    def case(t: Any, make: Any) -> Any:
        shapes = (values, indices or values, users, users, users)
        scores, *rest = [make(*part) for part in zip(shapes, dtypes, layouts, (place,) + 4 * ("DRAM",))]
        candidates, count, share, inverse_temperature = rest
        legal(count)
        legal(inverse_temperature)
        if positional:
            return t.sampling(scores, candidates, count, share, inverse_temperature, **k)
        return t.sampling(scores, candidates, k=count, p=share, temp=inverse_temperature, **k)

    return case


def seeded(
    seeds=(ROWS,), users=(ROWS,), dtypes=(U32, U32), layouts=("ROW_MAJOR", "ROW_MAJOR"), places=("DRAM", "DRAM"), **k
) -> Case:
    """Seeds for rows by tensors, beside the device that they are on."""

    def case(t: Any, make: Any) -> Any:
        tensors = [
            make(shape, dtype, layout, place)
            for shape, dtype, layout, place in zip((seeds, users), dtypes, layouts, places)
        ]
        arguments = {"device": tensors[0].device(), "user_ids": tensors[1], **k}
        return t.manual_seed(
            tensors[0], **{name: value for name, value in arguments.items() if not isinstance(value, str)}
        )

    return case


def legal(tensor: Any) -> None:
    """Ones, where a tensor has values: no k and no temperature may be zero."""
    if hasattr(tensor, "ownership"):
        tensor.ownership.buffer.values.fill_(1)


def changed(position: int, value: str, items: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(value if index == position else item for index, item in enumerate(items))


def reduced(name: str, shape=(1, 1, 32, 320), dtype=F32, layout="TILE", place="DRAM", **k: Any) -> Case:
    def case(t: Any, make: Any) -> Any:
        arguments = {key: getattr(t, value) if isinstance(value, str) else value for key, value in k.items()}
        return getattr(t, name)(make(shape, dtype, layout, place), **arguments)

    return case


def difference(
    a=(1, 1, 32, 320), b=(1, 1, 32, 1), dtypes=(F32, F32), layouts=("TILE", "TILE"), place="DRAM", **k: Any
) -> Case:
    def case(t: Any, make: Any) -> Any:
        arguments = {key: getattr(t, value) for key, value in k.items()}
        return t.subtract(make(a, dtypes[0], layouts[0], place), make(b, dtypes[1], layouts[1], place), **arguments)

    return case


def picked(
    source=(1, 1, 32, 320), index=(1, 1, 32, 1), dtypes=(F32, U32), layouts=("TILE", "TILE"), dim=-1, place="DRAM", **k
) -> Case:
    def case(t: Any, make: Any) -> Any:
        arguments = {key: getattr(t, value) for key, value in k.items()}
        return t.gather(
            make(source, dtypes[0], layouts[0], place), dim, make(index, dtypes[1], layouts[1], place), **arguments
        )

    return case


def turned(shape=(8, 4, 128, 64), dims=(0, 1), dtype=BF16, layout="TILE", place="DRAM", **k: Any) -> Case:
    def case(t: Any, make: Any) -> Any:
        arguments = {key: getattr(t, value) for key, value in k.items()}
        return t.transpose(make(shape, dtype, layout, place), *dims, **arguments)

    return case


def seen(shape: tuple[int, ...], target: Any, dtype: str = BF16, layout: str = "TILE") -> Case:
    return lambda t, make: t.reshape(make(shape, dtype, layout), target)


TAIL_CASES: dict[str, Case] = (
    {
        "topk, 5 candidates of 308": lambda t, make: t.topk(make((1, 1, 32, 308)), k=5, dim=-1),
        "topk, 65535": lambda t, make: t.topk(make((1, 1, 32, 65535)), k=32, dim=-1),
        "topk, 65537": lambda t, make: t.topk(make((1, 1, 32, 65537)), k=32, dim=-1),
        "topk, 32 wide": lambda t, make: t.topk(make((1, 1, 32, 32)), k=32, dim=-1),
        "topk, to L1": lambda t, make: t.topk(make((1, 1, 32, 320)), k=32, dim=-1, memory_config=t.L1_MEMORY_CONFIG),
        "topk, dim 2": lambda t, make: t.topk(make((1, 1, 64, 320)), k=32, dim=2),
        "topk, integers": lambda t, make: t.topk(make((1, 1, 32, 320), U32), k=32, dim=-1),
        "topk, unknown keyword": lambda t, make: t.topk(make((1, 1, 32, 320)), k=32, axis=-1),
        "manual seed": lambda t, make: t.manual_seed(3, device=make((1, 1, 32, 32)).device()),
        "manual seed, default": lambda t, make: t.manual_seed(device=make((1, 1, 32, 32)).device()),
        "manual seed, no device": lambda t, make: t.manual_seed(3),
        "manual seed, float": lambda t, make: t.manual_seed(3.0, device=make((1, 1, 32, 32)).device()),
        "manual seed, negative": lambda t, make: t.manual_seed(-1, device=make((1, 1, 32, 32)).device()),
        "manual seed, beyond 32 bits": lambda t, make: t.manual_seed(2**32, device=make((1, 1, 32, 32)).device()),
        "manual seed, keyword": lambda t, make: t.manual_seed(seeds=3, device=make((1, 1, 32, 32)).device()),
        "manual seed, unknown keyword": lambda t, make: t.manual_seed(3, mesh_device=make((1, 1, 32, 32)).device()),
        "manual seed, rows": seeded(),
        "manual seed, rows without the device": seeded(device="left out"),
        "manual seed, rows without users": seeded(user_ids="left out"),
        "manual seed, rows for a user": seeded(seeds=(1,), user_ids=3),
        "manual seed, users for a number": lambda t, make: t.manual_seed(
            3, device=make((1, 1, 32, 32)).device(), user_ids=make((ROWS,), U32, "ROW_MAJOR")
        ),
        "manual seed, a number for a user": lambda t, make: t.manual_seed(
            3, device=make((1, 1, 32, 32)).device(), user_ids=3
        ),
        "manual seed, rows, one": seeded(seeds=(1,), users=(1,)),
        "manual seed, rows, 33": seeded(seeds=(33,), users=(33,)),
        "manual seed, rows, fewer seeds": seeded(seeds=(16,)),
        "manual seed, rows, 2-D": seeded(seeds=(1, ROWS), users=(1, ROWS)),
        "manual seed, rows, 4-D": seeded(seeds=(1, 1, 1, ROWS), users=(1, 1, 1, ROWS)),
        "manual seed, rows, seeds int32": seeded(dtypes=(I32, U32)),
        "manual seed, rows, users int32": seeded(dtypes=(U32, I32)),
        "manual seed, rows, seeds bfloat16": seeded(dtypes=(BF16, U32)),
        "manual seed, rows, seeds in tiles": seeded(layouts=("TILE", "ROW_MAJOR")),
        "manual seed, rows, users in tiles": seeded(layouts=("ROW_MAJOR", "TILE")),
        "manual seed, rows, in L1": seeded(places=("L1", "L1")),
        "sampling": sampling(),
        "sampling, seed": sampling(seed=7),
        "sampling, values in L1": sampling(place="L1"),
        "sampling, seed float": sampling(seed=7.0),
        "sampling, negative seed": sampling(seed=-1),
        "sampling, unknown keyword": sampling(seeds=1),
        "sampling, memory": sampling(memory_config=None),
        "sampling, positional": sampling(positional=True),
        "sampling, no temperature": lambda t, make: t.sampling(
            make((1, 1, 32, 32)),
            make((1, 1, 32, 32), U32, "ROW_MAJOR"),
            k=make((32,), U32, "ROW_MAJOR"),
            p=make((32,), BF16, "ROW_MAJOR"),
        ),
        "sampling, 16 users": sampling(values=(1, 1, 16, 32), users=(16,)),
        "sampling, 1 user": sampling(values=(1, 1, 1, 32), users=(1,)),
        "sampling, 33 users": sampling(values=(1, 1, 33, 32), users=(33,)),
        "sampling, 64 users": sampling(values=(1, 1, 64, 32), users=(64,)),
        "sampling, users in the second axis": sampling(values=(1, 32, 1, 32)),
        "sampling, 3-D": sampling(values=(1, 32, 32)),
        "sampling, 2-D": sampling(values=(32, 32)),
        "sampling, 64 wide": sampling(values=(1, 1, 32, 64)),
        "sampling, 96 wide": sampling(values=(1, 1, 32, 96)),
        "sampling, 128 wide": sampling(values=(1, 1, 32, 128)),
        "sampling, 16 wide": sampling(values=(1, 1, 32, 16)),
        "sampling, 40 wide": sampling(values=(1, 1, 32, 40)),
        "sampling, indices narrower": sampling(indices=(1, 1, 32, 16)),
        "sampling, indices of fewer rows": sampling(indices=(1, 1, 16, 32)),
        "sampling, choices of 16": sampling(users=(16,)),
        "sampling, choices of 64": sampling(users=(64,)),
        "sampling, choices 2-D": sampling(users=(1, 32)),
        "sampling, choices 4-D": sampling(users=(1, 1, 1, 32)),
    }
    | {
        f"sampling, {part} {dtype}": sampling(dtypes=changed(position, dtype, SAMPLING_DTYPES))
        for position, part, others in (
            (0, "values", (F32, BF8)),
            (1, "indices", (I32, U16, BF16)),
            (2, "k", (I32, U16, BF16)),
            (3, "p", (F32, U32)),
            (4, "temperature", (F32, U32)),
        )
        for dtype in others
    }
    | {
        f"sampling, {part} in the other layout": sampling(
            layouts=changed(position, "ROW_MAJOR" if position == 0 else "TILE", SAMPLING_LAYOUTS)
        )
        for position, part in enumerate(("values", "indices", "k", "p", "temperature"))
    }
    | {
        f"cast {source} to {target}": cast(source, target)
        for source in (U16, U32, I32, BF16, F32)
        for target in (U16, U32, I32, BF16, F32)
        if source in (U16, U32, I32) or target in (U16, U32, I32)
    }
    | {
        "cast rows of uint16 to uint32": cast(U16, U32, "ROW_MAJOR"),
        "cast rows of uint32 to int32": cast(U32, I32, "ROW_MAJOR"),
        "cast rows of 5 uint16 to uint32": cast(U16, U32, "ROW_MAJOR", (1, 1, 3, 5)),
        "cast rows of bfloat16 to uint32": cast(BF16, U32, "ROW_MAJOR"),
        "cast uint32 to bfloat8_b": cast(U32, BF8),
        "cast bfloat8_b to uint32": cast(BF8, U32),
    }
    | {
        f"{name}{title}": reduced(name, **arguments)
        for name in ("max", "sum")
        for title, arguments in {
            "": {"dim": -1, "keepdim": True},
            ", dropped": {"dim": -1},
            ", dim 3": {"dim": 3, "keepdim": True},
            ", dim 4": {"dim": 4, "keepdim": True},
            ", dim 2": {"dim": 2, "keepdim": True},
            ", dims": {"dim": (-1,), "keepdim": True},
            ", all": {},
            ", bfloat16": {"dim": -1, "keepdim": True, "dtype": BF16},
            ", block float": {"dim": -1, "keepdim": True, "dtype": BF8},
            ", integers": {"dim": -1, "keepdim": True, "dtype": U32},
            ", signed": {"dim": -1, "keepdim": True, "dtype": I32},
            ", 308 wide": {"dim": -1, "keepdim": True, "shape": (1, 1, 32, 308)},
            ", 5 rows": {"dim": -1, "keepdim": True, "shape": (1, 1, 5, 308)},
            ", 2-D": {"dim": -1, "keepdim": True, "shape": (32, 320)},
            ", rows": {"dim": -1, "keepdim": True, "layout": "ROW_MAJOR"},
            ", to L1": {"dim": -1, "keepdim": True, "memory_config": "L1_MEMORY_CONFIG"},
            ", in L1": {"dim": -1, "keepdim": True, "place": "L1"},
            ", unknown keyword": {"axis": -1},
        }.items()
    }
    | {
        f"{name}{title}": reduced(name, **arguments)
        for name in ("exp", "log")
        for title, arguments in {
            "": {},
            ", bfloat16": {"dtype": BF16},
            ", block float": {"dtype": BF8},
            ", integers": {"dtype": U32},
            ", signed": {"dtype": I32},
            ", rows": {"layout": "ROW_MAJOR"},
            ", 5 rows": {"shape": (1, 1, 5, 308)},
            ", 2-D": {"shape": (32, 320)},
            ", to L1": {"memory_config": "L1_MEMORY_CONFIG"},
            ", in L1": {"place": "L1"},
            ", unknown keyword": {"base": 2},
        }.items()
    }
    | {
        "subtract a column": difference(),
        "subtract a column, dtype": difference(dtype=F32),
        "subtract a column, bfloat16 out": difference(dtype=BF16),
        "subtract a column, block float out": difference(dtype=BF8),
        "subtract a column, bfloat16": difference(dtypes=(BF16, BF16)),
        "subtract a column, bfloat16 from float32": difference(dtypes=(F32, BF16)),
        "subtract a column, float32 from bfloat16": difference(dtypes=(BF16, F32)),
        "subtract a column, to L1": difference(memory_config="L1_MEMORY_CONFIG"),
        "subtract a column, 308 wide": difference(a=(1, 1, 32, 308)),
        "subtract a column of 16 rows": difference(b=(1, 1, 16, 1)),
        "subtract a column of rank 2": difference(b=(32, 1)),
        "subtract from a column": difference(a=(1, 1, 32, 1), b=(1, 1, 32, 320)),
        "subtract equal shapes": difference(b=(1, 1, 32, 320)),
        "subtract columns": difference(a=(1, 1, 32, 1)),
        "subtract two columns": difference(b=(1, 1, 32, 2)),
        "subtract a row": difference(b=(1, 1, 1, 320)),
        "subtract rows": difference(layouts=("ROW_MAJOR", "ROW_MAJOR")),
        "subtract rows from tiles": difference(layouts=("TILE", "ROW_MAJOR")),
        "subtract integers": difference(dtypes=(I32, I32)),
        "subtract integers from floats": difference(dtypes=(F32, I32)),
        "subtract, unknown keyword": difference(out="float32"),
        "gather": picked(),
        "gather, bfloat16": picked(dtypes=(BF16, U32)),
        "gather, block float": picked(dtypes=(BF8, U32)),
        "gather, uint16": picked(dtypes=(F32, U16)),
        "gather, bfloat16 by uint16": picked(dtypes=(BF16, U16)),
        "gather, int32": picked(dtypes=(F32, I32)),
        "gather, by floats": picked(dtypes=(F32, F32)),
        "gather, from integers": picked(dtypes=(U32, U32)),
        "gather, 32 of each row": picked(index=(1, 1, 32, 32)),
        "gather, wider index": picked(index=(1, 1, 32, 640)),
        "gather, fewer rows": picked(index=(1, 1, 16, 1)),
        "gather, more rows": picked(index=(1, 1, 64, 1)),
        "gather, ranks differ": picked(index=(32, 1)),
        "gather, 2-D": picked(source=(32, 320), index=(32, 1)),
        "gather, dim 3": picked(dim=3),
        "gather, dim 4": picked(dim=4),
        "gather, dim 2": picked(dim=2, index=(1, 1, 8, 320)),
        "gather, 308 wide": picked(source=(1, 1, 32, 308)),
        "gather, 49152 wide": picked(source=(1, 1, 32, 49152)),
        "gather, 5 rows": picked(source=(1, 1, 5, 308), index=(1, 1, 5, 1)),
        "gather, rows": picked(layouts=("ROW_MAJOR", "TILE")),
        "gather, rows by rows": picked(layouts=("ROW_MAJOR", "ROW_MAJOR")),
        "gather, by rows": picked(layouts=("TILE", "ROW_MAJOR")),
        "gather, to L1": picked(memory_config="L1_MEMORY_CONFIG"),
        "gather, in L1": picked(place="L1"),
        "gather, unknown keyword": lambda t, make: t.gather(make((1, 1, 32, 32)), -1, indices=make((1, 1, 32, 1), U32)),
        "transpose": turned(),
        "transpose, counted from the end": turned(dims=(-4, -3)),
        "transpose, other way round": turned(dims=(1, 0)),
        "transpose, dim 4": turned(dims=(0, 4)),
        "transpose, onto itself": turned(dims=(1, 1)),
        "transpose, tokens": turned(dims=(1, 2)),
        "transpose, last two": turned(dims=(2, 3)),
        "transpose, one head": turned(shape=(1, 4, 128, 64)),
        "transpose, block float": turned(dtype=BF8),
        "transpose, float32": turned(dtype=F32),
        "transpose, integers": turned(dtype=U32),
        "transpose, uint16": turned(dtype=U16),
        "transpose, rows": turned(layout="ROW_MAJOR"),
        "transpose, 40 tokens": turned(shape=(8, 4, 40, 64)),
        "transpose, 3-D": turned(shape=(8, 128, 64)),
        "transpose, 2-D": turned(shape=(128, 64)),
        "transpose, to L1": turned(memory_config="L1_MEMORY_CONFIG"),
        "transpose, in L1": turned(place="L1"),
        "transpose, unknown keyword": lambda t, make: t.transpose(make((8, 4, 32, 32)), dim0=0, dim1=1),
        "reshape splits rows": seen((1, 8, 512, 64), (8, 4, 128, 64)),
        "reshape joins rows": seen((4, 1, 128, 512), (1, 1, 512, 512)),
        "reshape splits a tile": seen((1, 1, 64, 64), (1, 4, 16, 64)),
        "reshape joins padded rows": seen((1, 4, 16, 64), (1, 1, 64, 64)),
        "reshape tokens to a column": seen((1, 1, 1, 32), (1, 1, 32, 1), U32, "ROW_MAJOR"),
        "reshape a vector to a column": seen((1, 1, 32), (1, 1, 32, 1), U32, "ROW_MAJOR"),
        "reshape a column to a row": seen((1, 1, 32, 1), (1, 1, 1, 32), U32, "ROW_MAJOR"),
        "reshape a column of tiles": seen((1, 1, 32, 1), (1, 1, 1, 32), F32),
        "reshape block float, whole tiles": seen((1, 8, 512, 64), (8, 4, 128, 64), BF8),
        "reshape block float, moves": seen((1, 1, 64, 64), (1, 1, 32, 128), BF8),
        "reshape integers, moves": seen((1, 1, 64, 64), (1, 1, 32, 128), I32),
        "reshape uint16 rows, moves": seen((1, 1, 1, 64), (1, 1, 2, 32), U16, "ROW_MAJOR"),
        "reshape, two inferred": seen((1, 1, 64, 64), (1, -1, -1, 64)),
        "reshape, no whole rest": seen((1, 1, 64, 64), (1, 3, -1, 64)),
        "reshape to L1": lambda t, make: t.reshape(
            make((1, 1, 64, 64)), (1, 1, 32, 128), memory_config=t.L1_MEMORY_CONFIG
        ),
        "reshape view to L1": lambda t, make: t.reshape(
            make((1, 1, 64, 64)), (1, 2, 32, 64), memory_config=t.L1_MEMORY_CONFIG
        ),
        "reshape, unknown keyword": lambda t, make: t.reshape(make((1, 1, 64, 64)), sizes=(1, 1, 32, 128)),
    }
)

NOT_MODELLED = "emitted modules do not use it"
TAIL_STRICTER = {
    "manual seed, rows without users": NOT_MODELLED,
    "manual seed, users for a number": NOT_MODELLED,
    "manual seed, a number for a user": NOT_MODELLED,
    "topk, dim 2": NOT_MODELLED,
    "max, dim 2": NOT_MODELLED,
    "max, dims": NOT_MODELLED,
    "max, all": NOT_MODELLED,
    "max, integers": NOT_MODELLED,
    "max, signed": NOT_MODELLED,
    "max, rows": NOT_MODELLED,
    "sum, dim 2": NOT_MODELLED,
    "sum, dims": NOT_MODELLED,
    "sum, all": NOT_MODELLED,
    "sum, integers": NOT_MODELLED,
    "sum, signed": NOT_MODELLED,
    "sum, rows": NOT_MODELLED,
    "subtract a column of rank 2": NOT_MODELLED,
    "subtract rows": NOT_MODELLED,
    "subtract rows from tiles": NOT_MODELLED,
    "subtract integers": NOT_MODELLED,
    "gather, fewer rows": NOT_MODELLED,
    "gather, dim 2": NOT_MODELLED,
    "gather, rows by rows": NOT_MODELLED,
    "transpose, onto itself": NOT_MODELLED,
    "transpose, tokens": NOT_MODELLED,
    "transpose, last two": NOT_MODELLED,
    "transpose, 3-D": NOT_MODELLED,
    "transpose, 2-D": NOT_MODELLED,
    "cast rows of bfloat16 to uint32": NOT_MODELLED,
    "cast uint32 to bfloat8_b": NOT_MODELLED,
    "cast bfloat8_b to uint32": NOT_MODELLED,
} | {
    f"cast {source} to {target}": NOT_MODELLED
    for integer in (U16, U32, I32)
    for floats in (BF16, F32)
    for source, target in ((integer, floats), (floats, integer))
    if (source, target) != (F32, U32)
}
