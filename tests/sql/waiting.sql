-- Each gateway stores how many callers wait there; the others read it while it is recent.
\set a '''00000000-0000-0000-0000-00000000000a'''
\set b '''00000000-0000-0000-0000-00000000000b'''
\set c '''00000000-0000-0000-0000-00000000000c'''
\connect - test_gateway
select fencing.waiting_elsewhere(:a, '');
select fencing.note_waiting(:a, 'one:8080', 3, '{"x/1": 3, "y/1": 1}');
select fencing.note_waiting(:b, 'two:8080', 2, '{"x/1": 1, "x/2": 2}');
select fencing.note_waiting(:c, 'two:8080', 1, '{"y/1": 1}');
select fencing.waiting_elsewhere(:a, '');
select fencing.waiting_elsewhere(:c, 'x/');
select fencing.waiting_elsewhere(:c, 'z');
-- again, and no more
select fencing.note_waiting(:b, 'two:8080', 1, '{"x/2": 1}');
select fencing.note_waiting(:c, 'two:8080', 0, '{}');
select fencing.waiting_elsewhere(:a, '');
select fencing.waiting_elsewhere(:a, 'x/2');
select fencing.waiting_elsewhere(:a, 'y/');
-- values that are none
select fencing.note_waiting(:c, 'two:8080', -1, '{}');
select fencing.note_waiting(:c, 'two:8080', 1, '[]');
select fencing.note_waiting(null, 'two:8080', 1, '{}');
select fencing.note_waiting(:c, repeat('x', 301), 1, '{}');
select fencing.note_waiting(:c, 'two:8080', 1, jsonb_build_object('x', repeat('x', 524288)));
select fencing.note_waiting(:c, 'two:8080', 1, '{"y/1": "many", "y/2": -1, "y/3": 1}');
select fencing.waiting_elsewhere(:b, 'y/');
-- of gateways that have stopped
\connect - postgres
update fencing.waiting set at = at - interval '11 seconds' where instance <> :b;
select fencing.waiting_elsewhere(:a, '');
update fencing.waiting set at = at - interval '1 minute' where instance <> :b;
select fencing.note_waiting(:a, 'one:8080', 1, '{}');
select instance from fencing.waiting order by instance;
-- at most 1,000
insert into fencing.waiting (instance, gateway, waiters, resources)
select gen_random_uuid(), 'g', 1, '{}' from generate_series(1, 998);
select fencing.note_waiting(:c, 'two:8080', 1, '{}');
select count(*) from fencing.waiting;
-- for gateways alone, and by the functions alone
\connect - test_gateway
select * from fencing.waiting;
delete from fencing.waiting;
\connect - test_app
select fencing.note_waiting(:a, 'one:8080', 1, '{}');
select fencing.waiting_elsewhere(:a, '');
