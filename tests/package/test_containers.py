"""docker/: the image's steps in a bare Debian 12, and the services of the Compose files as processes."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Iterator

import psycopg2
import pytest
from support import processes
from support.api import Api
from support.containers import Containers, Image, read_compose
from support.package import run
from support.polling import eventually
from support.stack import make_folder

ROOT = processes.repository()
DOCKER = ROOT / "docker"
USER = "10001"

# What the entrypoint of the image `postgres` does before it runs the command.
POSTGRES_ENTRYPOINT = r"""
if [[ ! -s $PGDATA/PG_VERSION ]]; then
    initdb --username "$POSTGRES_USER" --pwfile <(echo "$POSTGRES_PASSWORD")
    echo 'host all all all scram-sha-256' >>"$PGDATA/pg_hba.conf"
    pg_ctl -w start -o "-c listen_addresses= $(printf '%q ' "${@:2}")"
    createdb --username "$POSTGRES_USER" "$POSTGRES_DB"
    for script in /docker-entrypoint-initdb.d/*.sh; do "$script"; done
    pg_ctl -w stop
fi
exec "$@" -c listen_addresses='*'
"""


def dockerfile(instruction: str, image: int = -1) -> list[str]:
    """Returns the argument list of an instruction for an image of the Dockerfile: the first, dev, or the last."""
    found = re.findall(rf"^{instruction}.*?(\[.*\])$", (DOCKER / "Dockerfile").read_text(), re.MULTILINE)
    return json.loads(found[image])


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    if os.geteuid() != 0 or subprocess.run(["unshare", "--net", "--mount", "true"]).returncode != 0:
        pytest.skip("it needs root and namespaces of its own")
    made = make_folder()
    yield made
    shutil.rmtree(made)


def in_root(root: Path, *command: object, user: str = "0", volumes: str = "") -> str:
    """Runs a command as `docker build` does: in the root of the image, with this machine's network."""
    script = (
        f'cd "$1"; for name in proc dev; do mount --rbind /$name $name; done; {volumes} shift; '
        f'exec chroot --userspec={user}:{user} . "$@"'
    )
    return run(
        *"env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin unshare --mount bash -euc".split(),
        script,
        "in_root",
        root,
        *command,
    )


def build_image(folder: Path, name: str) -> Path:
    """Makes an image's root by the steps of its stage; the program is that of the build under test."""
    bare = ROOT / "build" / "tests" / "bookworm.tar"  # kept, because it takes a minute
    if not bare.exists():
        bare.parent.mkdir(parents=True, exist_ok=True)
        run("mmdebstrap", "--variant=minbase", "--quiet", "bookworm", f"{bare}.new.tar")
        Path(f"{bare}.new.tar").rename(bare)
    made = folder / name
    made.mkdir()
    run("tar", "--extract", "--file", bare, "--directory", made, "--numeric-owner")
    shutil.copy("/etc/resolv.conf", made / "etc" / "resolv.conf")
    [built] = re.findall(
        r"^RUN docker/collect-program (\S+) /program$", (DOCKER / "Dockerfile").read_text(), re.MULTILINE
    )
    assert (
        f"FENCEGATE_BINARY=$PWD/{built}`" in (ROOT / "CONTRIBUTING.md").read_text()
    ), "the Dockerfile takes what the preset builds"
    if not (folder / "program").exists():
        run(DOCKER / "collect-program", processes.fencegate_binary(), folder / "program")
    volumes = " ".join(
        f'mkdir .{target}; mount --bind "{source}" .{target};'
        for source, target in ((DOCKER, "/docker"), (folder / "program", "/program"))
    )
    stage = (DOCKER / "Dockerfile").read_text().split("FROM ")[{"dev": 2, "gateway": 3}[name]]
    [step] = re.findall(r"^ +(/docker/build-image-root .*)$", stage, re.MULTILINE)
    in_root(made, *step.split(), volumes=volumes)
    return made


@pytest.fixture(scope="module")
def image(folder: Path) -> Path:
    return build_image(folder, "gateway")


def test_image_has_program_user_and_no_build_tools(image: Path) -> None:
    assert re.search(r"^USER 10001:10001$", (DOCKER / "Dockerfile").read_text(), re.MULTILINE)
    assert in_root(image, "id", "--name", "--user", user=USER) == "fencegate\n"
    [program] = dockerfile("ENTRYPOINT")
    assert in_root(image, program, "--version", user=USER).startswith("fencegate ")
    sbom = json.loads((image / "usr/share/doc/fencegate/fencegate.spdx.json").read_text())
    assert sbom["packages"][0]["checksums"][0]["checksumValue"] in run("sha256sum", image / program.lstrip("/"))
    assert not [name for name in ("g++", "cmake", "curl", "python3") if (image / "usr/bin" / name).exists()]
    assert not list((image / "var/lib/apt/lists").iterdir())


def test_dev_image_serves_callers_outside_with_known_secret(folder: Path) -> None:
    root = build_image(folder, "dev")
    http, postgres = processes.free_port(), processes.free_port()
    secret = "knownToTheTest"
    command = [*dockerfile("ENTRYPOINT", 0), *dockerfile("CMD", 0)]
    assert command.count("0.0.0.0:8080") == 1 and command.count("0.0.0.0:5432") == 1, "the ports of EXPOSE"
    command = [word.replace(":8080", f":{http}").replace(":5432", f":{postgres}") for word in command]
    script = (
        f'cd "$1"; shift; mount -t proc proc proc; mount --rbind /dev dev; exec chroot --userspec={USER}:{USER} . "$@"'
    )
    log = folder / "dev.log"
    started = processes.start(
        [
            *f"env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin FENCEGATE_DEV_SECRET={secret}".split(),
            *"unshare --mount --pid --fork --kill-child bash -euc".split(),
            script,
            "in_root",
            str(root),
            *command,
        ],
        log,
    )
    try:
        eventually(lambda: "Ready after" in log.read_text(), 120, goal="the stack is ready")
        check = ["env", f"FENCEGATE_PORT={http}", *dockerfile("HEALTHCHECK", 0)]
        in_root(root, *check, user=USER)
        api = Api(f"http://127.0.0.1:{http}", key=f"api-orders-{secret}")
        assert api.acquire("inventory/sku-1").status == 201
        dsn = f"host=127.0.0.1 port={postgres} user=postgres dbname=fencegate password="
        with closing(psycopg2.connect(f"{dsn}postgres-postgres-{secret}")) as connection:
            with connection.cursor() as cursor:
                cursor.execute("select count(*) from inventory")
                assert cursor.fetchone()[0] > 0
        with pytest.raises(psycopg2.OperationalError, match="password authentication failed"):
            psycopg2.connect(f"{dsn}wrong")
        stack = json.loads((root / "var/lib/fencegate/stack.json").read_text())
        assert stack["api_keys"]["orders"] == f"api-orders-{secret}" and secret not in log.read_text()
        [program] = Path(f"/proc/{started.pid}/task/{started.pid}/children").read_text().split()
        os.kill(int(program), signal.SIGTERM)
        assert started.wait(30) == 0 and "fencegate dev: stopped" in log.read_text()
    finally:
        started.kill()
        started.wait()


def secrets(folder: Path) -> dict[str, str]:
    """Makes a project folder like docker/, with secrets of its own, and returns their variables."""
    project = folder / "docker"
    shutil.copytree(DOCKER, project, ignore=shutil.ignore_patterns(".env", "secrets"))
    (folder / "config").symlink_to(ROOT / "config")
    run(project / "make-secrets")
    before = (project / ".env").read_text()
    run(project / "make-secrets")
    assert (project / ".env").read_text() == before, "existing secrets stay"
    assert {path.stat().st_mode & 0o777 for path in (project / ".env", project / "secrets")} == {0o600, 0o700}
    return dict(line.split("=", 1) for line in before.splitlines())


@pytest.fixture(scope="module")
def services(folder: Path, image: Path) -> Iterator[Containers]:
    """All services of compose.yaml but Grafana, which Debian does not have, with the tables of compose.dev.yaml."""
    variables = secrets(folder)
    compose = read_compose([folder / "docker" / "compose.yaml"], variables)
    compose["services"]["migrate"].update(
        read_compose([folder / "docker" / "compose.dev.yaml"], variables)["services"]["migrate"]
    )
    binaries = max(Path("/usr/lib/postgresql").iterdir(), key=lambda path: int(path.name)) / "bin"
    images = {
        "fencegate": Image(image, USER, dockerfile("ENTRYPOINT"), healthcheck=dockerfile("HEALTHCHECK")),
        "redis": Image(user="redis"),
        "postgres": Image(
            user="postgres",
            entrypoint=["bash", "-euc", POSTGRES_ENTRYPOINT, "entrypoint"],
            path=f"{binaries}:/usr/bin:/bin",
        ),
        "haproxy": Image(user="haproxy"),
        "prom/prometheus": Image(user="65534", entrypoint=["prometheus"]),
    }
    made = Containers(compose, folder / "docker", folder, images)
    try:
        made.up([name for name in compose["services"] if name != "grafana"])
        yield made
    finally:
        made.remove()


def test_compose_services_serve_a_guarded_write(folder: Path, services: Containers) -> None:
    key = (folder / "docker" / "secrets" / "admin.key").read_text()

    def call(path: str, body: object = None) -> dict:
        sent = ["-d", json.dumps(body), "-H", "content-type: application/json"] if body else []
        return services.get_json("haproxy", f"http://localhost:8080{path}", "-H", f"authorization: Bearer {key}", *sent)

    eventually(
        lambda: {node["state"] for node in call("/v1/nodes")["nodes"]} == {"voting"}
        and len(call("/v1/nodes")["nodes"]) == 5,
        30,
        goal="five nodes vote",
    )
    lease = eventually(
        lambda: "lease_id" in (answer := call("/v1/leases", {"resource": "inventory/sku-1"})) and answer,
        20,
        goal="a lease",
    )
    written = call(
        "/v1/writes",
        {
            "lease_id": lease["lease_id"],
            "operations": [{"update": "inventory", "where": {"sku": "sku-1"}, "set": {"stock": 41}, "expect_rows": 1}],
        },
    )
    assert written["applied"], written
    psql = ["psql", "-X", "-A", "-t", "-U", "postgres", "-h", "/var/run/postgresql", "fencegate", "-c"]
    eventually(
        lambda: services.run("postgres-2", *psql, "select stock from inventory where sku = 'sku-1'") == "41\n",
        goal="the standby has the row",
    )
    assert (
        services.run("postgres-1", *psql, "select application_name, sync_state from pg_stat_replication")
        == "postgres_2|sync\n"
    )
    answer = services.get_json("haproxy", "http://localhost:8080/v1/nodes")
    assert answer["status"] == 401, "callers need the key"


def test_compose_prometheus_scrapes_gateways_and_haproxy(services: Containers) -> None:
    def states() -> dict[str, str]:
        targets = services.get_json("prometheus", "http://localhost:9090/api/v1/targets")["data"]["activeTargets"]
        return {target["labels"]["instance"]: target["health"] for target in targets}

    eventually(
        lambda: states() == {"gateway-1:8080": "up", "gateway-2:8080": "up", "haproxy:8405": "up"},
        30,
        goal="every target is up",
    )
    groups = services.get_json("prometheus", "http://localhost:9090/api/v1/rules")["data"]["groups"]
    assert any(rule["name"] == "FencegateDown" for group in groups for rule in group["rules"])


def test_compose_gateway_is_read_only_without_privileges(services: Containers) -> None:
    status = Path(f"/proc/{services.processes['gateway-1'].pid}/status").read_text()
    assert re.search(r"^Uid:\t10001\t10001\t10001\t10001$", status, re.MULTILINE) and re.search(
        r"^NoNewPrivs:\t1$", status, re.MULTILINE
    )
    assert set(re.findall(r"^Cap\w+:\t(\w+)$", status, re.MULTILINE)) == {"0" * 16}
    with pytest.raises(AssertionError, match="Read-only file system"):
        services.run("gateway-1", "touch", "/etc/fencegate/new")


def test_compose_gateways_are_checked_and_stop_in_time(services: Containers) -> None:
    check = dockerfile("HEALTHCHECK")
    services.run("gateway-1", *check)
    with pytest.raises(AssertionError, match="Connection refused"):
        services.run("gateway-1", "env", "FENCEGATE_PORT=1", *check)
    for name in ("gateway-1", "gateway-2"):
        assert services.stop(name) == 0
        services.start(name)
        services.await_started(name, "service_healthy")


def test_compose_grafana_finds_its_files(services: Containers) -> None:
    volumes = dict(
        reversed(volume.split(":")[:2])
        for volume in services.compose["services"]["grafana"]["volumes"]
        if volume.startswith(".")
    )
    assert all((DOCKER / source).exists() for source in volumes.values())
    assert "/var/lib/grafana/dashboards" in (DOCKER / "grafana" / "dashboards.yaml").read_text()
    assert "/var/lib/grafana/dashboards/fencegate.json" in volumes
