-- Seals the tokens of writes in the transaction of the writes.

create or replace function fencing.seal_writes(resources text[], fencing_tokens bigint[], write_ids uuid[],
    owners text[], principals text[], trace_ids text[], origins jsonb[] default null) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
-- Planned once, by the guard's index whatever its size: otherwise planning costs several times the rest.
set plan_cache_mode = force_generic_plan
set enable_hashjoin = off
set enable_mergejoin = off
set enable_seqscan = off
set jit = off
as $$
begin
  with given as (
    select distinct on (t.resource collate "C") t.*
      from unnest(resources, fencing_tokens, write_ids, owners, principals, trace_ids, origins)
        as t (resource, token, write_id, owner, principal, trace_id, origin)
     order by t.resource collate "C", t.token desc
  ), sealed as (
    update fencing.guard g set last_fencing_token = n.token + 1
      from given n
     where g.resource = n.resource collate "C" and g.last_fencing_token = n.token
       and g.entered_xid = pg_current_xact_id()
    returning g.resource::text, n.token, n.write_id, n.owner, n.principal, n.trace_id, n.origin
  )
  insert into fencing.history (event, resource, fencing_token, last_fencing_token, owner, principal, trace_id,
      write_id, detail)
  select 'fence_raised', s.resource, s.token, s.token + 1, fencing.bound_text(s.owner, 200),
    fencing.bound_text(s.principal, 200), fencing.bound_text(s.trace_id, 200), s.write_id,
         coalesce(fencing.bound_detail(s.origin), '{}')
           || jsonb_build_object('found_token', s.token, 'reason', 'seal')
    from sealed s order by s.resource;
end
$$;
comment on function fencing.seal_writes(text[], bigint[], uuid[], text[], text[], text[], jsonb[]) is
  'For gateways: seals tokens after their last writes, '
  'in the same transaction: raises the fence of each resource from its token to token + 1, '
  'and adds fence_raised with the token and the write_id; origins: further members of its detail. '
  'The n-th items of the lists are one resource of one write. '
  'Changes only resources that this transaction has entered with that token: a higher fence refuses the token already. '
  'Does not wait. Locks until the end of the transaction: the guard rows, which the transaction has locked before.';
