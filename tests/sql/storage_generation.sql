-- After a promotion (here: another timeline is stored) nothing is let in and no epoch is drawn
-- until a gateway has changed the storage generation; then every token below the floor is refused.
set client_min_messages = warning;
\connect - test_gateway
select fencing.join_cluster('{n1,n2,n3}', 2, 30000, 65536, 500, 0);
select * from fencing.draw_epoch('n1', 'run-a/claim-1', true, 0);
select current, timeline, live_timeline, system_identifier = live_system_identifier as same_system, floor,
  greatest((select k.epoch from fencing.cluster k), 0) as highest_epoch from fencing.storage_generation_state();
select * from fencing.begin_generation_change(3);
\connect - test_app
begin;
select fencing.enter('inventory/sku-1', 7);
update inventory set stock = stock - 1 where sku = 'sku-1';
commit;
\connect - postgres
update fencing.storage_generation set timeline = 1000;
select synced from fencing.node;

-- refused: writes, fenced reads, seals, direct SQL, draws
\connect - test_app
select fencing.enter('inventory/sku-1', 8);
update inventory set stock = stock - 1 where sku = 'sku-1';
select fencing.enter('inventory/sku-1', 0);
select fencing.fence('inventory/sku-1');
\connect - test_gateway
select * from fencing.begin_write('{inventory/sku-1}', 8, '00000000-0000-0000-0000-000000000001', 'o', 'p', 't', null);
select * from fencing.begin_writes('{inventory/sku-1}', '{8}', '{00000000-0000-0000-0000-000000000001}', '{o}', '{p}',
    '{t}', array[null::jsonb]);
select * from fencing.raise_fences('{inventory/sku-1}', 8, 'o', 'p', 't', 'fenced read');
select * from fencing.draw_epoch('n2', 'run-b/claim-1', true, 0);
select * from fencing.draw_epoch('n1', 'run-a/claim-1', true, 0);
select * from fencing.draw_epoch('n1', 'other life', true, 0);
select * from fencing.draw_epoch('n1', '', true, 0);
select current, timeline, live_timeline, system_identifier = live_system_identifier as same_system, floor,
  greatest((select k.epoch from fencing.cluster k), 0) as highest_epoch from fencing.storage_generation_state();

-- The change. Any gateway continues it, unless it saw a higher epoch on a node, or it was begun for another primary.
-- Draws stay refused until it is finished.
select * from fencing.begin_generation_change(-1);
select * from fencing.begin_generation_change(2096128);
select change_id as first, epoch from fencing.begin_generation_change(9) \gset
select last_id / 4294967296 as history_goes_on_at_epoch, last_id % 4294967296 as rest from fencing.history_tail();
select :epoch as epoch, greatest((select k.epoch from fencing.cluster k), 0) as highest_epoch
  from fencing.storage_generation_state();
select change_id = :'first' as same, epoch from fencing.begin_generation_change(0);
select change_id = :'first' as same, epoch from fencing.begin_generation_change(1033);
select change_id as second, change_id = :'first' as same, epoch from fencing.begin_generation_change(1034) \gset
select :'same' as same, :epoch as epoch;
select * from fencing.draw_epoch('n1', 'run-a/claim-1', true, 0);
select * from fencing.finish_generation_change(:'first', 'g1', '[]');
\connect - postgres
update fencing.storage_generation set pending_timeline = 999;
\connect - test_gateway
select * from fencing.finish_generation_change(:'second', 'g1', '[]');
select change_id as third, change_id = :'second' as same, epoch from fencing.begin_generation_change(0) \gset
select :'same' as same, :epoch as epoch;
select * from fencing.finish_generation_change(:'third', 'g1', '{"a": 1}');
select * from fencing.finish_generation_change(:'third',
    'g1', '["00000000-0000-0000-0000-000000000001", "00000000-0000-0000-0000-000000000002"]');
select * from fencing.finish_generation_change(:'third', 'g2', null);
select * from fencing.begin_generation_change(0);
select current, timeline, floor, greatest((select k.epoch from fencing.cluster k), 0) as highest_epoch
  from fencing.storage_generation_state();

-- Tokens below the floor are stale everywhere.
select floor - 1 as below, floor, floor + 1 as above from fencing.storage_generation_state() \gset
select fencing.fence('inventory/sku-1'), fencing.fence('inventory/sku-9');
select * from fencing.begin_write('{inventory/sku-1}', :below, '00000000-0000-0000-0000-000000000011',
    'o', 'p', 't', '{"x": 1}');
select * from fencing.begin_write('{inventory/sku-2,orders/1}', :below, '00000000-0000-0000-0000-000000000012',
    'o', 'p', 't', null);
select * from fencing.begin_writes('{inventory/sku-2,inventory/sku-1,inventory/sku-3}', array[:below, :above, :below],
    '{00000000-0000-0000-0000-000000000013,00000000-0000-0000-0000-000000000014,00000000-0000-0000-0000-000000000015}',
    '{o,o,o}', '{p,p,p}', '{t,t,t}', array[null,null,null]::jsonb[]);
select * from fencing.raise_fences('{inventory/sku-2}', :below, 'o', 'p', 't', 'fenced read');
select * from fencing.raise_fences('{inventory/sku-2}', :floor, 'o', 'p', 't', 'seal of the last token below');
select * from fencing.repair_fence('inventory/sku-2', 5, 'p', 't', 'a reason');
select resource, last_fencing_token from fencing.guard order by resource;
select * from fencing.raise_fences('{inventory/sku-2}', :above, 'o', 'p', 't', 'fenced read');
-- a write under a newer fence is refused by that, not by the floor
select *
  from fencing.begin_write('{inventory/sku-2}', :floor, '00000000-0000-0000-0000-000000000016', 'o', 'p', 't', null);
select * from fencing.begin_write('{inventory/sku-4,inventory/sku-5}', :above, '00000000-0000-0000-0000-000000000017',
    'o', 'p', 't', null);
\connect - test_app
select fencing.enter('inventory/sku-6', :below);
select fencing.enter('inventory/sku-2', :floor);
begin;
select fencing.enter('inventory/sku-1', :above);
select fencing.enter('inventory/sku-6', :floor);
update inventory set stock = stock - 1 where sku = 'sku-1';
commit;
begin isolation level repeatable read;
select fencing.enter('inventory/sku-6', :below);
rollback;
begin isolation level serializable;
select fencing.enter('inventory/sku-6', :above);
commit;
-- Epochs are drawn above the floor, also where the row of cluster was lost. Every node counts as not synced.
\connect - test_gateway
select name, epoch, synced from fencing.node order by name;
select * from fencing.draw_epoch('n1', 'run-a/claim-1', true, 0);
select * from fencing.draw_epoch('n2', 'run-b/claim-1', true, 0);
\connect - postgres
update fencing.cluster set epoch = 0;
select * from fencing.draw_epoch('n3', 'run-c/claim-1', true, 0);
select event, resource, fencing_token, last_fencing_token, principal, right(write_id::text, 2) as write,
  detail - '{from,to}'::text[] as detail from fencing.history where event <> 'guard_changed' order by id;
select detail -> 'from' ->> 'timeline' as was, detail -> 'to' ->> 'timeline' as now,
  detail -> 'from' ->> 'system_identifier' = detail -> 'to' ->> 'system_identifier' as same_system
  from fencing.history where event = 'storage_generation_changed';
select fencing.guard_faults();
