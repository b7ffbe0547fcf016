"""Parts of the library that can be called by their name: `hushrec.audit(model)` beside `hushrec.audit.driver`."""

import inspect
import sys
from importlib import import_module
from types import ModuleType
from typing import Any


def make_callable(module: str, place: str) -> None:
    """Have a call of a module be one of the function at `place`, as in "hushrec.workbench:audit".

    That function is loaded when it is called: it may import all that the module must not know.
    """

    def function() -> Any:
        home, _, name = place.partition(":")
        return getattr(import_module(home), name)

    class CallableModule(ModuleType):
        """A module with a function behind its own name."""

        def __call__(self, *arguments: Any, **named: Any) -> Any:
            return function()(*arguments, **named)

        @property
        def __signature__(self) -> inspect.Signature:
            return inspect.signature(function())

    sys.modules[module].__class__ = CallableModule
