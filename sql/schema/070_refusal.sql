-- Events that the gateway records, and refusals of direct SQL,
-- which have to be in the history although their transaction rolls back.

create or replace function fencing.bound_time(at timestamptz) returns timestamptz
language sql volatile
as $$  -- no search_path of its own, so that it is inlined; therefore every name is qualified
  select case when at operator(pg_catalog.>=) '2000-01-01'::pg_catalog.timestamptz
                and at operator(pg_catalog.<=) (pg_catalog.clock_timestamp()
                  operator(pg_catalog.+) '1 day'::pg_catalog.interval)
              then at else pg_catalog.clock_timestamp() end;
$$;
comment on function fencing.bound_time(timestamptz) is
  'The time of an event; now where there is none, or one that no event can have: before the year 2000, '
  'or more than a day ahead. Locks: none.';

create or replace function fencing.bound_token(token bigint) returns bigint
language sql immutable
as $$  -- as above
  select case when token operator(pg_catalog.>=) 0 and token operator(pg_catalog.<=) 9007199254740992 then token end;
$$;
comment on function fencing.bound_token(bigint) is
  'The token or fence of an event; null where it can be neither: below 0, or above 2^53. Locks: none.';

create or replace function fencing.record_events(events jsonb) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if events is null or jsonb_typeof(events) <> 'array' then
    raise exception using errcode = '22023', message = 'events must be a JSON array of objects';
  end if;
  if events @> any (array['[{"event": "write_applied"}]', '[{"event": "guard_changed"}]',
      '[{"event": "person_erased"}]']::jsonb[]) then
    raise exception using errcode = '22023',
      message = 'write_applied, guard_changed and person_erased are recorded by the guard alone';
  end if;
  if exists (select from jsonb_array_elements(events) e
      where e ->> 'event' = 'storage_generation_changed' and e -> 'detail' ? 'floor') then
    raise exception using errcode = '22023',
      message = 'storage_generation_changed with a floor is recorded by the guard alone';
  end if;
  insert into fencing.history (at, event, resource, fencing_token, last_fencing_token, owner, principal, trace_id,
      write_id, detail)
  select fencing.bound_time(e.at), e.event, fencing.bound_text(e.resource, 200), fencing.bound_token(e.fencing_token),
    fencing.bound_token(e.last_fencing_token), fencing.bound_text(e.owner, 200),
         fencing.bound_text(e.principal, 200), fencing.bound_text(e.trace_id, 200), e.write_id,
           fencing.bound_detail(fencing.masked_wanted(e.detail))
    from jsonb_to_recordset(events) as e (at timestamptz, event text, resource text, fencing_token bigint,
        last_fencing_token bigint,
                                          owner text, principal text, trace_id text, write_id uuid, detail jsonb);
end
$$;
comment on function fencing.record_events(jsonb) is
  'Adds events to the history in one insert: objects with event and any of at, resource, fencing_token, '
  'last_fencing_token, owner, principal, trace_id, write_id, detail (of which masked_wanted shows wanted). '
  'All of them or none. SQLSTATE 22023: not an array, or an event of the guard alone; '
  '23502, 23514: an event is missing or unknown. Locks: none that others wait for.';

create or replace function fencing.append_events(
  stream uuid, first_sequence bigint, at_us bigint[], event text[], resource text[], fencing_token bigint[],
    last_fencing_token bigint[],
  owner text[], principal text[], trace_id text[], write_id uuid[], detail jsonb[]) returns integer
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  events constant integer := coalesce(cardinality(append_events.event), 0);
  already_added bigint;
  added integer;
begin
  if append_events.stream is null or coalesce(append_events.first_sequence, 0) < 1 then
    raise exception using errcode = '22023', message = 'events come from a stream and are numbered from 1 on';
  end if;
  if append_events.event && '{write_applied,guard_changed,person_erased}' then
    raise exception using errcode = '22023',
      message = 'write_applied, guard_changed and person_erased are recorded by the guard alone';
  end if;
  if 'storage_generation_changed' = any (append_events.event)
      and exists (select from unnest(append_events.event, append_events.detail) e (event, detail)
        where e.event = 'storage_generation_changed' and e.detail ? 'floor') then
    raise exception using errcode = '22023',
      message = 'storage_generation_changed with a floor is recorded by the guard alone';
  end if;
  if events = 0 then
    return 0;
  end if;
  -- Waits until the same batch on an abandoned connection of the gateway has committed or rolled back.
  insert into fencing.event_stream as s (stream, last_sequence)
  values (append_events.stream, append_events.first_sequence + events - 1)
  on conflict on constraint event_stream_pkey do update
    set previous_sequence = s.last_sequence, last_sequence = greatest(s.last_sequence, excluded.last_sequence),
      appended_at = clock_timestamp()
  returning s.previous_sequence into already_added;
  insert into fencing.history (at, event, resource, fencing_token, last_fencing_token, owner, principal, trace_id,
      write_id, detail)
  select fencing.bound_time(to_timestamp(e.at_us::float8 / 1e6)), e.event, fencing.bound_text(e.resource, 200),
    fencing.bound_token(e.fencing_token), fencing.bound_token(e.last_fencing_token),
         fencing.bound_text(e.owner, 200), fencing.bound_text(e.principal, 200), fencing.bound_text(e.trace_id, 200),
           e.write_id, fencing.bound_detail(e.detail)
    from unnest(append_events.at_us, append_events.event, append_events.resource, append_events.fencing_token,
        append_events.last_fencing_token,
                append_events.owner, append_events.principal, append_events.trace_id, append_events.write_id,
                  append_events.detail)
         with ordinality as e (at_us, event, resource, fencing_token, last_fencing_token, owner, principal, trace_id,
             write_id, detail, position)
   where append_events.first_sequence + e.position - 1 > already_added;
  get diagnostics added = row_count;
  return added;
end
$$;
comment on function fencing.append_events(uuid, bigint, bigint[], text[], text[], bigint[], bigint[], text[], text[],
    text[], uuid[], jsonb[]) is
  'For gateways: adds a batch of events, each once. A gateway numbers its events from 1 on in a stream of its own '
  '(stream: an id that it makes when it starts); the first of the batch has the number first_sequence, and events '
  'that the stream has delivered before are skipped, so that a batch whose answer was lost can be sent again. '
  'One array for each column, null where no event has a value; at_us is in microseconds since 1970. '
  'Returns the number of rows added; all of them or none. '
  'SQLSTATE 22023: no stream or number, or an event of the guard alone; '
  '23502, 23514: an event is missing or unknown. Locks until the end of the transaction: the stream''s row.';

create or replace function fencing.may_act_as_gateway(login name) returns boolean
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  -- From PostgreSQL 16 on, who created a role is a member without its rights.
  select pg_has_role(login, 'fencing_gateway',
                     case when current_setting('server_version_num')::integer < 160000 then 'member'
                       else 'usage, set' end);
$$;
comment on function fencing.may_act_as_gateway(name) is
  'Whether a role has the rights of fencing_gateway, or can take them by set role. Locks: none.';

create or replace function fencing.is_gateway_session() returns boolean
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select fencing.may_act_as_gateway(session_user)
     and not exists (select from pg_roles r where r.rolname = session_user and r.rolsuper);
$$;
comment on function fencing.is_gateway_session() is
  'Whether the session logged in as a member of fencing_gateway: gateways record their refusals themselves. '
  'False for superusers. Locks: none.';

create or replace function fencing.append_refusal(database name, server_started timestamptz, refusal jsonb) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if database is distinct from current_database() then
    raise exception using errcode = '22023',
      message = format('the recorder of %s leads to the database %s', coalesce(database, 'null'), current_database());
  elsif server_started is distinct from pg_postmaster_start_time() then
    raise exception using errcode = '22023',
      message = format('the recorder of %s leads to another server, on port %s', database, current_setting('port'));
  end if;
  insert into fencing.history (event, resource, fencing_token, last_fencing_token, principal, detail)
  select 'write_rejected', fencing.bound_text(r.resource, 850), fencing.bound_token(r.fencing_token),
    fencing.bound_token(r.last_fencing_token), fencing.bound_text(r.principal, 200), fencing.bound_detail(r.detail)
    from jsonb_to_record(refusal) as r (resource text, fencing_token bigint, last_fencing_token bigint,
        principal text, detail jsonb)
   where refusal <> '{}';  -- an empty refusal only tests the connection
end
$$;
comment on function fencing.append_refusal(name, timestamptz, jsonb) is
  'For the recorder, which may do nothing else: adds one refusal to the history. '
  'database: the database of the refused transaction, so that a copy of a database records nothing in the original; '
  'server_started: when its server was started (pg_postmaster_start_time), so that a copy of a server does not either. '
  'SQLSTATE 22023: the recorder leads to another database or server. Locks: none that others wait for.';

create or replace function fencing.recorder_schema() returns name
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select n.nspname
    from pg_extension e join pg_namespace n on n.oid = e.extnamespace
         join pg_foreign_server s on s.srvname = 'fencing_recorder' and s.srvowner = quote_ident(current_user)::regrole
         join pg_user_mappings m on m.srvid = s.oid and m.umuser = s.srvowner
   where e.extname = 'dblink';
$$;
comment on function fencing.recorder_schema() is
  'The schema of dblink where a recorder is set up: the foreign server fencing_recorder and its user mapping, '
  'both the owner''s. Null where there is none. Locks: none.';

create or replace function fencing.call_recorder(dblink_schema name, refusal jsonb) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  connections text[];
  done text;
begin
  -- dblink would use a connection that the caller has opened under this name instead of the foreign server.
  execute format('select %I.dblink_get_connections()', dblink_schema) into connections;
  if 'fencing_recorder' = any (connections) then
    execute format('select %I.dblink_disconnect(''fencing_recorder'')', dblink_schema) into done;
  end if;
  execute format('select r.done from %I.dblink(''fencing_recorder'', $1) as r (done text)', dblink_schema)
    into done using format('select fencing.append_refusal(%L, %L, %L)::text', current_database(),
        to_char(pg_postmaster_start_time() at time zone 'utc', 'YYYY-MM-DD HH24:MI:SS.US"+00"'), refusal);
end
$$;
comment on function fencing.call_recorder(name, jsonb) is
  'Adds a refusal through the recorder''s connection. '
  'No statement, parameter or plan contains the connection''s password: dblink reads it from the user mapping. '
  'Raises what dblink raises. Locks in the caller''s transaction: none.';

create or replace function fencing.record_refusal(refusal jsonb) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  event constant jsonb := jsonb_build_object('principal', session_user) || refusal;
  dblink_schema name;
begin
  if fencing.is_gateway_session() then
    return;
  end if;
  dblink_schema := fencing.recorder_schema();
  if dblink_schema is null then
    raise exception 'there is no recorder';
  end if;
  perform fencing.call_recorder(dblink_schema, event);
exception when query_canceled or assert_failure or others then
  -- For the server's log alone; the refusal that follows ends the setting.
  perform set_config('client_min_messages', 'error', true);
  raise warning 'fencing: a refusal could not be recorded (% %): %', sqlstate, sqlerrm, event;
end
$$;
comment on function fencing.record_refusal(jsonb) is
  'Writes a refusal to the history over a connection of its own (150_recorder.sql), '
  'so that the row stays when the transaction rolls back. '
  'Never raises: errors, and the end of the caller''s statement_timeout meanwhile, are a WARNING in the server''s log. '
  'Takes at most 2 s to connect and 2 s to write. Locks in the caller''s transaction: none.';

create or replace function fencing.describe_change(relation oid, operation text, resource text) returns jsonb
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select fencing.session_origin() || jsonb_build_object('relation', relation::regclass::text,
      'operation', lower(operation),
    'sqlstate', case when resource is not null and f.name_fault is null
      and coalesce(current_setting('fencing.write_id', true), '') = ''
                      and current_setting('fencing.entered',
                          true) is distinct from pg_current_xact_id_if_assigned()::text
                     then 'FG428' else 'FG403' end)
    || case when f.name_fault is null then '{}' else jsonb_build_object('name_fault', f.name_fault) end
    from (select case when resource is not null then fencing.name_fault(resource) end) f (name_fault);
$$;
comment on function fencing.describe_change(oid, text, text) is
  'The facts about a change that is not covered; name_fault where the row has a text that is no name of a resource. '
  'A caller could forge the settings that decide which of the two SQLSTATEs it gets, '
  'but not that it is refused. Locks: none.';

create or replace function fencing.name_hint(relation oid) returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select format('Change the row, or protect the table by an expression that gives each row a name of 1 to 200 bytes '
      'without control characters and empty segments, for example %L || md5(...).', c.relname || '/')
    from pg_class c where c.oid = coalesce(pg_partition_root(relation::regclass)::oid, relation);
$$;
comment on function fencing.name_hint(oid) is 'What to do about rows whose resource has no valid name. Locks: none.';

create or replace function fencing.refuse_change(relation oid, operation text, resource text) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  facts constant jsonb := fencing.describe_change(relation, operation, resource);
  name_fault constant text := facts ->> 'name_fault';
  shown constant jsonb := jsonb_build_object('resource', resource, 'relation', relation::regclass::text,
      'operation', lower(operation));
begin
  perform fencing.record_refusal(jsonb_build_object('resource', resource, 'detail', facts));
  if facts ->> 'sqlstate' = 'FG428' then
    raise exception using errcode = 'FG428',
      message = format('fencing required: %s of %s without having entered its resource', lower(operation),
          relation::regclass),
      detail = shown::text,
      hint = 'Call fencing.enter(resource, fencing_token) in the same transaction first.';
  elsif name_fault is not null then
    raise exception using errcode = 'FG403',
      message = format('resource not covered: the row in %s has a name that no resource can have: it %s',
          relation::regclass, name_fault),
      detail = (shown || jsonb_build_object('name_fault', name_fault))::text,
      hint = fencing.name_hint(relation);
  end if;
  raise exception using errcode = 'FG403',
    message = case when operation = 'TRUNCATE'
      then format('resource not covered: truncate of %s would touch every resource', relation::regclass)
                   when resource is null
                     then format('resource not covered: the row in %s has no resource', relation::regclass)
                   else format('resource not covered: %s of %s touches %s, which this transaction has not entered',
                       lower(operation), relation::regclass, resource) end,
    detail = shown::text,
    hint = case when operation = 'TRUNCATE' then 'Delete the rows, each under its resource. To empty the table, '
      'its owner calls fencing.unprotect() first and fencing.protect() afterwards, in one transaction.'
                when resource is null then 'The resource expression gives null for the row; '
                  'give its columns values, or change the expression by fencing.protect().'
                else 'Enter every resource whose rows change, in one call: fencing.enter(array[...], fencing_token), '
                  'under a lease on all of them.' end;
end
$$;
comment on function fencing.refuse_change(oid, text, text) is
  'Records and raises: FG428 where the transaction entered nothing, FG403 where it entered something else, '
  'or the row has no resource or one whose name is not valid. '
  'DETAIL is JSON: resource, relation, operation, and name_fault where the name is not valid. Locks: none.';

create or replace function fencing.observe_change(relation oid, operation text, resource text, failed_with text)
  returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  most constant integer := 1000;
  xid constant text := pg_current_xact_id()::text;
  -- "xid:count"; a caller who forges it hides what it does, no more
  before constant text := coalesce(current_setting('fencing.observed', true), '');
  nth constant integer := case
    when before ~ ('^' || xid || ':[0-9]{1,6}$') then split_part(before, ':', 2)::integer + 1 else 1 end;
begin
  if nth > most then
    return;
  end if;
  perform set_config('fencing.observed', xid || ':' || nth, true);
  insert into fencing.history (event, resource, principal, detail)
  values ('write_rejected', resource, session_user,
          fencing.describe_change(relation, operation, resource)
            || case when failed_with is not null then jsonb_build_object('sqlstate', failed_with) else '{}' end
            || '{"observed": true}' || case when nth = most then '{"and_more": true}' else '{}' end::jsonb);
end
$$;
comment on function fencing.observe_change(oid, text, text, text) is
  'Records a change that enforce mode would have refused, in the caller''s own transaction; '
  'failed_with: the SQLSTATE that the resource expression raised, or null. At most 1,000 in one transaction, '
  'the last with and_more = true. Locks: none.';

create or replace function fencing.refuse_answer(bytes bigint) returns text
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  raise exception using errcode = '54000', message = format('the answer would have %s bytes, '
      'more than a gateway gives: ask for fewer rows or columns, or for none', bytes);
end
$$;
comment on function fencing.refuse_answer(bigint) is
  'For gateways, whose statements call it instead of returning an answer that is too large: raises 54000, '
  'so that the write is rolled back. Locks: none.';
