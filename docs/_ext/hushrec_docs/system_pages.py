"""A page for each system, made of what it declares and of what was measured."""

import inspect
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from functools import cache
from typing import Any, Literal, get_args, get_origin, get_type_hints

from hushrec.experiments.published import tables
from hushrec.experiments.reproduction import Cell
from hushrec.experiments.summary import measured_summaries
from hushrec.protocol import AnySystem, Message
from hushrec.protocol.declared import reveals
from hushrec.registry import SYSTEMS
from hushrec.report.deviations import deviations
from hushrec.report.survey_table import HEADINGS, cells_of
from hushrec.settings import switches_of
from hushrec.survey.record import measured_surveys
from hushrec_docs.command_pages import page_name
from hushrec_docs.rounds import read_rounds
from hushrec_docs.sequence import Step, drawing
from hushrec_docs.texts import block, escaped, table

# The guides that go further, by system.
GUIDES = {
    "fedrec": "fedrec",
    "fedrec++": "fedrec",
    "sdcf": "fedrec",
    "sdcf-denoised": "fedrec",
    "fedrec-bpr": "fedrec-bpr",
    "ptf-fedrec": "ptf-fedrec",
    "fcf": "ptf-fedrec",
    "fedmf": "ptf-fedrec",
    "metamf": "ptf-fedrec",
    "fedncf": "fedncf",
    "fedcore": "fedcore",
    "drift": "drift",
    "saros": "drift",
}


def pages() -> dict[str, str]:
    """The text of each page, by its name: one for each system that comes with hushrec, and `index`."""
    own = {name: SYSTEMS[name] for name in SYSTEMS if SYSTEMS.is_built_in(name)}
    return {"index": _index(own)} | {page_name(name): _page(system) for name, system in own.items()}


def _index(own: Mapping[str, AnySystem]) -> str:
    rows = [
        [
            f"[`{name}`]({page_name(name)}.md)",
            escaped(system.about.title),
            system.feedback.name,
            escaped(f"{system.about.paper.venue} {system.about.paper.year}"),
            f"`hushrec.{system.about.class_name}`",
        ]
        for name, system in own.items()
    ]
    lines = [
        "# Systems",
        "",
        "A page for each, made of what the system's code declares: the round as a picture, what each message "
        "reveals, settings, numbers of its paper beside ours, and what the audit found.",
        "",
        *table(["system", "what it is", "feedback", "published", "in Python"], rows),
        "",
        "```{toctree}",
        ":hidden:",
        *map(page_name, own),
        "```",
    ]
    return "\n".join(lines) + "\n"


def _page(system: AnySystem) -> str:
    about, paper = system.about, system.about.paper
    guide = GUIDES.get(system.name)
    lines = [
        f"# {escaped(system.name)}",
        "",
        f"{escaped(about.title)}.",
        "",
        escaped(f"{paper.authors}: {paper.title} ({paper.venue} {paper.year})."),
        "",
        f"Feedback: {system.feedback.name}. In Python: {{py:class}}`hushrec.{about.class_name}`. "
        "On the command line:",
        "",
        *block(
            "text", f"hushrec run {system.name} --data ratings.csv\nhushrec audit {system.name} --data ratings.csv"
        ),
        "",
    ]
    if guide:
        lines += [f"More about it: [the guide](../../{guide}.md).", ""]
    lines += [*_declared(system), *_pictures(system), *_messages(system), *_settings(system)]
    lines += [*_published(system), *_audit(system), *_departures(system)]
    return "\n".join(lines).rstrip("\n") + "\n"


# --- What the docstring says -------------------------------------------------------------------------------


def _declared(system: AnySystem) -> list[str]:
    """The docstring of the system's module, a heading for each of its parts."""
    module = sys.modules[system.config.__module__]
    paragraphs = re.split(r"\n[ \t]*\n", inspect.getdoc(module) or "")
    lines: list[str] = []
    for paragraph in paragraphs[2:]:  # title and citation stand above
        lines += [*_paragraph(paragraph), ""]
    behind = escaped(" ".join(re.split(r"\([^()]*\d{4}\)\.", paragraphs[1], maxsplit=1)[1:]).strip())
    if behind and "## The round" not in lines:
        return ["## The round", "", behind, "", *lines]
    return [behind, "", *lines] if behind else lines


def _paragraph(text: str) -> list[str]:
    head, _, rest = text.partition(":")
    if head == "Threat model":
        told = " ".join(rest.split())
        return ["## Threat model", "", escaped(told[:1].upper() + told[1:])]
    if head == "Symbols":
        return ["## Symbols", "", escaped(" ".join(rest.split()))]
    before, found, after = text.partition("The round")
    if found and (not before or before.endswith("\n")):
        first, _, steps = (found + after).partition("\n")
        told = [*map(_step, before.splitlines()), ""] if before else []
        return [*told, "## The round", "", escaped(first), "", *map(_step, steps.splitlines())]
    return [_step(line) for line in text.splitlines()]


def _step(line: str) -> str:
    indent = len(line) - len(line.lstrip())
    return " " * indent + escaped(line.strip())


# --- The round as a picture, and its messages --------------------------------------------------------------


def _pictures(system: AnySystem) -> list[str]:
    """The messages of a round in order of sending, once for each set of settings that sends others."""
    lines = ["## The round as a picture", ""]
    lines += [
        "As it was recorded in a small run with real masks and ciphertexts. A dashed arrow is sealed mail between "
        "parties: the server carries it and cannot read it.",
        "",
    ]
    for kept in read_rounds()[system.name]:
        switches = switches_of(kept["settings"])
        if switches:
            lines += [f"With `{switches}`:", ""]
        steps = list(steps_of(system, kept["steps"]))
        title = f"A round of {system.name}" + (f" with {switches}" if switches else "")
        lines += ["```{raw} html", '<div class="round-box">', drawing(steps, title), "</div>", "```", ""]
    return lines


def steps_of(system: AnySystem, kept: Sequence[Mapping[str, str]]) -> Iterator[Step]:
    """The arrows of a picture."""
    known = {message.__name__: message for message in system.messages}
    for entry in kept:
        message = known[entry["message"]]
        is_mail = message in system.inboxes
        yield Step(message.__name__, message.sender, message.receiver, _brief(message), is_mail, entry["note"])


def _brief(message: type[Message]) -> str:
    """The first sentence."""
    return re.split(r"(?<=\w)\. ", reveals(message))[0].rstrip(".")


def _messages(system: AnySystem) -> list[str]:
    rows = [
        [
            f"`{message.__name__}`",
            f"{message.sender} to {message.receiver}" + (", sealed" if message in system.inboxes else ""),
            ", ".join(f"`{kind.name}`" for kind in message.kinds()) or "nothing",
            escaped(reveals(message)),
        ]
        for message in system.messages
    ]
    return ["## What each message reveals", "", *table(["message", "from, to", "holds", "reveals"], rows), ""]


# --- Settings ----------------------------------------------------------------------------------------------


def _settings(system: AnySystem) -> list[str]:
    hints = get_type_hints(system.config)
    rows = [
        [f"`{entry.name}`", _flag(entry.name, hints[entry.name]), f"`{_shown(entry.default)}`",
         _values(hints[entry.name], entry.metadata.get("within", "")), escaped(entry.metadata["help"])]
        for entry in fields(system.config)
    ]  # fmt: skip
    told = (
        "The defaults are the paper's. In Python and in files of options, a setting has its name; on the command "
        "line it is an option."
    )
    lines = ["## Settings", "", told, ""]
    lines += [*table(["setting", "option", "default", "values", "meaning"], rows), ""]
    for name, values in system.about.presets.items():
        told = ", ".join(f"`{setting}` {_shown(value)}" for setting, value in values.items())
        lines += [f"- Preset `{name}`: {told or 'the defaults'}."]
    if system.about.presets:
        lines += ["", 'A preset is chosen with `--preset NAME` or `preset="NAME"`.', ""]
    return lines


def _flag(name: str, kind: Any) -> str:
    flag = f"--{name.replace('_', '-')}"
    if kind is bool:
        return f"`{flag}`, `--no-{flag[2:]}`"
    return f"`--rounds`, `{flag}`" if name == "num_rounds" else f"`{flag}`"


def _shown(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple | list) else str(value)


def _values(kind: Any, within: str) -> str:
    if get_origin(kind) is Literal:
        return " ".join(f"`{choice}`" for choice in get_args(kind))
    word = {bool: "yes or no", int: "whole number", float: "number", str: "text"}.get(kind, "numbers")
    return f"{word} in `{within}`" if within else word


# --- What was measured -------------------------------------------------------------------------------------


@cache
def _systems_of_rows() -> dict[tuple[str, str, str, str], str]:
    """Which system a row of a published table is of."""
    return {
        (owner, name, row.where, row.label): row.system
        for (owner, name), kept in tables().items()
        for row in kept.rows
    }


def _published(system: AnySystem) -> list[str]:
    rows, where = [], {}
    for data, summary in measured_summaries().items():
        for kept in summary.tables:
            for row in kept.rows:
                if _systems_of_rows().get((kept.system, kept.name, row.where, row.label)) != system.name:
                    continue
                cells = [cell for cell in row.cells if cell.published is not None]
                for cell in cells:
                    rows.append(
                        [
                            _short(kept.title),
                            escaped(row.where),
                            escaped(row.name),
                            escaped(cell.metric),
                            *_numbers(cell),
                        ]
                    )
                    where[data] = summary.date
    lines = ["## Published and ours", ""]
    if not rows:
        return [*lines, "No number that a paper gives for it was measured here.", ""]
    told = ", ".join(f"[{data}](../../reproduced/{data}.md) ({date})" for data, date in where.items())
    lines += [
        f"Every number that a paper gives and we measured; all tables, figures and claims: {told}. "
        '"Within" is within the published spread, or a unit of a count; "near" is within a tenth, where no spread '
        "is given.",
        "",
    ]
    return [*lines, *table(["table", "data", "row", "measure", "published", "ours", ""], rows), ""]


def _short(title: str) -> str:
    return escaped(title.partition(":")[0])


def _numbers(cell: Cell) -> list[str]:
    assert cell.published is not None
    published, ours = (f"{value:,.{cell.decimals}f}" for value in (cell.published, cell.ours))
    if cell.is_within is None:
        return [published, ours, "near" if cell.is_near else "off"]
    return [published, ours, "within" if cell.is_within else "near" if cell.is_near else "off"]


def _audit(system: AnySystem) -> list[str]:
    lines = ["## Audit", ""]
    for survey in measured_surveys().values():
        rows = [[escaped(text) for text in cells_of(row)[1:]] for row in survey.of_system(system.name)]
        if rows:
            lines += [
                f"{survey.data}, {survey.date}. Server, others, active server: how far the strongest attack of "
                "each is from a blind guess (0) towards knowing all (1). [What is compared](../../compare.md), "
                "[what each attack reads](../../attacks.md).",
                "",
                *table(HEADINGS[1:], rows),
                "",
            ]
    for title, exposures in (
        ("Protected settings", system.about.protected),
        ("What others expose", system.about.exposes),
    ):
        if exposures:
            lines += [f"{title}, in the words that [owners of nodes](../../consent.md) agree to:", ""]
            lines += [f"- {_when(one.when)}{escaped(one.words)}" for one in exposures] + [""]
    return lines


def _when(when: Mapping[str, Any]) -> str:
    told = ", ".join(
        f"`{name}` {'in ' if isinstance(value, str) and value[:1] in '[(' else ''}`{value}`"
        for name, value in when.items()
    )
    return f"{told}: " if told else ""


def _departures(system: AnySystem) -> list[str]:
    found = deviations(system)
    if not found:
        return []
    rows = [[f"`{one.file}:{one.line}`", escaped(one.text)] for one in found]
    return ["## Departures from the paper", "", *table(["where", "what"], rows), ""]
