-- The roles. They belong to the whole cluster of databases, the rest to this database: a role that exists already is taken as it is.

do $$
declare
  wanted text;
begin
  foreach wanted in array array['fencing_gateway', 'fencing_writer', 'fencing_auditor', 'fencing_recorder'] loop
    if not exists (select from pg_catalog.pg_roles where rolname = wanted) then
      begin
        execute format('create role %I nologin', wanted);
      exception when duplicate_object or unique_violation then
        null;  -- made by an installation in another database, which has committed meanwhile
      end;
    end if;
  end loop;
end
$$;

-- Comments on roles need the right to create roles; whoever re-runs the installation may have lost it.
do $$
begin
  comment on role fencing_gateway is
    'fencegate''s gateways: writes through begin_write, reads guard, history, cluster and api_catalog, and what is exposed';
  comment on role fencing_writer is
    'applications that write with their own connection: may call fencing.enter and fencing.fence';
  comment on role fencing_auditor is
    'reads history, guard and cluster; changes nothing';
  comment on role fencing_recorder is
    'adds refusals of direct SQL to the history, by fencing.append_refusal, and can do nothing else';
exception when insufficient_privilege then
  raise notice 'fencing: the comments on the roles were left as they are';
end
$$;
