"""Random schemas, views and changes, compared with the oracle after every refresh.

A case is a value made from a seed alone (`generate`), run against a database (`run`), made smaller
when it fails (`shrink`), and printed as a script or kept as JSON (`script`, `case`). What can occur
is in lists that are meant to grow: `options.STRATEGIES` and `options.MODES`, `values.TYPES`,
`expressions.TEMPLATES`, `aggregates.AGGREGATES`, `forms.FORMS`, `changes.CHANGES` and
`steps.STEPS`.
"""
