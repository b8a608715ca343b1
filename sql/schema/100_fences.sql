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
      select g.resource::text, g.last_fencing_token from fencing.guard g where g.resource = any (resources)
    ), raised as (
      update fencing.guard g set last_fencing_token = to_token
       where g.resource = any (resources) and greatest(g.last_fencing_token, lowest) < to_token
      returning g.resource
    ), recorded as (
      insert
        into fencing.history (event, resource, fencing_token, last_fencing_token, owner, principal, trace_id, detail)
      select 'fence_raised', f.resource, raise_fences.fencing_token, to_token,
        fencing.bound_text(raise_fences.owner, 200),
        fencing.bound_text(raise_fences.principal, 200),
             fencing.bound_text(raise_fences.trace_id, 200),
               coalesce(fencing.bound_detail(origin), '{}') || jsonb_build_object('found_token', f.last_fencing_token,
                   'reason', fencing.bound_text(reason, 2000))
        from found f join raised using (resource)
    )
    select f.resource, greatest(f.last_fencing_token, lowest), greatest(f.last_fencing_token, to_token, lowest)
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

create or replace function fencing.repair_fence(resource text, to_token bigint, principal text,
    trace_id text, reason text, origin jsonb default '{}')
returns table (found_token bigint, last_fencing_token bigint)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  found_fence bigint;
  lowest constant bigint := (select s.floor from fencing.storage_generation s);
begin
  if to_token is null or to_token not between 0 and 9007199254740992 or coalesce(btrim(reason), '') = '' then
    raise exception using errcode = '22023',
      message = 'a fence is repaired for a reason, and to an integer from 0 to 2^53';
  end if;
  perform fencing.validate_fence_arguments(array[repair_fence.resource], 1);
  perform fencing.lock_guards(array[repair_fence.resource]);
  select g.last_fencing_token into found_fence from fencing.guard g where g.resource = repair_fence.resource;
  update fencing.guard g set last_fencing_token = to_token where g.resource = repair_fence.resource;
  insert into fencing.history (event, resource, fencing_token, last_fencing_token, principal, trace_id, detail)
  values ('fence_raised', repair_fence.resource, to_token, to_token, fencing.bound_text(repair_fence.principal, 200),
      fencing.bound_text(repair_fence.trace_id, 200),
          coalesce(fencing.bound_detail(origin), '{}') || jsonb_build_object('repair', true,
              'found_token', found_fence, 'reason', fencing.bound_text(reason, 2000)));
  return query select greatest(found_fence, lowest), greatest(to_token, lowest);
end
$$;
comment on function fencing.repair_fence(text, bigint, text, text, text, jsonb) is
  'For gateways, on behalf of an operator: sets the fence to any value; nothing else can lower a fence. '
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
