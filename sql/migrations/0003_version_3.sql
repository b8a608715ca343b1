-- Version 3: proofs of leases. Brings versions 1 and 2 to where the schema files can go on; does nothing in a database that is new or done.

select pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended('fencing.install', 0));

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
