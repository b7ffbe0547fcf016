"""Rounds as pictures: roles side by side, messages from top to bottom, and what each reveals. Plain SVG."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

_LANE = 300  # from one role to the next
_MARGIN = 110
_LETTER = 6.1  # width of a letter of the small text, on average
_LINE = 15
_TOP = 54


@dataclass(frozen=True)
class Step:
    """One kind of message of a round."""

    message: str
    sender: str
    receiver: str
    reveals: str
    is_mail: bool = False  # between parties, sealed; the driving side carries it unread
    note: str = ""  # as in "only in the last round"


def drawing(steps: Sequence[Step], title: str) -> str:
    """The picture of a round. Colours are those of the page, so that it is right in light and in dark."""
    roles = list(dict.fromkeys(role for step in steps for role in (step.sender, step.receiver)))
    width = 2 * _MARGIN + _LANE * max(len(roles) - 1, 1)
    places = {role: _MARGIN + _LANE * number for number, role in enumerate(roles)}
    body: list[str] = []
    height = _TOP + 6
    for number, step in enumerate(steps, 1):
        drawn, height = _arrow(step, number, places, height, width)
        body += drawn
    height += 12
    told = ". ".join(
        f"{number}: {step.sender} to {step.receiver}, {step.message}" for number, step in enumerate(steps, 1)
    )
    return "\n".join(
        [
            f'<svg class="round" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" '
            'xmlns="http://www.w3.org/2000/svg">',
            f"<title>{escape(title)}</title>",
            f"<desc>{escape(told)}</desc>",
            *(line for role, x in places.items() for line in _role(role, x, height)),
            *body,
            "</svg>",
        ]
    )


def _role(role: str, x: int, height: int) -> list[str]:
    return [
        f'<line class="life" x1="{x}" y1="40" x2="{x}" y2="{height - 6}"/>',
        f'<rect class="role" x="{x - 62}" y="8" width="124" height="32" rx="6"/>',
        f'<text class="who" x="{x}" y="29">{escape(role)}</text>',
    ]


def _arrow(step: Step, number: int, places: dict[str, int], top: int, width: int) -> tuple[list[str], int]:
    """A message, its name above the arrow and what it reveals below; and where the next one begins."""
    start, end = places[step.sender], places[step.receiver]
    is_loop = start == end
    room = (abs(end - start) or _LANE - 60) - 24
    marks = [mark for mark in ("sealed" if step.is_mail else "", step.note) if mark]
    name = f"{number}. {step.message}" + (f" ({', '.join(marks)})" if marks else "")
    lines = textwrap.wrap(f"reveals {step.reveals}", max(int(room / _LETTER), 24))
    if len(lines) > 4:
        lines = [*lines[:3], f"{lines[3].rstrip(' .,;')} ..."]
    y = top + 18
    if is_loop:
        toward = 1 if start + _LANE <= width else -1
        left, anchor = start + toward * 40, "start" if toward > 0 else "end"
        path = f"M{start},{y} h{toward * 30} v14 h{-toward * 24}"
        head = f"M{start},{y + 14} l{toward * 9},-4.5 v9 z"
        text_y = y + 5
    else:
        toward = 1 if end > start else -1
        left, anchor = min(start, end) + 12, "start"
        path = f"M{start},{y} L{end - toward * 8},{y}"
        head = f"M{end},{y} l{-toward * 9},-4.5 v9 z"
        text_y = y - 6
    kind = "mail" if step.is_mail else "message"
    drawn = [
        f"<g><title>{escape(f'{step.message}: reveals {step.reveals}')}</title>",
        f'<path class="{kind}" d="{path}"/><path class="head" d="{head}"/>',
        f'<text class="name" x="{left}" y="{text_y}" text-anchor="{anchor}">{escape(name)}</text>',
    ]
    first = text_y + _LINE + (0 if is_loop else 5)
    for place, line in enumerate(lines):
        text = f'<text class="tells" x="{left}" y="{first + place * _LINE}" text-anchor="{anchor}">'
        drawn.append(f"{text}{escape(line)}</text>")
    return [*drawn, "</g>"], first + (len(lines) - 1) * _LINE + 16
