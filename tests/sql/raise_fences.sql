-- raise_fences never lowers a fence and opens nothing; only repair_fence lowers one, and records its reason.
\connect - test_gateway
select * from fencing.raise_fences('{b/2,b/1}', 10, 'o', 'p', 't', 'fenced read');
select * from fencing.raise_fences('{b/2,b/1,b/3}', 10, 'o', 'p', 't', 'again');
select * from fencing.raise_fences('{b/1}', 9, 'o', 'p', 't', 'lower');
begin;
select * from fencing.raise_fences('{inventory/sku-1}', 10, 'o', 'p', 't', 'read');
update inventory set stock = 0 where sku = 'sku-1';
rollback;
-- the seal of the last token
select * from fencing.raise_fences('{b/4}', 9007199254740991, null, null, null, 'seal', true, '{"request_id": "r"}');
select *
  from fencing.begin_write('{b/4}', 9007199254740991, '00000000-0000-0000-0000-000000000001', null, null, null, null);
select * from fencing.raise_fences('{b/4}', 9007199254740992, null, null, null, 'too far');
select * from fencing.raise_fences('{b/4}', 0, null, null, null, 'too low');
select * from fencing.raise_fences('{b/4}', null, null, null, null, 'nothing');
select * from fencing.repair_fence('b/4', 12, 'admin', null, '');
select * from fencing.repair_fence('b/4', -1, 'admin', null, 'a reason');
select * from fencing.repair_fence('b/4', 12, 'admin', null, 'a token of another issuer got in');
select event, resource, fencing_token, last_fencing_token, owner, principal, trace_id, detail
  from fencing.history order by id;
