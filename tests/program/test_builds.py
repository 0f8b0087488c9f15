#!/usr/bin/python3
"""A build in a folder with an odd name, under CXXFLAGS that people set: each instruction set is compiled as its own,
and nothing is compiled or linked for fast math."""

import concurrent.futures
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from cli import ROOT
from mutants import BUILD, cache_entry, source_path

# The instruction sets of x86-64, each a file in kernels/isa, and the macros that its flags define.
AVX2 = ["__AVX__", "__FMA__", "__AVX2__"]
SETS = {"baseline": [], "avx2": AVX2, "avx512": [*AVX2, "__AVX512F__"],
        "avx512_bf16": [*AVX2, "__AVX512F__", "__AVX512BF16__"],
        "avx512_amx": [*AVX2, "__AVX512F__", "__AVX512BF16__", "__AMX_BF16__"]}
# A file of each kind: its own instruction set or options, the library, a reader of files, a command.
FILES = [*(f"kernels/isa/{name}.cpp" for name in SETS), "kernels/simd.cpp", "autograd/tape.cpp", "io/csv.cpp",
         "cli/check_command.cpp"]
X86 = platform.machine() in ("x86_64", "AMD64")
FLAGS = ["-Ofast -ffast-math -ffp-contract=fast" + " -march=native" * X86,
         "-ffinite-math-only -funsafe-math-optimizations" + " -mavx512f -mavx512vl" * X86,
         "-O0"]
# Prints whether the program takes subnormal numbers for zero, as start-up code for fast math makes it do.
SUBNORMAL = """#include <cstdio>
int main() {
  volatile float smallest = 1.1754944e-38f, half = smallest / 2;
  std::puts(half > 0 ? "kept" : "zero");
}"""


class Builds(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.source = Path(folder.name) / "it's a (copy) & more"
        cls.source.mkdir()
        for name in ("CMakeLists.txt", "src"):
            copy = shutil.copytree if name == "src" else shutil.copy
            copy(Path(ROOT) / name, cls.source / name)

    def configured(self, flags):
        """The build folder that CMake makes under these CXXFLAGS, with its header of the commit."""
        build = self.source / ("build " + flags.replace(" ", ""))
        environment = {**os.environ, "CXXFLAGS": flags}
        for command in (["cmake", "-S", self.source, "-B", build, "-DBUILD_TESTING=OFF",
                         f"-DCMAKE_CXX_COMPILER={cache_entry('CMAKE_CXX_COMPILER')}"],
                        ["cmake", "--build", build, "--target", "normscope_commit"]):
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("NORMSCOPE_COMMIT", (build / "generated" / "commit.h").read_text(encoding="utf-8"))
        return build

    def macros(self, directory, command, whole):
        """{macro: value} that a command of compile_commands.json defines. `whole`: the file is compiled too, without
        its object code."""
        words = shlex.split(command)
        made = words.index("-o")
        del words[made:made + 2]
        if "-include" in words:  # the precompiled header, which no target has made here
            header = words.index("-include")
            del words[header:header + 2]
        if whole:
            read = subprocess.run([*words, "-fsyntax-only", "-w"], cwd=directory, capture_output=True, text=True,
                                  check=False)
            self.assertEqual(read.returncode, 0, read.stderr[:2000])
        defined = subprocess.run([*words, "-dM", "-E"], cwd=directory, capture_output=True, text=True, check=True)
        return dict(re.findall(r"^#define (\w+) (.*)$", defined.stdout, re.MULTILINE))

    def check(self, flags):
        """One build's commands, and its link."""
        build = self.configured(flags)
        commands = {entry["file"]: entry for entry in json.loads((build / "compile_commands.json").read_text("utf-8"))}
        for name in FILES:
            entry = commands[str(self.source / source_path(name).relative_to(ROOT))]
            macros = self.macros(entry["directory"], entry["command"], whole=flags == FLAGS[0] and "isa/" in name)
            with self.subTest(file=name, flags=flags):
                self.assertNotIn("__FAST_MATH__", macros)
                self.assertEqual(macros.get("__FINITE_MATH_ONLY__", "0"), "0")
                self.assertNotIn("__ASSOCIATIVE_MATH__", macros)
                contraction = [word for word in shlex.split(entry["command"]) if word.startswith("-ffp-contract=")]
                self.assertEqual(contraction[-1], "-ffp-contract=off")
                if X86 and "isa/" in name:
                    known = {macro for names in SETS.values() for macro in names}
                    self.assertEqual(known & macros.keys(), set(SETS[Path(name).stem]))
        # The program's own link command, with a file that prints what the start-up code has set.
        link = (build / "CMakeFiles" / "normscope.dir" / "link.txt").read_text(encoding="utf-8")
        options = [word for word in shlex.split(link) if word.startswith(("-O", "-f", "-m"))]
        (build / "subnormal.cpp").write_text(SUBNORMAL, encoding="utf-8")
        compiler = cache_entry("CMAKE_CXX_COMPILER")
        subprocess.run([compiler, "-O0", "-c", "subnormal.cpp"], cwd=build, check=True)
        subprocess.run([compiler, *options, "subnormal.o", "-o", "subnormal"], cwd=build, check=True)
        printed = subprocess.run([build / "subnormal"], capture_output=True, text=True, check=True).stdout
        self.assertEqual(printed, "kept\n")

    def test_options_of_users_change_neither_sums_nor_instruction_sets(self):
        with concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
            for flags, result in [(flags, pool.submit(self.check, flags)) for flags in FLAGS]:
                with self.subTest(flags=flags):
                    result.result()

    @unittest.skipUnless(cache_entry("CMAKE_BUILD_TYPE") == "Release", "without optimisation little is inlined")
    def test_no_function_of_an_instruction_set_serves_the_whole_program(self):
        """The linker keeps one of several weak functions with one name, whatever instructions it has."""
        objects = [*BUILD.glob("CMakeFiles/normscope_engine.dir/src/engine/kernels/isa/*.o")]
        self.assertEqual(len(objects), len(SETS) if X86 else 1)
        for file in objects:
            symbols = subprocess.run(["nm", file], capture_output=True, text=True, check=True).stdout
            self.assertEqual(re.findall(r"(?m)^\S* [WVu] (?!.*isa_).*", symbols), [], file)


if __name__ == "__main__":
    unittest.main()
