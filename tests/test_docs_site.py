"""The documentation site: nothing public is missing on it, its examples run, its links lead somewhere."""

import doctest
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from dataclasses import fields
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import hushrec
from hushrec.protocol.declared import reveals
from hushrec.registry import SYSTEMS

BASE = Path(__file__).parents[1]
DOCS = BASE / "docs"
sys.path.insert(0, str(DOCS / "_ext"))

import hushrec_docs  # noqa: E402  # which is beside the pages that it makes
from hushrec_docs import api, command_pages, llms, rounds, sequence, system_pages, texts  # noqa: E402

API_PAGES = sorted((DOCS / "api").glob("*.md"))
OWN = [name for name in SYSTEMS if SYSTEMS.is_built_in(name)]
COMMAND_PAGES = command_pages.pages()
SYSTEM_PAGES = system_pages.pages()


# --- Python ------------------------------------------------------------------------------------------------


def test_every_public_name_has_its_place_and_only_one() -> None:
    asked = [name for path in API_PAGES for name in api.asked_for(path.read_text(encoding="utf-8"))]
    assert sorted(asked) == sorted(api.public_names())
    assert {f"hushrec.{name}" for name in (*hushrec.__all__, *api.class_names())} <= set(asked)


def sections(text: str) -> Iterator[str]:
    """The parts of a page between headings."""
    yield from re.split(r"^#+ .*$", text, flags=re.MULTILINE)


@pytest.mark.parametrize("name", api.public_names())
def test_every_public_name_has_words_and_an_example(name: str) -> None:
    short = name.rpartition(".")[2]
    if short in api.class_names():
        text = api.example_of(SYSTEMS[api.class_names()[short]])
    else:
        found = [
            part for path in API_PAGES for part in sections(path.read_text(encoding="utf-8"))
            if name in api.asked_for(part)
        ]  # fmt: skip
        assert len(found) == 1
        text = api.expanded(found[0])
    examples = [line for line in text.splitlines() if re.match(r">>> |\.\.\. ", line)]
    assert any(re.search(rf"\b{short}\b", line) for line in examples), f"no example of {name}"
    said = re.sub(r"```+[^\n]*|^(>>>|\.\.\.).*$", "", text, flags=re.MULTILINE)
    assert re.search(r"[a-z]{3,} [a-z]{2,}", said) or short in api.class_names(), f"{name} is not described"


@pytest.mark.parametrize("path", API_PAGES, ids=lambda path: path.name)
def test_the_examples_of_the_reference_run(path: Path, recwarn: pytest.WarningsRecorder) -> None:
    ended = doctest.testfile(str(path), module_relative=False, optionflags=doctest.IGNORE_EXCEPTION_DETAIL)
    assert ended.failed == 0
    assert ended.attempted > 5 or path.name in ("index.md", "estimators.md")


@pytest.mark.slow
@pytest.mark.parametrize("name", OWN)
def test_the_example_of_every_system_runs(name: str) -> None:
    test = doctest.DocTestParser().get_doctest(api.example_of(SYSTEMS[name]), {}, name, None, 0)
    ended = doctest.DocTestRunner().run(test)
    assert ended.failed == 0
    assert ended.attempted == 5


def test_signatures_are_those_of_the_source() -> None:
    told = "\n".join(api.described("hushrec.random_share"))
    assert "hushrec.random_share(data: Interactions, test_share: float=0.2, seed: int=0) -> Split" in told
    told = "\n".join(api.described("hushrec.protocol.Cohort"))
    assert "- `numbers` (`Numbers`): who they are in the run" in told


# --- The command line --------------------------------------------------------------------------------------


def test_every_command_has_a_page_and_is_listed() -> None:
    verbs = {leaf.words[1] for leaf in command_pages.leaves()}
    assert verbs | {"index"} == set(COMMAND_PAGES)
    assert len(command_pages.leaves()) > 60
    for verb in verbs:
        assert f"]({verb}.md)" in COMMAND_PAGES["index"]


@pytest.mark.parametrize("leaf", command_pages.leaves(), ids=lambda leaf: leaf.name)
def test_every_option_is_on_a_page_with_its_meaning(leaf: command_pages.Leaf) -> None:
    page = COMMAND_PAGES[leaf.words[1]]
    own = SYSTEM_PAGES.get(command_pages.page_name(leaf.words[-1]), "")
    for option in leaf.options:
        if "--help" in option.opts:
            continue
        is_of_system = command_pages.is_setting(option) and leaf.is_of_system
        text = own if is_of_system and option.name != "preset" else page
        for flag in command_pages.flags(option):
            assert f"`{flag}`" in text, f"{leaf.name} {flag}"
        assert option.help, f"{leaf.name} {option.opts[0]} says nothing"
        assert texts.cell(texts.escaped(option.help)) in text or option.name == "preset", option.opts[0]


# --- Systems -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OWN)
def test_a_systems_page_has_its_messages_settings_and_numbers(name: str) -> None:
    system, page = SYSTEMS[name], SYSTEM_PAGES[command_pages.page_name(name)]
    for heading in ("The round", "Threat model", "Symbols", "The round as a picture", "What each message reveals",
                    "Settings", "Published and ours", "Audit"):  # fmt: skip
        assert f"\n## {heading}\n" in page, heading
    for message in system.messages:
        assert f"| `{message.__name__}` |" in page
        assert texts.cell(texts.escaped(reveals(message))) in page
    for setting in fields(system.config):
        assert f"| `{setting.name}` |" in page
        assert texts.cell(texts.escaped(setting.metadata["help"])) in page
    assert f"hushrec.{system.about.class_name}" in page
    assert page.count("<svg") == len(rounds.read_rounds()[name])


def test_numbers_of_papers_stand_beside_ours() -> None:
    """Table 2 of FedRec++ on ML-100K: RMSE of FedRec with rho 0 is published and measured as 0.94."""
    rows = re.findall(
        r"^\| FedRec\+\+, Table 2 \| ml-100k \|.*\| RMSE \|(.*)$", SYSTEM_PAGES["fedrec"], re.MULTILINE
    )
    assert len(rows) >= 3
    for row in rows:
        published, ours, verdict = (cell.strip() for cell in row.strip(" |").split("|"))
        assert abs(float(published) - float(ours)) < 0.02
        assert verdict in ("within", "near", "off")
    assert "No number that a paper gives" in SYSTEM_PAGES["sdcf"]
    assert "1.00 ratings from one upload" in SYSTEM_PAGES["fedrec-plus-plus"]


def test_every_message_is_drawn_or_stands_for_one_that_is() -> None:
    for name in OWN:
        drawn = {step["message"] for kept in rounds.read_rounds()[name] for step in kept["steps"]}
        known = {message.__name__: message for message in SYSTEMS[name].messages}
        assert drawn <= set(known)
        missing = {kind for kind, message in known.items() if kind not in drawn and not message.is_stand_in}
        assert missing <= {"Settle", "Settled"}, f"{name}: {missing} is in no picture"


@pytest.mark.slow
@pytest.mark.parametrize("name", OWN)
def test_the_pictures_are_of_rounds_as_they_are(name: str) -> None:
    assert rounds.recorded(name) == rounds.read_rounds()[name], "run: python tools/rounds.py"


def test_a_picture_is_svg_with_names_words_and_mail() -> None:
    steps = [
        sequence.Step("Ask", "server", "client", "nothing"),
        sequence.Step("Letter", "client", "denoiser", "much & more " * 40, is_mail=True, note="first round"),
        sequence.Step("Talk", "partner", "partner", "all"),
    ]
    picture = sequence.drawing(steps, "A round of <toy>")
    root = ElementTree.fromstring(picture)
    space = "{http://www.w3.org/2000/svg}"
    shown = [text.text or "" for text in root.iter(f"{space}text")]
    assert {"server", "client", "denoiser", "partner", "1. Ask", "2. Letter (sealed, first round)"} <= set(shown)
    assert [text for text in shown if text.endswith(" ...")]
    assert root.find(f"{space}title").text == "A round of <toy>"  # type: ignore[union-attr]
    assert len([path for path in root.iter(f"{space}path") if path.get("class") == "mail"]) == 1
    _, _, width, height = (float(number) for number in root.get("viewBox", "").split())
    for text in root.iter(f"{space}text"):
        assert 0 < float(text.get("y", "0")) < height
        assert 0 < float(text.get("x", "0")) < width


# --- Pages and links ---------------------------------------------------------------------------------------


def written_pages() -> list[Path]:
    """Pages that people write."""
    found = [
        path for path in DOCS.rglob("*.md") if not {"_build", "reference"} & set(path.relative_to(DOCS).parts)
    ]
    return sorted([BASE / "README.md", *found])


def slug(heading: str) -> str:
    """The anchor of a heading, as forges and MyST make it."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").strip().lower()
    return re.sub(r"\s", "-", re.sub(r"[^\w\- ]", "", plain))


def without_code(text: str) -> str:
    return re.sub(r"^(`{3,}).*?^\1$", "", text, flags=re.MULTILINE | re.DOTALL)


def text_of(path: Path) -> str | None:
    """The text of a page, also of one that is made when the site is built."""
    parts = path.relative_to(DOCS).parts if path.is_relative_to(DOCS) else ()
    if parts[:2] == ("reference", "systems"):
        return SYSTEM_PAGES.get(path.stem)
    if parts[:2] == ("reference", "commands"):
        return COMMAND_PAGES.get(path.stem)
    if parts[:1] == ("reference",):
        path = BASE / "examples" / path.name
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else None


def links_of(text: str) -> list[str]:
    found = re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`\n]*`", "", without_code(text)))
    return [link for link in found if not re.match(r"https?:|mailto:", link)]


PAGES = {str(path.relative_to(BASE)): path for path in written_pages()}
MADE = {
    f"docs/reference/{room}/{name}.md": text
    for room, pages in (("systems", SYSTEM_PAGES), ("commands", COMMAND_PAGES))
    for name, text in pages.items()
}


@pytest.mark.parametrize("page", [*PAGES, *MADE])
def test_links_lead_somewhere(page: str) -> None:
    here = BASE / page
    text = MADE[page] if page in MADE else here.read_text(encoding="utf-8")
    for link in links_of(text):
        name, _, anchor = link.partition("#")
        target = (here.parent / name).resolve() if name else here
        told = text if target == here else text_of(target)
        assert told is not None, f"{page}: {link} leads nowhere"
        if anchor:
            headings = re.findall(r"^#+ (.*)$", without_code(told), re.MULTILINE)
            assert anchor in {slug(heading) for heading in headings}, f"{page}: no heading #{anchor}"


def test_the_checker_of_links_sees_wrong_ones() -> None:
    text = "[a](b.md#c)\n```\n[x](y)\n```\n`[z](w)` [web](https://example.org)\n"
    assert links_of(text) == ["b.md#c"]
    assert slug("What `sums` tell, (and) how-to") == "what-sums-tell-and-how-to"
    assert text_of(DOCS / "nosuch.md") is None
    assert text_of(DOCS / "reference" / "systems" / "nosuch.md") is None


def test_every_page_is_in_the_list_once() -> None:
    index = hushrec_docs.with_unlisted((DOCS / "index.md").read_text(encoding="utf-8"), DOCS)
    names = hushrec_docs.listed(index)
    assert len(names) == len(set(names))
    assert {path.stem for path in DOCS.glob("*.md")} - {"index"} == {name for name in names if "/" not in name}
    for folder in ("api", "tutorials"):
        own = hushrec_docs.listed((DOCS / folder / "index.md").read_text(encoding="utf-8"))
        assert {path.stem for path in (DOCS / folder).glob("*.md")} - {"index"} == {
            one for one in own if "/" not in one
        }


def test_a_page_that_turns_up_is_listed(tmp_path: Path) -> None:
    (tmp_path / "index.md").write_text("```{toctree}\n:hidden:\n\nold\n@unlisted\n```\n")
    (tmp_path / "old.md").write_text("# Old\n")
    (tmp_path / "new.md").write_text("# New\n")
    assert hushrec_docs.unlisted(tmp_path) == ["new"]
    filled = hushrec_docs.with_unlisted((tmp_path / "index.md").read_text(), tmp_path)
    assert hushrec_docs.listed(filled) == ["old", "new"]


def test_llms_txt_has_titles_addresses_and_a_sentence() -> None:
    pages = {"start": llms.Page("_sources/start.md", "Start", "# Start\n\nFive `minutes`. More.\n")}
    text = llms.llms_txt([("Begin", ["start"])], pages.__getitem__)
    assert text.startswith("# hushrec\n")
    assert text.endswith("## Begin\n\n- [Start](_sources/start.md): Five `minutes`.\n")


@pytest.mark.parametrize("module", [texts, llms, command_pages])
def test_the_examples_of_what_makes_the_site_run(module: Any) -> None:
    ended = doctest.testmod(module)
    assert ended.attempted > 0
    assert ended.failed == 0


# --- The site itself ---------------------------------------------------------------------------------------


class _Loads(HTMLParser):
    """What a browser would load, and where links within the site lead."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.links: list[str] = []
        self.ids: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        own = {name: value or "" for name, value in attrs}
        self.ids.add(own.get("id", ""))
        if tag == "a":
            self.links.append(own.get("href", ""))
        elif tag == "link" and own.get("rel") not in ("canonical", "search", "next", "prev", "index"):
            self.loaded.append(own.get("href", ""))
        elif "src" in own:
            self.loaded.append(own["src"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` does; what was built before is taken for notebooks that did not change."""
    pytest.importorskip("sphinx", reason="the site is not built: pip install '.[docs]'")
    out = tmp_path_factory.mktemp("site")
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-W",
        "--keep-going",
        "-n",
        "-q",
        "-b",
        "html",
        "-d",
        str(out / "trees"),
    ]
    done = subprocess.run([*command, str(DOCS), str(out / "html")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return out / "html"


@pytest.mark.slow
def test_the_site_is_built_without_a_warning_and_loads_nothing_from_elsewhere(site: Path) -> None:
    parsed = {}
    for path in sorted(site.rglob("*.html")):
        reader = parsed[path] = _Loads()
        reader.feed(path.read_text(encoding="utf-8"))
        assert [where for where in reader.loaded if re.match(r"(https?:)?//", where)] == [], path
    assert len(parsed) > 85
    for path, reader in parsed.items():
        for link in reader.links:
            if re.match(r"https?:|mailto:|#$", link) or not link:
                continue
            name, _, anchor = link.partition("#")
            target = (path.parent / name).resolve() if name else path
            assert target.exists(), f"{path.name}: {link}"
            if anchor and target in parsed:
                assert anchor in parsed[target].ids, f"{path.name}: {link}"


@pytest.mark.slow
def test_notebooks_on_the_site_have_what_they_print_and_pictures(site: Path) -> None:
    for path in sorted((DOCS / "tutorials").glob("*.md")):
        if path.stem != "index":
            text = (site / "tutorials" / f"{path.stem}.html").read_text(encoding="utf-8")
            assert "cell_output" in text, path.name
            assert "Traceback" not in text, path.name


@pytest.mark.slow
def test_llms_txt_lists_every_page(site: Path) -> None:
    text = (site / "llms.txt").read_text(encoding="utf-8")
    addresses = re.findall(r"\]\((_sources/[^)]+)\)", text)
    assert len(addresses) == len(set(addresses)) > 85
    for address in addresses:
        assert (site / address).exists(), address
