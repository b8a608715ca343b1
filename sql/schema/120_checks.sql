-- The triggers that protect() creates. Ordinary tables have statement triggers,
-- which check all rows of a statement at once; partitioned tables have row triggers, because PostgreSQL clones those
-- to every partition, also to those attached later, so that writes that name a partition are checked too.
--
-- Two triggers run one after the other. The first, fencing_check_*, finds the resources of the changed rows.
-- It evaluates the expression, and so code that others may have written (functions, conversions of types),
-- so it has only the rights of the writing role. The second, fencing_verify_*, has the owner's rights,
-- which it needs to read the guard, and evaluates no code of others: it gets the resources as text,
-- in a setting that it empties. A trigger whose name sorts between theirs could change that setting:
-- protect() and the event triggers refuse one, and guard_faults() names it.

create or replace function fencing.check_body(row_expression text, by_row boolean, mode text) returns text
language sql immutable
set search_path = pg_catalog, pg_temp
as $body$
  select replace(replace(replace(replace(replace(case when by_row then $row$
declare
  fencing_row  record;
  old_resource text;
  new_resource text;
  handed_over  text;
begin{try}
  if tg_op <> 'INSERT' then
    fencing_row := old;
    old_resource := {expression};
  end if;
  if tg_op <> 'DELETE' then
    fencing_row := new;
    new_resource := {expression};
  end if;
  {hand_over_one}{catch}
  return null;
end
$row$ else $statement$
#variable_conflict use_column
declare
  old_resource text;
  new_resource text;
  handed_over  text;
begin{try}
  -- One row, the common case: three plain scans cost half as much as the query below.
  if tg_op <> 'INSERT' then
    select {expression} into old_resource from fencing_old as fencing_row;
  end if;
  if tg_op <> 'DELETE' then
    select {expression} into new_resource from fencing_new as fencing_row;
  end if;
  if found then
    if tg_op = 'DELETE' then
      perform from fencing_old offset 1;
    else
      perform from fencing_new offset 1;
    end if;
    if not found then
      {hand_over_one}
      return null;
    end if;
  end if;
  if tg_op = 'INSERT' then
    {hand_over} (select ({expression}) collate "C" as resource from fencing_new as fencing_row) t)::text, true);
  elsif tg_op = 'UPDATE' then
    {hand_over} (select ({expression}) collate "C" as resource from fencing_old as fencing_row
          union all select ({expression}) collate "C" from fencing_new as fencing_row) t)::text, true);
  else
    {hand_over} (select ({expression}) collate "C" as resource from fencing_old as fencing_row) t)::text, true);
  end if;{catch}
  return null;
end
$statement$ end,
    '{try}', $try$
  begin$try$),
    '{catch}', case mode when 'observe' then $catch$
  exception when others or assert_failure then
    handed_over := set_config('fencing.changed', '{""}', true) || set_config('fencing.failed_with', sqlstate, true);
  end;$catch$ else $catch$
  exception when undefined_column then
    raise exception using errcode = sqlstate, message = format('the resource expression of %s can''t be evaluated: %s; '
        'fencing.protect() has to be called again', tg_relid::regclass, sqlerrm),
      hint = 'If a column was renamed, call fencing.protect() again with an expression over its new name, '
        'in the transaction that renames it.';
  end;$catch$ end),
    '{hand_over_one}', format($one$if greatest(octet_length(old_resource), octet_length(new_resource)) > 200 then
    old_resource := %1$s;
    new_resource := %2$s;
  end if;
  handed_over := set_config('fencing.changed', (case tg_op when 'INSERT' then array[coalesce(new_resource, '')]
    when 'DELETE' then array[coalesce(old_resource, '')]
    else array[coalesce(old_resource, ''), coalesce(new_resource, '')] end)::text, true);$one$,
                              fencing.bounded_text_of('old_resource'), fencing.bounded_text_of('new_resource'))),
    '{hand_over}', format('handed_over := set_config(''fencing.changed'', array(select distinct %s from',
        fencing.bounded_text_of('t.resource'))),
    '{expression}', row_expression)
$body$;
comment on function fencing.check_body(text, boolean, text) is
  'The body of a check function. Where a column of the expression was renamed, 42703 has a hint. '
  'In mode observe it refuses nothing: if the expression raises an error, '
  'the statement is recorded as a change of a row without a resource, with the error''s SQLSTATE. Locks: none.';

create or replace function fencing.check_settings() returns text[]
language sql immutable
set search_path = pg_catalog, pg_temp
as $$  -- in the form of pg_proc.proconfig
  values (array['search_path=pg_catalog, pg_temp', 'extra_float_digits=1', 'bytea_output=hex',
                'quote_all_identifiers=off', 'standard_conforming_strings=on', 'transform_null_equals=off',
                'DateStyle=iso, mdy', 'IntervalStyle=postgres', 'TimeZone=utc',
                'xmlbinary=base64', 'plpgsql.extra_errors=none'])
$$;
comment on function fencing.check_settings() is
  'The settings with which a resource expression is evaluated: all settings that change the text '
  'of an immutable expression, so that no caller''s setting makes one resource look like another, '
  'and plpgsql.extra_errors, by which a caller''s setting would refuse changes of several rows. Locks: none.';

create or replace function fencing.check_setting_clauses() returns text
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
  select string_agg(format('set %s = %s', split_part(x.setting, '=', 1), split_part(x.setting, '=', 2)),
      ' ' order by x.n)
    from unnest(fencing.check_settings()) with ordinality as x (setting, n);
$$;
comment on function fencing.check_setting_clauses() is
  'check_settings() as clauses of create function and alter function. Locks: none.';

create or replace function fencing.create_check_function(check_function name, row_expression text, by_row boolean,
    mode text) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  execute format('create or replace function fencing.%I() returns trigger language plpgsql %s as %L', check_function,
                 fencing.check_setting_clauses(),
                 fencing.check_body(row_expression, by_row, mode));
  perform fencing.give_to_owner('function', format('fencing.%I()', check_function));
  perform fencing.revoke_from_others('function', p.oid::regprocedure::text,
      coalesce(p.proacl, acldefault('f', p.proowner)), p.proowner)
     from pg_proc p where p.pronamespace = 'fencing'::regnamespace and p.proname = check_function;
  execute format('comment on function fencing.%I() is %L', check_function,
                 'Trigger, generated by fencing.protect: finds the resources of the rows that change, '
                 'for fencing.verify_change. Runs with the rights of the writing role. Locks: none.');
end
$$;
comment on function fencing.create_check_function(name, text, boolean, text) is
  'Creates a generated trigger function, granted to nobody. Locks: none.';

create or replace function fencing.verify_change() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  changed constant text[] := nullif(current_setting('fencing.changed', true), '');
  emptied constant text := set_config('fencing.changed', '', true);
  xid     xid8;
  write   text;
  uncovered text;  -- empty: a row without a resource
  failed_with text;
begin
  -- The common case, in half the time: a change of one resource.
  perform from fencing.guard g where changed[1] = all (changed) and g.resource = changed[1] collate "C"
    and g.entered_xid = pg_current_xact_id_if_assigned() and g.entered_at = transaction_timestamp()
    and g.entered_for = left(coalesce(current_setting('fencing.write_id', true), ''), 64);
  if found then
    return null;
  end if;
  if changed is null then
    raise exception using errcode = 'FG403', message = format('resource not covered: the check of %s did not run; '
        'fencing.protect() puts it back', tg_relid::regclass),
      detail = jsonb_build_object('resource', null, 'relation', tg_relid::regclass::text,
          'operation', lower(tg_op))::text;
  end if;
  xid := pg_current_xact_id_if_assigned();
  write := left(coalesce(current_setting('fencing.write_id', true), ''), 64);
  -- A scalar subquery is always answered by one probe of the guard's primary key a resource,
  -- whatever the statistics say. The list is a subquery too: seen by the planner, it would be planned for each time.
  if tg_argv[0] = 'enforce' then
    select t.resource into uncovered from unnest((select changed)) as t (resource)
     where (select true from fencing.guard g where g.resource = t.resource collate "C" and g.entered_xid = xid
             and g.entered_at = transaction_timestamp() and g.entered_for = write) is null
     limit 1;
    if found then
      perform fencing.refuse_change(tg_relid, tg_op, nullif(uncovered, ''));
    end if;
  else
    failed_with := substring(current_setting('fencing.failed_with', true) from '^[0-9A-Z]{5}$');
    perform set_config('fencing.failed_with', '', true);
    perform fencing.observe_change(tg_relid, tg_op, nullif(d.resource, ''), failed_with)
      from (select distinct t.resource from unnest((select changed)) as t (resource)
     where (select true from fencing.guard g where g.resource = t.resource collate "C" and g.entered_xid = xid
             and g.entered_at = transaction_timestamp() and g.entered_for = write) is null
     limit 100) d;
  end if;
  return null;
end
$$;
comment on function fencing.verify_change() is
  'Trigger: refuses changes of rows whose resource this transaction has not entered, or records them in mode observe. '
  'The trigger before it passes the resources as text. '
  'SQLSTATE FG428, FG403. Locks: none.';

create or replace function fencing.expected_triggers(by_row boolean, mode text, check_function name)
  returns table (name name, function name, kind integer, argument text, tables text)
language sql immutable
set search_path = pg_catalog, pg_temp
as $$  -- kind as in pg_trigger.tgtype: 1 a row, 2 before, 4 insert, 8 delete, 16 update, 32 truncate
  select * from (values
    ('fencing_check_insert'::name, check_function, 4, null, 'new table as fencing_new'),
    ('fencing_check_update', check_function, 16, null, 'old table as fencing_old new table as fencing_new'),
    ('fencing_check_delete', check_function, 8, null, 'old table as fencing_old'),
    ('fencing_verify_insert', 'verify_change', 4, mode, null),
    ('fencing_verify_update', 'verify_change', 16, mode, null),
    ('fencing_verify_delete', 'verify_change', 8, mode, null)) t
   where not by_row
  union all
  select * from (values
    ('fencing_check_row'::name, check_function, 29, null, null),
    ('fencing_verify_row', 'verify_change', 29, mode, null)) t
   where by_row
  union all
  select 'fencing_check_truncate', 'check_truncate', 34, mode, null;
$$;
comment on function fencing.expected_triggers(boolean, text, name) is
  'The triggers that a protected table must have; row triggers also on each partition. Locks: none.';

create or replace function fencing.triggers_between(relations oid[]) returns table (relation oid, name name)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select t.tgrelid, t.tgname from pg_trigger t
   where t.tgrelid = any ($1) and t.tgname > 'fencing_check' and t.tgname < 'fencing_verify~'
     and t.tgname not in (select x.name from fencing.expected_triggers(false, '', '') x union all select x.name
         from fencing.expected_triggers(true, '', '') x union all select x.name
           from (values (false), (true)) b (by_row) cross join fencing.expected_recorders(b.by_row, null) x);
$$;
comment on function fencing.triggers_between(oid[]) is
  'Other triggers of these tables that would run between the two of protect() (triggers fire in the order '
  'of their names) and so could change what the first passes to the second. Locks: none.';

create or replace function fencing.create_checks(relation regclass, by_row boolean, mode text, check_function name)
  returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  item record;
  target regclass;
begin
  for item in select * from fencing.expected_triggers(by_row, mode, check_function) t
    where t.name <> 'fencing_check_truncate' loop
    execute format('create trigger %I after %s on %s %s for each %s execute function fencing.%I(%s)', item.name,
                   case when by_row then 'insert or update or delete' else split_part(item.name, '_', 3) end, relation,
                   coalesce('referencing ' || item.tables, ''), case when by_row then 'row' else 'statement' end,
                     item.function, coalesce(quote_literal(item.argument), ''));
    for target in select relation union select p.relid from pg_partition_tree(relation) p loop
      execute format('alter table %s enable always trigger %I', target, item.name);
    end loop;
  end loop;
end
$$;
comment on function fencing.create_checks(regclass, boolean, text, name) is
  'Creates the check triggers of a table: row triggers for a partitioned table, else statement triggers. '
  'Locks: the table and its partitions, access exclusive.';

create or replace function fencing.check_truncate() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if tg_argv[0] = 'enforce' then
    perform fencing.refuse_change(tg_relid, tg_op, null);
  else
    perform fencing.observe_change(tg_relid, tg_op, null, null);
  end if;
  return null;
end
$$;
comment on function fencing.check_truncate() is
  'Trigger: refuses TRUNCATE of a protected table, because it changes every resource at once. '
  'SQLSTATE FG403. Locks: none.';

create or replace function fencing.create_truncate_check(target regclass, mode text) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  execute format('create trigger fencing_check_truncate before truncate on %s for each statement '
                 'execute function fencing.check_truncate(%L)', target, mode);
  execute format('alter table %s enable always trigger fencing_check_truncate', target);
end
$$;
comment on function fencing.create_truncate_check(regclass, text) is
  'Creates the trigger that refuses TRUNCATE of one table. Locks: the table, share row exclusive.';

create or replace function fencing.create_truncate_checks(relation regclass, mode text) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  target regclass;
begin
  for target in
    select relation union select p.relid from pg_partition_tree(relation) p
  loop
    perform fencing.create_truncate_check(target, mode);
  end loop;
end
$$;
comment on function fencing.create_truncate_checks(regclass, text) is
  'Creates the triggers that refuse TRUNCATE of the table and of every partition. Locks: those, access exclusive.';

-- New partitions. PostgreSQL clones row triggers to them, with the rights of the role that creates them, but not the
-- trigger for TRUNCATE. The event triggers complete a partition in the command that makes it;
-- without them a gateway does so when it next compares the faults (watch_guard), if the owner of the schema may.

create or replace function fencing.clone_privileges() returns table (object text, role text)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select distinct f.oid::regprocedure::text, c.relowner::regrole::text
    from (select p.relation, array[p.check_function, 'verify_change'] as functions from fencing.protected p
          union all select r.relation, array[r.find_function, r.keep_function] from fencing.recorded_table r) p
         join pg_class c on c.oid = p.relation and c.relkind = 'p'
         join pg_proc f on f.pronamespace = 'fencing'::regnamespace and f.proname = any (p.functions)
                       and f.proowner <> c.relowner;
$$;
comment on function fencing.clone_privileges() is
  'The functions that owners of protected or recorded partitioned tables may execute, because PostgreSQL asks for it '
  'where it clones triggers to a partition that they make. Nobody can call a trigger function otherwise. Locks: none.';

create or replace function fencing.apply_clone_privileges(revokes boolean) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  item record;
begin
  for item in
    select g.object, g.role, false as grants from fencing.granted_privileges() g
     where revokes and g.kind = 'function' and g.privilege = 'execute'
       and g.object ~ '^fencing[.](verify_change|"?(check|record)_[0-9]+_.*)[(][)]$'
       and (g.object, g.role) not in (select c.object, c.role from fencing.clone_privileges() c)
    union all
    select c.object, c.role, true
      from (select * from fencing.clone_privileges()
            except select g.object, g.role from fencing.granted_privileges() g where g.privilege = 'execute') c
  loop
    execute format(case when item.grants then 'grant execute on function %s to %s'
                        else 'revoke execute on function %s from %s cascade' end, item.object, item.role);
  end loop;
end
$$;
comment on function fencing.apply_clone_privileges(boolean) is
  'Grants clone_privileges(), and with revokes takes them from all other roles. Locks: none.';

create or replace function fencing.incomplete_partitions(relations oid[]) returns table (partition regclass, mode text)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select t.relid, p.mode
    from fencing.protected p cross join lateral pg_partition_tree(p.relation) t
         join pg_class c on c.oid = t.relid and c.relkind in ('r', 'p')
   where (relations is null or exists (select from pg_partition_ancestors(t.relid) a where a.relid = any (relations)))
     and not exists (select from pg_trigger g where g.tgrelid = t.relid and g.tgname = 'fencing_check_truncate');
$$;
comment on function fencing.incomplete_partitions(oid[]) is
  'The partitions of protected tables, among and below these relations (null: all), '
  'that lack the trigger for TRUNCATE, with the mode of the protection. Locks: none.';

create table if not exists fencing.recorded_check (
  relation          oid,
  name              name,
  trigger_id        oid not null,
  row_version       xid not null,
  system_identifier bigint not null,
  primary key (relation, name)
);
comment on table fencing.recorded_check is
  'The checks of protected tables and of their partitions as they were made, so that guard_faults() names a table '
  'whose checks were altered since, such as disabled and enabled again. Granted to no one.';
comment on column fencing.recorded_check.relation is
  'The table, as a number, which a dump does not translate: a restored table has another one and no row here.';
comment on column fencing.recorded_check.name is 'The trigger.';
comment on column fencing.recorded_check.trigger_id is 'Its pg_trigger.oid.';
comment on column fencing.recorded_check.row_version is
  'pg_trigger.xmin: another one since the trigger was disabled, enabled or renamed.';
comment on column fencing.recorded_check.system_identifier is
  'The server on which that was. After pg_upgrade the row says nothing.';

create or replace function fencing.current_checks()
  returns table (relation oid, name name, id oid, version xid, reattached boolean, altered boolean)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select t.tgrelid, t.tgname, t.oid, t.xmin,
         -- A partition that is attached again gets new clones of the checks, which only PostgreSQL can make and drop.
         coalesce(bool_or(t.oid <> r.trigger_id and t.tgparentid <> 0) over (partition by t.tgrelid), false),
         coalesce(t.oid <> r.trigger_id or t.xmin <> r.row_version, false)
    from fencing.protected p
         cross join lateral (select p.relation::oid union select relid from pg_partition_tree(p.relation)) k (oid)
         join pg_trigger t on t.tgrelid = k.oid and t.tgname ~ '^fencing_(check|verify|record)_'
         left join fencing.recorded_check r
                on r.relation = t.tgrelid and r.name = t.tgname
                   and r.system_identifier = (select c.system_identifier from pg_control_system() c)
   where t.tgenabled = 'A';
$$;
comment on function fencing.current_checks() is
  'The checks that are on. reattached: it is of a partition that was attached again since its checks were recorded. '
  'altered: it is not as it was recorded: it was disabled and enabled again, or made anew. Locks: none.';

create or replace function fencing.record_new_checks(relations oid[]) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  this_server constant bigint := (select c.system_identifier from pg_control_system() c);
begin
  delete from fencing.recorded_check r
   where (relations is null or r.relation = any (relations))
     and (r.system_identifier <> this_server or r.relation not in (select c.oid from pg_class c)
          or r.relation in (select c.relation from fencing.current_checks() c where c.reattached));
  insert into fencing.recorded_check (relation, name, trigger_id, row_version, system_identifier)
  select c.relation, c.name, c.id, c.version, this_server
    from fencing.current_checks() c
   where (relations is null or c.relation = any (relations))
     and not exists (select from fencing.recorded_check r where r.relation = c.relation and r.name = c.name)
  on conflict do nothing;
end
$$;
comment on function fencing.record_new_checks(oid[]) is
  'Adds to recorded_check the checks of these tables (null: of all) that it does not have: of new partitions, and of '
  'all tables after a dump was loaded or after pg_upgrade. Rows of checks that exist stay. '
  'Locks: none that writers wait for.';

create or replace function fencing.complete_partition(partition regclass, mode text) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  perform fencing.create_truncate_check(partition, mode);
  perform fencing.take_code_rights(partition);  -- default privileges may have granted some
  perform fencing.record_new_checks(array[partition::oid]);
end
$$;
comment on function fencing.complete_partition(regclass, text) is
  'Does for a new partition what protect() does for those that exist. Locks: the partition, share row exclusive.';

create or replace function fencing.complete_partitions() returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '100ms'
as $$
declare
  item record;
begin
  for item in select * from fencing.incomplete_partitions(null) loop
    begin
      perform fencing.complete_partition(item.partition, item.mode);
    exception when others then
      null;  -- it belongs to another role, or is locked: guard_faults() names it, and the next call tries again
    end;
  end loop;
  perform fencing.renew_all_recorders();
  begin
    perform fencing.apply_clone_privileges(false);
  exception when others then
    null;  -- as above
  end;
  begin
    perform fencing.record_new_checks(null);
  exception when lock_not_available then
    null;  -- a call of protect() has not committed yet
  end;
end
$$;
comment on function fencing.complete_partitions() is
  'Completes all partitions that the owner of the schema may change and that are not locked, '
  'for installations without event triggers. Locks until the end of the transaction: those partitions, '
  'share row exclusive, each waited for 100 ms at most.';
