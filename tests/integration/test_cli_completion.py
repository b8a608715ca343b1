"""Shell completion: what bash, fish and zsh offer for commands, options, values and resources."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Callable, Iterator

import pytest
from support import processes
from support.api import Api
from support.cli import Cli, Terminal, environment


@pytest.fixture
def shell_environment(cli: Cli, tmp_path: Path) -> dict[str, str]:
    """In which shells find the program, as their scripts call it."""
    (tmp_path / "fencegate").symlink_to(processes.fencegate_binary())
    path = f"{tmp_path}:{os.environ['PATH']}"
    return environment(cli.url, cli.key, PATH=path, ZDOTDIR=str(tmp_path), TERM="dumb")


def completed(script: Path, env: dict[str, str], words: str, line: str) -> list[str]:
    """Returns what bash offers for the last of the words, which are those of the line as bash splits it."""
    asked = (
        f"source {script}; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); COMP_LINE='{line}'; "
        'COMP_POINT=${#COMP_LINE}; _fencegate; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    return processes.run(["bash", "-c", asked], check=True, env=env).stdout.split()


def test_completion_bash_offers_commands_options_and_choices(
    cli: Cli, tmp_path: Path, shell_environment: dict[str, str]
) -> None:
    script = tmp_path / "fencegate.bash"
    script.write_text(cli.run("completion", "bash").stdout)
    subprocess.run(["bash", "-n", str(script)], check=True)

    def offered(words: str) -> list[str]:
        return completed(script, shell_environment, words, words.removesuffix("''"))

    assert offered("fencegate le") == ["leases"]
    assert {"serve", "dev", "migrate", "check", "status", "leases", "history", "lock", "completion"} <= set(
        offered("fencegate ''")
    )
    assert not [word for word in offered("fencegate ''") if word.startswith("__")]
    assert offered("fencegate history --tok") == ["--token-min", "--token-max"]
    assert offered("fencegate history --event write_rej") == ["write_rejected"]
    assert offered("fencegate dev --appendfsync al") == ["always"]
    assert offered("fencegate completion f") == ["fish"]
    assert "true" in offered("fencegate lock a -- tru")


def test_completion_fish_offers_options_choices_and_programs(
    cli: Cli, tmp_path: Path, shell_environment: dict[str, str]
) -> None:
    script = tmp_path / "fencegate.fish"
    script.write_text(cli.run("completion", "fish").stdout)

    def offered(words: str) -> list[str]:
        done = processes.run(
            ["fish", "--no-config", "-c", f"source {script}; complete -C '{words}'"], check=True, env=shell_environment
        )
        return [line.split("\t")[0] for line in done.stdout.splitlines()]

    assert offered("fencegate le") == ["leases"]
    assert offered("fencegate history --tok") == ["--token-max", "--token-min"]
    assert offered("fencegate history --event write_rej") == ["write_rejected"]
    assert offered("fencegate completion f") == ["fish"]
    assert "true" in offered("fencegate lock a -- tru")
    assert not offered("fencegate lock tru")


@pytest.mark.parametrize(
    "words, completed",
    [
        ("leas", "leases "),
        ("leases --pre", "leases --prefix "),
        ("history --event write_rej", "history --event write_rejected "),
        ("completion f", "completion fish "),
        ("lock --kill", "lock --kill-after "),
        ("lock a -- dirnam", "lock a -- dirname "),
    ],
)
def test_completion_zsh_offers_options_choices_and_programs(
    cli: Cli, tmp_path: Path, shell_environment: dict[str, str], words: str, completed: str
) -> None:
    (tmp_path / "_fencegate").write_text(cli.run("completion", "zsh").stdout)
    (tmp_path / ".zshrc").write_text(
        f"fpath=({tmp_path} $fpath); autoload -Uz compinit; compinit -u -D; unset zle_bracketed_paste; PS1='ready> '\n"
    )
    terminal = Terminal(["/bin/zsh", "-d", "-i"], shell_environment)
    terminal.expect("ready> ")
    terminal.type(f"fencegate {words}\t")
    terminal.expect(f"fencegate {completed.rstrip()}")
    terminal.type("\x15exit\n")
    terminal.end()


@pytest.fixture
def named_resource(api_a: Api, unique_name: Callable[[str], str]) -> Iterator[str]:
    """A resource with a lease, with characters in its name at which bash splits words."""
    name = unique_name("jobs/a:b@c")
    lease = api_a.must_acquire(name)
    yield name
    api_a.must_release(lease)


def test_completion_bash_offers_resources(
    cli: Cli, tmp_path: Path, shell_environment: dict[str, str], named_resource: str
) -> None:
    script = tmp_path / "fencegate.bash"
    script.write_text(cli.run("completion", "bash").stdout)
    before_colon, rest = named_resource.split(":", 1)
    for command in ("lock", "elect --ttl 5s", "history --resource"):
        begun = f"fencegate {command} {named_resource[:-4]}"
        assert completed(script, shell_environment, begun, begun) == [named_resource]
        line = f"fencegate {command} {before_colon}:"
        words = f"fencegate {command} {before_colon} : ''"  # bash splits at the colon, and replaces what follows it
        assert rest in completed(script, shell_environment, words, line), command


def test_completion_fish_and_zsh_offer_resources(
    cli: Cli, tmp_path: Path, shell_environment: dict[str, str], named_resource: str
) -> None:
    (tmp_path / "fencegate.fish").write_text(cli.run("completion", "fish").stdout)
    begun = named_resource[:-4]
    for words in ("lock", "elect --ttl 5s", "leases --prefix"):
        done = processes.run(
            ["fish", "--no-config", "-c", f"source {tmp_path}/fencegate.fish; complete -C 'fencegate {words} {begun}'"],
            check=True,
            env=shell_environment,
        )
        assert [line.split("\t")[0] for line in done.stdout.splitlines()] == [named_resource], (words, done)
    (tmp_path / "_fencegate").write_text(cli.run("completion", "zsh").stdout)
    (tmp_path / ".zshrc").write_text(
        f"fpath=({tmp_path} $fpath); autoload -Uz compinit; compinit -u -D; unset zle_bracketed_paste; PS1='ready> '\n"
    )
    terminal = Terminal(["/bin/zsh", "-d", "-i"], shell_environment)
    terminal.expect("ready> ")
    for words in ("lock", "history --resource"):
        terminal.type(f"fencegate {words} {begun}\t")
        terminal.expect(f"fencegate {words} {named_resource}")
        terminal.type("\x15")
    terminal.type("exit\n")
    terminal.end()


def test_completion_names_every_command(cli: Cli) -> None:
    offered = [line.split("\t")[0] for line in cli.run("__complete", "").stdout.splitlines()]
    listed = re.findall(r"^  ([a-z-]+) {2,}", cli.run("--help").stdout.partition("Subcommands:")[2], re.MULTILINE)
    assert len(listed) > 10 and set(listed) <= set(offered)
