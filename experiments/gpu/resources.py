#!/usr/bin/env python3
"""Lists what the compiler made of quire's CUDA kernels: registers, shared memory, spilled bytes, tensor-core instructions.

    python3 experiments/gpu/resources.py build/native/lib/libquire_cuda.so [--check] [part of a name]

Prints a table; needs cuobjdump and c++filt, and no GPU. --check: ends with 1 when a kernel that is named for tensor cores
(mma_kernel) has no such instruction, or spills more than 256 bytes a thread.
"""

import argparse
import collections
import re
import shutil
import subprocess
import sys

MOST_SPILLED = 256
COLUMNS = ("registers", "shared", "stack", "mma", "ldmatrix", "spills")


def output_of(*command, text=None):
    done = subprocess.run(command, capture_output=True, text=True, input=text)
    if done.returncode != 0:
        sys.exit(f"resources: error: {' '.join(command)}: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")
    return done.stdout


def short(name):
    """Returns the name without the namespaces, the parameters and the types of operands."""
    name = re.sub(r"\(.*", "", name.replace("(anonymous namespace)::", "").replace("quire::cuda::", "").replace("quire::", ""))
    return re.sub(r"^void ", "", name)


def kernels_of(library, part):
    """Returns {(chip, mangled name): {column: number}}."""
    found = collections.defaultdict(lambda: dict.fromkeys(COLUMNS, 0))
    chip = name = ""
    for line in output_of("cuobjdump", "-res-usage", library).splitlines():
        chip = line.split("=")[1].strip() if line.startswith("arch =") else chip
        if match := re.match(r" *Function ([^:]+):", line):
            name = match.group(1)
        elif match := re.match(r" *REG:(\d+) STACK:(\d+) SHARED:(\d+)", line):
            registers, stack, shared = map(int, match.groups())
            found[chip, name].update(registers=registers, stack=stack, shared=shared)
    for line in output_of("cuobjdump", "-sass", library).splitlines():
        chip = line.split("=")[1].strip() if line.startswith("arch =") else chip
        if "Function :" in line:
            name = line.split(":")[1].strip()
        for column, pattern in (("mma", "HMMA"), ("ldmatrix", "LDSM"), ("spills", "STL|LDL")):
            if re.search(rf"\b({pattern})\b", line):
                found[chip, name][column] += 1
    names = sorted({name for _, name in found})
    readable = dict(zip(names, map(short, output_of("c++filt", text="\n".join(names)).splitlines())))
    return {(readable[name], chip): numbers for (chip, name), numbers in found.items() if part in readable[name]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library")
    parser.add_argument("part", nargs="?", default="")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_intermixed_args()
    for tool in ("cuobjdump", "c++filt"):
        if shutil.which(tool) is None:
            print(f"resources: {tool} is not there")
            sys.exit(0 if arguments.check else 2)
    kernels = kernels_of(arguments.library, arguments.part)
    if not kernels:
        sys.exit(f"resources: error: {arguments.library} has no kernel with '{arguments.part}' in its name")
    print(f"| kernel | chip | {' | '.join(COLUMNS)} |\n|---|---|{'---|' * len(COLUMNS)}")
    wrong = []
    for (name, chip), numbers in sorted(kernels.items()):
        print(f"| {name} | {chip} | {' | '.join(str(numbers[column]) for column in COLUMNS)} |")
        if "mma_kernel" in name and (numbers["mma"] == 0 or numbers["stack"] > MOST_SPILLED):
            wrong.append(f"{name} for {chip}: {numbers['mma']} tensor-core instructions, {numbers['stack']} bytes of stack")
    if arguments.check:
        for line in wrong:
            print(f"resources: {line}", file=sys.stderr)
        sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
