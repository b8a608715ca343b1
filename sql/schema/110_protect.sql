-- protect and unprotect: from now on the rows of a table change only in a transaction that entered their resource.

create sequence if not exists fencing.check_id_seq as bigint;
comment on sequence fencing.check_id_seq is 'Numbers the check functions, so that a name is never used twice, not even after a dump was restored.';

create table if not exists fencing.protected (
  relation            regclass primary key,
  resource_expression text not null,
  mode                text not null check (mode in ('enforce', 'observe')),
  check_function      name not null,
  protected_at        timestamptz not null default clock_timestamp(),
  protected_by        text not null default session_user
);
comment on table fencing.protected is 'What is protected, and how. The triggers on the tables do the work; this is the operator''s list.';
comment on column fencing.protected.relation is 'The table, or the root of a partitioned table.';
comment on column fencing.protected.resource_expression is 'Gives the resource of a row from its columns.';
comment on column fencing.protected.mode is 'enforce refuses; observe records what it would have refused and lets it through.';
comment on column fencing.protected.check_function is 'The trigger function in this schema that protect() generated for the table.';
comment on column fencing.protected.protected_at is 'When protect() was last called.';
comment on column fencing.protected.protected_by is 'Who called it.';

create or replace function fencing.require_protectable(relation regclass) returns void
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  class pg_class;
begin
  select * into class from pg_class where oid = relation;
  if not found then
    raise exception using errcode = '42P01', message = 'no such table';
  elsif class.relkind not in ('r', 'p') or class.relpersistence = 't' then
    raise exception using errcode = '42809', message = format('%s is not an ordinary or partitioned table', relation),
      hint = 'Protect the tables below a view; writes through the view are checked there.';
  elsif class.relnamespace in ('pg_catalog'::regnamespace, 'fencing'::regnamespace) then
    raise exception using errcode = '42809', message = format('%s belongs to the system', relation);
  elsif class.relispartition then
    raise exception using errcode = '42809', message = format('%s is a partition', relation),
      hint = 'Protect the partitioned table at its root: that covers every partition, also against direct writes.';
  elsif class.relkind = 'r' and exists (select from pg_inherits i where relation in (i.inhparent, i.inhrelid)) then
    raise exception using errcode = '0A000', message = format('%s takes part in table inheritance, which is not supported', relation);
  end if;
end
$$;
comment on function fencing.require_protectable(regclass) is 'Raises 42P01, 42809 or 0A000 unless this is an ordinary table or the root of a partitioned one. Locks: none.';

create or replace function fencing.require_resource_expression(relation regclass, resource_expression text) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  found_type oid;
  hint constant text := 'Immutable, over columns of the table alone, of type text; numbers as id::text, functions with their schema. For example ''orders/'' || id::text';
begin
  execute format('create temporary table fencing_probe (like %s) on commit drop', relation);
  begin
    -- An index takes exactly what is wanted here: an immutable expression over the columns of one row.
    execute format(E'create index fencing_probe_expression on pg_temp.fencing_probe ((%s\n))', resource_expression);
  exception when others then
    raise exception using errcode = '22023', message = format('the resource expression of %s can''t be used: %s', relation, sqlerrm),
      detail = resource_expression, hint = hint;
  end;
  select a.atttypid into found_type from pg_attribute a where a.attrelid = 'pg_temp.fencing_probe_expression'::regclass and a.attnum = 1;
  drop table pg_temp.fencing_probe;
  if found_type <> 'text'::regtype then
    raise exception using errcode = '22023', message = format('the resource expression of %s gives %s, not text', relation, format_type(found_type, null)),
      detail = resource_expression, hint = hint;
  end if;
end
$$;
comment on function fencing.require_resource_expression(regclass, text) is
  'Raises 22023 with the reason unless the expression is immutable, over the table''s own columns, of type text. Locks: the table, access share.';

create or replace function fencing.code_rights(relation regclass) returns table (target regclass, privilege text, grantee text)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select distinct c.oid::regclass, lower(a.privilege_type), case a.grantee when 0 then 'public' else a.grantee::regrole::text end
    from (select $1::oid as oid union select p.relid from pg_partition_tree($1) p) t
    join pg_class c on c.oid = t.oid
    cross join lateral (select * from aclexplode(c.relacl)
                        union all select x.* from pg_attribute b cross join aclexplode(b.attacl) x where b.attrelid = c.oid) a
   where a.privilege_type in ('TRIGGER', 'REFERENCES') and a.grantee <> c.relowner;
$$;
comment on function fencing.code_rights(regclass) is
  'Who but the owner has TRIGGER or REFERENCES on the table or its partitions. Triggers, and those of tables that a foreign key''s cascade reaches, run with the rights of whoever writes, '
  'and a gateway may lower fences. Locks: none.';

create or replace function fencing.take_code_rights(relation regclass) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  item record;
begin
  for item in select * from fencing.code_rights(relation) loop
    execute format('revoke %s on %s from %s cascade', item.privilege, item.target, item.grantee);
    raise notice 'fencing: the privilege % on % was taken from %, who could run code as whoever writes', item.privilege, item.target, item.grantee;
  end loop;
end
$$;
comment on function fencing.take_code_rights(regclass) is 'Takes what code_rights() names. Locks: none.';

create or replace function fencing.remove_checks(relation regclass) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  item record;
begin
  for item in
    select t.tgrelid::regclass as target, t.tgname
      from pg_trigger t
     where t.tgrelid in (select relation union select p.relid from pg_partition_tree(relation) p)
       and t.tgname like 'fencing\_check\_%'
     order by t.tgrelid <> relation, t.tgrelid, t.tgname  -- the root first: its row triggers take their clones along
  loop
    execute format('drop trigger if exists %I on %s', item.tgname, item.target);
  end loop;
  -- Check functions of this table, and of tables that were dropped.
  for item in
    delete from fencing.protected p
     where p.relation = remove_checks.relation or not exists (select from pg_class c where c.oid = p.relation)
    returning p.check_function
  loop
    execute format('drop function if exists fencing.%I()', item.check_function);
  end loop;
end
$$;
comment on function fencing.remove_checks(regclass) is 'Drops the triggers that protect() made and their function. Locks: the table and its partitions, access exclusive.';

create or replace function fencing.protect(relation regclass, resource_expression text, mode text default 'enforce') returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
  class pg_class;
  check_function name;
begin
  if mode is null or mode not in ('enforce', 'observe') then
    raise exception using errcode = '22023', message = format('mode is enforce or observe, not %s', coalesce(mode, 'null'));
  end if;
  perform fencing.require_protectable(relation);
  execute format('lock table %s in access exclusive mode', relation);
  perform fencing.require_resource_expression(relation, resource_expression);
  perform fencing.remove_checks(relation);
  select * into class from pg_class where oid = relation;
  check_function := format('check_%s_%s', nextval('fencing.check_id_seq'), left(class.relname, 30));
  if class.relkind = 'p' then
    perform fencing.create_row_checks(relation, resource_expression, mode, check_function);
  else
    perform fencing.create_statement_checks(relation, resource_expression, mode, check_function);
  end if;
  perform fencing.create_truncate_checks(relation, mode);
  perform fencing.take_code_rights(relation);
  insert into fencing.protected (relation, resource_expression, mode, check_function)
  values (relation, resource_expression, mode, check_function);
end
$$;
comment on function fencing.protect(regclass, text, text) is
  'From the commit on, rows of the table change only in a transaction that entered their resource, old and new row alike; TRUNCATE is refused. Whoever connects, '
  'also where session_replication_role = replica. Mode observe lets all through and records it as write_rejected with detail.observed = true. '
  'Takes the privileges TRIGGER and REFERENCES from everyone but the owner. To be called again after a change of the expression, the mode or a column''s name. A partitioned table is protected at its root: every partition is covered, also against direct writes, '
  'also those attached later; only TRUNCATE of a partition attached later is not refused until protect() is called again. '
  'The caller installed the schema and owns the table. SQLSTATE 22023: the expression can''t be used or the mode is unknown; 42809, 0A000: not a table that can be protected. '
  'Locks until the end of the transaction: the table and its partitions, access exclusive.';

create or replace function fencing.unprotect(relation regclass) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  execute format('lock table %s in access exclusive mode', relation);
  perform fencing.remove_checks(relation);
end
$$;
comment on function fencing.unprotect(regclass) is
  'Removes all that protect() made; does nothing where nothing is protected. The fences stay. Locks until the end of the transaction: the table and its partitions, access exclusive.';
