SELECT o.order_id, o.customer_id, o.state, sum(p.amount) AS amount
FROM {{ ref('stg_orders') }} AS o
JOIN {{ ref('stg_payments') }} AS p USING (order_id)
GROUP BY o.order_id, o.customer_id, o.state
