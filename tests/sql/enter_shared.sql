-- A shared read: readers with any token not older than the last writer; afterwards no older writer. It opens nothing.
\connect - test_app
begin;
select fencing.enter_shared('inventory/sku-1', 7);
select stock from inventory where sku = 'sku-1';
update inventory set stock = 0 where sku = 'sku-1';
rollback;
select fencing.enter('inventory/sku-1', 6);  -- a read that was rolled back does not count
begin;
select fencing.enter_shared('inventory/sku-1', 7);
commit;
select fencing.enter_shared('inventory/sku-1', 6), fencing.enter_shared('inventory/sku-1', 7),
  fencing.fence('inventory/sku-1');
select fencing.enter('inventory/sku-1', 6);
begin;
select fencing.enter('inventory/sku-1', 7);
update inventory set stock = stock - 1 where sku = 'sku-1';
commit;
select fencing.enter_shared('inventory/sku-1', 6);
-- what was entered with an older token, may not be changed after the read; with the same token it may
begin;
select fencing.enter('inventory/sku-1', 8), fencing.enter_shared('inventory/sku-1', 9);
update inventory set stock = stock - 1 where sku = 'sku-1';
rollback;
begin;
select fencing.enter('inventory/sku-1', 8), fencing.enter_shared('inventory/sku-1', 8);
update inventory set stock = stock - 1 where sku = 'sku-1';
rollback;
select fencing.enter_shared('inventory/sku-1', 0);
select fencing.enter_shared('inventory//sku-1', 1);
select fencing.enter_shared(null, 1);
-- gateways
\connect - test_gateway
select * from fencing.raise_read_fences('{r/2,r/1,r/2}', 10, 'o', 'p', 't', 'fenced read', '{"request_id": "r"}',
  '00000000-0000-0000-0000-000000000001');
select * from fencing.raise_read_fences('{r/1,r/3}', 9, 'o', 'p', 't', 'fenced read');
select * from fencing.begin_write('{r/1}', 9, '00000000-0000-0000-0000-000000000002', 'o', 'p', 't', '{}');
select * from fencing.begin_write('{r/1,r/3,r/4}', 9, '00000000-0000-0000-0000-000000000003', 'o', 'p', 't', '{}');
select * from fencing.begin_writes('{r/1,r/2}', '{9,10}', '{00000000-0000-0000-0000-000000000004,
  00000000-0000-0000-0000-000000000005}', '{o,o}', '{p,p}', '{t,t}', '{null,null}');
select * from fencing.raise_fences('{r/1}', 9, 'o', 'p', 't', 'fenced read');
select * from fencing.raise_fences('{r/1}', 9, 'o', 'p', 't', 'seal', true);
select * from fencing.raise_fences('{r/1}', 10, 'o', 'p', 't', 'seal', true);
select * from fencing.raise_read_fences('{r/1,r/2}', 10, 'o', 'p', 't', 'fenced read');
select * from fencing.repair_fence('r/2', 4, 'admin', null, 'a wrong token');
select * from fencing.begin_write('{r/2}', 4, '00000000-0000-0000-0000-000000000006', 'o', 'p', 't', '{}', true);
select * from fencing.raise_read_fences('{}', 10, 'o', 'p', 't', 'fenced read');
select * from fencing.raise_read_fences('{r/1}', 9007199254740992, 'o', 'p', 't', 'fenced read');
\connect - postgres
select event, resource, fencing_token, last_fencing_token, owner, principal, trace_id, write_id, detail
  from fencing.history order by id;
select resource, last_fencing_token, last_read_token, found_fencing_token from fencing.guard
 where resource ~ '^r|-1$' order by resource;
select r ->> 'last_fencing_token' as fence, r ->> 'last_read_token' as read_fence
  from unnest('{r/1,r/2,inventory/sku-1,nothing}'::text[]) n cross join fencing.resource_at(n, clock_timestamp()) r;
