-- begin_write: the gateway's form of enter. One call checks the fence, opens the resources and adds the history's row;
-- the change follows in the same transaction.

create or replace function fencing.lock_guards(resources text[]) returns void
language sql
set search_path = pg_catalog, pg_temp
as $$
  insert into fencing.guard as g (resource, last_fencing_token)
  select distinct r collate "C", 0 from unnest(resources) as t (r) order by 1
  -- Locks the row and writes nothing.
  on conflict on constraint guard_pkey do update set resource = excluded.resource where false;
$$;
comment on function fencing.lock_guards(text[]) is
  'Locks the guard rows in the order of their names by bytes, and adds missing ones with the fence 0. '
  'Also waits for a transaction that is adding one. '
  'Locks until the end of the transaction: those rows.';

create or replace function fencing.begin_write_on_many(resources text[], fencing_token bigint, write_id uuid,
    owner text, principal text, trace_id text, detail jsonb, lowest bigint)
returns table (resource text, found_token bigint, last_fencing_token bigint, accepted boolean)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  names constant text[] := array(select distinct r collate "C" from unnest(resources) as t (r) order by 1);
  token constant bigint := begin_write_on_many.fencing_token;
  shown jsonb;
begin
  perform fencing.lock_guards(names);
  if token < lowest
      or exists (select from fencing.guard g where g.resource = any (names)
          and greatest(g.last_fencing_token, g.last_read_token) > token) then
    shown := fencing.bound_detail(fencing.masked_wanted(begin_write_on_many.detail));
    insert into fencing.history (event, resource, fencing_token, last_fencing_token, owner, principal, trace_id,
        write_id, detail)
    select 'write_rejected', g.resource, token, greatest(g.last_fencing_token, g.last_read_token, lowest),
           begin_write_on_many.owner, begin_write_on_many.principal, begin_write_on_many.trace_id,
           begin_write_on_many.write_id,
           case when greatest(g.last_fencing_token, g.last_read_token) < lowest then coalesce(shown, '{}')
             || '{"cause": "storage-generation-changed"}' else shown end
      from fencing.guard g where g.resource = any (names)
       and greatest(g.last_fencing_token, g.last_read_token, lowest) > token
      order by g.resource;
    return query
      select g.resource::text, f.fence, f.fence, false
        from fencing.guard g
             cross join lateral (values (greatest(g.last_fencing_token, g.last_read_token, lowest))) f (fence)
       where g.resource = any (names) order by g.resource;
    return;
  end if;
  return query
    with entered as (
      update fencing.guard g
         set last_fencing_token = token, found_fencing_token = greatest(g.last_fencing_token, g.last_read_token),
             entered_xid = pg_current_xact_id(), entered_at = transaction_timestamp(),
             entered_for = begin_write_on_many.write_id::text, entered_token = token,
             entered_write = begin_write_on_many.write_id,
             entered_by = begin_write_on_many.principal
       where g.resource = any (names)
      returning g.resource::text, g.found_fencing_token, g.last_fencing_token
    ), recorded as (
      insert into fencing.history (event, resource, fencing_token, last_fencing_token, owner, principal, trace_id,
          write_id, detail)
      select 'write_applied', e.resource, token, e.last_fencing_token, begin_write_on_many.owner,
             begin_write_on_many.principal, begin_write_on_many.trace_id, begin_write_on_many.write_id,
             fencing.bound_detail(begin_write_on_many.detail - 'wanted')
        from entered e
    )
    select e.resource, greatest(e.found_fencing_token, lowest), e.last_fencing_token, true from entered e
      order by e.resource;
end
$$;
comment on function fencing.begin_write_on_many(text[], bigint, uuid, text, text, text, jsonb, bigint) is
  'The part of begin_write that needs several statements: several resources, or a refusal; '
  'texts have their bounds already. lowest: the floor. '
  'Locks: the guard rows in the order of their names.';

create or replace function fencing.begin_write(resources text[], fencing_token bigint, write_id uuid, owner text,
    principal text, trace_id text, detail jsonb, seal boolean default false)
returns table (resource text, found_token bigint, last_fencing_token bigint, accepted boolean)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off  -- a plan made while the guard was small is still right when it has grown
set jit = off             -- where only a scan is possible, the plan counts as dear enough to be compiled
as $$
#variable_conflict use_column
declare
  lowest bigint;
  selected_write text;
begin
  -- PostgreSQL prepares each expression anew in each transaction: few of them, and plain statements, cost least.
  if begin_write.write_id is null then
    raise exception using errcode = '22004', message = 'a write has a write_id';
  end if;
  if greatest(octet_length(begin_write.owner), octet_length(begin_write.principal),
      octet_length(begin_write.trace_id)) > 200 then
    owner := fencing.bound_text(begin_write.owner, 200);
    principal := fencing.bound_text(begin_write.principal, 200);
    trace_id := fencing.bound_text(begin_write.trace_id, 200);
  end if;
  lowest := fencing.storage_floor();
  -- Selects among the open resources, opens none.
  selected_write := set_config('fencing.write_id', begin_write.write_id::text, true);
  for attempt in 1..2 loop
    update fencing.guard as g
       set last_fencing_token = begin_write.fencing_token + seal::integer,
           found_fencing_token = greatest(g.last_fencing_token, g.last_read_token),
           entered_xid = pg_current_xact_id(), entered_at = transaction_timestamp(), entered_for = selected_write,
           entered_token = begin_write.fencing_token, entered_write = begin_write.write_id,
           entered_by = begin_write.principal
     where cardinality(resources) = 1 and g.resource = resources[1]
       and begin_write.fencing_token between greatest(g.last_fencing_token, g.last_read_token, lowest, 1)
         and 9007199254740991
    returning g.resource, greatest(g.found_fencing_token, lowest), g.last_fencing_token, true
      into resource, found_token, last_fencing_token, accepted;
    if found then
      if detail ? 'wanted' then
        detail := detail - 'wanted';
      end if;
      if seal then
        insert into fencing.history (event, resource, fencing_token, last_fencing_token, owner, principal, trace_id,
            write_id, detail)
        values ('write_applied', resources[1], begin_write.fencing_token, begin_write.fencing_token, begin_write.owner,
                begin_write.principal, begin_write.trace_id, begin_write.write_id, fencing.bound_detail(detail)),
               ('fence_raised', resources[1], begin_write.fencing_token, begin_write.fencing_token + 1,
                begin_write.owner, begin_write.principal, begin_write.trace_id, begin_write.write_id,
                coalesce(fencing.bound_detail(detail) - '{operations,bare_token}'::text[], '{}')
                  || jsonb_build_object('found_token', begin_write.fencing_token, 'reason', 'seal'));
      else
        insert into fencing.history (event, resource, fencing_token, last_fencing_token, owner, principal, trace_id,
            write_id, detail)
        values ('write_applied', resources[1], begin_write.fencing_token, begin_write.fencing_token, begin_write.owner,
                begin_write.principal, begin_write.trace_id, begin_write.write_id, fencing.bound_detail(detail));
      end if;
      return next;
      return;
    end if;
    exit when attempt = 2;
    perform fencing.validate_fence_arguments(resources, begin_write.fencing_token);
    if cardinality(resources) > 1 then
      if seal then
        raise exception using errcode = '22023',
          message = 'begin_write seals one resource; for several call seal_writes';
      end if;
      exit;
    end if;
    perform fencing.lock_guards(resources);  -- adds the row of a new resource
  end loop;
  return query select *
    from fencing.begin_write_on_many(resources, begin_write.fencing_token, begin_write.write_id, begin_write.owner,
                                     begin_write.principal, begin_write.trace_id, begin_write.detail, lowest);
end
$$;
comment on function fencing.begin_write(text[], bigint, uuid, text, text, text, jsonb, boolean) is
  'For gateways. Locks the guard rows. If the token is lower than any fence (at least the floor), opens no resource, '
  'adds a write_rejected row for each stale resource and returns accepted = false in all rows (the caller commits, '
  'so that the refusal is kept, with detail.wanted as masked_wanted leaves it; '
  'where the floor refused it, the row''s detail has cause = storage-generation-changed). '
  'Else raises the fences, opens the resources for this write, and adds a write_applied row for each. '
  'One row for each resource, in the order of the names: found_token is the fence before, '
  'last_fencing_token the fence now. seal (default false), for one resource: as seal_writes for the write that '
  'follows, of which the token is the last use, at a fraction of its cost. '
  'From now on the transaction''s changes are checked against the resources of this write alone, '
  'no longer against those of an earlier write of the batch. '
  'To undo the write, the caller rolls back to a savepoint taken before this call. '
  'SQLSTATE FG503: the storage generation changed; 22023: not a resource or not a token; '
  '22004: no write_id; 55P03: lock_timeout. '
  'Locks until the end of the transaction: as storage_floor, then the guard rows in the order of their names by bytes.';

create or replace function fencing.begin_writes(
  resources text[], fencing_tokens bigint[], write_ids uuid[], owners text[], principals text[], trace_ids text[],
  details jsonb[], turns uuid[] default null)
returns table (resource text, found_token bigint, last_fencing_token bigint, accepted boolean)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  count constant integer := cardinality(resources);
  entered_for constant uuid[] := coalesce(begin_writes.turns, begin_writes.write_ids);
  lowest bigint;
begin
  if (cardinality(fencing_tokens) = count and cardinality(write_ids) = count and cardinality(owners) = count
      and cardinality(principals) = count and cardinality(trace_ids) = count and cardinality(details) = count
      and cardinality(entered_for) = count) is not true
     or exists (select
         from unnest(resources, fencing_tokens, write_ids, entered_for) as t (r, token, write_id, entered_for)
        where (t.token between 1 and 9007199254740991 and fencing.is_resource(t.r) and t.write_id is not null
              and t.entered_for is not null) is not true) then
    raise exception using errcode = '22023',
      message = 'begin_writes takes lists of one length, with a resource, a token and a write_id each';
  end if;
  lowest := fencing.storage_floor();
  -- None of the resources is open before the caller selects a write_id.
  perform set_config('fencing.write_id', '', true);
  return query
    with given as (
      select t.* from unnest(resources, fencing_tokens, write_ids, owners, principals, trace_ids, details, entered_for)
        with ordinality
        as t (resource, token, write_id, owner, principal, trace_id, detail, entered_for, place)
    ), entered as (
      insert into fencing.guard as g (resource, last_fencing_token, entered_xid, entered_at, entered_for,
          entered_token, entered_write, entered_by)
      select distinct on (n.resource collate "C")
             n.resource, n.token, pg_current_xact_id(), transaction_timestamp(), n.entered_for::text, n.token,
             n.write_id, fencing.bound_text(n.principal, 200)
        from given n
        where n.token >= lowest order by n.resource collate "C", n.place
      on conflict on constraint guard_pkey do update
        set last_fencing_token = excluded.last_fencing_token,
            found_fencing_token = greatest(g.last_fencing_token, g.last_read_token),
            entered_xid = excluded.entered_xid, entered_at = excluded.entered_at, entered_for = excluded.entered_for,
            entered_token = excluded.entered_token, entered_write = excluded.entered_write,
            entered_by = excluded.entered_by
        where greatest(g.last_fencing_token, g.last_read_token) <= excluded.last_fencing_token
      returning g.resource::text, g.found_fencing_token, g.last_fencing_token
    ), recorded as (
      insert into fencing.history (event, resource, fencing_token, last_fencing_token, owner, principal, trace_id,
          write_id, detail)
      select 'write_applied', e.resource, n.token, e.last_fencing_token, fencing.bound_text(n.owner, 200),
        fencing.bound_text(n.principal, 200), fencing.bound_text(n.trace_id, 200), n.write_id,
             fencing.bound_detail(n.detail)
        from given n join entered e on e.resource = n.resource collate "C" and e.last_fencing_token = n.token
        order by n.place
    )
    select n.resource, greatest(e.found_fencing_token, case when e.resource is not null then lowest end),
      e.last_fencing_token, e.resource is not null
      from given n left join entered e on e.resource = n.resource collate "C" and e.last_fencing_token = n.token
      order by n.place;
end
$$;
comment on function fencing.begin_writes(text[], bigint[], uuid[], text[], text[], text[], jsonb[], uuid[]) is
  'begin_write for many writes at once, each on one resource: the n-th items of the lists are one write. '
  'Writes on the same resource have the same token, or only the first is accepted. '
  'Raises the fences, opens the resources and adds a write_applied row for each. A resource can be changed only '
  'after set_config(''fencing.write_id'', <write_id>, true) has selected the write_id for which it is open: '
  'that of its own write (turns not given), or that of one write for several; the guard then does not separate those, '
  'and the caller has to make sure that each changes only its own resource. One row for each write, '
  'in the order of the lists. A stale write (its token is lower than the fence or the floor) has accepted = false '
  'and no row in the history: the caller rolls back, leaves it out, and passes it to begin_write, which records it. '
  'SQLSTATE FG503: the storage generation changed; 22023: not a resource, not a token, no write_id, '
  'or lists of different lengths; 55P03: lock_timeout. '
  'Locks until the end of the transaction: as storage_floor, then the guard rows in the order of their names by bytes.';
