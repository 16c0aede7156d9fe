"""Configure, build and install with CMake and Ninja: progress for people, the whole output in a log."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sdk_tools import process
from sdk_tools.build.compiler import BuildTools, Compiler
from sdk_tools.errors import BuildError, SyrinxError
from sdk_tools.files import write_json
from sdk_tools.paths import cache_dir
from sdk_tools.progress import Reporter, Step

_STATUS = re.compile(r"^\[(\d+)/(\d+)\] (.*)$")
_ERROR = re.compile(r"error:|fatal:|CMake Error|undefined reference|multiple definition|Killed|No space left")
STAMP = "syrinx-configure.json"
_LOGS_KEPT = 20
_SHOWN = 12


@dataclass(frozen=True)
class Project:
    """One CMake project and where it is built. title is for progress; definitions are NAME=VALUE."""

    title: str
    source: Path
    build_dir: Path
    definitions: tuple[str, ...]
    compiler: Compiler
    tools: BuildTools


class Runner:
    """Runs the steps of one project. Errors of every method: BuildError (with the log's path), Cancelled."""

    def __init__(self, project: Project, reporter: Reporter) -> None:
        self._project = project
        self._reporter = reporter
        self._log = _new_log(project.title)

    def configure(self) -> None:
        """Does nothing if the last configuration had the same arguments: Ninja sees changed CMake files itself.

        Other definitions are a new configuration in place; another compiler or source folder starts from nothing.
        """
        project = self._project
        fixed = self._fixed_arguments()
        arguments = [*fixed, *(f"-D{definition}" for definition in project.definitions)]
        stamp = project.build_dir / STAMP
        last = _read_json(stamp)
        if last == arguments and (project.build_dir / "build.ninja").is_file():
            return
        stamp.unlink(missing_ok=True)
        if not isinstance(last, list) or last[: len(fixed)] != fixed:
            shutil.rmtree(project.build_dir, ignore_errors=True)
        project.build_dir.mkdir(parents=True, exist_ok=True)
        with self._reporter.step(f"Configuring {project.title}") as step:
            self._run([project.tools.cmake, *arguments], step)
        write_json(stamp, arguments)

    def build(self, jobs: int, target: str = "all") -> None:
        """Brings a target up to date."""
        project = self._project
        with self._reporter.step(f"Building {project.title}") as step:
            self._run([project.tools.ninja, "-C", project.build_dir, "-j", str(jobs), target], step)

    def install(self, prefix: Path, *, strip: bool) -> None:
        """Copies what the project installs into `prefix`."""
        command: list[str | Path] = [self._project.tools.cmake, "--install", self._project.build_dir]
        command += ["--prefix", prefix, *(["--strip"] if strip else [])]
        with self._reporter.step(f"Installing {self._project.title}") as step:
            self._run(command, step)

    def _fixed_arguments(self) -> list[str]:
        """Generator, folders, compilers and Ninja: what an existing build folder cannot change."""
        project = self._project
        launcher = project.tools.ccache or ""
        definitions = (
            *project.compiler.cmake_definitions(),
            f"CMAKE_MAKE_PROGRAM={project.tools.ninja}",
            f"CMAKE_C_COMPILER_LAUNCHER={launcher}",
            f"CMAKE_CXX_COMPILER_LAUNCHER={launcher}",
        )
        folders = ["-G", "Ninja", "-S", str(project.source), "-B", str(project.build_dir)]
        return [*folders, *(f"-D{definition}" for definition in definitions)]

    def _run(self, command: Sequence[str | Path], step: Step) -> None:
        watcher = _Watcher(step)
        with self._log.open("a", encoding="utf-8") as log:
            log.write("$ " + " ".join(str(word) for word in command) + "\n")

            def on_output(_stream: process.Stream, text: str) -> None:
                log.write(text)
                log.flush()
                watcher.feed(text)

            done = process.run(command, env=_environment(), on_output=on_output)
        if done.exit_code != 0:
            raise self._explain(done)

    def _explain(self, done: process.Completed) -> SyrinxError:
        lines = (done.stdout + done.stderr).splitlines()
        shown: list[str] = []
        for index, line in enumerate(lines):
            if line.startswith("FAILED:"):
                shown.append(line)  # the line after it is the whole compiler call: that is for the log
            elif _ERROR.search(line):
                shown += lines[index : index + 2]  # the message and the source line it points to
        # What follows one error may be the next one: each once, in order.
        text = "\n".join(f"  {line[:300]}" for line in list(dict.fromkeys(shown or lines[-10:]))[:_SHOWN])
        hint = f"The whole output is in {self._log}."
        if any("Killed" in line for line in lines):
            hint += " The compiler was killed, as when memory runs out: try --jobs 1."
        return BuildError(f"Building {self._project.title} failed.\n{text}", hint)


class _Watcher:
    """Turns Ninja's "[3/40] Building ..." lines into progress."""

    def __init__(self, step: Step) -> None:
        self._step = step
        self._rest = ""

    def feed(self, text: str) -> None:
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            found = _STATUS.match(line)
            if found:
                done, total, what = int(found[1]), int(found[2]), found[3]
                self._step.update(done, total, what.rsplit("/", 1)[-1])


def map_prefixes(names: Mapping[Path, str]) -> str:
    """Compiler flags that put a name in the place of each folder in what is compiled (messages, debug information), so
    that the same sources give the same bytes wherever they lie."""
    return shlex.join(f"-ffile-prefix-map={path}={name}" for path, name in names.items())


def _environment() -> dict[str, str]:
    """Flags come from our options alone, so that the same options give the same bytes on every machine."""
    flags = dict.fromkeys(("CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS"), "")
    own = {"NINJA_STATUS": "[%f/%t] ", "LC_ALL": "C", "CLICOLOR_FORCE": "0", "SOURCE_DATE_EPOCH": "0"}
    ccache = {} if "CCACHE_DIR" in os.environ else {"CCACHE_DIR": str(cache_dir() / "ccache")}
    return {**flags, **own, **ccache}


def _new_log(title: str) -> Path:
    folder = cache_dir() / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    for old in sorted(folder.glob("*.log"), key=lambda path: path.stat().st_mtime)[: -_LOGS_KEPT + 1]:
        old.unlink(missing_ok=True)
    name = re.sub(r"[^A-Za-z0-9.]+", "-", title)
    return folder / f"{time.strftime('%Y%m%d-%H%M%S')}-{name}-{os.getpid()}.log"


def _read_json(path: Path) -> object:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None
