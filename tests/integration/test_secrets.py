"""No secret leaves a gateway that serves requests: not by its log, its answers,
metrics and history, /proc or a core dump."""

from __future__ import annotations

import json
import os
import resource as limits
import signal
import sys
import threading
from pathlib import Path
from typing import Any, Iterator

import pytest
from support import processes
from support.api import Api
from support.cluster import Cluster, Gateway, credentials
from support.cluster import running as running_cluster
from support.polling import eventually
from support.stack import Stack

SECRETS = {
    "signing key": "signing-key-that-nobody-may-see-0123456789",
    "verification key": "verification-key-that-nobody-may-see-01234",
    "API key": "api-key-that-nobody-may-see-0123456789",
    "wrong API key": "wrong-api-key-that-nobody-may-see-01234",
    "password of PostgreSQL": "postgres-password-nobody-may-see",
    "password of Redis": "redis-password-nobody-may-see",
}
# Root may read all memory by a capability, which the gateway and its reader then lack.
WITHOUT_CAPABILITIES = ["setpriv", "--inh-caps=-all", "--bounding-set=-all,+dac_override"] if os.getuid() == 0 else []


@pytest.fixture(scope="module")
def cluster(stack: Stack) -> Iterator[Cluster]:
    """Its nodes have a user with a password, beside the default one."""
    with running_cluster(stack, "secrets") as made:
        for node in made.clients():
            node.execute_command(
                "ACL", "SETUSER", "gateway", "on", f">{SECRETS['password of Redis']}", "~*", "&*", "+@all"
            )
        (made.folder / "older.key").write_text(SECRETS["verification key"])
        made.key_file.write_text(SECRETS["signing key"])
        yield made


def settings_of(cluster: Cluster, **log: Any) -> dict[str, Any]:
    settings = cluster.settings(verification_key_files=[str(cluster.folder / "older.key")])
    del settings["lease"]["signing_key_file"]
    for node in settings["redis"]["nodes"]:
        node.update(username="gateway", password_env="NODE_PASSWORD")
    settings["postgres"]["conninfo"] += f" password={SECRETS['password of PostgreSQL']}"
    settings["auth"] = credentials({"admin": SECRETS["API key"]}, "leases", "writes", "history", "operate")
    settings["log"] = {"level": "trace", **log}
    return settings


def start(cluster: Cluster, **log: Any) -> Gateway:
    gateway = cluster.gateway(settings_of(cluster, **log))
    gateway.environment = {
        "FENCEGATE_SIGNING_KEY": SECRETS["signing key"],
        "NODE_PASSWORD": SECRETS["password of Redis"],
    }
    gateway.api = Api(gateway.api.url, SECRETS["API key"])
    gateway.start()
    return gateway


class Load:
    """Threads that use leases, and are refused; keeps the text of every answer."""

    def __init__(self, api: Api, count: int = 3) -> None:
        self.api, self.answers, self.lease_ids = api, [], []
        self.stopping = threading.Event()
        self.threads = [threading.Thread(target=self.run, args=(number,), daemon=True) for number in range(count)]

    def __enter__(self) -> "Load":
        for thread in self.threads:
            thread.start()
        eventually(lambda: len(self.lease_ids) > 10, 60, goal="leases were granted")
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        for thread in self.threads:
            thread.join(30)

    def run(self, number: int) -> None:
        wrong = self.api.with_key(SECRETS["wrong API key"])
        while not self.stopping.is_set():
            granted = self.api.acquire(f"secrets/{number}", ttl_ms=1_000)
            if granted.status == 201:
                lease = granted.json()
                self.lease_ids.append(lease["lease_id"])
                self.keep(
                    self.api.write(lease, {"delete": "nothing", "where": {"id": 1}}),
                    self.api.renew(lease, ttl_ms=1_000),
                )
                self.keep(
                    self.api.read_lease(lease["lease_id"][:-1] + "!"),
                    self.api.post("/v1/writes", raw=b'{"lease_id": "' + lease["lease_id"].encode()),
                )
                self.keep(self.api.release(lease), self.api.release(lease))
            self.keep(
                wrong.get("/v1/nodes"),
                self.api.get("/v1/nodes"),
                self.api.get("/v1/nowhere"),
                self.api.get("/v1/leases", limit="many"),
            )

    def keep(self, *answers: Any) -> None:
        self.answers.extend(
            str(dict(answer.headers.items())) + answer.body.decode(errors="replace") for answer in answers
        )


def found_in(text: str | bytes) -> list[str]:
    content = text.encode(errors="replace") if isinstance(text, str) else text
    return [name for name, secret in SECRETS.items() if secret.encode() in content]


def test_no_secret_in_log_answers_metrics_history_or_proc(cluster: Cluster) -> None:
    gateway = start(cluster)
    process = Path(f"/proc/{gateway.pid}")
    with Load(gateway.api) as load:
        assert found_in((process / "environ").read_bytes()) == []
        assert found_in((process / "cmdline").read_bytes()) == []
        metrics = gateway.api.get("/metrics").body
        assert b"fencegate_http_requests_total" in metrics and found_in(metrics) == []
    assert gateway.stop() == 0
    assert len(load.answers) > 50 and found_in("".join(load.answers)) == []
    log = gateway.log.read_text()
    assert '"level":"debug"' in log or "debug" in log
    assert found_in(log) == []
    history = str(cluster.query("select json_agg(h)::text from fencing.history h"))
    assert "lease_granted" in history and found_in(history) == []
    for lease_id in load.lease_ids:
        assert lease_id not in log and lease_id not in history, "a lease_id is a credential"
        assert lease_id.split(".")[1] not in log


def test_pgpassword_is_used_by_all_connections_and_overwritten(cluster: Cluster) -> None:
    """PostgreSQL asks for it over TCP."""
    facts = cluster.stack.facts["postgres"]
    password = next(cluster.stack.data.rglob(f"postgres-{facts['superuser']}.password")).read_text().strip()
    settings = cluster.settings()
    settings["postgres"][
        "conninfo"
    ] = f"host=127.0.0.1 port={facts['port']} dbname={cluster.database} user={facts['superuser']} passfile=/nowhere"
    settings["lease"]["signing_key_file"] = str(cluster.key_file)
    for node in settings["redis"]["nodes"]:
        node.update(username="gateway", password_env="NODE_PASSWORD")
    gateway = cluster.gateway(settings)
    gateway.environment = {"PGPASSWORD": password, "NODE_PASSWORD": SECRETS["password of Redis"]}
    gateway.start()
    assert password.encode() not in Path(f"/proc/{gateway.pid}/environ").read_bytes()
    ended = cluster.stack.query(
        "select count(pg_terminate_backend(pid)) from pg_stat_activity where datname = %s and pid <> pg_backend_pid()",
        (cluster.database,),
    )
    assert ended[0][0] > 1
    eventually(
        lambda: gateway.api.get("/readyz/writes").status == 200 and gateway.api.get("/v1/history").status == 200,
        goal="it has connected again",
    )
    assert gateway.stop() == 0
    assert password not in gateway.log.read_text()


def test_no_secret_in_output_of_check_and_of_a_faulty_file(cluster: Cluster) -> None:
    gateway = cluster.gateway(settings_of(cluster))
    environment = {
        **os.environ,
        "FENCEGATE_SIGNING_KEY": SECRETS["signing key"],
        "NODE_PASSWORD": SECRETS["password of Redis"],
    }
    outputs = []
    for change in (
        {},
        {"redis": "x"},
        {"postgres": {"conninfo": f"host=/nowhere password={SECRETS['password of PostgreSQL']} colour=red"}},
    ):
        gateway.config.write_text(json.dumps({**settings_of(cluster), **change}))
        done = processes.run(
            [str(processes.fencegate_binary()), "check", "--config", str(gateway.config)], timeout=60, env=environment
        )
        outputs.append(done.returncode)
        assert found_in(done.stdout + done.stderr) == []
    assert outputs == [0, 78, 78]


def test_signing_key_that_all_may_read_is_warned_of(cluster: Cluster) -> None:
    """`check` and `serve` name the file and its mode, and go on."""
    gateway = cluster.gateway(cluster.settings())
    warning = f"lease.signing_key_file: {cluster.key_file} has permissions 0604"
    for mode, warned in ((0o640, False), (0o604, True)):
        cluster.key_file.chmod(mode)
        done = cluster.run("check", gateway.config)
        assert done.returncode == 0 and (f"ok    configuration: WARNING: {warning}" in done.stdout) == warned, done
        gateway.start()
        assert (warning in gateway.log.read_text()) == warned
        assert gateway.stop() == 0


def ends_with_core(cluster: Cluster, core_dumps: bool) -> bool:
    """Starts a gateway without a limit for core dumps, ends it by SIGQUIT under load,
    and returns whether the kernel dumped its memory."""
    gateway = start(cluster, core_dumps=core_dumps)
    assert gateway.process is not None
    limits.prlimit(gateway.pid, limits.RLIMIT_CORE, (limits.RLIM_INFINITY, limits.RLIM_INFINITY))
    process, gateway.process = gateway.process, None
    os.kill(process.pid, signal.SIGQUIT)
    _, status = os.waitpid(process.pid, 0)
    process.returncode = -os.WTERMSIG(status)
    assert os.WTERMSIG(status) == signal.SIGQUIT
    return os.WCOREDUMP(status)


def test_core_dump_is_left_only_where_configured(cluster: Cluster) -> None:
    folder = Path.cwd()
    before = set(folder.glob("core*"))
    try:
        assert not ends_with_core(cluster, core_dumps=False)
        if not ends_with_core(cluster, core_dumps=True):
            pytest.skip("this machine leaves no core dumps of any program")
    finally:
        for core in set(folder.glob("core*")) - before:
            core.unlink()


def read_as_its_user(pid: int, file: str) -> str:
    """Reads a file of /proc/PID in a process of the gateway's user. Out: `read`, or the name of the error."""
    program = (
        f"try:\n open('/proc/{pid}/{file}', 'rb').read(1); print('read')\nexcept OSError as error:\n"
        " print(type(error).__name__)"
    )
    return processes.run([*WITHOUT_CAPABILITIES, sys.executable, "-c", program], timeout=60, check=True).stdout.strip()


@pytest.mark.parametrize(
    "core_dumps, expected", [(False, "PermissionError"), (True, "read")], ids=["default", "with-core-dumps"]
)
def test_memory_of_gateway_is_closed_to_its_own_user(cluster: Cluster, core_dumps: bool, expected: str) -> None:
    """A process of the same user, such as one that an attacker runs, opens neither the memory nor the environment."""
    gateway = cluster.gateway(settings_of(cluster, core_dumps=core_dumps))
    gateway.environment = {
        "FENCEGATE_SIGNING_KEY": SECRETS["signing key"],
        "NODE_PASSWORD": SECRETS["password of Redis"],
    }
    gateway.api = Api(gateway.api.url, SECRETS["API key"])
    gateway.process = processes.start(
        [*WITHOUT_CAPABILITIES, str(processes.fencegate_binary()), "serve", "--config", str(gateway.config)],
        gateway.log,
        env={**os.environ, **gateway.environment},
    )
    gateway.wait_until_ready()
    assert read_as_its_user(gateway.pid, "environ") == expected
    assert read_as_its_user(gateway.pid, "maps") == expected
    assert gateway.stop() == 0
