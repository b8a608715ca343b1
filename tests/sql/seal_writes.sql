-- A seal in the transaction of the write: its token can no longer write, the next one can.
-- Only resources that the transaction entered with the token are sealed.
\connect - test_gateway
begin;
select resource, last_fencing_token from fencing.begin_write('{inventory/sku-1,orders/7}', 5,
    '00000000-0000-0000-0000-000000000001', 'o', 'p', 't', null);
update inventory set stock = stock - 1 where sku = 'sku-1';
select fencing.seal_writes('{inventory/sku-1,orders/7,inventory/sku-2}', '{5,5,5}',
  '{00000000-0000-0000-0000-000000000001,00000000-0000-0000-0000-000000000001,00000000-0000-0000-0000-000000000001}',
  '{o,o,o}', '{p,p,p}', '{t,t,t}', array['{"request_id": "r"}', null, null]::jsonb[]);
commit;
select accepted, last_fencing_token
  from fencing.begin_write('{inventory/sku-1}', 5, '00000000-0000-0000-0000-000000000002', 'o', 'p', 't', null);
-- two writes of one batch on one resource: the newer token determines the fence, whether it is sealed or not
begin;
select accepted
  from fencing.begin_write('{inventory/sku-3}', 6, '00000000-0000-0000-0000-000000000003', null, 'p', null, null);
select accepted
  from fencing.begin_write('{inventory/sku-3}', 8, '00000000-0000-0000-0000-000000000004', null, 'p', null, null);
select fencing.seal_writes('{inventory/sku-3}', '{6}', '{00000000-0000-0000-0000-000000000003}', '{NULL}',
    '{p}', '{NULL}');
update inventory set stock = stock - 1 where sku = 'sku-3';
commit;
-- the highest possible token
begin;
select accepted
  from fencing.begin_write('{a}', 9007199254740991, '00000000-0000-0000-0000-000000000005', null, 'p', null, null);
select fencing.seal_writes('{a}', '{9007199254740991}', '{00000000-0000-0000-0000-000000000005}', '{NULL}',
    '{p}', '{NULL}');
commit;
-- a resource that another transaction entered is not sealed
select fencing.seal_writes('{inventory/sku-3}', '{8}', '{00000000-0000-0000-0000-000000000006}', '{NULL}',
    '{p}', '{NULL}');
select event, resource, fencing_token, last_fencing_token, owner, trace_id, right(write_id::text, 1) as write, detail
  from fencing.history order by id;
select resource, last_fencing_token from fencing.guard
  where resource in ('inventory/sku-1', 'inventory/sku-2', 'inventory/sku-3', 'orders/7', 'a') order by 1;
