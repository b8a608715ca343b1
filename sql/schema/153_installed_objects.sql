-- A digest of each function and table as it was installed,
-- so that guard_faults() can name what was replaced, changed or dropped since.

create table if not exists fencing.installed_object (
  kind   text,
  name   text,
  digest bytea not null,
  primary key (kind, name)
);
comment on table fencing.installed_object is
  'The functions and relations that this version installs, except what protect() and record_changes() generate '
  'and the partitions of the history. Every installation writes the table again.';
comment on column fencing.installed_object.kind is 'function or table (also a view or a sequence).';
comment on column fencing.installed_object.name is 'With its schema; of a function also the argument types.';
comment on column fencing.installed_object.digest is
  'SHA-256 of the body, the language, the settings and the arguments, or of the columns, '
  'constraints, triggers and rules.';

create or replace function fencing.object_digests() returns table (kind text, name text, digest bytea)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select 'function', p.oid::regprocedure::text,
         sha256(
             convert_to(jsonb_build_array(p.prosrc, l.lanname, p.prosecdef, p.proisstrict, p.provolatile, p.proretset,
                                             p.prorettype::regtype, p.proconfig, p.proargnames, p.proargmodes)::text,
                                               'UTF8'))
    from pg_proc p join pg_language l on l.oid = p.prolang join pg_namespace n on n.oid = p.pronamespace
   where n.nspname in ('fencing', 'fencing_event_triggers') and p.proname !~ '^(check|record)_[0-9]+_'
  union all
  select 'table', c.oid::regclass::text,
         sha256(convert_to(jsonb_build_array(c.relkind, c.relpersistence, c.relrowsecurity, c.relforcerowsecurity,
           (select jsonb_agg(jsonb_build_array(a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
                 a.attidentity)
                             order by a.attname)
              from pg_attribute a where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped),
           (select jsonb_agg(jsonb_build_array(k.conname, k.contype, k.convalidated) order by k.conname)
              from pg_constraint k where k.conrelid = c.oid and k.contype in ('c', 'f', 'p', 'u', 'x')),
           (select jsonb_agg(jsonb_build_array(t.tgname, t.tgfoid::regprocedure, t.tgtype) order by t.tgname)
              from pg_trigger t where t.tgrelid = c.oid and not t.tgisinternal),
           (select jsonb_agg(jsonb_build_array(r.rulename, r.ev_type, r.is_instead) order by r.rulename)
              from pg_rewrite r where r.ev_class = c.oid and r.rulename <> '_RETURN'))::text, 'UTF8'))
    from pg_class c join pg_namespace n on n.oid = c.relnamespace and n.nspname in ('fencing', 'fencing_event_triggers')
   where c.relkind in ('r', 'p', 'v', 'S') and not c.relispartition;
$$;
comment on function fencing.object_digests() is
  'The current functions and relations of the guard, in the form of installed_object. '
  'Functions that protect() generated are compared with what it would generate now (table_faults). Locks: none.';
