-- A change of the storage generation: a gateway begins it, announces its epoch to a majority of the nodes,
-- and finishes it. Until then nothing is let in. Any gateway continues what another began.

create or replace function fencing.storage_generation_state()
  returns table (current boolean, system_identifier bigint, timeline bigint, live_system_identifier bigint,
      live_timeline bigint, floor bigint)
language sql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
  select coalesce(s.system_identifier = c.system_identifier and s.timeline = c.timeline, false), s.system_identifier,
    s.timeline, c.system_identifier, c.timeline,
         coalesce(s.floor, 0)
    from (select p.system_identifier, fencing.live_timeline() as timeline from pg_control_system() p) c
         left join fencing.storage_generation s on true;
$$;
comment on function fencing.storage_generation_state() is
  'For gateways: whether this server is the primary under which the fences were last known '
  'to be whole (system identifier and timeline), and the floor. '
  'On a standby live_timeline is null and current is false. Locks: none.';

create or replace function fencing.begin_generation_change(seen_epoch bigint)
  returns table (change_id uuid, epoch bigint)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  -- More epochs than can have been drawn in what was lost, by admissions that no node shows.
  epochs_lost_max constant bigint := 1024;
  live_system constant bigint := (select c.system_identifier from pg_control_system() c);
  live_timeline constant bigint := fencing.live_timeline();
  stored fencing.storage_generation;
begin
  if seen_epoch < 0 then
    raise exception using errcode = '22023', message = 'seen_epoch is negative';
  end if;
  if exists (select from fencing.storage_generation s where s.system_identifier = live_system
      and s.timeline = live_timeline) then
    return;  -- the common case, in every new connection of a gateway, locks and writes nothing
  end if;
  -- A lost row: unknown.
  insert into fencing.storage_generation (system_identifier, timeline) values (null, null) on conflict do nothing;
  select * into stored from fencing.storage_generation s for update;
  if stored.system_identifier = live_system and stored.timeline = live_timeline then
    return;
  end if;
  if stored.system_identifier <> live_system then  -- the guard compares only the timeline, which can be the same
    update fencing.storage_generation s
       set system_identifier = null, timeline = null, changed_at = clock_timestamp(),
         reason = 'the system identifier differs',
           last_system_identifier = s.system_identifier, last_timeline = s.timeline;
  end if;
  if stored.pending_system_identifier = live_system and stored.pending_timeline = live_timeline
      and stored.pending_epoch >= coalesce(seen_epoch, 0) then
    return query select stored.pending_id, stored.pending_epoch;
    return;
  end if;
  stored.pending_epoch := greatest((select c.epoch from fencing.cluster c for update), stored.floor >> 32,
      seen_epoch) + epochs_lost_max;
  if stored.pending_epoch >= 2097152 then
    raise exception using errcode = 'FG500',
      message = format('epoch %s does not fit: epochs stay below 2^21', stored.pending_epoch),
      detail = jsonb_build_object('seen_epoch', seen_epoch)::text;
  end if;
  update fencing.storage_generation s
     set pending_id = gen_random_uuid(), pending_epoch = stored.pending_epoch, pending_system_identifier = live_system,
       pending_timeline = live_timeline
  returning s.pending_id into stored.pending_id;
  update fencing.cluster c set epoch = stored.pending_epoch;
  -- The lost primary may have given ids to events that are not here. Those given from now on are above all of them,
  -- as the epoch is above all others, and below 2^53.
  perform setval('fencing.history_id_seq', stored.pending_epoch << 32) from fencing.history_id_seq s
    where s.last_value < stored.pending_epoch << 32;
  return query select stored.pending_id, stored.pending_epoch;
end
$$;
comment on function fencing.begin_generation_change(bigint) is
  'For gateways: begins the change to this server''s system identifier and timeline, or returns the one '
  'that is under way for them, if its epoch is not lower than seen_epoch. No row: the generation is current. '
  'seen_epoch: the highest epoch that the caller saw on any node; one more than e after a node''s BEHIND e. '
  'A new epoch is 1,024 higher than it and than every epoch drawn here, '
  'so that it is also higher than those drawn in what was lost. '
  'The ids of the history go on above epoch * 2^32, so that no reader takes a new event for a lost one. '
  'The caller commits before it announces the epoch to the nodes. If the system identifier differs, '
  'everything is refused from the commit on. '
  'SQLSTATE 22023: seen_epoch is negative; FG500: 2^21 reached. Locks until the end of the transaction: '
  'the row of storage_generation, then the cluster row; none if the generation is current.';

create or replace function fencing.finish_generation_change(change_id uuid, gateway text, lost_writes jsonb)
  returns table (finished boolean, floor bigint)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  live_system constant bigint := (select c.system_identifier from pg_control_system() c);
  live_timeline constant bigint := fencing.live_timeline();
  drained boolean;
  stored fencing.storage_generation;
  named jsonb;
begin
  if jsonb_typeof(lost_writes) not in ('array', 'null') then
    raise exception using errcode = '22023', message = 'lost_writes must be a JSON array';
  end if;
  -- Transactions may have been let in before the pair was set to null (not after a promotion,
  -- where the timeline refuses them): waits for their end. Before the row is locked, as in fence_all.
  select s.timeline is null into drained from fencing.storage_generation s;
  if drained then
    lock table fencing.storage_generation in exclusive mode;
  end if;
  select * into stored from fencing.storage_generation s for update;
  if (stored.pending_id = change_id and stored.pending_system_identifier = live_system
      and stored.pending_timeline = live_timeline and (drained or stored.timeline is not null)) is not true then
    return query select false, coalesce(stored.floor, 0);
    return;
  end if;
  update fencing.storage_generation s
     set system_identifier = live_system, timeline = live_timeline, floor = stored.pending_epoch << 32,
       changed_at = clock_timestamp(), reason = null, last_system_identifier = null, last_timeline = null,
         pending_id = null, pending_epoch = null, pending_system_identifier = null, pending_timeline = null;
  update fencing.node n set synced = false where n.synced;  -- the record of a loss may be among what was lost
  select jsonb_agg(w.item order by w.place) into named  -- as many as fit into the detail of an event
    from (select e.item, e.place, sum(pg_column_size(e.item)) over (order by e.place) as bytes
            from jsonb_array_elements(case when jsonb_typeof(lost_writes) = 'array' then lost_writes else '[]' end)
              with ordinality as e (item, place)) w
   where w.place <= 1000 and w.bytes <= 49152;
  insert into fencing.history (event, principal, detail)
  values ('storage_generation_changed', session_user, jsonb_build_object(
    'from', jsonb_strip_nulls(jsonb_build_object('system_identifier', coalesce(stored.system_identifier,
          stored.last_system_identifier)::text, 'timeline', coalesce(stored.timeline, stored.last_timeline))),
    'to', jsonb_build_object('system_identifier', live_system::text, 'timeline', live_timeline),
    'floor', stored.pending_epoch << 32, 'epoch', stored.pending_epoch,
    'reason', coalesce(stored.reason, 'the timeline differs'), 'gateway', fencing.bound_text(gateway, 200),
    'lost_writes', coalesce(named, '[]'),
    'lost_write_count', case when jsonb_typeof(lost_writes) = 'array' then jsonb_array_length(lost_writes) else 0 end));
  return query select true, stored.pending_epoch << 32;
end
$$;
comment on function fencing.finish_generation_change(uuid, text, jsonb) is
  'For gateways, once a majority of the nodes has the epoch: stores this server''s system identifier and timeline, '
  'sets the floor to epoch * 2^32, marks every node as not synced (note_unsynced), '
  'and adds storage_generation_changed to the history, all of it or nothing. '
  'finished = false: the change is not the one under way on this server (another gateway has finished it, '
  'or a newer one was begun); nothing is changed. lost_writes: writes that the gateway had reported '
  'as committed and that are missing (find_lost_writes), of which up to 1,000 are recorded. Read committed only. '
  'SQLSTATE 22023: lost_writes is not an array; 55P03: lock_timeout. '
  'Locks until the end of the transaction: if the generation was unknown, storage_generation exclusive; '
  'its row; the rows of node.';

create or replace function fencing.find_lost_writes(write_ids uuid[]) returns setof uuid
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  select w.write_id from unnest($1) with ordinality as w (write_id, place)
    left join lateral (  -- only the write_id inside, so that its index is used, also before the history was analyzed
      select h.event from fencing.history h where h.write_id = w.write_id offset 0) found
        on found.event = 'write_applied'
   where found.event is null
   order by w.place;
$$;
comment on function fencing.find_lost_writes(uuid[]) is
  'For gateways, after a change of the storage generation was begun: those of the writes that have no write_applied '
  'row in the history, in the order of the list. Looks each up in every partition, about 30 us for ten. Locks: none.';

create or replace function fencing.fence_all(reason text) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  if coalesce(btrim(fence_all.reason), '') = '' then
    raise exception using errcode = '22023', message = 'reason is empty';
  end if;
  lock table fencing.storage_generation in exclusive mode;  -- waits for transactions that were let in
  -- A lost row.
  insert into fencing.storage_generation (system_identifier, timeline) values (null, null) on conflict do nothing;
  update fencing.storage_generation s
     set last_system_identifier = coalesce(s.system_identifier, s.last_system_identifier),
       last_timeline = coalesce(s.timeline, s.last_timeline), system_identifier = null, timeline = null,
         changed_at = clock_timestamp(), reason = fencing.bound_text(fence_all.reason, 2000),
         -- A change begun before would not fence tokens granted since.
         pending_id = null, pending_epoch = null, pending_system_identifier = null, pending_timeline = null;
  perform fencing.record_guard_change('fence_all',
      jsonb_build_object('reason', fencing.bound_text(fence_all.reason, 2000)));
end
$$;
comment on function fencing.fence_all(text) is
  'For the role that installed the schema, after a disk snapshot was put back or a dump was loaded, '
  'and whenever the fences may not be whole: sets the storage generation to unknown. '
  'From the commit on everything is refused with FG503, until a running gateway has changed the generation; '
  'then every token granted before is refused. Adds guard_changed with the reason to the history. '
  'Waits for transactions that were let in; new ones wait behind it: set lock_timeout. '
  'SQLSTATE 22023: no reason; 55P03: lock_timeout. '
  'Locks until the end of the transaction: storage_generation exclusive.';
