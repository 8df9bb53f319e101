"""Compare an emitted module, run as an engine would run it, with the torch reference and with transformers."""

from __future__ import annotations

import ctypes
import gc
import resource
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from runtime import backend
from runtime.backend import ttnn
from runtime.errors import WeightError
from runtime.stores import allocate
from runtime.stores import release as release_stores
from runtime.verification.bench import Bench
from runtime.verification.expected import Expected, expect, peer_logits
from runtime.verification.prompts import PROMPTS
from runtime.verification.report import Case, Gate, LayerRow, Report
from runtime.verification.sources import load_peer, locate
from runtime.weights import load_weights
from runtime.weights import release as release_weights
from runtime.wrapped import is_text_model

FLOAT32 = "float32"
DECLARED = "declared"
FLOAT32_ERROR = 1e-4
PCC = 0.99
PCC_BFLOAT16_WEIGHTS = 0.999
PCC_BFLOAT4_WEIGHTS = 0.95  # three bits of mantissa
# Rounding sends a token with two experts almost alike to the other one, and all of that token changes.
PCC_ROUTED = 0.95
LENGTHS_WITHOUT_TOKENIZER = (1, 31, 32, 33, 127, 129, 300, 600)
MOST_HIDDEN_ROWS = 128  # tokens of one prompt whose layer outputs are kept and compared
SEED = 7
M_MMAP_THRESHOLD = -3  # of glibc's malloc.h
OWN_MAPPING_BYTES = 2**20  # tensors from here on get a mapping of their own, which goes back to the system when they do

Progress = Callable[[str], None]


def main_verification(
    module: ModuleType,
    *,
    weights: str = "auto",
    prompts: Sequence[str] | None = None,
    precisions: Sequence[str] = (FLOAT32, DECLARED),
    progress: Progress = lambda text: None,
    package_file: tuple[str, str] | None = None,
    device_id: int = 0,
) -> Report:
    """Verify `module` with the weights of `weights`: "auto" (the file that `package_file` names in an installed
    package), "random", or a path. `prompts` default to the project's own. `progress` is told each step in words.

    The peers run one after another: the transformers model is gone before the reference runs on its parameters, so that
    one copy of the weights is held beside the device's. Raises WeightError, and RowError where a prompt cannot be
    served.
    """
    return_freed_memory()
    source = locate(weights, package_file)
    progress(f"loading {source} into transformers")
    peer = load_peer(source, module.GEOMETRY, is_text_model(module))
    texts, tokens = tokenize(module, peer.tokenizer, prompts)
    progress(f"transformers answers {len(tokens)} prompts")
    answers, seconds = peer_logits(peer.model, tokens)
    tensors, tokenizer = peer.tensors, peer.tokenizer
    del peer
    gc.collect()  # a model is a knot of references that only the collector unties
    progress("the reference answers them")
    expected = expectations(module, tensors, tokens, answers, seconds)
    words = str if tokenizer is None else lambda token: repr(tokenizer.decode([token]))
    gates = tuple(gate(module, precision) for precision in precisions)
    cases: list[Case] = []
    layers: list[LayerRow] = []
    for rule in gates:
        found, rows = verify(module, tensors, expected, rule, words, progress, device_id)
        cases += found
        layers += rows
    return Report(
        module.MODEL,
        module.TARGET,
        backend.name,
        str(source),
        texts,
        gates,
        tuple(cases),
        tuple(layers),
        peak_memory_bytes(),
    )


def verify(
    module: ModuleType,
    tensors: Mapping[str, Tensor],
    expected: Sequence[Expected],
    rule: Gate,
    words: Callable[[int], str] = str,
    progress: Progress = lambda text: None,
    device_id: int = 0,
) -> tuple[list[Case], list[LayerRow]]:
    """Load `tensors` (published names) onto a device of the module's board in the rule's precision, and compare all
    that comes out with `expected`."""
    progress(f"{rule.precision}: loading weights onto the device")
    device = backend.open_device(module.BOARD, precision=rule.precision, device_id=device_id)
    try:
        loaded = load_weights(module, device, tensors)
        stores = allocate(module, device)
        found = Bench(module, device, loaded, stores, backend.name, words).compare(expected, rule, progress)
        release_stores(stores)
        release_weights(loaded)
        return found
    finally:
        backend.close_device(device)


def expectations(
    module: ModuleType,
    tensors: Mapping[str, Tensor],
    tokens: Sequence[Sequence[int]],
    answers: Sequence[Tensor],
    seconds: Sequence[float],
) -> list[Expected]:
    """The reference over each prompt. Layer outputs are kept for the longest one, as far as one pass reaches."""
    longest = max(range(len(tokens)), key=lambda index: len(tokens[index]))
    one_pass = max(shape.tokens for shape in module.TRACES if shape.variant == "single")
    kept = [min(one_pass, MOST_HIDDEN_ROWS) if index == longest else 0 for index in range(len(tokens))]
    return [expect(module.GEOMETRY, tensors, *prompt) for prompt in zip(tokens, answers, seconds, kept)]


def gate(module: ModuleType, precision: str) -> Gate:
    """The rule of a precision: nothing rounded leaves a relative error, declared dtypes a correlation with the exact
    reference.
    """
    if precision == FLOAT32:
        return Gate(precision, relative_error=FLOAT32_ERROR)
    if module.GEOMETRY.experts is not None:
        return Gate(precision, pcc=PCC_ROUTED, cache_pcc=PCC_ROUTED)
    if module.WEIGHT_DTYPE == ttnn.bfloat4_b:
        return Gate(precision, pcc=PCC_BFLOAT4_WEIGHTS, cache_pcc=PCC_BFLOAT4_WEIGHTS)
    exact = module.WEIGHT_DTYPE == ttnn.bfloat16
    return Gate(precision, pcc=PCC_BFLOAT16_WEIGHTS if exact else PCC, cache_pcc=PCC)


def tokenize(
    module: ModuleType, tokenizer: Any | None, prompts: Sequence[str] | None
) -> tuple[tuple[str, ...], list[list[int]]]:
    """Prompts and their ids; without a tokenizer, random ids of many lengths. Default prompts longer than the context
    are left out.
    """
    if tokenizer is not None:
        ids = [tokenizer(text).input_ids for text in prompts or PROMPTS]
        kept = [pair for pair in zip(prompts or PROMPTS, ids) if prompts or len(pair[1]) <= module.CONTEXT]
        return tuple(text for text, _ in kept), [tokens for _, tokens in kept]
    if prompts:
        raise WeightError("these weights come without a tokenizer, so no prompt can be read; leave the prompts out")
    generator = torch.Generator().manual_seed(SEED)
    lengths = [length for length in LENGTHS_WITHOUT_TOKENIZER if length <= module.CONTEXT]
    drawn = [torch.randint(module.VOCABULARY, (length,), generator=generator).tolist() for length in lengths]
    return tuple(f"{length} random tokens" for length in lengths), drawn


def return_freed_memory() -> None:
    """Keep the C library from hoarding: after large tensors were freed it serves the next ones from a heap that never
    shrinks, and the peers' memory would add up although they run one after another. Does nothing where the library is
    not glibc.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, OWN_MAPPING_BYTES)


def peak_memory_bytes() -> int:
    """The largest resident size that this process has had."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
