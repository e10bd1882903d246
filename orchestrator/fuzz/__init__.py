"""Random schemas, views and changes, compared with plain queries after every refresh.

`generate` makes a case, which is a value, from a seed. `runner` runs it against a database,
`shrink` makes a failing case smaller, and `script` and `case` print it as a script or save it as
JSON. These lists say what can occur, and they are meant to grow: `options.STRATEGIES`,
`options.MODES`, `schemas.values.TYPES`, `queries.expressions.TEMPLATES`,
`queries.aggregates.AGGREGATES`, `queries.forms.FORMS`, `steps.rows.CHANGES`,
`steps.ddl.SCHEMA_CHANGES` and `steps.choose.STEPS`.
"""
