# SPDX-License-Identifier: Apache-2.0
"""The code in the documentation: texts show what is built and run, not copies of it."""
import re


def blocks(text, language):
    """[(heading above it, line number, code)] of the fenced blocks whose first word after the fence is the language."""
    found, heading, opened, lines = [], "", None, []
    for number, line in enumerate(text.split("\n"), 1):
        fence = re.match(r"\s*```\s*(\w*)", line)
        if opened is None and fence:
            opened, lines = (fence[1], number + 1), []
        elif opened is not None and fence:
            if opened[0] == language:
                found.append((heading, opened[1], "\n".join(lines) + "\n"))
            opened = None
        elif opened is not None:
            lines.append(line)
        elif line.startswith("#"):
            heading = line.lstrip("#").strip()
    return found
