-- With a recorder, refusals are in the history although their transaction rolled back.
select fencing.set_up_recorder() as problem;
select fencing.recorder_fault() as fault;
\connect - test_app
set application_name = 'orders';
select fencing.enter('inventory/sku-1', 5);
begin;
select fencing.enter('inventory/sku-1', 4);
rollback;
begin;
update inventory set stock = 0 where sku = 'sku-1';
rollback;
begin;
select fencing.enter('inventory/sku-1', 5);
update inventory set stock = 0 where sku = 'sku-2';
rollback;
truncate order_events;
-- without privileges on the settings, the recorder or its function
select * from fencing.settings;
select fencing.record_refusal('{}');
\connect - test_auditor
select event, resource, fencing_token, last_fencing_token, principal, detail from fencing.history
  where event = 'write_rejected' order by id;
-- a gateway records its own refusals: no second row here
\connect - postgres
grant update on inventory to fencing_gateway;
\connect - test_gateway
update inventory set stock = 0 where sku = 'sku-1';
select count(*) from fencing.history where event = 'write_rejected';
-- refused because the storage generation changed, and by the floor
\connect - postgres
select fencing.fence_all('a test');
\connect - test_app
select fencing.enter('inventory/sku-1', 6);
\connect - postgres
do $$begin perform fencing.finish_generation_change(c.change_id, 'g1', null)
  from fencing.begin_generation_change(0) c; end$$;
\connect - test_app
select fencing.enter('inventory/sku-1', 6);
\connect - test_auditor
select event, resource, fencing_token, last_fencing_token, principal, detail from fencing.history
  where event = 'write_rejected' order by id offset 4;
