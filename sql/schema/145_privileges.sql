-- The complete list of privileges, object by object. Nothing is granted to public;
-- on objects that are not listed only the owner has privileges.

create or replace function fencing.expected_privileges()
  returns table (kind text, object text, role text, privilege text)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select 'function', c.object, c.role, 'execute' from fencing.clone_privileges() c
  union all
  values
    ('schema', 'fencing', 'fencing_gateway', 'usage'),
    ('schema', 'fencing', 'fencing_writer', 'usage'),
    ('schema', 'fencing', 'fencing_auditor', 'usage'),
    ('schema', 'fencing', 'fencing_recorder', 'usage'),
    ('function', 'fencing.enter(text,bigint,text)', 'fencing_writer', 'execute'),
    ('function', 'fencing.enter(text[],bigint,text)', 'fencing_writer', 'execute'),
    ('function', 'fencing.enter_shared(text,bigint,text)', 'fencing_writer', 'execute'),
    ('function', 'fencing.fence(text)', 'fencing_writer', 'execute'),
    ('function', 'fencing.refuse_answer(bigint)', 'fencing_writer', 'execute'),
    ('function', 'fencing.append_refusal(name,timestamp with time zone,jsonb)', 'fencing_recorder', 'execute'),
    ('function', 'fencing.fence(text)', 'fencing_auditor', 'execute'),
    ('function', 'fencing.guard_faults()', 'fencing_auditor', 'execute'),
    ('function', 'fencing.guard_state()', 'fencing_auditor', 'execute'),
    ('function', 'fencing.resource_at(text,timestamp with time zone,boolean)', 'fencing_auditor', 'execute'),
    ('function', 'fencing.resource_at(text,timestamp with time zone,boolean)', 'fencing_gateway', 'execute'),
    ('function', 'fencing.recorder_fault()', 'fencing_auditor', 'execute'),
    ('function', 'fencing.schema_version()', 'fencing_auditor', 'execute'),
    ('function', 'fencing.proof_keys()', 'fencing_auditor', 'execute'),
    ('table', 'fencing.history', 'fencing_auditor', 'select'),
    ('table', 'fencing.row_change', 'fencing_auditor', 'select'),
    ('table', 'fencing.history_digest', 'fencing_auditor', 'select'),
    ('table', 'fencing.guard', 'fencing_auditor', 'select'),
    ('table', 'fencing.cluster', 'fencing_auditor', 'select'),
    ('table', 'fencing.history', 'fencing_gateway', 'select'),
    ('table', 'fencing.row_change', 'fencing_gateway', 'select'),
    ('table', 'fencing.history_digest', 'fencing_gateway', 'select'),
    ('table', 'fencing.guard', 'fencing_gateway', 'select'),
    ('table', 'fencing.cluster', 'fencing_gateway', 'select'),
    ('table', 'fencing.node', 'fencing_gateway', 'select'),
    ('table', 'fencing.api_catalog', 'fencing_gateway', 'select'),
    ('function', 'fencing.describe_api()', 'fencing_gateway', 'execute'),
    ('function', 'fencing.fence(text)', 'fencing_gateway', 'execute'),
    ('function', 'fencing.guard_faults()', 'fencing_gateway', 'execute'),
    ('function', 'fencing.guard_state()', 'fencing_gateway', 'execute'),
    ('function', 'fencing.watch_guard()', 'fencing_gateway', 'execute'),
    ('function', 'fencing.recorder_fault()', 'fencing_gateway', 'execute'),
    ('function', 'fencing.schema_version()', 'fencing_gateway', 'execute'),
    ('function', 'fencing.proof_keys()', 'fencing_gateway', 'execute'),
    ('function', 'fencing.begin_write(text[],bigint,uuid,text,text,text,jsonb,boolean)', 'fencing_gateway', 'execute'),
    ('function', 'fencing.begin_writes(text[],bigint[],uuid[],text[],text[],text[],jsonb[],uuid[])',
        'fencing_gateway', 'execute'),
    ('function', 'fencing.shared_resource_expression(regclass)', 'fencing_gateway', 'execute'),
    ('function', 'fencing.defer_constraints()', 'fencing_gateway', 'execute'),
    ('function', 'fencing.find_outcomes(text[],text[],bytea[])', 'fencing_gateway', 'execute'),
    ('function', 'fencing.claim_keys(text[],text[],bytea[])', 'fencing_gateway', 'execute'),
    ('function', 'fencing.keep_outcomes(text[],text[],bytea[],text[],bigint)', 'fencing_gateway', 'execute'),
    ('function', 'fencing.forget_outcomes(integer)', 'fencing_gateway', 'execute'),
    ('function', 'fencing.seal_writes(text[],bigint[],uuid[],text[],text[],text[],jsonb[])', 'fencing_gateway',
        'execute'),
    ('function', 'fencing.record_events(jsonb)', 'fencing_gateway', 'execute'),
    ('function', 'fencing.append_events(uuid,bigint,bigint[],text[],text[],bigint[],bigint[],text[],text[],text[],'
        'uuid[],jsonb[])', 'fencing_gateway', 'execute'),
    ('function', 'fencing.history_tail()', 'fencing_gateway', 'execute'),
    ('function', 'fencing.digest_tail()', 'fencing_gateway', 'execute'),
    ('function', 'fencing.begin_digest()', 'fencing_gateway', 'execute'),
    ('function', 'fencing.append_digest(bigint,text,text,text,text)', 'fencing_gateway', 'execute'),
    ('function', 'fencing.keep_history(integer)', 'fencing_gateway', 'execute'),
    ('function', 'fencing.raise_fences(text[],bigint,text,text,text,text,boolean,jsonb)', 'fencing_gateway', 'execute'),
    ('function', 'fencing.raise_read_fences(text[],bigint,text,text,text,text,jsonb,uuid)', 'fencing_gateway',
        'execute'),
    ('function', 'fencing.repair_fence(text,bigint,text,text,text,jsonb)', 'fencing_gateway', 'execute'),
    ('function', 'fencing.draw_epoch(text,text,boolean,bigint)', 'fencing_gateway', 'execute'),
    ('function', 'fencing.note_unsynced(text)', 'fencing_gateway', 'execute'),
    ('function', 'fencing.note_waiting(uuid,text,bigint,jsonb)', 'fencing_gateway', 'execute'),
    ('function', 'fencing.waiting_elsewhere(uuid,text)', 'fencing_gateway', 'execute'),
    ('function', 'fencing.storage_generation_state()', 'fencing_gateway', 'execute'),
    ('function', 'fencing.begin_generation_change(bigint)', 'fencing_gateway', 'execute'),
    ('function', 'fencing.finish_generation_change(uuid,text,jsonb)', 'fencing_gateway', 'execute'),
    ('function', 'fencing.find_lost_writes(uuid[])', 'fencing_gateway', 'execute'),
    ('function', 'fencing.join_cluster(text[],integer,bigint,integer,bigint,integer)', 'fencing_gateway', 'execute'),
    ('function', 'fencing.write_landed(uuid,text)', 'fencing_gateway', 'execute'),
    ('function', 'fencing.type_name(oid,integer)', 'fencing_gateway', 'execute'),
    ('function', 'fencing.refuse_answer(bigint)', 'fencing_gateway', 'execute'),
    ('function', 'fencing.base_type(oid)', 'fencing_gateway', 'execute'),
    ('function', 'fencing.operator_schema(oid)', 'fencing_gateway', 'execute');
$$;
comment on function fencing.expected_privileges() is
  'The privileges on the schema and its objects, except the owner''s. '
  'The installation grants them and revokes all others. Locks: none.';

create or replace function fencing.granted_privileges()
  returns table (kind text, object text, role text, privilege text)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select distinct o.kind, o.object, case a.grantee when 0 then 'public' else a.grantee::regrole::text end,
         p.prefix || lower(a.privilege_type)
    from (select 'schema' as kind, n.nspname::text as object, n.nspacl as acl, n.nspowner as owner from pg_namespace n
        where n.nspname in ('fencing', 'fencing_event_triggers')
          union all
          select case c.relkind when 'S' then 'sequence' else 'table' end, c.oid::regclass::text, c.relacl, c.relowner
            from pg_class c
                 join pg_namespace n on n.oid = c.relnamespace and n.nspname in ('fencing', 'fencing_event_triggers')
           where c.relkind in ('r', 'p', 'v', 'm', 'f', 'S')
          union all
          select 'column', format('%s (%I)', c.oid::regclass, a.attname), a.attacl, c.relowner
            from pg_class c join pg_attribute a on a.attrelid = c.oid where c.relnamespace = 'fencing'::regnamespace
              and a.attacl is not null
          union all
          select 'function', f.oid::regprocedure::text, coalesce(f.proacl, acldefault('f', f.proowner)), f.proowner
            from pg_proc f join pg_namespace n on n.oid = f.pronamespace
              and n.nspname in ('fencing', 'fencing_event_triggers')
          union all
          select 'type', t.oid::regtype::text, coalesce(t.typacl, acldefault('T', t.typowner)), t.typowner
            from pg_type t where t.typnamespace = 'fencing'::regnamespace and t.typtype = 'd'
          union all
          select 'foreign server', s.srvname::text, s.srvacl, s.srvowner from pg_foreign_server s
            where s.srvname = 'fencing_recorder') o
         cross join aclexplode(o.acl) a
         cross join lateral (select '' as prefix union all select 'grant option for ' where a.is_grantable) p
   where a.grantee <> o.owner;
$$;
comment on function fencing.granted_privileges() is
  'The privileges that exist on the schema and its objects, except the owner''s; '
  'a privilege with grant option has a second row, "grant option for ...". Locks: none.';

create or replace function fencing.apply_privileges() returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  item record;
begin
  for item in select * from (select * from fencing.granted_privileges() except select *
      from fencing.expected_privileges()) g order by g.privilege like 'grant%', g.object, g.role loop
    if item.kind = 'column' then
      execute format('revoke %s%s on table %s from %s cascade', item.privilege, substring(item.object from ' [(].*$'),
          split_part(item.object, ' (', 1), item.role);
    else
      execute format('revoke %s on %s %s from %s cascade', item.privilege, item.kind, item.object, item.role);
    end if;
  end loop;
  for item in select *
    from (select * from fencing.expected_privileges() except select * from fencing.granted_privileges()) g loop
    execute format('grant %s on %s %s to %s', item.privilege, item.kind, item.object, item.role);
  end loop;
end
$$;
comment on function fencing.apply_privileges() is
  'For the installation: revokes every privilege on the schema that is not expected, '
  'whatever granted it (for example the owner''s default privileges), and grants those that are missing. Locks: none.';
