-- The recorder: a separate connection for each refusal of direct SQL,
-- so that the history's row stays although the refused transaction rolls back. It needs the extension dblink.
--
-- The connection is defined by a foreign server and a user mapping of the owner.
-- Only the owner and superusers can read the password in the mapping, and no statement contains it. The login
-- role is used for this database alone, is a member of fencing_recorder, and can add refusals and do nothing else.
-- It commits without waiting for standbys: the refused transaction waits for it and holds its locks.

create or replace function fencing.recorder_port() returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select o.option_value from pg_foreign_server s cross join pg_options_to_table(s.srvoptions) o
    where s.srvname = 'fencing_recorder' and o.option_name = 'port';
$$;
comment on function fencing.recorder_port() is
  'The port to which the recorder connects; null where the foreign server names none, or is missing. Locks: none.';

create or replace function fencing.set_up_recorder() returns text
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  login constant name := 'fencing_recorder_' || (select d.oid from pg_database d where d.datname = current_database());
  password constant text := replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', '');
  hosts text;
  problem text;
  detail text;
begin
  if fencing.recorder_schema() is not null and exists (
       select from pg_foreign_server s cross join pg_options_to_table(s.srvoptions) o
         join pg_user_mappings m on m.srvid = s.oid
                   cross join pg_options_to_table(m.umoptions) u join pg_roles r on r.rolname = u.option_value
        where s.srvname = 'fencing_recorder' and o.option_name = 'dbname' and o.option_value = current_database()
          and u.option_name = 'user') then
    -- It exists; the operator may have changed it, so it stays as it is.
    -- Only a copy of a server may have the port of the original.
    if fencing.recorder_port() is distinct from current_setting('port') then
      execute format('alter server fencing_recorder options (%s port %L)',
          case when fencing.recorder_port() is null then 'add' else 'set' end, current_setting('port'));
    end if;
    return null;
  end if;
  if not exists (select from pg_extension e where e.extname = 'dblink') then
    if not exists (select from pg_available_extensions e where e.name = 'dblink') then
      return 'the server has no extension dblink: install PostgreSQL''s contrib modules';
    end if;
    if exists (select from pg_namespace n where n.nspname = 'fencing_recorder') then
      return 'the schema fencing_recorder is in the way: drop it';
    end if;
    create schema fencing_recorder;  -- granted to nobody, so that dblink opens connections for nobody else
    perform fencing.revoke_from_others('schema', 'fencing_recorder', n.nspacl, n.nspowner) from pg_namespace n
      where n.nspname = 'fencing_recorder';
    execute 'create extension dblink schema fencing_recorder';
  end if;
  execute 'drop server if exists fencing_recorder cascade';
  -- First TCP on the loopback interface, which usually accepts a password where the socket requires an operating system
  -- user (peer); the socket is for servers that do not listen on TCP.
  hosts := concat_ws(',',
    case when exists (select from unnest(string_to_array(replace(current_setting('listen_addresses'), ' ', ''), ','))
        as t (address) where t.address in ('*', '0.0.0.0', 'localhost', '127.0.0.1')) then '127.0.0.1' end,
    case when pg_has_role('pg_read_all_settings', 'usage')
      then nullif(btrim(split_part(current_setting('unix_socket_directories'), ',', 1)), '') end);
  execute format('create server fencing_recorder foreign data wrapper dblink_fdw options (%s port %L, dbname %L, '
      'connect_timeout ''2'', '
                 'application_name ''fencing_recorder'', '
                 'options ''-c statement_timeout=2000 -c lock_timeout=1000 -c synchronous_commit=local'')',
                   'host ' || quote_literal(nullif(hosts, '')) || ',', current_setting('port'), current_database());
  if not exists (select from pg_roles r where r.rolname = login) then
    execute format('create role %I login', login);
    execute format('comment on role %I is %L', login, 'records refusals of direct SQL in the database '
        || current_database());
  end if;
  execute format('alter role %I password %L', login, password);
  execute format('grant fencing_recorder to %I', login);
  if not has_database_privilege(login, current_database(), 'connect') then
    execute format('grant connect on database %I to %I', current_database(), login);
  end if;
  execute format('create user mapping for current_user server fencing_recorder options (user %L, password %L)',
      login, password);
  return null;
exception when others then
  get stacked diagnostics problem = message_text, detail = pg_exception_detail;
  return concat_ws(': ', problem, nullif(detail, ''))
         || case when sqlstate = '42501' and not exists (select from pg_extension e where e.extname = 'dblink')
                 then format(' (a superuser runs the statement of "The recorder" in sql/README.md, '
                     'then %I runs `fencegate migrate`)', current_user)
                 when sqlstate = '42501' and not pg_has_role('fencing_recorder', 'member with admin option')
                   and (select r.rolcreaterole from pg_roles r where r.rolname = current_user)
                 then format(' (a superuser, or the role that created fencing_recorder, '
                     'runs: grant fencing_recorder to %I with admin option)', current_user) else '' end;
end
$$;
comment on function fencing.set_up_recorder() is
  'For the role that installed the schema, and called by the installation: creates the missing parts of the recorder: '
  'the extension dblink (as a superuser), the foreign server fencing_recorder, a login role and the user mapping. '
  'A foreign server for this database that has a mapping stays as it is, but for the port, '
  'which becomes that of this server. Null, or the error; then nothing was created. Locks: none that writers wait for.';

create or replace function fencing.recorder_fault() returns text
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  dblink_schema constant name := fencing.recorder_schema();
  problem text;
  detail text;
begin
  if dblink_schema is null then
    return case
      when not exists (select from pg_extension e where e.extname = 'dblink') then 'the extension dblink is missing'
                else 'the foreign server fencing_recorder or its user mapping for ' || current_user || ' is missing' end
           || case when (select r.rolsuper from pg_roles r
               where r.rolname = current_user) then format(': run `fencegate migrate` as %s', current_user)
                   else format(': a superuser runs the statement of "The recorder" in sql/README.md, '
                       'then %s runs `fencegate migrate`', current_user) end;
  end if;
  if fencing.recorder_port() is distinct from current_setting('port') then
    return format('the foreign server fencing_recorder leads to port %s, and this server listens on port %s: run '
        '`fencegate migrate` as %s', coalesce(fencing.recorder_port(), '5432'), current_setting('port'), current_user);
  end if;
  perform fencing.call_recorder(dblink_schema, '{}');
  return null;
exception when query_canceled or others then
  get stacked diagnostics problem = message_text, detail = pg_exception_detail;
  return concat_ws(': ', problem, nullif(btrim(detail, E' \n'), ''))
    || ' (foreign server fencing_recorder; "The recorder" in sql/README.md says how to make it anew)';
end
$$;
comment on function fencing.recorder_fault() is
  'Why refusals of direct SQL are not recorded in the history, found by connecting as the recorder does; '
  'null where they are. `fencegate check` and `migrate` call it. '
  'Takes at most 2 s to connect and 2 s for the answer. Locks: none.';
