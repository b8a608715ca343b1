"""The TypeScript client: it is built, packed and checked by the compiler, and its own tests run on two gateways,
which they kill and pause."""

from __future__ import annotations

import fcntl
import hashlib
import json
import re
import shutil
import urllib.parse
from pathlib import Path
from typing import Iterator

import pytest
from support import npm, processes
from support.cluster import Gateway, credentials
from support.stack import Stack
from support.stack import running as running_stack

ROOT = processes.repository()
SOURCE = ROOT / "clients/typescript"
FOLDER = ROOT / "build/clients/typescript"
TESTS = sorted(path.name for path in (SOURCE / "test").glob("*.test.js"))
COPIED = ["src", "scripts", "test", "tsconfig.json", "tsconfig.cjs.json", "README.md"]


def build(digest: str, stamp: Path) -> None:
    stamp.unlink(missing_ok=True)
    for name in COPIED:
        target = FOLDER / name
        if (SOURCE / name).is_dir():
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(SOURCE / name, target, ignore=shutil.ignore_patterns("generated"))
        else:
            shutil.copy(SOURCE / name, target)
    shutil.rmtree(FOLDER / "dist", ignore_errors=True)
    npm.run(["npm", "run", "build"], FOLDER, FENCEGATE_SOURCE=str(ROOT))
    stamp.write_text(digest)


@pytest.fixture(scope="module")
def package() -> Path:
    """A copy of the package with its dependencies, built once for all processes that test it."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with open(FOLDER / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        npm.install(SOURCE, FOLDER)
        inputs = [path for name in COPIED for path in sorted([SOURCE / name, *(SOURCE / name).rglob("*")])]
        inputs += [SOURCE / "package.json", ROOT / "gateway/api/service/openapi.json"]
        digest = hashlib.sha256(b"".join(path.read_bytes() for path in inputs if path.is_file())).hexdigest()
        stamp = FOLDER / "built_from"
        if not stamp.exists() or stamp.read_text() != digest:
            build(digest, stamp)
    return FOLDER


@pytest.fixture(scope="module")
def pair() -> Iterator[Stack]:
    """Two gateways, which restart after the tests have killed them, with API keys;
    the database can check proofs, and requires none."""
    with running_stack("--auth", "--gateways", "2") as made:
        made.query("select fencing.add_proof_key(%s)", ((made.data / "signing.key").read_text().strip().encode(),))
        yield made


@pytest.fixture(scope="module")
def cors(pair: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, object]]:
    """A gateway of the same cluster that allows the pages of one origin: its address, a key,
    and the port of the page's server."""
    key, page_port = "a-long-enough-key-of-a-page", processes.free_port()
    settings = {
        "http": {
            "address": "127.0.0.1",
            "port": processes.free_port(),
            "allowed_origins": [f"http://127.0.0.1:{page_port}"],
        },
        "redis": {
            "node_timeout_ms": 1_000,
            "nodes": [{name: node[name] for name in ("name", "host", "port")} for node in pair.facts["redis"]],
        },
        "lease": {"signing_key_file": str(pair.data / "signing.key")},
        "postgres": {"conninfo": pair.conninfo()},
        "auth": credentials({"page": key}),
    }
    gateway = Gateway(tmp_path_factory.mktemp("cors"), "gateway", settings)
    gateway.start()
    yield {"gateway": gateway.api.url, "key": key, "page_port": page_port}
    gateway.kill()


@pytest.mark.parametrize("file", TESTS)
def test_typescript_client_passes_its_own_tests(package: Path, pair: Stack, cors: dict[str, object], file: str) -> None:
    npm.run(
        ["node", "--test", "--test-reporter=spec", f"test/{file}"],
        package,
        240,
        FENCEGATE_STACK=str(pair.data / "stack.json"),
        FENCEGATE_DATABASE=database_url(pair),
        FENCEGATE_OPENAPI=str(ROOT / "gateway/api/service/openapi.json"),
        FENCEGATE_CORS=json.dumps(cors),
    )


def test_typescript_types_accept_and_refuse_as_written(package: Path) -> None:
    npm.run(["npm", "run", "types"], package)


def test_typescript_package_has_the_build_and_its_licence(package: Path) -> None:
    packed = json.loads(npm.run(["npm", "pack", "--dry-run", "--ignore-scripts", "--json"], package))[0]
    names = {file["path"] for file in packed["files"]}
    modules = {path.relative_to(SOURCE / "src").with_suffix("") for path in (SOURCE / "src").glob("*.ts")} | {
        Path("generated/schema"),
        Path("generated/problems"),
    }
    assert names == {
        "package.json",
        "README.md",
        "LICENSE",
        "dist/cjs/package.json",
        *(f"dist/{form}/{module}{end}" for form in ("esm", "cjs") for module in modules for end in (".js", ".d.ts")),
    }
    described = json.loads((SOURCE / "package.json").read_text())
    assert list(described["dependencies"]) == ["openapi-fetch"]
    assert f"project(fencegate VERSION {described['version']} " in (ROOT / "CMakeLists.txt").read_text()
    assert described["type"] == "module" and described["engines"] == {"node": ">=18"}


def test_typescript_package_uses_nothing_of_node_alone() -> None:
    """Browsers run it too."""
    for path in (SOURCE / "src").glob("*.ts"):
        assert not re.search(r"node:|\bprocess\.|\bBuffer\b|\brequire\(", path.read_text()), path.name


def database_url(stack: Stack) -> str:
    postgres = stack.facts["postgres"]
    user, database, host = (urllib.parse.quote(postgres[name], safe="") for name in ("superuser", "database", "host"))
    return f"postgresql://{user}@/{database}?host={host}&port={postgres['port']}"


def install(package: Path, folder: Path) -> None:
    installed = folder / "node_modules"
    (installed / "@fencegate").mkdir(parents=True)
    (installed / "@fencegate/client").symlink_to(package)
    (installed / "pg").symlink_to(package / "node_modules/pg")


def run_program(package: Path, stack: Stack, folder: Path, text: str) -> str:
    """Runs a program in a folder of its own that has the package installed, and returns its output.
    The address is that of the test's gateway."""
    install(package, folder)
    (folder / "program.mjs").write_text(text.replace("http://localhost:8080", stack.facts["http"]))
    return npm.run(["node", "program.mjs"], folder, FENCEGATE_DATABASE=database_url(stack))


def test_typescript_readme_first_example_runs_as_pasted(package: Path, stack: Stack, tmp_path: Path) -> None:
    example = re.search(r"```js\n(.*?)```", (SOURCE / "README.md").read_text(), re.DOTALL)
    assert example and "http://localhost:8080" in example[1]
    before = stack.query("select stock from inventory where sku = 'sku-1'")[0][0]
    output = run_program(package, stack, tmp_path, example[1])
    assert stack.query("select stock from inventory where sku = 'sku-1'")[0][0] == before - 1
    assert re.search(rf"\b{before - 1}\b", output), output


def test_typescript_readme_examples_run_one_after_another(package: Path, stack: Stack, tmp_path: Path) -> None:
    examples = re.findall(r"```js\n(.*?)```", (SOURCE / "README.md").read_text(), re.DOTALL)
    assert len(examples) > 2
    connection = (
        "import pg from 'pg';\nconst connection = new pg.Client({connectionString: process.env.FENCEGATE_DATABASE});\n"
        "await connection.connect();\n"
    )
    run_program(package, stack, tmp_path, connection + "\n".join(examples) + "await connection.end();\n")
    assert stack.query("select note from inventory where sku = 'sku-1'") == [("counted",)]


PROGRAM = "import {Fencegate} from '@fencegate/client';\nconst name: string = typeof new Fencegate({url: 'http://h'})"
MODULES = {
    "commonjs": ("program.ts", ["--module", "commonjs", "--esModuleInterop"]),
    "node16_commonjs": ("program.cts", ["--module", "node16"]),
    "node16_es": ("program.mts", ["--module", "node16"]),
    "bundler": ("program.mts", ["--module", "es2022", "--moduleResolution", "bundler"]),
}


def compile_program(package: Path, folder: Path, file: str, text: str, options: list[str]) -> None:
    (folder / file).write_text(text)
    tsc = package / "node_modules/typescript/bin/tsc"
    command = ["node", str(tsc), "--strict", "--skipLibCheck", "--target", "es2022", *options]
    npm.run([*command, "--types", "node", "--typeRoots", str(package / "node_modules/@types"), file], folder)


@pytest.mark.parametrize("form", MODULES)
def test_typescript_programs_of_each_module_form_run(package: Path, tmp_path: Path, form: str) -> None:
    install(package, tmp_path)
    file, options = MODULES[form]
    compile_program(package, tmp_path, file, f"{PROGRAM}.withLease;\nconsole.log(name);\n", options)
    compiled = file.replace("ts", "js")
    assert npm.run(["node", compiled], tmp_path).strip() == "function"
    assert ("require(" in (tmp_path / compiled).read_text()) == ("commonjs" in form)


def test_typescript_readme_first_example_compiles(package: Path, tmp_path: Path) -> None:
    install(package, tmp_path)
    example = re.search(r"```js\n(.*?)```", (SOURCE / "README.md").read_text(), re.DOTALL)
    assert example
    strict = ["--module", "node16", "--noUncheckedIndexedAccess", "--exactOptionalPropertyTypes"]
    compile_program(package, tmp_path, "program.mts", example[1], strict)


TYPED = """
import type {components, paths} from './tables.js';
declare const rows: paths['/inventory']['get']['responses'][200]['content']['application/json'];
const stock: number = rows[0]!.stock, sku: string = rows[0]!.sku, note: string | null = rows[0]!.note;
export type Added = components['schemas']['inventory.insert'];
export const added: Added = {sku: 'sku-3', stock: 1, initial_stock: 1};
declare const call: paths['/rpc/place_order']['post'];
export const placed: typeof call.requestBody.content['application/json'] = {order_id: 1, sku, quantity: stock};
export const changed: components['schemas']['inventory.update'] = {note};
"""
WRONG = {
    "column": "rows[0]!.colour;",
    "type": "export const name: string = rows[0]!.stock;",
    "null": "export const text: string = rows[0]!.note;",
    "missing": "export const lacking: Added = {stock: 1, initial_stock: 1};",
    "operation": "export type Changed = paths['/order_events']['patch']['requestBody']['content'];",
    "hidden": "export type Hidden = components['schemas']['payroll'];",
}


def test_types_of_own_tables_know_each_column(package: Path, stack: Stack, tmp_path: Path) -> None:
    """By the generator that TypeScript programs use: what the tables have compiles, and nothing else."""
    stack.query("create table if not exists payroll (id integer primary key)")
    (tmp_path / "tables.json").write_bytes(stack.api().get("/rest/v1/").body)
    generator = package / "node_modules/openapi-typescript/bin/cli.js"
    npm.run(["node", str(generator), "tables.json", "-o", "tables.ts"], tmp_path)
    wrong = "".join(f"// @ts-expect-error: {name}\n{line}\n" for name, line in WRONG.items())
    compile_program(package, tmp_path, "program.mts", TYPED + wrong, MODULES["bundler"][1])
