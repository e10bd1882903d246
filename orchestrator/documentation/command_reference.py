"""The reference of commands, read from the parser of the command line."""

from __future__ import annotations

import argparse

from orchestrator.cli.main import build_parser

COMMON = ("help", "dsn", "json")
"""Options that every command has; the page explains them once."""


def commands() -> dict[str, tuple[argparse.ArgumentParser, str]]:
    """Return the parser and the help text of each command."""
    return choices(build_parser())


def choices(parser: argparse.ArgumentParser) -> dict[str, tuple[argparse.ArgumentParser, str]]:
    """Return the parser and the help text of each subcommand of a parser."""
    subcommands = next(a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    texts = {action.dest: action.help or "" for action in subcommands._choices_actions}
    return {name: (sub, texts[name]) for name, sub in subcommands.choices.items()}


def page() -> str:
    """Return the page of commands."""
    lines = [
        "# Commands",
        "",
        "Generated from the argument parser by `./run docs`. From a checkout, write `./run idivm` instead of `idivm`.",
        "",
        "| command | what it does |",
        "|---|---|",
    ]
    parsers = commands()
    for name, (_, text) in parsers.items():
        lines.append(f"| [`idivm {name}`](#idivm-{name}) | {text} |")
    lines += [
        "",
        "Every command takes `--dsn` (the database to connect to; default: `IDIVM_DSN`, then `DATABASE_URL`, then",
        "the embedded server) and `--json`. [Errors](errors.md) explains the exit status.",
        "",
    ]
    for name, (parser, text) in parsers.items():
        lines += [f"## idivm {name}", ""]
        if name == "bench":
            lines += [_sentence(text), ""]
            for bench, (sub, meaning) in choices(parser).items():
                lines += [f"### idivm bench {bench}", "", _sentence(meaning), "", *_arguments(sub)]
        else:
            lines += [_sentence(text), "", *_arguments(parser)]
    return "\n".join(lines)


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:].rstrip('.')}."


def _arguments(parser: argparse.ArgumentParser) -> list[str]:
    """Return the usage of a command and the table of its arguments."""
    usage = " ".join(parser.format_usage().removeprefix("usage: ").split())
    for common in ("[-h] ", "[--dsn DSN] ", "[--json] ", "[--dsn DSN]", "[--json]", "[-h]"):
        usage = usage.replace(common, "")
    lines = ["```text", usage.strip(), "```", ""]
    rows = []
    for action in parser._actions:
        if action.dest in COMMON or not (action.help or action.option_strings):
            continue
        name = ", ".join(action.option_strings) or str(action.metavar or action.dest)
        value = "" if action.nargs == 0 or not action.option_strings else f" {_value(action)}"
        help_text = action.help or ""
        if "%(" in help_text:
            help_text = help_text % {"default": action.default}
        elif action.default not in (None, False, True, [], "") and "default" not in help_text:
            default = action.default
            text = " ".join(map(str, default)) if isinstance(default, list | tuple) else default
            help_text += f" (default: {text})"
        rows.append(f"| `{name}{value}` | {help_text.replace('|', chr(92) + '|')} |")
    return [*lines, "| argument | meaning |", "|---|---|", *rows, ""] if rows else lines


def _value(action: argparse.Action) -> str:
    if action.metavar:
        return action.metavar if isinstance(action.metavar, str) else " ".join(action.metavar)
    if action.choices:
        return "\\|".join(map(str, action.choices))
    return action.dest.upper()
