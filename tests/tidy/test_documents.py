"""The documents agree with the tree: links and anchors exist, and documents and code list the same rules, tests,
alerts, problems and SQLSTATEs."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
from fnmatch import fnmatchcase
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any, Iterator

import pytest

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"!?\[[^\]]*\]\(([^()\s]+)(?:\s+\"[^\"]*\")?\)")
HEADING = re.compile(r"^#{1,6} +(.*?) *#*$", re.MULTILINE)
FENCED = re.compile(r"^( *)(```+|~~~+).*?^\1\2 *$", re.MULTILINE | re.DOTALL)
CODE_SPAN = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)", re.DOTALL)


def tracked() -> list[Path]:
    """Returns the files that are or could be committed; in a copy without git, all files."""
    try:
        listed = subprocess.run(
            ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard"],
            capture_output=True,
            text=True,
            check=True,
        )
        names = listed.stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        names = [
            str(path.relative_to(ROOT))
            for path in ROOT.rglob("*")
            if not {"build", ".git", "__pycache__"} & set(path.parts)
        ]
    return sorted(path for path in (ROOT / name for name in names) if path.is_file())


FILES = tracked()
DOCUMENTS = [path for path in FILES if path.suffix == ".md"]
FOLDERS = {folder for path in FILES for folder in path.parents}
TEXTS = {".cpp", ".hpp", ".lua", ".sql", ".py", ".pml", ".tsv", ".md", ".yaml", ".conf", ".js", ".txt"}


def read(name: str) -> str:
    return (ROOT / name).read_text()


def anchor_of(heading: str) -> str:
    """Returns the anchor that GitHub and most renderers derive from a heading."""
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").replace("*", "")
    return re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")


def anchors_in(text: str) -> set[str]:
    anchors: set[str] = set()
    for heading in HEADING.findall(FENCED.sub("", text)):
        anchor, number = anchor_of(heading), 1
        while anchor in anchors:
            anchor = f"{anchor_of(heading)}-{number}"
            number += 1
        anchors.add(anchor)
    return anchors


@lru_cache(maxsize=None)
def anchors_of(path: Path) -> set[str]:
    return anchors_in(path.read_text())


def links_in(text: str) -> list[str]:
    return LINK.findall(CODE_SPAN.sub("", FENCED.sub("", text)))


def fault_of(link: str, document: Path) -> str | None:
    """Returns what is wrong with a link in this document; None if its target exists or is a URL."""
    if re.match(r"(https?|mailto):", link):
        return None
    target, _, anchor = link.partition("#")
    path = (document.parent / target).resolve() if target else document
    if path not in FILES and path not in FOLDERS:
        return f"{link}: no such file"
    if anchor and (path.suffix != ".md" or anchor not in anchors_of(path)):
        return f"{link}: no such heading"
    return None


@pytest.mark.parametrize("document", DOCUMENTS, ids=[str(path.relative_to(ROOT)) for path in DOCUMENTS])
def test_links_of_document_lead_to_files_and_headings(document: Path) -> None:
    assert not [fault for link in links_in(document.read_text()) if (fault := fault_of(link, document))]


def test_link_check_finds_missing_files_and_headings() -> None:
    text = (
        "# One\n## `Two`, *three*\n## One\n[a](#one) [b](#two-three) [c](#one-1) [d](#four) [e](none.md) "
        "[f](README.md#none)\n```\n[g](none.md)\n```\n`[h](none.md)`\n"
    )
    assert anchors_in(text) == {"one", "two-three", "one-1"}
    assert links_in(text) == ["#one", "#two-three", "#one-1", "#four", "none.md", "README.md#none"]
    assert [
        link
        for link in ["README.md", "README.md#none", "none.md", "sql", "https://example.org"]
        if fault_of(link, ROOT / "x.md")
    ] == ["README.md#none", "none.md"]


LISTED_FROM = 1500  # words: longer documents begin with a list of their headings


def without_code(text: str) -> str:
    return FENCED.sub("", text)


def fault_of_contents(text: str) -> str | None:
    """Returns how the list of contents, which links to headings before the first of level 2, differs from these."""
    text = without_code(text)
    before, *rest = re.split(r"^(?=## )", text, flags=re.MULTILINE)
    linked = [link[1:] for link in links_in(before) if link.startswith("#")]
    headings = [anchor_of(heading) for heading in re.findall(r"^## +(.*?) *#*$", "".join(rest), re.MULTILINE)]
    if not linked:
        return "no list of contents" if len(text.split()) > LISTED_FROM and len(headings) > 1 else None
    listed = [anchor for anchor in linked if anchor in headings]
    return None if listed == headings else f"the list has {listed}, the headings are {headings}"


def test_contents_of_documents_are_their_headings() -> None:
    found = {str(path.relative_to(ROOT)): fault for path in DOCUMENTS if (fault := fault_of_contents(path.read_text()))}
    assert not found


def test_contents_check_finds_missing_and_moved_headings() -> None:
    text = "# One\n- [A](#a) · [B](#b), [C](#c)\n\n## A\n### C\n```\n## D\n```\n## B\n"
    assert fault_of_contents(text) is None
    assert fault_of_contents(text + "## D\n") and fault_of_contents(text.replace("## A", "## E"))
    assert fault_of_contents(text.replace("[A](#a) · [B](#b)", "[B](#b) · [A](#a)"))
    long = "# One\n## A\n" + "word " * (LISTED_FROM + 1) + "\n## B\n"
    assert fault_of_contents(long) and fault_of_contents("# One\n## A\n## B\n") is None


# Rules of the protocol


def sections(text: str) -> dict[str, str]:
    """Returns the text under each heading of level 2 and 3, up to the next heading."""
    parts = re.split(r"^#{2,3} +(.*)$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2]))


def is_rule(name: str, rules: dict[str, str]) -> bool:
    number = re.fullmatch(r"(R\d+)([a-z]?)", name)
    if number is None:
        return name in rules or f"{name} (planned)" in rules
    return number[1] in rules and (not number[2] or f"({number[2]})" in rules[number[1]])


def test_cited_rules_exist_in_the_protocol() -> None:
    rules = sections(read("docs/protocol.md"))
    assert (
        is_rule("R8b", rules)
        and is_rule("UPGRADE", rules)
        and not any(is_rule(name, rules) for name in ["R11", "R8z", "R1b", "DOWNGRADE"])
    )
    found = []
    for path in FILES:
        if path.suffix not in TEXTS or path == Path(__file__):
            continue
        text = path.read_text()
        cited = set(re.findall(r"\bR\d+[a-z]?\b", text))
        for names in re.findall(r"(?i:protocol)\.md[,)]? ((?:[A-Z][A-Z-]+[ ,]*)+)", text):
            cited |= {name.strip() for name in names.split(",") if name.strip()}
        found += [f"{path.relative_to(ROOT)}: {name}" for name in sorted(cited) if not is_rule(name, rules)]
    assert not found


def cited_headings(text: str) -> list[tuple[str, str]]:
    """Returns (document, anchor) of each `NAME.md, "Heading"` and `NAME.md#anchor`;
    the anchor is empty where only a document is cited."""
    cited = [
        (document, anchor_of(heading)) for document, heading in re.findall(r'([\w./-]+\.md)[,:]? "([^"\n]+)"', text)
    ]
    return cited + [(document, anchor) for document, anchor in re.findall(r"([\w./-]+\.md)(?:#([\w-]+))?", text)]


def cited_document(name: str, source: Path) -> Path | None:
    """Finds a document by its path from the root, or from a folder above the file that cites it."""
    return next((folder / name for folder in [*source.parents][: -len(ROOT.parents)] if folder / name in FILES), None)


def test_documents_and_headings_cited_in_code_exist() -> None:
    assert cited_headings('docs/protocol.md, "State" and sql/README.md#the-recorder') == [
        ("docs/protocol.md", "state"),
        ("docs/protocol.md", ""),
        ("sql/README.md", "the-recorder"),
    ]
    assert cited_document("docs/guard.md", ROOT / "sql/install.sql") and not cited_document(
        "docs/none.md", ROOT / "sql/install.sql"
    )
    found = []
    for path in FILES:
        # Tests of documents create documents of their own.
        if path.suffix not in TEXTS - {".md"} or "document" in path.name:
            continue
        for name, anchor in cited_headings(path.read_text()):
            document = cited_document(name, path)
            if document is None or anchor and anchor not in anchors_of(document):
                found.append(f"{path.relative_to(ROOT)}: {name} {anchor}")
    assert not found


MUTATIONS = runpy.run_path(str(ROOT / "tests/sim/mutation_table.py"))


def test_rows_of_mutations_name_rules_and_tests_that_exist() -> None:
    rows, rules = MUTATIONS["read_table"](), sections(read("docs/protocol.md"))
    headings = [rule for rule, _ in groupby(row["rule"] for row in rows)]
    assert len(headings) == len(set(headings)), "the rows of a rule are not together"
    known = rules.keys() | {"Reports", "Lost writes", "The guard", "Shared leases", "Change of nodes"}
    assert not [row for row in rows if row["rule"] not in known or not row["left_out"] or not row["goes_wrong"]]
    tests = names_of_tests()
    assert not [row["seed"] for row in rows if not re.fullmatch(r"\d+|-", row["seed"]) and row["seed"] not in tests]
    patches = {path.stem for path in FILES if path.parent == ROOT / "tests/sim/mutations" and path.suffix == ".patch"}
    assert patches and not patches - {row["name"] for row in rows}


def test_checks_of_the_model_have_rows_and_results() -> None:
    checks = [line.split("\t") for line in read("tests/model/checks.tsv").splitlines() if not line.startswith("#")]
    shows_no_rule = {"not promised", "not empty", "old rule"}
    violated = sorted(check[0] for check in checks if check[1] == "violated" and check[3] not in shows_no_rule)
    assert violated and violated == sorted(check for row in MUTATIONS["read_table"]() for check in row["model"])
    recorded = [line.split("\t")[0] for line in read("tests/model/results.tsv").splitlines()[1:]]
    assert recorded == [check[0] for check in checks if check[2] == "suite"], "tests/model/run --all --record writes it"


# Lists that a document and the code share


def names_of_tests() -> set[str]:
    """Returns the functions of pytest, `suite.name` of googletest,
    the cases of tests/sql and the files of the tests."""
    names = {str(path.relative_to(ROOT)) for path in FILES if ROOT / "tests" in path.parents}
    names |= {path.stem for path in FILES if path.parent == ROOT / "tests/sql" and path.suffix == ".sql"}
    for path in FILES:
        if ROOT / "tests" in path.parents and path.suffix == ".py":
            names |= set(re.findall(r"^def (test_\w+)\(", path.read_text(), re.MULTILINE))
        elif ROOT / "tests" in path.parents and path.suffix == ".cpp":
            names |= {
                f"{suite}.{test}"
                for suite, test in re.findall(r"^TEST(?:_[FP])?\((\w+),\s*(\w+)\)", path.read_text(), re.MULTILINE)
            }
    return names


def unknown_tests(cited: list[str]) -> list[str]:
    """Returns the names that no test has; `…` or `*` in a name replaces any text."""
    tests = names_of_tests()
    patterns = [(name, ".*".join(map(re.escape, re.split("[…*]", name)))) for name in cited]
    return [name for name, pattern in patterns if not any(re.fullmatch(pattern, test) for test in tests)]


def items_of(text: str) -> list[str]:
    """Returns the items of the lists, without those of links to headings."""
    return re.findall(r"^- (?!\[).*?(?=^- |^#|^$|\Z)", text, re.MULTILINE | re.DOTALL)


def cited_tests(item: str) -> list[str]:
    """Returns the names of the tests, which an item has in brackets at its end."""
    last = re.search(r"\((`[^`]+`(?:,\s+`[^`]+`)*)\)\s*\Z", item)
    return re.findall(r"`([^`]+)`", last[1]) if last else []


def test_promises_each_name_tests_that_exist() -> None:
    text = read("docs/guarantees.md")
    assert "\n## Not promised\n" in text
    promised = text.partition("\n## Not promised\n")[0]
    cited = {promise: cited_tests(promise) for promise in items_of(promised)}
    assert len(cited) > 50 and not [promise for promise, names in cited.items() if not names]
    assert not unknown_tests([name for names in cited.values() for name in names])


def test_tests_of_threat_model_exist() -> None:
    """Each ability of an attacker has its tests."""
    before, after = read("docs/threat-model.md").split("\n## Secrets\n")
    abilities = items_of(before)
    assert abilities and not [ability for ability in abilities if not cited_tests(ability)]
    cited = [name for item in abilities + items_of(after) for name in cited_tests(item)]
    assert len(cited) > 50 and not unknown_tests(cited)


def test_tests_run_in_contributing_exist() -> None:
    table = sections(read("CONTRIBUTING.md"))["Test"]
    filters = re.findall(r"--gtest_filter='([^']+)'", table)
    assert len(filters) > 1 and not [
        each for each in filters if not any(fnmatchcase(name, each) for name in names_of_tests())
    ]
    assert not [name for name in re.findall(r"-k (\w+)", table) if name not in names_of_tests()]
    assert not [path for path in re.findall(r"\btests/[\w./]+", table) if not (ROOT / path).exists()]


def test_alerts_each_have_a_heading_in_operations() -> None:
    alerts = set(re.findall(r"^ *- alert: (\w+)$", read("config/prometheus/fencegate.rules.yml"), re.MULTILINE))
    assert alerts and alerts == set(sections(read("docs/operations/alerts.md")))


def test_alerts_each_have_a_runbook_and_a_panel() -> None:
    board = json.loads(read("config/grafana/fencegate.json"))
    shown = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    faults = []
    for rule in re.split(r"^ *- alert: ", read("config/prometheus/fencegate.rules.yml"), flags=re.MULTILINE)[1:]:
        name, expression = re.match(r"(\w+)\n *expr: (.*?)\n *(?:for|labels):", rule, re.DOTALL).groups()
        if f"runbook_url: docs/operations/alerts.md#{name.lower()}\n" not in rule:
            faults.append(f"{name}: runbook_url")
        for metric in set(re.findall(r"\b(?:fencegate|distributed_lock)_\w+|\bup\b", expression)):
            panels = [each for each in shown if re.search(rf"\b{metric}\b", each)]
            values = re.findall(rf'\b{metric}{{(?:slug|state)="([\w-]+)"', expression)
            if not any(all(value in each or "by (state)" in each for value in values) for each in panels):
                faults.append(f"{name}: no panel shows {metric} {values}")
    assert not faults, faults


def integers_in(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict) and "integer" in (schema.get("type") or ()):
        yield schema
    for part in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        yield from integers_in(part)


def test_integers_beyond_32_bits_are_described_as_int64() -> None:
    """Generated clients of many languages cut a token to 32 bits otherwise."""
    found = list(integers_in(json.loads(read("gateway/api/service/openapi.json"))))
    assert len(found) > 60
    large = [schema for schema in found if schema.get("maximum", 2**31) >= 2**31]
    assert not [schema for schema in large if schema.get("format") != "int64"]


def test_problems_are_all_in_the_http_contract() -> None:
    slugs = set(re.findall(r'"([a-z-]+)", \d{3}, "', read("gateway/http/codec/problem.cpp")))
    described = set(re.findall(r"[a-z][a-z-]+", sections(read("docs/http-api.md"))["Errors"]))
    assert len(slugs) > 20 and not slugs - described


def test_sqlstates_are_all_in_the_contract_of_the_guard() -> None:
    raised = {
        code
        for path in FILES
        if ROOT / "sql/schema" in path.parents
        for code in re.findall(r"errcode = '(FG\d{3})'", path.read_text())
    }
    described = set(re.findall(r"`(FG\d{3})`", sections(read("docs/guard.md"))["Errors"]))
    assert raised and raised == described


def test_versions_of_postgresql_are_those_tested() -> None:
    tested = re.findall(r"linux-x64@(\d+\.\d+)\.", read("tests/postgres/package.json"))
    named = re.search(r"Tested are ([\d., and]+),", read("docs/guard.md"))
    assert named and tested and re.findall(r"\d+\.\d+", named[1]) == tested


def test_events_of_the_history_are_all_in_the_http_contract() -> None:
    known = re.search(r"create domain fencing\.event_type .*?\)\);", read("sql/schema/020_schema.sql"), re.DOTALL)
    assert known
    events = set(re.findall(r"'([a-z]+_[a-z]+)'", known.group()))
    described = re.search(r"^- Events: .*?(?=^- )", read("docs/http-api.md"), re.MULTILINE | re.DOTALL)
    assert described and len(events) > 10 and events == set(re.findall(r"`([a-z]+_[a-z]+)`", described.group()))


def test_subcommands_are_all_in_the_command_line_page() -> None:
    commands = set(re.findall(r'add_subcommand\("(\w+)"|add_subcommand\(\s*"(\w+)"', read("gateway/main.cpp"))) | set(
        re.findall(r'\badd\(\s*"(\w+)"()', read("gateway/cli/commands.cpp"))
    )
    names = {first or second for first, second in commands}
    described = set(re.findall(r"`(\w+)`", read("docs/cli.md").split("## Exit codes")[0]))
    assert len(names) > 8 and not names - described
