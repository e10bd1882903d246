SELECT id AS order_id, customer_id, ordered_on, state
FROM {{ ref('raw_orders') }}
WHERE state <> 'test \d''s'
