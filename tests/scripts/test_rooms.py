#!/usr/bin/python3
"""The rooms of scripts/lib: files import only their own room and those that MAY_IMPORT names, all of which stand above
theirs in the list of scripts/README.md; nothing imports a command, but torch_model, which users import too."""

import ast
import re
import sys
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
MAY_IMPORT = {  # the rooms that each room may import, beside itself
    "lib": "base", "base": "", "logs": "base", "sweeps": "base", "model": "base logs", "theory": "base logs model",
    "compare": "base logs sweeps", "figures": "base logs model sweeps compare theory",
    "page": "base logs compare figures", "papers/lib": "base logs model theory sweeps compare figures"}
MAY_IMPORT["commands"] = "lib " + " ".join(MAY_IMPORT)
MAY_IMPORT["papers"] = MAY_IMPORT["papers/lib"] + " papers/lib"
FOR_USERS = "torch_model"  # a command that users import as well


def room_of(file):
    first, *rest = file.relative_to(SCRIPTS).parts
    if first == "lib":
        return rest[0] if len(rest) > 1 else "lib"
    if first == "papers":
        return "papers/lib" if rest[0] == "lib" else "papers"
    return "commands"


def imported(text):
    """The rooms that a file imports from, "commands" for one of them."""
    for node in ast.walk(ast.parse(text)):
        names = [alias.name for alias in node.names] if isinstance(node, (ast.Import, ast.ImportFrom)) else []
        assert not getattr(node, "level", 0), "imports are absolute"
        for name in [f"{node.module}.{name}" for name in names] if isinstance(node, ast.ImportFrom) else names:
            first, second, *_ = f"{name}.".split(".")
            if first == "lib":
                yield second
            elif first == "papers":
                yield "papers/lib" if second == "lib" else "papers"
            elif first != FOR_USERS and (SCRIPTS / f"{first}.py").exists():
                yield "commands"


def main():
    assert [*imported("from lib.page.x import y\nimport plot\nfrom papers import gain")] == ["page", "commands", "papers"]
    arrows = {(file, room) for file in SCRIPTS.rglob("*.py") for room in imported(file.read_text(encoding="utf-8"))}
    bad = [f"{file.relative_to(SCRIPTS)} imports {room}" for file, room in sorted(arrows)
           if room != room_of(file) and room not in MAY_IMPORT[room_of(file)].split()]
    bad += [f"{file.relative_to(SCRIPTS)} imports a command" for file, room in arrows if room == "commands"]
    table = (SCRIPTS / "README.md").read_text(encoding="utf-8").partition("| room of `lib` |")[2].partition("\n\n")[0]
    rooms = re.findall(r"^\| `(\w+)`", table, re.MULTILINE)
    bad += [f"{room} stands in no row above {rooms[at]}" for at in range(len(rooms))
            for room in MAY_IMPORT[rooms[at]].split() if room not in rooms[:at]]
    print("\n".join(bad))
    sys.exit(1 if bad or len(arrows) < 100 else 0)


if __name__ == "__main__":
    main()
