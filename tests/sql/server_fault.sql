-- Servers on which the guard can't be installed, or would not check every change.
select v as version, fencing.server_fault(v) as fault
  from unnest(array[120022, 130007, 130008, 130023, 140004, 140005, 140020, 150000, 150015, 150016, 160000, 160011,
        160012, 170000, 170007, 170008, 180000, 180001, 180002, 190000]) as t (v);
-- the server was replaced by an older one after the installation
create or replace function fencing.server_fault(server_version integer) returns text language sql immutable
  set search_path = pg_catalog, pg_temp as $$
  select 'PostgreSQL is too old' where server_version = current_setting('server_version_num')::integer $$;
select fencing.guard_faults();
