-- The beginning of every installation. First the settings of its transaction, whatever those of the database are: each
-- statement sees what was committed before it, the texts in these files mean the same, and names are stored and
-- compared as text without quotes where none are needed.

set transaction isolation level read committed;
set local standard_conforming_strings = on;
set local quote_all_identifiers = off;

-- Two installations run one after the other: only the owner can take the lock,
-- so that no other role can delay an installation.
-- An installation never continues that of another role: functions with the rights
-- of one role would then work on tables of the other.
do $$
declare
  other text;
begin
  if pg_catalog.to_regnamespace('fencing') is null then
    return;
  end if;
  select n.nspowner::regrole::text into other
    from pg_catalog.pg_namespace n where n.nspname in ('fencing', 'fencing_event_triggers')
    and n.nspowner <> pg_catalog.quote_ident(current_user)::regrole
  union all select c.relowner::regrole::text from pg_catalog.pg_class c where c.relnamespace = 'fencing'::regnamespace
    and c.relowner <> pg_catalog.quote_ident(current_user)::regrole
  union all select p.proowner::regrole::text from pg_catalog.pg_proc p where p.pronamespace = 'fencing'::regnamespace
    and p.proowner <> pg_catalog.quote_ident(current_user)::regrole
  union all select t.typowner::regrole::text from pg_catalog.pg_type t where t.typnamespace = 'fencing'::regnamespace
    and t.typowner <> pg_catalog.quote_ident(current_user)::regrole
  limit 1;
  if other is not null then
    raise exception using errcode = '42501', message = pg_catalog.format('the schema fencing, or something in it, '
        'belongs to %s: the installation is for its owner alone', other),
      hint = pg_catalog.format('Install as %s, or where that role never installed it, '
          'find out who made it before you drop it.', other);
  end if;
  if pg_catalog.to_regclass('fencing.schema_version') is not null then
    lock table fencing.schema_version in share update exclusive mode;
  end if;
end
$$;
