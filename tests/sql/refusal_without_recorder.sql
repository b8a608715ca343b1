-- Whatever happens to the recorder, the refusal reaches the caller unchanged.
\connect - test_app
update inventory set stock = 0 where sku = 'sku-1';
\connect - postgres
insert into fencing.settings values ('recorder', 'host=/nowhere dbname=nothing');
\connect - test_app
update inventory set stock = 0 where sku = 'sku-1';
\connect - postgres
create extension dblink;
\connect - test_app
update inventory set stock = 0 where sku = 'sku-1';
\connect - postgres
update fencing.settings set value = 'this is = not ''a connection string';
\connect - test_app
update inventory set stock = 0 where sku = 'sku-1';
\connect - postgres
update fencing.settings set value = 'postgresql://somewhere/';
insert into fencing.settings values ('something', 'else');
select count(*) from fencing.history where event = 'write_rejected';
