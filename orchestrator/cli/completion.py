"""Scripts that complete the commands and options of `idivm` in a shell."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

SHELLS = ("bash", "fish", "zsh")

_BASH = """_idivm() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" words
    case "${{COMP_WORDS[1]}}" in
{cases}
    esac
    [ "$COMP_CWORD" -eq 1 ] && words="{verbs}"
    COMPREPLY=($(compgen -W "$words" -- "$word"))
    [[ "$word" != -* && "$COMP_CWORD" -gt 1 ]] && COMPREPLY+=($(compgen -f -- "$word"))
}}
complete -F _idivm idivm
"""


def script(parser: argparse.ArgumentParser, shell: str) -> str:
    """Return the script for a shell."""
    verbs = dict(_verbs(parser))
    if shell == "fish":
        lines = ["complete -c idivm -f"]
        for verb, options in verbs.items():
            lines.append(f"complete -c idivm -n __fish_use_subcommand -a {verb}")
            lines += [
                f"complete -c idivm -n '__fish_seen_subcommand_from {verb}' -l {option[2:]}"
                for option in options
                if option.startswith("--")
            ]
        return "\n".join(lines) + "\n"
    cases = "\n".join(
        f'        {verb}) words="{" ".join(options)}" ;;' for verb, options in verbs.items()
    )
    bash = _BASH.format(cases=cases, verbs=" ".join(verbs))
    return bash if shell == "bash" else f"autoload -U +X bashcompinit && bashcompinit\n{bash}"


def _verbs(parser: argparse.ArgumentParser) -> Iterator[tuple[str, list[str]]]:
    """Yield the commands, each with its options."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, sub in action.choices.items():
                yield (
                    name,
                    [option_string for a in sub._actions for option_string in a.option_strings],
                )
