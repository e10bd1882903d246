"""The options of sources: a load honors each option wherever it reads, or refuses it and says what to do.

Spark ignores options that a reader does not know. A load does not, because the file would then have other
content than its user expects.
"""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.errors import UsageError

FILES = {
    "basepath": "basePath",
    "modifiedafter": "modifiedAfter",
    "modifiedbefore": "modifiedBefore",
    "pathglobfilter": "pathGlobFilter",
    "recursivefilelookup": "recursiveFileLookup",
}
"""The options that choose files, in Spark's spelling."""

_TEXT = {"charset": "charset", "encoding": "encoding", "multiline": "multiLine"}
_HONORED: Mapping[str, Mapping[str, str]] = {
    "csv": {
        **FILES,
        **_TEXT,
        "delimiter": "delimiter",
        "escape": "escape",
        "header": "header",
        "nullvalue": "nullValue",
        "quote": "quote",
        "sep": "sep",
    },
    "json": {**FILES, **_TEXT},
    "parquet": {
        **FILES,
        "datetimerebasemode": "datetimeRebaseMode",
        "int96rebasemode": "int96RebaseMode",
        "mergeschema": "mergeSchema",
    },
    "orc": {**FILES, "mergeschema": "mergeSchema"},
}
_TITLES = {"csv": "CSV", "json": "JSON", "parquet": "Parquet", "orc": "ORC"}
_SYNONYMS = {"delimiter": "sep", "charset": "encoding"}

_BAD_ROWS = "--on-bad-row stop or --on-bad-row quarantine says what happens to bad rows"
_TYPES = "the columns of the table determine the types"
_VALUES = "PostgreSQL reads the values, so convert them with --select"
_WHOLE = "a load reads all of each file or ends with an error"
_LIMITS = "a load has no such limit"
_STANDARD = "documents are standard JSON, so correct the file"
_REFUSED = {
    "mode": _BAD_ROWS,
    "badrecordspath": _BAD_ROWS,
    "columnnameofcorruptrecord": _BAD_ROWS,
    "inferschema": _TYPES,
    "preferdate": _TYPES,
    "primitivesasstring": _TYPES,
    "prefersdecimal": _TYPES,
    "samplingratio": _TYPES,
    "dropfieldifallnull": _TYPES,
    "dateformat": _VALUES,
    "timestampformat": _VALUES,
    "timestampntzformat": _VALUES,
    "enabledatetimeparsingfallback": _VALUES,
    "locale": _VALUES,
    "timezone": _VALUES,
    "nanvalue": _VALUES,
    "positiveinf": _VALUES,
    "negativeinf": _VALUES,
    "emptyvalue": _VALUES,
    "ignoreleadingwhitespace": "white space belongs to the value, so remove it with --select",
    "ignoretrailingwhitespace": "white space belongs to the value, so remove it with --select",
    "comment": "each line is a row, so remove comments from the file",
    "linesep": "a line ends with \\n or \\r\\n, so convert the file",
    "enforceschema": "headers are always compared",
    "unescapedquotehandling": "quotes mean what they mean to COPY",
    "chartoescapequoteescaping": "quotes mean what they mean to COPY",
    "ignorecorruptfiles": _WHOLE,
    "ignoremissingfiles": _WHOLE,
    "maxcolumns": _LIMITS,
    "maxcharspercolumn": _LIMITS,
    "allowcomments": _STANDARD,
    "allowunquotedfieldnames": _STANDARD,
    "allowsinglequotes": _STANDARD,
    "allownumericleadingzeros": _STANDARD,
    "allownonnumericnumbers": _STANDARD,
    "allowbackslashescapinganycharacter": _STANDARD,
    "allowunquotedcontrolchars": _STANDARD,
    "compression": "the file name determines the compression",
}
_OF_WRITERS = {
    *("batchsize", "cascadetruncate", "createtablecolumntypes", "createtableoptions"),
    *("isolationlevel", "tablecomment", "truncate"),
}


def checked(kind: str, given: Mapping[str, str]) -> dict[str, str]:
    """Return the options of a source with their names in lower case.

    >>> checked("csv", {"nullValue": "-"})
    {'nullvalue': '-'}
    """
    options: dict[str, str] = {}
    spelled: dict[str, str] = {}
    for name, value in given.items():
        key = name.lower()
        before = spelled.setdefault(_SYNONYMS.get(key, key), name)
        if before != name:
            raise UsageError(f"The options {before} and {name} mean the same: give only one.")
        options[key] = value
    if kind == "jdbc":
        _check_database(options)
    elif kind == "frame":
        if given:
            names = ", ".join(given)
            raise UsageError(
                f"A load from a DataFrame has no options ({names}): give them to the reader of the DataFrame."
            )
    else:
        _check_files(kind, spelled)
    return options


def as_spark_spells(kind: str, options: Mapping[str, str]) -> dict[str, str]:
    """Return options of files, as returned by `checked`, under Spark's names."""
    return {_HONORED[kind][name]: value for name, value in options.items()}


def _check_files(kind: str, spelled: Mapping[str, str]) -> None:
    honored = _HONORED[kind]
    for name in spelled.values():
        if name.lower() in honored:
            continue
        head = f"A load from {_TITLES[kind]} files has no option {name}"
        if "." in name:
            raise UsageError(
                f"{head}: give a setting of Hadoop as --config spark.hadoop.{name}=VALUE."
            )
        if reason := _REFUSED.get(name.lower()):
            raise UsageError(f"{head}: {reason}.")
        listed = ", ".join(sorted(honored.values(), key=str.lower))
        raise UsageError(f"{head}; the options are {listed}.")


def _check_database(options: Mapping[str, str]) -> None:
    """Refuse options that Spark ignores; options that Spark does not know go to the driver."""
    for name in options:
        if name in _OF_WRITERS:
            raise UsageError(
                f"The option {name} has no effect on a load: it is an option of writers."
            )
    if "url" in options:
        raise UsageError("Give the URL of the database as the source, not as the option url.")
    if "dbtable" in options and "query" in options:
        raise UsageError(
            "A database source reads one table or query: give dbtable or query, not both."
        )
    division = {"partitioncolumn", "lowerbound", "upperbound", "numpartitions"}
    if (missing := division - options.keys()) and len(missing) < len(division):
        raise UsageError(
            "The options partitionColumn, lowerBound, upperBound and numPartitions divide a table "
            f"together: {', '.join(sorted(missing))} is missing."
        )
