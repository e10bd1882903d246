{# A maintained view. It changes only if its query or its options changed. #}
{% materialization idivm, adapter='postgres', supported_languages=['sql'] %}
  {%- set existing = load_cached_relation(this) -%}
  {%- set target = this.incorporate(type='view') -%}
  {%- set name = target.include(database=false) | string -%}

  {{ run_hooks(pre_hooks, inside_transaction=False) }}
  {{ run_hooks(pre_hooks, inside_transaction=True) }}

  {%- set patterns = idivm.option_names() -%}
  {%- set wanted = {} -%}
  {%- for option in patterns if config.get(option) is not none -%}
    {%- do wanted.update({option: config.get(option) | string}) -%}
  {%- endfor -%}
  {%- set current = idivm.options_of(name) if existing is not none else none -%}
  {%- set is_new = current is none or should_full_refresh() -%}

  {%- set build = none -%}
  {%- if existing is not none and is_new -%}
    {%- if current is none -%}
      {%- do adapter.drop_relation(existing) -%}
    {%- else -%}
      {%- do idivm.query("SELECT idivm.drop_view(" ~ idivm.text(name) ~ ", cascade => true)") -%}
    {%- endif -%}
  {%- endif -%}

  {%- if is_new -%}
    {%- set build = 'create_view(' ~ idivm.text(name) ~ ', ' ~ idivm.text(sql) -%}
  {%- elif not idivm.has_query(name, sql) -%}
    {%- set build = 'replace_view(' ~ idivm.text(name) ~ '::regclass, ' ~ idivm.text(sql) -%}
  {%- elif idivm.differs(wanted, current) -%}
    {%- set reaction = config.get('on_configuration_change', 'apply') -%}
    {%- if reaction == 'apply' -%}
      {%- set build = 'alter_view(' ~ idivm.text(name) ~ '::regclass' -%}
    {%- elif reaction == 'continue' -%}
      {%- do exceptions.warn("The options of " ~ name ~ " changed, and on_configuration_change is continue: the view keeps its options.") -%}
    {%- else -%}
      {%- do exceptions.raise_fail_fast_error("The options of " ~ name ~ " changed, and on_configuration_change is fail.") -%}
    {%- endif -%}
  {%- endif -%}

  {%- if build -%}
    {% call statement('main') %}
      SELECT idivm.{{ build }}, options => {{ idivm.text(tojson(wanted)) }}::jsonb)
    {% endcall %}
  {%- else -%}
    {% call noop_statement('main', 'UNCHANGED', 'UNCHANGED', '-1') %}{{ sql }}{% endcall %}
  {%- endif -%}

  {%- set target = idivm.as_it_is(target) -%}
  {%- do apply_grants(target, config.get('grants'), should_revoke=should_revoke(existing, full_refresh_mode=is_new)) -%}
  {%- do persist_docs(target, model) -%}
  {%- do idivm.create_missing_indexes(target) -%}

  {{ run_hooks(post_hooks, inside_transaction=True) }}
  {{ adapter.commit() }}
  {{ run_hooks(post_hooks, inside_transaction=False) }}
  {{ return({'relations': [target]}) }}
{% endmaterialization %}


{# A plain view below maintained views. dbt's own views are dropped and created in each run, and would take the
   maintained views above them along. #}
{% materialization idivm_staging, adapter='postgres', supported_languages=['sql'] %}
  {%- set existing = load_cached_relation(this) -%}
  {%- set target = this.incorporate(type='view') -%}
  {%- set name = target.include(database=false) | string -%}

  {{ run_hooks(pre_hooks, inside_transaction=False) }}
  {{ run_hooks(pre_hooks, inside_transaction=True) }}

  {%- if existing is not none and existing.type != 'view' -%}
    {%- do adapter.drop_relation(existing) -%}
    {%- set existing = none -%}
  {%- endif -%}
  {%- if existing is not none and idivm.has_query(name, sql) -%}
    {% call noop_statement('main', 'UNCHANGED', 'UNCHANGED', '-1') %}{{ sql }}{% endcall %}
  {%- else -%}
    {% call statement('main') %}
      CREATE OR REPLACE VIEW {{ target }} AS (
      {{ sql }}
      )
    {% endcall %}
  {%- endif -%}

  {%- do apply_grants(target, config.get('grants'), should_revoke=should_revoke(existing, full_refresh_mode=False)) -%}
  {%- do persist_docs(target, model) -%}

  {{ run_hooks(post_hooks, inside_transaction=True) }}
  {{ adapter.commit() }}
  {{ run_hooks(post_hooks, inside_transaction=False) }}
  {{ return({'relations': [target]}) }}
{% endmaterialization %}


{# The rows of a statement within the transaction of the model, which dbt's run_query does not begin. #}
{% macro query(sql) %}
  {% call statement('idivm_query', fetch_result=true) %}{{ sql }}{% endcall %}
  {%- do return(load_result('idivm_query').table) -%}
{% endmacro %}


{# A text as a literal of SQL. #}
{% macro text(value) %}
  {%- do return("'" ~ (value | string | replace("'", "''")) ~ "'" if "\\" not in value
                else "E'" ~ (value | string | replace("\\", "\\\\") | replace("'", "''")) ~ "'") -%}
{% endmacro %}


{# The options of maintained views; an error if the database has no catalog of idivm. #}
{% macro option_names() %}
  {%- if idivm.query("SELECT to_regclass('idivm.views')::text").columns[0].values()[0] is none -%}
    {%- do exceptions.raise_compiler_error("The database " ~ target.database ~ " has no catalog of idivm: run idivm init, or CREATE EXTENSION idivm.") -%}
  {%- endif -%}
  {%- do return(idivm.query("SELECT name FROM idivm.option_patterns()").columns[0].values()) -%}
{% endmacro %}


{# The options of a maintained view, or none if the relation is not maintained. #}
{% macro options_of(name) %}
  {%- set rows = idivm.query(
    "SELECT o.options::text FROM (SELECT relation, options FROM idivm.views"
    " UNION ALL SELECT relation, options FROM idivm.unplanned_views) AS o"
    " WHERE o.relation = to_regclass(" ~ idivm.text(name) ~ ")") -%}
  {%- do return(fromjson(rows.columns[0].values()[0]) if rows | length else none) -%}
{% endmacro %}


{% macro has_query(name, query) %}
  {%- set rows = idivm.query("SELECT idivm.has_query(" ~ idivm.text(name) ~ "::regclass, " ~ idivm.text(query) ~ ")") -%}
  {%- do return(rows.columns[0].values()[0]) -%}
{% endmacro %}


{% macro differs(wanted, current) %}
  {%- for option, value in wanted.items() if current.get(option) != value | lower and current.get(option) != value -%}
    {%- do return(true) -%}
  {%- endfor -%}
  {%- do return(false) -%}
{% endmacro %}


{# The relation with the type that it has: PostgreSQL takes comments on views and tables by different statements. #}
{% macro as_it_is(relation) %}
  {%- set rows = idivm.query("SELECT relkind::text FROM pg_class WHERE oid = " ~ idivm.text(relation.include(database=false) | string) ~ "::regclass") -%}
  {%- do return(relation.incorporate(type='table' if rows.columns[0].values()[0] == 'r' else 'view')) -%}
{% endmacro %}


{# Create the indexes of the configuration that do not exist. A view that is not planned yet has no rows to index. #}
{% macro create_missing_indexes(relation) %}
  {%- if relation.type == 'table' -%}
    {%- for index in config.get('indexes', []) -%}
      {%- set columns = [] -%}
      {%- for column in index.columns -%}{%- do columns.append(adapter.quote(column)) -%}{%- endfor -%}
      {%- set name = local_md5(relation | string ~ columns | join(',') ~ index.get('type', '') ~ index.get('unique', '')) -%}
      {%- do idivm.query(
        "CREATE " ~ ("UNIQUE " if index.get('unique') else "") ~ "INDEX IF NOT EXISTS " ~ adapter.quote('idivm_' ~ name[:16])
        ~ " ON " ~ relation ~ " USING " ~ index.get('type', 'btree') ~ " (" ~ columns | join(', ') ~ ")") -%}
    {%- endfor -%}
  {%- elif config.get('indexes') -%}
    {%- do log("The indexes of " ~ relation ~ " are created by a run after idivm has planned it.", info=true) -%}
  {%- endif -%}
{% endmacro %}
