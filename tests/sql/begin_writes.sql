-- Many writes entered in one call: each changes only its own resource, while it is current; a stale one is reported,
-- opens nothing and is not recorded.
\connect - test_gateway
begin;
select accepted
  from fencing.begin_write('{inventory/sku-2}', 9, '00000000-0000-0000-0000-000000000009', 'z', 'p', null, null);
commit;
begin;
select * from fencing.begin_writes('{inventory/sku-3,inventory/sku-1,inventory/sku-2,inventory/new}', '{7,5,8,1}',
  '{00000000-0000-0000-0000-000000000003,00000000-0000-0000-0000-000000000001,00000000-0000-0000-0000-000000000002,'
  '00000000-0000-0000-0000-000000000004}',
  '{c,a,b,NULL}', '{p3,p1,p2,p4}', '{t3,NULL,NULL,NULL}', array['{"n": 3}', null, null, null]::jsonb[]);
savepoint w;
update inventory set stock = stock - 1 where sku = 'sku-1';  -- no write is current
rollback to w;
select set_config('fencing.write_id', '00000000-0000-0000-0000-000000000001', true);
update inventory set stock = stock - 1 where sku = 'sku-1';
savepoint w;
update inventory set stock = stock - 1 where sku = 'sku-3';  -- of another write
rollback to w;
select set_config('fencing.write_id', '00000000-0000-0000-0000-000000000003', true);
update inventory set stock = stock - 1 where sku = 'sku-3';
select set_config('fencing.write_id', '00000000-0000-0000-0000-000000000002', true);
savepoint w;
update inventory set stock = stock - 1 where sku = 'sku-2';  -- stale
rollback to w;
select accepted
  from fencing.begin_write('{inventory/sku-1}', 6, '00000000-0000-0000-0000-000000000006', 'e', 'p', null, null);
update inventory set stock = stock - 1 where sku = 'sku-1';
commit;
select event, resource, fencing_token, last_fencing_token, owner, principal, trace_id,
  right(write_id::text, 1) as write, detail from fencing.history order by id;
select g.resource, g.last_fencing_token, i.stock from fencing.guard g
  left join inventory i on g.resource = 'inventory/' || i.sku
 where i.sku in ('sku-1', 'sku-2', 'sku-3') or g.resource = 'inventory/new' order by 1;
-- Writes of one lease enter their resource once, and are recorded each; one with another token is not accepted.
begin;
select * from fencing.begin_writes('{inventory/sku-3,inventory/sku-1,inventory/sku-1,inventory/sku-1}', '{8,7,7,6}',
  '{00000000-0000-0000-0000-000000000013,00000000-0000-0000-0000-000000000011,00000000-0000-0000-0000-000000000012,'
  '00000000-0000-0000-0000-000000000010}',
  '{c,a,a,b}', '{p3,p1,p1,p2}', '{NULL,NULL,NULL,NULL}', '{NULL,NULL,NULL,NULL}',
  '{00000000-0000-0000-0000-000000000013,00000000-0000-0000-0000-000000000011,00000000-0000-0000-0000-000000000011,'
  '00000000-0000-0000-0000-000000000010}');
select set_config('fencing.write_id', '00000000-0000-0000-0000-000000000011', true);
update inventory set stock = stock - 1 where sku = 'sku-1';
update inventory set stock = stock - 1 where sku = 'sku-1';
commit;
select event, resource, fencing_token, last_fencing_token, principal, right(write_id::text, 2) as write
  from fencing.history where right(write_id::text, 2) between '10' and '13' order by id;
select fencing.begin_writes('{a}', '{1,2}', '{00000000-0000-0000-0000-000000000001}', '{x}', '{p}', '{NULL}', '{NULL}');
select fencing.begin_writes('{a}', '{0}', '{00000000-0000-0000-0000-000000000001}', '{x}', '{p}', '{NULL}', '{NULL}');
select fencing.begin_writes('{a//b}', '{1}', '{00000000-0000-0000-0000-000000000001}', '{x}', '{p}',
    '{NULL}', '{NULL}');
select fencing.begin_writes('{a}', '{1}', '{NULL}', '{x}', '{p}', '{NULL}', '{NULL}');
select fencing.begin_writes('{a}', '{NULL}', '{00000000-0000-0000-0000-000000000001}', '{x}', '{p}',
    '{NULL}', '{NULL}');
select fencing.begin_writes(null, '{1}', '{00000000-0000-0000-0000-000000000001}', '{x}', '{p}', '{NULL}', '{NULL}');
