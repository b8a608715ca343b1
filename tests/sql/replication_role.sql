-- session_replication_role = replica, which only a superuser can set, skips ordinary triggers,
-- but not those of the guard.
set session_replication_role = replica;
update inventory set stock = 0 where sku = 'sku-1';
delete from order_events;
truncate order_events;
insert into orders (id, sku, quantity) values (1, 'sku-1', 1);
update fencing.history set owner = 'me';
truncate fencing.history;
