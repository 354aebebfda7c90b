"""Each command where the system has nothing that only POSIX has: not Windows, but what of it Linux can imitate."""

import re
import subprocess
import sys

import pytest
from PIL import Image

PROGRAM = """
import asyncio, os, pathlib, shutil, signal, subprocess, sys, tempfile, types, webbrowser, zipfile
from importlib import import_module
for name in ("filelock", "matplotlib.pyplot", "multiprocessing.popen_fork", "numba", "numpy", "PIL.Image", "pooch",
             "scipy.linalg", "sklearn.svm", "tyro"):
    import_module(name)

def without(module, gone, **more):
    kept = {name: thing for name, thing in vars(module).items() if name not in gone.split()}
    sys.modules[module.__name__] = made = types.ModuleType(module.__name__)
    vars(made).update(kept, **more)

without(os, "fork forkpty killpg setsid getpgid getpgrp geteuid getuid setuid setgid setgroups sched_getaffinity nice "
            "uname getloadavg WIFSIGNALED O_DIRECTORY O_NOFOLLOW", name="nt")
without(signal, "SIGKILL SIGHUP SIGUSR1 SIGUSR2 SIGALRM SIGCHLD SIGPIPE SIGQUIT alarm setitimer pthread_sigmask pause")
sys.modules.update(dict.fromkeys(("fcntl", "resource", "pwd", "grp", "termios", "tty"), None))
sys.platform = "win32"

from tinyvit import cli
for command in sys.stdin.read().splitlines():
    print(command, flush=True)
    assert not cli.command_of(command.split())()
cli.main(["exercises", "grade", "mine.py"])
"""
COMMANDS = """\
--version
train digits --epochs 1 --images 100 --out RUN
train --resume RUN
finetune RUN --data digits --epochs 1 --images 50 --out FINER
evaluate RUN
predict RUN digit.png
features RUN digit.png --out features.npy
inspect RUN --html page.html
probe-linear RUN
knn RUN
export RUN --format timm --out exported
import exported --out imported
summary RUN
gradcheck RUN --directions 1
notebooks copied
exercises export --nbgrader course
bench --rounds 1 --cases digits --kernels numpy
"""


@pytest.mark.end_to_end
def test_each_command_runs_without_what_only_posix_has_and_grading_says_that_it_needs_linux(tmp_path):
    Image.new("L", (8, 8)).save(tmp_path / "digit.png")
    (tmp_path / "mine.py").write_text("def softmax(x):\n    return x\n")
    done = subprocess.run([sys.executable, "-c", PROGRAM], input=COMMANDS, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2, done.stdout + done.stderr
    assert re.search(r"(?m)^tinyvit: error: grading needs Linux, .*\n\Z", done.stderr)
