"""What a manifest may not say, with the exact message: keys, types, ranges, text that is no TOML, unreadable files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from generator import catalog
from generator.errors import ManifestError
from generator.manifest import load
from tests.support.manifests import TEXT, changed, read, refusal

KEYS = [  # unknown, missing and repeated keys
    (
        [("hidden = 576", "hiden = 576")],
        "m.toml:5: model.hidden: is missing; add hidden to [model]\n"
        'm.toml:7: model.hiden = 576: unknown key; did you mean "hidden"?',
    ),
    (
        [("[model.rope]", "[model.ropes]")],
        "m.toml:5: model.rope: is missing; add rope to [model]\n"
        'm.toml:17: model.ropes: unknown key; did you mean "rope"?',
    ),
    (
        [("layers = 30\n", "")],
        "m.toml:5: model.layers: is missing; add layers to [model]",
    ),
    (
        [('embedding = "bfloat16"\n', "")],
        "m.toml:31: target.n150.dtypes.embedding: is missing; add embedding to [target.n150.dtypes]",
    ),
    (
        [('[model.rope]\nkind = "default"\ntheta = 100000.0\n', "")],
        "m.toml:5: model.rope: is missing; add rope to [model]",
    ),
    (
        [(TEXT[TEXT.index("[target.n150]") :], "")],
        "m.toml:1: target: is missing; add target to the top of the file",
    ),
    (
        [("layers = 30", "layers = 30\nlayers = 31")],
        "m.toml:10: model.layers: is defined twice, first on line 9; keep one of them",
    ),
    (
        [("[target.n150.dtypes]", "[model]\n[target.n150.dtypes]")],
        "m.toml:31: model: is defined twice, first on line 5; keep one of them",
    ),
    (
        [("[model.rope]", '[model.rope]\n"a\\n{{x}}" = 1')],
        "m.toml:18: model.rope.a?{{x}} = 1: unknown key; known: attention_factor, beta_fast, "
        "beta_slow, factor, high_frequency_factor, kind, long_factors, low_frequency_factor, original_context, "
        "short_factors, theta, truncate",
    ),
]

TYPES = [  # values of another type; a boolean is no integer
    (
        [("hidden = 576", 'hidden = "576"')],
        'm.toml:7: model.hidden = "576": must be an integer, not a string; write 576',
    ),
    (
        [("layers = 30", "layers = true")],
        "m.toml:9: model.layers = true: must be an integer, not a boolean",
    ),
    (
        [("layers = 30", "layers = 30.0")],
        "m.toml:9: model.layers = 30.0: must be an integer, not a float; write 30",
    ),
    (
        [("tied_embeddings = true", "tied_embeddings = 1")],
        "m.toml:15: model.tied_embeddings = 1: must be true or false, not an integer; write true",
    ),
    (
        [("theta = 100000.0", 'theta = "1e5"')],
        'm.toml:19: model.rope.theta = "1e5": must be a number, not a string; write 100000.0',
    ),
    (
        [('activation = "silu"', "activation = 3")],
        'm.toml:14: model.activation = 3: must be a string, not an integer; write "3"',
    ),
    (
        [("layers = 30", "layers = { count = 30 }")],
        "m.toml:9: model.layers: must be an integer, not a table",
    ),
    (
        [("lengths = [128, 512, 1024]", "lengths = 1024")],
        "m.toml:25: target.n150.lengths = 1024: must be an array, not an integer",
    ),
    (
        [("lengths = [128, 512, 1024]", 'lengths = [\n  128,\n  "512",\n  1024,\n]')],
        'm.toml:27: target.n150.lengths[1] = "512": must be an integer, not a string; write 512',
    ),
    (
        [("layers = 30", "layers = 2024-01-01")],
        "m.toml:9: model.layers = 2024-01-01: must be an integer, not a date or time",
    ),
    (
        [("waves = [1, 2, 4, 8]", "waves = []")],
        "m.toml:26: target.n150.waves = []: must have at least 1 entry, not 0; add the missing",
    ),
]

RANGES = [  # numbers out of range or not finite
    (
        [("layers = 30", "layers = 0")],
        "m.toml:9: model.layers = 0: must be at least 1; nearest legal value 1",
    ),
    (
        [("hidden = 576", "hidden = -576")],
        "m.toml:7: model.hidden = -576: must be at least 32; nearest legal value 32",
    ),
    (
        [("vocabulary = 49152", "vocabulary = 99999999999999999999999999")],
        "m.toml:6: model.vocabulary = 99999999999999999999999999: must be at most 4194304; nearest "
        "legal value 4194304",
    ),
    (
        [("49152", 5000 * "9")],
        "m.toml:6: holds a number too long to read; write a shorter one",
    ),
    (
        [("norm_epsilon = 1e-05", "norm_epsilon = nan")],
        "m.toml:13: model.norm_epsilon = nan: must be finite; write a plain number",
    ),
    (
        [("theta = 100000.0", "theta = inf")],
        "m.toml:19: model.rope.theta = inf: must be finite; write a plain number",
    ),
]

NO_TOML = [  # text that is no TOML
    (
        [("layers = 30", "layers: 30")],
        "m.toml:9: is no TOML (Expected '=' after a key in a key/value pair); correct this line first",
    ),
    (
        [('activation = "bfloat16"\n', 'activation = "bfloat16')],
        "m.toml:36: is no TOML (Unterminated string); correct this line first",
    ),
    (
        [("layers = 30", "layers = " + 3000 * "[")],
        "m.toml: is nested too deeply; tables here go four deep",
    ),
]


@pytest.mark.parametrize(("changes", "message"), KEYS)
def test_keys_are_named_once_and_known(changes: list[tuple[str, str]], message: str) -> None:
    assert refusal(*changes) == message


@pytest.mark.parametrize(("changes", "message"), TYPES)
def test_values_have_the_type_the_key_asks_for(changes: list[tuple[str, str]], message: str) -> None:
    """S000-02: a boolean is no integer."""
    assert refusal(*changes) == message


@pytest.mark.parametrize(("changes", "message"), RANGES)
def test_numbers_are_finite_and_in_range(changes: list[tuple[str, str]], message: str) -> None:
    assert refusal(*changes) == message


@pytest.mark.parametrize(("changes", "message"), NO_TOML)
def test_text_that_is_no_toml_is_refused_with_its_line(changes: list[tuple[str, str]], message: str) -> None:
    assert refusal(*changes) == message


def directory(folder: Path, **models: str | bytes) -> Path:
    """A manifest directory with the models given as text and an empty file for each target."""
    for kind in (catalog.MODELS, catalog.TARGETS):
        (folder / kind).mkdir(parents=True)
    for target in ("n150", "p150"):
        (folder / catalog.TARGETS / f"{target}.toml").touch()
    for name, text in models.items():
        data = text if isinstance(text, bytes) else text.encode()
        (folder / catalog.MODELS / f"{name}.toml").write_bytes(data)
    return folder


def refused_file(folder: Path, name: str) -> str:
    with pytest.raises(ManifestError) as caught:
        load(folder, name)
    return str(caught.value).replace(str(folder), "F")


def test_a_legal_manifest_loads_frozen(tmp_path: Path) -> None:
    manifest = load(directory(tmp_path, m=TEXT), "m").manifest
    assert manifest.target["n150"].lengths == (128, 512, 1024)
    with pytest.raises(ValueError, match="frozen"):
        manifest.model.hidden = 1  # type: ignore[misc]


def test_all_mistakes_of_a_file_come_together() -> None:
    message = refusal(("hidden = 576", "hiden = 576"), ("layers = 30", 'layers = "30"'), ('"silu"', '"relu"'))
    assert message == (
        "m.toml:5: model.hidden: is missing; add hidden to [model]\n"
        'm.toml:7: model.hiden = 576: unknown key; did you mean "hidden"?\n'
        'm.toml:9: model.layers = "30": must be an integer, not a string; write 30\n'
        'm.toml:14: model.activation = "relu": must be "silu" or "gelu_tanh"; known: gelu_tanh, silu'
    )


def test_defaults_are_the_block_of_32_and_the_attention_chunk_of_128() -> None:
    table = read(("block_size = 32\n", ""), ("attention_chunk = 128\n", "")).manifest.target["n150"]
    assert (table.block_size, table.attention_chunk) == (32, 128)


def test_an_unknown_model_is_answered_with_the_closest_name(tmp_path: Path) -> None:
    folder = directory(tmp_path, m=TEXT, **{"llama-3.2-1b": TEXT})
    assert refused_file(folder, "llama-3.1-1b") == (
        'F/models: model = "llama-3.1-1b": no model of this name in the directory; '
        'did you mean "llama-3.2-1b"? (known: llama-3.2-1b, m)'
    )
    assert refused_file(folder, "../models/m") == (
        'F/models: model = "../models/m": no model of this name in the directory; known: llama-3.2-1b, m'
    )


def test_the_name_is_the_file_name(tmp_path: Path) -> None:
    folder = directory(tmp_path, other=TEXT)
    assert (
        refused_file(folder, "other")
        == 'F/models/other.toml:1: name = "m": must be the file\'s own name; write "other"'
    )


def test_two_models_never_share_a_folder(tmp_path: Path) -> None:
    text = changed(('name = "m"', 'name = "a-b"'))
    folder = directory(tmp_path, **{"a-b": text, "a.b": text})
    assert refused_file(folder, "a-b") == (
        'F/models/a-b.toml:1: name = "a-b": makes the same folder a_b as "a.b"; rename one of them'
    )


def test_a_file_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    folder = directory(tmp_path, m=TEXT.replace("a test", "a t\xe9st").encode("latin-1"))
    assert refused_file(folder, "m") == "F/models/m.toml:3: byte 0xe9: a TOML file is UTF-8; save it as UTF-8"


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    folder = directory(tmp_path)
    (folder / "models" / "m.toml").mkdir()
    assert refused_file(folder, "m") == "F/models/m.toml: cannot be read (Is a directory); name a file"
    os.symlink("missing", folder / "models" / "gone.toml")
    assert refused_file(folder, "gone") == (
        "F/models/gone.toml: cannot be read (No such file or directory); check the path and its permissions"
    )


def test_listing_imports_no_pydantic() -> None:
    script = (
        "import sys; from generator import catalog; print(catalog.names(catalog.BUILT_IN)); "
        "assert 'pydantic' not in sys.modules"
    )
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert "llama-3.2-1b" in shown


def test_a_refused_entry_does_not_make_its_array_short_as_well() -> None:
    assert refusal(("[1, 2, 4, 8]", "[true]")) == (
        "m.toml:26: target.n150.waves[0] = true: must be an integer, not a boolean"
    )
