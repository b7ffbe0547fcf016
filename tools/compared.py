"""Take a comparison of systems into the project: the record that ships, its table and its picture in the docs.

`hushrec compare --data ml-100k --out DIR`, then `python tools/compared.py DIR`.
"""

import re
import sys
from pathlib import Path

from hushrec.registry import SYSTEMS
from hushrec.report.canvas import write_picture
from hushrec.report.survey_figures import leakage_figure
from hushrec.report.survey_table import heading_of, lines_below, markdown_table
from hushrec.settings import switches_of
from hushrec.survey.record import Survey, read_survey_of, to_json

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "compare.md"


def section(survey: Survey) -> str:
    """What the page says of a comparison."""
    minutes = sum(row.spent_seconds for row in survey.rows) / 60
    lines = [
        f"{heading_of(survey)}. Measured {survey.date}, {len(survey.rows)} rows in {minutes:.0f} minutes of CPU.",
        "",
        f"![Accuracy against leakage on {survey.data}](compared/{survey.data}.png)",
        "",
        markdown_table(survey),
        "",
        *(f"- {line[0].upper()}{line[1:]}." for line in lines_below(survey)),
        *_not_yet(survey),
    ]
    return "\n".join(lines)


def _declared() -> list[tuple[str, str]]:
    """All rows that there can be."""
    return [(name, switches_of(one)) for name in SYSTEMS for one in ({}, *SYSTEMS.named(name).about.repairs)]


def _not_yet(survey: Survey) -> list[str]:
    """A line on rows that were not made."""
    done = {row.key for row in survey.rows}
    left = [f"`{' '.join(key).strip()}`" for key in _declared() if key not in done]
    return [f"- Not measured yet: {', '.join(left)}."] if left else []


def in_page(text: str, survey: Survey) -> str:
    """The page with this comparison between its marks."""
    begin, end = (f"<!-- {word} {survey.data} -->" for word in ("begin", "end"))
    if begin not in text:
        raise SystemExit(f"{PAGE} has no line {begin}")
    return re.sub(
        f"{re.escape(begin)}.*{re.escape(end)}",
        lambda _found: f"{begin}\n{section(survey)}\n{end}",
        text,
        flags=re.DOTALL,
    )


def main(folder: Path) -> None:
    """Write all three."""
    survey = read_survey_of(folder).in_order(_declared())
    (ROOT / "src" / "hushrec" / "survey" / "measured" / f"{survey.data}.json").write_bytes(to_json(survey) + b"\n")
    PAGE.write_text(in_page(PAGE.read_text(encoding="utf-8"), survey), encoding="utf-8")
    write_picture(leakage_figure(survey.rows), ROOT / "docs" / "compared" / f"{survey.data}.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
