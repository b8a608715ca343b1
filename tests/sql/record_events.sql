-- Events in one insert, all or none; only begin_write may add write_applied,
-- and only functions that change the guard guard_changed.
\connect - test_gateway
select fencing.record_events('[
  {"event": "lease_granted", "at": "2026-11-21T10:00:00.123Z", "resource": "a/b", "fencing_token": 34,
    "owner": "o", "principal": "p", "trace_id": "t", "detail": {"ttl_ms": 1}},
  {"event": "write_failed", "resource": "a/b", "last_fencing_token": 3,
    "write_id": "00000000-0000-0000-0000-000000000001"},
  {"event": "node_quarantined", "detail": {"node": "n1"}}]');
select event, at = '2026-11-21 10:00:00.123+00' as given, resource, fencing_token, last_fencing_token, owner, principal,
  trace_id, write_id, detail from fencing.history order by id;
select fencing.record_events('[{"event": "lease_granted"}, {"event": "write_applied"}]');
select fencing.record_events('[{"event": "lease_granted"}, {"event": "guard_changed"}]');
select fencing.record_events('[{"event": "request_denied", "principal": "p", "detail": {"status": 403}}]');
-- nor a failover that was none; a gateway names writes that one has lost
select fencing.record_events('[{"event": "storage_generation_changed", "detail": {"floor": 1}}]');
select fencing.record_events('[{"event": "storage_generation_changed", "detail": {"lost_writes": []}}]');
select fencing.append_events(gen_random_uuid(), 1, null, '{lease_granted,storage_generation_changed}', null, null, null,
  null, null, null, null, array[null, '{"floor": 1}']::jsonb[]);
select fencing.append_events(gen_random_uuid(), 1, null, '{storage_generation_changed}', null, null, null, null, null,
  null, null, '{"{\"lost_writes\": []}"}'::jsonb[]);
select fencing.record_events('[{"event": "lease_granted"}, {"event": "unheard_of"}]');
select fencing.record_events('[{"event": "lease_granted"}, {"resource": "a"}]');
select fencing.record_events('{"event": "lease_granted"}');
select fencing.record_events('[]');
select count(*) from fencing.history;
