-- Raising a fence without writing (fenced reads, fence_on_grant, seals), repairing a fence,
-- and finding out whether a write was committed.

create or replace function fencing.raise_fences(resources text[], fencing_token bigint, owner text, principal text,
    trace_id text, reason text, seal boolean default false, origin jsonb default '{}')
returns table (resource text, found_token bigint, last_fencing_token bigint)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  to_token constant bigint := raise_fences.fencing_token + seal::integer;
  lowest bigint;
begin
  perform fencing.validate_fence_arguments(resources, raise_fences.fencing_token);
  lowest := fencing.storage_floor();
  perform fencing.lock_guards(resources);
  return query
    with found as (
      select g.resource::text, greatest(g.last_fencing_token, g.last_read_token) as fence
        from fencing.guard g where g.resource = any (resources)
    ), raised as (
      update fencing.guard g set last_fencing_token = to_token
       where g.resource = any (resources) and greatest(g.last_fencing_token, g.last_read_token, lowest) < to_token
      returning g.resource
    ), recorded as (
      insert
        into fencing.history (event, resource, fencing_token, last_fencing_token, owner, principal, trace_id, detail)
      select 'fence_raised', f.resource, raise_fences.fencing_token, to_token,
        fencing.bound_text(raise_fences.owner, 200),
        fencing.bound_text(raise_fences.principal, 200),
             fencing.bound_text(raise_fences.trace_id, 200),
               coalesce(fencing.bound_detail(origin), '{}') || jsonb_build_object('found_token', f.fence,
                   'reason', fencing.bound_text(reason, 2000))
        from found f join raised using (resource)
    )
    select f.resource, greatest(f.fence, lowest), greatest(f.fence, to_token, lowest)
      from found f order by f.resource;
end
$$;
comment on function fencing.raise_fences(text[], bigint, text, text, text, text, boolean, jsonb) is
  'For gateways. Raises each fence to the token, or to token + 1 to seal it, and adds fence_raised with the token, '
  'and origin among its detail, for each that it raised; '
  'never lowers a fence and opens no resource. '
  'One row for each resource, in the order of the names: the fence before and now, at least the floor. SQLSTATE FG503: '
  'the storage generation changed; 22023: not a resource, or not a token; 55P03: lock_timeout. '
  'Locks until the end of the transaction: as storage_floor, then the guard rows in the order of their names by bytes.';

create or replace function fencing.raise_read_fences(resources text[], fencing_token bigint, owner text, principal text,
    trace_id text, reason text, origin jsonb default '{}', write_id uuid default null)
returns table (resource text, found_token bigint, last_fencing_token bigint, raised boolean)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  lowest bigint;
begin
  perform fencing.validate_fence_arguments(resources, raise_read_fences.fencing_token);
  lowest := fencing.storage_floor();
  for resource in select distinct r collate "C" from unnest(resources) as t (r) order by 1 loop
    select l.* into found_token, last_fencing_token, raised
      from fencing.lock_for_reading(raise_read_fences.resource, raise_read_fences.fencing_token, lowest) l;
    if raised then
      insert
        into fencing.history (event, resource, fencing_token, last_fencing_token, owner, principal, trace_id, write_id,
          detail)
      values ('fence_raised', raise_read_fences.resource, raise_read_fences.fencing_token,
        raise_read_fences.fencing_token, fencing.bound_text(raise_read_fences.owner, 200),
        fencing.bound_text(raise_read_fences.principal, 200), fencing.bound_text(raise_read_fences.trace_id, 200),
        raise_read_fences.write_id, coalesce(fencing.bound_detail(origin), '{}') || jsonb_build_object(
          'mode', 'shared', 'reason', fencing.bound_text(reason, 2000), 'found_token', found_token,
          'last_read_token', raise_read_fences.fencing_token));
    end if;
    return next;
  end loop;
end
$$;
comment on function fencing.raise_read_fences(text[], bigint, text, text, text, text, jsonb, uuid) is
  'For gateways: enter_shared for resources that a lease shares, without a refusal. '
  'One row for each, in the order of the names: the fence before, and what the token has to reach, the last writer''s '
  'token or the floor: if that is higher, the caller has to refuse, and rolls back. Adds fence_raised with the token, '
  'write_id, and origin among its detail, for each read fence that rose. '
  'SQLSTATE FG503: the storage generation changed; 22023: not a resource, or not a token; 55P03: lock_timeout; '
  '40001: as lock_for_reading. Locks until the end of the transaction: as storage_floor, '
  'then the guard rows in the order of their names by bytes, as lock_for_reading.';

create or replace function fencing.repair_fence(resource text, to_token bigint, principal text,
    trace_id text, reason text, origin jsonb default '{}')
returns table (found_token bigint, last_fencing_token bigint)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  found_fence bigint;
  found_read bigint;
  lowest constant bigint := (select s.floor from fencing.storage_generation s);
begin
  if to_token is null or to_token not between 0 and 9007199254740992 or coalesce(btrim(reason), '') = '' then
    raise exception using errcode = '22023',
      message = 'a fence is repaired for a reason, and to an integer from 0 to 2^53';
  end if;
  perform fencing.validate_fence_arguments(array[repair_fence.resource], 1);
  perform fencing.lock_guards(array[repair_fence.resource]);
  select greatest(g.last_fencing_token, g.last_read_token), g.last_read_token into found_fence, found_read
    from fencing.guard g where g.resource = repair_fence.resource;
  update fencing.guard g set last_fencing_token = to_token, last_read_token = least(found_read, to_token)
    where g.resource = repair_fence.resource;
  insert into fencing.history (event, resource, fencing_token, last_fencing_token, principal, trace_id, detail)
  values ('fence_raised', repair_fence.resource, to_token, to_token, fencing.bound_text(repair_fence.principal, 200),
      fencing.bound_text(repair_fence.trace_id, 200),
          coalesce(fencing.bound_detail(origin), '{}') || jsonb_build_object('repair', true,
              'found_token', found_fence, 'reason', fencing.bound_text(reason, 2000))
            || case when found_read > 0 then jsonb_build_object('last_read_token', least(found_read, to_token))
                    else '{}' end);
  return query select greatest(found_fence, lowest), greatest(to_token, lowest);
end
$$;
comment on function fencing.repair_fence(text, bigint, text, text, text, jsonb) is
  'For gateways, on behalf of an operator: sets the fence to any value, and the read fence to at most that; '
  'nothing else can lower a fence. '
  'Adds fence_raised with detail.repair = true, the fence before, the reason and origin. '
  'A lower fence lets older holders write again, down to the floor, which no repair lowers. '
  'Returns the fence before and now. SQLSTATE 22023: no reason, not a resource, not a token. '
  'Locks until the end of the transaction: the guard row.';

create or replace function fencing.write_landed(write_id uuid, resource text) returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  perform fencing.validate_fence_arguments(array[write_landed.resource], 1);
  perform fencing.lock_guards(array[write_landed.resource]);
  return exists (select from fencing.history h
                  where h.write_id = write_landed.write_id and h.resource = write_landed.resource
                    and h.event = 'write_applied');
end
$$;
comment on function fencing.write_landed(uuid, text) is
  'For gateways whose connection broke during COMMIT: waits until the transaction '
  'that has locked the resource''s guard row ends, then returns whether the write is in the history. '
  'False is final only if begin_write had answered on the broken connection: a statement '
  'that the server has not read yet holds no lock. '
  'Read committed only. SQLSTATE 55P03: lock_timeout; the outcome is unknown. '
  'Locks until the end of the transaction: the guard row.';
