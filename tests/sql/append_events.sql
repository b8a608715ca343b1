-- Events of a gateway, numbered in a stream of its own: each is in the history once, however often its batch is sent.
\connect - test_gateway
\set stream '''00000000-0000-0000-0000-00000000000a'''
\set other '''00000000-0000-0000-0000-00000000000b'''
select fencing.append_events(:stream, 1, '{1763719200123456,null,1763719200123457}',
    '{lease_granted,write_failed,node_quarantined}', '{a/b,a/b,null}', '{34,null,null}', '{null,3,null}',
  '{o,null,null}', '{p,null,null}', '{t,null,null}', '{null,00000000-0000-0000-0000-000000000001,null}',
  array['{"ttl_ms": 1}', null, '{"node": "n1"}']::jsonb[]);
select event, at = '2025-11-21 10:00:00.123456+00' as given, at > now() - interval '1 minute' as now, resource,
  fencing_token, last_fencing_token, owner, principal, trace_id, write_id, detail
  from fencing.history order by id;
-- repeated, and then overlapping: events that are there already are skipped
select fencing.append_events(:stream, 1, null, '{lease_granted,write_failed,node_quarantined}', '{a/b,a/b,null}', null,
    null, null, null, null, null, null);
select fencing.append_events(:stream, 2, null, '{write_failed,node_quarantined,lease_released,lease_released}',
    '{a/b,null,a/4,a/5}', null, null, null, null, null, null, null);
select fencing.append_events(:stream, 4, null, '{lease_released}', '{a/4}', null, null, null, null, null, null, null);
-- a gap is allowed, because events may be lost earlier; events of a refused batch may be sent one by one
select fencing.append_events(:stream, 9, null, '{lease_renewed,unheard_of}', '{a/9,a/10}', null, null, null, null,
    null, null, null);
select fencing.append_events(:stream, 9, null, '{lease_renewed}', '{a/9}', null, null, null, null, null, null, null);
-- another gateway has a numbering of its own
select fencing.append_events(:other, 1, null, '{lease_granted}', '{b/1}', null, null, null, null, null, null, null);
select event, resource from fencing.history order by id;
-- refused: write_applied, guard_changed, more values than events, a missing event, no stream or sequence number
select fencing.append_events(:stream, 10, null, '{lease_granted,write_applied}', null, null, null, null, null,
    null, null, null);
select fencing.append_events(:stream, 10, null, '{lease_granted,guard_changed}', null, null, null, null, null,
    null, null, null);
select fencing.append_events(:stream, 10, null, '{lease_granted,NULL}', null, null, null, null, null, null, null, null);
select fencing.append_events(:stream, 10, null, '{lease_granted}', '{a,b}', null, null, null, null, null, null, null);
select fencing.append_events(null, 10, null, '{lease_granted}', null, null, null, null, null, null, null, null);
select fencing.append_events(:stream, 0, null, '{lease_granted}', null, null, null, null, null, null, null, null);
select fencing.append_events(:stream, null, null, '{lease_granted}', null, null, null, null, null, null, null, null);
select fencing.append_events(:stream, 10, null, '{}', null, null, null, null, null, null, null, null),
  fencing.append_events(:stream, 10, null, null, null, null, null, null, null, null, null, null);
select count(*) from fencing.history;
-- only the function may read and write the streams
select * from fencing.event_stream;
insert into fencing.event_stream (stream, last_sequence) values (:other, 0);
update fencing.event_stream set last_sequence = 0;
delete from fencing.event_stream;
\connect - postgres
select stream, last_sequence, previous_sequence from fencing.event_stream order by stream;
update fencing.event_stream set appended_at = now() - interval '8 days' where stream = :other;
select made, dropped from fencing.rotate_history('1 day');
select stream, last_sequence from fencing.event_stream order by stream;
\connect - test_app
select fencing.append_events(:stream, 10, null, '{lease_granted}', null, null, null, null, null, null, null, null);
\connect - test_auditor
select fencing.append_events(:stream, 10, null, '{lease_granted}', null, null, null, null, null, null, null, null);
