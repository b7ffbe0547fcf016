"""The reference of public names: what each is, as its source says it.

A page asks for a name with a block `{public} hushrec.load`; classes of systems come with `{estimators}`.
Signatures are those of the source, so that a type reads as its author wrote it.
"""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator, Sequence
from enum import Enum
from functools import cached_property
from importlib import import_module
from typing import Any, NamedTuple

import hushrec
from hushrec.protocol import AnySystem
from hushrec.registry import SYSTEMS
from hushrec_docs.command_pages import page_name
from hushrec_docs.texts import block, docstring_as_markdown, escaped

# What users and authors may rely on: all names of these modules, and these of others.
WHOLE = ("hushrec", "hushrec.protocol", "hushrec.data", "hushrec.testing")
SOME = {
    "hushrec.audit.scoreboard": ("Attack", "Finding", "Lie", "Outcome", "Own", "Stage", "Truth", "is_sent"),
    "hushrec.data.entries": ("Entry",),
    "hushrec.data.holdings": ("OWNERS", "PARTNERS", "USERS", "Holders"),
    "hushrec.draws": ("Draws",),
    "hushrec.errors": ("NewcomerError", "MissingExtraError", "PublicError", "option"),
    "hushrec.evaluation.feedback": ("EXPLICIT", "IMPLICIT", "SIGNED", "Feedback"),
    "hushrec.privacy.exact_sum": ("ExactSum",),
    "hushrec.runs.lists": ("Recommendation",),
    "hushrec.settings": ("Between", "OneOf", "check", "check_bounds", "setting"),
    "hushrec.tables": ("Blocks", "Metrics", "Rows"),
    "hushrec.tuning": ("Tuned",),
    "hushrec.workbench": ("Audit",),
}
_BLOCK = re.compile(r"^```\{(public|estimators)\} ?(.*)\n```$", re.MULTILINE)
_SMALL_DATA = "synthetic:users=40,items=30,ratings=600"


def class_names() -> dict[str, str]:
    """The classes of the systems that come with hushrec, and the systems' names."""
    return {SYSTEMS[name].about.class_name: name for name in SYSTEMS if SYSTEMS.is_built_in(name)}


def public_names() -> list[str]:
    """Every public name with its module. One that `hushrec` has itself is documented there alone."""
    top = [*hushrec.__all__, *class_names()]
    found = [f"hushrec.{name}" for name in top]
    for module in WHOLE[1:]:
        found += [f"{module}.{name}" for name in import_module(module).__all__ if name not in top]
    return found + [f"{module}.{name}" for module, names in SOME.items() for name in names]


def asked_for(text: str) -> list[str]:
    """The names that a page has blocks for."""
    names = []
    for kind, name in _BLOCK.findall(text):
        names += [f"hushrec.{one}" for one in class_names()] if kind == "estimators" else [name.strip()]
    return names


def expanded(text: str) -> str:
    """A page with its blocks filled."""

    def filled(found: re.Match[str]) -> str:
        if found[1] == "estimators":
            return "\n".join(line for name in class_names().values() for line in _estimator(SYSTEMS[name]))
        return "\n".join(described(found[2].strip()))

    without_last = re.sub(r"\n\n```$", "\n```", text, flags=re.MULTILINE)  # doctest wants an empty line there
    return _BLOCK.sub(filled, without_last)


def resolve(path: str) -> Any:
    """The object of a public name."""
    module, _, name = path.rpartition(".")
    return getattr(import_module(module), name)


# --- One name ----------------------------------------------------------------------------------------------


def described(path: str) -> list[str]:
    """The entry of one name."""
    thing = resolve(path)
    if inspect.ismodule(thing):  # `hushrec.audit` is a part of the library that can be called
        thing = next(
            value for name, value in vars(import_module("hushrec.workbench")).items() if f"hushrec.{name}" == path
        )
    if inspect.isclass(thing) and not _is_alias(path, thing):
        return _class(path, thing)
    if inspect.isfunction(thing):
        return _fence("function", f"{path}{signature(thing)}", _doc(thing))
    return _fence("data", path, [*escaped_lines(_comment_of(path)), *_value_of(thing)])


def _is_alias(path: str, kind: type) -> bool:
    return kind.__name__ != path.rpartition(".")[2]


def _fence(kind: str, head: str, body: Sequence[str], ticks: int = 6) -> list[str]:
    fence = "`" * ticks
    return [f"{fence}{{py:{kind}}} {head}", *body, fence]


def _doc(thing: Any) -> list[str]:
    return docstring_as_markdown(inspect.getdoc(thing) or "")


def escaped_lines(text: str) -> list[str]:
    """Plain text as Markdown."""
    return [escaped(line) for line in text.splitlines()]


def _node(thing: Any) -> Any:
    """The tree of a function's or a class's source."""
    return ast.parse(textwrap.dedent(inspect.getsource(thing))).body[0]


def signature(function: Any, drop_first: bool = False) -> str:
    """Arguments and result, as they are written."""
    node = _node(function)
    if drop_first and node.args.args:
        node.args.args.pop(0)
    result = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"({ast.unparse(node.args)}){result}"


# --- Classes -----------------------------------------------------------------------------------------------


def _class(path: str, kind: type) -> list[str]:
    body = [*_doc(kind), "", *_fields(kind), *_members(kind)]
    return _fence("exception" if issubclass(kind, BaseException) else "class", f"{path}{_constructor(kind)}", body)


def _constructor(kind: type) -> str:
    """How it is made; nothing where nobody makes one."""
    own = vars(kind).get("__init__")
    if inspect.isfunction(own) and own.__qualname__.startswith(kind.__name__) and _is_written(own):
        return signature(own, drop_first=True).removesuffix(" -> None")
    names = [f"{one.name}: {one.kind}{one.default}" for one in fields_of(kind)]
    is_made = hasattr(kind, "__dataclass_fields__") or issubclass(kind, tuple)
    return f"({', '.join(names)})" if is_made and names and not issubclass(kind, Enum) else ""


def _is_written(function: Any) -> bool:
    try:
        inspect.getsource(function)
    except (OSError, TypeError):
        return False
    return True


class Field(NamedTuple):
    """A field as it is declared, with the comment on its line or above it."""

    name: str
    kind: str
    default: str
    comment: str


def fields_of(kind: type) -> Iterator[Field]:
    """The fields of a class, in order."""
    source = textwrap.dedent(inspect.getsource(kind))
    lines = source.splitlines()
    for entry in _node(kind).body:
        if not isinstance(entry, ast.AnnAssign) or not isinstance(entry.target, ast.Name):
            continue
        annotation = ast.unparse(entry.annotation)
        if entry.target.id.startswith("_") or annotation.startswith("ClassVar"):
            continue
        comment = _behind(lines, entry) or _above(lines, entry.lineno)
        yield Field(entry.target.id, annotation, _default(entry.value), comment)


def _default(value: ast.expr | None) -> str:
    """What a field is unless told; of a field that is made by a call, that it may be left out."""
    if value is None:
        return ""
    if not isinstance(value, ast.Call):
        return f" = {ast.unparse(value)}"
    return " = ..." if any(one.arg in ("default", "default_factory") for one in value.keywords) else ""


def _behind(lines: Sequence[str], entry: ast.AnnAssign) -> str:
    assert entry.end_lineno is not None
    rest = lines[entry.end_lineno - 1][entry.end_col_offset :]
    return rest.partition("#")[2].strip()


def _above(lines: Sequence[str], number: int) -> str:
    found: list[str] = []
    for line in reversed(lines[: number - 1]):
        if not line.strip().startswith("#"):
            break
        found.insert(0, line.strip().lstrip("# "))
    return " ".join(found)


def _fields(kind: type) -> list[str]:
    if issubclass(kind, Enum):
        return [f"- `{entry.name}`: `{entry.value}`" for entry in kind] + [""]
    found = [
        f"- `{one.name}` (`{one.kind}`)" + (f": {escaped(one.comment)}" if one.comment else "")
        for one in fields_of(kind)
    ]
    return [*found, ""] if found else []


def _members(kind: type) -> list[str]:
    lines: list[str] = []
    for name, member in vars(kind).items():
        if name.startswith("_"):
            continue
        if isinstance(member, property | cached_property):
            function = member.fget if isinstance(member, property) else member.func
            lines += [*_fence("property", name, _doc(function), 5), ""]
        elif isinstance(member, classmethod | staticmethod):
            function = member.__func__
            head = f"{name}{signature(function, isinstance(member, classmethod))}"
            lines += [*_fence("method", head, [":classmethod:", "", *_doc(function)], 5), ""]
        elif inspect.isfunction(member) and _is_written(member):
            lines += [*_fence("method", f"{name}{signature(member, True)}", _doc(member), 5), ""]
    return lines


# --- Values ------------------------------------------------------------------------------------------------


def _comment_of(path: str) -> str:
    """What the source says of a name that is neither a class nor a function: the comment at its assignment."""
    module, _, name = path.rpartition(".")
    place = _defined_in(module, name)
    lines = inspect.getsource(place).splitlines()
    for number, line in enumerate(lines):
        if re.match(rf"{name}\b.*=", line):
            behind = line.partition("  # ")[2].strip()
            return behind or _above(lines, number + 1)
    return ""


def _defined_in(module: str, name: str) -> Any:
    """The module in which a name is assigned, where another one hands it on."""
    place = import_module(module)
    if re.search(rf"^{name}\b.*=", inspect.getsource(place), re.MULTILINE):
        return place
    for node in ast.walk(ast.parse(inspect.getsource(place))):
        if (
            isinstance(node, ast.ImportFrom)
            and node.module
            and any((one.asname or one.name) == name for one in node.names)
        ):
            return _defined_in(node.module, name)
    return place


def _value_of(thing: Any) -> list[str]:
    text = repr(thing)
    return [] if len(text) > 80 or " object at " in text or text.startswith("<") else ["", f"Value: `{text}`"]


# --- Classes of systems ------------------------------------------------------------------------------------


def _estimator(system: AnySystem) -> list[str]:
    """A system's class: its arguments, and an example that runs."""
    kind: Any = resolve(f"hushrec.{system.about.class_name}")
    page = page_name(system.name)
    doc = docstring_as_markdown(kind.__doc__)
    more = f"The system, its round and its numbers: [{escaped(system.name)}](../reference/systems/{page}.md)."
    arguments = ", ".join(_argument(entry) for entry in inspect.signature(kind).parameters.values())
    body = [*doc, "", more, "", "Example:", "", *block("python", example_of(system))]
    return [
        f"## {system.about.class_name}",
        "",
        *_fence("class", f"hushrec.{kind.__name__}(*, {arguments})", body),
        "",
    ]


def _argument(entry: inspect.Parameter) -> str:
    kind = entry.annotation
    text = kind if isinstance(kind, str) else inspect.formatannotation(kind).replace("typing.", "")
    text = re.sub(r"hushrec(?:\.\w+)*\.", "", text).replace("Optional[RuntimeOptions]", "RuntimeOptions | None")
    return f"{entry.name}: {text} = {entry.default!r}"


def example_of(system: AnySystem) -> str:
    """A doctest that trains a system on a little data."""
    values = dict(system.about.small)
    length = {"num_rounds": 2} if "num_rounds" in {one.name for one in _config_fields(system)} else {}
    given = ", ".join(f"{name}={value!r}" for name, value in {**values, **length}.items())
    data, user = f'hushrec.load("{_SMALL_DATA}")', "1"
    if system.holders.usual_split == "partners":  # each with people of its own
        data, user = f"next(hushrec.data.copies({data}, hushrec.data.Deal(), 0)).train", '"a:1"'
    elif system.holders.word == "partner":
        user = '"1"'
    lines = [
        ">>> import hushrec",
        f">>> data = {data}",
        f">>> model = hushrec.{system.about.class_name}({given})",
        ">>> model = model.fit(data, progress=False)",
        f">>> len(model.recommend({user}, k=3, min_raters=0)[0])",
        "3",
    ]
    return "\n".join(lines)


def _config_fields(system: AnySystem) -> Any:
    from dataclasses import fields

    return fields(system.config)
