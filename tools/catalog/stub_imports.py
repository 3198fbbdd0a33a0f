"""Lets an engine's argument parser be imported without the engine's dependencies (torch and the like).

Used by ``agreement.py`` inside the environment of an installed wheel only. A module that is not installed, or that
is named as heavy, becomes one whose attributes are permissive classes. Nothing of the product imports this.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import pkgutil
import sys
import types
import typing
from collections.abc import Iterator
from typing import Any


class _Anything(type):
    """A class that can be called, subscripted, compared, iterated and combined in annotations."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return make(name)

    def __or__(cls, other: Any) -> Any:
        return typing.Any

    __ror__ = __or__

    def __add__(cls, other: Any) -> Any:
        return other

    __radd__ = __add__

    def __getitem__(cls, item: Any) -> Any:
        return cls

    def __setitem__(cls, key: Any, value: Any) -> None:
        return None

    def __enter__(cls) -> Any:
        return cls

    def __exit__(cls, *_: object) -> None:
        return None

    def __iter__(cls) -> Iterator[Any]:
        return iter(())

    def __len__(cls) -> int:
        return 0

    def __bool__(cls) -> bool:
        return True

    def __contains__(cls, item: Any) -> bool:
        return False

    def __call__(cls, *args: Any, **keywords: Any) -> Any:
        decorates = len(args) == 1 and callable(args[0]) and not keywords and not isinstance(args[0], _Anything)
        return args[0] if decorates else make("called")

    def __lt__(cls, other: Any) -> bool:
        return False

    def __ge__(cls, other: Any) -> bool:
        return True


def _schema(cls: Any, *_: Any) -> Any:
    from pydantic_core import core_schema

    return core_schema.any_schema()


def make(name: str) -> Any:
    """A permissive class of that name."""
    body = {
        "__module__": "stub",
        "__get_pydantic_core_schema__": classmethod(_schema),
        "__init_subclass__": classmethod(lambda cls, **_: None),
    }
    return _Anything(name, (), body)


class _Module(types.ModuleType):
    __path__: list[str] = []  # noqa: RUF012  the import system wants an attribute of the module

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__") and name != "__version__":
            raise AttributeError(name)
        value = "2.9.0" if name == "__version__" else make(name)
        setattr(self, name, value)
        return value


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, keep: set[str], heavy: tuple[str, ...] = ()) -> None:
        self.keep, self.heavy = keep, heavy

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        top = name.split(".")[0]
        if self.heavy:
            if not any(name == part or name.startswith(part + ".") for part in self.heavy):
                return None
        elif top in self.keep or top in sys.stdlib_module_names:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: Any) -> types.ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        return None


def install(heavy: tuple[str, ...]) -> None:
    """Stands in for every module that is not installed, and for the heavy ones in any case."""
    keep = {module.name for module in pkgutil.iter_modules()}
    sys.meta_path.append(_Finder(keep))
    if heavy:
        sys.meta_path.insert(0, _Finder(keep, heavy))
