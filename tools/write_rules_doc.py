"""Write the reference part of docs/rules.md from the rules themselves: ``python write_rules_doc.py [--check]``.

What stands between the two markers comes from the descriptors in ``src/rules/builtin``; the rest of the page is
written by hand.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from tensortap import _core

PAGE = Path(__file__).resolve().parent.parent / "docs" / "rules.md"
START = "<!-- written by tools/write_rules_doc.py from the rules' descriptors -->\n"
END = "<!-- end of what is written -->\n"

FAMILIES = {
    "classic": "SageMaker Debugger's rules, and your own conditions",
    "modern": "Rules for today's trainings",
    "tree": "Rules for gradient boosting",
    "system": "Rules about the machine",
}


def parameter_table(parameters: list[dict[str, Any]]) -> list[str]:
    """Give the rows of a rule's parameters, without those that every rule has."""
    own = [p for p in parameters if p["name"] not in ("start_step", "end_step")]
    if not own:
        return []
    lines = ["| parameter | type | default | meaning |", "|---|---|---|---|"]
    for parameter in own:
        default = "required" if parameter["required"] else parameter["default"] or "unset"
        cells = [f"`{parameter['name']}`", parameter["type"], f"`{default}`", parameter["doc"]]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return [*lines, ""]


def rule_section(rule: dict[str, Any]) -> list[str]:
    """Give one rule's part of the page."""
    lines = [f"### {rule['name']}", "", f"**{rule['summary']}** {rule['why']}", "", rule["doc"], ""]
    if rule["collections"]:
        lines += ["Collections to record: " + ", ".join(f"`{c}`" for c in rule["collections"]), ""]
    lines += parameter_table(rule["parameters"])
    lines += ["Likely causes:", "", *(f"- {cause}" for cause in rule["causes"]), ""]
    return [*lines, f"Next step: {rule['next_step']}", ""]


def reference() -> str:
    """Give the whole part between the markers."""
    rules = sorted(_core.rule_descriptors(), key=lambda rule: str(rule["name"]).lower())
    lines = [""]
    for family, title in FAMILIES.items():
        members = [rule for rule in rules if rule["family"] == family]
        if not members:
            continue
        lines += [f"## {title}", "", "| rule | finds |", "|---|---|"]
        lines += [f"| [{r['name']}](#{r['name'].lower()}) | {r['summary']} |" for r in members]
        lines.append("")
        for rule in members:
            lines += rule_section(rule)
    return "\n".join(lines)


def page(text: str) -> str:
    """Give the page with its reference part written anew."""
    before, rest = text.split(START)
    _, after = rest.split(END)
    return before + START + reference() + END + after


def main() -> int:
    text = PAGE.read_text(encoding="utf-8")
    written = page(text)
    if "--check" in sys.argv[1:]:
        if text != written:
            print("docs/rules.md is behind the rules: python tools/write_rules_doc.py")
        return int(text != written)
    PAGE.write_text(written, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
