"""The Java client and its adapters: builds them,
and runs the JUnit tests of tests/clients/java against two real gateways with faults."""

from __future__ import annotations

import hashlib
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any, Iterator

import pytest
from fault_site import KEYS, PASSWORD, FaultServer, Site, running_site
from support import processes
from support.documents import blocks_of
from support.stack import Stack

ROOT = processes.repository()
CLIENT = ROOT / "clients/java"
TESTS = ROOT / "tests/clients/java"
SPRING = [f"spring3-{part}" for part in ("aop", "beans", "core", "jdbc", "transaction")]  # Debian's name of Spring 4
JARS = [
    Path("/usr/share/java") / f"{name}.jar" for name in ("junit4", "hamcrest", "postgresql", "commons-logging", *SPRING)
]
CASES = sorted(
    f"{file.stem}.{method}"
    for file in TESTS.rglob("*Test.java")
    for method in re.findall(r"@Test\s+public void (\w+)\(", file.read_text())
)


def run(*command: object, **options: Any) -> str:
    done = processes.run(
        [str(word) for word in command], timeout=240, preexec_fn=processes.terminate_with_parent, **options
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-6000:]}{done.stderr[-6000:]}"
    return done.stdout


def class_path(built: Path) -> str:
    return ":".join(
        map(
            str,
            [
                built / "tests",
                built / "client",
                built / "shedlock",
                built / "spring-integration",
                built / "stubs",
                *JARS,
            ],
        )
    )


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the jars, the classes, the documentation and the tests."""
    folder = tmp_path_factory.mktemp("java")
    run(CLIENT / "build", folder)
    run(
        *"javac -Xlint:all,-processing,-path,-try -Werror --release 17 -encoding UTF-8 -cp".split(),
        class_path(folder),
        "-d",
        folder / "tests",
        *sorted(TESTS.rglob("*.java")),
    )
    return folder


@pytest.fixture(scope="module")
def site(stack: Stack) -> Iterator[Site]:
    with running_site(stack, "java") as made:
        yield made


@pytest.fixture(scope="module")
def outcomes(built: Path, site: Site) -> dict[str, str]:
    """What became of each JUnit test: `passed`, or the failure."""
    classes = sorted({case.split(".")[0] for case in CASES})
    log = built / "junit.log"
    with FaultServer(site) as server:
        properties = {
            "gateways": " ".join(site.addresses),
            "faults": f"http://127.0.0.1:{server.server_port}/",
            "openapi": ROOT / "gateway/api/service/openapi.json",
            "jdbc": f"jdbc:postgresql://{site.database}?user={site.user}&password={PASSWORD}",
            **{f"key.{name}": key for name, key in KEYS.items()},
        }
        options = [f"-Dfencegate.{name}={value}" for name, value in properties.items()]
        process = processes.start(
            [
                "java",
                "-Xmx256m",
                "-XX:TieredStopAtLevel=1",
                *options,
                "-cp",
                class_path(built),
                "fencegate.client.Main",
                *classes,
            ],
            log,
        )
        server.serve_until_end(process, 1_200)
    text = log.read_text()
    assert process.returncode == 0, text[-4000:]
    return dict(re.findall(r"^CASE (\S+) (.*?)^END$", text, re.MULTILINE | re.DOTALL))


@pytest.mark.parametrize("case", CASES)
def test_java_case_passes(outcomes: dict[str, str], case: str) -> None:
    outcome = outcomes.get(case, "it was not run").strip()
    assert outcome == "passed", outcome


def test_jars_have_the_packages_and_no_stubs(built: Path) -> None:
    for name, package in (("client", "client"), ("shedlock", "shedlock"), ("spring-integration", "springintegration")):
        content = run("jar", "--list", "--file", built / f"fencegate-{name}.jar").split()
        classes = [each for each in content if each.endswith(".class")]
        assert classes and all(each.startswith(f"fencegate/{package}/") for each in classes), content
    assert (built / "api/fencegate/client/FencegateClient.html").is_file()


def test_repository_has_what_maven_looks_for(built: Path) -> None:
    for name in ("java", "client", "shedlock", "spring-integration"):
        folder = built / f"repository/fencegate/fencegate-{name}/1.0.0"
        pom = folder / f"fencegate-{name}-1.0.0.pom"
        source = CLIENT / ("" if name == "java" else name) / "pom.xml"
        assert pom.read_text() == source.read_text()
        artifacts = [pom]
        if name != "java":
            artifacts.append(pom.with_suffix(".jar"))
            assert artifacts[1].read_bytes() == (built / f"fencegate-{name}.jar").read_bytes()
        for file in artifacts:
            assert Path(f"{file}.sha1").read_text().strip() == hashlib.sha1(file.read_bytes()).hexdigest()


def test_client_uses_modules_of_the_jdk_alone(built: Path) -> None:
    needed = run("jdeps", "--print-module-deps", built / "fencegate-client.jar").strip()
    assert needed == "java.base,java.net.http,java.sql"


def test_projects_of_maven_are_consistent() -> None:
    """Maven does not run here; this checks what can be checked without its repository."""
    space = {"m": "http://maven.apache.org/POM/4.0.0"}
    parent = ElementTree.parse(CLIENT / "pom.xml").getroot()
    modules = [module.text for module in parent.findall("m:modules/m:module", space)]
    assert modules == ["client", "shedlock", "spring-integration"]
    version = re.search(r"project\(fencegate VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text())
    versions = {version and version[1], parent.findtext("m:version", namespaces=space)}
    for module in modules:
        pom = ElementTree.parse(CLIENT / str(module) / "pom.xml").getroot()
        assert (
            pom.findtext("m:artifactId", namespaces=space) == f"fencegate-{module}"
            and (CLIENT / str(module) / "src/main/java").is_dir()
        )
        versions.add(pom.findtext("m:parent/m:version", namespaces=space))
    assert len(versions) == 1


def test_first_example_of_readme_runs_as_pasted(built: Path, stack: Stack, tmp_path: Path) -> None:
    block = next(block for block in blocks_of(CLIENT / "README.md", ROOT) if block.language == "java")
    source = block.text.replace("http://localhost:8080", stack.facts["http"])
    assert source != block.text
    (tmp_path / "Example.java").write_text(source)
    before = stack.query("select stock from inventory where sku = 'sku-1'")[0][0]
    shown = run("java", "-XX:TieredStopAtLevel=1", "-cp", built / "fencegate-client.jar", tmp_path / "Example.java")
    assert re.fullmatch(r"token \d+: 1 piece sold\n", shown), shown
    assert stack.query("select stock from inventory where sku = 'sku-1'")[0][0] == before - 1
