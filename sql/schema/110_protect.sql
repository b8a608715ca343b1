-- protect and unprotect: the rows of a protected table change only in a transaction that entered their resource.

create sequence if not exists fencing.check_id_seq as bigint;
comment on sequence fencing.check_id_seq is
  'Numbers the check functions, so that no name is used twice, even after a dump was restored.';

create table if not exists fencing.protected (
  relation            regclass primary key,
  resource_expression text not null,
  mode                text not null check (mode in ('enforce', 'observe')),
  check_function      name not null,
  protected_at        timestamptz not null default clock_timestamp(),
  protected_by        text not null default session_user,
  relation_name       text not null,
  expression_objects  text[],
  row_expression      text not null
);
comment on table fencing.protected is
  'The protected tables. The triggers on the tables do the checks; '
  'this is the list for the operator and for guard_faults().';
comment on column fencing.protected.relation is 'The table, or the root of a partitioned table.';
comment on column fencing.protected.resource_expression is 'Computes the resource of a row from its columns.';
comment on column fencing.protected.mode is
  'enforce refuses changes that are not covered; observe allows and records them.';
comment on column fencing.protected.check_function is
  'The trigger function in this schema that protect() generated for the table.';
comment on column fencing.protected.protected_at is 'When protect() was last called.';
comment on column fencing.protected.protected_by is 'Who called it.';
comment on column fencing.protected.relation_name is
  'The table''s name at that time, with its schema: a new table of the same name is not protected.';
comment on column fencing.protected.expression_objects is
  'Functions, operators and types that the expression uses, except PostgreSQL''s own, as kind and identity.';
comment on column fencing.protected.row_expression is
  'The expression as PostgreSQL prints it, over a row called fencing_row: what the check function evaluates.';

create table if not exists fencing.former_name (
  relation regclass,
  name     text,
  primary key (relation, name)
);
comment on table fencing.former_name is
  'The names under which protected tables were protected before they were renamed: a table created under such a name '
  'is not protected, although its users may take it for the protected one. Granted to no one.';
comment on column fencing.former_name.relation is 'The protected table.';
comment on column fencing.former_name.name is
  'Its name before, with its schema, until another table of this name is protected '
  'or unprotect() is called for the protected one.';

create table if not exists fencing.unprotected (
  relation       regclass primary key,
  was            text,
  unprotected_at timestamptz not null default clock_timestamp(),
  unprotected_by text not null default session_user
);
comment on table fencing.unprotected is
  'The tables that unprotect() was called for and that are open since: guard_state() names them '
  'until protect() is called, or unprotect() for good. Granted to no one.';
comment on column fencing.unprotected.relation is 'The table.';
comment on column fencing.unprotected.was is
  'The mode before; null where it was not on the list of protected tables.';
comment on column fencing.unprotected.unprotected_at is 'When unprotect() was called.';
comment on column fencing.unprotected.unprotected_by is 'Who called it.';

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
  elsif exists (select from (select relation::oid union select p.relid from pg_partition_tree(relation) p) t (oid)
      join pg_class c on c.oid = t.oid and c.relpersistence = 'u') then
    raise exception using errcode = '42809', message = format('%s is unlogged: a crash of PostgreSQL would empty it',
        relation), hint = 'alter table ... set logged';
  elsif exists (select from pg_partition_tree(relation) p join pg_class c on c.oid = p.relid and c.relkind = 'f') then
    raise exception using errcode = '42809',
      message = format('%s has a foreign table as a partition, whose rows can be changed at its server', relation);
  elsif class.relnamespace in ('pg_catalog'::regnamespace, 'fencing'::regnamespace) then
    raise exception using errcode = '42809', message = format('%s belongs to the system', relation);
  elsif class.relispartition then
    raise exception using errcode = '42809', message = format('%s is a partition', relation),
      hint = 'Protect the partitioned table at its root: that covers every partition, also against direct writes.';
  elsif class.relkind = 'r' and exists (select from pg_inherits i where relation in (i.inhparent, i.inhrelid)) then
    raise exception using errcode = '0A000',
      message = format('%s takes part in table inheritance, which is not supported', relation);
  end if;
end
$$;
comment on function fencing.require_protectable(regclass) is
  'Raises 42P01, 42809 or 0A000 unless this is an ordinary table or the root of a partitioned one. Locks: none.';

create or replace function fencing.run_as_table_owner(relation regclass, probe name, settings text, body text)
  returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  table_owner constant name := (select r.rolname from pg_class c join pg_roles r on r.oid = c.relowner
      where c.oid = relation);
begin
  execute format('create table %I.start as select 1 as n', probe);
  execute format('create function %I.run() returns void language plpgsql %s as %L', probe, settings, body);
  execute format('create function %I.started(n integer) returns integer immutable language plpgsql '
      'set search_path = pg_catalog, pg_temp as %L', probe, format('begin perform %I.run(); return n; end', probe));
  execute format('grant usage, create on schema %I to %I', probe, table_owner);
  execute format('grant execute on function %1$I.run(), %1$I.started(integer) to %2$I', probe, table_owner);
  if table_owner <> current_user then
    execute format('alter table %I.start owner to %I', probe, table_owner);
  end if;
  execute format('create index on %1$I.start (%1$I.started(n))', probe);
end
$$;
comment on function fencing.run_as_table_owner(regclass, name, text, text) is
  'Runs the body of a function, with these settings, while PostgreSQL builds an index of a table that the owner '
  'of the relation has in the new schema probe: with that owner''s rights, in an operation that its code can''t leave '
  '(no other role, nothing deferred to the end of the transaction). Raises what the body raises. Locks: none.';

create or replace function fencing.parse_expression(relation regclass, resource_expression text, probe name)
  returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  execute format('create schema %I', probe);
  execute format('create table %I.fencing_probe (like %s)', probe, relation);
  if (select c.relowner <> quote_ident(current_user)::regrole from pg_class c where c.oid = relation) then
    execute format('alter table %I.fencing_probe owner to %s', probe,
        (select c.relowner::regrole from pg_class c where c.oid = relation));
  end if;
  -- A view says what an expression uses. With two relations in it, PostgreSQL prints each column with the name
  -- of its relation. An index takes exactly what is wanted here: an immutable expression over the columns of one row.
  perform fencing.run_as_table_owner(relation, probe, 'set search_path = pg_catalog, pg_temp', format(
    E'begin execute %L; execute %L; end',
    format(E'create view %I.result as select (%s\n) is null as probe from %I.fencing_probe as fencing_row '
      'cross join (values (1)) as fencing_other (fencing_other)', probe, resource_expression, probe),
    format(E'create index expression on %I.fencing_probe ((%s\n))', probe, resource_expression)));
end
$$;
comment on function fencing.parse_expression(regclass, text, name) is
  'Creates the schema probe with a view and an index over the expression: probe.result, probe.expression. Already '
  'parsing runs code, which the table''s owner may have made: a constant of a domain evaluates its constraints. '
  'So both are created by run_as_table_owner. Raises what parsing raises. Locks: the table, access share.';

create or replace function fencing.require_resource_expression(relation regclass, resource_expression text,
    out objects text[], out row_expression text)
language plpgsql
set search_path = pg_catalog, pg_temp
set client_min_messages = warning  -- not what is dropped with the schema
set standard_conforming_strings = on  -- as in the check function, for which the expression is printed
as $$
declare
  found_type oid;
  other record;
  result regclass;
  probe constant name := 'fencing_probe_' || replace(gen_random_uuid()::text, '-', '');
  hint constant text := 'Immutable, over columns of the table alone, of type text; '
    'numbers as id::text, functions with their schema. For example ''orders/'' || id::text';
begin
  begin
    perform fencing.parse_expression(relation, resource_expression, probe);
    result := format('%I.result', probe)::regclass;  -- it has the table's owner
    if (select count(*) from pg_attribute a where a.attrelid = result and a.attnum > 0) <> 1 then
      raise exception using message = 'it has several values';
    end if;
    objects := array(select o.object from fencing.code_objects(array[result::oid]) o order by o.object);
    select o.object, f.owner into other
      from unnest(objects) as o (object) cross join lateral fencing.foreign_owner(o.object, relation) f (owner)
      where f.owner is not null limit 1;
    if found then
      raise exception using message = format('%s belongs to %s, who could run code with the rights of the writing role',
          other.object, other.owner);
    end if;
    select a.attname into other  -- of the probe each column is an ordinary one
      from pg_rewrite w join pg_depend d on d.classid = 'pg_rewrite'::regclass and d.objid = w.oid
        and d.refclassid = 'pg_class'::regclass
           join pg_attribute p on p.attrelid = d.refobjid and p.attnum = d.refobjsubid
           join pg_attribute a on a.attrelid = relation and a.attname = p.attname and a.attgenerated = 'v'
     where w.ev_class = result limit 1;
    if found then
      raise exception using message = format('the column %s is virtual, and triggers do not have its value',
          other.attname);
    end if;
  exception when others then
    raise exception using errcode = '22023',
      message = format('the resource expression of %s can''t be used: %s', relation, sqlerrm),
      detail = coalesce(resource_expression, 'null'), hint = case when sqlstate = '42704' and sqlerrm ~ '\munknown\M'
        then 'A constant is written with its type, for example ''jobs/all''::text' else hint end;
  end;
  -- Printed, the expression means the same under every setting of the session.
  row_expression := substring(pg_get_viewdef(result) from '^ *SELECT [(](.*) IS NULL[)] AS probe[[:space:]]+FROM ');
  select a.atttypid into found_type from pg_attribute a where a.attrelid = format('%I.expression', probe)::regclass
    and a.attnum = 1;
  execute format('drop schema %I cascade', probe);
  if found_type <> 'text'::regtype then
    raise exception using errcode = '22023',
      message = format('the resource expression of %s gives %s, not text', relation, format_type(found_type, null)),
      detail = coalesce(resource_expression, 'null'), hint = hint;
  end if;
end
$$;
comment on function fencing.require_resource_expression(regclass, text) is
  'Raises 22023 with the reason unless the expression is immutable, uses only the table''s own columns, none of them '
  'virtual, and is of type text, and uses only objects of the owners of the schema and of the table and of superusers. '
  'Returns those objects, and the expression over a row called fencing_row. Locks: the table, access share.';

create or replace function fencing.require_names(relation regclass, row_expression text, mode text) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set client_min_messages = warning  -- not what is dropped with the schema
as $$
declare
  probe constant name := 'fencing_probe_' || replace(gen_random_uuid()::text, '-', '');
  nameless bigint;
  example text[];  -- why it is no name, and the text
  fault text;
  hint text;
begin
  begin
    execute format('create schema %I', probe);
    execute format('create table %I.found (nameless bigint, example text[])', probe);
    execute format('grant insert on %I.found to %s', probe,
        (select c.relowner::regrole from pg_class c where c.oid = relation));
    perform fencing.run_as_table_owner(relation, probe, fencing.check_setting_clauses(), format(
      'begin insert into %I.found select count(*), min(array[t.fault, %s]) from (select r.resource, %s as fault '
      'from (select (%s) collate "C" as resource from %s as fencing_row offset 0) r offset 0) t '
      'where t.fault is not null; end',
      probe, fencing.bounded_text_of('t.resource'), fencing.name_fault_of('r.resource'), row_expression, relation));
    execute format('select f.nameless, f.example from %I.found f', probe) into nameless, example;
    execute format('drop schema %I cascade', probe);
    if nameless > 0 then
      fault := format('no resource can have the name that the expression gives %s of %s, for example %s, which %s',
          nameless || case nameless when 1 then ' row' else ' rows' end, relation,
                      coalesce(quote_literal(nullif(example[2], '')), 'null'), example[1]);
      hint := fencing.name_hint(relation);
    end if;
  exception when others or assert_failure then
    fault := format('the resource expression of %s can''t be computed for every row: %s', relation, sqlerrm);
    hint := 'Nobody could change the row. Correct it, or use another expression.';
  end;
  if fault is null then
    return;
  elsif mode = 'observe' then
    raise warning using message = fault, hint = hint;
  else
    raise exception using errcode = '22023', message = fault, hint = hint;
  end if;
end
$$;
comment on function fencing.require_names(regclass, text, text) is
  'Raises 22023, or a warning for mode observe, if the expression gives a row of the table no valid name, '
  'with their number and one of them. It is evaluated by run_as_table_owner. Locks: the table, access share.';

create or replace function fencing.changed_relations(relations oid[]) returns setof oid
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  with recursive reached (oid) as (
    select c.oid from pg_class c where c.oid = any ($1)
    union
    select c.oid
      from reached r
           cross join lateral (select i.inhrelid from pg_inherits i where i.inhparent = r.oid
                               union all
                               select k.conrelid from pg_constraint k where k.confrelid = r.oid and k.contype = 'f'
                                 and (k.confdeltype not in ('a', 'r') or k.confupdtype not in ('a', 'r'))
                               union all
                               select d.refobjid
                                 from pg_rewrite w join pg_depend d on d.classid = 'pg_rewrite'::regclass
                                   and d.objid = w.oid and d.refclassid = 'pg_class'::regclass
                                      join pg_class v on v.oid = d.refobjid
                                where w.ev_class = r.oid and (w.ev_type <> '1' or v.relkind = 'v'
                                    or pg_relation_is_updatable(r.oid, false) <> 0)) x (oid)
           join pg_class c on c.oid = x.oid and c.oid >= 16384 and c.relkind in ('r', 'p', 'v', 'f')
  )
  select * from reached;
$$;
comment on function fencing.changed_relations(oid[]) is
  'These relations, and those in which a change of them may change rows, so that their triggers run: partitions '
  'and other children, tables whose foreign key has an action, what rules name, views below a view, and what a view '
  'shows that can be written; and from each of them on. What functions change is not among them. Locks: none.';

create or replace function fencing.code_rights(relations oid[])
  returns table (target regclass, privilege text, grantee text)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select distinct c.oid::regclass, lower(a.privilege_type),
    case a.grantee when 0 then 'public' else a.grantee::regrole::text end
    from pg_class c
    cross join lateral (select * from aclexplode(c.relacl)
                        union all select x.* from pg_attribute b cross join aclexplode(b.attacl) x
                          where b.attrelid = c.oid) a
   where c.oid = any ($1) and a.privilege_type in ('TRIGGER', 'REFERENCES') and a.grantee <> c.relowner;
$$;
comment on function fencing.code_rights(oid[]) is
  'The roles other than the owner that have TRIGGER or REFERENCES on one of the relations. '
  'Triggers on the changed_relations() of a table run with the rights of the writing role, '
  'and a gateway''s role may lower fences. Locks: none.';

create or replace function fencing.take_code_rights(relation regclass) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  reached constant oid[] := array(select r.oid from fencing.changed_relations(array[relation::oid]) r (oid)
      join pg_class c on c.oid = r.oid join pg_class root on root.oid = relation and root.relowner = c.relowner);
  granted constant jsonb := (select coalesce(jsonb_agg(r order by r.target::text, r.privilege, r.grantee), '[]')
      from fencing.code_rights(reached) r);
  item record;
begin
  for item in select * from fencing.code_rights(reached) loop
    execute format('revoke %s on %s from %s cascade', item.privilege, item.target, item.grantee);
  end loop;
  -- Only now, for one revocation may end the grants of another role with it.
  for item in
    select f.*, exists (select from fencing.code_rights(array[f.target::oid]) r
        where (r.privilege, r.grantee) = (f.privilege, f.grantee)) as is_left
      from jsonb_to_recordset(granted) as f (target regclass, privilege text, grantee text)
  loop
    if item.is_left then
      raise warning 'fencing: % keeps the privilege % on %, '
        'which another role than the owner has granted and has to revoke', item.grantee, item.privilege, item.target;
    else
      raise notice 'fencing: the privilege % on % was revoked from %, '
        'who could run code with the rights of the writing role', item.privilege, item.target, item.grantee;
    end if;
  end loop;
end
$$;
comment on function fencing.take_code_rights(regclass) is
  'Revokes TRIGGER and REFERENCES from all but the owner on the changed_relations() of the same owner. '
  'Triggers that they have created stay. Locks: none.';

create or replace function fencing.remove_checks(relation regclass) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  item record;
  functions name[] := '{}';
begin
  -- The entry first, for what is on the list can't be undone piece by piece (125_openings.sql). With it go those
  -- of tables that were dropped and had this name, and of partitions that were protected by themselves.
  for item in
    delete from fencing.protected p
     where p.relation = remove_checks.relation
        or p.relation in (select t.relid from pg_partition_tree(remove_checks.relation) t)
        or p.relation_name = remove_checks.relation::text
       and not exists (select from pg_class c where c.oid = p.relation)
    returning p.relation, p.mode, p.check_function, p.relation <> remove_checks.relation
      and exists (select from pg_class c where c.oid = p.relation) as is_partition
  loop
    functions := functions || item.check_function;
    if item.is_partition then
      delete from fencing.former_name f where f.relation = item.relation;
      perform fencing.record_guard_change('unprotect', jsonb_build_object('relation', item.relation::regclass::text,
            'was', item.mode));
      perform fencing.end_recording(item.relation);
    end if;
  end loop;
  for item in
    select t.tgrelid::regclass as target, t.tgname
      from pg_trigger t
     where t.tgrelid in (select relation union select p.relid from pg_partition_tree(relation) p)
       and t.tgname ~ '^fencing_(check|verify)_' and t.tgparentid = 0  -- clones go with their triggers
     order by t.tgrelid, t.tgname
  loop
    execute format('drop trigger %I on %s', item.tgname, item.target);
  end loop;
  delete from fencing.recorded_check r
   where r.relation = remove_checks.relation
      or r.relation in (select t.relid from pg_partition_tree(remove_checks.relation) t);
  for item in select f.name from unnest(functions) as f (name) loop
    execute format('drop function if exists fencing.%I()', item.name);
  end loop;
end
$$;
comment on function fencing.remove_checks(regclass) is
  'Drops the triggers that protect() created and their function. Locks: the table, its partitions, access exclusive.';

create or replace function fencing.free_name(relation regclass) returns void
language sql
set search_path = pg_catalog, pg_temp
as $$
  -- No deadlock with another call.
  select from fencing.protected p where p.relation = free_name.relation or p.relation_name = free_name.relation::text
    order by p.relation for update;
  delete from fencing.former_name f where f.name = free_name.relation::text;
  update fencing.protected p set relation_name = p.relation::text
   where p.relation <> free_name.relation and p.relation_name = free_name.relation::text
     and exists (select from pg_class c where c.oid = p.relation);
$$;
comment on function fencing.free_name(regclass) is
  'Ends the reservation of this table''s name for other protected tables, '
  'which had it before they were renamed: protect() and unprotect() say what becomes of the table that has it now. '
  'Locks: the rows of those tables in the list.';

create or replace function fencing.protect(relation regclass, resource_expression text, mode text default 'enforce')
  returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set quote_all_identifiers = off  -- names are stored as text and compared
as $$
#variable_conflict use_variable
declare
  class pg_class;
  check_function name;
  expression record;
  between text;
  was text;
  was_name text;
begin
  if mode is null or mode not in ('enforce', 'observe') then
    raise exception using errcode = '22023',
      message = format('mode is enforce or observe, not %s', coalesce(mode, 'null'));
  end if;
  perform fencing.require_read_committed();
  perform fencing.require_protectable(relation);
  perform fencing.require_owner(relation);
  -- Others read and write while the rows are read.
  execute format('lock table %s in share update exclusive mode', relation);
  perform fencing.require_protectable(relation);  -- what was committed while this call waited for the lock
  expression := fencing.require_resource_expression(relation, resource_expression);
  perform fencing.require_names(relation, expression.row_expression, mode);
  execute format('lock table %s in access exclusive mode', relation);
  select format('%s of %s', b.name, b.relation::regclass) into between
    from fencing.triggers_between(array(select relation::oid union select p.relid from pg_partition_tree(relation) p)) b
   where b.name !~ '^fencing_(check|verify)_' limit 1;  -- those are dropped below
  if found then
    raise exception using errcode = '55000',
      message = format('the trigger %s would run between the checks and could change what they hand on', between),
      hint = 'Rename it, or drop it.';
  end if;
  perform fencing.require_own_code(array[relation::oid]);
  select p.mode, nullif(p.relation_name, relation::text) into was, was_name from fencing.protected p
    where p.relation = relation;
  if was is not null then
    perform fencing.record_faults_of(
      array(select relation::oid union select p.relid from pg_partition_tree(relation) p),
      (select coalesce(jsonb_agg(to_jsonb(f)), '[]') from fencing.table_faults() f), null);
  end if;
  perform fencing.free_name(relation);  -- first, as the entry in remove_checks()
  delete from fencing.unprotected u
   where u.relation = relation or not exists (select from pg_class c where c.oid = u.relation);
  perform fencing.remove_checks(relation);
  select * into class from pg_class where oid = relation;
  check_function := format('check_%s_%s', nextval('fencing.check_id_seq'), left(class.relname, 30));
  perform fencing.create_check_function(check_function, expression.row_expression, class.relkind = 'p', mode);
  perform fencing.create_checks(relation, class.relkind = 'p', mode, check_function);
  perform fencing.create_truncate_checks(relation, mode);
  perform fencing.take_code_rights(relation);
  insert into fencing.protected (relation, resource_expression, mode, check_function, relation_name, expression_objects,
      row_expression)
  values (relation, resource_expression, mode, check_function, relation::text, expression.objects,
      expression.row_expression);
  perform fencing.record_new_checks(
    array(select relation::oid union select p.relid from pg_partition_tree(relation) p));
  perform fencing.renew_recorders(array[relation::oid]);
  perform fencing.apply_clone_privileges(true);
  if was_name is not null then
    insert into fencing.former_name (relation, name) values (relation, was_name) on conflict do nothing;
  end if;
  perform fencing.record_guard_change('protect', jsonb_build_object('relation', relation::text,
        'resource_expression', resource_expression, 'mode', mode, 'was', was, 'renamed_from', was_name));
end
$$;
comment on function fencing.protect(regclass, text, text) is
  'From the commit on, rows of the table change only in a transaction that entered their resource (that of the old '
  'and of the new row); TRUNCATE is refused. This holds for every role, also with session_replication_role = replica. '
  'Mode observe allows such changes and records them as write_rejected with detail.observed = true. '
  'Revokes the privileges TRIGGER and REFERENCES of all roles but the owner. Has to be called again after a change '
  'of the expression, the mode or a column''s name. If the table was renamed, its name before stays reserved: '
  'a table created under it is a fault, until that is protected or unprotect() is called for this one. A partitioned '
  'table is protected at its root: every partition is covered, also against direct writes and if it is attached later. '
  'The expression is evaluated with the rights of the writing role. '
  'The caller installed the schema and owns the table. '
  'SQLSTATE 22023: the expression can''t be used, or gives a row no valid name (in mode observe a warning), '
  'or the mode is unknown; 25001: the transaction is not read committed; 42501: another role owns the table, '
  'or code that runs where it is written; 42809, 0A000: not a table that can be protected. '
  'Locks until the end of the transaction: the table and its partitions, '
  'share update exclusive while it reads their rows, then access exclusive.';

create or replace function fencing.unprotect(relation regclass, for_good boolean default false) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set quote_all_identifiers = off  -- names are stored as text and compared
as $$
declare
  was text;
  root regclass;
begin
  if relation is null then
    raise exception using errcode = '42704', message = 'no table is given';
  end if;
  perform fencing.require_owner(relation);
  execute format('lock table %s in access exclusive mode', relation);
  if not exists (select from fencing.protected p
                  where p.relation = unprotect.relation or p.relation_name = unprotect.relation::text
                    and not exists (select from pg_class c where c.oid = p.relation))
     and not exists (select from pg_trigger t where t.tgrelid = unprotect.relation
         and t.tgname ~ '^fencing_(check|verify)_')
     and not (for_good and exists (select from fencing.unprotected u where u.relation = unprotect.relation)) then
    raise exception using errcode = '42704', message = format('%s is not protected', relation);
  end if;
  select a.relid into root from pg_partition_ancestors(unprotect.relation) a
    join fencing.protected p on p.relation = a.relid where a.relid <> unprotect.relation limit 1;
  if found then
    raise exception using errcode = '42704', message = format('%s is protected as a partition of %s', relation, root),
      hint = 'unprotect() that, or detach the partition first.';
  end if;
  if exists (select from fencing.recorded_table r where r.relation = unprotect.relation) then
    raise exception using errcode = '55000', message = format('changes of %s are recorded', relation),
      hint = 'fencing.stop_recording() first. Mode observe lets all changes pass, and records them.';
  end if;
  select p.mode into was from fencing.protected p where p.relation = unprotect.relation;
  delete from fencing.unprotected u
   where u.relation = unprotect.relation or not exists (select from pg_class c where c.oid = u.relation);
  if not for_good then
    insert into fencing.unprotected (relation, was) values (unprotect.relation, was);
  end if;
  delete from fencing.former_name f where f.relation = unprotect.relation;
  perform fencing.free_name(relation);
  perform fencing.remove_checks(relation);
  perform fencing.apply_clone_privileges(true);
  perform fencing.record_guard_change('unprotect', jsonb_build_object('relation', relation::text, 'was', was,
                                                                      'for_good', nullif(for_good, false)));
end
$$;
comment on function fencing.unprotect(regclass, boolean) is
  'Removes everything that protect() created, and frees the names that the table had before. '
  'The fences stay. The table counts as open until protect() is called again, '
  'unless it is for good: for a table that needs no protection any more. '
  'SQLSTATE 42704: the table is not protected; 55000: its changes are recorded; 42501: another role owns it. '
  'Locks until the end of the transaction: the table and its partitions, access exclusive.';
