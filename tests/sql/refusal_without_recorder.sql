-- Whatever happens to the recorder, the refusal reaches the caller unchanged, and recorder_fault() says what is wrong.
select fencing.set_up_recorder();
alter server fencing_recorder options (set host '/nowhere');
select split_part(fencing.recorder_fault(), ':', 1) as fault;
\connect - test_app
update inventory set stock = 0 where sku = 'sku-1';
\connect - postgres
drop user mapping for postgres server fencing_recorder;
select fencing.recorder_fault();
\connect - test_app
update inventory set stock = 0 where sku = 'sku-1';
\connect - postgres
drop extension dblink cascade;
select fencing.recorder_fault();
\connect - test_app
update inventory set stock = 0 where sku = 'sku-1';
\connect - postgres
drop schema fencing_recorder;
select fencing.set_up_recorder() as problem;
select fencing.recorder_fault() as fault;
-- the operator may change the foreign server; a repeated installation keeps the change
alter server fencing_recorder options (set connect_timeout '3');
select fencing.set_up_recorder();
select array_agg(option_value) from pg_foreign_server, pg_options_to_table(srvoptions)
  where srvname = 'fencing_recorder' and option_name = 'connect_timeout';
select count(*) from fencing.history where event = 'write_rejected';
