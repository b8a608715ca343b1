-- Version 3: proofs of leases. Prepares versions 1 and 2 for the schema files; does nothing in a database that is new or has version 3 already.

-- Two installations run one after the other: only the owner can take the lock, so that no other role can delay an installation.
-- An installation never continues that of another role: functions with the rights of one role would then work on tables of the other.
do $$
declare
  other text;
begin
  if pg_catalog.to_regnamespace('fencing') is null then
    return;
  end if;
  select n.nspowner::regrole::text into other from pg_catalog.pg_namespace n where n.nspname = 'fencing' and n.nspowner <> current_user::regrole
  union all select c.relowner::regrole::text from pg_catalog.pg_class c where c.relnamespace = 'fencing'::regnamespace and c.relowner <> current_user::regrole
  union all select p.proowner::regrole::text from pg_catalog.pg_proc p where p.pronamespace = 'fencing'::regnamespace and p.proowner <> current_user::regrole
  union all select t.typowner::regrole::text from pg_catalog.pg_type t where t.typnamespace = 'fencing'::regnamespace and t.typowner <> current_user::regrole
  limit 1;
  if other is not null then
    raise exception using errcode = '42501', message = pg_catalog.format('the schema fencing, or something in it, belongs to %s: the installation is for its owner alone', other),
      hint = pg_catalog.format('Install as %s, or where that role never installed it, find out who made it before you drop it.', other);
  end if;
  if pg_catalog.to_regclass('fencing.schema_version') is not null then
    lock table fencing.schema_version in share update exclusive mode;
  end if;
end
$$;

do $$
begin
  if pg_catalog.to_regclass('fencing.schema_version') is null then
    return;
  elsif (select pg_catalog.max(version) from fencing.schema_version) < 3 then
    alter table fencing.settings drop constraint settings_key_check;
    alter table fencing.settings add constraint settings_key_check check (key in ('recorder', 'require_proof')),
      add constraint settings_require_proof_is_on_or_off check (key <> 'require_proof' or value in ('on', 'off'));
  end if;
end
$$;
