-- Version 7: the cell of the cluster. A column and functions whose arguments changed; does nothing in a database that is new or already has version 7.

do $$
begin
  if pg_catalog.to_regclass('fencing.schema_version') is null then
    return;
  elsif (select pg_catalog.max(version) from fencing.schema_version) < 7 then
    alter table fencing.cluster add column if not exists cell integer not null default 0 check (cell between 0 and 65535);
    drop function if exists fencing.join_cluster(text[], integer, bigint, integer, bigint);
    drop function if exists fencing.code_rights(regclass);
  end if;
end
$$;
