"""Text that codegen import takes for no configuration: no JSON, or JSON that cannot be meant, refused with its line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from generator.cli import main
from generator.errors import ManifestError
from generator.importing import json_text
from tests.support.configurations import refusal

TEXTS = [  # what is no JSON, or none that means anything
    (b"", "FILE:1: is no JSON (a value expected, not the end of the text); correct this line first"),
    (b"\xff{}", "FILE:1: byte 0xff: a JSON file is UTF-8; save it as UTF-8"),
    (b"\xef\xbb\xbf{}", r'FILE:1: is no JSON (a value expected, not "\ufeff"); correct this line first'),
    ("[1, 2]", "FILE:1: [1, 2]: is no JSON object; name a model's config.json"),
    ("12", "FILE:1: 12: is no JSON object; name a model's config.json"),
    ('{"a": 1,\n "b": }', 'FILE:2: is no JSON (a value expected, not "}"); correct this line first'),
    ('{"a": 1\n "b": 2}', 'FILE:2: is no JSON ("," or "}" expected, not "\\""); correct this line first'),
    ('{"a": 1,}', 'FILE:1: is no JSON (a key in double quotes expected, not "}"); correct this line first'),
    ("{'a': 1}", 'FILE:1: is no JSON (a key in double quotes expected, not "\'"); correct this line first'),
    ('{"a": [1, 2}', 'FILE:1: is no JSON ("," or "]" expected, not "}"); correct this line first'),
    ('{"a": "\n"}', "FILE:1: is no JSON (a string that ends on its line, with escapes of JSON expected"),
    ('{"a": 1} x', 'FILE:1: is no JSON (the end of the text expected, not "x"); correct this line first'),
    ('{"a": 1,\n"b": 2,\n"a": 3}', "FILE:3: a: stands twice in one object, first on line 1; keep one of them"),
    ('{"x": {"a": 1, "a": 1}}', "FILE:1: x.a: stands twice in one object, first on line 1; keep one of them"),
    ('{"rms_norm_eps": NaN}', "FILE:1: rms_norm_eps = NaN: must be finite; write a plain number"),
    ('{"rms_norm_eps": -Infinity}', "FILE:1: rms_norm_eps = -Infinity: must be finite; write a plain number"),
    ('{"rms_norm_eps": 1e999}', "FILE:1: rms_norm_eps = 1e999: is over what a float holds; correct it"),
    ('{"a": None}', "FILE:1: a = None: is no JSON value; quote it"),
    (
        '{"vocab_size": 1' + "0" * 5000 + "}",
        "FILE:1: vocab_size = 10000000000000000000...: has 5001 digits, over the 18 that any size of a model has; correct it",
    ),
    (
        '{"a":' * 40 + "1" + "}" * 40,
        f"FILE:1: {'a.' * 32}a: is nested over 32 deep; a configuration goes three or four deep",
    ),
    ("[" * 100_000, "is nested over 32 deep"),
    (
        b"{" + b" " * json_text.MOST_BYTES + b"}",
        f"FILE: is over {json_text.MOST_BYTES} bytes, which no configuration is",
    ),
]


@pytest.mark.parametrize(("text", "message"), TEXTS, ids=range(len(TEXTS)))
def test_text_that_is_no_configuration_is_refused_with_its_line(
    text: str | bytes, message: str, tmp_path: Path
) -> None:
    assert message in refusal(tmp_path, text)


def test_a_file_of_fifty_megabytes_is_refused_by_its_size(tmp_path: Path) -> None:
    path = tmp_path / "large.json"
    with path.open("wb") as file:
        file.truncate(50 * 2**20)
    result = CliRunner().invoke(main, ["import", str(path)])
    assert (result.exit_code, "which no configuration is" in result.output) == (2, True)


def test_folders_and_absent_files_are_refused(tmp_path: Path) -> None:
    for path, words in ((tmp_path, "name the config.json in it"), (tmp_path / "no.json", "check the path")):
        result = CliRunner().invoke(main, ["import", str(path)])
        assert (result.exit_code, words in result.output) == (2, True)


def test_lines_and_values_are_those_of_json(tmp_path: Path) -> None:
    text = json.dumps({"a": {"b": [1, {"c": "x\u00e9\n\ud800"}], "d": None}, "e": [True, -1.5e-3, 0, [], {}]}, indent=1)
    value, source = json_text.read_object(text, "made-up")
    assert value == json.loads(text)
    for key in (("a",), ("a", "b"), ("a", "b", 1, "c"), ("a", "d"), ("e",)):
        assert f'"{key[-1]}"' in text.splitlines()[source.line(key) - 1]
    assert text.splitlines()[source.line(("e", 1)) - 1].strip() == "-0.0015,"


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    text=st.one_of(st.text(alphabet='{}[],:"\\ \n\t0123456789.eE+-truefalsnN\u00e9', max_size=60), st.text(max_size=20))
)
def test_what_the_strict_reader_takes_is_what_json_takes(text: str) -> None:
    try:
        value, _ = json_text.read_object(text, "made-up")
    except ManifestError:
        return
    assert value == json.loads(text)
