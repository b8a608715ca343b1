-- The schema, its version, its settings, and the two words of the contract that every other file checks: resource and token.

create schema if not exists fencing;
comment on schema fencing is
  'The guard of fencegate: a write whose fencing token is lower than the fence does not land. Nothing here is granted to public.';

create table if not exists fencing.schema_version (
  version    integer primary key check (version > 0),
  applied_at timestamptz not null default clock_timestamp()
);
comment on table fencing.schema_version is 'The versions of this schema that were applied: migrations/ has what each needed beyond the schema files.';
comment on column fencing.schema_version.version is 'From 1 on; a migration''s file name begins with it.';
comment on column fencing.schema_version.applied_at is 'When it was applied.';
insert into fencing.schema_version (version) values (1), (2), (3), (4) on conflict do nothing;

create or replace function fencing.schema_version() returns integer
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  select max(version) from fencing.schema_version;
$$;
comment on function fencing.schema_version() is
  'The newest version applied, so that a gateway can refuse a database that is older than itself. Locks: none.';

create table if not exists fencing.settings (
  key   text primary key check (key in ('recorder', 'require_proof')),
  value text not null,
  constraint settings_recorder_is_keywords check (key <> 'recorder' or value !~* '^postgres(ql)?://'),
  constraint settings_require_proof_is_on_or_off check (key <> 'require_proof' or value in ('on', 'off'))
);
comment on table fencing.settings is 'Settings of the operator; no role is granted anything on it, for a recorder may hold a password.';
comment on column fencing.settings.key is 'recorder: how a refusal is written to the history although its transaction rolls back. require_proof: whether enter() demands a proof.';
comment on column fencing.settings.value is 'For recorder: a libpq connection string of keywords (not a URI), used through dblink. For require_proof: on or off.';

create or replace function fencing.is_resource(resource text) returns boolean
language sql immutable parallel safe
as $$  -- no search_path of its own, so that it is inlined; therefore every name is qualified
  select resource is not null
     and pg_catalog.octet_length(resource) operator(pg_catalog.<=) 200
     and resource collate pg_catalog."C" operator(pg_catalog.~) '^[A-Za-z0-9._:@-]+(/[A-Za-z0-9._:@-]+)*$';
$$;
comment on function fencing.is_resource(text) is
  'Whether this is the name of a resource: 1 to 200 bytes of A-Z a-z 0-9 . _ : @ / - without an empty segment. Locks: none.';

-- Words of the contract are domains and not check constraints of tables: a domain's check is compiled once a session, a table's once a statement,
-- which would cost every write some 10 us.
do $$
begin
  if to_regtype('fencing.resource_name') is null then
    create domain fencing.resource_name as text collate "C"
      constraint resource_word check (octet_length(value) <= 200 and value ~ '^[A-Za-z0-9._:@-]+(/[A-Za-z0-9._:@-]+)*$');
  end if;
  if to_regtype('fencing.event_word') is null then
    create domain fencing.event_word as text constraint event_word check (value in (
      'lease_granted', 'lease_renewed', 'lease_released', 'lease_expired', 'lease_refused', 'lease_revoked', 'fence_raised',
      'write_applied', 'write_rejected', 'write_failed', 'node_quarantined', 'node_readmitted', 'epoch_raised'));
  end if;
end
$$;
comment on domain fencing.resource_name is 'The name of a resource: 1 to 200 bytes of A-Z a-z 0-9 . _ : @ / - without an empty segment; compared by bytes.';
comment on domain fencing.event_word is 'The events of the HTTP contract.';

create or replace function fencing.require_words(resources text[], fencing_token bigint) returns void
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
declare
  name text;
begin
  if fencing_token is null or fencing_token not between 1 and 9007199254740991 then
    raise exception using errcode = '22023',
      message = format('a fencing token is an integer from 1 to 2^53 - 1, not %s', coalesce(fencing_token::text, 'null'));
  end if;
  if resources is null or cardinality(resources) = 0 then
    raise exception using errcode = '22023', message = 'no resource is named';
  end if;
  foreach name in array resources loop
    if not fencing.is_resource(name) then
      raise exception using errcode = '22023',
        message = format('not the name of a resource: %s', coalesce(quote_literal(left(name, 200)), 'null')),
        hint = '1 to 200 bytes of A-Z a-z 0-9 . _ : @ / - without an empty segment.';
    end if;
  end loop;
end
$$;
comment on function fencing.require_words(text[], bigint) is
  'Raises 22023 unless every name is a resource and the token is from 1 to 2^53 - 1. Locks: none.';
