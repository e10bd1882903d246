SELECT id AS payment_id, order_id, method, cents / 100.0 AS amount
FROM {{ ref('raw_payments') }}
