"""Options that several verbs share. A dataclass of them is a group, see `commands.joined`.

What they mean is loaded when it is asked for: `--help` needs only what can be typed.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from hushrec.choices import Deals, Duplicates, Measure, SplitKind, TrackerName
from hushrec.cli.said import Said
from hushrec.errors import HushrecError
from hushrec.files import check_folder_to_write
from hushrec.registry import SYSTEMS

if TYPE_CHECKING:
    from hushrec.data import Columns, Interactions
    from hushrec.protocol import AnySystem
    from hushrec.runs.run_settings import RunSettings
    from hushrec.runtime.in_process import RuntimeOptions


def beginning(names: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """What a shell completes: those of the names that begin as was typed."""
    return lambda incomplete: [name for name in names() if name.startswith(incomplete)]


def _known_data() -> list[str]:
    from hushrec.data.catalogue import CATALOGUE, SYNTHETIC

    return [*CATALOGUE, SYNTHETIC]


complete_system = beginning(lambda: SYSTEMS)
complete_data = beginning(_known_data)

RunFolder = Annotated[Path, typer.Argument(help="The folder of a run.")]
RunFolders = Annotated[list[Path], typer.Argument(help="Folders of runs, as `hushrec run --out` makes them.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
Seed = Annotated[int, typer.Option(help="Of everything random: split, start, draws.")]
Threads = Annotated[int | None, typer.Option(help="Default: all cores. Changes no number.")]
Fold = Annotated[int | None, typer.Option(help="Which fold's model; default: the first.")]
Split = Annotated[
    SplitKind | None,
    typer.Option(
        help="How test ratings are chosen; default: folds; random if implicit, latest if signed, partners where "
        "the parties are partners. shared: measured alike for systems with and without ratings; global-time: all "
        "rows from a moment on."
    ),
]
TestShare = Annotated[float, typer.Option(help="For the splits random, latest, shared and global-time.")]
SplitAt = Annotated[
    str | None,
    typer.Option(metavar="DATE", help="With --split global-time: where the test begins, as in 2024-01-31."),
]
Owners = Annotated[
    str,
    typer.Option(
        help="Where owners hold the items: genre, a number, or a file of items and owners; default: genre or 5."
    ),
]
Lengths = Annotated[
    str | None, typer.Option(help="Lengths of ranked lists; default: 10, 20 if implicit, 1,5,10,20 if signed.")
]
RelevantFrom = Annotated[
    float | None, typer.Option(help="Ratings that count as relevant; default: the upper quarter.")
]
ColumnNames = Annotated[
    str | None,
    typer.Option(help="Columns of a file: user, item, rating or timestamp, as in item=sku,user=who here."),
]
WhatOfDuplicates = Annotated[
    Duplicates, typer.Option(help="If a file has a pair twice: an error, keep the last, or their mean.")
]
RatingRange = Annotated[
    str | None, typer.Option(metavar="LOW,HIGH", help="Refuse ratings of a file outside, as in 1,5.")
]

WhatOfMissing = Annotated[
    str,
    typer.Option(
        metavar="refuse|drop|RATING",
        help="If a file has rows without a rating: an error, leave them out, or a rating.",
    ),
]
TextEncoding = Annotated[
    str | None,
    typer.Option(help="Of a text file, as in latin-1 or utf-16; default: utf-8, or what its mark says."),
]
DecimalSign = Annotated[str, typer.Option(help="What stands before decimals in a text file: . or a comma.")]
ItemsFile = Annotated[
    Path | None,
    typer.Option(
        help="A file with titles, genres and other columns of items; default: one beside the data, as in "
        "NAME-items.csv."
    ),
]


def parse_columns(text: str | None) -> "Columns | None":
    """Which column is which, of `user=NAME,item=NAME`; None: by the usual names."""
    from hushrec.data import Columns

    if text is None:
        return None
    named: dict[str, str] = {}
    for part in text.split(","):
        role, equals, column = (piece.strip() for piece in part.partition("="))
        if role not in Columns.__dataclass_fields__ or not equals:
            roles = ", ".join(Columns.__dataclass_fields__)
            raise HushrecError(f"--columns has {part!r}; write user=NAME,item=NAME, of: {roles}")
        named[role] = column
    return Columns(**named)


def parse_rating_range(text: str | None) -> tuple[float, float] | None:
    """The two numbers of `LOW,HIGH`."""
    if text is None:
        return None
    try:
        low, high = (float(part) for part in text.split(","))
    except ValueError:
        raise HushrecError(f"--rating-range is {text!r}; write two numbers, as in 1,5") from None
    return low, high


def parse_numbers(text: str, flag: str, example: str = "5,10,20") -> tuple[int, ...]:
    """The whole numbers of `5,10,20`; an error names the flag and shows the example."""
    try:
        return tuple(int(number) for number in text.split(","))
    except ValueError:
        raise HushrecError(f"{flag} {text!r} is not a list of whole numbers; write {flag} {example}") from None


def parse_lengths(text: str | None) -> tuple[int, ...] | None:
    """The lengths of ranked lists that were typed; None: the usual ones."""
    return None if text is None else parse_numbers(text, "--at")


def runtime_options(threads: int | None, cohort_size: int | None = None) -> "RuntimeOptions":
    """What changes no number, with all cores unless told."""
    from hushrec.runtime.in_process import RuntimeOptions

    if threads is None:
        return RuntimeOptions(cohort_size=cohort_size)
    return RuntimeOptions(threads, cohort_size)


def configured(system: "AnySystem", values: Mapping[str, Any], data_name: str) -> Any:
    """A config for data of this name, after a line that says what was chosen by it."""
    from hushrec.cli.console import note
    from hushrec.runs.suiting import by_data

    named, chosen = by_data(system, values, data_name)
    for choice in chosen:
        note(choice.why)
    return system.configure(named)


@dataclass(frozen=True, kw_only=True)
class ReadingOptions:
    """How a file of interactions is read."""

    columns: ColumnNames = None
    duplicates: WhatOfDuplicates = "error"
    rating_range: RatingRange = None
    missing: WhatOfMissing = "refuse"
    encoding: TextEncoding = None
    decimal: DecimalSign = "."
    items: ItemsFile = None

    def load(self, data: str) -> "Interactions":
        """A known data set, or a file read in this way."""
        from hushrec.cli.console import note
        from hushrec.data import Reading
        from hushrec.data.catalogue import load_with

        reading = Reading(
            columns=parse_columns(self.columns),
            duplicates=self.duplicates,
            rating_range=parse_rating_range(self.rating_range),
            missing=self.missing,
            encoding=self.encoding,
            decimal=self.decimal,
            items=self.items,
        )
        return load_with(data, reading, notify=note)


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where the interactions come from."""

    data: Annotated[
        str,
        typer.Option(help="A dataset's name (hushrec data list) or a file.", autocompletion=complete_data),
    ]
    reading: ReadingOptions

    def load(self) -> "Interactions":
        """The data set or file that was asked for."""
        return self.reading.load(self.data)


Partners = Annotated[int, typer.Option(help="For the splits partners and pooled: how many.")]


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options of `hushrec run`, whatever the system."""

    source: Source
    said: Said
    folds: Annotated[int, typer.Option(help="How many of the five folds to run.")] = 1
    seed: Seed = 0
    split: Split = None
    test_share: TestShare = 0.2
    split_at: SplitAt = None
    partners: Partners = 2
    common_users: Annotated[float, typer.Option(help="The share of users whom all partners have.")] = 0.5
    common_items: Annotated[float, typer.Option(help="The share of items that all partners have.")] = 0.5
    deals: Annotated[
        Deals,
        typer.Option(help="each: every fold deals users and items to partners anew; one: all folds as the first."),
    ] = "each"
    measure: Annotated[
        Measure, typer.Option(help="validation: to choose settings, a part of the training is the test instead.")
    ] = "test"
    owners: Owners = ""
    passed_over: Annotated[
        int,
        typer.Option(
            help="For signed feedback from data of positives only: draw so many others before each.", min=0
        ),
    ] = 0
    at: Lengths = None
    relevant_from: RelevantFrom = None
    sampled: Annotated[
        int,
        typer.Option(
            help="With --split leave-one-out: rank the test item among so many drawn ones, too, as some papers "
            "do; such metrics say little.",
            min=0,
        ),
    ] = 0
    min_raters: Annotated[
        int | None,
        typer.Option(
            help="Only items with so many raters in training can be listed, in metrics as in recommend and serve; "
            "default: 10, 1 without ratings; 0: every item, as in most papers.",
            min=0,
        ),
    ] = None
    baselines: Annotated[
        bool | None,
        typer.Option(
            "--baselines/--no-baselines",
            help="Measure simple centralised models, too: popularity, biases, item-kNN, ALS; default: those that "
            "take less than 10% of the run's time, or a second.",
        ),
    ] = None
    stop_early: Annotated[
        bool | None,
        typer.Option(
            "--stop-early/--no-stop-early",
            help="Train as many rounds as are best on a validation part of the training; default: with the preset "
            "general, unless the rounds are named.",
            show_default=False,
        ),
    ] = None
    out: Annotated[Path | None, typer.Option(help="Folder to keep the run in.")] = None
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False
    track: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[=PLACE]",
            help="Tell a tracker of every round: mlflow, tensorboard, wandb (offline) or trackio, and where its "
            "store is, as in mlflow=runs.db. Can be given several times.",
            autocompletion=beginning(lambda: get_args(TrackerName)),
        ),
    ] = None
    threads: Threads = None
    cohort_size: Annotated[int | None, typer.Option(help="Clients served at once. Changes no number.")] = None
    as_json: AsJson = False

    def __post_init__(self) -> None:
        if self.resume and self.out is None:
            raise HushrecError("--resume needs --out, the folder of the run to go on with")
        parse_lengths(self.at)  # for what it refuses, before data is read
        if self.out is not None:
            check_folder_to_write(self.out, "--out")

    def settings(self, system: "AnySystem", data: "Interactions") -> "RunSettings":
        """The split, the seed and the lengths of lists; what was not said depends on the system and the data."""
        from hushrec.data import Deal
        from hushrec.runs.run_settings import settings_for

        return settings_for(
            system, self.seed, self.folds, self.split, self.test_share, parse_lengths(self.at),
            self.relevant_from, Deal(self.partners, self.common_users, self.common_items, self.deals),
            self.owners, self.passed_over, self.measure, data, self.sampled, self.min_raters,
            self.split_at,
        )  # fmt: skip
