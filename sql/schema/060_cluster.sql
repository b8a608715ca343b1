-- The settings that all gateways share, and the epochs with which Redis nodes are admitted.

create table if not exists fencing.cluster (
  singleton  boolean primary key default true check (singleton),
  epoch      bigint not null default 0 check (epoch >= 0 and epoch < 2097152),
  node_names text[] not null check (cardinality(node_names) > 0),
  quorum     integer not null check (quorum > 0),
  max_ttl_ms bigint not null check (max_ttl_ms > 0),
  buckets    integer not null default 65536 check (buckets > 0),
  answer_bound_ms bigint not null check (answer_bound_ms > 0),
  cell       integer not null check (cell between 0 and 65535)
);
comment on table fencing.cluster is
  'One row, written by the first gateway that joins: the settings that every gateway''s configuration must equal.';
comment on column fencing.cluster.singleton is 'Keeps the table at one row.';
comment on column fencing.cluster.epoch is
  'The highest epoch drawn; below 2^21, because a token holds epoch * 2^32 and stays below 2^53.';
comment on column fencing.cluster.node_names is 'The names of the Redis nodes, sorted.';
comment on column fencing.cluster.quorum is 'How many of them make a majority.';
comment on column fencing.cluster.max_ttl_ms is
  'The longest ttl of a lease in milliseconds, which is also the longest quarantine of a restarted node.';
comment on column fencing.cluster.answer_bound_ms is
  'An answer of a node that a gateway reads later than this counts for nothing (milliseconds).';
comment on column fencing.cluster.buckets is 'How many token counters a node keeps; resources are hashed onto them.';
comment on column fencing.cluster.cell is
  'The cell of the cluster: lease ids of another one are refused. 0 in an installation of one cluster.';

create table if not exists fencing.node (
  name           text primary key,
  first_drawn_at timestamptz not null default clock_timestamp(),
  last_drawn_at  timestamptz not null default clock_timestamp(),
  epoch          bigint not null,
  life           text not null,
  synced         boolean not null default false
);
comment on table fencing.node is 'The Redis nodes for which an epoch was drawn.';
comment on column fencing.node.name is 'The node''s name in the configuration.';
comment on column fencing.node.first_drawn_at is 'When it was first admitted.';
comment on column fencing.node.last_drawn_at is 'When an epoch was last drawn for it.';
comment on column fencing.node.epoch is 'The epoch last drawn for it.';
comment on column fencing.node.life is 'The life (process and data) of the node for which it was drawn.';
comment on column fencing.node.synced is
  'Whether the node was always seen syncing every write in that life: if its data are still there '
  'after a restart, it has lost nothing.';

create or replace function fencing.join_cluster(node_names text[], quorum integer, max_ttl_ms bigint, buckets integer,
    answer_bound_ms bigint, cell integer) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  names text[];
  fixed fencing.cluster;
  line  record;
begin
  select array_agg(distinct n collate "C" order by n collate "C") into names
    from unnest(join_cluster.node_names) as t (n);
  insert into fencing.cluster (node_names, quorum, max_ttl_ms, buckets, answer_bound_ms, cell)
  values (names, join_cluster.quorum, join_cluster.max_ttl_ms, join_cluster.buckets, join_cluster.answer_bound_ms,
      join_cluster.cell)
  on conflict do nothing;
  select * into fixed from fencing.cluster;
  for line in
    select * from (values
      ('cell', fixed.cell::text, join_cluster.cell::text),
      ('node_names', array_to_string(fixed.node_names, ', '), array_to_string(names, ', ')),
      ('quorum', fixed.quorum::text, join_cluster.quorum::text),
      ('max_ttl_ms', fixed.max_ttl_ms::text, join_cluster.max_ttl_ms::text),
      ('buckets', fixed.buckets::text, join_cluster.buckets::text),
      ('answer_bound_ms', fixed.answer_bound_ms::text, join_cluster.answer_bound_ms::text)) as t (name, theirs, ours)
  loop
    if line.theirs is distinct from line.ours then
      raise exception using errcode = 'FG500',
        message = format('%s differs: the cluster has %s, this gateway %s', line.name, line.theirs,
            coalesce(line.ours, 'null')),
        detail = jsonb_build_object('line', line.name, 'cluster', line.theirs, 'gateway', line.ours)::text,
        hint = 'Every gateway of one database must be configured alike; fencing.cluster says how.';
    end if;
  end loop;
end
$$;
comment on function fencing.join_cluster(text[], integer, bigint, integer, bigint, integer) is
  'The first call stores the configuration, every later one is compared with it; '
  'the order of the names does not matter. '
  'SQLSTATE FG500: the setting named in the message differs (DETAIL: line, cluster, gateway); '
  '23502, 23514: a value is missing or not positive. '
  'Locks: the cluster row, by the first call only.';

create or replace function fencing.next_epoch(seen_epoch bigint) returns bigint
language plpgsql security invoker
set search_path = pg_catalog, pg_temp
as $$
declare
  drawn bigint;
  lowest bigint;
begin
  if seen_epoch < 0 then
    raise exception using errcode = '22023', message = 'seen_epoch is negative';
  end if;
  lowest := fencing.storage_floor();
  select greatest(c.epoch, coalesce(seen_epoch, 0), lowest >> 32) + 1 into drawn from fencing.cluster c for update;
  if drawn is null then
    raise exception using errcode = 'FG500',
      message = 'no gateway has joined the cluster yet: fencing.join_cluster comes before fencing.draw_epoch';
  end if;
  if drawn >= 2097152 then
    raise exception using errcode = 'FG500', message = format('epoch %s does not fit: epochs stay below 2^21', drawn),
      detail = jsonb_build_object('seen_epoch', seen_epoch)::text;
  end if;
  update fencing.cluster set epoch = drawn;
  return drawn;
end
$$;
comment on function fencing.next_epoch(bigint) is
  'Draws the next epoch: one more than the highest epoch drawn before, than that of the floor and than seen_epoch. '
  'For draw_epoch alone. SQLSTATEs as draw_epoch. '
  'Locks until the end of the transaction: as storage_floor, then the cluster row.';

create or replace function fencing.draw_epoch(node_name text, node_life text, syncs boolean, seen_epoch bigint)
  returns table (epoch bigint, repeated boolean)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  drawn bigint;
begin
  if node_life is null or node_life = '' then
    return query select fencing.next_epoch(seen_epoch), false;
    return;
  end if;
  if (octet_length(node_name) between 1 and 200 and octet_length(node_life) <= 200) is not true or syncs is null
      or seen_epoch < 0 then
    raise exception using errcode = '22023', message = 'an epoch is drawn for a node by name, of 1 to 200 bytes, '
      'in a life of at most 200, which syncs or does not, and no epoch seen is negative';
  end if;
  perform fencing.storage_floor();  -- no node is admitted by a register that may have gone back
  perform from fencing.cluster for update;  -- always locked before the node's row
  update fencing.node n set synced = n.synced and syncs
  where n.name = node_name and n.life = node_life returning n.epoch into drawn;
  if found then
    return query select drawn, true;
    return;
  end if;
  drawn := fencing.next_epoch(seen_epoch);
  insert into fencing.node (name, epoch, life, synced) values (node_name, drawn, node_life, syncs)
  on conflict on constraint node_pkey do update
    set epoch = excluded.epoch, life = excluded.life, synced = excluded.synced, last_drawn_at = clock_timestamp();
  return query select drawn, false;
end
$$;
comment on function fencing.draw_epoch(text, text, boolean, bigint) is
  'The epoch of one life of a node. The first call draws it: one more than the highest epoch drawn before and '
  'than seen_epoch. Later calls for the life that drew last return the same epoch (repeated). '
  'Records whether the node syncs every write in that life; once false it stays false. '
  'Without a life: draws the next epoch, for no node. The caller commits before it uses the epoch. '
  'SQLSTATE FG503: the storage generation changed; FG500: no cluster joined, or 2^21 reached; 22023: bad argument. '
  'Locks until the end of the transaction: as storage_floor, then the cluster row, then the node''s row.';

create or replace function fencing.note_unsynced(node_name text) returns void
language sql security definer
set search_path = pg_catalog, pg_temp
as $$
  update fencing.node n set synced = false where n.name = note_unsynced.node_name and n.synced;
$$;
comment on function fencing.note_unsynced(text) is
  'Records that the node was seen not syncing every write in the life for which an epoch was drawn last, '
  'or that it may have loaded older data since. No effect on a node for which none was drawn. '
  'Locks until the end of the transaction: the node''s row.';

create unlogged table if not exists fencing.waiting (
  instance  uuid primary key,
  gateway   text not null check (octet_length(gateway) <= 300),
  at        timestamptz not null default clock_timestamp(),
  waiters   bigint not null check (waiters > 0),
  resources jsonb not null check (jsonb_typeof(resources) = 'object' and octet_length(resources::text) <= 524288)
);
comment on table fencing.waiting is
  'Of each gateway how many callers wait for a lease there; no row, or one that is older than 10 s: none. '
  'Unlogged, because rows count for seconds. Granted to no one.';
comment on column fencing.waiting.instance is 'An id that a gateway makes each time it starts.';
comment on column fencing.waiting.gateway is 'Its HOST:PORT.';
comment on column fencing.waiting.at is 'When it wrote the row, by the server''s clock.';
comment on column fencing.waiting.waiters is 'Each caller is counted once.';
comment on column fencing.waiting.resources is
  'The number of waiting callers by resource, of at most 1,000 resources; who waits for several counts for each.';

create or replace function fencing.note_waiting(instance uuid, gateway text, waiters bigint, resources jsonb)
  returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  gateways_max constant integer := 1000;
begin
  delete from fencing.waiting w
   where w.ctid = any (array(select o.ctid from fencing.waiting o
     where o.at < clock_timestamp() - interval '1 minute' or (o.instance = note_waiting.instance
         and note_waiting.waiters = 0) for update skip locked));
  if note_waiting.waiters > 0 and (select count(*) from fencing.waiting) < gateways_max then
    insert into fencing.waiting (instance, gateway, waiters, resources)
    values (note_waiting.instance, note_waiting.gateway, note_waiting.waiters, note_waiting.resources)
    on conflict on constraint waiting_pkey do update
      set at = excluded.at, gateway = excluded.gateway, waiters = excluded.waiters, resources = excluded.resources;
  end if;
end
$$;
comment on function fencing.note_waiting(uuid, text, bigint, jsonb) is
  'For gateways: stores how many callers wait there (waiting); with 0 waiters nothing. Of more than 1,000 gateways '
  'some are left out. SQLSTATE 23502, 23514: a value is missing, negative or too large. '
  'Locks until the end of the transaction: the gateway''s row and those that it deletes.';

create or replace function fencing.waiting_elsewhere(instance uuid, prefix text) returns jsonb
language sql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
  with found as (
    select w.* from fencing.waiting w
     where w.instance <> $1 and w.at > clock_timestamp() - interval '10 seconds'
  ), counts as (
    select f.instance, r.key as resource, r.value::bigint as waiters
      from found f cross join jsonb_each_text(f.resources) r
     where starts_with(r.key, $2) and r.value ~ '^[0-9]{1,9}$'
  ), sums as (
    select f.gateway, f.instance, case when $2 = '' then f.waiters
        else (select sum(c.waiters) from counts c where c.instance = f.instance) end as waiters
      from found f
  )
  select jsonb_build_object(
      'gateways', coalesce((select jsonb_agg(jsonb_build_object('gateway', s.gateway, 'waiters', s.waiters)
            order by s.gateway, s.instance) from sums s where s.waiters > 0), '[]'),
      'resources', coalesce((select jsonb_object_agg(s.resource, s.waiters)
          from (select c.resource, sum(c.waiters) as waiters from counts c group by c.resource
                 order by 2 desc, 1 limit 1000) s), '{}'));
$$;
comment on function fencing.waiting_elsewhere(uuid, text) is
  'For gateways: the callers that wait at other gateways than this instance, for resources with this prefix: gateways '
  '(gateway, waiters; with a prefix a caller counts for each of its resources), and resources (the number for each, of '
  'the 1,000 most awaited). SQLSTATE 55000: on a standby. Locks: none.';
