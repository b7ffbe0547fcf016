import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from hushrec.errors import HushrecError
from hushrec.experiments import published
from hushrec.protocol import Role
from hushrec.protocol.declared import reveals, threat_model
from hushrec.registry import SYSTEMS
from hushrec.report.page import SECTIONS, page, write_report
from hushrec.runs.record import Run

VOID = {"meta", "br", "hr", "img", "link", "input"}


class Reader(HTMLParser):
    """Notes tags, attributes and text, and that every element is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] != "style":
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


@pytest.fixture(scope="module")
def text(runs: dict[str, Run]) -> str:
    return page(list(runs.values()))


@pytest.fixture(scope="module")
def reader(text: str) -> Reader:
    return Reader(text)


def test_page_refers_to_nothing_outside(text: str, reader: Reader) -> None:
    assert "http://" not in text
    assert "https://" not in text
    assert "@import" not in text
    assert not {"script", "link", "img", "iframe", "object", "embed", "base"} & set(reader.tags)
    assert not [
        name for name, _ in reader.attributes if name in ("src", "srcset", "action") or name.startswith("on")
    ]
    assert all(value.startswith("#") for name, value in reader.attributes if name.endswith("href"))
    assert all(target.startswith("#") for target in re.findall(r"url\(([^)]*)\)", text))


def test_links_and_sections_are_there_once(text: str, reader: Reader) -> None:
    ids = [value for name, value in reader.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    assert set(SECTIONS) <= set(ids)
    assert {value[1:] for name, value in reader.attributes if name == "href"} <= set(ids)
    assert reader.tags.count("svg") == 3
    for heading, _ in SECTIONS.values():
        assert heading in reader.text


def test_page_says_what_matters(reader: Reader, runs: dict[str, Run]) -> None:
    said = reader.text
    assert "FedRec++ with rho 2 gives the same model as FedRec with rho 0, bit for bit" in said
    assert "synthetic data" in said
    assert "FedRec++: Lossless Federated Recommendation with Explicit Feedback. AAAI 2021." in said
    assert "Threat model: the server is honest but curious" in said
    assert "virtual items of some client and their gradients, without its name" in said
    assert "a denoiser trains when it is asked to collect" in said
    assert runs["plain"].provenance.data_sha256 in said
    assert runs["plain"].folds[0].model_sha256[:12] in said
    assert "cold test cases" in said
    assert "No published table that comes with hushrec has a row with these settings and data." in said


def test_what_is_not_sent_reveals_nothing_and_is_named(text: str) -> None:
    """The runs of the page have neither shares nor secure sums."""
    assert ">ItemGradients<" in text
    for name in ("MaskedGradients", "MaskedNumbers"):
        assert f">{name}<" not in text
        assert name in text[text.index("Not sent with these settings: ") :]


def test_same_runs_same_page(text: str, runs: dict[str, Run]) -> None:
    assert page(list(runs.values())) == text


def test_hostile_names_are_escaped(hostile: Run) -> None:
    text = page([hostile])
    reader = Reader(text)
    assert "script" not in reader.tags
    assert "<script" not in text
    assert hostile.data in "".join(reader.words)


def test_no_ids_and_no_paths(text: str, tmp_path: Path) -> None:
    assert str(Path.home()) not in text
    assert "/tmp/" not in text
    assert "site-packages" not in text
    assert not re.search(r"user[_ ]id", text)


def test_published_values_are_shown(runs: dict[str, Run], monkeypatch: pytest.MonkeyPatch) -> None:
    ours = runs["plain"]
    given = {"RMSE": [round(ours.mean["RMSE"], 4), 0.001], "MAE": [9.0, 0.001]}
    row = published.Row("FedRec rho 0", "fedrec", ours.data, ours.config, given)
    table = published.Table("t", "Table 9", "paper", "accuracy", "", ["RMSE"], [row])
    monkeypatch.setattr(published, "tables", lambda: {("fedrec", "t"): table})
    said = Reader(page([ours])).text
    assert "ours published difference" in said
    assert "9.0000 ± 0.0010" in said
    assert "+0.0000" in said or "-0.0000" in said
    assert "within" in said
    assert "outside" in said
    assert "Table 9: FedRec rho 0" in said
    assert "Of 2 published values for these settings, 1 are met" in said


def test_identity_is_not_said_when_untrue(runs: dict[str, Run]) -> None:
    said = Reader(page([runs["plain"], runs["noisy"]])).text
    assert "bit for bit" not in said
    assert "No two of these runs end with the same model." in said


def test_real_data_is_not_called_synthetic(runs: dict[str, Run]) -> None:
    run = runs["plain"]
    real = replace(run, data="mine.csv", provenance=replace(run.provenance, is_synthetic=False))
    assert "synthetic" not in Reader(page([real])).text


def test_best_is_marked_only_among_the_same_test_sets(runs: dict[str, Run], text: str) -> None:
    assert 'class="number best"' in text
    other = replace(runs["noisy"], num_folds=1, folds=runs["noisy"].folds[:1])
    assert 'class="number best"' not in page([runs["plain"], other])


def test_runs_without_test_or_curves(runs: dict[str, Run]) -> None:
    run = runs["plain"]
    fitted = replace(run, num_folds=1, folds=[replace(run.folds[0], metrics={}, curve={})])
    said = Reader(page([fitted])).text
    assert "there is no accuracy to show" in said
    assert "kept no learning curves" in said


def test_unfinished_runs_are_left_out_or_refused(runs: dict[str, Run]) -> None:
    empty = replace(runs["noisy"], folds=[])
    said = Reader(page([runs["plain"], empty])).text
    assert "FedRec rho 2: 0 of 2 folds finished" in said
    with pytest.raises(HushrecError, match="no run has a finished fold to report"):
        page([empty])


def test_write_report(runs: dict[str, Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hushrec.report.page.page", lambda runs, *_: f"{len(runs)} → page")
    path = write_report([runs["pmf"]], tmp_path / "new" / "report.html")
    assert path.read_text(encoding="utf-8") == "1 → page"
    with pytest.raises(HushrecError, match="cannot be written"):
        write_report([runs["pmf"]], tmp_path)


@pytest.mark.parametrize("name", SYSTEMS)
def test_every_system_has_what_the_page_needs(name: str) -> None:
    system = SYSTEMS[name]
    assert threat_model(system)
    for message in system.messages:
        assert reveals(message)
        assert message.sender in set(Role)
