"""Runs every command of README.md, CONTRIBUTING.md, docs/*.md and docs/operations/*.md in the order
of its page, next to a running stack, and checks the result that the page shows."""

from __future__ import annotations

import json
import os
import re
import shutil
import uuid
from pathlib import Path
from typing import Callable, Iterator

import pytest
from support import processes
from support.api import Api
from support.documents import (
    Block,
    Command,
    Shell,
    blocks_of,
    commands_of,
    differs,
    faults_of,
    has_words,
    missing_lines,
)
from support.stack import Stack, make_folder
from support.stack import running as running_stack

ROOT = processes.repository()
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(set((ROOT / "docs").glob("*.md")) - {ROOT / "docs/testing.md"}),  # which tests/clients runs
    *sorted((ROOT / "docs/operations").glob("*.md")),
]
BLOCKS = {str(page.relative_to(ROOT)): blocks_of(page, ROOT) for page in PAGES}
NOT_RUN_AT_MOST = 13


# Preparation of pages


class Page:
    """The environment of one page: a folder like the repository, and the addresses of the stack."""

    def __init__(self, stack: Stack, folder: Path) -> None:
        self.stack, self.folder, self.home = stack, folder, folder / "home"
        self.api: Api = stack.api()
        self.databases: list[str] = []
        self.answer: object = None
        self.home.mkdir()
        for name in ("gateway", "sql", "config", "tests"):
            (self.home / name).symlink_to(ROOT / name)
        (self.home / "var").mkdir()
        (self.home / "var" / "dev").symlink_to(stack.data)
        postgres = stack.facts["postgres"]
        self.variables = {
            "PGHOST": postgres["host"],
            "PGPORT": str(postgres["port"]),
            "PGUSER": postgres["superuser"],
            "PGDATABASE": postgres["database"],
            "FENCEGATE_URL": stack.facts["http"],
        }
        # Addresses and paths that differ from those in the pages.
        self.places = {
            "localhost:8080": stack.facts["http"].removeprefix("http://"),
            "/run/postgresql": postgres["host"],
            "fencegate dev ": "fencegate dev --http 127.0.0.1:0 ",
            "/var/tmp/fencegate": str(folder / "dev"),
        }

    def put_stock(self, stock: int) -> None:
        """Sets the stock of sku-1, independently of what other pages sold."""
        self.stack.query(
            "begin; select fencing.enter('inventory/sku-1', greatest(fencing.fence('inventory/sku-1'), 1));"
            f"update inventory set stock = {stock}, initial_stock = {stock} where sku = 'sku-1'; commit"
        )

    def make_database(self) -> str:
        self.databases.append(f"page_{uuid.uuid4().hex[:6]}")
        self.stack.query(f'create database "{self.databases[-1]}"')
        return self.databases[-1]

    def configure(self) -> None:
        """Writes fencegate.yaml and signing.key of another gateway for the nodes and the database of the stack."""
        settings = {
            "http": {"address": "127.0.0.1", "port": processes.free_port()},
            "lease": {"signing_key_file": "signing.key"},
            "redis": {
                "nodes": [{name: node[name] for name in ("name", "host", "port")} for node in self.stack.facts["redis"]]
            },
            "postgres": {"conninfo": self.stack.conninfo()},
        }
        (self.home / "fencegate.yaml").write_text(json.dumps(settings))  # JSON is YAML
        shutil.copy(self.stack.data / "signing.key", self.home)

    def refuse_a_write(self) -> None:
        """Causes an event: a write under a lease that was released."""
        lease = self.api.must_acquire("inventory/sku-5")
        self.api.call("DELETE", f"/v1/leases/{lease['lease_id']}?seal=true")
        assert (
            self.api.write(lease, {"update": "inventory", "where": {"sku": "sku-5"}, "set": {"note": "late"}}).status
            == 412
        )

    def text_of(self, block: Block) -> str:
        text = block.text
        for ours, theirs in self.places.items():
            text = text.replace(ours, theirs)
        return text


def prepare_cli(page: Page) -> None:
    page.configure()
    page.put_stock(10)
    page.stack.query("create database shop")
    page.databases.append("shop")
    for name in ("nightly", "ship", "mailer"):
        (page.home / name).write_text('#!/bin/sh\ntest -n "$FENCING_TOKEN" && echo done\n')
        (page.home / name).chmod(0o755)
    page.refuse_a_write()


def prepare_guard(page: Page) -> None:
    page.configure()
    page.variables["PGDATABASE"] = page.places["DATABASE"] = page.make_database()


def prepare_operations(page: Page) -> None:
    page.configure()


PREPARE: dict[str, Callable[[Page], None]] = {
    "README.md": lambda page: page.put_stock(10),
    "docs/cli.md": prepare_cli,
    "docs/guard.md": prepare_guard,
    "docs/http-api.md": lambda page: page.put_stock(20),
    **dict.fromkeys(
        ("docs/operations/install.md", "docs/operations/interventions.md", "docs/operations/load-balancer.md"),
        prepare_operations,
    ),
    "docs/scale.md": lambda page: None,
    "docs/your-own-table.md": lambda page: None,
}


@pytest.fixture(scope="module")
def pages_stack() -> Iterator[Stack]:
    with running_stack() as made:
        yield made


@pytest.fixture
def page(pages_stack: Stack) -> Iterator[Page]:
    folder = make_folder()
    made = Page(pages_stack, folder)
    try:
        yield made
    finally:
        for name in made.databases:
            pages_stack.query(f'drop database if exists "{name}" with (force)')
        shutil.rmtree(folder)


# Running


def run_block(page: Page, shell: Shell, block: Block) -> None:
    text = page.text_of(block)
    if block.directive == "file":
        (page.home / block.words).write_text(text)
    elif block.directive == "output of":
        [command] = commands_of(block.words)
        output = shell.run(command, page.refuse_a_write)
        if missing := missing_lines(block.text, output):
            raise AssertionError(f"{missing} are not in {output}")
    elif block.language == "json":
        if block.directive == "sent to":
            send(page, block)
        else:
            faults = differs(json.loads(block.text), page.answer)
            assert not faults, f"{faults}: {page.answer}"
    elif block.language == "sql":
        (page.home / "block.sql").write_text(text)
        [command] = commands_of('psql -X -q -v ON_ERROR_STOP=1 -v token="${token-}" -v lease_id="${id-}" -f block.sql')
        shell.run(command, page.refuse_a_write)
    else:
        for command in commands_of(text):
            shell.run(command, page.refuse_a_write)


def run_blocks(page: Page, shell: Shell, blocks: list[Block]) -> None:
    for block in blocks:
        try:
            if block.is_run:
                run_block(page, shell, block)
        except AssertionError as fault:
            raise AssertionError(f"{block.where}: {fault}") from None


def send(page: Page, block: Block) -> None:
    """Sends the block; the next JSON block of the page shows the answer."""
    body = json.loads(block.text)
    (method, path, *lease_words) = block.words.split()
    if lease_words:
        answer = page.api.post("/v1/leases", {"resources": lease_words[1:]})
        assert answer.status == 201, answer
        body["lease_id"] = answer.json()["lease_id"]
    sent = page.api.call(method, path, body)
    assert 200 <= sent.status < 300, sent
    page.answer = json.loads(sent.body)
    lease_id = body.get("lease_id") or sent.json()["lease_id"]
    assert page.api.call("DELETE", f"/v1/leases/{lease_id}").status == 204


@pytest.mark.parametrize("name", [name for name, blocks in BLOCKS.items() if any(block.is_run for block in blocks)])
def test_page_commands_have_the_results_shown(page: Page, name: str) -> None:
    PREPARE[name](page)
    clean = {name: value for name, value in os.environ.items() if not re.match(r"(FENCEGATE|FENCING|PG)", name)}
    shell = Shell(page.folder, {**clean, **page.variables})
    try:
        run_blocks(page, shell, BLOCKS[name])
    finally:
        shell.end()


# Blocks that are not run


def test_blocks_all_have_runner_or_reason() -> None:
    assert not [fault for blocks in BLOCKS.values() for fault in faults_of(blocks)]
    left_out = [
        f"{block.where}: {block.words}"
        for blocks in BLOCKS.values()
        for block in blocks
        if block.directive == "not run"
    ]
    run = sum(block.is_run for blocks in BLOCKS.values() for block in blocks)
    print(f"{run} blocks are run, {len(left_out)} are not:", *left_out, sep="\n")
    assert len(left_out) <= NOT_RUN_AT_MOST and all(len(reason.split(": ", 1)[1]) > 20 for reason in left_out), left_out
    assert run > 25


PAGE = """# A page
```sh
echo one
```
<!-- not run: it would destroy the machine -->
```sh
rm -rf /
```
```
an output without its command
```
- in a list
  ```python
  print()
  ```
<!-- sent to: POST /v1/leases -->
```json
{"resource": "a"}
```
```json
{"lease_id": "b"}
```
```json
{"shown": "alone"}
```
"""


def test_blocks_without_runner_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    blocks = blocks_of(page, tmp_path)
    assert [(block.where, block.is_run) for block in blocks] == [
        ("page.md:2", True),
        ("page.md:6", False),
        ("page.md:9", False),
        ("page.md:13", False),
        ("page.md:17", True),
        ("page.md:20", True),
        ("page.md:23", False),
    ]
    assert [fault.split(":")[1] for fault in faults_of(blocks)] == ["9", "13", "23"]
    page.write_text("<!-- not run: nothing can run it -->\ntext\n```sh\necho\n```\n")
    with pytest.raises(AssertionError, match="page.md:1"):
        blocks_of(page, tmp_path)


def test_commands_are_split_with_the_results_shown() -> None:
    text = (
        "# words\necho a \\\n  b  # => a b\n\nsql <<SQL  # => ERROR: no\nselect 1;\n# no comment\nSQL\nf() {\n"
        "  curl x; }\nserve  # => ready; until Ctrl-C\ncurl y  # => 204; words\ntrue  # words\n"
    )
    assert list(commands_of(text)) == [
        Command("echo a \\\n  b  # => a b\n", "a b", False),
        Command("sql <<SQL  # => ERROR: no\nselect 1;\n# no comment\nSQL\n", "ERROR: no", False),
        Command("f() {\n  curl x; }\n", "", False),
        Command("serve  # => ready; until Ctrl-C\n", "ready", True),
        Command("curl y  # => 204; words\n", "204", False),
        Command("true  # words\n", "", False),
    ]


def test_outputs_are_compared_by_form() -> None:
    shown = 'A< 201 {"id":"MQo4N2UyOWM4MDgz…","token":21474836481,…}\n  2026-11-21T05:11:39.172Z  granted  21474836481'
    real = (
        'more\nA< 201 {"id":"MQo0N2M0ZDA3MTNk…","token":21474836499,"more":1}\nmore\n'
        "2026-12-01T00:00:00.000Z granted 21474836499\n"
    )
    assert missing_lines(shown, real) == []
    assert missing_lines(shown, real.replace("201", "412")) == [shown.splitlines()[0]]
    assert missing_lines(shown, "\n".join(reversed(real.splitlines()))) == [shown.splitlines()[1]]
    assert has_words("412 stale-token", '412\n{"type": "/problems/stale-token"}') and not has_words(
        "412 stale-token", "stale-token\n412"
    )
    assert differs({"a": 1, "b": [{"c": "x"}]}, {"a": 2, "b": [{"c": "y", "d": 0}], "e": None}) == []
    assert differs({"a": 1, "b": [{"c": "x"}], "e": 1}, {"a": "1", "b": [{}]}) == ["/a", "/b/0/c", "/e"]


@pytest.mark.parametrize(
    "command",
    ["false", "curl -s localhost:8080/v1/nothing", "echo a  # => b", "curl -s localhost:8080/healthz  # => 404"],
)
def test_command_that_differs_from_page_is_found(page: Page, command: str) -> None:
    shell = Shell(page.folder, dict(os.environ))
    try:
        with pytest.raises(AssertionError, match="page.md:1"):
            run_blocks(page, shell, [Block("page.md:1", "sh", f"{command}\n")])
    finally:
        shell.end()
