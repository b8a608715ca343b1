-- Version 6: the storage generation. A function whose arguments changed; does nothing in a database that is new or already has version 6.

do $$
begin
  if pg_catalog.to_regclass('fencing.schema_version') is null then
    return;
  elsif (select pg_catalog.max(version) from fencing.schema_version) < 6 then
    drop function if exists fencing.begin_write_on_many(text[], bigint, uuid, text, text, text, jsonb);
  end if;
end
$$;
