-- Proofs: a caller of enter() passes the lease_id that a gateway gave it, and the database verifies its signature.

create table if not exists fencing.proof_key (
  name       text primary key check (name <> ''),
  inner_pad  bytea not null check (length(inner_pad) = 64),
  outer_pad  bytea not null check (length(outer_pad) = 64),
  added_at   timestamptz not null default clock_timestamp(),
  expires_at timestamptz
);
comment on table fencing.proof_key is
  'The keys with which gateways sign lease ids. Any role that reads them can forge leases: no role is granted anything '
  'on this table, and a dump that contains it is a secret.';
comment on column fencing.proof_key.name is 'What the operator calls the key; by default made from a hash of it.';
comment on column fencing.proof_key.inner_pad is
  'The key in the form in which HMAC-SHA256 uses it first: padded to 64 bytes, each xor 0x36.';
comment on column fencing.proof_key.outer_pad is 'The same for its second step: each byte xor 0x5c.';
comment on column fencing.proof_key.added_at is 'When add_proof_key() was last called for it.';
comment on column fencing.proof_key.expires_at is 'From then on proofs signed with the key are refused; null: never.';

create or replace function fencing.hmac_pad(key bytea, byte integer) returns bytea
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
declare
  padded constant bytea := case when length(key) > 64 then sha256(key) else key end;
  pad bytea := '';
begin
  for i in 0..63 loop
    pad := pad || set_byte(decode('00', 'hex'), 0,
        (case when i < length(padded) then get_byte(padded, i) else 0 end) # byte);
  end loop;
  return pad;
end
$$;
comment on function fencing.hmac_pad(bytea, integer) is
  'The key in the form in which HMAC-SHA256 uses it: padded to 64 bytes, each xor a byte. Locks: none.';

create or replace function fencing.add_proof_key(key bytea, expires_at timestamptz default null, name text default null)
  returns text
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
  inner_pad bytea;
  outer_pad bytea;
begin
  if key is null or length(key) < 32 then
    raise exception using errcode = '22023', message = 'a signing key has at least 32 bytes';
  end if;
  inner_pad := fencing.hmac_pad(key, 54);
  outer_pad := fencing.hmac_pad(key, 92);
  name := coalesce(name, 'key-' || left(encode(sha256(outer_pad), 'hex'), 12));
  insert into fencing.proof_key values (name, inner_pad, outer_pad, clock_timestamp(), expires_at)
  on conflict on constraint proof_key_pkey do update
    set inner_pad = excluded.inner_pad, outer_pad = excluded.outer_pad, added_at = excluded.added_at,
      expires_at = excluded.expires_at;
  perform fencing.record_guard_change('add_proof_key', jsonb_build_object('name', name, 'expires_at', expires_at));
  return name;
end
$$;
comment on function fencing.add_proof_key(bytea, timestamptz, text) is
  'For the role that installed the schema: from the commit on, lease ids signed with this key are proofs. '
  'Returns the key''s name. key: the bytes of the gateways'' signing key (the file without the newline at its end). '
  'Replaces a key of the same name. `fencegate migrate --require-proof` calls it. '
  'SQLSTATE 22023: shorter than 32 bytes. '
  'Locks until the end of the transaction: the key''s row.';

create or replace function fencing.retire_proof_key(name text, at timestamptz default clock_timestamp()) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
begin
  at := coalesce(at, clock_timestamp());
  if at <= clock_timestamp() then
    delete from fencing.proof_key k where k.name = name;
  else
    update fencing.proof_key k set expires_at = at where k.name = name;
  end if;
  if not found then
    return false;
  end if;
  perform fencing.record_guard_change('retire_proof_key', jsonb_build_object('name', name, 'expires_at', at));
  return true;
end
$$;
comment on function fencing.retire_proof_key(text, timestamptz) is
  'For the role that installed the schema: from that time on, proofs signed with the key are refused; '
  'if the time has come, or is null, the key is deleted. False: there is no such key. '
  'Locks until the end of the transaction: the key''s row.';

create or replace function fencing.proof_keys() returns table (name text, id text, expires_at timestamptz)
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  select k.name, 'key-' || left(encode(sha256(k.outer_pad), 'hex'), 12), k.expires_at from fencing.proof_key k
    order by k.added_at, k.name;
$$;
comment on function fencing.proof_keys() is
  'The keys that proofs may be signed with, without the keys themselves. '
  'id: as gateways show it for their signing keys; also the name, unless add_proof_key() was given another. '
  'Locks: none.';

create or replace function fencing.require_proof(required boolean) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  was text;
begin
  if required and not exists (select from fencing.proof_key k
      where k.expires_at is null or k.expires_at > clock_timestamp()) then
    raise exception using errcode = '22023',
      message = 'there is no key to check proofs with: add the gateways'' signing key first',
      hint = 'fencegate migrate --require-proof does both; fencing.add_proof_key adds a key.';
  end if;
  select s.value into was from fencing.settings s where s.key = 'require_proof';
  insert into fencing.settings (key, value)
    values ('require_proof', case required when true then 'on' when false then 'off' end)
  on conflict on constraint settings_pkey do update set value = excluded.value;
  perform fencing.record_guard_change('require_proof', jsonb_build_object('required', required,
        'was', coalesce(was, 'off') = 'on'));
end
$$;
comment on function fencing.require_proof(boolean) is
  'For the role that installed the schema: sets whether enter() requires a proof of every caller, from the commit on. '
  'A proof that is passed is always verified. '
  'SQLSTATE 22023: there is no key; 23502: null. Locks until the end of the transaction: the setting''s row.';

create or replace function fencing.proof_fault(resource text, fencing_token bigint, proof text) returns text
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  signed constant text := split_part(proof, '.', 1);
  cell constant integer := coalesce((select c.cell from fencing.cluster c), 0);
  mark constant text := substring(signed from '^([1-9][0-9]{0,4})~');  -- the cell, if it is not 0
  claims constant text := case when mark is null then signed else substr(signed, length(mark) + 2) end;
  lines text[];
  name text;
begin
  if proof is null then
    return 'missing';
  end if;
  if coalesce(mark, '0') <> cell::text then
    return 'other_cell';
  end if;
  if octet_length(proof) > 6144 or strpos(claims, '~') > 0 or not exists (
       select from fencing.proof_key k
        where (k.expires_at is null or k.expires_at > clock_timestamp())
          and proof = signed || '.' || translate(encode(
                sha256(k.outer_pad || sha256(k.inner_pad || convert_to(signed, 'UTF8'))), 'base64'), '+/=', '-_')) then
    return 'not_authentic';
  end if;
  -- The signature shows that a gateway wrote the claims.
  -- They are UTF-8, of which "escape" leaves ASCII but the backslash unchanged in any encoding.
  lines := string_to_array(encode(decode(translate(claims, '-_', '+/') || repeat('=', -length(claims) & 3), 'base64'),
        'escape'), E'\n');
  -- The first line is the number of the format. In the fifth, names that are shared follow an empty one: their holders
  -- read.
  if lines[1] is distinct from '1' then
    return 'not_authentic';
  elsif lines[3] is distinct from fencing_token::text then
    return 'other_token';
  end if;
  name := encode(convert_to(resource, 'UTF8'), 'escape');
  if name = any (string_to_array(split_part(E'\t' || lines[5], E'\t\t', 1), E'\t')) then
    return null;
  end if;
  return case when name = any (string_to_array(split_part(E'\t' || lines[5], E'\t\t', 2), E'\t')) then 'shared'
              else 'other_resource' end;
end
$$;
comment on function fencing.proof_fault(text, bigint, text) is
  'Null where the proof, a whole lease_id, was signed with one of the keys and names this token, '
  'this resource and the cell of this cluster; shared if its lease shares the resource; '
  'else missing, other_cell, not_authentic, other_token or other_resource. '
  'It does not check the time: the fence refuses the token of a lease that has ended. Locks: none.';

create or replace function fencing.refuse_proof(resource text, fencing_token bigint, fault text) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  perform fencing.record_refusal(jsonb_build_object('resource', resource, 'fencing_token', fencing_token, 'detail',
    fencing.session_origin() || jsonb_build_object('sqlstate', 'FG401', 'fault', fault)));
  raise exception using errcode = 'FG401',
    message = case fault when 'missing' then format('a proof is required to enter %s', resource)
                         else format('the proof does not hold for token %s of %s: %s', fencing_token, resource,
                             replace(fault, '_', ' ')) end,
    detail = jsonb_build_object('resource', resource, 'fencing_token', fencing_token, 'fault', fault)::text,
    hint = 'The proof is the lease_id as the gateway gave it, with the token and a resource of that lease.';
end
$$;
comment on function fencing.refuse_proof(text, bigint, text) is
  'Records and raises FG401. DETAIL is JSON: resource, fencing_token, fault. '
  'Nothing of the proof or of a key is shown. Locks: none.';
