-- The triggers of the tables whose changes are recorded: created, renewed with the table's columns, dropped.

create or replace function fencing.expected_recorders(by_row boolean, recorded fencing.recorded_table)
  returns table (name name, function name, kind integer, tables text)
language sql stable
set search_path = pg_catalog, pg_temp
as $$  -- kind as in expected_triggers()
  select format('fencing_record_%s_%s', f.step, t.operation)::name, f.function, t.kind, t.tables
    from (values ('find', recorded.find_function), ('keep', recorded.keep_function)) as f (step, function)
         cross join (values
           ('insert', 4, 'new table as fencing_new'),
           ('update', 16, 'old table as fencing_old new table as fencing_new'),
           ('delete', 8, 'old table as fencing_old'),
           ('row', 29, null)) as t (operation, kind, tables)
   where by_row = (t.operation = 'row')
  union all
  select 'fencing_record_truncate', 'record_truncate', 34, null;
$$;
comment on function fencing.expected_recorders(boolean, fencing.recorded_table) is
  'The triggers that a recorded table must have; row triggers also on each partition. Locks: none.';

create or replace function fencing.record_truncate() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set quote_all_identifiers = off
as $$
declare
  root constant regclass := pg_partition_root(tg_relid);
begin
  insert into fencing.row_change (relation, operation, principal, direct, application)
  select coalesce(root, tg_relid::regclass)::text, 'truncate', w.principal, w.direct, w.application
    from fencing.writes_of('{""}') w;
  return null;
end
$$;
comment on function fencing.record_truncate() is
  'Trigger: records TRUNCATE of a recorded table or of one of its partitions, without the rows. Locks: none.';

create or replace function fencing.create_truncate_recorders(relation regclass) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  target regclass;
begin
  for target in
    select t.oid from (select relation::oid union select p.relid from pg_partition_tree(relation) p) t (oid)
     where not exists (select from pg_trigger g where g.tgrelid = t.oid and g.tgname = 'fencing_record_truncate')
  loop
    execute format('create trigger fencing_record_truncate before truncate on %s for each statement '
                   'execute function fencing.record_truncate()', target);
    execute format('alter table %s enable always trigger fencing_record_truncate', target);
  end loop;
end
$$;
comment on function fencing.create_truncate_recorders(regclass) is
  'Creates the triggers that record TRUNCATE, where the table or a partition lacks one. '
  'Locks: those, share row exclusive.';

create or replace function fencing.recorder_settings() returns text[]
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$  -- plpgsql, because check_settings() is created later
begin
  return fencing.check_settings() || '{enable_nestloop=off,jit=off,plan_cache_mode=force_generic_plan}';
end
$$;
comment on function fencing.recorder_settings() is
  'The settings of the generated functions. A plan that was made for one row is used for statements of many rows, '
  'for which a nested loop takes quadratic time. Locks: none.';

create or replace function fencing.renew_recorder(recorded fencing.recorded_table) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  by_row constant boolean := (select c.relkind = 'p' from pg_class c where c.oid = recorded.relation);
  found_numbers constant smallint[] := fencing.column_numbers(recorded.relation,
      recorded.columns || recorded.masked);
  is_same boolean := recorded.numbers = found_numbers;
  item record;
begin
  if recorded.relation_oid <> recorded.relation and array_position(found_numbers, null) is null
      and not exists (select from pg_proc p where p.pronamespace = 'fencing'::regnamespace
        and p.proname = recorded.find_function and p.prosrc = fencing.stopped_body()) then  -- restored from a dump
    update fencing.recorded_table r set numbers = found_numbers, relation_oid = r.relation
     where r.relation = recorded.relation;
    is_same := true;
  end if;
  for item in
    select * from (values
      (recorded.find_function, case when is_same then fencing.find_body(recorded, by_row)
                                    else fencing.stopped_body() end, false,
          'finds the resources of the rows that change'),
      (recorded.keep_function, fencing.keep_body(recorded, by_row), true, 'adds the rows that change to row_change'))
      as f (name, body, is_definer, purpose)
     where (is_same or f.name = recorded.find_function) and not exists (select from pg_proc p
         where p.pronamespace = 'fencing'::regnamespace and p.proname = f.name and p.prosrc = f.body
           and p.prosecdef = f.is_definer and p.proconfig = fencing.recorder_settings())
  loop
    execute format('create or replace function fencing.%I() returns trigger language plpgsql security %s %s as %L',
        item.name, case when item.is_definer then 'definer' else 'invoker' end, fencing.check_setting_clauses()
          || ' set enable_nestloop = off set jit = off set plan_cache_mode = force_generic_plan', item.body);
    perform fencing.give_to_owner('function', format('fencing.%I()', item.name));
    perform fencing.revoke_from_others('function', p.oid::regprocedure::text,
        coalesce(p.proacl, acldefault('f', p.proowner)), p.proowner)
       from pg_proc p where p.pronamespace = 'fencing'::regnamespace and p.proname = item.name;
    execute format('comment on function fencing.%I() is %L', item.name,
                   format('Trigger, generated by fencing.record_changes: %s. Locks: none.', item.purpose));
  end loop;
end
$$;
comment on function fencing.renew_recorder(fencing.recorded_table) is
  'Creates the functions of the triggers of a recorded table, or replaces them where its columns, '
  'its protection or this version need others. Where a named column is not the one that record_changes() found, '
  'writes fail from then on (stopped_body). Locks: none.';

create or replace function fencing.renew_recorders(relations oid[]) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  item fencing.recorded_table;
begin
  for item in select r.* from fencing.recorded_table r join pg_class c on c.oid = r.relation
    where r.relation = any (relations)
       or exists (select from pg_partition_tree(r.relation) p where p.relid = any (relations)) loop
    perform fencing.renew_recorder(item);
    perform fencing.create_truncate_recorders(item.relation);
  end loop;
end
$$;
comment on function fencing.renew_recorders(oid[]) is
  'renew_recorder and create_truncate_recorders for the recorded tables among and above these relations. '
  'Locks: partitions that are new, share row exclusive.';

create or replace function fencing.renew_all_recorders() returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '100ms'
as $$
declare
  target oid;
begin
  for target in select r.relation from fencing.recorded_table r loop
    begin
      perform fencing.renew_recorders(array[target]);
    exception when others then
      null;  -- a partition belongs to another role, or is locked: guard_faults() names it
    end;
  end loop;
end
$$;
comment on function fencing.renew_all_recorders() is
  'renew_recorders for each recorded table that is not locked, for installations. '
  'Locks until the end of the transaction: partitions that are new, share row exclusive, '
  'each waited for 100 ms at most.';

create or replace function fencing.remove_recorder(relation regclass) returns jsonb
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  item record;
  was fencing.recorded_table;
begin
  -- The entry first, as in remove_checks(). Entries of tables that were dropped go with it.
  for was in delete from fencing.recorded_table r
    where not exists (select from pg_class c where c.oid = r.relation) returning r.* loop
    execute format('drop function if exists fencing.%I(), fencing.%I()', was.find_function, was.keep_function);
  end loop;
  delete from fencing.recorded_table r where r.relation = remove_recorder.relation returning r.* into was;
  for item in
    select t.tgrelid::regclass as target, t.tgname from pg_trigger t
     where t.tgrelid in (select relation union select p.relid from pg_partition_tree(relation) p)
       and t.tgname ~ '^fencing_record_' and t.tgparentid = 0
  loop
    execute format('drop trigger %I on %s', item.tgname, item.target);
  end loop;
  delete from fencing.recorded_check r
   where r.name ~ '^fencing_record_' and (r.relation = remove_recorder.relation
      or r.relation in (select t.relid from pg_partition_tree(remove_recorder.relation) t));
  if was.relation is null then
    return null;
  end if;
  execute format('drop function if exists fencing.%I(), fencing.%I()', was.find_function, was.keep_function);
  return jsonb_build_object('columns', was.columns, 'masked', was.masked);
end
$$;
comment on function fencing.remove_recorder(regclass) is
  'Drops what record_changes() created for a table; returns what was recorded, null if nothing. '
  'Locks: the table and its partitions, access exclusive.';

create or replace function fencing.end_recording(relation regclass) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  was constant jsonb := fencing.remove_recorder(relation);
begin
  if was is null then
    return false;
  end if;
  perform fencing.record_guard_change('stop_recording', jsonb_build_object('relation', relation::text, 'was', was));
  return true;
end
$$;
comment on function fencing.end_recording(regclass) is
  'remove_recorder, and the row of the history; false where nothing was recorded. '
  'Locks: the table and its partitions, access exclusive.';

create or replace function fencing.record_changes(relation regclass, columns text[] default null,
    masked text[] default '{}') returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set quote_all_identifiers = off
as $$
#variable_conflict use_variable
declare
  recorded fencing.recorded_table;
  class pg_class;
  fault text;
  was jsonb;
  item record;
  target regclass;
begin
  perform fencing.require_read_committed();
  perform fencing.require_protectable(relation);
  perform fencing.require_owner(relation);
  execute format('lock table %s in access exclusive mode', relation);
  perform fencing.require_protectable(relation);
  select * into class from pg_class where oid = relation;
  masked := coalesce(masked, '{}');
  recorded := row(relation, columns, masked,
      format('record_%s_find_%s', nextval('fencing.check_id_seq'), left(class.relname, 30)),
      format('record_%s_keep_%s', currval('fencing.check_id_seq'), left(class.relname, 30)),
      session_user, clock_timestamp(), fencing.column_numbers(relation, columns || masked), relation);
  fault := case
    when not exists (select from fencing.protected p where p.relation = relation)
      then 'it is not protected; protect() it first'
    when not exists (select from pg_index i where i.indrelid = relation and i.indisprimary)
      then 'it has no primary key, which identifies a changed row'
    when columns = '{}' then 'no column is named'
    when (select count(*) > 550 from fencing.recorded_columns(recorded)) then 'more than 550 columns would be recorded'
    else (select min(case when a.attname is null then format('it has no column %s', n.name)
                          when a.attgenerated = 'v'
                            then format('the column %s is virtual, and triggers do not have its value', n.name)
                          when c.name is null
                            then format('the column %s is masked and not among those that are recorded', n.name) end)
            from unnest(columns || masked) n (name)
                 left join pg_attribute a on a.attrelid = relation and a.attname = n.name and a.attnum > 0
                   and not a.attisdropped
                 left join fencing.recorded_columns(recorded) c on c.name = n.name) end;
  if fault is not null then
    raise exception using errcode = '22023',
      message = format('changes of %s can''t be recorded: %s', relation, fault);
  end if;
  was := fencing.remove_recorder(relation);
  perform fencing.renew_recorder(recorded);
  for item in select * from fencing.expected_recorders(class.relkind = 'p', recorded) t
    where t.name <> 'fencing_record_truncate' loop
    execute format('create trigger %I after %s on %s %s for each %s execute function fencing.%I()', item.name,
                   case when class.relkind = 'p' then 'insert or update or delete'
                        else split_part(item.name, '_', 4) end,
                   relation, coalesce('referencing ' || item.tables, ''),
                   case when class.relkind = 'p' then 'row' else 'statement' end, item.function);
    for target in select relation union select p.relid from pg_partition_tree(relation) p loop
      execute format('alter table %s enable always trigger %I', target, item.name);
    end loop;
  end loop;
  perform fencing.create_truncate_recorders(relation);
  insert into fencing.recorded_table select recorded.*;
  perform fencing.record_new_checks(
    array(select relation::oid union select p.relid from pg_partition_tree(relation) p));
  perform fencing.apply_clone_privileges(true);
  perform fencing.record_guard_change('record_changes', jsonb_build_object('relation', relation::text,
        'columns', columns, 'masked', masked, 'was', was));
end
$$;
comment on function fencing.record_changes(regclass, text[], text[]) is
  'From the commit on, row_change has each changed row of the table, in the transaction of the change, '
  'by whatever it is made: gateways, direct SQL, COPY, MERGE, cascades and triggers. '
  'columns: those whose values are recorded (null: all, also later ones, except virtual ones); an update of others '
  'alone is not recorded. masked: of these a keyed hash is recorded. The key is always recorded. '
  'A partitioned table is recorded at its root, by row; else by statement. unprotect() waits for stop_recording(). '
  'A call replaces the one before. It has to be called again, in the same transaction, where a named column '
  'is renamed or dropped: else writes fail with 42703; without event triggers, where any column is added, renamed '
  'or dropped. The caller installed the schema and owns the table. '
  'SQLSTATE 22023: the table is not protected, there is no primary key, more than 550 columns would be recorded, '
  'or a column is missing or virtual; 42809, 0A000: not a table '
  'that can be protected; 42501: another role owns it; 25001: the transaction is not read committed. '
  'Locks until the end of the transaction: the table and its partitions, access exclusive.';

create or replace function fencing.stop_recording(relation regclass) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set quote_all_identifiers = off
as $$
begin
  if relation is null then
    raise exception using errcode = '42704', message = 'no table is given';
  end if;
  perform fencing.require_owner(relation);
  execute format('lock table %s in access exclusive mode', relation);
  if not fencing.end_recording(relation) then
    raise exception using errcode = '42704', message = format('changes of %s are not recorded', relation);
  end if;
  perform fencing.apply_clone_privileges(true);
end
$$;
comment on function fencing.stop_recording(regclass) is
  'Ends record_changes() for a table. What was recorded stays. '
  'SQLSTATE 42704: its changes are not recorded; 42501: another role owns it. '
  'Locks until the end of the transaction: the table and its partitions, access exclusive.';
