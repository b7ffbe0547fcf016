"""What systems declare in their docstrings: what a message reveals, and whom a system protects against."""

import inspect

from hushrec.protocol import AnySystem, Message


def reveals(message: type[Message]) -> str:
    """What a message tells its receiver, in the words of its docstring."""
    return _paragraph(inspect.getdoc(message) or "", "Reveals:")


def threat_model(system: AnySystem) -> str:
    """The paragraph about it in the docstring of the system's module."""
    module = inspect.getmodule(system.config)
    return _paragraph((module and inspect.getdoc(module)) or "", "Threat model:")


def _paragraph(text: str, start: str) -> str:
    return " ".join(text.partition(start)[2].partition("\n\n")[0].split())
