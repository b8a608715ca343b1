-- Outcomes kept under the caller's Idempotency-Key: a write that is sent again gets the outcome
-- of the first one instead of being executed again.

create table if not exists fencing.kept_outcome (
  principal   text collate "C" not null,
  key         text collate "C" not null,
  fingerprint bytea not null,
  outcome     text not null,
  expires_at  timestamptz not null,
  constraint kept_outcome_pkey primary key (principal, key)
);
do $$
begin
  -- Not `create index if not exists`, which locks the table against writers before it looks for the index.
  if to_regclass('fencing.kept_outcome_expires_at_idx') is null then
    create index kept_outcome_expires_at_idx on fencing.kept_outcome (expires_at);
  end if;
end
$$;
comment on table fencing.kept_outcome is
  'The first outcome of each write that came with an Idempotency-Key, committed together with the write, '
  'or with the record of its refusal. Written only by functions of this schema, granted to no one.';
comment on column fencing.kept_outcome.principal is
  'The principal that used the key; two principals may use the same key.';
comment on column fencing.kept_outcome.key is 'The key that the caller chose.';
comment on column fencing.kept_outcome.fingerprint is
  'SHA-256 of the request, so that the key can''t be used for another request.';
comment on column fencing.kept_outcome.outcome is 'The outcome, in the gateway''s own format.';
comment on column fencing.kept_outcome.expires_at is
  'From then on the key counts as unused; forget_outcomes() deletes the row.';

create or replace function fencing.find_outcomes(principals text[], keys text[], fingerprints bytea[])
  returns table (state text, outcome text)
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  select case when o.fingerprint = t.fingerprint then 'kept' when o.fingerprint is not null then 'other' else 'new' end,
         case when o.fingerprint = t.fingerprint then o.outcome end
    from unnest($1, $2, $3) with ordinality as t (principal, key, fingerprint, place)
    left join lateral (  -- makes the planner use the index for each key, also for a plan made while the table was small
      select k.fingerprint, k.outcome from fencing.kept_outcome k
       where k.principal = t.principal collate "C" and k.key = t.key collate "C"
         and k.expires_at > statement_timestamp() offset 0) o on true
   order by t.place;
$$;
comment on function fencing.find_outcomes(text[], text[], bytea[]) is
  'For gateways: looks up outcomes as claim_keys does, without claiming the keys; '
  'a key that another transaction has claimed is new. Before a write the keys have to be claimed. Locks: none.';

create or replace function fencing.claim_keys(principals text[], keys text[], fingerprints bytea[])
  returns table (state text, outcome text)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  locks bigint[];
  locked boolean[];
begin
  if (cardinality(principals) = cardinality(keys) and cardinality(fingerprints) = cardinality(keys)) is not true
     or exists (select from unnest(principals, keys, fingerprints) as t (principal, key, fingerprint)
                 where (octet_length(t.key) between 1 and 64 and octet_length(t.principal) <= 1024
                       and octet_length(t.fingerprint) = 32) is not true) then
    raise exception using errcode = '22023', message = 'claim_keys takes lists of one length: '
      'a principal of at most 1,024 bytes, a key of 1 to 64 bytes and a fingerprint of 32 bytes each';
  end if;
  locks := array(select hashtextextended(t.principal || E'\n' || t.key, 0)
      from unnest(principals, keys) with ordinality as t (principal, key, place) order by t.place);
  locked := array(select pg_try_advisory_xact_lock(t.lock) from unnest(locks) with ordinality as t (lock, place)
      order by t.place);
  if false = any (locked) then
    -- Any login can take an advisory lock and could so block a key: only locks of gateways count.
    -- Without the lock keep_outcomes() still lets only one write commit.
    locked := array(
      select t.locked or pg_try_advisory_xact_lock(t.lock) or not exists (
               select from pg_locks l join pg_stat_activity a on a.pid = l.pid
                where l.locktype = 'advisory' and l.objsubid = 1 and l.granted
                  and l.database = (select d.oid from pg_database d where d.datname = current_database())
                  and l.classid = ((t.lock >> 32) & 4294967295)::oid and l.objid = (t.lock & 4294967295)::oid
                  and fencing.may_act_as_gateway(a.usename))
        from unnest(locks, locked) with ordinality as t (lock, locked, place) order by t.place);
  end if;
  -- A separate statement, whose snapshot includes everything committed before a lock was released.
  return query
    select case when o.fingerprint = t.fingerprint then 'kept' when o.fingerprint is not null then 'other'
                when t.locked and t.nth = 1 then 'new' else 'running' end,
           case when o.fingerprint = t.fingerprint then o.outcome end
      from (select u.*, row_number() over (partition by u.principal, u.key order by u.place) as nth
              from unnest(principals, keys, fingerprints, locked)
                with ordinality as u (principal, key, fingerprint, locked, place)) t
      left join lateral (  -- as above
        select k.fingerprint, k.outcome from fencing.kept_outcome k
         where k.principal = t.principal collate "C" and k.key = t.key collate "C"
           and k.expires_at > statement_timestamp() offset 0) o on true
     order by t.place;
end
$$;
comment on function fencing.claim_keys(text[], text[], bytea[]) is
  'For gateways, at the beginning of a transaction of writes that have keys; '
  'the n-th items of the lists are one write. One row each, in order. new: this transaction has claimed the key '
  'until it ends; kept: outcome is that of the first write with this key; other: the key was used for another request; '
  'running: another transaction, or an earlier item of the lists, has claimed it. '
  'Never waits. Advisory locks of sessions that are not gateways are ignored. '
  'Read committed only; at other levels keep_outcomes raises. SQLSTATE 22023: lists of another form. '
  'Locks until the end of the transaction: an advisory lock for each key.';

create or replace function fencing.keep_outcomes(principals text[], keys text[], fingerprints bytea[], outcomes text[],
    keep_for_ms bigint) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  kept bigint;
begin
  if exists (select from unnest(outcomes) as t (outcome) where octet_length(t.outcome) > 1048576) then
    raise exception using errcode = '22023', message = 'an outcome has at most 1 MiB';
  end if;
  insert into fencing.kept_outcome as o (principal, key, fingerprint, outcome, expires_at)
  select t.principal, t.key, t.fingerprint, t.outcome, clock_timestamp() + keep_for_ms * interval '1 millisecond'
    from unnest(principals, keys, fingerprints, outcomes) as t (principal, key, fingerprint, outcome)
  on conflict on constraint kept_outcome_pkey do update
    set fingerprint = excluded.fingerprint, outcome = excluded.outcome, expires_at = excluded.expires_at
    where o.expires_at <= statement_timestamp();
  get diagnostics kept = row_count;
  if kept <> cardinality(keys) then
    raise exception using errcode = '40001', message = 'another write has kept its outcome under the same key';
  end if;
end
$$;
comment on function fencing.keep_outcomes(text[], text[], bytea[], text[], bigint) is
  'For gateways: keeps the outcomes of writes whose keys this transaction has claimed, for keep_for_ms. '
  'SQLSTATE 40001: an outcome is kept under the key already (the key was not claimed, or not at read committed); '
  '22023: an outcome has more than 1 MiB; 23502: a value is null. Locks until the end of the transaction: the rows.';

create or replace function fencing.forget_outcomes(most integer) returns integer
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  forgotten integer;
begin
  delete from fencing.kept_outcome o
   where o.ctid = any (array(select x.ctid from fencing.kept_outcome x where x.expires_at <= statement_timestamp()
                              order by x.expires_at limit most for update skip locked));
  get diagnostics forgotten = row_count;
  return forgotten;
end
$$;
comment on function fencing.forget_outcomes(integer) is
  'For gateways: deletes expired outcomes, the oldest first and at most that many, and returns their number. '
  'Skips rows that another transaction has locked. A write waits for it only if it uses an expired key. '
  'Locks until the end of the transaction: the deleted rows.';
