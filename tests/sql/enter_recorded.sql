-- What enter accepts is in the history, in the same transaction: one row per resource and transaction,
-- and one more if the token is higher.
\connect - test_app
begin;
select fencing.enter('inventory/sku-1', 5), fencing.enter('inventory/sku-1', 5), fencing.enter('inventory/sku-2', 5);
update inventory set stock = stock - 1 where sku in ('sku-1', 'sku-2');
savepoint a;
select fencing.enter('inventory/sku-1', 6);
rollback to a;
select fencing.enter('inventory/sku-1', 7);
commit;
-- rolled back with the transaction, and to a savepoint; then the next call is the first again
begin;
select fencing.enter('inventory/sku-3', 5);
rollback;
begin;
savepoint a;
select fencing.enter('inventory/sku-3', 6);
rollback to a;
select fencing.enter('inventory/sku-3', 6);
commit;
-- the next transaction with the same token, from an application with a long name; a token above 2^31
select set_config('application_name', repeat('x', 100), false) is not null as named;
select fencing.enter('inventory/sku-3', 6);
select fencing.enter('inventory/sku-3', 4294967296);
-- a write of a gateway is in the history already
\connect - postgres
begin;
select accepted
  from fencing.begin_write('{inventory/sku-4}', 5, '00000000-0000-0000-0000-000000000001', 'o', 'p', null, null);
select fencing.enter('inventory/sku-4', 5);
commit;
\connect - test_auditor
select event, resource, fencing_token, last_fencing_token, owner, principal, trace_id,
  right(write_id::text, 1) as write, detail from fencing.history order by id;
