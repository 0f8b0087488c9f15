"""The scripts as programs: their help, the Python and the locale that they run in, and the messages of the shell
scripts."""

import math
import os
import pathlib
import shutil
import stat
import subprocess
import sys
import tempfile
import unittest

from cli import BINARY, PATIENCE, ROOT, CliTest, environment  # which finds lib
from lib.base import processors

SCRIPTS = os.path.join(ROOT, "scripts")
EXECUTABLE = sorted(name for name in os.listdir(SCRIPTS) if os.access(os.path.join(SCRIPTS, name), os.X_OK)
                    and os.path.isfile(os.path.join(SCRIPTS, name)))


class Scripts(CliTest):
    def run_script(self, *command, **more):
        return subprocess.run(command, cwd=self.folder, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=PATIENCE, check=False, **more)

    def test_the_quota_is_that_of_the_control_group_and_of_all_above_it(self):
        own, cpu = "0::/user/job\n", "cpu,cpuacct"  # of version 2; the controllers of version 1
        for groups, files, quota in (
                ("", {}, math.inf), (own, {"user/job/cpu.max": "max 100000\n"}, math.inf),
                (own, {"user/job/cpu.max": "150000 100000\n"}, 1.5),
                (own, {"user/job/cpu.max": "400000 100000\n", "user/cpu.max": "200000 100000\n"}, 2),
                (own, {"cpu.max": "100000 100000\n"}, 1),  # a container's, under a host's path
                (f"4:{cpu}:/job\n1:name=systemd:/x\n0::/\n",
                 {f"{cpu}/job/cpu.cfs_quota_us": "-1\n", f"{cpu}/job/cpu.cfs_period_us": "100000\n",
                  f"{cpu}/cpu.cfs_quota_us": "300000\n", f"{cpu}/cpu.cfs_period_us": "100000\n"}, 3)):
            with self.subTest(groups=groups, files=files), tempfile.TemporaryDirectory() as root:
                for name, text in {"../../../proc/self/cgroup": groups, **files}.items():
                    path = pathlib.Path(os.path.normpath(os.path.join(root, "sys/fs/cgroup", name)))
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_text(text, encoding="ascii")
                self.assertEqual(processors.quota(root), quota)

    def test_a_tilde_behind_an_equals_sign_is_the_home_folder(self):
        self.config()
        result = self.run_script(os.path.join(SCRIPTS, "sweep.py"), "tiny.json", "--set", "train.lr=1,2", "--dry-run",
                                 "--out=~/runs", env=environment(HOME=self.path("home"), NORMSCOPE_BINARY=BINARY))
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertIn(f"in {self.path('home', 'runs')}", result.stdout)

    def test_each_answers_help_and_does_nothing_else(self):
        from made_runs import run_script  # with Matplotlib, which the scripts' processes inherit
        self.assertIn("quickstart.sh", EXECUTABLE)
        for name in EXECUTABLE:
            with self.subTest(name):
                path = os.path.join(SCRIPTS, name)
                if name.endswith(".py"):
                    result = run_script(path, "--help", cwd=self.folder)
                else:
                    result = self.run_script(path, "--help")
                if "No module named 'torch'" in result.stderr:
                    continue
                self.assertEqual((result.returncode, result.stderr), (0, ""))
                if name.endswith(".py"):
                    self.assertIn(f"usage: {name}", result.stdout)
                else:  # the comment at its beginning
                    source = pathlib.Path(SCRIPTS, name).read_text(encoding="utf-8")
                    self.assertIn("# " + result.stdout.rstrip("\n").replace("\n", "\n# ") + "\n", source)
                    self.assertNotRegex(source, r"(?m)^\s*cd ")  # without CDPATH= before it, which could lead elsewhere
        self.assertEqual(os.listdir(self.folder), ["text.txt"])

    @unittest.skipUnless(sys.executable == "/usr/bin/python3", "needs the distribution's Python")
    def test_surroundings_that_end_in_no_traceback(self):
        """Lines of shell with their exit code and all that they print on stderr."""
        compare, plot, of_torch, with_torch, peers = (os.path.join(SCRIPTS, f"{name}.py") for name in (
            "compare", "plot", "torch_model", "check_with_torch", "bench_peers"))
        self.config()
        self.train("run")
        os.makedirs(self.path("packages", "matplotlib"))
        self.write("packages/matplotlib/__init__.py", "import sys\nprint('a page\\n' * 30, file=sys.stderr)\n"
                                                      "raise ImportError('numpy.core.multiarray failed to import')\n")

        def after(statement, script):
            return (f'{sys.executable} -c "import sys, runpy; {statement}; sys.argv = [{script!r}, \'run\']; '
                    f"runpy.run_path({script!r}, run_name='__main__')\"")

        for line, code, says in (
                (f"{sys.executable} -P {compare} --help", 0, ""),  # without the script's folder on Python's path
                (f"{compare} run >&-", 1, r"\[compare\] output: stdout is closed, so that nothing could be printed\n"),
                (f"MPLBACKEND=nonsense {plot} loss run", 0, ""),
                (f"{sys.executable} -S {peers}", 1,  # without the folders of packages
                 r"\[bench_peers\] .* for torch; give the script to a Python that has PyTorch: /path/to/python .*\n"),
                (after("sys.version_info = (3, 10)", compare), 1,
                 r"\[compare\] this is Python 3.10; expected 3.11 or newer\n"),
                # A path of packages for another Python is left out; one that the interpreter has by itself cannot be.
                (f"PYTHONPATH={self.path('packages')} {plot} --help", 0, ""),
                (after(f"sys.path.insert(0, '{self.path('packages')}')", plot), 1,
                 r"\[plot\] numpy.core.multiarray failed to import; the package, or one that it needs, is damaged or "
                 r"of another version: install all from one place\n"),
                *((after("sys.modules['torch'] = None", script), 1, r"\[torch\] .*torch.*; install python3-torch, .*\n")
                  for script in (of_torch, with_torch))):
            with self.subTest(line):
                result = self.run_script("sh", "-c", line)
                self.assertEqual(result.returncode, code)
                self.assertRegex(result.stderr, rf"\A{says}\Z")

    def assert_reads_utf8(self, shown, **locale):
        """A script whose locale has another encoding finds files by their UTF-8 names, and prints them as UTF-8 into a
        pipe; a terminal shows `shown`."""
        self.config()
        os.makedirs(self.path("日本"))
        shutil.copy(self.path("text.txt"), self.path("日本/ü.txt"))
        env = environment(NORMSCOPE_BINARY=BINARY, PYTHONCOERCECLOCALE="0", PYTHONUTF8="0", **locale)
        sweep = f"{sys.executable} {SCRIPTS}/sweep.py tiny.json --set data.path=日本"
        for words, code, says in (
                ([sys.executable, "-c", "import sys; print(sys.getfilesystemencoding() in ('', 'utf-8'))"], 0, "False"),
                (f"{sweep}/ü.txt --out 日本/out".split(), 0, "日本"), (f"{sweep}/ö.txt".split(), 2, "日本"),
                ([sys.executable, f"{SCRIPTS}/compare.py", "日本/out"], 0, ""),
                (["script", "-qec", f"{sweep}/ü.txt --dry-run --out 日本/ä", "/dev/null"], 0, shown)):
            result = self.run_script(*map(os.fsencode, words), env=env, encoding="utf-8", errors="backslashreplace")
            self.assertEqual(result.returncode, code, result.stdout + result.stderr)
            self.assertIn(says, result.stdout + result.stderr)

    def test_names_are_utf8_in_a_locale_of_ascii(self):
        self.assert_reads_utf8("in 日本/ä", LC_ALL="C")

    @unittest.skipUnless(shutil.which("localedef") and os.path.exists("/usr/share/i18n/locales/de_DE"),
                         "needs the package locales")
    def test_names_are_utf8_in_a_locale_of_latin_1(self):
        subprocess.run(["localedef", "-i", "de_DE", "-f", "ISO-8859-1", self.path("de_DE.ISO-8859-1")], check=True,
                       capture_output=True)
        # the terminal's encoding has the second name's letter alone, as byte e4
        self.assert_reads_utf8(r"in \u65e5\u672c/\xe4", LC_ALL="de_DE.ISO-8859-1", LOCPATH=self.folder)

    def installed(self, tools, name="install_packages.sh", path=os.environ["PATH"], env=None):
        """Runs a copy of a shell script in a tree of its own, with these tools, {name: lines of shell}, before those of
        `path`."""
        shutil.copytree(SCRIPTS, self.path("tree", "scripts"), dirs_exist_ok=True)
        shutil.rmtree(self.path("bin"), ignore_errors=True)
        os.makedirs(self.path("bin"))
        for tool, lines in tools.items():
            os.chmod(self.write(os.path.join("bin", tool), "#!/bin/sh\n" + lines + "\n"), stat.S_IRWXU)
        return self.run_script("/usr/bin/env", f"PATH={self.path('bin')}:{path}", shutil.which("bash"),
                               self.path("tree", "scripts", name), env=env)

    def test_what_is_missing_is_named(self):
        os.makedirs(self.path("tree", "build"))
        self.write("tree/build/CMakeCache.txt", "CMAKE_HOME_DIRECTORY:INTERNAL=/somewhere/else\n")
        here, install = os.environ["PATH"], "install_packages.sh"
        twice = ("form=$(printf %s \"${2#--showformat=}\" | sed 's/${db:Status-Status}/installed/'); "
                 'printf "$form$form"')
        for name, tools, path, code, says in (
                (install, {"dpkg-query": twice, "apt-get": "exit 1"}, here, 0, ""),  # a package of two architectures
                (install, {}, "/nowhere", 1, r"\[install\] no apt-get here; install a C.* OpenBLAS, .*, matplotlib\n"),
                # with all of them a build may go on
                (install, dict.fromkeys(["c++", "cmake", "make", "python3"], "exit 0"), "/nowhere", 0, ""),
                ("build.sh", {"dpkg-query": "echo installed"}, here, 1, r"\[build\] .*/somewhere/else.*rm -r build\n")):
            result = self.installed(tools, name, path)
            self.assertEqual((result.returncode, result.stdout), (code, ""))
            self.assertRegex(result.stderr, rf"\A{says}\Z")

    def test_installing_waits_for_another_apt(self):
        calls = self.path("calls")
        get = (f'echo "$@" >>{calls}\nif [ $(grep -c update {calls}) -lt 3 ]; then\n'
               '  echo "E: Could not get lock /var/lib/apt/lists/lock" >&2; exit 100\nfi')
        result = self.installed({"sudo": 'exec "$@"', "dpkg-query": "exit 1", "apt-get": get},
                                env={**os.environ, "NORMSCOPE_APT_WAIT": "0"})
        self.assertEqual(result.returncode, 0, result.stderr)
        calls = pathlib.Path(calls).read_text(encoding="utf-8").splitlines()
        self.assertEqual([("update" in call, "install" in call) for call in calls],
                         [(True, False)] * 3 + [(False, True)])
        self.assertIn("waiting", result.stderr)


if __name__ == "__main__":
    unittest.main()
