"""How numbers are written for people, in tables, sentences and figures. JSON and run folders have them in full.

- A metric or a score of an attack has four decimals, as in papers; its deviation too.
- A count is whole, with commas.
- What else is measured (bytes, seconds, shares, means) has three significant digits, or all of its whole part.
- What was given (settings, ratings, a system's own facts) stands as it is, with six significant digits at most.
- In a published table that was made again, all have the decimals of the paper (`Table.decimals`).

All are rounded to the nearest. What is said of numbers is said of them as they are written: which is the best, and
whether ours is within a published spread.
"""

from hushrec.experiments.rounding import METRIC_DECIMALS

ABSENT = "–"
_BYTE_UNITS = ("B", "KB", "MB", "GB", "TB", "PB")


def format_metric(value: float | None) -> str:
    """A metric, with four decimals.

    >>> [format_metric(value) for value in (0.94236, None)]
    ['0.9424', '–']
    """
    return ABSENT if value is None else f"{value:.{METRIC_DECIMALS}f}"


def format_difference(value: float) -> str:
    """By how much one metric is above another, or below it."""
    return f"{value:+.{METRIC_DECIMALS}f}"


def format_spread(value: float, deviation: float | None) -> str:
    """A metric and, where several folds or a paper give one, its standard deviation."""
    return format_metric(value) + ("" if deviation is None else f" ± {format_metric(deviation)}")


def format_count(count: float) -> str:
    """A count, rounded, with separators of thousands.

    >>> format_count(31816400.5)
    '31,816,400'
    """
    return f"{round(count):,}"


def format_number(value: float) -> str:
    """What is neither a metric nor a count: three significant digits, or all of the whole part.

    >>> [format_number(value) for value in (0, 0.01234, 3.5299, 10, 99.96, 31816.4)]
    ['0', '0.0123', '3.53', '10.0', '100', '31,816']
    """
    if value == 0 or abs(value) >= 99.95:
        return format_count(value)
    return f"{value:#.3g}"


def format_figure(value: float) -> str:
    """What a verdict rests on: a metric, or a larger number.

    >>> [format_figure(value) for value in (0.94304, 1.0, 81588.4)]
    ['0.9430', '1.0000', '81,588']
    """
    return format_metric(value) if abs(value) < 10 else format_number(value)


def format_share(share: float) -> str:
    """A share, in percent.

    >>> [format_share(share) for share in (0.2, 0.063046, 0.00084)]
    ['20.0%', '6.30%', '0.0840%']
    """
    return f"{format_number(100 * share)}%"


def format_leakage(advantage: float) -> str:
    """How far an attack is from a blind guess (0) towards knowing all (1).

    >>> [format_leakage(advantage) for advantage in (0.0, 0.3457, 1.0)]
    ['0.00', '0.35', '1.00']
    """
    return f"{advantage:.2f}"


def format_score(score: float) -> str:
    """The score of an attack.

    >>> format_score(0.99929)
    '0.999'
    """
    return f"{score:.3f}"


def format_bytes(count: float) -> str:
    """Bytes; 1 KB is 1000 bytes.

    >>> [format_bytes(count) for count in (0, 7.25, 999, 134592, 9996, 2675610860)]
    ['0 B', '7.25 B', '999 B', '135 KB', '10.0 KB', '2.68 GB']
    """
    power = 0
    while count >= 999.5 and power < len(_BYTE_UNITS) - 1:
        count /= 1000
        power += 1
    return f"{format_number(count) if power else f'{count:.3g}'} {_BYTE_UNITS[power]}"


def format_seconds(seconds: float) -> str:
    """CPU or wall time.

    >>> [format_seconds(seconds) for seconds in (0.00394, 2.657, 75.21, 4000)]
    ['3.94 ms', '2.66 s', '75.2 s', '66.7 min']
    """
    if 0 < abs(seconds) < 0.9995:
        return f"{format_number(1000 * seconds)} ms"
    return f"{format_number(seconds)} s" if seconds < 600 else f"{format_number(seconds / 60)} min"


def format_given(value: object) -> str:
    """A setting, a rating, or what a system tells of itself.

    >>> [format_given(value) for value in (True, None, "rows", 0.1 + 0.2, 31816400.0, 12)]
    ['yes', 'none', 'rows', '0.3', '31,816,400', '12']
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "none"
    if not isinstance(value, float):
        return str(value)
    return format_count(value) if value.is_integer() else f"{value:g}"
