"""`python -m tests.device`: hold the emulator to the installed library, and print what was compared."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

SUITE = ("test_emulator_conformance.py", "test_goldens.py", "test_block_floats.py")

if __name__ == "__main__":
    sys.exit(pytest.main(["-q", *(str(Path(__file__).with_name(name)) for name in SUITE)]))
