-- enter: opens a resource, or several, for the transaction of a caller with its own connection.
-- enter_shared: the same for a caller that only reads, beside others.

create or replace function fencing.refuse_token(resource text, fencing_token bigint, fence bigint, lowest bigint,
    mode jsonb) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  below_floor constant boolean := coalesce(fence = lowest, false);
  facts constant jsonb := case when below_floor then '{"cause": "storage-generation-changed"}' else '{}' end;
begin
  perform fencing.record_refusal(jsonb_build_object(
    'resource', resource, 'fencing_token', fencing_token, 'last_fencing_token', fence,
    'detail', fencing.session_origin() || '{"sqlstate": "FG412"}' || facts || mode));
  raise exception using errcode = 'FG412',
    message = format('stale fencing token: %s for %s, whose fence is %s', fencing_token, resource, fence),
    detail = (jsonb_build_object('resource', resource, 'fencing_token', fencing_token,
          'last_fencing_token', fence) || facts)::text,
    hint = case when below_floor then 'The token is older than the last change '
      'of the storage generation (promotion or restore). Nothing was changed; take a new lease.'
                else 'A newer lease has written or read since. Nothing was changed; take a new lease.' end;
end
$$;
comment on function fencing.refuse_token(text, bigint, bigint, bigint, jsonb) is
  'Records and raises FG412. fence: what refuses the token; lowest: the floor; null: it does not refuse; '
  'mode: added to the detail in the history. DETAIL is JSON: '
  'resource, fencing_token, last_fencing_token, and cause = storage-generation-changed where the floor refuses. '
  'Locks: none.';

create or replace function fencing.refuse_shared(resource text, fencing_token bigint) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  perform fencing.record_refusal(jsonb_build_object('resource', resource, 'fencing_token', fencing_token, 'detail',
    fencing.session_origin() || '{"sqlstate": "FG403", "mode": "shared"}'));
  raise exception using errcode = 'FG403',
    message = format('the lease with token %s shares %s: its holder may read, not write', fencing_token, resource),
    detail = jsonb_build_object('resource', resource, 'fencing_token', fencing_token, 'mode', 'shared')::text,
    hint = 'Call fencing.enter_shared to read; to write take a lease on it that is not shared.';
end
$$;
comment on function fencing.refuse_shared(text, bigint) is
  'Records and raises FG403. DETAIL is JSON: resource, fencing_token, mode. Locks: none.';

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
begin
  if (enter.fencing_token between 1 and 9007199254740991 and fencing.is_resource(enter.resource)) is not true then
    perform fencing.validate_fence_arguments(array[enter.resource], enter.fencing_token);
  end if;
  lowest := fencing.storage_floor(enter.resource, enter.fencing_token);
  if proof is not null or exists (select from fencing.settings s where s.key = 'require_proof' and s.value = 'on') then
    fault := fencing.proof_fault(enter.resource, enter.fencing_token, proof);
    if fault = 'shared' then
      perform fencing.refuse_shared(enter.resource, enter.fencing_token);
    elsif fault is not null then
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
        set last_fencing_token = excluded.last_fencing_token,
            found_fencing_token = greatest(g.last_fencing_token, g.last_read_token),
            entered_xid = excluded.entered_xid, entered_at = excluded.entered_at, entered_for = excluded.entered_for,
            entered_token = null, entered_write = null, entered_by = null
        where greatest(g.last_fencing_token, g.last_read_token) <= excluded.last_fencing_token
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

  select greatest(max(g.last_fencing_token), max(g.last_read_token), 0) into fence
    from fencing.guard g where g.resource = enter.resource;
  perform fencing.refuse_token(enter.resource, enter.fencing_token, greatest(fence, lowest),
      case when lowest > fence then lowest end, '{}');
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
  '22023: not a resource or a token from 1 to 2^53 - 1; FG403: the proof shows that the lease shares the resource; '
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

create or replace function fencing.lock_for_reading(resource text, fencing_token bigint, lowest bigint,
    out found_token bigint, out last_fencing_token bigint, out raised boolean)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
  name constant fencing.resource_name := resource;
  last_read bigint;
begin
  raised := false;
  loop
    select g.last_fencing_token, g.last_read_token into last_fencing_token, last_read
      from fencing.guard g where g.resource = name;
    if not found then
      found_token := lowest;
      last_fencing_token := lowest;
      exit when fencing_token < lowest;
      insert into fencing.guard (resource, last_fencing_token, last_read_token) values (name, 0, fencing_token)
        on conflict do nothing;  -- waits for another transaction that adds it
      raised := found;
      exit when raised;
      continue;
    end if;
    if fencing_token >= greatest(last_fencing_token, lowest) and fencing_token > last_read then
      select g.last_fencing_token, g.last_read_token into last_fencing_token, last_read
        from fencing.guard g where g.resource = name for no key update;
      raised := fencing_token >= last_fencing_token and fencing_token > last_read;
    else
      select g.last_fencing_token, g.last_read_token into last_fencing_token, last_read
        from fencing.guard g where g.resource = name for share;
      -- A repair has lowered the fences meanwhile: raising the read fence needs the other lock.
      continue when fencing_token >= greatest(last_fencing_token, lowest) and fencing_token > last_read;
    end if;
    found_token := greatest(last_fencing_token, last_read, lowest);
    if raised then
      update fencing.guard g
         set last_read_token = fencing_token,
             -- What this transaction has entered with an older token, it may not change after this read.
             entered_xid = case when g.last_fencing_token = fencing_token then g.entered_xid end
       where g.resource = name;
    end if;
    last_fencing_token := greatest(last_fencing_token, lowest);
    exit;
  end loop;
end
$$;
comment on function fencing.lock_for_reading(text, bigint, bigint) is
  'Raises the read fence of a resource to the token, unless it is as high, and keeps the fences from rising until the '
  'end of the transaction. lowest: the floor. found_token: the fence before; last_fencing_token: what a reader''s '
  'token has to reach, the write fence or the floor: if that is higher, nothing rises: the caller refuses. '
  'SQLSTATE 40001 above read committed: the row of the guard has changed since the transaction began. '
  'Locks until the end of the transaction: the guard row, for no key update if the read fence rises, else for share.';

create or replace function fencing.enter_shared(resource text, fencing_token bigint, proof text default null)
  returns bigint
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  lowest bigint;
  fault text;
  locked record;
begin
  perform fencing.validate_fence_arguments(array[resource], fencing_token);
  lowest := fencing.storage_floor(resource, fencing_token);
  if proof is not null or exists (select from fencing.settings s where s.key = 'require_proof' and s.value = 'on') then
    fault := fencing.proof_fault(resource, fencing_token, proof);
    if fault <> 'shared' then
      perform fencing.refuse_proof(resource, fencing_token, fault);
    end if;
  end if;
  locked := fencing.lock_for_reading(resource, fencing_token, lowest);
  if locked.last_fencing_token > fencing_token then
    perform fencing.refuse_token(resource, fencing_token, locked.last_fencing_token, lowest, '{"mode": "shared"}');
  end if;
  if locked.raised then
    insert into fencing.history (event, resource, fencing_token, last_fencing_token, principal, detail)
    values ('fence_raised', enter_shared.resource, enter_shared.fencing_token, enter_shared.fencing_token,
            session_user, fencing.session_origin() || jsonb_build_object('direct', true, 'mode', 'shared',
              'reason', 'enter_shared', 'found_token', locked.found_token,
              'last_read_token', enter_shared.fencing_token));
  end if;
  -- Only selects the error message of a later refusal.
  perform set_config('fencing.entered', pg_current_xact_id()::text, true);
  return locked.found_token;
end
$$;
comment on function fencing.enter_shared(text, bigint, text) is
  'For a holder of a shared lease: raises the read fence of the resource to the token, so that nobody writes the '
  'resource until the end of the transaction, and afterwards nobody with an older token. Needs a token not lower '
  'than the last writer''s; opens nothing. What the transaction reads it has to read in later statements. '
  'Returns the fence before the call (0: none; at least the floor). '
  'If the read fence rises, adds fence_raised with detail.mode = shared and last_read_token. '
  'Readers with a token that raises it wait for each other''s transactions, others do not. '
  'SQLSTATE FG412: the token is older than the last writer''s, or the floor; DETAIL as enter; '
  'FG503, FG401, 22023, 40001, 55P03: as enter. '
  'Locks until the end of the transaction: as storage_floor, then as lock_for_reading.';
