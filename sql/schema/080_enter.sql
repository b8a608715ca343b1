-- enter: opens a resource, or several, for the transaction of a caller with its own connection.

create or replace function fencing.enter(resource text, fencing_token bigint, proof text default null) returns bigint
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  found_token bigint;
  fence bigint;
  fault text;
  lowest bigint;
  below_floor boolean;
  cause jsonb;
begin
  if (enter.fencing_token between 1 and 9007199254740991 and fencing.is_resource(enter.resource)) is not true then
    perform fencing.validate_fence_arguments(array[enter.resource], enter.fencing_token);
  end if;
  lowest := fencing.storage_floor(enter.resource, enter.fencing_token);
  if proof is not null or exists (select from fencing.settings s where s.key = 'require_proof' and s.value = 'on') then
    fault := fencing.proof_fault(enter.resource, enter.fencing_token, proof);
    if fault is not null then
      perform fencing.refuse_proof(enter.resource, enter.fencing_token, fault);
    end if;
  end if;

  if enter.fencing_token >= lowest then
    with mine as (  -- no row unless this transaction has entered the resource before
      select from fencing.guard g
       where g.resource = enter.resource and g.entered_xid = pg_current_xact_id()
         and g.entered_at = transaction_timestamp()
    ), entered as (
      insert into fencing.guard as g (resource, last_fencing_token, entered_xid, entered_at, entered_for)
      values (enter.resource, enter.fencing_token, pg_current_xact_id(), transaction_timestamp(),
          left(coalesce(current_setting('fencing.write_id', true), ''), 64))
      on conflict on constraint guard_pkey do update
        set last_fencing_token = excluded.last_fencing_token, found_fencing_token = g.last_fencing_token,
            entered_xid = excluded.entered_xid, entered_at = excluded.entered_at, entered_for = excluded.entered_for,
            entered_token = null, entered_write = null, entered_by = null
        where g.last_fencing_token <= excluded.last_fencing_token
      returning g.found_fencing_token
    ), recorded as (
      insert into fencing.history (event, resource, fencing_token, last_fencing_token, principal, detail)
      select 'write_applied', enter.resource, enter.fencing_token, enter.fencing_token, session_user,
             fencing.session_origin() || '{"direct": true}'
        from entered e where e.found_fencing_token < enter.fencing_token or not exists (select from mine)
    )
    select e.found_fencing_token into found_token from entered e;
    if found then
      -- Only selects the error message of a later refusal.
      perform set_config('fencing.entered', pg_current_xact_id()::text, true);
      return greatest(found_token, lowest);
    end if;
  -- As the insert above does where it refuses, so that the history has refusals and raised fences in the order
  -- in which they had the lock.
  else
    perform from fencing.guard g where g.resource = enter.resource for update;
  end if;

  select greatest(max(g.last_fencing_token), lowest), lowest > coalesce(max(g.last_fencing_token), 0)
    into fence, below_floor from fencing.guard g where g.resource = enter.resource;
  cause := case when below_floor then '{"cause": "storage-generation-changed"}' else '{}' end;
  perform fencing.record_refusal(jsonb_build_object(
    'resource', enter.resource, 'fencing_token', enter.fencing_token, 'last_fencing_token', fence,
    'detail', fencing.session_origin() || '{"sqlstate": "FG412"}' || cause));
  raise exception using errcode = 'FG412',
    message = format('stale fencing token: %s for %s, whose fence is %s', enter.fencing_token, enter.resource, fence),
    detail = (jsonb_build_object('resource', enter.resource, 'fencing_token', enter.fencing_token,
          'last_fencing_token', fence) || cause)::text,
    hint = case when below_floor then 'The token is older than the last change '
      'of the storage generation (promotion or restore). Nothing was changed; take a new lease.'
                else 'A newer lease has written or read since. Nothing was changed; take a new lease.' end;
end
$$;
comment on function fencing.enter(text, bigint, text) is
  'Raises the fence of the resource to the token, opens the resource for this transaction, '
  'and returns the fence before the call (0: none; at least the floor). '
  'An equal token is accepted. Adds a write_applied row with detail.direct = true, which commits '
  'with the caller''s changes: one in each transaction, and one more if it enters again with a higher token. '
  'The resource is open until the transaction ends or the savepoint in which enter was called is rolled back. '
  'Several resources: pass an array, or call it in the order of their names by bytes. '
  'SQLSTATE FG412: the token is stale, DETAIL is JSON with resource, fencing_token, last_fencing_token, '
  'and cause = storage-generation-changed where the floor refused it; '
  'FG503: the storage generation changed, and no gateway has finished the change yet: repeat; '
  '22023: not a resource or a token from 1 to 2^53 - 1; '
  'FG401: the proof (the lease_id) is required and missing (require_proof), or not valid; 40001 above read committed '
  'where another transaction raised the fence, or the storage generation changed; 55P03: lock_timeout. '
  'Locks until the end of the transaction: as storage_floor, then the guard row.';

create or replace function fencing.enter(resources text[], fencing_token bigint, proof text default null)
  returns bigint[]
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  most constant integer := 64;  -- resources of a lease
  bytes_most constant integer := 4096;  -- of their names together
  name text;
  found_tokens jsonb := '{}';
begin
  if cardinality(resources) > most then
    raise exception using errcode = '22023', message = format('enter takes at most %s resources, as many '
        'as a lease has, not %s', most, cardinality(resources));
  end if;
  perform fencing.validate_fence_arguments(resources, enter.fencing_token);
  if (select sum(octet_length(convert_to(t.r, 'UTF8'))) from unnest(resources) as t (r)) > bytes_most then
    raise exception using errcode = '22023', message = format(
        'enter takes resources whose names have at most %s bytes together, as those of a lease', bytes_most);
  end if;
  for name in select distinct r collate "C" from unnest(resources) as t (r) order by 1 loop
    found_tokens := found_tokens || jsonb_build_object(name, fencing.enter(name, enter.fencing_token, enter.proof));
  end loop;
  return array(select (found_tokens ->> t.r)::bigint from unnest(resources) with ordinality as t (r, position)
      order by t.position);
end
$$;
comment on function fencing.enter(text[], bigint, text) is
  'enter for each of 1 to 64 resources with at most 4096 bytes of names under one token, '
  'in the order of their names by bytes, whatever their order in the array, '
  'so that callers whose arrays overlap cannot deadlock. All of them or none. '
  'A resource given twice is entered once. Returns the fence before the call of each, in the order of the array. '
  'Pass a value of the type text[]: a quoted literal without a cast is read as the name of one resource. '
  'SQLSTATE FG412, FG503, FG401, 40001, 55P03: as enter, for the first resource that is refused; 22023: no resource, '
  'more than 64 or than 4096 bytes of names, null or another text that is not a resource, or not a token; '
  'nothing is locked before these checks. '
  'Locks until the end of the transaction: as storage_floor, then the guard rows in the order of their names by bytes.';
