#!/usr/bin/env python3
"""Leaves out one rule at a time and requires that a schedule of the simulation, or of a test, shows it.

Each line of mutations/table.tsv names a mutation, the checker that must find it, and the profile and the seed that show
it. NAME.patch in that folder changes the product: a copy of it is patched, and the given seed must break the promise;
without the patch the same seed must break none.
Where random seeds do not show the rule in useful time, the line names a program of tests and one of its tests,
which plays the schedule that does: it must fail with the patch and pass without.
For `sim` a patch of Lua files needs no build; of a patched C++ file only its unit (the file,
or those that the build joins with it) is compiled, with the command of the build, and linked in front of the library.
A name without a patch is a mutation of a part that is simulated (`sim --mutate list`);
a line without a name is not run.
"""
import argparse
import concurrent.futures
import json
import pathlib
import re
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


class Simulation:
    def __init__(self, build):
        self.build = build
        self.program = build / "sim"

    def patch_copy(self, name, folder):
        """Copies what the simulation has of the product, applies the patch,
        and returns the names of the files that it changes."""
        patch = FOLDER / "mutations" / f"{name}.patch"
        changed = [
            line.split("\t")[0].split()[1].removeprefix("b/")
            for line in patch.read_text().splitlines()
            if line.startswith("+++ ")
        ]
        shutil.copytree(ROOT / "lockcore", folder / "lockcore")
        shutil.copytree(ROOT / "gateway" / "audit", folder / "gateway" / "audit")
        applied = run(["patch", "-p1", "--no-backup-if-mismatch", "-F0", "-i", str(patch)], cwd=folder)
        if applied.returncode != 0:
            raise RuntimeError(f"the patch does not apply:\n{applied.stdout}")
        return changed

    def embed_scripts(self, folder):
        """Writes the header with the scripts of the copy, as the build does."""
        scripts = sorted((folder / "lockcore" / "redis").rglob("*.lua"))
        arguments = [
            f"-DOUTPUT={folder}/generated/lockcore/redis/scripts.hpp",
            "-DNAMESPACE=lockcore::redis::scripts",
            "-DINPUTS=" + ";".join(map(str, scripts)),
        ]
        written = run(["cmake", *arguments, "-P", str(ROOT / "lockcore" / "embed.cmake")])
        if written.returncode != 0:
            raise RuntimeError(f"the scripts can't be embedded:\n{written.stderr}")

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

    def compile(self, target, sources, folder):
        """Compiles the units of the changed C++ files and links them with the other objects of the target.
        Returns the program."""
        copied = {f"{ROOT}/lockcore": f"{folder}/lockcore", f"{ROOT}/gateway/audit": f"{folder}/gateway/audit"}

        def of_copy(text):
            return re.sub("|".join(copied), lambda found: copied[found[0]], text)

        objects = []
        for number, (text, command) in enumerate(self.find_units(target, sources)):
            unit, output = folder / f"{number}.cpp", folder / f"{number}.o"
            unit.write_text(of_copy(text))
            words = of_copy(command).split()
            words[words.index("-c") + 1] = str(unit)
            words[words.index("-o") + 1] = str(output)
            words.insert(next(at for at, word in enumerate(words) if word.startswith("-")), f"-I{folder}/generated")
            compiled = run(" ".join(words), shell=True, cwd=self.build)
            if compiled.returncode != 0:
                raise RuntimeError(f"{sources} do not compile:\n{compiled.stderr[-2000:]}")
            objects.append(str(output))
        link = run(["ninja", "-t", "commands", target], cwd=self.build).stdout.splitlines()[-1]
        program = folder / target
        # The objects stand in front of the library that has the same functions.
        linked = run(link.replace(f" -o {target} ", f" -o {program} {' '.join(objects)} "), shell=True, cwd=self.build)
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
            except (RuntimeError, subprocess.TimeoutExpired) as fault:
                problem = str(fault)
            if not problem:
                break
        return problem

    def prepare(self, row, folder):
        """Returns the program without the rule, and its options."""
        if not (FOLDER / "mutations" / f"{row['name']}.patch").exists():
            return self.program, ["--mutate", row["name"], "--checker", row["checker"]]
        changed = self.patch_copy(row["name"], folder)
        scripts = [source for source in changed if source.endswith(".lua")]
        sources = [source for source in changed if not source.endswith(".lua")]
        if is_test(row):
            if scripts:
                self.embed_scripts(folder)
                sources.append("lockcore/redis/script_set.cpp")
            return self.compile(row["profile"], sources, folder), []
        options = ["--checker", row["checker"]]
        if scripts:
            (folder / "lua").mkdir()
            for script in scripts:
                shutil.copy(folder / script, folder / "lua")
            options += ["--scripts", str(folder / "lua")]
        return self.compile("sim", sources, folder) if sources else self.program, options

    def find_violation(self, row):
        target, arguments, sign = schedule_of(row)
        intact = run([self.build / target, *arguments])
        if intact.returncode != 0 or (is_test(row) and "[  PASSED  ] 1 test" not in intact.stdout):
            return f"the schedule breaks a promise without the mutation:\n{intact.stdout}"
        with tempfile.TemporaryDirectory() as name:
            program, options = self.prepare(row, pathlib.Path(name))
            found = run([program, *options, *arguments])
            if sign not in found.stdout:
                return f"it is not noticed that this is left out: {row['left_out']}\n{found.stdout}{found.stderr}"
        return ""

    def search(self, row, seconds):
        """Returns a seed that shows the mutation and breaks no promise without it; empty if none was found in time."""
        with tempfile.TemporaryDirectory() as name:
            program, options = self.prepare(row, pathlib.Path(name))
            profile = ["--profile", row["profile"]] if row["profile"] != "-" else []
            first, deadline = 1, time.monotonic() + seconds
            while (left := int(deadline - time.monotonic())) > 0:
                found = run([program, *options, *profile, "--for", str(left), "--from", str(first)]).stdout
                seed = re.search(r"--seed (\d+)", found)
                if f"VIOLATION of {row['checker']} " not in found or not seed:
                    return ""
                if run([self.program, "--seed", seed[1], *profile]).returncode == 0:
                    return seed[1]
                first = int(seed[1]) + 1
        return ""


def run_seeds(simulation, count, seconds, jobs):
    """Runs the seeds from 1 on in several processes, for at most so many seconds (0: all of them).
    Returns the reports of those that found a violation."""
    size = -(-count // jobs)
    ranges = [f"{first}..{min(first + size - 1, count)}" for first in range(1, count + 1, size)]
    processes = [
        subprocess.Popen(
            [simulation.program, "--seeds", seeds, "--for", str(seconds)], stdout=subprocess.PIPE, text=True
        )
        for seeds in ranges
    ]
    outputs = [process.communicate()[0] for process in processes]
    print("".join(output.splitlines()[-1] + "\n" for output in outputs), end="")
    return [output for process, output in zip(processes, outputs) if process.returncode != 0]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="only these mutations")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=0, help="first run so many seeds without a mutation")
    parser.add_argument(
        "--seeds-for",
        type=int,
        default=0,
        metavar="SECONDS",
        help="stop with --seeds after this time, although some are left",
    )
    parser.add_argument(
        "--search",
        type=int,
        default=0,
        metavar="SECONDS",
        help="look so long for another seed where a mutation is not found, and write it into the table",
    )
    options = parser.parse_args()
    simulation = Simulation(options.build.resolve())
    passed = failed = 0
    if options.seeds:
        reports = run_seeds(simulation, options.seeds, options.seeds_for, options.jobs)
        passed, failed = (0, 1) if reports else (1, 0)
        print("".join(reports), end="")
    rows = [row for row in read_table() if is_run(row) and (not options.names or row["name"] in options.names)]
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
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
