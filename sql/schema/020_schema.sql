-- The schema, its version, its settings, and the checks of resources and tokens that all other files use.

do $$
begin
  if pg_catalog.to_regnamespace('fencing') is null then
    create schema fencing;
  end if;
exception when unique_violation or duplicate_schema then
  null;  -- another installation in this new database created it and committed
end
$$;
comment on schema fencing is
  'The guard of fencegate: a write whose fencing token is lower than the fence is refused. '
  'Nothing here is granted to public.';

create table if not exists fencing.schema_version (
  version    integer primary key check (version > 0),
  applied_at timestamptz not null default clock_timestamp()
);
comment on table fencing.schema_version is 'The versions of this schema that were installed here, each by a row.';
comment on column fencing.schema_version.version is 'From 1 on.';
comment on column fencing.schema_version.applied_at is 'When it was first installed.';
lock table fencing.schema_version in share update exclusive mode;  -- one installation at a time, also of a new database

create or replace function fencing.server_fault(server_version integer) returns text
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
  select format('PostgreSQL %s.%s %s; upgrade it to %s.%s or later', server_version / 10000, server_version % 10000,
                case when server_version < 140000 then 'is not supported'
                     when f.first < 150000
                       then 'can''t enable a trigger of a partitioned table that its partitions lack'
                     else 'does not pass every row that a MERGE changes to the triggers '
                       'that check it (PostgreSQL''s bug #19380)' end, f.fixed_in / 10000, f.fixed_in % 10000)
    from (values (0, 140005), (150000, 150016), (160000, 160012), (170000, 170008),
        (180000, 180002)) f (first, fixed_in)
   where server_version >= f.first and server_version < f.fixed_in;
$$;
comment on function fencing.server_fault(integer) is
  'Why the guard can''t be installed on a server of this version (its server_version_num) '
  'or would not check every change there, and the version to upgrade to; null if there is no such reason. Locks: none.';

-- Before anything is changed. guard_faults() compares it too, because the server may be replaced by an older one.
do $$
declare
  fault constant text := fencing.server_fault(pg_catalog.current_setting('server_version_num')::pg_catalog.int4);
begin
  if fault is not null then
    raise exception using errcode = '0A000', message = 'the guard needs another version of PostgreSQL: ' || fault;
  end if;
end
$$;

do $$
declare
  this_version constant integer := 1;
  installed constant integer := (select max(v.version) from fencing.schema_version v);
begin
  if installed > this_version then
    raise exception using errcode = '55000',
      message = format('the schema fencing has version %s, and this program installs version %s', installed,
          this_version),
      hint = 'Install with a program of that version or a later one. A schema cannot be downgraded; restore a backup.';
  end if;
  insert into fencing.schema_version (version) values (this_version) on conflict do nothing;
end
$$;

create or replace function fencing.schema_version() returns integer
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  select max(version) from fencing.schema_version;
$$;
comment on function fencing.schema_version() is
  'The newest version installed, so that a gateway can refuse a schema of another version than its own. Locks: none.';

create table if not exists fencing.settings (
  key   text primary key check (key in ('require_proof', 'history_keep_days_min', 'legal_hold')),
  value text not null,
  constraint settings_require_proof_is_on_or_off check (key <> 'require_proof' or value in ('on', 'off')),
  constraint settings_history_keep_days_min_is_days check (key <> 'history_keep_days_min'
      or value ~ '^[1-9][0-9]{0,4}$'),
  constraint settings_legal_hold_says_why check (key <> 'legal_hold' or value ~ '\S' and length(value) <= 200)
);
comment on table fencing.settings is 'Settings of the operator; no role is granted anything on it.';
comment on column fencing.settings.key is
  'require_proof: whether enter() requires a proof. history_keep_days_min: how long gateways have to keep the history. '
  'legal_hold: no row of it is dropped or erased while this key is there.';
comment on column fencing.settings.value is
  'For require_proof: on or off. For history_keep_days_min: days, 1 to 99999. For legal_hold: why, for operators.';

create or replace function fencing.name_fault_of(expression text) returns text
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
  -- The first comparison finds most valid names in one step; the bytes are those of UTF-8,
  -- whatever encoding the database has.
  select format($e$case
    when pg_catalog.octet_length(%1$s) operator(pg_catalog.<=) 200
      and %1$s collate pg_catalog."C" operator(pg_catalog.~) '^[ -.0-~]+(/[ -.0-~]+)*$' then null
    when %1$s is null or %1$s operator(pg_catalog.=) '' then 'is empty'
    when pg_catalog.octet_length(pg_catalog.convert_to(%1$s, 'UTF8')) operator(pg_catalog.>) 200
      then 'is longer than 200 bytes'
    when pg_catalog.encode(pg_catalog.convert_to(%1$s, 'UTF8'), 'hex') operator(pg_catalog.~) '^(..)*([01].|7f|c2[89].)'
      then 'has a control character'
    when %1$s collate pg_catalog."C" operator(pg_catalog.~) '^/|//|/$' then 'has an empty segment'
  end$e$, expression)
$$;
comment on function fencing.name_fault_of(text) is
  'The rule for names of resources, as an expression over another one that gives a text: null where that is a name, '
  'else why not. It calls no function of this schema, so that every role can evaluate it. Locks: none.';

do $$
begin
  execute format('create or replace function fencing.name_fault(resource text) returns text '
      'language sql stable parallel safe as %L', 'select ' || fencing.name_fault_of('resource'));
end
$$;
comment on function fencing.name_fault(text) is
  'Why this is not the name of a resource, such as ''has a control character''; null where it is one: 1 to 200 bytes '
  'of UTF-8 without control characters (U+0000 to U+001F, U+007F to U+009F) and without an empty segment. Locks: none.';

create or replace function fencing.is_resource(resource text) returns boolean
language sql stable parallel safe
as $$  -- no search_path of its own, so that it is inlined; therefore every name is qualified
  select fencing.name_fault(resource) is null;
$$;
comment on function fencing.is_resource(text) is 'Whether this is the name of a resource (name_fault). Locks: none.';

create or replace function fencing.require_read_committed() returns void
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  if current_setting('transaction_isolation') not in ('read committed', 'read uncommitted') then
    raise exception using errcode = '25001',
      message = format('a transaction with isolation level %s does not see what was committed since it began',
        current_setting('transaction_isolation')),
      hint = 'begin isolation level read committed';
  end if;
end
$$;
comment on function fencing.require_read_committed() is
  'Raises 25001 if the transaction has one snapshot for all its statements, '
  'so that checks of tables could overlook what others have changed. Locks: none.';

create or replace function fencing.bound_text(value text, max_length integer) returns text
language sql immutable parallel safe
as $$  -- no search_path of its own, so that it is inlined; therefore every name is qualified
  select case when pg_catalog.octet_length(value) operator(pg_catalog.<=) max_length then value
              else pg_catalog.left(value, max_length) operator(pg_catalog.||) '... ('
                operator(pg_catalog.||) pg_catalog.octet_length(value)::text operator(pg_catalog.||) ' bytes)' end;
$$;
comment on function fencing.bound_text(text, integer) is
  'The text; where it has more bytes than max_length, its first characters and its length in bytes. '
  'Nothing that a caller sends is stored without a limit. Locks: none.';

create or replace function fencing.bounded_text_of(expression text) returns text
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
  select format($e$case when octet_length(%1$s) > 200
    then left(%1$s, 200) || '... (' || octet_length(%1$s)::text || ' bytes)'
    else coalesce(%1$s, '') end$e$, expression)
$$;
comment on function fencing.bounded_text_of(text) is
  'The text of an expression that does what bound_text does, and gives an empty text for null, '
  'for check functions: the writing role may call no function of this schema. Locks: none.';

create or replace function fencing.bound_detail(detail jsonb) returns jsonb
language sql stable parallel safe
as $$  -- as above; stable as pg_column_size is, else it would not be inlined
  select case when pg_catalog.pg_column_size(detail) operator(pg_catalog.>) 65536
    then pg_catalog.jsonb_build_object('left_out_bytes', pg_catalog.pg_column_size(detail))
              else detail end;
$$;
comment on function fencing.bound_detail(jsonb) is
  'The detail of an event; where it has more than 64 KiB, left_out_bytes (its size) in its place. Locks: none.';

create or replace function fencing.session_origin() returns jsonb
language sql stable
as $$  -- as above
  select pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object(
      'application', pg_catalog.current_setting('application_name', true),
      'address', pg_catalog.host(pg_catalog.inet_client_addr())));
$$;
comment on function fencing.session_origin() is
  'Where an event of direct SQL came from: the application, and the address of the session '
  'unless it uses a Unix socket. Locks: none.';

create or replace function fencing.revoke_from_others(kind text, object text, acl aclitem[], owner oid) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  grantee text;
begin
  for grantee in
    select distinct case a.grantee when 0 then 'public' else a.grantee::regrole::text end from aclexplode(acl) a
      where a.grantee <> owner
  loop
    execute format('revoke all on %s %s from %s cascade', kind, object, grantee);
  end loop;
end
$$;
comment on function fencing.revoke_from_others(text, text, aclitem[], oid) is
  'Revokes every privilege on a new object from all but the owner: default privileges may have granted some. '
  'Locks: none.';

create or replace function fencing.give_to_owner(kind text, object text) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  owner constant regrole := (select n.nspowner from pg_namespace n where n.nspname = 'fencing');
begin
  if owner <> quote_ident(current_user)::regrole then
    execute format('alter %s %s owner to %s', kind, object, owner);
  end if;
end
$$;
comment on function fencing.give_to_owner(text, text) is
  'Gives a new object to the owner of the schema, where another superuser has called the function that makes it. '
  'Locks: a table, access exclusive.';

-- Resources and event types are domains instead of check constraints of tables:
-- a domain's check is compiled once a session, a table's once a statement, which would cost every write about 10 us.
do $$
begin
  if to_regtype('fencing.resource_name') is null then
    create domain fencing.resource_name as text collate "C"
      constraint resource_name check (fencing.name_fault(value) is null);
  end if;
  if to_regtype('fencing.event_type') is null then
    create domain fencing.event_type as text constraint event_type check (value in (
      'lease_granted', 'lease_renewed', 'lease_released', 'lease_expired', 'lease_refused',
      'lease_revoked', 'fence_raised',
      'write_applied', 'write_rejected', 'write_failed', 'write_replayed', 'node_quarantined', 'node_readmitted',
      'epoch_raised', 'request_denied', 'guard_changed', 'storage_generation_changed', 'configuration_reloaded',
      'history_read', 'person_erased'));
  end if;
end
$$;
comment on domain fencing.resource_name is 'The name of a resource (name_fault); compared by bytes.';
comment on domain fencing.event_type is 'The events of the HTTP contract.';

create or replace function fencing.validate_fence_arguments(resources text[], fencing_token bigint) returns void
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
declare
  name text;
begin
  if fencing_token is null or fencing_token not between 1 and 9007199254740991 then
    raise exception using errcode = '22023',
      message = format('a fencing token is an integer from 1 to 2^53 - 1, not %s',
          coalesce(fencing_token::text, 'null'));
  end if;
  if resources is null or cardinality(resources) = 0 then
    raise exception using errcode = '22023', message = 'no resource is named';
  end if;
  foreach name in array resources loop
    if not fencing.is_resource(name) then
      raise exception using errcode = '22023',
        message = format('not the name of a resource: %s', coalesce(quote_literal(left(name, 200)), 'null')),
        hint = format('It %s. A name is 1 to 200 bytes of UTF-8 without control characters, '
            'without a slash at its ends and without two in a row.', fencing.name_fault(name));
    end if;
  end loop;
end
$$;
comment on function fencing.validate_fence_arguments(text[], bigint) is
  'Raises 22023 unless every name is a resource and the token is from 1 to 2^53 - 1. Locks: none.';
