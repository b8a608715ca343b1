-- record_changes: keeps what changes in the rows of a table, in row_change.
--
-- Two triggers run one after the other between the two of protect(), by statement or by row as those do. The first,
-- fencing_record_find_*, finds the resource of each row with the rights of the writing role, because that evaluates
-- code of others. The second, fencing_record_keep_*, has the owner's rights. It evaluates no code of others: values
-- become text by format(), so by the output functions of their types alone, and are compared by record_image_ne().

create table if not exists fencing.recorded_table (
  relation      regclass primary key,
  columns       text[],
  masked        text[] not null,
  find_function name not null,
  keep_function name not null,
  recorded_by   text not null default session_user,
  recorded_at   timestamptz not null default clock_timestamp(),
  numbers       smallint[] not null,
  relation_oid  oid not null
);
comment on table fencing.recorded_table is 'The tables whose changes are recorded in row_change. Granted to no one.';
comment on column fencing.recorded_table.relation is 'The table, or the root of a partitioned table.';
comment on column fencing.recorded_table.columns is
  'The columns whose values are recorded; null: all, also later ones.';
comment on column fencing.recorded_table.masked is 'The columns of whose values only a keyed hash is recorded.';
comment on column fencing.recorded_table.find_function is 'The generated function of the first trigger.';
comment on column fencing.recorded_table.keep_function is 'The generated function of the second trigger.';
comment on column fencing.recorded_table.recorded_by is 'Who called record_changes() last.';
comment on column fencing.recorded_table.recorded_at is 'When.';
comment on column fencing.recorded_table.numbers is
  'The attribute numbers of columns and of masked then: a column that gets one of the names later is another one.';
comment on column fencing.recorded_table.relation_oid is
  'The table, as a number, which a dump does not translate: a restored table may have other attribute numbers.';

create table if not exists fencing.mask_key (
  singleton boolean primary key default true check (singleton),
  inner_pad bytea not null check (length(inner_pad) = 64),
  outer_pad bytea not null check (length(outer_pad) = 64)
);
comment on table fencing.mask_key is
  'The key of the hashes of masked values, in the form of proof_key. Who reads it can try values. '
  'Granted to no one; a dump that contains it is a secret.';
comment on column fencing.mask_key.singleton is 'Keeps the table at one row.';
comment on column fencing.mask_key.inner_pad is 'As in proof_key.';
comment on column fencing.mask_key.outer_pad is 'As in proof_key.';
insert into fencing.mask_key (inner_pad, outer_pad)
select fencing.hmac_pad(k.key, 54), fencing.hmac_pad(k.key, 92)
  from (select sha256(convert_to(gen_random_uuid()::text || gen_random_uuid()::text || gen_random_uuid()::text, 'UTF8'))
      as key offset 0) k
on conflict do nothing;

create or replace function fencing.masked_value(value text) returns jsonb
language sql stable strict
set search_path = pg_catalog, pg_temp
as $$
  select jsonb_build_object('masked', encode(sha256(k.outer_pad || sha256(k.inner_pad || convert_to(value, 'UTF8'))),
      'hex')) from fencing.mask_key k;
$$;
comment on function fencing.masked_value(text) is
  'What row_change has of a value of a masked column: its HMAC-SHA256, equal for equal values of all tables. '
  'For the role that installed the schema, to look for a value. Locks: none.';

create or replace function fencing.bounded_value(value text) returns jsonb
language sql stable
as $$  -- no search_path of its own, so that it is inlined; therefore every name is qualified
  select case when pg_catalog.octet_length(value) operator(pg_catalog.<=) 8192 then pg_catalog.to_jsonb(value)
              else pg_catalog.jsonb_build_object('left_out_bytes', pg_catalog.octet_length(value), 'sha256',
                  pg_catalog.encode(pg_catalog.sha256(pg_catalog.convert_to(value, 'UTF8')), 'hex')) end;
$$;
comment on function fencing.bounded_value(text) is
  'What row_change has of a value: its text, or of more than 8 KiB the length and the hash. Locks: none.';

create or replace function fencing.write_under_way(entered_write uuid, resource text, fencing_token bigint) returns uuid
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  changing constant uuid := substring(current_setting('fencing.changing_write_id', true)
      from '^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$');
begin
  if changing <> entered_write and exists (
      select from fencing.history h
       where h.write_id = changing and h.at >= transaction_timestamp()
         and h.at < transaction_timestamp() + interval '168 hours' and h.event = 'write_applied'
         and h.resource = write_under_way.resource and h.fencing_token = write_under_way.fencing_token) then
    return changing;
  end if;
  return entered_write;
end
$$;
comment on function fencing.write_under_way(uuid, text, bigint) is
  'Of several writes under one token, of which the first has entered the resource, the one that the gateway has named '
  'in fencing.changing_write_id, if it is one of them; else the first. Locks: none.';

create or replace function fencing.writes_of(resources text[])
  returns table (resource text, fencing_token bigint, write_id uuid, principal text, direct boolean, application text)
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
as $$  -- plpgsql, because it caches the plan
#variable_conflict use_column
declare
  write uuid := substring(current_setting('fencing.write_id', true)
      from '^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$');
  caller text;
begin
  -- A subquery with a limit is always answered by one probe of the primary key, whatever the statistics say.
  return query
    select t.resource, g.token,
           fencing.write_under_way(g.entered_write, t.resource, g.token),
           case when g.entered_write is null then session_user else g.entered_by end, g.entered_write is null,
           case when g.entered_write is null then left(current_setting('application_name', true), 64) end
      from unnest(resources) as t (resource)
           left join lateral
           (select coalesce(o.entered_token, o.last_fencing_token) as token, o.entered_write, o.entered_by
              from fencing.guard o
             where o.resource = t.resource collate "C" and o.entered_xid = pg_current_xact_id_if_assigned()
               and o.entered_at = transaction_timestamp() limit 1) g on true
     where t.resource <> '';
  if '' = any (resources) then  -- in mode observe, a row that has none: by the write under way, if any
    if write is not null then
      select g.entered_by, fencing.write_under_way(write, g.resource, g.entered_token) into caller, write
        from fencing.history h cross join lateral
             (select o.* from fencing.guard o
               where o.resource = h.resource and o.entered_write = write
                 and o.entered_xid = pg_current_xact_id_if_assigned() and o.entered_at = transaction_timestamp()
               limit 1) g
       where h.write_id = write and h.at >= transaction_timestamp()
         and h.at < transaction_timestamp() + interval '168 hours' limit 1;
      if found then
        return query select '', null::bigint, write, caller, false, null::text;
        return;
      end if;
    end if;
    return query select '', null::bigint, null::uuid, session_user::text, true,
        left(current_setting('application_name', true), 64);
  end if;
end
$$;
comment on function fencing.writes_of(text[]) is
  'For each resource by which write this transaction changes it: that of a gateway, or direct SQL; for an empty text '
  'the write under way. Locks: none.';

create or replace function fencing.recorded_columns(recorded fencing.recorded_table)
  returns table (name text, place bigint, is_key boolean, is_recorded boolean, is_masked boolean)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select a.attname::text, row_number() over (order by a.attnum), k.is_key,
         coalesce(a.attname = any (recorded.columns), true), a.attname = any (recorded.masked)
    from pg_attribute a
         cross join lateral (select exists (select from pg_index i where i.indrelid = a.attrelid and i.indisprimary
             and a.attnum = any ((i.indkey::smallint[])[0:i.indnkeyatts - 1])) as is_key) k
   where a.attrelid = recorded.relation and a.attnum > 0 and not a.attisdropped and a.attgenerated <> 'v'
     and (k.is_key or recorded.columns is null or a.attname = any (recorded.columns));
$$;
comment on function fencing.recorded_columns(fencing.recorded_table) is
  'The columns of a table that its second trigger reads. Locks: none.';

create or replace function fencing.column_numbers(relation regclass, names text[]) returns smallint[]
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select array(
    select a.attnum from unnest(names) with ordinality as n (name, place)
      left join pg_attribute a on a.attrelid = relation and a.attname = n.name and a.attnum > 0 and not a.attisdropped
     order by n.place);
$$;
comment on function fencing.column_numbers(regclass, text[]) is
  'The attribute numbers of the columns of these names; null for a name that no column has. Locks: none.';

create or replace function fencing.recorded_source(recorded fencing.recorded_table, by_row boolean, image text)
  returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select case when by_row then format('(select %s, 1::bigint as place)', string_agg(
                format('%s.%I as c%s', image, c.name, c.place), ', ' order by c.place))
              else format('(select %s, row_number() over () as place from fencing_%s as r)', string_agg(
                format('r.%I as c%s', c.name, c.place), ', ' order by c.place), image) end
    from fencing.recorded_columns(recorded) c;
$$;
comment on function fencing.recorded_source(fencing.recorded_table, boolean, text) is
  'The rows before (image: old) or after (new) a statement as a subquery: their columns as c1, c2 and so on, numbered. '
  'PostgreSQL stores both rows of an update at the same place of the two transition tables. Locks: none.';

create or replace function fencing.value_of(alias text, place bigint, is_masked boolean) returns text
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
  select format($e$case when num_nulls(%1$s%2$s) = 0 then fencing.%3$s(format('%%s', %1$s%2$s)) end$e$, alias, place,
                case when is_masked then 'masked_value' else 'bounded_value' end);
$$;
comment on function fencing.value_of(text, bigint, boolean) is
  'The value of a column as row_change has it, as an expression; null where the column is null, '
  'and not where it is a row of nulls. Locks: none.';

create or replace function fencing.values_of(recorded fencing.recorded_table, alias text, of_key boolean) returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$  -- a call takes 100 arguments
  select coalesce(string_agg(format('jsonb_build_object(%s)', p.pairs), ' || '), 'null::jsonb')
    from (select string_agg(format('%L, %s', c.name, fencing.value_of(alias, c.place, c.is_masked)), ', ') as pairs
            from fencing.recorded_columns(recorded) c
           where case when of_key then c.is_key else c.is_recorded end
           group by c.place / 40) p;
$$;
comment on function fencing.values_of(fencing.recorded_table, text, boolean) is
  'The recorded columns, or those of the key, as an expression of type jsonb. Locks: none.';

create or replace function fencing.keep_body(recorded fencing.recorded_table, by_row boolean) returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $body$  -- format() reads no text twice, so that a column's name can't become code
  select format($f$
declare
  before     constant text[] := nullif(current_setting('fencing.rows_before', true), '');
  after      constant text[] := nullif(current_setting('fencing.rows_after', true), '');
  emptied    constant text := set_config('fencing.rows_before', '', true) || set_config('fencing.rows_after', '', true);
  one_before constant text := case when cardinality(before) = 1 then before[1] end;
  one_after  constant text := case when cardinality(after) = 1 then after[1] end;
  resources  constant text[] := array(
    select distinct r from unnest(coalesce(nullif(before || after, '{}'), '{""}')) as t (r));
  root       constant regclass := pg_partition_root(tg_relid);
  name       constant text := coalesce(root, tg_relid::regclass)::text;
begin
  if tg_op = 'INSERT' then
    %1$s
    select name, 'insert', %5$s, null, %6$s, %2$s
      from (select n.*, coalesce(one_after, a.resource, '') as resource from %3$s as n
             left join unnest(after) with ordinality as a (resource, place) on a.place = n.place) as n
           left join fencing.writes_of(resources) as w on w.resource = n.resource
     order by n.place;
  elsif tg_op = 'DELETE' then
    %1$s
    select name, 'delete', %7$s, %8$s, null, %2$s
      from (select o.*, coalesce(one_before, b.resource, '') as resource from %4$s as o
             left join unnest(before) with ordinality as b (resource, place) on b.place = o.place) as o
           left join fencing.writes_of(resources) as w on w.resource = o.resource
     order by o.place;
  else
    %1$s
    select name, m.operation, m.row_key, m.old, m.new, %2$s
      from (select o.place, %9$s, coalesce(one_before, b.resource, '') as old_resource,
                   coalesce(one_after, a.resource, '') as new_resource, %10$s as has_other_key
              from %4$s as o join %3$s as n on n.place = o.place
             left join unnest(before) with ordinality as b (resource, place) on b.place = o.place
             left join unnest(after) with ordinality as a (resource, place) on a.place = n.place offset 0) as p
           cross join lateral
           (select 'update' as operation, %12$s as row_key, d.old, d.new, p.new_resource as resource
              from (select jsonb_object_agg(t.name, t.old) as old, jsonb_object_agg(t.name, t.new) as new
                      from (values %11$s) as t (name, differs, old, new) where t.differs) as d
             where d.old is not null and not p.has_other_key and p.old_resource = p.new_resource
            union all
            select 'delete', %13$s, %14$s, null, p.old_resource
             where p.has_other_key or p.old_resource <> p.new_resource
            union all
            select 'insert', %12$s, null, %15$s, p.new_resource
             where p.has_other_key or p.old_resource <> p.new_resource) as m
           left join fencing.writes_of(resources) as w on w.resource = m.resource
     order by p.place, m.operation;
  end if;
  return null;
end
$f$,
    'insert into fencing.row_change (relation, operation, row_key, old, new, resource, fencing_token, write_id, '
      'principal, direct, application)',
    'nullif(w.resource, ''''), w.fencing_token, w.write_id, coalesce(w.principal, session_user), '
      'coalesce(w.direct, true), w.application',
    fencing.recorded_source(recorded, by_row, 'new'), fencing.recorded_source(recorded, by_row, 'old'),
    fencing.values_of(recorded, 'n.c', true), fencing.values_of(recorded, 'n.c', false),
    fencing.values_of(recorded, 'o.c', true), fencing.values_of(recorded, 'o.c', false),
    c.pair, c.moved, c.differences,
    fencing.values_of(recorded, 'p.n', true), fencing.values_of(recorded, 'p.o', true),
    fencing.values_of(recorded, 'p.o', false), fencing.values_of(recorded, 'p.n', false))
    from (select string_agg(format('o.c%1$s as o%1$s, n.c%1$s as n%1$s, '
              'record_image_ne(row(o.c%1$s), row(n.c%1$s)) as d%1$s', c.place), ', ' order by c.place) as pair,
            coalesce(string_agg(format('record_image_ne(row(o.c%1$s), row(n.c%1$s))', c.place), ' or ' order by c.place)
              filter (where c.is_key), 'false') as moved,
            string_agg(format('(%1$L::text, p.d%2$s, case when p.d%2$s then %3$s end, case when p.d%2$s then %4$s end)',
                c.name, c.place, fencing.value_of('p.o', c.place, c.is_masked),
                fencing.value_of('p.n', c.place, c.is_masked)), ', ' order by c.place)
              filter (where c.is_recorded) as differences
            from fencing.recorded_columns(recorded) c) c
$body$;
comment on function fencing.keep_body(fencing.recorded_table, boolean) is
  'The body of the function of the second trigger, for the columns that the table has now. Locks: none.';

create or replace function fencing.stopped_body() returns text
language sql immutable
set search_path = pg_catalog, pg_temp
as $body$
  values ($f$
begin
  raise exception using errcode = '42703', message = format('changes of %s can''t be recorded: a column that '
      'record_changes() names was renamed or dropped; fencing.record_changes() has to be called again',
      tg_relid::regclass),
    hint = 'Call it in the transaction that renames or drops the column.';
end
$f$)
$body$;
comment on function fencing.stopped_body() is
  'The body of the function of the first trigger while a named column is not the one that record_changes() found, '
  'so that what is to be masked is not recorded under another name. Locks: none.';

create or replace function fencing.find_body(recorded fencing.recorded_table, by_row boolean) returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $body$
  select format($f$
#variable_conflict use_column
declare
  before      text[];
  after       text[];
  result      text;
  fencing_row record;
begin
  begin
    if tg_op <> 'INSERT' then
      perform from %1$s as r limit 0;
    end if;
    if tg_op <> 'DELETE' then
      perform from %2$s as r limit 0;
    end if;
  exception when undefined_column then
    raise exception using errcode = sqlstate,
      message = format('changes of %%s can''t be recorded: %%s; fencing.record_changes() has to be called again',
        tg_relid::regclass, sqlerrm),
      hint = 'If a column was renamed or dropped, call fencing.record_changes() again in the transaction that does it.';
  end;%3$s
  if tg_op <> 'INSERT' then
    %5$s
  end if;
  if tg_op <> 'DELETE' then
    %6$s
  end if;%4$s
  if before[1] = all (before) then
    before := before[1:1];
  end if;
  if after[1] = all (after) then
    after := after[1:1];
  end if;
  result := set_config('fencing.rows_before', coalesce(before::text, ''), true)
    || set_config('fencing.rows_after', coalesce(after::text, ''), true);
  return null;
end
$f$,
    fencing.recorded_source(recorded, by_row, 'old'), fencing.recorded_source(recorded, by_row, 'new'),
    case p.mode when 'observe' then E'\n  begin' end,
    case p.mode when 'observe' then E'\n  exception when others or assert_failure then\n    before := ''{}'';\n'
      '    after := ''{}'';\n  end;' end,
    p.before, p.after)
    from (select q.mode, format(q.assign, 'before', 'old') as before, format(q.assign, 'after', 'new') as after
            from (select x.mode,
                    case when by_row
                           then format('fencing_row := %%2$s; '
                               '%%1$s := array(select %s from (select (%s) as resource) t);', x.bounded, x.expression)
                         else format('%%1$s := array(select %s from (select (%s) as resource from fencing_%%2$s '
                               'as fencing_row) t);', x.bounded, x.expression) end as assign
                    from (select q.mode, replace(fencing.bounded_text_of('t.resource'), '%', '%%') as bounded,
                            replace(q.row_expression, '%', '%%') as expression
                            from fencing.protected q where q.relation = recorded.relation) x) q) p
$body$;
comment on function fencing.find_body(fencing.recorded_table, boolean) is
  'The body of the function of the first trigger: each row''s resource by the expression of protect(). '
  'In mode observe it refuses nothing. Locks: none.';
