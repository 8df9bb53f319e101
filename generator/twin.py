"""The twin of a model: the same rules, options and dtypes at a size that a test runs in well under a second."""

from __future__ import annotations

from typing import Any

from generator.experts import NARROWEST
from generator.manifest import LONGEST_NAME, Manifest, Model, ModelFile, TargetTable, check
from generator.tiles import TILE, multiple_near

SUFFIX = "-twin"
LAYERS = 2  # of each kind of layer one, where there are two
EXPERTS = 8
EXPERTS_PER_TOKEN = 2  # so that some expert sees no token of a short prompt, and more than a tile of a long one
VOCABULARY = 256
MOST_ROWS = 8
CONTEXT_CHUNKS = 8  # a prompt of five chunks and a cached prefix have room
ROWS_OF_CACHE = 4  # whole contexts that the key-value blocks hold
WIDEST_FEED_FORWARD = 2  # times hidden
VALUE_HEADS = 16  # so many that the largest waves have no core for each head of each row, and smaller ones do


def twin(file: ModelFile) -> ModelFile:
    """A small manifest of the same family, target tables and dtypes, named after the model with "-twin"."""
    manifest = file.manifest
    data = manifest.model_dump(exclude_none=True, exclude={"weights"})
    data["name"] = manifest.name[: LONGEST_NAME - len(SUFFIX)].rstrip(".-") + SUFFIX
    data["model"] |= _model(manifest)
    data["target"] = {
        name: table.model_dump() | _table(manifest.model, table) for name, table in manifest.target.items()
    }
    data["model"]["maximum_context"] = max(table["context"] for table in data["target"].values())
    return check(data, file.path, file.source, tuple(manifest.target))


def _model(manifest: Manifest) -> dict[str, Any]:
    """Two key-value heads where the model has several, as many query heads to each as the model has, and a query width
    that is equal to hidden exactly where the model's is."""
    model = manifest.model
    head_dim = model.head_dim or model.hidden // model.query_heads
    key_value_heads = min(model.key_value_heads, 2)
    query_heads = key_value_heads * (model.query_heads // model.key_value_heads)
    small_head = TILE if head_dim == TILE or head_dim % 64 == 0 else 3 * TILE  # the two rotary styles
    query_width = query_heads * small_head
    hidden = multiple_near(query_width * model.hidden // (model.query_heads * head_dim), TILE)
    if model.hidden != model.query_heads * head_dim and hidden == query_width:
        hidden += TILE
    turned = max(2, small_head * (model.rotary_dimensions or head_dim) // head_dim // 2 * 2)
    width = model.intermediate if model.experts is None else model.experts.intermediate
    inner = multiple_near(int(hidden * min(width / model.hidden, WIDEST_FEED_FORWARD)), TILE)
    return (
        {
            "vocabulary": VOCABULARY,
            "hidden": hidden,
            "layers": LAYERS,
            "query_heads": query_heads,
            "key_value_heads": key_value_heads,
            "rope": _rope(manifest, turned // 2),
        }
        | _windows(manifest)
        | _recurrent(model)
        | {
            key: value
            for key, value in (
                ("intermediate", inner),
                ("head_dim", small_head),
                ("rotary_dimensions", turned),
                ("experts", _experts(model, inner)),
            )
            if getattr(model, key) is not None
        }
    )


def _windows(manifest: Manifest) -> dict[str, Any]:
    """A window that ends inside a block, and first a layer with it."""
    model = manifest.model
    if model.sliding_window is None:
        return {}
    block = min(table.block_size for table in manifest.target.values())
    return {"sliding_window": block + block // 4, "full_attention_layers": (1,) if model.full_attention_layers else ()}


def _recurrent(model: Model) -> dict[str, Any]:
    """First a recurrent layer, then one with attention; as many value heads to each key head as the model has."""
    net = model.gated_delta_net
    if net is None:
        return {}
    shared = net.value_heads // net.key_heads
    sizes = {"key_heads": max(1, VALUE_HEADS // shared), "value_heads": max(1, VALUE_HEADS // shared) * shared}
    dims = {"key_dim": TILE, "value_dim": TILE * (1 if net.key_dim == net.value_dim else 2), "kernel": net.kernel}
    return {"layer_kinds": ("gated_delta_net", "full"), "gated_delta_net": sizes | dims}


def _experts(model: Model, width: int) -> dict[str, Any]:
    """Few experts, two of them for a token, and at least two tiles wide, which the operation needs."""
    if model.experts is None:
        return {}
    count = min(model.experts.count, EXPERTS)
    return {
        "count": count,
        "per_token": min(model.experts.per_token, EXPERTS_PER_TOKEN, count),
        "intermediate": max(width, NARROWEST),
        "renormalise": model.experts.renormalise,
        **({"shared_intermediate": max(width, NARROWEST)} if model.experts.shared_intermediate else {}),
    }


def _rope(manifest: Manifest, pairs: int) -> dict[str, Any]:
    """As many of the model's factors as there are pairs, evenly out of its own, and a switch half way through the
    context of a model whose prompts reach it.
    """
    rope = manifest.model.rope
    data = rope.model_dump(exclude_none=True)
    if rope.kind != "longrope":
        return data
    for key in ("short_factors", "long_factors"):
        factors = data[key]
        data[key] = tuple(factors[index * len(factors) // pairs] for index in range(pairs))
    if any(table.context > rope.original_context for table in manifest.target.values()):
        data["original_context"] = (
            min(_table(manifest.model, table)["context"] for table in manifest.target.values()) // 2
        )
    return data


def _table(model: Model, table: TargetTable) -> dict[str, Any]:
    """Lengths of one, two and four blocks; an attention chunk of two, so that alignment and block differ. A soft cap leaves no
    chunks, so that the context is one more length.
    """
    block = table.block_size
    chunk = 4 * block
    context = CONTEXT_CHUNKS * chunk
    whole = (context,) if model.attention_soft_cap else ()
    return {
        "context": context,
        "key_value_blocks": ROWS_OF_CACHE * context // block,
        "lengths": (block, 2 * block, chunk, *whole),
        "waves": tuple(wave for wave in table.waves if wave <= MOST_ROWS),
        "wave_tokens": MOST_ROWS * chunk,
        "ragged_tokens": table.ragged_tokens and (2 * chunk, 4 * chunk, MOST_ROWS * chunk),
        "prefill_chunk": max((chunk, *whole)),
        "attention_chunk": 2 * block,
    }
