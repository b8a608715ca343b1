-- Version 4. Changes to objects of version 3 that `create or replace` and `create table if not exists` cannot make;
-- does nothing in a database that is new or already has version 4.

do $$
begin
  if pg_catalog.to_regclass('fencing.schema_version') is null then
    return;
  elsif (select pg_catalog.max(version) from fencing.schema_version) < 4 then
    -- The register keeps for which life of a node an epoch was drawn, and whether that life synced every write.
    alter table fencing.node add column if not exists life text, add column if not exists synced boolean not null default false;
  end if;
end
$$;
