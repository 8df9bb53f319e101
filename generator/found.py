"""The modules of a folder that say something under one name: what is added there is a file, and no list of files."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterable
from importlib import import_module
from typing import Any


def found(package: str, folders: Iterable[str], name: str) -> tuple[Any, ...]:
    """What each module directly in `folders`, a package's __path__, has as `name`, in the order of the modules' names.

    Modules without it, which the others share, are passed over.
    """
    names = sorted(one.name for one in pkgutil.iter_modules(folders) if not one.ispkg)
    modules = (import_module(f"{package}.{one}") for one in names)
    return tuple(getattr(one, name) for one in modules if hasattr(one, name))
