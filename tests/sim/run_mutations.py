#!/usr/bin/env python3
"""Leaves out one rule at a time and requires that a schedule of the simulation, or of a test, shows it.

Each line of mutations/table.tsv names a mutation, the checker that must find it, and the profile and the seed that show
it. NAME.patch in that folder changes the product, and the given seed must then break the promise;
without the patch the same seed must break none.
Where random seeds do not show the rule in useful time, the line names a program of tests and one of its tests,
which plays the schedule that does: it must fail with the patch and pass without.
All mutations of a program are compiled at once: a variable of the environment chooses between the bodies of a
function, as it is and as each patch has it. Scripts are read from a folder when a mutant runs.
A name without a patch is a mutation of a part that is simulated (`sim --mutate list`);
a line without a name is not run.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time

from mutation_table import TABLE, is_run, read_table

FOLDER = pathlib.Path(__file__).resolve().parent
ROOT = FOLDER.parent.parent
TEST_PROGRAMS = ("paper_tests", "unit_tests")


def run(command, **options):
    return subprocess.run(command, capture_output=True, text=True, timeout=3600, **options)


def is_test(row):
    return row["profile"] in TEST_PROGRAMS


def schedule_of(row):
    """Returns the program that plays the schedule, its arguments,
    and what it prints if the schedule shows the mutation."""
    if is_test(row):
        return row["profile"], [f"--gtest_filter={row['seed']}"], f"[  FAILED  ] {row['seed']} ("
    profile = ["--profile", row["profile"]] if row["profile"] != "-" else []
    return "sim", ["--seed", row["seed"], *profile], f"VIOLATION of {row['checker']} "


def apply_patch(name):
    """Returns the texts of the files that the patch of a mutation changes, by their names."""
    patch = (FOLDER / "mutations" / f"{name}.patch").read_text()
    changed = [line.split("\t")[0].removeprefix("+++ b/") for line in patch.splitlines() if line.startswith("+++ ")]
    with tempfile.TemporaryDirectory() as copy:
        for source in changed:
            (pathlib.Path(copy) / source).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / source, pathlib.Path(copy) / source)
        applied = run(["patch", "-p1", "--no-backup-if-mismatch", "-F0"], cwd=copy, input=patch)
        if applied.returncode != 0:
            raise RuntimeError(f"the patch {name} does not apply:\n{applied.stdout}")
        return {source: (pathlib.Path(copy) / source).read_text() for source in changed}


TOKEN = re.compile(r"""//[^\n]*|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])'|[{};]""")
CONTAINER = re.compile(r"\s*(template\s*<.*>\s*)?(inline\s+)?(namespace|struct|class|enum|union)\b", re.DOTALL)


def split_bodies(text):
    """Splits a C++ file at the braces of its functions: every second part is the body of one."""
    parts, begin, header, inner = [], 0, 0, 0
    for token in TOKEN.finditer(text):
        if token[0] == "{":
            if inner or not CONTAINER.match(re.sub("//.*|#.*", "", text[header : token.start()])):
                inner += 1
                if inner == 1:
                    parts.append(text[begin : token.end()])
                    begin = token.end()
        elif token[0] == "}" and inner:
            inner -= 1
            if inner == 0:
                parts.append(text[begin : token.start()])
                begin = token.start()
        if not inner and token[0] in ("{", "}", ";"):
            header = token.end()
    return [*parts, text[begin:]]


def join_mutants(text, mutants):
    """Returns a C++ file whose functions have, besides their own bodies, those of the mutants, by their names."""
    parts = split_bodies(text)
    joined = list(parts)
    for name, changed in mutants.items():
        others = split_bodies(changed)
        if others[::2] != parts[::2]:
            raise RuntimeError(f"{name} changes more than the bodies of functions")
        for number in range(1, len(parts), 2):
            if others[number] != parts[number]:
                joined[number] = f'if (is_left_out("{name}")) {{{others[number]}}} else {{{joined[number]}}}'
    return "".join(joined)


# In front of a unit with mutants.
CHOICE = """#include <cstdlib>
#include <string_view>
namespace {
bool is_left_out(std::string_view name) {
    static const char* const chosen = std::getenv("FENCEGATE_LEFT_OUT");
    return chosen && name == chosen;
}
}
"""
# In place of the header with the embedded scripts.
SCRIPTS_OF_FOLDER = """#pragma once
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <string_view>
namespace lockcore::redis::scripts {
inline std::string_view file(std::string_view name) {
    std::ifstream in(std::getenv("FENCEGATE_SCRIPTS") + ("/" + std::string(name)));
    if (!in) throw std::runtime_error("no such script");
    return *new std::string(std::istreambuf_iterator<char>(in), {});
}
}
"""


class Simulation:
    def __init__(self, build, rows, folder):
        """Builds the programs with the mutants of these rows in a folder, which lasts longer than this object."""
        self.build, self.folder = build, folder
        self.program = build / "sim"
        patches = {path.stem for path in (FOLDER / "mutations").glob("*.patch")}
        self.texts = {row["name"]: apply_patch(row["name"]) for row in rows if row["name"] in patches}
        scripts = {path.name: path.read_text() for path in (ROOT / "lockcore/redis").rglob("*.lua")}
        for name, texts in {"intact": {}, **self.texts}.items():
            own = {pathlib.Path(source).name: text for source, text in texts.items() if source.endswith(".lua")}
            if own or not texts:
                (folder / name).mkdir()
                for file, text in {**scripts, **own}.items():
                    (folder / name / file).write_text(text)
        self.programs = self.build_programs(rows)

    def has_scripts(self, name):
        return (self.folder / name).exists()

    def find_units(self, target, sources):
        """Returns text and command of the units that contain the files: a file alone, or those that the build joins."""
        names = {f"{ROOT}/{source}" for source in sources}
        entries = json.loads((self.build / "compile_commands.json").read_text())
        # A file of the gateway may also be a unit of the simulation, which comes first for `sim` and last for others.
        entries.sort(key=lambda entry: ("/sim_world.dir/" in entry["command"]) != (target == "sim"))
        units = []
        for entry in entries:
            file = pathlib.Path(entry["file"])
            text = file.read_text() if "/Unity/" in entry["file"] else f'#include "{file}"\n'
            found = {name for name in names if f'"{name}"' in text}
            if found:
                units.append((text, entry["command"]))
                names -= found
        if names:
            raise RuntimeError(f"the build has no unit of {names}")
        return units

    def build_programs(self, rows):
        """Compiles the units that the mutations of these rows change, each once with all of them,
        and links them with the other objects. Returns the programs by their names."""
        mutants, changed = {}, {target: set() for target in ("sim", *TEST_PROGRAMS)}
        for row in rows:
            for source, text in self.texts.get(row["name"], {}).items():
                if source.endswith(".cpp"):
                    mutants.setdefault(source, {})[row["name"]] = text
                elif is_test(row):
                    source = "lockcore/redis/script_set.cpp"
                    mutants.setdefault(source, {})
                else:
                    continue
                changed[schedule_of(row)[0]].add(source)
        joined = self.folder / "joined"
        for source, texts in mutants.items():
            (joined / source).parent.mkdir(parents=True, exist_ok=True)
            (joined / source).write_text(join_mutants((ROOT / source).read_text(), texts))
        header = joined / "lockcore/redis/scripts.hpp"
        header.parent.mkdir(parents=True, exist_ok=True)
        header.write_text(SCRIPTS_OF_FOLDER)

        def compile_unit(unit):
            text, command = unit
            for source in mutants:
                text = text.replace(f'"{ROOT}/{source}"', f'"{joined}/{source}"')
            words = shlex.split(command)
            file = self.folder / words[words.index("-o") + 1].replace("/", "_")
            file.with_suffix(".cpp").write_text(CHOICE + text)
            words[words.index("-c") + 1], words[words.index("-o") + 1] = str(file.with_suffix(".cpp")), str(file)
            words.insert(next(at for at, word in enumerate(words) if word.startswith("-")), f"-I{joined}")
            compiled = run([*words, "-w"], cwd=self.build)
            if compiled.returncode != 0:
                raise RuntimeError(f"the mutants do not compile:\n{compiled.stderr[-2000:]}")
            return file

        units = {target: self.find_units(target, sources) for target, sources in changed.items()}
        distinct = list(dict.fromkeys(unit for found in units.values() for unit in found))
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            objects = dict(zip(distinct, pool.map(compile_unit, distinct)))
        return {target: self.link(target, [objects[unit] for unit in found]) for target, found in units.items()}

    def link(self, target, objects):
        """Links a program with these objects in front of the library that has the same functions. Returns it."""
        if not objects:
            return self.build / target
        program = self.folder / target
        command = run(["ninja", "-t", "commands", target], cwd=self.build).stdout.splitlines()[-1]
        front = f" -o {program} {' '.join(map(str, objects))} "
        linked = run(command.replace(f" -o {target} ", front), shell=True, cwd=self.build)
        if linked.returncode != 0:
            raise RuntimeError(f"{target} can't be linked:\n{linked.stderr[-2000:]}")
        return program

    def check(self, row):
        """Returns why the mutation is not found as it should be; empty if it is."""
        problem = ""
        # A test with servers is repeated, because on a busy machine they answer too late.
        for _ in range(2 if row["profile"] == "paper_tests" else 1):
            try:
                problem = self.find_violation(row)
            except subprocess.TimeoutExpired as fault:
                problem = str(fault)
            if not problem:
                break
        return problem

    def run_mutant(self, row, *arguments):
        """Runs the program of the row without the rule, and returns what it prints."""
        target, name = schedule_of(row)[0], row["name"]
        scripts = self.folder / (name if self.has_scripts(name) else "intact")
        environment = {**os.environ, "FENCEGATE_LEFT_OUT": name, "FENCEGATE_SCRIPTS": str(scripts)}
        options = []
        if target == "sim":
            options = ["--checker", row["checker"]]
            if name not in self.texts:
                options += ["--mutate", name]
            elif self.has_scripts(name):
                options += ["--scripts", scripts]
        done = run([self.programs[target], *options, *arguments], env=environment)
        return done.stdout + done.stderr

    def find_violation(self, row):
        target, arguments, sign = schedule_of(row)
        # The same program, so that it is the mutation that fails.
        environment = {**os.environ, "FENCEGATE_LEFT_OUT": "", "FENCEGATE_SCRIPTS": str(self.folder / "intact")}
        intact = run([self.programs[target], *arguments], env=environment)
        if intact.returncode != 0 or (is_test(row) and "[  PASSED  ] 1 test" not in intact.stdout):
            return f"the schedule breaks a promise without the mutation:\n{intact.stdout}"
        found = self.run_mutant(row, *arguments)
        return "" if sign in found else f"it is not noticed that this is left out: {row['left_out']}\n{found}"

    def search(self, row, seconds):
        """Returns a seed that shows the mutation and breaks no promise without it; empty if none was found in time."""
        profile = ["--profile", row["profile"]] if row["profile"] != "-" else []
        first, deadline = 1, time.monotonic() + seconds
        while (left := int(deadline - time.monotonic())) > 0:
            found = self.run_mutant(row, *profile, "--for", str(left), "--from", str(first))
            seed = re.search(r"--seed (\d+)", found)
            if f"VIOLATION of {row['checker']} " not in found or not seed:
                return ""
            if run([self.program, "--seed", seed[1], *profile]).returncode == 0:
                return seed[1]
            first = int(seed[1]) + 1
        return ""


def run_seeds(simulation, seeds, jobs):
    """Runs the seeds in several processes. Returns the reports of those that found a violation."""
    size = -(-len(seeds) // jobs)
    parts = [seeds[begin : begin + size] for begin in range(0, len(seeds), size)]
    ranges = [f"{part[0]}..{part[-1]}" for part in parts]
    processes = [
        subprocess.Popen([simulation.program, "--seeds", seeds], stdout=subprocess.PIPE, text=True) for seeds in ranges
    ]
    outputs = [process.communicate()[0] for process in processes]
    print("".join(output.splitlines()[-1] + "\n" for output in outputs), end="")
    return [output for process, output in zip(processes, outputs) if process.returncode != 0]


def seed_range(text):
    first, last = map(int, text.split(".."))
    if not 1 <= first <= last:
        raise ValueError(text)
    return range(first, last + 1)


def run_all(simulation, rows, options):
    """Runs seeds and mutations as the options say. Returns how many passed and failed."""
    passed = failed = 0
    if options.seeds:
        reports = run_seeds(simulation, options.seeds, options.jobs)
        passed, failed = (0, 1) if reports else (1, 0)
        print("".join(reports), end="")
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:

        def check(row):
            problem = simulation.check(row)
            seed = simulation.search(row, options.search) if problem and options.search and not is_test(row) else ""
            return f"{problem}another seed: {seed}" if seed else problem

        for row, problem in zip(rows, pool.map(check, rows)):
            if problem and (seed := re.search(r"another seed: (\d+)$", problem)):
                TABLE.write_text(
                    re.sub(rf"(?m)^({row['name']}\t[^\t]*\t[^\t]*\t)\d+", rf"\g<1>{seed[1]}", TABLE.read_text())
                )
                problem = f"is found by seed {seed[1]}, which is in the table now"
            passed, failed = (passed, failed + 1) if problem else (passed + 1, failed)
            print(f"{'FAILED' if problem else 'found '} {row['name']} {problem}", flush=True)
    return passed, failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="only these mutations")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seeds", type=seed_range, metavar="A..B", help="first run these seeds without a mutation")
    parser.add_argument(
        "--search",
        type=int,
        default=0,
        metavar="SECONDS",
        help="look so long for another seed where a mutation is not found, and write it into the table",
    )
    options = parser.parse_args()
    rows = [row for row in read_table() if is_run(row) and (not options.names or row["name"] in options.names)]
    with tempfile.TemporaryDirectory() as folder:
        simulation = Simulation(options.build.resolve(), rows, pathlib.Path(folder))
        passed, failed = run_all(simulation, rows, options)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
