-- A writer may call enter and fence; an auditor may read. Neither may do more.
\connect - test_app
select fencing.fence('inventory/sku-1');
select * from fencing.guard;
select * from fencing.history;
select fencing.enter_shared('a', 1);
select fencing.begin_write('{a}', 1, '00000000-0000-0000-0000-000000000001', null, null, null, null);
select fencing.record_events('[]');
select fencing.raise_fences('{a}', 1, null, null, null, null);
select fencing.raise_read_fences('{a}', 1, null, null, null, null);
select fencing.repair_fence('a', 1, null, null, 'x');
\connect - test_auditor
select count(*) > 0 as ok from fencing.guard;
select count(*) >= 0 as ok from fencing.history;
select count(*) >= 0 as ok from fencing.cluster;
select fencing.fence('inventory/sku-1');
select fencing.enter('a', 1);
select fencing.enter_shared('a', 2);
select fencing.record_events('[]');
select * from inventory;
