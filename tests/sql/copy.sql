-- COPY is checked as one statement: if one row is outside the lease, no row is stored.
\connect - test_app
copy inventory (sku, stock, initial_stock) from stdin;
copy-1	1	1
\.
begin;
select fencing.enter('inventory/copy-1', 5);
copy inventory (sku, stock, initial_stock) from stdin;
copy-1	1	1
copy-2	1	1
\.
rollback;
begin;
select fencing.enter('inventory/copy-1', 5);
copy inventory (sku, stock, initial_stock) from stdin;
copy-1	1	1
\.
commit;
select sku from inventory where sku like 'copy%';
