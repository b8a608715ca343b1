-- Observe mode allows also the changes for whose rows the resource expression raises an error: it records them
-- as rows without a resource.
create table shipment (id integer primary key, reference text);
select fencing.protect('shipment', $$'shipment/' || reference::bigint::text$$, 'observe');
create table parcel (id integer, reference text) partition by range (id);
create table parcel_low partition of parcel for values from (0) to (10);
select fencing.protect('parcel', $$'parcel/' || reference::bigint::text$$, 'observe');
insert into shipment values (1, 'x'), (2, '2');
update shipment set reference = '3' where id = 1;
insert into parcel values (1, 'x');
delete from shipment where id = 2;
create function require_digits(text) returns text immutable language plpgsql
  set plpgsql.check_asserts = on as $$ begin assert $1 ~ '^[0-9]+$'; return $1; end $$;
select fencing.protect('shipment', $$'shipment/' || public.require_digits(reference)$$, 'observe');
insert into shipment values (3, 'y');
select event, resource, detail->>'relation' as relation, detail->>'operation' as operation,
  detail->>'sqlstate' as sqlstate from fencing.history where event <> 'guard_changed' order by id;
select fencing.guard_faults();
select fencing.protect('shipment', $$'shipment/' || reference::bigint::text$$);
delete from shipment where reference = 'y';
select fencing.protect('shipment', $$'shipment/' || reference::bigint::text$$);
insert into shipment values (4, 'x');
