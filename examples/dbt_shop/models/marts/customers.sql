{{ config(
    maintain=var('mode', 'deferred'),
    on_configuration_change=var('reaction', 'apply'),
    grants={'select': ['public']},
) }}
SELECT c.id AS customer_id, c.name, count(*) AS orders, sum(t.amount) AS lifetime_value
FROM {{ ref('raw_customers') }} AS c
JOIN {{ ref('order_totals') }} AS t ON t.customer_id = c.id
{% if var('shipped_only', false) %}WHERE t.state = 'shipped'{% endif %}
GROUP BY c.id, c.name
