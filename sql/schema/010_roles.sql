-- The roles. They belong to the whole database cluster, everything else to this database:
-- a role that exists already is used as it is.

do $$
declare
  wanted text;
begin
  foreach wanted in array array['fencing_gateway', 'fencing_writer', 'fencing_auditor', 'fencing_recorder'] loop
    if not exists (select from pg_catalog.pg_roles where rolname = wanted) then
      begin
        execute format('create role %I nologin', wanted);
      exception when duplicate_object or unique_violation then
        null;  -- an installation in another database has created it meanwhile
      end;
    end if;
  end loop;
end
$$;

-- Comments on roles need the right to create roles, which a role that repeats the installation may have lost.
do $$
begin
  comment on role fencing_gateway is
    'fencegate''s gateways: writes through begin_write, reads guard, history, cluster, node and api_catalog, '
    'and what is exposed';
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
