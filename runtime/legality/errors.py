"""What is said where nothing can be checked, which is no verdict about a module."""

from __future__ import annotations


class CannotCheck(Exception):
    """There is no library, no stand-in, no descriptor, no board or no module to check; the message says what to do."""
