-- Partitions of the history: one a week, made ahead; old ones dropped whole.

create or replace function fencing.make_history_partition(day timestamptz) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  first_moment constant timestamptz := date_trunc('week', day, 'UTC');
  end_moment   constant timestamptz := date_trunc('week', day + interval '168 hours', 'UTC');
  partition    constant text := 'history_' || to_char(first_moment at time zone 'UTC', 'YYYYMMDD');
begin
  if to_regclass('fencing.' || partition) is not null then
    return false;
  end if;
  execute format('create table fencing.%I (like fencing.history including defaults including constraints)', partition);
  execute format('comment on table fencing.%I is %L', partition, 'One week of fencing.history, from this UTC day on.');
  if exists (select from fencing.history_default d where d.at >= first_moment and d.at < end_moment) then
    alter table fencing.history_default disable trigger history_append_only;
    execute format('with moved as (delete from fencing.history_default where at >= $1 and at < $2 returning *) '
                   'insert into fencing.%I select * from moved', partition) using first_moment, end_moment;
    alter table fencing.history_default enable always trigger history_append_only;
  end if;
  execute format('alter table fencing.history attach partition fencing.%I for values from (%L) to (%L)', partition, first_moment, end_moment);
  execute format('alter table fencing.%I enable always trigger history_append_only', partition);
  execute format('create trigger history_no_truncate before truncate on fencing.%I for each statement execute function fencing.refuse_history_change()', partition);
  execute format('alter table fencing.%I enable always trigger history_no_truncate', partition);
  execute format('revoke all on fencing.%I from public', partition);
  return true;
end
$$;
comment on function fencing.make_history_partition(timestamptz) is
  'Makes the partition of that moment''s week (Monday, UTC), moving rows that the default partition had taken in; false if it is there already. '
  'For the role that installed the schema. Locks: history share update exclusive, history_default access exclusive, in this order.';

create or replace function fencing.rotate_history(keep interval) returns table (made integer, dropped integer)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  weeks_ahead constant integer := 8;
  streams_kept constant interval := '168 hours';  -- much longer than a gateway tries to repeat a batch
  weeks timestamptz[];  -- collected first: a query still open on the default partition would forbid altering it
  week timestamptz;
  partition record;
begin
  if keep is null or keep <= interval '0' then
    raise exception using errcode = '22023', message = 'keep must be a positive interval';
  end if;
  made := 0;
  dropped := 0;
  weeks := array(
    select generate_series(now(), now() + weeks_ahead * interval '168 hours', interval '168 hours')
    union all
    select distinct date_trunc('week', d.at, 'UTC') from fencing.history_default d where d.at between '2000-01-01' and '3000-01-01');
  foreach week in array weeks loop
    made := made + fencing.make_history_partition(week)::integer;
  end loop;
  for partition in
    select c.relname, to_date(right(c.relname, 8), 'YYYYMMDD')::timestamp at time zone 'UTC' as first_moment
      from pg_inherits i join pg_class c on c.oid = i.inhrelid
     where i.inhparent = 'fencing.history'::regclass and c.relname ~ '^history_[0-9]{8}$'
     order by c.relname
  loop
    if partition.first_moment + interval '168 hours' <= now() - keep then
      execute format('drop table fencing.%I', partition.relname);
      dropped := dropped + 1;
    end if;
  end loop;
  delete from fencing.event_stream s where s.appended_at < now() - streams_kept;
  return next;
end
$$;
comment on function fencing.rotate_history(interval) is
  'Makes this week''s and the next eight weeks'' partitions, moves what the default partition had taken in, and drops the partitions whose every row is older than keep. '
  'To be run weekly by the role that installed the schema; run again it does nothing. SQLSTATE 22023: keep is not positive. '
  'Locks: history_default access exclusive where partitions are made, history access exclusive where some are dropped; set lock_timeout.';

do $$
begin
  for weeks in 0..8 loop
    perform fencing.make_history_partition(now() + weeks * interval '168 hours');
  end loop;
end
$$;
