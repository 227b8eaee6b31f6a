"""Modules that are imported when they are first used: a finished output and a wrong input need neither PyTorch (2 s of
a core) nor Ray (1 s).
"""

from importlib import import_module
from typing import Any


class Late:
    """Module by its name, for ``if not TYPE_CHECKING``, where type checkers see the import itself."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        """Import the module, if it is not yet, and return its attribute."""
        if attribute.startswith("__"):  # copy and pickle ask for these before there is a name
            raise AttributeError(attribute)
        return getattr(import_module(self._name), attribute)
