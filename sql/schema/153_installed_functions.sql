-- A digest of each function of the schema as it was installed, so that guard_faults() can name a function that was replaced since.

create table if not exists fencing.installed_function (
  function text  primary key,
  digest   bytea not null
);
comment on table fencing.installed_function is 'The functions that this version installs, except those that protect() generates. Every installation writes the table again.';
comment on column fencing.installed_function.function is 'Name and argument types.';
comment on column fencing.installed_function.digest is 'SHA-256 of the body, the language, the settings and the arguments.';

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
  'The current functions of the schema, in the form of installed_function. Functions that protect() generated are compared with what it would generate now (table_faults). Locks: none.';
