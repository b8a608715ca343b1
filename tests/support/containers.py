"""Runs the services of a Compose file without a container engine: each in a network and a mount namespace of its own,
with its volumes, environment and user.

The images are folders; that of a program that Debian packages is this machine's root.
The network has no way out. It needs root.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from support import processes
from support.polling import eventually


# Runs in the new namespaces, once the network is connected: makes the container's root
# from the image, and becomes the command.
ENTER = r"""
read -r
ip addr add "$ADDRESS" dev eth0 && ip link set eth0 up && ip link set lo up
mount -t tmpfs none "$BOX" && mkdir "$BOX"/{upper,work,root}
mount -t overlay overlay -o "lowerdir=$IMAGE,upperdir=$BOX/upper,workdir=$BOX/work" "$BOX/root"
cd "$BOX/root"
mount --rbind /proc proc && mount --rbind /dev dev
install -d -m 1777 tmp var/run/postgresql
while read -r from to mode; do
    mkdir -p "$(dirname ".$to")"
    if [[ -d $from ]]; then mkdir -p ".$to"; else touch ".$to"; fi
    mount --bind "$from" ".$to"
    [[ $mode != ro ]] || mount -o remount,bind,ro ".$to"
done <<<"$MOUNTS"
[[ -z $READ_ONLY ]] || mount -o remount,ro "$BOX/root"
exec chroot . setpriv --pdeathsig TERM $PRIVILEGES "$@"
"""


@dataclass
class Image:
    """What an image has beside its files."""

    root: Path = Path("/")
    user: str = "root"
    entrypoint: list[str] = field(default_factory=list)
    path: str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    healthcheck: list[str] = field(default_factory=list)


def read_compose(files: list[Path], variables: dict[str, str]) -> dict[str, Any]:
    """Returns the merged files, with the values of variables (`${NAME}`, `${NAME:?message}`,
    `${NAME:-default}`) put in."""

    def value_of(found: re.Match[str]) -> str:
        return variables.get(found[1], found[2]) if found[2] else variables[found[1]]

    merged: dict[str, Any] = {}
    for file in files:
        document = yaml.safe_load(re.sub(r"\$\{(\w+)(?::\?[^}]*|:-([^}]*))?\}", value_of, file.read_text()))
        for section, entries in document.items():
            if not isinstance(entries, dict) or section.startswith("x-"):
                continue
            for name, entry in entries.items():
                known = merged.setdefault(section, {}).setdefault(name, {})
                known.update(entry or {})
    return merged


class Containers:
    """The services of one Compose file. Their containers' addresses are 10.99.0.2 and so on."""

    def __init__(self, compose: dict[str, Any], project: Path, folder: Path, images: dict[str, Image]) -> None:
        self.compose, self.project, self.folder, self.images = compose, project, folder, images
        self.processes: dict[str, subprocess.Popen] = {}
        self.addresses = {name: f"10.99.0.{number}" for number, name in enumerate(compose["services"], 2)}
        self.hosts = folder / "hosts"
        self.hosts.write_text(
            "127.0.0.1 localhost\n" + "".join(f"{address} {name}\n" for name, address in self.addresses.items())
        )
        self.hub = processes.start(["unshare", "--net", "sleep", "infinity"], folder / "hub.log")
        self._await_namespace(self.hub)
        self._in_hub("ip", "link", "add", "br0", "type", "bridge")
        self._in_hub("ip", "link", "set", "br0", "up")

    @staticmethod
    def _await_namespace(process: subprocess.Popen) -> None:
        own = Path("/proc/self/ns/net").readlink()
        eventually(
            lambda: Path(f"/proc/{process.pid}/ns/net").readlink() != own,
            interval=0.002,
            goal="it has a network namespace",
        )

    def _in_hub(self, *command: str) -> None:
        subprocess.run(["nsenter", f"--net=/proc/{self.hub.pid}/ns/net", *command], check=True)

    def image_of(self, name: str) -> Image:
        return self.images[self.compose["services"][name]["image"].partition(":")[0]]

    def mounts_of(self, name: str) -> list[tuple[Path, str, str]]:
        """Returns source, target and mode of each volume and secret.
        Named volumes are folders that the image's user owns."""
        service = self.compose["services"][name]
        found = [(self.hosts, "/etc/hosts", "ro")]
        for volume in service.get("volumes", []):
            source, target, *mode = volume.split(":")
            path = self.project / source if source.startswith(".") else self.folder / source
            if not source.startswith("."):
                assert source in self.compose["volumes"], source
                path.mkdir(exist_ok=True)
                subprocess.run(["chown", self.image_of(name).user, str(path)], check=True)
            assert path.exists(), f"{name}: there is no {path}"
            found.append((path.resolve(), target, mode[0] if mode else "rw"))
        for secret in service.get("secrets", []):
            found.append(
                ((self.project / self.compose["secrets"][secret]["file"]).resolve(), f"/run/secrets/{secret}", "ro")
            )
        return found

    def environment_of(self, name: str) -> list[str]:
        """Returns the command `env` with exactly the variables of the container."""
        values = {
            "PATH": self.image_of(name).path,
            "LC_ALL": "C.UTF-8",
            **self.compose["services"][name].get("environment", {}),
        }
        return ["env", "--chdir=/", "-i", *(f"{key}={value}" for key, value in values.items())]

    def start(self, name: str) -> None:
        service, image = self.compose["services"][name], self.image_of(name)
        box = self.folder / f"box-{name}"
        box.mkdir(exist_ok=True)
        privileges = [f"--reuid={image.user}", f"--regid={image.user}", "--clear-groups"]
        if "no-new-privileges:true" in service.get("security_opt", []):
            privileges.append("--no-new-privs")
        if service.get("cap_drop") == ["ALL"]:
            privileges += ["--bounding-set=-all", "--inh-caps=-all"]
        variables = {
            "ADDRESS": f"{self.addresses[name]}/24",
            "BOX": box,
            "IMAGE": image.root,
            "PRIVILEGES": shlex.join(privileges),
            "READ_ONLY": "yes" if service.get("read_only") else "",
            "MOUNTS": "\n".join(f"{a} {b} {c}" for a, b, c in self.mounts_of(name)),
        }
        with open(self.log_of(name), "ab") as log:
            process = subprocess.Popen(
                [
                    "env",
                    *(f"{key}={value}" for key, value in variables.items()),
                    *"unshare --net --mount bash -euc".split(),
                    ENTER,
                    name,
                    *self.environment_of(name),
                    *service.get("entrypoint", image.entrypoint),
                    *service.get("command", []),
                ],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd="/",
                preexec_fn=processes.terminate_with_parent,
            )
        self.processes[name] = process
        self._await_namespace(process)
        port = f"v{list(self.addresses).index(name)}"
        self._in_hub("ip", "link", "add", port, *"master br0 type veth peer name eth0 netns".split(), str(process.pid))
        self._in_hub("ip", "link", "set", port, "up")
        assert process.stdin is not None
        process.stdin.write(b"\n")
        process.stdin.close()

    def log_of(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def run(self, name: str, *command: str) -> str:
        """Runs a command in a container as its user, like `docker compose exec`, and returns its output."""
        image, pid = self.image_of(name), self.processes[name].pid
        done = processes.run(
            [
                "nsenter",
                f"--target={pid}",
                *"--net --mount --root setpriv".split(),
                f"--reuid={image.user}",
                f"--regid={image.user}",
                "--clear-groups",
                *self.environment_of(name),
                *command,
            ],
            timeout=30,
        )
        assert (
            done.returncode == 0
        ), f"{command}: {done.returncode} {done.stdout}{done.stderr}\n{self.log_of(name).read_text()[-2000:]}"
        return done.stdout

    def await_started(self, name: str, condition: str) -> None:
        """Waits for a condition of depends_on."""
        process = self.processes[name]
        if condition == "service_completed_successfully":
            assert process.wait(60) == 0, self.log_of(name).read_text()
            return
        check = (
            self.compose["services"][name].get("healthcheck", {}).get("test", ["CMD", *self.image_of(name).healthcheck])
        )
        assert check[0] == "CMD" and len(check) > 1, check

        def is_healthy() -> bool:
            if process.poll() is not None:
                raise RuntimeError(f"{name} ended with {process.returncode}: {self.log_of(name).read_text()[-3000:]}")
            self.run(name, *check[1:])
            return True

        eventually(is_healthy, 60, interval=0.2, goal=f"{name} is healthy")

    def up(self, names: list[str]) -> None:
        """Starts the services after those on which they depend."""
        for name in names:
            needed = self.compose["services"][name].get("depends_on", {})
            self.up([other for other in needed if other not in self.processes])
            for other, how in needed.items():
                self.await_started(other, how["condition"])
            if name not in self.processes:
                self.start(name)

    def stop(self, name: str) -> int:
        """Stops a service by its stop_signal, within its stop_grace_period."""
        service = self.compose["services"][name]
        number = {"SIGTERM": 15, "SIGINT": 2}[service.get("stop_signal", "SIGTERM")]
        return processes.stop(
            self.processes.pop(name), float(service.get("stop_grace_period", "10s").removesuffix("s")), number
        )

    def get_json(self, name: str, url: str, *options: str) -> Any:
        """Calls an address from inside a container's network."""
        done = processes.run(
            ["nsenter", f"--target={self.processes[name].pid}", "--net", "curl", "-sS", *options, url], timeout=30
        )
        assert done.returncode == 0, done.stderr + self.log_of(name).read_text()[-2000:]
        try:
            return json.loads(done.stdout)
        except ValueError:  # a server that has just started may say so in another form
            raise AssertionError(done.stdout) from None

    def remove(self) -> None:
        for process in [*reversed(self.processes.values()), self.hub]:
            process.kill()
            process.wait()
