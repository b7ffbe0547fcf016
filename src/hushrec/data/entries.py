"""One entry for each data set of the catalogue. No data is kept here, only names and digests."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hushrec.data.fetching import Download
from hushrec.data.interactions import Interactions
from hushrec.data.netflix import COMBINED, NUM_FILMS, NUM_RATINGS, NUM_USERS, nf5k5k
from hushrec.data.reading import Columns
from hushrec.data.recipes import gowalla_10core, gowalla_20, steam_200k, steam_200k_hours


@dataclass(frozen=True)
class Form:
    """Files in which a data set may lie in a folder, with their SHA-256 where it is known.

    With a `recipe` the files are raw ones, from which it makes the data set; it needs those of `beside` as well.
    """

    ratings: str
    ratings_sha256: str | None
    titles: str | None = None
    titles_sha256: str | None = None
    columns: Columns | None = None
    recipe: Callable[[Path], Interactions] | None = None
    beside: tuple[str, ...] = ()
    users: str | None = None  # who the users are: read by audits alone, see `user_facts.py`
    users_sha256: str | None = None


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A data set: what it is, the digest its data must have, and where it may come from.

    `item_ids` are the ids of the whole catalogue, also the unrated; None: those that occur. A package may add one,
    as an entry point of `hushrec.datasets`, with `make` in place of files; aliases are for our own.
    """

    name: str
    title: str
    licence: str
    kind: Literal["explicit", "implicit"]
    rating_range: tuple[float, float] | None
    num_users: int
    num_items: int
    num_interactions: int
    data_sha256: str = ""  # not known: the counts are checked
    forms: tuple[Form, ...] = ()
    downloads: tuple[Download, ...] = ()
    item_ids: range | None = None
    aliases: tuple[str, ...] = ()
    make: Callable[[], Interactions] | None = None
    raw_files: str = ""  # what to put where, if it is made of files that nobody may hand on


_GROUPLENS = "GroupLens: research use, no redistribution without permission, no commercial use"
_STEAM = "from Kaggle tamber/steam-video-games; licence not known"
_GOWALLA = "SNAP loc-gowalla: public research data, no licence text"
_NETFLIX = "Netflix Prize terms, closed"
_STEAM_FULL_SHA256 = "eed956501909dba2a849bc5fb1b5705f076e4da347d469e4a4133fe34eb70212"
_STEAM_FULL_ITEMS_SHA256 = "8a8fe428575e2cfdcdb63d60f7e774bdad92afeb5a318308864c7ad21b8b5aaa"
_GOWALLA_10CORE_SHA256 = "61975a2eab92c70714ed04dc76bbe97390841f035d2b173aacfe69d7e751ddee"

ENTRIES = (
    Entry(
        name="ml-100k",
        title="MovieLens 100K",
        licence=_GROUPLENS,
        kind="explicit",
        rating_range=(1.0, 5.0),
        num_users=943,
        num_items=1_682,
        num_interactions=100_000,
        item_ids=range(1, 1683),
        data_sha256="81782956ee522db37b9d69bf57a562d55a3c8885a1038699b95c9fb2f44203e0",
        forms=(
            Form(
                "ml-100k.parquet",
                "27fc42c81b06fc7131be7ff99c064c1974de9967900f5df2e6636d50f7d5a6f4",
                "ml-100k-items.parquet",
                "da49f440faf26a0bcc1f0d91d8163b52f9abe60b211b16fb57ace5bdc54e7ec5",
                users="ml-100k-users.parquet",
                users_sha256="33a634a9c7da667fcba8f5d0c300a4a273e2cac1f485e6f369bd591dbe066ab6",
            ),
            Form(
                "ml-100k/u.data",
                "06416e597f82b7342361e41163890c81036900f418ad91315590814211dca490",
                "ml-100k/u.item",
            ),
            Form(
                "ml-100k/ml-100k.inter",
                "4edb74e2a81178c2ba9ff381495f754f996c4aea351b1272ca36b43da0935eff",
                "ml-100k/ml-100k.item",
                "51d7cdf777ce5c0f5b32c1d947a4a81fe07d75e78abbe761e0cd4d0756064532",
            ),
        ),
        downloads=(
            Download(
                "publisher",
                "https://files.grouplens.org/datasets/movielens/ml-100k.zip",
                "md5",
                "0e33842e24a9c977be4e0107933c0723",
                (("ml-100k/u.item", "ml-100k/u.item"), ("ml-100k/u.data", "ml-100k/u.data")),
            ),
            Download(
                "mirror",
                "pip:recbole==1.2.1",
                "sha256",
                "9c9948202011f37eb0a7c6768129313f00d6403ad221ec940d5e2d5d5f33a407",
                (
                    ("recbole/dataset_example/ml-100k/ml-100k.item", "ml-100k/ml-100k.item"),
                    ("recbole/dataset_example/ml-100k/ml-100k.inter", "ml-100k/ml-100k.inter"),
                ),
            ),
        ),
    ),
    Entry(
        name="ml-1m",
        title="MovieLens 1M",
        licence=_GROUPLENS,
        kind="explicit",
        rating_range=(1.0, 5.0),
        num_users=6_040,
        num_items=3_952,
        num_interactions=1_000_209,
        item_ids=range(1, 3953),
        data_sha256="f5486e6a0bd0c56440cce640f7fc72590d4c95e1ac643333ff63de7f9d473fdb",
        forms=(
            Form(
                "ml-1m.parquet",
                "649a2d774a4d901b06de87e3da01803622836b48dbee70b9762617f5cafb3d16",
                "ml-1m-items.parquet",
                "3c78d85debfa4173ed4da5175fe9d4c47de7ce55ae84c1cc04dfa39535265ee6",
                Columns(order="rank"),
                users="ml-1m-users.parquet",
                users_sha256="8b1f59eb996a063926b3a47d6a87403866f02a83021605b3db52ec7d9c0a25ad",
            ),
            Form("ml-1m/ratings.dat", None, "ml-1m/movies.dat"),
        ),
        downloads=(
            Download(
                "publisher",
                "https://files.grouplens.org/datasets/movielens/ml-1m.zip",
                "md5",
                "c4d9eecfca2ab87c1945afe126590906",
                (("ml-1m/movies.dat", "ml-1m/movies.dat"), ("ml-1m/ratings.dat", "ml-1m/ratings.dat")),
            ),
        ),
    ),
    Entry(
        name="steam-200k",
        title="Steam purchases of users with 5 or more games",
        licence=_STEAM,
        kind="implicit",
        rating_range=None,
        num_users=3_753,
        num_items=5_134,
        num_interactions=114_713,
        item_ids=range(5134),
        data_sha256="a99db56a0120b3116e57150bbae650a506e7fcb01fe18d975c332405648e3833",
        forms=(
            Form(
                "steam-200k.parquet",
                "553309bcbb05c48ae43ed16a0ed74c920a19902a93efde524fad1cc267fd64d6",
                "steam-200k-items.parquet",
                "dc16981b9f6e7553623cf15b85aed6254e2a09847c06b3b91f6e51ff16daae89",
            ),
            Form("steam-200k.csv", None, recipe=steam_200k),
            Form("steam-200k/steam-200k.csv", None, recipe=steam_200k),
            Form(
                "steam-200k-full.parquet",
                _STEAM_FULL_SHA256,
                "steam-200k-full-items.parquet",
                _STEAM_FULL_ITEMS_SHA256,
                recipe=steam_200k,
                beside=("steam-200k-full-items.parquet",),
            ),
        ),
    ),
    Entry(
        name="gowalla-20",
        title="Gowalla check-ins, the 20-core of the federated literature",
        licence=_GOWALLA,
        kind="implicit",
        rating_range=None,
        num_users=8_392,
        num_items=10_068,
        num_interactions=391_238,
        aliases=("gowalla",),
        data_sha256="c0c386ef1822b38dfdd3ce2ba4494c5cbd0dcda47ea542f2ad057ddeb369da10",
        forms=(
            Form("gowalla-20.parquet", "55dde75c0e7289da3bd2ee45cf5454ef29cc73ae7b61fcee058170b91ad329de"),
            Form("gowalla-10core.parquet", _GOWALLA_10CORE_SHA256, recipe=gowalla_20),
            Form("gowalla/train.txt", None, recipe=gowalla_20, beside=("gowalla/test.txt",)),
        ),
    ),
    Entry(
        name="netflix-1200",
        title="Netflix Prize, a dense corner",
        licence=_NETFLIX,
        kind="explicit",
        rating_range=(1.0, 5.0),
        num_users=1_200,
        num_items=1_200,
        num_interactions=1_111_768,
        data_sha256="aef42267a601d9c4af9a18d61934210c655d90fd675a6ab905c2a781250adbaa",
        forms=(Form("netflix-1200.parquet", "9745e87ffee36aca095e226f331b1541ee11495b4b6199ba91b4ba9c58eeece7"),),
    ),
    Entry(
        name="nf5k5k",
        title="Netflix Prize, 5,000 popular films and 5,000 active users",
        licence=_NETFLIX,
        kind="explicit",
        rating_range=(1.0, 5.0),
        num_users=NUM_USERS,
        num_items=NUM_FILMS,
        num_interactions=NUM_RATINGS,
        forms=(
            Form("nf5k5k.parquet", None),
            *(
                Form(f"{folder}{name}", None, recipe=nf5k5k, beside=tuple(f"{folder}{other}" for other in others))
                for folder in ("", "netflix/")
                for name, others in (
                    (COMBINED[0], COMBINED[1:]),
                    ("training_set.tar", ()),
                    ("training_set/mv_0000001.txt", ()),
                )
            ),
        ),
        raw_files="the raw Netflix Prize files: put combined_data_1.txt to combined_data_4.txt, or "
        "training_set.tar, or the folder training_set",
    ),
    Entry(
        name="jester-1",
        title="Jester 1, ratings of jokes",
        licence="free for research with citation (Goldberg et al. 2001)",
        kind="explicit",
        rating_range=(-10.0, 10.0),
        num_users=24_983,
        num_items=100,
        num_interactions=1_810_455,
        data_sha256="11d4a3ce030eb3d20de341cadaaf856a6ea085d4c1bbf03f4db49b4623f8314e",
        forms=(Form("jester-1.parquet", "2f9b96534249e380c5a23feeb7eb91f1a9b55ec62680d1831dbc65c803477de5"),),
    ),
    Entry(
        name="book-crossing",
        title="Book-Crossing; a rating of 0 is implicit",
        licence="free for research with citation (Ziegler et al. 2005)",
        kind="explicit",
        rating_range=(0.0, 10.0),
        num_users=105_283,
        num_items=340_547,
        num_interactions=1_149_777,
        data_sha256="f10dff6d099921b16eddc91ad111c39e6929eb600f62b3033c2ec66c6a6b74b1",
        forms=(Form("book-crossing.parquet", "59a253ae899c1748712d144067cd416910a2d4795f35cef36418612a8383d011"),),
    ),
    Entry(
        name="anime-5k",
        title="Anime ratings of 5,000 random users",
        licence="CC0 by its Kaggle page",
        kind="explicit",
        rating_range=(1.0, 10.0),
        num_users=4_714,
        num_items=7_157,
        num_interactions=419_943,
        data_sha256="41a4fd85934c0e20da60ef676fb094a28cdfc8bfd623fdd6c3fee18db6eca5a1",
        forms=(
            Form(
                "anime-5k.parquet",
                "5f6399d045a4f5088a36e1807cde4e186990bcde70986f9a99a3fc88de3556fc",
                "anime-5k-items.parquet",
                "28c4bc831636bb2ec509d35e82bf7e0b833e9821bfd0b6fefee98d84bcca2686",
            ),
        ),
    ),
    Entry(
        name="movietweetings-100k",
        title="MovieTweetings, the 100K snapshot",
        licence="MIT",
        kind="explicit",
        rating_range=(0.0, 10.0),
        num_users=16_554,
        num_items=10_506,
        num_interactions=100_000,
        data_sha256="3902f12e17b9b8635381b0947320412915f67b861a4484c348fa977df3b12f15",
        forms=(
            Form(
                "movietweetings-100k.parquet",
                "16f4ae15097241ca7573bdcd792d0a75d8eef173ed973814fffcced8d1a5ca7f",
                "movietweetings-100k-items.parquet",
                "031ec8bde8a65272e60f08ffc6b9358dfd744c47d25624eb02d825328c7371e0",
            ),
        ),
    ),
    Entry(
        name="gowalla-10core",
        title="Gowalla check-ins in LightGCN's form",
        licence=_GOWALLA,
        kind="implicit",
        rating_range=None,
        num_users=29_858,
        num_items=40_981,
        num_interactions=1_027_370,
        data_sha256="aaae32354774b7d8d8ccfab74d5344341b0ca7833f90a17e4ee010f6b811fd75",
        forms=(
            Form("gowalla-10core.parquet", _GOWALLA_10CORE_SHA256),
            Form("gowalla/train.txt", None, recipe=gowalla_10core, beside=("gowalla/test.txt",)),
        ),
    ),
    Entry(
        name="steam-200k-full",
        title="Steam purchases, all",
        licence=_STEAM,
        kind="implicit",
        rating_range=None,
        num_users=12_393,
        num_items=5_155,
        num_interactions=128_804,
        data_sha256="92d7498d8d18edc0cc75e5ec9ef00fa2c6e9700f30e84f306a3ec512e51503a5",
        forms=(
            Form(
                "steam-200k-full.parquet",
                _STEAM_FULL_SHA256,
                "steam-200k-full-items.parquet",
                _STEAM_FULL_ITEMS_SHA256,
            ),
        ),
    ),
    Entry(
        name="steam-200k-hours",
        title="Steam purchases, all; 1 if played for an hour or more, else 0",
        licence=_STEAM,
        kind="explicit",
        rating_range=(0.0, 1.0),
        num_users=12_393,
        num_items=5_155,
        num_interactions=128_804,
        data_sha256="f7e59d0323ce780d577c7baf8d3b7e15a27e28ec9aa66abed5584ddab99b4309",
        forms=(
            Form(
                "steam-200k-full.parquet",
                _STEAM_FULL_SHA256,
                "steam-200k-full-items.parquet",
                _STEAM_FULL_ITEMS_SHA256,
                recipe=steam_200k_hours,
                beside=("steam-200k-full-items.parquet",),
            ),
        ),
    ),
)
