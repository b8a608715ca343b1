-- A gateway may read, and write only through its functions.
\connect - test_gateway
select count(*) >= 0 as ok from fencing.history;
select count(*) >= 0 as ok from fencing.cluster;
select count(*) > 0 as ok from fencing.api_catalog;
select count(*) > 0 as ok from fencing.guard;
select count(*) >= 0 as ok from fencing.node;
select fencing.fence('inventory/sku-1'), fencing.schema_version();
insert into fencing.guard (resource, last_fencing_token) values ('a', 1);
update fencing.guard set last_fencing_token = 0;
delete from fencing.guard;
insert into fencing.history (event) values ('lease_granted');
select nextval('fencing.history_id_seq');
select * from fencing.settings;
select fencing.enter('a', 1);
select fencing.protect('inventory', 'sku');
select fencing.begin_write_on_many('{a}', 1, '00000000-0000-0000-0000-000000000001', null, null, null, null, 0);
select fencing.lock_guards('{a}');
insert into fencing.exposed (name, function) values ('x', 'pg_catalog.pg_ls_dir(text)');
