#!/usr/bin/env python3
"""Plants faults in mechanisms, one after the other, and says which tests of the mechanism suite catch each of them.

    python3 tests/support/plant_faults.py build/native [NUMBER ...]

Each fault is a small change of one file, which is undone afterwards. The table that is printed is that of
tests/README.md. Exit code 1: some fault was caught by no test, or does not compile.
"""

import argparse
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
SUITES = ("Reading", "Split", "Caches", "Training")

# Mechanism, beginning of the names of its cases, what is wrong, file, the text and what replaces it.
FAULTS = [
    ("fast_weight", "fast_weight", "the state lacks the last token", "tests/support/fast_weight.cpp",
     "        A = add(t, A, matmul(t, keys.back(), errors.back(), {.transpose_a = true}));",
     """        const int64_t used = next - done - (next == end ? 1 : 0);
        if (used > 0) {
          A = add(t, A, matmul(t, slice(t, keys.back(), 1, 0, used), slice(t, errors.back(), 1, 0, used),
                               {.transpose_a = true}));
        }"""),
    ("fast_weight", "fast_weight", "queries are those of the next token", "tests/support/fast_weight.cpp",
     "        out.push_back(matmul(t, part(0), S));",
     """        const int64_t behind = next == end ? next - 1 : next;
        const Variable later = concatenate(
            t, std::vector{slice(t, by_head[0], 1, done + 1, next), slice(t, by_head[0], 1, behind, behind + 1)}, 1);
        out.push_back(matmul(t, later, S));"""),
    ("softmax", "", "padding enters the cache", "layers/mixers/softmax_attention.cpp",
     """    f.state.append(cached_keys_, mixer.k.value());
    f.state.append(cached_values_, mixer.v.value());""",
     """    const std::vector<int64_t> none(static_cast<size_t>(rows), 0), all(static_cast<size_t>(rows), tokens);
    f.state.append(cached_keys_, mixer.k.value(), none, all);
    f.state.append(cached_values_, mixer.v.value(), none, all);"""),
    ("softmax", "", "a document that begins inside a row reads the cache", "layers/mixers/softmax_attention.cpp",
     "    initial = f.state.initial_lengths(cached_keys_.group);\n    x.cache_k",
     """    const std::vector<Segment> parts = f.state.segments();
    for (size_t s = 0; s < parts.size(); ++s) {
      initial[s] = f.state.lengths(cached_keys_.group)[static_cast<size_t>(parts[s].row)];
    }
    x.cache_k"""),
    ("vq", "vq", "a token leaves the window before the cache has it", "layers/mixers/vq_blocks.cpp",
     "std::max(origin, next - window)", "std::max(origin, next - window - 1)"),
    ("vq", "vq", "codebooks count padding", "layers/mixers/vq_attention.cpp",
     "codebook_->count(f.batch, k.value(), quantized.codes, mask);",
     """{
      const std::vector<uint8_t> ones(static_cast<size_t>(rows * tokens), 1);
      codebook_->count(f.batch, k.value(), quantized.codes, Tensor::from(ones, mask.shape(), f.state.device()));
    }"""),
    ("landmark", "landmark", "a block that ends with the subsequence is not stored", "layers/carried/block_log.cpp",
     "(position + segment.count - first_whole) / options_.period",
     "(position + segment.count - 1 - first_whole) / options_.period"),
    ("landmark", "landmark", "tokens choose blocks together with later ones", "layers/mixers/landmark_choice.cpp",
     "selection == BlockSelection::token ? 1 : 2", "2"),
    ("knn", "knn", "the last token of a subsequence is not written", "layers/memory/knn_write.cpp",
     "const int64_t leaving = cached + segment.count - max_carried;",
     "const int64_t leaving = cached + segment.count - max_carried - 1;"),
    ("knn", "knn", "a document that begins inside a row reads the memory", "layers/memory/knn_search.cpp",
     "  if (const Tensor readers = carried_mask(f); readers.defined()) ops::drop_entries(index, readers);\n", ""),
    ("drt", "drt", "tokens read what the end of their own chunk chose", "layers/stacks/chunk_cut.cpp",
     "      ++of_segment;",
     """      ++of_segment;
      for (int64_t back = 0; back < positions && t - back >= segment.begin; ++back) {
        list[static_cast<size_t>(batch.at(row, t - back))] = reads;
      }"""),
    ("drt", "drt", "a step without a whole chunk forgets what was chosen", "layers/stacks/drt_retriever.cpp",
     "written.push_back(chose ? 1 : 0);", "written.push_back(1);"),
]


def caught_by(build, cases):
    done = subprocess.run([build / "bin/test_integration", "--gtest_brief=1", "--gtest_filter=" + ":".join(
        f"*/Mechanism{suite}.*/{cases}*" for suite in SUITES)], capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        return {f"the program ended with {done.returncode}": 1}
    tests = re.findall(r"\[  FAILED  \] \w+/(Mechanism\w+\.\w+)/", done.stdout)
    return {test: tests.count(test) for test in sorted(set(tests))}


def build_tests(build):
    command = ["cmake", "--build", build, "--target", "test_integration", "-j2"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("build", type=pathlib.Path, nargs="?", help="folder of a build")
    parser.add_argument("numbers", type=int, nargs="*", help="faults to plant (default: all)")
    parser.add_argument("--check", action="store_true", help="only see that every fault still has its place")
    arguments = parser.parse_args()
    for number, (_, _, _, name, old, _) in enumerate(FAULTS, start=1):
        if (ROOT / name).read_text(encoding="utf-8").count(old) != 1:
            sys.exit(f"plant_faults: error: {name}: has not once the text of fault {number}; bring the list up to date")
    if arguments.check:
        return 0
    if arguments.build is None:
        parser.error("name the folder of a build")
    missed = 0
    print("| | mechanism | fault | tests that fail (cases) |\n|---|---|---|---|", flush=True)
    for number, (mechanism, cases, what, name, old, new) in enumerate(FAULTS, start=1):
        if arguments.numbers and number not in arguments.numbers:
            continue
        file = ROOT / name
        sound = file.read_text(encoding="utf-8")
        try:
            file.write_text(sound.replace(old, new), encoding="utf-8")
            built = build_tests(arguments.build)
            tests = caught_by(arguments.build, cases) if built.returncode == 0 else {}
        finally:
            file.write_text(sound, encoding="utf-8")
        if built.returncode != 0:
            print(built.stdout[-2000:], file=sys.stderr)
        missed += 0 if tests else 1
        told = ", ".join(f"{test} ({count})" for test, count in tests.items()) or "none"
        print(f"| {number} | {mechanism} | {what} | {told} |", flush=True)
    build_tests(arguments.build)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
