-- Changes that would open a protected table without unprotect(): checks dropped or replaced,
-- a parent or child that is not checked, a new table of the same name. guard_faults() names each, and event triggers
-- refuse it if the installing role is a superuser, because only a superuser may create event triggers.
--
-- They also refuse drops of the guard itself. Event triggers are dropped with the schema of their function, before they
-- would run, so one of them has its function in the schema fencing_event_triggers: it refuses the drop of the schema
-- fencing, and the others refuse the drop of its own. Against one statement that drops both, or PL/pgSQL, a cursor
-- reads a table while a statement drops schemas or extensions: PostgreSQL drops no table that an open cursor of the
-- session reads.

create or replace function fencing.history_tables() returns table (relid regclass)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select t.relid from pg_partition_tree('fencing.history') t
  union all
  select t.relid from pg_partition_tree('fencing.row_change') t
  union all
  select 'fencing.history_digest'::regclass;
$$;
comment on function fencing.history_tables() is
  'What can be added to and never changed: history, row_change, their partitions, and history_digest. Locks: none.';

create or replace function fencing.record_openings_of_history(touched oid[]) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if not exists (select from fencing.history_tables() h where h.relid = any (touched)) then
    return;
  end if;
  -- Only tables with both triggers: a new partition gets the second one after it is attached.
  perform fencing.record_guard_change(case when o.is_attached then 'history_opened' else 'history_detached' end,
      jsonb_build_object('relation', o.relid::text))
     from (select h.relid, true as is_attached from fencing.history_tables() h
            where exists (select from pg_trigger t where t.tgrelid = h.relid and t.tgname ~ '^history_'
                and t.tgenabled <> 'A')
           union all
           select c.oid::regclass, false from pg_class c
            where c.relnamespace = 'fencing'::regnamespace and c.relname ~ '^(history|row_change)_([0-9]{8}|default)$'
              and not c.relispartition) o
    where exists (select from pg_trigger t where t.tgrelid = o.relid and t.tgname = 'history_no_truncate');
end
$$;
comment on function fencing.record_openings_of_history(oid[]) is
  'Called by the event trigger after an ALTER of these tables: adds history_opened to the history for each part of it '
  'whose rows could be changed now, and history_detached for each partition that is no part of it any more. '
  'Locks: none that others wait for.';

create or replace function fencing.table_faults() returns table (relation oid, other oid, about text, fault text)
language sql stable
set search_path = pg_catalog, pg_temp
set jit = off  -- the planner expects a thousand rows of each function, and compiling takes seconds
as $$
  with tables as materialized (  -- the protected tables, and their partitions
    select p.relation::oid as root, t.oid, c.relkind = 'p' as by_row, p.mode, p.check_function
      from fencing.protected p join pg_class c on c.oid = p.relation
           cross join lateral (select p.relation::oid union select relid from pg_partition_tree(p.relation)) t (oid)
  ), expected as materialized (
    select g.oid, x.name, f.oid as function, x.kind, coalesce(convert_to(x.argument, 'UTF8') || decode('00', 'hex'), '')
      as argument, 'protect()' as remedy, 'table' as about
      -- Once for all partitions.
      from (select distinct k.root, k.by_row, k.mode, k.check_function from tables k) r
           cross join lateral fencing.expected_triggers(r.by_row, r.mode, r.check_function) x
           join tables g on g.root = r.root
           left join pg_proc f on f.pronamespace = 'fencing'::regnamespace and f.proname = x.function and f.pronargs = 0
    union all
    select t.oid, x.name, f.oid, x.kind, '', 'record_changes()', 'table'
      from fencing.recorded_table r join fencing.protected p on p.relation = r.relation
           join pg_class c on c.oid = r.relation
           cross join lateral fencing.expected_recorders(c.relkind = 'p', r) x
           cross join lateral (select r.relation::oid union select relid from pg_partition_tree(r.relation)) t (oid)
           left join pg_proc f on f.pronamespace = 'fencing'::regnamespace and f.proname = x.function and f.pronargs = 0
    union all
    select h.relid, x.name, 'fencing.refuse_history_change()'::regprocedure, x.kind, '',
      'alter table ... enable always trigger', 'history'
      from fencing.history_tables() h
           cross join (values ('history_append_only'::name, 27), ('history_no_truncate', 34)) as x (name, kind)
  )
  select c.oid, null::oid, case when x.about = 'history' then 'history' when t.oid is null then 'missing trigger'
    when t.tgenabled <> 'A' then 'disabled trigger' else 'changed trigger' end,
         format('%s: the trigger %s %s; %s puts it back', c.oid::regclass, x.name,
                case when t.oid is null then 'is missing' when t.tgenabled <> 'A' then 'is not always on'
                  else 'is not the one that checks' end, x.remedy)
    from expected x join pg_class c on c.oid = x.oid left join pg_trigger t on t.tgrelid = c.oid and t.tgname = x.name
   where (t.tgenabled = 'A' and t.tgfoid = x.function and t.tgtype = x.kind and t.tgqual is null and t.tgattr = ''
       and t.tgargs = x.argument and not t.tgdeferrable) is not true
     and c.relkind in ('r', 'p')
  union all
  select c.relation, null, 'altered trigger',
         format('%s: its checks were altered since protect(), as if they were disabled and enabled again: rows may '
                'have changed unchecked; call protect() again', c.relation::regclass)
    from (select distinct k.relation from fencing.current_checks() k where k.altered and not k.reattached) c
  union all
  select p.relation, null, 'function', format('%s: the function fencing.%s() is not what this version '
      'of protect() makes; call it again', p.relation, p.check_function)
    from fencing.protected p join pg_class c on c.oid = p.relation
         left join pg_proc f on f.pronamespace = 'fencing'::regnamespace and f.proname = p.check_function
           and f.pronargs = 0
   where (f.prosrc = fencing.check_body(p.row_expression, c.relkind = 'p', p.mode) and not f.prosecdef
       and f.proconfig = fencing.check_settings()) is not true
  union all
  select r.relation, null, 'function', format('%s: the function fencing.%s() is not what this version '
      'of record_changes() makes for its columns; call it again', r.relation, x.name)
    from fencing.recorded_table r join fencing.protected p on p.relation = r.relation
         join pg_class c on c.oid = r.relation
         cross join lateral (values (r.find_function, fencing.find_body(r, c.relkind = 'p'), false),
           (r.keep_function, fencing.keep_body(r, c.relkind = 'p'), true)) x (name, body, is_definer)
         left join pg_proc f on f.pronamespace = 'fencing'::regnamespace and f.proname = x.name and f.pronargs = 0
   where (f.prosrc = x.body and f.prosecdef = x.is_definer and f.proconfig = fencing.recorder_settings()) is not true
  union all
  select g.oid, g.root, 'trigger between', format('%s: the trigger %s runs between the checks '
      'and could change what they hand on; rename or drop it', g.oid::regclass, b.name)
    from fencing.triggers_between(array(select t.oid from tables t)) b join tables g on g.oid = b.relation
  union all
  select p.relation, i.inhparent, k.about, format(case k.about
      when 'parent' then '%s: changes through %s, which is not protected, are not checked; detach it, or protect that'
                                                  else '%s: changes through %s are checked by the expression '
                                                    'of that table alone; protect() that again, or detach it' end,
                                                    p.relation, i.inhparent::regclass)
    from fencing.protected p join pg_inherits i on i.inhrelid = p.relation
         cross join lateral (select case when i.inhparent in (select g.oid from tables g
               where g.by_row) then 'protected parent' else 'parent' end) k (about)
  union all
  select c.oid, g.root, 'foreign', format('%s is a foreign table: its rows can be changed at its server, '
      'and TRUNCATE is not refused; detach it', c.oid::regclass)
    from tables g join pg_class c on c.oid = g.oid and c.relkind = 'f'
  union all
  select g.root, c.oid, 'parent', format('%s: %s inherits from it and is not checked where it is named itself; '
      'alter table ... no inherit', g.oid::regclass, c.oid::regclass)
    from tables g join pg_inherits i on i.inhparent = g.oid join pg_class c on c.oid = i.inhrelid
      and not c.relispartition
  union all
  select c.oid, p.relation,
    'name', format('%s: a table of this name was protected, which %s; this one is not: protect() it', c.oid::regclass,
                                          case when o.oid is null then 'was dropped'
                                            else 'is now ' || o.oid::regclass::text end)
    from (select p.relation, p.relation_name as name from fencing.protected p union select f.relation, f.name
        from fencing.former_name f) p
         join pg_class c on c.oid = to_regclass(p.name) and c.oid <> p.relation
         left join pg_class o on o.oid = p.relation
   where c.oid not in (select g.oid from tables g)
  union all
  select g.oid, g.root, 'unlogged', format('%s is unlogged: a crash of PostgreSQL empties it, and the fences stay; '
      'alter table ... set logged', c.oid::regclass)
    from tables g join pg_class c on c.oid = g.oid and c.relpersistence = 'u';
$$;
comment on function fencing.table_faults() is
  'The states in which changes of a protected table are not checked. '
  'relation: the table; other: a second table that is involved; about: missing, disabled, changed or altered trigger, '
  'function (that computes the resources), trigger between, parent, protected parent, foreign, name, unlogged, '
  'or history, whose triggers belong to the guard itself. Locks: none.';

do $$
begin
  if to_regnamespace('fencing_event_triggers') is null then
    create schema fencing_event_triggers;
  end if;
end
$$;
comment on schema fencing_event_triggers is
  'What the event triggers need to refuse a drop of the schema fencing. Granted to no one.';

create or replace function fencing_event_triggers.key_in_plpgsql(id integer) returns integer
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
  return id;
end
$$;
comment on function fencing_event_triggers.key_in_plpgsql(integer) is
  'Its argument: the partition key of a table that a drop of PL/pgSQL therefore drops. Locks: none.';

create table if not exists fencing_event_triggers.needs_plpgsql (id integer)
  partition by list (fencing_event_triggers.key_in_plpgsql(id));
comment on table fencing_event_triggers.needs_plpgsql is
  'Empty. Like all functions of the guard it is dropped with PL/pgSQL. Granted to no one.';
comment on column fencing_event_triggers.needs_plpgsql.id is 'Nothing: a partition key needs a column.';

create table if not exists fencing_event_triggers.guard_is_dropped_only_after_its_event_triggers
  partition of fencing_event_triggers.needs_plpgsql default;
comment on table fencing_event_triggers.guard_is_dropped_only_after_its_event_triggers is
  'Empty. Its name tells who drops both schemas of the guard or PL/pgSQL in one statement why PostgreSQL refuses that: '
  'hold_schemas(). Granted to no one.';

create or replace function fencing.event_triggers() returns table (name name, function text, event text, tags text[])
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
  values ('fencing_refuse_openings'::name, 'fencing.refuse_openings()', 'ddl_command_end',
          -- ALTER INDEX can rename a table
          array['CREATE TABLE', 'CREATE TABLE AS', 'SELECT INTO', 'ALTER TABLE', 'ALTER INDEX', 'CREATE FOREIGN TABLE',
              'ALTER FOREIGN TABLE', 'CREATE VIEW', 'ALTER VIEW', 'CREATE MATERIALIZED VIEW',
                'ALTER MATERIALIZED VIEW', 'CREATE SCHEMA', 'ALTER SCHEMA', 'CREATE EXTENSION', 'ALTER EXTENSION',
                'IMPORT FOREIGN SCHEMA', 'CREATE TRIGGER', 'ALTER TRIGGER']),
         ('fencing_refuse_drops', 'fencing.refuse_openings()', 'sql_drop', null),
         ('fencing_refuse_drop_of_guard', 'fencing_event_triggers.refuse_drop_of_guard()', 'sql_drop', null),
         ('fencing_hold_schemas', 'fencing_event_triggers.hold_schemas()', 'ddl_command_start',
          array['DROP SCHEMA', 'DROP OWNED', 'DROP EXTENSION', 'DROP LANGUAGE']),
         ('fencing_release_schemas', 'fencing_event_triggers.hold_schemas()', 'ddl_command_end',
          array['DROP SCHEMA', 'DROP OWNED', 'DROP EXTENSION', 'DROP LANGUAGE']);
$$;
comment on function fencing.event_triggers() is
  'The event triggers, their functions, and for which commands they run; null: for all. Locks: none.';

create or replace function fencing.wrong_event_triggers()
  returns table (name name, function text, event text, tags text[], installed oid)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select x.name, x.function, x.event, x.tags, e.oid
    from fencing.event_triggers() x left join pg_event_trigger e on e.evtname = x.name
   where (e.evtenabled = 'A' and e.evtfoid = to_regprocedure(x.function) and e.evtevent = x.event
          and e.evttags is not distinct from x.tags) is not true;
$$;
comment on function fencing.wrong_event_triggers() is
  'Those of event_triggers() that are missing (installed is null), not always on, or not as there. Locks: none.';

create or replace function fencing_event_triggers.refuse_drop_of_guard() returns event_trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  part text;
begin
  -- Partitions of the history are dropped when they are old; what an operator has added, such as an index, is no part.
  select d.object_identity into part from pg_event_trigger_dropped_objects() d
   where d.object_type = 'schema' and d.object_name = 'fencing'
      or d.address_names[1] = 'fencing' and d.address_names[2] !~ '^(history|row_change)_([0-9]{8}|default)$'
         and (d.object_type in ('table', 'view', 'sequence', 'table column', 'table constraint')
              or d.object_type = 'trigger' and d.address_names[3] ~ '^history_'
              or d.object_type = 'function' and d.address_names[2] !~ '^(check|record)_[0-9]+_')
   order by d.object_type <> 'schema', d.original desc limit 1;
  if not found then
    -- protect() and unprotect() take a table from the list before they drop its function.
    select d.object_identity into part from pg_event_trigger_dropped_objects() d
     where d.object_type = 'function' and d.address_names[1] = 'fencing'
       and (d.address_names[2] in (select p.check_function from fencing.protected p)
         or exists (select from fencing.recorded_table r
             where d.address_names[2] in (r.find_function, r.keep_function)))
     limit 1;
  end if;
  if part is not null then
    raise exception using errcode = '55000',
      message = format('%s is a part of the guard, which would not check changes of protected tables without it', part),
      hint = 'To remove the guard: unprotect() each table, drop the event triggers fencing_..., then the schemas.';
  end if;
end
$$;
comment on function fencing_event_triggers.refuse_drop_of_guard() is
  'Event trigger: refuses to drop the schema fencing or what the installation has made in it. '
  'An installation of a later version that drops something drops the event trigger first. SQLSTATE 55000. Locks: none.';

create or replace function fencing_event_triggers.hold_schemas() returns event_trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  held constant refcursor := 'fencing_hold_schemas';
begin
  if exists (select from pg_cursors c where c.name = held::text) then
    close held;
  end if;
  if tg_event = 'ddl_command_start' then
    open held for select from fencing_event_triggers.guard_is_dropped_only_after_its_event_triggers;
  end if;
end
$$;
comment on function fencing_event_triggers.hold_schemas() is
  'Event trigger: has a cursor open while a statement drops schemas, an extension, '
  'a language or all that a role owns, so that PostgreSQL refuses (55006) to drop the table that it reads, '
  'and with it both schemas of the guard or PL/pgSQL. '
  'Locks until the end of the transaction: that table, access share.';

create or replace function fencing.can_have_faults(relations oid[]) returns boolean
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$  -- plpgsql, because it caches the plans
begin
  return exists (with recursive above (oid) as (select r.oid from unnest(relations) as r (oid) union select i.inhparent
        from above a join pg_inherits i on i.inhrelid = a.oid)
                 select from above a where exists (select from fencing.protected p where p.relation = a.oid))
      or exists (select from pg_inherits i join fencing.protected p on p.relation = i.inhrelid
          where i.inhparent = any (relations))
      or exists (select from fencing.protected p where to_regclass(p.relation_name) = any (relations))
      or exists (select from fencing.former_name f where to_regclass(f.name) = any (relations))
      or exists (select from fencing.known_fault k
          join unnest(relations) as r (oid) on k.relation = r.oid::regclass::text);
end
$$;
comment on function fencing.can_have_faults(oid[]) is
  'Whether table_faults() could name one of these relations, or has named it in known_fault: a protected table, '
  'what is below one by partitions or inheritance, what is directly above one, '
  'and what has the name under which one is or was protected. '
  'Much cheaper than table_faults(), for the event triggers run after every command that creates or alters a relation, '
  'a temporary one too. Locks: none.';

create or replace function fencing.refuse_openings() returns event_trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set quote_all_identifiers = off  -- names are stored as text and compared
set jit = off  -- the planner expects a thousand rows of each function, and compiling takes seconds
as $$
declare
  -- Reported without the tables that moved.
  moves_schema constant boolean := tg_tag in ('ALTER SCHEMA', 'ALTER EXTENSION');
  touched oid[];
  target regclass;
  faults jsonb;
  found_fault text;
begin
  if tg_event = 'sql_drop' then
    select d.object_identity into found_fault from pg_event_trigger_dropped_objects() d
     where d.object_type = 'schema' and d.object_name = 'fencing_event_triggers'
        or d.object_type in ('function', 'table') and d.address_names[1] = 'fencing_event_triggers' limit 1;
    if found then
      raise exception using errcode = '55000',
        message = format('%s is a part of the guard: without it the schema fencing could be dropped', found_fault),
        hint = 'To remove the guard: unprotect() each table, drop the event triggers fencing_..., then the schemas.';
    end if;
    select p.relation_name into found_fault
      from pg_event_trigger_dropped_objects() d join fencing.protected p on d.classid = 'pg_class'::regclass
        and d.objid = p.relation and d.objsubid = 0 limit 1;
    if found then
      raise exception using errcode = '55000',
        message = format('%s is protected: a table made anew under its name would be open', found_fault),
        hint = format('select fencing.unprotect(%L) first.', found_fault);
    end if;
    perform fencing.record_guard_change('history_dropped', jsonb_build_object('relation', d.object_identity))
       from pg_event_trigger_dropped_objects() d
      where d.object_type = 'table' and d.address_names[1] = 'fencing'
        and d.address_names[2] ~ '^(history|row_change)_([0-9]{8}|default)$';
    perform fencing.record_guard_change('history_opened', jsonb_build_object('relation', h.relid::text))
       from pg_event_trigger_dropped_objects() d
            join fencing.history_tables() h on h.relid = to_regclass(format('%I.%I', d.address_names[1],
              d.address_names[2]))
      where d.object_type = 'trigger' and d.address_names[3] ~ '^history_';
    touched := array(select to_regclass(format('%I.%I', d.address_names[1], d.address_names[2]))::oid
        from pg_event_trigger_dropped_objects() d
                       where d.object_type = 'trigger' and d.address_names[3] ~ '^fencing_(check|verify|record)_');
  else
    touched := array(select case when d.classid = 'pg_trigger'::regclass
                                 then (select t.tgrelid from pg_trigger t join pg_proc f on f.oid = t.tgfoid
                                     where t.oid = d.objid and (starts_with(t.tgname, 'fencing_')
                                       or f.pronamespace = 'fencing'::regnamespace))
                                 else d.objid end
                       from pg_event_trigger_ddl_commands() d
                       where d.classid in ('pg_trigger'::regclass, 'pg_class'::regclass));
  end if;
  if tg_tag in ('ALTER TABLE', 'ALTER TRIGGER') then
    perform fencing.record_openings_of_history(touched);
  end if;
  if not moves_schema and not fencing.can_have_faults(touched) then
    return;
  end if;
  if tg_tag = 'CREATE TRIGGER' then  -- in complete_partition(), whose next statement is too late for the search below
    for target in
      select t.tgrelid from pg_trigger t
       where t.tgrelid = any (touched) and t.tgname = 'fencing_check_truncate' and t.tgenabled = 'O'
         and t.tgfoid = 'fencing.check_truncate()'::regprocedure
    loop
      execute format('alter table %s enable always trigger fencing_check_truncate', target);
    end loop;
    for target in
      select t.tgrelid from pg_trigger t
       where t.tgrelid = any (touched) and t.tgname = 'fencing_record_truncate' and t.tgenabled = 'O'
         and t.tgfoid = 'fencing.record_truncate()'::regprocedure
    loop
      execute format('alter table %s enable always trigger fencing_record_truncate', target);
    end loop;
  elsif tg_event = 'ddl_command_end' then
    perform fencing.complete_partition(i.partition, i.mode) from fencing.incomplete_partitions(touched) i;
    perform fencing.renew_recorders(touched);
    if tg_tag = 'ALTER TABLE' then  -- which may have changed the owner
      perform fencing.apply_clone_privileges(true);
    end if;
  end if;
  faults := (select coalesce(jsonb_agg(to_jsonb(f)), '[]') from fencing.table_faults() f
              where f.relation = any (touched) or f.other = any (touched) or moves_schema and f.about = 'name'
                 or exists (select from pg_partition_ancestors(f.relation) a where a.relid = any (touched)));
  -- Only faults that this command can have made. A missing trigger counts only for DROP and ALTER TRIGGER; a changed
  -- check function never does, because no command here replaces one.
  -- A superuser may disable and enable the checks,
  -- and could do so in any case: pg_restore --data-only --disable-triggers needs it.
  -- Foreign partitions and protected parents that were attached without the event triggers must not prevent
  -- that they are detached one by one.
  select f.fault into found_fault from jsonb_to_recordset(faults) f (relation oid, other oid, about text, fault text)
         cross join lateral (select exists (select from fencing.known_fault k where k.fault = f.fault)) k (is_known)
   where case f.about when 'history' then false
                      when 'function' then false
                      when 'altered trigger' then false
                      when 'missing trigger' then tg_event = 'sql_drop' or tg_tag = 'ALTER TRIGGER'
                      when 'changed trigger' then tg_tag in ('CREATE TRIGGER', 'ALTER TRIGGER')
                      when 'disabled trigger' then tg_tag in ('CREATE TRIGGER', 'ALTER TRIGGER')
                                                   or tg_tag = 'ALTER TABLE' and not exists (select from pg_roles r
                                                       where r.rolname = session_user and r.rolsuper)
                      -- A partition that was attached.
                      when 'trigger between' then tg_tag in ('CREATE TRIGGER', 'ALTER TRIGGER')
                        or tg_tag = 'ALTER TABLE' and f.relation <> f.other
                      when 'foreign' then not is_known
                      when 'protected parent' then not is_known
                      else true end
   order by f.fault limit 1;
  if found then
    if found_fault ~ '; record_changes[(][)] puts it back$' then
      raise exception using errcode = '55000', message = 'changes would not be recorded any more: ' || found_fault,
        hint = 'fencing.stop_recording() ends the record of a table.';
    end if;
    raise exception using errcode = '55000', message = 'this would open a protected table: ' || found_fault,
      hint = 'fencing.unprotect() takes the protection off, and fencing.protect() puts it on again.';
  end if;
  perform fencing.record_faults_of(touched, faults, tg_tag);
end
$$;
comment on function fencing.refuse_openings() is
  'Event trigger: refuses a command after which table_faults() would name a fault, '
  'and the dropping of a protected table. Completes new partitions before (complete_partition). '
  'protect() and unprotect() are not affected: they first remove the table from the list. '
  'The history records a fault that a command makes or mends all the same (record_faults_of). '
  'SQLSTATE 55000. Locks: none.';
