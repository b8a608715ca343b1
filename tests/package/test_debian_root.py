"""The Debian package installed in a minimal Debian: installing, upgrading, removing,
and its gateways run by systemd."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import signal
from pathlib import Path
from typing import Any, Iterator

import pytest
from support import processes
from support.api import Api
from support.debian import Root, field_of
from support.documents import blocks_of
from support.package import run
from support.polling import eventually
from support.stack import Stack
from support.stack import running as running_stack

INSTALL = "docs/operations/install.md"
CONFIGURATION = "/etc/fencegate/fencegate.yaml"
UNITS = ("fencegate.service", "fencegate@second.service")
WATCHDOG_SECONDS = 10  # longer than a gateway on a busy machine may pause


@pytest.fixture(scope="module")
def root(folder: Path, package: Path) -> Iterator[Root]:
    """A Debian in which the package is installed."""
    if os.geteuid() != 0:
        pytest.skip("only root makes a Debian and runs systemd in it")
    made = Root(folder / "root", package)
    try:
        made.install(package)
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="module")
def next_package(folder: Path, package: Path) -> Path:
    """The package with a higher version, another configuration file and another unit."""
    tree = folder / "next"
    run("dpkg-deb", "--raw-extract", package, tree)
    control = tree / "DEBIAN/control"
    control.write_text(re.sub(r"^Version: .*$", "Version: 99.1", control.read_text(), flags=re.MULTILINE))
    (tree / CONFIGURATION.lstrip("/")).write_text("# of the next version\n")
    unit = tree / "lib/systemd/system/fencegate.service"
    unit.write_text(unit.read_text() + "# of the next version\n")
    run("dpkg-deb", "--root-owner-group", "-Znone", "--build", tree, folder / "fencegate_99.1_amd64.deb")
    return folder / "fencegate_99.1_amd64.deb"


def owner_and_mode(root: Root, path: str) -> str:
    return root.run("stat", "--format=%U:%G %a", path).strip()


def test_install_creates_user_and_protects_configuration(root: Root) -> None:
    assert root.run("fencegate", "--version").startswith("fencegate ")
    assert re.fullmatch(
        r"fencegate:x:(\d+):(\d+):fencegate gateway:/:/usr/sbin/nologin\n", root.run("getent", "passwd", "fencegate")
    )
    assert owner_and_mode(root, CONFIGURATION) == "root:fencegate 640"
    assert owner_and_mode(root, "/etc/fencegate") == "root:fencegate 750"
    assert owner_and_mode(root, "/var/log/fencegate") == "root:adm 750"
    assert (
        root.call("systemctl", "is-enabled", "fencegate.service").stdout == "disabled\n"
    ), "it needs a configuration first"


def test_units_are_valid_and_expose_little(root: Root) -> None:
    for unit in UNITS:
        done = root.call("systemd-analyze", "verify", "--man=no", unit)
        assert (done.returncode, done.stdout + done.stderr) == (0, ""), unit
        analysed = root.call(
            *"systemd-analyze security --offline=true --threshold=20".split(),
            f"/lib/systemd/system/{unit.replace('second', '')}",
        )
        print(analysed.stdout.strip().splitlines()[-1])
        assert analysed.returncode == 0, f"above 2.0\n{analysed.stdout}"


def test_unit_stop_time_is_what_the_documents_allow(root: Root) -> None:
    unit = root.path("/lib/systemd/system/fencegate.service").read_text()
    set_to = re.search(r"^TimeoutStopSec=(\d+)$", unit, re.MULTILINE)
    grace = re.search(
        r"^  shutdown_grace_ms: (\d+) ", (processes.repository() / "config/fencegate.yaml").read_text(), re.MULTILINE
    )
    allowed = re.search(
        r"After SIGTERM allow (\d+) seconds more than `http.shutdown_grace_ms`",
        (processes.repository() / INSTALL).read_text(),
    )
    assert set_to and grace and allowed and int(set_to[1]) >= int(allowed[1]) + int(grace[1]) / 1000


def test_logrotate_empties_an_open_log_in_place(root: Root) -> None:
    log = root.path("/var/log/fencegate/first.log")
    with open(log, "a") as file:
        file.write("early\n")
        file.flush()
        root.run("logrotate", "--force", "/etc/logrotate.d/fencegate")
        file.write("late\n")
    assert log.read_text() == "late\n" and log.with_suffix(".log.1").read_text() == "early\n"


# systemd


def configure(root: Root, stack: Stack, name: str) -> int:
    """Writes the configuration of a gateway that uses the nodes and the database of the stack into the folder /srv.
    Returns its port."""
    port = processes.free_port()
    postgres = stack.facts["postgres"]
    password = (stack.data / "postgres-fencegate.password").read_text().strip()
    settings: dict[str, Any] = {
        "http": {"port": port, "threads": 2},
        "lease": {"signing_key_file": "signing.key"},
        "redis": {
            "node_timeout_ms": 1_000,
            "nodes": [
                {
                    **{key: node[key] for key in ("name", "host", "port")},
                    "username": "default",
                    "password_file": "redis.password",
                }
                for node in stack.facts["redis"]
            ],
        },
        "postgres": {
            "conninfo": (
                f"host=localhost port={postgres['port']} dbname={postgres['database']} user=fencegate "
                f"password={password}"
            )
        },
    }
    root.path(f"/srv/{name}.yaml").write_text(json.dumps(settings))
    return port


def documented_commands() -> str:
    """Returns the commands of the document that start two gateways, with dpkg in place of apt,
    which the minimal Debian lacks."""
    [block] = [
        block
        for block in blocks_of(processes.repository() / INSTALL, processes.repository())
        if "test_debian_root.py" in block.words
    ]
    return block.text.replace("apt-get install", "dpkg --install")


@pytest.fixture(scope="module")
def ports(root: Root, package: Path) -> Iterator[dict[str, int]]:
    """Runs systemd with two gateways, of the unit and of its template. Returns their ports by unit."""
    with running_stack() as stack:
        made = {unit: configure(root, stack, name) for unit, name in zip(UNITS, ("fencegate", "second"))}
        shutil.copy(stack.data / "signing.key", root.path("/srv/signing.key"))
        shutil.copy(package.parent / "SHA256SUMS", root.path("/srv/SHA256SUMS"))
        root.path("/srv/redis.password").write_text("any: the default user of these nodes needs none\n")
        override = root.path("/etc/systemd/system/fencegate@second.service.d/watchdog.conf")
        override.parent.mkdir(parents=True)
        override.write_text(f"[Service]\nWatchdogSec={WATCHDOG_SECONDS}\n")
        root.start()
        started = root.call("sh", "-exc", f"cd /srv\n{documented_commands()}", timeout=180)
        assert started.returncode == 0, (
            started.stdout + started.stderr + root.call("journalctl", "--output=cat", "--unit=fencegate*").stdout
        )
        yield made
        root.stop()


def test_systemd_starts_gateways_that_take_leases_and_write(root: Root, ports: dict[str, int]) -> None:
    """`systemctl start` returns when they listen, and what the units forbid is not needed."""
    for unit, port in ports.items():
        assert root.property(unit, "ActiveState") == "active"
        assert root.property(unit, "StatusText") == f"listens on http://127.0.0.1:{port}"
        api = Api(f"http://127.0.0.1:{port}")
        eventually(lambda: api.get("/readyz").status == 200, goal="the gateway is ready")
        lease = api.must_acquire("inventory/sku-1")
        api.must_write(lease, {"update": "inventory", "where": {"sku": "sku-1"}, "set": {"note": unit}})
        api.must_release(lease)
        pid = root.pid_here(root.property(unit, "MainPID"))
        files = re.search(r"^Max open files +(\d+) ", Path(f"/proc/{pid}/limits").read_text(), re.MULTILINE)
        assert files and int(files[1]) in (
            65_536,
            resource.getrlimit(resource.RLIMIT_NOFILE)[1],
        )  # a container may not raise its own limit
        status = Path(f"/proc/{pid}/status").read_text()
        assert re.search(r"^CapBnd:\t0+$", status, re.MULTILINE) and not re.search(r"^Uid:\t0\t", status, re.MULTILINE)
        assert '"level":"info"' in root.run("journalctl", "--unit", unit, "--output=cat")


def test_systemd_shows_whether_a_reload_was_applied(root: Root, ports: dict[str, int]) -> None:
    unit = UNITS[1]
    restarts = root.property(unit, "NRestarts")
    listens = f"listens on http://127.0.0.1:{ports[unit]}"
    file = root.path("/etc/fencegate/second.yaml")
    right = file.read_text()
    try:
        file.write_text("colour: red")
        root.run("systemctl", "reload", unit)
        eventually(
            lambda: root.property(unit, "StatusText").startswith(f"{listens}; the last reload was refused"),
            goal="the status says so",
        )
    finally:
        file.write_text(right)
    root.run("systemctl", "reload", unit)
    eventually(lambda: root.property(unit, "StatusText") == listens, goal="the status says so")
    assert root.property(unit, "NRestarts") == restarts


def test_systemd_replaces_a_gateway_that_hangs(root: Root, ports: dict[str, int]) -> None:
    """tests/integration/test_service_manager.py has the cases of single threads."""
    unit = UNITS[1]
    before = root.property(unit, "MainPID")
    restarts = {name: int(root.property(name, "NRestarts")) for name in UNITS}
    os.kill(root.pid_here(before), signal.SIGSTOP)
    eventually(
        lambda: int(root.property(unit, "NRestarts")) > restarts[unit]
        and root.property(unit, "ActiveState") == "active",
        WATCHDOG_SECONDS + 30,
        interval=0.2,
        goal="another gateway runs",
    )
    assert root.property(unit, "MainPID") != before
    assert "Watchdog timeout" in root.run("journalctl", "--unit", unit)
    assert int(root.property(UNITS[0], "NRestarts")) == restarts[UNITS[0]]


def test_upgrade_keeps_configuration_and_running_gateways(
    root: Root, ports: dict[str, int], next_package: Path
) -> None:
    """The operator migrates and checks with the new program first, then restarts the gateways one after the other."""
    before = {unit: root.property(unit, "MainPID") for unit in UNITS}
    own = root.path(CONFIGURATION).read_text()
    root.run("chmod", "0600", CONFIGURATION)
    root.install(next_package)
    assert (
        root.run("dpkg-query", "--show", "--showformat=${Version}", "fencegate")
        == field_of(next_package, "Version")
        == "99.1"
    )
    assert root.path(CONFIGURATION).read_text() == own and owner_and_mode(root, CONFIGURATION) == "root:fencegate 600"
    assert root.path(f"{CONFIGURATION}.dpkg-dist").read_text() == "# of the next version\n"
    assert {unit: root.property(unit, "MainPID") for unit in UNITS} == before
    assert "# of the next version" in root.path("/lib/systemd/system/fencegate.service").read_text()
    assert root.property(UNITS[0], "NeedDaemonReload") == "no"


def test_upgrade_leaves_a_stopped_gateway_stopped(root: Root, ports: dict[str, int], next_package: Path) -> None:
    """An operator who has stopped every gateway, as before a restore, may upgrade meanwhile."""
    root.run("systemctl", "stop", UNITS[0])
    root.install(next_package)
    assert root.property(UNITS[0], "ActiveState") == "inactive"
    assert root.property(UNITS[1], "ActiveState") == "active"
    root.run("chmod", "0640", CONFIGURATION)  # the test before has set a mode with which no gateway starts
    root.run("systemctl", "start", UNITS[0])


def test_remove_stops_gateways_and_purge_leaves_only_keys(root: Root, ports: dict[str, int]) -> None:
    root.run("dpkg", "--remove", "fencegate")
    for unit, port in ports.items():
        assert not processes.accepts(port), unit
        assert root.property(unit, "Result") == "success", "they have ended in time"
    assert root.path(CONFIGURATION).exists() and not root.path("/usr/bin/fencegate").exists()
    root.run("dpkg", "--purge", "fencegate")
    assert sorted(path.name for path in root.path("/etc/fencegate").iterdir()) == [
        "redis.password",
        "second.yaml",
        "signing.key",
    ], "what the package did not bring stays"
    for path in (
        "/var/log/fencegate",
        "/etc/logrotate.d/fencegate",
        "/lib/systemd/system/fencegate.service",
        "/usr/share/doc/fencegate",
    ):
        assert not root.path(path).exists(), path
    assert root.run("getent", "passwd", "fencegate"), "its user stays, because files of it may"
