"""The shell scripts and the loader of scripts/: what they say of themselves and of what stands in their way."""

import ast
import os
import pathlib
import shutil
import stat
import subprocess
import sys
import unittest

from cli import ROOT, CliTest

SCRIPTS = os.path.join(ROOT, "scripts")
EXECUTABLE = sorted(name for name in os.listdir(SCRIPTS) if os.access(os.path.join(SCRIPTS, name), os.X_OK)
                    and os.path.isfile(os.path.join(SCRIPTS, name)))


def bound_by(node):
    """The names that a comprehension binds."""
    return {name.id for part in getattr(node, "generators", ()) for name in ast.walk(part.target) if isinstance(name, ast.Name)}


def free_names(node):
    """The names read in a node that no comprehension in it binds."""
    own = {node.id} if isinstance(node, ast.Name) else set()
    return own.union(*map(free_names, ast.iter_child_nodes(node))) - bound_by(node)


class Scripts(CliTest):
    def run_script(self, *command, **more):
        return subprocess.run(command, cwd=self.folder, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=120, check=False, **more)

    def tool(self, name, lines):
        """A program of our own in front of the system's."""
        path = self.write(os.path.join("bin", name), "#!/bin/sh\n" + lines)
        os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)

    def test_each_answers_help_and_does_nothing_else(self):
        self.assertIn("quickstart.sh", EXECUTABLE)
        for name in EXECUTABLE:
            with self.subTest(name):
                python = [sys.executable, "-P"] if name.endswith(".py") else []  # without the script's folder on sys.path
                result = self.run_script(*python, os.path.join(SCRIPTS, name), "--help")
                if "No module named 'torch'" in result.stderr:
                    continue
                self.assertEqual((result.returncode, result.stderr), (0, ""))
                self.assertGreater(len(result.stdout), 40)
        self.assertEqual(os.listdir(self.folder), ["text.txt"])

    def test_no_comprehension_reads_a_name_that_one_inside_it_binds(self):
        """Python 3.12.3, that of Ubuntu 24.04, fails on it with an UnboundLocalError if the name is the module's."""
        for path in sorted(pathlib.Path(SCRIPTS).rglob("*.py")):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            for outer in filter(bound_by, ast.walk(tree)):
                bound_inside = set().union(*map(bound_by, ast.walk(outer)))
                self.assertEqual(free_names(outer) & bound_inside, set(), f"{path}:{outer.lineno}")

    @unittest.skipUnless(sys.executable == "/usr/bin/python3", "needs the distribution's Python")
    def test_scripts_without_torch_say_so_in_one_line(self):
        for name in ("torch_model.py", "check_with_torch.py"):
            script = os.path.join(SCRIPTS, name)
            result = self.run_script(sys.executable, "-S", "-c",
                                     f"import sys, runpy; sys.modules['torch'] = None; sys.argv = [{script!r}, 'run']; "
                                     f"sys.path.insert(0, {SCRIPTS!r}); sys.path += {sys.path!r}; "
                                     f"runpy.run_path({script!r}, run_name='__main__')")
            self.assertEqual(result.returncode, 1)
            self.assertRegex(result.stderr, r"^\[torch\] .*torch.*; install python3-torch, .*\n$")

    def copy_of_the_scripts(self):
        shutil.copytree(SCRIPTS, self.path("tree", "scripts"))
        os.makedirs(self.path("tree", "build"))
        return self.path("tree", "scripts", "build.sh")

    def test_a_build_folder_of_another_tree_is_explained(self):
        build = self.copy_of_the_scripts()
        self.write("tree/build/CMakeCache.txt", "CMAKE_HOME_DIRECTORY:INTERNAL=/somewhere/else\n")
        result = self.run_script(build)
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stderr, r"^\[build\] .*/somewhere/else.*rm -r build\n$")

    def test_installing_waits_for_another_apt(self):
        install = os.path.join(os.path.dirname(self.copy_of_the_scripts()), "install_packages.sh")
        os.makedirs(self.path("bin"))
        self.tool("dpkg-query", "exit 1\n")
        self.tool("sudo", 'exec "$@"\n')
        self.tool("apt-get", f'echo "$@" >>{self.path("calls")}\n'
                             f'if [ $(grep -c update {self.path("calls")}) -lt 3 ]; then\n'
                             '  echo "E: Could not get lock /var/lib/apt/lists/lock" >&2; exit 100\nfi\n')
        path = {"PATH": self.path("bin") + os.pathsep + os.environ["PATH"], "NORMSCOPE_APT_WAIT": "0"}
        result = self.run_script(install, env={**os.environ, **path})
        self.assertEqual(result.returncode, 0, result.stderr)
        with open(self.path("calls"), encoding="utf-8") as calls:
            calls = calls.read().splitlines()
        self.assertEqual([("update" in call, "install" in call) for call in calls], [(True, False)] * 3 + [(False, True)])
        self.assertIn("waiting", result.stderr)
        self.tool("apt-get", 'echo "E: Unable to locate package" >&2; exit 100\n')
        result = self.run_script(install, env={**os.environ, **path})
        self.assertEqual(result.returncode, 1)
        self.assertIn("Unable to locate", result.stderr)


if __name__ == "__main__":
    unittest.main()
