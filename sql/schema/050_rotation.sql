-- Partitions of the history and of row_change: one for each week, created ahead; old ones are dropped whole.

create or replace function fencing.make_week(parent name, day timestamptz) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
set datestyle = 'ISO, MDY'  -- the bounds are written as text
set timezone = 'UTC'
as $$
declare
  lower_bound constant timestamptz := date_trunc('week', day, 'UTC');
  upper_bound constant timestamptz := date_trunc('week', day + interval '168 hours', 'UTC');
  partition   constant text := format('%s_%s', parent, to_char(lower_bound at time zone 'UTC', 'YYYYMMDD'));
  rest        constant text := parent || '_default';
  has_rows boolean;
  moved bigint;
begin
  if to_regclass('fencing.' || partition) is not null then
    return false;
  end if;
  execute format('create table fencing.%I (like fencing.%I including defaults including constraints)', partition,
      parent);
  perform fencing.give_to_owner('table', format('fencing.%I', partition));
  execute format('comment on table fencing.%I is %L', partition,
      format('One week of fencing.%s, from this UTC day on.', parent));
  execute format('select exists (select from fencing.%I d where d.at >= $1 and d.at < $2)', rest)
    into has_rows using lower_bound, upper_bound;
  if has_rows then
    execute format('alter table fencing.%I disable trigger history_append_only', rest);
    execute format('with moved as (delete from fencing.%I where at >= $1 and at < $2 returning *) '
                   'insert into fencing.%I select * from moved', rest, partition) using lower_bound, upper_bound;
    get diagnostics moved = row_count;
    execute format('alter table fencing.%I enable always trigger history_append_only', rest);
  end if;
  execute format('alter table fencing.%I attach partition fencing.%I for values from (%L) to (%L)', parent, partition,
      lower_bound, upper_bound);
  execute format('alter table fencing.%I enable always trigger history_append_only', partition);
  execute format('create trigger history_no_truncate before truncate on fencing.%I for each statement '
      'execute function fencing.refuse_history_change()', partition);
  execute format('alter table fencing.%I enable always trigger history_no_truncate', partition);
  perform fencing.revoke_from_others('table', c.oid::regclass::text, c.relacl, c.relowner)
     from pg_class c where c.relnamespace = 'fencing'::regnamespace and c.relname = partition;
  if moved > 0 then  -- only now: the row may belong to this partition
    perform fencing.record_guard_change('history_moved', jsonb_build_object('relation', 'fencing.' || partition,
        'rows', moved));
  end if;
  return true;
end
$$;
comment on function fencing.make_week(name, timestamptz) is
  'Creates the partition of that moment''s week (Monday, UTC) and moves rows there from the default partition; '
  'false if it exists already. parent: history or row_change. '
  'Locks: the parent share update exclusive, its default partition access exclusive, '
  'in this order; where rows move, before these the default partition share row exclusive.';

create or replace function fencing.make_history_partition(day timestamptz) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  made constant boolean := fencing.make_week('history', day);
begin
  return fencing.make_week('row_change', day) or made;
end
$$;
comment on function fencing.make_history_partition(timestamptz) is
  'Creates the partitions of that moment''s week (Monday, UTC) of history and row_change, and moves rows there '
  'from the default partitions; false if both exist already. '
  'For the role that installed the schema. Locks: as make_week, the history first.';

create or replace function fencing.make_history_partitions() returns integer
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  weeks_ahead constant integer := 8;
  default_weeks_max constant integer := 20;  -- each takes some milliseconds, in which the history is locked
  weeks timestamptz[];  -- collected first: a query still open on the default partition would forbid altering it
  week timestamptz;
  made integer := 0;
begin
  weeks := array(
    select generate_series(now(), now() + weeks_ahead * interval '168 hours', interval '168 hours')
    union all
    (select distinct date_trunc('week', d.at, 'UTC') as week
       from (select h.at from fencing.history_default h union all select c.at from fencing.row_change_default c) d
        where d.at between '2000-01-01' and '3000-01-01' order by week desc limit default_weeks_max));
  foreach week in array weeks loop
    made := made + fencing.make_history_partition(week)::integer;
  end loop;
  return made;
end
$$;
comment on function fencing.make_history_partitions() is
  'Creates the partitions of this week and the next eight, and those for rows in the default partitions, '
  'of at most 20 weeks in one call. For the role that installed the schema. '
  'Locks: as make_history_partition, where it creates any.';

create or replace function fencing.old_history_partitions(keep interval) returns setof text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select distinct right(c.relname, 8) from pg_inherits i join pg_class c on c.oid = i.inhrelid
   where i.inhparent in ('fencing.history'::regclass, 'fencing.row_change'::regclass)
     and not exists (select from fencing.settings s where s.key = 'legal_hold')
     and c.relname ~ '^(history|row_change)_[0-9]{8}$'
     and to_date(right(c.relname, 8), 'YYYYMMDD')::timestamp at time zone 'UTC' + interval '168 hours' <= now() - keep
   order by 1;
$$;
comment on function fencing.old_history_partitions(interval) is
  'The weeks (YYYYMMDD) whose partitions have only rows older than keep, oldest first; none under a legal hold. '
  'Locks: none.';

create or replace function fencing.drop_week(week text) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  lock table only fencing.history, only fencing.row_change in access exclusive mode;
  perform fencing.refuse_under_hold();
  perform fencing.record_guard_change('history_rotated', jsonb_build_object('week', week));
  execute format('drop table if exists fencing.history_%s, fencing.row_change_%s', week, week);
end
$$;
comment on function fencing.drop_week(text) is
  'Drops the partitions of a week of history and row_change, which the history records. SQLSTATE 55000: a legal hold. '
  'Locks: those and both parents, access exclusive.';

create or replace function fencing.forget_event_streams() returns void
language sql
set search_path = pg_catalog, pg_temp
as $$
  -- Much longer than a gateway tries to repeat a batch.
  delete from fencing.event_stream s where s.appended_at < now() - interval '168 hours';
$$;
comment on function fencing.forget_event_streams() is
  'Deletes streams of events a week after their last batch. Locks: the rows that it deletes.';

create or replace function fencing.rotate_history(keep interval) returns table (made integer, dropped integer)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  week text;
begin
  if keep is null or keep <= interval '0' then
    raise exception using errcode = '22023', message = 'keep must be a positive interval';
  end if;
  -- Before any partition, as every reader does: no deadlock.
  lock table only fencing.history, only fencing.row_change in access exclusive mode;
  made := fencing.make_history_partitions();
  dropped := 0;
  foreach week in array array(select fencing.old_history_partitions(keep)) loop
    perform fencing.drop_week(week);
    dropped := dropped + 1;
  end loop;
  perform fencing.forget_event_streams();
  return next;
end
$$;
comment on function fencing.rotate_history(interval) is
  'Creates the partitions of this week and the next eight, moves rows there from the default partition, '
  'and drops the partitions that have only rows older than keep, of history and row_change alike. '
  'made and dropped: weeks. '
  'For the role that installed the schema, where no gateway does it (keep_history); a repetition does nothing. '
  'SQLSTATE 22023: keep is not positive. '
  'Locks: history and row_change access exclusive until the end of the transaction, so that writes wait meanwhile; '
  'set lock_timeout.';

create or replace function fencing.keep_history(keep_days integer)
  returns table (made integer, dropped integer, remaining integer)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '100ms'
as $$
declare
  old text[] := '{}';
  owner_days constant integer := (select s.value::integer from fencing.settings s
      where s.key = 'history_keep_days_min');
begin
  if keep_days is null or keep_days < 0 or keep_days between 1 and 6 then
    raise exception using errcode = '22023', message = 'keep_days must be 0 (for ever) or at least 7';
  end if;
  made := 0;
  dropped := 0;
  remaining := 0;
  -- One call at a time; apart from this function only the owner can lock this row.
  perform from fencing.schema_version v where v.version = 1 for update skip locked;
  if found then
    made := fencing.make_history_partitions();
    if keep_days > 0 then
      old := array(select fencing.old_history_partitions(make_interval(days => greatest(keep_days, owner_days))));
    end if;
    perform fencing.forget_event_streams();
    remaining := cardinality(old);
    -- Partitions created in this transaction are locked: to lock the history after them could deadlock with a reader.
    if remaining > 0 and made = 0 then
      begin
        -- Before the partition, as every reader does: no deadlock.
        lock table only fencing.history, only fencing.row_change in access exclusive mode;
        perform fencing.drop_week(old[1]);
        dropped := 1;
        remaining := remaining - 1;
      exception when lock_not_available or object_not_in_prerequisite_state then
        null;  -- a reader holds a lock, or there is a legal hold since; the partitions created above stay
      end;
    end if;
  end if;
  return next;
end
$$;
comment on function fencing.keep_history(integer) is
  'For gateways: creates partitions ahead as rotate_history does, and drops the oldest week '
  'that has only rows older than keep_days (0: drops none), one in each call and none in a call that created any. '
  'remaining: how many are left to drop, also where a lock for the drop was not free within 100 ms; '
  'that is the longest that writes are delayed. A legal hold that arrives during the call keeps the week. '
  'Where another call is under way it does nothing. '
  'The owner''s minimum (settings, history_keep_days_min) is kept, whatever keep_days is. '
  'keep_days is at least 7, so that a gateway''s role can''t be used to delete traces of what it has just done. '
  'SQLSTATE 22023: keep_days; 55P03: partitions had to be created and a lock was not free within 100 ms; '
  'nothing was done, call again later. '
  'Locks: as make_history_partition where partitions are created, history and row_change access exclusive where one '
  'is dropped, '
  'each waited for 100 ms at most, and a row of schema_version.';

do $$
begin
  for weeks in 0..8 loop
    perform fencing.make_history_partition(now() + weeks * interval '168 hours');
  end loop;
end
$$;
