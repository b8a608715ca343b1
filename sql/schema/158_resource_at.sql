-- A resource as it was at a time, by the history and the recorded changes.

create or replace function fencing.rows_at(resource text, at timestamptz) returns jsonb
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  with before as materialized (
    select c.* from fencing.row_change c where c.resource = $1 and c.at <= $2 order by c.at desc, c.id desc limit 10000
  ), after as materialized (
    select c.* from fencing.row_change c where c.resource = $1 and c.at > $2 order by c.at, c.id limit 10000
  ), known as (  -- of each row the last change before and the first change after
    select relation, row_key, b.operation as was, b.at as was_at, b.id as was_id, a.operation as becomes
      from (select distinct on (c.relation, c.row_key) c.* from before c
             order by c.relation, c.row_key, c.at desc, c.id desc) b
           full join
           (select distinct on (c.relation, c.row_key) c.* from after c
             order by c.relation, c.row_key, c.at, c.id) a using (relation, row_key)
  ), values_known as (  -- of each column the newest value before; if there is none, the oldest after
    select distinct on (v.relation, v.row_key, v.name) v.*
      from (select c.relation, c.row_key, m.key as name, m.value, 0 as later, c.at, c.id
              from before c cross join jsonb_each(c.new) m
            union all
            select c.relation, c.row_key, m.key, m.value, 1, c.at, c.id from after c cross join jsonb_each(c.old) m) v
     order by v.relation, v.row_key, v.name, v.later,
              case v.later when 0 then v.at end desc, case v.later when 0 then v.id end desc, v.at, v.id
  ), truncated as (  -- rows that were there before a truncate
    select k.relation, k.row_key from known k
     where k.was <> 'delete' and exists (select from fencing.row_change t
         where t.resource is null and t.operation = 'truncate' and t.relation = k.relation
           and t.at >= k.was_at and t.at <= $2 and t.id > k.was_id)
  )
  select jsonb_build_object(
    'rows', coalesce((select jsonb_agg(jsonb_build_object('table', k.relation, 'key', k.row_key, 'values',
                (select jsonb_object_agg(v.name, v.value) from values_known v
                  where v.relation = k.relation and v.row_key is not distinct from k.row_key))
              order by k.relation, k.row_key)
         from known k
        where case when k.was is null then k.becomes <> 'insert' else k.was <> 'delete' and not exists (
                select from truncated t
                 where t.relation = k.relation and t.row_key is not distinct from k.row_key) end), '[]'),
    'rows_complete', (select count(*) from before) < 10000 and (select count(*) from after) < 10000
      and not exists (select from truncated t join pg_class c on c.oid = to_regclass(t.relation) and c.relkind = 'p'))
$$;
comment on function fencing.rows_at(text, timestamptz) is
  'The rows of a resource at a time, {"rows": [{"table", "key", "values"}], "rows_complete"}, from the changes that '
  'record_changes() keeps: the values of columns that have changed since it was called, in the form of row_change. '
  'Reads the newest 10,000 changes before and the oldest 10,000 after; rows_complete: there are no others, and no row '
  'is left out because of a truncate of a partitioned table, perhaps of another partition. '
  'Locks: none.';

create or replace function fencing.resource_at(resource text, at timestamptz, with_rows boolean default true)
  returns jsonb
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  with last_grant as (
    select h.*, h.at + (h.detail ->> 'ttl_ms')::bigint * interval '1 millisecond' as until
      from fencing.history h
     where h.resource = $1 and h.at <= $2 and h.event in ('lease_granted', 'lease_renewed')
     order by h.at desc, h.id desc limit 1
  ), last_fence as (
    select h.last_fencing_token as fence from fencing.history h
     where h.resource = $1 and h.at <= $2 and h.event in ('write_applied', 'fence_raised')
     order by h.at desc, h.id desc limit 1
  ), last_read as (
    select (h.detail ->> 'last_read_token')::bigint as token from fencing.history h
     where h.resource = $1 and h.at <= $2 and h.event = 'fence_raised' and h.detail ? 'last_read_token'
     order by h.at desc, h.id desc limit 1
  ), floor as (
    select (h.detail ->> 'floor')::bigint as fence from fencing.history h
     where h.event = 'storage_generation_changed' and h.at <= $2 and h.detail ? 'floor'
     order by h.at desc, h.id desc limit 1
  ), tables as (
    select distinct on (h.detail ->> 'relation') h.detail ->> 'relation' as relation,
           case h.detail ->> 'action' when 'protect' then h.detail ->> 'mode' else 'open' end as mode
      from fencing.history h
     where h.event = 'guard_changed' and h.at <= $2 and h.detail ->> 'action' in ('protect', 'unprotect')
     order by h.detail ->> 'relation', h.at desc, h.id desc
  )
  select jsonb_build_object(
      'resource', $1, 'at', to_char($2 at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
      'lease', (select jsonb_build_object('fencing_token', l.fencing_token,
                    'mode', coalesce(l.detail ->> 'mode', 'exclusive'), 'principal', l.principal,
                    'owner', l.owner, 'until', to_char(l.until at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'))
                  from last_grant l where l.until > $2 and not exists (  -- the end of another token is later by a clock
                    select from fencing.history e
                     where e.resource = $1 and e.fencing_token = l.fencing_token and e.at between l.at and $2
                       and e.detail ->> 'grant' is not distinct from l.detail ->> 'grant'
                       and e.event in ('lease_released', 'lease_expired', 'lease_revoked'))),
      'last_fencing_token', greatest((select f.fence from last_fence f), (select f.fence from floor f), 0),
      'last_read_token', coalesce((select r.token from last_read r), 0),
      'tables', coalesce((select jsonb_agg(jsonb_build_object('table', t.relation, 'mode', t.mode) order by t.relation)
                            from tables t), '[]'))
    || case when with_rows then fencing.rows_at($1, $2) else '{"rows": null, "rows_complete": null}' end
$$;
comment on function fencing.resource_at(text, timestamptz, boolean) is
  'A resource as it was at a time, by the history: the lease (null: none; of shared ones the last that '
  'was granted or renewed), the fence, the read fence, '
  'of each protected table the mode (enforce, observe, or open after unprotect()), and the rows (rows_at). '
  'What retention has dropped is missing. '
  'For auditors and gateways. Locks: none.';
