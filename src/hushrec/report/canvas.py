"""What figures are drawn on: colours, fonts, and the way to SVG and PNG. The same figure gives the same bytes.

Colours are Okabe and Ito's, which colour-blind readers can tell apart. Text is drawn as paths of a font that comes
with matplotlib, so a figure needs no font and no network.
"""

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hushrec.errors import HushrecError, MissingExtraError, how_to_install, option
from hushrec.files import check_file_to_write, write_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6d31", "#7a7a7a")
INK, FAINT, PAPER = "#24292f", "#c9ced6", "#ffffff"
# What the page's style sheet puts in place of them, light or dark.
_THEME = {INK: "var(--ink)", FAINT: "var(--faint)", PAPER: "var(--paper)"}

WIDTH_INCHES = 10.4
_STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9.5,
    "svg.fonttype": "path",
    "svg.hashsalt": "hushrec",
    "text.color": INK,
    "text.usetex": False,
    "text.parse_math": False,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.titlecolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": FAINT,
    "grid.linewidth": 0.5,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
}
_WHOLE: dict[str, Any] = {
    "bbox_inches": "tight",
    "pad_inches": 0.08,
}  # a long name makes a picture wider, and is not cut


@contextmanager
def style() -> Iterator[None]:
    """Draw within this, whatever the user's own settings of matplotlib are."""
    try:
        import matplotlib
    except ImportError:
        raise MissingExtraError(f"figures need matplotlib; install it with: {how_to_install('report')}") from None
    with matplotlib.rc_context(_STYLE):
        yield


def new_figure(height_inches: float) -> "Figure":
    """An empty figure, as wide as the page."""
    from matplotlib.figure import Figure

    return Figure(figsize=(WIDTH_INCHES, height_inches), facecolor=PAPER)


def check_picture(path: Path | None) -> None:
    """Refuse a picture that cannot be written, or not in its format, before the work is done."""
    if path is None:
        return
    if path.suffix.lower() not in (".png", ".svg"):
        raise HushrecError(f"{option('picture', str(path))}: write a file that ends in .png or .svg")
    check_file_to_write(path, option("picture"))


def write_picture(figure: "Figure", path: Path) -> None:
    """Write the figure as PNG or SVG, by the ending of the name."""
    content = to_png(figure) if path.suffix.lower() == ".png" else to_svg(figure).encode()
    write_file(path, content, option("picture"))


def to_png(figure: "Figure") -> bytes:
    """The figure as a PNG file."""
    with style():
        file = io.BytesIO()
        figure.savefig(file, format="png", dpi=150, metadata={"Software": None}, **_WHOLE)
        return file.getvalue()


def to_svg(figure: "Figure") -> str:
    """The figure as an SVG file of its own."""
    with style():
        file = io.StringIO()
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None}, **_WHOLE)
        return file.getvalue()


def to_inline_svg(figure: "Figure", name: str, title: str) -> str:
    """The figure as an element within a page, in the page's colours. `name` keeps ids apart, `title` is spoken."""
    text = to_svg(figure)
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", text).replace("xlink:href=", "href=")
    text = re.sub(r'\bid="|(?<=href=")#|(?<=url\()#', lambda found: f"{found[0]}{name}-", text)
    for colour, variable in _THEME.items():
        text = text.replace(colour, variable)
    spoken = title.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")
    return text.replace("<svg", f'<svg role="img" aria-label="{spoken}"', 1).strip()
