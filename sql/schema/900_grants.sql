-- Who may do what, object by object. Nothing to public.

revoke all on schema fencing from public;
revoke all on all tables in schema fencing from public;
revoke all on all sequences in schema fencing from public;
revoke all on all functions in schema fencing from public;
revoke all on domain fencing.resource_name, fencing.event_word from public;
revoke all on all tables in schema fencing from fencing_gateway, fencing_writer, fencing_auditor;
revoke all on all functions in schema fencing from fencing_gateway, fencing_writer, fencing_auditor;

grant usage on schema fencing to fencing_gateway, fencing_writer, fencing_auditor;

grant execute on function fencing.enter(text, bigint, text) to fencing_writer;
grant execute on function fencing.fence(text) to fencing_writer, fencing_auditor, fencing_gateway;
grant execute on function fencing.guard_faults() to fencing_auditor, fencing_gateway;

grant select on fencing.history, fencing.guard, fencing.cluster to fencing_auditor, fencing_gateway;
grant execute on function fencing.schema_version() to fencing_auditor;
grant select on fencing.node, fencing.api_catalog to fencing_gateway;

grant execute on function
  fencing.begin_write(text[], bigint, uuid, text, text, text, jsonb),
  fencing.begin_writes(text[], bigint[], uuid[], text[], text[], text[], jsonb[], uuid[]),
  fencing.shared_resource_expression(regclass),
  fencing.find_outcomes(text[], text[], bytea[]),
  fencing.claim_keys(text[], text[], bytea[]),
  fencing.keep_outcomes(text[], text[], bytea[], text[], bigint),
  fencing.forget_outcomes(integer),
  fencing.seal_writes(text[], bigint[], uuid[], text[], text[], text[]),
  fencing.record_events(jsonb),
  fencing.append_events(uuid, bigint, bigint[], text[], text[], bigint[], bigint[], text[], text[], text[], uuid[], jsonb[]),
  fencing.history_tail(),
  fencing.keep_history(integer),
  fencing.raise_fences(text[], bigint, text, text, text, text),
  fencing.repair_fence(text, bigint, text, text, text),
  fencing.draw_epoch(text, bigint),
  fencing.draw_epoch(text, text, boolean, bigint),
  fencing.note_unsynced(text),
  fencing.join_cluster(text[], integer, bigint, integer),
  fencing.schema_version(),
  fencing.write_landed(uuid, text),
  fencing.type_name(oid, integer),
  fencing.refuse_answer(bigint),
  fencing.base_type(oid),
  fencing.operator_schema(oid)
  to fencing_gateway;

-- What was exposed before a re-run is untouched: those are grants on the application's own objects.
