-- Outcomes kept under the caller's Idempotency-Key: a write sent again gets the first one's outcome in place of a second execution.

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
  -- Not `if not exists`, which locks the table against writers before it looks.
  if to_regclass('fencing.kept_outcome_expires_at_idx') is null then
    create index kept_outcome_expires_at_idx on fencing.kept_outcome (expires_at);
  end if;
end
$$;
comment on table fencing.kept_outcome is
  'The first outcome of each write that came with an Idempotency-Key, committed together with the write, or with the record of its refusal. Written only by functions of this schema, granted to no one.';
comment on column fencing.kept_outcome.principal is 'Whose key it is: two principals may use the same one.';
comment on column fencing.kept_outcome.key is 'The key as the caller chose it.';
comment on column fencing.kept_outcome.fingerprint is 'SHA-256 of what was asked for, so that the key is of no use for anything else.';
comment on column fencing.kept_outcome.outcome is 'What the gateway answers from, as it wrote it down.';
comment on column fencing.kept_outcome.expires_at is 'From then on the key is as if it had never been used; forget_outcomes() deletes the row.';

create or replace function fencing.find_outcomes(principals text[], keys text[], fingerprints bytea[]) returns table (state text, outcome text)
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  select case when o.fingerprint = t.fingerprint then 'kept' when o.fingerprint is not null then 'other' else 'new' end,
         case when o.fingerprint = t.fingerprint then o.outcome end
    from unnest($1, $2, $3) with ordinality as t (principal, key, fingerprint, place)
    left join lateral (  -- by the index, one by one, also where the plan was made while the table was small
      select k.fingerprint, k.outcome from fencing.kept_outcome k
       where k.principal = t.principal collate "C" and k.key = t.key collate "C" and k.expires_at > statement_timestamp() offset 0) o on true
   order by t.place;
$$;
comment on function fencing.find_outcomes(text[], text[], bytea[]) is
  'For gateways: as claim_keys, but only looks: a new key is nobody''s, and one that is under way is new. To write, claim_keys comes first. Locks: none.';

create or replace function fencing.claim_keys(principals text[], keys text[], fingerprints bytea[]) returns table (state text, outcome text)
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
                 where (octet_length(t.key) between 1 and 64 and octet_length(t.principal) <= 1024 and octet_length(t.fingerprint) = 32) is not true) then
    raise exception using errcode = '22023', message = 'claim_keys takes lists of one length: a principal of at most 1,024 bytes, a key of 1 to 64 bytes and a fingerprint of 32 bytes each';
  end if;
  locks := array(select hashtextextended(t.principal || E'\n' || t.key, 0) from unnest(principals, keys) with ordinality as t (principal, key, place) order by t.place);
  locked := array(select pg_try_advisory_xact_lock(t.lock) from unnest(locks) with ordinality as t (lock, place) order by t.place);
  if false = any (locked) then
    -- Any login can take an advisory lock, and could keep a key from being used: only what a gateway holds counts. Without the lock keep_outcomes() still lets one write through alone.
    locked := array(
      select t.locked or pg_try_advisory_xact_lock(t.lock) or not exists (
               select from pg_locks l join pg_stat_activity a on a.pid = l.pid
                where l.locktype = 'advisory' and l.objsubid = 1 and l.granted and l.database = (select d.oid from pg_database d where d.datname = current_database())
                  and l.classid = ((t.lock >> 32) & 4294967295)::oid and l.objid = (t.lock & 4294967295)::oid and pg_has_role(a.usesysid, 'fencing_gateway', 'member'))
        from unnest(locks, locked) with ordinality as t (lock, locked, place) order by t.place);
  end if;
  -- A statement of its own: whatever was committed before a lock came free is seen.
  return query
    select case when o.fingerprint = t.fingerprint then 'kept' when o.fingerprint is not null then 'other'
                when t.locked and t.nth = 1 then 'new' else 'running' end,
           case when o.fingerprint = t.fingerprint then o.outcome end
      from (select u.*, row_number() over (partition by u.principal, u.key order by u.place) as nth
              from unnest(principals, keys, fingerprints, locked) with ordinality as u (principal, key, fingerprint, locked, place)) t
      left join lateral (  -- as above
        select k.fingerprint, k.outcome from fencing.kept_outcome k
         where k.principal = t.principal collate "C" and k.key = t.key collate "C" and k.expires_at > statement_timestamp() offset 0) o on true
     order by t.place;
end
$$;
comment on function fencing.claim_keys(text[], text[], bytea[]) is
  'For gateways, first thing in the transaction of writes that have keys; the lists'' n-th items are one write. One row each, in order. new: the key is this transaction''s, and nobody else gets it until '
  'the transaction ends; kept: outcome is what the first write with this key came to; other: the key was used for another request; running: another transaction has it, or an earlier item of '
  'the lists. Never waits. An advisory lock that others than gateways hold counts for nothing. Read committed only; elsewhere keep_outcomes raises. SQLSTATE 22023: not such lists. Locks until the end of the transaction: an advisory lock a key.';

create or replace function fencing.keep_outcomes(principals text[], keys text[], fingerprints bytea[], outcomes text[], keep_for_ms bigint) returns void
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
  'For gateways: keeps the outcomes of writes whose keys this transaction has claimed, for keep_for_ms. SQLSTATE 40001: an outcome is kept there already (the key was not claimed, or not at read '
  'committed); 22023: an outcome has more than 1 MiB; 23502: something is null. Locks until the end of the transaction: the rows.';

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
  'For gateways: deletes outcomes whose time is over, the oldest first and at most so many, and gives how many. Passes over what another transaction has locked, and locks nothing that a write waits '
  'for but a key whose time is over. Locks until the end of the transaction: the deleted rows.';
