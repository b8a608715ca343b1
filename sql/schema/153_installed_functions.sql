-- What each function of the schema was when it was installed, so that guard_faults() can name one that was replaced since.

create table if not exists fencing.installed_function (
  function text  primary key,
  digest   bytea not null
);
comment on table fencing.installed_function is 'The functions that this version installs, but for those that protect() generates. The installation writes it anew.';
comment on column fencing.installed_function.function is 'Name and argument types.';
comment on column fencing.installed_function.digest is 'SHA-256 of all that decides what it does.';

create or replace function fencing.function_digests() returns table (function text, digest bytea)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select p.oid::regprocedure::text,
         sha256(convert_to(jsonb_build_array(p.prosrc, l.lanname, p.prosecdef, p.proisstrict, p.provolatile, p.proretset, p.prorettype::regtype, p.proconfig, p.proargnames, p.proargmodes)::text, 'UTF8'))
    from pg_proc p join pg_language l on l.oid = p.prolang
   where p.pronamespace = 'fencing'::regnamespace and p.proname !~ '^check_[0-9]+_';
$$;
comment on function fencing.function_digests() is
  'The functions of the schema as they are now, in the form of installed_function. What protect() generates is compared with what it would generate now (table_faults). Locks: none.';
