"""Texts as a terminal can show them: no letter is an error, and no letter of a user's commands the terminal."""

import codecs
import json

PLAIN = "hushrec.plain"  # the name of the way in which letters that a stream does not have are written
_AS_ASCII = {
    **dict.fromkeys("─━═╌╍┄┅┈┉╴╶╸╺╼╾", "-"),
    **dict.fromkeys("│┃║╎╏┆┇┊┋╵╷╹╻", "|"),
    **dict.fromkeys("█▉▊▋▌▍▎▏▇▆▅▄▃▂▁", "#"),
    **dict.fromkeys("‘’", "'"),
    **dict.fromkeys("“”", '"'),
    **dict.fromkeys("–—", "-"),
    **{"±": "+-", "…": "...", "×": "x", "·": ".", "•": "*", "→": "->", "≤": "<=", "≥": ">=", "≈": "~"},
}
# Control characters, ends of lines, and those that turn the direction of what follows.
_CONTROLS = (*range(32), *range(127, 160), 0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_VISIBLE = {code: json.dumps(chr(code))[1:-1] if code != 127 else "\\u007f" for code in _CONTROLS}
_VISIBLE_IN_LINES = {code: text for code, text in _VISIBLE.items() if code != ord("\n")}


def visible(text: str, has_lines: bool = False) -> str:
    r"""A text whose control characters are written as in JSON; the ends of its lines stay, if it has some.

    >>> visible("Alien\x1b[31m\n")
    'Alien\\u001b[31m\\n'
    """
    return text.translate(_VISIBLE_IN_LINES if has_lines else _VISIBLE)


def in_alphabet(text: str, encoding: str) -> str:
    """A text as a stream of this encoding will show it, so that its width is known.

    >>> in_alphabet("Amélie ± 1", "ascii")
    'Am\\u00e9lie +- 1'
    """
    return text if is_utf(encoding) else text.encode(encoding, PLAIN).decode(encoding, "replace")


def is_utf(encoding: str | None) -> bool:
    """Whether an encoding has all letters; one that nobody named is taken for such."""
    return (encoding or "utf-8").lower().startswith("utf")


def _plain(error: UnicodeError) -> tuple[bytes, int]:
    """What a stream cannot show: bytes of file names as they are, lines and dots in ASCII, else as in JSON."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    found = error.object[error.start : error.end]
    return b"".join(_plain_character(one) for one in found), error.end


def _plain_character(one: str) -> bytes:
    code = ord(one)
    if 0xDC80 <= code <= 0xDCFF:  # a byte of a file's name that is no text
        return bytes([code - 0xDC00])
    if one in _AS_ASCII or 0x2500 <= code <= 0x257F:
        return _AS_ASCII.get(one, "+").encode()
    units = one.encode("utf-16-be", "surrogatepass")
    return b"".join(b"\\u%04x" % int.from_bytes(units[at : at + 2]) for at in range(0, len(units), 2))


codecs.register_error(PLAIN, _plain)
