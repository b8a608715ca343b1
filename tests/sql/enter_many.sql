-- enter with an array: all resources under one token or none, in the order of their names, each once.
\connect - test_app
begin;
select fencing.enter(array['orders/7', 'inventory/sku-1', 'orders/7', 'new'], 5);
update inventory set stock = stock - 1 where sku = 'sku-1';
insert into orders (id, sku, quantity) values (7, 'sku-1', 1);
update inventory set stock = stock - 1 where sku = 'sku-2';
rollback;
select fencing.enter(array['orders/7', 'inventory/sku-1'], 5);
select fencing.enter('{inventory/sku-1,orders/7}'::text[], 6);
-- stale for one of them: none is entered, and the other fence stays
select fencing.enter('orders/7', 8);
begin;
savepoint a;
select fencing.enter(array['orders/7', 'inventory/sku-1'], 7);
rollback to a;
update inventory set stock = stock - 1 where sku = 'sku-1';
commit;
select fencing.fence('inventory/sku-1'), fencing.fence('orders/7');
-- 1 to 64 resources with at most 4096 bytes of names, each with a name, and a token
select fencing.enter(array[]::text[], 9);
select fencing.enter(null::text[], 9);
select fencing.enter(array['a', null], 9);
select fencing.enter(array['a', 'b//c'], 9);
select fencing.enter(array['a', 'b'], 0);
select fencing.enter(array['a', 'b'], null);
select cardinality(fencing.enter(array(select 'many/' || n from generate_series(1, 64) n), 9)) as sixty_four;
select fencing.enter(array(select 'more/' || n from generate_series(1, 65) n), 9);
select cardinality(fencing.enter(array(select rpad('many/ü' || n, 63, '-') from generate_series(1, 64) n), 9))
  as bytes_4096;
select fencing.enter(array(select rpad('more/ü' || n, 63, '-') || left('x', n / 64) from generate_series(1, 64) n), 9);
select fencing.fence('a') as a, fencing.fence('more/1') as more;
-- two dimensions are one list; a literal without a cast is the name of one resource
select fencing.enter(array[['a'], ['b']], 9);
select fencing.enter('{a,b}', 9);
-- a proof, which is checked for each
select fencing.enter(array['a', 'b'], 9, 'proof');
-- what was entered is in the history as with single calls
\connect - postgres
select event, resource, fencing_token, last_fencing_token, principal, detail ->> 'sqlstate' as sqlstate
  from fencing.history where event <> 'guard_changed' and resource !~ '^many' order by id;
