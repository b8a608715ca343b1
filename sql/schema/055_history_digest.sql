-- Digests of the history and of row_change, which gateways make and sign, so that no row is changed later unseen.

create table if not exists fencing.history_digest (
  number        bigint primary key check (number > 0),
  entry         text not null check (octet_length(entry) <= 2097152),
  signature     text not null check (octet_length(signature) <= 256),
  salt          text not null check (octet_length(salt) <= 256),
  erasable_salt text not null check (octet_length(erasable_salt) <= 256),
  replaces      bigint,
  made_at       timestamptz not null default clock_timestamp()
);
comment on table fencing.history_digest is
  'Each digest covers rows of history and row_change that no earlier one covers, or replaces one whose rows had names '
  'that were erased. Update, delete and truncate are refused for everyone. Granted to gateways and auditors, to read.';
comment on column fencing.history_digest.number is 'From 1 on, without gaps.';
comment on column fencing.history_digest.entry is 'The text that is signed, a JSON object (GET /v1/history/digests).';
comment on column fencing.history_digest.signature is 'Ed25519, in hexadecimal digits.';
comment on column fencing.history_digest.salt is
  'Hashed before the rows. It is nowhere else, so that nobody who has an entry alone can try values of rows.';
comment on column fencing.history_digest.erasable_salt is
  'The same for the columns from which names can be erased. Empty: another digest replaces this one, and nobody can '
  'try names that were erased.';
comment on column fencing.history_digest.replaces is
  'The number of the digest that this one replaces (replace_digest).';
comment on column fencing.history_digest.made_at is 'By the server''s clock.';

do $$
begin
  if to_regclass('fencing.history_digest_replaces_idx') is null then
    create index history_digest_replaces_idx on fencing.history_digest (replaces) where replaces is not null;
  end if;
  if not exists (select from pg_catalog.pg_trigger where tgrelid = 'fencing.history_digest'::regclass
      and tgname = 'history_no_truncate') then
    create trigger history_append_only before update or delete on fencing.history_digest
      for each row execute function fencing.refuse_history_change();
    alter table fencing.history_digest enable always trigger history_append_only;
    create trigger history_no_truncate before truncate on fencing.history_digest for each statement
      execute function fencing.refuse_history_change();
    alter table fencing.history_digest enable always trigger history_no_truncate;
  end if;
end
$$;

create or replace function fencing.digest_tail()
  returns table (history_id bigint, change_id bigint, writers text[])
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  select case when s.is_called then s.last_value else s.last_value - 1 end into history_id
    from fencing.history_id_seq s;
  select case when s.is_called then s.last_value else s.last_value - 1 end into change_id
    from fencing.row_change_id_seq s;
  writers := fencing.writers_of(array['fencing.history', 'fencing.row_change']::regclass[]);
  return next;
end
$$;
comment on function fencing.digest_tail() is
  'As history_tail(), for history and row_change together. Locks: none.';

create or replace function fencing.begin_digest() returns bigint
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  lock table fencing.history_digest in share row exclusive mode nowait;
  return coalesce((select max(d.number) from fencing.history_digest d), 0) + 1;
end
$$;
comment on function fencing.begin_digest() is
  'The number of the next digest, which this transaction alone may make. SQLSTATE 55P03: another one makes it. '
  'Locks: history_digest share row exclusive, without waiting.';

create or replace function fencing.append_digest(number bigint, entry text, signature text, salt text,
    erasable_salt text) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if append_digest.number is distinct from fencing.begin_digest() then
    raise exception using errcode = '22023', message = 'this is not the number of the next digest';
  end if;
  insert into fencing.history_digest (number, entry, signature, salt, erasable_salt)
  values (append_digest.number, append_digest.entry, append_digest.signature, append_digest.salt,
    append_digest.erasable_salt);
end
$$;
comment on function fencing.append_digest(bigint, text, text, text, text) is
  'Adds a digest. SQLSTATE 22023: it is not the next one; 55P03. Locks: as begin_digest.';
