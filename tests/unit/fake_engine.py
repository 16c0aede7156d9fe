"""An engine folder whose `syrinx` is a script that answers as it is told, and notes what it was asked."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sdk_tools.build.manifest import BuiltEngine, write_manifest
from sdk_tools.build.targets import BuildOptions

_SCRIPT = """\
#!{python} -SE
import json, pathlib, shutil, sys
folder = pathlib.Path(__file__).resolve().parent
with open(folder / "calls.jsonl", "a") as file:
    file.write(json.dumps(sys.argv[1:]) + "\\n")
words = " ".join(sys.argv[1:])
for rule in json.loads((folder / "rules.json").read_text()):
    if all(part in words for part in rule["match"]):
        if rule["dump"]:
            shutil.copy(rule["dump"], sys.argv[sys.argv.index("--out") + 1])
        sys.stderr.write(rule["stderr"])
        for value in [*({{"piece": piece}} for piece in rule["pieces"]), rule["answer"]]:
            print(json.dumps(value), flush=True)
        sys.exit(rule["exit_code"])
sys.exit("no rule for: " + words)
"""


@dataclass
class FakeEngine:
    """built: what ensure_engine would return; its root is for `--engine`."""

    built: BuiltEngine

    @property
    def root(self) -> Path:
        return self.built.root

    def answer(
        self,
        match: str,
        answer: object,
        *,
        pieces: Sequence[str] = (),
        stderr: str = "",
        exit_code: int = 0,
        dump: Path | None = None,
    ) -> None:
        """Calls whose arguments contain every word of `match` get this; later rules come before earlier ones.

        pieces: what it streams before.
        """
        path = self.root / "bin" / "rules.json"
        rules = json.loads(path.read_text())
        rule = {
            "match": match.split(),
            "answer": answer,
            "pieces": list(pieces),
            "stderr": stderr,
            "exit_code": exit_code,
        }
        path.write_text(json.dumps([{**rule, "dump": str(dump) if dump else None}, *rules]))

    def calls(self) -> list[list[str]]:
        """The arguments of every call so far."""
        path = self.root / "bin" / "calls.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def make_fake_engine(root: Path, facts: dict[str, object]) -> FakeEngine:
    """facts: what `syrinx info` answers."""
    (root / "bin").mkdir(parents=True)
    (root / "lib").mkdir()
    (root / "lib" / "libsyrinx.so").write_bytes(b"no library")
    program = root / "bin" / "syrinx"
    program.write_text(_SCRIPT.format(python=sys.executable))
    program.chmod(0o755)
    inputs: dict[str, object] = {"version": "0", "options": BuildOptions().to_json(), "inputs": {}, "compiler": {}}
    engine = FakeEngine(write_manifest(root, inputs))
    (root / "bin" / "rules.json").write_text("[]")
    engine.answer("info", {"schema": 1, **facts})
    return engine
