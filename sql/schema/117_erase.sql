-- Erasing a person: names in the history and in row_change are replaced by a pseudonym, and digests of those rows by
-- newer ones. `fencegate erase` calls these functions.

create or replace function fencing.refuse_under_hold() returns void
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  hold constant text := (select s.value from fencing.settings s where s.key = 'legal_hold');
begin
  if hold is not null then
    raise exception using errcode = '55000',
      message = format('nothing is erased or dropped under the legal hold: %s', hold),
      hint = 'The hold ends when its row of fencing.settings is deleted.';
  end if;
end
$$;
comment on function fencing.refuse_under_hold() is
  'Raises 55000 while the setting legal_hold is there. Locks: none.';

create or replace function fencing.replace_names(value jsonb, members text[], names text[], pseudonym text)
returns jsonb
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
  if value is null or not exists (select from unnest(names) n where strpos(value::text, to_json(n)::text) > 0) then
    return value;
  end if;
  return case jsonb_typeof(value)
    when 'string' then to_jsonb(case when members is null and value #>> '{}' = any (names) then pseudonym
        else value #>> '{}' end)
    when 'object' then (select jsonb_object_agg(m.key, fencing.replace_names(m.value,
          case when m.key <> all (members) then members end, names, pseudonym)) from jsonb_each(value) m)
    when 'array' then (select jsonb_agg(fencing.replace_names(e.value, members, names, pseudonym) order by e.place)
        from jsonb_array_elements(value) with ordinality e (value, place))
    else value end;
end
$$;
comment on function fencing.replace_names(jsonb, text[], text[], text) is
  'The value with the pseudonym in place of each string that is one of the names as a whole; names of members stay. '
  'members: only in the values of members with these names; null: everywhere. Locks: none.';

create or replace function fencing.replace_in_detail(event text, detail jsonb, names text[], pseudonym text)
returns jsonb
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
  -- What was done, refused and found stays as it is, also if a person has the name of a table or of an error.
  select fencing.replace_names(detail, case when event = 'guard_changed' then '{application,address}'
    else '{owner,principal,holder,application,address,credential,value}' end::text[], names, pseudonym);
$$;
comment on function fencing.replace_in_detail(text, jsonb, text[], text) is
  'The detail of a row of history with the pseudonym in its members that can name a person: owner, principal, holder, '
  'application, address, credential, and value of what a refused write wanted; of guard_changed application and '
  'address. Locks: none.';

create or replace function fencing.names_and_masks(names text[]) returns text[]
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select names || array(select fencing.masked_value(n) ->> 'masked' from unnest(names) n);
$$;
comment on function fencing.names_and_masks(text[]) is
  'The names, and their hashes as row_change has them of masked columns. Locks: none.';

create or replace function fencing.find_names(names text[], history_after bigint, history_to bigint,
    changes_after bigint, changes_to bigint) returns table (history_ids bigint[], change_ids bigint[])
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  texts constant text[] := fencing.names_and_masks(names);
begin
  history_ids := array(select h.id from fencing.history h where h.id > history_after and h.id <= history_to
      and (h.owner = any (texts) or h.principal = any (texts)
        or fencing.replace_in_detail(h.event, h.detail, texts, '') <> h.detail) order by h.id);
  change_ids := array(select c.id from fencing.row_change c where c.id > changes_after and c.id <= changes_to
      and (c.principal = any (texts) or c.application = any (texts)
        or fencing.replace_names(c.row_key, null, texts, '') <> c.row_key
        or fencing.replace_names(c.old, null, texts, '') <> c.old
        or fencing.replace_names(c.new, null, texts, '') <> c.new) order by c.id);
  return next;
end
$$;
comment on function fencing.find_names(text[], bigint, bigint, bigint, bigint) is
  'The rows of history and of row_change, with ids above after and up to to, of which erase_names() would replace '
  'something. Locks: none.';

create or replace function fencing.erase_names(names text[], pseudonym text, reason text, history_after bigint,
    history_to bigint, changes_after bigint, changes_to bigint) returns bigint
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  texts constant text[] := fencing.names_and_masks(names);
  found_ids record;
begin
  perform fencing.refuse_under_hold();
  if cardinality(names) between 1 and 100 is not true or array_position(names, null) is not null
      or exists (select from unnest(names) n where octet_length(n) not between 1 and 8192) then
    raise exception using errcode = '22023', message = 'names: 1 to 100, each of 1 to 8,192 bytes';
  elsif pseudonym ~ '^erased-[0-9a-f]{8,64}$' is not true then
    raise exception using errcode = '22023', message = 'pseudonym: erased- and 8 to 64 hexadecimal digits';
  elsif (reason ~ '\S' and octet_length(reason) <= 2000) is not true
      or exists (select from unnest(names) n where strpos(reason, n) > 0) then
    raise exception using errcode = '22023', message = 'reason: 1 to 2,000 bytes, without the names';
  elsif session_user = any (names)
      or exists (select from jsonb_each_text(fencing.session_origin()) o where o.value = any (names)) then
    raise exception using errcode = '22023',
      message = 'names: the event would have one as its principal, application or address',
      hint = 'Give the order from a session of another login, application_name and address.';
  end if;
  -- Before any row: refuse_history_change() lets rows be changed after this event of the same transaction.
  select * into found_ids from fencing.find_names(names, history_after, history_to, changes_after, changes_to);
  if cardinality(found_ids.history_ids) + cardinality(found_ids.change_ids) = 0 then
    return 0;
  end if;
  insert into fencing.history (event, principal, detail)
  values ('person_erased', session_user, fencing.session_origin() || jsonb_build_object('pseudonym', pseudonym,
      'reason', reason, 'history_rows', cardinality(found_ids.history_ids),
      'change_rows', cardinality(found_ids.change_ids)));
  update fencing.history h
     set owner = case when h.owner = any (texts) then pseudonym else h.owner end,
         principal = case when h.principal = any (texts) then pseudonym else h.principal end,
         detail = fencing.replace_in_detail(h.event, h.detail, texts, pseudonym)
   where h.id = any (found_ids.history_ids);
  update fencing.row_change c
     set principal = case when c.principal = any (texts) then pseudonym else c.principal end,
         application = case when c.application = any (texts) then pseudonym else c.application end,
         row_key = fencing.replace_names(c.row_key, null, texts, pseudonym),
         old = fencing.replace_names(c.old, null, texts, pseudonym),
         new = fencing.replace_names(c.new, null, texts, pseudonym)
   where c.id = any (found_ids.change_ids);
  return cardinality(found_ids.history_ids) + cardinality(found_ids.change_ids);
end
$$;
comment on function fencing.erase_names(text[], text, text, bigint, bigint, bigint, bigint) is
  'For the role that installed the schema: puts the pseudonym in place of the names, of each only as a whole value, '
  'in the rows of history and row_change with ids above after and up to to, and returns how many rows that were. '
  'Records person_erased, without the names. Rows that a digest covers then need replace_digest() in the same '
  'transaction: `fencegate erase` does both. SQLSTATE 22023: an argument; 55000: a legal hold. '
  'Locks until the end of the transaction: the changed rows.';

create or replace function fencing.replace_digest(number bigint, entry text, signature text, salt text,
    erasable_salt text, replaced bigint) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if replace_digest.number is distinct from fencing.begin_digest() then
    raise exception using errcode = '22023', message = 'number: this is not the number of the next digest';
  elsif not exists (select from fencing.history_digest d where d.number = replaced and d.replaces is null) then
    raise exception using errcode = '22023', message = 'replaced: there is no such digest, or it is a replacement';
  end if;
  update fencing.history_digest d set erasable_salt = ''
   where (d.number = replaced or d.replaces = replaced) and d.erasable_salt <> '';
  insert into fencing.history_digest (number, entry, signature, salt, erasable_salt, replaces)
  values (replace_digest.number, replace_digest.entry, replace_digest.signature, replace_digest.salt,
    replace_digest.erasable_salt, replaced);
end
$$;
comment on function fencing.replace_digest(bigint, text, text, text, text, bigint) is
  'For the role that installed the schema, after erase_names() in the same transaction: adds a digest of the rows of '
  'another one as they are now, and deletes that one''s erasable_salt. SQLSTATE 22023: it is not the next one, or '
  'there is no such digest; 42501: without erase_names(); 55P03. Locks: as begin_digest.';

create or replace function fencing.erase_other_names(names text[], pseudonym text) returns bigint
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  -- As they are, in a string of JSON, and in JSON within that.
  texts constant text[] := array(select distinct s.value from unnest(names) n
      cross join lateral (select substr(to_json(n)::text, 2, length(to_json(n)::text) - 2)) j (value)
      cross join lateral (values (n), (j.value),
        (substr(to_json(j.value)::text, 2, length(to_json(j.value)::text) - 2))) s (value));
  changed bigint;
begin
  perform fencing.refuse_under_hold();
  -- These wait for protect() and others, so they come before what writers need.
  update fencing.protected p set protected_by = pseudonym where p.protected_by = any (names);
  update fencing.unprotected u set unprotected_by = pseudonym where u.unprotected_by = any (names);
  update fencing.recorded_table r set recorded_by = pseudonym where r.recorded_by = any (names);
  update fencing.known_fault f set principal = pseudonym where f.principal = any (names);
  update fencing.kept_outcome k
     set outcome = o.shortened
    from (select x.ctid as place, s.shortened from fencing.kept_outcome x
          cross join lateral (select x.outcome::jsonb) w (whole)
          cross join lateral (select case when w.whole ? 'refusal'
            then w.whole || jsonb_build_object('detail', 'erased', 'errors', '[]'::jsonb,
              'facts', jsonb_build_object('write_id', w.whole #> '{facts,write_id}'))
            else w.whole || jsonb_build_object('rows_left_out', true,
              'results', (select coalesce(jsonb_agg(r.value - 'json' order by r.place), '[]')
                  from jsonb_array_elements(w.whole -> 'results') with ordinality r (value, place))) end) s (shortened)
           where exists (select from unnest(texts) t where strpos(x.outcome, t) > 0) and s.shortened <> w.whole
           limit 1000 for update of x skip locked) o
   where k.ctid = o.place;
  get diagnostics changed = row_count;
  -- Without waiting for writers, who lock these rows in another order.
  update fencing.guard g set entered_by = pseudonym
   where g.ctid = any (array(select x.ctid from fencing.guard x where x.entered_by = any (names)
     limit 1000 for update skip locked));
  if found then
    changed := changed + 1;
  end if;
  return changed;
end
$$;
comment on function fencing.erase_other_names(text[], text) is
  'For the role that installed the schema: takes the names out of other tables of this schema, of at most 1,000 rows '
  'of each in a call; call it until it returns 0. Kept outcomes lose their rows, or what a refusal said; their '
  'principal stays until they expire, because a write that is sent again would be executed again. '
  'SQLSTATE 55000: a legal hold. '
  'Locks until the end of the transaction: the changed rows; it does not wait for those of guard and kept_outcome.';
