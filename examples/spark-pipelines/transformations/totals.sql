CREATE MATERIALIZED VIEW totals AS
SELECT country, count(*) AS orders, sum(amount) AS amount FROM orders GROUP BY country
